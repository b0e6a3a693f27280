/* manifest.h - the list of a model's tensors, which both sides of an update must agree on. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_MANIFEST_H
#define TDM_COLOCATE_WEIGHTS_MANIFEST_H

#include "colocate/weights/checksum.h"
#include "runtime/messages/messages.h"

#include <tandem/tensor.h>

/* The largest number of tensors in a manifest. */
enum { TDM__MANIFEST_TENSORS_MAX = 1 << 18 };

/* The names, dtypes and shapes of all tensors of a model. A manifest never changes after its
 * creation, so threads may share it. Other structures refer to a tensor by its index in this
 * list. */
struct tdm__manifest {
    /* Tensors of the model; the array and the names are owned by the manifest. */
    struct tdm_tensor_info *tensors;
    uint32_t tensors_count; /* Number of tensors of the model, at least 1. */
    uint64_t size_bytes;    /* Sum of the sizes of all tensors of the model, in bytes. */
    /* Hash of all tensors' names, dtypes and shapes in order; equal manifests have equal hashes. */
    struct tdm__hash hash;
};

/* Creates a manifest from copies of the tensors. A manifest has 1 to 262,144 tensors with unique
 * names of printable characters and known dtypes. No tensor is empty, and all together have at most
 * 2^48 bytes. Returns TDM_E_INVAL with a message that names the tensor. */
tdm_status tdm__manifest_create(const struct tdm_tensor_info *tensors, uint32_t tensors_count,
                                struct tdm__manifest **manifest_out);
/* Frees the manifest; NULL is allowed. */
void tdm__manifest_destroy(struct tdm__manifest *manifest);

/* Returns the message of the manifest, which borrows all of it. */
struct tdm__model_manifest_message tdm__manifest_to_message(const struct tdm__manifest *manifest);
/* Creates a manifest from a decoded message and checks it; the caller owns it. Returns
 * TDM_E_PROTOCOL for a list of tensors that tdm__manifest_create() refuses. */
tdm_status tdm__manifest_from_message(const struct tdm__model_manifest_message *message,
                                      struct tdm__manifest **manifest_out);

#endif
