/* placement_group.h - the user's handle to a placement group. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_PLACEMENT_GROUP_H
#define TDM_ACTORS_COMMON_PLACEMENT_GROUP_H

#include "runtime/id.h"

#include <tandem/placement.h>

/* A placement group and the placement of its bundles. Owned by the user; it does not change
 * after its creation. */
struct tdm_placement_group {
    tdm_runtime *runtime;   /* The runtime that it belongs to, borrowed. */
    struct tdm__id id;      /* Id of the placement group. */
    uint32_t bundles_count; /* Number of bundles. */
    /* Node and GPUs of each bundle; owned array of `bundles_count`. */
    struct tdm_bundle_placement *places;
};

#endif
