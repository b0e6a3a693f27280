/* loop.c - the event loop of a process: file descriptors, timers, posts, over libevent. */
/* SPDX-License-Identifier: Apache-2.0 */
/* libevent's callbacks only put what is ready on a list; tdm__loop_run() runs the users'
 * functions from that list after libevent has returned.  So a user's function may run the loop
 * again (libevent itself does not allow that), and what an outer run has left on the list is
 * done by the inner one.  An event_source leaves the list before its function is called, so it may
 * be destroyed at any time.
 *
 * While libevent polls the lock is free, and other threads may change and destroy items.  So
 * its callbacks touch only what belongs to the polling thread (`fired`), and an event_source
 * destroyed meanwhile is buried only when the poll is over. */
#include "runtime/loop/internal.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <event2/event.h>
#include <event2/thread.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

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
    time = tdm__timeval_until(deadline_ms);
    if (event_add(loop->alarm, &time) != 0) {
        return tdm__fail(TDM_E_NOMEM, "event_add: no memory for the loop's alarm");
    }
    loop->alarm_ms = deadline_ms;
    return TDM_OK;
}

static void loop_mark_fired_ready(struct tdm__loop *loop)
{
    struct event_source *event_source;

    while ((event_source = STAILQ_FIRST(&loop->fired)) != NULL) {
        STAILQ_REMOVE_HEAD(&loop->fired, fired_link);
        event_source->fired = false;
        event_source->ready |= event_source->fired_events;
        event_source->fired_events = 0;
        if (!event_source->dead) {
            tdm__event_source_mark_ready(event_source);
        }
    }
    while ((event_source = TAILQ_FIRST(&loop->dead)) != NULL) {
        TAILQ_REMOVE(&loop->dead, event_source, link);
        event_source->free_source(event_source);
    }
    if (loop->alarm_fired) {
        loop->alarm_fired = false;
        loop->alarm_ms = TDM__NEVER;
    }
}

