/* earlier_job.h - continues the record of weight versions that an earlier job has left. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_EARLIER_JOB_H
#define TDM_COLOCATE_JOB_EARLIER_JOB_H

#include "colocate/job/worker_group.h"

/* What a job needs to know of the record of its model before its first weight update. */
struct tdm__earlier_versions {
    /* Version that the record has as committed; 0 if there is none. */
    uint64_t committed;
    /* Highest version number that the record has given out; 0 if it has given out none. */
    uint64_t highest;
};

/* Prepares the record of the job's model for the first update of these workers. A node or a cluster
 * that outlives a job keeps the record of that job. The function waits until all members of its
 * latest update have ended, and lists them in workers->dead, so that the next update begins without
 * them. An update that the earlier job has left undecided is aborted. Blocks at most as long as
 * update.timeout_ms. TDM_E_STATE names a member that still lives then: it belongs to a running job,
 * or to a sender of weights, for the same model. */
tdm_status tdm__earlier_job_supersede(struct tdm__worker_group *workers,
                                      struct tdm__earlier_versions *versions_out);

#endif
