/* cblas.h - stands for OpenBLAS where only a compiler is: the one product, plainly. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_GPU_BARE_CBLAS_H
#define TDM_TESTS_GPU_BARE_CBLAS_H

#include <stddef.h>

enum CBLAS_ORDER { CblasRowMajor = 101 };
enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans = 112 };

static inline void openblas_set_num_threads(int count)
{
    (void)count;
}

static inline void cblas_sgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE a_form,
                               enum CBLAS_TRANSPOSE b_form, int rows, int columns, int inner,
                               float alpha, const float *a, int a_pitch, const float *b,
                               int b_pitch, float beta, float *c, int c_pitch)
{
    size_t a_row = a_form == CblasNoTrans ? (size_t)a_pitch : 1;
    size_t a_step = a_form == CblasNoTrans ? 1 : (size_t)a_pitch;
    size_t b_step = b_form == CblasNoTrans ? (size_t)b_pitch : 1;
    size_t b_column = b_form == CblasNoTrans ? 1 : (size_t)b_pitch;

    (void)order;
    for (size_t i = 0; i < (size_t)rows; i++) {
        for (size_t j = 0; j < (size_t)columns; j++) {
            float *to = c + i * (size_t)c_pitch + j;
            float sum = 0.0F;

            for (size_t k = 0; k < (size_t)inner; k++) {
                sum += a[i * a_row + k * a_step] * b[k * b_step + j * b_column];
            }
            *to = alpha * sum + (beta != 0.0F ? beta * *to : 0.0F);
        }
    }
}

#endif
