/* cuda_files.c - the fake library for the CUDA driver: files that are the memory of a device. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* True if the memory is still in use although no process holds it: FAKE_CUDA_FREE_MS milliseconds
 * long from the first time on that a process asks. The mode of the file marks that time. */
static bool is_returned_late(int fd, const struct stat *status)
{
    struct timespec now;

    if (fake_free_ms() == 0 || (status->st_mode & S_IXGRP) != 0) {
        return false;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if ((status->st_mode & S_IXUSR) == 0) {
        (void)fchmod(fd, S_IRWXU);
        (void)futimens(fd, (const struct timespec[2]){now, now});
        return true;
    }
    return (now.tv_sec - status->st_mtim.tv_sec) * 1000 +
               (now.tv_nsec - status->st_mtim.tv_nsec) / 1000000 <
           (long)fake_free_ms();
}

/* Returns the bytes of a file that are in use, and removes it if none are. */
static size_t count_file(int directory, const char *name)
{
    int fd = openat(directory, name, O_RDWR | O_CLOEXEC);
    struct stat status;
    size_t used = 0;

    if (fd < 0) {
        return 0;
    }
    if (fstat(fd, &status) == 0) {
        used = (size_t)status.st_size;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && !is_returned_late(fd, &status)) {
        (void)unlinkat(directory, name, 0);
        used = 0;
    }
    (void)close(fd);
    return used;
}

/* Bytes of the files that someone still holds; the others are removed. */
size_t fake_count_used(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    size_t used = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (strncmp(entry->d_name, "block-", strlen("block-")) == 0) {
            used += count_file(dirfd(directory), entry->d_name);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return used;
}

/* The device's directory, locked against other processes; close it to unlock. */
int fake_lock_device(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0) {
        while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
        }
    }
    return fd;
}

/* `name` has the room for a path and is filled in. */
int fake_make_file(const char *path, size_t bytes, char *name, size_t room)
{
    int lock = fake_lock_device(path);
    int fd = -1;

    if (fake_count_used(path) + bytes <= fake_capacity()) {
        (void)snprintf(name, room, "%s/block-XXXXXX", path);
        fd = mkostemp(name, O_CLOEXEC);
        if (fd >= 0 && (flock(fd, LOCK_SH) != 0 || ftruncate(fd, (off_t)bytes) != 0)) {
            (void)close(fd);
            fd = -1;
        }
    }
    (void)close(lock);
    return fd;
}

int fake_take_memory(const char *path, size_t bytes)
{
    char name[FAKE_PATH_BYTES + 32];

    return fake_make_file(path, bytes, name, sizeof(name));
}

/* Closes the descriptor of memory that this process has created. The memory is free at once, or as
 * soon as other processes have closed theirs: the mode of the file tells so. */
void fake_give_memory(int fd)
{
    char link[64];
    char name[FAKE_PATH_BYTES + 32];
    ssize_t length;
    int other;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, name, sizeof(name) - 1);
    other = open(link, O_RDWR | O_CLOEXEC);
    (void)fchmod(fd, S_IRUSR | S_IWUSR | S_IXGRP);
    (void)close(fd);
    if (length > 0 && other >= 0 && flock(other, LOCK_EX | LOCK_NB) == 0) {
        name[length] = '\0';
        (void)unlink(name);
    }
    (void)close(other);
}
