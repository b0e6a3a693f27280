/* oom.c - did the kernel kill for want of memory? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/oom.h"

#include "runtime/file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 64 << 10 };

/* The number behind "oom_kill " at the beginning of a line; -1. */
static int64_t read_count(const char *path)
{
    static const char word[] = "oom_kill ";
    char *text;
    const char *line;
    size_t bytes;
    int64_t count = -1;

    if (path[0] == '\0' || tdm__file_read(path, FILE_BYTES_MAX, &text, &bytes) != TDM_OK) {
        return -1;
    }
    line = text;
    while (line != NULL && strncmp(line, word, sizeof(word) - 1) != 0) {
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    if (line != NULL) {
        count = (int64_t)strtoll(line + sizeof(word) - 1, NULL, 10);
    }
    free(text);
    return count;
}

/* A line of /proc/self/cgroup: "0::/path" (v2) or "4:memory:/path" (v1). */
static bool try_cgroup(struct tdm__oom *oom, const char *root, const char *line)
{
    const char *controllers = strchr(line, ':');
    const char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    int length = path == NULL ? 0 : (int)strcspn(path + 1, "\n");

    if (path == NULL) {
        return false;
    }
    if (strncmp(controllers, "::", 2) == 0) {
        (void)snprintf(oom->cgroup_file, sizeof(oom->cgroup_file),
                       "%s/sys/fs/cgroup%.*s/memory.events", root, length, path + 1);
    } else if (strncmp(controllers, ":memory:", strlen(":memory:")) == 0) {
        (void)snprintf(oom->cgroup_file, sizeof(oom->cgroup_file),
                       "%s/sys/fs/cgroup/memory%.*s/memory.oom_control", root, length,
                       path + 1);
    } else {
        return false;
    }
    return read_count(oom->cgroup_file) >= 0;
}

static void find_cgroup(struct tdm__oom *oom, const char *root)
{
    char path[128];
    char *text;
    size_t bytes;
    bool found = false;

    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    if (tdm__file_read(path, FILE_BYTES_MAX, &text, &bytes) != TDM_OK) {
        return;
    }
    for (const char *line = text; line != NULL && !found;) {
        found = try_cgroup(oom, root, line);
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    if (!found) {
        oom->cgroup_file[0] = '\0';
    }
    free(text);
}

void tdm__oom_init(struct tdm__oom *oom, const char *root)
{
    *oom = (struct tdm__oom){.cgroup_kills = -1};
    find_cgroup(oom, root);
    (void)snprintf(oom->machine_file, sizeof(oom->machine_file), "%s/proc/vmstat", root);
    oom->cgroup_kills = read_count(oom->cgroup_file);
    oom->machine_kills = read_count(oom->machine_file);
}

enum tdm__oom_verdict tdm__oom_look(struct tdm__oom *oom)
{
    int64_t cgroup_before = oom->cgroup_kills;
    int64_t machine_before = oom->machine_kills;

    oom->cgroup_kills = read_count(oom->cgroup_file);
    oom->machine_kills = read_count(oom->machine_file);
    if (cgroup_before >= 0 && oom->cgroup_kills > cgroup_before) {
        return TDM__OOM_YES;
    }
    if (machine_before >= 0 && oom->machine_kills > machine_before) {
        return TDM__OOM_PERHAPS;
    }
    return oom->cgroup_kills < 0 && oom->machine_kills < 0 ? TDM__OOM_UNKNOWN : TDM__OOM_NO;
}
