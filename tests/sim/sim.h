/* sim.h - simulated processes in one thread, with a random order of events and a simulated
 * clock. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_SIM_H
#define TDM_TESTS_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/runtime.h>

/* A program that is linked with the simulator has another loop (runtime/loop/loop.h and
 * loop_lock.h), another clock (runtime/clock.h), fibers instead of threads, and repeatable IDs. All
 * other code is the product's. Sockets are those of the kernel, which in one thread transfer data
 * at once.
 *
 * In each step one event happens, chosen at random among all possible ones: a socket or timer of a
 * process is handled, corked output is flushed, a fiber whose wait is over continues, or a process
 * is killed. A fiber can be interrupted where it releases a loop's lock. Time advances a little now
 * and then, and to the next timer when no other event is possible. The same seed gives the same
 * history. */

struct sim_process;
struct tdm__loop;

void sim_begin(uint64_t seed);
/* Ends the simulation. All processes must have ended. */
void sim_end(void);

/* Creates a process whose main(arg) runs on its first fiber. on_kill(arg) is called when it is
 * killed. From then on every wait in the process fails and its messages reach no other process, but
 * its fibers run until they have ended, so that its memory is freed. */
struct sim_process *sim_process_create(const char *name, void (*main)(void *arg),
                                       void (*on_kill)(void *arg), void *arg);
/* Kills the process soon, at any point where it can be interrupted. */
void sim_process_kill(struct sim_process *process);
/* Returns true if all fibers have ended. The process is freed with the simulation. */
bool sim_process_has_ended(const struct sim_process *process);
/* Stops the process as SIGSTOP does, or continues it: a stopped process does nothing, but what
 * others send it stays in its sockets. It can be killed. */
void sim_process_stop(struct sim_process *process, bool stopped);
/* Puts the process on a machine, whose links sim_set_network() describes; 0, the default, is none.
 */
void sim_process_set_machine(struct sim_process *process, uint32_t machine);
uint32_t sim_process_machine(const struct sim_process *process);
/* Sets the function that says whether what has arrived at the socket `fd` of a process on `machine`
 * is hidden from it, because the network has not delivered it yet; NULL for none. sim_begin()
 * forgets it. */
void sim_set_network(bool (*hides)(uint32_t machine, int fd));

/* ---- inside a process ------------------------------------------------------------------- */

/* Returns the running process; NULL outside of all processes. */
struct sim_process *sim_self(void);
bool sim_is_dying(void);
/* Sets the result of tdm_runtime_current() in this process. */
void sim_set_runtime(tdm_runtime *runtime);
/* Starts one more thread of this process. */
void sim_fiber_start(void (*fn)(void *arg), void *arg);
/* Sleeps; returns earlier if the process is killed. */
void sim_sleep(int64_t milliseconds);
/* Waits for the other fibers of this process. */
void sim_join_others(void);

/* ---- outside ---------------------------------------------------------------------------- */

enum sim_end { SIM_DONE, SIM_STUCK, SIM_ENDLESS };
/* Executes events until done(arg). Returns SIM_STUCK if no event is possible any more, SIM_ENDLESS
 * after too many steps. */
enum sim_end sim_run(bool (*done)(void *arg), void *arg);
/* Executes events until none is possible any more. */
enum sim_end sim_run_dry(void);
uint64_t sim_steps_count(void);
int64_t sim_now_ms(void);

/* Returns a random number below `bound`. May be called anywhere. */
uint32_t sim_below(uint32_t bound);

/* Makes the product log errors only, unless TANDEM_LOG says otherwise. */
void sim_log_begin(void);
/* Prints one line of the history if sim_trace_on(true) was called. */
void sim_trace_on(bool on);
__attribute__((format(printf, 1, 2))) void sim_trace(const char *format, ...);

#endif
