/* internal.h - what the files of the loop share: the loop, and what can become ready on it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_INTERNAL_H
#define TDM_RUNTIME_LOOP_INTERNAL_H

#include "runtime/loop/loop.h"
#include "runtime/loop/spin.h"
#include "runtime/loop/turns.h"

#include <pthread.h>
#include <sys/queue.h>
#include <sys/time.h>

struct event;
struct event_base;

/* First member of what can become ready. */
struct item {
    TAILQ_ENTRY(item) link;
    STAILQ_ENTRY(item) fired_link; /* the polling thread's, like the next two */
    unsigned fired_events;
    bool fired;
    struct tdm__loop *loop;
    void (*dispatch)(struct item *item);
    void (*bury)(struct item *item);
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
    struct event_base *base;       /* owned */
    struct event *alarm;           /* owned; ends libevent's wait at alarm_ms */
    int64_t alarm_ms;              /* TDM__NEVER while not added */
    bool alarm_fired;              /* the polling thread's */
    TAILQ_HEAD(, item) ready;      /* in the order in which they became ready */
    STAILQ_HEAD(, item) fired;     /* the polling thread's */
    TAILQ_HEAD(, item) dead;       /* to be buried */
    TAILQ_HEAD(, tdm__hook) hooks; /* borrowed; before each poll */
    bool polling;
    struct tdm__spin spin;
    struct tdm__turns turns;

    int post_fd;                   /* owned eventfd: `posts` became non-empty */
    struct tdm__watch *post_watch; /* owned */
    pthread_mutex_t post_mutex;    /* guards `posts`, a leaf */
    STAILQ_HEAD(, post) posts;
};

/* It becomes ready: by whoever holds the lock. */
void tdm__item_list(struct item *item);
void tdm__item_unlist(struct item *item);
/* By libevent's callbacks: what happened is told once the lock is held again. */
void tdm__item_fire(struct item *item, unsigned events);
/* libevent no longer knows it; the polling thread may still have it in its hands. */
void tdm__item_destroy(struct item *item);

/* How long libevent is to wait. */
struct timeval tdm__time_until(int64_t deadline_ms);

#endif
