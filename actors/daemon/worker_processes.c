/* worker_processes.c - the processes of a node: started by exec or by fork from a fork_server. */
/* SPDX-License-Identifier: Apache-2.0 */
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

enum { START_FDS_MAX = 4, FORK_SERVERS_MAX = 16, SWEEP_MS = 100 };

/* A worker, and what is needed to start it again by exec if its fork_server declines. */
struct worker {
    struct tdm__worker_process public; /* first: the two are cast into each other */
    struct tdm__workers *workers;      /* borrowed */
    struct worker *next;
    struct fork_server *fork_server; /* that forked it; NULL when it was executed */
    uint64_t serial;                 /* of the order to the fork_server */
    struct tdm__process process;
    struct tdm__fd_watch *watch; /* of the pidfd, for an executed worker */
    tdm__worker_ended_fn *fn;
    void *arg;
    bool killed; /* maybe before its pid was known */
    bool may_leave;
    bool ended;
    char mark[TDM__PROCESS_MARK_BYTES];
    /* Daemon's line, bootstrap, and, if they are kept, stdout and stderr, until the fork_server
     * has answered. */
    int retry_fds[START_FDS_MAX];
    char **retry_environment; /* owned, NULL-terminated, its strings too */
    char program[TDM__PATH_BYTES];
    char directory[TDM__PATH_BYTES];
};

/* A key that was used: its fork_server, if it has been used twice. */
struct fork_server {
    struct tdm__workers *workers; /* borrowed */
    struct fork_server *next;
    char *key;                   /* owned: program, directory and environment */
    bool runs_threads;           /* it cannot fork: always execute */
    struct tdm__process process; /* pid 0 while there is none */
    int control;
    struct tdm__fd_watch *watch;
};

struct tdm__workers {
    struct tdm__rpc *rpc;          /* borrowed */
    const char *program;           /* borrowed */
    struct tdm__worker_logs *logs; /* borrowed; NULL when no output is kept */
    struct worker *all;
    struct fork_server
        *fork_servers; /* the last used first; at most FORK_SERVERS_MAX but for busy ones */
    uint64_t last_serial;
    pid_t (*exempt_child)(void);
    struct tdm__timer *sweep_timer; /* owned */
    bool sweep_is_due;
};

/* ---- the end of a worker ---------------------------------------------------------------- */

static void close_retry(struct worker *worker)
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

static void worker_free(struct worker *worker)
{
    struct worker **place = &worker->workers->all;

    while (*place != worker) {
        place = &(*place)->next;
    }
    *place = worker->next;
    tdm__fd_watch_destroy(worker->watch);
    if (worker->public.conn != NULL) {
        tdm__conn_on_closed(worker->public.conn, NULL, NULL);
        tdm__conn_close(worker->public.conn);
    }
    close_retry(worker);
    if (worker->public.output != NULL) {
        tdm__log_source_ended(worker->public.output);
    }
    tdm__process_forget(&worker->process);
    free(worker);
}

static void worker_has_ended(struct worker *worker, int wait_status)
{
    worker->ended = true;
    if (worker->public.output != NULL) {
        tdm__log_source_ended(worker->public.output); /* its last lines before the news */
    }
    worker->fn(worker->arg, &worker->public, wait_status);
    worker->public.output = NULL;
    worker_free(worker);
}

static void on_pidfd(void *arg, int fd, unsigned ready)
{
    struct worker *worker = arg;
    int wait_status;

    (void)fd;
    (void)ready;
    if (tdm__process_reap(&worker->process, &wait_status)) {
        worker_has_ended(worker, wait_status);
    }
}

static void on_line_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    struct worker *worker = arg;

    (void)conn;
    tdm__log(TDM__DEBUG, "workers", "line to pid %d closed: %s: %s", (int)worker->public.pid,
             tdm_strerror(reason), detail);
    worker->public.conn = NULL;
    if (!worker->may_leave) {
        tdm__worker_kill(&worker->public);
    }
}

void tdm__worker_expect_exit(struct tdm__worker_process *public)
{
    ((struct worker *)public)->may_leave = true;
}

void tdm__worker_kill(struct tdm__worker_process *public)
{
    struct worker *worker = (struct worker *)public;

    worker->killed = true;
    if (worker->process.pid != 0) {
        tdm__process_signal(&worker->process, SIGKILL);
    }
}

