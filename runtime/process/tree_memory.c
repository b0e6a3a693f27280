/* tree_memory.c - how much memory the processes below another one use. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/tree_memory.h"

#include "runtime/error.h"
#include "runtime/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STATUS_BYTES = 4096, /* Size in bytes of the buffer for /proc/PID/status. */
    PROCESSES_FIRST = 64 /* First length of the list of processes, which grows. */
};

/* A process of this machine. */
struct process {
    pid_t pid;              /* Its id. */
    pid_t parent;           /* Id of its parent. */
    uint64_t private_bytes; /* Its private memory in bytes. */
    bool is_below;          /* True if it is known to be a descendant. */
};

/* All processes that /proc lists. */
struct processes {
    struct process *all; /* The processes, owned. */
    size_t count;        /* Number of processes. */
    size_t capacity;     /* Number of entries that `all` has space for. */
};

/* Returns the number after "NAME:" in the text of a status file; 0 if it has no such line. */
static uint64_t status_number(const char *status, const char *name)
{
    const char *line = strstr(status, name);

    return line == NULL ? 0 : strtoull(line + strlen(name), NULL, 10);
}

/* Appends a process. Returns false without memory. One that has ended is left out. */
static bool add_process(struct processes *list, const char *pid_text)
{
    char path[64];
    char status[STATUS_BYTES];

    (void)snprintf(path, sizeof(path), "/proc/%.20s/status", pid_text);
    if (!tdm__file_read_text(path, status, sizeof(status))) {
        return true;
    }
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? PROCESSES_FIRST : 2 * list->capacity;
        struct process *all = realloc(list->all, capacity * sizeof(*all));

        if (all == NULL) {
            return false;
        }
        list->all = all;
        list->capacity = capacity;
    }
    list->all[list->count++] =
        (struct process){.pid = (pid_t)strtol(pid_text, NULL, 10),
                         .parent = (pid_t)status_number(status, "\nPPid:"),
                         .private_bytes = status_number(status, "\nRssAnon:") * 1024};
    return true;
}

/* Lists all processes. On failure the caller frees list->all, too. */
static tdm_status read_processes(struct processes *list)
{
    DIR *directory = opendir("/proc");
    bool has_memory = true;
    const struct dirent *entry;

    if (directory == NULL) {
        return tdm__fail_errno(errno, "opendir of /proc");
    }
    while (has_memory && (entry = readdir(directory)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0])) {
            has_memory = add_process(list, entry->d_name);
        }
    }
    (void)closedir(directory);
    return has_memory ? TDM_OK : tdm__fail(TDM_E_NOMEM, "a list of %zu processes", list->count);
}

/* Returns true if the process is `root` or a known descendant. */
static bool is_root_or_below(const struct processes *list, pid_t root, pid_t pid)
{
    for (size_t i = 0; pid != root && i < list->count; i++) {
        if (list->all[i].pid == pid) {
            return list->all[i].is_below;
        }
    }
    return pid == root;
}

tdm_status tdm__tree_private_bytes(pid_t root, uint64_t *bytes_out)
{
    struct processes list = {.all = NULL};
    bool has_changed = true;
    tdm_status status = read_processes(&list);

    *bytes_out = 0;
    /* A child may be listed before its parent, so that the list is gone through until no further
     * descendant is found. */
    while (status == TDM_OK && has_changed) {
        has_changed = false;
        for (size_t i = 0; i < list.count; i++) {
            struct process *process = &list.all[i];

            if (!process->is_below && is_root_or_below(&list, root, process->parent)) {
                process->is_below = true;
                has_changed = true;
                *bytes_out += process->private_bytes;
            }
        }
    }
    free(list.all);
    return status;
}
