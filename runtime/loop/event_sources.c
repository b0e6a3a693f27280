/* event_sources.c - the event sources of a loop: watches of file descriptors, and timers. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A watch or a timer starts with a struct event_source and wraps events of libevent. libevent's
 * callbacks run while the loop polls without its lock.  They only record the source in the list
 * `fired` (tdm__event_source_record).  After the poll, with the lock held, loop.c moves the
 * sources to the list `ready` and dispatches them one by one.
 *
 * States of a source: idle; fired, during a poll; ready, that is, in the list `ready`; and dead,
 * if it is destroyed during a poll.  A dead source is freed when the poll ends.
 *
 * All functions need the loop lock, except for the callbacks fd_watch_on_event() and
 * timer_on_timeout(), which belong to the thread that polls. */
#include "runtime/loop/internal.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <event2/event.h>

#include <errno.h>
#include <stdlib.h>

/* A watch of one file descriptor; owned by the code that created it. */
struct tdm__fd_watch {
    /* Part that watches and timers have in common; must be the first member. */
    struct event_source event_source;
    /* Event of libevent for reading; owned.  Added to the base while TDM__READABLE is wanted. */
    struct event *readable;
    /* Event of libevent for writing; owned.  Added to the base while TDM__WRITABLE is wanted. */
    struct event *writable;
    int fd; /* Watched file descriptor; borrowed, must outlive the watch. */
    /* Events that the owner wants: TDM__READABLE, TDM__WRITABLE or both; 0 for none. */
    unsigned wanted;
    tdm__fd_watch_fn *fn; /* Callback of the watch's owner. */
    void *arg;            /* First argument of fn(). */
};

/* A timer of a loop; owned by the code that created it. */
struct tdm__timer {
    /* Part that watches and timers have in common; must be the first member. */
    struct event_source event_source;
    struct event *event; /* Timeout event of libevent; owned. */
    /* Time when the timer fires, on the scale of tdm__clock_ms(); TDM__NEVER while it is not
     * set. */
    int64_t deadline_ms;
    tdm__timer_fn *fn; /* Callback of the timer's owner. */
    void *arg;         /* First argument of fn(). */
};

void tdm__event_source_mark_ready(struct event_source *event_source)
{
    if (!event_source->listed) {
        event_source->listed = true;
        TAILQ_INSERT_TAIL(&event_source->loop->ready, event_source, link);
    }
}

void tdm__event_source_unmark_ready(struct event_source *event_source)
{
    if (event_source->listed) {
        event_source->listed = false;
        TAILQ_REMOVE(&event_source->loop->ready, event_source, link);
    }
}

void tdm__event_source_destroy(struct event_source *event_source)
{
    tdm__event_source_unmark_ready(event_source);
    if (event_source->loop->polling) {
        event_source->dead = true;
        TAILQ_INSERT_TAIL(&event_source->loop->dead, event_source, link);
    } else {
        event_source->free_source(event_source);
    }
}

struct timeval tdm__timeval_until(int64_t deadline_ms)
{
    int64_t remaining_ms = tdm__deadline_remaining_ms(deadline_ms);
    struct timeval time = {.tv_sec = remaining_ms / 1000, .tv_usec = remaining_ms % 1000 * 1000};

    return time;
}

void tdm__event_source_record(struct event_source *event_source, unsigned events)
{
    event_source->fired_events |= events;
    if (!event_source->fired) {
        event_source->fired = true;
        STAILQ_INSERT_TAIL(&event_source->loop->fired, event_source, fired_link);
    }
}

/* ---- watches ---------------------------------------------------------------------------- */

/* Callback of libevent: records the events of the watch.  Runs in the polling thread without the
 * loop lock. */
static void fd_watch_on_event(evutil_socket_t fd, short what, void *arg)
{
    struct tdm__fd_watch *watch = arg;

    (void)fd;
    tdm__event_source_record(&watch->event_source,
                             ((what & EV_READ) != 0 ? (unsigned)TDM__READABLE : 0u) |
                                 ((what & EV_WRITE) != 0 ? (unsigned)TDM__WRITABLE : 0u));
}

/* Frees a watch and its events of libevent. */
static void fd_watch_free(struct event_source *event_source)
{
    struct tdm__fd_watch *watch = (struct tdm__fd_watch *)event_source;

    if (watch->readable != NULL) {
        event_free(watch->readable);
    }
    if (watch->writable != NULL) {
        event_free(watch->writable);
    }
    free(watch);
}

/* Calls the owner's callback with the events that are still wanted. */
static void fd_watch_dispatch(struct event_source *event_source)
{
    struct tdm__fd_watch *watch = (struct tdm__fd_watch *)event_source;
    /* Events that the owner no longer wants are dropped. */
    unsigned ready = watch->event_source.ready & watch->wanted;

    watch->event_source.ready = 0;
    watch->fn(watch->arg, watch->fd, ready);
}