/* ---- exec ------------------------------------------------------------------------------- */

static void has_started(struct worker *worker, pid_t pid)
{
    worker->public.pid = pid;
    if (worker->public.output != NULL) {
        tdm__log_source_started(worker->public.output, pid);
    }
}

static uint32_t start_fds_count(const struct worker *worker)
{
    return worker->public.output != NULL ? START_FDS_MAX : 2;
}

/* Executes `program` with descriptors 3 (and 4, and stdout and stderr). */
static tdm_status worker_execute(const char *program, const char *directory, char **environment,
                                 const char *role, const int *fds, uint32_t fds_count,
                                 struct tdm__process *process_out)
{
    char role_text[64];
    char *argv[] = {(char *)(uintptr_t)program, NULL};
    struct tdm__spawn_options options = {.program = program,
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

static tdm_status execute_worker(struct worker *worker)
{
    tdm__worker_environment_mark(worker->retry_environment, worker->mark);
    TDM_TRY(worker_execute(worker->program, worker->directory, worker->retry_environment, "worker",
                           worker->retry_fds, start_fds_count(worker), &worker->process));
    has_started(worker, worker->process.pid);
    worker->fork_server = NULL;
    close_retry(worker);
    return tdm__fd_watch_create(tdm__rpc_loop(worker->workers->rpc), worker->process.pidfd,
                                TDM__READABLE, on_pidfd, worker, &worker->watch);
}

/* ---- fork_servers -------------------------------------------------------------------------- */

static struct worker *find_by_serial(struct tdm__workers *workers, uint64_t serial)
{
    for (struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        if (worker->serial == serial && worker->public.pid == 0) {
            return worker;
        }
    }
    return NULL;
}

static struct worker *find_forked(struct fork_server *fork_server, pid_t pid)
{
    for (struct worker *worker = fork_server->workers->all; worker != NULL; worker = worker->next) {
        if (worker->fork_server == fork_server && worker->public.pid == pid) {
            return worker;
        }
    }
    return NULL;
}

/* The fork_server cannot fork: what it was asked for is executed. */
static void execute_instead(struct worker *worker)
{
    if (execute_worker(worker) != TDM_OK) {
        tdm__log(TDM__ERROR, "workers", "%s", tdm_error_detail());
        worker_has_ended(worker, 127 << 8);
    }
}

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
            execute_instead(worker);
        } else if (worker->fork_server == fork_server) {
            worker_has_ended(worker, SIGKILL); /* they die with their parent */
        }
    }
}

/* Takes `pidfd`. */
static void on_forked(struct tdm__workers *workers, const struct tdm__fork_server_event *news,
                      int pidfd)
{
    struct worker *worker = find_by_serial(workers, news->serial);

    if (worker == NULL) {
        (void)close(pidfd);
        return;
    }
    has_started(worker, news->pid);
    worker->process.pid = news->pid;
    worker->process.pidfd = pidfd;
    close_retry(worker);
    if (worker->killed) {
        tdm__worker_kill(&worker->public);
    }
}

/* One that runs threads always will, and is of no use; else the machine refused. */
static void handle_refusal(struct fork_server *fork_server,
                           const struct tdm__fork_server_event *news)
{
    struct worker *worker = find_by_serial(fork_server->workers, news->serial);

    tdm__log(TDM__INFO, "workers", "a fork server with %u threads cannot fork: executing",
             news->threads_count);
    if (worker != NULL) {
        execute_instead(worker);
    }
    if (news->threads_count != 1) {
        fork_server->runs_threads = true;
        fork_server_ended(fork_server);
    }
}

static void handle_news(struct fork_server *fork_server, const struct tdm__fork_server_event *news,
                        int pidfd)
{
    struct worker *worker;

    if (news->kind == TDM__FORK_DONE && pidfd >= 0) {
        on_forked(fork_server->workers, news, pidfd);
    } else if (news->kind == TDM__FORK_REFUSED) {
        handle_refusal(fork_server, news);
    } else if (news->kind == TDM__FORK_CHILD_ENDED) {
        worker = find_forked(fork_server, news->pid);
        if (worker != NULL) {
            worker_has_ended(worker, news->wait_status);
        }
    }
}

