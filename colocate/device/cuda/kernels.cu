/* kernels.cu - the CUDA kernels: copy operations that copy, cast to bfloat16, quantize to FP8,
 * and checksum. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/kernels_api.h"

/* Each row of the grid executes one copy operation of the batch (`part` below). The bits and
 * checksums must equal those of colocate/transfer (casts.c, rect_checksum.c), which are the
 * reference: no fast division, no fused multiply-add.
 *
 * Checksums are added in two ways. A thread that copies rows always has pairs of the same phase and
 * keeps two lanes (struct lane_pair), which takes fewer instructions. A thread that handles FP8
 * tiles keeps all lanes (add_pair): where a block has a single thread, which tests on the host try,
 * the pairs of one tile have all phases.
 *
 * The grid may have any shape. Threads stride over pairs of words or blocks over tiles, add to
 * the checksum lanes in registers, and combine them per block and then per operation with
 * atomics; additions may come in any order.
 *
 * The file is C that a C++ compiler accepts, so that tests run it on the host
 * (tests/fake/kernel_shim.h). copy_engine.c chooses the kernels and the grid. */
#ifndef KERNEL
/* Declares a kernel; the tests define it in another way. */
#define KERNEL extern "C" __global__
#endif

/* Unrolls the loop that follows. Only nvcc has the pragma. */
#ifdef __CUDACC__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED
#endif

/* Constants of the checksum's keys, as in colocate/transfer/rect_checksum.c. */
#define KEY  0x9e3779b97f4a7c15ull
#define STEP 0x9fb21c651e98df25ull

typedef unsigned long long word;

/* Two adjacent words: what one thread loads at once. A stripe has four pairs. */
struct pair {
    word low;
    word high;
};

enum { PAIR_BYTES = 16, STRIPE_BYTES = 64, STRIPE_PAIRS = 4, TILE = 128, TILE_PAIRS = 8, UNROLL = 4 };

/* Returns the smaller number. */
static __device__ word smaller(word one, word other)
{
    return one < other ? one : other;
}

/* Divisions: numbers within a tile have 32 bits in the source. Numbers of rows, tiles and pairs of
 * an operation keep 64 bits, because an operation may have more than 2^32 pairs (64 GiB). nvcc
 * compares both operands of such a division with 2^32 at run time and divides with 32 bits below
 * it, as its PTX shows. A thread does these divisions once for a launch, for a tile, or for two
 * scales, and never for an element. */

/* Returns count / unit, rounded up. */
static __device__ word up(word count, word unit)
{
    return (count + unit - 1) / unit;
}

/* ---- memory ----------------------------------------------------------------------------- */

/* Loads at most 8 bytes in accesses of at most `unit` bytes; the other bytes are zero. */
static __device__ word load_word(const unsigned char *from, unsigned bytes, unsigned unit)
{
    word value = 0;

    if (unit >= 8 && bytes == 8) {
        return *(const word *)from;
    }
    for (unsigned at = 0; at < bytes;) {
        if (unit >= 4 && bytes - at >= 4) {
            value |= (word) * (const unsigned *)(from + at) << (8 * at);
            at += 4;
        } else if (unit >= 2 && bytes - at >= 2) {
            value |= (word) * (const unsigned short *)(from + at) << (8 * at);
            at += 2;
        } else {
            value |= (word)from[at] << (8 * at);
            at += 1;
        }
    }
    return value;
}

/* Stores at most 8 bytes in accesses of at most `unit` bytes. */
static __device__ void store_word(unsigned char *to, word value, unsigned bytes, unsigned unit)
{
    if (unit >= 8 && bytes == 8) {
        *(word *)to = value;
        return;
    }
    for (unsigned at = 0; at < bytes;) {
        if (unit >= 4 && bytes - at >= 4) {
            *(unsigned *)(to + at) = (unsigned)(value >> (8 * at));
            at += 4;
        } else if (unit >= 2 && bytes - at >= 2) {
            *(unsigned short *)(to + at) = (unsigned short)(value >> (8 * at));
            at += 2;
        } else {
            to[at] = (unsigned char)(value >> (8 * at));
            at += 1;
        }
    }
}

