/* placement.h - pure functions that choose nodes and GPUs for actors and bundles. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_PLACEMENT_H
#define TDM_SCHEDULER_PLACEMENT_H

#include "scheduler/resources.h"

/* The same input gives the same placement on every node: the functions use no clock, no random
 * numbers but those of their argument, and no addresses. The caller sorts the nodes by ID, chooses,
 * and commits the result on condition that the records it read are unchanged. After a conflict it
 * chooses again.
 *
 * Failures: TDM_E_AGAIN if the request fits the nodes' totals but not what is free now, so that
 * waiting may help. TDM_E_NO_RESOURCES if it could not fit even if all nodes were idle. Both
 * messages tell what was requested and what the nodes have. A node that is kept for another request
 * (`is_kept`) takes nothing now, and what it has in all counts for the choice of the failure. */

/* Largest number of nodes among which a placement can choose. */
enum { TDM__PLACEMENT_NODES_MAX = 1024 };

/* The node and the resources chosen for one bundle or actor. */
struct tdm__bundle_placement {
    uint32_t node;           /* Index of the chosen node in the array that the caller passed. */
    struct tdm__grant grant; /* Resources to allocate on the chosen node. */
};

/* How a choice differs from those that other nodes make at the same time from the same records. All
 * zero, and a width of 1, give the best choice. */
struct tdm__placement_chance {
    uint32_t width; /* Number of best candidates among which to choose. */
    uint64_t seed;  /* Decides which of them is chosen. */
    /* ID of the node that an actor takes if it fits and the width is above 1: the one on which the
     * last actor was placed; all zero for none. */
    struct tdm__id again;
};
/* Returns the chance of the choices that are made for `chooser` (the node of an actor's creator, or
 * another ID), where others have won `losses` races (tdm__txn_losses()), which makes a spread of
 * `spread` advisable (tdm__txn_spread()). The width is 1 without a spread, and doubles with each
 * step of it. The seed differs from chooser to chooser and changes with every second loss: after
 * the first one the records of the choice were read again. */
struct tdm__placement_chance tdm__placement_chance_of(const struct tdm__id *chooser,
                                                      uint64_t losses, uint32_t spread);

/* Chooses a node for every bundle of a group, or fails. `placements_out` has `bundles_count`
 * entries. The nodes' pools are not changed.
 *
 *   PACK           one node if it fits all bundles, else few nodes (a heuristic, not a minimum)
 *   SPREAD         each bundle on the node with the fewest bundles of the group so far
 *   STRICT_PACK    all bundles on the first node that fits them
 *   STRICT_SPREAD  at most one bundle on each node
 *
 * Order: of two equal bundles, the one with the lower index gets the lower placement, compared by
 * node and then by GPU indices. So equal bundles are numbered node by node, and GPU by GPU within a
 * node.
 *
 * With a chance, PACK and STRICT_PACK take one of the first `width` nodes that fit all bundles, and
 * equal nodes are tried in an order that begins at a node which `seed` chooses. NULL for `chance`:
 * as specified above.
 *
 * A greedy search comes first. If it fails, a bounded backtracking search follows, which finds
 * placements that exist in only one arrangement. Beyond its bound the result is TDM_E_AGAIN;
 * TDM_E_NO_RESOURCES is returned only if it was proved. */
tdm_status tdm__placement_choose_all(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                                     const struct tdm__resources *bundles, uint32_t bundles_count,
                                     enum tdm_placement_strategy strategy,
                                     const struct tdm__placement_chance *chance,
                                     struct tdm__bundle_placement *placements_out);

/* What an actor outside of a placement group requests. */
struct tdm__placement_request {
    struct tdm__resources wanted; /* Resources that the actor needs. */
    struct tdm__id owner_node;    /* ID of the node of the actor's creator; all zero if unknown. */
    enum tdm_scheduling scheduling; /* Strategy for choosing the node. */
    /* ID of the requested node; only for TDM_SCHEDULE_NODE and TDM_SCHEDULE_NODE_SOFT. */
    struct tdm__id node;
    struct tdm__labels labels; /* Constraints that the node's labels must satisfy. */
};

/* Chooses a node for one actor, among the nodes whose labels satisfy its constraints:
 *
 *   DEFAULT    `owner_node` if it fits, else the fitting node with the least free CPU
 *   SPREAD     the fitting node with the fewest actors
 *   NODE       only the node `node`
 *   NODE_SOFT  `node` if it fits, else as DEFAULT
 *
 * Among equal nodes it chooses the first. With a chance it chooses one of the `width` best nodes,
 * or `again`, unless the best one is `owner_node` or `node`, which others prefer less. SPREAD
 * chooses only among nodes with the fewest actors. NULL for `chance`: as specified above. */
tdm_status tdm__placement_choose_one(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                                     const struct tdm__placement_request *request,
                                     const struct tdm__placement_chance *chance,
                                     struct tdm__bundle_placement *placement_out);

#endif
