/* turns.h - the lock of a loop, and which of several threads drives it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_TURNS_H
#define TDM_RUNTIME_LOOP_TURNS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <tandem/error.h>

/* A thread that lets go of the lock until it is roused.  A pthread condition, but those roused
 * count among the lockers, so that a busy driver makes room for them. */
struct tdm__sleeper {
    pthread_cond_t condition;
    bool asleep;
    bool roused;
};

/* One lock guards a loop and everything that hangs on it.  The driver lets go of it while it
 * polls; a thread that finds the loop driven by another one sleeps until its own condition
 * holds, which the driver looks after, or until it can drive itself. */
struct tdm__waiter {
    TAILQ_ENTRY(tdm__waiter) link;
    bool (*done)(void *arg);
    void *arg;
    struct tdm__sleeper sleeper;
};

struct tdm__turns {
    pthread_mutex_t mutex;
    _Atomic(const void *) holder;   /* the thread's mark; NULL while nobody holds the lock */
    uint32_t depth;                 /* guarded by the lock, like what follows */
    _Atomic uint32_t lockers_count; /* that sleep at the mutex, or were roused */
    const void *driver;             /* NULL: nobody */
    uint64_t drives_count;          /* how often one has begun */
    uint64_t locks_count;           /* how often somebody has come to do something */
    struct tdm__sleeper *when_free; /* borrowed; roused when nobody drives any more; or NULL */
    bool driver_yields;             /* it stands by: it stops for whoever waits */
    TAILQ_HEAD(, tdm__waiter) waiters;
};

void tdm__turns_init(struct tdm__turns *turns);
void tdm__turns_fini(struct tdm__turns *turns);

void tdm__turns_lock(struct tdm__turns *turns); /* again and again, by the same thread */
void tdm__turns_unlock(struct tdm__turns *turns);
bool tdm__turns_is_held(const struct tdm__turns *turns); /* by this thread */
/* Lets go however often it was taken, and takes it again as often. */
uint32_t tdm__turns_unlock_all(struct tdm__turns *turns);
void tdm__turns_relock(struct tdm__turns *turns, uint32_t depth);
/* Lets a locker have it first, if there is one; soon, not for certain. */
void tdm__turns_give_way(struct tdm__turns *turns);

bool tdm__turns_drives(const struct tdm__turns *turns); /* this thread */
/* Becomes the driver: TDM_OK.  TDM_E_CANCELED when done(arg) came true meanwhile, TDM_E_TIMEOUT
 * without a detail.  `wake` ends the poll of a driver that yields. */
tdm_status tdm__turns_take(struct tdm__turns *turns, bool (*done)(void *arg), void *arg,
                           int64_t deadline_ms, void (*wake)(void *arg), void *wake_arg);
void tdm__turns_leave(struct tdm__turns *turns);

void tdm__sleeper_init(struct tdm__sleeper *sleeper);
void tdm__sleeper_fini(struct tdm__sleeper *sleeper);
/* Lets go of the lock until roused (TDM_OK; now and then for no reason) or until the deadline:
 * TDM_E_TIMEOUT without a detail. */
tdm_status tdm__turns_sleep(struct tdm__turns *turns, struct tdm__sleeper *sleeper,
                            int64_t deadline_ms);
/* With the lock.  Nothing, where it does not sleep. */
void tdm__turns_rouse(struct tdm__turns *turns, struct tdm__sleeper *sleeper);

/* Wakes the waiters whose conditions hold now. */
void tdm__turns_notify(struct tdm__turns *turns);

/* In a child after fork(): the lock of a parent's other thread would never be given back. */
void tdm__turns_after_fork(struct tdm__turns *turns);

#endif
