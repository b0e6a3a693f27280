/* named_layout.h - derives the tensors and weight slices of a rank from a layout named in the
 * job file. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_NAMED_LAYOUT_H
#define TDM_COLOCATE_JOB_NAMED_LAYOUT_H

#include "colocate/layout/rank_shards.h"
#include "colocate/weights/layout.h"

#include <tandem/job.h>

/* The layout of one rank. With `trainer.layout` or `engine.layout` (docs/transfer-plans.md) and
 * `model.config`, Tandem tells the library which tensors a rank has and at which offsets. The
 * slices of the model follow from that. The rank actor owns the struct and uses it on one
 * thread. */
struct tdm__named_layout {
    /* Owned list of the tensors of the whole model, from model.config. */
    struct tdm__model *model;
    /* The parsed layout: how the model is divided over all ranks. */
    struct tdm__sharding sharding;
    /* Setting that names the layout, for messages: "trainer.layout" or "engine.layout". */
    char where[32];
    /* This rank, below the number of ranks in `sharding`. */
    uint32_t rank;
    /* True for a trainer rank, false for an engine rank. */
    bool trains;
    /* The tensors of this rank and the slices of the model that they contain. */
    struct tdm__rank_shards shards;
    /* Owned array of the rank's tensors with their offsets, one for each of
     * shards.shard_tensors. */
    struct tdm_rank_tensor *tensors;
    /* Owned array with the name of each of `tensors`. */
    char (*names)[TDM_TENSOR_NAME_BYTES_MAX];
    /* Bytes that all tensors of the rank need in the region "weights". */
    uint64_t size_bytes;

    /* Owned array of all model tensors as trainers have them; NULL for engines and before the
     * layout is built. */
    struct tdm_tensor_info *model_tensors;
    /* Owned array with the name of each of `model_tensors`. */
    char (*model_names)[TDM_TENSOR_NAME_BYTES_MAX];
    /* Number of elements of `model_tensors`. */
    uint32_t model_tensors_count;
    /* Owned array of slices of the last layout that was built; NULL before. */
    struct tdm_slice *slices;
    /* Number of elements of `slices`. */
    uint32_t slices_count;
};

/* Arguments of tdm__named_layout_create(); all pointers are borrowed during the call. */
struct tdm__named_layout_options {
    /* The job file. */
    const tdm_config *config;
    /* Section of the job file that may name a layout: "trainer" or "engine". */
    const char *section;
    /* Path of the model's config.json; "" if the job file does not set it. */
    const char *model_config;
    /* The rank whose tensors are wanted. */
    uint32_t rank;
    /* Number of ranks of the trainer or of each engine. */
    uint32_t ranks_count;
};

/* Parses the layout of the section. The result is NULL if the section names no layout.
 * TDM_E_INVAL if model.config is missing or the layout has another number of ranks; other errors
 * name the setting or the tensor that is invalid. */
tdm_status tdm__named_layout_create(const struct tdm__named_layout_options *options,
                                    struct tdm__named_layout **named_out);
/* Frees the layout and the slices that it built. NULL is allowed. */
void tdm__named_layout_destroy(struct tdm__named_layout *named_layout); /* NULL is allowed */

/* Puts the list of tensors into the context that the library gets. Does nothing if
 * `named_layout` is NULL. */
void tdm__named_layout_fill_context(const struct tdm__named_layout *named_layout,
                                    struct tdm_rank_context *context);
/* Checks that the library declares a region "weights" that is large enough for the tensors. On a
 * trainer the region must keep its contents while it is paused. TDM_E_INVAL otherwise. */
tdm_status tdm__named_layout_check_regions(const struct tdm__named_layout *named_layout,
                                           const struct tdm_region_spec *specs, uint32_t count);

#endif
