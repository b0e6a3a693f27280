/* retrying_txn.h - a transaction that may be made twice, made until its outcome is known. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RETRYING_TXN_H
#define TDM_SCHEDULER_RETRYING_TXN_H

#include "runtime/store.h"

/* As tdm__txn_run(), for bodies that see from the records whether they were committed before,
 * and then change nothing: after TDM_E_STORE, when nobody knows, it is run again until the
 * deadline. */
tdm_status tdm__retrying_txn_run(struct tdm__store *store, const char *const *patterns,
                                 uint32_t patterns_count, int64_t deadline_ms,
                                 tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg);

/* The same for bodies that all write the same records, such as a node's free resources: those
 * of one process wait for each other, in the order asked, instead of failing each other's
 * commits; and they begin with what the store's `known` holds, if it has one. The deadline
 * counts from the call on. */
tdm_status tdm__retrying_txn_run_queued(struct tdm__store *store, const char *const *patterns,
                                        uint32_t patterns_count, int64_t deadline_ms,
                                        tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg);

#endif
