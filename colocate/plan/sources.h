/* sources.h - who holds which rectangles of each of a model's tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_PLAN_SOURCES_H
#define TDM_COLOCATE_PLAN_SOURCES_H

#include "colocate/plan/shards.h"

struct tdm__holder {
    struct tdm__rectangle rectangle;
    uint64_t offset; /* as in struct tdm__piece, and so on */
    uint32_t pitch;
    uint32_t rank;
    uint32_t local;
    uint8_t dtype;
};

/* By tensor; of one tensor by rectangle, then by rank: replicas lie side by side. */
struct tdm__sources {
    uint32_t *firsts;            /* owned; of each tensor, and one more for the end */
    struct tdm__holder *holders; /* owned */
};

/* `shards` has one entry a rank.  Each of a layout's rectangles of a tensor is the same as
 * another one or apart from it. */
tdm_status tdm__sources_make(const struct tdm__model *model, const struct tdm__shards *shards,
                             uint32_t ranks_count, struct tdm__sources *sources_out);
void tdm__sources_fini(struct tdm__sources *sources);

/* How many of the holders from `holder` to `end` have its rectangle. */
uint32_t tdm__sources_replicas(const struct tdm__holder *holder, const struct tdm__holder *end);

#endif
