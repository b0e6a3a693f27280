/* loop.h - the event loop of a process: file descriptors, timers, posts.  libevent's only door.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_LOOP_H
#define TDM_RUNTIME_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* One loop per process.  Callbacks run inside tdm__loop_run() on the thread that called it, one
 * at a time, never inside the call that asked for them.  A callback may create, change and
 * destroy any watch or timer, its own included, and may call tdm__loop_run() again (a method
 * that waits): nesting is allowed.  Only tdm__loop_post() may come from another thread. */
struct tdm__loop;
struct tdm__watch;
struct tdm__timer;

tdm_status tdm__loop_create(struct tdm__loop **loop_out);
void tdm__loop_destroy(struct tdm__loop *loop); /* all watches and timers are gone by then */

/* Runs callbacks until `done(arg)` is true (asked before the first wait and after each round)
 * or the deadline (tdm__clock_ms scale; TDM__NEVER) has passed: TDM_OK or TDM_E_TIMEOUT.  A
 * `done` of NULL never is: it runs one deadline long.  At least one round without waiting is
 * made if the deadline has passed already. */
tdm_status tdm__loop_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg,
                         int64_t deadline_ms);

enum { TDM__READABLE = 1, TDM__WRITABLE = 2 };

/* Level-triggered; `events` is what is wanted, `ready` what is there (errors and hang-ups show
 * as readable). The fd is borrowed and must outlive the watch. */
typedef void tdm__watch_fn(void *arg, int fd, unsigned ready);
tdm_status tdm__watch_create(struct tdm__loop *loop, int fd, unsigned events, tdm__watch_fn *fn,
                             void *arg, struct tdm__watch **watch_out);
/* Changes the events wanted; 0 is allowed and means none for now. */
tdm_status tdm__watch_want(struct tdm__watch *watch, unsigned events);
/* Calls fn once more, later, even if nothing happens at the fd (`ready` is then 0): for data
 * that already lies in the owner's buffer, and for work that must not happen now. */
void tdm__watch_again(struct tdm__watch *watch);
void tdm__watch_destroy(struct tdm__watch *watch); /* NULL is allowed */

/* A timer that is not set does nothing.  It fires once per set. */
typedef void tdm__timer_fn(void *arg);
tdm_status tdm__timer_create(struct tdm__loop *loop, tdm__timer_fn *fn, void *arg,
                             struct tdm__timer **timer_out);
tdm_status tdm__timer_set(struct tdm__timer *timer, int64_t deadline_ms); /* replaces the old */
void tdm__timer_clear(struct tdm__timer *timer);
void tdm__timer_destroy(struct tdm__timer *timer); /* NULL is allowed */

/* Runs fn(arg) once, later, on the loop's thread.  Any thread. */
tdm_status tdm__loop_post(struct tdm__loop *loop, void (*fn)(void *arg), void *arg);

/* Another library that needs libevent's base: event_base *.  Its callbacks run inside libevent
 * and must not call tdm__loop_run(). */
void *tdm__loop_base(struct tdm__loop *loop);

#endif
