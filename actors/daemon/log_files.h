/* log_files.h - log files of processes: their names, their size limits, and reading them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_LOG_FILES_H
#define TDM_ACTORS_DAEMON_LOG_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* A worker writes directly to its log file in append mode and knows no size limit. The daemon frees
 * the pages at the beginning of a file that is over its limit (a hole). Offsets stay valid, and
 * lines at the end are never lost. A filesystem that cannot make holes gets its file truncated to
 * zero instead. */

/* Capacity of a log file's name. */
enum { TDM__LOG_NAME_BYTES = 160 };

/* Writes the name of a process's log file to `name`, such as "trainer_2-3f20a1b2c3d4e5f6-4182.out".
 * Characters that are unsafe in file names become '_'. */
void tdm__log_file_name(const char *label, const char *id_text, int64_t pid, const char *suffix,
                        char name[TDM__LOG_NAME_BYTES]);
/* Opens a log file for appending and creates it if necessary. The caller closes `*fd_out`. */
tdm_status tdm__log_file_open(const char *path, int *fd_out);
/* Returns the length of a file in bytes; 0 if it does not exist. */
uint64_t tdm__log_file_bytes(const char *path);
/* Frees the beginning of the log file so that about the last `size_bytes_max` bytes remain on disk.
 */
void tdm__log_file_bound(const char *path, uint64_t size_bytes_max);

/* A range that was read from a log file. */
struct tdm__log_file_range {
    uint64_t offset;     /* Offset in the file of the first byte read. */
    size_t bytes_count;  /* Number of bytes read from the file. */
    uint64_t file_bytes; /* Length of the whole file in bytes. */
};

/* Reads at most `capacity` bytes at `offset`, or from where the remaining data begins if that is
 * later. TDM_E_NOT_FOUND if there is no file. */
tdm_status tdm__log_file_read(const char *path, uint64_t offset, void *bytes, size_t capacity,
                              struct tdm__log_file_range *range_out);
/* Copies the last whole lines, at most `lines_max` and as many as fit into `capacity` bytes, to
 * `text`. Returns their length; 0 if there is no file. */
size_t tdm__log_file_last_lines(const char *path, uint32_t lines_max, char *text, size_t capacity);

/* Removes files of `directory`, longest unwritten first, until the rest takes at most
 * `total_bytes_max` on disk. Files for which is_live(arg, name) is true are kept. */
void tdm__log_files_prune(const char *directory, uint64_t total_bytes_max,
                          bool (*is_live)(const void *arg, const char *name), const void *arg);

#endif
