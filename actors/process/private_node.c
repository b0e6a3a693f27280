/* private_node.c - the daemon and the Redis that a driver starts for itself and that end with it.
 */
/* SPDX-License-Identifier: Apache-2.0 */

/* The driver starts one child: the supervisor process (runtime/process/supervisor.h). The
 * supervisor starts the daemon and everything below it. The driver, the supervisor and the daemon
 * share a SOCK_SEQPACKET socket pair. The daemon reports on it once: "ready PID ADDRESS" or "failed
 * TEXT".
 *
 * Invariant: when the driver's end of the socket closes, for whatever reason, the supervisor kills
 * the daemon and all processes below it. Shutting down only the sending direction asks the daemon
 * for a graceful end. Everything here runs on the thread that starts or stops the runtime. */

#include "actors/process/private_node.h"

#include "actors/process/daemon_process.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/older_libc.h"
#include "runtime/process/spawn.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A private node. The driver's runtime owns it. */
struct tdm__private_node {
    struct tdm__daemon_process process; /* Supervisor and daemon of the node (owned). */
    int daemon_pidfd;                   /* Pidfd of the daemon (owned); -1 if it has none. */
};

/* ---- start ------------------------------------------------------------------------------ */

/* The command line of tandemd and the memory of its numbers. */
struct daemon_arguments {
    char cpus[16];        /* Value of --cpus. */
    char gpus[16];        /* Value of --gpus. */
    char gpu_bytes[32];   /* Value of --gpu-bytes. */
    char store_bytes[32]; /* Value of --object-store-bytes. */
    char *argv[17]; /* The words, ended by NULL; they point into this struct and the options. */
};

/* Appends an option and its value to the command line. */
static void daemon_arguments_add(struct daemon_arguments *arguments, uint32_t *count,
                                 const char *name, char *value)
{
    arguments->argv[(*count)++] = (char *)(uintptr_t)name;
    arguments->argv[(*count)++] = value;
}

/* True if the daemon shall print the output of workers on this driver's terminal. The option of the
 * runtime takes precedence over TANDEM_LOG_TO_DRIVER. */
static bool driver_prints_logs(const struct tdm_runtime_options *options)
{
    const char *wanted = getenv("TANDEM_LOG_TO_DRIVER");

    if (options->log_to_driver != 0) {
        return options->log_to_driver > 0;
    }
    return wanted == NULL || strcmp(wanted, "0") != 0;
}

/* Translates the options of the runtime to the command line of tandemd. */
static void daemon_arguments_fill(const struct tdm_runtime_options *options,
                                  struct daemon_arguments *arguments)
{
    uint32_t count = 0;

    arguments->argv[count++] = (char *)(uintptr_t) "tandemd";
    arguments->argv[count++] = (char *)(uintptr_t) "--private";
    if (options->cpus > 0) {
        (void)snprintf(arguments->cpus, sizeof(arguments->cpus), "%u", options->cpus);
        daemon_arguments_add(arguments, &count, "--cpus", arguments->cpus);
    }
    if (options->gpus > 0) {
        (void)snprintf(arguments->gpus, sizeof(arguments->gpus), "%u", options->gpus);
        daemon_arguments_add(arguments, &count, "--gpus", arguments->gpus);
    }
    if (options->gpu_bytes > 0) {
        (void)snprintf(arguments->gpu_bytes, sizeof(arguments->gpu_bytes), "%llu",
                       (unsigned long long)options->gpu_bytes);
        daemon_arguments_add(arguments, &count, "--gpu-bytes", arguments->gpu_bytes);
    }
    if (options->object_store_bytes > 0) {
        (void)snprintf(arguments->store_bytes, sizeof(arguments->store_bytes), "%llu",
                       (unsigned long long)options->object_store_bytes);
        daemon_arguments_add(arguments, &count, "--object-store-bytes", arguments->store_bytes);
    }
    if (options->device != NULL) {
        daemon_arguments_add(arguments, &count, "--device", (char *)(uintptr_t)options->device);
    }
    if (options->directory != NULL) {
        daemon_arguments_add(arguments, &count, "--directory",
                             (char *)(uintptr_t)options->directory);
    }
    if (driver_prints_logs(options)) {
        arguments->argv[count++] = (char *)(uintptr_t) "--print-logs";
    }
    arguments->argv[count] = NULL;
}

