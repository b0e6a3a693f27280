/* world.c - a trainer and engines in one process, a thread a rank, without the runtime. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/tests/support/world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What every rank of a kind does at once: `argument` is the same for all. */
typedef tdm_status rank_work(struct world_rank *rank, const void *argument);

struct task {
    pthread_t thread;
    struct world_rank *rank;
    rank_work *work;
    const void *argument;
};

static void *run_task(void *self)
{
    struct task *task = self;

    tdm_check(task->work(task->rank, task->argument), "a rank");
    return NULL;
}

static void run_all(struct world_rank *ranks, uint32_t count, rank_work *work, const void *argument)
{
    struct task tasks[WORLD_RANKS_MAX];

    for (uint32_t i = 0; i < count; i++) {
        tasks[i] = (struct task){.rank = &ranks[i], .work = work, .argument = argument};
        if (pthread_create(&tasks[i].thread, NULL, run_task, &tasks[i]) != 0) {
            abort();
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)pthread_join(tasks[i].thread, NULL);
    }
}

static void *room(size_t count, size_t size_bytes)
{
    void *memory = calloc(count + 1, size_bytes);

    if (memory == NULL) {
        abort();
    }
    return memory;
}

/* ---- life ------------------------------------------------------------------------------- */

static void allocate(struct world_rank *rank)
{
    for (uint32_t i = 0; i < rank->regions_count; i++) {
        rank->addresses[i] = memory_take(rank->machine, rank->specs[i].size_bytes);
    }
}

static tdm_status open_trainer(struct world_rank *rank, const void *argument)
{
    (void)argument;
    TDM_TRY(trainer_ops.open(&rank->context, &rank->state));
    TDM_TRY(trainer_ops.regions(rank->state, rank->specs, &rank->regions_count));
    allocate(rank);
    return trainer_ops.start(rank->state, rank->addresses);
}

static tdm_status open_engine(struct world_rank *rank, const void *argument)
{
    (void)argument;
    TDM_TRY(engine_ops.open(&rank->context, &rank->state));
    TDM_TRY(engine_ops.regions(rank->state, rank->specs, &rank->regions_count));
    allocate(rank);
    return engine_ops.start(rank->state, rank->addresses);
}

static uint32_t read_count(const tdm_config *config, const char *path, int64_t otherwise)
{
    int64_t value = 0;

    TDM_CHECK(tdm_config_int(config, path, otherwise, &value));
    if (value < 1 || value > WORLD_RANKS_MAX) {
        abort();
    }
    return (uint32_t)value;
}

static struct machine *machine_of(const tdm_config *config)
{
    const char *name;

    TDM_CHECK(tdm_config_string(config, "cluster.device", "host", &name));
    return memory_machine(name);
}

struct world *world_open(const tdm_config *config, uint64_t seed)
{
    struct world *world = room(1, sizeof(*world));
    struct machine *machine = machine_of(config);

    world->trainers_count = read_count(config, "trainer.num_ranks", 4);
    world->engines_count = read_count(config, "engine.num_engines", 2);
    world->engine_ranks = read_count(config, "engine.rollout_num_gpus_per_engine", 2);
    world->trainer_group = thread_group_create(world->trainers_count);
    for (uint32_t i = 0; i < world->trainers_count; i++) {
        world->trainers[i].machine = machine;
        world->trainers[i].context = (struct tdm_rank_context){
            .config = config,
            .rank = i,
            .ranks_count = world->trainers_count,
            .seed = seed,
            .group = thread_group_member(world->trainer_group, i),
        };
    }
    for (uint32_t i = 0; i < world->engines_count * world->engine_ranks; i++) {
        uint32_t engine = i / world->engine_ranks;
        uint32_t rank = i % world->engine_ranks;

        if (rank == 0) {
            world->engine_groups[engine] = thread_group_create(world->engine_ranks);
        }
        world->engines[i].machine = machine;
        world->engines[i].context = (struct tdm_rank_context){
            .config = config,
            .rank = rank,
            .ranks_count = world->engine_ranks,
            .engine = engine,
            .seed = seed,
            .group = thread_group_member(world->engine_groups[engine], rank),
        };
    }
    run_all(world->trainers, world->trainers_count, open_trainer, NULL);
    run_all(world->engines, world->engines_count * world->engine_ranks, open_engine, NULL);
    return world;
}

