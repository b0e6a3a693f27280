/* job_service.c - runs submitted jobs on a node: the service "job" of a daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A submitted job is a command for /bin/sh. The daemon executes its own program as a supervisor of
 * the command (runtime/process/command_supervisor.h), so that the whole process tree of a job ends
 * with the job, and jobs end with the daemon. The supervisor is a child of the daemon and watched
 * by its pidfd; its wait status is that of the command. SIGTERM to the supervisor stops the job.
 *
 * The processes of a job write to one file, "logs/jobs/ID.log" in the node's directory, which
 * "job.read" serves in pieces. So a job never waits for a reader. A timer bounds the files while
 * jobs are running. When the table forgets a job, its file is removed.
 *
 * job_table.c has the states of the jobs. Everything runs on the daemon's loop thread. */
#include "actors/daemon/job_service.h"

#include "actors/common/fork_server.h"
#include "actors/daemon/job_table.h"
#include "actors/daemon/log_files.h"
#include "actors/daemon/worker_processes.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "runtime/process/command_supervisor.h"
#include "runtime/process/environment.h"
#include "runtime/process/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Milliseconds from SIGTERM to SIGKILL when a job is stopped, as text; the same as in Ray. */
#define GRACE_MS_TEXT "3000"

/* Script that runs the command "$2" of a job with the module and the command `ray` of Tandem on its
 * paths, as `tandem env` sets them. "$1" is the path of the program tandem; where it or the Python
 * package is missing, the command runs without them. */
#define JOB_SCRIPT "eval \"$(\"$1\" env 2>/dev/null)\"; exec /bin/sh -c \"$2\""

enum {
    READ_BYTES_MAX = 1 << 20, /* Most bytes that one "job.read" replies. */
    BOUND_MS = 5000,          /* Time between two checks of the sizes of output files. */
    ENVIRONMENT_MAX = 4096    /* Most variables of a submitted job. */
};

/* Process of a submitted job that is running. */
struct job_process {
    struct job_process *next;       /* Next running job of the node. */
    struct tdm__jobs *jobs;         /* Jobs of the node, borrowed. */
    struct tdm__submitted_job *job; /* Job that the process runs; the table owns it. */
    struct tdm__process supervisor; /* Process that supervises the command. */
    struct tdm__fd_watch *watch;    /* Watch of the supervisor's pidfd, owned. */
};

/* The submitted jobs of a node with their processes. The node owns it. */
struct tdm__jobs {
    struct tdm__node *node;          /* Node of the jobs, borrowed. */
    struct tdm__job_table *table;    /* States of the jobs, owned. */
    struct job_process *processes;   /* Processes of the jobs that are running, owned. */
    struct tdm__timer *timer;        /* Timer that bounds the output files, owned. */
    char tandem[TDM__PATH_BYTES];    /* Path of the program tandem, beside the daemon's program. */
    char directory[TDM__PATH_BYTES]; /* Path of the folder with the output files. */
};

/* Returns the time of day in milliseconds since 1970. */
static int64_t time_of_day_ms(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* ---- output files ----------------------------------------------------------------------- */

/* Writes the path of the output file of a job to `path`. */
static void job_write_log_path(const struct tdm__jobs *jobs, const struct tdm__submitted_job *job,
                               char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES])
{
    (void)snprintf(path, TDM__PATH_BYTES + TDM__LOG_NAME_BYTES, "%s/%s.log", jobs->directory,
                   job->id);
}

/* Removes the output file of a job that the table forgets. */
static void on_job_forgotten(void *arg, const struct tdm__submitted_job *job)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];

    job_write_log_path(arg, job, path);
    (void)unlink(path);
}

/* Returns whether `name` is the output file of a running job; for tdm__log_files_prune(). */
static bool log_is_live(const void *arg, const char *name)
{
    const struct tdm__jobs *jobs = arg;

    for (const struct job_process *process = jobs->processes; process != NULL;
         process = process->next) {
        size_t length = strlen(process->job->id);

        if (strncmp(name, process->job->id, length) == 0 && strcmp(name + length, ".log") == 0) {
            return true;
        }
    }
    return false;
}

/* Bounds the output files, and does so again later while a job is running. */
static void on_bound_timer(void *arg)
{
    struct tdm__jobs *jobs = arg;
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];

    for (const struct job_process *process = jobs->processes; process != NULL;
         process = process->next) {
        job_write_log_path(jobs, process->job, path);
        tdm__log_file_bound(path, TDM__JOB_LOG_BYTES);
    }
    tdm__log_files_prune(jobs->directory, TDM__JOB_LOGS_TOTAL_BYTES, log_is_live, jobs);
    if (jobs->processes != NULL) {
        (void)tdm__timer_set(jobs->timer, tdm__deadline_after(BOUND_MS));
    }
}

