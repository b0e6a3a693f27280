/* gather_groups.c - which trainer ranks serve which engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/gather_groups.h"

#include "runtime/assert.h"

/* Returns the smaller number. */
static uint32_t smaller(uint32_t one, uint32_t other)
{
    return one < other ? one : other;
}

bool tdm__gather_groups_divide(uint32_t trainers_count, uint32_t ranks_per_engine,
                               uint32_t engines_count)
{
    return trainers_count >= engines_count * ranks_per_engine
               ? trainers_count % ranks_per_engine == 0
               : trainers_count % engines_count == 0 || engines_count % trainers_count == 0;
}

struct tdm__gather_groups tdm__gather_groups_form(uint32_t trainers_count,
                                                  uint32_t ranks_per_engine, uint32_t engines_count,
                                                  bool are_colocated)
{
    struct tdm__gather_groups groups = {.count = engines_count,
                                        .ranks_per_group = ranks_per_engine,
                                        .ranks_per_engine = ranks_per_engine,
                                        .engines_per_group = 1};

    TDM_ASSERT(trainers_count > 0 && ranks_per_engine > 0 && engines_count > 0);
    if (!are_colocated) {
        groups.ranks_per_group = smaller(ranks_per_engine, trainers_count);
        groups.count = smaller(engines_count, trainers_count / groups.ranks_per_group);
    } else if (trainers_count < engines_count * ranks_per_engine) {
        groups.count = smaller(engines_count, trainers_count);
        groups.ranks_per_group = trainers_count / groups.count;
        groups.engines_per_group = engines_count / groups.count;
    }
    return groups;
}

uint32_t tdm__gather_groups_images(const struct tdm__gather_groups *groups)
{
    return groups->count * tdm__gather_groups_images_each(groups);
}

uint32_t tdm__gather_groups_images_each(const struct tdm__gather_groups *groups)
{
    return groups->engines_per_group * groups->ranks_per_engine;
}

uint32_t tdm__gather_groups_images_max(const struct tdm__gather_groups *groups)
{
    return (tdm__gather_groups_images_each(groups) + groups->ranks_per_group - 1) /
           groups->ranks_per_group;
}

uint32_t tdm__gather_groups_of_engine(const struct tdm__gather_groups *groups, uint32_t engine)
{
    TDM_ASSERT(groups->count > 0 && groups->engines_per_group > 0);
    return engine / groups->engines_per_group % groups->count;
}

uint32_t tdm__gather_groups_image(const struct tdm__gather_groups *groups, uint32_t engine,
                                  uint32_t engine_rank)
{
    return tdm__gather_groups_of_engine(groups, engine) * tdm__gather_groups_images_each(groups) +
           engine % groups->engines_per_group * groups->ranks_per_engine + engine_rank;
}

uint32_t tdm__gather_groups_server(const struct tdm__gather_groups *groups, uint32_t image)
{
    uint32_t each = tdm__gather_groups_images_each(groups);

    return image / each * groups->ranks_per_group + image % each * groups->ranks_per_group / each;
}

uint32_t tdm__gather_groups_of_trainer(const struct tdm__gather_groups *groups, uint32_t rank)
{
    TDM_ASSERT(groups->ranks_per_group > 0);
    return rank / groups->ranks_per_group;
}

/* The rank with number s in its group serves the images whose number k in the group has
 * s = k × ranks_per_group / each, rounded down; the first k is the rounded up quotient below. */
uint32_t tdm__gather_groups_first_image(const struct tdm__gather_groups *groups, uint32_t rank)
{
    uint32_t group = tdm__gather_groups_of_trainer(groups, rank);
    uint32_t number = rank % groups->ranks_per_group;
    uint32_t each = tdm__gather_groups_images_each(groups);

    return group * each + (number * each + groups->ranks_per_group - 1) / groups->ranks_per_group;
}

uint32_t tdm__gather_groups_images_of(const struct tdm__gather_groups *groups, uint32_t rank)
{
    return tdm__gather_groups_of_trainer(groups, rank) >= groups->count
               ? 0
               : tdm__gather_groups_first_image(groups, rank + 1) -
                     tdm__gather_groups_first_image(groups, rank);
}
