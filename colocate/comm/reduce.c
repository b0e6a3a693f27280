/* reduce.c - reductions over the elements of several ranks, for communicators that compute them
 * on the host. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/reduce.h"

/* NOLINTBEGIN(bugprone-macro-parentheses) a type cannot have them */
/* Defines reduce_TYPE(): the sum or the maximum of two arrays. */
#define DEFINE_REDUCE(type)                                                                        \
    static void reduce_##type(type *into, const type *from, size_t count,                          \
                              enum tdm_reduction reduction)                                        \
    {                                                                                              \
        if (reduction == TDM_SUM) {                                                                \
            for (size_t i = 0; i < count; i++) {                                                   \
                into[i] += from[i];                                                                \
            }                                                                                      \
        } else {                                                                                   \
            for (size_t i = 0; i < count; i++) {                                                   \
                into[i] = into[i] < from[i] ? from[i] : into[i];                                   \
            }                                                                                      \
        }                                                                                          \
    }
DEFINE_REDUCE(float)
DEFINE_REDUCE(double)
/* NOLINTEND(bugprone-macro-parentheses) */

size_t tdm__comm_dtype_bytes(enum tdm__comm_dtype dtype)
{
    return dtype == TDM__COMM_FLOAT64 ? sizeof(double) : sizeof(float);
}

void tdm__comm_reduce_elements(void *into, const void *from, size_t count,
                               enum tdm__comm_dtype dtype, enum tdm_reduction reduction)
{
    if (dtype == TDM__COMM_FLOAT64) {
        reduce_double(into, from, count, reduction);
    } else {
        reduce_float(into, from, count, reduction);
    }
}
