/* fork_server.c - a started program that forks workers, so that the second one costs a fork. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/fork_server.h"

#include "actors/common/worker_bootstrap.h"
#include "runtime/fdpass.h"
#include "runtime/log.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONTROL_FD = 3, ORDER_FDS_MAX = 4, PARKED_FD_MIN = TDM__WORKER_BOOTSTRAP_FD + 1 };

static uint32_t count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    uint32_t count = 0;

    if (tasks == NULL) {
        return 2; /* unknown: better not fork */
    }
    while (readdir(tasks) != NULL) {
        count++;
    }
    (void)closedir(tasks);
    return count - 2; /* "." and ".." */
}

/* OpenSSL's first digest and first random bytes cost more than a fork: pay them once. */
static void warm_up(void)
{
    uint8_t bytes[32];
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned digest_bytes;

    (void)RAND_bytes(bytes, sizeof(bytes));
    (void)EVP_Digest(bytes, sizeof(bytes), digest, &digest_bytes, EVP_sha256(), NULL);
}

static void fork_server_send_event(const struct tdm__fork_server_event *news, int fd)
{
    if (tdm__fds_send(CONTROL_FD, news, sizeof(*news), &fd, fd >= 0 ? 1 : 0) != TDM_OK) {
        _exit(1); /* the daemon is gone */
    }
}

static void reap_children(void)
{
    int wait_status;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        fork_server_send_event(&(struct tdm__fork_server_event){.kind = TDM__FORK_CHILD_ENDED,
                                                                .pid = pid,
                                                                .wait_status = wait_status},
                               -1);
    }
}

/* In the fork_server's environment there is a mark of the same length.  It is written over where
 * it lies, so that /proc/PID/environ shows it also for children that never execute anything. */
static void set_mark(const char mark[TDM__PROCESS_MARK_BYTES])
{
    char *place = getenv(TDM__PROCESS_MARK_VARIABLE);

    if (place != NULL && strlen(place) == TDM__PROCESS_MARK_BYTES - 1) {
        memcpy(place, mark, TDM__PROCESS_MARK_BYTES - 1);
    }
}

/* In the child: leaves everything of the fork_server behind. */
static void become_worker(const int *fds, uint32_t fds_count, int signals, pid_t parent)
{
    int parked[ORDER_FDS_MAX];
    sigset_t none;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent) {
        _exit(1);
    }
    (void)close(signals);
    for (uint32_t i = 0; i < fds_count; i++) {
        parked[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, PARKED_FD_MIN);
    }
    if (dup2(parked[0], TDM__WORKER_DAEMON_FD) < 0 ||
        dup2(parked[1], TDM__WORKER_BOOTSTRAP_FD) < 0) {
        _exit(1);
    }
    if (fds_count == ORDER_FDS_MAX &&
        (dup2(parked[2], STDOUT_FILENO) < 0 || dup2(parked[3], STDERR_FILENO) < 0)) {
        _exit(1);
    }
    (void)syscall(SYS_close_range, TDM__WORKER_BOOTSTRAP_FD + 1, ~0U, 0);
    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
}

/* True in the child. */
static bool fork_worker(const struct tdm__fork_server_request *order, const int *fds,
                        uint32_t fds_count, int signals)
{
    struct tdm__fork_server_event news = {.serial = order->serial,
                                          .threads_count = count_threads()};
    pid_t parent = getpid();
    int pidfd;

    if (news.threads_count != 1) {
        news.kind = TDM__FORK_REFUSED;
        fork_server_send_event(&news, -1);
        return false;
    }
    news.pid = fork();
    if (news.pid == 0) {
        become_worker(fds, fds_count, signals, parent);
        set_mark(order->mark);
        return true;
    }
    pidfd = news.pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, news.pid, 0);
    if (pidfd < 0 && news.pid > 0) { /* another process will be the worker */
        (void)kill(news.pid, SIGKILL);
        (void)waitpid(news.pid, NULL, 0);
    }
    news.kind = pidfd < 0 ? TDM__FORK_REFUSED : TDM__FORK_DONE;
    fork_server_send_event(&news, pidfd);
    if (pidfd >= 0) {
        (void)close(pidfd);
    }
    return false;
}

/* True in a forked worker. */
static bool take_order(int signals)
{
    struct tdm__fork_server_request order;
    int fds[ORDER_FDS_MAX];
    uint32_t fds_count = ORDER_FDS_MAX;
    size_t got = sizeof(order);
    bool is_worker;

    if (tdm__fds_receive(CONTROL_FD, &order, &got, fds, &fds_count) != TDM_OK || got == 0) {
        _exit(0); /* the daemon closed the line */
    }
    if (got != sizeof(order) || fds_count != (order.has_output != 0 ? 4U : 2U)) {
        tdm__log(TDM__ERROR, "fork_server", "an order of %zu bytes and %u descriptors", got,
                 fds_count);
        _exit(1);
    }
    is_worker = fork_worker(&order, fds, fds_count, signals);
    for (uint32_t i = 0; i < fds_count && !is_worker; i++) {
        (void)close(fds[i]);
    }
    return is_worker;
}

void tdm__fork_server_run_if_one(void)
{
    sigset_t child_ended;
    struct pollfd events[2] = {{.fd = CONTROL_FD, .events = POLLIN}, {.events = POLLIN}};

    (void)sigemptyset(&child_ended);
    (void)sigaddset(&child_ended, SIGCHLD);
    (void)pthread_sigmask(SIG_BLOCK, &child_ended, NULL);
    events[1].fd = signalfd(-1, &child_ended, SFD_CLOEXEC | SFD_NONBLOCK);
    (void)prctl(PR_SET_NAME, "tandem-forksrv");
    warm_up();
    for (;;) {
        struct signalfd_siginfo ignored;

        if (poll(events, 2, -1) < 0 && errno != EINTR) {
            _exit(1);
        }
        if (events[1].revents != 0) {
            (void)!read(events[1].fd, &ignored, sizeof(ignored));
            reap_children();
        }
        if (events[0].revents != 0 && take_order(events[1].fd)) {
            return;
        }
    }
}
