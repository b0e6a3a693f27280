/* log_files.h - files of what processes print: named, bounded, read from either end. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_LOG_FILES_H
#define TDM_ACTORS_DAEMON_LOG_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* The process that prints has the file open for appending and knows nothing of its bounds: the
 * daemon is not on the way of a line.  A file over its bound loses its beginning: the pages
 * become a placeholder, so that offsets stay what they were and no line of the end is ever lost.
 * Where a filesystem cannot make placeholders the file is emptied instead. */

enum { TDM__LOG_NAME_BYTES = 160 };

/* "trainer_2-3f20a1b2c3d4e5f6-4182.out": characters that a name should not have become '_'. */
void tdm__log_file_name(const char *label, const char *id_text, int64_t pid, const char *suffix,
                        char name[TDM__LOG_NAME_BYTES]);
/* For appending; made if it is not there. */
tdm_status tdm__log_file_open(const char *path, int *fd_out);
/* The bytes that end the file and are to be kept. */
void tdm__log_file_bound(const char *path, uint64_t size_bytes_max);

/* A piece of a file: where it begins, how long it is, and how long the file is. */
struct tdm__log_file_range {
    uint64_t offset;
    size_t bytes_count;
    uint64_t file_bytes;
};

/* Reads at `offset`, or where the bytes kept begin if that is later.  TDM_E_NOT_FOUND without a
 * file. */
tdm_status tdm__log_file_read(const char *path, uint64_t offset, void *bytes, size_t room,
                              struct tdm__log_file_range *piece_out);
/* Whole lines from the end, as many as fit; returns their length.  No file is no lines. */
size_t tdm__log_file_last_lines(const char *path, uint32_t lines_max, char *text, size_t room);

/* Removes the files of `directory` written longest ago until the rest has at most that many
 * bytes on disk; keeps those for which `is_live` is true. */
void tdm__log_files_prune(const char *directory, uint64_t total_bytes_max,
                          bool (*is_live)(const void *arg, const char *name), const void *arg);

#endif
