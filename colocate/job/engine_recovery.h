/* engine_recovery.h - restarts engines that were lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ENGINE_RECOVERY_H
#define TDM_COLOCATE_JOB_ENGINE_RECOVERY_H

#include "colocate/job/worker_group.h"

/* Creates the actors of every lost engine again on the same GPUs, starts them and sends them the
 * list of tensors. The trainers must be paused and no update may be in progress; other engines
 * may generate. The engine then copies the committed weights from an engine with the same
 * layout, resumes its memory and serves. If it does not exist, it waits paused for the next update.
 * A failed start is logged, and the next call tries again. An engine is restarted at most three
 * times without success, see tdm__recovery_reset_attempts(). */
void tdm__recovery_restart_engines(struct tdm__worker_group *workers);

/* Marks all live engines as serving. Called after an update was committed and all of them
 * switched to it. */
void tdm__recovery_mark_serving(struct tdm__worker_group *workers);

/* Resets the number of restarts of each serving engine. Called after a rollout succeeded.
 * Serving alone is not enough: an engine that a prompt crashes would otherwise be restarted
 * without end. */
void tdm__recovery_reset_attempts(struct tdm__worker_group *workers);

#endif
