/* rect_checksum.c - checksums of rectangles of bytes, computed while they are copied. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A struct kernel has the inner loops for a kind of processor: plain C, and AVX2, chosen at run
 * time. All variants give the same checksum. `stripes` handles one row; `together` handles
 * ROWS_AT_ONCE rows at once and writes with non-temporal stores, because a processor prefetches
 * in several pages at a time but only within each.
 *
 * Rows that follow each other without gaps are treated as pages, so that large contiguous copies
 * use `together`, too. There is no state; any thread may enter. rect_checksum.h specifies the
 * checksum; kernels.cu computes the same on a GPU. */

#include "colocate/transfer/rect_checksum.h"

#include "runtime/splitmix.h"

#include <stdbool.h>
#include <string.h>

enum {
    /* Number of 64-bit lanes of a checksum, which are computed side by side. */
    LANES = TDM__CHECKSUM_LANES,
    /* Copies below this size in bytes stay in the cache, so they use no non-temporal stores. */
    STREAM_BYTES_MIN = 512 << 10,
    PREFETCH_BYTES = 512, /* How far ahead the loops prefetch, in bytes. */
    /* Size in bytes of the rows into which contiguous data is cut. */
    PAGE_BYTES = 4096,
    ROWS_AT_ONCE = 4 /* Number of rows that the function `together` of a kernel reads at once. */
};

/* Factor of the keys with which words are xored: lane j of stripe i has the key KEY x (j + 1) +
 * STEP x i. */
#define KEY UINT64_C(0x9e3779b97f4a7c15)
/* Increment of each lane's key from one stripe to the next. */
#define STEP UINT64_C(0x9fb21c651e98df25)

/* A checksum while it is computed. */
struct checksum_state {
    uint64_t lanes[LANES]; /* Sums of the lanes over the stripes added so far. */
    uint64_t keys[LANES];  /* Key with which each lane's word of the next stripe is xored. */
};

/* Adds `count` stripes of a row to a checksum, and copies them unless `to` is NULL. */
typedef void stripes_fn(struct checksum_state *sum, const uint8_t *from, uint8_t *to, size_t count);

/* Adds ROWS_AT_ONCE rows of whole stripes to a checksum, as if one came after the other, and copies
 * them unless `to` is NULL. Reading the rows together is a quarter faster, because a processor
 * prefetches in several pages at a time, but only within each. */
typedef void together_fn(struct checksum_state *sum, const struct tdm__strided_rows *rows,
                         const uint8_t *from, uint8_t *to);

/* The inner loops of the checksum for one kind of processor. */
struct kernel {
    stripes_fn *stripes; /* Loop over the stripes of one row. */
    /* Loop over ROWS_AT_ONCE rows; NULL if there is no such variant. */
    together_fn *together;
};

/* ---- plain C ---------------------------------------------------------------------------- */

/* Adds `count` stripes of 64 bytes to a checksum and copies them unless `to` is NULL, in plain
 * C. */
static void stripes_generic(struct checksum_state *sum, const uint8_t *from, uint8_t *to,
                            size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t words[LANES];

        memcpy(words, from + i * TDM__CHECKSUM_STRIPE_BYTES, sizeof(words));
        for (int j = 0; j < LANES; j++) {
            uint64_t keyed = words[j] ^ sum->keys[j];

            sum->lanes[j] += (keyed & UINT32_MAX) * (keyed >> 32) + words[j ^ 1];
            sum->keys[j] += STEP;
        }
        if (to != NULL) {
            memcpy(to + i * TDM__CHECKSUM_STRIPE_BYTES, words, sizeof(words));
        }
    }
}

/* The inner loops in plain C, which run on every processor. */
static const struct kernel generic_kernel = {stripes_generic, NULL};

/* ---- x86 -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <immintrin.h>

/* Adds four words, xored with their keys, to four lanes of a checksum. */
static inline __attribute__((target("avx2"))) __m256i add_words(__m256i lanes, __m256i keys,
                                                                __m256i words)
{
    __m256i keyed = _mm256_xor_si256(words, keys);
    __m256i products = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));

    return _mm256_add_epi64(lanes, _mm256_add_epi64(products, _mm256_shuffle_epi32(words, 0x4e)));
}

