/* engine.c - one tensor-parallel rank of an engine. */
/* SPDX-License-Identifier: Apache-2.0 */
/* An engine rank holds its part of the model's weights and generates answers to prompts. Tandem
 * calls the functions of `engine_ops` from one thread of the engine actor. Prompts are answered in
 * waves: as many as fit into the cache at once. A wave begins with the prefill, which computes
 * every distinct prompt once, and continues with decoding passes of one row per unfinished
 * sequence. All ranks of an engine compute the same tokens, because random numbers depend only on
 * the seed of a prompt and the position. Nothing that generate() computes outlives the call. */
#include "examples/colocated_rl/library.h"
#include "examples/colocated_rl/network.h"
#include "examples/colocated_rl/ops.h"
#include "examples/colocated_rl/random.h"
#include "examples/colocated_rl/sampler.h"
#include "examples/colocated_rl/settings.h"

#include <stdlib.h>
#include <string.h>

/* The regions of an engine rank, in the order in which they are declared to Tandem. */
enum region { WEIGHTS, KV_CACHE, WORKSPACE, REGIONS };

/* A prompt of the current wave. It is computed once for adjacent sequences with this prompt. */
struct prefix {
    /* First slot of the prompt in the cache, and first row of the prompt in the prefill. */
    uint32_t first;
    uint32_t count; /* Number of tokens of the prompt. */
};

/* An answer that is being generated. */
struct sequence {
    uint32_t prefix;                   /* Index of its prompt in engine.prefixes. */
    uint32_t first;                    /* First slot of its own tokens in the cache. */
    uint64_t seed;                     /* Seed of its random numbers. */
    struct tdm_completion *completion; /* The result (borrowed from the caller of generate()). */
};

/* An engine rank; owned by Tandem through the `state` argument of the functions below. */
struct engine {
    const struct tdm_rank_context *context; /* Configuration, rank and group (borrowed). */
    struct machine *machine; /* The machine that computes (owned); NULL before start(). */
    struct settings settings;
    struct model model; /* This rank's part of the model. */
    struct network network;
    uint8_t *loaded; /* 1 for each tensor that has arrived since the update began (owned). */
    struct tdm_slice *slices; /* Destination of each tensor in an update (owned). */

    /* The current wave. All arrays are owned. */
    struct row *rows; /* Rows of the prefill or of a decoding pass, max_total_tokens of them. */
    struct prefix *prefixes;    /* The distinct prompts, max_running_requests of them. */
    struct sequence *sequences; /* The answers, max_running_requests of them. */
    uint32_t *running; /* Indices of the sequences that the rows of a decoding pass belong to. */
    uint32_t rows_count, prefixes_count, sequences_count, slots_count;

    float *ends; /* Hidden values of the last token of each prompt, one row each, on the machine. */
    /* Logits of the latest pass on the machine, max_running_requests × vocab_size. */
    float *logits;
    float *logprobs; /* Log-probabilities of the latest pass in host memory (owned). */
};

/* ---- creation and destruction ------------------------------------------------------------ */

static void engine_close(void *state)
{
    struct engine *engine = state;

    if (engine == NULL) {
        return;
    }
    network_fini(&engine->network);
    model_fini(&engine->model);
    machine_close(engine->machine);
    free(engine->logprobs);
    free(engine->loaded);
    free(engine->slices);
    free(engine->rows);
    free(engine->prefixes);
    free(engine->sequences);
    free(engine->running);
    free(engine);
}

/* Returns the floats of `logits`. */
static size_t logits_floats(const struct engine *engine)
{
    return (size_t)engine->settings.max_running_requests * engine->model.shape.vocab_size;
}

