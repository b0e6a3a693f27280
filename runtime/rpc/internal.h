/* internal.h - the structures of endpoints, connections and frames that arrive. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Lifetime of a connection.
 *
 * A connection has a reference count. Its endpoint holds a reference while the connection is open.
 * Each call that arrived on it holds one until the reply. So does each function of this folder that
 * works on it. tdm__conn_finish() closes everything at once and notifies all calls and watchers.
 * Until the last reference is released only the memory remains, in state CONN_ENDED, with conn->rpc
 * NULL. So after every callback, code checks conn->state before it touches anything else, and it
 * does not touch the endpoint.
 *
 * The watch of a connection handles all frames that one read brought. Before each frame it asks for
 * another round if more input is buffered. So a callback that runs the loop itself receives the
 * remaining frames there, in order. */
#ifndef TDM_RUNTIME_RPC_INTERNAL_H
#define TDM_RUNTIME_RPC_INTERNAL_H

#include "runtime/loop/loop.h"
#include "runtime/rpc/call_table.h"
#include "runtime/rpc/output.h"
#include "runtime/rpc/types.h"
#include "runtime/token.h"
#include "runtime/wire/frame.h"

#include <stdatomic.h>
#include <sys/queue.h>

_Static_assert((int)TDM__RPC_FDS_MAX == (int)TDM__FRAME_FDS_MAX, "one limit");
_Static_assert((int)TDM__RPC_NAME_BYTES_MAX == (int)TDM__FRAME_METHOD_BYTES_MAX, "one limit");
_Static_assert(TDM__RPC_FRAME_BYTES_MAX == TDM__FRAME_BYTES_MAX, "one limit");

/* Limits of a connection. */
enum {
    INPUT_BYTES = 32 * 1024, /* Capacity of a connection's input buffer. */
    /* The same for the other end of a socket pair, which is a process of this node that may still
     * have to start. */
    ADOPTED_HANDSHAKE_MS = 60000,
    /* Most descriptors that arrived before their frames. */
    FDS_WAITING_MAX = 32,
    /* Capacity of a connection's label, with the NUL. */
    LABEL_BYTES = 128
};
/* Most bytes of frames that wait for a slow reader; the connection refuses more with TDM_E_AGAIN.
 */
#define QUEUE_BYTES_MAX ((size_t)1 << 30)

/* ---- endpoints -------------------------------------------------------------------------- */

/* An endpoint: the connections and listeners of one process on one loop. Only the loop's thread
 * uses it. */
struct tdm__rpc {
    struct tdm__loop *loop;         /* Loop on which everything runs (borrowed). */
    struct tdm__peer_identity self; /* Identity stated in handshakes. */
    /* Secret of the cluster; cleared before the memory is freed. */
    uint8_t token[TDM__TOKEN_BYTES];
    /* Handler of the calls that arrive; NULL makes every call fail. */
    tdm__call_handler_fn *call_handler;
    void *call_handler_arg;            /* Passed to `call_handler`. */
    tdm__late_reply_fn *on_late_reply; /* Receives late replies; NULL discards them. */
    void *on_late_reply_arg;           /* Passed to `on_late_reply`. */
    tdm__accepted_fn *on_accepted;     /* Reports accepted connections; NULL if unset. */
    void *on_accepted_arg;             /* Passed to `on_accepted`. */
    tdm_writer *writer;                /* Buffer in which replies are packed (owned). */
    struct listener *listeners;        /* First listener (owned), see rpc.c; NULL if absent. */
    TAILQ_HEAD(, tdm__conn) conns;     /* All connections that have not ended. */
    /* Connections whose output is flushed before the next poll. */
    TAILQ_HEAD(, tdm__conn) corked;
    struct tdm__poll_hook flush_hook; /* Calls tdm__rpc_flush() before the loop polls. */
    bool closing;                     /* Set by tdm__rpc_destroy(): no new connections. */
    /* Start of the minute in which unauthenticated clients are counted, in milliseconds on
     * CLOCK_MONOTONIC. */
    int64_t unauthenticated_since_ms;
    /* Number of clients in that minute whose connection ended before they authenticated themselves.
     */
    uint32_t unauthenticated_count;
};

/* ---- frames that arrive ----------------------------------------------------------------- */

/* A frame that arrived. For a call it exists until the reply, for a reply or item until it is
 * delivered. The memory stays until the last document that borrows the payload is destroyed, which
 * may happen on another thread. */
