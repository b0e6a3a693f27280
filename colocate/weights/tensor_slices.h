/* tensor_slices.h - the parts of tensors that an engine rank keeps: what is where, and what has
 * come.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_TENSOR_SLICES_H
#define TDM_COLOCATE_WEIGHTS_TENSOR_SLICES_H

#include "colocate/weights/receiver.h"
#include "colocate/weights/resume_log.h"
#include "colocate/weights/tensor_handles.h"

struct tdm__tensor_slices;

struct tdm__tensor_slices_options {
    const struct tdm__manifest *manifest; /* borrowed */
    const struct tdm__layout *layout;     /* of this rank */
    const void *base;                     /* where the addresses of its slices count from */
    uint64_t image_bytes;
};

/* TDM_E_INVAL names the tensor whose slice lies outside the image, or on another one. */
tdm_status tdm__tensor_slices_create(const struct tdm__tensor_slices_options *options,
                                     struct tdm__tensor_slices **parts_out);
void tdm__tensor_slices_destroy(struct tdm__tensor_slices *tensor_slices); /* NULL is allowed */

/* A new update: nothing has come. */
void tdm__tensor_slices_begin_update(struct tdm__tensor_slices *tensor_slices);
/* A new update, maybe of the same bytes: what has come counts, as struct tdm__resume_tracker has
 * it.
 */
void tdm__tensor_slices_resume_update(struct tdm__tensor_slices *tensor_slices);
/* `is_exported`: others write them where they belong. */
struct tdm__resume_log tdm__tensor_slices_resume_log(const struct tdm__tensor_slices *tensor_slices,
                                                     bool is_exported);

struct tdm__tensor_slices_stage {
    struct tdm__device *device;                /* runs what is to be done */
    const struct tdm__tensor_handles *handles; /* checked against place and manifest */
    const char *source; /* their storage, mapped; NULL: they are in the image */
    char *image;
    enum tdm__verify verify;
};

/* Puts the parts of one bucket in their places, with the first one also zeros where the layout
 * has nothing; and compares sums.  TDM_E_CHECKSUM names the tensor: nothing of this update
 * counts any more.  TDM_E_STATE unless buckets come one after the other. */
tdm_status tdm__tensor_slices_stage(struct tdm__tensor_slices *tensor_slices,
                                    const struct tdm__tensor_slices_stage *stage);

/* TDM_E_STATE names the first tensor of which not every byte has come.  Settled from then on.
 */
tdm_status tdm__tensor_slices_check_complete(struct tdm__tensor_slices *tensor_slices);

#endif
