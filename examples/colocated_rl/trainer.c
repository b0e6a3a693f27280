/* trainer.c - one data-parallel rank of the trainer. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer rank computes the gradients of its part of each batch with the whole model, and keeps a
 * share of the parameters and of the optimizer's moments. Tandem calls the functions of
 * `trainer_ops` from one thread of the trainer actor. A step gathers all parameters into the
 * workspace, computes gradients, sums them over the ranks, and updates the share. With several
 * replicas, each has all shares, gathers them among its own ranks, and sums with all ranks. While
 * the engines use the GPU, only the share and the moments are kept in host memory. The contents of
 * the other regions are recomputed in each step. */
#include "examples/colocated_rl/batch_loss.h"
#include "examples/colocated_rl/checkpoint.h"
#include "examples/colocated_rl/library.h"
#include "examples/colocated_rl/ops.h"
#include "examples/colocated_rl/replica.h"
#include "examples/colocated_rl/shard.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The regions of a trainer rank, in the order in which they are declared to Tandem. REFERENCE is
 * omitted if the loss has no KL term. The first three are kept through a pause, the other two are
 * dropped. */
enum region { PARAMETERS, OPTIMIZER, REFERENCE, GRADIENTS, WORKSPACE, REGIONS };

/* A trainer rank; owned by Tandem through the `state` argument of the functions below. */
struct trainer {
    const struct tdm_rank_context *context; /* Configuration, rank and group (borrowed). */
    struct machine *machine; /* The machine that computes (owned); NULL before start(). */
    struct settings settings;
    struct model model;              /* The whole model. */
    struct replica replica;          /* The ranks among which the model is divided. */
    struct shard shard;              /* This rank's share of the parameters and moments. */
    struct batch_loss_memory memory; /* Memory of the passes, in the workspace. */

    /* Share of the weights at the start of reinforcement; NULL without a KL term. */
    float *reference;
    float *all_weights;   /* All parameters, gathered for a step; in the workspace. */
    float *all_gradients; /* Gradients of all parameters from this rank's part of the batch. */

    int supervised;      /* 1 if the last step was a supervised one. */
    uint64_t adam_steps; /* Number of steps since the last change of the phase. */
};

/* Returns the floats of all shares together, padding included. */
static size_t all_floats(const struct trainer *trainer)
{
    return trainer->shard.count * trainer->shard.ranks_count;
}

/* Returns the floats of the logits of one pass. */
static size_t logits_floats(const struct trainer *trainer)
{
    return (size_t)trainer->settings.max_tokens_per_gpu * trainer->settings.shape.vocab_size;
}

/* Returns 1 if the loss has a KL term, so that reference weights are kept. */
static int has_reference(const struct trainer *trainer)
{
    return trainer->settings.grpo.kl_loss_coef != 0.0;
}

static void trainer_close(void *state)
{
    struct trainer *trainer = state;

    if (trainer == NULL) {
        return;
    }
    pack_fini(&trainer->memory.pack);
    network_fini(&trainer->memory.network);
    shard_fini(&trainer->shard);
    model_fini(&trainer->model);
    replica_leave(&trainer->replica);
    machine_close(trainer->machine);
    free(trainer);
}

/* Returns the group of all trainer ranks; NULL if there is one rank only. */
static tdm_collective_group *all_ranks(const struct trainer *trainer)
{
    return trainer->context->ranks_count > 1 ? trainer->context->group : NULL;
}

/* Joins the rank's replica and determines its share. */
static tdm_status init_shard(struct trainer *trainer)
{
    struct replica *replica = &trainer->replica;
    bool is_divided = trainer->settings.replicas > 1;

    TDM_TRY(replica_init(replica, trainer->context, trainer->settings.replicas));
    TDM_TRY(replica_join(replica, trainer->context));
    TDM_TRY(shard_init(&trainer->shard, &trainer->model,
                       is_divided ? replica->group : all_ranks(trainer), replica->rank,
                       replica->ranks_count));
    trainer->shard.all_replicas = is_divided ? all_ranks(trainer) : NULL;
    return TDM_OK;
}

