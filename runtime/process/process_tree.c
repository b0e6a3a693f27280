/* process_tree.c - the children of this process, as the kernel sees them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/process_tree.h"

#include "runtime/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENVIRONMENT_BYTES_MAX = 1 << 20, STAT_BYTES = 1024 };

void tdm__process_tree_adopt_orphans(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* What follows the name in /proc/PID/stat: ") S PARENT …".  The name may hold anything, but
 * ends with the last ')'.  NULL when the process is gone. */
static const char *read_stat(const char *pid_text, char *stat, size_t room)
{
    char path[64];
    ssize_t got;
    const char *after_name;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid_text);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    got = read(fd, stat, room - 1);
    (void)close(fd);
    stat[got > 0 ? got : 0] = '\0';
    after_name = strrchr(stat, ')');
    return after_name != NULL && strlen(after_name) >= 4 ? after_name : NULL;
}

/* -1 when the process is gone. */
static pid_t parent_of(const char *pid_text)
{
    char stat[STAT_BYTES];
    const char *after_name = read_stat(pid_text, stat, sizeof(stat));

    return after_name == NULL ? -1 : (pid_t)strtol(after_name + 4, NULL, 10);
}

int64_t tdm__process_start_ticks(pid_t pid)
{
    enum { FIELDS_BEFORE = 20 }; /* of field 22, where field 2 is the name */
    char stat[STAT_BYTES];
    char text[24];
    const char *field;

    (void)snprintf(text, sizeof(text), "%d", (int)pid);
    field = read_stat(text, stat, sizeof(stat));
    for (int i = 0; i < FIELDS_BEFORE && field != NULL; i++) {
        field = strchr(field + 1, ' ');
    }
    return field == NULL ? INT64_MAX : strtoll(field, NULL, 10);
}

/* The assignments that the process was started with; returns their length, 0 if unknown. */
static size_t read_environment(const char *pid_text, char *environment, size_t room)
{
    char path[64];
    ssize_t got;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/environ", pid_text);
    fd = open(path, O_RDONLY | O_CLOEXEC); /* of our own user's processes only */
    if (fd < 0) {
        return 0;
    }
    got = read(fd, environment, room - 1);
    (void)close(fd);
    environment[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

/* The first assignment that begins with `beginning`, or NULL. */
static const char *find_assignment(const char *environment, size_t size_bytes,
                                   const char *beginning)
{
    size_t length = strlen(beginning);

    for (const char *entry = environment; entry < environment + size_bytes;
         entry += strlen(entry) + 1) {
        if (strncmp(entry, beginning, length) == 0) {
            return entry;
        }
    }
    return NULL;
}

/* True if the process was started with `assignment` in its environment. */
static bool was_started_with(const char *pid_text, const char *assignment, char *environment,
                             size_t room)
{
    size_t size_bytes = read_environment(pid_text, environment, room);
    const char *found = find_assignment(environment, size_bytes, assignment);

    return found != NULL && strcmp(found, assignment) == 0;
}

bool tdm__process_environment_value(pid_t pid, const char *name, char *value, size_t room)
{
    char *environment = malloc(ENVIRONMENT_BYTES_MAX);
    const char *found = NULL;
    char text[64];

    if (environment != NULL) {
        size_t size_bytes;

        (void)snprintf(text, sizeof(text), "%d", (int)pid);
        size_bytes = read_environment(text, environment, ENVIRONMENT_BYTES_MAX);
        (void)snprintf(text, sizeof(text), "%.60s=", name);
        found = find_assignment(environment, size_bytes, text);
    }
    if (found != NULL) {
        (void)snprintf(value, room, "%s", found + strlen(text));
    }
    free(environment);
    return found != NULL;
}

uint32_t tdm__process_tree_kill_marked(const char *assignment)
{
    DIR *processes = opendir("/proc");
    char *environment = malloc(ENVIRONMENT_BYTES_MAX);
    const struct dirent *entry;
    uint32_t killed = 0;

    while (processes != NULL && environment != NULL && (entry = readdir(processes)) != NULL) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (pid > 1 && pid != getpid() && pid != getppid() &&
            was_started_with(entry->d_name, assignment, environment, ENVIRONMENT_BYTES_MAX) &&
            kill(pid, SIGKILL) == 0) {
            killed++;
        }
    }
    free(environment);
    if (processes != NULL) {
        (void)closedir(processes);
    }
    return killed;
}

void tdm__process_tree_each_child(void (*fn)(void *arg, pid_t pid), void *arg)
{
    DIR *processes = opendir("/proc");
    const struct dirent *entry;

    if (processes == NULL) {
        return;
    }
    while ((entry = readdir(processes)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0]) && parent_of(entry->d_name) == getpid()) {
            fn(arg, (pid_t)strtol(entry->d_name, NULL, 10));
        }
    }
    (void)closedir(processes);
}

static void kill_child(void *arg, pid_t pid)
{
    (void)arg;
    (void)kill(pid, SIGKILL); /* a child that is not reaped keeps its pid: nobody else is hit */
}

bool tdm__process_tree_kill_all(int64_t timeout_ms)
{
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);

    for (;;) {
        pid_t reaped;

        tdm__process_tree_each_child(kill_child, NULL);
        do {
            reaped = waitpid(-1, NULL, WNOHANG);
        } while (reaped > 0);
        if (reaped < 0 && errno == ECHILD) {
            return true;
        }
        if (tdm__deadline_remaining_ms(deadline_ms) == 0) {
            return false;
        }
        (void)poll(NULL, 0, 1); /* the kernel needs a moment to end them */
    }
}
