/* scale_mailbox.c - where a command leaves the request for another number of engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/scale_mailbox.h"

#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

void tdm__scale_mailbox_init(struct tdm__scale_mailbox *mailbox)
{
    *mailbox = (struct tdm__scale_mailbox){.state = NULL};
    (void)pthread_mutex_init(&mailbox->lock, NULL);
}

void tdm__scale_mailbox_fini(struct tdm__scale_mailbox *mailbox)
{
    free(mailbox->state);
    (void)pthread_mutex_destroy(&mailbox->lock);
}

/* Reads what the controller has last said. The caller destroys the document, from which the texts
 * are borrowed; NULL if the controller has said nothing. */
static tdm_status read_state(const struct tdm__scale_mailbox *mailbox,
                             struct tdm__scale_state_message *state_out,
                             tdm_document **document_out)
{
    *document_out = NULL;
    *state_out = (struct tdm__scale_state_message){.job = "", .lack = "", .refusal = ""};
    if (mailbox->state == NULL) {
        return TDM_OK;
    }
    TDM_TRY(
        tdm_document_parse((struct tdm_bytes){mailbox->state, mailbox->state_bytes}, document_out));
    return tdm__scale_state_decode(tdm_document_root(*document_out), state_out);
}

/* Notes a request for this number of engines, unless it is the last one and the controller has not
 * answered it. */
static void note_request(struct tdm__scale_mailbox *mailbox, uint32_t engines,
                         const struct tdm__scale_state_message *state)
{
    if (engines != 0 && (engines != mailbox->engines || state->answered >= mailbox->number)) {
        mailbox->engines = engines;
        mailbox->number++;
    }
}

/* Replies to a command with the number of the last request and the state. */
static tdm_status reply_to_command(tdm_call *call, uint64_t number,
                                   const struct tdm__scale_state_message *state)
{
    const struct tdm__scale_reply_message reply = {.number = number, .state = *state};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__scale_reply_encode(&reply, writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__scale_mailbox_request(struct tdm__scale_mailbox *mailbox, tdm_call *call)
{
    struct tdm__scale_message request;
    struct tdm__scale_state_message state;
    tdm_document *document = NULL;
    tdm_status status;

    TDM_TRY(tdm__scale_decode(tdm_call_arguments(call), &request));
    (void)pthread_mutex_lock(&mailbox->lock);
    status = read_state(mailbox, &state, &document);
    if (status == TDM_OK) {
        note_request(mailbox, request.engines, &state);
        status = reply_to_command(call, mailbox->number, &state);
    }
    (void)pthread_mutex_unlock(&mailbox->lock);
    tdm_document_destroy(document);
    return status;
}

/* Keeps a copy of the packed state. */
static tdm_status keep_state(struct tdm__scale_mailbox *mailbox, struct tdm_bytes packed)
{
    void *copy = realloc(mailbox->state, packed.size_bytes);

    if (copy == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the state of a job: %zu bytes", packed.size_bytes);
    }
    mailbox->state = memcpy(copy, packed.data, packed.size_bytes);
    mailbox->state_bytes = packed.size_bytes;
    return TDM_OK;
}

/* Keeps the state of a call's arguments, encoded by `writer`, and replies with the last request. */
static tdm_status note_state(struct tdm__scale_mailbox *mailbox, tdm_call *call, tdm_writer *writer)
{
    struct tdm__scale_request_message request;
    struct tdm__scale_state_message state;

    TDM_TRY(tdm__scale_state_decode(tdm_call_arguments(call), &state));
    TDM_TRY(tdm__scale_state_encode(&state, writer));
    TDM_TRY(keep_state(mailbox, tdm_writer_bytes(writer)));
    request = (struct tdm__scale_request_message){mailbox->number, mailbox->engines};
    tdm_writer_clear(writer);
    TDM_TRY(tdm__scale_request_encode(&request, writer));
    return tdm_call_reply_packed(call, tdm_writer_bytes(writer));
}

tdm_status tdm__scale_mailbox_report(struct tdm__scale_mailbox *mailbox, tdm_call *call)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    (void)pthread_mutex_lock(&mailbox->lock);
    status = note_state(mailbox, call, writer);
    (void)pthread_mutex_unlock(&mailbox->lock);
    tdm_writer_destroy(writer);
    return status;
}
