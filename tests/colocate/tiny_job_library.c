/* tiny_job_library.c - the smallest job library: a model that only knows how often it learned.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/colocate/tiny_job.h"
#include "tests/colocate/tiny_outside.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>
#include <time.h>
#include <unistd.h>

/* Three tensors whose every element follows from the number of steps learned.  So an engine can
 * tell whether all of its weights are of one step, and answers every prompt with that step; and
 * the trainer can tell whether the answers it gets came from the weights it has. */
enum { TENSORS = 3, POSITION = 0, NUMBERS = 1, BYTES = 2 };
enum { ROWS = 5, COLUMNS = 320, BYTES_COUNT = 4007, MODEL_BYTES = 12288 };

static const struct tdm_tensor_info tensors[TENSORS] = {
    {.name = "position", .dtype = TDM_I64, .dims_count = 0},
    {.name = "numbers", .dtype = TDM_F32, .dims_count = 2, .shape = {ROWS, COLUMNS}},
    {.name = "bytes", .dtype = TDM_U8, .dims_count = 1, .shape = {BYTES_COUNT}},
};

/* A mistake that trainer.rename_on_rank lets one rank make. */
static const struct tdm_tensor_info renamed[TENSORS] = {
    {.name = "position", .dtype = TDM_I64, .dims_count = 0},
    {.name = "digits", .dtype = TDM_F32, .dims_count = 2, .shape = {ROWS, COLUMNS}},
    {.name = "bytes", .dtype = TDM_U8, .dims_count = 1, .shape = {BYTES_COUNT}},
};

static const size_t tensor_offsets[TENSORS] = {0, 8, 8 + 4 * ROWS *COLUMNS};

/* All of the model after `step` steps, tensor behind tensor. */
static void make_model(int64_t step, unsigned char model[MODEL_BYTES])
{
    memset(model, 0, MODEL_BYTES);
    memcpy(model + tensor_offsets[POSITION], &step, sizeof(step));
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        float number = (float)(step * 10000 + i);

        memcpy(model + tensor_offsets[NUMBERS] + i * sizeof(number), &number, sizeof(number));
    }
    for (uint32_t i = 0; i < BYTES_COUNT; i++) {
        model[tensor_offsets[BYTES] + i] = (unsigned char)(step * 7 + i);
    }
}

/* A setting of this library's own, below "trainer" or "engine". */
static tdm_status read_setting(const struct tdm_rank_context *context, const char *path,
                               int64_t *value_out)
{
    return tdm_config_int(context->config, path, -1, value_out);
}

/* ---- the trainer: every rank holds a part of each tensor -------------------------------- */

enum { VERSIONS_MAX = 64 };

struct trainer {
    const struct tdm_rank_context *context; /* borrowed */
    /* Step at which training fails (trainer.fail_at_step); -1 for none. */
    int64_t fail_at_step;
    /* Nonzero if completions of older weights are accepted (trainer.allow_stale). */
    int64_t allow_stale;
    int64_t step;           /* learned */
    unsigned char *weights; /* This rank's slices in the region "weights". */
    struct tdm_slice slices[TENSORS];
    uint32_t slices_count;
    uint64_t versions[VERSIONS_MAX]; /* Weight version of the completions of each step. */
    int64_t attach_bytes;   /* Bytes attached to each bucket (trainer.attach_bytes); -1: none. */
    int64_t attach_none_on; /* Rank that attaches nothing (trainer.attach_none_on_rank). */
    char *attached;         /* The bytes that attach() gave last; NULL before. */
    struct tiny_outside outside;
};

