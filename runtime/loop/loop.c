/* loop.c - the event loop of a process: file descriptors, timers, posts, over libevent. */
/* SPDX-License-Identifier: Apache-2.0 */
/* libevent's callbacks only put what is ready on a list; tdm__loop_run() runs the users'
 * functions from that list after libevent has returned.  So a user's function may run the loop
 * again (libevent itself does not allow that), and what an outer run has left on the list is
 * done by the inner one.  An item leaves the list before its function is called, so it may be
 * destroyed at any time.
 *
 * While libevent polls the lock is free, and other threads may change and destroy items.  So
 * its callbacks touch only what belongs to the polling thread (`fired`), and an item destroyed
 * meanwhile is buried only when the poll is over. */
#include "runtime/loop/loop.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/loop/turns.h"

#include <event2/event.h>
#include <event2/thread.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

enum {
    SPIN_NS = 20000,        /* while the last polling paid */
    SPIN_PROBE_NS = 150000, /* now and then, when it did not: longer than a wake-up takes */
    SPIN_PROBE_EVERY = 32
};

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
    bool expects_soon;
    bool spinning_pays;
    uint32_t spins_skipped;
    struct tdm__turns turns;

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

/* libevent no longer knows it; the polling thread may still have it in its hands. */
static void item_destroy(struct item *item)
{
    item_unlist(item);
    if (item->loop->polling) {
        item->dead = true;
        TAILQ_INSERT_TAIL(&item->loop->dead, item, link);
    } else {
        item->bury(item);
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
    loop->alarm_fired = true;
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

/* By libevent's callbacks: what happened is told once the lock is held again. */
static void item_fire(struct item *item, unsigned events)
{
    item->fired_events |= events;
    if (!item->fired) {
        item->fired = true;
        STAILQ_INSERT_TAIL(&item->loop->fired, item, fired_link);
    }
}

static void list_fired(struct tdm__loop *loop)
{
    struct item *item;

    while ((item = STAILQ_FIRST(&loop->fired)) != NULL) {
        STAILQ_REMOVE_HEAD(&loop->fired, fired_link);
        item->fired = false;
        item->ready |= item->fired_events;
        item->fired_events = 0;
        if (!item->dead) {
            item_list(item);
        }
    }
    while ((item = TAILQ_FIRST(&loop->dead)) != NULL) {
        TAILQ_REMOVE(&loop->dead, item, link);
        item->bury(item);
    }
    if (loop->alarm_fired) {
        loop->alarm_fired = false;
        loop->alarm_ms = TDM__NEVER;
    }
}

/* How long to poll before sleeping: not at all, unless a peer on another processor is expected
 * to answer soon. */
static int64_t spin_ns(struct tdm__loop *loop)
{
    if (!loop->expects_soon) {
        return 0;
    }
    loop->expects_soon = false;
    if (loop->spinning_pays) {
        return SPIN_NS;
    }
    loop->spins_skipped++;
    return loop->spins_skipped % SPIN_PROBE_EVERY == 0 ? SPIN_PROBE_NS : 0;
}

static int spin(struct tdm__loop *loop, int64_t for_ns)
{
    int64_t until_ns = tdm__clock_ns() + for_ns;
    int rc;

    do {
        rc = event_base_loop(loop->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    } while (rc >= 0 && STAILQ_EMPTY(&loop->fired) && tdm__clock_ns() < until_ns);
    return rc;
}

/* With the lock free.  Waits for the first that is ready, if it may. */
static int poll_events(struct tdm__loop *loop, bool wait, int64_t for_ns)
{
    int rc = 0;

    if (for_ns > 0) {
        rc = spin(loop, for_ns);
        wait = wait && STAILQ_EMPTY(&loop->fired);
    }
    if (rc >= 0 && (wait || for_ns == 0)) {
        rc = event_base_loop(loop->base, EVLOOP_ONCE | (wait ? 0 : EVLOOP_NONBLOCK));
    }
    return rc;
}

/* Lists what is ready; waits for the first, if there is none and the deadline allows. */
static tdm_status collect(struct tdm__loop *loop, int64_t deadline_ms)
{
    struct tdm__hook *hook;
    bool wait = false;
    int64_t for_ns = 0;
    int64_t began_ns = 0;
    uint32_t depth;
    int rc;

    TDM_ASSERT(!loop->polling);
    TAILQ_FOREACH(hook, &loop->hooks, link)
    {
        hook->fn(hook->arg);
    }
    wait = TAILQ_EMPTY(&loop->ready) && tdm__deadline_left(deadline_ms) != 0;
    for_ns = wait ? spin_ns(loop) : 0;
    began_ns = for_ns > 0 ? tdm__clock_ns() : 0;
    if (wait) {
        TDM_TRY(alarm_set(loop, deadline_ms));
    }
    loop->polling = true;
    depth = tdm__turns_unlock_all(&loop->turns);
    rc = poll_events(loop, wait, for_ns);
    tdm__turns_relock(&loop->turns, depth);
    loop->polling = false;
    if (for_ns > 0) {
        loop->spinning_pays = tdm__clock_ns() - began_ns < for_ns;
    }
    list_fired(loop);
    if (rc < 0) {
        return tdm__fail_errno(errno, "event_base_loop");
    }
    return TDM_OK;
}

static bool is_done(bool (*done)(void *arg), void *arg)
{
    return done != NULL && done(arg);
}

/* Somebody else wants to drive, and this thread only stands by. */
static bool must_yield(const struct tdm__loop *loop)
{
    return loop->turns.driver_yields && !TAILQ_EMPTY(&loop->turns.waiters);
}

static tdm_status drive(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                        int64_t deadline_ms)
{
    for (;;) {
        TDM_TRY(collect(loop, deadline_ms));
        while (!TAILQ_EMPTY(&loop->ready)) {
            struct item *item = TAILQ_FIRST(&loop->ready);

            item_unlist(item);
            item->dispatch(item);
            tdm__turns_notify(&loop->turns);
            if (is_done(done, arg)) {
                return TDM_OK;
            }
            if (must_yield(loop)) {
                return TDM_E_AGAIN;
            }
            tdm__turns_give_way(&loop->turns);
        }
        tdm__turns_notify(&loop->turns); /* other threads change things, too */
        if (is_done(done, arg)) {
            return TDM_OK;
        }
        if (must_yield(loop)) {
            return TDM_E_AGAIN;
        }
        if (deadline_ms != TDM__NEVER && tdm__clock_ms() >= deadline_ms) {
            return TDM_E_TIMEOUT;
        }
    }
}

static void end_poll(const struct tdm__loop *loop)
{
    static const uint64_t one = 1;
    ssize_t written = write(loop->post_fd, &one, sizeof(one));

    TDM_ASSERT(written == (ssize_t)sizeof(one)); /* our fd, its counter far from full */
}

/* A driver that does not poll looks again before it does. */
static void wake_driver(void *arg)
{
    const struct tdm__loop *loop = arg;

    if (loop->polling) {
        end_poll(loop);
    }
}

/* Inside a callback of the driver's.  It does not yield then: the callback needs its events. */
static tdm_status drive_nested(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                               int64_t deadline_ms)
{
    bool yields = loop->turns.driver_yields;
    tdm_status status;

    loop->turns.driver_yields = false;
    status = drive(loop, done, arg, deadline_ms);
    loop->turns.driver_yields = yields;
    return status;
}

static tdm_status drive_in_turn(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                                int64_t deadline_ms)
{
    tdm_status status =
        tdm__turns_take(&loop->turns, done, arg, deadline_ms, wake_driver, loop);

    if (status == TDM_OK) {
        status = drive(loop, done, arg, deadline_ms);
        tdm__turns_leave(&loop->turns);
    } else if (status == TDM_E_CANCELED) {
        status = TDM_OK; /* done, while another one drove */
    }
    return status;
}

tdm_status tdm__loop_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                         int64_t deadline_ms)
{
    tdm_status status;
    TDM__ENTER(loop);

    if (is_done(done, arg)) {
        return TDM_OK;
    }
    status = tdm__turns_drives(&loop->turns) ? drive_nested(loop, done, arg, deadline_ms)
                                             : drive_in_turn(loop, done, arg, deadline_ms);
    if (status == TDM_E_TIMEOUT) {
        return tdm__fail(status, "the loop's deadline passed");
    }
    return status;
}

tdm_status tdm__loop_stand_by(struct tdm__loop *loop, bool (*done)(void *arg), void *arg)
{
    tdm_status status;
    TDM__ENTER(loop);

    if (loop->turns.driver != NULL) {
        return TDM_E_AGAIN;
    }
    TDM_TRY(tdm__turns_take(&loop->turns, NULL, NULL, TDM__NEVER, wake_driver, loop));
    loop->turns.driver_yields = true;
    status = drive(loop, done, arg, TDM__NEVER);
    tdm__turns_leave(&loop->turns);
    return status;
}

/* ---- the lock --------------------------------------------------------------------------- */

struct tdm__loop *tdm__loop_enter(struct tdm__loop *loop)
{
    if (loop != NULL) {
        tdm__turns_lock(&loop->turns);
    }
    return loop;
}

void tdm__loop_leave(struct tdm__loop *loop)
{
    tdm__turns_unlock(&loop->turns);
}

void tdm__loop_leave_at(struct tdm__loop **loop)
{
    if (*loop != NULL) {
        tdm__loop_leave(*loop);
    }
}

uint32_t tdm__loop_let_go(struct tdm__loop *loop)
{
    return tdm__turns_is_held(&loop->turns) ? tdm__turns_unlock_all(&loop->turns) : 0;
}

void tdm__loop_take_back(struct tdm__loop *loop, uint32_t depth)
{
    if (depth > 0) {
        tdm__turns_relock(&loop->turns, depth);
    }
}

void tdm__loop_expect_soon(struct tdm__loop *loop)
{
    loop->expects_soon = true;
}

struct tdm__turns *tdm__loop_turns(struct tdm__loop *loop)
{
    return &loop->turns;
}

void tdm__loop_wake(struct tdm__loop *loop)
{
    wake_driver(loop);
}

void tdm__loop_before_poll(struct tdm__loop *loop, struct tdm__hook *hook)
{
    TAILQ_INSERT_TAIL(&loop->hooks, hook, link);
}

void tdm__loop_forget_hook(struct tdm__loop *loop, struct tdm__hook *hook)
{
    TAILQ_REMOVE(&loop->hooks, hook, link);
}

bool tdm__loop_is_polling(const struct tdm__loop *loop)
{
    return loop->polling;
}

void tdm__loop_after_fork(struct tdm__loop *loop)
{
    tdm__turns_after_fork(&loop->turns);
}

/* ---- watches ---------------------------------------------------------------------------- */

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    struct tdm__watch *watch = arg;

    (void)fd;
    item_fire(&watch->item, ((what & EV_READ) != 0 ? (unsigned)TDM__READABLE : 0u) |
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
    item_list(&watch->item);
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
    item_destroy(&watch->item);
}

/* ---- timers ----------------------------------------------------------------------------- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct tdm__timer *timer = arg;

    (void)fd;
    (void)what;
    item_fire(&timer->item, 0);
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
    timer->deadline_ms = TDM__NEVER;
}

void tdm__timer_destroy(struct tdm__timer *timer)
{
    if (timer == NULL) {
        return;
    }
    (void)event_del(timer->event);
    item_destroy(&timer->item);
}

/* ---- posts ------------------------------------------------------------------------------ */

tdm_status tdm__loop_post(struct tdm__loop *loop, void (*fn)(void *arg), void *arg)
{
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
        end_poll(loop);
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

static void use_threads(void)
{
    int rc = evthread_use_pthreads();

    TDM_ASSERT(rc == 0);
}

static struct event_base *base_create(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;

    (void)pthread_once(&once, use_threads);
    if (config == NULL) {
        return NULL;
    }
    if (event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV) == 0) {
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
    STAILQ_INIT(&loop->fired);
    TAILQ_INIT(&loop->dead);
    TAILQ_INIT(&loop->hooks);
    STAILQ_INIT(&loop->posts);
    tdm__turns_init(&loop->turns);
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
    tdm__turns_fini(&loop->turns);
    free(loop);
}

void *tdm__loop_base(struct tdm__loop *loop)
{
    return loop->base;
}
