/* rollout.h - engines answer prompts, answers get rewards. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ROLLOUT_H
#define TDM_COLOCATE_JOB_ROLLOUT_H

#include "colocate/job/dataset.h"
#include "colocate/job/worker_group.h"

#include <tandem/job.h>

/* Answers to a list of rows, each asked `samples_per_row` times, row after row. */
struct tdm__rollout {
    uint32_t samples_count;
    uint32_t tokens_max;
    struct tdm_sample *samples; /* owned, like the rest; texts of the data set are borrowed */
    int32_t *tokens;
    float *logprobs;
    float *token_rewards;
    double reward; /* mean over the samples */
    double exact;  /* share of the samples with reward 1 */
};

struct tdm__rollout_options {
    const struct tdm__dataset *dataset;
    const uint32_t *rows; /* indices into it */
    uint32_t rows_count;
    uint32_t samples_per_row;
    struct tdm_sampling sampling;
    uint64_t seed; /* of this rollout: with row and sample it decides each answer alone */
    tdm_reward *reward;
    const char *library; /* Name of the job library, for the report of a crash in `reward`. */
    void (*on_requests_sent)(void *arg); /* once all are asked, while they answer; NULL: nothing */
    void *on_requests_sent_arg;
};

/* Every engine that serves answers its share of the rows, all at once; nothing of the answers
 * depends on how many there are. */
tdm_status tdm__rollout_run(struct tdm__worker_group *workers,
                            const struct tdm__rollout_options *options,
                            struct tdm__rollout *rollout_out);
void tdm__rollout_fini(struct tdm__rollout *rollout);

/* A test's switch: each sample gets the rewards of another one, drawn by `seed`. */
void tdm__rollout_shuffle_rewards(struct tdm__rollout *rollout, uint64_t seed);

#endif
