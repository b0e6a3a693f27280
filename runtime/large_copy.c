/* large_copy.c - memory copies of many megabytes: around the caches and by several threads. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A copy has three parts. memcpy() copies the bytes up to the first cache line boundary of the
 * target.  The threads share all whole blocks behind it. memcpy() copies the rest.
 *
 * A block is PAGES_PER_BLOCK pages.  With AVX2 the pages of a block are read side by side,
 * because the hardware prefetcher follows each page separately.  The target is written by
 * non-temporal stores, which do not load the lines that they overwrite.
 *
 * Threads claim chunks of 64 blocks from one atomic counter, so a thread that starts late or
 * loses its core copies fewer chunks.  The helper threads live for one copy only; the caller
 * joins them. */
#include "runtime/large_copy.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

/* Units in which large memory is copied; the sizes are in bytes. */
enum {
    CACHE_LINE_BYTES = 64, /* Cache line; the unit of a non-temporal store sequence. */
    PAGE_BYTES = 4096,     /* Size of a page of memory in bytes. */
    PAGES_PER_BLOCK = 4,   /* Pages that are read side by side. */
    /* Bytes of a block, the smallest unit of copy_blocks_fn. */
    BLOCK_BYTES = PAGES_PER_BLOCK * PAGE_BYTES,
    PREFETCH_BYTES = 512,           /* Distance of the software prefetch ahead of the load. */
    CHUNK_BYTES = 64 * BLOCK_BYTES, /* Bytes of a chunk, which a thread claims at a time. */
    STACK_BYTES = 64 * 1024         /* Stack size of a helper thread in bytes. */
};

/* Function that copies `count` blocks.  `to` must be aligned to a cache line. */
typedef void copy_blocks_fn(uint8_t *to, const uint8_t *from, size_t count);

/* ---- blocks ----------------------------------------------------------------------------- */

/* Copies blocks by memcpy(), on processors without AVX2. */
static void copy_blocks_plain(uint8_t *to, const uint8_t *from, size_t count)
{
    memcpy(to, from, count * BLOCK_BYTES);
}

#if defined(__x86_64__)
#include <immintrin.h>

/* Copies one block by AVX2. Reading the pages of the block side by side is a third faster than one
 * after the other, since the hardware prefetcher works within each page. The non-temporal stores
 * bypass the caches; normal stores would first load each line of the target. */
__attribute__((target("avx2"))) static void block_avx2(uint8_t *to, const uint8_t *from)
{
    for (size_t at = 0; at < PAGE_BYTES; at += CACHE_LINE_BYTES) {
        size_t next = at + PREFETCH_BYTES;

        if (next >= PAGE_BYTES) {
            next += BLOCK_BYTES - PAGE_BYTES; /* The prefetch continues in the next block. */
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

/* Copies blocks one after the other by block_avx2(). */
__attribute__((target("avx2"))) static void blocks_avx2(uint8_t *to, const uint8_t *from,
                                                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        block_avx2(to + i * BLOCK_BYTES, from + i * BLOCK_BYTES);
    }
    _mm_sfence(); /* Orders the non-temporal stores before all later stores. */
}

/* Returns the fastest function that copies blocks on this processor. */
static copy_blocks_fn *copy_blocks_choose(void)
{
    return __builtin_cpu_supports("avx2") ? blocks_avx2 : copy_blocks_plain;
}
#else
/* Returns the function that copies blocks on processors other than x86-64. */
static copy_blocks_fn *copy_blocks_choose(void)
{
    return copy_blocks_plain;
}
#endif

/* ---- threads ---------------------------------------------------------------------------- */

/* One large copy, shared by the calling thread and its helper threads.  It lives on the stack of
 * the caller until the helpers have been joined. */
struct copy_job {
    uint8_t *to;                 /* Target of the copy; starts at a cache line. */
    const uint8_t *from;         /* Source of the copy, at any address. */
    size_t size_bytes;           /* Size of the copy; a multiple of BLOCK_BYTES. */
    copy_blocks_fn *copy_blocks; /* Function that copies blocks on this processor. */
    /* Bytes that threads have claimed so far, from the start; may exceed `size_bytes`. */
    atomic_size_t claimed_bytes;
};

/* Claims and copies chunks of the copy job `arg` until none is left. Every thread of the copy runs
 * this function. */
static void *copy_chunks(void *arg)
{
    struct copy_job *job = arg;
    size_t at;

    /* Relaxed: chunks do not overlap, and joining the threads orders the copied bytes before the
     * return of tdm__copy_large(). */
    while ((at = atomic_fetch_add_explicit(&job->claimed_bytes, CHUNK_BYTES,
                                           memory_order_relaxed)) < job->size_bytes) {
        size_t remaining_bytes = job->size_bytes - at;
        size_t chunk_bytes = remaining_bytes < CHUNK_BYTES ? remaining_bytes : CHUNK_BYTES;

        job->copy_blocks(job->to + at, job->from + at, chunk_bytes / BLOCK_BYTES);
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

/* Starts up to `count` helper threads of a copy and returns the number of threads that could be
 * started. They block all signals, so that signals go to the threads of the user. */
static uint32_t copy_threads_start(struct copy_job *job, uint32_t count, pthread_t *helpers)
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
           pthread_create(&helpers[started], &attributes, copy_chunks, job) == 0) {
        started++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return started;
}

void tdm__copy_large(void *to, const void *from, size_t size_bytes)
{
    pthread_t helpers[TDM__COPY_THREADS_MAX - 1];
    size_t head_bytes = -(uintptr_t)to % CACHE_LINE_BYTES;
    size_t blocks_bytes;
    uint32_t started;
    struct copy_job job;

    head_bytes = head_bytes < size_bytes ? head_bytes : size_bytes;
    blocks_bytes = (size_bytes - head_bytes) / BLOCK_BYTES * BLOCK_BYTES;
    job = (struct copy_job){.to = (uint8_t *)to + head_bytes,
                            .from = (const uint8_t *)from + head_bytes,
                            .size_bytes = blocks_bytes,
                            .copy_blocks = copy_blocks_choose()};
    memcpy(to, from, head_bytes);
    memcpy(job.to + blocks_bytes, job.from + blocks_bytes, size_bytes - head_bytes - blocks_bytes);
    started = copy_threads_start(&job, tdm__copy_threads(size_bytes) - 1, helpers);
    (void)copy_chunks(&job);
    while (started > 0) {
        (void)pthread_join(helpers[--started], NULL);
    }
}
