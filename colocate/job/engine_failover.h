/* engine_failover.h - detects and removes failed engines, so that the job continues with the
 * others. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ENGINE_FAILOVER_H
#define TDM_COLOCATE_JOB_ENGINE_FAILOVER_H

#include "colocate/job/worker_group.h"

/* Asks every engine rank whether it is alive and removes each engine that has lost a rank. An
 * engine is one unit: its surviving ranks are killed too, so that all members can be recorded as
 * dead (docs/protocols/commit.md). Removed ranks have no handle in `workers` any more and are
 * listed in workers->dead. `lost_out` is the number of engines removed; workers->on_event is
 * called for each. An error means that an engine could not be killed, so that the job cannot
 * continue. */
tdm_status tdm__failover_remove_dead_engines(struct tdm__worker_group *workers, uint32_t *lost_out);

/* Removes the engines that did not reach the store or the trainers in the last call to all engines,
 * if another engine did. They run, but cannot take part in updates. `lost_out` is the number of
 * engines removed. */
tdm_status tdm__failover_remove_cut_off_engines(struct tdm__worker_group *workers,
                                                uint32_t *lost_out);

/* Removes this engine, whether it replies or not, because it failed with `status`. Returns
 * `status` and its error detail. */
tdm_status tdm__failover_remove_engine(struct tdm__worker_group *workers, uint32_t engine,
                                       tdm_status status);

/* Ends this engine because the job is to have fewer; `why` says how many. It is then lost. */
tdm_status tdm__failover_retire_engine(struct tdm__worker_group *workers, uint32_t engine,
                                       const char *why);

/* Handles a call to engines that failed with `status`. Returns TDM_OK if the caller should repeat
 * the call. That is so if an engine was lost, or did not reach the store and is left out, and
 * enough engines are left. It is also so if a node was unreachable and all engines reply again.
 * Otherwise returns `status` with its error detail. */
tdm_status tdm__failover_handle_failure(struct tdm__worker_group *workers, tdm_status status);

#endif
