/* completions.h - prompts on their way to an engine, and its answers on their way back. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_COMPLETIONS_H
#define TDM_COLOCATE_JOB_COMPLETIONS_H

#include "runtime/messages/messages.h"

#include <tandem/actor.h>
#include <tandem/job.h>

enum { TDM__COMPLETION_TEXT_BYTES_PER_TOKEN = 32 };

/* What generate() works on. */
struct tdm__generation {
    struct tdm_sampling sampling;
    uint32_t prompts_count;
    struct tdm_prompt *prompts;         /* owned; texts borrowed from the call */
    struct tdm_completion *completions; /* owned */
    char *room;                         /* owned: tokens, logprobs and texts of all */
};

/* ---- the engine's side ------------------------------------------------------------------ */

/* From (temperature, tokens_max, [(text, seed) …]), with room for every answer. */
tdm_status tdm__generation_read_request(const tdm_value *arguments,
                                        struct tdm__generation *generation_out);
void tdm__generation_fini(struct tdm__generation *generation);
/* (version, [(tokens, logprobs, text, finished) …]), and the same as the call's reply.
 * TDM_E_LIMIT where the engine wrote more tokens than there is room for. */
tdm_status tdm__generation_write_reply(tdm_writer *writer, const struct tdm__generation *generation,
                                       uint64_t version);
tdm_status tdm__generation_reply(const struct tdm__generation *generation, uint64_t version,
                                 tdm_call *call);

/* ---- the controller's side -------------------------------------------------------------- */

tdm_status tdm__generation_write_request(tdm_writer *writer, const struct tdm_sampling *sampling,
                                         const struct tdm_prompt *prompts, uint32_t prompts_count);
/* Reads one answer of a reply (message generated); tokens and logprobs are copied to `tokens`
 * and `logprobs`, which have room for tokens_max each, the text is borrowed.  TDM_E_PROTOCOL.
 */
tdm_status tdm__completion_read(const struct tdm__completion_message *message, uint32_t tokens_max,
                                int32_t *tokens, float *logprobs,
                                struct tdm_completion *completion_out);

#endif
