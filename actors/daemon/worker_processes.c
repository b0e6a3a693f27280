/* worker_processes.c - the worker processes of a node: starting, watching and reaping them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A worker is executed, or forked from a fork server (actors/common/fork_server.h) that has the
 * same key: program, its arguments, directory and environment. The first worker of a key is
 * executed; the second starts the fork server. If a fork server cannot fork (it runs threads) or
 * ends, the pending workers are executed from what was kept for a retry.
 *
 * An executed worker is a child of the daemon and watched by its pidfd; a forked one is a child of
 * its fork server, which reports its end. Each end is reported exactly once by
 * tdm__worker_ended_fn, after the process was reaped. Workers die with their fork server, and fork
 * servers with the daemon.
 *
 * Orphans of dead workers become children of the daemon (a subreaper). Each process has the mark of
 * its worker in its environment; sweep_child() kills those without a living worker. Everything runs
 * on the daemon's loop thread. */

#include "actors/daemon/worker_processes.h"

#include "actors/common/fork_server.h"
#include "actors/common/worker_bootstrap.h"
#include "actors/daemon/worker_environment.h"
#include "actors/daemon/worker_logs.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/fdpass.h"
#include "runtime/log.h"
#include "runtime/process/process_tree.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    START_FDS_MAX = 4, /* Most descriptors that are passed to a new worker. */
    /* Number of the keys used last that are kept, with their fork servers; older keys are kept only
     * while they have living workers. */
    FORK_SERVERS_MAX = 16,
    SWEEP_MS = 100 /* Milliseconds until a scheduled sweep for orphans. */
};

/* A worker process, and what is needed to execute it if its fork server cannot fork. The table owns
 * it. */
struct worker {
    /* The worker as other modules see it; first member, because pointers to the two structs are
     * cast into each other. */
    struct tdm__worker_process public;
    struct tdm__workers *workers; /* Table that contains this entry, borrowed. */
    struct worker *next;          /* Next worker of the table. */
    /* Fork server that forks or has forked the worker, borrowed; NULL if the worker was executed.
     */
    struct fork_server *fork_server;
    uint64_t serial; /* Number of the request to the fork server; 0 if the worker was executed. */
    /* Process id and pidfd of the worker; 0 and -1 until they are known. */
    struct tdm__process process;
    /* Watch of the pidfd of an executed worker, owned; NULL for a forked worker. */
    struct tdm__fd_watch *watch;
    tdm__worker_ended_fn *fn; /* Callback that is called when the worker has ended. */
    void *arg;                /* First argument of `fn`. */
    /* True once the daemon decided to kill the worker, maybe before its pid was known. */
    bool is_killed;
    /* True if the worker may close its connection to the daemon, because it was asked to exit. */
    bool exit_is_expected;
    bool has_ended; /* True once the worker has ended. */
    /* Process mark in the environment of the worker and its children, by which the daemon
     * recognises them. */
    char mark[TDM__PROCESS_MARK_BYTES];
    /* Descriptors to start the worker with: connection to the daemon, bootstrap, and, if output is
     * kept, stdout and stderr. Owned until the fork server has replied; -1 if unused. */
    int retry_fds[START_FDS_MAX];
    /* Environment to start the worker with, without `devices`, owned, ends with NULL; NULL once
     * started. */
    char **retry_environment;
    /* Setting of the GPUs that the worker may use, added to its environment; "" for none. */
    char devices[TDM__DEVICES_SETTING_BYTES];
    /* Path of the program to execute and its arguments, each owned; the array is owned and ends
     * with NULL. */
    char **argv;
    /* Working directory of the worker; "" for that of the daemon. */
    char directory[TDM__PATH_BYTES];
};

/* A key (program with arguments, directory and environment) that was used before, and its fork
 * server if it was used twice. The table owns it. */
struct fork_server {
    struct tdm__workers *workers; /* Table that contains this entry, borrowed. */
    struct fork_server *next;     /* Next entry of the list, used less recently. */
    char *key; /* Text of program, arguments, directory and environment, owned. */
    /* True if the fork server cannot fork because its program runs threads; workers with the key
     * are executed then. */
    bool runs_threads;
    struct tdm__process process; /* Process of the fork server; pid 0 while it does not run. */
    /* Socket to the process of the fork server, owned; -1 while it does not run. */
    int control;
    /* Watch of `control` in the event loop, owned; NULL while the fork server does not run. */
    struct tdm__fd_watch *watch;
};

