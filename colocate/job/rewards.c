/* rewards.c - rewards that an actor computes with the job library. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The upper half is the actor class "tandem.rewards". Its constructor opens the library and its
 * state; the method "score" decodes answers, calls the library and replies the rewards, on the
 * actor's method thread. The lower half runs in the controller: it creates the actor, sends the
 * answers of a rollout, and counts the rewards that have failed. The messages are declared in
 * runtime/messages/job.def; arrays of numbers travel as bytes. */
#include "colocate/job/rewards.h"

#include "colocate/job/library.h"
#include "colocate/job/python_library.h"
#include "colocate/job/rank.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Most answers of one request; most tokens of an answer. */
enum { ITEMS_MAX = 1 << 20, TOKENS_MAX = 1 << 20 };

/* State of the actor. */
struct reward_actor {
    tdm_config *config;              /* Owned settings of the job file. */
    struct tdm__rank_files files;    /* Where the files of the job are on this node. */
    struct tdm__job_library library; /* Library of the job; never closed. */
    struct tdm_rank_context context; /* What the library's state borrows. */
    void *state;                     /* State of the library; NULL before it was opened. */
};

/* Answers whose rewards are wanted, with the memory that they refer to. */
struct scoring {
    struct tdm_reward_request *requests; /* Owned array of the requests. */
    struct tdm_completion *completions;  /* Owned array of their answers. */
    char *numbers;  /* Owned tokens, log-probabilities and rewards of all answers. */
    uint32_t count; /* Number of answers. */
};

/* ---- the actor: construction
 * ------------------------------------------------------------------------ */

/* Constructor of the class. */
static tdm_status reward_construct(tdm_call *call, void *self)
{
    struct reward_actor *actor = self;
    struct tdm__rank_arguments_message arguments;

    TDM_TRY(tdm__rank_arguments_decode(tdm_call_arguments(call), &arguments));
    TDM_TRY(tdm_config_parse(arguments.config_json, strlen(arguments.config_json),
                             arguments.config_name, &actor->config));
    TDM_TRY(tdm__rank_files_open(tdm_runtime_current(), &arguments, actor->config, &actor->files,
                                 &actor->library));
    if (actor->library.jobs->rewards == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s has no reward table", arguments.library);
    }
    actor->context =
        (struct tdm_rank_context){.config = actor->config,
                                  .ranks_count = 1,
                                  .seed = arguments.seed,
                                  .module_folder = tdm__rank_files_module_folder(&actor->files)};
    return actor->library.jobs->rewards->open(&actor->context, &actor->state);
}

/* Runs when the actor ends gracefully. */
static void reward_destruct(void *self)
{
    struct reward_actor *actor = self;

    if (actor->state != NULL) {
        actor->library.jobs->rewards->close(actor->state);
    }
    tdm_config_destroy(actor->config);
}

/* ---- the actor: score
 * ------------------------------------------------------------------------------- */

/* Frees the arrays. */
static void scoring_fini(struct scoring *scoring)
{
    free(scoring->requests);
    free(scoring->completions);
    free(scoring->numbers);
}

/* Checks the lengths of an answer and returns its number of tokens. */
static tdm_status count_tokens(const struct tdm__reward_item_message *item, uint32_t *count_out)
{
    size_t count = item->tokens.size_bytes / sizeof(int32_t);

    if (item->tokens.size_bytes != count * sizeof(int32_t) || count > TOKENS_MAX ||
        item->logprobs.size_bytes != item->tokens.size_bytes) {
        return tdm__fail(TDM_E_PROTOCOL, "an answer of %zu bytes of tokens, %zu of probabilities",
                         item->tokens.size_bytes, item->logprobs.size_bytes);
    }
    *count_out = (uint32_t)count;
    return TDM_OK;
}