static tdm_status trainer_open(const struct tdm_rank_context *context, void **state_out)
{
    struct trainer *trainer = calloc(1, sizeof(*trainer));
    int64_t fail_on_rank;
    int64_t open_seconds; /* Seconds that a rank takes to open (trainer.open_seconds). */
    tdm_status status;

    if (trainer == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a trainer");
    }
    trainer->context = context;
    trainer->outside = (struct tiny_outside){.context = context, .side = "trainer"};
    status = read_setting(context, "trainer.fail_at_step", &trainer->fail_at_step);
    if (status == TDM_OK) {
        status = read_setting(context, "trainer.open_seconds", &open_seconds);
    }
    if (status == TDM_OK) {
        status = read_setting(context, "trainer.fail_on_rank", &fail_on_rank);
    }
    if (status == TDM_OK) {
        status = read_setting(context, "trainer.allow_stale", &trainer->allow_stale);
    }
    if (status == TDM_OK) {
        status = read_setting(context, "trainer.attach_bytes", &trainer->attach_bytes);
    }
    if (status == TDM_OK) {
        status = read_setting(context, "trainer.attach_none_on_rank", &trainer->attach_none_on);
    }
    if (status == TDM_OK && context->group != NULL && fail_on_rank == context->rank) {
        status = tdm_fail(TDM_E_INVAL, "rank %u does not want to open", context->rank);
    }
    if (status != TDM_OK) {
        free(trainer);
        return status;
    }
    if (context->group != NULL && open_seconds > 0) {
        (void)sleep((unsigned int)open_seconds);
    }
    *state_out = trainer;
    return TDM_OK;
}

static tdm_status trainer_regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                                  uint32_t *count_out)
{
    const struct trainer *trainer = state;

    specs[0] = (struct tdm_region_spec){"params", MODEL_BYTES, TDM_REGION_KEEP};
    *count_out = 1;
    return tiny_outside_declare(&trainer->outside, specs, count_out);
}

static tdm_status trainer_resume(void *state, const char *tag)
{
    return tiny_outside_resume(&((struct trainer *)state)->outside, tag);
}

static tdm_status trainer_pause(void *state, const char *tag)
{
    return tiny_outside_pause(&((struct trainer *)state)->outside, tag);
}

/* The weights after `step` steps, as far as this rank holds them. */
static void learn(struct trainer *trainer, int64_t step)
{
    unsigned char model[MODEL_BYTES];

    make_model(step, model);
    trainer->step = step;
    for (uint32_t i = 0; i < trainer->slices_count; i++) {
        const struct tdm_slice *slice = &trainer->slices[i];
        size_t element = tdm_dtype_bytes(tensors[slice->tensor].dtype);
        size_t offset = (size_t)((const unsigned char *)slice->address - trainer->weights);

        memcpy(trainer->weights + offset,
               model + tensor_offsets[slice->tensor] + slice->offset[0] * element,
               slice->extent[0] * element);
    }
}

static tdm_status trainer_start(void *state, void *const *addresses)
{
    struct trainer *trainer = state;
    uint32_t rank = trainer->context->rank;
    uint32_t ranks = trainer->context->ranks_count;

    trainer->weights = addresses[0];
    for (uint32_t i = 0; i < TENSORS; i++) {
        uint64_t elements = tdm_tensor_elements(&tensors[i]);
        uint64_t first = elements * rank / ranks;
        uint64_t next = elements * (rank + 1) / ranks;

        if (next > first) { /* Empty slices are omitted. */
            trainer->slices[trainer->slices_count++] =
                (struct tdm_slice){.tensor = i,
                                   .flat = 1,
                                   .offset = {first},
                                   .extent = {next - first},
                                   .address = trainer->weights + tensor_offsets[i]};
        }
    }
    learn(trainer, 0);
    return TDM_OK;
}

static tdm_status trainer_layout(void *state, const struct tdm_tensor_info **tensors_out,
                                 uint32_t *tensors_count_out, const struct tdm_slice **slices_out,
                                 uint32_t *slices_count_out)
{
    const struct trainer *trainer = state;
    int64_t rename_on_rank;

    TDM_TRY(read_setting(trainer->context, "trainer.rename_on_rank", &rename_on_rank));
    *tensors_out = rename_on_rank == trainer->context->rank ? renamed : tensors;
    *tensors_count_out = TENSORS;
    *slices_out = trainer->slices;
    *slices_count_out = trainer->slices_count;
    return TDM_OK;
}

/* The log-probability of every token of a model: it follows from the numbers, as the engine has
 * them, and from the bytes. */
static float logprob_of(const float *numbers, const unsigned char *bytes)
{
    double sum = 0;

    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        sum += (double)numbers[i] / (1e3 * ROWS * COLUMNS);
    }
    for (uint32_t i = 0; i < BYTES_COUNT; i++) {
        sum += bytes[i] / 1e6;
    }
    return (float)-sum;
}

