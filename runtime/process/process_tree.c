/* process_tree.c - finds and kills processes by parent or by their environment. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel keeps the process tree; this module reads it from /proc and keeps no state.
 * Processes can start and end during a scan, so every function treats a process that has vanished
 * as absent, and those that kill repeat the scan.
 *
 * Killing children is safe against reused process ids, because a child that was not reaped keeps
 * its id. tdm__process_tree_kill_marked() kills processes that are not children; it accepts the
 * small risk that an id is reused between reading the environment and kill(2).
 *
 * Any thread may call the functions. tdm__process_tree_kill_all() reaps all children of the
 * process, so it is only for processes that end. */
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

enum {
    /* First size in bytes of the buffer for /proc/PID/environ, which grows. */
    ENVIRONMENT_BYTES_FIRST = 64 << 10,
    STAT_BYTES = 1024 /* Size in bytes of the buffer for /proc/PID/stat. */
};

/* The environment of a process, read from /proc.  The same buffer serves for many processes. */
struct environment {
    /* Assignments ("NAME=value"), each ending with NUL (owned); NULL before the first read. */
    char *text;
    size_t size_bytes;     /* Number of bytes in `text` that were read; 0 after a failure. */
    size_t capacity_bytes; /* Size in bytes of the memory at `text`. */
};

void tdm__process_tree_adopt_orphans(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Reads /proc/PID/stat into `stat` and returns the part after the name: ") S PARENT ...".  The
 * name may contain any character, but ends at the last ')'.  Returns NULL if the process is gone.
 */
static const char *read_stat(const char *pid_text, char *stat, size_t capacity_bytes)
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
    got = read(fd, stat, capacity_bytes - 1);
    (void)close(fd);
    stat[got > 0 ? got : 0] = '\0';
    after_name = strrchr(stat, ')');
    return after_name != NULL && strlen(after_name) >= 4 ? after_name : NULL;
}

/* Returns the process id of a process's parent; -1 if the process is gone. */
static pid_t parent_of(const char *pid_text)
{
    char stat[STAT_BYTES];
    const char *after_name = read_stat(pid_text, stat, sizeof(stat));

    return after_name == NULL ? -1 : (pid_t)strtol(after_name + 4, NULL, 10);
}

int64_t tdm__process_start_ticks(pid_t pid)
{
    /* The start time is field 22; the name is field 2. */
    enum { SPACES_BEFORE_START_TIME = 20 };
    char stat[STAT_BYTES];
    char text[24];
    const char *field;

    (void)snprintf(text, sizeof(text), "%d", (int)pid);
    field = read_stat(text, stat, sizeof(stat));
    for (int i = 0; i < SPACES_BEFORE_START_TIME && field != NULL; i++) {
        field = strchr(field + 1, ' ');
    }
    return field == NULL ? INT64_MAX : strtoll(field, NULL, 10);
}

/* Ensures that the buffer has space for at least one more byte and a NUL.  Returns false without
 * memory. */
static bool environment_reserve(struct environment *environment)
{
    size_t capacity_bytes = environment->capacity_bytes == 0 ? ENVIRONMENT_BYTES_FIRST
                                                             : 2 * environment->capacity_bytes;
    char *text;

    if (environment->size_bytes + 1 < environment->capacity_bytes) {
        return true;
    }
    text = realloc(environment->text, capacity_bytes);
    if (text == NULL) {
        return false;
    }
    environment->text = text;
    environment->capacity_bytes = capacity_bytes;
    return true;
}

/* Reads the environment with which the process was started.  It is empty if it cannot be read: the
 * process is gone, belongs to another user, or memory is lacking. */
static void environment_read(struct environment *environment, const char *pid_text)
{
    char path[64];
    ssize_t got;
    int fd;

    environment->size_bytes = 0;
    (void)snprintf(path, sizeof(path), "/proc/%.20s/environ", pid_text);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    do {
        if (!environment_reserve(environment)) {
            environment->size_bytes = 0;
            break;
        }
        got = read(fd, environment->text + environment->size_bytes,
                   environment->capacity_bytes - 1 - environment->size_bytes);
        environment->size_bytes += got > 0 ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    (void)close(fd);
    if (environment->size_bytes > 0) {
        environment->text[environment->size_bytes] = '\0';
    }
}

/* Returns the first assignment in the environment that begins with `beginning`, or NULL. */
static const char *environment_find(const struct environment *environment, const char *beginning)
{
    size_t length = strlen(beginning);

    for (size_t at = 0; at < environment->size_bytes; at += strlen(environment->text + at) + 1) {
        if (strncmp(environment->text + at, beginning, length) == 0) {
            return environment->text + at;
        }
    }
    return NULL;
}

/* Returns true if the process was started with `assignment` in its environment, which is read into
 * `environment`. */
static bool was_started_with(const char *pid_text, const char *assignment,
                             struct environment *environment)
{
    const char *found;

    environment_read(environment, pid_text);
    found = environment_find(environment, assignment);
    return found != NULL && strcmp(found, assignment) == 0;
}

bool tdm__process_environment_value(pid_t pid, const char *name, char *value, size_t capacity_bytes)
{
    struct environment environment = {.text = NULL};
    const char *found;
    char text[64];

    (void)snprintf(text, sizeof(text), "%d", (int)pid);
    environment_read(&environment, text);
    (void)snprintf(text, sizeof(text), "%.60s=", name);
    found = environment_find(&environment, text);
    if (found != NULL) {
        (void)snprintf(value, capacity_bytes, "%s", found + strlen(text));
    }
    free(environment.text);
    return found != NULL;
}

uint32_t tdm__process_tree_kill_marked(const char *assignment)
{
    DIR *processes = opendir("/proc");
    struct environment environment = {.text = NULL};
    const struct dirent *entry;
    uint32_t killed = 0;

    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (pid > 1 && pid != getpid() && pid != getppid() &&
            was_started_with(entry->d_name, assignment, &environment) && kill(pid, SIGKILL) == 0) {
            killed++;
        }
    }
    free(environment.text);
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

/* Kills one child of this process; the callback for tdm__process_tree_each_child(). */
static void kill_child(void *arg, pid_t pid)
{
    (void)arg;
    /* A child that was not reaped keeps its pid, so no other process is hit. */
    (void)kill(pid, SIGKILL);
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
        (void)poll(NULL, 0, 1); /* Gives the kernel a moment to end the killed processes. */
    }
}
