/* internal.h - the structures that the files of the event loop share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_INTERNAL_H
#define TDM_RUNTIME_LOOP_INTERNAL_H

#include "runtime/loop/adaptive_polling.h"
#include "runtime/loop/loop.h"
#include "runtime/loop/loop_lock.h"

#include <pthread.h>
#include <sys/queue.h>
#include <sys/time.h>

/* An event of libevent. */
struct event;
/* The state of one event loop of libevent. */
struct event_base;

/* Common first member of watches and timers: something that becomes ready and then is dispatched,
 * that is, its callback runs.  The loop lock guards it, except for the `fired` members, which
 * belong to the thread that polls. */
struct event_source {
    TAILQ_ENTRY(event_source) link;        /* Link in the list `ready` or `dead` of the loop. */
    STAILQ_ENTRY(event_source) fired_link; /* Link in the list `fired` of the loop. */
    /* Events that libevent has reported in this poll: TDM__READABLE, TDM__WRITABLE. */
    unsigned fired_events;
    bool fired;             /* True while the source is in the list `fired` of the loop. */
    struct tdm__loop *loop; /* Loop to which the watch or timer belongs; borrowed. */
    /* Calls the callback of the user, which may destroy the source. */
    void (*dispatch)(struct event_source *event_source);
    /* Frees the memory of the watch or timer. */
    void (*free_source)(struct event_source *event_source);
    unsigned ready; /* Events of a watch that the next dispatch reports. */
    bool listed;    /* True while the source is in the list `ready` of the loop. */
    bool dead; /* True if the source was destroyed during a poll; it is freed when the poll ends. */
};

/* One call of tdm__loop_post() that has not run yet; owned by the list `posts`. */
struct posted_call {
    STAILQ_ENTRY(posted_call) link; /* Link in the list `posts` of the loop. */
    void (*fn)(void *arg); /* Function that runs once on the thread that drives the loop. */
    void *arg;             /* Argument of the posted call's fn(). */
};

/* The event loop of a process. loop_lock guards all members but those that name another guard:
 * members of the polling thread may only be used by the thread that polls, without the lock, and
 * after the poll by the same thread. */
struct tdm__loop {
    struct event_base *base; /* Event base of libevent; owned. */
    /* Event that ends the wait of libevent at timeout_event_ms; owned. */
    struct event *timeout_event;
    int64_t timeout_event_ms; /* Deadline of timeout_event; TDM__NEVER while it is not set. */
    bool timeout_event_fired; /* True after timeout_event has fired; belongs to the polling thread.
                               */
    /* Sources to dispatch, in the order in which they became ready. */
    TAILQ_HEAD(, event_source) ready;
    /* Sources that libevent has reported; belongs to the polling thread. */
    STAILQ_HEAD(, event_source) fired;
    TAILQ_HEAD(, event_source) dead;         /* Sources that were destroyed during a poll. */
    TAILQ_HEAD(, tdm__poll_hook) poll_hooks; /* Hooks that run before each poll; borrowed. */
    bool polling; /* True while a thread polls and has released the loop lock. */
    /* Decides whether waits poll before they sleep. */
    struct tdm__adaptive_polling adaptive_polling;
    struct tdm__loop_lock loop_lock; /* Guards the loop and everything that uses it. */

    /* Eventfd that ends the wait of a poll, because `posts` is not empty or because the driver must
     * evaluate the conditions of the waiting threads again; owned. */
    int post_fd;
    struct tdm__fd_watch *post_watch; /* The loop's own watch on post_fd; owned. */
    /* Guards `posts`.  No other lock is acquired while it is held. */
    pthread_mutex_t post_mutex;
    STAILQ_HEAD(, posted_call) posts; /* Posted calls in order; guarded by post_mutex. */
};

/* Adds a watch or timer to the end of the list `ready` unless the list contains it.  The caller
 * holds the loop lock. */
void tdm__event_source_mark_ready(struct event_source *event_source);
/* Removes a watch or timer from the list `ready` if the list contains it.  The caller holds the
 * loop lock. */
void tdm__event_source_unmark_ready(struct event_source *event_source);
/* Records events of the source during a poll.  Only for callbacks of libevent, which run without
 * the lock; the loop makes the source ready when it holds the lock again. */
void tdm__event_source_record(struct event_source *event_source, unsigned events);
/* Frees a watch or timer, now or, if a poll is under way, when the poll ends, because the polling
 * thread may be using it.  The events of the source must be deleted from libevent before. */
void tdm__event_source_destroy(struct event_source *event_source);

/* Returns the time from now until the deadline, as libevent expects it; 0 if the deadline has
 * passed.  The deadline must not be TDM__NEVER. */
struct timeval tdm__timeval_until(int64_t deadline_ms);

#endif