/* Reads the settings and allocates everything but the regions. */
static tdm_status trainer_init(struct trainer *trainer)
{
    const struct tdm_rank_context *context = trainer->context;

    TDM_TRY(settings_read(&trainer->settings, context->config));
    TDM_TRY(model_init(&trainer->model, &trainer->settings.shape, 1));
    TDM_TRY(init_shard(trainer));
    trainer->memory.network = (struct network){
        .model = &trainer->model,
        .rows_max = trainer->settings.max_tokens_per_gpu,
        .slots_max = trainer->settings.max_tokens_per_gpu,
        .keeps_layers = 1,
    };
    TDM_TRY(network_init(&trainer->memory.network));
    return pack_init(&trainer->memory.pack, &trainer->settings);
}

static tdm_status trainer_open(const struct tdm_rank_context *context, void **state_out)
{
    struct trainer *trainer = calloc(1, sizeof(*trainer));
    tdm_status status;

    if (trainer == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a trainer of %zu bytes", sizeof(*trainer));
    }
    trainer->context = context;
    status = trainer_init(trainer);
    if (status != TDM_OK) {
        trainer_close(trainer);
        return status;
    }
    *state_out = trainer;
    return TDM_OK;
}

/* Returns the floats that the targets of a pass take in the workspace. */
static size_t target_floats(const struct trainer *trainer)
{
    size_t bytes = trainer->memory.pack.targets_max * sizeof(struct target);

    return (bytes + sizeof(float) - 1) / sizeof(float);
}

/* Returns the floats of the workspace. */
static size_t workspace_floats(const struct trainer *trainer)
{
    size_t rows = trainer->settings.max_tokens_per_gpu;

    return all_floats(trainer) + network_values_floats(&trainer->model, rows, 1) +
           network_cache_floats(&trainer->model, rows) +
           network_backward_floats(&trainer->model, rows) + 2 * logits_floats(trainer) +
           target_floats(trainer) + trainer->memory.pack.targets_max;
}

static tdm_status trainer_regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                                  uint32_t *count_out)
{
    const struct trainer *trainer = state;
    size_t share = trainer->shard.count * sizeof(float);
    const struct tdm_region_spec wanted[REGIONS] = {
        [PARAMETERS] = {"parameters", share, TDM_REGION_KEEP},
        [OPTIMIZER] = {"optimizer", 2 * share, TDM_REGION_KEEP},
        [REFERENCE] = {"reference", share, TDM_REGION_KEEP},
        [GRADIENTS] = {"gradients", share + all_floats(trainer) * sizeof(float), TDM_REGION_DROP},
        [WORKSPACE] = {"workspace", workspace_floats(trainer) * sizeof(float), TDM_REGION_DROP},
    };
    uint32_t count = 0;

    for (uint32_t i = 0; i < REGIONS; i++) {
        if (i != REFERENCE || has_reference(trainer)) {
            specs[count++] = wanted[i];
        }
    }
    *count_out = count;
    return TDM_OK;
}

/* Divides the workspace among the arrays of the passes. */
static void trainer_divide_workspace(struct trainer *trainer, float *workspace)
{
    struct batch_loss_memory *memory = &trainer->memory;
    size_t rows = trainer->settings.max_tokens_per_gpu;
    float *values = workspace + all_floats(trainer);
    float *cache = values + network_values_floats(&trainer->model, rows, 1);

    trainer->all_weights = workspace;
    memory->network.weights = workspace;
    network_bind_memory(&memory->network, trainer->machine, values, cache);
    memory->scratch = cache + network_cache_floats(&trainer->model, rows);
    memory->logits = memory->scratch + network_backward_floats(&trainer->model, rows);
    memory->logit_gradients = memory->logits + logits_floats(trainer);
    memory->numbers = memory->logit_gradients + logits_floats(trainer);
    memory->targets = (void *)(memory->numbers + memory->pack.targets_max);
}

/* Sets the share to the weights of the checkpoint folder or to random weights. */
static tdm_status make_weights(struct trainer *trainer)
{
    struct shard *shard = &trainer->shard;

    shard_reset_moments(shard);
    if (trainer->settings.path != NULL) {
        TDM_TRY(shard_read(shard, trainer->settings.path));
    } else {
        TDM_TRY(
            shard_init_random(shard, trainer->context->seed, trainer->settings.initializer_range));
    }
    if (has_reference(trainer)) {
        shard_copy(shard, trainer->reference, shard->parameters);
    }
    return trainer->machine->ops->finish(trainer->machine);
}

