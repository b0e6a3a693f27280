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

#include "actors/process/text_sizes.h"
#include "runtime/clock.h"
#include "runtime/error.h"
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
#include <sys/wait.h>
#include <unistd.h>

/* A private node. The driver's runtime owns it. */
struct tdm__private_node {
    struct tdm__process supervisor; /* The supervisor, the only direct child of this process. */
    int supervisor_fd;    /* This process's end of the socket shared with supervisor and daemon. */
    long long daemon_pid; /* Process id of the daemon, for messages; 0 until it is ready. */
    /* Address at which the daemon listens, such as "unix:/.../tandemd.sock". */
    char address[TDM__ADDRESS_BYTES];
};

/* ---- where tandemd is ------------------------------------------------------------------- */

/* Writes "<folder of `file`>/<folder>tandemd" to `path`; false if there is no such program. */
static bool find_program_beside(const char *file, const char *folder, char *path, size_t path_bytes)
{
    const char *slash = strrchr(file, '/');
    int length;

    if (slash == NULL) {
        return false;
    }
    length = snprintf(path, path_bytes, "%.*s/%standemd", (int)(slash - file), file, folder);
    return length > 0 && (size_t)length < path_bytes && access(path, X_OK) == 0;
}

/* The daemon lies beside a program or library in a build folder.  In an installed prefix it
 * lies in the folder of programs, which the build gives relative to the folder of libraries. */
static bool find_in_build_or_prefix(const char *file, char *path, size_t path_bytes)
{
    return find_program_beside(file, "", path, path_bytes) ||
           find_program_beside(file, "../bin/", path, path_bytes) ||
           find_program_beside(file, TDM_PROGRAMS_FROM_LIBRARIES "/", path, path_bytes);
}

/* Writes the path of the first tandemd in a folder of PATH; false if no folder has it. */
static bool find_in_search_path(char *path, size_t path_bytes)
{
    const char *directories = getenv("PATH");

    while (directories != NULL && directories[0] != '\0') {
        size_t length = strcspn(directories, ":");
        int printed = snprintf(path, path_bytes, "%.*s/tandemd", (int)length, directories);

        if (printed > 0 && (size_t)printed < path_bytes && access(path, X_OK) == 0) {
            return true;
        }
        directories += length + (directories[length] == ':' ? 1 : 0);
    }
    return false;
}

/* Writes the path of tandemd to `path`, see tdm__private_node_start(). TDM_E_NOT_FOUND if no place
 * has one. */
static tdm_status find_daemon(char *path, size_t path_bytes)
{
    const char *named = getenv("TANDEM_DAEMON");
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    Dl_info library;

    if (named != NULL && named[0] != '\0') {
        (void)snprintf(path, path_bytes, "%s", named);
        return TDM_OK;
    }
    own[length < 0 ? 0 : length] = '\0';
    if (find_in_build_or_prefix(own, path, path_bytes) ||
        (dladdr((void *)(uintptr_t)tdm__private_node_start, &library) != 0 &&
         find_in_build_or_prefix(library.dli_fname, path, path_bytes)) ||
        find_in_search_path(path, path_bytes)) {
        return TDM_OK;
    }
    return tdm__fail(TDM_E_NOT_FOUND,
                     "starting a private node failed: tandemd is neither beside %s, nor beside "
                     "libtandem, nor in ../bin of either, nor in PATH. Set TANDEM_DAEMON to "
                     "its path",
                     own);
}

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

/* Reads "ready PID ADDRESS" into `node`; TDM_E_PROTOCOL if the message has another form. */
static tdm_status parse_ready_message(struct tdm__private_node *node, const char *line)
{
    char *address = NULL;

    if (strncmp(line, "ready ", 6) == 0) {
        node->daemon_pid = strtoll(line + 6, &address, 10);
    }
    if (address == NULL || *address != ' ' || node->daemon_pid <= 0 ||
        strlen(address + 1) >= sizeof(node->address)) {
        return tdm__fail(TDM_E_PROTOCOL, "tandemd sent \"%.80s\" instead of \"ready PID ADDRESS\"",
                         line);
    }
    (void)snprintf(node->address, sizeof(node->address), "%s", address + 1);
    return TDM_OK;
}

/* Waits for the daemon's one message, "ready PID ADDRESS" or "failed TEXT", and reads it into
 * `node`. */
