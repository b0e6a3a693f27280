/* checkpoint.h - where a job stands, on disk: complete or not there. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CHECKPOINT_H
#define TDM_COLOCATE_JOB_CHECKPOINT_H

#include "colocate/job/worker_group.h"

/* <out>/checkpoint holds the last saved step: a file for each trainer rank, hf/ with the model
 * in Hugging Face form, and state.json.  A new one is made beside it and the two exchange
 * their names; the one before is removed only after that.  <out>/hf points into it. */
struct tdm__checkpoint_state {
    uint32_t step;       /* of reinforcement, done */
    uint64_t version;    /* that was committed before it */
    double score_before; /* score on the unseen rows before the first step; NAN if not measured */
};

/* Every trainer rank saves; all their regions are resident. */
tdm_status tdm__checkpoint_save(struct tdm__worker_group *workers, const char *out,
                                const struct tdm__checkpoint_state *state);
/* What state.json says; TDM_E_NOT_FOUND, TDM_E_PROTOCOL or TDM_E_TYPE name the file. */
tdm_status tdm__checkpoint_read_state(const char *out, struct tdm__checkpoint_state *state_out);
/* <out>/version is the highest number that may have been given to a version, written before it
 * is: a job that goes on, with a store that knows of none, gives none twice, although weights
 * go back to the checkpoint.  It outlives processes, not the machine: not worth an fsync an
 * update.
 */
tdm_status tdm__checkpoint_write_version(const char *out, uint64_t version);
/* 0 where there is none. */
tdm_status tdm__checkpoint_read_version(const char *out, uint64_t *version_out);

/* Every trainer rank loads. */
tdm_status tdm__checkpoint_load(struct tdm__worker_group *workers, const char *out);

#endif
