/* failpoint.h - named points in a protocol at which a test can kill or stop this process, make it
 * skip a step, or change a byte. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_FAILPOINT_H
#define TDM_RUNTIME_FAILPOINT_H

#include <stdbool.h>
#include <tandem/value.h>

/* A kill at a random moment seldom hits the moment that matters.  So the code names its
 * failpoints, and a test selects some of them in the environment of the process:
 *
 *     TANDEM_FAILPOINT="engine/1/0 engine.staged 2 kill /tmp/broken"
 *
 * The process named engine/1/0 kills itself with SIGKILL ("stop": SIGSTOP) when it reaches the
 * failpoint engine.staged for the second time.  It first creates the file /tmp/broken exclusively
 * and writes its name, process id and tdm__clock_ns() to it.  If the file exists already, the
 * process goes on, so that only one process triggers.  With "skip" the process leaves out a step
 * instead, so that a test can show what the step is for: in every process of that name, from the
 * second hit on, without creating the file, and until the test creates it.  With "change" it
 * changes one byte of what it is about to send; it creates the file as for a kill.  With "note" it
 * only creates the file, by which a test sees how far the process is.  Up to four such rules,
 * separated by semicolons, select as many failpoints.  Without the variable, a failpoint costs one
 * comparison.  The failpoints of a weight update are listed in docs/protocols/commit.md. */

/* Sets the name of this process for the rules of TANDEM_FAILPOINT: the name of an actor, or
 * "daemon"; the initial name is "driver".  The text is borrowed for the rest of the process.
 * Call it once, before other threads reach failpoints. */
void tdm__failpoint_set_process(const char *process);

/* Reports that the process has reached the failpoint `name`.  Kills or stops the process, or notes
 * that it was there, if a rule of TANDEM_FAILPOINT says so.  Any thread may call it. */
void tdm__failpoint_hit(const char *name);

/* Reports that the process has reached the step `name`, and returns true if a rule of
 * TANDEM_FAILPOINT says that the process skips the step.  Any thread may call it. */
bool tdm__failpoint_skips(const char *name);

/* Reports that the process has reached the failpoint `name` with `bytes`, which lie in memory that
 * it owns.  Changes one byte of them if a rule of TANDEM_FAILPOINT says so: one in the middle, or
 * none if there are no bytes.  Any thread may call it. */
void tdm__failpoint_change(const char *name, struct tdm_bytes bytes);

#endif
