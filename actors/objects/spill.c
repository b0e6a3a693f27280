/* spill.c - large values that are moved to a file because shared memory is short. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/spill.h"

#include "runtime/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Fails with the reason in errno: TDM_E_LIMIT and a remedy if the disk or quota is full, else
 * the error of the write. */
static tdm_status spill_write_failed(const char *directory, size_t size_bytes, size_t written_bytes)
{
    int reason = errno;
    tdm_status status;

    if (reason != ENOSPC && reason != EDQUOT && reason != EFBIG) {
        return tdm__fail_errno(reason, "spilling a value of %zu bytes to %s", size_bytes,
                               directory);
    }
    status = tdm__fail_errno(reason, "%zu of %zu bytes of a value were spilled to %s",
                             written_bytes, size_bytes, directory);
    (void)status; /* Only its text is used, with another status. */
    return tdm__fail(TDM_E_LIMIT,
                     "%.1000s; free space on that disk, release references, or give the node a "
                     "directory elsewhere (--directory)",
                     tdm_error_detail());
}

/* Writes all bytes to the start of the file. */
static tdm_status spill_write_all(int fd, const char *directory, struct tdm_bytes bytes)
{
    const char *data = bytes.data;
    size_t done = 0;

    while (done < bytes.size_bytes) {
        ssize_t wrote = pwrite(fd, data + done, bytes.size_bytes - done, (off_t)done);

        if (wrote > 0) {
            done += (size_t)wrote;
        } else if (wrote == 0 || errno != EINTR) {
            errno = wrote == 0 ? ENOSPC : errno;
            return spill_write_failed(directory, bytes.size_bytes, done);
        }
    }
    return TDM_OK;
}

tdm_status tdm__spill_write(const char *directory, struct tdm_bytes bytes, int *fd_out)
{
    char path[PATH_MAX];
    tdm_status status;
    int fd;

    (void)snprintf(path, sizeof(path), "%s/spilled-XXXXXX", directory);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        return tdm__fail_errno(errno, "a file for a value of %zu bytes in %s", bytes.size_bytes,
                               directory);
    }
    (void)unlink(path);
    status = spill_write_all(fd, directory, bytes);
    if (status != TDM_OK) {
        (void)close(fd);
        return status;
    }
    *fd_out = fd;
    return TDM_OK;
}

tdm_status tdm__spill_read(int fd, void *data, size_t size_bytes)
{
    size_t done = 0;

    while (done < size_bytes) {
        ssize_t got = pread(fd, (char *)data + done, size_bytes - done, (off_t)done);

        if (got == 0) {
            return tdm__fail(TDM_E_IO, "a spilled value has %zu bytes of %zu", done, size_bytes);
        }
        if (got < 0 && errno != EINTR) {
            return tdm__fail_errno(errno, "reading back a value of %zu bytes", size_bytes);
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return TDM_OK;
}
