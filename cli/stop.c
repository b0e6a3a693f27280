/* stop.c - `tandem stop`: ends the node that `tandem start` has started. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/started_node.h"
#include "cli/command.h"
#include "runtime/clock.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/file.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Time limits in milliseconds, and the limits of --grace-period in seconds. */
enum {
    KILL_MS = 8000,     /* Longest wait for the end of everything that was killed. */
    LOCK_MS = 2000,     /* Longest wait until the kernel has released the lock of the directory. */
    LOCK_POLL_MS = 5,   /* Time between two looks at the lock. */
    GRACE_S = 16,       /* Default of --grace-period. */
    GRACE_S_MAX = 86400 /* Largest value of --grace-period. */
};

static struct tdm__option options[] = {
    {"--force", false, NULL}, {"--grace-period", true, NULL}, {NULL, false, NULL}};

/* Opens a pidfd of the supervisor of the node in `directory`. Returns -1 if absent. */
static int supervisor_open(const char *directory)
{
    char path[PATH_MAX];
    char text[32];
    long pid;

    (void)snprintf(path, sizeof(path), "%s/supervisor", directory);
    if (!tdm__file_read_text(path, text, sizeof(text))) {
        return -1;
    }
    pid = strtol(text, NULL, 10);
    return pid <= 0 ? -1 : (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
}

/* Sends a signal to the supervisor and waits at most `timeout_ms` for its end. Returns whether it
 * has ended. */
static bool supervisor_end(int pidfd, int signal_number, int64_t timeout_ms)
{
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    int ready;

    (void)syscall(SYS_pidfd_send_signal, pidfd, signal_number, NULL, 0);
    /* A stopped supervisor reacts once it continues. */
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGCONT, NULL, 0);
    do {
        ready = poll(&ended, 1, (int)tdm__deadline_remaining_ms(deadline_ms));
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* Waits until no process holds the lock of the directory, at most LOCK_MS. */
static bool wait_for_lock(const char *directory)
{
    int64_t deadline_ms = tdm__deadline_after(LOCK_MS);

    while (tdm__directory_is_locked(directory)) {
        if (tdm__clock_ms() >= deadline_ms) {
            return false;
        }
        (void)poll(NULL, 0, LOCK_POLL_MS);
    }
    return true;
}

/* Ends the processes that a daemon and its supervisor left when both were killed, and removes the
 * sockets. The logs stay until the next start. */
static void clean_up(const char *directory)
{
    int lock;

    if (tdm__directory_lock(directory, &lock) == TDM_OK) {
        tdm__directory_clear_leftovers(directory);
        (void)close(lock);
    }
}

/* Ends the node in `directory`: gracefully within `grace_ms`, then by force. */
static tdm_status node_stop(const char *directory, int64_t grace_ms)
{
    int pidfd = supervisor_open(directory);

    /* A supervisor that hangs reacts to SIGKILL only, which also ends the daemon; clean_up() then
     * ends what is below it. */
    if (pidfd >= 0 && tdm__directory_is_locked(directory)) {
        bool has_ended = (grace_ms > 0 && supervisor_end(pidfd, SIGTERM, grace_ms)) ||
                         supervisor_end(pidfd, SIGQUIT, KILL_MS) ||
                         supervisor_end(pidfd, SIGKILL, KILL_MS);

        (void)has_ended;
    }
    if (pidfd >= 0) {
        (void)close(pidfd);
    }
    if (!wait_for_lock(directory)) {
        return tdm__fail(TDM_E_TIMEOUT,
                         "ending the node in %s failed: its processes did not end after SIGKILL",
                         directory);
    }
    clean_up(directory);
    return TDM_OK;
}

/* Runs `tandem stop` and returns the exit code. */
static int stop_main(const struct tdm__parsed_arguments *args)
{
    const char *grace = tdm__option_value(args, "--grace-period");
    char directory[TDM__ADDRESS_BYTES];
    char *end = NULL;
    long grace_s = grace == NULL ? GRACE_S : strtol(grace, &end, 10);
    bool is_running;
    tdm_status status;

    if (grace_s < 0 || grace_s > GRACE_S_MAX || (end != NULL && *end != '\0')) {
        return tdm__refuse_arguments("stop",
                                     "--grace-period: expected seconds up to %d, got \"%s\"",
                                     (int)GRACE_S_MAX, grace);
    }
    if (tdm__option_value(args, "--force") != NULL) {
        grace_s = 0;
    }
    status = tdm__started_node_directory(directory, sizeof(directory));
    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    if (access(directory, F_OK) != 0) {
        (void)printf("No node of yours runs on this machine.\n");
        return TDM__EXIT_SUCCESS;
    }
    is_running = tdm__directory_is_locked(directory);
    status = node_stop(directory, grace_s * 1000);
    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    (void)printf(is_running ? "The node has ended. Its logs are in %s\n"
                            : "No node of yours runs on this machine. The logs of the last one are "
                              "in %s\n",
                 directory);
    return TDM__EXIT_SUCCESS;
}

const struct tdm__command tdm__command_stop = {
    .name = "stop",
    .summary = "end the node that `tandem start` started",
    .help = "usage: tandem stop [--force] [--grace-period SECONDS]\n\n"
            "Ends the node that `tandem start` has started on this machine for this user,\n"
            "with all actors and processes of the node. Succeeds if there is none.\n\n"
            "  --force            kill it at once\n"
            "  --grace-period N   seconds for a graceful end before it is killed (16)\n",
    .options = options,
    .run = stop_main};
