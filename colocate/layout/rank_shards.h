/* rank_shards.h - what one rank of a layout holds: its own tensors, and what lies where in them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_RANK_SHARDS_H
#define TDM_COLOCATE_LAYOUT_RANK_SHARDS_H

#include "colocate/layout/model.h"
#include "colocate/layout/sharding.h"

/* Of a model's tensor. */
struct tdm__rectangle {
    uint32_t row;
    uint32_t column;
    uint32_t rows;
    uint32_t columns;
};

#define TDM__NO_SLICE UINT32_MAX

/* A rectangle of a model's tensor, and where it lies in one of the rank's. */
struct tdm__tensor_slice {
    struct tdm__rectangle rectangle;
    uint64_t offset; /* of its first element, in elements */
    uint32_t pitch;  /* from row to row, in elements */
    uint32_t tensor; /* the model's */
    uint32_t shard_tensor;
    uint32_t scale; /* the slice of the scales of this one, or TDM__NO_SLICE */
};

/* A tensor as the rank has it: contiguous, row-major. */
struct tdm__shard_tensor {
    uint32_t origin; /* the rule, the model's tensor, or the flat unit that it is made of */
    uint16_t layer;
    uint16_t expert;
    uint8_t dtype;
    bool is_scale;
    bool is_unit; /* of a flat layout: the elements of many tensors in a row */
    uint8_t dims_count;
    uint64_t shape[3];
};

struct tdm__rank_shards {
    uint32_t shard_tensors_count;
    uint32_t slices_count;
    struct tdm__shard_tensor *shard_tensors; /* owned, and so are the slices */
    struct tdm__tensor_slice *slices;
};

enum tdm__shards_role {
    TDM__SHARDS_SOURCE,     /* everything that can be read there, also under several names */
    TDM__SHARDS_DESTINATION /* everything that has to be written, once */
};

/* TDM_E_INVAL names the tensor that the layout cannot hold, and the numbers.  The sharding has
 * been checked. */
tdm_status tdm__rank_shards_init(const struct tdm__model *model,
                                 const struct tdm__sharding *sharding, uint32_t rank,
                                 enum tdm__shards_role role, struct tdm__rank_shards *shards_out);
void tdm__rank_shards_fini(struct tdm__rank_shards *shards);

uint64_t tdm__shard_tensor_elements(const struct tdm__shard_tensor *shard_tensor);
uint64_t tdm__shard_tensor_bytes(const struct tdm__shard_tensor *shard_tensor);
/* As the layout calls it. */
const char *tdm__shard_tensor_name(const struct tdm__model *model,
                                   const struct tdm__sharding *sharding,
                                   const struct tdm__shard_tensor *shard_tensor,
                                   char name[TDM_TENSOR_NAME_BYTES_MAX]);

#endif