static void on_news(void *arg, int fd, unsigned ready)
{
    struct fork_server *fork_server = arg;
    struct tdm__fork_server_event news;
    size_t got = sizeof(news);
    int fds[1] = {-1};
    uint32_t fds_count = 1;

    (void)ready;
    if (tdm__fds_receive(fd, &news, &got, fds, &fds_count) != TDM_OK || got != sizeof(news)) {
        fork_server_ended(fork_server);
        return;
    }
    handle_news(fork_server, &news, fds_count == 1 ? fds[0] : -1);
}

static tdm_status fork_server_start(struct fork_server *fork_server, struct worker *worker)
{
    int control[2];
    tdm_status status;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0) {
        return tdm__fail_errno(errno, "socketpair");
    }
    status = worker_execute(worker->program, worker->directory, worker->retry_environment,
                            "fork_server", &control[1], 1, &fork_server->process);
    (void)close(control[1]);
    if (status == TDM_OK) {
        fork_server->control = control[0];
        status = tdm__fd_watch_create(tdm__rpc_loop(fork_server->workers->rpc), control[0],
                                      TDM__READABLE, on_news, fork_server, &fork_server->watch);
    }
    if (status != TDM_OK) {
        (void)close(control[0]);
        fork_server->process = (struct tdm__process){0, -1};
    }
    return status;
}

static tdm_status fork_worker(struct fork_server *fork_server, struct worker *worker)
{
    struct tdm__fork_server_request order = {.serial = ++fork_server->workers->last_serial,
                                             .has_output = worker->public.output != NULL};

    memcpy(order.mark, worker->mark, sizeof(order.mark));

    if (fork_server->process.pid == 0) {
        TDM_TRY(fork_server_start(fork_server, worker));
    }
    TDM_TRY(tdm__fds_send(fork_server->control, &order, sizeof(order), worker->retry_fds,
                          start_fds_count(worker)));
    worker->serial = order.serial;
    worker->fork_server = fork_server;
    return TDM_OK;
}

static char *make_key(const struct worker *worker)
{
    size_t room = sizeof(worker->program) + sizeof(worker->directory) + 2;
    char *key;
    size_t used;

    for (char **entry = worker->retry_environment; *entry != NULL; entry++) {
        room += strlen(*entry) + 1;
    }
    key = malloc(room);
    if (key == NULL) {
        return NULL;
    }
    used = (size_t)snprintf(key, room, "%s\n%s", worker->program, worker->directory);
    for (char **entry = worker->retry_environment; *entry != NULL; entry++) {
        used += (size_t)snprintf(key + used, room - used, "\n%s", *entry);
    }
    return key;
}

static bool is_busy(const struct fork_server *fork_server)
{
    for (const struct worker *worker = fork_server->workers->all; worker != NULL;
         worker = worker->next) {
        if (worker->fork_server == fork_server) {
            return true;
        }
    }
    return false;
}

static void fork_server_free(struct fork_server *fork_server)
{
    if (fork_server->process.pid != 0) {
        fork_server_ended(fork_server);
    }
    free(fork_server->key);
    free(fork_server);
}

/* Each keeps a process and a copy of its environment: those not used for longest leave. */
static void fork_servers_forget(struct tdm__workers *workers)
{
    struct fork_server **place = &workers->fork_servers;
    uint32_t count = 0;

    while (*place != NULL) {
        struct fork_server *fork_server = *place;

        if (++count > FORK_SERVERS_MAX && !is_busy(fork_server)) {
            *place = fork_server->next;
            fork_server_free(fork_server);
        } else {
            place = &fork_server->next;
        }
    }
}

static struct fork_server *fork_server_take(struct tdm__workers *workers, const char *key)
{
    struct fork_server **place = &workers->fork_servers;
    struct fork_server *fork_server;

    while (*place != NULL && strcmp((*place)->key, key) != 0) {
        place = &(*place)->next;
    }
    fork_server = *place;
    if (fork_server != NULL) {
        *place = fork_server->next;
    }
    return fork_server;
}

