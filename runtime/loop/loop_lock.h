/* loop_lock.h - the recursive lock of a loop, and the choice of the thread that drives it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_LOOP_LOCK_H
#define TDM_RUNTIME_LOOP_LOOP_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <tandem/error.h>

/* A condition variable for the loop lock, for one waiting thread.  Unlike with a plain pthread
 * condition, a signaled thread counts as waiting for the lock (waiting_lockers_count), so a busy
 * driver yields the lock to it.  The thread that waits owns the structure; the loop lock guards
 * it. */
struct tdm__loop_condition {
    pthread_cond_t condition; /* Condition variable of POSIX threads on which the thread sleeps. */
    bool is_waiting;          /* True while a thread waits for the condition. */
    bool signaled; /* True if the condition was signaled and its thread has not woken yet. */
};

/* A thread that wants to run the loop while another thread drives it.  The thread sleeps until
 * its own condition `done` holds, which the driver evaluates after each callback, or until it can
 * drive.  It lives on the stack of that thread; the loop lock guards it. */
struct tdm__loop_waiter {
    TAILQ_ENTRY(tdm__loop_waiter) link; /* Link in the list `waiters` of the lock. */
    /* Condition for which the thread runs the loop; NULL if it waits for the deadline only. */
    bool (*done)(void *arg);
    void *arg;                                 /* Argument of the condition done(). */
    struct tdm__loop_condition loop_condition; /* Condition variable that wakes the thread. */
};

/* The recursive lock that guards a loop and everything that uses it, and the state that decides
 * which thread drives the loop.  The driver releases the lock while it polls.  All members but
 * the atomic ones are guarded by the lock. */
struct tdm__loop_lock {
    pthread_mutex_t mutex; /* The lock itself, not recursive. */
    /* Identity of the thread that holds the lock; 0 if no thread does. */
    _Atomic uintptr_t holder;
    uint32_t depth; /* How often the holder has acquired the loop lock. */
    /* Number of threads that block at the mutex or were signaled and have not got the mutex yet.
     */
    _Atomic uint32_t waiting_lockers_count;
    /* Identity of the thread that drives the loop; 0 if no thread does. */
    uintptr_t driver;
    uint64_t driver_starts_count; /* How often a thread has started to drive, in total. */
    /* How often a thread has acquired the lock in total; reacquiring after a poll or a sleep does
     * not count. */
    uint64_t acquisitions_count;
    /* Condition that is signaled when the driver stops and no other thread wants to drive;
     * borrowed from the background poller.  NULL if the poller does not sleep. */
    struct tdm__loop_condition *undriven_condition;
    /* True if the driver is the background poller, which stops as soon as another thread wants to
     * drive. */
    bool driver_yields;
    /* Threads that want to drive the loop, in the order of their calls. */
    TAILQ_HEAD(, tdm__loop_waiter) waiters;
};

/* Initializes an unlocked lock of a loop that no thread drives. */
void tdm__loop_lock_init(struct tdm__loop_lock *loop_lock);
/* Frees what a loop lock uses.  No thread may hold the lock or wait for it. */
void tdm__loop_lock_fini(struct tdm__loop_lock *loop_lock);

/* Acquires a loop lock, which is recursive: each acquire needs one release.  Blocks while another
 * thread holds the lock. */
void tdm__loop_lock_acquire(struct tdm__loop_lock *loop_lock);
/* Releases a loop lock once.  The calling thread must hold the lock. */
void tdm__loop_lock_release(struct tdm__loop_lock *loop_lock);
/* Returns true if the calling thread holds the loop lock. */
bool tdm__loop_lock_is_held(const struct tdm__loop_lock *loop_lock);
/* Releases the lock completely and returns the depth, with which tdm__loop_lock_reacquire()
 * acquires it again.  The calling thread must hold the lock. */
uint32_t tdm__loop_lock_release_all(struct tdm__loop_lock *loop_lock);
/* Acquires the lock and restores the depth that tdm__loop_lock_release_all() has returned. */
void tdm__loop_lock_reacquire(struct tdm__loop_lock *loop_lock, uint32_t depth);
/* Releases the lock for a moment if other threads wait for it, so that one of them can get it
 * first.  That is likely, not certain. */
void tdm__loop_lock_yield(struct tdm__loop_lock *loop_lock);

/* Returns true if the calling thread drives the loop. */
bool tdm__loop_lock_is_driver(const struct tdm__loop_lock *loop_lock);
/* Makes the calling thread the driver and returns TDM_OK, after waiting for the current driver to
 * stop.  Returns TDM_E_CANCELED if done(arg) became true while it waited, and TDM_E_TIMEOUT,
 * without an error detail, at the deadline. wake(wake_arg) is called to end the poll of a driver
 * that yields. */
tdm_status tdm__loop_lock_start_driving(struct tdm__loop_lock *loop_lock, bool (*done)(void *arg),
                                        void *arg, int64_t deadline_ms, void (*wake)(void *arg),
                                        void *wake_arg);
/* Ends the driving by the calling thread and wakes the thread that may drive next: the first
 * waiter, else the background poller. */
void tdm__loop_lock_stop_driving(struct tdm__loop_lock *loop_lock);

/* Initializes a condition that no thread waits for. */
void tdm__loop_condition_init(struct tdm__loop_condition *loop_condition);
/* Frees what a condition uses.  No thread may wait for the condition. */
void tdm__loop_condition_fini(struct tdm__loop_condition *loop_condition);
/* Releases the lock, sleeps until the condition is signaled (TDM_OK) or until the deadline
 * (TDM_E_TIMEOUT, without an error detail), and acquires the lock to the same depth.  It may also
 * return TDM_OK spuriously. */
tdm_status tdm__loop_condition_wait(struct tdm__loop_lock *loop_lock,
                                    struct tdm__loop_condition *loop_condition,
                                    int64_t deadline_ms);
/* Wakes the thread that waits for the condition; does nothing if no thread waits.  Needs the lock.
 */
void tdm__loop_condition_signal(struct tdm__loop_lock *loop_lock,
                                struct tdm__loop_condition *loop_condition);

/* Wakes the waiting threads whose conditions are true now.  The driver calls it after each
 * callback. */
void tdm__loop_lock_notify_waiters(struct tdm__loop_lock *loop_lock);

/* Resets the lock in the child after fork(): another thread of the parent may have held it, and
 * that thread does not exist in the child. */
void tdm__loop_lock_after_fork(struct tdm__loop_lock *loop_lock);

#endif
