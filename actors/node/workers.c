/* workers.c - the processes of a node: started by exec or by fork from a template. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/workers.h"

#include "actors/bootstrap.h"
#include "actors/node/logs.h"
#include "actors/node/worker_environment.h"
#include "actors/template.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/fdpass.h"
#include "runtime/log.h"
#include "runtime/process/family.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_FDS_MAX = 4, TEMPLATES_MAX = 16, SWEEP_MS = 100 };

/* A worker, and what is needed to start it again by exec if its template declines. */
struct worker {
    struct tdm__worker_process public; /* first: the two are cast into each other */
    struct tdm__workers *workers;      /* borrowed */
    struct worker *next;
    struct template *template; /* that forked it; NULL when it was executed */
    uint64_t serial;           /* of the order to the template */
    struct tdm__process process;
    struct tdm__watch *watch; /* of the pidfd, for an executed worker */
    tdm__worker_ended *fn;
    void *arg;
    bool killed; /* maybe before its pid was known */
    bool may_leave;
    bool ended;
    char mark[TDM__MARK_BYTES];
    /* Daemon's line, bootstrap, and, if they are kept, stdout and stderr, until the template
     * has answered. */
    int retry_fds[START_FDS_MAX];
    char **retry_environment; /* owned, NULL-terminated, its strings too */
    char program[TDM__PATH_BYTES];
    char directory[TDM__PATH_BYTES];
};

/* A key that was used: its template, if it has been used twice. */
struct template
{
    struct tdm__workers *workers; /* borrowed */
    struct template *next;
    char *key;                   /* owned: program, directory and environment */
    bool runs_threads;           /* it cannot fork: always execute */
    struct tdm__process process; /* pid 0 while there is none */
    int control;
    struct tdm__watch *watch;
};

