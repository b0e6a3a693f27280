/* reserve_restore.h - writes records of actors and groups again, after the store lost changes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RESERVE_RESTORE_H
#define TDM_SCHEDULER_RESERVE_RESTORE_H

#include "scheduler/reconcile.h"
#include "scheduler/reserve.h"

/* Writes again what the store has lost of an actor that runs on the requesting node: its record,
 * its name, and its share of its node or bundle. Succeeds if nothing is lost. Returns TDM_E_EXISTS
 * if another actor has the name or the actor was placed elsewhere later, TDM_E_NOT_FOUND if its
 * group does not exist, and TDM_E_AGAIN if everything but the name is written, because the name may
 * still belong to another actor. */
tdm_status tdm__restore_actor(struct tdm__store *store, const struct tdm__actor_record *actor,
                              const struct tdm__store_view *view, int64_t deadline_ms,
                              tdm__reserve_done_fn *fn, void *arg);

/* Adds to the transaction the write of the name of `actor`, which runs on the requesting node, or
 * sets `waits_out` if it must wait. Returns TDM_E_EXISTS if the name is taken. Does nothing for an
 * actor without a name. The transaction must read the name's key and all keys
 * of node/. */
tdm_status tdm__restore_name(struct tdm__txn *txn, const struct tdm__actor_record *actor,
                             const struct tdm__store_view *view, bool *waits_out);

/* Writes again what the store has lost of a placed placement group, with all bundles free. `group`
 * is its record as it was placed. Succeeds if nothing is lost. A record with other bundles is
 * replaced. Returns TDM_E_AGAIN while the node of a bundle is lost; `without_lost` ignores such
 * nodes instead. If another group has taken the name, it keeps it; while names wait, TDM_E_AGAIN is
 * returned. */
tdm_status tdm__placement_group_restore(struct tdm__store *store,
                                        const struct tdm__placement_group_record *group,
                                        bool without_lost, const struct tdm__store_view *view,
                                        int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg);

#endif
