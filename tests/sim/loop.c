/* loop.c - the loop of a simulated process: loop.h, loop_lock.h and clock.h for the simulation. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/loop.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/loop/loop_lock.h"
#include "tests/sim/internal.h"

#include <poll.h>
#include <stdlib.h>

/* ---- the clock -------------------------------------------------------------------------- */

int64_t tdm__clock_ms(void)
{
    return sim.now_ms;
}

int64_t tdm__clock_ns(void)
{
    return sim.now_ms * 1000000;
}

int64_t tdm__clock_coarse_ms(void)
{
    return sim.now_ms;
}

int64_t tdm__clock_boot_ms(void)
{
    return sim.now_ms;
}

int64_t tdm__timeout_add(int64_t timeout_ms, int64_t more_ms)
{
    return timeout_ms < 0 ? timeout_ms : timeout_ms + more_ms;
}

int64_t tdm__deadline_after(int64_t timeout_ms)
{
    return timeout_ms < 0 ? TDM__NEVER : sim.now_ms + timeout_ms;
}

int64_t tdm__deadline_remaining_ms(int64_t deadline_ms)
{
    if (deadline_ms == TDM__NEVER) {
        return -1;
    }
    return deadline_ms > sim.now_ms ? deadline_ms - sim.now_ms : 0;
}

/* ---- the lock --------------------------------------------------------------------------- */

/* Fibers are switched only where none holds the lock, so that no fiber waits for it. The lock is
 * only counted. */
static uint32_t *depth_here(void)
{
    return sim.fiber != NULL ? &sim.fiber->depth : &sim.callback_depth;
}

struct tdm__loop *tdm__loop_enter(struct tdm__loop *loop)
{
    if (loop != NULL) {
        TDM_ASSERT(loop->process == sim.current);
        (*depth_here())++;
    }
    return loop;
}

void tdm__loop_leave(struct tdm__loop *loop)
{
    uint32_t *depth = depth_here();

    (void)loop;
    TDM_ASSERT(*depth > 0);
    (*depth)--;
    if (*depth == 0) {
        sim_may_interrupt();
    }
}

void tdm__loop_leave_cleanup(struct tdm__loop **loop)
{
    if (*loop != NULL) {
        tdm__loop_leave(*loop);
    }
}

uint32_t tdm__loop_leave_all(struct tdm__loop *loop)
{
    uint32_t depth = *depth_here();

    TDM_ASSERT(loop->process == sim.current);
    *depth_here() = 0;
    sim_may_interrupt();
    return depth;
}

void tdm__loop_reenter(struct tdm__loop *loop, uint32_t depth)
{
    (void)loop;
    *depth_here() = depth;
}

struct tdm__loop_lock *tdm__loop_lock_of(struct tdm__loop *loop)
{
    return &loop->loop_lock;
}

void tdm__loop_condition_init(struct tdm__loop_condition *loop_condition)
{
    *loop_condition = (struct tdm__loop_condition){.signaled = false};
}

void tdm__loop_condition_fini(struct tdm__loop_condition *loop_condition)
{
    TDM_ASSERT(!loop_condition->is_waiting);
}

static bool is_roused(void *arg)
{
    const struct tdm__loop_condition *loop_condition = arg;

    return loop_condition->signaled;
}

tdm_status tdm__loop_condition_wait(struct tdm__loop_lock *loop_lock,
                                    struct tdm__loop_condition *loop_condition, int64_t deadline_ms)
{
    tdm_status status;

    (void)loop_lock;
    loop_condition->is_waiting = true;
    status = sim_wait(is_roused, loop_condition, deadline_ms);
    loop_condition->is_waiting = false;
    loop_condition->signaled = false;
    return status == TDM_E_TIMEOUT ? status : TDM_OK;
}

void tdm__loop_condition_signal(struct tdm__loop_lock *loop_lock,
                                struct tdm__loop_condition *loop_condition)
{
    (void)loop_lock;
    loop_condition->signaled = loop_condition->is_waiting;
}

/* ---- running ---------------------------------------------------------------------------- */

/* Waiting fibers are checked after every step, so that no wake-up is needed. */
void tdm__loop_wake(struct tdm__loop *loop)
{
    (void)loop;
}

bool tdm__loop_is_polling(const struct tdm__loop *loop)
{
    (void)loop;
    return false;
}

void tdm__loop_expect_event_soon(struct tdm__loop *loop)
{
    (void)loop;
}

void tdm__loop_after_fork(struct tdm__loop *loop)
{
    (void)loop;
}

void *tdm__loop_event_base(struct tdm__loop *loop)
{
    (void)loop;
    return NULL;
}

void tdm__loop_add_poll_hook(struct tdm__loop *loop, struct tdm__poll_hook *hook)
{
    TAILQ_INSERT_TAIL(&loop->hooks, hook, link);
}

void tdm__loop_remove_poll_hook(struct tdm__loop *loop, struct tdm__poll_hook *hook)
{
    TAILQ_REMOVE(&loop->hooks, hook, link);
}

void sim_loop_flush(struct tdm__loop *loop)
{
    struct tdm__poll_hook *hook;

    loop->dirty = false;
    TAILQ_FOREACH(hook, &loop->hooks, link)
    {
        hook->fn(hook->arg);
    }
}