/* Reads the settings and allocates everything but the regions. */
static tdm_status engine_init(struct engine *engine)
{
    const struct tdm_rank_context *context = engine->context;
    const struct settings *settings = &engine->settings;

    TDM_TRY(settings_read(&engine->settings, context->config));
    TDM_TRY(model_init(&engine->model, &settings->shape, context->ranks_count));
    engine->network = (struct network){
        .model = &engine->model,
        .group = context->ranks_count > 1 ? context->group : NULL,
        .rows_max = settings->max_running_requests,
        .slots_max = settings->max_total_tokens,
    };
    TDM_TRY(network_init(&engine->network));
    engine->loaded = calloc(engine->model.tensors_count, sizeof(*engine->loaded));
    engine->slices = calloc(engine->model.tensors_count, sizeof(*engine->slices));
    engine->rows = calloc(settings->max_total_tokens, sizeof(*engine->rows));
    engine->prefixes = calloc(settings->max_running_requests, sizeof(*engine->prefixes));
    engine->sequences = calloc(settings->max_running_requests, sizeof(*engine->sequences));
    engine->running = calloc(settings->max_running_requests, sizeof(*engine->running));
    engine->logprobs = calloc(logits_floats(engine), sizeof(*engine->logprobs));
    if (engine->loaded == NULL || engine->slices == NULL || engine->rows == NULL ||
        engine->prefixes == NULL || engine->sequences == NULL || engine->running == NULL ||
        engine->logprobs == NULL) {
        return tdm_fail(TDM_E_NOMEM, "engine.max_running_requests %u, max_total_tokens %u",
                        settings->max_running_requests, settings->max_total_tokens);
    }
    return TDM_OK;
}

static tdm_status engine_open(const struct tdm_rank_context *context, void **state_out)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    tdm_status status;

    if (engine == NULL) {
        return tdm_fail(TDM_E_NOMEM, "an engine of %zu bytes", sizeof(*engine));
    }
    engine->context = context;
    status = engine_init(engine);
    if (status != TDM_OK) {
        engine_close(engine);
        return status;
    }
    *state_out = engine;
    return TDM_OK;
}

/* Returns the floats of `ends`. */
static size_t ends_floats(const struct engine *engine)
{
    return (size_t)engine->settings.max_running_requests * engine->model.shape.hidden_size;
}

/* Declares the regions. The weights are kept through a pause, because a pause need not be followed
 * by an update. */
static tdm_status engine_regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                                 uint32_t *count_out)
{
    const struct engine *engine = state;
    const struct network *network = &engine->network;
    size_t workspace = network_values_floats(&engine->model, network->rows_max, 0) +
                       ends_floats(engine) + logits_floats(engine);
    size_t cache = network_cache_floats(&engine->model, network->slots_max);

    specs[WEIGHTS] = (struct tdm_region_spec){"weights", engine->model.elements * sizeof(float),
                                              TDM_REGION_KEEP};
    specs[KV_CACHE] = (struct tdm_region_spec){"kv_cache", cache * sizeof(float), TDM_REGION_DROP};
    specs[WORKSPACE] =
        (struct tdm_region_spec){"workspace", workspace * sizeof(float), TDM_REGION_DROP};
    *count_out = REGIONS;
    return TDM_OK;
}

/* Opens the machine, divides the workspace and sets the weights to 0. */
static tdm_status engine_start(void *state, void *const *addresses)
{
    struct engine *engine = state;
    const struct filling nothing = {addresses[WEIGHTS], engine->model.elements};

    TDM_TRY(machine_open(engine->settings.device, &engine->machine));
    engine->machine->ops->zero(engine->machine, &nothing);
    engine->network.weights = addresses[WEIGHTS];
    network_bind_memory(&engine->network, engine->machine, addresses[WORKSPACE],
                        addresses[KV_CACHE]);
    engine->ends = (float *)addresses[WORKSPACE] +
                   network_values_floats(&engine->model, engine->network.rows_max, 0);
    engine->logits = engine->ends + ends_floats(engine);
    return engine->machine->ops->finish(engine->machine);
}

/* ---- weights ---------------------------------------------------------------------------- */

/* Returns the bytes from the first element of a view to the end of its last element. */
static size_t view_bytes(const struct tdm_tensor_view *view)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < view->info.dims_count; i++) {
        if (view->info.shape[i] == 0) {
            return 0;
        }
        last += (view->info.shape[i] - 1) * view->stride[i];
    }
    return (size_t)(last + 1) * tdm_dtype_bytes(view->info.dtype);
}

/* Loads a tensor into a machine whose memory the processor cannot access: copies the tensor to host
 * memory, cuts out this rank's part and copies that back. */
