/* warden.c - the process that holds a daemon, and ends whatever the daemon leaves behind. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/warden.h"

#include "runtime/clock.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/process/family.h"

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

struct warden {
    const struct tdm__warden_options *options;
    pid_t daemon;
    int owner; /* pidfd of the process at the other end of the line; -1 */
    int signals;
    bool told_to_stop;
};

_Noreturn static void warden_ends(struct warden *warden, int code)
{
    if (!tdm__family_kill_all(KILL_MS)) {
        tdm__log(TDM__ERROR, "warden", "some processes did not end within %d ms of SIGKILL",
                 (int)KILL_MS);
    }
    if (warden->options->remove_directory) {
        tdm__directory_remove(warden->options->directory);
    }
    _exit(code);
}

static void tell_to_stop(struct warden *warden)
{
    if (!warden->told_to_stop) {
        warden->told_to_stop = true;
        (void)kill(warden->daemon, SIGTERM);
    }
}

/* Reaps; if the daemon is among the dead, all is over. */
static void reap(struct warden *warden)
{
    int wait_status;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        if (pid == warden->daemon) {
            warden_ends(warden, WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                                         : WEXITSTATUS(wait_status));
        }
    }
}

static void handle_signal(struct warden *warden)
{
    struct signalfd_siginfo info;

    if (read(warden->signals, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return;
    }
    if (info.ssi_signo == SIGCHLD) {
        reap(warden);
    } else {
        tell_to_stop(warden);
    }
}

static void handle_line(struct warden *warden, short happened)
{
    char ignored;

    if ((happened & (POLLHUP | POLLERR)) != 0) {
        warden_ends(warden, 1); /* the driver is dead: nothing is worth a good order */
    }
    if (recv(warden->options->line, &ignored, 1, MSG_DONTWAIT) == 0) {
        tell_to_stop(warden);
    }
}

/* Its end of the line may stay open in a child that it forked. */
static int find_owner(int line)
{
    struct ucred owner;
    socklen_t owner_bytes = sizeof(owner);

    if (line < 0 || getsockopt(line, SOL_SOCKET, SO_PEERCRED, &owner, &owner_bytes) < 0) {
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, owner.pid, 0);
}

_Noreturn static void warden_watches(struct warden *warden)
{
    struct pollfd events[3] = {
        {.fd = warden->signals, .events = POLLIN},
        {.fd = warden->options->line, .events = POLLIN},
        {.fd = warden->owner, .events = POLLIN},
    };

    (void)prctl(PR_SET_NAME, "tandem-warden");
    for (;;) {
        if (warden->told_to_stop) {
            events[1].events = 0; /* POLLHUP is still told */
        }
        if (poll(events, 3, -1) < 0 && errno != EINTR) {
            warden_ends(warden, 1);
        }
        if (events[2].revents != 0) {
            warden_ends(warden, 1);
        }
        if (events[1].revents != 0) {
            handle_line(warden, events[1].revents);
        }
        if (events[0].revents != 0) {
            handle_signal(warden);
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

tdm_status tdm__warden_fork(const struct tdm__warden_options *options)
{
    struct warden warden = {.options = options};
    pid_t self = getpid();
    sigset_t watched;
    sigset_t before;

    if (options->line >= 0) {
        (void)setsid(); /* fails only for one that leads its group already */
    }
    watched_signals(&watched);
    (void)pthread_sigmask(SIG_BLOCK, &watched, &before);
    tdm__family_adopt_orphans();
    warden.daemon = fork();
    if (warden.daemon < 0) {
        return tdm__fail_errno(errno, "fork of the daemon");
    }
    if (warden.daemon == 0) {
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != self) {
            _exit(1);
        }
        return TDM_OK;
    }
    warden.owner = find_owner(options->line);
    warden.signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    warden_watches(&warden);
}
