/* large_copy.c - copies of many megabytes: past the caches, and by several threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/large_copy.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    LINE_BYTES = 64,
    PAGE_BYTES = 4096,
    TOGETHER = 4, /* pages that are read at once */
    BLOCK_BYTES = TOGETHER * PAGE_BYTES,
    PREFETCH_BYTES = 512,
    PIECE_BYTES = 64 * BLOCK_BYTES, /* what a thread takes at a time */
    STACK_BYTES = 64 * 1024
};

/* Copies `count` blocks; `to` begins a line. */
typedef void blocks_fn(uint8_t *to, const uint8_t *from, size_t count);

/* ---- blocks ----------------------------------------------------------------------------- */

static void blocks_plain(uint8_t *to, const uint8_t *from, size_t count)
{
    memcpy(to, from, count * BLOCK_BYTES);
}

#if defined(__x86_64__)
#include <immintrin.h>

/* A processor fetches ahead in several pages at a time, and only within each: to read them
 * together is a third faster than in turn.  What is written goes past the caches, or each line
 * of the target would be fetched before it is overwritten. */
__attribute__((target("avx2"))) static void block_avx2(uint8_t *to, const uint8_t *from)
{
    for (size_t at = 0; at < PAGE_BYTES; at += LINE_BYTES) {
        size_t next = at + PREFETCH_BYTES;

        if (next >= PAGE_BYTES) {
            next += BLOCK_BYTES - PAGE_BYTES; /* of the next block */
        }
        for (size_t page = 0; page < BLOCK_BYTES; page += PAGE_BYTES) {
            const __m256i *source = (const __m256i *)(const void *)(from + page + at);
            __m256i *target = (__m256i *)(void *)(to + page + at);
            __m256i low = _mm256_loadu_si256(&source[0]);
            __m256i high = _mm256_loadu_si256(&source[1]);

            _mm_prefetch((const char *)from + page + next, _MM_HINT_T0);
            _mm256_stream_si256(&target[0], low);
            _mm256_stream_si256(&target[1], high);
        }
    }
}

__attribute__((target("avx2"))) static void blocks_avx2(uint8_t *to, const uint8_t *from,
                                                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        block_avx2(to + i * BLOCK_BYTES, from + i * BLOCK_BYTES);
    }
    _mm_sfence(); /* others see it before anything that they are told later */
}

static blocks_fn *blocks_best(void)
{
    return __builtin_cpu_supports("avx2") ? blocks_avx2 : blocks_plain;
}
#else
static blocks_fn *blocks_best(void)
{
    return blocks_plain;
}
#endif

/* ---- threads ---------------------------------------------------------------------------- */

/* Each thread takes the next piece until there is none: one that begins late, or that loses its
 * core, has fewer of them. */
struct copy {
    uint8_t *to;
    const uint8_t *from;
    size_t size_bytes; /* a multiple of BLOCK_BYTES */
    blocks_fn *blocks;
    atomic_size_t taken_bytes;
};

static void *copy_pieces(void *arg)
{
    struct copy *copy = arg;
    size_t at;

    /* Relaxed: the pieces do not meet, and the threads' ends order them all before the return.
     */
    while ((at = atomic_fetch_add_explicit(&copy->taken_bytes, PIECE_BYTES, memory_order_relaxed)) <
           copy->size_bytes) {
        size_t left_bytes = copy->size_bytes - at;
        size_t piece_bytes = left_bytes < PIECE_BYTES ? left_bytes : PIECE_BYTES;

        copy->blocks(copy->to + at, copy->from + at, piece_bytes / BLOCK_BYTES);
    }
    return NULL;
}

uint32_t tdm__copy_threads(size_t size_bytes)
{
    size_t count = size_bytes / TDM__COPY_THREAD_BYTES;
    cpu_set_t cores;

    if (count > TDM__COPY_THREADS_MAX) {
        count = TDM__COPY_THREADS_MAX;
    }
    if (count <= 1 || sched_getaffinity(0, sizeof(cores), &cores) != 0) {
        return 1;
    }
    return CPU_COUNT(&cores) < (int)count ? (uint32_t)CPU_COUNT(&cores) : (uint32_t)count;
}

/* As many of `count` as can be made.  They take no signals: those are for the user's threads.
 */
static uint32_t start_helpers(struct copy *copy, uint32_t count, pthread_t *helpers)
{
    uint32_t started = 0;
    pthread_attr_t attributes;
    sigset_t before;
    sigset_t all;

    if (count == 0) {
        return 0;
    }
    (void)sigfillset(&all);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < count &&
           pthread_create(&helpers[started], &attributes, copy_pieces, copy) == 0) {
        started++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return started;
}

void tdm__copy_large(void *to, const void *from, size_t size_bytes)
{
    pthread_t helpers[TDM__COPY_THREADS_MAX - 1];
    size_t head_bytes = -(uintptr_t)to % LINE_BYTES;
    size_t blocks_bytes;
    uint32_t started;
    struct copy copy;

    head_bytes = head_bytes < size_bytes ? head_bytes : size_bytes;
    blocks_bytes = (size_bytes - head_bytes) / BLOCK_BYTES * BLOCK_BYTES;
    copy = (struct copy){.to = (uint8_t *)to + head_bytes,
                         .from = (const uint8_t *)from + head_bytes,
                         .size_bytes = blocks_bytes,
                         .blocks = blocks_best()};
    memcpy(to, from, head_bytes);
    memcpy(copy.to + blocks_bytes, copy.from + blocks_bytes,
           size_bytes - head_bytes - blocks_bytes);
    started = start_helpers(&copy, tdm__copy_threads(size_bytes) - 1, helpers);
    (void)copy_pieces(&copy);
    while (started > 0) {
        (void)pthread_join(helpers[--started], NULL);
    }
}