static tdm_status trainer_logprobs(void *state, const struct tdm_batch *batch,
                                   float *const *logprobs)
{
    const struct trainer *trainer = state;
    unsigned char model[MODEL_BYTES];
    float numbers[ROWS * COLUMNS];

    make_model(trainer->step, model);
    memcpy(numbers, model + tensor_offsets[NUMBERS], sizeof(numbers));
    for (uint32_t i = 0; i < batch->samples_count; i++) {
        for (uint32_t k = 0; k < batch->samples[i].tokens_count; k++) {
            logprobs[i][k] = logprob_of(numbers, model + tensor_offsets[BYTES]);
        }
    }
    return tdm_collective_barrier(trainer->context->group);
}

static tdm_status trainer_step(void *state, const struct tdm_batch *batch,
                               struct tdm_metrics *metrics)
{
    struct trainer *trainer = state;
    int64_t nan_at_step; /* Step whose metric is not a number on rank 1. */

    if (batch->supervised) { /* Warm-up changes nothing: the first weights are those of step 0. */
        return TDM_OK;
    }
    if (batch->step == trainer->fail_at_step) {
        return tdm_fail(TDM_E_INVAL, "rank %u will not learn step %u", trainer->context->rank,
                        batch->step);
    }
    for (uint32_t i = 0; i < batch->samples_count; i++) {
        const struct tdm_sample *sample = &batch->samples[i];

        if (sample->tokens_count != 2 ||
            (sample->tokens[0] != trainer->step && trainer->allow_stale != 1)) {
            return tdm_fail(TDM_E_INVAL, "an answer of step %d, the trainer is at %lld",
                            sample->tokens_count == 0 ? -1 : sample->tokens[0],
                            (long long)trainer->step);
        }
        trainer->versions[batch->step % VERSIONS_MAX] = sample->weight_version;
    }
    learn(trainer, batch->step);
    TDM_TRY(read_setting(trainer->context, "trainer.nan_at_step", &nan_at_step));
    metrics->count = 1;
    metrics->entries[0] = (struct tdm_metric){"kl", 0.5};
    if (batch->step == nan_at_step && trainer->context->rank == 1) {
        metrics->entries[0].value = (double)NAN;
    }
    return tdm_collective_barrier(trainer->context->group);
}

/* One line: the step, then the version that answered at each step. */
static tdm_status trainer_save(void *state, const char *directory)
{
    const struct trainer *trainer = state;
    char path[4096];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/rank-%u", directory, trainer->context->rank);
    file = fopen(path, "w");
    if (file == NULL) {
        return tdm_fail(TDM_E_IO, "cannot write %s", path);
    }
    (void)fprintf(file, "%lld:", (long long)trainer->step);
    for (int64_t step = 1; step <= trainer->step; step++) {
        (void)fprintf(file, " %llu", (unsigned long long)trainer->versions[step % VERSIONS_MAX]);
    }
    return fclose(file) == 0 ? TDM_OK : tdm_fail(TDM_E_IO, "cannot write %s", path);
}

static tdm_status trainer_load(void *state, const char *directory)
{
    struct trainer *trainer = state;
    char path[4096];
    char line[32] = "";
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/rank-%u", directory, trainer->context->rank);
    file = fopen(path, "r");
    if (file == NULL || fgets(line, sizeof(line), file) == NULL) {
        if (file != NULL) {
            (void)fclose(file);
        }
        return tdm_fail(TDM_E_NOT_FOUND, "cannot read %s", path);
    }
    (void)fclose(file);
    learn(trainer, strtoll(line, NULL, 10));
    return TDM_OK;
}

/* Writes `size_bytes` bytes that are attached to this bucket for the engine rank with this number
 * among those of all engines. */
static void make_attached(uint32_t rank, uint32_t bucket, size_t size_bytes, char *bytes)
{
    for (size_t i = 0; i < size_bytes; i++) {
        bytes[i] = (char)(rank * 31 + bucket * 7 + i);
    }
}

static tdm_status trainer_attach(void *state, const struct tdm_update_bucket *bucket,
                                 struct tdm_bytes *bytes_out)
{
    struct trainer *trainer = state;
    uint32_t rank = trainer->context->rank;
    size_t size_bytes = (size_t)trainer->attach_bytes;
    int64_t engine_ranks;

