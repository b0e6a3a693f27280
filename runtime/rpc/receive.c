/* receive.c - reads a connection's socket and splits the bytes into frames. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A connection reads into its input buffer of INPUT_BYTES bytes. A frame whose header and method
 * are complete becomes conn->partial, with memory for its payload and tail. Their remaining bytes
 * are then read from the socket directly into that memory, without a copy.
 *
 * Descriptors arrive with the first byte of their frame or earlier, in the order of frames. They
 * wait in conn->fds until the frame's header is decoded.
 *
 * The memory of a frame is shared by atomic count with the documents that borrow the payload; such
 * a document may be destroyed on any thread. Everything else runs on the loop's thread.
 * runtime/wire/frame.h specifies the format. */

#include "runtime/rpc/receive.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/free_list.h"
#include "runtime/rpc/internal.h"
#include "runtime/wire/value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Alignment in bytes of the arrays in a frame's payload. */
enum { PAYLOAD_ALIGNMENT = 64 };

/* Allocates memory for a frame that arrives: method, payload and tail in one block. If
 * `tail_buffer` is not NULL, the tail is received there instead. */
static struct tdm__incoming_call *incoming_create(const struct tdm__frame *frame, char *tail_buffer)
{
    /* A payload of at most PAYLOAD_ALIGNMENT bytes has no array. */
    bool aligned = frame->payload_bytes > PAYLOAD_ALIGNMENT;
    size_t bytes = sizeof(struct tdm__incoming_call) + frame->method_bytes + 1 +
                   (aligned ? PAYLOAD_ALIGNMENT - 1 : 0) + frame->payload_bytes + 1 +
                   (tail_buffer == NULL ? frame->tail_bytes : 0);
    struct tdm__incoming_call *incoming = tdm__free_list_alloc(bytes);

    if (incoming == NULL) {
        return NULL;
    }
    atomic_init(&incoming->owners_count, 1);
    incoming->conn = NULL;
    incoming->listed = false;
    incoming->values_max = TDM__DOCUMENT_VALUES_MAX;
    incoming->on_notice = NULL;
    incoming->items_sent = 0;
    incoming->items_taken = 0;
    incoming->frame = *frame;
    incoming->fds_lost = false;
    incoming->document = NULL;
    incoming->payload = incoming->method + frame->method_bytes + 1;
    if (aligned) {
        incoming->payload += -(uintptr_t)incoming->payload % PAYLOAD_ALIGNMENT;
    }
    incoming->payload[frame->payload_bytes] = '\0';
    incoming->tail = tail_buffer != NULL     ? tail_buffer
                     : frame->tail_bytes > 0 ? incoming->payload + frame->payload_bytes + 1
                                             : NULL;
    incoming->allocated_bytes = bytes;
    incoming->received_bytes = 0;
    incoming->deadline_ms = tdm__deadline_after(frame->remaining_ms);
    return incoming;
}

/* Releases one ownership of the frame's memory. The last owner must see all writes of the others.
 * Only an owner can add owners, so a sole owner needs no atomic decrement. */
static void incoming_release_memory(void *arg)
{
    struct tdm__incoming_call *incoming = arg;

    if (atomic_load_explicit(&incoming->owners_count, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&incoming->owners_count, 1, memory_order_acq_rel) == 1) {
        tdm__free_list_free(incoming, incoming->allocated_bytes);
    }
}

tdm_status tdm__incoming_parse(struct tdm__incoming_call *incoming, tdm_document **document_out)
{
    struct tdm_bytes bytes = {incoming->payload, incoming->frame.payload_bytes};

    TDM_TRY(tdm__document_parse_limited(bytes, incoming->values_max, incoming_release_memory,
                                        incoming, document_out));
    if (atomic_load_explicit(&incoming->owners_count, memory_order_relaxed) == 1) {
        atomic_store_explicit(&incoming->owners_count, 2, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&incoming->owners_count, 1, memory_order_relaxed);
    }
    return TDM_OK;
}

