/* world.h - a trainer and engines in one process, with one thread per rank and without the
 * runtime. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_TESTS_WORLD_H
#define COLOCATED_RL_TESTS_WORLD_H

#include "examples/colocated_rl/library.h"
#include "examples/colocated_rl/tests/support/memory.h"
#include "examples/colocated_rl/tests/support/thread_group.h"

enum { WORLD_RANKS_MAX = 16 };

/* One rank of the trainer or an engine. */
struct world_rank {
    struct machine *machine; /* The machine whose memory the rank uses. */
    struct tdm_rank_context context;
    void *state;                           /* State of the rank's functions, from open(). */
    void *addresses[TDM_RANK_REGIONS_MAX]; /* Memory of each region (owned). */
    struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX];
    uint32_t regions_count;
};

/* All ranks of a job and their groups. */
struct world {
    uint32_t trainers_count;
    uint32_t engines_count;
    uint32_t engine_ranks; /* Ranks of each engine. */
    struct world_rank trainers[WORLD_RANKS_MAX];
    struct world_rank engines[WORLD_RANKS_MAX]; /* The ranks of all engines, engine by engine. */
    struct thread_group *trainer_group;
    struct thread_group *engine_groups[WORLD_RANKS_MAX];
};

/* Opens all ranks. This and the functions below end the program with the reason on any failure.
 * Sizes come from the config's trainer.num_ranks, engine.num_engines and
 * engine.rollout_num_gpus_per_engine; the machine is cluster.device. */
struct world *world_open(const tdm_config *config, uint64_t seed);
void world_close(struct world *world);

/* Copies the trainer's weights to every engine rank, as an update would. */
void world_update(struct world *world);
/* Divides the prompts among the engines; groups of `group` prompts stay together. */
void world_generate(struct world *world, const struct tdm_prompt *prompts, uint32_t prompts_count,
                    uint32_t group, const struct tdm_sampling *sampling,
                    struct tdm_completion *completions);
/* Divides the batch among the trainer's ranks with complete groups. Stores the metrics of rank
 * 0. */
void world_step(struct world *world, const struct tdm_batch *batch, uint32_t group,
                struct tdm_metrics *metrics);
void world_save(struct world *world, const char *directory);
void world_load(struct world *world, const char *directory);

double world_metric(const struct tdm_metrics *metrics, const char *name);

/* Allocates `count` answers of up to `tokens_max` tokens. */
struct tdm_completion *world_completions(uint32_t count, uint32_t tokens_max);
void world_completions_free(struct tdm_completion *completions);

#endif
