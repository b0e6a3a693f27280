/* pack.h - lays out the samples of a batch as rows of a forward pass. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_PACK_H
#define COLOCATED_RL_PACK_H

#include "examples/colocated_rl/network.h"
#include "examples/colocated_rl/settings.h"

#include <tandem/job.h>

/* The rows of one forward pass in host memory: as many samples as fit, without padding. A prompt is
 * laid out once for adjacent samples of its group. */
struct pack {
    struct row *rows;    /* The rows (owned, rows_max of them); row i is in slot i of the cache. */
    uint32_t rows_count; /* Number of rows in use. */
    uint32_t rows_max;   /* Capacity, from trainer.max_tokens_per_gpu. */
    struct target *targets; /* The tokens to be predicted (owned, targets_max of them). */
    uint32_t targets_count; /* Number of targets in use. */
    uint32_t targets_max;   /* Capacity, in targets. */
    /* One float per target (owned): first its log-probability, then the gradient of the loss for
     * it. */
    float *numbers;
    int32_t *tokens; /* Scratch memory (owned) for the tokens of a prompt and its answer. */
};

/* Allocates the arrays. TDM_E_NOMEM if there is no memory. */
tdm_status pack_init(struct pack *pack, const struct settings *settings);
void pack_fini(struct pack *pack);

/* Replaces the contents by the samples from *next on and sets *next to the first sample that did
 * not fit. TDM_E_INVAL or TDM_E_LIMIT for a sample that does not fit the settings. */
tdm_status pack_fill(struct pack *pack, const struct settings *settings,
                     const struct tdm_batch *batch, uint32_t *next);

/* Counts the tokens to be predicted in the whole batch. TDM_E_INVAL if a sample has no token to
 * learn from. */
tdm_status pack_count_targets(const struct tdm_batch *batch, uint64_t *count_out);

#endif
