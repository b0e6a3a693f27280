/* rank_shards.h - the tensors that one rank of a layout holds, and which slices of the model are
 * where in them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_RANK_SHARDS_H
#define TDM_COLOCATE_LAYOUT_RANK_SHARDS_H

#include "colocate/layout/model.h"
#include "colocate/layout/sharding.h"

/* A rectangle of elements in a model's tensor. */
struct tdm__rectangle {
    uint32_t row;     /* First row. */
    uint32_t column;  /* First column. */
    uint32_t rows;    /* Number of rows. */
    uint32_t columns; /* Number of columns. */
};

/* Value of tdm__tensor_slice.scale for a slice without FP8 scales. */
#define TDM__NO_SLICE UINT32_MAX

/* A rectangle of a model's tensor, and where it is in a tensor of the rank. */
struct tdm__tensor_slice {
    struct tdm__rectangle rectangle; /* Rectangle in the model's tensor. */
    /* Offset of its first element in the rank's tensor, in elements. */
    uint64_t offset;
    /* Distance from row to row in the rank's tensor, in elements. */
    uint32_t pitch;
    uint32_t tensor;       /* Index of the model's tensor. */
    uint32_t shard_tensor; /* Index of the rank's tensor. */
    /* Index of the slice with this one's FP8 scales, or TDM__NO_SLICE. */
    uint32_t scale;
};

/* A tensor that a rank holds: contiguous and row-major. */
struct tdm__shard_tensor {
    /* Index of the rule, the model's tensor or the flat unit that it is made of, depending on the
     * kind of layout. */
    uint32_t origin;
    uint16_t layer; /* Layer of the tensor; 0 if it is in no layer. */
    /* Number of the expert among those of the rank; 0 if none exists. */
    uint16_t expert;
    uint8_t dtype; /* An enum tdm_dtype. */
    bool is_scale; /* True if it holds FP8 scales. */
    /* True for a unit of a flat layout: the elements of many tensors in a row. */
    bool is_unit;
    uint8_t dims_count; /* Number of dimensions, 1 to 3. */
    uint64_t shape[3];  /* Elements of each dimension. */
};

/* Everything that one rank of a layout holds. The caller of init owns it. */
struct tdm__rank_shards {
    uint32_t shard_tensors_count;            /* Number of the rank's tensors. */
    uint32_t slices_count;                   /* Number of slices. */
    struct tdm__shard_tensor *shard_tensors; /* Owned tensors of the rank. */
    struct tdm__tensor_slice *slices;        /* Owned slices of the model's tensors. */
};

/* What the rank's tensors are used for. */
enum tdm__shards_role {
    /* Lists all that can be read from the rank, also under several names. */
    TDM__SHARDS_SOURCE,
    /* Lists all that must be written at the rank, once. */
    TDM__SHARDS_DESTINATION
};

/* Computes what one rank of a layout holds. The sharding must be valid (tdm__sharding_validate).
 * TDM_E_INVAL names the tensor that the layout cannot divide, and the numbers. */
tdm_status tdm__rank_shards_init(const struct tdm__model *model,
                                 const struct tdm__sharding *sharding, uint32_t rank,
                                 enum tdm__shards_role role, struct tdm__rank_shards *shards_out);
/* Frees the tensors and slices. */
void tdm__rank_shards_fini(struct tdm__rank_shards *shards);

/* Returns the number of elements of a rank's tensor. */
uint64_t tdm__shard_tensor_elements(const struct tdm__shard_tensor *shard_tensor);
/* Returns the bytes of a rank's tensor. */
uint64_t tdm__shard_tensor_bytes(const struct tdm__shard_tensor *shard_tensor);
/* Writes the name of a rank's tensor in its layout and returns `name`. */
const char *tdm__shard_tensor_name(const struct tdm__model *model,
                                   const struct tdm__sharding *sharding,
                                   const struct tdm__shard_tensor *shard_tensor,
                                   char name[TDM_TENSOR_NAME_BYTES_MAX]);

#endif
