/* node_processes.c - signals to all processes of a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/node_processes.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the parent of the process; 0 if it has ended. */
static pid_t parent_of(pid_t pid)
{
    char path[64];
    char line[512];
    const char *name_end = NULL;
    int parent = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    if (fgets(line, sizeof(line), file) != NULL) {
        name_end = strrchr(line, ')');
    }
    if (name_end == NULL || sscanf(name_end + 1, " %*c %d", &parent) != 1) {
        parent = 0;
    }
    (void)fclose(file);
    return parent;
}

/* The processes are signaled before their children, so that a stopped one starts no further. */
void node_processes_signal(pid_t root, int signal)
{
    DIR *directory = opendir("/proc");
    const struct dirent *entry;

    (void)kill(root, signal);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (pid > 0 && parent_of(pid) == root) {
            node_processes_signal(pid, signal);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}
