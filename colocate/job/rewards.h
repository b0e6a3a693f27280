/* rewards.h - rewards that an actor computes, as the process that runs the job sees it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_REWARDS_H
#define TDM_COLOCATE_JOB_REWARDS_H

#include "colocate/job/worker_group.h"

#include <tandem/job.h>

/* The actor of a job that computes rewards with the functions of struct tdm_reward_ops. The
 * controller owns it and uses it on one thread. */
struct tdm__rewards {
    /* Owned handle of the actor; NULL if the library has a reward function instead. */
    tdm_actor *actor;
    /* Borrowed files of the job for other nodes, set before the start; NULL if there are none. */
    const struct tdm__job_contents *contents;
};

/* The answers of one rollout and where their rewards go. Everything is borrowed. */
struct tdm__rewards_batch {
    /* Array of samples: prompt and answer are read, the reward is written. */
    struct tdm_sample *samples;
    /* Array with the engine's answer of each sample. */
    const struct tdm_completion *completions;
    /* Rewards of the tokens, `tokens_max` for each sample; all 0 before. */
    float *token_rewards;
    /* Distance of two samples in `token_rewards`. */
    uint32_t tokens_max;
    /* Number of samples. */
    uint32_t count;
};

/* Creates the actor and blocks until it is constructed, at most job.start_timeout_ms. If the actor
 * of an earlier job still has the name, waits at most `names_ms` milliseconds for its end;
 * TDM_E_EXISTS afterwards. On failure there is no actor. */
tdm_status tdm__rewards_start(struct tdm__rewards *rewards, tdm_runtime *runtime,
                              const struct tdm__job_spec *spec, int64_t names_ms);
/* Kills the actor, so that its name is free, and releases the handle. Without an actor it does
 * nothing. */
void tdm__rewards_stop(struct tdm__rewards *rewards);

/* Lets the actor compute the rewards of a batch. Blocks at most rollout.rewards_timeout_ms. A
 * reward that failed is 0. TDM_E_METHOD names the first failure if there are more than
 * rollout.reward_failures_max; other failures are those of tdm__worker_group_await(). */
tdm_status tdm__rewards_score(const struct tdm__rewards *rewards, struct tdm__worker_group *workers,
                              const struct tdm__rewards_batch *batch);

#endif
