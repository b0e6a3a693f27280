/* job_table.c - the commands that were submitted to a node: their states, and how they ended. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The table is a list in the order of submission. It keeps no process and no file: job_service.c
 * starts the commands and reports to the table what happens. The states are those of Ray:
 *
 *     PENDING --> RUNNING --> SUCCEEDED | FAILED | STOPPED
 *        `------> FAILED (the command cannot be started)
 *
 * At most TDM__JOBS_ENDED_MAX ended jobs are remembered; each end may make the table forget the
 * oldest of them. */
#include "actors/daemon/job_table.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/process/spawn.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* All submitted jobs of a node; job_service.c owns it. */
struct tdm__job_table {
    struct tdm__submitted_job *first; /* Jobs in the order of submission, owned; NULL if none. */
    tdm__job_forgotten_fn *forgotten; /* Callback for each job that the table forgets. */
    void *arg;                        /* First argument of `forgotten`. */
};

tdm_status tdm__job_table_create(tdm__job_forgotten_fn *fn, void *arg,
                                 struct tdm__job_table **table_out)
{
    struct tdm__job_table *table = calloc(1, sizeof(*table));

    if (table == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the table of submitted jobs");
    }
    table->forgotten = fn;
    table->arg = arg;
    *table_out = table;
    return TDM_OK;
}

/* Frees one job, which is in no table any more. */
static void job_free(struct tdm__submitted_job *job)
{
    free(job->command);
    free(job);
}

void tdm__job_table_destroy(struct tdm__job_table *table)
{
    if (table == NULL) {
        return;
    }
    while (table->first != NULL) {
        struct tdm__submitted_job *job = table->first;

        table->first = job->next;
        job_free(job);
    }
    free(table);
}

/* Checks a submission id, which is part of a file's name. */
static tdm_status id_check(const char *id)
{
    size_t length = strlen(id);

    if (length == 0 || id[0] == '.' || id[0] == '-') {
        return tdm__fail(TDM_E_INVAL,
                         "the submission id \"%s\" is empty or begins with \".\" or \"-\"", id);
    }
    if (length >= TDM__SUBMISSION_ID_BYTES) {
        return tdm__fail(TDM_E_LIMIT, "the submission id has %zu bytes, at most %d", length,
                         (int)TDM__SUBMISSION_ID_BYTES - 1);
    }
    for (const char *byte = id; *byte != '\0'; byte++) {
        if (isalnum((unsigned char)*byte) == 0 && strchr("_-.", *byte) == NULL) {
            return tdm__fail(TDM_E_INVAL,
                             "the submission id \"%s\" has a character other than letters, digits, "
                             "\"_\", \"-\" and \".\"",
                             id);
        }
    }
    return TDM_OK;
}

/* Checks the texts of a new job, and whether the table may have one more. */
static tdm_status job_check(struct tdm__job_table *table, const char *id, const char *command)
{
    TDM_TRY(id_check(id));
    if (strlen(command) >= TDM__SUBMITTED_COMMAND_BYTES) {
        return tdm__fail(TDM_E_LIMIT, "the command has %zu bytes, at most %d: put it into a script",
                         strlen(command), (int)TDM__SUBMITTED_COMMAND_BYTES - 1);
    }
    if (tdm__job_table_find(table, id) != NULL) {
        return tdm__fail(TDM_E_EXISTS, "a job with the submission id %s exists: choose another id",
                         id);
    }
    if (tdm__job_table_running_count(table) >= TDM__JOBS_RUNNING_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%d jobs are running, at most %d: stop one, or wait",
                         (int)TDM__JOBS_RUNNING_MAX, (int)TDM__JOBS_RUNNING_MAX);
    }
    return TDM_OK;
}

tdm_status tdm__job_table_add(struct tdm__job_table *table, const char *id, const char *command,
                              int64_t now_ms, struct tdm__submitted_job **job_out)
{
    struct tdm__submitted_job **link = &table->first;
    struct tdm__submitted_job *job;

    TDM_TRY(job_check(table, id, command));
    job = calloc(1, sizeof(*job));
    if (job == NULL || (job->command = strdup(command)) == NULL) {
        free(job);
        return tdm__fail(TDM_E_NOMEM, "a submitted job");
    }
    (void)snprintf(job->id, sizeof(job->id), "%s", id);
    job->state = TDM__JOB_PENDING;
    job->submitted_ms = now_ms;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = job;
    *job_out = job;
    return TDM_OK;
}

