/* worker_processes.c - the worker processes of a node: starting, watching and reaping them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A worker is executed, or forked from a fork server (actors/common/fork_server.h) that has the
 * same key: program, its arguments, directory and environment. The first worker of a key is
 * executed; the second starts the fork server. If a fork server cannot fork (it runs threads) or
 * ends, the pending workers are executed from what was kept for a retry.
 *
 * The parent of each worker is a reaper (runtime/process/reaper.h), a child of the daemon for an
 * executed worker and of the fork server for a forked one. It reports the start and the end of its
 * worker on a socket, the last after it has killed and reaped all that the worker has started. Each
 * end is reported exactly once by tdm__worker_ended_fn; if processes of the tree cannot be killed,
 * a second callback follows when the last one has ended.
 *
 * Reapers die with their fork server, and fork servers with the daemon. If a reaper is killed, its
 * worker dies, and the rest of the tree becomes children of the daemon, a subreaper. The daemon has
 * started none of them itself; workers_kill_strays() kills such children. Everything runs on the
 * daemon's loop thread. */

#include "actors/daemon/worker_processes.h"

#include "actors/daemon/fork_servers.h"
#include "actors/daemon/worker_environment.h"
#include "actors/daemon/worker_logs.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/fdpass.h"
#include "runtime/log.h"
#include "runtime/process/fence.h"
#include "runtime/process/process_tree.h"
#include "runtime/process/reaper.h"
#include "runtime/text.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    START_FDS_MAX = 4, /* Most descriptors that are passed to a new worker. */
    /* Longest time in milliseconds that a fork server which has forked before takes for a worker.
     */
    FORK_MS = 5000,
    STRAYS_MS = 10 /* Milliseconds between two scans for children without a reaper. */
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
     * It is released once. */
    struct tdm__fork_server *fork_server;
    /* Process id and pidfd of the worker; 0 and -1 until they are known. */
    struct tdm__process process;
    pid_t reaper;     /* Process id of the reaper of an executed worker; 0 for a forked worker. */
    int reaper_pidfd; /* Pidfd of the reaper, owned; -1 until it is known. */
    int report_fd;    /* Socket on which the reaper reports, owned; -1 if there is no reaper. */
    /* Watch of `report_fd`, owned; NULL if there is no reaper. */
    struct tdm__fd_watch *watch;
    tdm__worker_ended_fn *fn; /* Callback that is called when the worker has ended. */
    void *arg;                /* First argument of `fn`. */
    /* True once the daemon decided to kill the worker, maybe before its pid was known. */
    bool is_killed;
    /* True if the worker may close its connection to the daemon, because it was asked to exit. */
    bool exit_is_expected;
    bool has_ended; /* True once the reaper has reported that the worker has ended. */
    /* True once the end of the worker has been reported by `fn`. */
    bool end_is_reported;
    bool may_be_restarted; /* True if the actor has restarts. */
    /* Page with the workers that must not outlive the lease of the node, borrowed; NULL if this
     * worker may. */
    struct tdm__fence *fence;
    /* True if processes of the tree have not ended long after they were killed. */
    bool tree_is_late;
    /* Time in milliseconds on CLOCK_MONOTONIC when the reaper was found to be killed, before the
     * end of its worker was known; 0 otherwise. */
    int64_t reaper_lost_ms;
    int wait_status; /* Status of the worker from waitpid(), once it has ended. */
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
    /* Working directory of the worker. */
    char directory[TDM__PATH_BYTES];
};

/* The workers and fork servers of a daemon. struct tdm__node owns it. */
struct tdm__workers {
    struct tdm__rpc *rpc; /* RPC endpoint of the daemon, borrowed. */
    const char *program;  /* Program for actors whose spec names none, borrowed. */
    /* Log files of workers, borrowed; NULL if workers print where the daemon does. */
    struct tdm__worker_logs *logs;
    struct worker *all;                     /* List of the worker processes, owned. */
    struct tdm__fork_servers *fork_servers; /* Fork servers of the node, owned. */
    /* Returns the pid of a child of the daemon that is no worker, or 0; may be NULL. */
    pid_t (*exempt_child)(void);
    /* Callback for trees that outlive the reported end of their worker; NULL if not set. */
    tdm__worker_tree_ended_fn *tree_ended;
    void *tree_ended_arg; /* First argument of `tree_ended`, borrowed. */
    /* Timer of the next scan for children without a reaper, owned. */
    struct tdm__timer *strays_timer;
    /* Returns whether the daemon has started its child `pid` for another purpose; NULL if it starts
     * no such children. */
    bool (*is_spared)(void *arg, pid_t pid);
    void *is_spared_arg; /* First argument of `is_spared`, borrowed. */
};

