/* source_index.h - an index of the slices that the ranks of a source hold, by the model's
 * tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_SOURCE_INDEX_H
#define TDM_COLOCATE_LAYOUT_SOURCE_INDEX_H

#include "colocate/layout/rank_shards.h"

/* A slice of a model's tensor that a rank of the source holds. */
struct tdm__source_slice {
    struct tdm__rectangle rectangle; /* Rectangle of the model's tensor that the rank holds. */
    /* Offset of the rectangle's first element in the rank's tensor, in elements. */
    uint64_t offset;
    /* Distance from row to row in the rank's tensor, in elements. */
    uint32_t pitch;
    uint32_t rank;         /* Source rank that holds the slice. */
    uint32_t shard_tensor; /* Index of the rank's tensor that contains the rectangle. */
    uint8_t dtype;         /* Dtype of the rank's tensor, an enum tdm_dtype. */
};

/* The slices of all ranks of a source, sorted by the model's tensor, then by rectangle, then by
 * rank. Replicas of a rectangle are therefore neighbours. The caller of init owns it. */
struct tdm__source_index {
    /* For each tensor of the model the index of its first slice, and one more entry for the end;
     * owned. */
    uint32_t *tensor_offsets;
    struct tdm__source_slice *source_slices; /* Slices of all source ranks; owned. */
};

/* Builds an index of the slices that the source ranks hold; `shards` has one entry for each rank.
 * Two rectangles of a tensor must be equal or disjoint. */
tdm_status tdm__source_index_init(const struct tdm__model *model,
                                  const struct tdm__rank_shards *shards, uint32_t ranks_count,
                                  struct tdm__source_index *sources_out);
/* Frees the arrays of an index of slices. */
void tdm__source_index_fini(struct tdm__source_index *sources);

/* Returns how many slices from `source_slice` up to, but without, `end` have the same rectangle as
 * the first slice. */
uint32_t tdm__source_replicas_count(const struct tdm__source_slice *source_slice,
                                    const struct tdm__source_slice *end);

#endif
