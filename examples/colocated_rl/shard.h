/* shard.h - one rank's share of the parameters and of what AdamW remembers about them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_SHARD_H
#define COLOCATED_RL_SHARD_H

#include "examples/colocated_rl/model.h"
#include "examples/colocated_rl/ops.h"
#include "examples/colocated_rl/settings.h"

#include <tandem/collective.h>
#include <tandem/tensor.h>

/* All parameters are one list of floats, cut into equal shares, one a rank; the last is filled
 * up with zeros.  A rank keeps its share, and all of the list only while it computes. */
struct shard {
    const struct model *model;
    tdm_collective_group *group; /* NULL: a single rank */
    uint32_t ranks_count;
    size_t first;             /* of the share in the list */
    size_t count;             /* of every share, filling included */
    struct tdm_slice *slices; /* owned: the parts of tensors in this share */
    uint32_t slices_count;

    struct machine *machine; /* borrowed */
    float *parameters;       /* count, like all below; where the caller placed them */
    float *mean;             /* AdamW's first … */
    float *square;           /* … and second moment */
    float *gradients;
};

tdm_status shard_init(struct shard *shard, const struct model *model, tdm_collective_group *group,
                      uint32_t rank, uint32_t ranks_count);
void shard_fini(struct shard *shard);
/* Tells where the parameters lie, and the slices with them, and on which machine. */
void shard_bind_memory(struct shard *shard, struct machine *machine, float *parameters);

/* Makes this share of random first weights, the same for any number of ranks. */
tdm_status shard_init_random(struct shard *shard, uint64_t seed, double deviation);
/* Takes this share from a Hugging Face checkpoint directory. */
tdm_status shard_read(struct shard *shard, const char *directory);
void shard_reset_moments(struct shard *shard);

/* From a share's place to another's. */
void shard_copy(const struct shard *shard, float *to, const float *from);
/* all[ranks_count × count]: everybody's `share`. */
tdm_status shard_gather(const struct shard *shard, const float *share, float *all);

struct shard_step {
    double lr;
    uint64_t number;  /* of this step since the moments were forgotten: 1, 2, … */
    double grad_norm; /* out: of the whole gradient, before clipping */
};

/* Sums gradients[ranks_count × count] over the ranks and moves this share along. */
tdm_status shard_optimizer_step(struct shard *shard, const struct optimizer_settings *settings,
                                const float *gradients, struct shard_step *step);

#endif
