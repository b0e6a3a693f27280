/* loop.h - the event loop of a process: file descriptors, timers, posts.  libevent's only door.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_H
#define TDM_RUNTIME_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <tandem/error.h>

/* One loop per process.  Callbacks run inside tdm__loop_run(), one at a time, never inside the
 * call that asked for them.  A callback may create, change and destroy any watch or timer, its
 * own included, and may call tdm__loop_run() again (a method that waits): nesting is allowed.
 *
 * Threads.  A loop has one lock, which guards it and everything that hangs on it (connections,
 * links, references): whoever calls any function of theirs in a process with several threads
 * holds it, by tdm__loop_enter() or by being in a callback.  Only tdm__loop_post() needs no
 * lock.  One thread at a time drives the loop; another one that runs it meanwhile sleeps until
 * its condition holds or it can drive itself.  The lock is free while the driver polls. */
struct tdm__loop;
struct tdm__fd_watch;
struct tdm__timer;
struct tdm__loop_lock;

tdm_status tdm__loop_create(struct tdm__loop **loop_out);
void tdm__loop_destroy(struct tdm__loop *loop); /* all watches and timers are gone by then */

/* Runs callbacks until `done(arg)` is true (asked before the first wait and after each round)
 * or the deadline (tdm__clock_ms scale; TDM__NEVER) has passed: TDM_OK or TDM_E_TIMEOUT.  A
 * `done` of NULL never is: it runs one deadline long.  At least one round without waiting is
 * made if the deadline has passed already. */
tdm_status tdm__loop_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                         int64_t deadline_ms);

/* Takes the lock, as often as the same thread likes; gives it back.  TDM__LOOP_ENTER takes it until
 * the end of the block, and nothing at all where the loop is NULL. */
struct tdm__loop *tdm__loop_enter(struct tdm__loop *loop);
void tdm__loop_leave(struct tdm__loop *loop);
void tdm__loop_leave_cleanup(struct tdm__loop **loop);
#define TDM__LOOP_ENTER(loop)                                                                      \
    __attribute__((cleanup(tdm__loop_leave_cleanup), unused)) struct tdm__loop *tdm_entered_ =     \
        tdm__loop_enter(loop)
/* Around code of the user's that runs inside: lets go of the lock however often it was taken,
 * and takes it again as often.  A thread that does not hold it gets 0, and may give that back.
 */
uint32_t tdm__loop_leave_all(struct tdm__loop *loop);
void tdm__loop_reenter(struct tdm__loop *loop, uint32_t depth);
/* As tdm__loop_run() for a thread that has nothing else to do: it stops driving (TDM_E_AGAIN)
 * as soon as another thread wants to run the loop. */
tdm_status tdm__loop_run_background(struct tdm__loop *loop, bool (*done)(void *arg), void *arg);
/* The lock itself, for threads that wait for one another and not for events (loop_lock.h). */
struct tdm__loop_lock *tdm__loop_lock_of(struct tdm__loop *loop);
/* Makes the driver look again at what is waited for: by whoever has changed something that
 * others may wait for, outside of callbacks. */
void tdm__loop_wake(struct tdm__loop *loop);
/* fn(arg) runs, with the lock, before each poll: what was put off is done now.  The hook is the
 * caller's, and stays until it is forgotten. */
struct tdm__poll_hook {
    TAILQ_ENTRY(tdm__poll_hook) link;
    void (*fn)(void *arg);
    void *arg;
};
void tdm__loop_add_poll_hook(struct tdm__loop *loop, struct tdm__poll_hook *hook);
void tdm__loop_remove_poll_hook(struct tdm__loop *loop, struct tdm__poll_hook *hook);
/* A thread polls now: what is put off now must wake it, else it is done when something else
 * happens. */
bool tdm__loop_is_polling(const struct tdm__loop *loop);
/* The next wait is for a peer that runs on another processor: polling for some microseconds
 * before sleeping may save two wake-ups.  Holds for one wait; whether it pays is learnt. */
void tdm__loop_expect_event_soon(struct tdm__loop *loop);
/* In the child after fork(). */
void tdm__loop_after_fork(struct tdm__loop *loop);

enum { TDM__READABLE = 1, TDM__WRITABLE = 2 };

/* Level-triggered; `events` is what is wanted, `ready` what is there (errors and hang-ups show
 * as readable). The fd is borrowed and must outlive the watch. */
typedef void tdm__fd_watch_fn(void *arg, int fd, unsigned ready);
tdm_status tdm__fd_watch_create(struct tdm__loop *loop, int fd, unsigned events,
                                tdm__fd_watch_fn *fn, void *arg, struct tdm__fd_watch **watch_out);
/* Changes the events wanted; 0 is allowed and means none for now. */
tdm_status tdm__fd_watch_set_events(struct tdm__fd_watch *watch, unsigned events);
/* Calls fn once more, later, even if nothing happens at the fd (`ready` is then 0): for data
 * that already lies in the owner's buffer, and for work that must not happen now. */
void tdm__fd_watch_call_again(struct tdm__fd_watch *watch);
void tdm__fd_watch_destroy(struct tdm__fd_watch *watch); /* NULL is allowed */

/* A timer that is not set does nothing.  It fires once per set. */
typedef void tdm__timer_fn(void *arg);
tdm_status tdm__timer_create(struct tdm__loop *loop, tdm__timer_fn *fn, void *arg,
                             struct tdm__timer **timer_out);
tdm_status tdm__timer_set(struct tdm__timer *timer, int64_t deadline_ms); /* replaces the old */
void tdm__timer_clear(struct tdm__timer *timer);
void tdm__timer_destroy(struct tdm__timer *timer); /* NULL is allowed */

/* Runs fn(arg) once, later, on the loop's thread.  Any thread. */
tdm_status tdm__loop_post(struct tdm__loop *loop, void (*fn)(void *arg), void *arg);
/* Runs now what has been posted: for an end that nobody will drive the loop after. */
void tdm__loop_run_posts(struct tdm__loop *loop);

/* Another library that needs libevent's base: event_base *.  Its callbacks run inside libevent
 * and must not call tdm__loop_run(). */
void *tdm__loop_event_base(struct tdm__loop *loop);

#endif
