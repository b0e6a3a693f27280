/* checkpoint_manifest.h - lists the files of a checkpoint with their hashes, and checks them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CHECKPOINT_MANIFEST_H
#define TDM_COLOCATE_JOB_CHECKPOINT_MANIFEST_H

#include <tandem/error.h>

/* Writes <directory>/manifest: one line for each file below `directory`, sorted by path, with the
 * file's XXH3 hash (128 bits, as hexadecimal digits), its size in bytes, and its path. Hidden
 * files, whose names begin with a dot, are left out. Before that, all files and directories are
 * written to disk with fsync(2), so that a checkpoint with a manifest is complete even after a
 * power failure. Blocks; reads every file once. Returns TDM_E_IO, or TDM_E_STATE if an entry is
 * neither a file nor a directory. */
tdm_status tdm__checkpoint_manifest_write(const char *directory);
/* Checks that the files below `directory` are exactly those of its manifest. Blocks; reads every
 * file once. Returns TDM_E_NOT_FOUND if there is no manifest, or TDM_E_PROTOCOL with the path of
 * the first file that is damaged, missing, or not listed. */
tdm_status tdm__checkpoint_manifest_verify(const char *directory);

#endif