static void free_regions(struct world_rank *rank)
{
    for (uint32_t i = 0; i < rank->regions_count; i++) {
        memory_give(rank->machine, rank->addresses[i]);
    }
}

void world_close(struct world *world)
{
    for (uint32_t i = 0; i < world->trainers_count; i++) {
        trainer_ops.close(world->trainers[i].state);
        free_regions(&world->trainers[i]);
    }
    for (uint32_t i = 0; i < world->engines_count * world->engine_ranks; i++) {
        engine_ops.close(world->engines[i].state);
        free_regions(&world->engines[i]);
    }
    thread_group_destroy(world->trainer_group);
    for (uint32_t i = 0; i < world->engines_count; i++) {
        thread_group_destroy(world->engine_groups[i]);
    }
    free(world);
}

/* ---- the update ------------------------------------------------------------------------- */

struct update {
    struct tdm_tensor_view *views;
    uint32_t count;
};

static tdm_status load_weights(struct world_rank *rank, const void *argument)
{
    const struct update *update = argument;

    engine_ops.begin(rank->state);
    TDM_TRY(engine_ops.load(rank->state, rank->addresses[0], update->views, update->count));
    TDM_TRY(engine_ops.complete(rank->state));
    return engine_ops.flush_cache(rank->state);
}

/* Copies a rank's slices into the whole tensors; returns the elements copied. */
static uint64_t collect(struct world_rank *rank, struct update *update)
{
    const struct tdm_tensor_info *tensors;
    const struct tdm_slice *slices;
    uint32_t slices_count;
    uint64_t elements = 0;

    TDM_CHECK(trainer_ops.layout(rank->state, &tensors, &update->count, &slices, &slices_count));
    if (update->views == NULL) {
        update->views = room(update->count, sizeof(*update->views));
        for (uint32_t i = 0; i < update->count; i++) {
            update->views[i].info = tensors[i];
            update->views[i].stride[0] = tensors[i].dims_count == 2 ? tensors[i].shape[1] : 1;
            update->views[i].stride[1] = 1;
            update->views[i].data = room(tdm_tensor_bytes(&tensors[i]), 1);
        }
    }
    for (uint32_t i = 0; i < slices_count; i++) {
        float *whole = (float *)(uintptr_t)update->views[slices[i].tensor].data;

        memory_read(rank->machine, whole + slices[i].offset[0], slices[i].address,
                    slices[i].extent[0] * sizeof(float));
        elements += slices[i].extent[0];
    }
    return elements;
}

void world_update(struct world *world)
{
    struct update update = {0};
    uint64_t elements = 0;

    for (uint32_t i = 0; i < world->trainers_count; i++) {
        elements += collect(&world->trainers[i], &update);
    }
    for (uint32_t i = 0; i < update.count; i++) {
        elements -= tdm_tensor_elements(&update.views[i].info);
    }
    if (elements != 0) {
        abort(); /* the slices do not cover every element exactly once */
    }
    run_all(world->engines, world->engines_count * world->engine_ranks, load_weights, &update);
    for (uint32_t i = 0; i < update.count; i++) {
        free((void *)(uintptr_t)update.views[i].data);
    }
    free(update.views);
}

/* ---- work ------------------------------------------------------------------------------- */

/* First item of part `index` of `parts`, whole groups in each. */
static uint32_t part_start(uint32_t count, uint32_t group, uint32_t index, uint32_t parts)
{
    uint32_t groups = (count + group - 1) / group;
    uint64_t start = (uint64_t)groups * index / parts * group;

    return start < count ? (uint32_t)start : count;
}

struct generation {
    const struct world *world;
    const struct tdm_prompt *prompts;
    uint32_t prompts_count;
    uint32_t group;
    const struct tdm_sampling *sampling;
    struct tdm_completion *completions;
};

