/* content_cache.c - the directory of a node that keeps files of jobs by their content hashes. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The cache is the directory "content" of a node's directory, with mode 0700, so that only
 * processes of the node's user reach it. It has one directory for each content hash:
 *
 *   content/HASH/lock         empty; its flock(2) keeps the directory
 *   content/HASH/writer       empty; its flock(2) is held by the process that writes contents
 *   content/HASH/NAME         a file, with the name of the original
 *   content/HASH/modules/...  or a module archive, unpacked
 *   content/PID.removed       a directory that is being removed
 *
 * A process that uses contents has "lock" shared, as long as it lives; one that removes the
 * directory has it exclusively. One that puts contents into the directory has "writer" exclusively
 * as well, only until they are there. It does not wait for processes that use the contents already,
 * because these may live as long as the job.
 *
 * Contents appear under their name by rename(2), complete. A process that was killed while it wrote
 * leaves a temporary name, which the next writer removes. A directory is renamed before it is
 * removed. Who waited for its lock meanwhile finds that the lock is no longer at its path, and
 * begins again.
 *
 * The hash is computed each time that contents are taken from the cache. An unpacked archive is
 * packed again for this; what Python compiles in it is left out. There is no state in memory. */
#include "colocate/job/content_cache.h"

#include "colocate/job/module_archive.h"
#include "runtime/clock.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Names in the node's directory and in the directory of one hash. */
#define CACHE_NAME   "content"
#define LOCK_NAME    "lock"
#define WRITER_NAME  "writer"
#define MODULES_NAME "modules"
#define NEW_MODULES  "modules.new"
/* Longest name of a file in the cache; most attempts to lock a directory that others remove; most
 * directories that one call considers for removal. */
enum { NAME_BYTES_MAX = 128, LOCK_TRIES = 100, REMOVED_MAX = 1024 };
/* Longest time in milliseconds to wait for a lock, which is longer than a writer may take to fetch
 * contents; time between two attempts. */
enum { LOCK_MS = 150000, LOCK_INTERVAL_MS = 2 };

/* ---- checking ---------------------------------------------------------------------------- */

bool tdm__content_file_is(const char *path, const struct tdm__content_hash *hash,
                          uint64_t size_bytes)
{
    struct tdm__content_hash found;
    uint64_t found_bytes = 0;
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is_same = fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
                   (uint64_t)about.st_size == size_bytes &&
                   tdm__content_hash_file(fd, path, &found, &found_bytes) == TDM_OK &&
                   found_bytes == size_bytes && tdm__content_hash_equal(&found, hash);

    if (fd >= 0) {
        (void)close(fd);
    }
    return is_same;
}

/* Returns true if the files of a folder have this hash as an archive. */
static bool folder_is(const char *folder, const struct tdm__content_hash *hash, uint64_t size_bytes)
{
    const struct tdm__module_files files = {.folder = folder};
    struct tdm__content_hash found;
    tdm_writer *archive;
    bool is_same;

    if (tdm__module_archive_pack(&files, size_bytes, &archive) != TDM_OK) {
        return false;
    }
    is_same = tdm__content_hash_bytes(tdm_writer_bytes(archive), &found) == TDM_OK &&
              tdm__content_hash_equal(&found, hash);
    tdm_writer_destroy(archive);
    return is_same;
}

/* Fails unless fetched bytes are those that were requested. */
static tdm_status check_fetched(const struct tdm__cache_request *request, struct tdm_bytes bytes)
{
    char wanted[TDM__CONTENT_HASH_TEXT_BYTES];
    char text[TDM__CONTENT_HASH_TEXT_BYTES];
    struct tdm__content_hash found;

    TDM_TRY(tdm__content_hash_bytes(bytes, &found));
    return tdm__content_hash_equal(&found, &request->hash)
               ? TDM_OK
               : tdm__fail(TDM_E_CHECKSUM,
                           "the contents of %s that were fetched are not those that the job has "
                           "announced: %zu bytes with the SHA-256 %s instead of %llu bytes with "
                           "%s. They are not used; start the job again",
                           request->path, bytes.size_bytes, tdm__content_hash_text(&found, text),
                           (unsigned long long)request->size_bytes,
                           tdm__content_hash_text(&request->hash, wanted));
}

