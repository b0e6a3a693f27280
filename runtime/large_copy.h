/* large_copy.h - copies of many megabytes: past the caches, and by several threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LARGE_COPY_H
#define TDM_RUNTIME_LARGE_COPY_H

#include <stdint.h>
#include <string.h>

enum {
    /* From here on what is copied goes past the caches.  Less is faster by memcpy(), for who
     * copies and for who reads it next. */
    TDM__COPY_LARGE_BYTES = 16 << 20,
    /* Each thread has at least as much to do: it takes its time to begin. */
    TDM__COPY_THREAD_BYTES = 16 << 20,
    TDM__COPY_THREADS_MAX = 4
};

/* memcpy(), by threads that are gone when it returns. */
void tdm__copy_large(void *to, const void *from, size_t size_bytes);

/* How many threads that takes, the caller's included: no more than it may use cores. */
uint32_t tdm__copy_threads(size_t size_bytes);

static inline void tdm__rect_copy(void *to, const void *from, size_t size_bytes)
{
    if (__builtin_expect(size_bytes < TDM__COPY_LARGE_BYTES, 1)) {
        memcpy(to, from, size_bytes);
    } else {
        tdm__copy_large(to, from, size_bytes);
    }
}

#endif
