/* loop.c - the event loop of a process: file descriptors, timers, posts, over libevent. */
/* SPDX-License-Identifier: Apache-2.0 */
/* libevent's callbacks only put what is ready on a list; tdm__loop_run() runs the users'
 * functions from that list after libevent has returned.  So a user's function may run the loop
 * again (libevent itself does not allow that), and what an outer run has left on the list is
 * done by the inner one.  An item leaves the list before its function is called, so it may be
 * destroyed at any time. */
#include "runtime/loop/loop.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <event2/event.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

/* First member of what can become ready. */
struct item {
    TAILQ_ENTRY(item) link;
    struct tdm__loop *loop;
    void (*dispatch)(struct item *item);
    bool listed;
};

struct post {
    STAILQ_ENTRY(post) link;
    void (*fn)(void *arg);
    void *arg;
};

struct tdm__watch {
    struct item item;
    struct event *readable; /* owned; added while wanted */
    struct event *writable; /* owned; added while wanted */
    int fd;                 /* borrowed */
    unsigned wanted;
    unsigned ready;
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

struct tdm__loop {
    struct event_base *base;  /* owned */
    struct event *alarm;      /* owned; ends libevent's wait at alarm_ms */
    int64_t alarm_ms;         /* TDM__NEVER while not added */
    TAILQ_HEAD(, item) ready; /* in the order in which they became ready */
    bool inside_libevent;

    int post_fd;                   /* owned eventfd: `posts` became non-empty */
    struct tdm__watch *post_watch; /* owned */
    pthread_mutex_t post_mutex;    /* guards `posts`, a leaf */
    STAILQ_HEAD(, post) posts;
};

static void item_list(struct item *item)
{
    if (!item->listed) {
        item->listed = true;
        TAILQ_INSERT_TAIL(&item->loop->ready, item, link);
    }
}

static void item_unlist(struct item *item)
{
    if (item->listed) {
        item->listed = false;
        TAILQ_REMOVE(&item->loop->ready, item, link);
    }
}

static struct timeval time_until(int64_t deadline_ms)
{
    int64_t left_ms = tdm__deadline_left(deadline_ms);
    struct timeval time = {.tv_sec = left_ms / 1000, .tv_usec = left_ms % 1000 * 1000};

    return time;
}

/* ---- running ---------------------------------------------------------------------------- */

static void on_alarm(evutil_socket_t fd, short what, void *arg)
{
    struct tdm__loop *loop = arg;

    (void)fd;
    (void)what;
    loop->alarm_ms = TDM__NEVER;
}

/* Nested runs share one alarm; each sets its own before it waits. */
static tdm_status alarm_set(struct tdm__loop *loop, int64_t deadline_ms)
{
    struct timeval time;

    if (loop->alarm_ms == deadline_ms) {
        return TDM_OK;
    }
    (void)event_del(loop->alarm);
    loop->alarm_ms = TDM__NEVER;
    if (deadline_ms == TDM__NEVER) {
        return TDM_OK;
    }
    time = time_until(deadline_ms);
    if (event_add(loop->alarm, &time) != 0) {
        return tdm__fail(TDM_E_NOMEM, "event_add: no memory for the loop's alarm");
    }
    loop->alarm_ms = deadline_ms;
    return TDM_OK;
}

/* Lists what is ready; waits for the first, if there is none and the deadline allows. */
static tdm_status collect(struct tdm__loop *loop, int64_t deadline_ms)
{
    bool wait = TAILQ_EMPTY(&loop->ready) && tdm__deadline_left(deadline_ms) != 0;
    int rc;

    TDM_ASSERT(!loop->inside_libevent);
    if (wait) {
        TDM_TRY(alarm_set(loop, deadline_ms));
    }
    loop->inside_libevent = true;
    rc = event_base_loop(loop->base, EVLOOP_ONCE | (wait ? 0 : EVLOOP_NONBLOCK));
    loop->inside_libevent = false;
    if (rc < 0) {
        return tdm__fail_errno(errno, "event_base_loop");
    }
    return TDM_OK;
}

static bool is_done(bool (*done)(void *arg), void *arg)
{
    return done != NULL && done(arg);
}

tdm_status tdm__loop_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                         int64_t deadline_ms)
{
    if (is_done(done, arg)) {
        return TDM_OK;
    }
    for (;;) {
        TDM_TRY(collect(loop, deadline_ms));
        while (!TAILQ_EMPTY(&loop->ready)) {
            struct item *item = TAILQ_FIRST(&loop->ready);

            item_unlist(item);
            item->dispatch(item);
            if (is_done(done, arg)) {
                return TDM_OK;
            }
        }
        if (deadline_ms != TDM__NEVER && tdm__clock_ms() >= deadline_ms) {
            return tdm__fail(TDM_E_TIMEOUT, "the loop's deadline passed");
        }
    }
}

/* ---- watches ---------------------------------------------------------------------------- */

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    struct tdm__watch *watch = arg;

    (void)fd;
    watch->ready |= (what & EV_READ) != 0 ? (unsigned)TDM__READABLE : 0u;
    watch->ready |= (what & EV_WRITE) != 0 ? (unsigned)TDM__WRITABLE : 0u;
    item_list(&watch->item);
}

static void watch_dispatch(struct item *item)
{
    struct tdm__watch *watch = (struct tdm__watch *)item;
    unsigned ready = watch->ready;

    watch->ready = 0;
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
    watch->ready &= events; /* what is no longer wanted is not told */
    TDM_TRY(want_one(watch, events, TDM__READABLE, watch->readable));
    return want_one(watch, events, TDM__WRITABLE, watch->writable);
}

void tdm__watch_again(struct tdm__watch *watch)
{
    item_list(&watch->item);
}