/* ---- the directory of one hash ----------------------------------------------------------- */

/* The directory of one hash. */
struct slot {
    char directory[TDM__PATH_BYTES]; /* Path of the directory. */
    char lock[TDM__PATH_BYTES];      /* Path of its lock. */
    char writer[TDM__PATH_BYTES];    /* Path of the lock of the process that writes. */
    char path[TDM__PATH_BYTES];      /* Path of the file or of the folder of modules. */
    int lock_fd;                     /* Descriptor of the lock; -1 if it is not open. */
};

/* Returns true for the names of the two locks. */
static bool is_lock_name(const char *name)
{
    return strcmp(name, LOCK_NAME) == 0 || strcmp(name, WRITER_NAME) == 0;
}

/* Returns the name of a file in the cache: the last part of its path, so that messages of linkers
 * and debuggers are readable. */
static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;

    return name[0] == '\0' || name[0] == '.' || is_lock_name(name) || strlen(name) > NAME_BYTES_MAX
               ? "file"
               : name;
}

/* Writes the paths of a slot. */
static tdm_status slot_init(struct slot *slot, const struct tdm__cache_request *request,
                            const char *cache)
{
    char text[TDM__CONTENT_HASH_TEXT_BYTES];

    slot->lock_fd = -1;
    TDM_TRY(tdm__path_join(cache, tdm__content_hash_text(&request->hash, text), slot->directory));
    TDM_TRY(tdm__path_join(slot->directory, LOCK_NAME, slot->lock));
    TDM_TRY(tdm__path_join(slot->directory, WRITER_NAME, slot->writer));
    return tdm__path_join(
        slot->directory, request->is_archive ? MODULES_NAME : file_name(request->path), slot->path);
}

/* Returns true if the open lock is still the one at its path. */
static bool slot_lock_is_current(const struct slot *slot)
{
    struct stat opened;
    struct stat present;

    return fstat(slot->lock_fd, &opened) == 0 && stat(slot->lock, &present) == 0 &&
           opened.st_dev == present.st_dev && opened.st_ino == present.st_ino;
}

/* Acquires the lock of an open file in the way `how`. Blocks, at most LOCK_MS. */
static tdm_status acquire(int fd, const char *path, int how)
{
    int64_t deadline_ms = tdm__deadline_after(LOCK_MS);

    while (flock(fd, how | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return tdm__fail_errno(errno, "flock %s", path);
        }
        if (tdm__deadline_remaining_ms(deadline_ms) == 0) {
            return tdm__fail(TDM_E_TIMEOUT,
                             "another process has had the lock %s for %d s. If it is stopped, "
                             "continue or end it; `fuser %s` gives its pid",
                             path, LOCK_MS / 1000, path);
        }
        (void)poll(NULL, 0, LOCK_INTERVAL_MS);
    }
    return TDM_OK;
}

/* Closes the lock. */
static void slot_unlock(struct slot *slot)
{
    if (slot->lock_fd >= 0) {
        (void)close(slot->lock_fd);
    }
    slot->lock_fd = -1;
}

/* Creates the directory unless it exists, and locks it shared. Blocks. */
static tdm_status slot_lock(struct slot *slot)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        TDM_TRY(tdm__directory_create_private(slot->directory));
        slot->lock_fd = open(slot->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (slot->lock_fd < 0 && errno != ENOENT) {
            return tdm__fail_errno(errno, "%s", slot->lock);
        }
        if (slot->lock_fd >= 0) {
            tdm_status status = acquire(slot->lock_fd, slot->lock, LOCK_SH);

            if (status == TDM_OK && slot_lock_is_current(slot)) {
                return TDM_OK;
            }
            slot_unlock(slot);
            TDM_TRY(status);
        }
    }
    return tdm__fail(TDM_E_STATE, "%s was removed %d times while it was being locked",
                     slot->directory, (int)LOCK_TRIES);
}