static void on_report(void *arg, int fd, unsigned ready);

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

/* Closes the daemon's end of the socket on which the worker's reaper reports. */
static void worker_close_reports(struct worker *worker)
{
    tdm__fd_watch_destroy(worker->watch);
    worker->watch = NULL;
    if (worker->report_fd >= 0) {
        (void)close(worker->report_fd);
    }
    worker->report_fd = -1;
}

/* Ends the relation of a worker to its fork server, if it has one. */
static void worker_release_fork_server(struct worker *worker)
{
    if (worker->fork_server != NULL) {
        tdm__fork_server_release(worker->fork_server);
    }
    worker->fork_server = NULL;
}

/* Removes a worker from the table and frees it. */
static void worker_free(struct worker *worker)
{
    struct worker **link = &worker->workers->all;

    while (*link != worker) {
        link = &(*link)->next;
    }
    *link = worker->next;
    if (worker->public.conn != NULL) {
        tdm__conn_on_closed(worker->public.conn, NULL, NULL);
        tdm__conn_close(worker->public.conn);
    }
    tdm__fence_remove(worker->fence, worker->public.pid);
    worker_close_retry(worker);
    tdm__worker_environment_destroy(worker->argv);
    if (worker->public.output != NULL) {
        tdm__log_source_ended(worker->public.output);
    }
    tdm__process_forget(&worker->process);
    worker_close_reports(worker);
    if (worker->reaper != 0) {
        (void)kill(worker->reaper, SIGKILL);
        (void)waitpid(worker->reaper, NULL, 0);
    }
    if (worker->reaper_pidfd >= 0) {
        (void)close(worker->reaper_pidfd);
    }
    worker_release_fork_server(worker);
    free(worker);
}

/* Calls the callback for the end of a reaped worker. */
static void worker_report_end(struct worker *worker)
{
    worker->end_is_reported = true;
    if (worker->public.output != NULL) {
        tdm__log_source_ended(worker->public.output); /* The last lines come before the report. */
    }
    worker->fn(worker->arg, &worker->public, worker->wait_status);
    worker->public.output = NULL;
}

/* Handles the end of the last process of a worker's tree: reports the end of the worker, or that of
 * its tree if the worker's was reported before, and frees the worker. */
static void worker_tree_ended(struct worker *worker)
{
    const struct tdm__workers *workers = worker->workers;

    worker->public.left_count = 0;
    if (!worker->end_is_reported) {
        worker_report_end(worker);
    } else {
        tdm__log(TDM__WARN, "workers", "the last process that pid %d had left has ended",
                 (int)worker->public.pid);
        if (workers->tree_ended != NULL) {
            workers->tree_ended(workers->tree_ended_arg, &worker->public);
        }
    }
    worker_free(worker);
}

/* Handles a tree of which `left_count` processes were killed and have not ended; `left_pid` is one
 * of them. Reports the end of the worker, unless its actor may be restarted: the next incarnation
 * has the same ID, under which the memory of this one is still charged. The worker stays in the
 * table until the last process has ended. */
static void worker_tree_is_late(struct worker *worker, uint32_t left_count, pid_t left_pid)
{
    if (worker->tree_is_late) {
        return;
    }
    worker->tree_is_late = true;
    tdm__log(TDM__WARN, "workers",
             "pid %d has ended; %u processes that it left, such as pid %d, have not ended %d ms "
             "after SIGKILL; the worker's GPU memory stays charged until they end",
             (int)worker->public.pid, left_count, (int)left_pid, (int)TDM__REAPER_PATIENCE_MS);
    if (!worker->may_be_restarted) {
        worker->public.left_count = left_count;
        worker_report_end(worker);
    }
}

