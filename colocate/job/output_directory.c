/* output_directory.c - the directory into which one run of a job writes its files. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The lock is a flock(2) on the hidden file .lock in the directory. The kernel releases it when the
 * process ends, however it ends; the file stays. */
#include "colocate/job/output_directory.h"

#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files and directories that a job writes into its output directory. */
static const char *const job_files[] = {"checkpoint", "checkpoint.new", "checkpoint.old",
                                        "hf",         "version",        "trace.json"};

/* Creates a directory, whose parent exists, unless it is there. */
static tdm_status create_directory(const char *path)
{
    struct stat found;
    int error_number = mkdir(path, 0777) < 0 ? errno : 0;

    if (error_number == 0) {
        return TDM_OK;
    }
    if (error_number != EEXIST || stat(path, &found) < 0) {
        return tdm__fail_errno(error_number,
                               "%s cannot be created (choose another directory with --out)", path);
    }
    return S_ISDIR(found.st_mode)
               ? TDM_OK
               : tdm__fail(TDM_E_EXISTS, "%s is a file: choose a directory with --out", path);
}

/* Creates the directory and its parents, like mkdir -p. */
static tdm_status create_directories(const char *path)
{
    char part[TDM__PATH_BYTES];

    if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part)) {
        return tdm__fail(TDM_E_LIMIT, "the path %.60s… is too long", path);
    }
    for (char *slash = strchr(part + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL) {
            *slash = '\0';
        }
        TDM_TRY(create_directory(part));
        if (slash == NULL) {
            return TDM_OK;
        }
        *slash = '/';
    }
}

/* Locks the directory and stores the descriptor of the lock. */
static tdm_status lock_directory(const char *out, int *lock_fd_out)
{
    char path[TDM__PATH_BYTES];
    int fd;

    TDM_TRY(tdm__path_join(out, ".lock", path));
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        return tdm__fail_errno(errno, "open %s", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int error_number = errno;

        (void)close(fd);
        return error_number == EWOULDBLOCK
                   ? tdm__fail(TDM_E_AGAIN,
                               "another job writes to %s: wait for its end, or choose another "
                               "directory with --out",
                               out)
                   : tdm__fail_errno(error_number, "flock %s", path);
    }
    *lock_fd_out = fd;
    return TDM_OK;
}

/* Returns true if the directory has what a run can resume, if perhaps an incomplete checkpoint. */
static bool has_checkpoint(const char *out)
{
    static const char *const names[] = {"checkpoint", "checkpoint.new", "checkpoint.old"};
    char path[TDM__PATH_BYTES];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (tdm__path_join(out, names[i], path) == TDM_OK && access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Fails because the directory has a file, and says what to do. */
static tdm_status refuse_directory(const char *out, const char *file)
{
    if (has_checkpoint(out)) {
        return tdm__fail(TDM_E_EXISTS,
                         "%s is not empty (it has %s): continue the job in it with --resume %s, "
                         "remove it with --overwrite, or choose another directory",
                         out, file, out);
    }
    return tdm__fail(TDM_E_EXISTS,
                     "%s is not empty (it has %s, and no checkpoint to resume): remove what a job "
                     "wrote there with --overwrite, or choose another directory with --out",
                     out, file);
}

/* Fails if the directory has files. */
static tdm_status require_empty(const char *out)
{
    DIR *entries = opendir(out);
    const struct dirent *entry;
    tdm_status status = TDM_OK;

    if (entries == NULL) {
        return tdm__fail_errno(errno, "open %s", out);
    }
    while (status == TDM_OK && (entry = readdir(entries)) != NULL) {
        if (entry->d_name[0] != '.') {
            status = refuse_directory(out, entry->d_name);
        }
    }
    (void)closedir(entries);
    return status;
}

/* Removes the files that an earlier job has written. */
static tdm_status remove_job_files(const char *out)
{
    char path[TDM__PATH_BYTES];

    for (size_t i = 0; i < sizeof(job_files) / sizeof(job_files[0]); i++) {
        TDM_TRY(tdm__path_join(out, job_files[i], path));
        tdm__directory_remove(path);
        if (access(path, F_OK) == 0) {
            return tdm__fail(TDM_E_IO, "%s cannot be removed", path);
        }
    }
    return TDM_OK;
}

tdm_status tdm__output_directory_open(const char *out, enum tdm__output_mode mode, int *lock_fd_out)
{
    tdm_status status = TDM_OK;

    *lock_fd_out = -1;
    TDM_TRY(create_directories(out));
    TDM_TRY(lock_directory(out, lock_fd_out));
    if (mode == TDM__OUTPUT_NEW) {
        status = require_empty(out);
    } else if (mode == TDM__OUTPUT_OVERWRITE) {
        status = remove_job_files(out);
    }
    if (status != TDM_OK) {
        (void)close(*lock_fd_out);
        *lock_fd_out = -1;
    }
    return status;
}
