/* loop.h - the event loop of a process: file descriptors, timers and posted calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_H
#define TDM_RUNTIME_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <tandem/error.h>

/* Each process has one loop.  Callbacks run inside tdm__loop_run() and
 * tdm__loop_run_background(), posted calls also inside tdm__loop_run_posts(); one at a time, and
 * never inside the call that registers them.  A callback may create, change and destroy any watch
 * or timer, including its own.  It may also call tdm__loop_run() itself, as a method does that
 * waits for a result: runs may be nested.
 *
 * Threads: each loop has one recursive lock, the loop lock.  It guards the loop and everything
 * that uses it (connections, actor channels, references).  A process with several threads must
 * hold it whenever it calls one of their functions, by tdm__loop_enter() or because it runs in a
 * callback.  tdm__loop_post() needs no lock, and tdm__loop_enter(), tdm__loop_run() and
 * tdm__loop_run_background() take it themselves.  One thread at a time drives the loop, that is,
 * polls it and runs callbacks.  Another thread that calls tdm__loop_run() meanwhile sleeps until
 * its condition is true or until it can drive the loop itself.  The lock is free while the driver
 * polls.
 *
 * Only this folder and runtime/http use libevent. */
struct tdm__loop;
/* A watch: calls a function when a file descriptor is readable or writable. */
struct tdm__fd_watch;
/* A timer: calls a function once when its deadline has passed. */
struct tdm__timer;
/* The lock of a loop; loop_lock.h defines it. */
struct tdm__loop_lock;

/* Creates an event loop, which the caller destroys. */
tdm_status tdm__loop_create(struct tdm__loop **loop_out);
/* Frees an event loop.  All watches, timers and hooks must have been removed.  Posted calls that
 * have not run are dropped.  NULL is allowed. */
void tdm__loop_destroy(struct tdm__loop *loop);

/* Runs the loop: polls and runs callbacks until `done(arg)` returns true (TDM_OK) or the deadline,
 * on the scale of tdm__clock_ms(), has passed (TDM_E_TIMEOUT).  `done` is called with the lock
 * before the first wait and after each callback; NULL means that only the deadline ends the run.
 * If the deadline has passed already, the loop polls once without waiting. */
tdm_status tdm__loop_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                         int64_t deadline_ms);

/* Acquires the loop lock and returns `loop`; does nothing if `loop` is NULL.  The lock is
 * recursive: each enter needs one leave.  Blocks while another thread holds the lock. */
struct tdm__loop *tdm__loop_enter(struct tdm__loop *loop);
/* Releases the loop lock once.  `loop` must not be NULL. */
void tdm__loop_leave(struct tdm__loop *loop);
/* Releases the loop lock at the end of a block with TDM__LOOP_ENTER; `*loop` may be NULL. */
void tdm__loop_leave_cleanup(struct tdm__loop **loop);
/* Acquires the loop lock until the end of the enclosing block.  Does nothing if `loop` is NULL. */
#define TDM__LOOP_ENTER(loop)                                                                      \
    __attribute__((cleanup(tdm__loop_leave_cleanup), unused)) struct tdm__loop *tdm_entered_ =     \
        tdm__loop_enter(loop)
/* Releases the loop lock completely, however often this thread has acquired it, so that user code
 * runs without it.  Returns the depth for tdm__loop_reenter(); 0 if this thread does not hold the
 * lock. */
uint32_t tdm__loop_leave_all(struct tdm__loop *loop);
/* Acquires the loop lock again to the depth that tdm__loop_leave_all() has returned.  Does nothing
 * if `depth` is 0. */
void tdm__loop_reenter(struct tdm__loop *loop, uint32_t depth);
/* Drives the loop like tdm__loop_run() without a deadline, but returns TDM_E_AGAIN as soon as
 * another thread wants to drive it, and at once if another thread drives already.  For the
 * background poller. */
tdm_status tdm__loop_run_background(struct tdm__loop *loop, bool (*done)(void *arg), void *arg);
/* Returns the loop lock, for threads that wait for one another instead of for events
 * (loop_lock.h). */
struct tdm__loop_lock *tdm__loop_lock_of(struct tdm__loop *loop);
/* Ends the poll of the driver, so that it evaluates the conditions of all waiting threads again.
 * Call it after changing something that another thread may wait for, unless in a callback.  Needs
 * the lock. */