/* Opens the machine, divides the regions, and sets the first weights. */
static tdm_status trainer_start(void *state, void *const *addresses)
{
    struct trainer *trainer = state;
    struct shard *shard = &trainer->shard;
    uint32_t next = REFERENCE;

    TDM_TRY(machine_open(trainer->settings.device, &trainer->machine));
    shard_bind_memory(shard, trainer->machine, addresses[PARAMETERS]);
    shard->mean = addresses[OPTIMIZER];
    shard->square = shard->mean + shard->count;
    if (has_reference(trainer)) {
        trainer->reference = addresses[next++];
    }
    shard->gradients = addresses[next++];
    trainer->all_gradients = shard->gradients + shard->count;
    trainer_divide_workspace(trainer, addresses[next]);
    return make_weights(trainer);
}

static tdm_status trainer_layout(void *state, const struct tdm_tensor_info **tensors_out,
                                 uint32_t *tensors_count_out, const struct tdm_slice **slices_out,
                                 uint32_t *slices_count_out)
{
    const struct trainer *trainer = state;

    *tensors_out = trainer->model.tensors;
    *tensors_count_out = trainer->model.tensors_count;
    *slices_out = trainer->shard.slices;
    *slices_count_out = trainer->shard.slices_count;
    return TDM_OK;
}

/* Changes between supervised and reinforcement steps. Reinforcement starts with moments of 0, and
 * the weights at its start become the reference of the KL term. */
static void trainer_switch_phase(struct trainer *trainer, int supervised)
{
    if (trainer->adam_steps > 0 && supervised == trainer->supervised) {
        return;
    }
    trainer->supervised = supervised;
    trainer->adam_steps = 0;
    shard_reset_moments(&trainer->shard);
    if (!supervised && has_reference(trainer)) {
        shard_copy(&trainer->shard, trainer->reference, trainer->shard.parameters);
    }
}

/* Appends one metric. The name is shorter than the entry's. */
static void metrics_append(struct tdm_metrics *metrics, const char *name, double value)
{
    struct tdm_metric *entry = &metrics->entries[metrics->count++];

    (void)strncpy(entry->name, name, sizeof(entry->name) - 1);
    entry->value = value;
}

/* Computes the metrics of a step from the sums. */
static void report_metrics(const struct batch_loss *batch_loss, const struct shard_step *step,
                           struct tdm_metrics *metrics)
{
    const double *sums = batch_loss->sums;
    double tokens = sums[SUM_TOKENS] > 0.0 ? sums[SUM_TOKENS] : 1.0;
    double samples = sums[SUM_SAMPLES] > 0.0 ? sums[SUM_SAMPLES] : 1.0;

    *metrics = (struct tdm_metrics){0};
    metrics_append(metrics, "loss", sums[SUM_LOSS] / tokens);
    metrics_append(metrics, "grad_norm", step->grad_norm);
    metrics_append(metrics, "lr", step->lr);
    metrics_append(metrics, "tokens", sums[SUM_TOKENS]);
    if (batch_loss->batch->supervised) {
        return;
    }
    metrics_append(metrics, "reward", sums[SUM_REWARD] / samples);
    metrics_append(metrics, "logprob_diff_max", batch_loss->logprob_difference_max);
    metrics_append(metrics, "logprob_diff_mean", sums[SUM_LOGPROB_DIFFERENCE] / tokens);
    metrics_append(metrics, "kl", sums[SUM_KL] / tokens);
    metrics_append(metrics, "clip_fraction", sums[SUM_CLIPPED] / tokens);
    if (batch_loss->settings->grpo.kl_loss_coef != 0.0) {
        metrics_append(metrics, "kl_start", sums[SUM_KL_START] / tokens);
    }
}

/* Takes the step of the optimizer. If the norm of the gradient is not finite, the error names the
 * sample that makes it so, where this rank has it. */
static tdm_status trainer_optimize(struct trainer *trainer, const struct batch_loss *batch_loss,
                                   struct shard_step *step)
{
    tdm_status status = shard_optimizer_step(&trainer->shard, &trainer->settings.optimizer,
                                             trainer->all_gradients, step);