static tdm_status generate(struct world_rank *rank, const void *argument)
{
    const struct generation *all = argument;
    uint32_t engine = rank->context.engine;
    uint32_t parts = all->world->engines_count;
    uint32_t from = part_start(all->prompts_count, all->group, engine, parts);
    uint32_t count = part_start(all->prompts_count, all->group, engine + 1, parts) - from;
    struct tdm_completion *own;
    tdm_status status;

    if (rank->context.rank == 0) {
        return engine_ops.generate(rank->state, all->prompts + from, count, all->sampling,
                                   all->completions + from);
    }
    own = world_completions(count, all->sampling->tokens_max);
    status = engine_ops.generate(rank->state, all->prompts + from, count, all->sampling, own);
    world_completions_free(own);
    return status;
}

void world_generate(struct world *world, const struct tdm_prompt *prompts, uint32_t prompts_count,
                    uint32_t group, const struct tdm_sampling *sampling,
                    struct tdm_completion *completions)
{
    const struct generation all = {world, prompts, prompts_count, group, sampling, completions};

    run_all(world->engines, world->engines_count * world->engine_ranks, generate, &all);
}

struct step {
    const struct tdm_batch *batch;
    uint32_t group;
    struct tdm_metrics *metrics; /* of rank 0 */
};

static tdm_status step_rank(struct world_rank *rank, const void *argument)
{
    const struct step *step = argument;
    uint32_t count = step->batch->samples_count;
    uint32_t parts = rank->context.ranks_count;
    uint32_t from = part_start(count, step->group, rank->context.rank, parts);
    struct tdm_batch share = *step->batch;
    struct tdm_metrics metrics;

    share.samples = step->batch->samples + from;
    share.samples_count = part_start(count, step->group, rank->context.rank + 1, parts) - from;
    return trainer_ops.step(rank->state, &share,
                            rank->context.rank == 0 ? step->metrics : &metrics);
}

void world_step(struct world *world, const struct tdm_batch *batch, uint32_t group,
                struct tdm_metrics *metrics)
{
    const struct step step = {batch, group, metrics};

    run_all(world->trainers, world->trainers_count, step_rank, &step);
}

static tdm_status save_rank(struct world_rank *rank, const void *directory)
{
    return trainer_ops.save(rank->state, directory);
}

static tdm_status load_rank(struct world_rank *rank, const void *directory)
{
    return trainer_ops.load(rank->state, directory);
}

void world_save(struct world *world, const char *directory)
{
    run_all(world->trainers, world->trainers_count, save_rank, directory);
}

void world_load(struct world *world, const char *directory)
{
    run_all(world->trainers, world->trainers_count, load_rank, directory);
}

double world_metric(const struct tdm_metrics *metrics, const char *name)
{
    for (uint32_t i = 0; i < metrics->count; i++) {
        if (strcmp(metrics->entries[i].name, name) == 0) {
            return metrics->entries[i].value;
        }
    }
    abort();
}

/* One piece of memory: the completions, then their tokens, log-probabilities and texts. */
struct tdm_completion *world_completions(uint32_t count, uint32_t tokens_max)
{
    size_t answer_bytes = tokens_max * (sizeof(int32_t) + sizeof(float)) + tokens_max + 8;
    struct tdm_completion *completions = room(count, sizeof(*completions) + answer_bytes + 8);
    char *place = (char *)(completions + count);

    for (uint32_t i = 0; i < count; i++) {
        completions[i].tokens = (int32_t *)(void *)place;
        place += (size_t)tokens_max * sizeof(int32_t);
        completions[i].logprobs = (float *)(void *)place;
        place += (size_t)tokens_max * sizeof(float);
        completions[i].text = place;
        completions[i].text_bytes_max = tokens_max + 1;
        place += ((size_t)tokens_max + 8) / 8 * 8;
    }
    return completions;
}

void world_completions_free(struct tdm_completion *completions)
{
    free(completions);
}
