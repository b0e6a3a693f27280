/* logprob_check.h - compares the engines' log-probabilities with the trainer's, and removes the
 * engines that are over the tolerance. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_LOGPROB_CHECK_H
#define TDM_COLOCATE_JOB_LOGPROB_CHECK_H

#include "colocate/job/rollout.h"
#include "colocate/job/worker_group.h"

/* What is known about the engines of a job. The controller owns it and uses it on one thread; zeros
 * are a job whose engines have not been compared. */
struct tdm__logprob_check {
    /* Engines that were over the tolerance in the last comparison and are still there. */
    struct tdm__engine_set suspects;
    /* Version of the weights that the last comparison was about. */
    uint64_t version;
    /* Largest difference of each engine in the last comparison; infinity if a number of the trainer
     * was not finite. */
    double largest[TDM__JOB_ENGINES_MAX];
    /* How often each engine was removed. */
    uint32_t removals[TDM__JOB_ENGINES_MAX];
};

/* Returns whether the job compares log-probabilities: one of its two tolerances is set, and updates
 * are not turned off. */
bool tdm__logprob_check_is_wanted(const struct tdm__job_spec *spec);

/* Returns the tolerance of an engine: update.logprob_tolerance_converted if it is set and the
 * engine keeps a tensor in another dtype than the trainers, else update.logprob_tolerance; 0 if it
 * has none. Writes the name of the setting, a constant, unless `name_out` is NULL. */
double tdm__logprob_check_tolerance(const struct tdm__worker_group *workers, uint32_t engine,
                                    const char **name_out);

/* Lets the trainers compute the log-probabilities of the first sample of each prompt of a rollout,
 * and notes which engines are over their tolerance. All regions of the trainers must be
 * resident. Blocks at most trainer.step_timeout_ms; failures are those of
 * tdm__worker_group_await(). */
tdm_status tdm__logprob_check_compare(struct tdm__logprob_check *check,
                                      struct tdm__worker_group *workers,
                                      const struct tdm__rollout *rollout, uint32_t step);

/* Removes the suspects. The reason names both numbers, the version and the first tensor that
 * differs from what the update wrote. The trainers' memory must be paused if engines share their
 * GPUs. An engine that was removed four times is not restarted. TDM_E_ACTOR_DIED: fewer than
 * rollout.num_engines_min engines are left. TDM_E_CHECKSUM: no engine is left, and none is
 * restarted. */
tdm_status tdm__logprob_check_remove_suspects(struct tdm__logprob_check *check,
                                              struct tdm__worker_group *workers);

#endif