static tdm_status load_through_host(const struct engine *engine, uint32_t index,
                                    const struct tdm_tensor_view *tensor, float *weights)
{
    struct machine *machine = engine->machine;
    struct tdm_tensor_view view = *tensor;
    size_t part_bytes = tdm_tensor_bytes(&engine->model.tensors[index]);
    size_t whole_bytes = view_bytes(tensor);
    void *whole = malloc(whole_bytes > 0 ? whole_bytes : 1);
    float *part = malloc(part_bytes);
    tdm_status status =
        whole != NULL && part != NULL
            ? TDM_OK
            : tdm_fail(TDM_E_NOMEM, "tensor %s of %zu bytes", tensor->info.name, whole_bytes);

    view.data = whole;
    if (status == TDM_OK) {
        status = machine->ops->read(machine, whole, tensor->data, whole_bytes);
    }
    if (status == TDM_OK) {
        status = model_cut(&engine->model, index, engine->context->rank, &view, part);
    }
    if (status == TDM_OK) {
        status = machine->ops->write(machine, weights, part, part_bytes);
    }
    free(whole);
    free(part);
    return status;
}

/* Copies this rank's part of a whole tensor to `weights`. */
static tdm_status engine_load_tensor(const struct engine *engine, uint32_t index,
                                     const struct tdm_tensor_view *tensor, float *weights)
{
    return engine->machine->ops->computes_on_host
               ? model_cut(&engine->model, index, engine->context->rank, tensor, weights)
               : load_through_host(engine, index, tensor, weights);
}

/* Copies this rank's part of each of these tensors to its offset in `weights`. */
static tdm_status engine_load(void *state, void *weights, const struct tdm_tensor_view *tensors,
                              uint32_t tensors_count)
{
    struct engine *engine = state;

    for (uint32_t i = 0; i < tensors_count; i++) {
        uint32_t index = model_find(&engine->model, tensors[i].info.name);

        if (index == engine->model.tensors_count) {
            return tdm_fail(TDM_E_INVAL, "the model has no tensor %s", tensors[i].info.name);
        }
        TDM_TRY(engine_load_tensor(engine, index, &tensors[i],
                                   (float *)weights + engine->model.offsets[index]));
        engine->loaded[index] = 1;
    }
    return TDM_OK;
}

/* Describes where an update should write each tensor, so that load() is not needed. */
static tdm_status engine_layout(void *state, const struct tdm_tensor_info *tensors,
                                uint32_t tensors_count, const struct tdm_slice **slices_out,
                                uint32_t *slices_count_out)
{
    struct engine *engine = state;

    if (tensors_count != engine->model.tensors_count) {
        return tdm_fail(TDM_E_INVAL, "%u tensors arrived, but the model has %u", tensors_count,
                        engine->model.tensors_count);
    }
    for (uint32_t i = 0; i < tensors_count; i++) {
        uint32_t index = model_find(&engine->model, tensors[i].name);
        struct tdm_tensor_info want;

        if (index == engine->model.tensors_count) {
            return tdm_fail(TDM_E_INVAL, "the model has no tensor %s", tensors[i].name);
        }
        model_whole_tensor(&engine->model, index, &want);
        if (tensors[i].dtype != want.dtype || tensors[i].dims_count != want.dims_count ||
            memcmp(tensors[i].shape, want.shape, sizeof(want.shape)) != 0) {
            return tdm_fail(TDM_E_INVAL, "tensor %s has another dtype or shape", tensors[i].name);
        }
        engine->slices[i] = model_slice(&engine->model, index, engine->context->rank);
        engine->slices[i].tensor = i;
        engine->slices[i].address = engine->network.weights + engine->model.offsets[index];
    }
    *slices_out = engine->slices;
    *slices_count_out = tensors_count;
    return TDM_OK;
}

/* TDM_E_STATE if a tensor has not arrived since the update began. */
static tdm_status engine_complete(void *state)
{
    const struct engine *engine = state;
    uint32_t missing = 0;
    const char *name = NULL;

    for (uint32_t i = engine->model.tensors_count; i-- > 0;) {
        if (!engine->loaded[i]) {
            missing++;
            name = engine->model.tensors[i].name;
        }
    }
    return missing == 0
               ? TDM_OK
               : tdm_fail(TDM_E_STATE, "%u of %u tensors did not arrive, the first of them is %s",
                          missing, engine->model.tensors_count, name);
}

/* Begins an update: no tensor has arrived. */
static void engine_begin(void *state)
{
    struct engine *engine = state;

    memset(engine->loaded, 0, engine->model.tensors_count);
}