/* ---- processes -------------------------------------------------------------------------- */

/* Returns the process of a job; NULL if the job is not running. */
static struct job_process *job_find_process(const struct tdm__jobs *jobs,
                                            const struct tdm__submitted_job *job)
{
    struct job_process *process = jobs->processes;

    while (process != NULL && process->job != job) {
        process = process->next;
    }
    return process;
}

/* Removes the process of a job from the list and frees it. The process must have been reaped. */
static void job_process_free(struct job_process *process)
{
    struct job_process **link = &process->jobs->processes;

    while (*link != process) {
        link = &(*link)->next;
    }
    *link = process->next;
    tdm__fd_watch_destroy(process->watch);
    tdm__process_forget(&process->supervisor);
    free(process);
}

/* Reaps the supervisor of a job whose pidfd says that it has ended, and records the job's end. */
static void on_supervisor_ended(void *arg, int fd, unsigned ready)
{
    struct job_process *process = arg;
    struct tdm__jobs *jobs = process->jobs;
    struct tdm__submitted_job *job = process->job;
    int wait_status;

    (void)fd;
    (void)ready;
    if (!tdm__process_reap(&process->supervisor, &wait_status)) {
        return;
    }
    job_process_free(process);
    tdm__job_ended(jobs->table, job, wait_status, time_of_day_ms());
    tdm__log(TDM__INFO, "jobs", "job %s: %s. %s", job->id, tdm__job_state_name(job->state),
             job->message);
    /* A supervisor that was killed has left the command's process tree to the daemon. */
    tdm__workers_schedule_sweep(jobs->node->workers);
}

/* Returns whether the daemon's child `pid` supervises a job, for the sweep for orphans. */
static bool jobs_own_child(void *arg, pid_t pid)
{
    const struct tdm__jobs *jobs = arg;

    for (const struct job_process *process = jobs->processes; process != NULL;
         process = process->next) {
        if (process->supervisor.pid == pid) {
            return true;
        }
    }
    return false;
}

/* Makes the path of the daemon's token file absolute for a job, which may have another working
 * directory. Does nothing if the daemon's environment names no such file. */
static tdm_status environment_set_token_file(struct tdm__environment *environment)
{
    const char *named = getenv("TANDEM_TOKEN_FILE");
    char *absolute = named == NULL || named[0] == '\0' ? NULL : realpath(named, NULL);
    char setting[TDM__PATH_BYTES + 32];

    if (absolute == NULL) {
        return TDM_OK;
    }
    (void)snprintf(setting, sizeof(setting), "TANDEM_TOKEN_FILE=%s", absolute);
    free(absolute);
    return tdm__environment_set(environment, setting);
}

/* Sets the variables of a job that the daemon decides: by which programs find this node and this
 * job. Variables of the user win only where the setting is a default. */
