/* send.c - frames leave at once, or wait in the connection's queue. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/rpc/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PIECES_MAX = 16 };

/* sendmsg(2) with descriptors.  0 when the socket is full, -1 with errno when it is lost. */
static ssize_t send_pieces(int fd, struct iovec *pieces, size_t pieces_count, const int *fds,
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

/* Nothing can be written any more.  Replies that have arrived are still read: the end shows to
 * the reader behind them. */
static void give_up_writing(struct tdm__conn *conn)
{
    conn->write_failed = true;
    tdm__conn_drop_output(conn);
    (void)shutdown(conn->fd, SHUT_RDWR);
    (void)tdm__watch_want(conn->watch, TDM__READABLE);
}

/* ---- the queue -------------------------------------------------------------------------- */

static void chunk_close_fds(struct chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->fds_count; i++) {
        (void)close(chunk->fds[i]);
    }
    chunk->fds_count = 0;
}

static void chunk_remove(struct tdm__conn *conn, struct chunk *chunk)
{
    STAILQ_REMOVE_HEAD(&conn->output, link);
    conn->output_bytes -= chunk->size_bytes;
    chunk_close_fds(chunk);
    free(chunk);
}

void tdm__conn_drop_output(struct tdm__conn *conn)
{
    while (!STAILQ_EMPTY(&conn->output)) {
        chunk_remove(conn, STAILQ_FIRST(&conn->output));
    }
}

static tdm_status chunk_take_fds(struct chunk *chunk, const int *fds, uint32_t fds_count)
{
    for (uint32_t i = 0; i < fds_count; i++) {
        int copy = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);

        if (copy < 0) {
            tdm_status status = tdm__fail_errno(errno, "fcntl: duplicating fd %d", fds[i]);

            chunk_close_fds(chunk);
            return status;
        }
        chunk->fds[chunk->fds_count++] = copy;
    }
    return TDM_OK;
}

/* Copies the pieces less the first `skip` bytes, which have been sent with the descriptors. */
static tdm_status enqueue(struct tdm__conn *conn, const struct iovec pieces[3], size_t skip,
                          const int *fds, uint32_t fds_count)
{
    size_t size = pieces[0].iov_len + pieces[1].iov_len + pieces[2].iov_len - skip;
    struct chunk *chunk = malloc(sizeof(*chunk) + size);
    size_t used = 0;

    if (chunk == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%zu bytes to queue for %s", size, conn->label);
    }
    chunk->size_bytes = size;
    chunk->sent_bytes = 0;
    chunk->fds_count = 0;
    if (skip == 0) {
        tdm_status status = chunk_take_fds(chunk, fds, fds_count);

        if (status != TDM_OK) {
            free(chunk);
            return status;
        }
    }
    for (int i = 0; i < 3; i++) {
        size_t skipped = skip < pieces[i].iov_len ? skip : pieces[i].iov_len;
        size_t rest = pieces[i].iov_len - skipped;

        if (rest > 0) {
            memcpy(chunk->bytes + used, (const char *)pieces[i].iov_base + skipped, rest);
        }
        used += rest;
        skip -= skipped;
    }
    STAILQ_INSERT_TAIL(&conn->output, chunk, link);
    conn->output_bytes += size;
    return TDM_OK;
}

/* As many chunks as go out in one call: up to the next one that has descriptors of its own. */
static size_t gather(const struct tdm__conn *conn, struct iovec pieces[PIECES_MAX])
{
    size_t count = 0;
    struct chunk *chunk;

    STAILQ_FOREACH(chunk, &conn->output, link)
    {
        if (count == PIECES_MAX || (count > 0 && chunk->fds_count > 0)) {
            break;
        }
        pieces[count].iov_base = chunk->bytes + chunk->sent_bytes;
        pieces[count++].iov_len = chunk->size_bytes - chunk->sent_bytes;
    }
    return count;
}

static void forget_sent(struct tdm__conn *conn, size_t sent)
{
    while (sent > 0) {
        struct chunk *chunk = STAILQ_FIRST(&conn->output);
        size_t rest = chunk->size_bytes - chunk->sent_bytes;

        chunk_close_fds(chunk);
        if (sent < rest) {
            chunk->sent_bytes += sent;
            return;
        }
        sent -= rest;
        chunk_remove(conn, chunk);
    }
}

