/* client_session.h - those who call this actor, and the answers they may not have got. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_CLIENT_SESSION_H
#define TDM_ACTORS_SERVER_CLIENT_SESSION_H

#include "actors/server/method_reply.h"

#include <tandem/actor.h>

/* At most once: a caller numbers its calls, tells with each up to where it has the answers, and
 * sends those it has no answer to again when its connection was cut.  Until it has told, its
 * answers are kept here; a call that comes again gets the same one. */
struct tdm__client_session {
    struct tdm__client_session *next; /* in its bucket */
    struct tdm__id id;                /* with the two that follow: one incarnation of a process */
    struct tdm__id node;
    int64_t pid;
    uint64_t highest_sequence;      /* sequence that has come */
    uint64_t acknowledged_sequence; /* answers up to here need not be kept */
    uint64_t uncached_sequence;     /* of the highest answer that memory was lacking for; 0: none */
    TAILQ_HEAD(tdm__cached_replies, tdm__cached_reply) answers; /* owned; by sequence */
    uint32_t cached_reply_count;
    uint32_t calls_count; /* not answered yet */
    /* Who sends again does so in order: the next one is looked for behind these. */
    struct tdm__cached_reply *resend_cursor; /* in `answers`; or NULL */
    tdm_call *resumed_call;                  /* not answered yet; or NULL */
    TAILQ_HEAD(, tdm_call) held;             /* calls in order, the first of them held: call.h */
    bool heard_since_sweep;                  /* since the last sweep */
    int64_t silent_since_ms;                 /* at a sweep */
};

enum { TDM__CLIENT_SESSION_BUCKETS = 256, TDM__CACHED_REPLIES_MAX = 100000 };
#define TDM__CACHED_REPLY_BYTES_MAX ((size_t)256 << 20)

struct tdm__client_sessions {
    struct tdm__client_session *buckets[TDM__CLIENT_SESSION_BUCKETS]; /* owned */
    struct tdm__client_session *last; /* the one asked for last; or NULL */
    size_t cached_reply_bytes;
    int64_t swept_ms;
};

void tdm__client_sessions_init(struct tdm__client_sessions *client_sessions);
/* None has calls any more. */
void tdm__client_sessions_fini(struct tdm__client_sessions *client_sessions);

/* The caller who is `peer`, a new one if it must be; TDM_E_NOMEM.  Those not heard of for
 * minutes, and without calls, are forgotten now and then. */
tdm_status tdm__client_session_get(struct tdm__client_sessions *client_sessions,
                                   const struct tdm__peer_identity *peer,
                                   struct tdm__client_session **caller_out);

/* The caller has all answers up to there. */
void tdm__client_session_acknowledge(struct tdm__client_sessions *client_sessions,
                                     struct tdm__client_session *session, uint64_t sequence);
/* TDM_E_AGAIN while too many answers, or bytes of them, wait for an acknowledgement. */
tdm_status tdm__client_session_check_cache(const struct tdm__client_sessions *client_sessions,
                                           const struct tdm__client_session *session);
/* Its call of that sequence that is not answered yet, `first` and the executor's others looked
 * through; or NULL. */
tdm_call *tdm__client_session_find_call(struct tdm__client_session *session, tdm_call *first,
                                        uint64_t sequence);
/* The answer kept under that sequence, or NULL. */
const struct tdm__method_reply *
tdm__client_session_cached_reply(struct tdm__client_session *session, uint64_t sequence);
/* TDM_OK if a call that is neither known nor answered may run: it has not come before, or was
 * refused then.  Else why it may not. */
tdm_status tdm__client_session_check_may_run(const struct tdm__client_session *session,
                                             uint64_t sequence);
void tdm__client_session_cache_reply(struct tdm__client_sessions *client_sessions,
                                     struct tdm__client_session *session, uint64_t sequence,
                                     const struct tdm__method_reply *answer);

#endif
