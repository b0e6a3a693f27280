/* local_socket.c - the Unix socket at which a process forwards connections to a Redis server. */
/* SPDX-License-Identifier: Apache-2.0 */
/* hiredis connects to addresses only, so what must do more than connect listens here. */
#include "runtime/redis/local_socket.h"

#include "runtime/error.h"
#include "runtime/socket.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKLOG = 16 }; /* Length of the queue of listen(2). */

/* Accepts a client. */
static void on_client(void *arg, int fd, unsigned ready)
{
    const struct tdm__local_socket *local = arg;
    int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)ready;
    if (client >= 0) { /* Else the client has disconnected already. */
        local->fn(local->arg, client);
    }
}

tdm_status tdm__local_socket_open(struct tdm__loop *loop, const char *directory,
                                  tdm__local_socket_fn *fn, void *arg,
                                  struct tdm__local_socket *local)
{
    struct sockaddr_un *address = &local->address;
    int written;

    *local = TDM__LOCAL_SOCKET_CLOSED;
    local->fn = fn;
    local->arg = arg;
    address->sun_family = AF_UNIX;
    written = snprintf(address->sun_path, sizeof(address->sun_path), "%s/store.sock", directory);
    if (written < 0 || (size_t)written >= sizeof(address->sun_path)) {
        return tdm__fail(TDM_E_LIMIT, "%s/store.sock is too long for a Unix socket", directory);
    }
    TDM_TRY(tdm__socket_remove_stale(address->sun_path));
    local->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (local->fd < 0) {
        return tdm__fail_errno(errno, "socket");
    }
    if (bind(local->fd, (const struct sockaddr *)address, sizeof(*address)) != 0 ||
        chmod(address->sun_path, 0600) != 0 || listen(local->fd, BACKLOG) != 0) {
        return tdm__fail_errno(errno, "listening at %s", address->sun_path);
    }
    return tdm__fd_watch_create(loop, local->fd, TDM__READABLE, on_client, local, &local->watch);
}

void tdm__local_socket_close(struct tdm__local_socket *local)
{
    tdm__fd_watch_destroy(local->watch);
    if (local->fd >= 0) {
        (void)close(local->fd);
        (void)unlink(local->address.sun_path);
    }
    *local = TDM__LOCAL_SOCKET_CLOSED;
}
