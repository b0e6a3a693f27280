/* source_index.h - who holds which rectangles of each of a model's tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_SOURCE_INDEX_H
#define TDM_COLOCATE_LAYOUT_SOURCE_INDEX_H

#include "colocate/layout/rank_shards.h"

struct tdm__source_slice {
    struct tdm__rectangle rectangle;
    uint64_t offset; /* as in struct tdm__tensor_slice, and so on */
    uint32_t pitch;
    uint32_t rank;
    uint32_t shard_tensor;
    uint8_t dtype;
};

/* By tensor; of one tensor by rectangle, then by rank: replicas lie side by side. */
struct tdm__source_index {
    uint32_t *tensor_offsets;                /* owned; of each tensor, and one more for the end */
    struct tdm__source_slice *source_slices; /* owned */
};

/* `shards` has one entry a rank.  Each of a layout's rectangles of a tensor is the same as
 * another one or apart from it. */
tdm_status tdm__source_index_init(const struct tdm__model *model,
                                  const struct tdm__rank_shards *shards, uint32_t ranks_count,
                                  struct tdm__source_index *sources_out);
void tdm__source_index_fini(struct tdm__source_index *sources);

/* How many of the source_slices from `source_slice` to `end` have its rectangle. */
uint32_t tdm__source_replicas_count(const struct tdm__source_slice *source_slice,
                                    const struct tdm__source_slice *end);

#endif
