/* placement_group.h - a placement group as its creator holds it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_PLACEMENT_GROUP_H
#define TDM_ACTORS_CLIENT_PLACEMENT_GROUP_H

#include "runtime/id.h"

#include <tandem/placement.h>

struct tdm_placement_group {
    tdm_runtime *runtime; /* borrowed */
    struct tdm__id id;
    uint32_t bundles_count;
    struct tdm_bundle_placement *places; /* owned, one per bundle */
};

#endif
