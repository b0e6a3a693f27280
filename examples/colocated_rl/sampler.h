/* sampler.h - picks the next token. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_SAMPLER_H
#define COLOCATED_RL_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

/* The token at which the distribution's running sum passes `uniform`, 0 <= uniform < 1. */
int32_t sampler_draw(const float *logprobs, size_t count, double uniform);
/* The likeliest token, the first of equals. */
int32_t sampler_best(const float *logprobs, size_t count);

#endif
