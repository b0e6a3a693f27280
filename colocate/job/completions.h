/* completions.h - encodes prompts for an engine and decodes its completions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_COMPLETIONS_H
#define TDM_COLOCATE_JOB_COMPLETIONS_H

#include "runtime/messages/messages.h"

#include <tandem/actor.h>
#include <tandem/job.h>

/* Bytes that an engine may write to the text of a completion for each token that it may
 * generate. */
enum { TDM__COMPLETION_TEXT_BYTES_PER_TOKEN = 32 };

/* One request to generate, with the buffers that the engine library fills. The engine actor owns
 * it for the duration of one call. */
struct tdm__generation {
    /* Temperature and token limit of the request. */
    struct tdm_sampling sampling;
    /* Number of prompts, which is also the number of completions. */
    uint32_t prompts_count;
    /* Owned array of prompts; their texts are borrowed from the arguments of the call. */
    struct tdm_prompt *prompts;
    /* Owned array with one completion for each prompt; its arrays point into `buffer`. */
    struct tdm_completion *completions;
    /* Owned memory of the tokens, log-probabilities and texts of all completions. */
    char *buffer;
};

/* ---- the engine's side ----------------------------------------------------------------- */

/* Decodes a request to generate and allocates the buffers of its completions. TDM_E_LIMIT if the
 * request is too large, TDM_E_INVAL for a bad temperature. Release the result with
 * tdm__generation_fini(). */
tdm_status tdm__generation_read_request(const tdm_value *arguments,
                                        struct tdm__generation *generation_out);
/* Frees the arrays of the generation. */
void tdm__generation_fini(struct tdm__generation *generation);
/* Encodes the completions and the weight version that generated them. TDM_E_LIMIT if the engine
 * library reports more tokens than the request allows. */
tdm_status tdm__generation_write_reply(tdm_writer *writer, const struct tdm__generation *generation,
                                       uint64_t version);
/* Encodes the same and sends it as the reply of `call`. */
tdm_status tdm__generation_reply(const struct tdm__generation *generation, uint64_t version,
                                 tdm_call *call);

/* ---- the controller's side -------------------------------------------------------------- */

/* Encodes a request to generate a completion for each prompt. */
tdm_status tdm__generation_write_request(tdm_writer *writer, const struct tdm_sampling *sampling,
                                         const struct tdm_prompt *prompts, uint32_t prompts_count);
/* Decodes one completion of a reply. Tokens and log-probabilities are copied to `tokens` and
 * `logprobs`, which have space for `tokens_max` elements each. The text of the result is
 * borrowed from the message. TDM_E_PROTOCOL if the arrays differ in length or are too long. */
tdm_status tdm__completion_read(const struct tdm__completion_message *message, uint32_t tokens_max,
                                int32_t *tokens, float *logprobs,
                                struct tdm_completion *completion_out);

#endif
