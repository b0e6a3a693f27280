/* named_layout.h - a rank of a layout that the job file names: its tensors, and its parts of the
 * model. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_NAMED_LAYOUT_H
#define TDM_COLOCATE_JOB_NAMED_LAYOUT_H

#include "colocate/layout/rank_shards.h"
#include "colocate/weights/layout.h"

#include <tandem/job.h>

/* With `trainer.layout` or `engine.layout` (docs/transfer-plans.md) and `model.config`, the library
 * is not asked where the model is: it is told what tensors a rank has and where they are to lie,
 * and slices follow from that. */
struct tdm__named_layout {
    struct tdm__model *model; /* owned, like the rest */
    struct tdm__sharding sharding;
    char where[32]; /* "trainer.layout", for messages */
    uint32_t rank;
    bool trains;
    struct tdm__rank_shards shards;
    struct tdm_rank_tensor *tensors; /* one for each of the shards' shard_tensors */
    char (*names)[TDM_TENSOR_NAME_BYTES_MAX];
    uint64_t size_bytes; /* of all, in the region "weights" */

    struct tdm_tensor_info *model_tensors; /* a trainer's: as it has them */
    char (*model_names)[TDM_TENSOR_NAME_BYTES_MAX];
    uint32_t model_tensors_count;
    struct tdm_slice *slices; /* once they were asked for */
    uint32_t slices_count;
};

struct tdm__named_layout_options {
    const tdm_config *config; /* the job file */
    const char *section;      /* "trainer" or "engine" */
    const char *model_config; /* path of the model's config.json; "": not said */
    uint32_t rank;
    uint32_t ranks_count;
};

/* NULL where the section names no layout.  TDM_E_INVAL for one without a model, or of another
 * number of ranks; else what parsing says, and the tensor that the layout cannot hold. */
tdm_status tdm__named_layout_create(const struct tdm__named_layout_options *options,
                                    struct tdm__named_layout **named_out);
void tdm__named_layout_destroy(struct tdm__named_layout *named_layout); /* NULL is allowed */

/* What the library is told.  NULL: nothing. */
void tdm__named_layout_fill_context(const struct tdm__named_layout *named_layout,
                                    struct tdm_rank_context *context);
/* TDM_E_INVAL unless a region "weights" has room for the tensors, and on a trainer keeps them.
 */
tdm_status tdm__named_layout_check_regions(const struct tdm__named_layout *named_layout,
                                           const struct tdm_region_spec *specs, uint32_t count);

/* The model as trainers have it, and which part of it goes from this rank: of what several
 * ranks hold, each sends some.  `weights` is where the region is.  All of it is the rank's. */
tdm_status tdm__named_layout_build_trainer(struct tdm__named_layout *named_layout,
                                           const void *weights,
                                           const struct tdm_tensor_info **tensors_out,
                                           uint32_t *tensors_count_out,
                                           struct tdm__layout *layout_out);
/* What an engine rank wants of the trainers' tensors.  TDM_E_INVAL names the tensor that they
 * do not have, or have in another shape. */
tdm_status tdm__named_layout_build_engine(struct tdm__named_layout *named_layout,
                                          const void *weights, const struct tdm__manifest *manifest,
                                          struct tdm__layout *layout_out);

#endif