tdm_status tdm__fd_watch_create(struct tdm__loop *loop, int fd, unsigned events,
                                tdm__fd_watch_fn *fn, void *arg, struct tdm__fd_watch **watch_out)
{
    struct tdm__fd_watch *watch = calloc(1, sizeof(*watch));
    tdm_status status;

    TDM_ASSERT(fd >= 0 && fn != NULL);
    if (watch == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocation of a watch of fd %d failed", fd);
    }
    watch->event_source.loop = loop;
    watch->event_source.dispatch = fd_watch_dispatch;
    watch->event_source.free_source = fd_watch_free;
    watch->fd = fd;
    watch->fn = fn;
    watch->arg = arg;
    watch->readable = event_new(loop->base, fd, EV_READ | EV_PERSIST, fd_watch_on_event, watch);
    watch->writable = event_new(loop->base, fd, EV_WRITE | EV_PERSIST, fd_watch_on_event, watch);
    if (watch->readable == NULL || watch->writable == NULL) {
        tdm__fd_watch_destroy(watch);
        return tdm__fail(TDM_E_NOMEM, "event_new failed: no memory for a watch of fd %d", fd);
    }
    status = tdm__fd_watch_set_events(watch, events);
    if (status != TDM_OK) {
        tdm__fd_watch_destroy(watch);
        return status;
    }
    *watch_out = watch;
    return TDM_OK;
}

/* Adds or deletes the event of libevent for one of the two directions, `which`, if `events`
 * changes whether it is wanted. */
static tdm_status fd_watch_set_event(struct tdm__fd_watch *watch, unsigned events, unsigned which,
                                     struct event *event)
{
    bool wanted = (events & which) != 0;

    if (wanted == ((watch->wanted & which) != 0)) {
        return TDM_OK;
    }
    if ((wanted ? event_add(event, NULL) : event_del(event)) != 0) {
        return tdm__fail_errno(errno, "event_%s of fd %d", wanted ? "add" : "del", watch->fd);
    }
    watch->wanted ^= which;
    return TDM_OK;
}

tdm_status tdm__fd_watch_set_events(struct tdm__fd_watch *watch, unsigned events)
{
    TDM_ASSERT((events & ~(unsigned)(TDM__READABLE | TDM__WRITABLE)) == 0);
    TDM_TRY(fd_watch_set_event(watch, events, TDM__READABLE, watch->readable));
    return fd_watch_set_event(watch, events, TDM__WRITABLE, watch->writable);
}

void tdm__fd_watch_call_again(struct tdm__fd_watch *watch)
{
    tdm__event_source_mark_ready(&watch->event_source);
}

void tdm__fd_watch_destroy(struct tdm__fd_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    if (watch->readable != NULL) {
        (void)event_del(watch->readable);
    }
    if (watch->writable != NULL) {
        (void)event_del(watch->writable);
    }
    tdm__event_source_destroy(&watch->event_source);
}

/* ---- timers ----------------------------------------------------------------------------- */

/* Callback of libevent: records that the timer has fired.  Runs in the polling thread without the
 * loop lock. */
static void timer_on_timeout(evutil_socket_t fd, short what, void *arg)
{
    struct tdm__timer *timer = arg;

    (void)fd;
    (void)what;
    tdm__event_source_record(&timer->event_source, 0);
}

/* Frees a timer and its event of libevent. */
static void timer_free(struct event_source *event_source)
{
    struct tdm__timer *timer = (struct tdm__timer *)event_source;

    event_free(timer->event);
    free(timer);
}

/* Calls the callback of the owner if the deadline has passed. libevent reads a coarse clock and
 * may be some milliseconds early; then the timer is set for the rest. */
static void timer_dispatch(struct event_source *event_source)
{
    struct tdm__timer *timer = (struct tdm__timer *)event_source;

    if (timer->deadline_ms == TDM__NEVER) {
        return; /* The timer was cleared after it had fired. */
    }
    if (tdm__clock_ms() < timer->deadline_ms &&
        tdm__timer_set(timer, timer->deadline_ms) == TDM_OK) {
        return;
    }
    timer->fn(timer->arg);
}

tdm_status tdm__timer_create(struct tdm__loop *loop, tdm__timer_fn *fn, void *arg,
                             struct tdm__timer **timer_out)
{
    struct tdm__timer *timer = calloc(1, sizeof(*timer));

    TDM_ASSERT(fn != NULL);
    if (timer == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocation of a timer failed");
    }
    timer->event_source.loop = loop;
    timer->event_source.dispatch = timer_dispatch;
    timer->event_source.free_source = timer_free;
    timer->deadline_ms = TDM__NEVER;
    timer->fn = fn;
    timer->arg = arg;
    timer->event = event_new(loop->base, -1, 0, timer_on_timeout, timer);
    if (timer->event == NULL) {
        free(timer);
        return tdm__fail(TDM_E_NOMEM, "event_new failed: no memory for a timer");
    }
    *timer_out = timer;
    return TDM_OK;
}

tdm_status tdm__timer_set(struct tdm__timer *timer, int64_t deadline_ms)
{
    struct timeval time;

    tdm__timer_clear(timer);
    timer->deadline_ms = deadline_ms;
    if (deadline_ms == TDM__NEVER) {
        return TDM_OK;
    }
    time = tdm__timeval_until(deadline_ms);
    if (event_add(timer->event, &time) != 0) {
        return tdm__fail(TDM_E_NOMEM, "event_add failed: no memory for a timer");
    }
    return TDM_OK;
}

void tdm__timer_clear(struct tdm__timer *timer)
{
    (void)event_del(timer->event);
    tdm__event_source_unmark_ready(&timer->event_source);
    timer->deadline_ms = TDM__NEVER;
}

void tdm__timer_destroy(struct tdm__timer *timer)
{
    if (timer == NULL) {
        return;
    }
    (void)event_del(timer->event);
    tdm__event_source_destroy(&timer->event_source);
}
