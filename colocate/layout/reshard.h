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
    uint32_t node; /* Number of the node on which the rank runs. */
    uint32_t gpu;  /* Number of the rank's GPU, on its node or over all nodes. */
};

/* One side of a plan, the source or the destination. All pointers are borrowed. */
struct tdm__reshard_side {
    /* Layout that says how the ranks divide the model's tensors. */
    const struct tdm__sharding *sharding;
    const struct tdm__rank_location *locations; /* Node and GPU of each rank of the layout. */
};

/* What one destination rank has to do: all `copies`, in any order, then all `staged_copies`. No
 * copy writes an element that another one writes. Rows that are added to a vocabulary are not
 * written. */
struct tdm__rank_copies {
    /* Copies from the source ranks to this rank's tensors or its staging memory; owned. */
    struct tdm__rect_copy *copies;
    /* Copies from the staging memory to this rank's tensors; owned. */
    struct tdm__rect_copy *staged_copies;
    struct tdm__scales_location *scales; /* Where conversions to FP8 write their scales; owned. */
    uint32_t copies_count;               /* Number of entries in `copies`. */
    uint32_t staged_copies_count;        /* Number of entries in `staged_copies`. */
    uint32_t scales_count;               /* Number of entries in `scales`. */
    uint64_t staging_bytes; /* Size in bytes of the staging memory that the rank needs. */
};

/* The cost of a plan, known before it runs. Copied bytes are counted as they are read, because the
 * destination rank does the conversions. */
struct tdm__reshard_cost {
    /* Number of bytes read, indexed by enum tdm__copy_locality. */
    uint64_t bytes_by_locality[TDM__LOCALITIES_COUNT];
    /* Number of copies, indexed by enum tdm__copy_locality. */
    uint64_t copies_by_locality[TDM__LOCALITIES_COUNT];
    /* Number of bytes written, in the destination's dtypes and with FP8 scales. */
    uint64_t written_bytes;
    uint64_t sent_bytes_min; /* Bytes to other GPUs of the source rank that sends the fewest. */
    uint64_t sent_bytes_max; /* Bytes to other GPUs of the source rank that sends the most. */
    /* Bytes from other GPUs of the destination rank that receives the most. */
    uint64_t received_bytes_max;
    /* Bytes of staging memory of the destination rank that needs the most. */
    uint64_t staging_bytes_max;
    /* Number of copies, with staged copies, of the destination rank that has the most. */
    uint32_t copies_max;
};

/* A plan that copies a model's weights from one layout to another. The caller of create owns it;
 * it does not change. */
struct tdm__reshard {
    /* Model whose weights are copied; borrowed, like what `from` and `to` point to. */
    const struct tdm__model *model;
    struct tdm__reshard_side from; /* Layout and ranks from which the weights are copied. */
    struct tdm__reshard_side to;   /* Layout and ranks to which the weights are copied. */
    /* Tensors of each source rank; owned. Their slices are freed already. */
    struct tdm__rank_shards *from_shards;
    /* Tensors of each destination rank; owned. Their slices are freed already. */
    struct tdm__rank_shards *to_shards;
    struct tdm__rank_copies *ranks; /* Copies of each destination rank; owned. */
    struct tdm__reshard_cost cost;  /* How many bytes and copies the whole plan has. */
};

/* Computes the plan that copies a model's weights from the layout `from` to the layout `to`. The
 * result depends on the arguments only. A source on the same GPU is preferred to one on the same
 * node, and that to any other; among equals the source that has sent the fewest bytes is chosen.
 *
 * TDM_E_INVAL names the tensor that the source does not hold or that a layout cannot divide.
 * TDM_E_UNSUPPORTED names the tensor for which no conversion is known. */
tdm_status tdm__reshard_create(const struct tdm__model *model, const struct tdm__reshard_side *from,
                               const struct tdm__reshard_side *to,
                               struct tdm__reshard **reshard_out);
/* Frees a plan. NULL is allowed. */
void tdm__reshard_destroy(struct tdm__reshard *reshard);

#endif
