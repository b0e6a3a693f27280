/* manifest.h - the list of a model's tensors, which both sides of an update must agree on. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_MANIFEST_H
#define TDM_COLOCATE_WEIGHTS_MANIFEST_H

#include "colocate/weights/checksum.h"

#include <tandem/tensor.h>
#include <tandem/value.h>

enum { TDM__MANIFEST_TENSORS_MAX = 1 << 18 };

/* Never changes once made; tensors are named by their index everywhere else. */
struct tdm__manifest {
    struct tdm_tensor_info *tensors; /* owned, with their names */
    uint32_t tensors_count;
    uint64_t size_bytes; /* of all tensors */
    struct tdm__hash hash;
};

/* Copies and checks: 1 to 262,144 tensors, names of printable characters and unique, known
 * dtypes, no empty tensor, 2^48 bytes together at most.  TDM_E_INVAL names the tensor. */
tdm_status tdm__manifest_create(const struct tdm_tensor_info *tensors, uint32_t tensors_count,
                                struct tdm__manifest **manifest_out);
void tdm__manifest_destroy(struct tdm__manifest *manifest); /* NULL is allowed */

/* As one packed value; TDM_E_PROTOCOL for bytes that are none. */
tdm_status tdm__manifest_encode(const struct tdm__manifest *manifest, tdm_writer *writer);
tdm_status tdm__manifest_decode(struct tdm_bytes bytes, struct tdm__manifest **manifest_out);

#endif
