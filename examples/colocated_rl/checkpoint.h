/* checkpoint.h - what a trainer leaves on disk: its own state, and a Hugging Face model. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_CHECKPOINT_H
#define COLOCATED_RL_CHECKPOINT_H

#include "examples/colocated_rl/settings.h"
#include "examples/colocated_rl/shard.h"

/* Besides the arrays, what a rank must know to go on. */
struct checkpoint_counters {
    int64_t supervised;  /* the kind of the last step */
    int64_t adam_steps;  /* since the moments were forgotten */
    int64_t rank;        /* checked when it is read */
    int64_t ranks_count; /* checked */
    int64_t elements;    /* checked: parameters of the model */
};

/* One array of a rank's state, of shard->count floats. */
struct checkpoint_array {
    const char *name;
    float *values;
};

/* `directory`/rank-N.safetensors. */
tdm_status checkpoint_write(const char *directory, const struct checkpoint_counters *counters,
                            const struct checkpoint_array *arrays, uint32_t arrays_count,
                            size_t count);
/* Fills the arrays and counters->supervised and adam_steps; the others must equal the file's.
 * TDM_E_STATE tells what differs. */
tdm_status checkpoint_read(const char *directory, struct checkpoint_counters *counters,
                           const struct checkpoint_array *arrays, uint32_t arrays_count,
                           size_t count);

/* `directory`/hf: weights[model->elements], config and tokenizer, as transformers loads them.
 */
tdm_status checkpoint_write_model(const char *directory, const struct settings *settings,
                                  const struct model *model, const float *weights);

#endif
