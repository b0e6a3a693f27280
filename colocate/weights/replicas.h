/* replicas.h - which trainer ranks hold the same slice of a tensor. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_REPLICAS_H
#define TDM_COLOCATE_WEIGHTS_REPLICAS_H

#include "colocate/weights/layout.h"

#include <stdbool.h>

/* A trainer rank that holds a slice. */
struct tdm__slice_holder {
    uint32_t rank;  /* Trainer rank that holds the slice. */
    uint32_t slice; /* Index of the slice in the rank's layout. */
};

/* All slices of all trainer ranks. Slices with the same elements of the same tensor are one group:
 * replicas, of which an update needs one. It never changes after its creation. */
struct tdm__replicas {
    /* All slices, ordered by group and rank; owned. */
    struct tdm__slice_holder *holders;
    /* For each group the index in `holders` of its first holder, and one entry more for the end.
     * Groups are ordered by tensor. Owned. */
    uint32_t *groups;
    uint32_t groups_count; /* Number of groups. */
    /* For each rank the index in `sends` of its first slice; owned. */
    uint32_t *rank_firsts;
    /* For each slice of each rank true if it is the one of its group that sends where it does not
     * matter which one does. The ranks so send about the same number of bytes. Owned. */
    bool *sends;
};

/* Finds the replicas among the slices of `layouts_count` trainer ranks, whose layouts have been
 * checked with tdm__layout_check(). The result depends on the arguments only. On failure the caller
 * has nothing to free. */
tdm_status tdm__replicas_init(const struct tdm__manifest *manifest,
                              const struct tdm__layout *layouts, uint32_t layouts_count,
                              struct tdm__replicas *replicas_out);
/* Frees the arrays. */
void tdm__replicas_fini(struct tdm__replicas *replicas);

/* Returns true if this slice of the rank is the one of its group that sends where it does not
 * matter which one does. */
bool tdm__replicas_sends(const struct tdm__replicas *replicas, uint32_t rank, uint32_t slice);

#endif
