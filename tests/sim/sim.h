/* sim.h - processes in one thread: what happens next, and what time it is, is decided by
 * chance.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_SIM_H
#define TDM_TESTS_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/runtime.h>

/* A program that is linked with the simulation has another loop (runtime/loop/loop.h and
 * loop_lock.h), another clock (runtime/clock.h), fibers for threads and ids that repeat; all else
 * is the product: sockets are the kernel's, which in one thread do what they are told at once.
 *
 * At each step one thing happens, chosen among all that could: a socket or timer of any process
 * is served, what a process has corked is flushed, a fiber whose wait is over goes on, a
 * process is killed.  A fiber can be interrupted where it gives back a loop's lock.  Time
 * passes a little now and then, and up to the next timer when nothing else can happen.  The
 * same seed, the same history. */

struct sim_process;
struct tdm__loop;

void sim_begin(uint64_t seed);
/* Nothing may be left: processes have ended. */
void sim_end(void);

/* Makes a process; main(arg) runs on its first fiber.  on_kill(arg) is told when it is killed:
 * from then on every wait in it fails and nothing of it reaches others, but its fibers go on
 * until they have ended, so that its memory is freed. */
struct sim_process *sim_process_create(const char *name, void (*main)(void *arg),
                                       void (*on_kill)(void *arg), void *arg);
/* Soon, at any point where it could be interrupted. */
void sim_process_kill(struct sim_process *process);
/* Its main has returned and its other fibers, too; then it is freed with the simulation. */
bool sim_process_has_ended(const struct sim_process *process);

/* ---- inside a process ------------------------------------------------------------------- */

/* The one that runs now; NULL outside of all. */
struct sim_process *sim_self(void);
bool sim_is_dying(void);
/* What tdm_runtime_current() is in this process. */
void sim_set_runtime(tdm_runtime *runtime);
/* One more thread of this process. */
void sim_fiber_start(void (*fn)(void *arg), void *arg);
/* Sleeps; earlier when the process is killed. */
void sim_sleep(int64_t milliseconds);
/* Waits for the other fibers of this process. */
void sim_join_others(void);

/* ---- outside ---------------------------------------------------------------------------- */

enum sim_end { SIM_DONE, SIM_STUCK, SIM_ENDLESS };
/* Lets things happen until done(arg); STUCK when nothing can happen any more, ENDLESS after
 * too many steps. */
enum sim_end sim_run(bool (*done)(void *arg), void *arg);
/* The same until nothing happens any more. */
enum sim_end sim_run_dry(void);
uint64_t sim_steps_count(void);
int64_t sim_now_ms(void);

/* Of the seed: below `bound`.  Anywhere. */
uint32_t sim_below(uint32_t bound);

/* One line of the history, printed if it is wanted: `on` for what follows. */
void sim_trace_on(bool on);
__attribute__((format(printf, 1, 2))) void sim_trace(const char *format, ...);

#endif
