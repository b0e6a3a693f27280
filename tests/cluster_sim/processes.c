/* processes.c - the workers of the simulated machines: what spawn.h and fence.h do here. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cluster_sim/processes.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/fdpass.h"
#include "runtime/process/reaper.h"
#include "runtime/process/spawn.h"
#include "tests/cluster_sim/network.h"
#include "tests/cluster_sim/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_PID = 1 << 23, REAPERS = 1 << 22, LOOK_AGAIN_MS = 1000, ENDED_LOOK_MS = 50 };

static struct {
    struct sim_workers all;
    int32_t last_pid;
    int null_fd; /* Stands for pidfds, which nobody polls here. */
    bool at_once[MACHINES_MAX + 1];
} processes;

static struct sim_worker *find_worker(int32_t pid)
{
    struct sim_worker *worker;

    TAILQ_FOREACH(worker, &processes.all, link)
    {
        if (worker->pid == pid) {
            return worker;
        }
    }
    return NULL;
}

const struct sim_workers *processes_all(void)
{
    return &processes.all;
}

uint64_t processes_started_count(void)
{
    return (uint64_t)(processes.last_pid - FIRST_PID);
}

/* ---- reports of reapers ------------------------------------------------------------------ */

static void report(int report_fd, const struct tdm__reaper_report *what, uint32_t fds_count)
{
    const int fds[2] = {processes.null_fd, processes.null_fd};

    (void)tdm__fds_send(report_fd, what, sizeof(*what), fds, fds_count);
}

static void report_end(struct sim_worker *worker, int wait_status)
{
    const struct tdm__reaper_report ended = {.kind = TDM__REAPER_WORKER_ENDED,
                                             .wait_status = wait_status};

    if (worker->report_fd >= 0) {
        report(worker->report_fd, &ended, 0);
        (void)close(worker->report_fd);
        worker->report_fd = -1;
    }
}

void processes_worker_ended(struct sim_worker *worker, int wait_status)
{
    report_end(worker, worker->is_killed ? SIGKILL : wait_status);
    TAILQ_REMOVE(&processes.all, worker, link);
    tdm__actor_spec_destroy(worker->bootstrap.spec);
    free(worker);
}

/* ---- spawn.h ---------------------------------------------------------------------------- */

tdm_status tdm__spawn(const struct tdm__spawn_options *options, struct tdm__process *process_out)
{
    struct tdm__reaper_report started = {.kind = TDM__REAPER_STARTED};
    struct sim_worker *worker = calloc(1, sizeof(*worker));

    TDM_ASSERT(worker != NULL);
    if (options->report_fd == 0 || options->fds_count < 2) {
        free(worker);
        return tdm__fail(TDM_E_NOT_FOUND, "%s cannot be simulated", options->program);
    }
    TDM_ASSERT(tdm__bootstrap_read(options->fds[1], &worker->bootstrap) == TDM_OK);
    worker->pid = ++processes.last_pid;
    worker->machine = sim_process_machine(sim_self());
    worker->line_fd = fcntl(options->fds[0], F_DUPFD_CLOEXEC, 0);
    worker->report_fd = fcntl(options->report_fd, F_DUPFD_CLOEXEC, 0);
    TDM_ASSERT(worker->line_fd >= 0 && worker->report_fd >= 0);
    TAILQ_INSERT_TAIL(&processes.all, worker, link);
    started.pid = worker->pid;
    report(worker->report_fd, &started, 2);
    worker_start(worker);
    *process_out = (struct tdm__process){worker->pid + REAPERS, -1};
    return TDM_OK;
}

bool tdm__process_reap(struct tdm__process *process, int *wait_status_out)
{
    (void)process;
    *wait_status_out = 0;
    return true;
}

static void kill_worker(struct sim_worker *worker)
{
    worker->is_killed = true;
    sim_process_kill(worker->process);
    if (processes.at_once[worker->machine]) {
        report_end(worker, SIGKILL);
    }
}

