/* sampler.c - picks the next token. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/sampler.h"

#include <math.h>

int32_t sampler_draw(const float *logprobs, size_t count, double uniform)
{
    double sum = 0.0;
    /* Last token with a probability above 0; the result if rounding leaves the sum below
     * `uniform`. */
    size_t last = 0;

    for (size_t token = 0; token < count; token++) {
        double probability = exp((double)logprobs[token]);

        sum += probability;
        if (uniform < sum) {
            return (int32_t)token;
        }
        last = probability > 0.0 ? token : last;
    }
    return (int32_t)last;
}

int32_t sampler_best(const float *logprobs, size_t count)
{
    size_t best = 0;

    for (size_t token = 1; token < count; token++) {
        best = logprobs[token] > logprobs[best] ? token : best;
    }
    return (int32_t)best;
}