void tdm__incoming_free(struct tdm__incoming_call *incoming)
{
    for (uint32_t i = 0; i < incoming->frame.fds_count; i++) {
        if (incoming->fds[i] >= 0) {
            (void)close(incoming->fds[i]);
        }
    }
    tdm_document_destroy(incoming->document);
    incoming_release_memory(incoming);
}

/* Closes the first `count` of the descriptors that wait for the headers of their frames, and
 * removes their entries. */
static void conn_drop_fds(struct tdm__conn *conn, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (conn->fds[i] >= 0) {
            (void)close(conn->fds[i]);
        }
    }
    conn->fds_count -= count;
    memmove(conn->fds, conn->fds + count, conn->fds_count * sizeof(int));
}

void tdm__conn_discard_input(struct tdm__conn *conn)
{
    if (conn->partial != NULL) {
        tdm__incoming_free(conn->partial);
        conn->partial = NULL;
    }
    conn_drop_fds(conn, conn->fds_count);
    free(conn->input);
    conn->input = NULL;
}

/* ---- reading the socket ----------------------------------------------------------------- */

/* Moves the descriptors that recvmsg(2) returned in `message` to conn->fds. Fails if there are more
 * than frames can have. If this process had too few free descriptors, the kernel has dropped the
 * rest of one frame's, which FD_REST_LOST records. */
static tdm_status conn_collect_fds(struct tdm__conn *conn, struct msghdr *message)
{
    bool is_cut = (message->msg_flags & MSG_CTRUNC) != 0;
    bool all_fit = true;
    size_t received_count = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        int fds[TDM__RPC_FDS_MAX + 1];

        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        TDM_ASSERT(count <= sizeof(fds) / sizeof(fds[0]));
        memcpy(fds, CMSG_DATA(header), count * sizeof(int));
        received_count += count;
        for (size_t i = 0; i < count; i++) {
            if (conn->fds_count < FDS_WAITING_MAX) {
                conn->fds[conn->fds_count++] = fds[i];
            } else {
                (void)close(fds[i]);
                all_fit = false;
            }
        }
    }
    if (is_cut && received_count <= TDM__RPC_FDS_MAX && conn->fds_count < FDS_WAITING_MAX) {
        conn->fds[conn->fds_count++] = FD_REST_LOST;
        is_cut = false;
    }
    if (!all_fit || is_cut) {
        return tdm__fail(TDM_E_PROTOCOL, "%s sent more descriptors than its frames can have",
                         conn->label);
    }
    return TDM_OK;
}

/* Moves the bytes that no frame has consumed to the start of the connection's input buffer. */
static void input_compact(struct tdm__conn *conn)
{
    size_t left = conn->input_end - conn->input_begin;

    if (left > 0 && conn->input_begin > 0) {
        memmove(conn->input, conn->input + conn->input_begin, left);
    }
    conn->input_begin = 0;
    conn->input_end = left;
}

/* Fills `places` with the memory for the rest of the partial frame: its payload and its tail.
 * Returns the number of missing bytes. */
static size_t incoming_missing_bytes(const struct tdm__incoming_call *partial,
                                     struct iovec places[2])
{
    size_t payload = partial->frame.payload_bytes;
    size_t in_payload = partial->received_bytes < payload ? partial->received_bytes : payload;
    size_t in_tail = partial->received_bytes - in_payload;

    places[0] = (struct iovec){partial->payload + in_payload, payload - in_payload};
    places[1] = (struct iovec){NULL, 0};
    if (partial->frame.tail_bytes > 0) {
        places[1].iov_base = partial->tail + in_tail;
        places[1].iov_len = partial->frame.tail_bytes - in_tail;
    }
    return places[0].iov_len + places[1].iov_len;
}

/* Reads the socket with one recvmsg(2): first the rest of the partial frame, then the input buffer.
 * Nothing behind a tail is read, because the receiver may first set the buffer for the next tail.
 *
 * The size of `control` uses CMSG_LEN, not CMSG_SPACE. Padding at its end would let the kernel pass
 * one descriptor more than conn_collect_fds() has memory for. */
