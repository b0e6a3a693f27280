/* private_path.c - whether other users of the machine can change what is at a path. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/private_path.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns true if only this user and root can change this file or directory. */
static bool is_private(const char *path)
{
    struct stat about;

    if (lstat(path, &about) != 0 || S_ISLNK(about.st_mode) ||
        (about.st_uid != 0 && about.st_uid != geteuid())) {
        return false;
    }
    return (about.st_mode & (S_IWGRP | S_IWOTH)) == 0 ||
           (S_ISDIR(about.st_mode) && (about.st_mode & S_ISVTX) != 0);
}

bool tdm__path_is_private(const char *path)
{
    char real_path[PATH_MAX];
    struct stat about;

    if (realpath(path, real_path) == NULL || lstat(real_path, &about) != 0 ||
        (about.st_mode & (S_IWGRP | S_IWOTH)) != 0 || !is_private(real_path)) {
        return false;
    }
    for (char *slash = strrchr(real_path, '/'); slash != NULL && slash != real_path;
         slash = strrchr(real_path, '/')) {
        *slash = '\0';
        if (!is_private(real_path)) {
            return false;
        }
    }
    return is_private("/");
}
