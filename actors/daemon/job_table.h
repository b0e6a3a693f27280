/* job_table.h - the commands that were submitted to a node: their states, and how they ended. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_JOB_TABLE_H
#define TDM_ACTORS_DAEMON_JOB_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <tandem/error.h>

/* A submitted job is a command that `tandem job submit` or `ray job submit` has started on a node.
 * It is another thing than the job of a driver (runtime context) and the job of a job file
 * (colocate/job). */

enum {
    /* Capacity in bytes of a submission id, the NUL included. */
    TDM__SUBMISSION_ID_BYTES = 129,
    /* Largest size in bytes of a submitted command, the NUL included: the longest argument that
     * execve(2) accepts. */
    TDM__SUBMITTED_COMMAND_BYTES = 128 << 10,
    TDM__JOBS_RUNNING_MAX = 256, /* Most submitted jobs of a node that have not ended. */
    TDM__JOBS_ENDED_MAX = 100    /* Most ended jobs that a node remembers. */
};

/* State of a submitted job, with the names of Ray. */
enum tdm__job_state {
    TDM__JOB_PENDING,   /* The process of the job was not started yet. */
    TDM__JOB_RUNNING,   /* The process of the job is running, or being stopped. */
    TDM__JOB_SUCCEEDED, /* The command has ended with exit code 0. */
    TDM__JOB_FAILED,    /* The command could not start, failed, or was killed. */
    TDM__JOB_STOPPED    /* The job has ended after it was asked to stop. */
};

/* A submitted job. The table owns it; it stays valid until the table forgets it. */
struct tdm__submitted_job {
    struct tdm__submitted_job *next;   /* Next job of the table, submitted later. */
    char id[TDM__SUBMISSION_ID_BYTES]; /* Submission id of the job. */
    char *command;                     /* Submitted command, for /bin/sh; owned. */
    enum tdm__job_state state;         /* State of the job. */
    /* Why the job is in its state, in words; "" if the state says it all. */
    char message[512];
    int64_t submitted_ms; /* Time of day of the submission, in milliseconds since 1970. */
    int64_t ended_ms;     /* Time of day of the end in milliseconds since 1970; 0 until the end. */
    int wait_status;      /* Wait status of the command; 0 if it has not ended or never started. */
    pid_t pid;            /* Process that supervises the command; 0 if none was started. */
    bool stop_requested;  /* True once the job was asked to stop. */
};

/* All submitted jobs of a node. */
struct tdm__job_table;

/* Callback for a job that the table forgets, called before the job is freed. */
typedef void tdm__job_forgotten_fn(void *arg, const struct tdm__submitted_job *job);

/* Creates an empty table, which the caller destroys. fn(arg, ...) is called for each job that the
 * table forgets, but not when the table is destroyed. */
tdm_status tdm__job_table_create(tdm__job_forgotten_fn *fn, void *arg,
                                 struct tdm__job_table **table_out);
/* Frees the table with its jobs. NULL is allowed. */
void tdm__job_table_destroy(struct tdm__job_table *table);

/* Adds a job in the state PENDING and stores it in `*job_out` (borrowed). The texts are copied;
 * `now_ms` is the time of day in milliseconds since 1970. Returns TDM_E_INVAL for an id that is
 * empty or has characters other than letters, digits, "_", "-" and "." (not in front); TDM_E_EXISTS
 * for an id that the table has; and TDM_E_LIMIT for a text that is too long, or if
 * TDM__JOBS_RUNNING_MAX jobs have not ended. */
tdm_status tdm__job_table_add(struct tdm__job_table *table, const char *id, const char *command,
                              int64_t now_ms, struct tdm__submitted_job **job_out);
/* Returns the job with this submission id, or NULL. */
struct tdm__submitted_job *tdm__job_table_find(struct tdm__job_table *table, const char *id);
/* Returns the job that was submitted first, or NULL. The field `next` leads to the others. */
struct tdm__submitted_job *tdm__job_table_first(const struct tdm__job_table *table);
/* Returns the number of jobs in the table. */
uint32_t tdm__job_table_count(const struct tdm__job_table *table);
/* Returns the number of jobs that have not ended. */
uint32_t tdm__job_table_running_count(const struct tdm__job_table *table);

/* Records that the process `pid` runs the job: PENDING becomes RUNNING. */
void tdm__job_started(struct tdm__submitted_job *job, pid_t pid);
/* Records that the job could not be started, for the reason `text`: PENDING becomes FAILED. The
 * table may forget older jobs, never this one. */
void tdm__job_not_started(struct tdm__job_table *table, struct tdm__submitted_job *job,
                          const char *text, int64_t now_ms);
/* Records that the job's command and its whole process tree have ended with a wait status: RUNNING
 * becomes SUCCEEDED, FAILED, or STOPPED if the job was asked to stop. The table may forget older
 * jobs, never this one. */
void tdm__job_ended(struct tdm__job_table *table, struct tdm__submitted_job *job, int wait_status,
                    int64_t now_ms);
/* Returns whether the job has ended, so that its state does not change any more. */
bool tdm__job_has_ended(const struct tdm__submitted_job *job);
/* Returns Ray's name of a state, such as "RUNNING"; static. */
const char *tdm__job_state_name(enum tdm__job_state state);

#endif
