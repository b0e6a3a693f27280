/* local_socket.h - the Unix socket at which a process forwards connections to a Redis server. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_LOCAL_SOCKET_H
#define TDM_REDIS_LOCAL_SOCKET_H

#include "runtime/loop/loop.h"

#include <sys/un.h>

/* Called for each client that connects. Owns the socket `fd`, which is non-blocking. */
typedef void tdm__local_socket_fn(void *arg, int fd);

/* A Unix socket that listens. Its users do not look inside. */
struct tdm__local_socket {
    struct sockaddr_un address;  /* Address of the socket; its path is "" before it is open. */
    int fd;                      /* The socket (owned); -1 before it is open. */
    struct tdm__fd_watch *watch; /* Reports clients (owned). */
    tdm__local_socket_fn *fn;    /* Called for each client. */
    void *arg;                   /* First argument of `fn`. */
};

/* A socket that is not open, which tdm__local_socket_close() accepts. */
#define TDM__LOCAL_SOCKET_CLOSED ((struct tdm__local_socket){.fd = -1})

/* Listens at the Unix socket "store.sock" in `directory`, which only this user can open. The caller
 * closes it, also after a failure. Returns TDM_E_EXISTS if another process listens there. */
tdm_status tdm__local_socket_open(struct tdm__loop *loop, const char *directory,
                                  tdm__local_socket_fn *fn, void *arg,
                                  struct tdm__local_socket *local);
/* Ends listening and removes the socket's file. */
void tdm__local_socket_close(struct tdm__local_socket *local);

#endif