/* Has nothing to do, since nothing computed outlives generate(). */
static tdm_status engine_flush_cache(void *state)
{
    (void)state;
    return TDM_OK;
}

/* ---- a wave of answers ------------------------------------------------------------------ */

/* Appends a prompt's tokens to the rows of the prefill. */
static void add_prefix(struct engine *engine, const int32_t *tokens, uint32_t count)
{
    struct prefix *prefix = &engine->prefixes[engine->prefixes_count++];

    *prefix = (struct prefix){.first = engine->slots_count, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        engine->rows[engine->rows_count++] =
            (struct row){.token = tokens[i], .slot = prefix->first + i, .first = prefix->first};
    }
    engine->slots_count += count;
}

/* Prepares the next wave with as many prompts as fit. Stores their number, at least one, in
 * *taken_out. */
static tdm_status gather_wave(struct engine *engine, const struct tdm_prompt *prompts,
                              uint32_t prompts_count, uint32_t tokens_max, uint32_t *taken_out)
{
    const struct settings *settings = &engine->settings;
    uint32_t most = settings->max_running_requests;
    int32_t *tokens = calloc(settings->prompt_max, sizeof(*tokens));
    tdm_status status = tokens == NULL ? tdm_fail(TDM_E_NOMEM, "a prompt") : TDM_OK;
    uint32_t taken = 0;

    engine->rows_count = engine->prefixes_count = engine->slots_count = 0;
    for (; status == TDM_OK && taken < prompts_count && taken < most; taken++) {
        int follows = taken > 0 && strcmp(prompts[taken].text, prompts[taken - 1].text) == 0;
        uint32_t count = 0;

        status = tokenizer_encode(&settings->tokenizer, prompts[taken].text, TOKEN_ANSWER, tokens,
                                  settings->prompt_max, &count);
        if (status != TDM_OK ||
            engine->slots_count + count + tokens_max > settings->max_total_tokens) {
            break;
        }
        if (!follows) {
            add_prefix(engine, tokens, count);
        }
        engine->sequences[taken] = (struct sequence){
            .prefix = engine->prefixes_count - 1,
            .first = engine->slots_count,
            .seed = prompts[taken].seed,
        };
        engine->slots_count += tokens_max - 1;
    }
    free(tokens);
    engine->sequences_count = taken;
    *taken_out = taken;
    return status;
}

/* Copies the hidden values of row `from` of the latest pass, which is the last token of a
 * prompt. */
static void store_end_hidden(struct engine *engine, uint32_t prefix, size_t from)
{
    size_t width = engine->model.shape.hidden_size;
    const struct transfer work = {
        .to = engine->ends + prefix * width,
        .from = engine->network.hidden + from * width,
        .width = width,
        .count = 1,
    };

    engine->machine->ops->transfer(engine->machine, &work);
}

/* Computes all prompts in passes of at most rows_max rows, and stores the hidden values of their
 * last tokens. */
static tdm_status prefill(struct engine *engine)
{
    struct network *network = &engine->network;
    uint32_t prefix = 0;
    size_t end = engine->prefixes[0].count - 1; /* Row of the last token of the prompt. */

    for (size_t from = 0; from < engine->rows_count; from += network->rows_max) {
        size_t count = engine->rows_count - from < network->rows_max ? engine->rows_count - from
                                                                     : network->rows_max;

        TDM_TRY(network_forward(network, engine->rows + from, count));
        while (prefix < engine->prefixes_count && end < from + count) {
            store_end_hidden(engine, prefix, end - from);
            prefix++;
            end += prefix < engine->prefixes_count ? engine->prefixes[prefix].count : 0;
        }
    }
    return TDM_OK;
}

/* Computes log-probabilities from hidden values, one row each, and copies them to host memory. */
static tdm_status compute_logprobs(struct engine *engine, const float *hidden, size_t count,
                                   double temperature)
{
    struct machine *machine = engine->machine;
    const struct log_softmax work = {
        .x = engine->logits,
        .scale = temperature > 0.0 ? (float)(1.0 / temperature) : 1.0F,
        .width = engine->model.shape.vocab_size,
        .count = count,
    };

    network_head(&engine->network, hidden, count, engine->logits);
    machine->ops->log_softmax(machine, &work);
    return machine->ops->read(machine, engine->logprobs, engine->logits,
                              count * work.width * sizeof(float));
}

