/* sum.c - checksums of rectangles of bytes, taken while they are copied. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/sum.h"

#include "runtime/mix.h"

#include <stdbool.h>
#include <string.h>

enum {
    LANES = TDM__SUM_STRIPE_BYTES / 8,
    STREAM_BYTES_MIN = 512 << 10, /* what is smaller stays in a cache, where it is read next */
    STREAM_ALIGNMENT = 32,
    PREFETCH_BYTES = 1024,
    PAGE_BYTES = 4096,
    LOOK_UP_BYTES =
        4 * PAGE_BYTES /* ahead, pages' addresses are found while others are copied */
};

/* Keys go through all odd multiples: lane j of stripe i has KEY × (j + 1) + STEP × i. */
#define KEY  UINT64_C(0x9e3779b97f4a7c15)
#define STEP UINT64_C(0x9fb21c651e98df25)

struct sum {
    uint64_t lanes[LANES];
    uint64_t keys[LANES];
};

/* Sums `count` stripes, and copies them unless `to` is NULL; with `stream` past the caches. */
typedef void stripes_fn(struct sum *sum, const uint8_t *from, uint8_t *to, size_t count,
                        bool stream);

/* ---- plain ------------------------------------------------------------------------------ */

static void stripes_plain(struct sum *sum, const uint8_t *from, uint8_t *to, size_t count,
                          bool stream)
{
    (void)stream;
    for (size_t i = 0; i < count; i++) {
        uint64_t words[LANES];

        memcpy(words, from + i * TDM__SUM_STRIPE_BYTES, sizeof(words));
        for (int j = 0; j < LANES; j++) {
            uint64_t keyed = words[j] ^ sum->keys[j];

            sum->lanes[j] += (keyed & UINT32_MAX) * (keyed >> 32) + words[j ^ 1];
            sum->keys[j] += STEP;
        }
        if (to != NULL) {
            memcpy(to + i * TDM__SUM_STRIPE_BYTES, words, sizeof(words));
        }
    }
}

/* ---- x86 -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <immintrin.h>

static inline __attribute__((target("avx2"))) __m256i add_words(__m256i lanes, __m256i keys,
                                                                __m256i words)
{
    __m256i keyed = _mm256_xor_si256(words, keys);
    __m256i products = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));

    return _mm256_add_epi64(lanes,
                            _mm256_add_epi64(products, _mm256_shuffle_epi32(words, 0x4e)));
}

__attribute__((target("avx2"))) static void stripes_avx2(struct sum *sum, const uint8_t *from,
                                                         uint8_t *to, size_t count, bool stream)
{
    const __m256i step = _mm256_set1_epi64x((long long)STEP);
    __m256i *lanes = (__m256i *)(void *)sum->lanes;
    __m256i *keys = (__m256i *)(void *)sum->keys;
    __m256i lanes_low = _mm256_loadu_si256(&lanes[0]);
    __m256i lanes_high = _mm256_loadu_si256(&lanes[1]);
    __m256i keys_low = _mm256_loadu_si256(&keys[0]);
    __m256i keys_high = _mm256_loadu_si256(&keys[1]);

    for (size_t i = 0; i < count; i++) {
        const __m256i *source = (const __m256i *)(const void *)(from + i * 64);
        __m256i low = _mm256_loadu_si256(&source[0]);
        __m256i high = _mm256_loadu_si256(&source[1]);
        /* Nothing is written there where only sums are wanted. */
        uint8_t *place = to == NULL ? (uint8_t *)(uintptr_t)source : to + i * 64;
        __m256i *target = (__m256i *)(void *)place;

        _mm_prefetch((const char *)source + PREFETCH_BYTES, _MM_HINT_T0);
        if (i % (PAGE_BYTES / TDM__SUM_STRIPE_BYTES) == 0) {
            _mm_prefetch((const char *)source + LOOK_UP_BYTES, _MM_HINT_T0);
            _mm_prefetch((const char *)target + LOOK_UP_BYTES, _MM_HINT_T0);
        }
        lanes_low = add_words(lanes_low, keys_low, low);
        lanes_high = add_words(lanes_high, keys_high, high);
        keys_low = _mm256_add_epi64(keys_low, step);
        keys_high = _mm256_add_epi64(keys_high, step);
        if (stream) {
            _mm256_stream_si256(&target[0], low);
            _mm256_stream_si256(&target[1], high);
        } else if (to != NULL) {
            _mm256_storeu_si256(&target[0], low);
            _mm256_storeu_si256(&target[1], high);
        }
    }
    _mm256_storeu_si256(&lanes[0], lanes_low);
    _mm256_storeu_si256(&lanes[1], lanes_high);
    _mm256_storeu_si256(&keys[0], keys_low);
    _mm256_storeu_si256(&keys[1], keys_high);
}

static stripes_fn *stripes_best(void)
{
    return __builtin_cpu_supports("avx2") ? stripes_avx2 : stripes_plain;
}

/* What was streamed is seen by others before anything that is told them later. */
static void stream_end(void)
{
    _mm_sfence();
}
#else
static stripes_fn *stripes_best(void)
{
    return stripes_plain;
}

static void stream_end(void)
{
}
#endif

/* ---- rectangles ------------------------------------------------------------------------- */

static void sum_row(struct sum *sum, stripes_fn *stripes, const uint8_t *from, uint8_t *to,
                    size_t size_bytes, bool stream)
{
    size_t count = size_bytes / TDM__SUM_STRIPE_BYTES;
    size_t done = count * TDM__SUM_STRIPE_BYTES;
    uint8_t last[TDM__SUM_STRIPE_BYTES] = {0};

    stripes(sum, from, to, count, stream);
    if (done == size_bytes) {
        return;
    }
    memcpy(last, from + done, size_bytes - done);
    if (to != NULL) {
        memcpy(to + done, last, size_bytes - done);
    }
    stripes_plain(sum, last, NULL, 1, false);
}

static uint64_t finish(const struct sum *sum, const struct tdm__rows *rows)
{
    uint64_t mixed = tdm__mix(rows->count, rows->size_bytes);

    for (int j = 0; j < LANES; j++) {
        mixed = tdm__mix(mixed, sum->lanes[j]);
    }
    return mixed;
}

static uint64_t run(const struct tdm__rows *rows, stripes_fn *stripes, const uint8_t *from,
                    uint8_t *to)
{
    bool stream =
        to != NULL && rows->count * rows->size_bytes >= STREAM_BYTES_MIN &&
        ((uintptr_t)to | (rows->count > 1 ? rows->to_pitch : 0)) % STREAM_ALIGNMENT == 0;
    struct sum sum = {.lanes = {0}};

    for (uint64_t j = 0; j < LANES; j++) {
        sum.keys[j] = KEY * (j + 1);
    }
    for (size_t i = 0; i < rows->count; i++) {
        sum_row(&sum, stripes, from + i * rows->from_pitch,
                to == NULL ? NULL : to + i * rows->to_pitch, rows->size_bytes, stream);
    }
    if (stream) {
        stream_end();
    }
    return finish(&sum, rows);
}

uint64_t tdm__sum_rows(const struct tdm__rows *rows, const void *from)
{
    return run(rows, stripes_best(), from, NULL);
}

uint64_t tdm__sum_copy(const struct tdm__rows *rows, const void *from, void *to)
{
    return run(rows, stripes_best(), from, to);
}

uint64_t tdm__sum_copy_plain(const struct tdm__rows *rows, const void *from, void *to)
{
    return run(rows, stripes_plain, from, to);
}
