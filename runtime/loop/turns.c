/* turns.c - the lock of a loop, and which of several threads drives it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/turns.h"

#include "runtime/assert.h"
#include "runtime/clock.h"

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <time.h>

enum { GIVE_WAY_YIELDS_MAX = 50 };

/* An address that no other living thread has.  It is asked for several times a call: a byte of
 * every thread's first memory, so that no function has to look for it. */
static const void *this_thread(void)
{
    static _Thread_local char mark __attribute__((tls_model("initial-exec")));

    return &mark;
}

void tdm__turns_init(struct tdm__turns *turns)
{
    (void)pthread_mutex_init(&turns->mutex, NULL);
    atomic_init(&turns->holder, NULL);
    atomic_init(&turns->lockers_count, 0);
    turns->depth = 0;
    turns->driver = NULL;
    turns->drives_count = 0;
    turns->locks_count = 0;
    turns->when_free = NULL;
    turns->driver_yields = false;
    TAILQ_INIT(&turns->waiters);
}

void tdm__turns_fini(struct tdm__turns *turns)
{
    TDM_ASSERT(TAILQ_EMPTY(&turns->waiters) && turns->driver == NULL);
    (void)pthread_mutex_destroy(&turns->mutex);
}

void tdm__turns_after_fork(struct tdm__turns *turns)
{
    tdm__turns_init(turns);
}

/* ---- the lock --------------------------------------------------------------------------- */

bool tdm__turns_is_held(const struct tdm__turns *turns)
{
    /* Relaxed: only this thread ever writes its own mark. */
    return atomic_load_explicit(&turns->holder, memory_order_relaxed) == this_thread();
}

