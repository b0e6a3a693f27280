/* controller.h - the state of a running job, shared by job.c (the phases) and controller.c (what
 * is done in each). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CONTROLLER_H
#define TDM_COLOCATE_JOB_CONTROLLER_H

#include "colocate/job/checkpoint.h"
#include "colocate/job/dataset.h"
#include "colocate/job/library.h"
#include "colocate/job/logprob_check.h"
#include "colocate/job/restart_policy.h"
#include "colocate/job/rollout.h"
#include "colocate/job/run_options.h"
#include "colocate/job/scale_mailbox.h"
#include "colocate/job/spans.h"
#include "colocate/job/trace.h"
#include "colocate/job/train_batch.h"
#include "colocate/job/weight_update.h"
#include "colocate/job/worker_group.h"
#include "colocate/phase.h"

/* The answer to the last request for another number of engines. */
struct tdm__scale_answer {
    /* Number of the request, which trainer rank 0 has counted; 0 if there was none. */
    uint64_t number;
    /* TDM_OK if the job has that number of engines now. */
    tdm_status status;
    /* Why the request was refused; "" if it was not. */
    char refusal[TDM__SCALE_TEXT_BYTES];
};

/* A running job. The driver process has one; only the thread in tdm__job_run() uses it. */
struct tdm__controller {
    /* Borrowed settings of the job: `own_spec`, unless a test has set others. */
    const struct tdm__job_spec *spec;
    /* Copy of the settings whose number of engines changes when engines are added or ended. It
     * borrows the configuration. */
    struct tdm__job_spec own_spec;
    /* Number of engines in the job file. */
    uint32_t engines_of_file;
    /* The answer to the last request for another number of engines. */
    struct tdm__scale_answer scale_answer;
    /* Borrowed options of this run: directories, progress mode, interrupts. */
    const struct tdm__job_run_options *options;
    /* Actor that computes rewards, if the job library has one. */
    struct tdm__rewards rewards;
    /* Owned job library; its reward function runs in this process. */
    struct tdm__job_library library;
    /* Owned files of the job for ranks on other nodes. */
    struct tdm__job_contents contents;
    /* Owned rows that training draws prompts from. */
    struct tdm__dataset train;
    /* Owned rows that are used only to evaluate. */
    struct tdm__dataset unseen;
    /* Owned connection of this process to the cluster; NULL before the cluster is started. */
    tdm_runtime *runtime;
    /* Owned trainer and engine actors. */
    struct tdm__worker_group workers;
    /* Owned trace file; NULL if the job writes none, as in benchmarks. */
    struct tdm__trace *trace;
    /* Output of progress lines. */
    struct tdm__progress progress;

    /* State machine that decides which phase follows and which action it needs. */
    struct tdm__phase phase;
    /* True once the trainers have allocated their memory and initial weights. */
    bool started;
    /* True once all ranks of the job have run, if perhaps before a restart. */
    bool has_started;
    /* Counts the restarts of the job. */
    struct tdm__restart_policy restarts;
    /* Number of reinforcement-learning steps that are completed. */
    uint32_t step;
    /* True if the checkpoint on disk contains the current step. */
    bool saved;
    /* Highest weight version that an earlier run may have used; new versions are greater. 0 if
     * the job does not resume. */
    uint64_t version_floor;
    /* Version that the store had as committed before the first update of these workers. */
    uint64_t earlier_version;
    /* True once the record that an earlier job has left in the store is prepared for the updates of
     * these workers. */
    bool record_is_ours;
    /* The checkpoint that these ranks resume; its directory is "" if they begin at step 0. */
    struct tdm__checkpoint_choice resumed;
    /* ID of this run as text, which its checkpoints carry. A resumed run has the ID of the run that
     * saved the checkpoint. */
    char run[TDM__ID_TEXT_BYTES];
    /* Descriptor of the lock on the output directory, owned; -1 if it is not locked. */
    int output_lock_fd;
    /* Share of exact greedy completions on the unseen rows before training, 0 to 1; NAN if not
     * measured. */
    double score_before;
    /* The same share after the last step; NAN if not measured. */
    double score_after;
    /* Samples of the current step; its arrays are NULL between training and the next rollout. */
    struct tdm__rollout rollout;
    /* What the comparisons of log-probabilities say about the engines. */
    struct tdm__logprob_check logprob_check;
    /* The latest weight update. */
    struct tdm__weight_update update;
    /* Status of the latest weight update that was aborted; TDM_OK if there was none. */
    tdm_status abort_status;
    /* Error detail of the latest weight update that was aborted. */
    char abort_reason[512];
    /* Times and numbers of the current step, for the progress line. */
    struct tdm__progress_step step_progress;
    /* Metrics that trainer rank 0 reported for the last training step. */
    struct tdm_metrics metrics;
    /* Bytes that each rank has on its GPU, computed from its spans for the trace. The first
     * index is 0 for trainers and 1 for engines, the second is the rank. */
    uint64_t resident_bytes[2][TDM__JOB_GPUS_MAX];
};

