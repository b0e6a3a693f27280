/* cublas.c - a fake library for cuBLAS: the few products that the example asks for, in C. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

/* Works on the fake library of the CUDA driver (cuda.h), which it finds by TANDEM_CUDA_LIBRARY, in
 * the order of the stream it was given.  Sums are taken one after the other, in float.
 *
 *   FAKE_CUBLAS_FAIL  "3": the third product or norm fails */
enum {
    CUBLAS_OK = 0,
    CUBLAS_NOT_INITIALIZED = 1,
    CUBLAS_INVALID_VALUE = 7,
    CUBLAS_EXECUTION_FAILED = 13,
    NO_TRANSPOSE = 0,
    TRANSPOSE = 1
};

struct handle {
    void *stream;
};

static struct {
    int (*submit)(void *stream, fake_work_fn *work, const void *argument, size_t bytes);
    int (*synchronize)(void *stream);
} cuda;

static void find_cuda(void)
{
    const char *path = getenv("TANDEM_CUDA_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

    if (library != NULL) {
        *(void **)&cuda.submit = dlsym(library, "fake_submit");
        *(void **)&cuda.synchronize = dlsym(library, "cuStreamSynchronize");
    }
}

/* Of any thread. */
static int has_cuda(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, find_cuda);
    return cuda.submit != NULL && cuda.synchronize != NULL;
}

static int told_to_fail(void)
{
    static unsigned long calls;
    const char *nth = getenv("FAKE_CUBLAS_FAIL");

    return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) ==
           (nth != NULL ? strtoul(nth, NULL, 10) : 0);
}

int cublasCreate_v2(void **handle);
int cublasDestroy_v2(void *handle);
int cublasSetStream_v2(void *handle, void *stream);
int cublasSetMathMode(void *handle, int mode);
int cublasSnrm2_v2(void *handle, int count, const float *x, int step, float *result);
int cublasSgemm_v2(void *handle, int a_form, int b_form, int rows, int columns, int inner,
                   const float *alpha, const float *a, int a_pitch, const float *b, int b_pitch,
                   const float *beta, float *c, int c_pitch);

int cublasCreate_v2(void **handle)
{
    *handle = has_cuda() ? calloc(1, sizeof(struct handle)) : NULL;
    return *handle != NULL ? CUBLAS_OK : CUBLAS_NOT_INITIALIZED;
}

int cublasDestroy_v2(void *handle)
{
    free(handle);
    return CUBLAS_OK;
}

int cublasSetStream_v2(void *handle, void *stream)
{
    ((struct handle *)handle)->stream = stream;
    return CUBLAS_OK;
}

int cublasSetMathMode(void *handle, int mode)
{
    (void)handle;
    return mode >= 0 ? CUBLAS_OK : CUBLAS_INVALID_VALUE;
}

/* ---- the norm --------------------------------------------------------------------------- */

struct norm {
    const float *x;
    float *result; /* the host's */
    size_t count;
};

static void run_norm(void *argument)
{
    const struct norm *norm = argument;
    double squares = 0.0;

    for (size_t i = 0; i < norm->count; i++) {
        squares += (double)norm->x[i] * (double)norm->x[i];
    }
    *norm->result = (float)sqrt(squares);
}

int cublasSnrm2_v2(void *handle, int count, const float *x, int step, float *result)
{
    const struct norm norm = {x, result, (size_t)count};
    void *stream = ((struct handle *)handle)->stream;

    if (count < 0 || step != 1) {
        return CUBLAS_INVALID_VALUE;
    }
    if (told_to_fail() || cuda.submit(stream, run_norm, &norm, sizeof(norm)) != CU_SUCCESS ||
        cuda.synchronize(stream) != CU_SUCCESS) {
        return CUBLAS_EXECUTION_FAILED;
    }
    return CUBLAS_OK;
}

/* ---- the product ------------------------------------------------------------------------ */

/* Element (i, j) of a matrix lies at i × down + j × across. */
struct matrix {
    const float *values;
    size_t down;
    size_t across;
};

struct product {
    struct matrix a, b;
    float *c;
    size_t c_pitch;
    size_t rows, columns, inner;
    float alpha, beta;
};

static void run_product(void *argument)
{
    const struct product *product = argument;

    for (size_t column = 0; column < product->columns; column++) {
        for (size_t row = 0; row < product->rows; row++) {
            const float *a = product->a.values + row * product->a.down;
            const float *b = product->b.values + column * product->b.across;
            float *c = product->c + column * product->c_pitch + row;
            float sum = 0.0F;

            for (size_t k = 0; k < product->inner; k++) {
                sum += a[k * product->a.across] * b[k * product->b.down];
            }
            *c = product->alpha * sum + (product->beta != 0.0F ? product->beta * *c : 0.0F);
        }
    }
}

static struct matrix matrix_of(const float *values, int form, int pitch)
{
    return form == TRANSPOSE ? (struct matrix){values, (size_t)pitch, 1}
                             : (struct matrix){values, 1, (size_t)pitch};
}

int cublasSgemm_v2(void *handle, int a_form, int b_form, int rows, int columns, int inner,
                   const float *alpha, const float *a, int a_pitch, const float *b, int b_pitch,
                   const float *beta, float *c, int c_pitch)
{
    const struct product product = {
        .a = matrix_of(a, a_form, a_pitch),
        .b = matrix_of(b, b_form, b_pitch),
        .c = c,
        .c_pitch = (size_t)c_pitch,
        .rows = (size_t)rows,
        .columns = (size_t)columns,
        .inner = (size_t)inner,
        .alpha = *alpha,
        .beta = *beta,
    };

    if (rows < 0 || columns < 0 || inner < 0 || c_pitch < rows ||
        a_pitch < (a_form == NO_TRANSPOSE ? rows : inner) ||
        b_pitch < (b_form == NO_TRANSPOSE ? inner : columns)) {
        return CUBLAS_INVALID_VALUE;
    }
    return told_to_fail() || cuda.submit(((struct handle *)handle)->stream, run_product, &product,
                                         sizeof(product)) != CU_SUCCESS
               ? CUBLAS_EXECUTION_FAILED
               : CUBLAS_OK;
}
