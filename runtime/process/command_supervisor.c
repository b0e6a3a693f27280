/* command_supervisor.c - runs one command and ends everything that the command has started. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor of a command is a process between the daemon and the command. It exists because
 * only a subreaper of its own can tell which of the daemon's descendants belong to this command:
 * a process that calls setsid() and outlives its parent becomes a child of the supervisor.
 *
 *     daemon -- supervisor of the command (subreaper) -- command -- its process tree
 *
 * The supervisor waits by poll(2) for a signalfd (SIGCHLD, SIGTERM, SIGINT) and, while it stops the
 * command, for the end of the grace time. States: running; stopping, after SIGTERM was sent to the
 * command's process group; and ended. If the supervisor is killed, the kernel kills the command,
 * and the daemon adopts the rest of the process tree. */
#include "runtime/process/command_supervisor.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/process/process_tree.h"
#include "runtime/process/spawn.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KILL_TIMEOUT_MS = 5000, /* Longest wait for killed processes to end, in milliseconds. */
    GROUP_POLL_MS = 10,     /* Time between two checks whether a process group has ended. */
    FAILED_EXIT_CODE = 127, /* Exit code of a supervisor that could not start its command. */
    FIRST_COMMAND_WORD = 3  /* Index in argv of the program of the command to supervise. */
};

/* State of the supervisor process; lives on the stack of tdm__command_supervise(). */
struct command_supervisor {
    struct tdm__process command; /* The command, which leads its session and process group. */
    int signal_fd;               /* Signalfd for SIGCHLD, SIGTERM and SIGINT (owned). */
    int64_t grace_ms;            /* Milliseconds from SIGTERM to SIGKILL when stopping. */
    bool has_ended;              /* True once the command was reaped. */
    int wait_status;             /* Wait status of the command; valid once `has_ended` is true. */
    bool is_stopping;            /* True once SIGTERM was sent to the command's process group. */
    /* Time at which the process tree is killed, on the clock of tdm__clock_ms(); TDM__NEVER until
     * `is_stopping` is true. */
    int64_t kill_at_ms;
};

/* Reaps all children that have ended: the command, and processes that the supervisor has adopted.
 */
static void command_supervisor_reap(struct command_supervisor *supervisor)
{
    int wait_status;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        if (pid == supervisor->command.pid) {
            supervisor->has_ended = true;
            supervisor->wait_status = wait_status;
        }
    }
}

/* Handles all signals that have arrived. */
static void command_supervisor_handle_signals(struct command_supervisor *supervisor)
{
    struct signalfd_siginfo info;

    while (read(supervisor->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD) {
            command_supervisor_reap(supervisor);
        } else if (!supervisor->is_stopping && !supervisor->has_ended) {
            supervisor->is_stopping = true;
            supervisor->kill_at_ms = tdm__deadline_after(supervisor->grace_ms);
            (void)kill(-supervisor->command.pid, SIGTERM);
        }
    }
}

/* Returns whether the supervisor has nothing more to wait for, so that the process tree can be
 * killed. While it stops the command, it also waits for the other processes of the command's
 * process group, which may still be handling SIGTERM. */
static bool command_supervisor_is_done(const struct command_supervisor *supervisor)
{
    if (supervisor->is_stopping && tdm__deadline_remaining_ms(supervisor->kill_at_ms) == 0) {
        return true;
    }
    return supervisor->has_ended &&
           (!supervisor->is_stopping || kill(-supervisor->command.pid, 0) < 0);
}

/* Waits until the command has ended or its grace time is over, and kills the process tree. */
static void command_supervisor_wait(struct command_supervisor *supervisor)
{
    struct pollfd event = {.fd = supervisor->signal_fd, .events = POLLIN};

    while (!command_supervisor_is_done(supervisor)) {
        int64_t remaining_ms = tdm__deadline_remaining_ms(supervisor->kill_at_ms);
        int timeout_ms = supervisor->has_ended ? GROUP_POLL_MS : (int)remaining_ms;

        (void)poll(&event, 1, timeout_ms);
        command_supervisor_handle_signals(supervisor);
    }
    while (!supervisor->has_ended) {
        /* The grace time is over. The kill reaches processes that stop themselves by SIGSTOP, too.
         */
        (void)kill(-supervisor->command.pid, SIGKILL);
        (void)poll(&event, 1, GROUP_POLL_MS);
        command_supervisor_handle_signals(supervisor);
    }
    if (!tdm__process_tree_kill_all(KILL_TIMEOUT_MS, NULL)) {
        tdm__log(TDM__ERROR, "supervisor", "some processes did not end within %d ms of SIGKILL",
                 (int)KILL_TIMEOUT_MS);
    }
}

tdm_status tdm__command_supervise(char *const *argv, int64_t grace_ms, int *wait_status_out)
{
    const struct tdm__spawn_options options = {.program = argv[0],
                                               .argv = argv,
                                               .output_fd = -1,
                                               .dies_with_parent = true,
                                               .new_session = true};
    struct command_supervisor supervisor = {.grace_ms = grace_ms, .kill_at_ms = TDM__NEVER};
    sigset_t watched;
    tdm_status status;

    tdm__process_tree_adopt_orphans();
    (void)sigemptyset(&watched);
    (void)sigaddset(&watched, SIGCHLD);
    (void)sigaddset(&watched, SIGTERM);
    (void)sigaddset(&watched, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &watched, NULL);
    supervisor.signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (supervisor.signal_fd < 0) {
        return tdm__fail_errno(errno, "signalfd of the supervisor of a command");
    }
    status = tdm__spawn(&options, &supervisor.command);
    if (status == TDM_OK) {
        command_supervisor_wait(&supervisor);
        tdm__process_forget(&supervisor.command);
        *wait_status_out = supervisor.wait_status;
    }
    (void)close(supervisor.signal_fd);
    return status;
}

/* Ends this process as a process with the given wait status ended. */
_Noreturn static void exit_like(int wait_status)
{
    if (WIFSIGNALED(wait_status)) {
        sigset_t signals;

        (void)prctl(PR_SET_DUMPABLE, 0); /* The command has dumped its core already, if at all. */
        (void)signal(WTERMSIG(wait_status), SIG_DFL);
        (void)sigemptyset(&signals);
        (void)pthread_sigmask(SIG_SETMASK, &signals, NULL);
        (void)raise(WTERMSIG(wait_status));
        _exit(128 + WTERMSIG(wait_status));
    }
    _exit(WEXITSTATUS(wait_status));
}

void tdm__command_supervisor_run_if_one(int argc, char **argv)
{
    int wait_status = 0;

    if (argc <= FIRST_COMMAND_WORD || strcmp(argv[1], TDM__SUPERVISE_COMMAND_WORD) != 0) {
        return;
    }
    (void)prctl(PR_SET_NAME, "tandem-command");
    if (tdm__command_supervise(argv + FIRST_COMMAND_WORD, strtoll(argv[2], NULL, 10),
                               &wait_status) != TDM_OK) {
        (void)fprintf(stderr, "tandemd: %s\n", tdm_error_detail());
        _exit(FAILED_EXIT_CODE);
    }
    exit_like(wait_status);
}