/* Returns true if the contents are there and have their hash. */
static bool slot_is_valid(const struct slot *slot, const struct tdm__cache_request *request)
{
    struct stat about;

    if (lstat(slot->path, &about) != 0) {
        return false;
    }
    if (request->is_archive) {
        return S_ISDIR(about.st_mode) && folder_is(slot->path, &request->hash, request->size_bytes);
    }
    return S_ISREG(about.st_mode) &&
           tdm__content_file_is(slot->path, &request->hash, request->size_bytes);
}

/* Returns true for the name of the contents, and for the names that a writer of them uses before
 * they are complete: tdm__atomic_file_open() adds a point and six characters to a file's name. */
static bool is_name_of(const struct slot *slot, const char *name)
{
    const char *contents = strrchr(slot->path, '/') + 1;
    size_t length = strlen(contents);

    if (strncmp(name, contents, length) != 0) {
        return false;
    }
    return name[length] == '\0' || strcmp(name, NEW_MODULES) == 0 ||
           (name[length] == '.' && strlen(name + length) == sizeof(".XXXXXX") - 1);
}

/* Removes damaged contents, and what a killed writer has left. The same bytes under other names
 * stay, because another process may use them. */
static void slot_clear(const struct slot *slot)
{
    DIR *entries = opendir(slot->directory);
    char path[TDM__PATH_BYTES];
    const struct dirent *entry;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (!is_name_of(slot, entry->d_name) ||
            tdm__path_join(slot->directory, entry->d_name, path) != TDM_OK) {
            continue;
        }
        tdm__log(TDM__WARN, "job", "%s is not complete or not what it should be; it is removed",
                 path);
        tdm__directory_remove(path);
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
}

/* Writes a file under a temporary name and renames it. */
static tdm_status write_file(const char *path, struct tdm_bytes bytes)
{
    struct tdm__atomic_file file;
    tdm_status status;

    TDM_TRY(tdm__atomic_file_open(&file, path));
    status = tdm__atomic_file_write(&file, bytes.data, bytes.size_bytes);
    if (status != TDM_OK) {
        tdm__atomic_file_abandon(&file);
        return status;
    }
    return tdm__atomic_file_commit(&file);
}

/* Unpacks an archive into a folder with a temporary name and renames it. */
static tdm_status write_folder(const struct slot *slot, struct tdm_bytes archive)
{
    char path[TDM__PATH_BYTES];

    TDM_TRY(tdm__path_join(slot->directory, NEW_MODULES, path));
    TDM_TRY(tdm__module_archive_unpack(archive, path));
    return rename(path, slot->path) == 0
               ? TDM_OK
               : tdm__fail_errno(errno, "renaming %s to %s", path, slot->path);
}

/* Fetches the contents, checks them and writes them. The caller has the lock of the writer. */
static tdm_status slot_fill(const struct slot *slot, const struct tdm__cache_request *request)
{
    struct tdm_bytes bytes = {NULL, 0};

    slot_clear(slot);
    TDM_TRY(request->fetch(request->arg, &bytes));
    TDM_TRY(check_fetched(request, bytes));
    return tdm__wrap(request->is_archive ? write_folder(slot, bytes)
                                         : write_file(slot->path, bytes),
                     "a copy of %s cannot be written", request->path);
}

/* ---- removal ----------------------------------------------------------------------------- */

/* One directory of the cache. */
struct candidate {
    char name[TDM__CONTENT_HASH_TEXT_BYTES]; /* Name of the directory. */
    struct timespec used;                    /* When it was used last. */
};

/* Sorts the directories that were used last to the front, for qsort(3). */
static int compare_candidates(const void *a, const void *b)
{
    const struct timespec *left = &((const struct candidate *)a)->used;
    const struct timespec *right = &((const struct candidate *)b)->used;

    if (left->tv_sec != right->tv_sec) {
        return left->tv_sec > right->tv_sec ? -1 : 1;
    }
    return left->tv_nsec == right->tv_nsec ? 0 : (left->tv_nsec > right->tv_nsec ? -1 : 1);
}

