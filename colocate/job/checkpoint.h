/* checkpoint.h - saves the state of a job on disk and loads it; a checkpoint appears atomically. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CHECKPOINT_H
#define TDM_COLOCATE_JOB_CHECKPOINT_H

#include "colocate/job/worker_group.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/id.h"

/* The contents of state.json. <out>/checkpoint holds the last saved step: one file for each
 * trainer rank, hf/ with the model in the Hugging Face format, state.json, and a manifest with the
 * hashes of all of them (checkpoint_manifest.h). A save writes a new directory beside the old one
 * and exchanges their names atomically. The old directory is removed afterwards. <out>/hf is a
 * symbolic link into the checkpoint. */
struct tdm__checkpoint_state {
    /* Number of reinforcement-learning steps that are completed. */
    uint32_t step;
    /* Weight version that was last committed before the save; 0 if there was none. */
    uint64_t version;
    /* Share of exact matches on the unseen rows before the first step, 0 to 1; NAN if it was not
     * measured. */
    double score_before;
    /* ID of the run that has saved the checkpoint, as text; "" if it is not known. A run keeps it
     * when it is resumed or restarted. */
    char run[TDM__ID_TEXT_BYTES];
    /* Number of engines of the job, and number in its job file, if engines were added or ended
     * while it ran; else 0. A run that resumes the checkpoint with an equal job file has the
     * former. */
    uint32_t engines;
    uint32_t engines_of_file;
};

/* Makes every trainer rank save its part, writes `state` and publishes the checkpoint below the
 * directory `out`. Blocks until that is done. All regions of the trainers must be resident. */
tdm_status tdm__checkpoint_save(struct tdm__worker_group *workers, const char *out,
                                const struct tdm__checkpoint_state *state);
/* Reads state.json of the checkpoint `directory`. TDM_E_NOT_FOUND, TDM_E_PROTOCOL and TDM_E_TYPE
 * name the file. */
tdm_status tdm__checkpoint_read_state(const char *directory,
                                      struct tdm__checkpoint_state *state_out);

/* The checkpoint that a job resumes. */
struct tdm__checkpoint_choice {
    /* Its directory: <out>/checkpoint, or what an interrupted save has left beside it. */
    char directory[TDM__PATH_BYTES];
    /* Its state. */
    struct tdm__checkpoint_state state;
    /* Why a directory that comes before it was refused; "" if none was. */
    char refused[TDM__ERROR_DETAIL_BYTES];
};

/* Finds the newest complete checkpoint below `out` among checkpoint, checkpoint.new and
 * checkpoint.old, and checks every file against its manifest. A directory of another run than that
 * of the first complete one is refused. Blocks; reads all files once. Returns TDM_E_NOT_FOUND if
 * there is no checkpoint, or the failure of the first directory that exists but is damaged, if none
 * is complete. */
tdm_status tdm__checkpoint_find(const char *out, struct tdm__checkpoint_choice *choice_out);
/* Makes the chosen directory, which tdm__checkpoint_find() found below `out`, the directory
 * <out>/checkpoint, and stores its new name in `choice`. The next save may then remove all other
 * directories. */
tdm_status tdm__checkpoint_restore(const char *out, struct tdm__checkpoint_choice *choice);
/* Writes to <out>/version the highest version number that an update may have used. The caller
 * writes it before the update begins. A resumed job then never reuses a number, even if its
 * store has no record of the versions and the weights return to the checkpoint. The file
 * survives a process crash but not a power failure: an fsync for each update would cost too
 * much. */
tdm_status tdm__checkpoint_write_version(const char *out, uint64_t version);
/* Reads the number in <out>/version; 0 if the file does not exist. */
tdm_status tdm__checkpoint_read_version(const char *out, uint64_t *version_out);

/* Makes every trainer rank load its part of the checkpoint `directory`. Blocks until all ranks
 * are done. */
tdm_status tdm__checkpoint_load(struct tdm__worker_group *workers, const char *directory);

#endif
