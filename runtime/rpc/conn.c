/* conn.c - what users of a connection can do with it, whatever its state is. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/conn.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/rpc/internal.h"
#include "runtime/rpc/send.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

void tdm__conn_retain(struct tdm__conn *conn)
{
    TDM_ASSERT(conn->references_count > 0);
    conn->references_count++;
}

void tdm__conn_release(struct tdm__conn *conn)
{
    TDM_ASSERT(conn->references_count > 0);
    if (--conn->references_count > 0) {
        return;
    }
    TDM_ASSERT(conn->state == CONN_ENDED);
    free(conn);
}

tdm_status tdm__conn_set_timer(struct tdm__conn *conn, int64_t deadline_ms)
{
    if (deadline_ms >= conn->timer_ms) {
        return TDM_OK;
    }
    TDM_TRY(tdm__timer_set(conn->timer, deadline_ms));
    conn->timer_ms = deadline_ms;
    return TDM_OK;
}

void tdm__conn_on_closed(struct tdm__conn *conn, tdm__closed_fn *fn, void *arg)
{
    conn->on_closed = fn;
    conn->on_closed_arg = arg;
}

tdm_status tdm__conn_watch_close(struct tdm__conn *conn, struct tdm__close_watcher *watcher)
{
    if (conn->state == CONN_ENDED) {
        return tdm__fail(TDM_E_CLOSED, "the connection with %s has ended", conn->label);
    }
    LIST_INSERT_HEAD(&conn->close_watchers, watcher, link);
    return TDM_OK;
}

void tdm__conn_unwatch_close(struct tdm__close_watcher *watcher)
{
    LIST_REMOVE(watcher, link);
}

void tdm__conn_close(struct tdm__conn *conn)
{
    if (conn->state == CONN_CLOSING || conn->state == CONN_ENDED) {
        return;
    }
    if (conn->state == CONN_OPEN) {
        tdm__conn_flush(conn);
    }
    conn->state = CONN_CLOSING;
    (void)tdm__fd_watch_set_events(conn->watch, 0);
    tdm__fd_watch_call_again(conn->watch);
}

tdm_status tdm__conn_detach(struct tdm__conn *conn, int *fd_out, struct tdm__tls **tls_out)
{
    tdm_status status = TDM_OK;
    int fd = -1;

    if (conn->state == CONN_OPEN) {
        tdm__conn_flush(conn);
    }
    if (conn->state != CONN_OPEN || conn->write_failed || conn->output.size_bytes > 0 ||
        conn->input_begin != conn->input_end || conn->partial != NULL || conn->fds_count > 0) {
        status = tdm__fail(TDM_E_STATE, "the socket of %s is in use or closed", conn->label);
    } else {
        fd = fcntl(conn->fd, F_DUPFD_CLOEXEC, 0);
    }
    if (status == TDM_OK && fd < 0) {
        status = tdm__fail_errno(errno, "dup of the socket of %s", conn->label);
    }
    *tls_out = NULL;
    if (status == TDM_OK && conn->tls != NULL) {
        tdm__tls_set_fd(conn->tls, fd);
        *tls_out = conn->tls;
        conn->tls = NULL;
    }
    /* Closing the connection closes only its own descriptor of the socket. */
    tdm__conn_close(conn);
    *fd_out = fd;
    return status;
}

bool tdm__conn_is_open(const struct tdm__conn *conn)
{
    return conn->state == CONN_OPEN;
}

bool tdm__conn_was_refused(const struct tdm__conn *conn)
{
    return conn->was_refused;
}

void tdm__conn_expect_peer(struct tdm__conn *conn, const struct tdm__id *id)
{
    conn->expected_peer = *id;
}

const struct tdm__peer_identity *tdm__conn_peer(const struct tdm__conn *conn)
{
    return &conn->peer;
}

struct tdm__loop *tdm__conn_loop(const struct tdm__conn *conn)
{
    return conn->loop;
}

void tdm__conn_set_user_data(struct tdm__conn *conn, void *user_data)
{
    conn->user_data = user_data;
}

void *tdm__conn_user_data(const struct tdm__conn *conn)
{
    return conn->user_data;
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

void tdm__conn_set_tail_buffer(struct tdm__conn *conn, void *buffer, size_t size_bytes)
{
    bool late = conn->partial != NULL && conn->partial->frame.kind == TDM__FRAME_CALL;

    conn->tail_buffer = late ? NULL : buffer;
    conn->tail_buffer_bytes = size_bytes;
}
