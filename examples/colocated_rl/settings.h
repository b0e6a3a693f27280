/* settings.h - the settings of this library in the job file. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_SETTINGS_H
#define COLOCATED_RL_SETTINGS_H

#include "examples/colocated_rl/grpo.h"
#include "examples/colocated_rl/model.h"
#include "examples/colocated_rl/tokenizer.h"

#include <tandem/config.h>

/* Settings of AdamW and of gradient clipping. */
struct optimizer_settings {
    double beta1, beta2, eps;
    double weight_decay; /* Factor of the weight decay for matrices; norms are not decayed. */
    /* Largest norm of the gradient; longer ones are scaled down to it. 0: no limit. */
    double clip_grad;
};

/* The learning rate over the steps of one phase. */
struct schedule {
    double lr;               /* Highest learning rate. */
    double min_lr;           /* Learning rate of the last step. */
    int64_t lr_warmup_iters; /* Number of steps over which the rate rises to `lr`. */
};

/* All settings of this library. It is read once and then constant. */
struct settings {
    /* Device kind of the regions, and so of the machine: "host" or "cuda" (borrowed from the
     * configuration). */
    const char *device;
    struct model_shape shape;
    double initializer_range; /* Standard deviation of random initial weights. */
    /* Folder of a Hugging Face checkpoint to start from (borrowed); NULL: random weights. */
    const char *path;
    struct tokenizer tokenizer;
    uint32_t prompt_max; /* Longest prompt in tokens, TOKEN_ANSWER included. */
    uint32_t answer_max; /* Longest answer in tokens, TOKEN_END included. */
    double temperature;  /* Temperature of sampling. */

    struct schedule schedule;        /* Learning rate of the reinforcement steps. */
    struct schedule warmup_schedule; /* Learning rate of the supervised steps. */
    struct optimizer_settings optimizer;
    struct grpo_settings grpo;
    uint32_t replicas;           /* Number of whole copies of the model among the trainer ranks. */
    uint32_t max_tokens_per_gpu; /* Rows of one forward and backward pass. */
    /* Largest size of a file of the saved model in KiB, unless one tensor is larger. */
    uint32_t max_shard_kib;

    uint32_t max_running_requests; /* Number of sequences that an engine decodes at once. */
    uint32_t max_total_tokens;     /* Slots of an engine's key-value cache. */
};

/* Fills `settings` from the sections model (or the config.json in model.path), rollout, trainer and
 * engine. A missing setting gets the default that README.md lists. Strings are borrowed from
 * `config`, which must outlive the settings. */
tdm_status settings_read(struct settings *settings, const tdm_config *config);

/* Returns the learning rate of step 1 … steps_count. */
double schedule_lr(const struct schedule *schedule, uint32_t step, uint32_t steps_count);

#endif
