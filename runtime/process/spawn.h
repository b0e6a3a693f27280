/* spawn.h - starts a program and holds on to it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_SPAWN_H
#define TDM_RUNTIME_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <tandem/error.h>

/* A child: its pid, and a pidfd that becomes readable when it has ended. */
struct tdm__process {
    pid_t pid;
    int pidfd;
};

enum { TDM__SPAWN_FDS_MAX = 8 };

struct tdm__spawn_options {
    const char *program;           /* path; no search */
    char *const *argv;             /* NULL-terminated; argv[0] may differ from the program */
    char *const *environment;      /* NULL-terminated; NULL: this process's own */
    const char *working_directory; /* NULL: this process's own */
    int fds[TDM__SPAWN_FDS_MAX];   /* become 3, 4, … in the child; all others close on exec */
    uint32_t fds_count;
    int output_fd;         /* becomes stdout and stderr; -1: inherited */
    int error_fd;          /* becomes stderr instead of `output_fd`; 0: there is none */
    bool dies_with_parent; /* SIGKILL when the thread that spawned it ends */
};

/* vfork-like: the calling thread waits until the program runs.  A program that cannot be
 * executed is an error here (TDM_E_NOT_FOUND or TDM_E_IO, naming it), not a child that ends at
 * once. stdin is /dev/null; signal handlers and mask are the default. */
tdm_status tdm__spawn(const struct tdm__spawn_options *options, struct tdm__process *process_out);

/* Reaps if it has ended: true and the wait status.  Never blocks. */
bool tdm__process_reap(struct tdm__process *process, int *wait_status_out);
/* Signals; harmless when it has ended already. */
void tdm__process_signal(const struct tdm__process *process, int signal_number);
/* Closes the pidfd; the process must be reaped or not ours. */
void tdm__process_forget(struct tdm__process *process);

/* "exit code 3" or "signal 9 (killed)". */
const char *tdm__wait_status_text(int wait_status, char *text, size_t text_bytes);

#endif