void tdm__watch_destroy(struct tdm__watch *watch)
{
    if (watch == NULL) {
        return;
    }
    item_unlist(&watch->item);
    if (watch->readable != NULL) {
        event_free(watch->readable);
    }
    if (watch->writable != NULL) {
        event_free(watch->writable);
    }
    free(watch);
}

/* ---- timers ----------------------------------------------------------------------------- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct tdm__timer *timer = arg;

    (void)fd;
    (void)what;
    item_list(&timer->item);
}

/* libevent reads a coarse clock and may be some milliseconds early: then it waits the rest. */
static void timer_dispatch(struct item *item)
{
    struct tdm__timer *timer = (struct tdm__timer *)item;

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
    time = time_until(deadline_ms);
    if (event_add(timer->event, &time) != 0) {
        return tdm__fail(TDM_E_NOMEM, "event_add: no memory for a timer");
    }
    return TDM_OK;
}

void tdm__timer_clear(struct tdm__timer *timer)
{
    (void)event_del(timer->event);
    item_unlist(&timer->item);
}

void tdm__timer_destroy(struct tdm__timer *timer)
{
    if (timer == NULL) {
        return;
    }
    item_unlist(&timer->item);
    event_free(timer->event);
    free(timer);
}

/* ---- posts ------------------------------------------------------------------------------ */

tdm_status tdm__loop_post(struct tdm__loop *loop, void (*fn)(void *arg), void *arg)
{
    static const uint64_t one = 1;
    struct post *post = malloc(sizeof(*post));
    bool first;

    if (post == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a post to the loop");
    }
    post->fn = fn;
    post->arg = arg;
    (void)pthread_mutex_lock(&loop->post_mutex);
    first = STAILQ_EMPTY(&loop->posts);
    STAILQ_INSERT_TAIL(&loop->posts, post, link);
    (void)pthread_mutex_unlock(&loop->post_mutex);
    if (first) {
        ssize_t written = write(loop->post_fd, &one, sizeof(one));

        TDM_ASSERT(written == (ssize_t)sizeof(one)); /* our fd, its counter far from full */
    }
    return TDM_OK;
}

/* One post at a time, so that the rest is there for a run inside its function. */
static void on_posts(void *arg, int fd, unsigned ready)
{
    struct tdm__loop *loop = arg;
    struct post *post;
    uint64_t count;
    bool more;

    if ((ready & TDM__READABLE) != 0 && read(fd, &count, sizeof(count)) < 0) {
        TDM_ASSERT(errno == EAGAIN || errno == EINTR);
    }
    (void)pthread_mutex_lock(&loop->post_mutex);
    post = STAILQ_FIRST(&loop->posts);
    if (post != NULL) {
        STAILQ_REMOVE_HEAD(&loop->posts, link);
    }
    more = !STAILQ_EMPTY(&loop->posts);
    (void)pthread_mutex_unlock(&loop->post_mutex);
    if (more) {
        tdm__watch_again(loop->post_watch);
    }
    if (post != NULL) {
        void (*fn)(void *) = post->fn;
        void *fn_arg = post->arg;

        free(post);
        fn(fn_arg);
    }
}

/* ---- life ------------------------------------------------------------------------------- */

static struct event_base *base_create(void)
{
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;

    if (config == NULL) {
        return NULL;
    }
    if (event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK) == 0 &&
        event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV) == 0) {
        base = event_base_new_with_config(config);
    }
    event_config_free(config);
    return base;
}

static tdm_status loop_init(struct tdm__loop *loop)
{
    loop->base = base_create();
    if (loop->base == NULL) {
        return tdm__fail(TDM_E_IO, "event_base_new: no event base");
    }
    loop->alarm = event_new(loop->base, -1, 0, on_alarm, loop);
    if (loop->alarm == NULL) {
        return tdm__fail(TDM_E_NOMEM, "event_new: the loop's alarm");
    }
    loop->post_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->post_fd < 0) {
        return tdm__fail_errno(errno, "eventfd");
    }
    return tdm__watch_create(loop, loop->post_fd, TDM__READABLE, on_posts, loop,
                             &loop->post_watch);
}

tdm_status tdm__loop_create(struct tdm__loop **loop_out)
{
    struct tdm__loop *loop = calloc(1, sizeof(*loop));
    tdm_status status;

    if (loop == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an event loop");
    }
    TAILQ_INIT(&loop->ready);
    STAILQ_INIT(&loop->posts);
    loop->alarm_ms = TDM__NEVER;
    loop->post_fd = -1;
    (void)pthread_mutex_init(&loop->post_mutex, NULL);
    status = loop_init(loop);
    if (status != TDM_OK) {
        tdm__loop_destroy(loop);
        return status;
    }
    *loop_out = loop;
    return TDM_OK;
}

void tdm__loop_destroy(struct tdm__loop *loop)
{
    struct post *post;

    if (loop == NULL) {
        return;
    }
    tdm__watch_destroy(loop->post_watch);
    TDM_ASSERT(TAILQ_EMPTY(&loop->ready));
    while ((post = STAILQ_FIRST(&loop->posts)) != NULL) {
        STAILQ_REMOVE_HEAD(&loop->posts, link);
        free(post);
    }
    if (loop->post_fd >= 0) {
        (void)close(loop->post_fd);
    }
    if (loop->alarm != NULL) {
        event_free(loop->alarm);
    }
    if (loop->base != NULL) {
        event_base_free(loop->base);
    }
    (void)pthread_mutex_destroy(&loop->post_mutex);
    free(loop);
}

void *tdm__loop_base(struct tdm__loop *loop)
{
    return loop->base;
}
