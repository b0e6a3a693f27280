/* region_api.h - the sets of regions of this process, one for each of its GPUs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_REGION_API_H
#define TDM_COLOCATE_MEMORY_REGION_API_H

#include "colocate/memory/region.h"

/* Writes the set of regions for the actor's GPU number `gpu` (0 for its first). The first call
 * creates the set; it is destroyed when the runtime stops. */
tdm_status tdm__runtime_regions_of_gpu(tdm_runtime *runtime, uint32_t gpu,
                                       struct tdm__regions **regions_out);

#endif
