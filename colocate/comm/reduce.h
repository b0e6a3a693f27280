/* reduce.h - numbers of several ranks made one, for communicators that do it themselves. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_REDUCE_H
#define TDM_COLOCATE_COMM_REDUCE_H

#include "colocate/comm/comm.h"

size_t tdm__comm_dtype_bytes(enum tdm__comm_dtype dtype);

/* into[i] becomes the sum or the maximum of itself and from[i]. */
void tdm__comm_reduce_elements(void *into, const void *from, size_t count,
                               enum tdm__comm_dtype dtype, enum tdm_reduction reduction);

#endif
