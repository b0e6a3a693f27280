/* spawn.c - starts a program as a child process, signals it and reaps it. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The function tdm__spawn() forks and executes.  Between fork and exec the child calls only
 * async-signal-safe functions, because other threads of the parent may hold locks of the C library.
 *
 * A reaper (reaper.h) between the two processes forks once more and executes nothing.  It needs
 * memory and /proc only later, for which the C library keeps its allocator usable after a fork.
 *
 * The child reports a failure through a pipe that is close-on-exec: the parent reads the record
 * of the failure, or end of file once exec has succeeded.
 *
 * Descriptors are installed in two steps: first all are duplicated to numbers from PARKED_FD_MIN
 * on, then to their targets 3, 4, ..., since a source may have the number of another target.
 * Everything else is set close-on-exec.
 *
 * The pidfd identifies the child without the risk of a reused process id.  Any thread may spawn;
 * a child with dies_with_parent is killed when the thread that spawned it ends, so such threads
 * must live as long as the process. */
#include "runtime/process/spawn.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/older_libc.h"
#include "runtime/process/reaper.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    FIRST_CHILD_FD = 3, /* Number that the first passed descriptor gets in the child. */
    /* Lowest number for temporary duplicates of passed descriptors in the child. */
    PARKED_FD_MIN = FIRST_CHILD_FD + TDM__SPAWN_FDS_MAX
};

/* Record that the child writes into the pipe when it fails between fork and exec. */
struct child_failure {
    int error_number; /* Value of errno after the failed step. */
    char step[24];    /* Name of the step that failed, NUL-terminated. */
};

/* ---- in the child: only async-signal-safe calls ----------------------------------------- */

/* Writes errno and the name of the failed step into the pipe and ends the child. */
_Noreturn static void child_report_failure(int report_fd, const char *step)
{
    struct child_failure failure = {.error_number = errno};

    for (size_t i = 0; i + 1 < sizeof(failure.step) && step[i] != '\0'; i++) {
        failure.step[i] = step[i];
    }
    if (write(report_fd, &failure, sizeof(failure)) < 0) {
        _exit(126);
    }
    _exit(127);
}

/* Installs the passed descriptors, the output and stdin in the child, and marks all other
 * descriptors close-on-exec. */
static void child_install_fds(const struct tdm__spawn_options *options, int report_fd)
{
    int parked[TDM__SPAWN_FDS_MAX];
    int null_fd;

    for (uint32_t i = 0; i < options->fds_count; i++) {
        parked[i] = fcntl(options->fds[i], F_DUPFD_CLOEXEC, PARKED_FD_MIN);
        if (parked[i] < 0) {
            child_report_failure(report_fd, "dup");
        }
    }
    int error_fd = options->error_fd > 0 ? options->error_fd : options->output_fd;

    if (options->output_fd >= 0 &&
        (dup2(options->output_fd, STDOUT_FILENO) < 0 || dup2(error_fd, STDERR_FILENO) < 0)) {
        child_report_failure(report_fd, "dup2 of the output");
    }
    null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0) {
        child_report_failure(report_fd, "open /dev/null");
    }
    for (uint32_t i = 0; i < options->fds_count; i++) {
        if (dup2(parked[i], FIRST_CHILD_FD + (int)i) < 0) {
            child_report_failure(report_fd, "dup2");
        }
    }
    if (syscall(SYS_close_range, FIRST_CHILD_FD + options->fds_count, ~0U, 4 /* CLOEXEC */) < 0) {
        child_report_failure(report_fd, "close_range");
    }
}

/* Resets all signal handlers to the default and unblocks all signals. */
static void child_reset_signals(void)
{
    sigset_t none;

    for (int number = 1; number < NSIG; number++) {
        /* The call fails for SIGKILL and SIGSTOP, which cannot have handlers. */
        (void)signal(number, SIG_DFL);
    }
    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
}

/* Prepares the child and executes the program. */
_Noreturn static void child_exec(const struct tdm__spawn_options *options, pid_t parent,
                                 int report_fd)
{
    int parked_fd = fcntl(report_fd, F_DUPFD_CLOEXEC, PARKED_FD_MIN);

    if (parked_fd < 0) {
        child_report_failure(report_fd, "dup");
    }
    report_fd = parked_fd;
    if (options->dies_with_parent &&
        (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)) {
        child_report_failure(report_fd, "prctl, or orphaned");
    }
    if (options->new_session && setsid() < 0) {
        child_report_failure(report_fd, "setsid");
    }
    child_install_fds(options, report_fd);
    child_reset_signals();
    if (options->working_directory != NULL && chdir(options->working_directory) < 0) {
        child_report_failure(report_fd, "chdir");
    }
    (void)execve(options->program, options->argv,
                 options->environment != NULL ? options->environment : environ);
    child_report_failure(report_fd, "exec");
}

