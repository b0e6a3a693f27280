/* tensor_slices.h - places received tensor slices in an engine's weights and counts them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_TENSOR_SLICES_H
#define TDM_COLOCATE_WEIGHTS_TENSOR_SLICES_H

#include "colocate/weights/receiver.h"
#include "colocate/weights/resume_log.h"
#include "colocate/weights/tensor_handles.h"

/* The slices of one engine rank's layout and where each lies in the rank's weights image. Counts
 * how many bytes of each tensor have been received in the current update. One thread at a time may
 * use it. */
struct tdm__tensor_slices;

/* Arguments of tdm__tensor_slices_create(). */
struct tdm__tensor_slices_options {
    /* Tensors of the model; borrowed for the life of the tdm__tensor_slices. */
    const struct tdm__manifest *manifest;
    /* Tensor slices that this rank wants; borrowed during creation only. */
    const struct tdm__layout *layout;
    /* Address of the rank's weights region, from which the offsets of the layout's slices are
     * computed. */
    const void *base;
    /* Size in bytes of the weights image, the contents of the weights region. */
    uint64_t image_bytes;
};

/* Creates the bookkeeping for the tensor slices of one engine rank. Returns TDM_E_INVAL with a
 * message that names the tensor whose slice lies outside the image or overlaps another slice. */
tdm_status tdm__tensor_slices_create(const struct tdm__tensor_slices_options *options,
                                     struct tdm__tensor_slices **tensor_slices_out);
/* Frees a tdm__tensor_slices; NULL is allowed. */
void tdm__tensor_slices_destroy(struct tdm__tensor_slices *tensor_slices);

/* Begins an update for which no byte counts as received. */
void tdm__tensor_slices_begin_update(struct tdm__tensor_slices *tensor_slices);
/* Begins an update that may have the same bytes as the update before. Buckets that were received
 * still count, under the rules of struct tdm__resume_tracker. */
void tdm__tensor_slices_resume_update(struct tdm__tensor_slices *tensor_slices);
/* Returns the resume log: which buckets have been received completely. `is_exported` is true if
 * other processes write directly into the weights image; see tdm__resume_tracker_snapshot(). */
struct tdm__resume_log tdm__tensor_slices_resume_log(const struct tdm__tensor_slices *tensor_slices,
                                                     bool is_exported);

/* Arguments of tdm__tensor_slices_stage(): one bucket and where its bytes are. */
struct tdm__tensor_slices_stage {
    struct tdm__device *device; /* Device that runs the copies and computes the checksums. */
    /* Tensor handles that describe the bucket, already checked against location and manifest. */
    const struct tdm__tensor_handles *handles;
    /* Address of the bucket's mapped storage; NULL if the sender has written the slices directly
     * into the image. */
    const char *source;
    char *image;             /* Address of the weights image that is being filled. */
    enum tdm__verify verify; /* Which received bytes are compared with the sender's checksums. */
};

/* Copies the tensor slices of one bucket to their places in the weights image and compares
 * checksums. The first bucket of an update also zeroes the gaps of the layout. Returns
 * TDM_E_CHECKSUM with the name of the tensor, after which nothing of this update counts;
 * TDM_E_STATE if the bucket is out of order. */
tdm_status tdm__tensor_slices_stage(struct tdm__tensor_slices *tensor_slices,
                                    const struct tdm__tensor_slices_stage *stage);

/* Checks that every byte of the rank's tensor slices has been received. Returns TDM_E_STATE with a
 * message that names the first incomplete tensor. Afterwards the buckets of an earlier, aborted
 * update count for this one. */
tdm_status tdm__tensor_slices_check_complete(struct tdm__tensor_slices *tensor_slices);

#endif