/* The workers and fork servers of a daemon. struct tdm__node owns it. */
struct tdm__workers {
    struct tdm__rpc *rpc; /* RPC endpoint of the daemon, borrowed. */
    const char *program;  /* Program for actors whose spec names none, borrowed. */
    /* Log files of workers, borrowed; NULL if workers print where the daemon does. */
    struct tdm__worker_logs *logs;
    struct worker *all; /* List of the worker processes, owned. */
    /* Keys and fork servers, used most recently first, owned; at most FORK_SERVERS_MAX besides
     * those with living workers. */
    struct fork_server *fork_servers;
    uint64_t last_serial; /* Number of the last request to a fork server. */
    /* Returns the pid of a child of the daemon that a sweep must spare, or 0; may be NULL. */
    pid_t (*exempt_child)(void);
    /* Returns whether a sweep must spare the child `pid` of the daemon; NULL if there is no such
     * child. */
    bool (*is_spared)(void *arg, pid_t pid);
    void *is_spared_arg;            /* First argument of `is_spared`, borrowed. */
    struct tdm__timer *sweep_timer; /* Timer of the next sweep for orphans, owned. */
    bool sweep_is_due;              /* True while a sweep for orphans is scheduled. */
};

/* ---- the end of a worker ---------------------------------------------------------------- */

/* Closes the descriptors and frees the environment that were kept to execute the worker if its fork
 * server cannot fork. */
static void worker_close_retry(struct worker *worker)
{
    for (uint32_t i = 0; i < START_FDS_MAX; i++) {
        if (worker->retry_fds[i] >= 0) {
            (void)close(worker->retry_fds[i]);
        }
        worker->retry_fds[i] = -1;
    }
    tdm__worker_environment_destroy(worker->retry_environment);
    worker->retry_environment = NULL;
}

/* Removes a worker from the table and frees it. */
static void worker_free(struct worker *worker)
{
    struct worker **link = &worker->workers->all;

    while (*link != worker) {
        link = &(*link)->next;
    }
    *link = worker->next;
    tdm__fd_watch_destroy(worker->watch);
    if (worker->public.conn != NULL) {
        tdm__conn_on_closed(worker->public.conn, NULL, NULL);
        tdm__conn_close(worker->public.conn);
    }
    worker_close_retry(worker);
    tdm__worker_environment_destroy(worker->argv);
    if (worker->public.output != NULL) {
        tdm__log_source_ended(worker->public.output);
    }
    tdm__process_forget(&worker->process);
    free(worker);
}

/* Calls the callback for the end of a reaped worker, and frees the worker. */
static void worker_report_end(struct worker *worker, int wait_status)
{
    worker->has_ended = true;
    if (worker->public.output != NULL) {
        tdm__log_source_ended(worker->public.output); /* The last lines come before the report. */
    }
    worker->fn(worker->arg, &worker->public, wait_status);
    worker->public.output = NULL;
    worker_free(worker);
}

/* Reaps an executed worker whose pidfd `fd` says that it has ended, and reports the end. */
static void on_pidfd(void *arg, int fd, unsigned ready)
{
    struct worker *worker = arg;
    int wait_status;

    (void)fd;
    (void)ready;
    if (tdm__process_reap(&worker->process, &wait_status)) {
        worker_report_end(worker, wait_status);
    }
}

/* Handles the closed connection of a worker. A worker that was not asked to exit is killed, because
 * it cannot work without its daemon. */
static void on_worker_conn_closed(void *arg, struct tdm__conn *conn, tdm_status reason,
                                  const char *detail)
{
    struct worker *worker = arg;

    (void)conn;
    tdm__log(TDM__DEBUG, "workers", "connection to pid %d closed: %s: %s", (int)worker->public.pid,
             tdm_strerror(reason), detail);
    worker->public.conn = NULL;
    if (!worker->exit_is_expected) {
        tdm__worker_kill(&worker->public);
    }
}

void tdm__worker_expect_exit(struct tdm__worker_process *public)
{
    ((struct worker *)public)->exit_is_expected = true;
}

void tdm__worker_kill(struct tdm__worker_process *public)
{
    struct worker *worker = (struct worker *)public;

    worker->is_killed = true;
    if (worker->process.pid != 0) {
        tdm__process_signal(&worker->process, SIGKILL);
    }
}