static tdm_status environment_set_own(struct tdm__environment *environment,
                                      const struct tdm__node *node)
{
    char setting[TDM__ADDRESS_BYTES + 32];

    (void)snprintf(setting, sizeof(setting), "RAY_ADDRESS=%s", node->record.unix_address);
    TDM_TRY(tdm__environment_set(environment, setting));
    (void)snprintf(setting, sizeof(setting), "TANDEM_ADDRESS=%s", node->record.unix_address);
    TDM_TRY(tdm__environment_set(environment, setting));
    /* Programs print at once, so that the output can be followed. */
    TDM_TRY(tdm__environment_set_default(environment, "PYTHONUNBUFFERED=1"));
    return tdm__environment_set_default(environment,
                                        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1");
}

/* Fills the environment of a job: that of the daemon, the job's own variables, and those that the
 * daemon decides. The caller clears it, also after a failure. */
static tdm_status job_environment_fill(const struct tdm__jobs *jobs,
                                       const struct tdm__job_submit_message *request,
                                       struct tdm__environment *environment)
{
    TDM_TRY(tdm__environment_set_all(environment, environ));
    TDM_TRY(environment_set_token_file(environment));
    for (uint32_t i = 0; i < request->environment.count; i++) {
        const char *setting;

        tdm__message_list_read(&request->environment, i, &setting, sizeof(setting));
        TDM_TRY(tdm__environment_set(environment, setting));
    }
    return environment_set_own(environment, jobs->node);
}

/* Executes the supervisor of a job's command with `log_fd` as its output. */
static tdm_status job_execute(const struct tdm__jobs *jobs, const struct tdm__submitted_job *job,
                              const struct tdm__job_submit_message *request, int log_fd,
                              struct tdm__process *process_out)
{
    const char *const words[] = {jobs->node->worker_program,
                                 TDM__SUPERVISE_COMMAND_WORD,
                                 GRACE_MS_TEXT,
                                 "/bin/sh",
                                 "-c",
                                 JOB_SCRIPT,
                                 "tandem-job",
                                 jobs->tandem,
                                 job->command,
                                 NULL};
    struct tdm__environment environment = {.settings = NULL};
    struct tdm__spawn_options options = {.program = jobs->node->worker_program,
                                         .argv = (char *const *)(uintptr_t)words,
                                         .output_fd = log_fd,
                                         .dies_with_parent = true};
    tdm_status status = job_environment_fill(jobs, request, &environment);

    if (status == TDM_OK) {
        options.environment = environment.settings;
        options.working_directory =
            request->working_directory[0] == '\0' ? NULL : request->working_directory;
        status = tdm__spawn(&options, process_out);
    }
    tdm__environment_clear(&environment);
    return status;
}

/* Opens the job's output file, starts the job's process and watches it. After a failure
 * the supervisor has been killed, and the sweep for orphans reaps it. */
static tdm_status job_start(struct tdm__jobs *jobs, struct tdm__submitted_job *job,
                            const struct tdm__job_submit_message *request)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    struct job_process *process = calloc(1, sizeof(*process));
    tdm_status status;
    int log_fd;

    if (process == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the process of a job");
    }
    *process = (struct job_process){
        .next = jobs->processes, .jobs = jobs, .job = job, .supervisor = {0, -1}};
    jobs->processes = process;
    job_write_log_path(jobs, job, path);
    status = tdm__log_file_open(path, &log_fd);
    if (status == TDM_OK) {
        status = job_execute(jobs, job, request, log_fd, &process->supervisor);
        (void)close(log_fd);
    }
    if (status == TDM_OK) {
        status = tdm__fd_watch_create(jobs->node->loop, process->supervisor.pidfd, TDM__READABLE,
                                      on_supervisor_ended, process, &process->watch);
    }
    if (status != TDM_OK) {
        tdm__process_signal(&process->supervisor, SIGKILL);
        job_process_free(process);
        tdm__workers_schedule_sweep(jobs->node->workers);
        return status;
    }
    tdm__job_started(job, process->supervisor.pid);
    /* Without the timer the output is not bounded, which is no reason to fail. */
    (void)tdm__timer_set(jobs->timer, tdm__deadline_after(BOUND_MS));
    return TDM_OK;
}

/* Stops a job: its supervisor sends SIGTERM to the command, and SIGKILL to the process tree after
 * the grace time. Does nothing if the job has ended. */
static void job_stop(struct tdm__jobs *jobs, struct tdm__submitted_job *job)
{
    struct job_process *process = job_find_process(jobs, job);

    if (process != NULL) {
        job->stop_requested = true;
        tdm__process_signal(&process->supervisor, SIGTERM);
    }
}

/* ---- creation and destruction ------------------------------------------------------------ */

/* Creates the folder of the output files in that of the workers' log files. */
static tdm_status jobs_create_directory(struct tdm__jobs *jobs)
{
    char logs[TDM__PATH_BYTES];
    int length =
        snprintf(jobs->directory, sizeof(jobs->directory), "%s/logs/jobs", jobs->node->directory);

    if (length < 0 || (size_t)length >= sizeof(jobs->directory)) {
        return tdm__fail(TDM_E_LIMIT, "the node's directory has %zu bytes, its path is too long",
                         strlen(jobs->node->directory));
    }
    (void)snprintf(logs, sizeof(logs), "%.*s", length - (int)strlen("/jobs"), jobs->directory);
    if ((mkdir(logs, 0700) < 0 && errno != EEXIST) ||
        (mkdir(jobs->directory, 0700) < 0 && errno != EEXIST)) {
        return tdm__fail_errno(errno, "mkdir %s", jobs->directory);
    }
    return TDM_OK;
}

