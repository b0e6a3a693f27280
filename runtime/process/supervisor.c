/* supervisor.c - supervises a daemon and ends everything that the daemon leaves behind. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The function tdm__supervisor_fork() splits the process of a daemon in two: the parent becomes the
 * supervisor, the child the daemon.  The supervisor has one thread, no event loop and no memory
 * that the daemon could damage.  It waits by poll(2) for three descriptors: a signalfd (SIGCHLD,
 * SIGTERM, SIGINT, SIGQUIT), the lifeline to the driver, and a pidfd of the driver.
 *
 * States: running; stop requested, after SIGTERM was sent to the daemon; and exiting, in which
 * all descendants are killed and the directory is removed. supervisor_exit() never returns.
 *
 * Invariant: everything below the supervisor dies with it.  Orphans become its children because
 * it is a subreaper, and the daemon itself asks for SIGKILL when its parent dies.  If both are
 * killed, tdm__directory_remove_abandoned() cleans up later.  The header lists the events and
 * their effects. */
#include "runtime/process/supervisor.h"

#include "runtime/clock.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/process/fence.h"
#include "runtime/process/process_tree.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long the supervisor waits for killed processes to end, in milliseconds. */
enum { KILL_TIMEOUT_MS = 5000 };

/* State of the supervisor process; lives on the stack of tdm__supervisor_fork(). */
struct supervisor {
    /* Arguments of tdm__supervisor_fork(); borrowed. */
    const struct tdm__supervisor_options *options;
    pid_t daemon;     /* Process id of the daemon that the supervisor watches. */
    int driver_pidfd; /* Pidfd of the driver, which created the lifeline; -1 without a lifeline. */
    int signal_fd;    /* Signalfd for SIGCHLD, SIGTERM, SIGINT and SIGQUIT. */
    bool stop_requested; /* True once SIGTERM has been sent to the daemon. */
};

/* Kills all descendants, removes the directory if that is wanted, and exits with `code`. */
_Noreturn static void supervisor_exit(struct supervisor *supervisor, int code)
{
    if (!tdm__process_tree_kill_all(KILL_TIMEOUT_MS, NULL)) {
        tdm__log(TDM__ERROR, "supervisor", "some processes did not end within %d ms of SIGKILL",
                 (int)KILL_TIMEOUT_MS);
    }
    if (supervisor->options->remove_directory) {
        tdm__directory_remove(supervisor->options->directory);
    }
    _exit(code);
}

/* Sends SIGTERM to the daemon, once. */
static void supervisor_stop_daemon(struct supervisor *supervisor)
{
    if (!supervisor->stop_requested) {
        supervisor->stop_requested = true;
        (void)kill(supervisor->daemon, SIGTERM);
    }
}

/* Reaps all children that have ended.  Exits with the code of the daemon if it is one of them. */
static void supervisor_reap(struct supervisor *supervisor)
{
    int wait_status;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        if (pid == supervisor->daemon) {
            supervisor_exit(supervisor, WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                                                 : WEXITSTATUS(wait_status));
        }
    }
}

/* Handles one signal from the signalfd. */
static void supervisor_handle_signal(struct supervisor *supervisor)
{
    struct signalfd_siginfo info;

    if (read(supervisor->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return;
    }
    if (info.ssi_signo == SIGCHLD) {
        supervisor_reap(supervisor);
    } else if (info.ssi_signo == SIGQUIT) {
        supervisor_exit(supervisor, 1);
    } else {
        supervisor_stop_daemon(supervisor);
    }
}

/* Handles events of the lifeline: a hang-up means that the driver is dead, end of file that it
 * wants the daemon to stop. */
static void supervisor_handle_lifeline(struct supervisor *supervisor, short poll_events)
{
    char ignored;

    if ((poll_events & (POLLHUP | POLLERR)) != 0) {
        /* The driver is dead, so a graceful shutdown has no use. */
        supervisor_exit(supervisor, 1);
    }
    if (recv(supervisor->options->lifeline, &ignored, 1, MSG_DONTWAIT) == 0) {
        supervisor_stop_daemon(supervisor);
    }
}

/* Kills the processes of the fence if the lease has ended. Returns the milliseconds after which to
 * do that again, or -1 for never. */
static int supervisor_enforce_fence(const struct supervisor *supervisor)
{
    return supervisor->options->fence == NULL
               ? -1
               : tdm__fence_enforce(supervisor->options->fence, tdm__clock_boot_ms());
}

/* Waits for events and handles them until the supervisor exits. */
_Noreturn static void supervisor_run(struct supervisor *supervisor)
{
    struct pollfd events[3] = {
        {.fd = supervisor->signal_fd, .events = POLLIN},
        {.fd = supervisor->options->lifeline, .events = POLLIN},
        {.fd = supervisor->driver_pidfd, .events = POLLIN},
    };

    (void)prctl(PR_SET_NAME, "tandem-super");
    for (;;) {
        int ready_count;

        if (supervisor->stop_requested) {
            events[1].events = 0; /* Stops polling for input; the kernel still reports POLLHUP. */
        }
        ready_count = poll(events, 3, supervisor_enforce_fence(supervisor));
        if (ready_count < 0 && errno != EINTR) {
            supervisor_exit(supervisor, 1);
        }
        if (ready_count <= 0) {
            continue;
        }
        if (events[2].revents != 0) {
            supervisor_exit(supervisor, 1);
        }
        if (events[1].revents != 0) {
            supervisor_handle_lifeline(supervisor, events[1].revents);
        }
        if (events[0].revents != 0) {
            supervisor_handle_signal(supervisor);
        }
    }
}

/* Fills the set with the signals that the signalfd receives. */
static void supervised_signals_init(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGCHLD);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGQUIT);
}

