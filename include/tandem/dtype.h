/* dtype.h - element types of tensors and n-dimensional arrays. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_DTYPE_H
#define TANDEM_DTYPE_H

#include <stddef.h>
#include <tandem/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The types of elements. The numbers are sent between processes and never change. */
enum tdm_dtype {
    TDM_F32 = 1,
    TDM_F16 = 2,
    TDM_BF16 = 3,
    TDM_F8_E4M3 = 4,
    TDM_I64 = 5,
    TDM_I32 = 6,
    TDM_U8 = 7,
    TDM_F64 = 8,
    TDM_I8 = 9,
    TDM_I16 = 10,
    TDM_U16 = 11,
    TDM_U32 = 12,
    TDM_U64 = 13,
    TDM_BOOL8 = 14 /* One byte, 0 or 1. */
};

/* Returns the bytes of one element, or 0 for an unknown type.  Any thread may call it. */
TDM_API size_t tdm_dtype_bytes(enum tdm_dtype dtype);
/* Returns the name that safetensors uses ("F32", "BF16", "BOOL" and so on), or "unknown".  The
 * text is static.  Any thread may call it. */
TDM_API const char *tdm_dtype_name(enum tdm_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
