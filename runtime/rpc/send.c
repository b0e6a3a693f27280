/* send.c - frames leave at once, or together with those that follow them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A small frame is copied into the connection's output. The output is written when a peer may be
 * waiting for that very frame, when FLUSH_BYTES have accumulated, or before the loop polls. So a
 * single call and its reply cost one system call each, and a thousand calls share a few. A process
 * that computes without running its loop has a background poller, which polls after a millisecond.
 * A large payload is written directly from the caller's memory.
 *
 * A failed write does not end the connection at once: conn->write_failed discards all later output,
 * and the reader ends the connection when it has read the replies that already arrived. All
 * functions run on the loop's thread and never block. */
#include "runtime/rpc/send.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/rpc/internal.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

/* Limits that decide when a frame is copied and when a connection's output is written. */
enum {
    /* Most bytes of a frame that is copied; larger frames are written from the caller's memory. */
    COPIED_FRAME_BYTES_MAX = 4096,
    /* Number of waiting bytes from which on a connection's output is written at once. */
    FLUSH_BYTES = 16 * 1024,
    /* Number of pending calls below which each call is written at once, because its caller probably
     * waits for the reply. */
    PROMPT_CALLS_MAX = 16
};

/* Writes pieces of memory and descriptors to a socket by one sendmsg(2). Returns the number of
 * bytes written, 0 if the socket is full, and -1 with errno if the write failed. */
static ssize_t socket_send_pieces(int fd, struct iovec *pieces, size_t pieces_count, const int *fds,
                                  uint32_t fds_count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * TDM__RPC_FDS_MAX)];
    } control;
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = pieces_count};
    ssize_t sent;

    if (fds_count > 0) {
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fds_count);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int) * fds_count);
        memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * fds_count);
    }
    do {
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 && errno == EAGAIN ? 0 : sent;
}

/* Writes pieces of memory to the connection's socket, through TLS if the connection has it. TLS is
 * never on a Unix socket, so no descriptors go through it. Returns what socket_send_pieces() does.
 */
static ssize_t conn_write_pieces(const struct tdm__conn *conn, struct iovec *pieces,
                                 size_t pieces_count, const int *fds, uint32_t fds_count)
{
    return conn->tls == NULL ? socket_send_pieces(conn->fd, pieces, pieces_count, fds, fds_count)
                             : tdm__tls_write(conn->tls, pieces, pieces_count);
}

/* Discards all output of a connection whose socket cannot be written. Replies that have already
 * arrived are still read; reading finds the end of the connection behind them. */
static void conn_stop_writing(struct tdm__conn *conn)
{
    conn->write_failed = true;
    tdm__output_clear(&conn->output);
    (void)shutdown(conn->fd, SHUT_RDWR);
    (void)tdm__fd_watch_set_events(conn->watch, TDM__READABLE);
}

/* Makes the connection's watch report when the socket is writable. */
static void conn_wait_writable(struct tdm__conn *conn)
{
    conn->output_blocked = true;
    if (tdm__fd_watch_set_events(conn->watch, TDM__READABLE | TDM__WRITABLE) != TDM_OK) {
        conn_stop_writing(conn);
    }
}

/* Makes the connection's watch report when the socket is writable if bytes that TLS has encrypted
 * wait for it. */
static void conn_wait_encrypted(struct tdm__conn *conn)
{
    if (conn->tls != NULL && !conn->write_failed && tdm__tls_has_output(conn->tls)) {
        conn_wait_writable(conn);
    }
}

/* ---- flushing --------------------------------------------------------------------------- */

void tdm__conn_uncork(struct tdm__conn *conn)
{
    if (conn->corked) {
        conn->corked = false;
        TAILQ_REMOVE(&conn->rpc->corked, conn, cork_link);
    }
}

void tdm__conn_flush(struct tdm__conn *conn)
{
    if (conn->state != CONN_OPEN) {
        return;
    }
    tdm__conn_uncork(conn);
    while (conn->output.size_bytes > 0 && !conn->output_blocked) {
        struct iovec pieces[OUTPUT_PIECES_MAX];
        const int *fds = NULL;
        uint32_t fds_count = 0;
        size_t pieces_count = tdm__output_gather(&conn->output, pieces, &fds, &fds_count);
        ssize_t sent = conn_write_pieces(conn, pieces, pieces_count, fds, fds_count);

        if (sent < 0) {
            conn_stop_writing(conn);
        } else if (sent == 0) {
            conn_wait_writable(conn);
        } else {
            tdm__output_consume(&conn->output, (size_t)sent);
        }
    }
    conn_wait_encrypted(conn);
}