struct tdm__workers {
    struct tdm__rpc *rpc;   /* borrowed */
    const char *program;    /* borrowed */
    struct tdm__logs *logs; /* borrowed; NULL when no output is kept */
    struct worker *all;
    struct template
        *templates; /* the last used first; at most TEMPLATES_MAX but for busy ones */
    uint64_t last_serial;
    pid_t (*spare_child)(void);
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
    tdm__watch_destroy(worker->watch);
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

static void on_line_closed(void *arg, struct tdm__conn *conn, tdm_status reason,
                           const char *detail)
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

void tdm__worker_may_leave(struct tdm__worker_process *public)
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
static tdm_status execute(const char *program, const char *directory, char **environment,
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
    TDM_TRY(execute(worker->program, worker->directory, worker->retry_environment, "worker",
                    worker->retry_fds, start_fds_count(worker), &worker->process));
    has_started(worker, worker->process.pid);
    worker->template = NULL;
    close_retry(worker);
    return tdm__watch_create(tdm__rpc_loop(worker->workers->rpc), worker->process.pidfd,
                             TDM__READABLE, on_pidfd, worker, &worker->watch);
}

/* ---- templates -------------------------------------------------------------------------- */

static struct worker *find_by_serial(struct tdm__workers *workers, uint64_t serial)
{
    for (struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        if (worker->serial == serial && worker->public.pid == 0) {
            return worker;
        }
    }
    return NULL;
}

static struct worker *find_forked(struct template *template, pid_t pid)
{
    for (struct worker *worker = template->workers->all; worker != NULL;
         worker = worker->next) {
        if (worker->template == template && worker->public.pid == pid) {
            return worker;
        }
    }
    return NULL;
}

/* The template cannot fork: what it was asked for is executed. */
static void execute_instead(struct worker *worker)
{
    if (execute_worker(worker) != TDM_OK) {
        tdm__log(TDM__ERROR, "workers", "%s", tdm_error_detail());
        worker_has_ended(worker, 127 << 8);
    }
}

static void template_ended(struct template *template)
{
    struct worker *next;
    int wait_status;

    tdm__watch_destroy(template->watch);
    template->watch = NULL;
    (void)close(template->control);
    tdm__process_signal(&template->process, SIGKILL);
    (void)waitpid(template->process.pid, &wait_status, 0);
    tdm__process_forget(&template->process);
    for (struct worker *worker = template->workers->all; worker != NULL; worker = next) {
        next = worker->next;
        if (worker->template == template && worker->public.pid == 0) {
            execute_instead(worker);
        } else if (worker->template == template) {
            worker_has_ended(worker, SIGKILL); /* they die with their parent */
        }
    }
}

/* Takes `pidfd`. */
static void on_forked(struct tdm__workers *workers, const struct tdm__template_news *news,
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
static void handle_refusal(struct template *template, const struct tdm__template_news *news)
{
    struct worker *worker = find_by_serial(template->workers, news->serial);

    tdm__log(TDM__INFO, "workers", "a template with %u threads cannot fork: executing",
             news->threads_count);
    if (worker != NULL) {
        execute_instead(worker);
    }
    if (news->threads_count != 1) {
        template->runs_threads = true;
        template_ended(template);
    }
}

static void handle_news(struct template *template, const struct tdm__template_news *news,
                        int pidfd)
{
    struct worker *worker;

    if (news->kind == TDM__TEMPLATE_FORKED && pidfd >= 0) {
        on_forked(template->workers, news, pidfd);
    } else if (news->kind == TDM__TEMPLATE_REFUSED) {
        handle_refusal(template, news);
    } else if (news->kind == TDM__TEMPLATE_ENDED) {
        worker = find_forked(template, news->pid);
        if (worker != NULL) {
            worker_has_ended(worker, news->wait_status);
        }
    }
}

static void on_news(void *arg, int fd, unsigned ready)
{
    struct template *template = arg;
    struct tdm__template_news news;
    size_t got = sizeof(news);
    int fds[1] = {-1};
    uint32_t fds_count = 1;

    (void)ready;
    if (tdm__fds_receive(fd, &news, &got, fds, &fds_count) != TDM_OK || got != sizeof(news)) {
        template_ended(template);
        return;
    }
    handle_news(template, &news, fds_count == 1 ? fds[0] : -1);
}

static tdm_status template_start(struct template *template, struct worker *worker)
{
    int control[2];
    tdm_status status;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0) {
        return tdm__fail_errno(errno, "socketpair");
    }
    status = execute(worker->program, worker->directory, worker->retry_environment, "template",
                     &control[1], 1, &template->process);
    (void)close(control[1]);
    if (status == TDM_OK) {
        template->control = control[0];
        status = tdm__watch_create(tdm__rpc_loop(template->workers->rpc), control[0],
                                   TDM__READABLE, on_news, template, &template->watch);
    }
    if (status != TDM_OK) {
        (void)close(control[0]);
        template->process = (struct tdm__process){0, -1};
    }
    return status;
}

static tdm_status fork_worker(struct template *template, struct worker *worker)
{
    struct tdm__template_order order = {.serial = ++template->workers->last_serial,
                                        .has_output = worker->public.output != NULL};

    memcpy(order.mark, worker->mark, sizeof(order.mark));

    if (template->process.pid == 0) {
        TDM_TRY(template_start(template, worker));
    }
    TDM_TRY(tdm__fds_send(template->control, &order, sizeof(order), worker->retry_fds,
                          start_fds_count(worker)));
    worker->serial = order.serial;
    worker->template = template;
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

static bool is_busy(const struct template *template)
{
    for (const struct worker *worker = template->workers->all; worker != NULL;
         worker = worker->next) {
        if (worker->template == template) {
            return true;
        }
    }
    return false;
}

static void template_free(struct template *template)
{
    if (template->process.pid != 0) {
        template_ended(template);
    }
    free(template->key);
    free(template);
}

/* Each keeps a process and a copy of its environment: those not used for longest leave. */
static void forget_templates(struct tdm__workers *workers)
{
    struct template **place = &workers->templates;
    uint32_t count = 0;

    while (*place != NULL) {
        struct template *template = *place;

        if (++count > TEMPLATES_MAX && !is_busy(template)) {
            *place = template->next;
            template_free(template);
        } else {
            place = &template->next;
        }
    }
}

static struct template *take_template(struct tdm__workers *workers, const char *key)
{
    struct template **place = &workers->templates;
    struct template *template;

    while (*place != NULL && strcmp((*place)->key, key) != 0) {
        place = &(*place)->next;
    }
    template = *place;
    if (template != NULL) {
        *place = template->next;
    }
    return template;
}

/* The template of the worker's key, if the key was used before; else remembers the key. */
static struct template *find_template(struct tdm__workers *workers, const struct worker *worker)
{
    char *key = make_key(worker);
    struct template *template = key == NULL ? NULL : take_template(workers, key);
    bool is_known = template != NULL;

    if (is_known) {
        free(key);
    } else {
        template = key == NULL ? NULL : calloc(1, sizeof(*template));
        if (template == NULL) {
            free(key);
            return NULL;
        }
        *template = (struct template){
            .workers = workers, .key = key, .process = {0, -1}, .control = -1};
    }
    template->next = workers->templates;
    workers->templates = template;
    forget_templates(workers);
    return is_known ? template : NULL;
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
    struct template *template = must_execute(spec) ? NULL : find_template(workers, worker);

    if (template == NULL || template->runs_threads || fork_worker(template, worker) != TDM_OK) {
        return execute_worker(worker);
    }
    return TDM_OK;
}

static tdm_status make_line(struct tdm__workers *workers, struct worker *worker,
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
    tdm__conn_on_closed(worker->public.conn, on_line_closed, worker);
    return TDM_OK;
}

static void set_mark(struct worker *worker, const struct tdm__worker_order *order)
{
    char id[TDM__ID_TEXT_BYTES];

    (void)snprintf(worker->mark, sizeof(worker->mark), "%s.%08x",
                   tdm__id_text(&order->spec->id, id), order->incarnation);
}

tdm_status tdm__workers_start(struct tdm__workers *workers,
                              const struct tdm__worker_order *order, tdm__worker_ended *fn,
                              void *arg, struct tdm__worker_process **worker_out)
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
        status =
            tdm__logs_open(workers->logs, spec, worker->retry_fds + 2, &worker->public.output);
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
                               pid_t (*spare_child)(void), struct tdm__workers **workers_out)
{
    struct tdm__workers *workers = calloc(1, sizeof(*workers));
    tdm_status status;

    if (workers == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the table of workers");
    }
    workers->rpc = rpc;
    workers->program = worker_program;
    workers->spare_child = spare_child;
    status =
        tdm__timer_create(tdm__rpc_loop(rpc), on_sweep_timer, workers, &workers->sweep_timer);
    if (status != TDM_OK) {
        free(workers);
        return status;
    }
    *workers_out = workers;
    return TDM_OK;
}

void tdm__workers_keep_output(struct tdm__workers *workers, struct tdm__logs *logs)
{
    workers->logs = logs;
}

void tdm__workers_destroy(struct tdm__workers *workers)
{
    for (struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        tdm__worker_kill(&worker->public);
    }
    while (workers->templates != NULL) {
        struct template *template = workers->templates;

        workers->templates = template->next;
        template_free(template);
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
    char mark[TDM__MARK_BYTES];
    bool has_mark = tdm__family_variable(pid, TDM__MARK_VARIABLE, mark, sizeof(mark));
    int64_t started = has_mark ? 0 : tdm__family_started(pid);

    for (const struct worker *worker = workers->all; worker != NULL; worker = worker->next) {
        if (worker->ended || worker->process.pid == 0) {
            continue;
        }
        if (has_mark ? strcmp(worker->mark, mark) == 0
                     : tdm__family_started(worker->process.pid) <= started) {
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
    for (const struct template *template = workers->templates; template != NULL;
         template = template->next) {
        if (template->process.pid == pid) {
            return true;
        }
    }
    return workers->spare_child != NULL && workers->spare_child() == pid;
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
    tdm__workers_sweep_soon(workers); /* it is reaped then */
}

void tdm__workers_sweep_orphans(struct tdm__workers *workers)
{
    tdm__family_each_child(sweep_child, workers);
}

void tdm__workers_sweep_soon(struct tdm__workers *workers)
{
    if (!workers->sweep_is_due) {
        workers->sweep_is_due =
            tdm__timer_set(workers->sweep_timer, tdm__deadline_in(SWEEP_MS)) == TDM_OK;
    }
}
