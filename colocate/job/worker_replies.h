/* worker_replies.h - the replies of many actors of a job to one call. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_WORKER_REPLIES_H
#define TDM_COLOCATE_JOB_WORKER_REPLIES_H

#include "colocate/job/worker_group.h"

/* References to the replies of one call to many actors. The owner releases them with
 * tdm__worker_replies_fini(). */
struct tdm__worker_replies {
    /* Owned array of references; NULL for actors that were not called. */
    tdm_ref **refs;
    /* Number of elements of `refs`. */
    uint32_t count;
};

/* Sends the same call to all actors that are not NULL and waits until all have succeeded. The
 * caller releases the replies in any case. Errors are those of tdm__worker_group_await(). */
tdm_status tdm__worker_replies_collect(struct tdm__worker_group *workers, tdm_actor *const *actors,
                                       uint32_t count, const char *method,
                                       struct tdm_bytes arguments, int64_t timeout_ms,
                                       struct tdm__worker_replies *replies);
/* Returns the value that actor `index` replied, which lives as long as the replies; NULL if it does
 * not exist. */
const tdm_value *tdm__worker_replies_value(const struct tdm__worker_replies *replies,
                                           uint32_t index);
/* Releases the references. A zeroed struct is allowed. */
void tdm__worker_replies_fini(struct tdm__worker_replies *replies);

#endif
