/* reaper.c - the reaper of a worker: its parent process, which ends everything that the worker
 * leaves behind. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A reaper is forked from a daemon or a fork server and executes no program, so that it costs a
 * fork and shares its memory.  It has one thread, blocks all signals, and waits in waitpid(2),
 * which also reaps the orphans of a living worker.
 *
 * When the worker has ended, all processes that are left are descendants of the reaper.  They can
 * leave a session or clear their environment, but not this tree.  tdm__process_tree_kill_all()
 * repeats until waitpid(2) says that there are no children, so a process that forks while it is
 * killed does not escape.  A process that cannot be killed (in uninterruptible sleep, or of another
 * user) is reported after TDM__REAPER_PATIENCE_MS; the reaper then waits until it ends. */
#include "runtime/process/reaper.h"

#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/fdpass.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    REPORT_FD = 3 /* Descriptor of the socket to the daemon, once all others are closed. */
};

/* Asks the kernel to kill this process when its parent ends.  Exits if `parent` has ended. */
static void die_with_parent(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent) {
        _exit(1);
    }
}

/* Sends a report without descriptors to the daemon.  A daemon that has ended gets none; the
 * supervisor of the daemon then kills this process. */
static void send_report(int report_fd, const struct tdm__reaper_report *report)
{
    (void)tdm__fds_send(report_fd, report, sizeof(*report), NULL, 0);
}

void tdm__reaper_refuse(int report_fd, uint32_t threads_count)
{
    const struct tdm__reaper_report report = {.kind = TDM__REAPER_REFUSED,
                                              .threads_count = threads_count};

    send_report(report_fd, &report);
}

/* Moves the socket to REPORT_FD, closes all other descriptors, and blocks all signals, so that only
 * SIGKILL ends the reaper early. */
static void reaper_isolate(int report_fd)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t all;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && null_fd > STDERR_FILENO; fd++) {
        (void)dup2(null_fd, fd);
    }
    if (report_fd != REPORT_FD && dup2(report_fd, REPORT_FD) < 0) {
        _exit(1);
    }
    (void)syscall(SYS_close_range, REPORT_FD + 1, ~0U, 0);
    (void)prctl(PR_SET_NAME, "tandem-reaper");
    tdm__failpoint_set_process("reaper");
}

/* Waits until the worker has ended, and reaps orphans of the worker that end before.  Returns the
 * worker's wait status. */
static int reaper_await_worker(pid_t worker)
{
    int wait_status = SIGKILL;
    pid_t pid;

    do {
        pid = waitpid(-1, &wait_status, 0);
    } while (pid != worker && (pid > 0 || errno == EINTR));
    return wait_status;
}

/* Counts a child in a report; the callback for tdm__process_tree_each_child(). */
static void count_child(void *arg, pid_t pid)
{
    struct tdm__reaper_report *report = arg;

    report->left_count++;
    report->left_pid = pid;
}

/* Waits for the end of the worker, kills what the worker has left, reports, and exits. */
_Noreturn static void reaper_run(pid_t worker)
{
    struct tdm__reaper_report report = {.kind = TDM__REAPER_WORKER_ENDED};
    bool all_ended;

    report.wait_status = reaper_await_worker(worker);
    all_ended = tdm__failpoint_skips("reaper.kill_tree") ||
                tdm__process_tree_kill_all(TDM__REAPER_PATIENCE_MS, &report.reaped);
    if (!all_ended) {
        tdm__process_tree_each_child(count_child, &report);
    }
    send_report(REPORT_FD, &report);
    while (!all_ended) {
        all_ended = tdm__process_tree_kill_all(TDM__REAPER_PATIENCE_MS, NULL);
    }
    _exit(0);
}

/* Reports the worker that was forked.  If it has no pidfd, it is killed and refused; if nobody
 * receives the report, it is killed. */
static void reaper_report_start(int report_fd, pid_t worker)
{
    const struct tdm__reaper_report report = {.kind = TDM__REAPER_STARTED, .pid = worker};
    int pidfds[2] = {-1, -1};

    if (worker > 0) {
        pidfds[0] = (int)syscall(SYS_pidfd_open, worker, 0);
        pidfds[1] = (int)syscall(SYS_pidfd_open, getpid(), 0);
    }
    if (pidfds[0] < 0 || pidfds[1] < 0) {
        if (worker > 0) {
            (void)kill(worker, SIGKILL);
        }
        tdm__reaper_refuse(report_fd, 1);
        _exit(1);
    }
    if (tdm__fds_send(report_fd, &report, sizeof(report), pidfds, 2) != TDM_OK && worker > 0) {
        (void)kill(worker, SIGKILL); /* Nobody waits for this worker. */
    }
}

void tdm__reaper_become(int report_fd, pid_t parent)
{
    pid_t self = getpid();
    pid_t worker;

    die_with_parent(parent);
    tdm__process_tree_adopt_orphans();
    (void)signal(SIGCHLD, SIG_DFL); /* An ignored SIGCHLD would reap the worker. */
    worker = fork();
    if (worker == 0) {
        die_with_parent(self);
        return;
    }
    reaper_report_start(report_fd, worker);
    reaper_isolate(report_fd);
    reaper_run(worker);
}

tdm_status tdm__reaper_receive(int socket_fd, struct tdm__reaper_report *report_out,
                               struct tdm__reaper_pidfds *pidfds_out)
{
    size_t got = sizeof(*report_out);
    int fds[2] = {-1, -1};
    uint32_t fds_count = 2;

    *pidfds_out = (struct tdm__reaper_pidfds){-1, -1};
    TDM_TRY(tdm__fds_receive(socket_fd, report_out, &got, fds, &fds_count));
    if (got == 0) {
        return tdm__fail(TDM_E_CLOSED, "the reaper of a worker has ended");
    }
    *pidfds_out = (struct tdm__reaper_pidfds){fds[0], fds[1]};
    return TDM_OK;
}
