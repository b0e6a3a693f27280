/* directory.c - a daemon's private directory for sockets and logs, its lock and its clean-up. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon owns one directory, which holds its sockets, logs and token.  It is either named by
 * the user (tdm__directory_create_at) or created under $TMPDIR (tdm__directory_create).
 * Ownership is a flock(2) on the file "lock" inside.  The daemon and its supervisor share the
 * descriptor, so the kernel releases the lock only when both have ended.  A directory whose lock
 * can be acquired therefore has no owner, and what its processes left behind may be removed.
 * Leftover processes are found by the variable TANDEM_DIRECTORY in their environment.
 * The next daemon of the same user removes abandoned directories when it starts.  A directory
 * without a lock file is treated as abandoned only after UNLOCKED_SECONDS_MAX, because its
 * creator may be between mkdtemp() and the lock.  Between the creation of the lock file and
 * flock(2) a new directory looks abandoned too; its creator then finds that it is removed and
 * creates another one.
 * The module has no state in memory; any thread may call it. */
#include "runtime/directory.h"

#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/process/process_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* PATH_BYTES_MAX is the longest path of a daemon's directory: a socket address has at most 107
 * bytes, and the longest name inside is "/redis/redis.sock" with some spare. REMOVE_FDS_MAX is the
 * most descriptors that nftw(3) may open. */
enum { PATH_BYTES_MAX = 107 - 24, REMOVE_FDS_MAX = 16 };

#define NAME_START TDM__DIRECTORY_NAME_START /* First part of the names of directories. */
/* Name of the lock file inside of each daemon's directory. */
#define LOCK_NAME "lock"
/* Most attempts of tdm__directory_create_locked() to create a directory. */
enum { CREATE_TRIES = 100 };
/* Length of the directory name "tandem-XXXXXX", and the age in seconds after which a directory
 * without a lock file counts as abandoned. */
enum { NAME_BYTES = sizeof(NAME_START) - 1 + 6, UNLOCKED_SECONDS_MAX = 60 };

/* Returns TDM_E_LIMIT, with `remedy` in the error, if paths of sockets inside of the directory
 * `path` would be too long. */
static tdm_status check_length(const char *path, const char *remedy)
{
    if (strlen(path) > PATH_BYTES_MAX) {
        return tdm__fail(TDM_E_LIMIT, "directory %s has %zu bytes, sockets in it allow %d: %s",
                         path, strlen(path), (int)PATH_BYTES_MAX, remedy);
    }
    return TDM_OK;
}

const char *tdm__directory_parent_path(void)
{
    const char *parent = getenv("TMPDIR");

    return parent == NULL || parent[0] == '\0' ? "/tmp" : parent;
}

tdm_status tdm__directory_create(char *path, size_t capacity_bytes)
{
    (void)snprintf(path, capacity_bytes, "%s/" NAME_START "XXXXXX", tdm__directory_parent_path());
    TDM_TRY(check_length(path, "set TMPDIR to a shorter one"));
    if (mkdtemp(path) == NULL) {
        return tdm__fail_errno(errno, "mkdtemp %s", path);
    }
    return TDM_OK;
}

tdm_status tdm__directory_create_at(const char *path)
{
    TDM_TRY(check_length(path, "choose a shorter one"));
    return tdm__directory_create_private(path);
}

tdm_status tdm__directory_create_private(const char *path)
{
    struct stat about;

    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        return tdm__fail_errno(errno, "mkdir %s", path);
    }
    if (lstat(path, &about) < 0) {
        return tdm__fail_errno(errno, "lstat %s", path);
    }
    if (!S_ISDIR(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 022) != 0) {
        return tdm__fail(TDM_E_AUTH,
                         "%s must be a directory of your own that nobody else may write", path);
    }
    return TDM_OK;
}

/* Callback of nftw(3) that removes one file or directory. Returns 0, so that the traversal goes on
 * after a failure. */
static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *position)
{
    (void)about;
    (void)kind;
    (void)position;
    (void)remove(path);
    return 0;
}

void tdm__directory_remove(const char *path)
{
    (void)nftw(path, remove_entry, REMOVE_FDS_MAX, FTW_DEPTH | FTW_PHYS);
}

