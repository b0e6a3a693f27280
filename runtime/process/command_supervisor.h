/* command_supervisor.h - runs one command and ends everything that the command has started. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PROCESS_COMMAND_SUPERVISOR_H
#define TDM_RUNTIME_PROCESS_COMMAND_SUPERVISOR_H

#include <stdint.h>
#include <tandem/error.h>

/* First argument of a program that shall supervise a command: `tandemd --supervise-command GRACE_MS
 * PROGRAM [ARGUMENT ...]`. */
#define TDM__SUPERVISE_COMMAND_WORD "--supervise-command"

/* Runs a command as a child of this process, in a session of its own, and blocks until the command
 * and everything that it has started have ended. This process becomes the subreaper of the
 * command's process tree, also of processes with sessions of their own. It handles these events:
 *
 * - The command ends: the supervisor kills what is left of the process tree by SIGKILL.
 * - SIGTERM or SIGINT arrives: the supervisor sends SIGTERM to the process group of the command,
 *   and kills the process tree by SIGKILL `grace_ms` milliseconds later, or as soon as the command
 *   and its process group have ended.
 *
 * `argv` ends with NULL, and argv[0] is the path of the program. The wait status of the command
 * goes to `wait_status_out`. Call this function in a process with one thread that has no other
 * children and that ends afterwards. Returns TDM_E_NOT_FOUND or TDM_E_IO if the command cannot be
 * started. */
tdm_status tdm__command_supervise(char *const *argv, int64_t grace_ms, int *wait_status_out);

/* Runs a program whose first argument is TDM__SUPERVISE_COMMAND_WORD: supervises the command in
 * `argv` and ends this process in the same way as the command ended, by the same exit code or the
 * same signal. Returns without an effect if argv[1] is another word. */
void tdm__command_supervisor_run_if_one(int argc, char **argv);

#endif