/* ---- in the parent ---------------------------------------------------------------------- */

/* Waits until the child has executed the program or has failed.  Returns the failure as an error.
 */
static tdm_status await_exec(int report_fd, const struct tdm__spawn_options *options)
{
    struct child_failure failure;
    ssize_t size_bytes;

    do {
        size_bytes = read(report_fd, &failure, sizeof(failure));
    } while (size_bytes < 0 && errno == EINTR);
    if (size_bytes == 0) {
        return TDM_OK; /* End of file: exec has closed the pipe. */
    }
    if (size_bytes != (ssize_t)sizeof(failure)) {
        return tdm__fail(TDM_E_IO, "%s ended before it was executed", options->program);
    }
    failure.step[sizeof(failure.step) - 1] = '\0';
    if (strcmp(failure.step, "exec") == 0 && failure.error_number == ENOENT) {
        return tdm__fail(TDM_E_NOT_FOUND, "cannot execute %s: there is no such program",
                         options->program);
    }
    if (strcmp(failure.step, "chdir") == 0) {
        return tdm__fail_errno(failure.error_number, "cannot start %s in %s", options->program,
                               options->working_directory);
    }
    return tdm__fail_errno(failure.error_number, "cannot start %s: %s", options->program,
                           failure.step);
}

/* Waits until a child process has ended and reaps the child. */
static void process_reap_blocking(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

tdm_status tdm__spawn(const struct tdm__spawn_options *options, struct tdm__process *process_out)
{
    int report[2];
    pid_t parent = getpid();
    pid_t pid;
    int pidfd;
    tdm_status status;

    TDM_ASSERT(options->fds_count <= TDM__SPAWN_FDS_MAX);
    if (pipe2(report, O_CLOEXEC) < 0) {
        return tdm__fail_errno(errno, "pipe2 for starting %s", options->program);
    }
    pid = fork();
    if (pid == 0 && options->report_fd > 0) {
        tdm__reaper_become(options->report_fd, parent); /* Returns in the process below it. */
        child_exec(options, getppid(), report[1]);
    }
    if (pid == 0) {
        child_exec(options, parent, report[1]);
    }
    (void)close(report[1]);
    if (pid < 0) {
        (void)close(report[0]);
        return tdm__fail_errno(errno, "fork for starting %s", options->program);
    }
    status = await_exec(report[0], options);
    (void)close(report[0]);
    if (status != TDM_OK) {
        process_reap_blocking(pid);
        return status;
    }
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        int error_number = errno;

        (void)kill(pid, SIGKILL);
        process_reap_blocking(pid);
        return tdm__fail_errno(error_number, "pidfd_open of %s", options->program);
    }
    process_out->pid = pid;
    process_out->pidfd = pidfd;
    return TDM_OK;
}

bool tdm__process_reap(struct tdm__process *process, int *wait_status_out)
{
    int wait_status;

    if (waitpid(process->pid, &wait_status, WNOHANG) != process->pid) {
        return false;
    }
    *wait_status_out = wait_status;
    return true;
}

void tdm__process_signal(const struct tdm__process *process, int signal_number)
{
    if (process->pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, process->pidfd, signal_number, NULL, 0);
    }
}

void tdm__process_forget(struct tdm__process *process)
{
    if (process->pidfd >= 0) {
        (void)close(process->pidfd);
    }
    process->pidfd = -1;
    process->pid = 0;
}

const char *tdm__wait_status_text(int wait_status, char *text, size_t text_bytes)
{
    if (WIFSIGNALED(wait_status)) {
        const char *name = sigdescr_np(WTERMSIG(wait_status));

        name = name == NULL ? "unknown" : name;
        (void)snprintf(text, text_bytes, "signal %d (%c%s)", WTERMSIG(wait_status),
                       tolower((unsigned char)name[0]), name + 1);
    } else {
        (void)snprintf(text, text_bytes, "exit code %d", WEXITSTATUS(wait_status));
    }
    return text;
}
