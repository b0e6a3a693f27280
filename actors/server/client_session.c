/* client_session.c - those who call this actor, and the answers they may not have got. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/client_session.h"

#include "actors/server/call.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdlib.h>
#include <string.h>

/* Who sends nothing for so long, and has an answer in flight, will not ask for it again. */
enum { SILENCE_MS = 5 * 60 * 1000, SWEEP_EVERY_MS = 60 * 1000 };

void tdm__client_sessions_init(struct tdm__client_sessions *client_sessions)
{
    *client_sessions = (struct tdm__client_sessions){.swept_ms = tdm__clock_ms()};
}

static void session_drop_oldest_reply(struct tdm__client_sessions *client_sessions,
                                      struct tdm__client_session *session)
{
    struct tdm__cached_reply *kept = TAILQ_FIRST(&session->answers);

    if (session->resend_cursor == kept) {
        session->resend_cursor = NULL;
    }
    TAILQ_REMOVE(&session->answers, kept, link);
    session->cached_reply_count--;
    client_sessions->cached_reply_bytes -= kept->size_bytes;
    tdm__cached_reply_destroy(kept);
}

static void client_session_destroy(struct tdm__client_sessions *client_sessions,
                                   struct tdm__client_session *session)
{
    TDM_ASSERT(session->calls_count == 0 && TAILQ_EMPTY(&session->held));
    while (!TAILQ_EMPTY(&session->answers)) {
        session_drop_oldest_reply(client_sessions, session);
    }
    if (client_sessions->last == session) {
        client_sessions->last = NULL;
    }
    free(session);
}

void tdm__client_sessions_fini(struct tdm__client_sessions *client_sessions)
{
    for (uint32_t i = 0; i < TDM__CLIENT_SESSION_BUCKETS; i++) {
        while (client_sessions->buckets[i] != NULL) {
            struct tdm__client_session *session = client_sessions->buckets[i];

            client_sessions->buckets[i] = session->next;
            client_session_destroy(client_sessions, session);
        }
    }
}

/* ---- finding ---------------------------------------------------------------------------- */

/* A driver learns its node late; its id is random, and enough. */
static const struct tdm__id *peer_node(const struct tdm__peer_identity *peer)
{
    static const struct tdm__id none;

    return peer->kind == TDM__PEER_WORKER ? &peer->node : &none;
}

static bool client_session_is_of_peer(const struct tdm__client_session *session,
                                      const struct tdm__peer_identity *peer)
{
    return session->pid == peer->pid && tdm__id_equal(&session->id, &peer->id) &&
           tdm__id_equal(&session->node, peer_node(peer));
}

static struct tdm__client_session **
client_session_bucket(struct tdm__client_sessions *client_sessions,
                      const struct tdm__peer_identity *peer)
{
    return &client_sessions->buckets[peer->id.bytes[0] % TDM__CLIENT_SESSION_BUCKETS];
}

static bool client_session_is_expired(struct tdm__client_session *session, int64_t now_ms)
{
    if (session->heard_since_sweep || session->calls_count > 0) {
        session->heard_since_sweep = false;
        session->silent_since_ms = now_ms;
        return false;
    }
    return now_ms - session->silent_since_ms >= SILENCE_MS;
}

static void client_sessions_sweep(struct tdm__client_sessions *client_sessions)
{
    int64_t now_ms = tdm__clock_ms();

    if (now_ms - client_sessions->swept_ms < SWEEP_EVERY_MS) {
        return;
    }
    client_sessions->swept_ms = now_ms;
    for (uint32_t i = 0; i < TDM__CLIENT_SESSION_BUCKETS; i++) {
        struct tdm__client_session **at = &client_sessions->buckets[i];

        while (*at != NULL) {
            struct tdm__client_session *session = *at;

            if (client_session_is_expired(session, now_ms)) {
                *at = session->next;
                client_session_destroy(client_sessions, session);
            } else {
                at = &session->next;
            }
        }
    }
}

static tdm_status client_session_add(struct tdm__client_sessions *client_sessions,
                                     const struct tdm__peer_identity *peer,
                                     struct tdm__client_session **caller_out)
{
    struct tdm__client_session **bucket = client_session_bucket(client_sessions, peer);
    struct tdm__client_session *session = calloc(1, sizeof(*session));

    if (session == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a record of the caller %s", peer->name);
    }
    session->id = peer->id;
    session->node = *peer_node(peer);
    session->pid = peer->pid;
    TAILQ_INIT(&session->answers);
    TAILQ_INIT(&session->held);
    session->next = *bucket;
    *bucket = session;
    *caller_out = session;
    return TDM_OK;
}

tdm_status tdm__client_session_get(struct tdm__client_sessions *client_sessions,
                                   const struct tdm__peer_identity *peer,
                                   struct tdm__client_session **caller_out)
{
    struct tdm__client_session *session = client_sessions->last;