/* Allocates the arrays for the answers of a message. */
static tdm_status scoring_allocate(struct scoring *scoring, const struct tdm__message_list *items)
{
    size_t tokens = 0;

    if (items->count > ITEMS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u answers, at most %d", items->count, (int)ITEMS_MAX);
    }
    for (uint32_t i = 0; i < items->count; i++) {
        struct tdm__reward_item_message item;
        uint32_t count = 0;

        tdm__message_list_read(items, i, &item, sizeof(item));
        TDM_TRY(tdm__wrap(count_tokens(&item, &count), "answer %u", i));
        tokens += count;
    }
    scoring->count = items->count;
    scoring->requests = calloc((size_t)items->count + 1, sizeof(*scoring->requests));
    scoring->completions = calloc((size_t)items->count + 1, sizeof(*scoring->completions));
    scoring->numbers = calloc(tokens + 1, sizeof(int32_t) + 2 * sizeof(float));
    return scoring->requests == NULL || scoring->completions == NULL || scoring->numbers == NULL
               ? tdm__fail(TDM_E_NOMEM, "%u answers of %zu tokens", items->count, tokens)
               : TDM_OK;
}

/* Copies the numbers of an answer to `*numbers`, which it advances, because bytes in a message may
 * not be aligned. The texts are borrowed. */
static void scoring_fill(struct scoring *scoring, uint32_t index,
                         const struct tdm__reward_item_message *item, char **numbers)
{
    struct tdm_completion *completion = &scoring->completions[index];
    size_t size_bytes = item->tokens.size_bytes;

    *completion = (struct tdm_completion){.tokens = (int32_t *)(void *)*numbers,
                                          .logprobs = (float *)(void *)(*numbers + size_bytes),
                                          .tokens_count = (uint32_t)(size_bytes / sizeof(int32_t)),
                                          .text = (char *)(uintptr_t)item->text,
                                          .text_bytes_max = strlen(item->text) + 1,
                                          .finished = item->finished};
    if (size_bytes > 0) {
        memcpy(completion->tokens, item->tokens.data, size_bytes);
        memcpy(completion->logprobs, item->logprobs.data, size_bytes);
    }
    scoring->requests[index] =
        (struct tdm_reward_request){.prompt = item->prompt,
                                    .answer = item->answer,
                                    .completion = completion,
                                    .token_rewards = (float *)(void *)(*numbers + 2 * size_bytes)};
    *numbers += 3 * size_bytes;
}

/* Getter of a message list: fills the message of reward `index`. A failed one is 0. */
static void get_result(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm_reward_request *request = &((const struct tdm_reward_request *)arg)[index];
    struct tdm__reward_result_message *item = item_out;
    bool has_failed = request->failure[0] != '\0';

    if (has_failed) {
        memset(request->token_rewards, 0, request->completion->tokens_count * sizeof(float));
    }
    *item = (struct tdm__reward_result_message){
        .reward = has_failed ? 0 : (double)request->reward,
        .token_rewards = {request->token_rewards,
                          request->completion->tokens_count * sizeof(float)},
        .failure = has_failed ? request->failure : NULL};
}

