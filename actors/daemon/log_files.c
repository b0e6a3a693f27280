/* log_files.c - files of what processes print: named, bounded, read from either end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/log_files.h"

#include "runtime/error.h"
#include "runtime/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DISK_BLOCK_BYTES = 512, PAGE_BYTES = 4096, LABEL_BYTES_MAX = 80 };

void tdm__log_file_name(const char *label, const char *id_text, int64_t pid, const char *suffix,
                        char name[TDM__LOG_NAME_BYTES])
{
    (void)snprintf(name, TDM__LOG_NAME_BYTES, "%.*s-%.16s-%lld%s", (int)LABEL_BYTES_MAX, label,
                   id_text, (long long)pid, suffix);
    for (char *letter = name; *letter != '\0'; letter++) {
        if (isalnum((unsigned char)*letter) == 0 && strchr(".-", *letter) == NULL) {
            *letter = '_';
        }
    }
    if (name[0] == '.') {
        name[0] = '_';
    }
}

tdm_status tdm__log_file_open(const char *path, int *fd_out)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0) {
        return tdm__fail_errno(errno, "open %s", path);
    }
    *fd_out = fd;
    return TDM_OK;
}

static uint64_t disk_bytes(const struct stat *about)
{
    return (uint64_t)about->st_blocks * DISK_BLOCK_BYTES;
}

void tdm__log_file_bound(const char *path, uint64_t size_bytes_max)
{
    struct stat about;
    uint64_t hole_bytes;
    int fd;

    /* A quarter of slack, so that the placeholder does not grow page by page. */
    if (stat(path, &about) < 0 || disk_bytes(&about) <= size_bytes_max + size_bytes_max / 4) {
        return;
    }
    hole_bytes = ((uint64_t)about.st_size - size_bytes_max) / PAGE_BYTES * PAGE_BYTES;
    fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return;
    }
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)hole_bytes) < 0) {
        (void)!ftruncate(fd, 0);
    }
    (void)close(fd);
}

/* ---- reading ---------------------------------------------------------------------------- */

static size_t read_all(int fd, uint64_t offset, char *bytes, size_t room)
{
    size_t used = 0;
    ssize_t got;

    while (used < room &&
           (got = pread(fd, bytes + used, room - used, (off_t)(offset + used))) > 0) {
        used += (size_t)got;
    }
    return used;
}

tdm_status tdm__log_file_read(const char *path, uint64_t offset, void *bytes, size_t room,
                              struct tdm__log_file_range *piece_out)
{
    struct stat about;
    off_t begin;
    int fd;

    TDM_TRY(tdm__file_open(path, &fd));
    if (fstat(fd, &about) < 0) {
        (void)close(fd);
        return tdm__fail_errno(errno, "fstat %s", path);
    }
    begin = lseek(fd, (off_t)offset, SEEK_DATA);
    piece_out->offset = begin < 0 ? offset : (uint64_t)begin;
    piece_out->bytes_count = read_all(fd, piece_out->offset, bytes, room);
    piece_out->file_bytes = (uint64_t)about.st_size;
    (void)close(fd);
    return TDM_OK;
}

size_t tdm__log_file_last_lines(const char *path, uint32_t lines_max, char *text, size_t room)
{
    struct tdm__log_file_range piece = {0};
    struct stat about;
    uint64_t begin;
    size_t first;
    uint32_t lines = 0;

    text[0] = '\0';
    if (stat(path, &about) < 0 || about.st_size == 0) {
        return 0;
    }
    begin = (uint64_t)about.st_size < room ? 0 : (uint64_t)about.st_size - (room - 1);
    if (tdm__log_file_read(path, begin, text, room - 1, &piece) != TDM_OK) {
        return 0;
    }
    while (piece.bytes_count > 0 && text[piece.bytes_count - 1] == '\n') {
        piece.bytes_count--;
    }
    for (first = piece.bytes_count; first > 0 && lines < lines_max; first--) {
        lines += text[first - 1] == '\n' ? 1 : 0;
    }
    first += lines == lines_max && lines_max > 0 ? 1 : 0;
    if (first == 0 && piece.offset > 0) { /* the first line may have lost its beginning */
        const char *end = memchr(text, '\n', piece.bytes_count);

        first = end == NULL ? 0 : (size_t)(end - text) + 1;
    }
    memmove(text, text + first, piece.bytes_count - first);
    text[piece.bytes_count - first] = '\0';
    return piece.bytes_count - first;
}

/* ---- the total -------------------------------------------------------------------------- */

struct found {
    char name[TDM__LOG_NAME_BYTES];
    struct timespec written;
    uint64_t bytes;
};

struct collection {
    struct found *all; /* owned */
    size_t count;
    size_t room;
    uint64_t bytes;
};

static int by_age(const void *a, const void *b)
{
    const struct timespec *first = &((const struct found *)a)->written;
    const struct timespec *second = &((const struct found *)b)->written;

    if (first->tv_sec != second->tv_sec) {
        return first->tv_sec < second->tv_sec ? -1 : 1;
    }
    return (first->tv_nsec > second->tv_nsec) - (first->tv_nsec < second->tv_nsec);
}

static void collect(struct collection *collection, int directory, const char *name)
{
    struct stat about;

    if (name[0] == '.' || strlen(name) >= TDM__LOG_NAME_BYTES ||
        fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(about.st_mode)) {
        return;
    }
    if (collection->count == collection->room) {
        size_t room = collection->room * 2 + 64;
        struct found *all = realloc(collection->all, room * sizeof(*all));

        if (all == NULL) {
            return;
        }
        collection->all = all;
        collection->room = room;
    }
    collection->bytes += disk_bytes(&about);
    collection->all[collection->count] =
        (struct found){.written = about.st_mtim, .bytes = disk_bytes(&about)};
    (void)snprintf(collection->all[collection->count].name, TDM__LOG_NAME_BYTES, "%s", name);
    collection->count++;
}

void tdm__log_files_prune(const char *directory, uint64_t total_bytes_max,
                          bool (*is_live)(const void *arg, const char *name), const void *arg)
{
    struct collection found = {0};
    DIR *entries = opendir(directory);
    const struct dirent *entry;

    if (entries == NULL) {
        return;
    }
    while ((entry = readdir(entries)) != NULL) {
        collect(&found, dirfd(entries), entry->d_name);
    }
    if (found.count > 0) {
        qsort(found.all, found.count, sizeof(*found.all), by_age);
    }
    for (size_t i = 0; i < found.count && found.bytes > total_bytes_max; i++) {
        if (!is_live(arg, found.all[i].name) &&
            unlinkat(dirfd(entries), found.all[i].name, 0) == 0) {
            found.bytes -= found.all[i].bytes;
        }
    }
    free(found.all);
    (void)closedir(entries);
}
