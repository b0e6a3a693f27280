/* kernels.cu - on the GPU: rectangles copied, cast to bfloat16, quantized to FP8 by blocks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/kernels_api.h"

/* One row of the grid for each rectangle; its threads stride over the elements.  The bits are
 * those of colocate/plan/fp8.c, which is the reference: no fast division, no fused
 * multiplication. */

typedef unsigned long long word;

template <typename unit> static __device__ void copy_units(const struct tdm__cuda_rectangle *r)
{
    word total = (word)r->rows * r->columns;
    word step = (word)gridDim.x * blockDim.x;

    for (word i = (word)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        word row = i / r->columns;
        word column = i % r->columns;

        ((unit *)r->to)[row * r->to_pitch + column] =
            ((const unit *)r->from)[row * r->from_pitch + column];
    }
}

extern "C" __global__ void tandem_copy(struct tdm__cuda_batch batch)
{
    const struct tdm__cuda_rectangle *r = &batch.rectangles[blockIdx.y];

    switch (r->unit_bytes) {
    case 1:
        copy_units<unsigned char>(r);
        break;
    case 2:
        copy_units<unsigned short>(r);
        break;
    case 4:
        copy_units<unsigned>(r);
        break;
    case 8:
        copy_units<uint2>(r);
        break;
    default:
        copy_units<uint4>(r);
        break;
    }
}

static __device__ unsigned short bf16_of(float value)
{
    unsigned bits = __float_as_uint(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (unsigned short)(bits >> 16 | 0x40u);
    }
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

extern "C" __global__ void tandem_cast(struct tdm__cuda_batch batch)
{
    const struct tdm__cuda_rectangle *r = &batch.rectangles[blockIdx.y];
    word total = (word)r->rows * r->columns;
    word step = (word)gridDim.x * blockDim.x;

    for (word i = (word)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        word row = i / r->columns;
        word column = i % r->columns;

        ((unsigned short *)r->to)[row * r->to_pitch + column] =
            bf16_of(((const float *)r->from)[row * r->from_pitch + column]);
    }
}

/* e4m3 without infinities, to nearest even; what is over 448 is 448. */
static __device__ unsigned char e4m3_of(float value)
{
    unsigned bits = __float_as_uint(value);
    unsigned sign = bits >> 24 & 0x80u;
    unsigned magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u) {
        return (unsigned char)(sign | 0x7fu);
    }
    if (magnitude >= 0x43e00000u) { /* 448 */
        return (unsigned char)(sign | 0x7eu);
    }
    if (magnitude < 0x3c800000u) { /* 2^-6: the smallest that is normal */
        /* Adding 2^14 leaves multiples of 2^-9 in the last bits, rounded to nearest even. */
        float sum = __fadd_rn(__uint_as_float(magnitude), 16384.0f);

        return (unsigned char)(sign | (__float_as_uint(sum) - 0x46800000u));
    }
    magnitude += 0x7ffffu + (magnitude >> 20 & 1u);
    return (unsigned char)(sign | (magnitude - (120u << 23)) >> 20);
}

static __device__ float element_of(const struct tdm__cuda_rectangle *r, word row, word column)
{
    word at = row * r->from_pitch + column;

    return r->unit_bytes == 2
               ? __uint_as_float((unsigned)((const unsigned short *)r->from)[at] << 16)
               : ((const float *)r->from)[at];
}

/* A block of threads for each 128 x 128 elements: the largest first, then the quotients. */
extern "C" __global__ void tandem_quantize(struct tdm__cuda_batch batch)
{
    const struct tdm__cuda_rectangle *r = &batch.rectangles[blockIdx.y];
    unsigned across = (r->columns + 127) / 128;
    unsigned blocks = across * ((r->rows + 127) / 128);
    __shared__ unsigned largest;

    for (unsigned block = blockIdx.x; block < blocks; block += gridDim.x) {
        word top = (word)(block / across) * 128;
        word left = (word)(block % across) * 128;
        word height = r->rows - top < 128 ? r->rows - top : 128;
        word width = r->columns - left < 128 ? r->columns - left : 128;
        float scale;
        float inverse;

        __syncthreads();
        if (threadIdx.x == 0) {
            largest = __float_as_uint(1e-10f);
        }
        __syncthreads();
        for (word i = threadIdx.x; i < height * width; i += blockDim.x) {
            float value = fabsf(element_of(r, top + i / width, left + i % width));

            /* Bits of what is not negative are in the order of the numbers. */
            if (value == value) {
                atomicMax(&largest, __float_as_uint(value));
            }
        }
        __syncthreads();
        scale = __fdiv_rn(__uint_as_float(largest), 448.0f);
        inverse = __fdiv_rn(1.0f, scale);
        if (threadIdx.x == 0) {
            r->scales[(word)(block / across) * r->scales_pitch + block % across] = scale;
        }
        for (word i = threadIdx.x; i < height * width; i += blockDim.x) {
            word row = top + i / width;
            word column = left + i % width;

            ((unsigned char *)r->to)[row * r->to_pitch + column] =
                e4m3_of(__fmul_rn(element_of(r, row, column), inverse));
        }
    }
}