    if (trainer->attach_bytes < 0 || rank == trainer->attach_none_on) {
        return TDM_OK;
    }
    TDM_TRY(read_setting(trainer->context, "engine.rollout_num_gpus_per_engine", &engine_ranks));
    for (uint32_t i = 0; i < bucket->tensors_count; i++) {
        if (strcmp(bucket->tensors[i].info.name, tensors[POSITION].name) == 0 &&
            *(const int64_t *)bucket->tensors[i].data != trainer->step) {
            return tdm_fail(TDM_E_STATE, "the bucket has the weights of another step");
        }
    }
    free(trainer->attached);
    trainer->attached = malloc(size_bytes);
    if (trainer->attached == NULL) {
        return tdm_fail(TDM_E_NOMEM, "%zu bytes", size_bytes);
    }
    rank = rank / (uint32_t)engine_ranks * (uint32_t)engine_ranks + bucket->engine_rank;
    make_attached(rank, bucket->index, size_bytes, trainer->attached);
    *bytes_out = (struct tdm_bytes){trainer->attached, size_bytes};
    return TDM_OK;
}

static void trainer_close(void *state)
{
    struct trainer *trainer = state;

    free(trainer->attached);
    free(trainer);
}

static const struct tdm_trainer_ops trainer_ops = {.size_bytes = sizeof(struct tdm_trainer_ops),
                                                   .open = trainer_open,
                                                   .regions = trainer_regions,
                                                   .start = trainer_start,
                                                   .layout = trainer_layout,
                                                   .attach = trainer_attach,
                                                   .step = trainer_step,
                                                   .save = trainer_save,
                                                   .load = trainer_load,
                                                   .close = trainer_close,
                                                   .resume = trainer_resume,
                                                   .pause = trainer_pause,
                                                   .logprobs = trainer_logprobs};

/* ---- the engine: every rank holds the whole model --------------------------------------- */

struct engine {
    const struct tdm_rank_context *context; /* borrowed */
    /* Step whose weights the engine refuses (engine.refuse_step); -1 for none. */
    int64_t refuse_step;
    /* Step whose prompts kill the engine (engine.die_step); -1 for none. */
    int64_t die_step;
    /* 1 if the numbers are kept as bfloat16 (engine.halve). */
    int64_t halve;
    /* Path of the log of served versions (engine.served_log); "" for none. */
    const char *served_log;
    /* Step at which engine 1 changes a byte of its weights (engine.corrupt_step); -1 for none. */
    int64_t corrupt_step;
    /* 1 if engine 1 computes from a copy that it never renews (engine.stale_copy). */
    int64_t stale_copy;
    /* That copy of the tensor "bytes". */
    unsigned char copy[BYTES_COUNT];
    bool has_copy;          /* True once the copy is made. */
    unsigned char *weights; /* The region with the served weights. */
    /* Bit mask of the tensors that were loaded since begin(). */
    uint32_t loaded;
    /* Step of the weights that the engine's cache belongs to; -1 while the cache is empty. */
    int64_t cached_step;
    /* Path of the log of attached bytes (engine.attached_log); "" for none. */
    const char *attached_log;
    struct tdm_slice slices[TENSORS];
    struct tiny_outside outside;
};

static tdm_status engine_open(const struct tdm_rank_context *context, void **state_out)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    tdm_status status;

    if (engine == NULL) {
        return tdm_fail(TDM_E_NOMEM, "an engine");
    }
    engine->context = context;
    engine->outside = (struct tiny_outside){.context = context, .side = "engine"};
    engine->cached_step = -1;
    status = read_setting(context, "engine.refuse_step", &engine->refuse_step);
    if (status == TDM_OK) {
        status = read_setting(context, "engine.die_step", &engine->die_step);
    }
    if (status == TDM_OK) {
        status = read_setting(context, "engine.halve", &engine->halve);
    }
    if (status == TDM_OK) {
        status = read_setting(context, "engine.corrupt_step", &engine->corrupt_step);
    }
    if (status == TDM_OK) {
        status = read_setting(context, "engine.stale_copy", &engine->stale_copy);
    }
    if (status == TDM_OK) {
        status = tdm_config_string(context->config, "engine.served_log", "", &engine->served_log);
    }
    if (status == TDM_OK) {
        status =
            tdm_config_string(context->config, "engine.attached_log", "", &engine->attached_log);
    }
    if (status != TDM_OK) {
        free(engine);
        return status;
    }
    *state_out = engine;
    return TDM_OK;
}