/* The fork_server of the worker's key, if the key was used before; else remembers the key. */
static struct fork_server *fork_server_find(struct tdm__workers *workers,
                                            const struct worker *worker)
{
    char *key = make_key(worker);
    struct fork_server *fork_server = key == NULL ? NULL : fork_server_take(workers, key);
    bool is_known = fork_server != NULL;

    if (is_known) {
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
    return is_known ? fork_server : NULL;
}

/* ---- start ------------------------------------------------------------------------------ */

/* What the dynamic linker is told is told to each process anew. */
static bool must_execute(const struct tdm__actor_spec *spec)
{
    for (uint32_t i = 0; i < spec->environment_count; i++) {
        if (strncmp(spec->environment[i], "LD_", strlen("LD_")) == 0) {
            return true;
        }
    }
    return false;
}

static tdm_status start_process(struct tdm__workers *workers, struct worker *worker,
                                const struct tdm__actor_spec *spec)
{
    struct fork_server *fork_server = must_execute(spec) ? NULL : fork_server_find(workers, worker);

    if (fork_server == NULL || fork_server->runs_threads ||
        fork_worker(fork_server, worker) != TDM_OK) {
        return execute_worker(worker);
    }
    return TDM_OK;
}

static tdm_status make_line(struct tdm__workers *workers, struct worker *worker, int bootstrap_fd)
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
    tdm__conn_on_closed(worker->public.conn, on_line_closed, worker);
    return TDM_OK;
}

static void set_mark(struct worker *worker, const struct tdm__worker_start_options *order)
{
    char id[TDM__ID_TEXT_BYTES];

    (void)snprintf(worker->mark, sizeof(worker->mark), "%s.%08x",
                   tdm__id_text(&order->spec->id, id), order->incarnation);
}

tdm_status tdm__workers_start(struct tdm__workers *workers,
                              const struct tdm__worker_start_options *order,
                              tdm__worker_ended_fn *fn, void *arg,
                              struct tdm__worker_process **worker_out)
{
    const struct tdm__actor_spec *spec = order->spec;
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
    set_mark(worker, order);
    (void)snprintf(worker->program, sizeof(worker->program), "%s",
                   spec->program[0] != '\0' ? spec->program : workers->program);
    (void)snprintf(worker->directory, sizeof(worker->directory), "%s", spec->directory);
    status = tdm__worker_environment_create(spec, order->devices, &worker->retry_environment);
    if (status == TDM_OK) {
        status = make_line(workers, worker, order->bootstrap_fd);
    }
    if (status == TDM_OK && workers->logs != NULL) {
        status = tdm__worker_logs_open(workers->logs, spec, worker->retry_fds + 2,
                                       &worker->public.output);
    }
    if (status == TDM_OK) {
        status = start_process(workers, worker, spec);
    }
    if (status != TDM_OK) {
        worker_free(worker);
        return status;
    }
    *worker_out = &worker->public;
    return TDM_OK;
}

/* ---- all of them ------------------------------------------------------------------------ */

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
        worker_has_ended(worker, wait_status);
    }
    tdm__timer_destroy(workers->sweep_timer);
    free(workers);
}

/* ---- orphans ---------------------------------------------------------------------------- */

/* Those whose mark cannot be read any more (they were given an empty environment, or write
 * their title over it) may be of any worker that is older than they are. */
static bool may_be_of_living(const struct tdm__workers *workers, pid_t pid)
{
    char mark[TDM__PROCESS_MARK_BYTES];
    bool has_mark =
        tdm__process_environment_value(pid, TDM__PROCESS_MARK_VARIABLE, mark, sizeof(mark));
    int64_t started = has_mark ? 0 : tdm__process_start_ticks(pid);

    for (const struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        if (worker->ended || worker->process.pid == 0) {
            continue;
        }
        if (has_mark ? strcmp(worker->mark, mark) == 0
                     : tdm__process_start_ticks(worker->process.pid) <= started) {
            return true;
        }
    }
    return false;
}

static bool is_own(const struct tdm__workers *workers, pid_t pid)
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
    return workers->exempt_child != NULL && workers->exempt_child() == pid;
}

static void sweep_child(void *arg, pid_t pid)
{
    struct tdm__workers *workers = arg;

    if (is_own(workers, pid) || waitpid(pid, NULL, WNOHANG) == pid ||
        may_be_of_living(workers, pid)) {
        return;
    }
    tdm__log(TDM__INFO, "workers", "killing pid %d, an orphan of a dead worker", (int)pid);
    (void)kill(pid, SIGKILL);
    tdm__workers_schedule_sweep(workers); /* it is reaped then */
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