struct tdm__incoming_call {
    /* Entry in conn->incoming_calls while `listed`; only for calls. */
    struct tdm__call_table_entry entry;
    /* Number of owners of the memory: the frame itself and each document that borrows the payload.
     */
    atomic_uint owners_count;
    /* Connection that brought the call (retained); NULL for other frames. */
    struct tdm__conn *conn;
    bool listed;                    /* Whether the call is in conn->incoming_calls. */
    tdm__call_notice_fn *on_notice; /* Receives the call's notices; NULL if unset. */
    void *on_notice_arg;            /* Passed to `on_notice`. */
    uint64_t items_sent;            /* Index of the last stream item that was sent. */
    /* Number of items that the consumer has reported as taken. */
    uint64_t items_taken;
    struct tdm__frame frame; /* Decoded header of the frame. */
    /* Milliseconds on CLOCK_MONOTONIC; TDM__NEVER if there is no deadline. */
    int64_t deadline_ms;
    /* Milliseconds on CLOCK_MONOTONIC_COARSE when the frame's first bytes were read. */
    int64_t arrived_ms;
    /* Parsed payload (owned); NULL before it is parsed. */
    tdm_document *document;
    /* Descriptors of the frame (owned); -1 where taken. */
    int fds[TDM__RPC_FDS_MAX];
    /* Bytes of the payload and the tail that have arrived. */
    uint32_t received_bytes;
    size_t allocated_bytes; /* Size of this allocation in bytes. */
    /* Payload and a NUL, stored behind the method. Aligned to 64 bytes if it may contain an array.
     */
    char *payload;
    /* Tail: stored behind the payload, or in the buffer of tdm__conn_set_tail_buffer() (borrowed).
     * NULL if absent. */
    char *tail;
    char method[]; /* Name of the method, ending with NUL. */
};

/* ---- connections ------------------------------------------------------------------------ */

/* State of a connection. It only moves downwards in this list. */
enum conn_state {
    CONN_CONNECTING, /* The socket is not connected yet. */
    CONN_HANDSHAKE,  /* The peer is not authenticated yet. */
    /* The peer is authenticated and frames are exchanged. */
    CONN_OPEN,
    /* The user closed the connection; it ends in the next round of the loop. */
    CONN_CLOSING,
    /* Everything is closed; only the memory remains until the last reference is released. */
    CONN_ENDED
};

/* A connection, see the note on its lifetime above. Only the loop's thread uses it. */
struct tdm__conn {
    /* Links the connection into rpc->conns until it ends. */
    TAILQ_ENTRY(tdm__conn) link;
    /* Endpoint (borrowed); NULL once the connection has ended. */
    struct tdm__rpc *rpc;
    struct tdm__loop *loop;    /* Loop of the endpoint (borrowed). */
    uint32_t references_count; /* Number of references to this memory. */
    enum conn_state state;     /* State of the connection. */
    /* Whether this side waits for the other side's hello. */
    bool server;
    bool accepted; /* Whether a listener accepted the connection. */
    /* Whether the socket is a Unix socket, so that descriptors can be passed. */
    bool local;
    /* Whether a write failed. Output is then discarded until the reader sees the end. */
    bool write_failed;
    /* CPU on which the peer sent its last frame, plus 1; 0 if unknown. */
    uint32_t peer_cpu;
    /* Socket (owned); -1 once the connection has ended. */
    int fd;
    /* Reports that the socket is readable or writable (owned). */
    struct tdm__fd_watch *watch;
    /* Fires at the deadline of the handshake or of a call (owned). */
    struct tdm__timer *timer;
    /* Time for which `timer` is set, in milliseconds on CLOCK_MONOTONIC; TDM__NEVER if it is not
     * set. */
    int64_t timer_ms;
    int64_t handshake_deadline_ms; /* Milliseconds on CLOCK_MONOTONIC. */
    /* Identity of the peer; its kind is 0 before authentication. */
    struct tdm__peer_identity peer;
    /* Name of the peer for messages: "name (pid 4)"; its address before authentication. */
    char label[LABEL_BYTES];

    /* Handshake in progress (owned); NULL once it has succeeded. handshake.h defines it. */
    struct handshake *handshake;
    /* Buffer of INPUT_BYTES bytes (owned); NULL before the state is CONN_OPEN. */
    uint8_t *input;
    /* Offset in `input` of the first byte that is not consumed. */
    size_t input_begin;
    /* Offset in `input` behind the last byte that was read. */
    size_t input_end;
    /* Milliseconds on CLOCK_MONOTONIC_COARSE of the last read from the socket. */
    int64_t input_ms;
    /* Frame whose payload is still arriving (owned); NULL if absent. */
    struct tdm__incoming_call *partial;
    /* Descriptors that arrived and are not assigned to a frame yet (owned). */
    int fds[FDS_WAITING_MAX];
    uint32_t fds_count; /* Number of descriptors in `fds`. */
    /* Buffer for the tail of the next call (borrowed); NULL if none is set. */
    void *tail_buffer;
    /* Size of the caller's buffer for the tail of the next call. The buffer is used only for a tail
     * of exactly this size. */
    size_t tail_buffer_bytes;

    struct conn_output output; /* Bytes that wait to be written. */
    /* Whether the socket is full; the watch reports when it accepts bytes again. */
    bool output_blocked;
    /* Whether the connection is in rpc->corked, to be flushed before the loop polls. */
    bool corked;
    TAILQ_ENTRY(tdm__conn) cork_link; /* Links the connection into rpc->corked. */
    /* Calls that this side sent (struct tdm__rpc_call). */
    struct call_table calls;
    /* Calls of the peer without a reply (struct tdm__incoming_call). */
    struct call_table incoming_calls;
    /* ID of the last call that this side sent; 0 before the first. */
    uint64_t last_call_id;

    /* Reports the end of the connection; NULL if unset. */
    tdm__closed_fn *on_closed;
    void *on_closed_arg; /* Passed to `on_closed`. */
    /* Close watchers (borrowed). */
    LIST_HEAD(, tdm__close_watcher) close_watchers;
    /* Pointer of tdm__conn_set_user_data(); never dereferenced here. */
    void *user_data;
};

#endif
