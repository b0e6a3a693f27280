/* rank_shards.h - the tensors that one rank of a layout holds, and which slices of the model are
 * where in them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_RANK_SHARDS_H
#define TDM_COLOCATE_LAYOUT_RANK_SHARDS_H

#include "colocate/layout/model.h"
#include "colocate/layout/sharding.h"

/* A rectangle of elements in a model's tensor. */
struct tdm__rectangle {
    uint32_t row;     /* Index of the first row in the tensor. */
    uint32_t column;  /* Index of the first column in the tensor. */
    uint32_t rows;    /* Number of rows of the rectangle. */
    uint32_t columns; /* Number of columns of the rectangle. */
};

/* Value of tdm__tensor_slice.scale for a slice without FP8 scales. */
#define TDM__NO_SLICE UINT32_MAX

/* A rectangle of a model's tensor, and where it is in a tensor of the rank. */
struct tdm__tensor_slice {
    struct tdm__rectangle rectangle; /* Rectangle of the model's tensor that the rank holds. */
    /* Offset of the rectangle's first element in the rank's tensor, in elements. */
    uint64_t offset;
    /* Distance from row to row in the rank's tensor, in elements. */
    uint32_t pitch;
    uint32_t tensor;       /* Index of the model's tensor of which this is a slice. */
    uint32_t shard_tensor; /* Index of the rank's tensor that contains the rectangle. */
    uint32_t scale; /* Index of the slice with the FP8 scales of this slice, or TDM__NO_SLICE. */
};

/* A tensor that a rank holds: contiguous and row-major. */
struct tdm__shard_tensor {
    /* What the tensor was made from: index of a layout rule, a model's tensor or a flat unit,
     * depending on the kind of layout. */
    uint32_t origin;
    /* Index of the layer to which the tensor belongs; 0 if it belongs to no layer. */
    uint16_t layer;
    /* Index of the expert among the rank's experts; 0 if the tensor belongs to no expert. */
    uint16_t expert;
    uint8_t dtype; /* Data type of the elements, an enum tdm_dtype. */
    bool is_scale; /* True if the tensor holds FP8 scales. */
    /* True if the tensor is a piece of a flat unit, in which the elements of many tensors follow
     * each other. */
    bool is_unit;
    uint8_t dims_count; /* Number of dimensions, 1 to 3. */
    uint64_t shape[3];  /* Number of elements in each dimension. */
};

/* Everything that one rank of a layout holds. The caller of init owns it. */
struct tdm__rank_shards {
    uint32_t shard_tensors_count;            /* Number of tensors that the rank holds. */
    uint32_t slices_count;                   /* Number of entries in `slices`. */
    struct tdm__shard_tensor *shard_tensors; /* Tensors that the rank holds; owned. */
    /* Which slices of the model's tensors the rank holds, and where; owned. */
    struct tdm__tensor_slice *slices;
};

/* What the rank's tensors are used for. */
enum tdm__shards_role {
    /* The rank is read: lists all slices that it holds, also those in several of its tensors. */
    TDM__SHARDS_SOURCE,
    TDM__SHARDS_DESTINATION /* The rank is written: lists each slice that must be written once. */
};

/* Computes which tensors and slices one rank of a layout holds. The layout must be valid
 * (tdm__sharding_validate()). Returns TDM_E_INVAL with a message that names a tensor that the
 * layout cannot divide. */
tdm_status tdm__rank_shards_init(const struct tdm__model *model,
                                 const struct tdm__sharding *sharding, uint32_t rank,
                                 enum tdm__shards_role role, struct tdm__rank_shards *shards_out);
/* Frees the arrays of tensors and slices. */
void tdm__rank_shards_fini(struct tdm__rank_shards *shards);

/* Returns the number of elements of a rank's tensor. */
uint64_t tdm__shard_tensor_elements(const struct tdm__shard_tensor *shard_tensor);
/* Returns the size in bytes of a rank's tensor. */
uint64_t tdm__shard_tensor_bytes(const struct tdm__shard_tensor *shard_tensor);
/* Writes to `name` the name that a rank's tensor has in its layout, and returns `name`. */
const char *tdm__shard_tensor_name(const struct tdm__model *model,
                                   const struct tdm__sharding *sharding,
                                   const struct tdm__shard_tensor *shard_tensor,
                                   char name[TDM_TENSOR_NAME_BYTES_MAX]);

#endif