/* Adds `count` stripes of 64 bytes to a checksum and copies them unless `to` is NULL, with AVX2. */
__attribute__((target("avx2"))) static void
stripes_avx2(struct checksum_state *sum, const uint8_t *from, uint8_t *to, size_t count)
{
    const __m256i step = _mm256_set1_epi64x((long long)STEP);
    __m256i *lanes = (__m256i *)(void *)sum->lanes;
    __m256i *keys = (__m256i *)(void *)sum->keys;
    __m256i lanes_low = _mm256_loadu_si256(&lanes[0]);
    __m256i lanes_high = _mm256_loadu_si256(&lanes[1]);
    __m256i keys_low = _mm256_loadu_si256(&keys[0]);
    __m256i keys_high = _mm256_loadu_si256(&keys[1]);

    for (size_t i = 0; i < count; i++) {
        const __m256i *source =
            (const __m256i *)(const void *)(from + i * TDM__CHECKSUM_STRIPE_BYTES);
        __m256i low = _mm256_loadu_si256(&source[0]);
        __m256i high = _mm256_loadu_si256(&source[1]);

        _mm_prefetch((const char *)source + PREFETCH_BYTES, _MM_HINT_T0);
        lanes_low = add_words(lanes_low, keys_low, low);
        lanes_high = add_words(lanes_high, keys_high, high);
        keys_low = _mm256_add_epi64(keys_low, step);
        keys_high = _mm256_add_epi64(keys_high, step);
        if (to != NULL) {
            __m256i *target = (__m256i *)(void *)(to + i * TDM__CHECKSUM_STRIPE_BYTES);

            _mm256_storeu_si256(&target[0], low);
            _mm256_storeu_si256(&target[1], high);
        }
    }
    _mm256_storeu_si256(&lanes[0], lanes_low);
    _mm256_storeu_si256(&lanes[1], lanes_high);
    _mm256_storeu_si256(&keys[0], keys_low);
    _mm256_storeu_si256(&keys[1], keys_high);
}

/* Adds ROWS_AT_ONCE rows to a checksum and copies them unless `to` is NULL, with AVX2. Stripe i of
 * row r has the key of stripe r x count + i. Prefetching continues with the rows that come next,
 * not with the bytes between rows. */
__attribute__((target("avx2"))) static void together_avx2(struct checksum_state *sum,
                                                          const struct tdm__strided_rows *rows,
                                                          const uint8_t *from, uint8_t *to)
{
    const size_t count = rows->size_bytes / TDM__CHECKSUM_STRIPE_BYTES;
    const __m256i step = _mm256_set1_epi64x((long long)STEP);
    __m256i *lanes = (__m256i *)(void *)sum->lanes;
    __m256i *keys = (__m256i *)(void *)sum->keys;
    __m256i lanes_low = _mm256_loadu_si256(&lanes[0]);
    __m256i lanes_high = _mm256_loadu_si256(&lanes[1]);
    __m256i keys_low = _mm256_loadu_si256(&keys[0]);
    __m256i keys_high = _mm256_loadu_si256(&keys[1]);
    /* For each row, the difference of its keys from the keys of the first row. */
    __m256i ahead[ROWS_AT_ONCE];

    for (size_t row = 0; row < ROWS_AT_ONCE; row++) {
        ahead[row] = _mm256_set1_epi64x((long long)(STEP * count * row));
    }
    for (size_t i = 0; i < count; i++) {
        size_t at = i * TDM__CHECKSUM_STRIPE_BYTES;
        size_t next = at + PREFETCH_BYTES;

        if (next >= rows->size_bytes) {
            next += ROWS_AT_ONCE * rows->from_pitch - rows->size_bytes;
        }
        for (size_t row = 0; row < ROWS_AT_ONCE; row++) {
            const __m256i *source =
                (const __m256i *)(const void *)(from + row * rows->from_pitch + at);
            __m256i low = _mm256_loadu_si256(&source[0]);
            __m256i high = _mm256_loadu_si256(&source[1]);

            _mm_prefetch((const char *)from + row * rows->from_pitch + next, _MM_HINT_T0);
            lanes_low = add_words(lanes_low, _mm256_add_epi64(keys_low, ahead[row]), low);
            lanes_high = add_words(lanes_high, _mm256_add_epi64(keys_high, ahead[row]), high);
            if (to != NULL) {
                __m256i *target = (__m256i *)(void *)(to + row * rows->to_pitch + at);

                _mm256_stream_si256(&target[0], low);
                _mm256_stream_si256(&target[1], high);
            }
        }
        keys_low = _mm256_add_epi64(keys_low, step);
        keys_high = _mm256_add_epi64(keys_high, step);
    }
    _mm256_storeu_si256(&lanes[0], lanes_low);
    _mm256_storeu_si256(&lanes[1], lanes_high);
    _mm256_storeu_si256(&keys[0], _mm256_add_epi64(keys_low, ahead[ROWS_AT_ONCE - 1]));
    _mm256_storeu_si256(&keys[1], _mm256_add_epi64(keys_high, ahead[ROWS_AT_ONCE - 1]));
}

/* Returns the fastest inner loops for this processor. */
static const struct kernel *select_kernel(void)
{
    static const struct kernel avx2 = {stripes_avx2, together_avx2};

    return __builtin_cpu_supports("avx2") ? &avx2 : &generic_kernel;
}

/* Makes non-temporal stores visible to other processors before any later store. */
static void stream_end(void)
{
    _mm_sfence();
}
#else
/* Returns the only inner loops that there are for this kind of processor. */
static const struct kernel *select_kernel(void)
{
    return &generic_kernel;
}

