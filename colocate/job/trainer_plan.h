/* trainer_plan.h - the transfer plan of a trainer rank, and the writer that executes it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRAINER_PLAN_H
#define TDM_COLOCATE_JOB_TRAINER_PLAN_H

#include "colocate/job/trainer.h"
#include "runtime/messages/messages.h"

/* Computes what the rank needs for updates from what the engines have told: their layouts or the
 * description of whole tensors, the places of the images, the transfer plan, the weight writer and
 * the memory of the agreements. Joins the group through which trainer ranks of several nodes
 * exchange bytes, if the plan needs it and the rank has not joined it before; that blocks until all
 * ranks do. The rank has been started and has no plan. On failure the caller calls
 * tdm__trainer_plan_destroy(), too. */
tdm_status tdm__trainer_plan_create(struct trainer *trainer,
                                    const struct tdm__trainer_connect_message *message);
/* Frees all of this except the group. Does nothing if there is no plan. */
void tdm__trainer_plan_destroy(struct trainer *trainer);

#endif
