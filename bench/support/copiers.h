/* copiers.h - the limit of everything that moves bytes: warmed processes that memcpy, or send.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_COPIERS_H
#define TDM_BENCH_COPIERS_H

#include "peer.h"

#include <stddef.h>
#include <stdint.h>

enum { BENCH_COPIERS_MAX = 16 };

struct bench_copiers {
    uint32_t count;
    int fds[BENCH_COPIERS_MAX];
    pid_t pids[BENCH_COPIERS_MAX];
};

/* For the program's table of roles. */
#define BENCH_COPIER_ROLE                                                                      \
    {                                                                                          \
        "copier", bench_copier                                                                 \
    }
void bench_copier(int fd);
/* The same by `copy`, for a role of the program's own.  What `copy` returns is used, so that no
 * compiler leaves it out. */
typedef uint64_t bench_copy(void *to, const void *from, size_t size_bytes);
_Noreturn void bench_copier_by(int fd, bench_copy *copy);
/* Another process gets what it has, over TCP on the loopback. */
#define BENCH_SENDER_ROLE                                                                      \
    {                                                                                          \
        "sender", bench_sender                                                                 \
    }
void bench_sender(int fd);

/* As many processes of that role as there are writers; each copies or sends `size_bytes`, from
 * and to memory that was touched already. */
void bench_copiers_start(struct bench_copiers *copiers, const char *role, uint32_t count,
                         uint64_t size_bytes);
/* All do so once, at the same time: the seconds from the word until the last is done. */
double bench_copiers_run(const struct bench_copiers *copiers);
void bench_copiers_stop(struct bench_copiers *copiers);

#endif