void tdm__process_signal(const struct tdm__process *process, int signal_number)
{
    struct sim_worker *worker = find_worker(process->pid);

    TDM_ASSERT(signal_number == SIGKILL || signal_number == SIGCONT);
    if (worker != NULL && signal_number == SIGKILL) { /* No simulated process is ever stopped. */
        kill_worker(worker);
    }
}

void tdm__process_forget(struct tdm__process *process)
{
    if (process->pidfd >= 0) {
        (void)close(process->pidfd);
    }
    *process = (struct tdm__process){0, -1};
}

const char *tdm__wait_status_text(int wait_status, char *text, size_t text_bytes)
{
    (void)snprintf(text, text_bytes, "status %d", wait_status);
    return text;
}

/* ---- fence.h ---------------------------------------------------------------------------- */

enum { FENCED_MAX = 256 };
struct tdm__fence {
    int64_t end_ms;
    int32_t pids[FENCED_MAX]; /* 0 in free places. */
};

tdm_status tdm__fence_create(struct tdm__fence **fence_out)
{
    *fence_out = calloc(1, sizeof(**fence_out));
    TDM_ASSERT(*fence_out != NULL);
    return TDM_OK;
}

void tdm__fence_set_end(struct tdm__fence *fence, int64_t end_ms)
{
    fence->end_ms = end_ms;
}

bool tdm__fence_covers(struct tdm__fence *fence, pid_t pid)
{
    for (uint32_t i = 0; fence != NULL && i < FENCED_MAX; i++) {
        if (fence->pids[i] == 0) {
            fence->pids[i] = pid;
            return true;
        }
    }
    return fence == NULL;
}

void tdm__fence_remove(struct tdm__fence *fence, pid_t pid)
{
    for (uint32_t i = 0; fence != NULL && i < FENCED_MAX; i++) {
        if (fence->pids[i] == pid) {
            fence->pids[i] = 0;
        }
    }
}

int tdm__fence_enforce(struct tdm__fence *fence, int64_t now_ms)
{
    if (fence->end_ms == 0 || fence->end_ms > now_ms) {
        return fence->end_ms == 0 || fence->end_ms - now_ms > LOOK_AGAIN_MS
                   ? LOOK_AGAIN_MS
                   : (int)(fence->end_ms - now_ms);
    }
    for (uint32_t i = 0; i < FENCED_MAX; i++) {
        struct sim_worker *worker = fence->pids[i] == 0 ? NULL : find_worker(fence->pids[i]);

        if (worker != NULL) {
            kill_worker(worker);
        }
    }
    return ENDED_LOOK_MS;
}

/* ---- log files --------------------------------------------------------------------------- */

int watch_nothing(int fd, const char *path, uint32_t mask) __asm__("__wrap_inotify_add_watch");

/* Daemons are not told that their log files change, so that the level of the log has no influence
 * on the history. */
int watch_nothing(int fd, const char *path, uint32_t mask)
{
    (void)fd;
    (void)path;
    (void)mask;
    return 0;
}

/* ---- machines --------------------------------------------------------------------------- */

void processes_kill_machine(uint32_t machine)
{
    struct sim_worker *worker;

    TAILQ_FOREACH(worker, &processes.all, link)
    {
        if (worker->machine == machine) {
            kill_worker(worker);
        }
    }
}

void processes_stop_machine(uint32_t machine, bool stopped)
{
    struct sim_worker *worker;

    TAILQ_FOREACH(worker, &processes.all, link)
    {
        if (worker->machine == machine) {
            sim_process_stop(worker->process, stopped);
        }
    }
}

void processes_end_at_once(uint32_t machine, bool at_once)
{
    processes.at_once[machine] = at_once;
}

void processes_begin(void)
{
    memset(&processes, 0, sizeof(processes));
    TAILQ_INIT(&processes.all);
    processes.last_pid = FIRST_PID;
    processes.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    TDM_ASSERT(processes.null_fd >= 0);
}

void processes_end(void)
{
    TDM_ASSERT(TAILQ_EMPTY(&processes.all));
    (void)close(processes.null_fd);
}
