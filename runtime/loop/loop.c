/* loop.c - the event loop of a process: runs it, and handles its lock, hooks and posted calls. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The loop owns libevent's base. libevent's callbacks only record which sources have fired.
 * After libevent has returned, tdm__loop_run() moves these sources to the list `ready` and calls
 * the users' functions.  So a user's function may run the loop again, which libevent does not
 * allow.  The inner run also dispatches what the outer one has left on the list.  A source leaves
 * the list before its function is called, so the function may destroy it.
 *
 * While libevent polls, the loop lock is free and other threads may change and destroy sources.
 * So libevent's callbacks touch only members that belong to the polling thread (`fired`).  A
 * source that is destroyed meanwhile is freed only when the poll has ended.
 *
 * One thread drives at a time (loop_lock.h).  Each round of the driver runs the poll hooks, polls
 * without the lock, and dispatches the ready sources one by one.  After each of them it evaluates
 * the conditions of all waiting threads.  Any thread may post a call; post_mutex guards only that
 * list. */
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

/* Callback of libevent for the loop's timeout event.  Runs in the polling thread without the
 * lock. */
static void loop_on_timeout(evutil_socket_t fd, short what, void *arg)
{
    struct tdm__loop *loop = arg;

    (void)fd;
    (void)what;
    loop->timeout_event_fired = true;
}

/* Sets the timeout event that ends the wait of libevent at the deadline.  Nested runs share it;
 * each sets it again before it waits. */
static tdm_status loop_set_timeout(struct tdm__loop *loop, int64_t deadline_ms)
{
    struct timeval time;

    if (loop->timeout_event_ms == deadline_ms) {
        return TDM_OK;
    }
    (void)event_del(loop->timeout_event);
    loop->timeout_event_ms = TDM__NEVER;
    if (deadline_ms == TDM__NEVER) {
        return TDM_OK;
    }
    time = tdm__timeval_until(deadline_ms);
    if (event_add(loop->timeout_event, &time) != 0) {
        return tdm__fail(TDM_E_NOMEM, "event_add: no memory for the loop's timeout event");
    }
    loop->timeout_event_ms = deadline_ms;
    return TDM_OK;
}

/* Ends a poll, with the lock held: makes the fired sources ready and frees those that were
 * destroyed meanwhile. */
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
    if (loop->timeout_event_fired) {
        loop->timeout_event_fired = false;
        loop->timeout_event_ms = TDM__NEVER;
    }
}

/* Polls without sleeping until a source fires or `until_ns` has passed.  Returns the result of
 * libevent, negative on failure. */
