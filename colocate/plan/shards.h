/* shards.h - what one rank of a layout holds: its own tensors, and what lies where in them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_PLAN_SHARDS_H
#define TDM_COLOCATE_PLAN_SHARDS_H

#include "colocate/plan/model.h"
#include "colocate/plan/sharding.h"

/* Of a model's tensor. */
struct tdm__rectangle {
    uint32_t row;
    uint32_t column;
    uint32_t rows;
    uint32_t columns;
};

#define TDM__NO_PIECE UINT32_MAX

/* A rectangle of a model's tensor, and where it lies in one of the rank's. */
struct tdm__piece {
    struct tdm__rectangle rectangle;
    uint64_t offset; /* of its first element, in elements */
    uint32_t pitch;  /* from row to row, in elements */
    uint32_t tensor; /* the model's */
    uint32_t local;
    uint32_t scale; /* the piece of the scales of this one, or TDM__NO_PIECE */
};

/* A tensor as the rank has it: contiguous, row-major. */
struct tdm__local {
    uint32_t origin; /* the rule, the model's tensor, or the flat unit that it is made of */
    uint16_t layer;
    uint16_t expert;
    uint8_t dtype;
    bool is_scale;
    bool is_unit; /* of a flat layout: the elements of many tensors in a row */
    uint8_t dims_count;
    uint64_t shape[3];
};

struct tdm__shards {
    uint32_t locals_count;
    uint32_t pieces_count;
    struct tdm__local *locals; /* owned, and so are the pieces */
    struct tdm__piece *pieces;
};

enum tdm__role {
    TDM__ROLE_SOURCE,     /* everything that can be read there, also under several names */
    TDM__ROLE_DESTINATION /* everything that has to be written, once */
};

/* TDM_E_INVAL names the tensor that the layout cannot hold, and the numbers.  The sharding has
 * been checked. */
tdm_status tdm__shards_make(const struct tdm__model *model,
                            const struct tdm__sharding *sharding, uint32_t rank,
                            enum tdm__role role, struct tdm__shards *shards_out);
void tdm__shards_fini(struct tdm__shards *shards);

uint64_t tdm__local_elements(const struct tdm__local *local);
uint64_t tdm__local_bytes(const struct tdm__local *local);
/* As the layout calls it. */
const char *tdm__local_name(const struct tdm__model *model,
                            const struct tdm__sharding *sharding,
                            const struct tdm__local *local,
                            char name[TDM_TENSOR_NAME_BYTES_MAX]);

#endif
