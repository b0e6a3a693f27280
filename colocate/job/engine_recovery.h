/* engine_recovery.h - restarts engines that were lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ENGINE_RECOVERY_H
#define TDM_COLOCATE_JOB_ENGINE_RECOVERY_H

#include "colocate/job/worker_group.h"

/* Goes on bringing every lost engine back: creates its actors again, on the same GPUs or, if their
 * node is lost, on any node with room, starts them and sends them the list of tensors. The trainers
 * must be paused and no update may be in progress; other engines may generate. The engine then
 * copies the committed weights from an engine with the same layout, resumes its memory and serves.
 * If it does not exist, it waits paused for the next update. What has to wait for a node, or has
 * failed, is logged, and the next call tries again. An engine is restarted at most three times
 * without success, see tdm__recovery_reset_attempts(); that a node does not reply or has no room
 * does not count for engines with GPUs of their own. */
void tdm__recovery_restart_engines(struct tdm__worker_group *workers);

/* Does the same, and blocks while no engine is alive but one may come back, for at most a minute.
 * TDM_E_ACTOR_DIED if there is still none. Other errors are those of
 * tdm__worker_group_check_liveness(). */
tdm_status tdm__recovery_await_any_engine(struct tdm__worker_group *workers);

/* Asks the ranks of all engines which version they hold, after an update that overwrites was
 * aborted. An engine of which a rank holds none is torn. Stores in `holders_out` how many engines
 * hold a version. With `marks`, engines that are torn wait for weights from then on. An engine that
 * dies meanwhile is removed, and the others are asked again, each time for at most
 * update.timeout_ms. Fails if too few engines are left. */
tdm_status tdm__recovery_find_torn_engines(struct tdm__worker_group *workers, bool marks,
                                           uint32_t *holders_out);

/* Makes every live engine that waits for weights copy those of an engine that serves. The weights
 * of all engines must be resident. An engine that cannot do so goes on waiting, for the next
 * update. */
void tdm__recovery_join_waiting_engines(struct tdm__worker_group *workers);

/* Marks all live engines as serving. Called after an update was committed and all of them
 * switched to it. */
void tdm__recovery_mark_serving(struct tdm__worker_group *workers);

/* Resets the number of restarts of each serving engine. Called after a rollout succeeded.
 * Serving alone is not enough: an engine that a prompt crashes would otherwise be restarted
 * without end. */
void tdm__recovery_reset_attempts(struct tdm__worker_group *workers);

#endif
