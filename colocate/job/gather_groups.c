/* gather_groups.c - which trainer ranks serve which engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/gather_groups.h"

#include "runtime/assert.h"

uint32_t tdm__gather_groups_count(uint32_t trainers_count, uint32_t ranks_per_engine,
                                  uint32_t engines_count)
{
    uint32_t groups_max;

    TDM_ASSERT(ranks_per_engine > 0);
    groups_max = trainers_count / ranks_per_engine;
    return engines_count < groups_max ? engines_count : groups_max;
}

uint32_t tdm__gather_group_of_engine(uint32_t engine, uint32_t groups_count)
{
    TDM_ASSERT(groups_count > 0);
    return engine % groups_count;
}