/* Lists the directories of the cache and returns their number. */
static size_t list_candidates(const char *cache, struct candidate *candidates)
{
    DIR *entries = opendir(cache);
    const struct dirent *entry;
    size_t count = 0;

    while (entries != NULL && count < REMOVED_MAX && (entry = readdir(entries)) != NULL) {
        char lock[2 * TDM__PATH_BYTES];
        struct stat about;

        if (strlen(entry->d_name) + 1 != TDM__CONTENT_HASH_TEXT_BYTES) {
            continue;
        }
        (void)snprintf(lock, sizeof(lock), "%s/%s/" LOCK_NAME, cache, entry->d_name);
        if (lstat(lock, &about) == 0) {
            (void)snprintf(candidates[count].name, sizeof(candidates[count].name), "%s",
                           entry->d_name);
            candidates[count++].used = about.st_mtim;
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    return count;
}

/* Removes a directory of the cache unless a process uses it. */
static void remove_unused(const char *cache, const char *name)
{
    char removed_name[64];
    char removed[TDM__PATH_BYTES];
    struct slot slot = {.lock_fd = -1};

    (void)snprintf(removed_name, sizeof(removed_name), "%d.removed", (int)getpid());
    if (tdm__path_join(cache, name, slot.directory) != TDM_OK ||
        tdm__path_join(slot.directory, LOCK_NAME, slot.lock) != TDM_OK ||
        tdm__path_join(cache, removed_name, removed) != TDM_OK) {
        return;
    }
    slot.lock_fd = open(slot.lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (slot.lock_fd >= 0 && flock(slot.lock_fd, LOCK_EX | LOCK_NB) == 0 &&
        slot_lock_is_current(&slot) && rename(slot.directory, removed) == 0) {
        tdm__directory_remove(removed);
    }
    slot_unlock(&slot);
}

/* Removes contents that no process uses, except those used last. */
static void remove_old(const char *cache)
{
    struct candidate *candidates = calloc(REMOVED_MAX, sizeof(*candidates));
    size_t count = candidates == NULL ? 0 : list_candidates(cache, candidates);

    if (count > TDM__CONTENT_CACHE_KEPT) {
        qsort(candidates, count, sizeof(*candidates), compare_candidates);
    }
    for (size_t i = TDM__CONTENT_CACHE_KEPT; i < count; i++) {
        remove_unused(cache, candidates[i].name);
    }
    free(candidates);
}

/* ---- getting contents -------------------------------------------------------------------- */

/* Puts the contents into the directory unless another process has done so meanwhile. */
static tdm_status put_contents(const struct slot *slot, const struct tdm__cache_request *request)
{
    int fd = open(slot->writer, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    tdm_status status;

    if (fd < 0) {
        return tdm__fail_errno(errno, "%s", slot->writer);
    }
    status = acquire(fd, slot->writer, LOCK_EX);
    if (status == TDM_OK && !slot_is_valid(slot, request)) {
        status = slot_fill(slot, request);
    }
    (void)close(fd);
    return status;
}

tdm_status tdm__content_cache_get(const struct tdm__cache_request *request,
                                  struct tdm__cached_content *content_out)
{
    char cache[TDM__PATH_BYTES];
    struct slot slot;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm__path_join(request->node_directory, CACHE_NAME, cache));
    TDM_TRY(tdm__directory_create_private(cache));
    TDM_TRY(slot_init(&slot, request, cache));
    TDM_TRY(slot_lock(&slot));
    if (!slot_is_valid(&slot, request)) {
        status = put_contents(&slot, request);
        remove_old(cache);
    }
    if (status != TDM_OK) {
        slot_unlock(&slot);
        return status;
    }
    (void)futimens(slot.lock_fd, NULL);
    (void)snprintf(content_out->path, sizeof(content_out->path), "%s", slot.path);
    content_out->lock_fd = slot.lock_fd;
    return TDM_OK;
}

void tdm__cached_content_release(struct tdm__cached_content *content)
{
    if (content->lock_fd >= 0) {
        (void)close(content->lock_fd);
    }
    content->lock_fd = -1;
}
