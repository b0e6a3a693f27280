/* settings.h - what the job file says to this library. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_SETTINGS_H
#define COLOCATED_RL_SETTINGS_H

#include "examples/colocated_rl/grpo.h"
#include "examples/colocated_rl/model.h"
#include "examples/colocated_rl/tokenizer.h"

#include <tandem/config.h>

struct optimizer_settings {
    double beta1, beta2, eps;
    double weight_decay; /* of matrices; norms are left alone */
    double clip_grad;    /* longest gradient; 0: any */
};

struct schedule {
    double lr;     /* the highest */
    double min_lr; /* reached with the last step */
    int64_t lr_warmup_iters;
};

struct settings {
    const char *device; /* borrowed: where the regions are, and so the machine */
    struct model_shape shape;
    double initializer_range;
    const char *path; /* borrowed: a checkpoint to start from; NULL: random weights */
    struct tokenizer tokenizer;
    uint32_t prompt_max; /* tokens, TOKEN_ANSWER included */
    uint32_t answer_max; /* tokens, TOKEN_END included */
    double temperature;

    struct schedule schedule;        /* of reinforcement */
    struct schedule warmup_schedule; /* of supervised steps */
    struct optimizer_settings optimizer;
    struct grpo_settings grpo;
    uint32_t max_tokens_per_gpu; /* rows of one forward and backward pass */

    uint32_t max_running_requests; /* sequences decoded at once */
    uint32_t max_total_tokens;     /* slots of the cache */
};

/* Fills `settings` from model.* (or the config.json in model.path), rollout.*, trainer.* and
 * engine.*; what is missing has the default that README.md lists.  Strings are borrowed from
 * `config`. */
tdm_status settings_read(struct settings *settings, const tdm_config *config);

/* The learning rate of step 1 … steps_count. */
double schedule_lr(const struct schedule *schedule, uint32_t step, uint32_t steps_count);

#endif