/* Continues a reaper that was stopped, for example by a signal to all processes of the program. The
 * end of the worker is known only by the report of its reaper. */
static void worker_continue_reaper(const struct worker *worker)
{
    const struct tdm__process reaper = {.pidfd = worker->reaper_pidfd};

    tdm__process_signal(&reaper, SIGCONT);
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
    worker_continue_reaper(worker);
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
        worker_continue_reaper(worker);
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

/* Handles the report that the worker was started. Takes ownership of the pidfds. */
static void worker_started(struct worker *worker, pid_t pid,
                           const struct tdm__reaper_pidfds *pidfds)
{
    worker_set_pid(worker, pid);
    worker->process = (struct tdm__process){pid, pidfds->worker};
    worker->reaper_pidfd = pidfds->reaper;
    worker_close_retry(worker);
    worker->is_killed = worker->is_killed || !tdm__fence_covers(worker->fence, pid);
    if (worker->is_killed) {
        tdm__worker_kill(&worker->public);
    }
}

/* Returns the number of descriptors that are passed to the worker at its start. */
static uint32_t worker_start_fds_count(const struct worker *worker)
{
    return worker->public.output != NULL ? START_FDS_MAX : 2;
}

/* Returns the program of a worker that has not started yet. */
static struct tdm__worker_program worker_program(const struct worker *worker)
{
    return (struct tdm__worker_program){worker->argv, worker->directory, worker->retry_environment};
}

/* Creates the socket on which the worker's reaper reports; the caller closes the reaper's end. An
 * earlier socket is closed. */
static tdm_status worker_open_reports(struct worker *worker, int *reapers_end_out)
{
    int ends[2];
    tdm_status status;

    worker_close_reports(worker);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        return tdm__fail_errno(errno, "socketpair");
    }
    status = tdm__fd_watch_create(tdm__rpc_loop(worker->workers->rpc), ends[0], TDM__READABLE,
                                  on_report, worker, &worker->watch);
    if (status != TDM_OK) {
        (void)close(ends[0]);
        (void)close(ends[1]);
        return status;
    }
    worker->report_fd = ends[0];
    *reapers_end_out = ends[1];
    return TDM_OK;
}

/* Executes the worker's program below a reaper, which reports to `reapers_end`. */
static tdm_status worker_spawn(struct worker *worker, int reapers_end)
{
    struct tdm__spawn_options options = {.fds = {worker->retry_fds[0], worker->retry_fds[1]},
                                         .fds_count = 2,
                                         .output_fd = worker->retry_fds[2],
                                         .report_fd = reapers_end};
    const struct tdm__worker_program program = worker_program(worker);
    bool has_devices = worker->devices[0] != '\0';
    struct tdm__process reaper;
    tdm_status status;

    options.error_fd = worker->public.output != NULL ? worker->retry_fds[3] : 0;
    if (has_devices) {
        tdm__worker_environment_add(worker->retry_environment, worker->devices);
    }
    status = tdm__worker_program_execute(&program, "worker", &options, &reaper);
    if (has_devices) {
        tdm__worker_environment_drop_last(worker->retry_environment);
    }
    TDM_TRY(status);
    worker->reaper = reaper.pid;
    tdm__process_forget(&reaper);
    return TDM_OK;
}

/* Starts the worker by executing its program, without a fork server. */
static tdm_status worker_execute_now(struct worker *worker)
{
    struct tdm__reaper_report report = {.kind = TDM__REAPER_REFUSED};
    int reapers_end = -1;
    struct tdm__reaper_pidfds pidfds;
    tdm_status status;

    worker_release_fork_server(worker);
    TDM_TRY(worker_open_reports(worker, &reapers_end));
    status = worker_spawn(worker, reapers_end);
    (void)close(reapers_end);
    TDM_TRY(status);
    TDM_TRY(tdm__reaper_receive(worker->report_fd, &report, &pidfds));
    if (report.kind != TDM__REAPER_STARTED) {
        return tdm__fail(TDM_E_IO, "the reaper of a worker could not fork");
    }
    worker_started(worker, report.pid, &pidfds);
    return TDM_OK;
}

