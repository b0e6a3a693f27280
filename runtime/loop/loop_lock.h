/* loop_lock.h - the lock of a loop, and which of several threads drives it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_LOOP_LOCK_H
#define TDM_RUNTIME_LOOP_LOOP_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <tandem/error.h>

/* A thread that lets go of the lock until it is signaled.  A pthread condition, but those signaled
 * count among the lockers, so that a busy driver makes room for them. */
struct tdm__loop_condition {
    pthread_cond_t condition;
    bool is_waiting;
    bool signaled;
};

/* One lock guards a loop and everything that hangs on it.  The driver lets go of it while it
 * polls; a thread that finds the loop driven by another one sleeps until its own condition
 * holds, which the driver looks after, or until it can drive itself. */
struct tdm__loop_waiter {
    TAILQ_ENTRY(tdm__loop_waiter) link;
    bool (*done)(void *arg);
    void *arg;
    struct tdm__loop_condition loop_condition;
};

struct tdm__loop_lock {
    pthread_mutex_t mutex;
    _Atomic(const void *) holder; /* the thread's mark; NULL while nobody holds the lock */
    uint32_t depth;               /* guarded by the lock, like what follows */
    _Atomic uint32_t waiting_lockers_count; /* that sleep at the mutex, or were signaled */
    const void *driver;                     /* NULL: nobody */
    uint64_t driver_starts_count;           /* how often one has begun */
    uint64_t acquisitions_count;            /* how often somebody has come to do something */
    struct tdm__loop_condition
        *undriven_condition; /* borrowed; signaled when nobody drives any more; or NULL */
    bool driver_yields;      /* it stands by: it stops for whoever waits */
    TAILQ_HEAD(, tdm__loop_waiter) waiters;
};

void tdm__loop_lock_init(struct tdm__loop_lock *loop_lock);
void tdm__loop_lock_fini(struct tdm__loop_lock *loop_lock);

void tdm__loop_lock_acquire(
    struct tdm__loop_lock *loop_lock); /* again and again, by the same thread */
void tdm__loop_lock_release(struct tdm__loop_lock *loop_lock);
bool tdm__loop_lock_is_held(const struct tdm__loop_lock *loop_lock); /* by this thread */
/* Lets go however often it was taken, and takes it again as often. */
uint32_t tdm__loop_lock_release_all(struct tdm__loop_lock *loop_lock);
void tdm__loop_lock_reacquire(struct tdm__loop_lock *loop_lock, uint32_t depth);
/* Lets a locker have it first, if there is one; soon, not for certain. */
void tdm__loop_lock_yield(struct tdm__loop_lock *loop_lock);

bool tdm__loop_lock_is_driver(const struct tdm__loop_lock *loop_lock); /* this thread */
/* Becomes the driver: TDM_OK.  TDM_E_CANCELED when done(arg) came true meanwhile, TDM_E_TIMEOUT
 * without a detail.  `wake` ends the poll of a driver that yields. */
tdm_status tdm__loop_lock_start_driving(struct tdm__loop_lock *loop_lock, bool (*done)(void *arg),
                                        void *arg, int64_t deadline_ms, void (*wake)(void *arg),
                                        void *wake_arg);
void tdm__loop_lock_stop_driving(struct tdm__loop_lock *loop_lock);

void tdm__loop_condition_init(struct tdm__loop_condition *loop_condition);
void tdm__loop_condition_fini(struct tdm__loop_condition *loop_condition);
/* Lets go of the lock until signaled (TDM_OK; now and then for no reason) or until the deadline:
 * TDM_E_TIMEOUT without a detail. */
tdm_status tdm__loop_condition_wait(struct tdm__loop_lock *loop_lock,
                                    struct tdm__loop_condition *loop_condition,
                                    int64_t deadline_ms);
/* With the lock.  Nothing, where it does not sleep. */
void tdm__loop_condition_signal(struct tdm__loop_lock *loop_lock,
                                struct tdm__loop_condition *loop_condition);

/* Wakes the waiters whose conditions hold now. */
void tdm__loop_lock_notify_waiters(struct tdm__loop_lock *loop_lock);

/* In a child after fork(): the lock of a parent's other thread would never be given back. */
void tdm__loop_lock_after_fork(struct tdm__loop_lock *loop_lock);

#endif
