/* file.h - reads whole files up to a size limit and replaces files atomically. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_FILE_H
#define TDM_RUNTIME_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <tandem/error.h>

/* Opens a file for reading and stores the close-on-exec descriptor, which the caller closes.
 * Never blocks, not even on a FIFO.  Returns TDM_E_NOT_FOUND if there is no such file. */
tdm_status tdm__file_open(const char *path, int *fd_out);

/* Reads a whole regular file into malloc()ed memory, which the caller frees.  A NUL follows the
 * last byte and is not counted in `*size_bytes_out`.  Returns TDM_E_NOT_FOUND if there is no such
 * file and TDM_E_LIMIT if it has more than `size_bytes_max` bytes. */
tdm_status tdm__file_read(const char *path, size_t size_bytes_max, char **bytes_out,
                          size_t *size_bytes_out);

/* Reads the beginning of a file of unknown size, such as one in /proc, into `text`.  At most
 * `capacity_bytes` - 1 bytes are read and a NUL is added.  Returns false if nothing can be read;
 * `text` is "" then. */
bool tdm__file_read_text(const char *path, char *text, size_t capacity_bytes);

/* Capacity in bytes of a path, the NUL included. */
enum { TDM__PATH_BYTES = 4096 };

/* Writes the path of `name` in `directory` to `path`.  Returns TDM_E_LIMIT if it is too long. */
tdm_status tdm__path_join(const char *directory, const char *name, char path[TDM__PATH_BYTES]);

/* Writes the names in a directory to disk with fsync(2), so that a rename in it survives a power
 * failure.  Blocks until the disk has them. */
tdm_status tdm__directory_sync(const char *path);

/* A file that is being written under a temporary name beside `path`.  Until it is committed,
 * readers of `path` see the old contents; after that they see all of the new ones.  After a
 * successful open, the caller must call exactly one of commit and abandon. */
struct tdm__atomic_file {
    int fd; /* Open descriptor of the temporary file; owned. */
    /* Path that the temporary file gets when it is committed. */
    char path[TDM__PATH_BYTES];
    char temporary[TDM__PATH_BYTES + 16]; /* Path of the temporary file. */
};

/* Starts writing a new version of the file `path`: creates a temporary file beside it with mode
 * 0644. On failure no file is left behind, and neither commit nor abandon may be called. */
tdm_status tdm__atomic_file_open(struct tdm__atomic_file *file, const char *path);
/* Appends all of `data` to the temporary file of `file`. On failure the caller must abandon the
 * file. */
tdm_status tdm__atomic_file_write(struct tdm__atomic_file *file, const void *data,
                                  size_t size_bytes);
/* Writes the temporary file to disk, renames it to its final path and syncs the directory. Blocks
 * until the disk has everything. The temporary file is removed on failure, too. */
tdm_status tdm__atomic_file_commit(struct tdm__atomic_file *file);
/* Closes and removes the temporary file, so that the old version of the file stays. */
void tdm__atomic_file_abandon(struct tdm__atomic_file *file);

#endif
