/* log_files.c - log files of processes: their names, their size limits, and reading them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The printing process appends to its file and never learns of a limit. The daemon limits the size
 * by punching a hole at the beginning of the file, in whole pages; st_size and offsets stay the
 * same. lseek(SEEK_DATA) finds where the remaining data begins. The functions keep no state and may
 * be called from any thread.
 *
 * Invariants: a reader sees only whole lines at the end; a line whose beginning was freed is
 * skipped; files of living processes are never removed. */

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

enum {
    DISK_BLOCK_BYTES = 512, /* Bytes of one unit of st_blocks in struct stat. */
    PAGE_BYTES = 4096,      /* Bytes of a page; holes in a log file are a multiple of this size. */
    LABEL_BYTES_MAX = 80    /* Most bytes of the label in a file name. */
};

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

/* Returns the number of bytes that a file takes on disk, without its holes. */
static uint64_t disk_bytes(const struct stat *file_stat)
{
    return (uint64_t)file_stat->st_blocks * DISK_BLOCK_BYTES;
}

uint64_t tdm__log_file_bytes(const char *path)
{
    struct stat file_stat;

    return stat(path, &file_stat) < 0 ? 0 : (uint64_t)file_stat.st_size;
}

void tdm__log_file_bound(const char *path, uint64_t size_bytes_max)
{
    struct stat file_stat;
    uint64_t hole_bytes;
    int fd;

    /* The file may exceed the limit by a quarter, so that the hole does not grow page by page. */
    if (stat(path, &file_stat) < 0 ||
        disk_bytes(&file_stat) <= size_bytes_max + size_bytes_max / 4) {
        return;
    }
    hole_bytes = ((uint64_t)file_stat.st_size - size_bytes_max) / PAGE_BYTES * PAGE_BYTES;
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

/* Reads from `offset` of a file until `capacity` bytes were read or the file ends; returns the
 * number of bytes read. */
static size_t read_all(int fd, uint64_t offset, char *bytes, size_t capacity)
{
    size_t used = 0;
    ssize_t got;

    while (used < capacity &&
           (got = pread(fd, bytes + used, capacity - used, (off_t)(offset + used))) > 0) {
        used += (size_t)got;
    }
    return used;
}

tdm_status tdm__log_file_read(const char *path, uint64_t offset, void *bytes, size_t capacity,
                              struct tdm__log_file_range *range_out)
{
    struct stat file_stat;
    off_t data_offset;
    int fd;

    TDM_TRY(tdm__file_open(path, &fd));
    if (fstat(fd, &file_stat) < 0) {
        (void)close(fd);
        return tdm__fail_errno(errno, "fstat %s", path);
    }
    data_offset = lseek(fd, (off_t)offset, SEEK_DATA);
    range_out->offset = data_offset < 0 ? offset : (uint64_t)data_offset;
    range_out->bytes_count = read_all(fd, range_out->offset, bytes, capacity);
    range_out->file_bytes = (uint64_t)file_stat.st_size;
    (void)close(fd);
    return TDM_OK;
}

size_t tdm__log_file_last_lines(const char *path, uint32_t lines_max, char *text, size_t capacity)
{
    struct tdm__log_file_range range = {0};
    struct stat file_stat;
    uint64_t data_offset;
    size_t first;
    uint32_t lines = 0;

    text[0] = '\0';
    if (stat(path, &file_stat) < 0 || file_stat.st_size == 0) {
        return 0;
    }
    data_offset =
        (uint64_t)file_stat.st_size < capacity ? 0 : (uint64_t)file_stat.st_size - (capacity - 1);
    if (tdm__log_file_read(path, data_offset, text, capacity - 1, &range) != TDM_OK) {
        return 0;
    }
    while (range.bytes_count > 0 && text[range.bytes_count - 1] == '\n') {
        range.bytes_count--;
    }
    for (first = range.bytes_count; first > 0 && lines < lines_max; first--) {
        lines += text[first - 1] == '\n' ? 1 : 0;
    }
    first += lines == lines_max && lines_max > 0 ? 1 : 0;
    /* The first line is skipped, because its beginning may have been freed. */
    if (first == 0 && range.offset > 0) {
        const char *end = memchr(text, '\n', range.bytes_count);

        first = end == NULL ? 0 : (size_t)(end - text) + 1;
    }
    memmove(text, text + first, range.bytes_count - first);
    text[range.bytes_count - first] = '\0';
    return range.bytes_count - first;
}

/* ---- the size of all files -------------------------------------------------------------- */

/* One log file found in the directory of log files. */
struct log_file {
    char name[TDM__LOG_NAME_BYTES]; /* Name of the file without its folder. */
    struct timespec written;        /* Time of the last write to the file. */
    uint64_t bytes;                 /* Bytes that the file takes on disk. */
};

/* All log files of a directory. */
struct log_file_list {
    struct log_file *all; /* Array of the log files, owned. */
    size_t count;         /* Number of entries in `all`. */
    size_t capacity;      /* Number of allocated entries of `all`. */
    uint64_t bytes;       /* Bytes on disk of all files together. */
};

/* Orders files by their last write, oldest first; for qsort(). */
static int compare_by_age(const void *a, const void *b)
{
    const struct timespec *first = &((const struct log_file *)a)->written;
    const struct timespec *second = &((const struct log_file *)b)->written;

    if (first->tv_sec != second->tv_sec) {
        return first->tv_sec < second->tv_sec ? -1 : 1;
    }
    return (first->tv_nsec > second->tv_nsec) - (first->tv_nsec < second->tv_nsec);
}

/* Adds the regular file `name` of the open folder `directory` to the list; files that do not fit
 * into memory are ignored. */
static void log_file_list_add(struct log_file_list *log_file_list, int directory, const char *name)
{
    struct stat file_stat;

    if (name[0] == '.' || strlen(name) >= TDM__LOG_NAME_BYTES ||
        fstatat(directory, name, &file_stat, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(file_stat.st_mode)) {
        return;
    }
    if (log_file_list->count == log_file_list->capacity) {
        size_t capacity = log_file_list->capacity * 2 + 64;
        struct log_file *all = realloc(log_file_list->all, capacity * sizeof(*all));

        if (all == NULL) {
            return;
        }
        log_file_list->all = all;
        log_file_list->capacity = capacity;
    }
    log_file_list->bytes += disk_bytes(&file_stat);
    log_file_list->all[log_file_list->count] =
        (struct log_file){.written = file_stat.st_mtim, .bytes = disk_bytes(&file_stat)};
    (void)snprintf(log_file_list->all[log_file_list->count].name, TDM__LOG_NAME_BYTES, "%s", name);
    log_file_list->count++;
}

void tdm__log_files_prune(const char *directory, uint64_t total_bytes_max,
                          bool (*is_live)(const void *arg, const char *name), const void *arg)
{
    struct log_file_list files = {0};
    DIR *entries = opendir(directory);
    const struct dirent *entry;

    if (entries == NULL) {
        return;
    }
    while ((entry = readdir(entries)) != NULL) {
        log_file_list_add(&files, dirfd(entries), entry->d_name);
    }
    if (files.count > 0) {
        qsort(files.all, files.count, sizeof(*files.all), compare_by_age);
    }
    for (size_t i = 0; i < files.count && files.bytes > total_bytes_max; i++) {
        if (!is_live(arg, files.all[i].name) &&
            unlinkat(dirfd(entries), files.all[i].name, 0) == 0) {
            files.bytes -= files.all[i].bytes;
        }
    }
    free(files.all);
    (void)closedir(entries);
}
