/* turns.c - the lock of a loop, and which of several threads drives it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/turns.h"

#include "runtime/assert.h"
#include "runtime/clock.h"

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <time.h>

/* An address that no other living thread has. */
static const void *this_thread(void)
{
    static _Thread_local char mark;

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

void tdm__turns_give_way(struct tdm__turns *turns)
{
    if (atomic_load_explicit(&turns->lockers_count, memory_order_relaxed) > 0) {
        uint32_t depth = tdm__turns_unlock_all(turns);

        (void)sched_yield();
        tdm__turns_relock(turns, depth);
    }
}

/* ---- the driver ------------------------------------------------------------------------- */

bool tdm__turns_drives(const struct tdm__turns *turns)
{
    return turns->driver == this_thread();
}

/* pthread conditions let go of the mutex; holder and depth follow. */
int tdm__turns_sleep(struct tdm__turns *turns, pthread_cond_t *condition, int64_t deadline_ms)
{
    struct timespec until = {.tv_sec = deadline_ms / 1000,
                             .tv_nsec = deadline_ms % 1000 * 1000000};
    uint32_t depth = turns->depth;
    int rc;

    turns->depth = 0;
    atomic_store_explicit(&turns->holder, NULL, memory_order_relaxed);
    rc = deadline_ms == TDM__NEVER
             ? pthread_cond_wait(condition, &turns->mutex)
             : pthread_cond_clockwait(condition, &turns->mutex, CLOCK_MONOTONIC, &until);
    atomic_store_explicit(&turns->holder, this_thread(), memory_order_relaxed);
    turns->depth = depth;
    return rc;
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
    (void)pthread_cond_init(&waiter.woken, NULL);
    TAILQ_INSERT_TAIL(&turns->waiters, &waiter, link);
    while (turns->driver != NULL && status == TDM_OK) {
        if (turns->driver_yields) {
            wake(wake_arg);
        }
        if (tdm__turns_sleep(turns, &waiter.woken, deadline_ms) == ETIMEDOUT) {
            status = TDM_E_TIMEOUT;
        }
        if (done != NULL && done(arg)) {
            status = TDM_E_CANCELED;
        }
    }
    TAILQ_REMOVE(&turns->waiters, &waiter, link);
    (void)pthread_cond_destroy(&waiter.woken);
    if (status == TDM_OK) {
        begin_driving(turns);
    } else if (turns->driver == NULL && !TAILQ_EMPTY(&turns->waiters)) {
        (void)pthread_cond_signal(&TAILQ_FIRST(&turns->waiters)->woken); /* it was our turn */
    }
    return status;
}

void tdm__turns_leave(struct tdm__turns *turns)
{
    TDM_ASSERT(tdm__turns_drives(turns));
    turns->driver = NULL;
    turns->driver_yields = false;
    if (!TAILQ_EMPTY(&turns->waiters)) {
        (void)pthread_cond_signal(&TAILQ_FIRST(&turns->waiters)->woken);
    } else if (turns->when_free != NULL) {
        (void)pthread_cond_signal(turns->when_free);
        turns->when_free = NULL;
    }
}

void tdm__turns_notify(struct tdm__turns *turns)
{
    struct tdm__waiter *waiter;

    TAILQ_FOREACH(waiter, &turns->waiters, link)
    {
        if (waiter->done != NULL && waiter->done(waiter->arg)) {
            (void)pthread_cond_signal(&waiter->woken);
        }
    }
}
