/* reward_actor.c - the actor class that computes rewards with a job library. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The constructor opens the library and its state; the method "score" decodes answers, calls the
 * library and replies the rewards. All of it runs on the actor's method thread. */
#include "colocate/job/library.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>
#include <tandem/actor.h>

/* Most answers of one request, and most tokens of an answer. */
enum { ITEMS_MAX = 1 << 20, TOKENS_MAX = 1 << 20 };

/* State of the actor. */
struct reward_actor {
    tdm_config *config;              /* Owned settings of the job file. */
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

/* ---- construction ------------------------------------------------------------------------ */

/* Constructor of the class. */
static tdm_status reward_construct(tdm_call *call, void *self)
{
    struct reward_actor *actor = self;
    struct tdm__rank_arguments_message arguments;

    TDM_TRY(tdm__rank_arguments_decode(tdm_call_arguments(call), &arguments));
    TDM_TRY(tdm_config_parse(arguments.config_json, strlen(arguments.config_json),
                             arguments.config_name, &actor->config));
    TDM_TRY(tdm__job_library_open(arguments.library, &actor->library));
    if (actor->library.jobs->rewards == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s has no reward table", arguments.library);
    }
    actor->context = (struct tdm_rank_context){
        .config = actor->config, .ranks_count = 1, .seed = arguments.seed};
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

/* ---- score ------------------------------------------------------------------------------- */

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