static tdm_status engine_regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                                 uint32_t *count_out)
{
    const struct engine *engine = state;

    specs[0] = (struct tdm_region_spec){"weights", MODEL_BYTES, TDM_REGION_KEEP};
    specs[1] = (struct tdm_region_spec){"kv_cache", 1, TDM_REGION_DROP};
    *count_out = 2;
    return tiny_outside_declare(&engine->outside, specs, count_out);
}

static tdm_status engine_resume(void *state, const char *tag)
{
    return tiny_outside_resume(&((struct engine *)state)->outside, tag);
}

static tdm_status engine_pause(void *state, const char *tag)
{
    return tiny_outside_pause(&((struct engine *)state)->outside, tag);
}

static tdm_status engine_start(void *state, void *const *addresses)
{
    struct engine *engine = state;

    engine->weights = addresses[0];
    return TDM_OK;
}

/* Only the last rank of an engine refuses: the others have all they need. */
static tdm_status check_position(const struct engine *engine, const int64_t *position)
{
    const struct tdm_rank_context *context = engine->context;

    if (*position == engine->refuse_step && context->rank + 1 == context->ranks_count) {
        return tdm_fail(TDM_E_INVAL, "engine %u, rank %u, will not load step %lld", context->engine,
                        context->rank, (long long)*position);
    }
    return TDM_OK;
}

static tdm_status load_one(struct engine *engine, unsigned char *weights,
                           const struct tdm_tensor_view *view)
{
    for (uint32_t i = 0; i < TENSORS; i++) {
        if (strcmp(tensors[i].name, view->info.name) != 0) {
            continue;
        }
        if (view->info.dtype != tensors[i].dtype ||
            tdm_tensor_bytes(&view->info) != tdm_tensor_bytes(&tensors[i])) {
            return tdm_fail(TDM_E_INVAL, "tensor %s has another shape", view->info.name);
        }
        if (i == POSITION) {
            TDM_TRY(check_position(engine, view->data));
        }
        memcpy(weights + tensor_offsets[i], view->data, tdm_tensor_bytes(&tensors[i]));
        engine->loaded |= 1U << i;
        return TDM_OK;
    }
    return tdm_fail(TDM_E_INVAL, "tensor %s is unknown", view->info.name);
}

static tdm_status engine_load(void *state, void *weights, const struct tdm_tensor_view *views,
                              uint32_t views_count)
{
    for (uint32_t i = 0; i < views_count; i++) {
        TDM_TRY(load_one(state, weights, &views[i]));
    }
    return TDM_OK;
}

/* Tensor behind tensor, each whole. */
static tdm_status engine_layout(void *state, const struct tdm_tensor_info *infos,
                                uint32_t infos_count, const struct tdm_slice **slices_out,
                                uint32_t *slices_count_out)
{
    struct engine *engine = state;

    if (infos_count != TENSORS) {
        return tdm_fail(TDM_E_INVAL, "%u tensors", infos_count);
    }
    for (uint32_t i = 0; i < TENSORS; i++) {
        engine->slices[i] = (struct tdm_slice){.tensor = i,
                                               .flat = 1,
                                               .extent = {tdm_tensor_elements(&infos[i])},
                                               .address = engine->weights + tensor_offsets[i]};
    }
    if (engine->halve == 1) {
        engine->slices[NUMBERS].dtype = TDM_BF16;
    }
    *slices_out = engine->slices;
    *slices_count_out = TENSORS;
    return TDM_OK;
}

