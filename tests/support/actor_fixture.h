/* actor_fixture.h - a private node for tests of actors, and an actor with methods for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_ACTOR_FIXTURE_H
#define TDM_TESTS_SUPPORT_ACTOR_FIXTURE_H

#include <tandem/tandem.h>

/* Deadline of a reply on a busy machine with sanitizers. */
enum { TEST_TIMEOUT_MS = 30000 };

/* Starts a private node with this build's tandemd and a $TMPDIR of its own. In a worker process it
 * becomes the actor instead. Must be the first call in main(). `options` may be NULL. */
tdm_runtime *actor_fixture_open(const struct tdm_runtime_options *options);
/* Stops the runtime and removes the $TMPDIR. Returns 0 if the daemon left nothing in it. */
int actor_fixture_close(tdm_runtime *runtime);

/* Sets TANDEM_DAEMON and TMPDIR for programs that start their runtime themselves; does nothing in a
 * worker. actor_fixture_clean_up() removes what it created. */
void actor_fixture_prepare(void);
int actor_fixture_clean_up(void);

/* These functions fail the test when the call fails. */
tdm_actor *actor_fixture_create(tdm_runtime *runtime, const struct tdm_actor_options *options);
int64_t actor_fixture_call_int(tdm_actor *actor, const char *method);
/* Copies the reply of a method that takes one text and replies one. */
void actor_fixture_call_text(tdm_actor *actor, const char *method, const char *argument, char *text,
                             size_t room);
/* Calls and waits. Returns the status of the call, with its detail in tdm_error_detail(). */
tdm_status actor_fixture_call(tdm_actor *actor, const char *method, const char *argument);
/* Waits until no process has the PID. Returns 1 if that happened in time. */
int wait_process_exit(int64_t pid, int64_t timeout_ms);
/* Sends SIGSTOP and waits until all threads of the process have stopped: kill(2) returns before,
 * and a thread on another processor may still answer. Returns 1 if that happened in time. */
int stop_process(int64_t pid, int64_t timeout_ms);

/* Does nothing; a call links the class "tester" into a program. */
void actor_fixture_link_tester(void);

/* The class "tester".
 *
 *   construct ("broken")   fails: "the engine has no fuel"
 *   construct ("exit")     ends its process with code 7
 *   construct ("gate", s)  waits until the file s exists
 *   add (i)        adds, replies the total
 *   append (i)     replies how many came out of order so far
 *   blob (u)       replies that many bytes
 *   echo (v)       replies the value
 *   fail (s)       fails with that detail;  status (i) fails with that status
 *   hang ()        never returns;  linger (i) returns after that many milliseconds
 *   exit (i)       ends its process
 *   pid, parent () process ids
 *   variable (s)   getenv;  place ("")  the working directory
 *   gpus ("")      "0,2": the GPUs it was given
 *   greet (s)      replies first and reads its argument afterwards; greeted ("") replies it
 *   twice ()       replies twice: the second time fails, and that is its reply's status
 *   breed (s)      creates a tester of that name, replies its pid
 *   seek (s)       finds the actor of that name, or with ("name", true) creates it unless it
 *                  exists; replies the status of waiting 0 ms for it
 *   sought ()      replies the pid of the actor of the last call of seek
 *   relay (s)      calls add (1) of the actor of that name and replies the total
 *   stray (?)      starts a process in a session of its own, by fork alone or with exec, and
 *                  replies its pid */

#endif
