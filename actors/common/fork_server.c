/* fork_server.c - the fork server, a started program that forks workers. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Runs in the process of the fork server, which has one thread and blocks in poll() on two
 * descriptors: the control socket of the daemon and a signalfd for SIGCHLD. Each request on the
 * socket forks a reaper, and that the worker; each ended reaper is reaped. The daemon's end closes
 * the socket, and the fork server exits.
 *
 * In a forked worker tdm__fork_server_run_if_one() returns and the worker continues in the
 * caller, with the descriptors of worker_bootstrap.h in place and all others closed.
 * fork_server.h specifies the messages. */

#include "actors/common/fork_server.h"

#include "actors/common/worker_bootstrap.h"
#include "runtime/fdpass.h"
#include "runtime/log.h"
#include "runtime/older_libc.h"
#include "runtime/process/reaper.h"

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

/* Descriptor of the control socket; most descriptors in one request; lowest descriptor to which
 * received ones are moved before they are put in place. */
enum { CONTROL_FD = 3, REQUEST_FDS_MAX = 5, PARKED_FD_MIN = TDM__WORKER_BOOTSTRAP_FD + 1 };

/* Returns the number of threads of this process. */
static uint32_t count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    uint32_t count = 0;

    if (tasks == NULL) {
        return 2; /* The number is unknown; 2 prevents a fork. */
    }
    while (readdir(tasks) != NULL) {
        count++;
    }
    (void)closedir(tasks);
    return count - 2; /* "." and ".." */
}

/* Computes a digest and random bytes with OpenSSL. The first ones cost more than a fork, and
 * forked workers inherit the initialization. */
static void openssl_warm_up(void)
{
    uint8_t bytes[32];
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned digest_bytes;

    (void)RAND_bytes(bytes, sizeof(bytes));
    (void)EVP_Digest(bytes, sizeof(bytes), digest, &digest_bytes, EVP_sha256(), NULL);
}

/* Reaps all reapers that have ended; each has told the daemon what there is to tell. */
static void fork_server_reap_children(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

/* Adds the setting of the worker's GPUs to the environment, which keeps it. Without memory the
 * worker ends, because it could use the GPUs of others. */
static void devices_set(const char *setting)
{
    char *copy = setting[0] == '\0' ? NULL : strdup(setting);

    if (setting[0] == '\0') {
        return;
    }
    if (copy == NULL || putenv(copy) != 0) { /* NOLINT(concurrency-mt-unsafe) one thread */
        _exit(1);
    }
}

/* In the worker: puts its descriptors in place, closes all others and unblocks the signals. */
static void become_worker(const int *fds, uint32_t fds_count, int signals)
{
    int parked[REQUEST_FDS_MAX];
    sigset_t none;

    (void)close(signals);
    for (uint32_t i = 0; i < fds_count; i++) {
        parked[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, PARKED_FD_MIN);
    }
    if (dup2(parked[1], TDM__WORKER_DAEMON_FD) < 0 ||
        dup2(parked[2], TDM__WORKER_BOOTSTRAP_FD) < 0) {
        _exit(1);
    }
    if (fds_count == REQUEST_FDS_MAX &&
        (dup2(parked[3], STDOUT_FILENO) < 0 || dup2(parked[4], STDERR_FILENO) < 0)) {
        _exit(1);
    }
    (void)syscall(SYS_close_range, TDM__WORKER_BOOTSTRAP_FD + 1, ~0U, 0);
    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
}

/* Forks a reaper. The handlers of pthread_atfork(3) are for the fork of the worker; Python's, for
 * example, would cost time and memory that a reaper does not need. A C library without _Fork() runs
 * them here as well. */
static pid_t fork_reaper(void)
{
#if __GLIBC_PREREQ(2, 34)
    return _Fork();
#else
    return fork();
#endif
}

/* Returns whether the daemon has closed its end of the socket for reports: it has started the
 * worker in another way, because this process did not run for a while. */
static bool report_is_not_awaited(int report_fd)
{
    struct pollfd closed = {.fd = report_fd};

    return poll(&closed, 1, 0) > 0 && (closed.revents & (POLLHUP | POLLERR)) != 0;
}

/* Forks a reaper, which forks a worker and reports it; reports a refusal if that is not possible.
 * fds[0] is the socket for reports. Returns true in the worker. */
static bool fork_server_fork_worker(const struct tdm__fork_server_request *request, const int *fds,
                                    uint32_t fds_count, int signals)
{
    uint32_t threads_count = count_threads();
    pid_t parent = getpid();
    pid_t reaper;

    if (report_is_not_awaited(fds[0])) {
        return false;
    }
    reaper = threads_count == 1 ? fork_reaper() : -1;
    if (reaper < 0) {
        tdm__reaper_refuse(fds[0], threads_count);
    }
    if (reaper == 0) {
        tdm__reaper_become(fds[0], parent); /* Returns in the worker. */
        become_worker(fds, fds_count, signals);
        devices_set(request->devices);
    }
    return reaper == 0;
}

/* Receives one request and forks its worker. Returns true in the forked worker. Exits if the
 * daemon has closed the socket. */
static bool fork_server_handle_request(int signals)
{
    struct tdm__fork_server_request request;
    int fds[REQUEST_FDS_MAX];
    uint32_t fds_count = REQUEST_FDS_MAX;
    size_t got = sizeof(request);
    bool is_worker;

    if (tdm__fds_receive(CONTROL_FD, &request, &got, fds, &fds_count) != TDM_OK || got == 0) {
        _exit(0); /* The daemon has closed the control socket. */
    }
    if (got != sizeof(request) || fds_count != (request.has_output != 0 ? 5U : 3U)) {
        tdm__log(TDM__ERROR, "fork_server", "a request of %zu bytes and %u descriptors", got,
                 fds_count);
        _exit(1);
    }
    is_worker = fork_server_fork_worker(&request, fds, fds_count, signals);
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
    openssl_warm_up();
    for (;;) {
        struct signalfd_siginfo ignored;

        if (poll(events, 2, -1) < 0 && errno != EINTR) {
            _exit(1);
        }
        if (events[1].revents != 0) {
            (void)!read(events[1].fd, &ignored, sizeof(ignored));
            fork_server_reap_children();
        }
        if (events[0].revents != 0 && fork_server_handle_request(events[1].fd)) {
            return;
        }
    }
}
