/* reshard.h - the plan that copies weights from one layout to another: which rank copies which
 * rectangle where. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_RESHARD_H
#define TDM_COLOCATE_LAYOUT_RESHARD_H

#include "colocate/layout/rank_shards.h"
#include "colocate/transfer/rect_copy.h"

/* Where a rank's memory is. Ranks of a trainer and of an engine that share a GPU have equal
 * numbers; the numbers have no other meaning. */
struct tdm__rank_location {
    uint32_t node; /* Number of the node. */
    /* Number of the GPU, on its node or over all nodes. */
    uint32_t gpu;
};

/* One side of a plan, the source or the destination. All pointers are borrowed. */
struct tdm__reshard_side {
    const struct tdm__sharding *sharding;       /* Layout of the side. */
    const struct tdm__rank_location *locations; /* Location of each rank. */
};

/* What one rank of the destination has to do: all `copies`, in any order, then all
 * `staged_copies`. No element is written twice. Rows that are added to a vocabulary are not
 * written. */
struct tdm__rank_copies {
    struct tdm__rect_copy *copies; /* Owned copies from the ranks of the source. */
    /* Owned copies from the staging memory to the rank's tensors. */
    struct tdm__rect_copy *staged_copies;
    /* Owned locations of the FP8 scales that conversions write. */
    struct tdm__scales_location *scales;
    uint32_t copies_count;        /* Number of copies. */
    uint32_t staged_copies_count; /* Number of staged copies. */
    uint32_t scales_count;        /* Number of locations of scales. */
    uint64_t staging_bytes;       /* Bytes of staging memory that the rank needs. */
};

/* The cost of a plan, known before it runs. Copied bytes are counted as they are read, because a
 * conversion is done where they arrive. */
struct tdm__reshard_cost {
    /* Bytes read, by enum tdm__copy_locality. */
    uint64_t bytes_by_locality[TDM__LOCALITIES_COUNT];
    /* Number of copies, by enum tdm__copy_locality. */
    uint64_t copies_by_locality[TDM__LOCALITIES_COUNT];
    /* Bytes written in the destination's dtypes, with scales. */
    uint64_t written_bytes;
    /* Fewest bytes that a source rank sends to other GPUs. */
    uint64_t sent_bytes_min;
    /* Most bytes that a source rank sends to other GPUs. */
    uint64_t sent_bytes_max;
    /* Most bytes that a destination rank receives from other GPUs. */
    uint64_t received_bytes_max;
    uint64_t staging_bytes_max; /* Most staging memory of a destination rank. */
    /* Most copies of a destination rank, with staged copies. */
    uint32_t copies_max;
};

/* A plan that copies a model's weights from one layout to another. The caller of create owns it;
 * it does not change. */
struct tdm__reshard {
    /* Borrowed model; what the sides point to is borrowed, too. */
    const struct tdm__model *model;
    struct tdm__reshard_side from; /* Source. */
    struct tdm__reshard_side to;   /* Destination. */
    /* Owned tensors of each source rank; their slices are freed. */
    struct tdm__rank_shards *from_shards;
    /* Owned tensors of each destination rank; their slices are freed. */
    struct tdm__rank_shards *to_shards;
    struct tdm__rank_copies *ranks; /* Owned copies of each destination rank. */
    struct tdm__reshard_cost cost;  /* Cost of the plan. */
};

/* Computes a plan. The result depends on the arguments only. A source on the same GPU is
 * preferred to one on the same node, and that to any other; among equals the source that has sent
 * the fewest bytes is chosen.
 *
 * TDM_E_INVAL names the tensor that the source does not hold or that a layout cannot divide.
 * TDM_E_UNSUPPORTED names the tensor for which no conversion is known. */
tdm_status tdm__reshard_create(const struct tdm__model *model, const struct tdm__reshard_side *from,
                               const struct tdm__reshard_side *to,
                               struct tdm__reshard **reshard_out);
/* Frees the plan. NULL is allowed. */
void tdm__reshard_destroy(struct tdm__reshard *reshard);

#endif
