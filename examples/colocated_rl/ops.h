/* ops.h - the arithmetic of a transformer on float arrays, forwards and backwards. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_OPS_H
#define COLOCATED_RL_OPS_H

#include <stddef.h>

/* Matrices are row-major and contiguous.  A backward function whose output is a gradient of
 * weights adds to it; one whose output is a gradient of values overwrites it. */

/* One thread for every product: ranks share the cores already, and the order of sums must not
 * depend on how many there are. */
void ops_start(void);

/* y[rows × outputs] = x[rows × inputs] · wᵀ, with w[outputs × inputs] as Hugging Face has it.
 */
void linear(float *y, const float *x, const float *w, size_t rows, size_t inputs,
            size_t outputs);
void linear_backward_input(float *dx, const float *dy, const float *w, size_t rows,
                           size_t inputs, size_t outputs);
void linear_backward_weight(float *dw, const float *dy, const float *x, size_t rows,
                            size_t inputs, size_t outputs);

float dot(const float *a, const float *b, size_t count);
void add(float *y, const float *x, size_t count);                     /* y += x */
void add_scaled(float *y, float scale, const float *x, size_t count); /* y += scale · x */

/* Over one vector of `width`: y = weights · x / sqrt(mean(x²) + epsilon). */
struct rms_norm {
    const float *weights;
    size_t width;
    float epsilon;
};
void rms_norm(const struct rms_norm *norm, float *y, const float *x);
/* dx may be dy. */
void rms_norm_backward(const struct rms_norm *norm, float *dx, float *dw, const float *dy,
                       const float *x);

/* Rotates one head in place: element i with element i + width/2, by the angle whose cosine and
 * sine are cosine[i] and sine[i].  The inverse rotation is its gradient. */
void rotate(float *head, const float *cosine, const float *sine, size_t width);
void rotate_back(float *head, const float *cosine, const float *sine, size_t width);

/* y = silu(gate) · up, over one vector. */
void swiglu(float *y, const float *gate, const float *up, size_t width);
void swiglu_backward(float *dgate, float *dup, const float *dy, const float *gate,
                     const float *up, size_t width);

/* x = log(softmax(scale · x)) in place. */
void log_softmax(float *x, size_t count, float scale);

#endif
