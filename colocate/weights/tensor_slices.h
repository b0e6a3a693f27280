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
    /* Manifest of the model; borrowed for the life of the object. */
    const struct tdm__manifest *manifest;
    const struct tdm__layout *layout; /* Layout of this rank; borrowed during creation only. */
    /* Address of the weights region; the addresses of the layout's slices lie behind it. */
    const void *base;
    uint64_t image_bytes; /* Size of the weights image in bytes. */
};

/* Creates the slices of a rank. Returns TDM_E_INVAL with a message that names the tensor whose
 * slice lies outside the image or overlaps another slice. */
tdm_status tdm__tensor_slices_create(const struct tdm__tensor_slices_options *options,
                                     struct tdm__tensor_slices **tensor_slices_out);
/* Frees the slices; NULL is allowed. */
void tdm__tensor_slices_destroy(struct tdm__tensor_slices *tensor_slices);

/* Begins an update from scratch: no byte counts as received. */
void tdm__tensor_slices_begin_update(struct tdm__tensor_slices *tensor_slices);
/* Begins an update that may have the same bytes as the one before. What has been received still
 * counts, under the rules of struct tdm__resume_tracker. */
void tdm__tensor_slices_resume_update(struct tdm__tensor_slices *tensor_slices);
/* Returns the log of the buckets that have been received completely. `is_exported` is true if other
 * processes write directly into the image; see tdm__resume_tracker_snapshot(). */
struct tdm__resume_log tdm__tensor_slices_resume_log(const struct tdm__tensor_slices *tensor_slices,
                                                     bool is_exported);

/* Arguments of tdm__tensor_slices_stage(): one bucket and where its bytes are. */
struct tdm__tensor_slices_stage {
    struct tdm__device *device; /* Device that runs the copies and computes the checksums. */
    /* Description of the bucket, already checked against location and manifest. */
    const struct tdm__tensor_handles *handles;
    /* Address of the bucket's mapped storage; NULL if the sender has written the slices directly
     * into the image. */
    const char *source;
    char *image;             /* Address of the weights image that is being filled. */
    enum tdm__verify verify; /* Which received bytes are compared with the sender's checksums. */
};

/* Copies the slices of one bucket to their places in the image and compares checksums. The first
 * bucket of an update also zeroes the gaps of the layout. Returns TDM_E_CHECKSUM with the name
 * of the tensor, after which nothing of this update counts; TDM_E_STATE if the bucket is out of
 * order. */
tdm_status tdm__tensor_slices_stage(struct tdm__tensor_slices *tensor_slices,
                                    const struct tdm__tensor_slices_stage *stage);

/* Checks that every byte of the layout has been received. Returns TDM_E_STATE with a message that
 * names the first incomplete tensor. Also settles what an earlier, aborted update left in the
 * image. */
tdm_status tdm__tensor_slices_check_complete(struct tdm__tensor_slices *tensor_slices);

#endif