/* Writes the path of the program tandem, which is beside the daemon's program. */
static void jobs_find_tandem(struct tdm__jobs *jobs)
{
    const char *daemon = jobs->node->worker_program;
    const char *slash = strrchr(daemon, '/');

    (void)snprintf(jobs->tandem, sizeof(jobs->tandem), "%.*s/tandem",
                   slash == NULL ? 1 : (int)(slash - daemon), slash == NULL ? "." : daemon);
}

tdm_status tdm__jobs_create(struct tdm__node *node)
{
    struct tdm__jobs *jobs = calloc(1, sizeof(*jobs));

    if (jobs == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the submitted jobs of a node");
    }
    jobs->node = node;
    node->jobs = jobs; /* After a failure, tdm__jobs_destroy() frees what exists. */
    jobs_find_tandem(jobs);
    TDM_TRY(jobs_create_directory(jobs));
    TDM_TRY(tdm__job_table_create(on_job_forgotten, jobs, &jobs->table));
    TDM_TRY(tdm__timer_create(node->loop, on_bound_timer, jobs, &jobs->timer));
    tdm__workers_spare(node->workers, jobs_own_child, jobs);
    return TDM_OK;
}

void tdm__jobs_destroy(struct tdm__node *node)
{
    struct tdm__jobs *jobs = node->jobs;

    if (jobs == NULL) {
        return;
    }
    while (jobs->processes != NULL) {
        struct job_process *process = jobs->processes;

        tdm__process_signal(&process->supervisor, SIGKILL);
        (void)waitpid(process->supervisor.pid, NULL, 0);
        job_process_free(process);
    }
    tdm__timer_destroy(jobs->timer);
    tdm__job_table_destroy(jobs->table);
    free(jobs);
    node->jobs = NULL;
}

void tdm__jobs_stop_all(struct tdm__jobs *jobs)
{
    for (struct job_process *process = jobs == NULL ? NULL : jobs->processes; process != NULL;
         process = process->next) {
        job_stop(jobs, process->job);
    }
}

bool tdm__jobs_are_running(const struct tdm__jobs *jobs)
{
    return jobs != NULL && jobs->processes != NULL;
}

/* ---- the service "job" ------------------------------------------------------------------ */

/* Fills the message that describes a job. Its texts are borrowed from the job and from `path`, to
 * which the path of the job's output is written. */
static void job_describe(const struct tdm__jobs *jobs, const struct tdm__submitted_job *job,
                         char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES],
                         struct tdm__job_description_message *message)
{
    job_write_log_path(jobs, job, path);
    *message = (struct tdm__job_description_message){.submission_id = job->id,
                                                     .command = job->command,
                                                     .state = tdm__job_state_name(job->state),
                                                     .message = job->message,
                                                     .submitted_ms = job->submitted_ms,
                                                     .ended_ms = job->ended_ms,
                                                     .has_ended = tdm__job_has_ended(job),
                                                     .wait_status = job->wait_status,
                                                     .pid = job->pid,
                                                     .log_path = path};
}

/* Replies to a call with the description of a job. */
static void job_reply(const struct tdm__jobs *jobs, const struct tdm__submitted_job *job,
                      struct tdm__incoming_call *incoming)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    struct tdm__job_description_message message;

    job_describe(jobs, job, path, &message);
    tdm__incoming_reply_message(incoming, tdm__job_description_table(), &message);
}

/* Finds the job that a request names. */
static tdm_status jobs_find(struct tdm__jobs *jobs, const char *id,
                            struct tdm__submitted_job **job_out)
{
    *job_out = tdm__job_table_find(jobs->table, id);
    return *job_out != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_NOT_FOUND,
                           "job %s does not exist on node %s; `tandem job list` prints those that "
                           "do",
                           id, jobs->node->record.name);
}

/* Checks what the table does not know about a new job. */
static tdm_status submit_check(const struct tdm__jobs *jobs,
                               const struct tdm__job_submit_message *request)
{
    struct stat directory;

    if (jobs->node->stopping) {
        return tdm__fail(TDM_E_STATE, "node %s is stopping and accepts no jobs",
                         jobs->node->record.name);
    }
    if (request->environment.count > ENVIRONMENT_MAX) {
        return tdm__fail(TDM_E_LIMIT, "the job has %u environment variables, at most %d",
                         request->environment.count, (int)ENVIRONMENT_MAX);
    }
    if (request->working_directory[0] != '\0' &&
        (stat(request->working_directory, &directory) < 0 || !S_ISDIR(directory.st_mode))) {
        return tdm__fail(TDM_E_NOT_FOUND, "the working directory %s is no directory of node %s",
                         request->working_directory, jobs->node->record.name);
    }
    return TDM_OK;
}

