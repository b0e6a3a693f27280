/* loop_lock.c - the recursive lock of a loop, and the choice of the thread that drives it. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The lock is a mutex plus the identity of the holder and the depth, which make it recursive and
 * let it be released completely and reacquired.  Whether this thread holds it costs one relaxed
 * load.
 *
 * At most one thread drives the loop: `driver` is its identity.  Any other thread that wants to
 * run the loop enters the list `waiters` and sleeps on a condition of its own.  The driver
 * evaluates the conditions of all waiters after each callback (tdm__loop_lock_notify_waiters).
 * When the driver stops, it wakes the first waiter, or, without waiters, the background poller if
 * that sleeps.
 *
 * Invariants: `depth` is 0 exactly when no thread holds the lock; a waiter leaves the list itself
 * and, if it does not become the driver, passes its turn on.
 *
 * Starvation: a driver that runs callbacks without pause would get the mutex again before a
 * woken thread reaches it.  Therefore it calls tdm__loop_lock_yield() between callbacks, which
 * waits for one of the threads in waiting_lockers_count. */
#include "runtime/loop/loop_lock.h"

#include "runtime/assert.h"
#include "runtime/clock.h"

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <time.h>

/* Number of sched_yield() calls for which tdm__loop_lock_yield() waits for another thread to get
 * the lock. */
enum { LOCK_YIELDS_MAX = 50 };

/* Returns a number that identifies the calling thread among all living threads; never 0.  The
 * handle of the thread serves: it costs one call of a short function.  A variable in the static TLS
 * block would cost less, but interpreters could not load libtandem by dlopen() then. */
static uintptr_t this_thread_identity(void)
{
    return (uintptr_t)pthread_self();
}

void tdm__loop_lock_init(struct tdm__loop_lock *loop_lock)
{
    (void)pthread_mutex_init(&loop_lock->mutex, NULL);
    atomic_init(&loop_lock->holder, 0);
    atomic_init(&loop_lock->waiting_lockers_count, 0);
    loop_lock->depth = 0;
    loop_lock->driver = 0;
    loop_lock->driver_starts_count = 0;
    loop_lock->acquisitions_count = 0;
    loop_lock->undriven_condition = NULL;
    loop_lock->driver_yields = false;
    TAILQ_INIT(&loop_lock->waiters);
}

void tdm__loop_lock_fini(struct tdm__loop_lock *loop_lock)
{
    TDM_ASSERT(TAILQ_EMPTY(&loop_lock->waiters) && loop_lock->driver == 0);
    (void)pthread_mutex_destroy(&loop_lock->mutex);
}

void tdm__loop_lock_after_fork(struct tdm__loop_lock *loop_lock)
{
    tdm__loop_lock_init(loop_lock);
}

/* ---- the lock --------------------------------------------------------------------------- */

bool tdm__loop_lock_is_held(const struct tdm__loop_lock *loop_lock)
{
    /* Relaxed: only this thread ever writes its own identity. */
    return atomic_load_explicit(&loop_lock->holder, memory_order_relaxed) == this_thread_identity();
}

/* Acquires the mutex of a loop lock and sets the holder.  While it blocks, the thread is counted in
 * waiting_lockers_count. */
