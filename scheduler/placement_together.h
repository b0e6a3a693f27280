/* placement_together.h - chooses nodes for bundles of which several must be on one node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_PLACEMENT_TOGETHER_H
#define TDM_SCHEDULER_PLACEMENT_TOGETHER_H

#include "scheduler/placement.h"

/* Chooses a node for every bundle as tdm__placement_choose_all() does, and places each `together`
 * consecutive bundles on one node: bundles 0 to together - 1, the next `together` bundles, and so
 * on. The strategy then distributes these sets. If all bundles are equal, they are numbered node by
 * node, and GPU by GPU within a set.
 *
 * Returns TDM_E_INVAL if `bundles_count` is no multiple of `together`, or if the bundles of a set
 * are not equal or have fractions of a GPU. Other failures are those of
 * tdm__placement_choose_all(); their messages tell the resources of whole sets. */
tdm_status tdm__placement_choose_together(const struct tdm__node_resources *nodes,
                                          uint32_t nodes_count,
                                          const struct tdm__resources *bundles,
                                          uint32_t bundles_count, uint32_t together,
                                          enum tdm_placement_strategy strategy,
                                          const struct tdm__placement_chance *chance,
                                          struct tdm__bundle_placement *placements_out);

#endif