struct tdm__submitted_job *tdm__job_table_find(struct tdm__job_table *table, const char *id)
{
    for (struct tdm__submitted_job *job = table->first; job != NULL; job = job->next) {
        if (strcmp(job->id, id) == 0) {
            return job;
        }
    }
    return NULL;
}

struct tdm__submitted_job *tdm__job_table_first(const struct tdm__job_table *table)
{
    return table->first;
}

uint32_t tdm__job_table_count(const struct tdm__job_table *table)
{
    uint32_t count = 0;

    for (const struct tdm__submitted_job *job = table->first; job != NULL; job = job->next) {
        count++;
    }
    return count;
}

uint32_t tdm__job_table_running_count(const struct tdm__job_table *table)
{
    uint32_t count = 0;

    for (const struct tdm__submitted_job *job = table->first; job != NULL; job = job->next) {
        count += tdm__job_has_ended(job) ? 0 : 1;
    }
    return count;
}

/* ---- states ----------------------------------------------------------------------------- */

bool tdm__job_has_ended(const struct tdm__submitted_job *job)
{
    return job->state != TDM__JOB_PENDING && job->state != TDM__JOB_RUNNING;
}

const char *tdm__job_state_name(enum tdm__job_state state)
{
    static const char *const names[] = {[TDM__JOB_PENDING] = "PENDING",
                                        [TDM__JOB_RUNNING] = "RUNNING",
                                        [TDM__JOB_SUCCEEDED] = "SUCCEEDED",
                                        [TDM__JOB_FAILED] = "FAILED",
                                        [TDM__JOB_STOPPED] = "STOPPED"};

    return names[state];
}

/* Forgets the oldest ended jobs, other than `spared`, until at most TDM__JOBS_ENDED_MAX are left.
 */
static void job_table_forget_oldest(struct tdm__job_table *table,
                                    const struct tdm__submitted_job *spared)
{
    uint32_t ended = tdm__job_table_count(table) - tdm__job_table_running_count(table);
    struct tdm__submitted_job **link = &table->first;

    while (*link != NULL && ended > TDM__JOBS_ENDED_MAX) {
        struct tdm__submitted_job *job = *link;

        if (job == spared || !tdm__job_has_ended(job)) {
            link = &job->next;
            continue;
        }
        *link = job->next;
        ended--;
        table->forgotten(table->arg, job);
        job_free(job);
    }
}

void tdm__job_started(struct tdm__submitted_job *job, pid_t pid)
{
    TDM_ASSERT(job->state == TDM__JOB_PENDING);
    job->state = TDM__JOB_RUNNING;
    job->pid = pid;
}

void tdm__job_not_started(struct tdm__job_table *table, struct tdm__submitted_job *job,
                          const char *text, int64_t now_ms)
{
    TDM_ASSERT(job->state == TDM__JOB_PENDING);
    job->state = TDM__JOB_FAILED;
    job->ended_ms = now_ms;
    (void)snprintf(job->message, sizeof(job->message), "the job could not be started: %s", text);
    job_table_forget_oldest(table, job);
}

void tdm__job_ended(struct tdm__job_table *table, struct tdm__submitted_job *job, int wait_status,
                    int64_t now_ms)
{
    char text[64];

    TDM_ASSERT(job->state == TDM__JOB_RUNNING);
    job->ended_ms = now_ms;
    job->wait_status = wait_status;
    (void)tdm__wait_status_text(wait_status, text, sizeof(text));
    if (job->stop_requested) {
        job->state = TDM__JOB_STOPPED;
        (void)snprintf(job->message, sizeof(job->message),
                       "the job was stopped; its command ended with %s", text);
    } else if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
        job->state = TDM__JOB_SUCCEEDED;
    } else {
        job->state = TDM__JOB_FAILED;
        (void)snprintf(job->message, sizeof(job->message), "the command ended with %s", text);
    }
    job_table_forget_oldest(table, job);
}