static tdm_status conn_read_socket(struct tdm__conn *conn)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_LEN(sizeof(int) * (TDM__RPC_FDS_MAX + 1))];
    } control;
    struct tdm__incoming_call *partial = conn->partial;
    struct iovec places[3] = {{NULL, 0}};
    size_t wanted = partial != NULL ? incoming_missing_bytes(partial, places) : 0;
    struct msghdr message = {.msg_iov = places,
                             .msg_iovlen = places[1].iov_len > 0 ? 2 : 3,
                             .msg_control = control.bytes,
                             .msg_controllen = conn->local ? sizeof(control.bytes) : 0};
    ssize_t received;
    size_t direct;

    input_compact(conn);
    TDM_ASSERT(conn->input_end < INPUT_BYTES);
    places[2].iov_base = conn->input + conn->input_end;
    places[2].iov_len = INPUT_BYTES - conn->input_end;
    received = conn->tls == NULL ? recvmsg(conn->fd, &message, MSG_CMSG_CLOEXEC)
                                 : tdm__tls_read(conn->tls, places, message.msg_iovlen);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
        return TDM_OK;
    }
    if (received < 0 && errno == EPROTO && conn->tls != NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "bytes of %s were changed or added on the way (TLS: %s)",
                         conn->label, tdm__tls_problem(conn->tls));
    }
    if (received < 0 && errno != ECONNRESET) {
        return tdm__fail_errno(errno, "recvmsg from %s", conn->label);
    }
    if (received <= 0) {
        return tdm__fail(TDM_E_CLOSED, "%s closed the connection%s", conn->label,
                         partial != NULL || conn->input_end > 0 ? " in the middle of a frame" : "");
    }
    if (conn->tls == NULL) {
        TDM_TRY(conn_collect_fds(conn, &message));
    }
    /* One clock reading serves all frames that arrived together. */
    conn->input_ms = tdm__clock_coarse_ms();
    direct = (size_t)received < wanted ? (size_t)received : wanted;
    if (partial != NULL) {
        partial->received_bytes += (uint32_t)direct;
    }
    conn->input_end += (size_t)received - direct;
    return TDM_OK;
}

/* ---- frames ----------------------------------------------------------------------------- */

/* Marks a frame whose descriptors were dropped by the kernel, if FD_REST_LOST stands among its
 * first entries of conn->fds, and drops those that did arrive. Returns whether it does. */
static bool incoming_claim_loss(struct tdm__conn *conn, struct tdm__incoming_call *incoming)
{
    for (uint32_t i = 0; i < incoming->frame.fds_count && i < conn->fds_count; i++) {
        if (conn->fds[i] == FD_REST_LOST) {
            conn_drop_fds(conn, i + 1);
            memset(incoming->fds, 0xff, sizeof(incoming->fds)); /* Sets all to -1. */
            incoming->fds_lost = true;
            return true;
        }
    }
    return false;
}

/* Moves the descriptors that the frame's header announces from conn->fds to the frame. Fails if
 * fewer have arrived, unless this process had too few free ones. */
static tdm_status incoming_claim_fds(struct tdm__conn *conn, struct tdm__incoming_call *incoming)
{
    uint32_t count = incoming->frame.fds_count;

    if (count == 0 || incoming_claim_loss(conn, incoming)) {
        return TDM_OK;
    }
    if (count > conn->fds_count) {
        incoming->frame.fds_count = 0; /* The frame owns no descriptors yet. */
        return tdm__fail(TDM_E_PROTOCOL, "%s sent %u descriptors, its frame says %u", conn->label,
                         conn->fds_count, count);
    }
    memcpy(incoming->fds, conn->fds, count * sizeof(int));
    conn->fds_count -= count;
    memmove(conn->fds, conn->fds + count, conn->fds_count * sizeof(int));
    return TDM_OK;
}

