/* grpo.h - group relative policy optimisation: advantages, and the loss of one token. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_GRPO_H
#define COLOCATED_RL_GRPO_H

#include <tandem/job.h>

/* For the answers to one prompt, advantages[i × stride + t]: the reward of token t of answer i
 * less the mean over the answers that have a token t, in units of their deviation. */
void grpo_advantages(const struct tdm_sample *samples, uint32_t count, float *advantages,
                     size_t stride);

struct grpo_settings {
    double eps_clip;      /* how far the ratio of new to old probability counts, downwards … */
    double eps_clip_high; /* … and upwards */
    double kl_loss_coef;  /* how strongly the start holds back */
};

/* One sampled token. */
struct grpo_token {
    double logprob;   /* now */
    double sampled;   /* when it was sampled */
    double reference; /* of the start; read if kl_loss_coef is not 0 */
    double advantage;
};

struct grpo_loss {
    double loss;
    double gradient; /* of the loss for `logprob` */
    double kl;       /* to the start */
    int clipped;
};

struct grpo_loss grpo_token_loss(const struct grpo_settings *settings,
                                 const struct grpo_token *token);

/* The estimate exp(d) - 1 - d of a divergence, never negative, from the difference d of two
 * log-probabilities of a token that the second distribution sampled. */
double grpo_divergence(double logprob, double sampled);

#endif
