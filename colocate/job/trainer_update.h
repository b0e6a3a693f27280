/* trainer_update.h - the methods of the trainer actor in a weight update. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRAINER_UPDATE_H
#define TDM_COLOCATE_JOB_TRAINER_UPDATE_H

#include "colocate/job/trainer.h"

/* Methods of the trainer actor in an update. Each function has its own comment in
 * trainer_update.c. */
tdm_method tdm__trainer_connect, tdm__trainer_acquire_bucket, tdm__trainer_release_bucket,
    tdm__trainer_detach_engine, tdm__trainer_open_pair, tdm__trainer_update;

#endif
