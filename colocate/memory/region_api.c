/* region_api.c - tdm_region_create: the public door to the regions of this actor's GPUs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/region.h"

tdm_status tdm_region_create(tdm_runtime *runtime, const struct tdm_region_options *options,
                             tdm_region **region_out)
{
    struct tdm__regions *regions;

    TDM_TRY(tdm__runtime_regions(runtime, options->gpu, &regions));
    return tdm__region_create(regions, options, region_out);
}