/* ---- exec ------------------------------------------------------------------------------- */

/* Records the pid of a started worker, and renames its log files. */
static void worker_set_pid(struct worker *worker, pid_t pid)
{
    worker->public.pid = pid;
    if (worker->public.output != NULL) {
        tdm__log_source_started(worker->public.output, pid);
    }
}

/* Returns the number of descriptors that are passed to the worker at its start. */
static uint32_t worker_start_fds_count(const struct worker *worker)
{
    return worker->public.output != NULL ? START_FDS_MAX : 2;
}

/* Executes the program argv[0] with its arguments in the role "worker" or "fork_server", with
 * fds[0] as descriptor 3, fds[1] as descriptor 4, and fds[2] and fds[3] as stdout and stderr if
 * they are given. */
static tdm_status program_execute(char **argv, const char *directory, char **environment,
                                  const char *role, const int *fds, uint32_t fds_count,
                                  struct tdm__process *process_out)
{
    char role_text[64];
    struct tdm__spawn_options options = {.program = argv[0],
                                         .argv = argv,
                                         .working_directory = directory,
                                         .fds_count = fds_count,
                                         .output_fd = -1,
                                         .dies_with_parent = true};
    tdm_status status;

    (void)snprintf(role_text, sizeof(role_text), TDM__WORKER_VARIABLE "=%s", role);
    if (fds_count == START_FDS_MAX) {
        options.output_fd = fds[2];
        options.error_fd = fds[3];
        options.fds_count = 2;
    }
    for (uint32_t i = 0; i < options.fds_count; i++) {
        options.fds[i] = fds[i];
    }
    options.environment = environment;
    tdm__worker_environment_add(environment, role_text);
    status = tdm__spawn(&options, process_out);
    tdm__worker_environment_drop_last(environment);
    return status;
}

/* Starts the worker by executing its program, without a fork server. */
static tdm_status worker_execute_now(struct worker *worker)
{
    bool has_devices = worker->devices[0] != '\0';
    tdm_status status;

    tdm__worker_environment_mark(worker->retry_environment, worker->mark);
    if (has_devices) {
        tdm__worker_environment_add(worker->retry_environment, worker->devices);
    }
    status = program_execute(worker->argv, worker->directory, worker->retry_environment, "worker",
                             worker->retry_fds, worker_start_fds_count(worker), &worker->process);
    if (has_devices) {
        tdm__worker_environment_drop_last(worker->retry_environment);
    }
    TDM_TRY(status);
    worker_set_pid(worker, worker->process.pid);
    worker->fork_server = NULL;
    worker_close_retry(worker);
    return tdm__fd_watch_create(tdm__rpc_loop(worker->workers->rpc), worker->process.pidfd,
                                TDM__READABLE, on_pidfd, worker, &worker->watch);
}

/* ---- fork servers ----------------------------------------------------------------------- */

/* Returns the worker for which the fork server got request number `serial` and whose pid is not
 * known, or NULL. */
static struct worker *workers_find_by_serial(struct tdm__workers *workers, uint64_t serial)
{
    for (struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        if (worker->serial == serial && worker->public.pid == 0) {
            return worker;
        }
    }
    return NULL;
}

/* Returns the worker with process id `pid` that the fork server has forked, or NULL. */
static struct worker *fork_server_find_worker(struct fork_server *fork_server, pid_t pid)
{
    for (struct worker *worker = fork_server->workers->all; worker != NULL; worker = worker->next) {
        if (worker->fork_server == fork_server && worker->public.pid == pid) {
            return worker;
        }
    }
    return NULL;
}

/* Starts a worker by executing its program, because the fork server could not fork it. */
static void worker_execute_instead(struct worker *worker)
{
    if (worker_execute_now(worker) != TDM_OK) {
        tdm__log(TDM__ERROR, "workers", "%s", tdm_error_detail());
        worker_report_end(worker, 127 << 8);
    }
}

/* Cleans up after a fork server that has ended or is of no use. Its pending workers are executed,
 * and its forked workers have ended. */
