/* pack.c - lays out the samples of a batch as rows of a forward pass. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/pack.h"

#include <stdlib.h>
#include <string.h>

/* One encoded sample; the tokens are borrowed from the pack and the sample. */
struct sequence {
    uint32_t prompt_count;
    uint32_t answer_count;
    const int32_t *prompt;
    const int32_t *answer;
};

tdm_status pack_init(struct pack *pack, const struct settings *settings)
{
    *pack = (struct pack){
        .rows_max = settings->max_tokens_per_gpu,
        .targets_max = 2 * settings->max_tokens_per_gpu,
    };
    pack->rows = calloc(pack->rows_max, sizeof(*pack->rows));
    pack->targets = calloc(pack->targets_max, sizeof(*pack->targets));
    pack->numbers = calloc(pack->targets_max, sizeof(*pack->numbers));
    pack->tokens =
        calloc((size_t)settings->prompt_max + settings->answer_max, sizeof(*pack->tokens));
    if (pack->rows == NULL || pack->targets == NULL || pack->numbers == NULL ||
        pack->tokens == NULL) {
        pack_fini(pack);
        return tdm_fail(TDM_E_NOMEM, "trainer.max_tokens_per_gpu is %u", pack->rows_max);
    }
    return TDM_OK;
}

void pack_fini(struct pack *pack)
{
    free(pack->rows);
    free(pack->targets);
    free(pack->numbers);
    free(pack->tokens);
    *pack = (struct pack){0};
}

/* Checks that the answer's tokens fit the settings and the vocabulary. */
static tdm_status check_answer(const struct settings *settings, const struct tdm_sample *sample)
{
    if (sample->tokens_count == 0 || sample->tokens_count > settings->answer_max) {
        return tdm_fail(TDM_E_LIMIT, "an answer of %u tokens, wanted 1 to %u", sample->tokens_count,
                        settings->answer_max);
    }
    for (uint32_t i = 0; i < sample->tokens_count; i++) {
        if (sample->tokens[i] < 0 || (uint32_t)sample->tokens[i] >= settings->shape.vocab_size) {
            return tdm_fail(TDM_E_INVAL, "token %d of an answer, vocabulary of %u",
                            sample->tokens[i], settings->shape.vocab_size);
        }
    }
    return TDM_OK;
}

/* Encodes the prompt and, in supervised steps, the answer of a sample. */
static tdm_status encode_sample(struct pack *pack, const struct settings *settings,
                                const struct tdm_sample *sample, struct sequence *sequence_out)
{
    int32_t *answer = pack->tokens + settings->prompt_max;

    sequence_out->prompt = pack->tokens;
    TDM_TRY(tokenizer_encode(&settings->tokenizer, sample->prompt, TOKEN_ANSWER, pack->tokens,
                             settings->prompt_max, &sequence_out->prompt_count));
    if (sample->tokens == NULL) {
        sequence_out->answer = answer;
        return tokenizer_encode(&settings->tokenizer, sample->answer, TOKEN_END, answer,
                                settings->answer_max, &sequence_out->answer_count);
    }
    sequence_out->answer = sample->tokens;
    sequence_out->answer_count = sample->tokens_count;
    return check_answer(settings, sample);
}

/* Appends the rows of a prompt. */
static void append_prompt(struct pack *pack, const struct sequence *sequence)
{
    uint32_t first = pack->rows_count;

    for (uint32_t i = 0; i < sequence->prompt_count; i++) {
        pack->rows[pack->rows_count] =
            (struct row){.token = sequence->prompt[i], .slot = pack->rows_count, .first = first};
        pack->rows_count++;
    }
}

/* Appends the rows of an answer with their targets. The last token gets no row, since nothing is
 * predicted from it. */
static void append_answer(struct pack *pack, const struct sequence *sequence, uint32_t prompt_first,
                          uint32_t sample)
{
    uint32_t first = pack->rows_count;

    for (uint32_t i = 0; i < sequence->answer_count; i++) {
        pack->targets[pack->targets_count++] = (struct target){
            .row = i == 0 ? prompt_first + sequence->prompt_count - 1 : first + i - 1,
            .token = sequence->answer[i],
            .sample = sample,
            .at = i,
        };
        if (i + 1 < sequence->answer_count) {
            pack->rows[pack->rows_count] = (struct row){
                .token = sequence->answer[i],
                .slot = pack->rows_count,
                .first = first,
                .prefix_first = prompt_first,
                .prefix_count = sequence->prompt_count,
            };
            pack->rows_count++;
        }
    }
}

tdm_status pack_fill(struct pack *pack, const struct settings *settings,
                     const struct tdm_batch *batch, uint32_t *next)
{
    const struct tdm_sample *previous = NULL;
    uint32_t prompt_first = 0;

    pack->rows_count = 0;
    pack->targets_count = 0;
    for (; *next < batch->samples_count; (*next)++) {
        const struct tdm_sample *sample = &batch->samples[*next];
        int follows = previous != NULL && previous->group == sample->group &&
                      strcmp(previous->prompt, sample->prompt) == 0;
        struct sequence sequence;
        uint32_t rows;

        TDM_TRY(encode_sample(pack, settings, sample, &sequence));
        rows = sequence.answer_count - 1 + (follows ? 0 : sequence.prompt_count);
        if (pack->rows_count + rows > pack->rows_max ||
            pack->targets_count + sequence.answer_count > pack->targets_max) {
            break;
        }
        if (!follows) {
            prompt_first = pack->rows_count;
            append_prompt(pack, &sequence);
        }
        append_answer(pack, &sequence, prompt_first, *next);
        previous = sample;
    }
    return TDM_OK;
}

tdm_status pack_count_targets(const struct tdm_batch *batch, uint64_t *count_out)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < batch->samples_count; i++) {
        const struct tdm_sample *sample = &batch->samples[i];

        if (sample->tokens == NULL && !batch->supervised) {
            return tdm_fail(TDM_E_INVAL, "sample %u has no tokens to be reinforced", i);
        }
        count += sample->tokens != NULL ? sample->tokens_count : strlen(sample->answer) + 1;
    }
    *count_out = count;
    return TDM_OK;
}
