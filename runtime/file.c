/* file.c - reads whole files up to a size limit and replaces files atomically. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Readers get all of a file or an error: the size is taken by fstat(2) first and checked against
 * the limit of the caller, and a file that becomes shorter meanwhile is an error.
 * Writers use struct tdm__atomic_file: a temporary file in the same directory, then fsync(2),
 * rename(2) and fsync(2) of the directory.  A crash at any moment leaves the old file or the new
 * one under `path`, and at worst a temporary file beside it.
 * The functions keep no state between calls; any thread may call them.  They block on the disk. */
#include "runtime/file.h"

#include "runtime/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

tdm_status tdm__file_open(const char *path, int *fd_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 && errno == ENOENT) {
        return tdm__fail(TDM_E_NOT_FOUND, "%s: no such file", path);
    }
    if (fd < 0) {
        return tdm__fail_errno(errno, "%s", path);
    }
    *fd_out = fd;
    return TDM_OK;
}

/* Reads exactly `size_bytes` bytes of the open file `fd` into `bytes`. Returns TDM_E_IO if the file
 * ends before. */
static tdm_status read_all(int fd, const char *path, char *bytes, size_t size_bytes)
{
    size_t done = 0;

    while (done < size_bytes) {
        ssize_t count = read(fd, bytes + done, size_bytes - done);

        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return tdm__fail_errno(errno, "%s: read", path);
        }
        if (count == 0) {
            return tdm__fail(TDM_E_IO, "%s: ends at byte %zu of %zu: it is being changed", path,
                             done, size_bytes);
        }
        done += (size_t)count;
    }
    return TDM_OK;
}

/* Reads the whole open regular file `fd` as tdm__file_read() describes. `path` is for errors only.
 */
static tdm_status read_open_file(int fd, const char *path, size_t size_bytes_max, char **bytes_out,
                                 size_t *size_bytes_out)
{
    struct stat status;
    char *bytes;

    if (fstat(fd, &status) != 0) {
        return tdm__fail_errno(errno, "%s: fstat", path);
    }
    if (!S_ISREG(status.st_mode)) {
        return tdm__fail(TDM_E_INVAL, "%s: not a regular file", path);
    }
    if ((size_t)status.st_size > size_bytes_max) {
        return tdm__fail(TDM_E_LIMIT, "%s: %lld bytes, the limit is %zu", path,
                         (long long)status.st_size, size_bytes_max);
    }
    bytes = malloc((size_t)status.st_size + 1);
    if (bytes == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%s: %lld bytes", path, (long long)status.st_size);
    }
    tdm_status result = read_all(fd, path, bytes, (size_t)status.st_size);
    if (result != TDM_OK) {
        free(bytes);
        return result;
    }
    bytes[status.st_size] = '\0';
    *bytes_out = bytes;
    *size_bytes_out = (size_t)status.st_size;
    return TDM_OK;
}

tdm_status tdm__file_read(const char *path, size_t size_bytes_max, char **bytes_out,
                          size_t *size_bytes_out)
{
    tdm_status status;
    int fd = -1;

    TDM_TRY(tdm__file_open(path, &fd));
    status = read_open_file(fd, path, size_bytes_max, bytes_out, size_bytes_out);
    (void)close(fd);
    return status;
}

bool tdm__file_read_text(const char *path, char *text, size_t capacity_bytes)
{
    size_t used = 0;
    ssize_t got;
    int fd = -1;

    text[0] = '\0';
    if (tdm__file_open(path, &fd) != TDM_OK) {
        return false;
    }
    while (used + 1 < capacity_bytes &&
           (got = read(fd, text + used, capacity_bytes - 1 - used)) > 0) {
        used += (size_t)got;
    }
    text[used] = '\0';
    (void)close(fd);
    return used > 0;
}

tdm_status tdm__atomic_file_open(struct tdm__atomic_file *file, const char *path)
{
    if (strlen(path) >= sizeof(file->path)) {
        return tdm__fail(TDM_E_LIMIT, "path of %zu bytes, the limit is %zu", strlen(path),
                         sizeof(file->path) - 1);
    }
    (void)snprintf(file->path, sizeof(file->path), "%s", path);
    (void)snprintf(file->temporary, sizeof(file->temporary), "%s.XXXXXX", path);
    file->fd = mkostemp(file->temporary, O_CLOEXEC);
    if (file->fd < 0) {
        return tdm__fail_errno(errno, "%s: creating a temporary file beside it failed", path);
    }
    if (fchmod(file->fd, 0644) != 0) {
        int error_number = errno;

        tdm__atomic_file_abandon(file);
        return tdm__fail_errno(error_number, "%s: fchmod", path);
    }
    return TDM_OK;
}

tdm_status tdm__atomic_file_write(struct tdm__atomic_file *file, const void *data,
                                  size_t size_bytes)
{
    const char *next = data;

    while (size_bytes > 0) {
        ssize_t count = write(file->fd, next, size_bytes);

        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return tdm__fail_errno(errno, "%s: write", file->path);
        }
        next += count;
        size_bytes -= (size_t)count;
    }
    return TDM_OK;
}

tdm_status tdm__path_join(const char *directory, const char *name, char path[TDM__PATH_BYTES])
{
    int length = snprintf(path, TDM__PATH_BYTES, "%s/%s", directory, name);

    return length >= 0 && length < TDM__PATH_BYTES
               ? TDM_OK
               : tdm__fail(TDM_E_LIMIT, "the path %.60s…/%s is too long", directory, name);
}

tdm_status tdm__directory_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tdm_status status;

    if (fd < 0) {
        return tdm__fail_errno(errno, "%s", path);
    }
    status = fsync(fd) == 0 ? TDM_OK : tdm__fail_errno(errno, "%s: fsync", path);
    (void)close(fd);
    return status;
}

/* Writes the directory that contains `path` to disk. */
static tdm_status sync_directory_of(const char *path)
{
    char directory[TDM__PATH_BYTES];
    const char *slash = strrchr(path, '/');

    if (slash == NULL) {
        return tdm__directory_sync(".");
    }
    (void)snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path) + 1, path);
    return tdm__directory_sync(directory);
}

tdm_status tdm__atomic_file_commit(struct tdm__atomic_file *file)
{
    int error_number;

    if (fsync(file->fd) != 0 || rename(file->temporary, file->path) != 0) {
        error_number = errno;
        tdm__atomic_file_abandon(file);
        return tdm__fail_errno(error_number, "%s: fsync or rename failed", file->path);
    }
    (void)close(file->fd);
    return sync_directory_of(file->path);
}

void tdm__atomic_file_abandon(struct tdm__atomic_file *file)
{
    (void)close(file->fd);
    (void)unlink(file->temporary);
}
