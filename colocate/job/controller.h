/* controller.h - a running job: between job.c, which drives it, and what it does at each turn.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CONTROLLER_H
#define TDM_COLOCATE_JOB_CONTROLLER_H

#include "colocate/job/checkpoint.h"
#include "colocate/job/dataset.h"
#include "colocate/job/library.h"
#include "colocate/job/rollout.h"
#include "colocate/job/spans.h"
#include "colocate/job/trace.h"
#include "colocate/job/train_batch.h"
#include "colocate/job/weight_update.h"
#include "colocate/job/worker_group.h"
#include "colocate/phase.h"

struct tdm__controller {
    const struct tdm__job_spec *spec;           /* borrowed */
    const struct tdm__job_run_options *options; /* borrowed */
    struct tdm__job_library library;            /* owned, like the rest */
    struct tdm__dataset train;
    struct tdm__dataset unseen;
    tdm_runtime *runtime;
    struct tdm__worker_group workers;
    struct tdm__trace *trace;
    struct tdm__progress progress;

    struct tdm__phase phase;
    bool started;           /* ranks have their first weights */
    uint32_t step;          /* of reinforcement, done */
    bool saved;             /* the checkpoint is of this step */
    uint64_t version_floor; /* versions of an earlier run end here */
    double score_before;    /* greedy exact match on unseen rows; NAN: not measured */
    double score_after;
    struct tdm__rollout rollout;             /* of the step under way */
    struct tdm__weight_update update;        /* the latest */
    tdm_status abort_status;                 /* what the latest that was aborted came to, */
    char abort_reason[512];                  /* and why */
    struct tdm__progress_step step_progress; /* of the step under way */
    struct tdm_metrics metrics;              /* rank 0's, of the last train step */
    /* What each rank has on its GPU, as its spans tell it; for the trace. */
    uint64_t resident_bytes[2][TDM__JOB_RANKS_MAX];
};

/* What each action of the phase machine asks for; blocks until it is done. */
tdm_status tdm__controller_resume_trainer(struct tdm__controller *controller);
tdm_status tdm__controller_train(struct tdm__controller *controller);
tdm_status tdm__controller_pause_trainer(struct tdm__controller *controller);
tdm_status tdm__controller_resume_weights(struct tdm__controller *controller);
tdm_status tdm__controller_update(struct tdm__controller *controller);
tdm_status tdm__controller_flush(struct tdm__controller *controller);
tdm_status tdm__controller_resume_kv(struct tdm__controller *controller);
tdm_status tdm__controller_pause_engines(struct tdm__controller *controller);

/* In ROLLOUT: answers for the next step. */
tdm_status tdm__controller_rollout(struct tdm__controller *controller);
/* Greedy exact match on all unseen rows. */
tdm_status tdm__controller_evaluate(struct tdm__controller *controller, double *score_out);
/* Fetches every rank's spans into the trace. */
tdm_status tdm__controller_trace(struct tdm__controller *controller);

bool tdm__controller_is_finished(const struct tdm__controller *controller);
bool tdm__controller_is_interrupted(const struct tdm__controller *controller);

#endif
