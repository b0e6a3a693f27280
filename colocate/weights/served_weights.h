/* served_weights.h - checksums of the weights that an engine rank serves, to find a tensor that
 * differs from what its update wrote. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SERVED_WEIGHTS_H
#define TDM_COLOCATE_WEIGHTS_SERVED_WEIGHTS_H

#include "colocate/memory/region.h"
#include "colocate/weights/layout.h"
#include "colocate/weights/manifest.h"

#include <tandem/job.h>

/* The checksums that an engine rank records of each version that becomes live. One thread at a time
 * may use it. */
struct tdm__served_weights;

/* Arguments of tdm__served_weights_create(). All pointers are borrowed for the life of the
 * result. */
struct tdm__served_weights_options {
    const struct tdm__manifest *manifest; /* Tensors of the model. */
    /* Slices that the rank keeps in its weights; without slices the rank gets whole tensors. */
    struct tdm__layout layout;
    tdm_region *weights;              /* Region with the weights that are served. */
    struct tdm__device *device;       /* Device of that region. */
    const struct tdm_engine_ops *ops; /* Functions of the library; `served` may be NULL. */
    void *state;                      /* First argument of these functions. */
};

/* What a comparison has found. */
struct tdm__served_difference {
    /* Index in the manifest of the first tensor that differs; UINT32_MAX if none is known to. */
    uint32_t tensor;
    char text[400]; /* What differs, with both checksums, or what was compared; NUL-terminated. */
};

/* Returns how many slices of a rank's layout are kept in another dtype than the tensor has. */
uint32_t tdm__served_weights_converted(const struct tdm__manifest *manifest,
                                       const struct tdm__layout *layout);

/* Creates the record without checksums. */
tdm_status tdm__served_weights_create(const struct tdm__served_weights_options *options,
                                      struct tdm__served_weights **served_out);
/* Frees a record; NULL is allowed. */
void tdm__served_weights_destroy(struct tdm__served_weights *served);

/* Records the checksums of the weights, which have just become live and must be resident.
 * `tensor_sums` has the checksum of each tensor of the manifest as the update sent it. It is read
 * only if the rank gets whole tensors, and may be NULL if they are not known. */
tdm_status tdm__served_weights_record(struct tdm__served_weights *served,
                                      const uint64_t *tensor_sums);

/* Compares the weights, which must be resident, and what the library says that it really serves
 * with the recorded checksums. Failures of the library's function are returned. */
tdm_status tdm__served_weights_compare(const struct tdm__served_weights *served,
                                       struct tdm__served_difference *difference_out);

#endif
