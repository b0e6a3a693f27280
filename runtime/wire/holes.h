/* holes.h - packing the arguments of a call around values that are not there yet. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_HOLES_H
#define TDM_RUNTIME_HOLES_H

#include <tandem/value.h>

enum { TDM__HOLES_MAX = 16 };

/* Value i of those missing belongs before byte offsets[i] of what was packed. */
struct tdm__holes {
    uint32_t count;
    void *refs[TDM__HOLES_MAX];
    size_t offsets[TDM__HOLES_MAX];
};

/* tdm_pack_va(), with one more letter: r takes a pointer and leaves a hole for one value.  Not
 * inside ( ) or { }. */
tdm_status tdm__pack_with_holes(tdm_writer *writer, const char *format, va_list args,
                                struct tdm__holes *holes);

#endif