/* ---- fork servers ----------------------------------------------------------------------- */

/* Starts a worker by executing its program, because the fork server could not fork it. */
static void worker_execute_instead(struct worker *worker)
{
    if (worker_execute_now(worker) != TDM_OK) {
        tdm__log(TDM__ERROR, "workers", "%s", tdm_error_detail());
        worker->wait_status = 127 << 8;
        worker_tree_ended(worker);
    }
}

/* Handles the report that a worker could not be forked. A fork server that runs threads will never
 * be able to fork, so it is ended; otherwise the kernel refused for lack of resources. */
static void worker_on_refusal(struct worker *worker, uint32_t threads_count)
{
    tdm__log(TDM__INFO, "workers", "a fork server with %u threads cannot fork: executing",
             threads_count);
    if (threads_count != 1 && worker->fork_server != NULL) {
        tdm__fork_server_disable(worker->fork_server);
    }
    worker_execute_instead(worker);
}

/* Executes the workers that a fork server has not forked, because it does not reply. A worker whose
 * report has come and only was not read yet is left alone. */
static void on_fork_server_silent(void *arg, struct tdm__fork_server *fork_server)
{
    struct tdm__workers *workers = arg;
    struct worker *next;

    for (struct worker *worker = workers->all; worker != NULL; worker = next) {
        struct pollfd report = {.fd = worker->report_fd, .events = POLLIN};

        next = worker->next;
        if (worker->fork_server == fork_server && worker->process.pid == 0 &&
            poll(&report, 1, 0) == 0) {
            worker_execute_instead(worker);
        }
    }
}

/* ---- reports of reapers ----------------------------------------------------------------- */

/* Logs which processes that a worker had left were killed and reaped. */
static void log_reaped(const struct worker *worker, const struct tdm__reaped *reaped)
{
    char list[TDM__REAPED_PIDS_MAX * 12];
    struct tdm__text text = tdm__text_init(list, sizeof(list));

    for (uint32_t i = 0; i < reaped->count && i < TDM__REAPED_PIDS_MAX; i++) {
        tdm__text_add(&text, " %d", reaped->pids[i]);
    }
    tdm__log(TDM__INFO, "workers",
             "pid %d has ended; %u processes that it left were killed and reaped: pid%s%s",
             (int)worker->public.pid, reaped->count, list,
             reaped->count > TDM__REAPED_PIDS_MAX ? " and others" : "");
}

/* Handles the report that a worker has ended: all processes that it left have been reaped, or some
 * do not end. */
static void worker_on_ended(struct worker *worker, const struct tdm__reaper_report *report)
{
    worker->has_ended = true;
    worker->wait_status = report->wait_status;
    if (report->reaped.count > 0) {
        log_reaped(worker, &report->reaped);
    }
    if (report->left_count > 0) {
        worker_tree_is_late(worker, report->left_count, report->left_pid);
    }
}

/* Handles the end of a worker's reaper. The tree has ended, unless the reaper was killed: then a
 * worker that was not forked yet is executed, and for any other one the daemon takes the place of
 * the reaper. */
static void worker_on_reaper_ended(struct worker *worker)
{
    worker_close_reports(worker);
    if (worker->reaper != 0) {
        (void)waitpid(worker->reaper, NULL, 0);
        worker->reaper = 0;
    }
    if (worker->process.pid == 0) {
        worker_execute_instead(worker);
    } else if (worker->has_ended) {
        worker_tree_ended(worker);
    } else {
        worker->wait_status = SIGKILL; /* The kernel kills a worker whose reaper has ended. */
        worker->reaper_lost_ms = tdm__clock_ms();
        (void)tdm__timer_set(worker->workers->strays_timer, tdm__deadline_after(0));
    }
}

