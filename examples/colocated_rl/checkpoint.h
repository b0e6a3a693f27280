/* checkpoint.h - files that a trainer saves: its own state, and a Hugging Face model. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_CHECKPOINT_H
#define COLOCATED_RL_CHECKPOINT_H

#include "examples/colocated_rl/settings.h"
#include "examples/colocated_rl/shard.h"

/* The counters that are saved with the arrays of a rank. The fields marked as checked must be the
 * same when the file is read. */
struct checkpoint_counters {
    int64_t supervised;  /* 1 if the last step was a supervised one, else 0. */
    int64_t adam_steps;  /* Number of steps since the moments were reset. */
    int64_t rank;        /* Rank that wrote the file (checked). */
    int64_t ranks_count; /* Number of ranks (checked). */
    int64_t elements;    /* Number of parameters of the model (checked). */
};

/* One array of a rank's state, of shard->count floats in host memory. */
struct checkpoint_array {
    const char *name; /* Name of the tensor in the file. */
    float *values;    /* The floats (borrowed); checkpoint_read() fills them. */
};

/* Writes the counters and arrays of `count` floats each to `directory`/rank-N.safetensors. */
tdm_status checkpoint_write(const char *directory, const struct checkpoint_counters *counters,
                            const struct checkpoint_array *arrays, uint32_t arrays_count,
                            size_t count);
/* Reads the file that checkpoint_write() wrote. Fills the arrays, counters->supervised and
 * counters->adam_steps. The other counters must equal the file's; otherwise TDM_E_STATE names
 * both. */
tdm_status checkpoint_read(const char *directory, struct checkpoint_counters *counters,
                           const struct checkpoint_array *arrays, uint32_t arrays_count,
                           size_t count);

/* Writes weights[model->elements], the configuration and the tokenizer to `directory`/hf, in the
 * format that transformers loads. */
tdm_status checkpoint_write_model(const char *directory, const struct settings *settings,
                                  const struct model *model, const float *weights);

#endif
