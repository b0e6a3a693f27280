/* shard.h - one rank's share of the parameters and of the moments of AdamW. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_SHARD_H
#define COLOCATED_RL_SHARD_H

#include "examples/colocated_rl/model.h"
#include "examples/colocated_rl/ops.h"
#include "examples/colocated_rl/settings.h"

#include <tandem/collective.h>
#include <tandem/tensor.h>

/* All parameters form one array of floats, which is cut into one equal share per rank of a replica.
 * The last share is padded with zeros. Ranks of the same number of other replicas have the same
 * share. A rank keeps its share, and holds the complete array only during a
 * step. */
struct shard {
    const struct model *model; /* The whole model (borrowed). */
    /* The group of the replica's ranks (borrowed); NULL if there is one rank only. */
    tdm_collective_group *group;
    /* The group of the ranks of all replicas (borrowed); NULL if there is one replica only. */
    tdm_collective_group *all_replicas;
    uint32_t ranks_count;     /* Number of ranks of the replica. */
    size_t first;             /* Index of the share's first parameter in the complete array. */
    size_t count;             /* Floats of every share, padding included. */
    struct tdm_slice *slices; /* The parts of tensors that lie in this share (owned). */
    uint32_t slices_count;

    struct machine *machine; /* The machine that computes (borrowed). */
    /* The parameters, `count` floats like the three arrays below. The caller allocates all four. */
    float *parameters;
    float *mean;      /* First moment of AdamW. */
    float *square;    /* Second moment of AdamW. */
    float *gradients; /* Gradients of this share, summed over the ranks. */
};

/* Computes the bounds of the share and its slices. */
tdm_status shard_init(struct shard *shard, const struct model *model, tdm_collective_group *group,
                      uint32_t rank, uint32_t ranks_count);
void shard_fini(struct shard *shard);
/* Sets the machine and the memory of the parameters, also in the slices. */
void shard_bind_memory(struct shard *shard, struct machine *machine, float *parameters);

/* Sets the share to random initial weights, which are the same for any number of ranks. */
tdm_status shard_init_random(struct shard *shard, uint64_t seed, double deviation);
/* Reads the share from a Hugging Face checkpoint directory. */
tdm_status shard_read(struct shard *shard, const char *directory);
/* Sets both moments of AdamW to 0. */
void shard_reset_moments(struct shard *shard);

/* Copies an array of `count` floats on the machine. */
void shard_copy(const struct shard *shard, float *to, const float *from);
/* Gathers the `share` of every rank into all[ranks_count × count]. Waits for all ranks. */
tdm_status shard_gather(const struct shard *shard, const float *share, float *all);

/* Input and result of one optimizer step. */
struct shard_step {
    double lr;        /* Learning rate. */
    uint64_t number;  /* Number of the step since the moments were reset: 1, 2, … */
    double grad_norm; /* Result: the norm of the complete gradient before clipping. */
};

/* Sums gradients[ranks_count × count] over the ranks of all replicas and updates this share by one
 * step of AdamW. With several replicas `gradients` gets the sums. Waits for all ranks. */
tdm_status shard_optimizer_step(struct shard *shard, const struct optimizer_settings *settings,
                                float *gradients, struct shard_step *step);

#endif