    if (session == NULL || !client_session_is_of_peer(session, peer)) {
        session = *client_session_bucket(client_sessions, peer);
        while (session != NULL && !client_session_is_of_peer(session, peer)) {
            session = session->next;
        }
    }
    if (session == NULL) {
        client_sessions_sweep(client_sessions);
        TDM_TRY(client_session_add(client_sessions, peer, &session));
    }
    session->heard_since_sweep = true;
    client_sessions->last = session;
    *caller_out = session;
    return TDM_OK;
}

/* From `call` on. */
static tdm_call *find_call_from(tdm_call *call, const struct tdm__client_session *session,
                                uint64_t sequence)
{
    while (call != NULL && (call->client_session != session || call->sequence != sequence ||
                            call->incoming == NULL)) {
        call = TAILQ_NEXT(call, all_link);
    }
    return call;
}

tdm_call *tdm__client_session_find_call(struct tdm__client_session *session, tdm_call *first,
                                        uint64_t sequence)
{
    tdm_call *call = find_call_from(session->resumed_call, session, sequence);

    if (call == NULL) {
        call = find_call_from(first, session, sequence);
    }
    if (call != NULL) {
        session->resumed_call = call;
    }
    return call;
}

/* ---- answers ---------------------------------------------------------------------------- */

void tdm__client_session_acknowledge(struct tdm__client_sessions *client_sessions,
                                     struct tdm__client_session *session, uint64_t sequence)
{
    if (sequence <= session->acknowledged_sequence) {
        return;
    }
    session->acknowledged_sequence = sequence;
    while (!TAILQ_EMPTY(&session->answers) &&
           TAILQ_FIRST(&session->answers)->sequence <= sequence) {
        session_drop_oldest_reply(client_sessions, session);
    }
}

tdm_status tdm__client_session_check_cache(const struct tdm__client_sessions *client_sessions,
                                           const struct tdm__client_session *session)
{
    if (session->cached_reply_count + session->calls_count >= TDM__CACHED_REPLIES_MAX) {
        return tdm__fail(TDM_E_AGAIN,
                         "%u answers to this caller wait for its acknowledgement: take results "
                         "before you call on",
                         session->cached_reply_count);
    }
    if (client_sessions->cached_reply_bytes >= TDM__CACHED_REPLY_BYTES_MAX) {
        return tdm__fail(TDM_E_AGAIN, "%zu bytes of answers wait to be acknowledged, %zu may",
                         client_sessions->cached_reply_bytes, TDM__CACHED_REPLY_BYTES_MAX);
    }
    return TDM_OK;
}

const struct tdm__method_reply *
tdm__client_session_cached_reply(struct tdm__client_session *session, uint64_t sequence)
{
    struct tdm__cached_reply *kept = session->resend_cursor;

    if (kept == NULL || kept->sequence > sequence) {
        kept = TAILQ_FIRST(&session->answers);
    }
    while (kept != NULL && kept->sequence < sequence) {
        kept = TAILQ_NEXT(kept, link);
    }
    if (kept == NULL || kept->sequence != sequence) {
        return NULL;
    }
    session->resend_cursor = kept;
    return &kept->answer;
}

tdm_status tdm__client_session_check_may_run(const struct tdm__client_session *session,
                                             uint64_t sequence)
{
    if (sequence <= session->acknowledged_sequence) {
        return tdm__fail(TDM_E_PROTOCOL, "call %llu comes again, its answer was acknowledged",
                         (unsigned long long)sequence);
    }
    if (sequence <= session->uncached_sequence) {
        return tdm__fail(TDM_E_NOMEM, "call %llu has run; its answer could not be kept",
                         (unsigned long long)sequence);
    }
    return TDM_OK;
}

/* Answers come nearly in order: the place is at the end or close to it. */
static void cached_reply_insert(struct tdm__client_session *session, struct tdm__cached_reply *kept)
{
    struct tdm__cached_reply *before = TAILQ_LAST(&session->answers, tdm__cached_replies);

    while (before != NULL && before->sequence > kept->sequence) {
        before = TAILQ_PREV(before, tdm__cached_replies, link);
    }
    if (before == NULL) {
        TAILQ_INSERT_HEAD(&session->answers, kept, link);
    } else {
        TAILQ_INSERT_AFTER(&session->answers, before, kept, link);
    }
}

void tdm__client_session_cache_reply(struct tdm__client_sessions *client_sessions,
                                     struct tdm__client_session *session, uint64_t sequence,
                                     const struct tdm__method_reply *answer)
{
    struct tdm__cached_reply *kept;

    if (sequence <= session->acknowledged_sequence) {
        return; /* nobody will ask */
    }
    if (tdm__cached_reply_create(answer, &kept) != TDM_OK) {
        tdm__log(TDM__WARN, "actor", "call %llu: %s", (unsigned long long)sequence,
                 tdm_error_detail());
        session->uncached_sequence =
            sequence > session->uncached_sequence ? sequence : session->uncached_sequence;
        return;
    }
    kept->sequence = sequence;
    cached_reply_insert(session, kept);
    session->cached_reply_count++;
    client_sessions->cached_reply_bytes += kept->size_bytes;
}
