/* kernels_api.h - the arguments of the CUDA kernels, for C and for CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_KERNELS_API_H
#define TDM_COLOCATE_DEVICE_CUDA_KERNELS_API_H

/* A copy operation (colocate/transfer/copy_op.h) as a kernel executes it. Rows and columns count
 * source elements, pitches are in bytes. A unit is the number of bytes per access: 1, 2, 4, 8 or
 * 16, of which addresses, pitches and row sizes are multiples. */
struct tdm__cuda_copy_op {
    const unsigned char *from; /* Source; NULL to write zeros. */
    /* Destination; NULL to compute the checksum only. */
    unsigned char *to;
    /* TDM__CUDA_CHECKSUM_LANES lanes of the checksum, to which the kernel adds. */
    unsigned long long *lanes;
    unsigned long long rows;       /* Rows of the rectangle. */
    unsigned long long columns;    /* Columns of the rectangle. */
    unsigned long long from_pitch; /* Bytes from row to row in the source. */
    unsigned long long to_pitch;   /* Bytes from row to row in the destination. */
    /* Given scales for the quantization; NULL to compute them per tile. */
    const float *scales;
    unsigned scales_pitch;    /* Elements from row to row in `scales`. */
    unsigned char from_bytes; /* Bytes of a source element. */
    unsigned char from_unit;  /* Bytes per read access. */
    unsigned char to_unit;    /* Bytes per write access. */
    unsigned char reserved;   /* 0. */
};

/* Lanes of a checksum. */
enum { TDM__CUDA_BATCH_MAX = 56, TDM__CUDA_CHECKSUM_LANES = 8 };

/* Number of threads of a block. It is a power of two and a multiple of the four pairs of a
 * stripe. */
enum { TDM__CUDA_THREADS_PER_BLOCK = 256 };

/* The copy operations of one launch, passed by value as the kernel's argument. */
struct tdm__cuda_batch {
    /* Operations; the row of the grid selects one. */
    struct tdm__cuda_copy_op copy_ops[TDM__CUDA_BATCH_MAX];
};

#endif