/* Replies with the rewards. */
static tdm_status reply_rewards(const struct scoring *scoring, tdm_call *call)
{
    const struct tdm__reward_results_message message = {
        .results = {.count = scoring->count, .get = get_result, .arg = scoring->requests}};
    tdm_writer *writer;
    tdm_status status;

    for (uint32_t i = 0; i < scoring->count; i++) {
        scoring->requests[i].failure[TDM_REWARD_FAILURE_BYTES - 1] = '\0';
    }
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__reward_results_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Decodes the answers of a message, lets the library reward them, and replies. */
static tdm_status score_items(const struct reward_actor *actor, struct scoring *scoring,
                              const struct tdm__message_list *items, tdm_call *call)
{
    char *numbers;

    TDM_TRY(scoring_allocate(scoring, items));
    numbers = scoring->numbers;
    for (uint32_t i = 0; i < items->count; i++) {
        struct tdm__reward_item_message item;

        tdm__message_list_read(items, i, &item, sizeof(item));
        scoring_fill(scoring, i, &item, &numbers);
    }
    TDM_TRY(actor->library.jobs->rewards->score(actor->state, scoring->requests, scoring->count));
    return reply_rewards(scoring, call);
}

/* Method "score": computes the rewards of answers. */
static tdm_status reward_score(tdm_call *call, void *self)
{
    struct tdm__reward_items_message message;
    struct scoring scoring = {.count = 0};
    tdm_status status;

    TDM_TRY(tdm__reward_items_decode(tdm_call_arguments(call), &message));
    status = score_items(self, &scoring, &message.items, call);
    scoring_fini(&scoring);
    return status;
}

static const struct tdm_actor_class reward_class = {.name = "tandem.rewards",
                                                    .state_bytes = sizeof(struct reward_actor),
                                                    .construct = reward_construct,
                                                    .destruct = reward_destruct,
                                                    .methods = {{"score", reward_score}}};

__attribute__((constructor)) static void register_rewards(void)
{
    tdm_class_register(&reward_class);
}

/* ---- the controller: the actor's life ---------------------------------------------------- */

/* Creates the actor with the arguments of a rank. */
static tdm_status create_actor(struct tdm__rewards *rewards, tdm_runtime *runtime,
                               const struct tdm__job_spec *spec, const char *config_json)
{
    struct tdm__rank_arguments_message arguments = {.config_json = config_json,
                                                    .config_name = "job file",
                                                    .library = spec->library,
                                                    .model_config = spec->model_config,
                                                    .model = spec->update_model,
                                                    .group = "",
                                                    .ranks_count = 1,
                                                    .seed = spec->seed};
    char name[TDM__RANK_NAME_BYTES];
    struct tdm_actor_options options = {.name = name, .environment = {"OPENBLAS_NUM_THREADS=1"}};
    struct tdm__python_actor *python = calloc(1, sizeof(*python));
    tdm_writer *writer = NULL;
    tdm_status status =
        python == NULL ? tdm__fail(TDM_E_NOMEM, "an actor's options") : tdm_writer_create(&writer);

    tdm__rank_name(name, spec->update_model, "rewards");
    tdm__job_contents_describe(rewards->contents, &arguments);
    if (status == TDM_OK) {
        status = tdm__python_actor_init(python, spec, &options);
    }
    if (status == TDM_OK) {
        status = tdm__rank_arguments_encode(&arguments, writer);
    }
    if (status == TDM_OK) {
        status = tdm_actor_create_packed(runtime, "tandem.rewards", &options,
                                         tdm_writer_bytes(writer), &rewards->actor);
    }
    tdm_writer_destroy(writer);
    free(python);
    return status;
}

/* Waits until the actor is constructed. */
static tdm_status await_start(const struct tdm__rewards *rewards, const struct tdm__job_spec *spec)
{
    tdm_status status = tdm_actor_wait_ready(rewards->actor, (int64_t)spec->start_timeout_ms);

    return status == TDM_E_TIMEOUT
               ? tdm__wrap(status, "the actor did not start within %u ms (job.start_timeout_ms)",
                           spec->start_timeout_ms)
               : status;
}

/* Creates the actor and waits until it is constructed. If the actor of an earlier job still has the
 * name, tries again for a while: that job may have ended just now. */
static tdm_status create_with_name(struct tdm__rewards *rewards, tdm_runtime *runtime,
                                   const struct tdm__job_spec *spec, const char *config_json,
                                   int64_t names_ms)
{
    const struct timespec pause = {.tv_nsec = 200000000};
    int64_t deadline_ms = tdm__deadline_after(names_ms);
    tdm_status status;

    for (;;) {
        status = create_actor(rewards, runtime, spec, config_json);
        if (status == TDM_OK) {
            status = await_start(rewards, spec);
        }
        if (status != TDM_E_EXISTS || tdm__deadline_remaining_ms(deadline_ms) == 0) {
            return status;
        }
        tdm_actor_destroy(rewards->actor);
        rewards->actor = NULL;
        (void)nanosleep(&pause, NULL);
    }
}

tdm_status tdm__rewards_start(struct tdm__rewards *rewards, tdm_runtime *runtime,
                              const struct tdm__job_spec *spec, int64_t names_ms)
{
    char *config_json;
    tdm_status status;

    TDM_TRY(tdm_config_json(spec->config, &config_json));
    status = create_with_name(rewards, runtime, spec, config_json, names_ms);
    free(config_json);
    if (status != TDM_OK) {
        char detail[TDM__ERROR_DETAIL_BYTES];

        (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        tdm__rewards_stop(rewards);
        return tdm__fail(status, "rewards: %s", detail);
    }
    return TDM_OK;
}

void tdm__rewards_stop(struct tdm__rewards *rewards)
{
    if (rewards->actor != NULL) {
        (void)tdm_actor_kill(rewards->actor, TDM__WORKER_KILL_MS);
        tdm_actor_destroy(rewards->actor);
        rewards->actor = NULL;
    }
}

/* ---- the controller: score --------------------------------------------------------------- */

/* Getter of a message list: fills the message of answer `index`. */
static void get_item(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm__rewards_batch *batch = arg;
    const struct tdm_completion *completion = &batch->completions[index];
    struct tdm__reward_item_message *item = item_out;

    *item = (struct tdm__reward_item_message){
        .prompt = batch->samples[index].prompt,
        .answer = batch->samples[index].answer,
        .tokens = {completion->tokens, completion->tokens_count * sizeof(int32_t)},
        .logprobs = {completion->logprobs, completion->tokens_count * sizeof(float)},
        .text = completion->text,
        .finished = completion->finished != 0};
}

/* Stores one reward. */
static tdm_status read_result(const struct tdm__rewards_batch *batch, uint32_t index,
                              const struct tdm__reward_result_message *result)
{
    struct tdm_sample *sample = &batch->samples[index];
    size_t size_bytes = sample->tokens_count * sizeof(float);

    if (result->token_rewards.size_bytes != size_bytes) {
        return tdm__fail(TDM_E_PROTOCOL, "%zu bytes of rewards for %u tokens",
                         result->token_rewards.size_bytes, sample->tokens_count);
    }
    sample->reward = (float)result->reward;
    if (size_bytes > 0) {
        memcpy(batch->token_rewards + (size_t)index * batch->tokens_max, result->token_rewards.data,
               size_bytes);
    }
    return TDM_OK;
}

/* Stores the rewards of a reply, and counts those that have failed. */
static tdm_status read_results(const struct tdm__rewards_batch *batch, const tdm_value *reply,
                               uint32_t failures_max)
{
    struct tdm__reward_results_message message;
    char first[TDM__ERROR_DETAIL_BYTES / 2] = "";
    uint32_t failures_count = 0;

    TDM_TRY(tdm__reward_results_decode(reply, &message));
    if (message.results.count != batch->count) {
        return tdm__fail(TDM_E_PROTOCOL, "%u rewards for %u answers", message.results.count,
                         batch->count);
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        struct tdm__reward_result_message result;

        tdm__message_list_read(&message.results, i, &result, sizeof(result));
        TDM_TRY(tdm__wrap(read_result(batch, i, &result), "reward %u", i));
        if (result.failure != NULL && failures_count++ == 0) {
            (void)snprintf(first, sizeof(first), "of the prompt \"%.100s\", failed: %s",
                           batch->samples[i].prompt, result.failure);
        }
    }
    if (failures_count > failures_max) {
        return tdm__fail(TDM_E_METHOD,
                         "%u of %u rewards failed, rollout.reward_failures_max allows %u; the "
                         "first, %s",
                         failures_count, batch->count, failures_max, first);
    }
    if (failures_count > 0) {
        tdm__log(TDM__WARN, "job", "%u of %u rewards failed and are 0; the first, %s",
                 failures_count, batch->count, first);
    }
    return TDM_OK;
}

tdm_status tdm__rewards_score(const struct tdm__rewards *rewards, struct tdm__worker_group *workers,
                              const struct tdm__rewards_batch *batch)
{
    const struct tdm__reward_items_message message = {
        .items = {.count = batch->count, .get = get_item, .arg = batch}};
    const tdm_value *reply = NULL;
    tdm_ref *ref = NULL;
    tdm_status status =
        tdm__rank_call(rewards->actor, "score", tdm__reward_items_table(), &message, &ref);

    if (status == TDM_OK) {
        status = tdm__worker_group_await(workers, &ref, 1, workers->spec->rewards_timeout_ms);
    }
    if (status == TDM_OK) {
        status = tdm_get_value(ref, 0, &reply);
    }
    if (status == TDM_OK) {
        status = read_results(batch, reply, workers->spec->reward_failures_max);
    }
    tdm_ref_release(ref);
    return tdm__wrap(status, "rewards");
}
