/* gather_groups.h - which trainer ranks serve which engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_GATHER_GROUPS_H
#define TDM_COLOCATE_JOB_GATHER_GROUPS_H

#include <stdint.h>

/* A gather group has as many trainer ranks as an engine has ranks: group g has the ranks from
 * g × ranks_per_engine on. Trainer ranks that are left over are in no group. The transfer plan has
 * an image of the weights for each rank of a group, with the same number as the trainer rank. All
 * engines of a group have equal layouts, so that one image serves the ranks of the same number of
 * them all. Colocated engines have a group each. Engines with GPUs of their own may be more than
 * there are groups, and engines may be added while a job runs. */

/* Returns how many gather groups `trainers_count` trainer ranks form for engines with GPUs of their
 * own: as many as fit, at most one for each engine. */
uint32_t tdm__gather_groups_count(uint32_t trainers_count, uint32_t ranks_per_engine,
                                  uint32_t engines_count);
/* Returns the gather group of an engine, if there are `groups_count` groups. */
uint32_t tdm__gather_group_of_engine(uint32_t engine, uint32_t groups_count);

#endif
