/* ndarray.h - how n-dimensional arrays are packed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_NDARRAY_H
#define TDM_RUNTIME_WIRE_NDARRAY_H

#include <tandem/value.h>

/* Alignment in bytes of the data of a packed array, from the start of the packed bytes. */
enum { TDM__NDARRAY_ALIGNMENT = 64 };

/* Decodes a packed n-dimensional array from the body of its msgpack extension.  `offset` is its
 * position in the packed bytes, for errors only.  The data of the array is borrowed from `body` and
 * may have any alignment. Returns TDM_E_PROTOCOL unless version, dtype, shape, padding and size
 * agree. */
tdm_status tdm__ndarray_read(struct tdm_bytes body, size_t offset, struct tdm_ndarray *ndarray_out);

#endif
