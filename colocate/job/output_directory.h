/* output_directory.h - the directory into which one run of a job writes its files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_OUTPUT_DIRECTORY_H
#define TDM_COLOCATE_JOB_OUTPUT_DIRECTORY_H

#include <tandem/error.h>

/* What a run does with files that an earlier run has left in its directory. */
enum tdm__output_mode {
    TDM__OUTPUT_NEW,       /* Refuse them. */
    TDM__OUTPUT_RESUME,    /* Keep them. */
    TDM__OUTPUT_OVERWRITE, /* Remove those that a job writes, and keep all others. */
};

/* Creates the directory `out` with its parents, locks it against other runs, and deals with the
 * files in it as `mode` says. Stores the descriptor of the lock, which the caller closes to give
 * the directory back; -1 on failure. Returns TDM_E_AGAIN if another process uses the directory, or
 * TDM_E_EXISTS if it is refused because it has files. Hidden files do not count. */
tdm_status tdm__output_directory_open(const char *out, enum tdm__output_mode mode,
                                      int *lock_fd_out);

#endif
