/* directory.c - a private directory for a daemon's sockets and logs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/directory.h"

#include "runtime/error.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A socket's path has at most 107 bytes; the longest name in the directory is redis/redis.sock. */
enum { PATH_BYTES_MAX = 107 - 24, REMOVE_FDS_MAX = 16 };

static tdm_status check_length(const char *path)
{
    if (strlen(path) > PATH_BYTES_MAX) {
        return tdm__fail(TDM_E_LIMIT,
                         "directory %s has %zu bytes, sockets in it allow %d: set TMPDIR to a shorter one",
                         path, strlen(path), (int)PATH_BYTES_MAX);
    }
    return TDM_OK;
}

tdm_status tdm__directory_make(char *path, size_t room)
{
    const char *parent = getenv("TMPDIR"); /* NOLINT(concurrency-mt-unsafe) at start */

    (void)snprintf(path, room, "%s/tandem-XXXXXX", parent == NULL || parent[0] == '\0' ? "/tmp" : parent);
    TDM_TRY(check_length(path));
    if (mkdtemp(path) == NULL) {
        return tdm__fail_errno(errno, "mkdtemp %s", path);
    }
    return TDM_OK;
}

tdm_status tdm__directory_use(const char *path)
{
    struct stat about;

    TDM_TRY(check_length(path));
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        return tdm__fail_errno(errno, "mkdir %s", path);
    }
    if (lstat(path, &about) < 0) {
        return tdm__fail_errno(errno, "lstat %s", path);
    }
    if (!S_ISDIR(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 022) != 0) {
        return tdm__fail(TDM_E_AUTH, "%s must be a directory of your own that nobody else may write",
                         path);
    }
    return TDM_OK;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    (void)remove(path);
    return 0;
}

void tdm__directory_remove(const char *path)
{
    (void)nftw(path, remove_entry, REMOVE_FDS_MAX, FTW_DEPTH | FTW_PHYS);
}
