/* checkpoint_manifest.h - lists the files of a checkpoint with their hashes, and checks them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CHECKPOINT_MANIFEST_H
#define TDM_COLOCATE_JOB_CHECKPOINT_MANIFEST_H

#include "runtime/id.h"

#include <stdint.h>
#include <tandem/error.h>

/* The save that has written a file of a checkpoint. */
struct tdm__checkpoint_origin {
    uint32_t step; /* Number of steps that were completed at the save. */
    /* ID of the run that has saved, as text; "" if it is not known. */
    char run[TDM__ID_TEXT_BYTES];
};

/* Writes <directory>/manifest: one line for each file below `directory`, sorted by path, with the
 * file's XXH3 hash (128 bits, as hexadecimal digits), its size in bytes, the step and the run of
 * `origin` ("-" for an unknown run), and its path. Hidden files, whose names begin with a dot, are
 * left out. Before that, all files and directories are written to disk with fsync(2), so that a
 * checkpoint with a manifest is complete even after a power failure. Blocks; reads every file once.
 * Returns TDM_E_IO, or TDM_E_STATE if an entry is neither a file nor a directory. */
tdm_status tdm__checkpoint_manifest_write(const char *directory,
                                          const struct tdm__checkpoint_origin *origin);
/* Checks that the files below `directory` are exactly those of its manifest, and that one save has
 * written all of them, which goes to `origin_out` (zeros if there is no file). Blocks; reads every
 * file once. Returns TDM_E_NOT_FOUND if there is no manifest, or TDM_E_PROTOCOL with the path of
 * the first file that is damaged, missing, not listed, or of another save than the first one. */
tdm_status tdm__checkpoint_manifest_verify(const char *directory,
                                           struct tdm__checkpoint_origin *origin_out);

#endif
