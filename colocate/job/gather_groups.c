/* gather_groups.c - which trainer ranks serve which engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/gather_groups.h"

#include "runtime/assert.h"

/* Returns the smaller number. */
static uint32_t smaller(uint32_t one, uint32_t other)
{
    return one < other ? one : other;
}

struct tdm__gather_groups tdm__gather_groups_form(uint32_t trainers_count,
                                                  uint32_t ranks_per_engine, uint32_t engines_count,
                                                  bool are_colocated)
{
    struct tdm__gather_groups groups = {.count = engines_count,
                                        .ranks_per_group = ranks_per_engine,
                                        .ranks_per_engine = ranks_per_engine};

    TDM_ASSERT(trainers_count > 0 && ranks_per_engine > 0 && engines_count > 0);
    if (!are_colocated) {
        groups.ranks_per_group = smaller(ranks_per_engine, trainers_count);
        groups.count = smaller(engines_count, trainers_count / groups.ranks_per_group);
    }
    return groups;
}

uint32_t tdm__gather_groups_images(const struct tdm__gather_groups *groups)
{
    return groups->count * groups->ranks_per_engine;
}

uint32_t tdm__gather_groups_images_max(const struct tdm__gather_groups *groups)
{
    return (groups->ranks_per_engine + groups->ranks_per_group - 1) / groups->ranks_per_group;
}

uint32_t tdm__gather_groups_of_engine(const struct tdm__gather_groups *groups, uint32_t engine)
{
    TDM_ASSERT(groups->count > 0);
    return engine % groups->count;
}

uint32_t tdm__gather_groups_image(const struct tdm__gather_groups *groups, uint32_t engine,
                                  uint32_t engine_rank)
{
    return tdm__gather_groups_of_engine(groups, engine) * groups->ranks_per_engine + engine_rank;
}

uint32_t tdm__gather_groups_server(const struct tdm__gather_groups *groups, uint32_t image)
{
    uint32_t group = image / groups->ranks_per_engine;
    uint32_t engine_rank = image % groups->ranks_per_engine;

    return group * groups->ranks_per_group +
           engine_rank * groups->ranks_per_group / groups->ranks_per_engine;
}

uint32_t tdm__gather_groups_of_trainer(const struct tdm__gather_groups *groups, uint32_t rank)
{
    TDM_ASSERT(groups->ranks_per_group > 0);
    return rank / groups->ranks_per_group;
}

/* The rank with number s in its group serves the images whose number k in the group has
 * s = k × ranks_per_group / ranks_per_engine, rounded down; the first k is the rounded up quotient
 * below. */
uint32_t tdm__gather_groups_first_image(const struct tdm__gather_groups *groups, uint32_t rank)
{
    uint32_t group = tdm__gather_groups_of_trainer(groups, rank);
    uint32_t number = rank % groups->ranks_per_group;

    return group * groups->ranks_per_engine +
           (number * groups->ranks_per_engine + groups->ranks_per_group - 1) /
               groups->ranks_per_group;
}

uint32_t tdm__gather_groups_images_of(const struct tdm__gather_groups *groups, uint32_t rank)
{
    return tdm__gather_groups_of_trainer(groups, rank) >= groups->count
               ? 0
               : tdm__gather_groups_first_image(groups, rank + 1) -
                     tdm__gather_groups_first_image(groups, rank);
}
