/* placement_group.h - the user's handle to a placement group. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_PLACEMENT_GROUP_H
#define TDM_ACTORS_COMMON_PLACEMENT_GROUP_H

#include "runtime/id.h"

#include <stdatomic.h>
#include <tandem/placement.h>

/* A placement group and the placement of its bundles. Owned by the user. After its creation only
 * `places` changes, once, when the process learns where the bundles of a pending group are. */
struct tdm_placement_group {
    tdm_runtime *runtime; /* The runtime that it belongs to, borrowed. */
    struct tdm__id id;    /* Id of the placement group. */
    /* What the handle knew when it was created; `is_placed` is read from `places` instead. */
    struct tdm_placement_group_info info;
    uint32_t bundles_count; /* Number of bundles. */
    /* Node and GPUs of each bundle; owned array of `bundles_count`, NULL while they are not
     * known. Several threads may find out at once. */
    _Atomic(struct tdm_bundle_placement *) places;
};

#endif
