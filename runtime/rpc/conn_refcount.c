/* conn_refcount.c - the reference count of a connection, and the accessors for its users. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/rpc/internal.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

void tdm__conn_retain(struct tdm__conn *conn)
{
    TDM_ASSERT(conn->references > 0);
    conn->references++;
}

void tdm__conn_release(struct tdm__conn *conn)
{
    TDM_ASSERT(conn->references > 0);
    if (--conn->references > 0) {
        return;
    }
    TDM_ASSERT(conn->state == CONN_ENDED);
    free(conn);
}

void tdm__conn_on_closed(struct tdm__conn *conn, tdm__closed_fn *fn, void *arg)
{
    conn->on_closed = fn;
    conn->on_closed_arg = arg;
}

bool tdm__conn_is_open(const struct tdm__conn *conn)
{
    return conn->state == CONN_OPEN;
}

const struct tdm__peer_identity *tdm__conn_peer(const struct tdm__conn *conn)
{
    return &conn->peer;
}

void tdm__conn_set_user_data(struct tdm__conn *conn, void *user)
{
    conn->user = user;
}

void *tdm__conn_user_data(const struct tdm__conn *conn)
{
    return conn->user;
}

int tdm__conn_peer_pidfd(const struct tdm__conn *conn)
{
    struct ucred peer;
    socklen_t peer_bytes = sizeof(peer);

    if (!conn->local || conn->fd < 0 ||
        getsockopt(conn->fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) < 0 || peer.pid <= 0) {
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}