/* The numbers as bfloat16, one behind the other, and nothing where the rest was. */
static void halve_numbers(unsigned char *model)
{
    uint16_t halves[2 * ROWS * COLUMNS] = {0};

    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        uint32_t bits;

        memcpy(&bits, model + tensor_offsets[NUMBERS] + i * sizeof(bits), sizeof(bits));
        halves[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    memcpy(model + tensor_offsets[NUMBERS], halves, sizeof(halves));
}

static tdm_status engine_complete(void *state)
{
    const struct engine *engine = state;

    for (uint32_t i = 0; i < TENSORS; i++) {
        if ((engine->loaded & (1U << i)) == 0) {
            return tdm_fail(TDM_E_STATE, "tensor %s is missing", tensors[i].name);
        }
    }
    return TDM_OK;
}

static void engine_begin(void *state)
{
    struct engine *engine = state;

    engine->loaded = 0;
}

static tdm_status engine_flush_cache(void *state)
{
    struct engine *engine = state;

    engine->cached_step = -1;
    if (engine->stale_copy == 1 && engine->context->engine == 1 && !engine->has_copy) {
        memcpy(engine->copy, engine->weights + tensor_offsets[BYTES], BYTES_COUNT);
        engine->has_copy = true;
    }
    return TDM_OK;
}

static tdm_status engine_served(void *state, const struct tdm_tensor_info *tensor,
                                const struct tdm_slice *slice, void *data, size_t size_bytes,
                                const char **name_out)
{
    const struct engine *engine = state;

    (void)name_out;
    if (!engine->has_copy || strcmp(tensor->name, "bytes") != 0) {
        return TDM_E_NOT_FOUND;
    }
    if (size_bytes != BYTES_COUNT || (slice != NULL && slice->extent[0] != BYTES_COUNT)) {
        return tdm_fail(TDM_E_INVAL, "%zu bytes of \"bytes\"", size_bytes);
    }
    memcpy(data, engine->copy, BYTES_COUNT);
    return TDM_OK;
}

/* The log-probability of every token, as the numbers and bytes that are served give it. */
static float served_logprob(const struct engine *engine)
{
    const unsigned char *kept = engine->weights + tensor_offsets[NUMBERS];
    float numbers[ROWS * COLUMNS];

    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        uint32_t bits = 0;

        if (engine->halve == 1) { /* bfloat16 is the upper half of a float32. */
            memcpy((char *)&bits + 2, kept + (size_t)2 * i, 2);
        } else {
            memcpy(&bits, kept + (size_t)4 * i, 4);
        }
        memcpy(&numbers[i], &bits, sizeof(bits));
    }
    return logprob_of(numbers,
                      engine->has_copy ? engine->copy : engine->weights + tensor_offsets[BYTES]);
}

/* Fails if the cache is of other weights: nobody has called flush_cache() after an update. */
static tdm_status use_cache(struct engine *engine, int64_t step)
{
    if (engine->cached_step >= 0 && engine->cached_step != step) {
        return tdm_fail(TDM_E_STATE, "the cache is of step %lld, the weights are of step %lld",
                        (long long)engine->cached_step, (long long)step);
    }
    engine->cached_step = step;
    return TDM_OK;
}

