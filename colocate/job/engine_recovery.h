/* engine_recovery.h - an engine that was lost comes back. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ENGINE_RECOVERY_H
#define TDM_COLOCATE_JOB_ENGINE_RECOVERY_H

#include "colocate/job/worker_group.h"

/* While the trainers are paused and updates are at rest, engines may be generating: creates
 * every lost engine anew, in its place, starts it, and tells it the model's tensors.  It then
 * copies the committed version from an engine that serves it, takes all of its memory, and
 * serves, too.  Where there is none of the same layout it is paused, has no weights, and serves
 * nothing; the next update takes it along.  Where it cannot be started it stays lost, the log
 * says why, and the next call tries again.  An engine is brought back a few times in all: see
 * tdm__recovery_reset_attempts(). */
void tdm__recovery_restart_engines(struct tdm__worker_group *workers);

/* An update was committed and flipped to: those who took part in it serve from now on. */
void tdm__recovery_mark_serving(struct tdm__worker_group *workers);

/* A rollout was answered: those who serve may be brought back as often as ever.  To serve is
 * not enough: engines that die of a prompt would come back for ever. */
void tdm__recovery_reset_attempts(struct tdm__worker_group *workers);

#endif