static void lock_mutex_acquire(struct tdm__loop_lock *loop_lock)
{
    if (pthread_mutex_trylock(&loop_lock->mutex) != 0) {
        atomic_fetch_add_explicit(&loop_lock->waiting_lockers_count, 1, memory_order_relaxed);
        (void)pthread_mutex_lock(&loop_lock->mutex);
        atomic_fetch_sub_explicit(&loop_lock->waiting_lockers_count, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&loop_lock->holder, this_thread_identity(), memory_order_relaxed);
}

/* Clears the holder of a loop lock and releases its mutex. */
static void lock_mutex_release(struct tdm__loop_lock *loop_lock)
{
    atomic_store_explicit(&loop_lock->holder, 0, memory_order_relaxed);
    (void)pthread_mutex_unlock(&loop_lock->mutex);
}

void tdm__loop_lock_acquire(struct tdm__loop_lock *loop_lock)
{
    if (!tdm__loop_lock_is_held(loop_lock)) {
        lock_mutex_acquire(loop_lock);
        TDM_ASSERT(loop_lock->depth == 0);
        loop_lock->acquisitions_count++;
    }
    loop_lock->depth++;
}

void tdm__loop_lock_release(struct tdm__loop_lock *loop_lock)
{
    TDM_ASSERT(tdm__loop_lock_is_held(loop_lock) && loop_lock->depth > 0);
    loop_lock->depth--;
    if (loop_lock->depth == 0) {
        lock_mutex_release(loop_lock);
    }
}

uint32_t tdm__loop_lock_release_all(struct tdm__loop_lock *loop_lock)
{
    uint32_t depth = loop_lock->depth;

    TDM_ASSERT(tdm__loop_lock_is_held(loop_lock));
    loop_lock->depth = 0;
    lock_mutex_release(loop_lock);
    return depth;
}

void tdm__loop_lock_reacquire(struct tdm__loop_lock *loop_lock, uint32_t depth)
{
    lock_mutex_acquire(loop_lock);
    loop_lock->depth = depth;
}

/* A woken thread needs some microseconds to get to the mutex.  The lock stays free until the
 * number of waiting threads has fallen, at most for LOCK_YIELDS_MAX yields. */
void tdm__loop_lock_yield(struct tdm__loop_lock *loop_lock)
{
    uint32_t waiting_before =
        atomic_load_explicit(&loop_lock->waiting_lockers_count, memory_order_relaxed);
    uint32_t depth;

    if (waiting_before == 0) {
        return;
    }
    depth = tdm__loop_lock_release_all(loop_lock);
    for (int i = 0;
         i < LOCK_YIELDS_MAX && atomic_load_explicit(&loop_lock->waiting_lockers_count,
                                                     memory_order_relaxed) >= waiting_before;
         i++) {
        (void)sched_yield();
    }
    tdm__loop_lock_reacquire(loop_lock, depth);
}

/* ---- sleeping --------------------------------------------------------------------------- */

void tdm__loop_condition_init(struct tdm__loop_condition *loop_condition)
{
    *loop_condition = (struct tdm__loop_condition){.is_waiting = false};
    (void)pthread_cond_init(&loop_condition->condition, NULL);
}

void tdm__loop_condition_fini(struct tdm__loop_condition *loop_condition)
{
    (void)pthread_cond_destroy(&loop_condition->condition);
}

/* The pthread condition releases and acquires the mutex itself, so only holder and depth are
 * saved and restored here. */
tdm_status tdm__loop_condition_wait(struct tdm__loop_lock *loop_lock,
                                    struct tdm__loop_condition *loop_condition, int64_t deadline_ms)
{
    struct timespec until = {.tv_sec = deadline_ms / 1000, .tv_nsec = deadline_ms % 1000 * 1000000};
    uint32_t depth = loop_lock->depth;
    int rc;

    TDM_ASSERT(tdm__loop_lock_is_held(loop_lock) && !loop_condition->is_waiting);
    loop_condition->is_waiting = true;
    loop_lock->depth = 0;
    atomic_store_explicit(&loop_lock->holder, 0, memory_order_relaxed);
    rc = deadline_ms == TDM__NEVER
             ? pthread_cond_wait(&loop_condition->condition, &loop_lock->mutex)
             : pthread_cond_clockwait(&loop_condition->condition, &loop_lock->mutex,
                                      CLOCK_MONOTONIC, &until);
    atomic_store_explicit(&loop_lock->holder, this_thread_identity(), memory_order_relaxed);
    loop_lock->depth = depth;
    loop_condition->is_waiting = false;
    if (loop_condition->signaled) {
        loop_condition->signaled = false;
        atomic_fetch_sub_explicit(&loop_lock->waiting_lockers_count, 1, memory_order_relaxed);
    }
    return rc == ETIMEDOUT ? TDM_E_TIMEOUT : TDM_OK;
}

void tdm__loop_condition_signal(struct tdm__loop_lock *loop_lock,
                                struct tdm__loop_condition *loop_condition)
{
    if (loop_condition->is_waiting && !loop_condition->signaled) {
        loop_condition->signaled = true;
        atomic_fetch_add_explicit(&loop_lock->waiting_lockers_count, 1, memory_order_relaxed);
        (void)pthread_cond_signal(&loop_condition->condition);
    }
}

/* ---- the driver ------------------------------------------------------------------------- */

bool tdm__loop_lock_is_driver(const struct tdm__loop_lock *loop_lock)
{
    return loop_lock->driver == this_thread_identity();
}

/* Wakes the thread that may drive next: the first waiter, else the background poller if it sleeps.
 * Call it when no thread drives the loop. */
static void lock_pass_driving(struct tdm__loop_lock *loop_lock)
{
    if (!TAILQ_EMPTY(&loop_lock->waiters)) {
        tdm__loop_condition_signal(loop_lock, &TAILQ_FIRST(&loop_lock->waiters)->loop_condition);
    } else if (loop_lock->undriven_condition != NULL) {
        tdm__loop_condition_signal(loop_lock, loop_lock->undriven_condition);
    }
}

/* Makes the calling thread the driver. */
static void lock_set_driver(struct tdm__loop_lock *loop_lock)
{
    loop_lock->driver = this_thread_identity();
    loop_lock->driver_starts_count++;
}

tdm_status tdm__loop_lock_start_driving(struct tdm__loop_lock *loop_lock, bool (*done)(void *arg),
                                        void *arg, int64_t deadline_ms, void (*wake)(void *arg),
                                        void *wake_arg)
{
    struct tdm__loop_waiter waiter = {.done = done, .arg = arg};
    tdm_status status = TDM_OK;

    if (loop_lock->driver == 0) {
        lock_set_driver(loop_lock);
        return TDM_OK;
    }
    tdm__loop_condition_init(&waiter.loop_condition);
    TAILQ_INSERT_TAIL(&loop_lock->waiters, &waiter, link);
    while (loop_lock->driver != 0 && status == TDM_OK) {
        if (loop_lock->driver_yields) {
            wake(wake_arg);
        }
        status = tdm__loop_condition_wait(loop_lock, &waiter.loop_condition, deadline_ms);
        if (done != NULL && done(arg)) {
            status = TDM_E_CANCELED;
        }
    }
    TAILQ_REMOVE(&loop_lock->waiters, &waiter, link);
    tdm__loop_condition_fini(&waiter.loop_condition);
    if (status == TDM_OK) {
        lock_set_driver(loop_lock);
    } else if (loop_lock->driver == 0) {
        /* This waiter may have been woken to drive, so it wakes the next one. */
        lock_pass_driving(loop_lock);
    }
    return status;
}

void tdm__loop_lock_stop_driving(struct tdm__loop_lock *loop_lock)
{
    TDM_ASSERT(tdm__loop_lock_is_driver(loop_lock));
    loop_lock->driver = 0;
    loop_lock->driver_yields = false;
    lock_pass_driving(loop_lock);
}

void tdm__loop_lock_notify_waiters(struct tdm__loop_lock *loop_lock)
{
    struct tdm__loop_waiter *waiter;

    TAILQ_FOREACH(waiter, &loop_lock->waiters, link)
    {
        if (waiter->done != NULL && waiter->done(waiter->arg)) {
            tdm__loop_condition_signal(loop_lock, &waiter->loop_condition);
        }
    }
}
