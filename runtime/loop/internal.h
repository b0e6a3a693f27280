/* internal.h - what the files of the loop share: the loop, and what can become ready on it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_INTERNAL_H
#define TDM_RUNTIME_LOOP_INTERNAL_H

#include "runtime/loop/adaptive_polling.h"
#include "runtime/loop/loop.h"
#include "runtime/loop/loop_lock.h"

#include <pthread.h>
#include <sys/queue.h>
#include <sys/time.h>

struct event;
struct event_base;

/* First member of what can become ready. */
struct event_source {
    TAILQ_ENTRY(event_source) link;
    STAILQ_ENTRY(event_source) fired_link; /* the polling thread's, like the next two */
    unsigned fired_events;
    bool fired;
    struct tdm__loop *loop;
    void (*dispatch)(struct event_source *event_source);
    void (*free_source)(struct event_source *event_source);
    unsigned ready; /* watches: the events to tell */
    bool listed;
    bool dead; /* destroyed, not buried yet */
};

struct post {
    STAILQ_ENTRY(post) link;
    void (*fn)(void *arg);
    void *arg;
};

struct tdm__loop {
    struct event_base *base;            /* owned */
    struct event *alarm;                /* owned; ends libevent's wait at alarm_ms */
    int64_t alarm_ms;                   /* TDM__NEVER while not added */
    bool alarm_fired;                   /* the polling thread's */
    TAILQ_HEAD(, event_source) ready;   /* in the order in which they became ready */
    STAILQ_HEAD(, event_source) fired;  /* the polling thread's */
    TAILQ_HEAD(, event_source) dead;    /* to be buried */
    TAILQ_HEAD(, tdm__poll_hook) hooks; /* borrowed; before each poll */
    bool polling;
    struct tdm__adaptive_polling adaptive_polling;
    struct tdm__loop_lock loop_lock;

    int post_fd;                      /* owned eventfd: `posts` became non-empty */
    struct tdm__fd_watch *post_watch; /* owned */
    pthread_mutex_t post_mutex;       /* guards `posts`, a leaf */
    STAILQ_HEAD(, post) posts;
};

/* It becomes ready: by whoever holds the lock. */
void tdm__event_source_mark_ready(struct event_source *event_source);
void tdm__event_source_unmark_ready(struct event_source *event_source);
/* By libevent's callbacks: what happened is told once the lock is held again. */
void tdm__event_source_record(struct event_source *event_source, unsigned events);
/* libevent no longer knows it; the polling thread may still have it in its hands. */
void tdm__event_source_destroy(struct event_source *event_source);

/* How long libevent is to wait. */
struct timeval tdm__timeval_until(int64_t deadline_ms);

#endif
