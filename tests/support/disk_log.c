/* disk_log.c - which files a test's process has renamed and written to disk, in order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/disk_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <tandem/export.h>
#include <unistd.h>

#include <cmocka.h>

static char log_text[1 << 16]; /* The lines. Lines that do not fit are left out. */

/* Adds a line to the log. */
static void add_line(const char *call, const char *path)
{
    size_t used = strlen(log_text);

    (void)snprintf(log_text + used, sizeof(log_text) - used, "%s %s\n", call, path);
}

/* The three functions below take the place of the C library's, also for libtandem.so. */

TDM_API int fsync(int fd)
{
    char link[64];
    char path[4096];
    ssize_t length;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof(path) - 1);
    path[length < 0 ? 0 : length] = '\0';
    add_line("fsync", path);
    return (int)syscall(SYS_fsync, fd);
}

TDM_API int rename(const char *old_path, const char *new_path)
{
    add_line("rename", new_path);
    return (int)syscall(SYS_renameat2, -100, old_path, -100, new_path, 0U); /* -100: AT_FDCWD. */
}

TDM_API int renameat2(int old_folder, const char *old_path, int new_folder, const char *new_path,
                      unsigned flags)
{
    add_line("rename", new_path);
    return (int)syscall(SYS_renameat2, old_folder, old_path, new_folder, new_path, flags);
}

void disk_log_clear(void)
{
    log_text[0] = '\0';
}

void disk_log_expect(const char *first, const char *second)
{
    const char *found = strstr(log_text, first);

    if (found == NULL || strstr(found + strlen(first), second) == NULL) {
        fail_msg("expected \"%s\" and later \"%s\", but got:\n%s", first, second, log_text);
    }
}