/* Loads at most 16 bytes in accesses of at most `unit` bytes; the other bytes are zero. */
static __device__ struct pair load_pair(const unsigned char *from, unsigned bytes,
                                        unsigned unit)
{
    struct pair pair;

    if (unit == PAIR_BYTES && bytes == PAIR_BYTES) {
        ulonglong2 both = *(const ulonglong2 *)from;

        pair.low = both.x;
        pair.high = both.y;
        return pair;
    }
    pair.low = load_word(from, bytes < 8 ? bytes : 8, unit);
    pair.high = bytes > 8 ? load_word(from + 8, bytes - 8, unit) : 0;
    return pair;
}

/* Stores at most 16 bytes in accesses of at most `unit` bytes. */
static __device__ void store_pair(unsigned char *to, struct pair pair, unsigned bytes,
                                  unsigned unit)
{
    if (unit == PAIR_BYTES && bytes == PAIR_BYTES) {
        ulonglong2 both;

        both.x = pair.low;
        both.y = pair.high;
        *(ulonglong2 *)to = both;
        return;
    }
    store_word(to, pair.low, bytes < 8 ? bytes : 8, unit);
    if (bytes > 8) {
        store_word(to + 8, pair.high, bytes - 8, unit);
    }
}

/* ---- checksums ------------------------------------------------------------------------------ */

/* Returns the product of the two halves of the keyed word. */
static __device__ word product(word value, word key)
{
    word keyed = value ^ key;

    return (keyed & 0xffffffffull) * (keyed >> 32);
}

/* Adds a pair to the lanes of a thread. `at` is the number of the pair in the operation, whose
 * rows consist of whole stripes. After unrolling, constants index the lanes, which therefore stay
 * in registers. */
static __device__ void add_pair(word *lanes, word at, struct pair pair)
{
    word phase = at % STRIPE_PAIRS;
    word key = KEY * (2 * phase + 1) + STEP * (at / STRIPE_PAIRS);
    word low = product(pair.low, key) + pair.high;
    word high = product(pair.high, key + KEY) + pair.low;

    for (word i = 0; i < STRIPE_PAIRS; i++) {
        lanes[2 * i] += i == phase ? low : 0;
        lanes[2 * i + 1] += i == phase ? high : 0;
    }
}

/* Adds the lanes of all threads of the block to the operation's lanes. Additions may come in any
 * order. */
