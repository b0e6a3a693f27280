/* supervisor.c - the process that holds a daemon, and ends whatever the daemon leaves behind. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/supervisor.h"

#include "runtime/clock.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/log.h"
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

enum { KILL_MS = 5000 };

struct supervisor {
    const struct tdm__supervisor_options *options;
    pid_t daemon;
    int owner; /* pidfd of the process at the other end of the lifeline; -1 */
    int signals;
    bool told_to_stop;
};

_Noreturn static void supervisor_exits(struct supervisor *supervisor, int code)
{
    if (!tdm__process_tree_kill_all(KILL_MS)) {
        tdm__log(TDM__ERROR, "supervisor", "some processes did not end within %d ms of SIGKILL",
                 (int)KILL_MS);
    }
    if (supervisor->options->remove_directory) {
        tdm__directory_remove(supervisor->options->directory);
    }
    _exit(code);
}

static void supervisor_stop_daemon(struct supervisor *supervisor)
{
    if (!supervisor->told_to_stop) {
        supervisor->told_to_stop = true;
        (void)kill(supervisor->daemon, SIGTERM);
    }
}

/* Reaps; if the daemon is among the dead, all is over. */
static void supervisor_reap(struct supervisor *supervisor)
{
    int wait_status;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        if (pid == supervisor->daemon) {
            supervisor_exits(supervisor, WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                                                  : WEXITSTATUS(wait_status));
        }
    }
}

static void handle_signal(struct supervisor *supervisor)
{
    struct signalfd_siginfo info;

    if (read(supervisor->signals, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return;
    }
    if (info.ssi_signo == SIGCHLD) {
        supervisor_reap(supervisor);
    } else {
        supervisor_stop_daemon(supervisor);
    }
}

static void handle_lifeline(struct supervisor *supervisor, short happened)
{
    char ignored;

    if ((happened & (POLLHUP | POLLERR)) != 0) {
        supervisor_exits(supervisor, 1); /* the driver is dead: nothing is worth a good order */
    }
    if (recv(supervisor->options->lifeline, &ignored, 1, MSG_DONTWAIT) == 0) {
        supervisor_stop_daemon(supervisor);
    }
}

/* Its end of the lifeline may stay open in a child that it forked. */
static int find_owner(int lifeline)
{
    struct ucred owner;
    socklen_t owner_bytes = sizeof(owner);

    if (lifeline < 0 || getsockopt(lifeline, SOL_SOCKET, SO_PEERCRED, &owner, &owner_bytes) < 0) {
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, owner.pid, 0);
}

_Noreturn static void supervisor_watches(struct supervisor *supervisor)
{
    struct pollfd events[3] = {
        {.fd = supervisor->signals, .events = POLLIN},
        {.fd = supervisor->options->lifeline, .events = POLLIN},
        {.fd = supervisor->owner, .events = POLLIN},
    };

    (void)prctl(PR_SET_NAME, "tandem-super");
    for (;;) {
        if (supervisor->told_to_stop) {
            events[1].events = 0; /* POLLHUP is still told */
        }
        if (poll(events, 3, -1) < 0 && errno != EINTR) {
            supervisor_exits(supervisor, 1);
        }
        if (events[2].revents != 0) {
            supervisor_exits(supervisor, 1);
        }
        if (events[1].revents != 0) {
            handle_lifeline(supervisor, events[1].revents);
        }
        if (events[0].revents != 0) {
            handle_signal(supervisor);
        }
    }
}

static void watched_signals(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGCHLD);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGINT);
}

tdm_status tdm__supervisor_fork(const struct tdm__supervisor_options *options)
{
    struct supervisor supervisor = {.options = options};
    pid_t self = getpid();
    sigset_t watched;
    sigset_t before;

    if (options->lifeline >= 0) {
        (void)setsid(); /* fails only for one that leads its group already */
    }
    watched_signals(&watched);
    (void)pthread_sigmask(SIG_BLOCK, &watched, &before);
    tdm__process_tree_adopt_orphans();
    supervisor.daemon = fork();
    if (supervisor.daemon < 0) {
        return tdm__fail_errno(errno, "fork of the daemon");
    }
    if (supervisor.daemon == 0) {
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != self) {
            _exit(1);
        }
        return TDM_OK;
    }
    supervisor.owner = find_owner(options->lifeline);
    supervisor.signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    supervisor_watches(&supervisor);
}
