/* kernels_api.h - what a kernel is told; for both sides, C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_KERNELS_API_H
#define TDM_COLOCATE_DEVICE_CUDA_KERNELS_API_H

/* Pitches are in elements.  unit_bytes: of an element that is copied (1, 2, 4, 8 or 16), or of
 * one that is quantized (2: bfloat16, 4: float32).  Scales are for quantizing alone. */
struct tdm__cuda_rectangle {
    const void *from;
    void *to;
    float *scales;
    unsigned rows;
    unsigned columns;
    unsigned from_pitch;
    unsigned to_pitch;
    unsigned scales_pitch;
    unsigned unit_bytes;
};

/* As many as a kernel's arguments hold (4 KiB). */
enum { TDM__CUDA_BATCH_MAX = 64 };

struct tdm__cuda_batch {
    struct tdm__cuda_rectangle rectangles[TDM__CUDA_BATCH_MAX];
};

#endif