static void fork_server_ended(struct fork_server *fork_server)
{
    struct worker *next;
    int wait_status;

    tdm__fd_watch_destroy(fork_server->watch);
    fork_server->watch = NULL;
    (void)close(fork_server->control);
    tdm__process_signal(&fork_server->process, SIGKILL);
    (void)waitpid(fork_server->process.pid, &wait_status, 0);
    tdm__process_forget(&fork_server->process);
    for (struct worker *worker = fork_server->workers->all; worker != NULL; worker = next) {
        next = worker->next;
        if (worker->fork_server == fork_server && worker->public.pid == 0) {
            worker_execute_instead(worker);
        } else if (worker->fork_server == fork_server) {
            worker_report_end(worker, SIGKILL); /* Forked workers die with their parent. */
        }
    }
}

/* Handles the fork server's report that it has forked a worker. Takes ownership of `pidfd`. */
static void workers_on_forked(struct tdm__workers *workers,
                              const struct tdm__fork_server_event *event, int pidfd)
{
    struct worker *worker = workers_find_by_serial(workers, event->serial);

    if (worker == NULL) {
        (void)close(pidfd);
        return;
    }
    worker_set_pid(worker, event->pid);
    worker->process.pid = event->pid;
    worker->process.pidfd = pidfd;
    worker_close_retry(worker);
    if (worker->is_killed) {
        tdm__worker_kill(&worker->public);
    }
}

/* Handles the fork server's report that it could not fork a worker. A fork server that runs threads
 * will never be able to fork, so it is ended; otherwise the kernel refused for lack of resources.
 */
static void fork_server_on_refusal(struct fork_server *fork_server,
                                   const struct tdm__fork_server_event *event)
{
    struct worker *worker = workers_find_by_serial(fork_server->workers, event->serial);

    tdm__log(TDM__INFO, "workers", "a fork server with %u threads cannot fork: executing",
             event->threads_count);
    if (worker != NULL) {
        worker_execute_instead(worker);
    }
    if (event->threads_count != 1) {
        fork_server->runs_threads = true;
        fork_server_ended(fork_server);
    }
}

/* Handles one report of a fork server. */
static void fork_server_handle_event(struct fork_server *fork_server,
                                     const struct tdm__fork_server_event *event, int pidfd)
{
    struct worker *worker;

    if (event->kind == TDM__FORK_DONE && pidfd >= 0) {
        workers_on_forked(fork_server->workers, event, pidfd);
    } else if (event->kind == TDM__FORK_REFUSED) {
        fork_server_on_refusal(fork_server, event);
    } else if (event->kind == TDM__FORK_CHILD_ENDED) {
        worker = fork_server_find_worker(fork_server, event->pid);
        if (worker != NULL) {
            worker_report_end(worker, event->wait_status);
        }
    }
}

/* Receives one report from the socket of a fork server, or finds that the fork server has ended. */
static void on_fork_server_readable(void *arg, int fd, unsigned ready)
{
    struct fork_server *fork_server = arg;
    struct tdm__fork_server_event event;
    size_t got = sizeof(event);
    int fds[1] = {-1};
    uint32_t fds_count = 1;

    (void)ready;
    if (tdm__fds_receive(fd, &event, &got, fds, &fds_count) != TDM_OK || got != sizeof(event)) {
        fork_server_ended(fork_server);
        return;
    }
    fork_server_handle_event(fork_server, &event, fds_count == 1 ? fds[0] : -1);
}

/* Starts the process of a fork server with the program, directory and environment of `worker`. */
static tdm_status fork_server_start(struct fork_server *fork_server, struct worker *worker)
{
    int control[2];
    tdm_status status;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0) {
        return tdm__fail_errno(errno, "socketpair");
    }
    status = program_execute(worker->argv, worker->directory, worker->retry_environment,
                             "fork_server", &control[1], 1, &fork_server->process);
    (void)close(control[1]);
    if (status == TDM_OK) {
        fork_server->control = control[0];
        status = tdm__fd_watch_create(tdm__rpc_loop(fork_server->workers->rpc), control[0],
                                      TDM__READABLE, on_fork_server_readable, fork_server,
                                      &fork_server->watch);
    }
    if (status != TDM_OK) {
        (void)close(control[0]);
        fork_server->process = (struct tdm__process){0, -1};
    }
    return status;
}

/* Asks the fork server to fork the worker; starts the fork server if necessary. */
static tdm_status fork_server_request_worker(struct fork_server *fork_server, struct worker *worker)
{
    struct tdm__fork_server_request request = {.serial = ++fork_server->workers->last_serial,
                                               .has_output = worker->public.output != NULL};

    memcpy(request.mark, worker->mark, sizeof(request.mark));
    memcpy(request.devices, worker->devices, sizeof(request.devices));
    if (fork_server->process.pid == 0) {
        TDM_TRY(fork_server_start(fork_server, worker));
    }
    TDM_TRY(tdm__fds_send(fork_server->control, &request, sizeof(request), worker->retry_fds,
                          worker_start_fds_count(worker)));
    worker->serial = request.serial;
    worker->fork_server = fork_server;
    return TDM_OK;
}