void tdm__conn_unblock(struct tdm__conn *conn)
{
    conn->output_blocked = false;
    if (conn->tls != NULL && !conn->write_failed && tdm__tls_write(conn->tls, NULL, 0) < 0) {
        conn_stop_writing(conn);
    }
    tdm__conn_flush(conn);
    if (!conn->output_blocked) {
        (void)tdm__fd_watch_set_events(conn->watch, TDM__READABLE);
    }
}

void tdm__rpc_flush(void *arg)
{
    struct tdm__rpc *rpc = arg;

    while (!TAILQ_EMPTY(&rpc->corked)) {
        tdm__conn_flush(TAILQ_FIRST(&rpc->corked));
    }
}

/* Schedules writing the connection's output before the loop polls next. A loop that is already
 * polling is woken, because it checked the list before. */
static void conn_cork(struct tdm__conn *conn)
{
    bool first = TAILQ_EMPTY(&conn->rpc->corked);

    if (conn->corked) {
        return;
    }
    conn->corked = true;
    TAILQ_INSERT_TAIL(&conn->rpc->corked, conn, cork_link);
    if (first && tdm__loop_is_polling(conn->loop)) {
        tdm__loop_wake(conn->loop);
    }
}

/* ---- one frame -------------------------------------------------------------------------- */

uint32_t tdm__current_cpu(void)
{
    int cpu = sched_getcpu();

    return cpu < 0 ? 0 : (uint32_t)cpu + 1;
}

/* Tells the connection's loop to poll actively if the peer runs on another CPU than `cpu`, since a
 * reply may arrive before this thread would be asleep. */
static void conn_expect_reply_soon(const struct tdm__conn *conn, uint32_t cpu)
{
    if (conn->local && conn->peer_cpu != 0 && conn->peer_cpu != cpu) {
        tdm__loop_expect_event_soon(conn->rpc->loop);
    }
}

/* Returns the size of the whole frame in bytes: header, method, payload and tail. */
static size_t frame_bytes(const struct tdm__frame *frame)
{
    return (size_t)TDM__FRAME_HEADER_BYTES + frame->method_bytes + frame->payload_bytes +
           frame->tail_bytes;
}

/* Returns whether the errno value of a write means that the connection has been lost. */
static bool errno_means_lost(int error_number)
{
    return error_number == EPIPE || error_number == ECONNRESET || error_number == ETIMEDOUT ||
           error_number == EHOSTUNREACH || error_number == ENETDOWN;
}

/* Writes as much of a frame as the socket accepts now; `*sent_out` is the number of bytes written,
 * 0 if the socket is full. */
static tdm_status conn_send_now(struct tdm__conn *conn, const struct iovec pieces[FRAME_PIECES],
                                const int *fds, uint32_t fds_count, size_t *sent_out)
{
    struct iovec copy[FRAME_PIECES];
    ssize_t sent;

    memcpy(copy, pieces, sizeof(copy));
    sent = conn_write_pieces(conn, copy, FRAME_PIECES, fds, fds_count);

    if (sent >= 0) {
        *sent_out = (size_t)sent;
        conn_wait_encrypted(conn);
        return TDM_OK;
    }
    if (errno_means_lost(errno)) {
        conn_stop_writing(conn);
        return TDM_OK;
    }
    if (errno == ETOOMANYREFS) {
        return tdm__fail(TDM_E_AGAIN, "sendmsg: too many descriptors are on their way");
    }
    return tdm__fail_errno(errno, "sendmsg to %s", conn->label);
}

/* Returns whether a connection with too much output refuses this frame. Failures and notices are
 * small and the peer waits for them, so they are always accepted. */
static bool frame_may_be_refused(const struct tdm__frame *frame)
{
    return frame->status == TDM_OK && frame->kind != TDM__FRAME_CANCEL &&
           frame->kind != TDM__FRAME_CREDIT;
}

