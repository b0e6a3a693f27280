/* rollout.h - lets the engines complete prompts and computes the rewards. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ROLLOUT_H
#define TDM_COLOCATE_JOB_ROLLOUT_H

#include "colocate/job/dataset.h"
#include "colocate/job/rewards.h"
#include "colocate/job/worker_group.h"

#include <tandem/job.h>

/* The samples of one rollout: each row was completed `samples_per_row` times, and the samples of
 * a row are adjacent. The caller owns it and frees it with tdm__rollout_fini(). */
struct tdm__rollout {
    /* Number of samples. */
    uint32_t samples_count;
    /* Capacity of each sample's arrays, in tokens. */
    uint32_t tokens_max;
    /* Owned array of samples; texts are borrowed from the data set, arrays from the fields
     * below. NULL if there is no rollout. */
    struct tdm_sample *samples;
    /* Owned array with the number of the engine that made each sample. */
    uint32_t *engines;
    /* Owned token numbers of all samples, `tokens_max` for each. */
    int32_t *tokens;
    /* Owned log-probabilities of these tokens. */
    float *logprobs;
    /* Owned rewards of the single tokens, which the reward function may fill. */
    float *token_rewards;
    /* Mean reward of all samples. */
    double reward;
    /* Share of the samples whose reward is 1. */
    double exact;
};

/* What a rollout asks for. The caller owns it during tdm__rollout_run(). */
struct tdm__rollout_options {
    /* Borrowed rows that the prompts come from. */
    const struct tdm__dataset *dataset;
    /* Borrowed indices of the rows to complete. */
    const uint32_t *rows;
    /* Number of these rows. */
    uint32_t rows_count;
    /* Number of completions of each row. */
    uint32_t samples_per_row;
    /* Temperature and token limit. */
    struct tdm_sampling sampling;
    /* Seed of this rollout. Seed, row and sample number alone determine each completion. */
    uint64_t seed;
    /* Borrowed actor that computes rewards; NULL if `reward` does. */
    const struct tdm__rewards *rewards;
    /* Reward function of the job library; called in this process. */
    tdm_reward *reward;
    /* Name of the job library, for the report of a crash in `reward`. */
    const char *library;
    /* Called once all requests are sent, while the engines generate; NULL to call nothing. */
    void (*on_requests_sent)(void *arg);
    /* First argument of `on_requests_sent`. */
    void *on_requests_sent_arg;
};

/* Divides the rows over all serving engines, waits for their completions and computes the
 * rewards. The samples do not depend on the number of engines. The result is filled only on
 * TDM_OK. */
tdm_status tdm__rollout_run(struct tdm__worker_group *workers,
                            const struct tdm__rollout_options *options,
                            struct tdm__rollout *rollout_out);
/* Frees the samples. A zeroed rollout is allowed. */
void tdm__rollout_fini(struct tdm__rollout *rollout);

/* Gives each sample the rewards of another one, chosen by `seed`. A control experiment of tests:
 * such rewards must not improve the model. */
void tdm__rollout_shuffle_rewards(struct tdm__rollout *rollout, uint64_t seed);

#endif