/* Copies the name of the frame's method from the input buffer, and checks the name. */
static tdm_status incoming_read_method(struct tdm__conn *conn, struct tdm__incoming_call *incoming)
{
    uint32_t length = incoming->frame.method_bytes;

    incoming->method[length] = '\0';
    if (length == 0) {
        return TDM_OK;
    }
    memcpy(incoming->method, conn->input + conn->input_begin, length);
    conn->input_begin += length;
    if (!tdm__frame_method_is_valid(incoming->method, length)) {
        return tdm__fail(TDM_E_PROTOCOL, "%s called a method that is no word", conn->label);
    }
    return TDM_OK;
}

/* Returns the user's buffer for the frame's tail, or NULL. The buffer is withdrawn with the next
 * call, whether that call uses it or not. */
static char *conn_take_tail_buffer(struct tdm__conn *conn, const struct tdm__frame *frame)
{
    char *tail_buffer = conn->tail_buffer;

    if (frame->kind != TDM__FRAME_CALL) {
        return NULL;
    }
    conn->tail_buffer = NULL;
    return frame->tail_bytes > 0 && frame->tail_bytes == conn->tail_buffer_bytes ? tail_buffer
                                                                                 : NULL;
}

/* Copies at most `wanted` bytes from the connection's input buffer to `place` and returns their
 * number. */
static uint32_t conn_consume_input(struct tdm__conn *conn, char *place, uint32_t wanted)
{
    size_t available = conn->input_end - conn->input_begin;

    available = available < wanted ? available : wanted;
    memcpy(place, conn->input + conn->input_begin, available);
    conn->input_begin += available;
    return (uint32_t)available;
}

/* Creates the connection's partial frame, whose header and method are in the input buffer. */
static tdm_status conn_begin_frame(struct tdm__conn *conn, const struct tdm__frame *frame)
{
    struct tdm__incoming_call *incoming =
        incoming_create(frame, conn_take_tail_buffer(conn, frame));

    if (incoming == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a frame of %u bytes from %s",
                         frame->payload_bytes + frame->tail_bytes, conn->label);
    }
    incoming->arrived_ms = conn->input_ms;
    conn->partial = incoming;
    conn->input_begin += TDM__FRAME_HEADER_BYTES;
    TDM_TRY(incoming_claim_fds(conn, incoming));
    TDM_TRY(incoming_read_method(conn, incoming));
    incoming->received_bytes = conn_consume_input(conn, incoming->payload, frame->payload_bytes);
    if (frame->tail_bytes > 0) {
        incoming->received_bytes += conn_consume_input(conn, incoming->tail, frame->tail_bytes);
    }
    return TDM_OK;
}

/* Returns the connection's next frame if it is complete, else NULL. It decodes the input buffer but
 * does not read the socket. */
static tdm_status conn_next_frame(struct tdm__conn *conn, struct tdm__incoming_call **incoming_out)
{
    size_t available = conn->input_end - conn->input_begin;
    struct tdm__frame frame;
    tdm_status status;

    if (conn->partial == NULL) {
        if (available < TDM__FRAME_HEADER_BYTES) {
            return TDM_OK;
        }
        status = tdm__frame_decode(conn->input + conn->input_begin, &frame);
        if (status != TDM_OK) {
            return tdm__wrap(status, "%s", conn->label);
        }
        if (available < TDM__FRAME_HEADER_BYTES + (size_t)frame.method_bytes) {
            return TDM_OK;
        }
        TDM_TRY(conn_begin_frame(conn, &frame));
    }
    if (conn->partial->received_bytes ==
        conn->partial->frame.payload_bytes + conn->partial->frame.tail_bytes) {
        *incoming_out = conn->partial;
        conn->partial = NULL;
    }
    return TDM_OK;
}

tdm_status tdm__conn_receive(struct tdm__conn *conn, bool readable,
                             struct tdm__incoming_call **incoming_out)
{
    *incoming_out = NULL;
    TDM_TRY(conn_next_frame(conn, incoming_out));
    if (*incoming_out != NULL || !readable) {
        return TDM_OK;
    }
    TDM_TRY(conn_read_socket(conn));
    return conn_next_frame(conn, incoming_out);
}
