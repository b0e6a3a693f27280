/* kernels_api.h - what a kernel is told; for both sides, C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_KERNELS_API_H
#define TDM_COLOCATE_DEVICE_CUDA_KERNELS_API_H

/* A part (colocate/transfer/copy_op.h) as a kernel runs it.  Rows and columns are of elements that
 * are read, pitches in bytes.  A unit is what may be read or written at once: 1, 2, 4, 8 or 16
 * bytes, of which addresses, pitches and rows are multiples. */
struct tdm__cuda_copy_op {
    const unsigned char *from; /* NULL: zeros */
    unsigned char *to;         /* NULL: only the sum is taken */
    unsigned long long *lanes; /* of its sum, TDM__CUDA_CHECKSUM_LANES: added to */
    unsigned long long rows;
    unsigned long long columns;
    unsigned long long from_pitch;
    unsigned long long to_pitch;
    const float *scales; /* to quantize by; NULL: each tile's own */
    unsigned scales_pitch;
    unsigned char from_bytes; /* of an element */
    unsigned char from_unit;
    unsigned char to_unit;
    unsigned char reserved;
};

/* As many as a kernel's arguments hold (4 KiB). */
enum { TDM__CUDA_BATCH_MAX = 56, TDM__CUDA_CHECKSUM_LANES = 8 };

/* Number of threads of a block: a power of two, and a multiple of the four pairs of a stripe.
 */
enum { TDM__CUDA_THREADS_PER_BLOCK = 256 };

struct tdm__cuda_batch {
    struct tdm__cuda_copy_op copy_ops[TDM__CUDA_BATCH_MAX];
};

#endif
