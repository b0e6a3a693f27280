/* reserve_reconcile.h - writes what a node holds into a store that has lost changes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RESERVE_RECONCILE_H
#define TDM_SCHEDULER_RESERVE_RECONCILE_H

#include "scheduler/reconcile.h"
#include "scheduler/reserve.h"

/* What a node holds, according to its daemon. All arrays are borrowed during the call. */
struct tdm__node_holdings {
    struct tdm__id node;                      /* ID of the node. */
    const struct tdm__node_resources *totals; /* Resources of the node, all free. */
    const struct tdm__actor_record *actors;   /* Records of the actors that run on the node. */
    uint32_t actors_count;                    /* Number of entries in `actors`. */
    /* IDs of the placement groups that the node's daemon has in its table. */
    const struct tdm__id *groups;
    uint32_t groups_count; /* Number of entries in `groups`. */
    /* IDs of all actors in the table of the node's daemon, and of those that it releases; only with
     * `removes_orphans`. */
    const struct tdm__id *known;
    uint32_t known_count; /* Number of entries in `known`. */
    /* Whether records of actors are also removed that were placed here in this generation, but do
     * not run here, if the node that placed them is lost; and those that this node placed on a lost
     * node and does not know any more. Not while no node counts as lost: the operation would fail
     * with TDM_E_AGAIN. */
    bool removes_orphans;
};

/* A placement whose record was removed because the actor did not run on the node. */
struct tdm__removed_placement {
    struct tdm__id actor; /* ID of the actor. */
    uint32_t placements;  /* Number of the placement, see struct tdm__actor_record. */
};

/* What a reconciliation has found. Both arrays are borrowed. */
struct tdm__reconciled {
    /* IDs of the placement groups that the store has for this node although its daemon does not
     * know them. */
    const struct tdm__id *groups;
    uint32_t groups_count; /* Number of entries in `groups`. */
    /* Placements whose records were removed: requests to start them must be refused, and actors
     * that were started meanwhile written again. */
    const struct tdm__removed_placement *removed;
    uint32_t removed_count; /* Number of entries in `removed`. */
};
/* Callback that gets the outcome of a reconciliation. `reconciled` is borrowed; it has the removed
 * placements also if the status is TDM_E_AGAIN because records remain to be deleted, and otherwise
 * is empty unless the status is TDM_OK. */
typedef void tdm__reserve_reconciled_fn(void *arg, tdm_status status, const char *detail,
                                        const struct tdm__reconciled *reconciled);
/* Makes the store agree with what the node holds, in one commit. The free resources of the node are
 * computed from `holdings` and from the bundles of placement groups. The records of the actors are
 * written; tdm__restore_actor() writes those that remain, and says what became of each. Records of
 * other actors that name this node are deleted, unless the actor was placed here in this generation
 * of the store, fits, and is no orphan (`removes_orphans`). A bundle on this node whose resources
 * are not free is removed from its group. Fails with TDM_E_AGAIN if the store has no record of the
 * node, which must join first, and after a commit that leaves records to be deleted. `view` is
 * borrowed until `fn` runs. */
tdm_status tdm__reserve_reconcile(struct tdm__store *store,
                                  const struct tdm__node_holdings *holdings,
                                  const struct tdm__store_view *view, int64_t deadline_ms,
                                  tdm__reserve_reconciled_fn *fn, void *arg);

/* Notes in free/ID that the node has written all its records in the generation of the store, and
 * also the names of its actors if `with_names`. */
tdm_status tdm__reserve_settled(struct tdm__store *store, const struct tdm__id *node,
                                uint64_t generation, bool with_names, int64_t deadline_ms,
                                tdm__reserve_done_fn *fn, void *arg);

#endif