/* Returns the text of the worker's program with its arguments, directory and environment, owned by
 * the caller; NULL without memory. */
static char *worker_create_key(const struct worker *worker)
{
    char **const lists[] = {worker->argv, worker->retry_environment};
    size_t capacity = sizeof(worker->directory) + 1;
    char *key;
    size_t used;

    for (int i = 0; i < 2; i++) {
        for (char **entry = lists[i]; *entry != NULL; entry++) {
            capacity += strlen(*entry) + 1;
        }
    }
    key = malloc(capacity);
    if (key == NULL) {
        return NULL;
    }
    used = (size_t)snprintf(key, capacity, "%s", worker->directory);
    for (int i = 0; i < 2; i++) {
        for (char **entry = lists[i]; *entry != NULL; entry++) {
            used += (size_t)snprintf(key + used, capacity - used, "\n%s", *entry);
        }
    }
    return key;
}

/* True if a living worker belongs to the fork server. */
static bool fork_server_is_busy(const struct fork_server *fork_server)
{
    for (const struct worker *worker = fork_server->workers->all; worker != NULL;
         worker = worker->next) {
        if (worker->fork_server == fork_server) {
            return true;
        }
    }
    return false;
}

/* Kills and frees a fork server that is in no list. */
static void fork_server_free(struct fork_server *fork_server)
{
    if (fork_server->process.pid != 0) {
        fork_server_ended(fork_server);
    }
    free(fork_server->key);
    free(fork_server);
}

/* Frees the fork servers that were used least recently, beyond FORK_SERVERS_MAX. Each one costs a
 * process and a copy of its environment. */
static void fork_servers_forget(struct tdm__workers *workers)
{
    struct fork_server **link = &workers->fork_servers;
    uint32_t count = 0;

    while (*link != NULL) {
        struct fork_server *fork_server = *link;

        if (++count > FORK_SERVERS_MAX && !fork_server_is_busy(fork_server)) {
            *link = fork_server->next;
            fork_server_free(fork_server);
        } else {
            link = &fork_server->next;
        }
    }
}

/* Removes the fork server with the key `key` from the table's list and returns it; NULL if there is
 * none. */
static struct fork_server *fork_server_unlink(struct tdm__workers *workers, const char *key)
{
    struct fork_server **link = &workers->fork_servers;
    struct fork_server *fork_server;

    while (*link != NULL && strcmp((*link)->key, key) != 0) {
        link = &(*link)->next;
    }
    fork_server = *link;
    if (fork_server != NULL) {
        *link = fork_server->next;
    }
    return fork_server;
}

/* Returns the fork server for the worker's key (program, directory and environment) if the key was
 * used before. Otherwise remembers the key and returns NULL. */
static struct fork_server *fork_server_find(struct tdm__workers *workers,
                                            const struct worker *worker)
{
    char *key = worker_create_key(worker);
    struct fork_server *fork_server = key == NULL ? NULL : fork_server_unlink(workers, key);
    bool was_used = fork_server != NULL;

    if (was_used) {
        free(key);
    } else {
        fork_server = key == NULL ? NULL : calloc(1, sizeof(*fork_server));
        if (fork_server == NULL) {
            free(key);
            return NULL;
        }
        *fork_server =
            (struct fork_server){.workers = workers, .key = key, .process = {0, -1}, .control = -1};
    }
    fork_server->next = workers->fork_servers;
    workers->fork_servers = fork_server;
    fork_servers_forget(workers);
    return was_used ? fork_server : NULL;
}

/* ---- start ------------------------------------------------------------------------------ */

/* True if the spec sets environment variables of the dynamic linker, which reads them only when a
 * program is executed. */
static bool spec_requires_exec(const struct tdm__actor_spec *spec)
{
    for (uint32_t i = 0; i < spec->environment.count; i++) {
        if (strncmp(spec->environment.items[i], "LD_", strlen("LD_")) == 0) {
            return true;
        }
    }
    return false;
}

