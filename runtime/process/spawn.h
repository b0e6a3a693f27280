/* spawn.h - starts a program as a child process, signals it and reaps it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_SPAWN_H
#define TDM_RUNTIME_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <tandem/error.h>

/* A child process, owned by the code that spawned it. */
struct tdm__process {
    pid_t pid; /* Process id of the child; 0 after tdm__process_forget(). */
    /* Owned descriptor that becomes readable when the child has ended; -1 after
     * tdm__process_forget(). */
    int pidfd;
};

/* Largest number of descriptors that a child can be given. */
enum { TDM__SPAWN_FDS_MAX = 8 };

/* Arguments of tdm__spawn().  Everything is borrowed until it returns. */
struct tdm__spawn_options {
    const char *program;      /* Path of the program to execute; PATH is not searched. */
    char *const *argv;        /* Arguments, NULL-terminated; argv[0] may differ from `program`. */
    char *const *environment; /* Environment, NULL-terminated; NULL for that of this process. */
    /* Working directory of the child; NULL for that of this process. */
    const char *working_directory;
    /* Descriptors that become 3, 4, ... in the child; all others are closed there. */
    int fds[TDM__SPAWN_FDS_MAX];
    uint32_t fds_count; /* Number of entries in `fds`. */
    int output_fd;      /* Descriptor that becomes stdout and stderr; -1 if both are inherited. */
    /* Descriptor that becomes stderr instead of `output_fd`; 0 if both are the same. */
    int error_fd;
    /* True if the kernel shall kill the child by SIGKILL when the thread that spawned it ends. */
    bool dies_with_parent;
    /* Socket on which a reaper reports (reaper.h), which becomes the parent of the program and ends
     * when the program and all that it has started have ended; 0 for no reaper. The reaper dies
     * with its parent. */
    int report_fd;
    /* True if the child shall lead a session and a process group of its own. */
    bool new_session;
};

/* Starts a program as a child process, which it stores in `process_out`; with a reaper, that is the
 * child, and the report that the program was started can be received without a wait.  Blocks until
 * the program has been executed, so that a program that cannot be executed is an error here
 * (TDM_E_NOT_FOUND or TDM_E_IO, with its name).  The child gets /dev/null as stdin, default signal
 * handlers and an empty signal mask. */
tdm_status tdm__spawn(const struct tdm__spawn_options *options, struct tdm__process *process_out);

/* Reaps a child process if it has ended and stores its wait status.  Returns false if the child is
 * still running.  Never blocks. */
bool tdm__process_reap(struct tdm__process *process, int *wait_status_out);
/* Sends a signal to a child process.  Does nothing if the child has ended or was forgotten. */
void tdm__process_signal(const struct tdm__process *process, int signal_number);
/* Closes the pidfd of a child process.  The child must have been reaped, or must be reaped by
 * another process. */
void tdm__process_forget(struct tdm__process *process);

/* Writes a text such as "exit code 3" or "signal 9 (killed)" for a wait status to `text` and
 * returns `text`. */
const char *tdm__wait_status_text(int wait_status, char *text, size_t text_bytes);

#endif