void tdm__conn_flush(struct tdm__conn *conn)
{
    if (conn->state != CONN_OPEN) {
        return;
    }
    while (!STAILQ_EMPTY(&conn->output)) {
        struct iovec pieces[PIECES_MAX];
        const struct chunk *first = STAILQ_FIRST(&conn->output);
        ssize_t sent =
            send_pieces(conn->fd, pieces, gather(conn, pieces), first->fds, first->fds_count);

        if (sent < 0) {
            give_up_writing(conn);
            return;
        }
        if (sent == 0) {
            (void)tdm__watch_want(conn->watch, TDM__READABLE | TDM__WRITABLE);
            return;
        }
        forget_sent(conn, (size_t)sent);
    }
    (void)tdm__watch_want(conn->watch, TDM__READABLE);
}

uint32_t tdm__this_cpu(void)
{
    int cpu = sched_getcpu();

    return cpu < 0 ? 0 : (uint32_t)cpu + 1;
}

/* An answer from another processor may be there before this one has gone to sleep. */
static void expect_answer(const struct tdm__conn *conn, uint32_t cpu)
{
    if (conn->local && conn->peer_cpu != 0 && conn->peer_cpu != cpu) {
        tdm__loop_expect_soon(conn->rpc->loop);
    }
}

/* ---- one frame -------------------------------------------------------------------------- */

static bool is_lost(int error_number)
{
    return error_number == EPIPE || error_number == ECONNRESET || error_number == ETIMEDOUT ||
           error_number == EHOSTUNREACH || error_number == ENETDOWN;
}

/* Writes what the socket takes now; `*sent_out` bytes, 0 if it is full. */
static tdm_status send_now(struct tdm__conn *conn, const struct iovec pieces[3], const int *fds,
                           uint32_t fds_count, size_t *sent_out)
{
    struct iovec copy[3] = {pieces[0], pieces[1], pieces[2]};
    ssize_t sent = send_pieces(conn->fd, copy, 3, fds, fds_count);

    if (sent >= 0) {
        *sent_out = (size_t)sent;
        return TDM_OK;
    }
    if (is_lost(errno)) {
        give_up_writing(conn);
        return TDM_OK;
    }
    if (errno == ETOOMANYREFS) {
        return tdm__fail(TDM_E_AGAIN, "sendmsg: too many descriptors are on their way");
    }
    return tdm__fail_errno(errno, "sendmsg to %s", conn->label);
}

/* Failures and notices are small, and somebody waits for them. */
static bool may_be_refused(const struct tdm__frame *frame)
{
    return frame->status == TDM_OK && frame->kind != TDM__FRAME_CANCEL &&
           frame->kind != TDM__FRAME_CREDIT;
}

tdm_status tdm__conn_send(struct tdm__conn *conn, const struct tdm__frame *frame,
                          const char *method, const void *payload, const int *fds)
{
    uint8_t header[TDM__FRAME_HEADER_BYTES];
    struct iovec pieces[3] = {{header, sizeof(header)},
                              {(void *)method, frame->method_bytes},
                              {(void *)payload, frame->payload_bytes}};
    size_t total = sizeof(header) + frame->method_bytes + frame->payload_bytes;
    size_t sent = 0;

    TDM_ASSERT(conn->state < CONN_CLOSING);
    tdm__frame_encode(frame, header);
    expect_answer(conn, frame->cpu);
    if (conn->write_failed) {
        return TDM_OK; /* the reader is about to see the end */
    }
    if (conn->output_bytes + total > QUEUE_BYTES_MAX && may_be_refused(frame)) {
        return tdm__fail(TDM_E_AGAIN, "%zu bytes wait for %s, which reads too slowly",
                         conn->output_bytes, conn->label);
    }
    if (conn->state == CONN_OPEN && STAILQ_EMPTY(&conn->output)) {
        TDM_TRY(send_now(conn, pieces, fds, frame->fds_count, &sent));
        if (sent == total || conn->write_failed) {
            return TDM_OK;
        }
        TDM_TRY(tdm__watch_want(conn->watch, TDM__READABLE | TDM__WRITABLE));
    }
    return enqueue(conn, pieces, sent, fds, frame->fds_count);
}
