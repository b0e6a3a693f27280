/* copy_workers.h - the limit of everything that moves bytes: warmed processes that memcpy, or send.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_SUPPORT_COPY_WORKERS_H
#define TDM_BENCH_SUPPORT_COPY_WORKERS_H

#include "peer.h"

#include <stddef.h>
#include <stdint.h>

enum { BENCH_COPY_WORKERS_MAX = 16 };

struct bench_copy_workers {
    uint32_t count;
    int fds[BENCH_COPY_WORKERS_MAX];
    pid_t pids[BENCH_COPY_WORKERS_MAX];
};

/* For the program's table of roles. */
#define BENCH_COPIER_ROLE                                                                          \
    {                                                                                              \
        "copier", bench_copier                                                                     \
    }
void bench_copier(int fd);
/* The same by `copy`, for a role of the program's own.  What `copy` returns is used, so that no
 * compiler leaves it out. */
typedef uint64_t bench_copy_fn(void *to, const void *from, size_t size_bytes);
_Noreturn void bench_copier_with(int fd, bench_copy_fn *copy);
/* Another process gets what it has, over TCP on the loopback. */
#define BENCH_SENDER_ROLE                                                                          \
    {                                                                                              \
        "sender", bench_sender                                                                     \
    }
void bench_sender(int fd);

/* As many processes of that role as there are writers; each copies or sends `size_bytes`, from
 * and to memory that was touched already. */
void bench_copy_workers_start(struct bench_copy_workers *copiers, const char *role, uint32_t count,
                              uint64_t size_bytes);
/* All do so once, at the same time: the seconds from the word until the last is done. */
double bench_copy_workers_run(const struct bench_copy_workers *copiers);
void bench_copy_workers_stop(struct bench_copy_workers *copiers);

#endif