/* Appends the next token to the sequence, drawn from the log-probabilities of `row`. */
static void sequence_extend(struct engine *engine, struct sequence *sequence, size_t row,
                            double temperature)
{
    size_t width = engine->model.shape.vocab_size;
    const float *logprobs = engine->logprobs + row * width;
    struct tdm_completion *completion = sequence->completion;
    uint32_t at = completion->tokens_count++;
    int32_t token = temperature > 0.0
                        ? sampler_draw(logprobs, width, random_uniform(sequence->seed, at))
                        : sampler_best(logprobs, width);

    completion->tokens[at] = token;
    completion->logprobs[at] = logprobs[token];
    completion->finished = token == TOKEN_END;
}

/* Fills `rows` with one row for each unfinished sequence and returns their number. */
static uint32_t gather_running(struct engine *engine, uint32_t tokens_max)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < engine->sequences_count; i++) {
        const struct sequence *sequence = &engine->sequences[i];
        const struct prefix *prefix = &engine->prefixes[sequence->prefix];
        uint32_t made = sequence->completion->tokens_count;

        if (sequence->completion->finished || made == tokens_max) {
            continue;
        }
        engine->running[count] = i;
        engine->rows[count++] = (struct row){
            .token = sequence->completion->tokens[made - 1],
            .slot = sequence->first + made - 1,
            .first = sequence->first,
            .prefix_first = prefix->first,
            .prefix_count = prefix->count,
        };
    }
    return count;
}

/* Generates the answers of the current wave. */
static tdm_status generate_wave(struct engine *engine, const struct tdm_sampling *sampling)
{
    uint32_t count;

    TDM_TRY(prefill(engine));
    TDM_TRY(compute_logprobs(engine, engine->ends, engine->prefixes_count, sampling->temperature));
    for (uint32_t i = 0; i < engine->sequences_count; i++) {
        struct sequence *sequence = &engine->sequences[i];

        sequence_extend(engine, sequence, sequence->prefix, sampling->temperature);
    }
    while ((count = gather_running(engine, sampling->tokens_max)) > 0) {
        TDM_TRY(network_forward(&engine->network, engine->rows, count));
        TDM_TRY(compute_logprobs(engine, engine->network.hidden, count, sampling->temperature));
        for (uint32_t row = 0; row < count; row++) {
            sequence_extend(engine, &engine->sequences[engine->running[row]], row,
                            sampling->temperature);
        }
    }
    return TDM_OK;
}

/* Generates one completion for each prompt. */
static tdm_status engine_generate(void *state, const struct tdm_prompt *prompts,
                                  uint32_t prompts_count, const struct tdm_sampling *sampling,
                                  struct tdm_completion *completions)
{
    struct engine *engine = state;
    uint32_t taken;

    if (sampling->tokens_max == 0 || sampling->tokens_max > engine->settings.answer_max) {
        return tdm_fail(TDM_E_INVAL, "%u tokens an answer, wanted 1 to %u", sampling->tokens_max,
                        engine->settings.answer_max);
    }
    for (uint32_t done = 0; done < prompts_count; done += taken) {
        TDM_TRY(gather_wave(engine, prompts + done, prompts_count - done, sampling->tokens_max,
                            &taken));
        for (uint32_t i = 0; i < taken; i++) {
            engine->sequences[i].completion = &completions[done + i];
            completions[done + i].tokens_count = 0;
            completions[done + i].finished = 0;
        }
        TDM_TRY(generate_wave(engine, sampling));
    }
    for (uint32_t i = 0; i < prompts_count; i++) {
        struct tdm_completion *completion = &completions[i];

        tokenizer_decode(&engine->settings.tokenizer, completion->tokens,
                         completion->tokens_count - (completion->finished ? 1 : 0),
                         completion->text, completion->text_bytes_max);
    }
    return TDM_OK;
}

const struct tdm_engine_ops engine_ops = {
    .size_bytes = sizeof(struct tdm_engine_ops),
    .open = engine_open,
    .regions = engine_regions,
    .start = engine_start,
    .load = engine_load,
    .complete = engine_complete,
    .begin = engine_begin,
    .flush_cache = engine_flush_cache,
    .generate = engine_generate,
    .close = engine_close,
    .layout = engine_layout,
};