/* Receives one report of a worker's reaper, or finds that the reaper has ended. */
static void on_report(void *arg, int fd, unsigned ready)
{
    struct worker *worker = arg;
    struct tdm__reaper_report report;
    struct tdm__reaper_pidfds pidfds;
    bool is_report = tdm__reaper_receive(fd, &report, &pidfds) == TDM_OK;

    (void)ready;
    if (is_report && worker->fork_server != NULL && worker->process.pid == 0) {
        tdm__fork_server_replied(worker->fork_server);
    }
    if (!is_report) {
        worker_on_reaper_ended(worker);
    } else if (report.kind == TDM__REAPER_STARTED) {
        worker_started(worker, report.pid, &pidfds);
    } else if (report.kind == TDM__REAPER_REFUSED) {
        worker_on_refusal(worker, report.threads_count);
    } else {
        worker_on_ended(worker, &report);
    }
}

/* ---- starting from fork servers --------------------------------------------------------- */

/* Asks the fork server to fork the worker; starts the fork server if necessary. */
static tdm_status fork_server_request_worker(struct tdm__fork_server *fork_server,
                                             struct worker *worker)
{
    const struct tdm__worker_program program = worker_program(worker);
    struct tdm__fork_server_request request = {.has_output = worker->public.output != NULL};
    int fds[START_FDS_MAX + 1];
    tdm_status status;

    memcpy(request.devices, worker->devices, sizeof(request.devices));
    memcpy(fds + 1, worker->retry_fds, sizeof(worker->retry_fds));
    TDM_TRY(worker_open_reports(worker, &fds[0]));
    status = tdm__fork_server_send(fork_server, &program, &request, fds,
                                   worker_start_fds_count(worker) + 1);
    (void)close(fds[0]);
    TDM_TRY(status);
    worker->fork_server = fork_server;
    return TDM_OK;
}

/* Returns the fork server for the worker's key; NULL if the worker must be executed. */
static struct tdm__fork_server *fork_server_find(struct tdm__workers *workers,
                                                 const struct worker *worker)
{
    return tdm__fork_servers_find(
        workers->fork_servers, tdm__worker_environment_create_key(worker->directory, worker->argv,
                                                                  worker->retry_environment));
}

/* ---- start ------------------------------------------------------------------------------ */