static tdm_status wait_until_ready(struct tdm__private_node *node, int64_t timeout_ms)
{
    char line[TDM__ERROR_DETAIL_BYTES] = "";
    struct pollfd reply = {.fd = node->supervisor_fd, .events = POLLIN};
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    ssize_t got;
    int ready;

    do {
        ready = poll(&reply, 1, (int)tdm__deadline_remaining_ms(deadline_ms));
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        return tdm__fail(TDM_E_TIMEOUT, "tandemd was not ready within %lld ms",
                         (long long)timeout_ms);
    }
    /* SOCK_SEQPACKET: one message. */
    got = recv(node->supervisor_fd, line, sizeof(line) - 1, 0);
    if (got <= 0) {
        return tdm__fail(TDM_E_NODE_LOST,
                         "tandemd ended while starting; its messages are on stderr");
    }
    if (strncmp(line, "failed ", 7) == 0) {
        return tdm__fail(TDM_E_NODE_LOST, "tandemd: %s", line + 7);
    }
    return parse_ready_message(node, line);
}

/* Starts the supervisor and fills `node->supervisor` and `node->supervisor_fd`. */
static tdm_status supervisor_start(struct tdm__private_node *node,
                                   const struct tdm_runtime_options *options)
{
    struct daemon_arguments arguments;
    char program[PATH_MAX];
    struct tdm__spawn_options spawn = {.program = program, .output_fd = -1, .fds_count = 1};
    int line[2];
    tdm_status status;

    TDM_TRY(find_daemon(program, sizeof(program)));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) < 0) {
        return tdm__fail_errno(errno, "socketpair");
    }
    daemon_arguments_fill(options, &arguments);
    spawn.argv = arguments.argv;
    spawn.fds[0] = line[1];
    status = tdm__spawn(&spawn, &node->supervisor);
    (void)close(line[1]);
    if (status != TDM_OK) {
        (void)close(line[0]);
        return status;
    }
    node->supervisor_fd = line[0];
    return TDM_OK;
}

tdm_status tdm__private_node_start(const struct tdm_runtime_options *options, int64_t timeout_ms,
                                   struct tdm__private_node **node_out)
{
    struct tdm__private_node *node = calloc(1, sizeof(*node));
    tdm_status status;

    if (node == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a private node");
    }
    status = supervisor_start(node, options);
    if (status != TDM_OK) {
        free(node);
        return status;
    }
    status = wait_until_ready(node, timeout_ms);
    if (status != TDM_OK) {
        tdm__private_node_stop(node, 0);
        return status;
    }
    *node_out = node;
    return TDM_OK;
}

const char *tdm__private_node_address(const struct tdm__private_node *node)
{
    return node->address;
}

/* ---- end -------------------------------------------------------------------------------- */

void tdm__private_node_exit_text(struct tdm__private_node *node, char *text, size_t text_bytes)
{
    struct pollfd ended = {.fd = node->supervisor.pidfd, .events = POLLIN};
    char how[64];
    siginfo_t info = {0};

    text[0] = '\0';
    /* The supervisor ends right after the daemon, and with its status: 128 + the signal. */
    if (poll(&ended, 1, 2000) <= 0 ||
        waitid(TDM__WAIT_PIDFD, (id_t)node->supervisor.pidfd, &info, WEXITED | WNOHANG | WNOWAIT) <
            0 ||
        info.si_pid == 0) {
        return;
    }
    if (info.si_code != CLD_EXITED) {
        (void)snprintf(text, text_bytes, "its supervisor (pid %d) ended by %s",
                       (int)node->supervisor.pid,
                       tdm__wait_status_text(info.si_status, how, sizeof(how)));
        return;
    }
    if (info.si_status > 128) {
        (void)tdm__wait_status_text(info.si_status - 128, how, sizeof(how));
    } else {
        (void)snprintf(how, sizeof(how), "exit code %d", info.si_status);
    }
    (void)snprintf(text, text_bytes, "the daemon (pid %lld) ended by %s", node->daemon_pid, how);
}

void tdm__private_node_stop(struct tdm__private_node *node, int64_t timeout_ms)
{
    struct pollfd ended = {.fd = node->supervisor.pidfd, .events = POLLIN};
    int wait_status;

    /* End of file asks the daemon to end its actors, then itself. */
    (void)shutdown(node->supervisor_fd, SHUT_WR);
    (void)poll(&ended, 1, (int)timeout_ms);
    (void)close(node->supervisor_fd); /* Closing makes the supervisor kill what is left. */
    if (poll(&ended, 1, 5000) <= 0) {
        tdm__process_signal(&node->supervisor, SIGKILL);
        (void)poll(&ended, 1, 1000);
    }
    (void)tdm__process_reap(&node->supervisor, &wait_status);
    tdm__process_forget(&node->supervisor);
    free(node);
}
