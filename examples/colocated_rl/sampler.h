/* sampler.h - picks the next token. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_SAMPLER_H
#define COLOCATED_RL_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

/* Returns the token at which the cumulative probability passes `uniform`, 0 <= uniform < 1. */
int32_t sampler_draw(const float *logprobs, size_t count, double uniform);
/* Returns the token with the highest log-probability, the first one if several are equal. */
int32_t sampler_best(const float *logprobs, size_t count);

#endif
