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
    TDM_F32 = 1,     /* 32-bit IEEE floating point. */
    TDM_F16 = 2,     /* 16-bit IEEE floating point. */
    TDM_BF16 = 3,    /* bfloat16: the upper 16 bits of a 32-bit float. */
    TDM_F8_E4M3 = 4, /* 8-bit floating point with 4 bits of exponent and 3 of mantissa. */
    TDM_I64 = 5,     /* 64-bit signed integer. */
    TDM_I32 = 6,     /* 32-bit signed integer. */
    TDM_U8 = 7,      /* 8-bit unsigned integer. */
    TDM_F64 = 8,     /* 64-bit IEEE floating point. */
    TDM_I8 = 9,      /* 8-bit signed integer. */
    TDM_I16 = 10,    /* 16-bit signed integer. */
    TDM_U16 = 11,    /* 16-bit unsigned integer. */
    TDM_U32 = 12,    /* 32-bit unsigned integer. */
    TDM_U64 = 13,    /* 64-bit unsigned integer. */
    TDM_BOOL8 = 14   /* Boolean in one byte, 0 or 1. */
};

/* Returns the size in bytes of one element, or 0 for an unknown type.  Any thread may call it. */
TDM_API size_t tdm_dtype_bytes(enum tdm_dtype dtype);
/* Returns the name of a type of elements that safetensors uses ("F32", "BF16", "BOOL" and so on),
 * or "unknown".  The text is static.  Any thread may call it. */
TDM_API const char *tdm_dtype_name(enum tdm_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