tdm_status tdm__loop_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                         int64_t deadline_ms)
{
    tdm_status status;

    TDM_ASSERT(loop->process == sim.current && sim.fiber != NULL);
    if (done != NULL && done(arg)) {
        return TDM_OK;
    }
    if (deadline_ms <= sim.now_ms) { /* The caller polls without waiting. */
        sim_loop_round(loop);
        if (done != NULL && done(arg)) {
            return TDM_OK;
        }
    }
    status = sim_wait(done, arg, deadline_ms);
    if (status == TDM_E_TIMEOUT) {
        return tdm__fail(status, "the loop's deadline passed");
    }
    return status;
}

tdm_status tdm__loop_run_background(struct tdm__loop *loop, bool (*done)(void *arg), void *arg)
{
    return tdm__loop_run(loop, done, arg, TDM__NEVER);
}

/* ---- what happens at sockets, in time, and by itself ------------------------------------- */

tdm_status tdm__fd_watch_create(struct tdm__loop *loop, int fd, unsigned events,
                                tdm__fd_watch_fn *fn, void *arg, struct tdm__fd_watch **watch_out)
{
    struct tdm__fd_watch *watch = calloc(1, sizeof(*watch));

    TDM_ASSERT(watch != NULL);
    watch->loop = loop;
    watch->fd = fd;
    watch->wanted = events;
    watch->fn = fn;
    watch->arg = arg;
    TAILQ_INSERT_TAIL(&loop->watches, watch, link);
    *watch_out = watch;
    return TDM_OK;
}

tdm_status tdm__fd_watch_set_events(struct tdm__fd_watch *watch, unsigned events)
{
    watch->wanted = events;
    watch->ready &= events;
    return TDM_OK;
}

void tdm__fd_watch_call_again(struct tdm__fd_watch *watch)
{
    watch->again = true;
}

void tdm__fd_watch_destroy(struct tdm__fd_watch *watch)
{
    if (watch != NULL) {
        TAILQ_REMOVE(&watch->loop->watches, watch, link);
        free(watch);
    }
}

tdm_status tdm__timer_create(struct tdm__loop *loop, tdm__timer_fn *fn, void *arg,
                             struct tdm__timer **timer_out)
{
    struct tdm__timer *timer = calloc(1, sizeof(*timer));

    TDM_ASSERT(timer != NULL);
    timer->loop = loop;
    timer->deadline_ms = TDM__NEVER;
    timer->fn = fn;
    timer->arg = arg;
    TAILQ_INSERT_TAIL(&loop->timers, timer, link);
    *timer_out = timer;
    return TDM_OK;
}

tdm_status tdm__timer_set(struct tdm__timer *timer, int64_t deadline_ms)
{
    timer->deadline_ms = deadline_ms;
    return TDM_OK;
}

void tdm__timer_clear(struct tdm__timer *timer)
{
    timer->deadline_ms = TDM__NEVER;
}

void tdm__timer_destroy(struct tdm__timer *timer)
{
    if (timer != NULL) {
        TAILQ_REMOVE(&timer->loop->timers, timer, link);
        free(timer);
    }
}

tdm_status tdm__loop_post(struct tdm__loop *loop, void (*fn)(void *arg), void *arg)
{
    struct sim_post *post = calloc(1, sizeof(*post));

    TDM_ASSERT(post != NULL);
    post->fn = fn;
    post->arg = arg;
    STAILQ_INSERT_TAIL(&loop->posts, post, link);
    return TDM_OK;
}

void tdm__loop_run_posts(struct tdm__loop *loop)
{
    struct sim_post *post;

    while ((post = STAILQ_FIRST(&loop->posts)) != NULL) {
        STAILQ_REMOVE_HEAD(&loop->posts, link);
        post->fn(post->arg);
        free(post);
    }
}

/* ---- life ------------------------------------------------------------------------------- */

tdm_status tdm__loop_create(struct tdm__loop **loop_out)
{
    struct tdm__loop *loop = calloc(1, sizeof(*loop));

    TDM_ASSERT(loop != NULL && sim.current != NULL && sim.current->loop == NULL);
    loop->process = sim.current;
    sim.current->loop = loop;
    TAILQ_INIT(&loop->watches);
    TAILQ_INIT(&loop->timers);
    STAILQ_INIT(&loop->posts);
    TAILQ_INIT(&loop->hooks);
    TAILQ_INSERT_TAIL(&sim.loops, loop, link);
    *loop_out = loop;
    return TDM_OK;
}

void tdm__loop_destroy(struct tdm__loop *loop)
{
    struct sim_post *post;

    if (loop == NULL) {
        return;
    }
    TDM_ASSERT(TAILQ_EMPTY(&loop->watches) && TAILQ_EMPTY(&loop->timers));
    while ((post = STAILQ_FIRST(&loop->posts)) != NULL) {
        STAILQ_REMOVE_HEAD(&loop->posts, link);
        free(post);
    }
    loop->process->loop = NULL;
    TAILQ_REMOVE(&sim.loops, loop, link);
    free(loop);
}
