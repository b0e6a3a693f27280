/* driver_run.c - runs tests/actors/driver_program.c, to kill it or what it stands on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/driver_run.h"

#include "runtime/clock.h"
#include "runtime/process/process_tree.h"
#include "tests/support/redis_fixture.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_MS = 60000 };

_Noreturn static void give_up(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- /proc ------------------------------------------------------------------------------ */

/* The bytes of /proc/PID/NAME, with a NUL behind them; their number, or -1. */
static ssize_t read_proc(pid_t pid, const char *name, char *bytes, size_t room)
{
    char path[64];
    ssize_t got;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    got = read(fd, bytes, room - 1);
    (void)close(fd);
    bytes[got < 0 ? 0 : got] = '\0';
    return got;
}

/* The next of a walk through /proc; 0 at its end. */
static pid_t next_process(DIR *processes)
{
    const struct dirent *entry;

    while ((entry = readdir(processes)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0])) {
            return (pid_t)strtol(entry->d_name, NULL, 10);
        }
    }
    return 0;
}

static int is_child(pid_t pid, pid_t parent, const char *name)
{
    char stat[512];
    const char *after_name;

    if (read_proc(pid, "stat", stat, sizeof(stat)) <= 0) {
        return 0;
    }
    after_name = strrchr(stat, ')');
    return after_name != NULL && strtol(after_name + 4, NULL, 10) == parent &&
           strncmp(strchr(stat, '(') + 1, name, strlen(name)) == 0;
}

pid_t driver_find_child(pid_t parent, const char *name)
{
    DIR *processes = opendir("/proc");
    pid_t found = 0;
    pid_t pid;

    while (processes != NULL && found == 0 && (pid = next_process(processes)) != 0) {
        found = is_child(pid, parent, name) ? pid : 0;
    }
    if (processes != NULL) {
        (void)closedir(processes);
    }
    return found;
}

static int was_started_below(pid_t pid, const char *assignment)
{
    static char environment[1 << 17];
    ssize_t got = read_proc(pid, "environ", environment, sizeof(environment));

    for (const char *at = environment; got > 0 && at < environment + got; at += strlen(at) + 1) {
        if (strcmp(at, assignment) == 0) {
            return 1;
        }
    }
    return 0;
}

/* ---- start and output ------------------------------------------------------------------- */

_Noreturn static void become_driver(const struct driver_run *run, const char *argument, int output)
{
    static const char *const program = TDM_TEST_BUILD_DIR "/tests/driver_program";

    (void)dup2(output, STDOUT_FILENO);
    (void)setenv("TMPDIR", run->temporary, 1);
    (void)setenv("TANDEM_DAEMON", TDM_TEST_BUILD_DIR "/tandemd", 1);
    (void)unsetenv("TANDEM_ADDRESS");
    (void)execl(program, program, argument, (char *)NULL);
    _exit(127);
}

int driver_line(struct driver_run *run, char *line, size_t room, int64_t timeout_ms)
{
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);

    for (;;) {
        char *end = memchr(run->buffer, '\n', run->buffered);
        struct pollfd readable = {.fd = run->output, .events = POLLIN};
        ssize_t got;

        if (end != NULL) {
            size_t length = (size_t)(end - run->buffer);

            (void)snprintf(line, room, "%.*s", (int)length, run->buffer);
            run->buffered -= length + 1;
            memmove(run->buffer, end + 1, run->buffered);
            return 1;
        }
        if (poll(&readable, 1, (int)tdm__deadline_remaining_ms(deadline_ms)) <= 0) {
            return 0;
        }
        got = read(run->output, run->buffer + run->buffered, sizeof(run->buffer) - run->buffered);
        if (got <= 0) {
            return 0;
        }
        run->buffered += (size_t)got;
    }
}

void driver_start(struct driver_run *run, const char *argument)
{
    char temporary[] = "/tmp/tdk-XXXXXX";

    if (mkdtemp(temporary) == NULL) {
        give_up("a driver's directory");
    }
    driver_start_in(run, temporary, argument);
}

void driver_start_in(struct driver_run *run, const char *temporary, const char *argument)
{
    char line[1024] = "";
    int output[2];
    int actors_count = 0;

    *run = (struct driver_run){.is_open = 1, .output = -1};
    (void)snprintf(run->temporary, sizeof(run->temporary), "%s", temporary);
    if (pipe2(output, O_CLOEXEC) < 0) {
        give_up("pipe2");
    }
    run->driver = fork();
    if (run->driver == 0) {
        become_driver(run, argument, output[1]);
    }
    (void)close(output[1]);
    run->output = output[0];
    while (strcmp(line, "ready") != 0) {
        long long pid;

        if (!driver_line(run, line, sizeof(line), START_MS)) {
            give_up("the driver did not start");
        }
        if (sscanf(line, "actor %lld", &pid) == 1 && actors_count < DRIVER_ACTORS) {
            run->actors[actors_count++] = (pid_t)pid;
        }
    }
    run->supervisor = driver_find_child(run->driver, "tandem-super");
    run->daemon = driver_find_child(run->supervisor, "tandemd");
    run->redis = driver_find_child(run->daemon, "tandem-store");
    if (run->supervisor == 0 || run->daemon == 0 || run->redis == 0) {
        give_up("the driver's processes");
    }
}

/* ---- the end ---------------------------------------------------------------------------- */

int driver_end(struct driver_run *run, int64_t timeout_ms)
{
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    int wait_status;

    while (waitpid(run->driver, &wait_status, WNOHANG) == 0) {
        if (tdm__deadline_remaining_ms(deadline_ms) == 0) {
            (void)kill(run->driver, SIGKILL);
            (void)waitpid(run->driver, &wait_status, 0);
            return -1;
        }
        (void)poll(NULL, 0, 2);
    }
    return wait_status;
}

static int count_processes(const char *assignment, int report)
{
    DIR *processes = opendir("/proc");
    int count = 0;
    pid_t pid;

    while (processes != NULL && (pid = next_process(processes)) != 0) {
        char name[64];

        if (pid == getpid() || !was_started_below(pid, assignment)) {
            continue;
        }
        count++;
        if (report) {
            (void)read_proc(pid, "comm", name, sizeof(name));
            (void)fprintf(stderr, "left running: pid %d, %s", (int)pid, name);
        }
    }
    if (processes != NULL) {
        (void)closedir(processes);
    }
    return count;
}

static int count_files(const char *directory, int report)
{
    DIR *entries = opendir(directory);
    const struct dirent *entry;
    int count = 0;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (entry->d_name[0] != '.') {
            count++;
            if (report) {
                (void)fprintf(stderr, "left behind: %s/%s\n", directory, entry->d_name);
            }
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    return count;
}

int driver_leftovers(struct driver_run *run, int64_t timeout_ms)
{
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    char assignment[64];
    int count;

    (void)snprintf(assignment, sizeof(assignment), "TMPDIR=%s", run->temporary);
    do {
        count = count_processes(assignment, 0) + count_files(run->temporary, 0);
        if (count > 0) {
            (void)poll(NULL, 0, 10);
        }
    } while (count > 0 && tdm__deadline_remaining_ms(deadline_ms) > 0);
    if (count > 0) {
        (void)count_processes(assignment, 1);
        (void)count_files(run->temporary, 1);
        (void)tdm__process_tree_kill_marked(assignment);
    }
    remove_tree(run->temporary);
    (void)close(run->output);
    run->is_open = 0;
    return count;
}
