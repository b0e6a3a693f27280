/* shell_run.h - runs a shell command and keeps what it prints. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_SHELL_RUN_H
#define TDM_TESTS_SUPPORT_SHELL_RUN_H

/* Output of the last command, stdout and stderr; ends with a NUL and is cut at its size. */
extern char said[4 << 20];

/* Runs a shell command in the directory `directory`, or in that of this process if it is NULL, and
 * waits for its end. Returns its exit code, or -1 if a signal has ended it. */
int shell_run(const char *directory, const char *command);

/* Fails, with the whole output, unless the last command printed this text. */
void expect_said(const char *text);

#endif