/* Starts the worker by a fork server or by exec. */
static tdm_status worker_start(struct tdm__workers *workers, struct worker *worker,
                               const struct tdm__actor_spec *spec)
{
    struct tdm__fork_server *fork_server =
        tdm__worker_requires_exec(spec) ? NULL : fork_server_find(workers, worker);

    if (fork_server == NULL || fork_server_request_worker(fork_server, worker) != TDM_OK) {
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

/* Returns the working directory of a worker. */
static const char *choose_directory(const struct tdm__worker_start_options *options)
{
    const struct tdm__actor_spec *spec = options->spec;

    return spec->directory_is_default && access(spec->directory, X_OK) != 0
               ? options->node_directory
               : spec->directory;
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
                              .report_fd = -1,
                              .reaper_pidfd = -1,
                              .may_be_restarted = spec->max_restarts != 0,
                              .fence = options->fence,
                              .retry_fds = {-1, -1, -1, -1}};
    workers->all = worker;
    (void)snprintf(worker->directory, sizeof(worker->directory), "%s", choose_directory(options));
    (void)snprintf(worker->devices, sizeof(worker->devices), "%s",
                   options->devices == NULL ? "" : options->devices);
    status = tdm__worker_create_argv(spec, workers->program, &worker->argv);
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

/* ---- children without a reaper ---------------------------------------------------------- */

/* True if the daemon has started its child `pid` itself: a reaper, a fork server, a child of
 * another part of the daemon, or the exempt child (Redis). `arg` is the table of workers. */
static bool workers_own_child(void *arg, pid_t pid)
{
    const struct tdm__workers *workers = arg;

    for (const struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        if (worker->reaper == pid) {
            return true;
        }
    }
    if (tdm__fork_servers_own(workers->fork_servers, pid)) {
        return true;
    }
    if (workers->is_spared != NULL && workers->is_spared(workers->is_spared_arg, pid)) {
        return true;
    }
    return workers->exempt_child != NULL && workers->exempt_child() == pid;
}

/* True if the worker's reaper was killed, and it may still have to hand its children over to the
 * daemon. */
static bool worker_awaits_reapers_end(const struct worker *worker)
{
    struct pollfd ended = {.fd = worker->reaper_pidfd, .events = POLLIN};

    return worker->reaper_lost_ms != 0 && poll(&ended, 1, 0) == 0;
}

/* Kills and reaps all children that the daemon did not start, once all killed reapers have handed
 * their children over. Returns the number of processes that have not ended, with the process id of
 * one of them in `left_out`. */
static uint32_t workers_kill_strays(struct tdm__workers *workers, pid_t *left_out)
{
    uint32_t left_count = 0;

    *left_out = 0;
    for (const struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        if (worker_awaits_reapers_end(worker)) {
            left_count++;
            *left_out = worker->process.pid;
        }
    }
    return left_count > 0 ? left_count
                          : tdm__process_tree_kill_others(workers_own_child, workers, left_out);
}

/* Kills children without a reaper. When none is left, reports the ends of the workers whose reapers
 * were killed; before, the ends of those that have waited long. */
static void on_strays_timer(void *arg)
{
    struct tdm__workers *workers = arg;
    struct worker *next;
    pid_t stray;
    uint32_t strays_count = workers_kill_strays(workers, &stray);

    for (struct worker *worker = workers->all; worker != NULL; worker = next) {
        next = worker->next;
        if (worker->reaper_lost_ms == 0) {
            continue;
        }
        if (strays_count == 0) {
            worker_tree_ended(worker);
        } else if (tdm__clock_ms() - worker->reaper_lost_ms > TDM__REAPER_PATIENCE_MS) {
            worker_tree_is_late(worker, strays_count, stray);
        }
    }
    if (strays_count > 0) {
        (void)tdm__timer_set(workers->strays_timer, tdm__deadline_after(STRAYS_MS));
    }
}

/* ---- all of them ------------------------------------------------------------------------ */

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
    status =
        tdm__timer_create(tdm__rpc_loop(rpc), on_strays_timer, workers, &workers->strays_timer);
    if (status == TDM_OK) {
        status = tdm__fork_servers_create(tdm__rpc_loop(rpc), FORK_MS, on_fork_server_silent,
                                          workers, &workers->fork_servers);
    }
    if (status != TDM_OK) {
        tdm__timer_destroy(workers->strays_timer);
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

void tdm__workers_on_tree_ended(struct tdm__workers *workers, tdm__worker_tree_ended_fn *fn,
                                void *arg)
{
    workers->tree_ended = fn;
    workers->tree_ended_arg = arg;
}

/* Waits for the reports of a started worker's reaper until it has ended, at most until
 * `deadline_ms`. */
static void worker_await_reaper(struct worker *worker, int64_t deadline_ms)
{
    struct pollfd socket = {.fd = worker->report_fd, .events = POLLIN};
    struct tdm__reaper_report report;
    struct tdm__reaper_pidfds pidfds;

    while (worker->report_fd >= 0 &&
           poll(&socket, 1, (int)tdm__deadline_remaining_ms(deadline_ms)) > 0 &&
           tdm__reaper_receive(worker->report_fd, &report, &pidfds) == TDM_OK) {
        if (report.kind == TDM__REAPER_WORKER_ENDED) {
            worker->wait_status = report.wait_status;
        }
    }
}

void tdm__workers_destroy(struct tdm__workers *workers)
{
    int64_t deadline_ms = tdm__deadline_after(TDM__REAPER_PATIENCE_MS);

    for (struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        tdm__worker_kill(&worker->public);
    }
    while (workers->all != NULL) {
        struct worker *worker = workers->all;

        worker->wait_status = SIGKILL;
        if (worker->process.pid != 0) { /* Any other one dies with its fork server. */
            worker_await_reaper(worker, deadline_ms);
        }
        worker_tree_ended(worker);
    }
    tdm__fork_servers_destroy(workers->fork_servers);
    tdm__timer_destroy(workers->strays_timer);
    free(workers);
}

void tdm__workers_schedule_sweep(struct tdm__workers *workers)
{
    (void)tdm__timer_set(workers->strays_timer, tdm__deadline_after(0));
}