static int loop_poll_busily(struct tdm__loop *loop, int64_t until_ns)
{
    int rc;

    do {
        rc = event_base_loop(loop->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    } while (rc >= 0 && STAILQ_EMPTY(&loop->fired) && tdm__clock_ns() < until_ns);
    return rc;
}

/* Polls once; if `wait` is set, waits until a source or the timeout event fires.  It first polls
 * without sleeping for `poll_ns_max` nanoseconds after `start_ns`. */
static int loop_poll(struct tdm__loop *loop, bool wait, int64_t start_ns, int64_t poll_ns_max)
{
    if (poll_ns_max > 0) {
        int rc = loop_poll_busily(loop, start_ns + poll_ns_max);

        if (rc < 0 || !STAILQ_EMPTY(&loop->fired)) {
            return rc;
        }
    }
    return event_base_loop(loop->base, EVLOOP_ONCE | (wait ? 0 : EVLOOP_NONBLOCK));
}

/* Polls with the lock released, and lets the adaptive polling learn from the length of the wait.
 */
static int loop_poll_unlocked(struct tdm__loop *loop, bool wait)
{
    bool expected = wait && loop->adaptive_polling.expected;
    int64_t poll_ns_max = expected ? tdm__adaptive_polling_duration(&loop->adaptive_polling) : 0;
    int64_t start_ns = expected ? tdm__clock_ns() : 0;
    uint32_t depth;
    int rc;

    loop->polling = true;
    depth = tdm__loop_lock_release_all(&loop->loop_lock);
    rc = loop_poll(loop, wait, start_ns, poll_ns_max);
    tdm__loop_lock_reacquire(&loop->loop_lock, depth);
    loop->polling = false;
    if (expected) {
        loop->adaptive_polling.expected = false;
        tdm__adaptive_polling_learn(&loop->adaptive_polling, poll_ns_max,
                                    tdm__clock_ns() - start_ns);
    }
    return rc;
}

/* Runs the poll hooks and polls, so that the list `ready` holds what has happened.  Waits for an
 * event until the deadline if the list is empty. */
static tdm_status loop_collect_events(struct tdm__loop *loop, int64_t deadline_ms)
{
    struct tdm__poll_hook *hook;
    bool wait = false;
    int rc;

    TDM_ASSERT(!loop->polling);
    TAILQ_FOREACH(hook, &loop->poll_hooks, link)
    {
        hook->fn(hook->arg);
    }
    wait = TAILQ_EMPTY(&loop->ready) && tdm__deadline_remaining_ms(deadline_ms) != 0;
    if (wait) {
        TDM_TRY(loop_set_timeout(loop, deadline_ms));
    }
    rc = loop_poll_unlocked(loop, wait);
    loop_mark_fired_ready(loop);
    if (rc < 0) {
        return tdm__fail_errno(errno, "event_base_loop");
    }
    return TDM_OK;
}

/* Evaluates a condition of tdm__loop_run(); NULL is never true. */
static bool condition_is_true(bool (*done)(void *arg), void *arg)
{
    return done != NULL && done(arg);
}

/* Returns true if the background poller drives and another thread wants to drive. */
static bool loop_driver_must_yield(const struct tdm__loop *loop)
{
    return loop->loop_lock.driver_yields && !TAILQ_EMPTY(&loop->loop_lock.waiters);
}

/* Drives the loop until `done` is true (TDM_OK), the deadline has passed (TDM_E_TIMEOUT) or the
 * background poller must stop (TDM_E_AGAIN).  The calling thread is the driver. */
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
            if (condition_is_true(done, arg)) {
                return TDM_OK;
            }
            if (loop_driver_must_yield(loop)) {
                return TDM_E_AGAIN;
            }
            tdm__loop_lock_yield(&loop->loop_lock);
        }
        /* Other threads may have made conditions of waiting threads true during the poll. */
        tdm__loop_lock_notify_waiters(&loop->loop_lock);
        if (condition_is_true(done, arg)) {
            return TDM_OK;
        }
        if (loop_driver_must_yield(loop)) {
            return TDM_E_AGAIN;
        }
        if (deadline_ms != TDM__NEVER && tdm__clock_ms() >= deadline_ms) {
            return TDM_E_TIMEOUT;
        }
    }
}

/* Makes the current or the next poll return at once, by writing to the eventfd.  Any thread may
 * call it. */
static void loop_interrupt_poll(const struct tdm__loop *loop)
{
    static const uint64_t one = 1;
    ssize_t written = write(loop->post_fd, &one, sizeof(one));

    /* The write cannot fail, because the eventfd is valid and its counter is far from full. */
    TDM_ASSERT(written == (ssize_t)sizeof(one));
}

/* Ends the poll of the driver.  A driver that is not polling evaluates all conditions before it
 * polls again. */
static void loop_wake_driver(void *arg)
{
    const struct tdm__loop *loop = arg;

    if (loop->polling) {
        loop_interrupt_poll(loop);
    }
}

/* Runs the loop inside of a callback of the driver.  The driver does not yield meanwhile, because
 * the callback needs its events. */
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

/* Waits until no other thread drives, then drives the loop.  Returns TDM_OK early if `done`
 * becomes true while another thread drives. */
static tdm_status loop_drive_when_free(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                                       int64_t deadline_ms)
{
    tdm_status status = tdm__loop_lock_start_driving(&loop->loop_lock, done, arg, deadline_ms,
                                                     loop_wake_driver, loop);

    if (status == TDM_OK) {
        status = loop_drive(loop, done, arg, deadline_ms);
        tdm__loop_lock_stop_driving(&loop->loop_lock);
    } else if (status == TDM_E_CANCELED) {
        status = TDM_OK; /* The condition became true while another thread drove. */
    }
    return status;
}

