/* client_session.c - the callers of this actor, and the replies that they have not acknowledged. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements at-most-once execution. The executor asks for the session of each arriving call. A
 * call with a sequence number at or below the highest one is a repetition: it gets the cached
 * reply, or joins the call that is still open, or may run if it was refused before.
 *
 * Invariants: `replies` is sorted by sequence number and has none that is acknowledged;
 * cached_reply_bytes is the sum over all sessions; a session with open calls is never removed. A
 * session expires after SILENCE_MS without calls. All functions are called with the loop's lock
 * held. See docs/protocols/calls.md for the protocol. */

#include "actors/server/client_session.h"

#include "actors/server/received_call.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Milliseconds without a call after which a session is removed: its caller will not repeat
     * one. */
    SILENCE_MS = 5 * 60 * 1000,
    /* Milliseconds between two sweeps for expired sessions, at least. */
    SWEEP_EVERY_MS = 60 * 1000
};

void tdm__client_sessions_init(struct tdm__client_sessions *client_sessions)
{
    *client_sessions = (struct tdm__client_sessions){.swept_ms = tdm__clock_ms()};
}

/* Frees the session's cached reply with the lowest sequence number. */
static void session_drop_oldest_reply(struct tdm__client_sessions *client_sessions,
                                      struct tdm__client_session *session)
{
    struct tdm__cached_reply *cached = TAILQ_FIRST(&session->replies);

    if (session->resend_cursor == cached) {
        session->resend_cursor = NULL;
    }
    TAILQ_REMOVE(&session->replies, cached, link);
    session->cached_reply_count--;
    client_sessions->cached_reply_bytes -= cached->size_bytes;
    tdm__cached_reply_destroy(cached);
}

/* Frees a client session, which is in no bucket and has no calls, with its cached replies. */
static void client_session_destroy(struct tdm__client_sessions *client_sessions,
                                   struct tdm__client_session *session)
{
    TDM_ASSERT(session->calls_count == 0 && TAILQ_EMPTY(&session->held_calls));
    while (!TAILQ_EMPTY(&session->replies)) {
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

/* ---- finding and removing sessions ---------------------------------------------------------- */

/* Returns the node id that identifies the peer: that of a worker, or zeros for a driver. A driver
 * learns its node late, and its random id is sufficient. */
static const struct tdm__id *session_node_of_peer(const struct tdm__peer_identity *peer)
{
    static const struct tdm__id none;

    return peer->kind == TDM__PEER_WORKER ? &peer->node : &none;
}

/* True if the session belongs to the calling process `peer`, in this incarnation. */
static bool client_session_is_of_peer(const struct tdm__client_session *session,
                                      const struct tdm__peer_identity *peer)
{
    return session->pid == peer->pid && tdm__id_equal(&session->id, &peer->id) &&
           tdm__id_equal(&session->node, session_node_of_peer(peer));
}

/* Returns the hash bucket for the sessions of the calling process `peer`. */
static struct tdm__client_session **
client_session_bucket(struct tdm__client_sessions *client_sessions,
                      const struct tdm__peer_identity *peer)
{
    return &client_sessions->buckets[peer->id.bytes[0] % TDM__CLIENT_SESSION_BUCKETS];
}

/* True if the session has been silent for SILENCE_MS. Updates its record of activity at each sweep.
 */
static bool client_session_is_expired(struct tdm__client_session *session, int64_t now_ms)
{
    if (session->heard_since_sweep || session->calls_count > 0) {
        session->heard_since_sweep = false;
        session->silent_since_ms = now_ms;
        return false;
    }
    return now_ms - session->silent_since_ms >= SILENCE_MS;
}

/* Removes expired client sessions, if the last sweep is at least SWEEP_EVERY_MS ago. */
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

/* Adds a new session for the calling process `peer` to its hash bucket. */
static tdm_status client_session_add(struct tdm__client_sessions *client_sessions,
                                     const struct tdm__peer_identity *peer,
                                     struct tdm__client_session **session_out)
{
    struct tdm__client_session **bucket = client_session_bucket(client_sessions, peer);
    struct tdm__client_session *session = calloc(1, sizeof(*session));

    if (session == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a session of the caller %s", peer->name);
    }
    session->id = peer->id;
    session->node = *session_node_of_peer(peer);
    session->pid = peer->pid;
    TAILQ_INIT(&session->replies);
    TAILQ_INIT(&session->held_calls);
    session->next = *bucket;
    *bucket = session;
    *session_out = session;
    return TDM_OK;
}

tdm_status tdm__client_session_get(struct tdm__client_sessions *client_sessions,
                                   const struct tdm__peer_identity *peer,
                                   struct tdm__client_session **session_out)
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
    *session_out = session;
    return TDM_OK;
}

/* Returns the session's unanswered call with that sequence number, searching the executor's list
 * from `call` on; NULL if absent. */
static tdm_call *session_find_call_from(tdm_call *call, const struct tdm__client_session *session,
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
    tdm_call *call = session_find_call_from(session->resumed_call, session, sequence);

    if (call == NULL) {
        call = session_find_call_from(first, session, sequence);
    }
    if (call != NULL) {
        session->resumed_call = call;
    }
    return call;
}

/* ---- held calls ------------------------------------------------------------------------- */

bool tdm__client_session_holds_queue(const struct tdm__client_session *session,
                                     const struct tdm__concurrency_queue *call_queue,
                                     const tdm_call *before)
{
    const tdm_call *held;

    TAILQ_FOREACH(held, &session->held_calls, link)
    {
        if (held == before) {
            break;
        }
        if (held->call_queue == call_queue) {
            return true;
        }
    }
    return false;
}

tdm_call *tdm__client_session_take_ready(struct tdm__client_session *session)
{
    tdm_call *held;

    TAILQ_FOREACH(held, &session->held_calls, link)
    {
        if (held->start_holds == 0 &&
            !tdm__client_session_holds_queue(session, held->call_queue, held)) {
            TAILQ_REMOVE(&session->held_calls, held, link);
            break;
        }
    }
    return held;
}

/* ---- replies ---------------------------------------------------------------------------- */

void tdm__client_session_acknowledge(struct tdm__client_sessions *client_sessions,
                                     struct tdm__client_session *session, uint64_t sequence)
{
    if (sequence <= session->acknowledged_sequence) {
        return;
    }
    session->acknowledged_sequence = sequence;
    while (!TAILQ_EMPTY(&session->replies) &&
           TAILQ_FIRST(&session->replies)->sequence <= sequence) {
        session_drop_oldest_reply(client_sessions, session);
    }
}

const struct tdm__method_reply *
tdm__client_session_cached_reply(struct tdm__client_session *session, uint64_t sequence)
{
    struct tdm__cached_reply *cached = session->resend_cursor;

    if (cached == NULL || cached->sequence > sequence) {
        cached = TAILQ_FIRST(&session->replies);
    }
    while (cached != NULL && cached->sequence < sequence) {
        cached = TAILQ_NEXT(cached, link);
    }
    if (cached == NULL || cached->sequence != sequence) {
        return NULL;
    }
    session->resend_cursor = cached;
    return &cached->reply;
}

tdm_status tdm__client_session_check_may_run(const struct tdm__client_session *session,
                                             uint64_t sequence)
{
    if (sequence <= session->acknowledged_sequence) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "call %llu was repeated although its reply was acknowledged",
                         (unsigned long long)sequence);
    }
    if (sequence <= session->uncached_sequence) {
        return tdm__fail(TDM_E_NOMEM, "call %llu has run; its reply was not kept",
                         (unsigned long long)sequence);
    }
    return TDM_OK;
}