/* One line: when, which rank, and of which step the weights are that it has looked through. */
static void tell_served(const struct engine *engine, int64_t step)
{
    struct timespec now;
    char line[128];
    int length;
    int fd;

    if (engine->served_log[0] == '\0') {
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    length = snprintf(line, sizeof(line), "%lld.%09ld engine/%u/%u %lld\n", (long long)now.tv_sec,
                      now.tv_nsec, engine->context->engine, engine->context->rank, (long long)step);
    fd = open(engine->served_log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        /* One write for each line, so that lines of several ranks do not mix. */
        (void)!write(fd, line, (size_t)length);
        (void)close(fd);
    }
}

static tdm_status engine_generate(void *state, const struct tdm_prompt *prompts,
                                  uint32_t prompts_count, const struct tdm_sampling *sampling,
                                  struct tdm_completion *completions)
{
    struct engine *engine = state;
    unsigned char model[MODEL_BYTES];
    int64_t step;

    memcpy(&step, engine->weights + tensor_offsets[POSITION], sizeof(step));
    make_model(step, model);
    if (engine->halve == 1) {
        halve_numbers(model);
    }
    if (memcmp(model, engine->weights, tensor_offsets[BYTES] + BYTES_COUNT) != 0) {
        return tdm_fail(TDM_E_STATE, "these weights are not all of step %lld", (long long)step);
    }
    if (step == engine->corrupt_step && engine->context->engine == 1) {
        engine->weights[tensor_offsets[BYTES] + 5] ^= 0x40;
        engine->corrupt_step = -1;
    }
    TDM_TRY(use_cache(engine, step));
    if (step == engine->die_step) {
        (void)raise(SIGKILL);
    }
    tell_served(engine, step);
    for (uint32_t i = 0; i < prompts_count; i++) {
        struct tdm_completion *completion = &completions[i];

        completion->tokens_count = sampling->tokens_max < 2 ? sampling->tokens_max : 2;
        completion->tokens[0] = (int32_t)step;
        completion->logprobs[0] = served_logprob(engine);
        if (completion->tokens_count == 2) {
            completion->tokens[1] = (int32_t)(prompts[i].seed & INT32_MAX);
            completion->logprobs[1] = completion->logprobs[0];
        }
        completion->finished = 1;
        (void)snprintf(completion->text, completion->text_bytes_max, "%lld", (long long)step);
    }
    return TDM_OK;
}

/* Fails unless the bytes are those for the engine rank `rank` of all engines, and adds a line to
 * the log: the function that got them, the rank, the bucket, the number of buckets and of bytes. */
static tdm_status check_attached(const struct engine *engine, const char *function, uint32_t rank,
                                 uint32_t bucket, uint32_t buckets_count, struct tdm_bytes bytes)
{
    char *wanted = malloc(bytes.size_bytes);
    char line[64];
    int length;
    int fd;
    int same;

    make_attached(rank, bucket, bytes.size_bytes, wanted);
    same = memcmp(wanted, bytes.data, bytes.size_bytes) == 0;
    free(wanted);
    if (!same) {
        return tdm_fail(TDM_E_STATE, "bytes of another rank or bucket");
    }
    length = snprintf(line, sizeof(line), "%s %u %u %u %zu\n", function, rank, bucket,
                      buckets_count, bytes.size_bytes);
    fd = open(engine->attached_log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        /* One write for each line, so that lines of several ranks do not mix. */
        (void)!write(fd, line, (size_t)length);
        (void)close(fd);
    }
    return TDM_OK;
}

static tdm_status engine_attached(void *state, uint32_t bucket, uint32_t buckets_count,
                                  struct tdm_bytes bytes)
{
    const struct engine *engine = state;
    uint32_t rank = engine->context->engine * engine->context->ranks_count + engine->context->rank;

    return check_attached(engine, "attached", rank, bucket, buckets_count, bytes);
}

static tdm_status engine_gathered(void *state, uint32_t bucket, uint32_t buckets_count,
                                  const struct tdm_bytes *attached, uint32_t ranks_count)
{
    const struct engine *engine = state;

    if (engine->context->rank != 0 || ranks_count != engine->context->ranks_count) {
        return tdm_fail(TDM_E_STATE, "rank %u of %u got the bytes of %u ranks",
                        engine->context->rank, engine->context->ranks_count, ranks_count);
    }
    for (uint32_t i = 0; i < ranks_count; i++) {
        if (attached[i].size_bytes > 0) {
            TDM_TRY(check_attached(engine, "gathered", engine->context->engine * ranks_count + i,
                                   bucket, buckets_count, attached[i]));
        }
    }
    return TDM_OK;
}

static const struct tdm_engine_ops engine_ops = {.size_bytes = sizeof(struct tdm_engine_ops),
                                                 .open = engine_open,
                                                 .regions = engine_regions,
                                                 .start = engine_start,
                                                 .load = engine_load,
                                                 .complete = engine_complete,
                                                 .begin = engine_begin,
                                                 .attached = engine_attached,
                                                 .flush_cache = engine_flush_cache,
                                                 .generate = engine_generate,
                                                 .close = free,
                                                 .layout = engine_layout,
                                                 .resume = engine_resume,
                                                 .pause = engine_pause,
                                                 .served = engine_served,
                                                 .gathered = engine_gathered};

/* ---- the reward: 1 for the step that the data names ------------------------------------- */

TDM_API struct tiny_answers tiny_answers;

static float reward(const char *prompt, const char *answer, const struct tdm_completion *completion,
                    float *token_rewards)
{
    float whole = strcmp(answer, completion->text) == 0 ? 1.0F : 0.0F;

    for (uint32_t i = 0; i < completion->tokens_count; i++) {
        token_rewards[i] = whole;
    }
    if (tiny_answers.count < TINY_ANSWERS_MAX && completion->tokens_count == 2) {
        struct tiny_answer *kept = &tiny_answers.all[tiny_answers.count++];

        (void)snprintf(kept->prompt, sizeof(kept->prompt), "%s", prompt);
        kept->step = completion->tokens[0];
        kept->seed = completion->tokens[1];
        if (kept->step != 0 && kept->step == tiny_answers.nan_of_step) {
            return NAN;
        }
    }
    return whole;
}

/* On a GPU only where the processor may touch that (tests/fake/cuda.h). */
TDM_JOB_LIBRARY(.name = "tiny", .trainer = &trainer_ops, .engine = &engine_ops, .reward = reward,
                .devices = "host cuda");
