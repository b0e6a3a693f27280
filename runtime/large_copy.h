/* large_copy.h - memory copies of many megabytes: around the caches and by several threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LARGE_COPY_H
#define TDM_RUNTIME_LARGE_COPY_H

#include <stdint.h>
#include <string.h>

/* Thresholds of copies of large memory. */
enum {
    /* Smallest copy that bypasses the caches and uses threads. memcpy() is faster for smaller
     * ones, both for the copy and for the thread that reads the result next. */
    TDM__COPY_LARGE_BYTES = 16 << 20,
    /* Number of bytes for which it pays to start one more thread of a copy. */
    TDM__COPY_THREAD_BYTES = 16 << 20,
    /* Largest number of threads of one copy, the calling thread included. */
    TDM__COPY_THREADS_MAX = 4
};

/* Copies like memcpy(), with the help of up to TDM__COPY_THREADS_MAX - 1 threads that end before
 * the function returns. */
void tdm__copy_large(void *to, const void *from, size_t size_bytes);

/* Returns the number of threads for a copy of `size_bytes` bytes, the calling thread included. It
 * is at most the number of cores that the caller may use. */
uint32_t tdm__copy_threads(size_t size_bytes);

/* Copies like memcpy() and chooses the faster way for the size. */
static inline void tdm__rect_copy(void *to, const void *from, size_t size_bytes)
{
    if (__builtin_expect(size_bytes < TDM__COPY_LARGE_BYTES, 1)) {
        memcpy(to, from, size_bytes);
    } else {
        tdm__copy_large(to, from, size_bytes);
    }
}

#endif
