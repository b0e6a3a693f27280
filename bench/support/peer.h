/* peer.h - the other process of a bare measure: this same program, in another role. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_PEER_H
#define TDM_BENCH_PEER_H

#include <stddef.h>
#include <sys/types.h>

/* Where a peer finds its end of the socket. */
enum { BENCH_PEER_FD = 3 };

/* What a program can be started as.  The function gets BENCH_PEER_FD; the process ends when it
 * returns. */
struct bench_role {
    const char *name;
    void (*run)(int fd);
};

/* First in main(), before the runtime starts: where this process is a peer, runs its role and
 * does not return.  Peers never start a runtime. */
void bench_peer_run(int argc, char **argv, const struct bench_role *roles, size_t roles_count);

/* Starts this program by posix_spawn in that role, with `fd` (stays the caller's) as its
 * BENCH_PEER_FD.  Ends the program when it cannot. */
pid_t bench_peer_spawn(const char *role, int fd);
/* The same with one end of a new Unix stream socket; the other is returned. */
int bench_peer_pair(const char *role, pid_t *pid_out);
/* SIGKILL, and waits until it is gone. */
void bench_peer_kill(pid_t pid);

/* Binds every thread that a process has now to one core; pid 0 is this one. */
void bench_pin_to_core(pid_t pid, int core);
/* Lets them run anywhere again. */
void bench_unpin(pid_t pid);
int bench_cores(void);

/* Exactly `size_bytes`, blocking.  The end of the stream ends the program: with 0 in a peer,
 * whose other side has left, as it should. */
void bench_read(int fd, void *buffer, size_t size_bytes);
void bench_write(int fd, const void *buffer, size_t size_bytes);

#endif
