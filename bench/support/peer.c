/* peer.c - starts, pins and ends peer processes, and exchanges bytes with them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A peer is this same program, started with "--role NAME" and a socket as file descriptor
 * BENCH_PEER_FD. It never starts a runtime and is killed when its parent dies. Reads and writes
 * are blocking and complete; any error ends the program. In a peer the end of the stream means
 * that the benchmark has ended, which is not an error. */
#include "peer.h"

#include "measure.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* True in a peer process. */
static bool is_peer;

void bench_peer_run(int argc, char **argv, const struct bench_role *roles, size_t roles_count)
{
    if (argc != 3 || strcmp(argv[1], "--role") != 0) {
        return;
    }
    is_peer = true;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < roles_count; i++) {
        if (strcmp(argv[2], roles[i].name) == 0) {
            roles[i].run(BENCH_PEER_FD);
            _exit(0);
        }
    }
    errno = EINVAL;
    bench_die(argv[2]);
}

pid_t bench_peer_spawn(const char *role, int fd)
{
    char *const argv[] = {(char *)"peer", (char *)"--role", (char *)role, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;

    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, fd, BENCH_PEER_FD);
    errno = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
    if (errno != 0) {
        bench_die("posix_spawn");
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return pid;
}

int bench_peer_pair(const char *role, pid_t *pid_out)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        bench_die("socketpair");
    }
    *pid_out = bench_peer_spawn(role, ends[1]);
    (void)close(ends[1]);
    return ends[0];
}

void bench_peer_kill(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0) {
        if (errno != EINTR) {
            bench_die("waitpid");
        }
    }
}

/* Sets the affinity of all threads of a process. A thread that has ended meanwhile is ignored. */
static void set_affinity(pid_t pid, const cpu_set_t *set)
{
    char path[64];
    const struct dirent *entry;
    DIR *threads;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", pid == 0 ? getpid() : pid);
    threads = opendir(path);
    if (threads == NULL) {
        bench_die(path);
    }
    while ((entry = readdir(threads)) != NULL) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);

        if (thread > 0 && sched_setaffinity(thread, sizeof(*set), set) != 0 && errno != ESRCH) {
            bench_die("sched_setaffinity");
        }
    }
    (void)closedir(threads);
}

void bench_pin_to_core(pid_t pid, int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    set_affinity(pid, &set);
}

void bench_unpin(pid_t pid)
{
    cpu_set_t set;

    memset(&set, 0xff, sizeof(set));
    set_affinity(pid, &set);
}

int bench_cores(void)
{
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

void bench_read(int fd, void *buffer, size_t size_bytes)
{
    char *place = buffer;

    while (size_bytes > 0) {
        ssize_t got = read(fd, place, size_bytes);

        if (got == 0 && is_peer) {
            _exit(0);
        }
        if (got > 0) {
            place += got;
            size_bytes -= (size_t)got;
        } else if (got == 0 || errno != EINTR) {
            bench_die("read");
        }
    }
}

void bench_write(int fd, const void *buffer, size_t size_bytes)
{
    const char *place = buffer;

    while (size_bytes > 0) {
        ssize_t put = send(fd, place, size_bytes, MSG_NOSIGNAL);

        if (put >= 0) {
            place += put;
            size_bytes -= (size_t)put;
        } else if (errno != EINTR) {
            bench_die("write");
        }
    }
}
