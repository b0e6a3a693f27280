/* placement.h - chooses nodes and GPUs for actors and bundles: pure functions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_PLACEMENT_H
#define TDM_SCHEDULER_PLACEMENT_H

#include "scheduler/resources.h"

/* The same input gives the same plan on every node: nothing here looks at clocks, chance or
 * addresses.  The caller sorts the nodes by id, plans, and commits the outcome under the
 * versions of the records it read; a lost race is planned again.
 *
 * Failures: TDM_E_AGAIN when the plan fits the nodes' totals but not what is free now, so that
 * waiting may help; TDM_E_NO_RESOURCES when no state of these nodes could hold it.  Both tell
 * what was wanted and what is there. */

enum { TDM__PLACEMENT_NODES_MAX = 1024 };

struct tdm__bundle_placement {
    uint32_t node; /* index into the nodes given */
    struct tdm__grant grant;
};

/* Finds a place for every bundle, or for none.  placements_out has bundles_count entries; the pools
 * stay as they are.
 *
 *   PACK           one node if one holds all, else few: a heuristic, not a minimum
 *   SPREAD         each bundle on the node with the fewest bundles of the group so far
 *   STRICT_PACK    all on one node, the first that can
 *   STRICT_SPREAD  no two on one node
 *
 * Order: among bundles that ask for the same, a lower bundle index has the lower place,
 * compared by node, then by GPU indices from the lowest.  So with equal bundles, index order is
 * node by node and within a node GPU by GPU.
 *
 * A greedy descent comes first; where it fails, a bounded search follows, so that bundles that
 * fit only in one arrangement are found.  Past the bound the answer is TDM_E_AGAIN: "never" is
 * only said when it was shown. */
tdm_status tdm__placement_choose_all(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                                     const struct tdm__resources *bundles, uint32_t bundles_count,
                                     enum tdm_placement_strategy strategy,
                                     struct tdm__bundle_placement *placements_out);

/* What an actor without a group asks for. */
struct tdm__placement_request {
    struct tdm__resources wanted;
    struct tdm__id owner_node; /* the node of its creator */
    enum tdm_scheduling scheduling;
    struct tdm__id node; /* for TDM_SCHEDULE_NODE and …_SOFT */
    struct tdm__labels labels;
};

/* Finds a place for one actor, among the nodes whose labels are as it wishes:
 *
 *   DEFAULT    `owner_node` if it fits there, else the node with the least free CPU where it fits
 *   SPREAD     the node with the fewest actors where it fits
 *   NODE       `node` or none
 *   NODE_SOFT  `node` if it fits there, else as by default
 *
 * The first node on ties. */
tdm_status tdm__placement_choose_one(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                                     const struct tdm__placement_request *wish,
                                     struct tdm__bundle_placement *placement_out);

#endif
