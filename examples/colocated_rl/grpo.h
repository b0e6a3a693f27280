/* grpo.h - group relative policy optimisation: advantages, and the loss of one token. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_GRPO_H
#define COLOCATED_RL_GRPO_H

#include <tandem/job.h>

/* Computes advantages[i × stride + t] for the answers to one prompt: the reward of token t of
 * answer i minus the mean of the rewards at t over the answers that have a token t, divided by the
 * standard deviation of these rewards. */
void grpo_advantages(const struct tdm_sample *samples, uint32_t count, float *advantages,
                     size_t stride);

/* Settings of the loss, from the job file. */
struct grpo_settings {
    /* How far the ratio of new to old probability may fall below 1 before it is clipped. */
    double eps_clip;
    double eps_clip_high; /* How far the ratio may rise above 1 before it is clipped. */
    /* Weight of the KL divergence from the reference weights in the loss; 0: none. */
    double kl_loss_coef;
};

/* One sampled token. */
struct grpo_token {
    double logprob; /* Log-probability of the token by the present weights. */
    double sampled; /* Log-probability of the token when the engine sampled it. */
    /* Log-probability by the reference weights; read only if kl_loss_coef is not 0. */
    double reference;
    double advantage; /* Advantage of the token, from grpo_advantages(). */
};

/* The result of grpo_token_loss(). */
struct grpo_loss {
    double loss;     /* Loss of the token. */
    double gradient; /* Derivative of the loss with respect to grpo_token.logprob. */
    double kl;       /* Estimated KL divergence from the reference weights. */
    int clipped;     /* 1 if the ratio of the probabilities was clipped. */
};

/* Returns the clipped policy loss of one token, with the KL term. */
struct grpo_loss grpo_token_loss(const struct grpo_settings *settings,
                                 const struct grpo_token *token);

/* Returns exp(d) - 1 - d for d = logprob - sampled, an estimate of a KL divergence that is never
 * negative. `sampled` is the log-probability of the token by the distribution that sampled it,
 * `logprob` that by the other one. */
double grpo_divergence(double logprob, double sampled);

#endif