/* Each of the next eight functions carries out one action of the phase machine and blocks until
 * it is done.
 * This one gives the trainers their GPU memory. The first call also starts all ranks and connects
 * engines and trainers. */
tdm_status tdm__controller_resume_trainer(struct tdm__controller *controller);
/* Trains one step on the samples of the rollout. If an engine's log-probabilities are not the
 * trainer's, the samples are dropped instead and the step remains to be done: nothing is learned
 * from them, and the engine is removed by the next resume of the engines' weights. Before the first
 * rollout it loads the checkpoint to resume from, or runs the supervised warm-up. Saves a
 * checkpoint if one is due. */
tdm_status tdm__controller_train(struct tdm__controller *controller);
/* Takes the GPU memory from the trainers. Does nothing if the engines have other GPUs. */
tdm_status tdm__controller_pause_trainer(struct tdm__controller *controller);
/* Gives the engines GPU memory for their weights. Restarts engines first if none is alive, and
 * removes engines whose log-probabilities are not the trainer's. */
tdm_status tdm__controller_resume_weights(struct tdm__controller *controller);
/* Sends a new version of the weights to all engines and decides its outcome. Returns the reason
 * if the update was aborted. */
tdm_status tdm__controller_update(struct tdm__controller *controller);
/* Makes all engines switch to the committed version, or drop the aborted one. */
tdm_status tdm__controller_flush(struct tdm__controller *controller);
/* Gives the engines the rest of their memory and waits until at least one engine serves. */
tdm_status tdm__controller_resume_kv(struct tdm__controller *controller);
/* Takes the GPU memory from the engines. Does nothing if the engines have other GPUs. */
tdm_status tdm__controller_pause_engines(struct tdm__controller *controller);

/* Lets the engines complete the prompts of the next training step. Called only in the phase
 * ROLLOUT. */
tdm_status tdm__controller_rollout(struct tdm__controller *controller);
/* Completes the prompts of all unseen rows at temperature 0. The score is the share of samples
 * with reward 1. Called only in the phase ROLLOUT. */
tdm_status tdm__controller_evaluate(struct tdm__controller *controller, double *score_out);
/* Carries out a request for another number of engines, if there is a new one. Called only in the
 * phase ROLLOUT, before the rollout. A request that is refused is no failure. */
tdm_status tdm__controller_scale(struct tdm__controller *controller);
/* Forgets the answers to requests, because the trainer rank that counts them has ended. */
void tdm__controller_forget_scale_requests(struct tdm__controller *controller);
/* Fetches the spans of every rank and writes them to the trace. */
tdm_status tdm__controller_trace(struct tdm__controller *controller);

/* Returns whether all steps of the job are done. */
bool tdm__controller_is_finished(const struct tdm__controller *controller);
/* Returns whether the user has asked the job to stop after the current step. */
bool tdm__controller_is_interrupted(const struct tdm__controller *controller);

#endif
