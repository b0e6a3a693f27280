/* completions.c - prompts on their way to an engine, and its answers on their way back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/completions.h"

#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

enum { PROMPTS_MAX = 1 << 20, TOKENS_MAX = 1 << 20 };

/* ---- the engine's side ------------------------------------------------------------------ */

static tdm_status make_room(struct tdm__generation *generation)
{
    size_t tokens = generation->sampling.tokens_max;
    size_t text = tokens * TDM__COMPLETION_TEXT_BYTES_PER_TOKEN + 1;
    size_t each = (tokens * (sizeof(int32_t) + sizeof(float)) + text + 7) / 8 * 8;
    size_t count = generation->prompts_count;

    generation->prompts = calloc(count + 1, sizeof(*generation->prompts));
    generation->completions = calloc(count + 1, sizeof(*generation->completions));
    generation->room = calloc(count + 1, each);
    if (generation->prompts == NULL || generation->completions == NULL ||
        generation->room == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%zu answers of %zu tokens", count, tokens);
    }
    for (size_t i = 0; i < count; i++) {
        char *room = generation->room + i * each;

        generation->completions[i] = (struct tdm_completion){
            .tokens = (int32_t *)(void *)room,
            .logprobs = (float *)(void *)(room + tokens * sizeof(int32_t)),
            .text = room + tokens * (sizeof(int32_t) + sizeof(float)),
            .text_bytes_max = text};
    }
    return TDM_OK;
}

static tdm_status read_prompts(const tdm_value *prompts, struct tdm__generation *generation)
{
    for (uint32_t i = 0; i < generation->prompts_count; i++) {
        TDM_TRY(tdm_unpack(tdm_value_at(prompts, i), "su", &generation->prompts[i].text,
                           &generation->prompts[i].seed));
        if (generation->prompts[i].text == NULL) {
            return tdm__fail(TDM_E_PROTOCOL, "prompt %u has no text", i);
        }
    }
    return TDM_OK;
}

tdm_status tdm__generation_read(const tdm_value *arguments,
                                struct tdm__generation *generation_out)
{
    struct tdm__generation generation = {.prompts_count = 0};
    const tdm_value *prompts;
    uint64_t tokens_max;
    tdm_status status;

    TDM_TRY(
        tdm_unpack(arguments, "fuv", &generation.sampling.temperature, &tokens_max, &prompts));
    if (tokens_max == 0 || tokens_max > TOKENS_MAX || tdm_value_count(prompts) > PROMPTS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u prompts of at most %llu tokens",
                         tdm_value_count(prompts), (unsigned long long)tokens_max);
    }
    if (!(generation.sampling.temperature >= 0)) { /* nor not a number */
        return tdm__fail(TDM_E_INVAL, "temperature %g", generation.sampling.temperature);
    }
    generation.sampling.tokens_max = (uint32_t)tokens_max;
    generation.prompts_count = tdm_value_count(prompts);
    status = make_room(&generation);
    if (status == TDM_OK) {
        status = read_prompts(prompts, &generation);
    }
    if (status != TDM_OK) {
        tdm__generation_fini(&generation);
        return status;
    }
    *generation_out = generation;
    return TDM_OK;
}

void tdm__generation_fini(struct tdm__generation *generation)
{
    free(generation->prompts);
    free(generation->completions);
    free(generation->room);
}

tdm_status tdm__generation_write(tdm_writer *writer, const struct tdm__generation *generation,
                                 uint64_t version)
{
    tdm_write_array(writer, 2);
    tdm_write_uint(writer, version);
    tdm_write_array(writer, generation->prompts_count);
    for (uint32_t i = 0; i < generation->prompts_count; i++) {
        const struct tdm_completion *completion = &generation->completions[i];

        if (completion->tokens_count > generation->sampling.tokens_max) {
            return tdm__fail(TDM_E_LIMIT,
                             "the engine wrote %u tokens to answer %u, of at most %u",
                             completion->tokens_count, i, generation->sampling.tokens_max);
        }
        tdm_write_array(writer, 4);
        tdm_write_bytes(writer, completion->tokens, completion->tokens_count * sizeof(int32_t));
        tdm_write_bytes(writer, completion->logprobs, completion->tokens_count * sizeof(float));
        tdm_write_string(writer, completion->text);
        tdm_write_bool(writer, completion->finished);
    }
    return tdm_writer_status(writer);
}

tdm_status tdm__generation_reply(const struct tdm__generation *generation, uint64_t version,
                                 tdm_call *call)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__generation_write(writer, generation, version);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* ---- the controller's side -------------------------------------------------------------- */

tdm_status tdm__generation_ask(tdm_writer *writer, const struct tdm_sampling *sampling,
                               const struct tdm_prompt *prompts, uint32_t prompts_count)
{
    tdm_write_array(writer, 3);
    tdm_write_double(writer, sampling->temperature);
    tdm_write_uint(writer, sampling->tokens_max);
    tdm_write_array(writer, prompts_count);
    for (uint32_t i = 0; i < prompts_count; i++) {
        tdm_write_array(writer, 2);
        tdm_write_string(writer, prompts[i].text);
        tdm_write_uint(writer, prompts[i].seed);
    }
    return tdm_writer_status(writer);
}

tdm_status tdm__completion_read(const tdm_value *reply, uint32_t index, uint32_t tokens_max,
                                int32_t *tokens, float *logprobs,
                                struct tdm_completion *completion_out)
{
    const tdm_value *value = tdm_value_at(tdm_value_at(reply, 1), index);
    struct tdm_bytes token_bytes = tdm_value_bytes(tdm_value_at(value, 0));
    struct tdm_bytes logprob_bytes = tdm_value_bytes(tdm_value_at(value, 1));
    const char *text = tdm_value_string(tdm_value_at(value, 2), NULL);
    size_t count = token_bytes.size_bytes / sizeof(int32_t);

    if (text == NULL || token_bytes.size_bytes % sizeof(int32_t) != 0 || count > tokens_max ||
        logprob_bytes.size_bytes != token_bytes.size_bytes) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "answer %u: %zu bytes of tokens, %zu of log-probabilities, at most %u tokens",
            index, token_bytes.size_bytes, logprob_bytes.size_bytes, tokens_max);
    }
    if (count > 0) {
        memcpy(tokens, token_bytes.data, token_bytes.size_bytes);
        memcpy(logprobs, logprob_bytes.data, logprob_bytes.size_bytes);
    }
    *completion_out =
        (struct tdm_completion){.tokens = tokens,
                                .logprobs = logprobs,
                                .tokens_count = (uint32_t)count,
                                .text = (char *)(uintptr_t)text,
                                .finished = tdm_value_bool(tdm_value_at(value, 3), 0)};
    return TDM_OK;
}
