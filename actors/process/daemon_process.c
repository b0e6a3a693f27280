/* daemon_process.c - starts the program tandemd and waits until it is ready. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/daemon_process.h"

#include "runtime/clock.h"
#include "runtime/error.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* Writes the path of tandemd to `path`, see daemon_process.h. TDM_E_NOT_FOUND if no place
 * has one. */
static tdm_status find_daemon(char *path, size_t path_bytes)
{
    const char *named = getenv("TANDEM_DAEMON");
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    Dl_info library;

    if (named != NULL && named[0] != '\0') {
        if (access(named, X_OK) < 0) {
            return tdm__fail(TDM_E_NOT_FOUND,
                             "starting a node failed: TANDEM_DAEMON names %s, which is no program",
                             named);
        }
        (void)snprintf(path, path_bytes, "%s", named);
        return TDM_OK;
    }
    own[length < 0 ? 0 : length] = '\0';
    if (find_in_build_or_prefix(own, path, path_bytes) ||
        (dladdr((void *)(uintptr_t)tdm__daemon_process_start, &library) != 0 &&
         find_in_build_or_prefix(library.dli_fname, path, path_bytes)) ||
        find_in_search_path(path, path_bytes)) {
        return TDM_OK;
    }
    return tdm__fail(TDM_E_NOT_FOUND,
                     "starting a node failed: tandemd is neither beside %s, nor beside "
                     "libtandem, nor in ../bin of either, nor in PATH. Set TANDEM_DAEMON to "
                     "its path",
                     own);
}

/* ---- start ------------------------------------------------------------------------------ */

tdm_status tdm__daemon_process_start(char *const *argv, int output_fd,
                                     struct tdm__daemon_process *process_out)
{
    struct tdm__daemon_process process = {.supervisor_fd = -1};
    char program[PATH_MAX];
    struct tdm__spawn_options spawn = {
        .program = program, .argv = argv, .output_fd = output_fd, .fds_count = 1};
    int line[2];
    tdm_status status;

    TDM_TRY(find_daemon(program, sizeof(program)));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) < 0) {
        return tdm__fail_errno(errno, "socketpair");
    }
    spawn.fds[0] = line[1];
    status = tdm__spawn(&spawn, &process.supervisor);
    (void)close(line[1]);
    if (status != TDM_OK) {
        (void)close(line[0]);
        return status;
    }
    process.supervisor_fd = line[0];
    *process_out = process;
    return TDM_OK;
}

/* Reads "ready PID ADDRESS" into `process`; TDM_E_PROTOCOL if the message has another form. */
static tdm_status parse_ready_message(struct tdm__daemon_process *process, const char *line)
{
    char *address = NULL;

    if (strncmp(line, "ready ", 6) == 0) {
        process->daemon_pid = strtoll(line + 6, &address, 10);
    }
    if (address == NULL || *address != ' ' || process->daemon_pid <= 0 ||
        strlen(address + 1) >= sizeof(process->address)) {
        return tdm__fail(TDM_E_PROTOCOL, "tandemd sent \"%.80s\" instead of \"ready PID ADDRESS\"",
                         line);
    }
    (void)snprintf(process->address, sizeof(process->address), "%s", address + 1);
    return TDM_OK;
}

tdm_status tdm__daemon_process_wait_ready(struct tdm__daemon_process *process, int64_t timeout_ms)
{
    char line[TDM__ERROR_DETAIL_BYTES] = "";
    struct pollfd reply = {.fd = process->supervisor_fd, .events = POLLIN};
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
    got = recv(process->supervisor_fd, line, sizeof(line) - 1, 0);
    if (got <= 0) {
        return tdm__fail(TDM_E_NODE_LOST,
                         "tandemd ended while starting; its messages are on stderr");
    }
    if (strncmp(line, "failed ", 7) == 0) {
        return tdm__fail(TDM_E_NODE_LOST, "tandemd: %s", line + 7);
    }
    return parse_ready_message(process, line);
}