/* Inserts a reply in order of sequence numbers. Replies arrive nearly in order, so the search
 * starts at the end. */
static void cached_reply_insert(struct tdm__client_session *session,
                                struct tdm__cached_reply *cached)
{
    struct tdm__cached_reply *before = TAILQ_LAST(&session->replies, tdm__cached_replies);

    while (before != NULL && before->sequence > cached->sequence) {
        before = TAILQ_PREV(before, tdm__cached_replies, link);
    }
    if (before == NULL) {
        TAILQ_INSERT_HEAD(&session->replies, cached, link);
    } else {
        TAILQ_INSERT_AFTER(&session->replies, before, cached, link);
    }
}

/* Returns true if one more reply to the caller may be kept. Without a limit a caller that does not
 * acknowledge, because its first call takes long, would fill the actor's memory. */
static bool sessions_may_cache(const struct tdm__client_sessions *client_sessions,
                               const struct tdm__client_session *session)
{
    return session->cached_reply_count < TDM__CACHED_REPLIES_MAX &&
           client_sessions->cached_reply_bytes < TDM__CACHED_REPLY_BYTES_MAX;
}

/* Records that the reply to the call `sequence` is not kept. If the connection is cut before the
 * caller has the reply, the call fails, because it must not run twice. */
static void session_note_uncached(struct tdm__client_session *session, uint64_t sequence)
{
    session->uncached_sequence =
        sequence > session->uncached_sequence ? sequence : session->uncached_sequence;
}

void tdm__client_session_cache_reply(struct tdm__client_sessions *client_sessions,
                                     struct tdm__client_session *session, uint64_t sequence,
                                     const struct tdm__method_reply *reply)
{
    struct tdm__cached_reply *cached;

    if (sequence <= session->acknowledged_sequence) {
        return; /* The caller already has the reply to this call. */
    }
    if (!sessions_may_cache(client_sessions, session)) {
        session_note_uncached(session, sequence);
        return;
    }
    if (tdm__cached_reply_create(reply, &cached) != TDM_OK) {
        tdm__log(TDM__WARN, "actor", "call %llu: %s", (unsigned long long)sequence,
                 tdm_error_detail());
        session_note_uncached(session, sequence);
        return;
    }
    cached->sequence = sequence;
    cached_reply_insert(session, cached);
    session->cached_reply_count++;
    client_sessions->cached_reply_bytes += cached->size_bytes;
}