/* Starts the worker by a fork server or by exec. */
static tdm_status worker_start(struct tdm__workers *workers, struct worker *worker,
                               const struct tdm__actor_spec *spec)
{
    struct fork_server *fork_server =
        spec_requires_exec(spec) ? NULL : fork_server_find(workers, worker);

    if (fork_server == NULL || fork_server->runs_threads ||
        fork_server_request_worker(fork_server, worker) != TDM_OK) {
        return worker_execute_now(worker);
    }
    return TDM_OK;
}

/* Creates the connection between daemon and worker, and stores the descriptors to start the worker
 * with in worker->retry_fds. */
static tdm_status worker_connect(struct tdm__workers *workers, struct worker *worker,
                                 int bootstrap_fd)
{
    int line[2];
    tdm_status status;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) < 0) {
        return tdm__fail_errno(errno, "socketpair");
    }
    worker->retry_fds[0] = line[1];
    worker->retry_fds[1] = dup(bootstrap_fd);
    status = tdm__rpc_adopt(workers->rpc, line[0], true, &worker->public.conn);
    if (status != TDM_OK) {
        (void)close(line[0]);
        return status;
    }
    tdm__conn_on_closed(worker->public.conn, on_worker_conn_closed, worker);
    return TDM_OK;
}

/* Sets the process mark of the worker, by which the daemon recognises its processes:
 * "id.incarnation" of the actor. */
static void worker_set_mark(struct worker *worker, const struct tdm__worker_start_options *options)
{
    char id[TDM__ID_TEXT_BYTES];

    (void)snprintf(worker->mark, sizeof(worker->mark), "%s.%08x",
                   tdm__id_text(&options->spec->id, id), options->incarnation);
}

/* Sets the path of the worker's program and its arguments. */
static tdm_status worker_set_argv(struct worker *worker, const struct tdm__actor_spec *spec)
{
    uint32_t count = spec->program_arguments.count;

    worker->argv = calloc(count + 2, sizeof(*worker->argv));
    if (worker->argv == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the arguments of a worker's program");
    }
    for (uint32_t i = 0; i <= count; i++) {
        worker->argv[i] = strdup(i > 0                      ? spec->program_arguments.items[i - 1]
                                 : spec->program[0] != '\0' ? spec->program
                                                            : worker->workers->program);
        if (worker->argv[i] == NULL) {
            return tdm__fail(TDM_E_NOMEM, "an argument of a worker's program");
        }
    }
    return TDM_OK;
}

tdm_status tdm__workers_start(struct tdm__workers *workers,
                              const struct tdm__worker_start_options *options,
                              tdm__worker_ended_fn *fn, void *arg,
                              struct tdm__worker_process **worker_out)
{
    const struct tdm__actor_spec *spec = options->spec;
    struct worker *worker = calloc(1, sizeof(*worker));
    tdm_status status;

    if (worker == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a worker process");
    }
    *worker = (struct worker){.workers = workers,
                              .next = workers->all,
                              .process = {0, -1},
                              .fn = fn,
                              .arg = arg,
                              .retry_fds = {-1, -1, -1, -1}};
    workers->all = worker;
    worker_set_mark(worker, options);
    (void)snprintf(worker->directory, sizeof(worker->directory), "%s", spec->directory);
    (void)snprintf(worker->devices, sizeof(worker->devices), "%s",
                   options->devices == NULL ? "" : options->devices);
    status = worker_set_argv(worker, spec);
    if (status == TDM_OK) {
        status = tdm__worker_environment_create(spec, options->devices, &worker->retry_environment);
    }
    if (status == TDM_OK) {
        status = worker_connect(workers, worker, options->bootstrap_fd);
    }
    if (status == TDM_OK && workers->logs != NULL) {
        status = tdm__worker_logs_open(workers->logs, spec, worker->retry_fds + 2,
                                       &worker->public.output);
    }
    if (status == TDM_OK) {
        status = worker_start(workers, worker, spec);
    }
    if (status != TDM_OK) {
        worker_free(worker);
        return status;
    }
    *worker_out = &worker->public;
    return TDM_OK;
}

/* ---- all of them ------------------------------------------------------------------------ */

/* Runs the scheduled sweep for orphans. */
static void on_sweep_timer(void *arg)
{
    struct tdm__workers *workers = arg;

    workers->sweep_is_due = false;
    tdm__workers_sweep_orphans(workers);
}

