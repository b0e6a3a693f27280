/* open_files.c - counts the descriptors of this process in /proc/self/fd. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/open_files.h"

#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

uint32_t open_files_count(const char *part)
{
    DIR *fds = opendir("/proc/self/fd");
    const struct dirent *entry;
    uint32_t count = 0;

    assert_non_null(fds);
    while ((entry = readdir(fds)) != NULL) {
        char target[PATH_MAX] = "";

        /* The descriptor of the list itself is closed afterwards. */
        if (readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1) > 0 &&
            strstr(target, part) != NULL && strtol(entry->d_name, NULL, 10) != dirfd(fds)) {
            count++;
        }
    }
    (void)closedir(fds);
    return count;
}
