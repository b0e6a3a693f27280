/* peer.h - starts further processes of this same program in another role, to compare Tandem
 * with. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_PEER_H
#define TDM_BENCH_PEER_H

#include <stddef.h>
#include <sys/types.h>

/* File descriptor of the socket in a peer process. */
enum { BENCH_PEER_FD = 3 };

/* Sizes in bytes on the wire of a call of the method "echo" with an array of one 64-bit integer,
 * and of its reply: the header of the frame has 72, the name of the method 4, the array 10. */
enum { BENCH_CALL_BYTES = 86, BENCH_REPLY_BYTES = 82 };

/* A role in which the program can be started. */
struct bench_role {
    /* Name of the role on the command line. */
    const char *name;
    /* Main function of the role. It gets BENCH_PEER_FD; the process exits when it returns. */
    void (*run)(int fd);
};

/* Must be called first in main(), before a runtime is started. In a peer process it runs the
 * role and does not return. Peers never start a runtime. */
void bench_peer_run(int argc, char **argv, const struct bench_role *roles, size_t roles_count);

/* Starts this program in that role. `fd` becomes its BENCH_PEER_FD and stays open in the caller.
 * Returns the process ID; exits with 1 on failure. */
pid_t bench_peer_spawn(const char *role, int fd);
/* Starts a peer that gets one end of a new Unix stream socket. Returns the other end. */
int bench_peer_pair(const char *role, pid_t *pid_out);
/* Kills a peer and waits until it is gone. */
void bench_peer_kill(pid_t pid);

/* Binds all present threads of a process to one core. The pid 0 means this process. */
void bench_pin_to_core(pid_t pid, int core);
/* Lets all threads of a process run on any core again. */
void bench_unpin(pid_t pid);
/* Returns the number of cores of the machine. */
int bench_cores(void);

/* Reads exactly `size_bytes` and blocks until they are there. An error or the end of the stream
 * ends the program. In a peer the end of the stream is normal: it exits with 0. */
void bench_read(int fd, void *buffer, size_t size_bytes);
/* Writes exactly `size_bytes` to a socket and blocks until they are sent. An error ends the
 * program. */
void bench_write(int fd, const void *buffer, size_t size_bytes);

#endif