tdm_status tdm__workers_create(struct tdm__rpc *rpc, const char *worker_program,
                               pid_t (*exempt_child)(void), struct tdm__workers **workers_out)
{
    struct tdm__workers *workers = calloc(1, sizeof(*workers));
    tdm_status status;

    if (workers == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the table of workers");
    }
    workers->rpc = rpc;
    workers->program = worker_program;
    workers->exempt_child = exempt_child;
    status = tdm__timer_create(tdm__rpc_loop(rpc), on_sweep_timer, workers, &workers->sweep_timer);
    if (status != TDM_OK) {
        free(workers);
        return status;
    }
    *workers_out = workers;
    return TDM_OK;
}

void tdm__workers_spare(struct tdm__workers *workers, bool (*fn)(void *arg, pid_t pid), void *arg)
{
    workers->is_spared = fn;
    workers->is_spared_arg = arg;
}

void tdm__workers_set_logs(struct tdm__workers *workers, struct tdm__worker_logs *logs)
{
    workers->logs = logs;
}

void tdm__workers_destroy(struct tdm__workers *workers)
{
    for (struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        tdm__worker_kill(&worker->public);
    }
    while (workers->fork_servers != NULL) {
        struct fork_server *fork_server = workers->fork_servers;

        workers->fork_servers = fork_server->next;
        fork_server_free(fork_server);
    }
    for (struct worker *worker = workers->all, *next; worker != NULL; worker = next) {
        int wait_status = SIGKILL;

        next = worker->next;
        if (worker->process.pid != 0) {
            (void)waitpid(worker->process.pid, &wait_status, 0);
        }
        worker_report_end(worker, wait_status);
    }
    tdm__timer_destroy(workers->sweep_timer);
    free(workers);
}

/* ---- orphans ---------------------------------------------------------------------------- */

/* True if process `pid` may belong to a living worker, by the mark in its environment. A process
 * whose mark cannot be read (its environment is empty or overwritten) may belong to any worker that
 * is older. */
static bool child_may_have_living_worker(const struct tdm__workers *workers, pid_t pid)
{
    char mark[TDM__PROCESS_MARK_BYTES];
    bool has_mark =
        tdm__process_environment_value(pid, TDM__PROCESS_MARK_VARIABLE, mark, sizeof(mark));
    int64_t started = has_mark ? 0 : tdm__process_start_ticks(pid);

    for (const struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        if (worker->has_ended || worker->process.pid == 0) {
            continue;
        }
        if (has_mark ? strcmp(worker->mark, mark) == 0
                     : tdm__process_start_ticks(worker->process.pid) <= started) {
            return true;
        }
    }
    return false;
}

/* True if the daemon's child `pid` is a worker, a fork server, the exempt child (Redis), or a child
 * of another part of the daemon. */
static bool workers_own_child(const struct tdm__workers *workers, pid_t pid)
{
    for (const struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        if (worker->process.pid == pid) {
            return true;
        }
    }
    for (const struct fork_server *fork_server = workers->fork_servers; fork_server != NULL;
         fork_server = fork_server->next) {
        if (fork_server->process.pid == pid) {
            return true;
        }
    }
    if (workers->is_spared != NULL && workers->is_spared(workers->is_spared_arg, pid)) {
        return true;
    }
    return workers->exempt_child != NULL && workers->exempt_child() == pid;
}

/* Kills child process `pid` of the daemon if it belongs to no living worker. */
static void sweep_child(void *arg, pid_t pid)
{
    struct tdm__workers *workers = arg;

    if (workers_own_child(workers, pid) || waitpid(pid, NULL, WNOHANG) == pid ||
        child_may_have_living_worker(workers, pid)) {
        return;
    }
    tdm__log(TDM__INFO, "workers", "killing pid %d, an orphan of a dead worker", (int)pid);
    (void)kill(pid, SIGKILL);
    tdm__workers_schedule_sweep(workers); /* The next sweep reaps the killed child. */
}

void tdm__workers_sweep_orphans(struct tdm__workers *workers)
{
    tdm__process_tree_each_child(sweep_child, workers);
}

void tdm__workers_schedule_sweep(struct tdm__workers *workers)
{
    if (!workers->sweep_is_due) {
        workers->sweep_is_due =
            tdm__timer_set(workers->sweep_timer, tdm__deadline_after(SWEEP_MS)) == TDM_OK;
    }
}