static __device__ void give_lanes(const struct tdm__cuda_copy_op *part, const word *lanes)
{
    __shared__ word together[TDM__CUDA_CHECKSUM_LANES];

    for (unsigned i = threadIdx.x; i < TDM__CUDA_CHECKSUM_LANES; i += blockDim.x) {
        together[i] = 0;
    }
    __syncthreads();
    for (unsigned i = 0; i < TDM__CUDA_CHECKSUM_LANES; i++) {
        if (lanes[i] != 0) {
            atomicAdd(&together[i], lanes[i]);
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < TDM__CUDA_CHECKSUM_LANES; i += blockDim.x) {
        if (together[i] != 0) {
            atomicAdd(&part->lanes[i], together[i]);
        }
    }
}

/* The two checksum lanes of a thread that strides over pairs. The thread always handles pairs of
 * the same phase (their position in a stripe), because the number of threads of the grid is a
 * multiple of STRIPE_PAIRS. */
struct lane_pair {
    word low;
    word high;
};

/* Returns the key of the first word of a pair. */
static __device__ word key_of(word pair_index)
{
    return KEY * (2 * (pair_index % STRIPE_PAIRS) + 1) + STEP * (pair_index / STRIPE_PAIRS);
}

/* Adds a pair to the two lanes of a thread. */
static __device__ void add_to_lane_pair(struct lane_pair *sums, word key, struct pair pair)
{
    sums->low += product(pair.low, key) + pair.high;
    sums->high += product(pair.high, key + KEY) + pair.low;
}

/* Adds the lanes of all threads of the block to the operation's lanes. The tree adds threads
 * whose numbers differ by a multiple of STRIPE_PAIRS, so only lanes of the same phase are added. */
static __device__ void give_lane_pair(const struct tdm__cuda_copy_op *part, struct lane_pair sums,
                                      word phase)
{
    __shared__ struct lane_pair together[TDM__CUDA_THREADS_PER_BLOCK];
    unsigned thread = threadIdx.x;

    together[thread] = sums;
    __syncthreads();
    for (unsigned distance = blockDim.x / 2; distance >= STRIPE_PAIRS; distance /= 2) {
        if (thread < distance) {
            together[thread].low += together[thread + distance].low;
            together[thread].high += together[thread + distance].high;
        }
        __syncthreads();
    }
    if (thread < STRIPE_PAIRS) {
        atomicAdd(&part->lanes[2 * phase], together[thread].low);
        atomicAdd(&part->lanes[2 * phase + 1], together[thread].high);
    }
}

/* ---- copies and casts ------------------------------------------------------------------- */

/* Rounds the bits of a float to bfloat16. A NaN keeps its sign and the upper part of its payload,
 * as on the host; CUDA's __float2bfloat16_rn() makes 0x7fff of every NaN. */
static __device__ unsigned bf16_of(unsigned bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        /* The lower half may have held the only bits that made it a NaN. */
        return bits >> 16 | 0x40u;
    }
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

/* Casts the two floats of a word to bfloat16. */
static __device__ word two_casts(word floats)
{
    return (word)bf16_of((unsigned)(floats >> 32)) << 16 | bf16_of((unsigned)floats);
}

/* Returns pair number `column` of a destination row, of which `bytes` belong to the row. `row` is
 * the source row. */
static __device__ struct pair result_of(const struct tdm__cuda_copy_op *part,
                                        const unsigned char *row, word column, unsigned bytes,
                                        int cast)
{
    struct pair pair = {0, 0};
    struct pair floats;
    unsigned more;

    if (part->from == NULL || bytes == 0) {
        return pair;
    }
    if (!cast) {
        return load_pair(row + column * PAIR_BYTES, bytes, part->from_unit);
    }
    more = bytes * 2;
    row += column * PAIR_BYTES * 2;
    floats = load_pair(row, more < PAIR_BYTES ? more : PAIR_BYTES, part->from_unit);
    pair.low = two_casts(floats.high) << 32 | two_casts(floats.low);
    if (more > PAIR_BYTES) {
        floats = load_pair(row + PAIR_BYTES, more - PAIR_BYTES, part->from_unit);
        pair.high = two_casts(floats.high) << 32 | two_casts(floats.low);
    }
    return pair;
}

/* A thread's position among the pairs of all rows. */
struct position {
    word pair_index; /* Number of the pair in the operation. */
    word row; /* Row of the pair. */
    word column; /* Number of the pair in its row. */
};

/* Advances by the number of threads of the grid, given as whole rows and remaining columns. */
static __device__ void advance(struct position *position, word step, word step_rows,
                               word step_columns, word across)
{
    position->pair_index += step;
    position->row += step_rows;
    position->column += step_columns;
    if (position->column >= across) {
        position->column -= across;
        position->row++;
    }
}

/* Copies or casts all rows. Threads stride over the pairs of all rows. Each thread loads UNROLL
 * pairs before it uses the first, so that enough loads are in flight to use the full memory
 * bandwidth. */
static __device__ void write_rows(const struct tdm__cuda_copy_op *part, int cast)
{
    const word row_bytes = part->columns * (cast ? 2 : part->from_bytes);
    const word across = up(row_bytes, STRIPE_BYTES) * STRIPE_PAIRS;
    const word total = part->rows * across;
    const word step = (word)gridDim.x * blockDim.x;
    const word step_rows = step / across;
    const word step_columns = step % across;
    struct position position;
    struct lane_pair sums = {0, 0};
    word phase;

    position.pair_index = (word)blockIdx.x * blockDim.x + threadIdx.x;
    position.row = position.pair_index / across;
    position.column = position.pair_index % across;
    phase = position.pair_index % STRIPE_PAIRS;
    while (position.pair_index < total) {
        struct pair pairs[UNROLL];
        struct position taken[UNROLL];

        UNROLLED for (int i = 0; i < UNROLL; i++) {
            taken[i] = position;
            pairs[i].low = 0;
            pairs[i].high = 0;
            if (position.pair_index < total) {
                word done = smaller(position.column * PAIR_BYTES, row_bytes);

                pairs[i] = result_of(part, part->from + position.row * part->from_pitch,
                                     position.column,
                                     (unsigned)smaller(row_bytes - done, PAIR_BYTES), cast);
            }
            advance(&position, step, step_rows, step_columns, across);
        }
        UNROLLED for (int i = 0; i < UNROLL; i++) {
            if (taken[i].pair_index < total) {
                word done = smaller(taken[i].column * PAIR_BYTES, row_bytes);
                unsigned bytes = (unsigned)smaller(row_bytes - done, PAIR_BYTES);

                add_to_lane_pair(&sums, key_of(taken[i].pair_index), pairs[i]);
                if (part->to != NULL && bytes > 0) {
                    store_pair(part->to + taken[i].row * part->to_pitch + done, pairs[i], bytes,
                               part->to_unit);
                }
            }
        }
    }
    give_lane_pair(part, sums, phase);
}

/* Kernel: copies rectangles without conversion. */
KERNEL void tandem_copy(struct tdm__cuda_batch batch)
{
    write_rows(&batch.copy_ops[blockIdx.y], 0);
}

/* Kernel: casts float32 rectangles to bfloat16. */
KERNEL void tandem_cast(struct tdm__cuda_batch batch)
{
    write_rows(&batch.copy_ops[blockIdx.y], 1);
}

/* ---- FP8 by tiles ----------------------------------------------------------------------- */

/* Encodes the bits of a float as e4m3 without infinities: to nearest even; larger values become
 * 448. A NaN keeps its sign, as on the host; CUDA's __nv_cvt_float_to_fp8() makes 0x7f of every
 * NaN. */
static __device__ unsigned e4m3_of(unsigned bits)
{
    unsigned sign = bits >> 24 & 0x80u;
    unsigned magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u) {
        return sign | 0x7fu;
    }
    if (magnitude >= 0x43e00000u) { /* 448 */
        return sign | 0x7eu;
    }
    if (magnitude < 0x3c800000u) { /* 2^-6, the smallest normal number. */
        /* Adding 2^14 leaves multiples of 2^-9 in the last bits, rounded to nearest even. */
        float sum = __fadd_rn(__uint_as_float(magnitude), 16384.0f);

        return sign | (__float_as_uint(sum) - 0x46800000u);
    }
    magnitude += 0x7ffffu + (magnitude >> 20 & 1u);
    return sign | (magnitude - (120u << 23)) >> 20;
}

