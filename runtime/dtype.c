/* dtype.c - the names and the element sizes of dtypes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/dtype.h"

#include <string.h>

/* Name and size in bytes of one element of each dtype, indexed by enum tdm_dtype.  A NULL name
 * marks a value that is not used. */
static const struct {
    /* Name of the dtype as in files of weights; NULL if the value is not used. */
    const char *name;
    size_t size_bytes; /* Size of one element of the dtype in bytes. */
} dtypes[] = {
    [TDM_F32] = {"F32", 4},         [TDM_F16] = {"F16", 2},    [TDM_BF16] = {"BF16", 2},
    [TDM_F8_E4M3] = {"F8_E4M3", 1}, [TDM_I64] = {"I64", 8},    [TDM_I32] = {"I32", 4},
    [TDM_U8] = {"U8", 1},           [TDM_F64] = {"F64", 8},    [TDM_I8] = {"I8", 1},
    [TDM_I16] = {"I16", 2},         [TDM_U16] = {"U16", 2},    [TDM_U32] = {"U32", 4},
    [TDM_U64] = {"U64", 8},         [TDM_BOOL8] = {"BOOL", 1},
};

/* Number of entries of `dtypes`, unused ones included. */
enum { DTYPES_COUNT = sizeof(dtypes) / sizeof(dtypes[0]) };

/* Returns true if `dtype` is a member of the enumeration; its value may come from the wire. */
static bool dtype_is_known(enum tdm_dtype dtype)
{
    return (unsigned)dtype < DTYPES_COUNT && dtypes[dtype].name != NULL;
}

size_t tdm_dtype_bytes(enum tdm_dtype dtype)
{
    return dtype_is_known(dtype) ? dtypes[dtype].size_bytes : 0;
}

const char *tdm_dtype_name(enum tdm_dtype dtype)
{
    return dtype_is_known(dtype) ? dtypes[dtype].name : "unknown";
}

bool tdm__dtype_parse(const char *name, enum tdm_dtype *dtype_out)
{
    for (unsigned dtype = 0; dtype < DTYPES_COUNT; dtype++) {
        if (dtypes[dtype].name != NULL && strcmp(dtypes[dtype].name, name) == 0) {
            *dtype_out = (enum tdm_dtype)dtype;
            return true;
        }
    }
    return false;
}