static void mutex_take(struct tdm__turns *turns)
{
    if (pthread_mutex_trylock(&turns->mutex) != 0) {
        atomic_fetch_add_explicit(&turns->lockers_count, 1, memory_order_relaxed);
        (void)pthread_mutex_lock(&turns->mutex);
        atomic_fetch_sub_explicit(&turns->lockers_count, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&turns->holder, this_thread(), memory_order_relaxed);
}

static void mutex_give(struct tdm__turns *turns)
{
    atomic_store_explicit(&turns->holder, NULL, memory_order_relaxed);
    (void)pthread_mutex_unlock(&turns->mutex);
}

void tdm__turns_lock(struct tdm__turns *turns)
{
    if (!tdm__turns_is_held(turns)) {
        mutex_take(turns);
        TDM_ASSERT(turns->depth == 0);
        turns->locks_count++;
    }
    turns->depth++;
}

void tdm__turns_unlock(struct tdm__turns *turns)
{
    TDM_ASSERT(tdm__turns_is_held(turns) && turns->depth > 0);
    turns->depth--;
    if (turns->depth == 0) {
        mutex_give(turns);
    }
}

uint32_t tdm__turns_unlock_all(struct tdm__turns *turns)
{
    uint32_t depth = turns->depth;

    TDM_ASSERT(tdm__turns_is_held(turns));
    turns->depth = 0;
    mutex_give(turns);
    return depth;
}

void tdm__turns_relock(struct tdm__turns *turns, uint32_t depth)
{
    mutex_take(turns);
    turns->depth = depth;
}

/* A thread that was woken needs some microseconds to get here; until then the lock is free. */
void tdm__turns_give_way(struct tdm__turns *turns)
{
    uint32_t before = atomic_load_explicit(&turns->lockers_count, memory_order_relaxed);
    uint32_t depth;

    if (before == 0) {
        return;
    }
    depth = tdm__turns_unlock_all(turns);
    for (int i = 0; i < GIVE_WAY_YIELDS_MAX &&
                    atomic_load_explicit(&turns->lockers_count, memory_order_relaxed) >= before;
         i++) {
        (void)sched_yield();
    }
    tdm__turns_relock(turns, depth);
}

/* ---- sleeping --------------------------------------------------------------------------- */

void tdm__sleeper_init(struct tdm__sleeper *sleeper)
{
    *sleeper = (struct tdm__sleeper){.asleep = false};
    (void)pthread_cond_init(&sleeper->condition, NULL);
}

void tdm__sleeper_fini(struct tdm__sleeper *sleeper)
{
    (void)pthread_cond_destroy(&sleeper->condition);
}

/* pthread conditions let go of the mutex; holder and depth follow. */
tdm_status tdm__turns_sleep(struct tdm__turns *turns, struct tdm__sleeper *sleeper,
                            int64_t deadline_ms)
{
    struct timespec until = {.tv_sec = deadline_ms / 1000,
                             .tv_nsec = deadline_ms % 1000 * 1000000};
    uint32_t depth = turns->depth;
    int rc;

    TDM_ASSERT(tdm__turns_is_held(turns) && !sleeper->asleep);
    sleeper->asleep = true;
    turns->depth = 0;
    atomic_store_explicit(&turns->holder, NULL, memory_order_relaxed);
    rc = deadline_ms == TDM__NEVER ? pthread_cond_wait(&sleeper->condition, &turns->mutex)
                                   : pthread_cond_clockwait(&sleeper->condition, &turns->mutex,
                                                            CLOCK_MONOTONIC, &until);
    atomic_store_explicit(&turns->holder, this_thread(), memory_order_relaxed);
    turns->depth = depth;
    sleeper->asleep = false;
    if (sleeper->roused) {
        sleeper->roused = false;
        atomic_fetch_sub_explicit(&turns->lockers_count, 1, memory_order_relaxed);
    }
    return rc == ETIMEDOUT ? TDM_E_TIMEOUT : TDM_OK;
}

void tdm__turns_rouse(struct tdm__turns *turns, struct tdm__sleeper *sleeper)
{
    if (sleeper->asleep && !sleeper->roused) {
        sleeper->roused = true;
        atomic_fetch_add_explicit(&turns->lockers_count, 1, memory_order_relaxed);
        (void)pthread_cond_signal(&sleeper->condition);
    }
}

/* ---- the driver ------------------------------------------------------------------------- */

bool tdm__turns_drives(const struct tdm__turns *turns)
{
    return turns->driver == this_thread();
}

/* Nobody drives: the one who waits longest may, or else the one who stands by is told. */
static void pass_on(struct tdm__turns *turns)
{
    if (!TAILQ_EMPTY(&turns->waiters)) {
        tdm__turns_rouse(turns, &TAILQ_FIRST(&turns->waiters)->sleeper);
    } else if (turns->when_free != NULL) {
        tdm__turns_rouse(turns, turns->when_free);
    }
}

static void begin_driving(struct tdm__turns *turns)
{
    turns->driver = this_thread();
    turns->drives_count++;
}

tdm_status tdm__turns_take(struct tdm__turns *turns, bool (*done)(void *arg), void *arg,
                           int64_t deadline_ms, void (*wake)(void *arg), void *wake_arg)
{
    struct tdm__waiter waiter = {.done = done, .arg = arg};
    tdm_status status = TDM_OK;

    if (turns->driver == NULL) {
        begin_driving(turns);
        return TDM_OK;
    }
    tdm__sleeper_init(&waiter.sleeper);
    TAILQ_INSERT_TAIL(&turns->waiters, &waiter, link);
    while (turns->driver != NULL && status == TDM_OK) {
        if (turns->driver_yields) {
            wake(wake_arg);
        }
        status = tdm__turns_sleep(turns, &waiter.sleeper, deadline_ms);
        if (done != NULL && done(arg)) {
            status = TDM_E_CANCELED;
        }
    }
    TAILQ_REMOVE(&turns->waiters, &waiter, link);
    tdm__sleeper_fini(&waiter.sleeper);
    if (status == TDM_OK) {
        begin_driving(turns);
    } else if (turns->driver == NULL) {
        pass_on(turns); /* it was our turn */
    }
    return status;
}

void tdm__turns_leave(struct tdm__turns *turns)
{
    TDM_ASSERT(tdm__turns_drives(turns));
    turns->driver = NULL;
    turns->driver_yields = false;
    pass_on(turns);
}

void tdm__turns_notify(struct tdm__turns *turns)
{
    struct tdm__waiter *waiter;

    TAILQ_FOREACH(waiter, &turns->waiters, link)
    {
        if (waiter->done != NULL && waiter->done(waiter->arg)) {
            tdm__turns_rouse(turns, &waiter->sleeper);
        }
    }
}
