/* checkpoint.h - saves the state of a job on disk and loads it; a checkpoint appears atomically. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CHECKPOINT_H
#define TDM_COLOCATE_JOB_CHECKPOINT_H

#include "colocate/job/worker_group.h"

/* The contents of state.json. <out>/checkpoint holds the last saved step: one file for each
 * trainer rank, hf/ with the model in the Hugging Face format, and state.json. A save writes a
 * new directory beside the old one and exchanges their names atomically. The old directory is
 * removed afterwards. <out>/hf is a symbolic link into the checkpoint. */
struct tdm__checkpoint_state {
    /* Number of reinforcement-learning steps that are completed. */
    uint32_t step;
    /* Weight version that was last committed before the save; 0 if there was none. */
    uint64_t version;
    /* Share of exact matches on the unseen rows before the first step, 0 to 1; NAN if it was not
     * measured. */
    double score_before;
};

/* Makes every trainer rank save its part, writes `state` and publishes the checkpoint below the
 * directory `out`. Blocks until that is done. All regions of the trainers must be resident. */
tdm_status tdm__checkpoint_save(struct tdm__worker_group *workers, const char *out,
                                const struct tdm__checkpoint_state *state);
/* Reads state.json of the checkpoint below `out`. TDM_E_NOT_FOUND, TDM_E_PROTOCOL and TDM_E_TYPE
 * name the file. */
tdm_status tdm__checkpoint_read_state(const char *out, struct tdm__checkpoint_state *state_out);
/* Writes to <out>/version the highest version number that an update may have used. The caller
 * writes it before the update begins. A resumed job then never reuses a number, even if its
 * store has no record of the versions and the weights return to the checkpoint. The file
 * survives a process crash but not a power failure: an fsync for each update would cost too
 * much. */
tdm_status tdm__checkpoint_write_version(const char *out, uint64_t version);
/* Reads the number in <out>/version; 0 if the file does not exist. */
tdm_status tdm__checkpoint_read_version(const char *out, uint64_t *version_out);

/* Makes every trainer rank load its part of the checkpoint below `out`. Blocks until all ranks
 * are done. */
tdm_status tdm__checkpoint_load(struct tdm__worker_group *workers, const char *out);

#endif
