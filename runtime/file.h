/* file.h - whole files: read under a limit, replaced in one step. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_FILE_H
#define TDM_RUNTIME_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <tandem/error.h>

/* Opens for reading; never blocks, not even on a FIFO.  TDM_E_NOT_FOUND without a file. */
tdm_status tdm__file_open(const char *path, int *fd_out);

/* All of a regular file, NUL added behind the last byte; free() it.  TDM_E_NOT_FOUND without a
 * file, TDM_E_LIMIT over `size_bytes_max`. */
tdm_status tdm__file_read(const char *path, size_t size_bytes_max, char **bytes_out,
                          size_t *size_bytes_out);

/* The beginning of a file whose size is not known, such as one of the kernel's in /proc; cut
 * where there is no more room.  False if it cannot be read. */
bool tdm__file_read_text(const char *path, char *text, size_t room);

enum { TDM__PATH_BYTES = 4096 };

/* A file in the making: it lies under a temporary name beside `path` until it is committed, so
 * that a reader of `path` sees the old bytes or all of the new ones.  After open, exactly one
 * of commit and abandon. */
struct tdm__atomic_file {
    int fd;
    char path[TDM__PATH_BYTES];
    char temporary[TDM__PATH_BYTES + 16];
};

tdm_status tdm__atomic_file_open(struct tdm__atomic_file *file, const char *path);
tdm_status tdm__atomic_file_write(struct tdm__atomic_file *file, const void *data,
                                  size_t size_bytes);
/* fsync, rename, fsync of the directory.  The temporary file is gone on failure too. */
tdm_status tdm__atomic_file_commit(struct tdm__atomic_file *file);
void tdm__atomic_file_abandon(struct tdm__atomic_file *file);

#endif