void tdm__loop_wake(struct tdm__loop *loop);
/* A function that runs with the lock before each poll, to do work that was deferred to this
 * moment, such as flushing a send queue.  The caller owns the structure and removes the hook
 * before freeing it. */
struct tdm__poll_hook {
    TAILQ_ENTRY(tdm__poll_hook) link; /* Link in the loop's list of poll hooks. */
    void (*fn)(void *arg);            /* Function that runs before each poll. */
    void *arg;                        /* Argument of the poll hook's fn(). */
};
/* Adds a poll hook to the loop, which borrows the hook until it is removed. */
void tdm__loop_add_poll_hook(struct tdm__loop *loop, struct tdm__poll_hook *hook);
/* Removes a poll hook that was added to the loop. */
void tdm__loop_remove_poll_hook(struct tdm__loop *loop, struct tdm__poll_hook *hook);
/* Returns true if a thread polls now.  A hook then runs only after the next event, so deferred
 * work must either be done at once or wake the driver.  Needs the lock. */
bool tdm__loop_is_polling(const struct tdm__loop *loop);
/* Tells the loop that the next wait is for a peer on another processor, so that polling for some
 * microseconds before sleeping may save two wake-ups.  The hint holds for one wait only.  The loop
 * learns whether polling pays (adaptive_polling.h). */
void tdm__loop_expect_event_soon(struct tdm__loop *loop);
/* Resets the loop lock in the child after fork(), where the threads of the parent do not exist. */
void tdm__loop_after_fork(struct tdm__loop *loop);

enum {
    /* Event bit: the file descriptor is readable, or has an error or a hang-up. */
    TDM__READABLE = 1,
    TDM__WRITABLE = 2 /* Event bit: the file descriptor is writable. */
};

/* Callback of a watch.  `ready` holds the wanted events that are present; the callback runs again
 * as long as they are (level-triggered). */
typedef void tdm__fd_watch_fn(void *arg, int fd, unsigned ready);
/* Watches `fd` for `events`.  The descriptor is borrowed and must outlive the watch.  The caller
 * destroys the watch. */
tdm_status tdm__fd_watch_create(struct tdm__loop *loop, int fd, unsigned events,
                                tdm__fd_watch_fn *fn, void *arg, struct tdm__fd_watch **watch_out);
/* Changes which events a watch waits for; 0 pauses the watch. */
tdm_status tdm__fd_watch_set_events(struct tdm__fd_watch *watch, unsigned events);
/* Makes the loop call the watch's callback once more, later, even without an event of the
 * descriptor; `ready` may be 0 then.  For data that is already in a buffer of the owner, and for
 * work that must not be done now. */
void tdm__fd_watch_call_again(struct tdm__fd_watch *watch);
/* Destroys a watch; its callback does not run any more.  The descriptor stays open.  NULL is
 * allowed. */
void tdm__fd_watch_destroy(struct tdm__fd_watch *watch);

/* Callback of a timer.  It runs once each time the timer is set. */
typedef void tdm__timer_fn(void *arg);
/* Creates a timer that is not set.  The caller destroys the timer. */
tdm_status tdm__timer_create(struct tdm__loop *loop, tdm__timer_fn *fn, void *arg,
                             struct tdm__timer **timer_out);
/* Sets the deadline of a timer on the scale of tdm__clock_ms(), replacing an earlier one.
 * TDM__NEVER clears the timer. */
tdm_status tdm__timer_set(struct tdm__timer *timer, int64_t deadline_ms);
/* Cancels a timer: its callback does not run until the timer is set again. */
void tdm__timer_clear(struct tdm__timer *timer);
/* Destroys a timer; its callback does not run any more.  NULL is allowed. */
void tdm__timer_destroy(struct tdm__timer *timer);

/* Runs fn(arg) once, later, in the thread that drives the loop.  Any thread may call it, without
 * the lock.  Returns TDM_E_NOMEM if there is no memory; fn does not run then. */
tdm_status tdm__loop_post(struct tdm__loop *loop, void (*fn)(void *arg), void *arg);
/* Runs all posted calls now.  For the end of a process, when no thread will drive the loop any
 * more.  Needs the lock. */
void tdm__loop_run_posts(struct tdm__loop *loop);

/* Returns the event base of libevent (event_base *), for other libraries that need one.  Their
 * callbacks run inside libevent and must not call tdm__loop_run(). */
void *tdm__loop_event_base(struct tdm__loop *loop);

#endif