/* Opens a pidfd of the process that created the lifeline.  It shows the death of the driver even if
 * a child of the driver keeps the lifeline open.  Gives -1 without a lifeline, and for a driver in
 * a PID namespace that is not visible here. */
static tdm_status lifeline_open_creator_pidfd(int lifeline, int *pidfd_out)
{
    struct ucred credentials;
    socklen_t credentials_bytes = sizeof(credentials);

    *pidfd_out = -1;
    if (lifeline < 0) {
        return TDM_OK;
    }
    if (getsockopt(lifeline, SOL_SOCKET, SO_PEERCRED, &credentials, &credentials_bytes) < 0) {
        return tdm__fail_errno(errno, "getsockopt: the creator of the supervisor's lifeline");
    }
    if (credentials.pid == 0) {
        return TDM_OK;
    }
    *pidfd_out = (int)syscall(SYS_pidfd_open, credentials.pid, 0);
    return *pidfd_out >= 0 ? TDM_OK
                           : tdm__fail_errno(errno, "pidfd_open: the supervisor's driver, pid %d",
                                             (int)credentials.pid);
}

/* Blocks the signals of the supervisor, opens its signalfd and forks the daemon.  On TDM_OK the
 * calling process is the supervisor, or the daemon if `supervisor->daemon` is 0.  `before` is the
 * signal mask of the caller, which the daemon gets back.  A failure changes nothing. */
static tdm_status supervisor_fork_daemon(struct supervisor *supervisor, sigset_t *before)
{
    sigset_t watched;
    tdm_status status;

    supervised_signals_init(&watched);
    (void)pthread_sigmask(SIG_BLOCK, &watched, before);
    supervisor->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (supervisor->signal_fd < 0) {
        status = tdm__fail_errno(errno, "signalfd of the supervisor");
        (void)pthread_sigmask(SIG_SETMASK, before, NULL);
        return status;
    }
    supervisor->daemon = fork();
    if (supervisor->daemon < 0) {
        status = tdm__fail_errno(errno, "fork of the daemon");
        (void)close(supervisor->signal_fd);
        (void)pthread_sigmask(SIG_SETMASK, before, NULL);
        return status;
    }
    return TDM_OK;
}

tdm_status tdm__supervisor_fork(const struct tdm__supervisor_options *options)
{
    struct supervisor supervisor = {.options = options};
    pid_t self = getpid();
    sigset_t before;
    tdm_status status;

    if (options->lifeline >= 0) {
        (void)setsid(); /* The call fails only if the process leads its process group already. */
    }
    tdm__process_tree_adopt_orphans();
    TDM_TRY(lifeline_open_creator_pidfd(options->lifeline, &supervisor.driver_pidfd));
    status = supervisor_fork_daemon(&supervisor, &before);
    if (supervisor.driver_pidfd >= 0 && (status != TDM_OK || supervisor.daemon == 0)) {
        (void)close(supervisor.driver_pidfd);
    }
    TDM_TRY(status);
    if (supervisor.daemon == 0) {
        (void)close(supervisor.signal_fd);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != self) {
            _exit(1);
        }
        return TDM_OK;
    }
    supervisor_run(&supervisor);
}