    if (status == TDM_OK || isfinite(step->grad_norm)) {
        return status;
    }
    TDM_TRY(batch_loss_find_overflow(batch_loss, &trainer->memory, trainer->all_gradients));
    /* Of the errors of all ranks, the job shows this one last. */
    return tdm_fail(TDM_E_ABORTED,
                    "the gradient is not finite (%g), but that of each of the %u samples of rank "
                    "%u is",
                    step->grad_norm, batch_loss->batch->samples_count, trainer->context->rank);
}

/* Runs one training step on a batch whose loss is prepared. */
static tdm_status trainer_learn(struct trainer *trainer, struct batch_loss *batch_loss,
                                struct tdm_metrics *metrics)
{
    const struct tdm_batch *batch = batch_loss->batch;
    const struct schedule *schedule =
        batch->supervised ? &trainer->settings.warmup_schedule : &trainer->settings.schedule;
    struct shard *shard = &trainer->shard;
    struct shard_step step = {
        .lr = schedule_lr(schedule, batch->step, batch->steps_count),
        .number = trainer->adam_steps + 1,
    };

    if (!batch->supervised && has_reference(trainer)) {
        TDM_TRY(shard_gather(shard, trainer->reference, trainer->all_weights));
        TDM_TRY(batch_loss_record_reference(batch_loss, &trainer->memory));
    }
    TDM_TRY(shard_gather(shard, shard->parameters, trainer->all_weights));
    trainer->machine->ops->zero(
        trainer->machine, &(const struct filling){trainer->all_gradients, all_floats(trainer)});
    TDM_TRY(batch_loss_backward(batch_loss, &trainer->memory, trainer->all_gradients));
    TDM_TRY(batch_loss_reduce(batch_loss, all_ranks(trainer)));
    TDM_TRY(trainer_optimize(trainer, batch_loss, &step));
    trainer->adam_steps++;
    report_metrics(batch_loss, &step, metrics);
    return trainer->machine->ops->finish(trainer->machine);
}

static tdm_status trainer_step(void *state, const struct tdm_batch *batch,
                               struct tdm_metrics *metrics)
{
    struct trainer *trainer = state;
    struct batch_loss batch_loss;
    tdm_status status;

    trainer_switch_phase(trainer, batch->supervised);
    status = batch_loss_init(&batch_loss, &trainer->settings, batch, all_ranks(trainer));
    if (status == TDM_OK) {
        status = trainer_learn(trainer, &batch_loss, metrics);
    }
    batch_loss_fini(&batch_loss);
    return status;
}

/* Computes the log-probabilities of a rollout's samples with the present weights. */
static tdm_status trainer_logprobs(void *state, const struct tdm_batch *batch,
                                   float *const *logprobs)
{
    struct trainer *trainer = state;
    uint32_t stride = trainer->settings.answer_max;
    struct batch_loss batch_loss;
    tdm_status status = batch_loss_init(&batch_loss, &trainer->settings, batch, all_ranks(trainer));

    if (status == TDM_OK) {
        status = shard_gather(&trainer->shard, trainer->shard.parameters, trainer->all_weights);
    }
    if (status == TDM_OK) {
        status = batch_loss_record_reference(&batch_loss, &trainer->memory);
    }
    for (uint32_t i = 0; i < batch->samples_count && status == TDM_OK; i++) {
        memcpy(logprobs[i], batch_loss.reference + (size_t)i * stride,
               batch->samples[i].tokens_count * sizeof(float));
    }
    batch_loss_fini(&batch_loss);
    return status == TDM_OK ? trainer->machine->ops->finish(trainer->machine) : status;
}

/* Capacity of the array lists below. */
enum { SAVED_ARRAYS_MAX = 4 };

/* Lists the arrays of a rank's checkpoint, which lie on the machine, and returns their number. */
static uint32_t saved_arrays(const struct trainer *trainer,
                             struct checkpoint_array arrays[SAVED_ARRAYS_MAX])
{
    arrays[0] = (struct checkpoint_array){"parameters", trainer->shard.parameters};
    arrays[1] = (struct checkpoint_array){"exp_avg", trainer->shard.mean};
    arrays[2] = (struct checkpoint_array){"exp_avg_sq", trainer->shard.square};
    arrays[3] = (struct checkpoint_array){"reference", trainer->reference};
    return has_reference(trainer) ? 4 : 3;
}

/* Allocates host memory for copies of the arrays and fills copies[] with them. The caller frees
 * *room_out. */