tdm_status tdm__loop_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                         int64_t deadline_ms)
{
    tdm_status status;
    TDM__LOOP_ENTER(loop);

    if (condition_is_true(done, arg)) {
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

    if (loop->loop_lock.driver != 0) {
        return TDM_E_AGAIN;
    }
    TDM_TRY(tdm__loop_lock_start_driving(&loop->loop_lock, NULL, NULL, TDM__NEVER, loop_wake_driver,
                                         loop));
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
    loop_wake_driver(loop);
}

void tdm__loop_add_poll_hook(struct tdm__loop *loop, struct tdm__poll_hook *hook)
{
    TAILQ_INSERT_TAIL(&loop->poll_hooks, hook, link);
}

void tdm__loop_remove_poll_hook(struct tdm__loop *loop, struct tdm__poll_hook *hook)
{
    TAILQ_REMOVE(&loop->poll_hooks, hook, link);
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
    struct posted_call *post = malloc(sizeof(*post));
    bool first;

    if (post == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocation of a posted call failed");
    }
    post->fn = fn;
    post->arg = arg;
    (void)pthread_mutex_lock(&loop->post_mutex);
    first = STAILQ_EMPTY(&loop->posts);
    STAILQ_INSERT_TAIL(&loop->posts, post, link);
    (void)pthread_mutex_unlock(&loop->post_mutex);
    if (first) {
        loop_interrupt_poll(loop);
    }
    return TDM_OK;
}

/* Frees the posted call and runs its function.  The function may run the loop. */
static void posted_call_run_and_free(struct posted_call *post)
{
    void (*fn)(void *) = post->fn;
    void *arg = post->arg;

    free(post);
    fn(arg);
}

/* Runs the first posted call and returns true; returns false if none is posted.  Schedules the
 * rest as ready before the function runs, because the function may run the loop. */
static bool loop_run_first_post(struct tdm__loop *loop)
{
    struct posted_call *post;
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
    posted_call_run_and_free(post);
    return true;
}

/* Callback of post_watch.  Runs one posted call at a time, so that a run of the loop inside of
 * its function finds the rest. */
static void loop_on_posts(void *arg, int fd, unsigned ready)
{
    struct tdm__loop *loop = arg;
    uint64_t count;

    if ((ready & TDM__READABLE) != 0 && read(fd, &count, sizeof(count)) < 0) {
        TDM_ASSERT(errno == EAGAIN || errno == EINTR);
    }
    (void)loop_run_first_post(loop);
}

void tdm__loop_run_posts(struct tdm__loop *loop)
{
    while (loop_run_first_post(loop)) {
    }
}

/* ---- life ------------------------------------------------------------------------------- */

/* Lets several threads use the event bases of libevent.  Runs once per process. */
static void libevent_enable_threads(void)
{
    int rc = evthread_use_pthreads();

    TDM_ASSERT(rc == 0);
}

/* Creates an event base that ignores the environment variables of libevent.  Returns NULL on
 * failure. */
static struct event_base *libevent_base_create(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;

    (void)pthread_once(&once, libevent_enable_threads);
    if (config == NULL) {
        return NULL;
    }
    if (event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV) == 0) {
        base = event_base_new_with_config(config);
    }
    event_config_free(config);
    return base;
}

/* Creates the parts of a loop.  On failure the caller destroys the loop, which may be
 * incomplete. */
static tdm_status loop_init(struct tdm__loop *loop)
{
    loop->base = libevent_base_create();
    if (loop->base == NULL) {
        return tdm__fail(TDM_E_IO, "event_base_new failed");
    }
    loop->timeout_event = event_new(loop->base, -1, 0, loop_on_timeout, loop);
    if (loop->timeout_event == NULL) {
        return tdm__fail(TDM_E_NOMEM, "event_new failed: no memory for the loop's timeout event");
    }
    loop->post_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->post_fd < 0) {
        return tdm__fail_errno(errno, "eventfd");
    }
    return tdm__fd_watch_create(loop, loop->post_fd, TDM__READABLE, loop_on_posts, loop,
                                &loop->post_watch);
}

tdm_status tdm__loop_create(struct tdm__loop **loop_out)
{
    struct tdm__loop *loop = calloc(1, sizeof(*loop));
    tdm_status status;

    if (loop == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocation of an event loop failed");
    }
    TAILQ_INIT(&loop->ready);
    STAILQ_INIT(&loop->fired);
    TAILQ_INIT(&loop->dead);
    TAILQ_INIT(&loop->poll_hooks);
    STAILQ_INIT(&loop->posts);
    tdm__loop_lock_init(&loop->loop_lock);
    loop->timeout_event_ms = TDM__NEVER;
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
    struct posted_call *post;

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
    if (loop->timeout_event != NULL) {
        event_free(loop->timeout_event);
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
