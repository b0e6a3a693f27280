/* copy_workers.h - processes that copy or send memory, the upper limit for everything that moves
 * bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_SUPPORT_COPY_WORKERS_H
#define TDM_BENCH_SUPPORT_COPY_WORKERS_H

#include "peer.h"

#include <stddef.h>
#include <stdint.h>

/* Most processes in one group. */
enum { BENCH_COPY_WORKERS_MAX = 16 };

/* A group of processes with the same role. The benchmark owns it. */
struct bench_copy_workers {
    /* Number of processes. */
    uint32_t count;
    /* Owned socket to each process. */
    int fds[BENCH_COPY_WORKERS_MAX];
    /* Process ID of each process. */
    pid_t pids[BENCH_COPY_WORKERS_MAX];
};

/* Entry for the program's table of roles: a process that copies its memory with memcpy(). */
#define BENCH_COPIER_ROLE                                                                          \
    {                                                                                              \
        "copier", bench_copier                                                                     \
    }
/* Main function of that role; `fd` is the socket to the benchmark. */
void bench_copier(int fd);
/* Copies with a function of the benchmark. The result of the function is used, so that the
 * compiler cannot remove the copy. */
typedef uint64_t bench_copy_fn(void *to, const void *from, size_t size_bytes);
/* Main function of a role that copies with `copy`. */
_Noreturn void bench_copier_with(int fd, bench_copy_fn *copy);
/* Entry for the table of roles: a process that sends its memory to a child process over TCP on
 * the loopback interface. */
#define BENCH_SENDER_ROLE                                                                          \
    {                                                                                              \
        "sender", bench_sender                                                                     \
    }
/* Main function of that role. */
void bench_sender(int fd);

/* Starts `count` processes of a role. Each copies or sends `size_bytes` between buffers whose
 * pages have been touched before. */
void bench_copy_workers_start(struct bench_copy_workers *copiers, const char *role, uint32_t count,
                              uint64_t size_bytes);
/* Makes all processes copy or send once at the same time. Returns the seconds until the last one
 * is done. */
double bench_copy_workers_run(const struct bench_copy_workers *copiers);
/* Kills the processes and closes their sockets. */
void bench_copy_workers_stop(struct bench_copy_workers *copiers);

#endif
