/* private_node.c - a daemon and a Redis of this driver's own, that end with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/private_node.h"

#include "actors/common/actor_spec.h"
#include "runtime/clock.h"
#include "runtime/error.h"
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

/* The process started here is the supervisor: it holds the daemon and everything below it, and ends
 * all of that when this process's end of `line` closes, however that comes about. */
struct tdm__private_node {
    struct tdm__process supervisor;
    int line; /* a socket to the supervisor and the daemon */
    long long daemon_pid;
    char address[TDM__ADDRESS_BYTES];
};

/* ---- where tandemd is ------------------------------------------------------------------- */

/* Writes "<folder of `file`>/<folder>tandemd" to `path`; false if there is no such program. */
static bool find_near(const char *file, const char *folder, char *path, size_t room)
{
    const char *slash = strrchr(file, '/');
    int length;

    if (slash == NULL) {
        return false;
    }
    length = snprintf(path, room, "%.*s/%standemd", (int)(slash - file), file, folder);
    return length > 0 && (size_t)length < room && access(path, X_OK) == 0;
}

/* The daemon lies beside a program or library in a build folder.  In an installed prefix it
 * lies in the folder of programs, which the build gives relative to the folder of libraries. */
static bool find_in_build_or_prefix(const char *file, char *path, size_t room)
{
    return find_near(file, "", path, room) || find_near(file, "../bin/", path, room) ||
           find_near(file, TDM_PROGRAMS_FROM_LIBRARIES "/", path, room);
}

static bool in_search_path(char *path, size_t room)
{
    const char *directories = getenv("PATH");

    while (directories != NULL && directories[0] != '\0') {
        size_t length = strcspn(directories, ":");
        int printed = snprintf(path, room, "%.*s/tandemd", (int)length, directories);

        if (printed > 0 && (size_t)printed < room && access(path, X_OK) == 0) {
            return true;
        }
        directories += length + (directories[length] == ':' ? 1 : 0);
    }
    return false;
}

static tdm_status find_daemon(char *path, size_t room)
{
    const char *named = getenv("TANDEM_DAEMON");
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    Dl_info library;

    if (named != NULL && named[0] != '\0') {
        (void)snprintf(path, room, "%s", named);
        return TDM_OK;
    }
    own[length < 0 ? 0 : length] = '\0';
    if (find_in_build_or_prefix(own, path, room) ||
        (dladdr((void *)(uintptr_t)tdm_runtime_start, &library) != 0 &&
         find_in_build_or_prefix(library.dli_fname, path, room)) ||
        in_search_path(path, room)) {
        return TDM_OK;
    }
    return tdm__fail(TDM_E_NOT_FOUND,
                     "starting a private node failed: tandemd is neither beside %s, nor beside "
                     "libtandem, nor in ../bin of either, nor in PATH. Set TANDEM_DAEMON to "
                     "its path",
                     own);
}

/* ---- start ------------------------------------------------------------------------------ */

struct daemon_words {
    char cpus[16];
    char gpus[16];
    char gpu_bytes[32];
    char store_bytes[32];
    char *argv[17];
};

static void add_word(struct daemon_words *words, uint32_t *count, const char *name, char *value)
{
    words->argv[(*count)++] = (char *)(uintptr_t)name;
    words->argv[(*count)++] = value;
}

static bool prints_logs(const struct tdm_runtime_options *options)
{
    const char *wanted = getenv("TANDEM_LOG_TO_DRIVER");

    if (options->log_to_driver != 0) {
        return options->log_to_driver > 0;
    }
    return wanted == NULL || strcmp(wanted, "0") != 0;
}