/* ---- locks and abandoned directories ---------------------------------------------------- */

tdm_status tdm__directory_lock(const char *path, int *fd_out)
{
    char lock[PATH_MAX];
    struct stat about;
    int fd;

    (void)snprintf(lock, sizeof(lock), "%s/" LOCK_NAME, path);
    fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return tdm__fail_errno(errno, "open %s", lock);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int error_number = errno;

        (void)close(fd);
        return error_number == EWOULDBLOCK
                   ? tdm__fail(TDM_E_EXISTS, "another daemon is using the directory %s", path)
                   : tdm__fail_errno(error_number, "flock %s", lock);
    }
    if (fstat(fd, &about) < 0 || about.st_nlink == 0) {
        (void)close(fd);
        return tdm__fail(TDM_E_NOT_FOUND, "another daemon has just removed the directory %s", path);
    }
    *fd_out = fd;
    return TDM_OK;
}

tdm_status tdm__directory_create_locked(char *path, size_t capacity_bytes, int *fd_out)
{
    tdm_status status = TDM_OK;

    for (int i = 0; i < CREATE_TRIES; i++) {
        TDM_TRY(tdm__directory_create(path, capacity_bytes));
        status = tdm__directory_lock(path, fd_out);
        if (status != TDM_E_EXISTS && status != TDM_E_NOT_FOUND) {
            return status;
        }
    }
    return status;
}

bool tdm__directory_is_locked(const char *path)
{
    char lock[PATH_MAX];
    struct stat about;
    bool locked;
    int fd;

    (void)snprintf(lock, sizeof(lock), "%s/" LOCK_NAME, path);
    fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return false;
    }
    locked = fstat(fd, &about) == 0 && about.st_uid == geteuid() &&
             flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    (void)close(fd);
    return locked;
}

/* Removes all socket files directly inside of the directory `path`. */
static void remove_sockets(const char *path)
{
    DIR *entries = opendir(path);
    const struct dirent *entry;
    struct stat about;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (fstatat(dirfd(entries), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISSOCK(about.st_mode)) {
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
}

void tdm__directory_clear_leftovers(const char *path)
{
    char assignment[PATH_MAX];
    uint32_t killed;

    (void)snprintf(assignment, sizeof(assignment), TDM__DIRECTORY_VARIABLE "=%s", path);
    killed = tdm__process_tree_kill_marked(assignment);
    if (killed > 0) {
        tdm__log(TDM__INFO, "directory", "killed %u processes that outlived the daemon of %s",
                 killed, path);
    }
    remove_sockets(path);
}

/* Returns true if the directory belongs to this user and its daemon may be dead: the directory has
 * a lock file, or has had none for UNLOCKED_SECONDS_MAX. The caller must still try to acquire the
 * lock. */
static bool is_abandoned(const char *path)
{
    char lock[PATH_MAX];
    struct timespec now;
    struct stat about;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (lstat(path, &about) < 0 || !S_ISDIR(about.st_mode) || about.st_uid != geteuid()) {
        return false;
    }
    (void)snprintf(lock, sizeof(lock), "%s/" LOCK_NAME, path);
    return access(lock, F_OK) == 0 || now.tv_sec - about.st_mtime > UNLOCKED_SECONDS_MAX;
}

/* Removes a daemon's directory, and kills the processes left over, if no process holds the
 * directory's lock. */
static void directory_remove_if_abandoned(const char *path)
{
    int fd = -1;

    if (!is_abandoned(path) || tdm__directory_lock(path, &fd) != TDM_OK) {
        return;
    }
    tdm__directory_clear_leftovers(path);
    tdm__directory_remove(path);
    (void)close(fd);
}

void tdm__directory_remove_abandoned(void)
{
    const char *parent = tdm__directory_parent_path();
    DIR *entries = opendir(parent);
    const struct dirent *entry;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        char path[PATH_MAX];

        if (strlen(entry->d_name) == NAME_BYTES &&
            strncmp(entry->d_name, NAME_START, strlen(NAME_START)) == 0) {
            (void)snprintf(path, sizeof(path), "%s/%s", parent, entry->d_name);
            directory_remove_if_abandoned(path);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
}
