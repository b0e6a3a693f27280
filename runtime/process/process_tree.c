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
 * process, so it is only for processes whose other children may all end. */
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
    STAT_BYTES = 1024, /* Size in bytes of the buffer for /proc/PID/stat. */
    /* Longest pause in milliseconds between two scans for children that do not end. */
    PAUSE_MAX_MS = 32
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

/* Returns the process id of a process's parent, as /proc/PID/stat tells it: "PID (NAME) S PARENT
 * ...".  The name may contain any character, but ends at the last ')'.  Returns -1 if the process
 * is gone. */
static pid_t parent_of(const char *pid_text)
{
    char path[64];
    char stat[STAT_BYTES];
    ssize_t got;
    const char *after_name;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid_text);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    got = read(fd, stat, sizeof(stat) - 1);
    (void)close(fd);
    stat[got > 0 ? got : 0] = '\0';
    after_name = strrchr(stat, ')');
    return after_name != NULL && strlen(after_name) >= 4 ? (pid_t)strtol(after_name + 4, NULL, 10)
                                                         : -1;
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

/* Reaps all children that have ended and adds them to `reaped`. Returns false if this process has
 * no children any more. */
static bool reap_ended_children(struct tdm__reaped *reaped)
{
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        if (reaped->count < TDM__REAPED_PIDS_MAX) {
            reaped->pids[reaped->count] = pid;
        }
        reaped->count++;
    }
    return pid == 0 || errno != ECHILD;
}

bool tdm__process_tree_kill_all(int64_t timeout_ms, struct tdm__reaped *reaped_out)
{
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    struct tdm__reaped reaped = {.count = 0};
    uint32_t reaped_before = 0; /* Number of processes that had been reaped at the last scan. */
    int pause_ms = 1;
    bool has_children = reap_ended_children(&reaped);

    while (has_children) {
        tdm__process_tree_each_child(kill_child, NULL);
        if (tdm__deadline_remaining_ms(deadline_ms) == 0) {
            has_children = reap_ended_children(&reaped);
            break;
        }
        (void)poll(NULL, 0, pause_ms); /* Gives the kernel time to end the killed processes. */
        has_children = reap_ended_children(&reaped);
        /* Each level of the tree becomes visible when the level above it has been reaped. */
        pause_ms = reaped.count > reaped_before ? 1
                   : pause_ms < PAUSE_MAX_MS    ? 2 * pause_ms
                                                : pause_ms;
        reaped_before = reaped.count;
    }
    if (reaped_out != NULL) {
        *reaped_out = reaped;
    }
    return !has_children;
}

/* What tdm__process_tree_kill_others() passes to each child of this process. */
struct others {
    bool (*is_own)(void *arg, pid_t pid); /* Tells which children are spared. */
    void *arg;                            /* First argument of `is_own`, borrowed. */
    uint32_t left_count; /* Number of children that were killed and have not ended. */
    pid_t left;          /* Process id of one of them. */
};

/* Kills or reaps one child of this process unless it is spared. */
static void kill_other(void *arg, pid_t pid)
{
    struct others *others = arg;

    if (others->is_own(others->arg, pid) || waitpid(pid, NULL, WNOHANG) == pid) {
        return;
    }
    (void)kill(pid, SIGKILL);
    others->left_count++;
    others->left = pid;
}

uint32_t tdm__process_tree_kill_others(bool (*is_own)(void *arg, pid_t pid), void *arg,
                                       pid_t *left_out)
{
    struct others others = {.is_own = is_own, .arg = arg};

    tdm__process_tree_each_child(kill_other, &others);
    *left_out = others.left;
    return others.left_count;
}
