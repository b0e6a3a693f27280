/* oom.c - finds out whether the kernel has killed a process for lack of memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/oom.h"

#include "runtime/file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Size in bytes of the buffer for one file of the kernel. */
enum { TEXT_BYTES = 16 << 10 };

/* Returns the number after "oom_kill " at the start of a line of the file; -1 if no line has it. */
static int64_t oom_read_count(const char *path)
{
    static const char word[] = "oom_kill ";
    char text[TEXT_BYTES];
    const char *line = text;

    if (path[0] == '\0' || !tdm__file_read_text(path, text, sizeof(text))) {
        return -1;
    }
    while (strncmp(line, word, sizeof(word) - 1) != 0) {
        line = strchr(line, '\n');
        if (line == NULL) {
            return -1;
        }
        line++;
    }
    return (int64_t)strtoll(line + sizeof(word) - 1, NULL, 10);
}

/* Looks for `file` in the cgroup `path` (of `path_bytes` bytes) below `mount`, and directly in
 * `mount`, where a container may show its cgroup.  Stores the file that holds a count and returns
 * true if there is one. */
static bool oom_try_mount(struct tdm__oom *oom, const char *mount, const char *path, int path_bytes,
                          const char *file)
{
    for (int depth = 0; depth < 2; depth++) {
        (void)snprintf(oom->cgroup_file, sizeof(oom->cgroup_file), "%s%.*s/%s", mount,
                       depth == 0 ? path_bytes : 0, path, file);
        if (oom_read_count(oom->cgroup_file) >= 0) {
            return true;
        }
    }
    return false;
}

/* Looks for the file with the count of out-of-memory kills of the cgroup that a line of
 * /proc/self/cgroup names: "0::/path" (v2) or "4:memory:/path" (v1).  Returns true if it is
 * found. */
static bool oom_try_cgroup(struct tdm__oom *oom, const char *root, const char *line)
{
    const char *controllers = strchr(line, ':');
    const char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    int path_bytes = path == NULL ? 0 : (int)strcspn(path + 1, "\n");
    char mount[128];

    if (path == NULL) {
        return false;
    }
    if (strncmp(controllers, "::", 2) == 0) {
        (void)snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup", root);
        return oom_try_mount(oom, mount, path + 1, path_bytes, "memory.events");
    }
    if (strncmp(controllers, ":memory:", strlen(":memory:")) == 0) {
        (void)snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/memory", root);
        return oom_try_mount(oom, mount, path + 1, path_bytes, "memory.oom_control");
    }
    return false;
}

/* Stores the file with the count of this process's cgroup, or "" if no such file exists. */
static void oom_find_cgroup(struct tdm__oom *oom, const char *root)
{
    char path[128];
    char text[TEXT_BYTES];
    const char *line = text;

    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    if (!tdm__file_read_text(path, text, sizeof(text))) {
        return;
    }
    while (!oom_try_cgroup(oom, root, line)) {
        line = strchr(line, '\n');
        if (line == NULL) {
            oom->cgroup_file[0] = '\0';
            return;
        }
        line++;
    }
}

void tdm__oom_init(struct tdm__oom *oom, const char *root)
{
    *oom = (struct tdm__oom){.cgroup_kills = -1};
    oom_find_cgroup(oom, root);
    (void)snprintf(oom->machine_file, sizeof(oom->machine_file), "%s/proc/vmstat", root);
    oom->cgroup_kills = oom_read_count(oom->cgroup_file);
    oom->machine_kills = oom_read_count(oom->machine_file);
}

enum tdm__oom_verdict tdm__oom_check(struct tdm__oom *oom)
{
    int64_t cgroup_before = oom->cgroup_kills;
    int64_t machine_before = oom->machine_kills;

    oom->cgroup_kills = oom_read_count(oom->cgroup_file);
    oom->machine_kills = oom_read_count(oom->machine_file);
    if (cgroup_before >= 0 && oom->cgroup_kills > cgroup_before) {
        return TDM__OOM_YES;
    }
    if (machine_before >= 0 && oom->machine_kills > machine_before) {
        return TDM__OOM_PERHAPS;
    }
    return oom->cgroup_kills < 0 && oom->machine_kills < 0 ? TDM__OOM_UNKNOWN : TDM__OOM_NO;
}
