/* actor_fixture.h - a private node for tests of actors, and an actor that does what it is told.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_ACTOR_FIXTURE_H
#define TDM_TESTS_SUPPORT_ACTOR_FIXTURE_H

#include <tandem/tandem.h>

/* What an answer may take on a busy machine, with sanitizers. */
enum { TEST_TIMEOUT_MS = 30000 };

/* First thing in main(): joins a private node with this build's tandemd, in a $TMPDIR of its
 * own; or, in a worker, becomes the actor.  `options` may be NULL. */
tdm_runtime *actor_fixture_open(const struct tdm_runtime_options *options);
/* Stops the runtime and removes the $TMPDIR; 0 if the daemon left nothing in it. */
int actor_fixture_close(tdm_runtime *runtime);

/* TANDEM_DAEMON and TMPDIR, for programs that start their runtime themselves; nothing in a
 * worker. actor_fixture_clean_up() is the other half. */
void actor_fixture_prepare(void);
int actor_fixture_clean_up(void);

/* All fail the test when the call fails. */
tdm_actor *actor_fixture_create(tdm_runtime *runtime, const struct tdm_actor_options *options);
int64_t actor_fixture_call_int(tdm_actor *actor, const char *method);
/* Copies the answer of a method that takes one text and gives one. */
void actor_fixture_call_text(tdm_actor *actor, const char *method, const char *argument, char *text,
                             size_t room);
/* Calls and waits; the status and tdm_error_detail() are the call's. */
tdm_status actor_fixture_call(tdm_actor *actor, const char *method, const char *argument);
/* True once nothing answers to the pid any more; waits for it. */
int wait_process_exit(int64_t pid, int64_t timeout_ms);

/* Does nothing, but links the class "tester" into programs that call nothing else here. */
void actor_fixture_link_tester(void);

/* The class "tester".
 *
 *   construct ("broken")   fails: "the engine has no fuel"
 *   construct ("exit")     ends its process with code 7
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
 *   relay (s)      calls add (1) of the actor of that name and replies the total
 *   stray (?)      starts a process in a session of its own, by fork alone or with exec, and
 *                  replies its pid */

#endif