static tdm_status make_copies(const struct trainer *trainer, const struct checkpoint_array *arrays,
                              uint32_t count, struct checkpoint_array copies[SAVED_ARRAYS_MAX],
                              float **room_out)
{
    float *room = calloc(count * trainer->shard.count, sizeof(float));

    if (room == NULL) {
        return tdm_fail(TDM_E_NOMEM, "%u arrays of %zu parameters", count, trainer->shard.count);
    }
    for (uint32_t i = 0; i < count; i++) {
        copies[i] = (struct checkpoint_array){arrays[i].name, room + i * trainer->shard.count};
    }
    *room_out = room;
    return TDM_OK;
}

/* Returns the counters that this rank's file should have. */
static struct checkpoint_counters counters_of(const struct trainer *trainer)
{
    return (struct checkpoint_counters){
        .supervised = trainer->supervised,
        .adam_steps = (int64_t)trainer->adam_steps,
        .rank = trainer->context->rank,
        .ranks_count = trainer->context->ranks_count,
        .elements = (int64_t)trainer->model.elements,
    };
}

/* Writes this rank's share to its file. */
static tdm_status save_share(const struct trainer *trainer, const char *directory)
{
    const struct checkpoint_counters counters = counters_of(trainer);
    struct machine *machine = trainer->machine;
    struct checkpoint_array arrays[SAVED_ARRAYS_MAX];
    struct checkpoint_array copies[SAVED_ARRAYS_MAX];
    uint32_t count = saved_arrays(trainer, arrays);
    tdm_status status = TDM_OK;
    float *room;

    TDM_TRY(make_copies(trainer, arrays, count, copies, &room));
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        status = machine->ops->read(machine, copies[i].values, arrays[i].values,
                                    trainer->shard.count * sizeof(float));
    }
    if (status == TDM_OK) {
        status = checkpoint_write(directory, &counters, copies, count, trainer->shard.count);
    }
    free(room);
    return status;
}

/* Writes the gathered weights as a Hugging Face model. */
static tdm_status save_model(const struct trainer *trainer, const char *directory)
{
    struct machine *machine = trainer->machine;
    size_t bytes = trainer->model.elements * sizeof(float);
    float *weights = malloc(bytes);
    tdm_status status;

    if (weights == NULL) {
        return tdm_fail(TDM_E_NOMEM, "weights of %zu bytes", bytes);
    }
    status = machine->ops->read(machine, weights, trainer->all_weights, bytes);
    if (status == TDM_OK) {
        status = checkpoint_write_model(directory, &trainer->settings, &trainer->model, weights);
    }
    free(weights);
    return status;
}

static tdm_status trainer_save(void *state, const char *directory)
{
    struct trainer *trainer = state;

    TDM_TRY(save_share(trainer, directory));
    TDM_TRY(shard_gather(&trainer->shard, trainer->shard.parameters, trainer->all_weights));
    return trainer->context->rank == 0 ? save_model(trainer, directory)
                                       : trainer->machine->ops->finish(trainer->machine);
}

static tdm_status trainer_load(void *state, const char *directory)
{
    struct trainer *trainer = state;
    struct checkpoint_counters counters = counters_of(trainer);
    struct machine *machine = trainer->machine;
    struct checkpoint_array arrays[SAVED_ARRAYS_MAX];
    struct checkpoint_array copies[SAVED_ARRAYS_MAX];
    uint32_t count = saved_arrays(trainer, arrays);
    tdm_status status;
    float *room;

    TDM_TRY(make_copies(trainer, arrays, count, copies, &room));
    status = checkpoint_read(directory, &counters, copies, count, trainer->shard.count);
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        status = machine->ops->write(machine, arrays[i].values, copies[i].values,
                                     trainer->shard.count * sizeof(float));
    }
    free(room);
    TDM_TRY(status);
    trainer->supervised = counters.supervised != 0;
    trainer->adam_steps = (uint64_t)counters.adam_steps;
    return TDM_OK;
}

const struct tdm_trainer_ops trainer_ops = {
    .size_bytes = sizeof(struct tdm_trainer_ops),
    .open = trainer_open,
    .regions = trainer_regions,
    .start = trainer_start,
    .layout = trainer_layout,
    .step = trainer_step,
    .save = trainer_save,
    .load = trainer_load,
    .close = trainer_close,
    .logprobs = trainer_logprobs,
};
