/* ndarray.h - how n-dimensional arrays are packed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_NDARRAY_H
#define TDM_RUNTIME_WIRE_NDARRAY_H

#include <tandem/value.h>

/* Where data begin, in bytes from the start of what is packed. */
enum { TDM__NDARRAY_ALIGNMENT = 64 };

/* Reads the body of the extension that lies at `offset` (for the message); its data are
 * borrowed, at whatever address.  TDM_E_PROTOCOL unless every part agrees with the others. */
tdm_status tdm__ndarray_read(struct tdm_bytes body, size_t offset, struct tdm_ndarray *ndarray_out);

#endif
