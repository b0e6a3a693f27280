/* failpoint.h - named steps of a protocol, at which a test may break this very process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_FAILPOINT_H
#define TDM_RUNTIME_FAILPOINT_H

/* A kill at a random moment seldom meets the moment that matters.  So the code names its steps,
 * and whoever starts a process may say, in its environment, at which of them it breaks:
 *
 *     TANDEM_FAILPOINT="engine/1/0 engine.staged 2 kill /tmp/broken"
 *
 * The process that is called engine/1/0, the second time it passes engine.staged, kills itself
 * with SIGKILL ("stop": with SIGSTOP); no other process, and none twice: whoever can make the
 * file /tmp/broken breaks; its name, process id and tdm__clock_ns() are then in there.  Two of
 * these, with a semicolon between, break two processes.  Without the variable a step costs a
 * comparison.  The names of the update's steps are in docs/protocols/commit.md. */

/* What this process is called, unless it is a driver: an actor's name, or "daemon".  Borrowed;
 * once, before other threads pass steps. */
void tdm__failpoint_set_process(const char *process);

/* The process is about to go past this point.  From any thread. */
void tdm__failpoint_hit(const char *name);

#endif