/* Scales a number and encodes it as e4m3. A NaN keeps its sign; a NaN that the multiplication
 * creates (infinity times zero) gets the sign that the host's processor gives it. */
static __device__ unsigned code_of(unsigned bits, float inverse)
{
    unsigned scaled = __float_as_uint(__fmul_rn(__uint_as_float(bits), inverse));

    if ((scaled & 0x7fffffffu) > 0x7f800000u) {
        return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 24 & 0x80u) | 0x7fu : 0xffu;
    }
    return e4m3_of(scaled);
}

/* The part of a matrix that has one scale. */
struct tile {
    const unsigned char *from; /* First element. */
    unsigned rows; /* At most TILE, like columns: 32 bits keep divisions short. */
    unsigned columns; /* Columns of the tile, at most TILE. */
};

/* Returns the tile number (down, across) of a matrix. */
static __device__ struct tile tile_at(const struct tdm__cuda_copy_op *part, word down, word across)
{
    struct tile tile;

    tile.from = part->from + down * TILE * part->from_pitch + across * TILE * part->from_bytes;
    tile.rows = (unsigned)smaller(part->rows - down * TILE, TILE);
    tile.columns = (unsigned)smaller(part->columns - across * TILE, TILE);
    return tile;
}

/* Loads an element of a tile as the bits of a float. */
static __device__ unsigned bits_at(const struct tdm__cuda_copy_op *part, const struct tile *tile,
                                   word row, word column)
{
    const unsigned char *from = tile->from + row * part->from_pitch + column * part->from_bytes;
    unsigned bits = (unsigned)load_word(from, part->from_bytes, part->from_unit);

    return part->from_bytes == 2 ? bits << 16 : bits;
}

/* Computes the scale of a tile. All threads of the block must call it. */
static __device__ float scale_of(const struct tdm__cuda_copy_op *part, const struct tile *tile)
{
    __shared__ unsigned largest;
    unsigned own = 0;

    __syncthreads(); /* All threads have read the scale of the tile before. */
    if (threadIdx.x == 0) {
        largest = __float_as_uint(1e-10f);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < tile->rows * tile->columns; i += blockDim.x) {
        unsigned size = bits_at(part, tile, i / tile->columns, i % tile->columns) & 0x7fffffffu;

        /* The bits of non-negative numbers are ordered like the numbers. */
        own = size <= 0x7f800000u && size > own ? size : own;
    }
    atomicMax(&largest, own);
    __syncthreads();
    return __fdiv_rn(__uint_as_float(largest), 448.0f);
}

