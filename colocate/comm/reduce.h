/* reduce.h - reductions over the elements of several ranks, for communicators that compute them
 * on the host. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_REDUCE_H
#define TDM_COLOCATE_COMM_REDUCE_H

#include "colocate/comm/comm.h"

/* Returns the bytes of an element. */
size_t tdm__comm_dtype_bytes(enum tdm__comm_dtype dtype);

/* Replaces each into[i] by the sum or the maximum of into[i] and from[i]. */
void tdm__comm_reduce_elements(void *into, const void *from, size_t count,
                               enum tdm__comm_dtype dtype, enum tdm_reduction reduction);

#endif