static int poll_adaptively(struct tdm__loop *loop, int64_t until_ns)
{
    int rc;

    do {
        rc = event_base_loop(loop->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    } while (rc >= 0 && STAILQ_EMPTY(&loop->fired) && tdm__clock_ns() < until_ns);
    return rc;
}

/* Waits for the first that is ready, if it may. */
static int poll_events(struct tdm__loop *loop, bool wait, int64_t began_ns, int64_t for_ns)
{
    if (for_ns > 0) {
        int rc = poll_adaptively(loop, began_ns + for_ns);

        if (rc < 0 || !STAILQ_EMPTY(&loop->fired)) {
            return rc;
        }
    }
    return event_base_loop(loop->base, EVLOOP_ONCE | (wait ? 0 : EVLOOP_NONBLOCK));
}

/* With the lock free while it polls, and not before or after. */
static int poll_unlocked(struct tdm__loop *loop, bool wait)
{
    bool expected = wait && loop->adaptive_polling.expected;
    int64_t for_ns = expected ? tdm__adaptive_polling_duration(&loop->adaptive_polling) : 0;
    int64_t began_ns = expected ? tdm__clock_ns() : 0;
    uint32_t depth;
    int rc;

    loop->polling = true;
    depth = tdm__loop_lock_release_all(&loop->loop_lock);
    rc = poll_events(loop, wait, began_ns, for_ns);
    tdm__loop_lock_reacquire(&loop->loop_lock, depth);
    loop->polling = false;
    if (expected) {
        loop->adaptive_polling.expected = false;
        tdm__adaptive_polling_learn(&loop->adaptive_polling, for_ns, tdm__clock_ns() - began_ns);
    }
    return rc;
}

/* Lists what is ready; waits for the first, if there is none and the deadline allows. */
static tdm_status loop_collect_events(struct tdm__loop *loop, int64_t deadline_ms)
{
    struct tdm__poll_hook *hook;
    bool wait = false;
    int rc;

    TDM_ASSERT(!loop->polling);
    TAILQ_FOREACH(hook, &loop->hooks, link)
    {
        hook->fn(hook->arg);
    }
    wait = TAILQ_EMPTY(&loop->ready) && tdm__deadline_remaining_ms(deadline_ms) != 0;
    if (wait) {
        TDM_TRY(alarm_set(loop, deadline_ms));
    }
    rc = poll_unlocked(loop, wait);
    loop_mark_fired_ready(loop);
    if (rc < 0) {
        return tdm__fail_errno(errno, "event_base_loop");
    }
    return TDM_OK;
}

static bool is_done(bool (*done)(void *arg), void *arg)
{
    return done != NULL && done(arg);
}

/* Somebody else wants to loop_drive, and this thread only stands by. */
static bool must_yield(const struct tdm__loop *loop)
{
    return loop->loop_lock.driver_yields && !TAILQ_EMPTY(&loop->loop_lock.waiters);
}

static tdm_status loop_drive(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                             int64_t deadline_ms)
{
    for (;;) {
        TDM_TRY(loop_collect_events(loop, deadline_ms));
        while (!TAILQ_EMPTY(&loop->ready)) {
            struct event_source *event_source = TAILQ_FIRST(&loop->ready);

            tdm__event_source_unmark_ready(event_source);
            event_source->dispatch(event_source);
            tdm__loop_lock_notify_waiters(&loop->loop_lock);
            if (is_done(done, arg)) {
                return TDM_OK;
            }
            if (must_yield(loop)) {
                return TDM_E_AGAIN;
            }
            tdm__loop_lock_yield(&loop->loop_lock);
        }
        tdm__loop_lock_notify_waiters(&loop->loop_lock); /* other threads change things, too */
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
static tdm_status loop_drive_nested(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                                    int64_t deadline_ms)
{
    bool yields = loop->loop_lock.driver_yields;
    tdm_status status;

    loop->loop_lock.driver_yields = false;
    status = loop_drive(loop, done, arg, deadline_ms);
    loop->loop_lock.driver_yields = yields;
    return status;
}

static tdm_status loop_drive_when_free(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                                       int64_t deadline_ms)
{
    tdm_status status =
        tdm__loop_lock_start_driving(&loop->loop_lock, done, arg, deadline_ms, wake_driver, loop);

    if (status == TDM_OK) {
        status = loop_drive(loop, done, arg, deadline_ms);
        tdm__loop_lock_stop_driving(&loop->loop_lock);
    } else if (status == TDM_E_CANCELED) {
        status = TDM_OK; /* done, while another one drove */
    }
    return status;
}

tdm_status tdm__loop_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                         int64_t deadline_ms)
{
    tdm_status status;
    TDM__LOOP_ENTER(loop);

    if (is_done(done, arg)) {
        return TDM_OK;
    }
    status = tdm__loop_lock_is_driver(&loop->loop_lock)
                 ? loop_drive_nested(loop, done, arg, deadline_ms)
                 : loop_drive_when_free(loop, done, arg, deadline_ms);
    if (status == TDM_E_TIMEOUT) {
        return tdm__fail(status, "the loop's deadline passed");
    }
    return status;
}

tdm_status tdm__loop_run_background(struct tdm__loop *loop, bool (*done)(void *arg), void *arg)
{
    tdm_status status;
    TDM__LOOP_ENTER(loop);

    if (loop->loop_lock.driver != NULL) {
        return TDM_E_AGAIN;
    }
    TDM_TRY(
        tdm__loop_lock_start_driving(&loop->loop_lock, NULL, NULL, TDM__NEVER, wake_driver, loop));
    loop->loop_lock.driver_yields = true;
    status = loop_drive(loop, done, arg, TDM__NEVER);
    tdm__loop_lock_stop_driving(&loop->loop_lock);
    return status;
}

/* ---- the lock --------------------------------------------------------------------------- */

struct tdm__loop *tdm__loop_enter(struct tdm__loop *loop)
{
    if (loop != NULL) {
        tdm__loop_lock_acquire(&loop->loop_lock);
    }
    return loop;
}

void tdm__loop_leave(struct tdm__loop *loop)
{
    tdm__loop_lock_release(&loop->loop_lock);
}

void tdm__loop_leave_cleanup(struct tdm__loop **loop)
{
    if (*loop != NULL) {
        tdm__loop_leave(*loop);
    }
}

uint32_t tdm__loop_leave_all(struct tdm__loop *loop)
{
    return tdm__loop_lock_is_held(&loop->loop_lock) ? tdm__loop_lock_release_all(&loop->loop_lock)
                                                    : 0;
}

void tdm__loop_reenter(struct tdm__loop *loop, uint32_t depth)
{
    if (depth > 0) {
        tdm__loop_lock_reacquire(&loop->loop_lock, depth);
    }
}

void tdm__loop_expect_event_soon(struct tdm__loop *loop)
{
    loop->adaptive_polling.expected = true;
}

struct tdm__loop_lock *tdm__loop_lock_of(struct tdm__loop *loop)
{
    return &loop->loop_lock;
}

void tdm__loop_wake(struct tdm__loop *loop)
{
    wake_driver(loop);
}

void tdm__loop_add_poll_hook(struct tdm__loop *loop, struct tdm__poll_hook *hook)
{
    TAILQ_INSERT_TAIL(&loop->hooks, hook, link);
}

void tdm__loop_remove_poll_hook(struct tdm__loop *loop, struct tdm__poll_hook *hook)
{
    TAILQ_REMOVE(&loop->hooks, hook, link);
}

bool tdm__loop_is_polling(const struct tdm__loop *loop)
{
    return loop->polling;
}

void tdm__loop_after_fork(struct tdm__loop *loop)
{
    tdm__loop_lock_after_fork(&loop->loop_lock);
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

static void post_run_and_free(struct post *post)
{
    void (*fn)(void *) = post->fn;
    void *arg = post->arg;

    free(post);
    fn(arg);
}

/* false: there is none. */
static bool run_post(struct tdm__loop *loop)
{
    struct post *post;
    bool more;

    (void)pthread_mutex_lock(&loop->post_mutex);
    post = STAILQ_FIRST(&loop->posts);
    if (post != NULL) {
        STAILQ_REMOVE_HEAD(&loop->posts, link);
    }
    more = !STAILQ_EMPTY(&loop->posts);
    (void)pthread_mutex_unlock(&loop->post_mutex);
    if (more) {
        tdm__fd_watch_call_again(loop->post_watch);
    }
    if (post == NULL) {
        return false;
    }
    post_run_and_free(post);
    return true;
}

/* One post at a time, so that the rest is there for a run inside its function. */
static void on_posts(void *arg, int fd, unsigned ready)
{
    struct tdm__loop *loop = arg;
    uint64_t count;

    if ((ready & TDM__READABLE) != 0 && read(fd, &count, sizeof(count)) < 0) {
        TDM_ASSERT(errno == EAGAIN || errno == EINTR);
    }
    (void)run_post(loop);
}

void tdm__loop_run_posts(struct tdm__loop *loop)
{
    while (run_post(loop)) {
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
    return tdm__fd_watch_create(loop, loop->post_fd, TDM__READABLE, on_posts, loop,
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
    tdm__loop_lock_init(&loop->loop_lock);
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
    tdm__fd_watch_destroy(loop->post_watch);
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
    tdm__loop_lock_fini(&loop->loop_lock);
    free(loop);
}

void *tdm__loop_event_base(struct tdm__loop *loop)
{
    return loop->base;
}