tdm_status tdm__private_node_start(const struct tdm_runtime_options *options, int64_t timeout_ms,
                                   struct tdm__private_node **node_out)
{
    struct tdm__private_node *node = calloc(1, sizeof(*node));
    struct daemon_arguments arguments;
    tdm_status status;

    if (node == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a private node");
    }
    daemon_arguments_fill(options, &arguments);
    node->daemon_pidfd = -1;
    status = tdm__daemon_process_start(arguments.argv, -1, &node->process);
    if (status != TDM_OK) {
        free(node);
        return status;
    }
    status = tdm__daemon_process_wait_ready(&node->process, timeout_ms);
    if (status != TDM_OK) {
        tdm__private_node_stop(node, 0);
        return status;
    }
    node->daemon_pidfd = (int)syscall(SYS_pidfd_open, (pid_t)node->process.daemon_pid, 0);
    *node_out = node;
    return TDM_OK;
}

const char *tdm__private_node_address(const struct tdm__private_node *node)
{
    return node->process.address;
}

/* ---- end -------------------------------------------------------------------------------- */

void tdm__private_node_exit_text(struct tdm__private_node *node, char *text, size_t text_bytes)
{
    struct pollfd ended = {.fd = node->process.supervisor.pidfd, .events = POLLIN};
    char how[64];
    siginfo_t info = {0};

    text[0] = '\0';
    /* The supervisor ends right after the daemon, and with its status: 128 + the signal. */
    if (poll(&ended, 1, 2000) <= 0 ||
        waitid(TDM__WAIT_PIDFD, (id_t)node->process.supervisor.pidfd, &info,
               WEXITED | WNOHANG | WNOWAIT) < 0 ||
        info.si_pid == 0) {
        return;
    }
    if (info.si_code != CLD_EXITED) {
        (void)snprintf(text, text_bytes, "its supervisor (pid %d) ended by %s",
                       (int)node->process.supervisor.pid,
                       tdm__wait_status_text(info.si_status, how, sizeof(how)));
        return;
    }
    if (info.si_status > 128) {
        (void)tdm__wait_status_text(info.si_status - 128, how, sizeof(how));
    } else {
        (void)snprintf(how, sizeof(how), "exit code %d", info.si_status);
    }
    (void)snprintf(text, text_bytes, "the daemon (pid %lld) ended by %s", node->process.daemon_pid,
                   how);
}

void tdm__private_node_kill(struct tdm__private_node *node)
{
    if (node->daemon_pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, node->daemon_pidfd, SIGKILL, NULL, 0);
    }
}

void tdm__private_node_stop(struct tdm__private_node *node, int64_t timeout_ms)
{
    struct pollfd ended = {.fd = node->process.supervisor.pidfd, .events = POLLIN};
    int wait_status;

    /* End of file asks the daemon to end its actors, then itself. */
    (void)shutdown(node->process.supervisor_fd, SHUT_WR);
    (void)poll(&ended, 1, (int)timeout_ms);
    (void)close(node->process.supervisor_fd); /* Closing makes the supervisor kill what is left. */
    if (poll(&ended, 1, 5000) <= 0) {
        tdm__log(TDM__WARN, "runtime",
                 "the supervisor of the node (pid %d) does not reply; it is killed",
                 (int)node->process.supervisor.pid);
        tdm__process_signal(&node->process.supervisor, SIGKILL);
        (void)poll(&ended, 1, 1000);
    }
    (void)tdm__process_reap(&node->process.supervisor, &wait_status);
    tdm__process_forget(&node->process.supervisor);
    if (node->daemon_pidfd >= 0) {
        (void)close(node->daemon_pidfd);
    }
    free(node);
}