/* Serves "job.submit": adds a job to the table and starts it. A job that cannot be started is
 * FAILED, which is no failure of the call. */
static tdm_status serve_submit(struct tdm__jobs *jobs, struct tdm__incoming_call *incoming)
{
    struct tdm__job_submit_message request;
    struct tdm__submitted_job *job;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__job_submit_table(), &request));
    TDM_TRY(submit_check(jobs, &request));
    TDM_TRY(tdm__job_table_add(jobs->table, request.submission_id, request.command,
                               time_of_day_ms(), &job));
    if (job_start(jobs, job, &request) != TDM_OK) {
        tdm__job_not_started(jobs->table, job, tdm_error_detail(), time_of_day_ms());
    }
    job_reply(jobs, job, incoming);
    return TDM_OK;
}

/* Serves "job.describe", and with `stops` also "job.stop". */
static tdm_status serve_query(struct tdm__jobs *jobs, struct tdm__incoming_call *incoming,
                              bool stops)
{
    struct tdm__job_query_message request;
    struct tdm__submitted_job *job;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__job_query_table(), &request));
    TDM_TRY(jobs_find(jobs, request.submission_id, &job));
    if (stops) {
        job_stop(jobs, job);
    }
    job_reply(jobs, job, incoming);
    return TDM_OK;
}

/* Serves "job.list". */
static tdm_status serve_list(const struct tdm__jobs *jobs, struct tdm__incoming_call *incoming)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    struct tdm__job_list_message reply = {.jobs = {.count = tdm__job_table_count(jobs->table)}};
    tdm_writer *descriptions;

    TDM_TRY(tdm_writer_create(&descriptions));
    for (const struct tdm__submitted_job *job = tdm__job_table_first(jobs->table); job != NULL;
         job = job->next) {
        struct tdm__job_description_message message;

        job_describe(jobs, job, path, &message);
        (void)tdm__job_description_encode(&message, descriptions);
    }
    reply.jobs.packed = tdm_writer_bytes(descriptions);
    tdm__incoming_reply_message(incoming, tdm__job_list_table(), &reply);
    tdm_writer_destroy(descriptions);
    return TDM_OK;
}

/* Serves "job.read". The state is read before the output: a reader that sees an ended job and the
 * end of its output has read everything. */
static tdm_status serve_read(struct tdm__jobs *jobs, struct tdm__incoming_call *incoming)
{
    char path[TDM__PATH_BYTES + TDM__LOG_NAME_BYTES];
    struct tdm__log_file_range range = {0};
    struct tdm__job_output_message reply;
    struct tdm__job_read_message request;
    struct tdm__submitted_job *job;
    char *bytes;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__job_read_table(), &request));
    TDM_TRY(jobs_find(jobs, request.submission_id, &job));
    if (request.bytes_max > READ_BYTES_MAX || request.offset > INT64_MAX) {
        return tdm__fail(TDM_E_LIMIT, "offset %llu, %llu bytes of output at once: at most %d",
                         (unsigned long long)request.offset, (unsigned long long)request.bytes_max,
                         (int)READ_BYTES_MAX);
    }
    bytes = malloc(request.bytes_max + 1);
    if (bytes == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a piece of a job's output");
    }
    job_describe(jobs, job, path, &reply.job);
    range.offset = request.offset;
    (void)tdm__log_file_read(path, request.offset, bytes, request.bytes_max, &range);
    reply.offset = range.offset;
    reply.text = (struct tdm_bytes){bytes, range.bytes_count};
    reply.file_bytes = range.file_bytes; /* A file that was removed counts as empty. */
    tdm__incoming_reply_message(incoming, tdm__job_output_table(), &reply);
    free(bytes);
    return TDM_OK;
}

/* Serves the calls of the service "job". */
static void job_serve(void *self, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);
    tdm_status status;

    if (strcmp(method, "job.submit") == 0) {
        status = serve_submit(self, incoming);
    } else if (strcmp(method, "job.describe") == 0) {
        status = serve_query(self, incoming, false);
    } else if (strcmp(method, "job.stop") == 0) {
        status = serve_query(self, incoming, true);
    } else if (strcmp(method, "job.list") == 0) {
        status = serve_list(self, incoming);
    } else if (strcmp(method, "job.read") == 0) {
        status = serve_read(self, incoming);
    } else {
        status = tdm__fail(TDM_E_NOT_FOUND, "%s", method);
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

const struct tdm__service_ops tdm__job_service = {.prefix = "job", .serve = job_serve};