static void write_words(const struct tdm_runtime_options *options, struct daemon_words *words)
{
    uint32_t count = 0;

    words->argv[count++] = (char *)(uintptr_t) "tandemd";
    words->argv[count++] = (char *)(uintptr_t) "--private";
    if (options->cpus > 0) {
        (void)snprintf(words->cpus, sizeof(words->cpus), "%u", options->cpus);
        add_word(words, &count, "--cpus", words->cpus);
    }
    if (options->gpus > 0) {
        (void)snprintf(words->gpus, sizeof(words->gpus), "%u", options->gpus);
        add_word(words, &count, "--gpus", words->gpus);
    }
    if (options->gpu_bytes > 0) {
        (void)snprintf(words->gpu_bytes, sizeof(words->gpu_bytes), "%llu",
                       (unsigned long long)options->gpu_bytes);
        add_word(words, &count, "--gpu-bytes", words->gpu_bytes);
    }
    if (options->object_store_bytes > 0) {
        (void)snprintf(words->store_bytes, sizeof(words->store_bytes), "%llu",
                       (unsigned long long)options->object_store_bytes);
        add_word(words, &count, "--object-store-bytes", words->store_bytes);
    }
    if (options->device != NULL) {
        add_word(words, &count, "--device", (char *)(uintptr_t)options->device);
    }
    if (options->directory != NULL) {
        add_word(words, &count, "--directory", (char *)(uintptr_t)options->directory);
    }
    if (prints_logs(options)) {
        words->argv[count++] = (char *)(uintptr_t) "--print-logs";
    }
    words->argv[count] = NULL;
}

/* "ready PID ADDRESS" */
static tdm_status read_ready(struct tdm__private_node *node, const char *line)
{
    char *address = NULL;

    if (strncmp(line, "ready ", 6) == 0) {
        node->daemon_pid = strtoll(line + 6, &address, 10);
    }
    if (address == NULL || *address != ' ' || node->daemon_pid <= 0 ||
        strlen(address + 1) >= sizeof(node->address)) {
        return tdm__fail(TDM_E_PROTOCOL, "tandemd answered \"%.80s\"", line);
    }
    (void)snprintf(node->address, sizeof(node->address), "%s", address + 1);
    return TDM_OK;
}

/* One line: "ready PID ADDRESS", or "failed TEXT". */
static tdm_status read_first_line(struct tdm__private_node *node, int64_t timeout_ms)
{
    char line[TDM__ERROR_DETAIL_BYTES] = "";
    struct pollfd reply = {.fd = node->line, .events = POLLIN};
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    ssize_t got;
    int ready;

    do {
        ready = poll(&reply, 1, (int)tdm__deadline_remaining_ms(deadline_ms));
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        return tdm__fail(TDM_E_TIMEOUT, "tandemd did not answer within %lld ms",
                         (long long)timeout_ms);
    }
    got = recv(node->line, line, sizeof(line) - 1, 0); /* a record at a time */
    if (got <= 0) {
        return tdm__fail(TDM_E_NODE_LOST, "tandemd ended while starting; its words are on stderr");
    }
    if (strncmp(line, "failed ", 7) == 0) {
        return tdm__fail(TDM_E_NODE_LOST, "tandemd: %s", line + 7);
    }
    return read_ready(node, line);
}

static tdm_status supervisor_start(struct tdm__private_node *node,
                                   const struct tdm_runtime_options *options)
{
    struct daemon_words words;
    char program[PATH_MAX];
    struct tdm__spawn_options spawn = {.program = program, .output_fd = -1, .fds_count = 1};
    int line[2];
    tdm_status status;

    TDM_TRY(find_daemon(program, sizeof(program)));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) < 0) {
        return tdm__fail_errno(errno, "socketpair");
    }
    write_words(options, &words);
    spawn.argv = words.argv;
    spawn.fds[0] = line[1];
    status = tdm__spawn(&spawn, &node->supervisor);
    (void)close(line[1]);
    if (status != TDM_OK) {
        (void)close(line[0]);
        return status;
    }
    node->line = line[0];
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
    status = read_first_line(node, timeout_ms);
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
        waitid(P_PIDFD, (id_t)node->supervisor.pidfd, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
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

    (void)shutdown(node->line, SHUT_WR); /* "stop": the daemon ends its actors, then itself */
    (void)poll(&ended, 1, (int)timeout_ms);
    (void)close(node->line); /* the supervisor kills whatever is left */
    if (poll(&ended, 1, 5000) <= 0) {
        tdm__process_signal(&node->supervisor, SIGKILL);
        (void)poll(&ended, 1, 1000);
    }
    (void)tdm__process_reap(&node->supervisor, &wait_status);
    tdm__process_forget(&node->supervisor);
    free(node);
}