/* Returns whether the peer may be waiting for this very frame, so that writing it must not be
 * delayed. */
static bool frame_must_flush(const struct tdm__conn *conn, const struct tdm__frame *frame)
{
    switch (frame->kind) {
    case TDM__FRAME_CALL:
        return conn->calls.count < PROMPT_CALLS_MAX;
    case TDM__FRAME_REPLY:
        /* The call that the frame replies to is still counted in the table. */
        return conn->incoming_calls.count <= 1;
    case TDM__FRAME_CANCEL:
        return true;
    case TDM__FRAME_ITEM:
    case TDM__FRAME_CREDIT:
        break;
    }
    return false;
}

/* Copies `count` bytes to `place` in the output and returns the position behind them. */
static uint8_t *output_put(uint8_t *place, const void *bytes, size_t count)
{
    if (count > 0) {
        memcpy(place, bytes, count);
    }
    return place + count;
}

/* Sends a small frame: encodes it into the connection's output, which is written now or before the
 * next poll. */
static tdm_status conn_send_copied(struct tdm__conn *conn, const struct tdm__frame *frame,
                                   const char *method, const void *payload, const void *tail)
{
    uint8_t *place;

    TDM_TRY(tdm__output_reserve(&conn->output, frame_bytes(frame), &place));
    tdm__frame_encode(frame, place);
    place = output_put(place + TDM__FRAME_HEADER_BYTES, method, frame->method_bytes);
    place = output_put(place, payload, frame->payload_bytes);
    (void)output_put(place, tail, frame->tail_bytes);
    if (conn->state != CONN_OPEN) {
        return TDM_OK;
    }
    if (conn->output.size_bytes >= FLUSH_BYTES || frame_must_flush(conn, frame)) {
        tdm__conn_flush(conn);
    } else {
        conn_cork(conn);
    }
    return TDM_OK;
}

/* Sends a large frame without a copy of its payload. Once a part of a frame has been written, the
 * rest must follow, or the connection can no longer be written. */
static tdm_status conn_send_uncopied(struct tdm__conn *conn, const struct tdm__frame *frame,
                                     const char *method, const void *payload, const void *tail,
                                     const int *fds)
{
    uint8_t header[TDM__FRAME_HEADER_BYTES];
    struct iovec pieces[FRAME_PIECES] = {{header, sizeof(header)},
                                         {(void *)method, frame->method_bytes},
                                         {(void *)payload, frame->payload_bytes},
                                         {(void *)tail, frame->tail_bytes}};
    size_t sent = 0;
    tdm_status status;

    tdm__frame_encode(frame, header);
    tdm__conn_flush(conn);
    if (conn->state == CONN_OPEN && conn->output.size_bytes == 0 && !conn->write_failed) {
        TDM_TRY(conn_send_now(conn, pieces, fds, frame->fds_count, &sent));
    }
    if (sent == frame_bytes(frame) || conn->write_failed) {
        return TDM_OK;
    }
    status = tdm__output_append(&conn->output, pieces, sent, fds, sent == 0 ? frame->fds_count : 0);
    if (status != TDM_OK && sent > 0) {
        conn_stop_writing(conn);
        return TDM_OK;
    }
    if (status == TDM_OK && conn->state == CONN_OPEN) {
        conn_wait_writable(conn);
    }
    return status;
}

tdm_status tdm__conn_send(struct tdm__conn *conn, const struct tdm__frame *frame,
                          const char *method, const void *payload, const void *tail, const int *fds)
{
    size_t total = frame_bytes(frame);

    TDM_ASSERT(conn->state < CONN_CLOSING);
    conn_expect_reply_soon(conn, frame->cpu);
    if (conn->write_failed) {
        return TDM_OK; /* The reader will end the connection. */
    }
    if (conn->output.size_bytes + total > QUEUE_BYTES_MAX && frame_may_be_refused(frame)) {
        return tdm__fail(TDM_E_AGAIN, "%zu bytes wait for %s, which reads too slowly",
                         conn->output.size_bytes, conn->label);
    }
    if (frame->fds_count == 0 && total <= COPIED_FRAME_BYTES_MAX) {
        return conn_send_copied(conn, frame, method, payload, tail);
    }
    return conn_send_uncopied(conn, frame, method, payload, tail, fds);
}
