/* world.h - a trainer and engines in one process, a thread a rank, without the runtime. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_TESTS_WORLD_H
#define COLOCATED_RL_TESTS_WORLD_H

#include "examples/colocated_rl/library.h"
#include "examples/colocated_rl/tests/support/memory.h"
#include "examples/colocated_rl/tests/support/thread_group.h"

enum { WORLD_RANKS_MAX = 16 };

/* One rank of either kind. */
struct world_rank {
    struct machine *machine; /* of the memory */
    struct tdm_rank_context context;
    void *state;
    void *addresses[TDM_RANK_REGIONS_MAX]; /* owned */
    struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX];
    uint32_t regions_count;
};

struct world {
    uint32_t trainers_count;
    uint32_t engines_count;
    uint32_t engine_ranks; /* of each engine */
    struct world_rank trainers[WORLD_RANKS_MAX];
    struct world_rank engines[WORLD_RANKS_MAX]; /* engine after engine */
    struct thread_group *trainer_group;
    struct thread_group *engine_groups[WORLD_RANKS_MAX];
};

/* Ends the program with the reason on any failure, as all of these do.  Sizes come from the
 * config's trainer.num_ranks, engine.num_engines and engine.rollout_num_gpus_per_engine; the
 * machine is cluster.device. */
struct world *actor_fixture_open(const tdm_config *config, uint64_t seed);
void actor_fixture_close(struct world *world);

/* Brings the trainer's weights to every engine rank, as an update would. */
void world_update(struct world *world);
/* Shares the prompts out among the engines, in groups of `group` that stay together. */
void world_generate(struct world *world, const struct tdm_prompt *prompts, uint32_t prompts_count,
                    uint32_t group, const struct tdm_sampling *sampling,
                    struct tdm_completion *completions);
/* Shares the batch out among the trainer's ranks, groups together; rank 0's metrics. */
void world_step(struct world *world, const struct tdm_batch *batch, uint32_t group,
                struct tdm_metrics *metrics);
void world_save(struct world *world, const char *directory);
void world_load(struct world *world, const char *directory);

double world_metric(const struct tdm_metrics *metrics, const char *name);

/* Room for `count` answers of up to `tokens_max` tokens. */
struct tdm_completion *world_completions(uint32_t count, uint32_t tokens_max);
void world_completions_free(struct tdm_completion *completions);

#endif
