/* reserve_epoch.h - a node that lives gets a new epoch. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RESERVE_EPOCH_H
#define TDM_SCHEDULER_RESERVE_EPOCH_H

#include "scheduler/reserve.h"

/* Gives the node `node` an epoch higher than `epoch`, unless it has one or is not in the cluster.
 * The caller has counted the node as lost in `epoch`, but the store has its record, because it is
 * another store or has lost changes since. Processes refuse those of a lost epoch for good, so the
 * node could not work with them without a new one. Nodes that have not counted it as lost see by
 * the field lives_since of its record that it was not lost. The node learns of its new epoch by the
 * next renewal of its lease, which this starts anew. `fn` is called once with the outcome. */
tdm_status tdm__reserve_new_epoch(struct tdm__store *store, const struct tdm__id *node,
                                  uint64_t epoch, int64_t deadline_ms, tdm__reserve_done_fn *fn,
                                  void *arg);

#endif
