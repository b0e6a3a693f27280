/* update_session.c - what a sender and its receivers both know: keys, members and requests. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A session is a model's name and the name of its version record. It has no threads and no
 * locks; its owner (a sender or a receiver) serializes calls. The messages in the sender's
 * mailbox have these keys:
 * - "model": the manifest, the scheme and the size of buckets.
 * - "join/ACTOR/INCARNATION": a receiver exists, or no longer exists.
 * - "offer/EPOCH": the sender begins an update.
 * - "update/EPOCH/bucket/INDEX/", ".../vote/ACTOR", ".../outcome" and ".../flip/ACTOR": its
 * steps.
 *
 * An incarnation of a receiver has the actor's restarts in its upper half and a counter of the
 * process's receivers in its lower half. */

#include "colocate/scheme/update_session.h"

#include "actors/process/runtime.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <tandem/weights.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Constants of members. */
enum {
    /* Timeout in milliseconds of a question to the daemon whether a member lives. */
    ALIVE_MS = 300,
    RECEIVERS_BITS = 32, /* Low bits of an incarnation, which count the receivers of one process. */
};

/* Returns true if the name is allowed as the name of a model. */
static bool is_valid_model(const char *model)
{
    size_t length = model == NULL ? 0 : strlen(model);

    return length > 0 && length < TDM_WEIGHTS_MODEL_BYTES_MAX &&
           strspn(model, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") ==
               length;
}

tdm_status tdm__update_session_init(struct tdm__update_session *session, tdm_runtime *runtime,
                                    const char *model)
{
    if (!is_valid_model(model)) {
        return tdm__fail(TDM_E_INVAL,
                         "a model's id is 1 to %d letters, digits, '.', '-' or '_', not \"%s\"",
                         TDM_WEIGHTS_MODEL_BYTES_MAX - 1, model == NULL ? "" : model);
    }
    session->runtime = runtime;
    session->record[0] = '\0';
    (void)snprintf(session->model, sizeof(session->model), "%s", model);
    return TDM_OK;
}

void tdm__update_session_set_record(struct tdm__update_session *session, tdm_actor *mailbox)
{
    struct tdm_actor_info info;

    tdm_actor_describe(mailbox, &info);
    (void)snprintf(session->record, sizeof(session->record), "%.47s:%s", session->model, info.id);
}

struct tdm__id tdm__update_session_update_id(const struct tdm__update_session *session,
                                             uint64_t epoch)
{
    const uint64_t words[2] = {tdm__checksum_tensor(session->record, strlen(session->record)),
                               epoch};
    struct tdm__id id;

    _Static_assert(sizeof(id.bytes) == sizeof(words), "an id is two words");
    memcpy(id.bytes, words, sizeof(words));
    return id;
}

tdm_status tdm__update_session_self_member(const struct tdm__update_session *session,
                                           struct tdm__member *member_out)
{
    static _Atomic uint32_t receivers_count;
    struct tdm_runtime_info info;

    tdm_runtime_describe(session->runtime, &info);
    if (info.actor_id[0] == '\0') {
        return tdm__fail(TDM_E_STATE, "a receiver of weights lives in an actor, this is a driver");
    }
    TDM_TRY(tdm__id_parse(info.actor_id, &member_out->actor));
    member_out->incarnation = ((uint64_t)info.restarts_count << RECEIVERS_BITS) +
                              atomic_fetch_add(&receivers_count, 1) + 1;
    return TDM_OK;
}

const char *tdm__update_member_text(const struct tdm__member *member,
                                    char text[TDM__UPDATE_MEMBER_TEXT_BYTES])
{
    char id[TDM__ID_TEXT_BYTES];

    (void)snprintf(text, TDM__UPDATE_MEMBER_TEXT_BYTES, "the receiver in actor %s",
                   tdm__id_text(&member->actor, id));
    return text;
}

/* Returns true if the actor was restarted after the member was created. */
static bool was_restarted(const tdm_document *description, const struct tdm__member *member)
{
    struct tdm__actor_description_message message;

    return tdm__actor_description_decode(tdm_document_root(description), &message) == TDM_OK &&
           message.incarnation > member->incarnation >> RECEIVERS_BITS;
}

/* Calls a method of the daemon with the member's actor ID. The caller frees the document. */
static tdm_status query_actor_state(const struct tdm__update_session *session,
                                    const struct tdm__member *member, const char *method,
                                    tdm_document **reply_out)
{
    const struct tdm__actor_query_message query = {.actor = member->actor};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_query_encode(&query, writer);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(session->runtime, method, tdm_writer_bytes(writer),
                                          ALIVE_MS, reply_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Kills the member's actor and returns true if that succeeded. A broken connection between nodes
 * says nothing about the processes behind it. A member may only be called dead if it is killed
 * first, which succeeds once the node is reached or its lease has expired. */
static bool kill_member(const struct tdm__update_session *session, const struct tdm__member *member)
{
    tdm_document *nothing = NULL;
    bool fenced = query_actor_state(session, member, "actor.kill", &nothing) == TDM_OK;

    tdm_document_destroy(nothing);
    return fenced;
}

tdm_status tdm__update_session_check_alive(const struct tdm__update_session *session,
                                           const struct tdm__member *member)
{
    char text[TDM__UPDATE_MEMBER_TEXT_BYTES];
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_document *description = NULL;
    tdm_status status = query_actor_state(session, member, "actor.fate", &description);

    (void)tdm__update_member_text(member, text);
    if (status == TDM_OK) {
        bool restarted = was_restarted(description, member);

        tdm_document_destroy(description);
        return restarted ? tdm__fail(TDM_E_ACTOR_DIED, "%s: the actor was restarted", text)
                         : TDM_OK;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    if (status == TDM_E_ACTOR_DIED || status == TDM_E_ACTOR_RESTARTING ||
        status == TDM_E_NOT_FOUND || (status == TDM_E_NODE_LOST && kill_member(session, member))) {
        return tdm__fail(TDM_E_ACTOR_DIED, "%s: %s", text, detail);
    }
    return TDM_OK; /* Its state is unknown, so it may be alive. */
}

const char *tdm__update_message_key(uint64_t epoch, const char *what,
                                    char key[TDM__UPDATE_KEY_BYTES])
{
    (void)snprintf(key, TDM__UPDATE_KEY_BYTES, "update/%llu/%s", (unsigned long long)epoch, what);
    return key;
}

const char *tdm__update_join_key(const struct tdm__member *member, char key[TDM__UPDATE_KEY_BYTES])
{
    char id[TDM__ID_TEXT_BYTES];

    (void)snprintf(key, TDM__UPDATE_KEY_BYTES, "join/%s/%llu", tdm__id_text(&member->actor, id),
                   (unsigned long long)member->incarnation);
    return key;
}

tdm_status tdm__update_session_request(const struct tdm__update_session *session,
                                       const struct tdm__version_request *request,
                                       int64_t deadline_ms, struct tdm__version_reply *reply_out)
{
    return tdm__version_service_call(session->runtime, session->record, request,
                                     tdm__deadline_remaining_ms(deadline_ms), reply_out);
}

tdm_status tdm__update_session_decide(const struct tdm__update_session *session, uint64_t epoch,
                                      const struct tdm__version_request *proposal,
                                      int64_t deadline_ms, bool *committed_out)
{
    struct tdm__version_request request = *proposal;
    struct tdm__version_reply reply;

    request.kind = TDM__VERSION_DECIDE;
    request.update = tdm__update_session_update_id(session, epoch);
    TDM_TRY(tdm__update_session_request(session, &request, deadline_ms, &reply));
    *committed_out = reply.outcome == TDM__UPDATE_COMMITTED;
    return TDM_OK;
}
