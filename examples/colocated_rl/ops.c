/* ops.c - the arithmetic of a transformer on float arrays, forwards and backwards. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/ops.h"

#include <cblas.h>
#include <math.h>

void ops_start(void)
{
    openblas_set_num_threads(1);
}

void linear(float *y, const float *x, const float *w, size_t rows, size_t inputs,
            size_t outputs)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)outputs, (int)inputs,
                1.0F, x, (int)inputs, w, (int)inputs, 0.0F, y, (int)outputs);
}

void linear_backward_input(float *dx, const float *dy, const float *w, size_t rows,
                           size_t inputs, size_t outputs)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)inputs, (int)outputs,
                1.0F, dy, (int)outputs, w, (int)inputs, 0.0F, dx, (int)inputs);
}

void linear_backward_weight(float *dw, const float *dy, const float *x, size_t rows,
                            size_t inputs, size_t outputs)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)outputs, (int)inputs, (int)rows,
                1.0F, dy, (int)outputs, x, (int)inputs, 1.0F, dw, (int)inputs);
}

float dot(const float *a, const float *b, size_t count)
{
    float sum = 0.0F;

#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

void add(float *y, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] += x[i];
    }
}

void add_scaled(float *y, float scale, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] += scale * x[i];
    }
}

static float inverse_rms(const struct rms_norm *norm, const float *x)
{
    return 1.0F / sqrtf(dot(x, x, norm->width) / (float)norm->width + norm->epsilon);
}

void rms_norm(const struct rms_norm *norm, float *y, const float *x)
{
    const float *weights = norm->weights;
    float inverse = inverse_rms(norm, x);

    for (size_t i = 0; i < norm->width; i++) {
        y[i] = weights[i] * (x[i] * inverse);
    }
}

void rms_norm_backward(const struct rms_norm *norm, float *dx, float *dw, const float *dy,
                       const float *x)
{
    const float *weights = norm->weights;
    float inverse = inverse_rms(norm, x);
    float along = 0.0F; /* what of the gradient points along x, which the norm takes away */

#pragma omp simd reduction(+ : along)
    for (size_t i = 0; i < norm->width; i++) {
        along += weights[i] * dy[i] * x[i];
    }
    along *= inverse * inverse / (float)norm->width;
    for (size_t i = 0; i < norm->width; i++) {
        float gradient = dy[i];

        dw[i] += gradient * x[i] * inverse;
        dx[i] = inverse * (weights[i] * gradient - along * x[i]);
    }
}

void rotate(float *head, const float *cosine, const float *sine, size_t width)
{
    size_t half = width / 2;

    for (size_t i = 0; i < half; i++) {
        float low = head[i];
        float high = head[i + half];

        head[i] = low * cosine[i] - high * sine[i];
        head[i + half] = high * cosine[i] + low * sine[i];
    }
}

void rotate_back(float *head, const float *cosine, const float *sine, size_t width)
{
    size_t half = width / 2;

    for (size_t i = 0; i < half; i++) {
        float low = head[i];
        float high = head[i + half];

        head[i] = low * cosine[i] + high * sine[i];
        head[i + half] = high * cosine[i] - low * sine[i];
    }
}

static float sigmoid(float x)
{
    return 1.0F / (1.0F + expf(-x));
}

void swiglu(float *y, const float *gate, const float *up, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        y[i] = gate[i] * sigmoid(gate[i]) * up[i];
    }
}

void swiglu_backward(float *dgate, float *dup, const float *dy, const float *gate,
                     const float *up, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        float open = sigmoid(gate[i]);

        dgate[i] = dy[i] * up[i] * open * (1.0F + gate[i] * (1.0F - open));
        dup[i] = dy[i] * gate[i] * open;
    }
}

void log_softmax(float *x, size_t count, float scale)
{
    float largest = x[0];
    double sum = 0.0;
    float shift;

    for (size_t i = 1; i < count; i++) {
        largest = x[i] > largest ? x[i] : largest;
    }
    for (size_t i = 0; i < count; i++) {
        sum += (double)expf(scale * (x[i] - largest));
    }
    shift = (float)log(sum);
    for (size_t i = 0; i < count; i++) {
        x[i] = scale * (x[i] - largest) - shift;
    }
}
