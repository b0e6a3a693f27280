/* job_service.h - runs submitted jobs on a node: the service "job" of a daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_JOB_SERVICE_H
#define TDM_ACTORS_DAEMON_JOB_SERVICE_H

#include "actors/daemon/node_state.h"

/* Most bytes of a job's output that are kept on disk; the beginning is dropped first. */
#define TDM__JOB_LOG_BYTES (UINT64_C(1) << 30)
/* Most bytes that the output of all jobs of a node may take on disk together; that of ended jobs is
 * removed first. */
#define TDM__JOB_LOGS_TOTAL_BYTES (UINT64_C(4) << 30)

/* The submitted jobs of a node with their processes (job_table.h has their states). */
struct tdm__jobs;

/* Creates the submitted jobs of a node, node->jobs, and the folder of their output, "logs/jobs" in
 * the node's directory. node->workers must exist. */
tdm_status tdm__jobs_create(struct tdm__node *node);
/* Kills the jobs that are still running and frees node->jobs; does nothing if it is NULL. The
 * supervisor of the daemon ends what killed jobs leave. */
void tdm__jobs_destroy(struct tdm__node *node);
/* Stops all jobs of the node, by SIGTERM and after a grace time by SIGKILL. Does not wait. NULL is
 * allowed. */
void tdm__jobs_stop_all(struct tdm__jobs *jobs);
/* Returns whether a job of the node is running. NULL is allowed. */
bool tdm__jobs_are_running(const struct tdm__jobs *jobs);

/* The service "job": "job.submit", "job.describe", "job.stop", "job.list" and "job.read"
 * (runtime/messages/submission.def). Its `self` is node->jobs. */
extern const struct tdm__service_ops tdm__job_service;

#endif
