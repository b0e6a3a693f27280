/* restart_policy.h - decides whether a job whose run has failed starts its ranks again. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_RESTART_POLICY_H
#define TDM_COLOCATE_JOB_RESTART_POLICY_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* Counts the restarts of one job. All functions are pure. The controller owns it. */
struct tdm__restart_policy {
    /* How often the job may be restarted (job.max_restarts). */
    uint32_t restarts_max;
    /* How often it was restarted. */
    uint32_t restarts_count;
    /* How often it was restarted since it last completed a step. */
    uint32_t fruitless_count;
};

/* Returns whether a failure with this status has a cause that new ranks may not meet again. Such
 * causes are the end of a process or a node, a connection that was cut, and a wait that was too
 * long. TDM_E_ABORTED counts as well: worker_group.h reports it only if no rank has a cause of its
 * own. That is so if the connection between two ranks that both live has broken. */
bool tdm__restart_policy_covers(tdm_status status);
/* Returns whether the job is restarted after a failure with this status. `has_started` tells
 * whether all ranks of the job have ever run: before, a failure is a mistake in the job file or the
 * library, and is reported at once. */
bool tdm__restart_policy_allows(const struct tdm__restart_policy *policy, tdm_status status,
                                bool has_started);
/* Counts a restart. Returns the milliseconds to wait before it: 0 if the job has completed a step
 * since the last one, else a pause that doubles from one second to thirty, for a store or a node
 * that needs time to come back. */
int64_t tdm__restart_policy_count(struct tdm__restart_policy *policy);
/* Records that the job has completed a step. */
void tdm__restart_policy_on_step(struct tdm__restart_policy *policy);

#endif
