/* grpo.c - group relative policy optimisation: advantages, and the loss of one token. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/grpo.h"

#include <math.h>

/* Is added to the deviation, so that equal rewards give advantages of 0. */
static const double deviation_floor = 1e-4;

/* Computes the advantages of token `at` for all answers and returns how many answers have that
 * token. */
static uint32_t advantages_at(const struct tdm_sample *samples, uint32_t count, uint32_t at,
                              float *advantages, size_t stride)
{
    double sum = 0.0;
    double squares = 0.0;
    uint32_t present = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (at < samples[i].tokens_count) {
            sum += (double)samples[i].token_rewards[at];
            present++;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (at < samples[i].tokens_count) {
            double difference = (double)samples[i].token_rewards[at] - sum / present;

            squares += difference * difference;
            advantages[i * stride + at] = (float)difference;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (at < samples[i].tokens_count) {
            advantages[i * stride + at] /= (float)(sqrt(squares / present) + deviation_floor);
        }
    }
    return present;
}

void grpo_advantages(const struct tdm_sample *samples, uint32_t count, float *advantages,
                     size_t stride)
{
    uint32_t at = 0;

    while (advantages_at(samples, count, at, advantages, stride) > 0) {
        at++;
    }
}

double grpo_divergence(double logprob, double sampled)
{
    return expm1(logprob - sampled) - (logprob - sampled);
}

struct grpo_loss grpo_token_loss(const struct grpo_settings *settings,
                                 const struct grpo_token *token)
{
    double ratio = exp(token->logprob - token->sampled);
    double gain = ratio * token->advantage;
    double bounded = fmin(fmax(ratio, 1.0 - settings->eps_clip), 1.0 + settings->eps_clip_high) *
                     token->advantage;
    struct grpo_loss result = {.loss = -gain, .gradient = -gain};

    if (bounded < gain) {
        result = (struct grpo_loss){.loss = -bounded, .clipped = 1};
    }
    if (settings->kl_loss_coef != 0.0) {
        result.kl = grpo_divergence(token->reference, token->logprob);
        result.loss += settings->kl_loss_coef * result.kl;
        result.gradient -= settings->kl_loss_coef * expm1(token->reference - token->logprob);
    }
    return result;
}
