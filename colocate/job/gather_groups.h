/* gather_groups.h - which trainer ranks serve which engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_GATHER_GROUPS_H
#define TDM_COLOCATE_JOB_GATHER_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

/* A gather group has as many trainer ranks as an engine has ranks, or fewer if the trainer has
 * too few. Group g has the ranks from g × ranks_per_group on. Trainer ranks that are left
 * over are in no group. The transfer plan has images of the weights for each group, which follow
 * one another. Each image is *served* by one trainer rank of the group. That rank has the image in
 * its bucket, or writes it for the group into the memory of an engine rank on its node. If a group
 * has fewer ranks than images, each of its ranks serves several that follow one another.
 *
 * Engines with GPUs of their own: a group has an image for each rank of an engine. All engines of
 * the group have equal layouts, so that the ranks of the same number of them all share one image.
 * They may be more than there are groups, and engines may be added while a job runs.
 *
 * Colocated engines: each engine rank has an image of its own, with the number of the rank among
 * those of all engines, which is also the number of its GPU. An engine has a group of its own, or,
 * if the trainer has fewer ranks than there are engines, each group is one trainer rank that serves
 * several engines whole. A trainer rank is on the GPU of the first image that it serves. */
struct tdm__gather_groups {
    uint32_t count;             /* Number of gather groups; at least 1. */
    uint32_t ranks_per_group;   /* Number of trainer ranks of each group; at least 1. */
    uint32_t ranks_per_engine;  /* Number of ranks of each engine; at least 1. */
    uint32_t engines_per_group; /* Number of engines of a group that have images of their own. */
};

/* Returns whether colocated engines can be divided among the trainer ranks, or these among them. */
bool tdm__gather_groups_divide(uint32_t trainers_count, uint32_t ranks_per_engine,
                               uint32_t engines_count);
/* Returns the gather groups of a job with `trainers_count` trainer ranks. Engines with GPUs of
 * their own have as many groups as fit, at most one for each engine. If the engines are colocated,
 * tdm__gather_groups_divide() is true for them. */
struct tdm__gather_groups tdm__gather_groups_form(uint32_t trainers_count,
                                                  uint32_t ranks_per_engine, uint32_t engines_count,
                                                  bool are_colocated);

/* Returns the number of images of the transfer plan. */
uint32_t tdm__gather_groups_images(const struct tdm__gather_groups *groups);
/* Returns the number of images of each group. */
uint32_t tdm__gather_groups_images_each(const struct tdm__gather_groups *groups);
/* Returns the most images that one trainer rank serves, for which each bucket has room. */
uint32_t tdm__gather_groups_images_max(const struct tdm__gather_groups *groups);

/* Returns the gather group of an engine. */
uint32_t tdm__gather_groups_of_engine(const struct tdm__gather_groups *groups, uint32_t engine);
/* Returns the image of an engine rank. */
uint32_t tdm__gather_groups_image(const struct tdm__gather_groups *groups, uint32_t engine,
                                  uint32_t engine_rank);
/* Returns the trainer rank that serves an image. */
uint32_t tdm__gather_groups_server(const struct tdm__gather_groups *groups, uint32_t image);

/* Returns the gather group of a trainer rank; the number of groups or more if it is in none. */
uint32_t tdm__gather_groups_of_trainer(const struct tdm__gather_groups *groups, uint32_t rank);
/* Returns the first image that a trainer rank serves. Its other images follow. If engines are
 * colocated it is the number of the trainer rank's GPU, also if the rank is in no group. */
uint32_t tdm__gather_groups_first_image(const struct tdm__gather_groups *groups, uint32_t rank);
/* Returns the number of images that a trainer rank serves; 0 if it is in no group. */
uint32_t tdm__gather_groups_images_of(const struct tdm__gather_groups *groups, uint32_t rank);

#endif