/* Does nothing, because the plain C loops make no non-temporal stores. */
static void stream_end(void)
{
}
#endif

/* ---- rectangles ------------------------------------------------------------------------- */

/* Adds one row of `size_bytes` bytes to a checksum, and copies the row unless `to` is NULL. */
static void checksum_add_row(struct checksum_state *sum, const struct kernel *kernel,
                             const uint8_t *from, uint8_t *to, size_t size_bytes)
{
    size_t count = size_bytes / TDM__CHECKSUM_STRIPE_BYTES;
    size_t done = count * TDM__CHECKSUM_STRIPE_BYTES;
    uint8_t last[TDM__CHECKSUM_STRIPE_BYTES] = {0};

    kernel->stripes(sum, from, to, count);
    if (done == size_bytes) {
        return;
    }
    memcpy(last, from + done, size_bytes - done);
    if (to != NULL) {
        memcpy(to + done, last, size_bytes - done);
    }
    stripes_generic(sum, last, NULL, 1);
}

/* Returns true if the rows follow each other in memory without gaps and in whole stripes. Such rows
 * can be divided anywhere between stripes, for example at pages. */
static bool rows_are_contiguous(const struct tdm__strided_rows *rows, const uint8_t *to)
{
    return rows->count == 1 || (rows->size_bytes % TDM__CHECKSUM_STRIPE_BYTES == 0 &&
                                rows->from_pitch == rows->size_bytes &&
                                (to == NULL || rows->to_pitch == rows->size_bytes));
}

/* Returns true if the rows are suitable for the function `together` of a kernel. */
static bool rows_fit_together(const struct tdm__strided_rows *rows, const uint8_t *to)
{
    return rows->size_bytes % TDM__CHECKSUM_STRIPE_BYTES == 0 &&
           (to == NULL || (rows->count * rows->size_bytes >= STREAM_BYTES_MIN &&
                           ((uintptr_t)to | rows->to_pitch) % TDM__CHECKSUM_STRIPE_BYTES == 0));
}

/* Adds all rows to a checksum, and copies them unless `to` is NULL. */
static void checksum_add_rows(struct checksum_state *sum, const struct kernel *kernel,
                              const struct tdm__strided_rows *rows, const uint8_t *from,
                              uint8_t *to)
{
    size_t i = 0;

    if (kernel->together != NULL && rows_fit_together(rows, to)) {
        for (; rows->count - i >= ROWS_AT_ONCE; i += ROWS_AT_ONCE) {
            kernel->together(sum, rows, from + i * rows->from_pitch,
                             to == NULL ? NULL : to + i * rows->to_pitch);
        }
        stream_end();
    }
    for (; i < rows->count; i++) {
        checksum_add_row(sum, kernel, from + i * rows->from_pitch,
                         to == NULL ? NULL : to + i * rows->to_pitch, rows->size_bytes);
    }
}

uint64_t tdm__rect_checksum_from_lanes(const struct tdm__strided_rows *rows,
                                       const uint64_t lanes[LANES])
{
    uint64_t mixed = tdm__splitmix64(rows->count, rows->size_bytes);

    for (int j = 0; j < LANES; j++) {
        mixed = tdm__splitmix64(mixed, lanes[j]);
    }
    return mixed;
}

/* Returns the checksum of the rows at `from`, and copies them unless `to` is NULL. */
static uint64_t checksum_execute(const struct tdm__strided_rows *rows, const struct kernel *kernel,
                                 const uint8_t *from, uint8_t *to)
{
    struct checksum_state sum = {.lanes = {0}};

    for (uint64_t j = 0; j < LANES; j++) {
        sum.keys[j] = KEY * (j + 1);
    }
    if (rows_are_contiguous(rows, to)) {
        size_t size_bytes = rows->count * rows->size_bytes;
        const struct tdm__strided_rows pages = {.count = size_bytes / PAGE_BYTES,
                                                .size_bytes = PAGE_BYTES,
                                                .from_pitch = PAGE_BYTES,
                                                .to_pitch = PAGE_BYTES};
        size_t done = pages.count * PAGE_BYTES;

        checksum_add_rows(&sum, kernel, &pages, from, to);
        checksum_add_row(&sum, kernel, from + done, to == NULL ? NULL : to + done,
                         size_bytes - done);
    } else {
        checksum_add_rows(&sum, kernel, rows, from, to);
    }
    return tdm__rect_checksum_from_lanes(rows, sum.lanes);
}

uint64_t tdm__rect_checksum(const struct tdm__strided_rows *rows, const void *from)
{
    return checksum_execute(rows, select_kernel(), from, NULL);
}

uint64_t tdm__rect_checksum_copy(const struct tdm__strided_rows *rows, const void *from, void *to)
{
    return checksum_execute(rows, select_kernel(), from, to);
}

uint64_t tdm__rect_checksum_copy_plain(const struct tdm__strided_rows *rows, const void *from,
                                       void *to)
{
    return checksum_execute(rows, &generic_kernel, from, to);
}
