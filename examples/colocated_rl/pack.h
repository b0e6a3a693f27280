/* pack.h - lays the samples of a batch out as rows of a forward pass. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_PACK_H
#define COLOCATED_RL_PACK_H

#include "examples/colocated_rl/network.h"
#include "examples/colocated_rl/settings.h"

#include <tandem/job.h>

/* As many samples as fit, without padding; a prompt is laid out once for the samples of its
 * group that follow each other. */
struct pack {
    struct row *rows; /* owned; row i is in slot i */
    uint32_t rows_count;
    uint32_t rows_max;
    struct target *targets; /* owned */
    uint32_t targets_count;
    uint32_t targets_max;
    float *numbers;  /* owned: room for one a target */
    int32_t *tokens; /* owned: a prompt, then an answer, while they are encoded */
};

tdm_status pack_init(struct pack *pack, const struct settings *settings);
void pack_fini(struct pack *pack);

/* Lays out samples from *next on, and moves *next to the first that did not fit.  TDM_E_INVAL
 * or TDM_E_LIMIT for a sample that does not fit the settings. */
tdm_status pack_fill(struct pack *pack, const struct settings *settings,
                     const struct tdm_batch *batch, uint32_t *next);

/* Tokens to be predicted in all of the batch; TDM_E_INVAL if one has none to learn from. */
tdm_status pack_count_targets(const struct tdm_batch *batch, uint64_t *count_out);

#endif
