/* placement.h - pure functions that choose nodes and GPUs for actors and bundles. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_PLACEMENT_H
#define TDM_SCHEDULER_PLACEMENT_H

#include "scheduler/resources.h"

/* The same input gives the same placement on every node: the functions use no clock, no random
 * numbers and no addresses. The caller sorts the nodes by ID, chooses, and commits the result on
 * condition that the records it read are unchanged. After a conflict it chooses again.
 *
 * Failures: TDM_E_AGAIN if the request fits the nodes' totals but not what is free now, so that
 * waiting may help. TDM_E_NO_RESOURCES if it could not fit even if all nodes were idle. Both
 * messages tell what was requested and what the nodes have. */

/* Largest number of nodes among which a placement can choose. */
enum { TDM__PLACEMENT_NODES_MAX = 1024 };

/* The node and the resources chosen for one bundle or actor. */
struct tdm__bundle_placement {
    uint32_t node;           /* Index of the chosen node in the array that the caller passed. */
    struct tdm__grant grant; /* Resources to allocate on the chosen node. */
};

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
 * A greedy search comes first. If it fails, a bounded backtracking search follows, which finds
 * placements that exist in only one arrangement. Beyond its bound the result is TDM_E_AGAIN;
 * TDM_E_NO_RESOURCES is returned only if it was proved. */
tdm_status tdm__placement_choose_all(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                                     const struct tdm__resources *bundles, uint32_t bundles_count,
                                     enum tdm_placement_strategy strategy,
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
 * Among equal nodes it chooses the first. */
tdm_status tdm__placement_choose_one(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                                     const struct tdm__placement_request *request,
                                     struct tdm__bundle_placement *placement_out);

#endif
