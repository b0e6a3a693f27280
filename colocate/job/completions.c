/* completions.c - encodes prompts for an engine and decodes its completions. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The upper half runs in the engine actor, the lower half in the controller. The messages are
 * declared in runtime/messages/messages.h. One allocation holds the tokens, log-probabilities
 * and texts of all completions; its size follows from the token limit of the request. Limits on
 * counts protect against malformed requests. The functions have no state. */
#include "colocate/job/completions.h"

#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

/* Most prompts and most tokens for each completion in one request. */
enum { PROMPTS_MAX = 1 << 20, TOKENS_MAX = 1 << 20 };

/* ---- the engine's side ------------------------------------------------------------------ */

/* Allocates the arrays of a generation and points each completion to its part of the buffer. */
static tdm_status allocate_completions(struct tdm__generation *generation)
{
    size_t tokens = generation->sampling.tokens_max;
    size_t text = tokens * TDM__COMPLETION_TEXT_BYTES_PER_TOKEN + 1;
    size_t each = (tokens * (sizeof(int32_t) + sizeof(float)) + text + 7) / 8 * 8;
    size_t count = generation->prompts_count;

    generation->prompts = calloc(count + 1, sizeof(*generation->prompts));
    generation->completions = calloc(count + 1, sizeof(*generation->completions));
    generation->buffer = calloc(count + 1, each);
    if (generation->prompts == NULL || generation->completions == NULL ||
        generation->buffer == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%zu answers of %zu tokens", count, tokens);
    }
    for (size_t i = 0; i < count; i++) {
        char *memory = generation->buffer + i * each;

        generation->completions[i] = (struct tdm_completion){
            .tokens = (int32_t *)(void *)memory,
            .logprobs = (float *)(void *)(memory + tokens * sizeof(int32_t)),
            .text = memory + tokens * (sizeof(int32_t) + sizeof(float)),
            .text_bytes_max = text};
    }
    return TDM_OK;
}

/* Copies the prompts of the request; their texts are borrowed. */
static void read_prompts(const struct tdm__message_list *prompts,
                         struct tdm__generation *generation)
{
    for (uint32_t i = 0; i < generation->prompts_count; i++) {
        struct tdm__prompt_message prompt;

        tdm__message_list_read(prompts, i, &prompt, sizeof(prompt));
        generation->prompts[i].text = prompt.text;
        generation->prompts[i].seed = prompt.seed;
    }
}

tdm_status tdm__generation_read_request(const tdm_value *arguments,
                                        struct tdm__generation *generation_out)
{
    struct tdm__generation generation = {.prompts_count = 0};
    struct tdm__generate_message message;
    tdm_status status;

    TDM_TRY(tdm__generate_decode(arguments, &message));
    if (message.tokens_max == 0 || message.tokens_max > TOKENS_MAX ||
        message.prompts.count > PROMPTS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u prompts of at most %llu tokens", message.prompts.count,
                         (unsigned long long)message.tokens_max);
    }
    if (!(message.temperature >= 0)) { /* Written so that NAN is refused, too. */
        return tdm__fail(TDM_E_INVAL, "temperature %g", message.temperature);
    }
    generation.sampling.temperature = message.temperature;
    generation.sampling.tokens_max = (uint32_t)message.tokens_max;
    generation.prompts_count = message.prompts.count;
    status = allocate_completions(&generation);
    if (status != TDM_OK) {
        tdm__generation_fini(&generation);
        return status;
    }
    read_prompts(&message.prompts, &generation);
    *generation_out = generation;
    return TDM_OK;
}

void tdm__generation_fini(struct tdm__generation *generation)
{
    free(generation->prompts);
    free(generation->completions);
    free(generation->buffer);
}

/* Getter of a message list: fills the message of completion `index`. */
static void get_completion(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm_completion *completion = &((const struct tdm_completion *)arg)[index];
    struct tdm__completion_message *item = item_out;

    *item = (struct tdm__completion_message){
        .tokens = {completion->tokens, completion->tokens_count * sizeof(int32_t)},
        .logprobs = {completion->logprobs, completion->tokens_count * sizeof(float)},
        .text = completion->text,
        .finished = completion->finished != 0};
}

tdm_status tdm__generation_write_reply(tdm_writer *writer, const struct tdm__generation *generation,
                                       uint64_t version)
{
    const struct tdm__generated_message message = {
        .version = version,
        .completions = {.count = generation->prompts_count,
                        .get = get_completion,
                        .arg = generation->completions}};

    for (uint32_t i = 0; i < generation->prompts_count; i++) {
        const struct tdm_completion *completion = &generation->completions[i];

        if (completion->tokens_count > generation->sampling.tokens_max) {
            return tdm__fail(TDM_E_LIMIT, "the engine wrote %u tokens to answer %u, of at most %u",
                             completion->tokens_count, i, generation->sampling.tokens_max);
        }
    }
    return tdm__generated_encode(&message, writer);
}

tdm_status tdm__generation_reply(const struct tdm__generation *generation, uint64_t version,
                                 tdm_call *call)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__generation_write_reply(writer, generation, version);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* ---- the controller's side -------------------------------------------------------------- */

/* Getter of a message list: fills the message of prompt `index`. */
static void get_prompt(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm_prompt *prompt = &((const struct tdm_prompt *)arg)[index];
    struct tdm__prompt_message *item = item_out;

    *item = (struct tdm__prompt_message){prompt->text, prompt->seed};
}

tdm_status tdm__generation_write_request(tdm_writer *writer, const struct tdm_sampling *sampling,
                                         const struct tdm_prompt *prompts, uint32_t prompts_count)
{
    const struct tdm__generate_message message = {
        .temperature = sampling->temperature,
        .tokens_max = sampling->tokens_max,
        .prompts = {.count = prompts_count, .get = get_prompt, .arg = prompts}};

    return tdm__generate_encode(&message, writer);
}

tdm_status tdm__completion_read(const struct tdm__completion_message *message, uint32_t tokens_max,
                                int32_t *tokens, float *logprobs,
                                struct tdm_completion *completion_out)
{
    size_t count = message->tokens.size_bytes / sizeof(int32_t);

    if (message->tokens.size_bytes % sizeof(int32_t) != 0 || count > tokens_max ||
        message->logprobs.size_bytes != message->tokens.size_bytes) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "an answer of %zu bytes of tokens, %zu of log-probabilities, at most "
                         "%u tokens",
                         message->tokens.size_bytes, message->logprobs.size_bytes, tokens_max);
    }
    if (count > 0) {
        memcpy(tokens, message->tokens.data, message->tokens.size_bytes);
        memcpy(logprobs, message->logprobs.data, message->logprobs.size_bytes);
    }
    *completion_out = (struct tdm_completion){.tokens = tokens,
                                              .logprobs = logprobs,
                                              .tokens_count = (uint32_t)count,
                                              .text = (char *)(uintptr_t)message->text,
                                              .finished = message->finished};
    return TDM_OK;
}
