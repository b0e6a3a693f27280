/* engine_failover.h - engines that die or fall silent, and the job that goes on without them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ENGINE_FAILOVER_H
#define TDM_COLOCATE_JOB_ENGINE_FAILOVER_H

#include "colocate/job/worker_group.h"

/* An engine is one unit: when a rank of it is gone, so is the engine.  Its other ranks are
 * killed, which is what lets its members be named dead: docs/protocols/commit.md. */

/* While calls are waited for: kills the rank of an engine that has been silent for too long, so
 * that every call that needs it fails; and a trainer's, which is then the failure that comes
 * back.  Never blocks on a rank that lives. */
tdm_status tdm__failover_check_liveness(struct tdm__worker_group *workers);

/* Asks every rank of every engine, and takes those that are gone out of the workers: no handles,
 * members in workers->dead.  `lost_out` counts them; workers->on_event is told of each.  A failure
 * says that an engine could not be fenced: then the job cannot go on. */
tdm_status tdm__failover_remove_dead_engines(struct tdm__worker_group *workers, uint32_t *lost_out);

/* Takes this engine out, whether it answers or not: it failed with `status`, which comes back.
 */
tdm_status tdm__failover_remove_engine(struct tdm__worker_group *workers, uint32_t engine,
                                       tdm_status status);

/* After a call to engines failed with `status`: TDM_OK when an engine was lost by it and enough
 * are left, and the call is to be made again; else that very failure. */
tdm_status tdm__failover_handle_failure(struct tdm__worker_group *workers, tdm_status status);

#endif
