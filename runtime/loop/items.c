/* items.c - what becomes ready on a loop: file descriptors and timers, over libevent. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/internal.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <event2/event.h>

#include <errno.h>
#include <stdlib.h>

struct tdm__watch {
    struct item item;
    struct event *readable; /* owned; added while wanted */
    struct event *writable; /* owned; added while wanted */
    int fd;                 /* borrowed */
    unsigned wanted;
    tdm__watch_fn *fn;
    void *arg;
};

struct tdm__timer {
    struct item item;
    struct event *event; /* owned */
    int64_t deadline_ms;
    tdm__timer_fn *fn;
    void *arg;
};

void tdm__item_list(struct item *item)
{
    if (!item->listed) {
        item->listed = true;
        TAILQ_INSERT_TAIL(&item->loop->ready, item, link);
    }
}

void tdm__item_unlist(struct item *item)
{
    if (item->listed) {
        item->listed = false;
        TAILQ_REMOVE(&item->loop->ready, item, link);
    }
}

void tdm__item_destroy(struct item *item)
{
    tdm__item_unlist(item);
    if (item->loop->polling) {
        item->dead = true;
        TAILQ_INSERT_TAIL(&item->loop->dead, item, link);
    } else {
        item->bury(item);
    }
}

struct timeval tdm__time_until(int64_t deadline_ms)
{
    int64_t left_ms = tdm__deadline_left(deadline_ms);
    struct timeval time = {.tv_sec = left_ms / 1000, .tv_usec = left_ms % 1000 * 1000};

    return time;
}

void tdm__item_fire(struct item *item, unsigned events)
{
    item->fired_events |= events;
    if (!item->fired) {
        item->fired = true;
        STAILQ_INSERT_TAIL(&item->loop->fired, item, fired_link);
    }
}

/* ---- watches ---------------------------------------------------------------------------- */

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    struct tdm__watch *watch = arg;

    (void)fd;
    tdm__item_fire(&watch->item, ((what & EV_READ) != 0 ? (unsigned)TDM__READABLE : 0u) |
                                     ((what & EV_WRITE) != 0 ? (unsigned)TDM__WRITABLE : 0u));
}

static void watch_bury(struct item *item)
{
    struct tdm__watch *watch = (struct tdm__watch *)item;

    if (watch->readable != NULL) {
        event_free(watch->readable);
    }
    if (watch->writable != NULL) {
        event_free(watch->writable);
    }
    free(watch);
}

static void watch_dispatch(struct item *item)
{
    struct tdm__watch *watch = (struct tdm__watch *)item;
    unsigned ready =
        watch->item.ready & watch->wanted; /* what is no longer wanted is not told */

    watch->item.ready = 0;
    watch->fn(watch->arg, watch->fd, ready);
}

tdm_status tdm__watch_create(struct tdm__loop *loop, int fd, unsigned events, tdm__watch_fn *fn,
                             void *arg, struct tdm__watch **watch_out)
{
    struct tdm__watch *watch = calloc(1, sizeof(*watch));
    tdm_status status;

    TDM_ASSERT(fd >= 0 && fn != NULL);
    if (watch == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a watch of fd %d", fd);
    }
    watch->item.loop = loop;
    watch->item.dispatch = watch_dispatch;
    watch->item.bury = watch_bury;
    watch->fd = fd;
    watch->fn = fn;
    watch->arg = arg;
    watch->readable = event_new(loop->base, fd, EV_READ | EV_PERSIST, on_event, watch);
    watch->writable = event_new(loop->base, fd, EV_WRITE | EV_PERSIST, on_event, watch);
    if (watch->readable == NULL || watch->writable == NULL) {
        tdm__watch_destroy(watch);
        return tdm__fail(TDM_E_NOMEM, "event_new: a watch of fd %d", fd);
    }
    status = tdm__watch_want(watch, events);
    if (status != TDM_OK) {
        tdm__watch_destroy(watch);
        return status;
    }
    *watch_out = watch;
    return TDM_OK;
}

static tdm_status want_one(struct tdm__watch *watch, unsigned events, unsigned which,
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

tdm_status tdm__watch_want(struct tdm__watch *watch, unsigned events)
{
    TDM_ASSERT((events & ~(unsigned)(TDM__READABLE | TDM__WRITABLE)) == 0);
    TDM_TRY(want_one(watch, events, TDM__READABLE, watch->readable));
    return want_one(watch, events, TDM__WRITABLE, watch->writable);
}

void tdm__watch_again(struct tdm__watch *watch)
{
    tdm__item_list(&watch->item);
}

void tdm__watch_destroy(struct tdm__watch *watch)
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
    tdm__item_destroy(&watch->item);
}

/* ---- timers ----------------------------------------------------------------------------- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct tdm__timer *timer = arg;

    (void)fd;
    (void)what;
    tdm__item_fire(&timer->item, 0);
}

static void timer_bury(struct item *item)
{
    struct tdm__timer *timer = (struct tdm__timer *)item;

    event_free(timer->event);
    free(timer);
}

/* libevent reads a coarse clock and may be some milliseconds early: then it waits the rest. */
static void timer_dispatch(struct item *item)
{
    struct tdm__timer *timer = (struct tdm__timer *)item;

    if (timer->deadline_ms == TDM__NEVER) {
        return; /* cleared while it fired */
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
        return tdm__fail(TDM_E_NOMEM, "a timer");
    }
    timer->item.loop = loop;
    timer->item.dispatch = timer_dispatch;
    timer->item.bury = timer_bury;
    timer->deadline_ms = TDM__NEVER;
    timer->fn = fn;
    timer->arg = arg;
    timer->event = event_new(loop->base, -1, 0, on_timer, timer);
    if (timer->event == NULL) {
        free(timer);
        return tdm__fail(TDM_E_NOMEM, "event_new: a timer");
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
    time = tdm__time_until(deadline_ms);
    if (event_add(timer->event, &time) != 0) {
        return tdm__fail(TDM_E_NOMEM, "event_add: no memory for a timer");
    }
    return TDM_OK;
}

void tdm__timer_clear(struct tdm__timer *timer)
{
    (void)event_del(timer->event);
    tdm__item_unlist(&timer->item);
    timer->deadline_ms = TDM__NEVER;
}

void tdm__timer_destroy(struct tdm__timer *timer)
{
    if (timer == NULL) {
        return;
    }
    (void)event_del(timer->event);
    tdm__item_destroy(&timer->item);
}
