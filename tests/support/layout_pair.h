/* layout_pair.h - the transfer plan between two layouts of a model, as jobs compile it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_LAYOUT_PAIR_H
#define TDM_TESTS_SUPPORT_LAYOUT_PAIR_H

#include "colocate/job/named_layout_slices.h"
#include "colocate/weights/transfer_plan.h"

/* One side of a pair: the layout of each rank. */
struct layout_pair_side {
    const struct tdm__sharding *sharding; /* Borrowed. */
    struct tdm__model *model;             /* Owned tensors of the model, as this side has them. */
    struct tdm__named_layout *ranks;      /* Owned array: what each rank has, and where. */
    struct tdm__layout *layouts;          /* Owned array; the slices are those of `ranks`. */
};

/* Two layouts and the plan between them. */
struct layout_pair {
    struct layout_pair_side from;
    struct layout_pair_side to;
    struct tdm__manifest *manifest;  /* Owned. */
    struct tdm__transfer_plan *plan; /* Owned. */
};

/* What layout_pair_plan() plans; all pointers are borrowed for the life of the pair. */
struct layout_pair_options {
    const struct tdm__model_config *config;
    bool mtp; /* True to include the layers of multi-token prediction. */
    const struct tdm__sharding *from;
    const struct tdm__sharding *to;
    /* Node and GPU of each rank, or NULL: see struct tdm__transfer_plan_options. */
    const struct tdm__location *from_locations;
    const struct tdm__location *to_locations;
    uint64_t chunk_bytes;
};

/* Builds both sides and compiles the plan, as the ranks of a job do. On failure there is nothing to
 * drop. */
tdm_status layout_pair_plan(const struct layout_pair_options *options, struct layout_pair *pair);
/* Frees the pair. */
void layout_pair_drop(struct layout_pair *pair);

#endif
