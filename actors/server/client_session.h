/* client_session.h - the callers of this actor, and the replies that they have not acknowledged. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_CLIENT_SESSION_H
#define TDM_ACTORS_SERVER_CLIENT_SESSION_H

#include "actors/server/method_reply.h"

#include <tandem/actor.h>

struct tdm__concurrency_queue;

/* One caller of this actor, with what is needed to run each of its calls at most once. A caller
 * numbers its calls and acknowledges with each call how far it has the replies. After its
 * connection was cut it sends again the calls without a reply. Until it acknowledges a reply, the
 * session keeps a copy, and a repeated call gets that copy. Guarded by the loop's lock. */
struct tdm__client_session {
    struct tdm__client_session *next; /* Next session in the same hash bucket. */
    /* Id of the calling process; `id`, `node` and `pid` together identify one incarnation of it. */
    struct tdm__id id;
    struct tdm__id node;       /* Node of the calling worker; all zeros for a driver. */
    int64_t pid;               /* Process id of the caller on its node. */
    uint64_t highest_sequence; /* Highest sequence number of the caller's calls. */
    /* Replies up to this sequence number have reached the caller and are not kept. */
    uint64_t acknowledged_sequence;
    /* Highest sequence number whose reply was not cached, because there were too many or for lack
     * of memory; 0 if every reply was cached. */
    uint64_t uncached_sequence;
    /* Cached replies by increasing sequence number, owned. */
    TAILQ_HEAD(tdm__cached_replies, tdm__cached_reply) replies;
    uint32_t cached_reply_count; /* Number of cached replies in `replies`. */
    uint32_t calls_count;        /* Number of received calls whose reply has not been sent. */
    /* Cached reply that was resent last, borrowed; NULL if absent. Callers repeat calls in
     * order, so the next search starts here. */
    struct tdm__cached_reply *resend_cursor;
    /* Unanswered call that the caller repeated last, borrowed; NULL if absent. The next
     * search starts here. */
    tdm_call *resumed_call;
    /* Calls of an ordered actor that may not start yet, in order of arrival. The first one of each
     * concurrency group is held, and later ones keep their place behind it. */
    TAILQ_HEAD(, tdm_call) held_calls;
    bool heard_since_sweep; /* True if the caller has sent a call since the last sweep. */
    /* Time of the sweep that last saw activity, in milliseconds on CLOCK_MONOTONIC. */
    int64_t silent_since_ms;
};

enum {
    TDM__CLIENT_SESSION_BUCKETS = 256, /* Number of hash buckets of the sessions. */
    TDM__CACHED_REPLIES_MAX = 100000 /* Most cached replies of one session; others are not kept. */
};
/* Most bytes of cached replies of all sessions together; others are not kept. */
#define TDM__CACHED_REPLY_BYTES_MAX ((size_t)256 << 20)

/* All client sessions of one actor, in a hash table by the id of the caller. Owned by the executor.
 */
struct tdm__client_sessions {
    /* Lists of sessions with the same first byte of the id, owned. */
    struct tdm__client_session *buckets[TDM__CLIENT_SESSION_BUCKETS];
    /* Session that was looked up last, borrowed; NULL if absent. */
    struct tdm__client_session *last;
    size_t cached_reply_bytes; /* Bytes of all cached replies of all sessions of the actor. */
    /* Time of the last sweep for expired sessions, in milliseconds on CLOCK_MONOTONIC. */
    int64_t swept_ms;
};

/* Initialises an empty table of client sessions. */
void tdm__client_sessions_init(struct tdm__client_sessions *client_sessions);
/* Frees all client sessions and their cached replies. No session may have open calls. */
void tdm__client_sessions_fini(struct tdm__client_sessions *client_sessions);

/* Finds the session of `peer`, or creates it. Returns TDM_E_NOMEM if that fails. From time to time
 * it also removes sessions that have no calls and have been silent for minutes. */
tdm_status tdm__client_session_get(struct tdm__client_sessions *client_sessions,
                                   const struct tdm__peer_identity *peer,
                                   struct tdm__client_session **session_out);

/* Drops the session's cached replies up to `sequence`, which the caller has received. */
void tdm__client_session_acknowledge(struct tdm__client_sessions *client_sessions,
                                     struct tdm__client_session *session, uint64_t sequence);
/* Returns the session's unanswered call with the number `sequence`, or NULL. Searches the
 * executor's calls from the one resumed last, then from `first`. */
tdm_call *tdm__client_session_find_call(struct tdm__client_session *session, tdm_call *first,
                                        uint64_t sequence);
/* True if a call of the concurrency queue is among the session's held calls, in front of the held
 * call `before`, or anywhere if `before` is NULL. */
bool tdm__client_session_holds_queue(const struct tdm__client_session *session,
                                     const struct tdm__concurrency_queue *call_queue,
                                     const tdm_call *before);
/* Removes the first held call that may start, and returns it; NULL if absent. A call may
 * start if it has no hold any more and no call of its queue is held in front of it. */
tdm_call *tdm__client_session_take_ready(struct tdm__client_session *session);
/* Returns the session's cached reply to the call `sequence`, owned by the session, or NULL. */
const struct tdm__method_reply *
tdm__client_session_cached_reply(struct tdm__client_session *session, uint64_t sequence);
/* Returns TDM_OK if a call that is neither open nor cached may run: it has not arrived before, or
 * it was refused then. Else returns why it may not run. */
tdm_status tdm__client_session_check_may_run(const struct tdm__client_session *session,
                                             uint64_t sequence);
/* Keeps a copy of a reply until the caller acknowledges it. Without memory for a copy it logs a
 * warning and records the sequence number, so that a repeated call fails. */
void tdm__client_session_cache_reply(struct tdm__client_sessions *client_sessions,
                                     struct tdm__client_session *session, uint64_t sequence,
                                     const struct tdm__method_reply *reply);

#endif
