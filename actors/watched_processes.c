/* watched_processes.c - the processes without which the actor of this process fails. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The list belongs to the one actor of this process and is guarded by the loop's lock. Each watched
 * process has a pidfd in the loop. When a pidfd becomes readable, the cause is sent to the daemon
 * ("actor.failing"), which names it in the report of the actor's death. This process ends as soon
 * as the daemon has replied, so that the daemon knows the cause before it learns of the end. */

#include "actors/watched_processes.h"

#include "actors/process/runtime.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "runtime/older_libc.h"
#include "runtime/process/spawn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    FAILING_TIMEOUT_MS =
        5000,         /* Milliseconds for reporting the cause of the failure to the daemon. */
    CAUSE_BYTES = 192 /* Size in bytes of the text of a cause. */
};

/* A watched process. The list of watched processes owns it. */
struct watched_process {
    struct watched_process *next; /* Next watched process of the list. */
    tdm_runtime *runtime;         /* Runtime of this actor, borrowed. */
    int64_t pid;                  /* Process id of the watched process. */
    int pidfd;                    /* Pidfd of the watched process, owned. */
    struct tdm__fd_watch *watch;  /* Watch of the pidfd in the loop, owned. */
    char name[32];                /* Name of the process when the watch began. */
};

/* All watched processes of this actor, owned; guarded by the loop's lock. */
static struct watched_process *watched_processes;

/* Frees a watched process that is in no list. */
static void watched_process_destroy(struct watched_process *process)
{
    tdm__fd_watch_destroy(process->watch);
    (void)close(process->pidfd);
    free(process);
}

/* Writes why the actor fails: the watched process has ended, and how, if this is its parent. */
static void write_cause(const struct watched_process *process, char cause[CAUSE_BYTES])
{
    char status_text[64] = "it ended";
    siginfo_t info = {.si_pid = 0};

    /* WNOWAIT leaves the process for its parent's own wait. */
    if (waitid(TDM__WAIT_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid != 0) {
        int wait_status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;

        (void)tdm__wait_status_text(wait_status, status_text, sizeof(status_text));
    }
    (void)snprintf(cause, CAUSE_BYTES, "its process %lld (%s), which it watches: %s",
                   (long long)process->pid, process->name, status_text);
}

/* Ends this process when the daemon knows the cause, or has not replied in time. */
_Noreturn static void on_failing_reply(void *arg, struct tdm__rpc_reply *reply)
{
    (void)arg;
    (void)reply;
    _exit(1);
}

/* Tells the daemon why this actor fails. */
static tdm_status send_failing(tdm_runtime *runtime, const char *cause)
{
    const struct tdm__actor_failing_message message = {.cause = cause};
    struct tdm__rpc_request request = {.method = "actor.failing",
                                       .deadline_ms = tdm__deadline_after(FAILING_TIMEOUT_MS)};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__runtime_daemon(runtime, &daemon));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_failing_encode(&message, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(daemon, &request, on_failing_reply, NULL, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Handles the end of a watched process: the actor fails. */
static void on_process_ended(void *arg, int fd, unsigned ready)
{
    struct watched_process *process = arg;
    char cause[CAUSE_BYTES];

    (void)fd;
    (void)ready;
    write_cause(process, cause);
    tdm__log(TDM__ERROR, "worker", "the actor fails: %s", cause);
    (void)tdm__fd_watch_set_events(process->watch, 0);
    if (send_failing(process->runtime, cause) != TDM_OK) {
        _exit(1);
    }
}

/* Returns the address of the list pointer to the watched process with this process id; the pointer
 * is NULL if the process is not watched. */
static struct watched_process **find_watched(int64_t pid)
{
    struct watched_process **link = &watched_processes;

    while (*link != NULL && (*link)->pid != pid) {
        link = &(*link)->next;
    }
    return link;
}

/* Opens the pidfd of a process. */
static tdm_status open_pidfd(int64_t pid, int *pidfd_out)
{
    *pidfd_out = pid > 0 ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0) : -1;
    if (*pidfd_out < 0 && (pid <= 0 || errno == ESRCH || errno == EINVAL)) {
        return tdm__fail(TDM_E_NOT_FOUND, "there is no process %lld to watch", (long long)pid);
    }
    return *pidfd_out < 0 ? tdm__fail_errno(errno, "pidfd_open of %lld", (long long)pid) : TDM_OK;
}

/* Reads the name of a process into `name`; "?" if it cannot be read. */
static void read_name(int64_t pid, char *name, size_t capacity_bytes)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%lld/comm", (long long)pid);
    if (!tdm__file_read_text(path, name, capacity_bytes)) {
        (void)snprintf(name, capacity_bytes, "?");
    }
    name[strcspn(name, "\n")] = '\0';
}

tdm_status tdm_actor_watch(tdm_runtime *runtime, int64_t pid)
{
    TDM__REQUIRE(runtime);

    struct watched_process *process;
    int pidfd;
    tdm_status status;
    TDM__LOCK(runtime);

    if (runtime->worker == NULL) {
        return tdm__fail(TDM_E_STATE, "this process is a driver, not an actor");
    }
    if (*find_watched(pid) != NULL) {
        return tdm__fail(TDM_E_EXISTS, "process %lld is watched already", (long long)pid);
    }
    TDM_TRY(open_pidfd(pid, &pidfd));
    process = calloc(1, sizeof(*process));
    if (process == NULL) {
        (void)close(pidfd);
        return tdm__fail(TDM_E_NOMEM, "a watched process");
    }
    *process = (struct watched_process){.runtime = runtime, .pid = pid, .pidfd = pidfd};
    read_name(pid, process->name, sizeof(process->name));
    status = tdm__fd_watch_create(runtime->loop, pidfd, TDM__READABLE, on_process_ended, process,
                                  &process->watch);
    if (status != TDM_OK) {
        watched_process_destroy(process);
        return status;
    }
    process->next = watched_processes;
    watched_processes = process;
    return TDM_OK;
}

tdm_status tdm_actor_unwatch(tdm_runtime *runtime, int64_t pid)
{
    TDM__REQUIRE(runtime);

    struct watched_process **link;
    struct watched_process *process;
    TDM__LOCK(runtime);

    link = find_watched(pid);
    process = *link;
    if (process == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND, "process %lld is not watched", (long long)pid);
    }
    *link = process->next;
    watched_process_destroy(process);
    return TDM_OK;
}

void tdm__watched_processes_clear(tdm_runtime *runtime)
{
    TDM__LOCK(runtime);

    while (watched_processes != NULL) {
        struct watched_process *process = watched_processes;

        watched_processes = process->next;
        watched_process_destroy(process);
    }
}