/* Returns the given scale of a tile, or computes it. */
static __device__ float scale_for(const struct tdm__cuda_copy_op *part, const struct tile *tile,
                                  word down, word across)
{
    return part->scales != NULL ? part->scales[down * part->scales_pitch + across]
                                : scale_of(part, tile);
}

/* Encodes eight elements of a tile into one word. */
static __device__ word eight_codes(const struct tdm__cuda_copy_op *part, const struct tile *tile,
                                   word row, word column, float inverse)
{
    word codes = 0;

    for (unsigned i = 0; i < 8 && column + i < tile->columns; i++) {
        codes |= (word)code_of(bits_at(part, tile, row, column + i), inverse) << (8 * i);
    }
    return codes;
}

/* Kernel: quantizes rectangles to FP8. A block of threads handles a tile: first its scale, then
 * its elements. */
KERNEL void tandem_quantize(struct tdm__cuda_batch batch)
{
    const struct tdm__cuda_copy_op *part = &batch.copy_ops[blockIdx.y];
    word row_pairs = up(part->columns, STRIPE_BYTES) * STRIPE_PAIRS;
    word across = up(part->columns, TILE);
    word count = across * up(part->rows, TILE);
    word lanes[TDM__CUDA_CHECKSUM_LANES] = {0};

    for (word block = blockIdx.x; block < count; block += gridDim.x) {
        const word tile_row = block / across;
        const word tile_column = block - tile_row * across;
        struct tile tile = tile_at(part, tile_row, tile_column);
        unsigned pairs = (unsigned)up(tile.columns, STRIPE_BYTES) * STRIPE_PAIRS;
        float scale = scale_for(part, &tile, tile_row, tile_column);
        float inverse = __fdiv_rn(1.0f, scale);

        for (unsigned i = threadIdx.x; i < tile.rows * pairs; i += blockDim.x) {
            /* Numbers within a tile have 32 bits, whose divisions are short. */
            unsigned row = i / pairs;
            unsigned pair_column = i - row * pairs;
            word down = tile_row * TILE + row;
            unsigned column = pair_column * PAIR_BYTES;
            unsigned left = tile.columns - (unsigned)smaller(column, tile.columns);
            struct pair pair;

            pair.low = eight_codes(part, &tile, row, column, inverse);
            pair.high = eight_codes(part, &tile, row, column + 8, inverse);
            add_pair(lanes, down * row_pairs + tile_column * TILE_PAIRS + pair_column, pair);
            if (part->to != NULL && left > 0) {
                store_pair(part->to + down * part->to_pitch + tile_column * TILE + column,
                           pair, (unsigned)smaller(left, PAIR_BYTES), part->to_unit);
            }
        }
    }
    give_lanes(part, lanes);
}

/* Computes the scales of two adjacent tiles as one word; zero behind the last tile. */
static __device__ word two_scales(const struct tdm__cuda_copy_op *part, word down, word across)
{
    word tiles = up(part->columns, TILE);
    word scales = 0;

    for (unsigned i = 0; i < 2 && across + i < tiles; i++) {
        struct tile tile = tile_at(part, down, across + i);

        scales |= (word)__float_as_uint(scale_of(part, &tile)) << (32 * i);
    }
    return scales;
}

/* Kernel: computes the scales of rectangles. A block of threads handles four tiles, whose scales
 * are a pair. */
KERNEL void tandem_scales(struct tdm__cuda_batch batch)
{
    const struct tdm__cuda_copy_op *part = &batch.copy_ops[blockIdx.y];
    word row_bytes = up(part->columns, TILE) * 4;
    word across = up(row_bytes, STRIPE_BYTES) * STRIPE_PAIRS;
    word count = across * up(part->rows, TILE);
    word lanes[TDM__CUDA_CHECKSUM_LANES] = {0};

    for (word at = blockIdx.x; at < count; at += gridDim.x) {
        word column = at % across;
        word done = smaller(column * PAIR_BYTES, row_bytes);
        unsigned bytes = (unsigned)smaller(row_bytes - done, PAIR_BYTES);
        struct pair pair;

        pair.low = two_scales(part, at / across, column * 4);
        pair.high = two_scales(part, at / across, column * 4 + 2);
        if (threadIdx.x != 0) {
            continue;
        }
        add_pair(lanes, at, pair);
        if (part->to != NULL && bytes > 0) {
            store_pair(part->to + at / across * part->to_pitch + done, pair, bytes,
                       part->to_unit);
        }
    }
    give_lanes(part, lanes);
}
