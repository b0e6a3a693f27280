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

#include "runtime/log_limit.h"
#include "runtime/loop/loop.h"
#include "runtime/rpc/call_table.h"
#include "runtime/rpc/lost_nodes.h"
#include "runtime/rpc/output.h"
#include "runtime/rpc/tcp_settings.h"
#include "runtime/rpc/types.h"
#include "runtime/tls.h"
#include "runtime/token.h"
#include "runtime/wire/frame.h"

#include <stdatomic.h>
#include <sys/queue.h>

_Static_assert((int)TDM__RPC_FDS_MAX == (int)TDM__FRAME_FDS_MAX, "one limit");
_Static_assert((int)TDM__RPC_NAME_BYTES_MAX == (int)TDM__FRAME_METHOD_BYTES_MAX, "one limit");
_Static_assert(TDM__RPC_FRAME_BYTES_MAX == TDM__FRAME_BYTES_MAX, "one limit");

/* Limits of an RPC connection. */
enum {
    INPUT_BYTES = 32 * 1024, /* Capacity of a connection's input buffer. */
    /* The same for the other end of a socket pair, which is a process of this node that may still
     * have to start. */
    ADOPTED_HANDSHAKE_MS = 60000,
    /* Most descriptors that may wait for the headers of their frames. */
    FDS_WAITING_MAX = 32,
    /* Capacity of a connection's label (name of the peer), with the NUL. */
    LABEL_BYTES = 128,
    /* Entry of a connection's waiting descriptors that says: the kernel dropped the rest of the
     * descriptors of this frame, because this process had no free ones. */
    FD_REST_LOST = -2
};
/* Most bytes of frames that wait for a slow reader; the connection refuses more with TDM_E_AGAIN.
 */
#define QUEUE_BYTES_MAX ((size_t)1 << 30)

/* ---- endpoints -------------------------------------------------------------------------- */

/* An RPC endpoint: the connections and listeners of one process on one event loop. Only the loop's
 * thread uses it. */
struct tdm__rpc {
    struct tdm__loop *loop;         /* Event loop on which the endpoint runs (borrowed). */
    uint64_t conns_created;         /* Number of connections that the endpoint has had. */
    struct tdm__peer_identity self; /* Identity of this process, which it states in handshakes. */
    /* Secret that all processes of the cluster share; cleared before the memory is freed. */
    uint8_t token[TDM__TOKEN_BYTES];
    struct tdm__tcp_settings tcp; /* How the endpoint uses TCP. */
    /* What the TLS connections of the endpoint share (owned); NULL before the first one. */
    struct tdm__tls_context *tls_context;
    /* Nodes that this process was told are lost, whose processes are refused. */
    struct tdm__lost_nodes lost_nodes;
    /* True if a peer may leave bytes unread for as long as it wants (tdm__rpc_create_like()). */
    bool peers_may_stall;
    /* Handler of the calls that arrive from peers; NULL makes every call fail. */
    tdm__call_handler_fn *call_handler;
    void *call_handler_arg; /* First argument of `call_handler`. */
    uint32_t values_max;    /* Most values in a call that arrives from a peer. */
    /* Receives replies to calls that were forgotten; NULL discards them. */
    tdm__late_reply_fn *on_late_reply;
    void *on_late_reply_arg; /* First argument of `on_late_reply`. */
    /* Reports connections that a listener accepted; NULL if unset. */
    tdm__accepted_fn *on_accepted;
    void *on_accepted_arg; /* First argument of `on_accepted`. */
    tdm_writer *writer;    /* Buffer in which replies are packed (owned). */
    /* First of the endpoint's listening sockets (owned), see rpc.c; NULL if absent. */
    struct listener *listeners;
    TAILQ_HEAD(, tdm__conn) conns; /* All connections of the endpoint that have not ended. */
    /* Accepted connections whose peer has not proved yet that it knows the token, the oldest first.
     * A subset of `conns`. */
    TAILQ_HEAD(, tdm__conn) unproved;
    uint32_t unproved_count; /* Number of connections in `unproved`. */
    /* Largest number of connections in `unproved`; one more takes the place of another one. */
    uint32_t unproved_max;
    /* Connections whose output is written before the loop polls next. */
    TAILQ_HEAD(, tdm__conn) corked;
    /* Hook of the loop that calls tdm__rpc_flush() before each poll. */
    struct tdm__poll_hook flush_hook;
    /* True once tdm__rpc_destroy() has begun; no connections are added then. */
    bool closing;
    /* Limits the warnings about clients whose connection ended before they had proved themselves.
     */
    struct tdm__log_limit unproved_log;
    /* Limits the warnings about clients that were not accepted for lack of descriptors or memory.
     */
    struct tdm__log_limit refused_log;
};

/* ---- frames that arrive ----------------------------------------------------------------- */

/* A frame that arrived from a peer. For a call it exists until the reply, for a reply or stream
 * item until it is delivered. The memory stays until the last document that borrows the payload is
 * destroyed, which may happen on another thread. */
struct tdm__incoming_call {
    /* Entry in the connection's table of incoming calls while `listed`; only for calls. */
    struct tdm__call_table_entry entry;
    /* Number of owners of this memory: the frame itself and each document that borrows the payload.
     */
    atomic_uint owners_count;
    /* Connection that brought the call (retained); NULL for other frames. */
    struct tdm__conn *conn;
    /* Whether the call is in the connection's table of incoming calls. */
    bool listed;
    uint32_t values_max;            /* Most values in the payload, if the frame is a call. */
    tdm__call_notice_fn *on_notice; /* Callback that receives the call's notices; NULL if unset. */
    void *on_notice_arg;            /* First argument of `on_notice`. */
    /* Index, from 1, of the last item of the call's stream that was sent; 0 if none was. */
    uint64_t items_sent;
    /* Number of items of the call's stream that the consumer has reported as taken. */
    uint64_t items_taken;
    struct tdm__frame frame; /* Decoded header of the frame that arrived. */
    /* Deadline of the call in milliseconds on CLOCK_MONOTONIC; TDM__NEVER if absent. */
    int64_t deadline_ms;
    /* Time at which the frame's first bytes were read, in milliseconds on CLOCK_MONOTONIC_COARSE.
     */
    int64_t arrived_ms;
    /* Parsed payload of the frame (owned); NULL before it is parsed. */
    tdm_document *document;
    /* Descriptors of the frame (owned); -1 where taken. */
    int fds[TDM__RPC_FDS_MAX];
    /* Whether descriptors of the frame were dropped because this process had too few free ones. All
     * entries of `fds` are -1 then. */
    bool fds_lost;
    /* Number of bytes of the frame's payload and tail that have arrived. */
    uint32_t received_bytes;
    size_t allocated_bytes; /* Size in bytes of the allocation that this structure begins. */
    /* Payload of the frame and a NUL, stored behind `method`. Aligned to 64 bytes if it may contain
     * an array. */
    char *payload;
    /* Bytes that follow the payload (the tail): stored behind the payload, or in the buffer of
     * tdm__conn_set_tail_buffer() (borrowed). NULL if absent. */
    char *tail;
    char method[]; /* Name of the called method, ending with NUL. */
};

/* ---- connections ------------------------------------------------------------------------ */

/* State of an RPC connection. It only moves downwards in this list. */
enum conn_state {
    CONN_CONNECTING, /* The connection's socket is not connected yet. */
    CONN_HANDSHAKE,  /* The socket is connected, and the peer is not authenticated yet. */
    /* The peer is authenticated and frames are exchanged. */
    CONN_OPEN,
    /* tdm__conn_close() was called; the connection ends in the next round of the loop. */
    CONN_CLOSING,
    /* The connection is closed; only its memory remains until the last reference is released. */
    CONN_ENDED
};

/* An RPC connection to another process; the comment "Lifetime of a connection" describes when it is
 * freed. Only the loop's thread uses it. */
struct tdm__conn {
    /* Links the connection into rpc->conns until the connection ends. */
    TAILQ_ENTRY(tdm__conn) link;
    /* Endpoint of this process that has the connection (borrowed); NULL once the connection has
     * ended. */
    struct tdm__rpc *rpc;
    struct tdm__loop *loop;    /* Event loop of the endpoint (borrowed). */
    uint32_t references_count; /* Number of references to the connection's memory. */
    uint64_t number;           /* Position among the connections of the endpoint, from 1. */
    enum conn_state state;     /* State of the connection. */
    /* Whether this process has the server's role in the handshake: it waits for the peer's hello.
     */
    bool server;
    bool accepted; /* Whether a listener of this process accepted the connection. */
    /* Whether the connection is in rpc->unproved. */
    bool unproved;
    TAILQ_ENTRY(tdm__conn) unproved_link; /* Links the connection into rpc->unproved. */
    /* Time at which the connection was accepted, in milliseconds on CLOCK_MONOTONIC; valid while
     * `unproved`. */
    int64_t accepted_ms;
    /* Whether the socket is a Unix socket, so that descriptors can be passed. */
    bool local;
    /* Whether a write to the socket failed. Output is then discarded until reading finds the end of
     * the connection. */
    bool write_failed;
    /* Whether the machine of the peer's address has said that no process listens there, or another
     * process than `expected_peer` does. */
    bool was_refused;
    /* ID that the peer must state; all zeros for any. */
    struct tdm__id expected_peer;
    /* CPU on which the peer sent its last frame, plus 1; 0 if unknown. */
    uint32_t peer_cpu;
    /* Socket of the connection (owned); -1 once the connection has ended. */
    int fd;
    /* TLS on the socket (owned); NULL if its bytes are not encrypted. */
    struct tdm__tls *tls;
    /* Whether the handshake of TLS is under way. */
    bool tls_is_starting;
    /* Reports that the socket is readable or writable (owned). */
    struct tdm__fd_watch *watch;
    /* Fires at the deadline of the handshake or of a call (owned). */
    struct tdm__timer *timer;
    /* Time for which `timer` is set, in milliseconds on CLOCK_MONOTONIC; TDM__NEVER if it is not
     * set. */
    int64_t timer_ms;
    /* Deadline of the handshake in milliseconds on CLOCK_MONOTONIC. */
    int64_t handshake_deadline_ms;
    /* Identity of the process at the other end; its kind is 0 before authentication. */
    struct tdm__peer_identity peer;
    /* Name of the peer for messages: "name (pid 4)"; its address before authentication. */
    char label[LABEL_BYTES];

    /* Addresses of the peer's host while `fd` is being connected to one of them and others are left
     * to try (owned); NULL otherwise. */
    struct tdm__addresses *addresses;
    /* Handshake in progress (owned); NULL once it has succeeded. handshake.h defines it. */
    struct handshake *handshake;
    /* Buffer of INPUT_BYTES bytes for what is read from the socket (owned); NULL before the state
     * is CONN_OPEN. */
    uint8_t *input;
    /* Offset in `input` of the first byte that no frame has consumed. */
    size_t input_begin;
    /* Offset in `input` behind the last byte that was read. */
    size_t input_end;
    /* Time of the last read from the socket, in milliseconds on CLOCK_MONOTONIC_COARSE. */
    int64_t input_ms;
    /* Frame whose payload or tail is still arriving (owned); NULL if absent. */
    struct tdm__incoming_call *partial;
    /* Descriptors that arrived and are not assigned to a frame yet (owned). FD_REST_LOST stands
     * behind those of a frame for which this process had too few free descriptors. */
    int fds[FDS_WAITING_MAX];
    uint32_t fds_count; /* Number of entries in `fds`. */
    /* Buffer of the user for the tail of the next call that arrives (borrowed); NULL if none is
     * set. */
    void *tail_buffer;
    /* Size of `tail_buffer` in bytes. The buffer is used only for a tail of exactly this size. */
    size_t tail_buffer_bytes;

    struct conn_output output; /* Frames that wait to be written to the socket. */
    /* Whether the socket is full; `watch` reports when the socket accepts bytes again. */
    bool output_blocked;
    /* Whether the connection is in rpc->corked, to be flushed before the loop polls. */
    bool corked;
    TAILQ_ENTRY(tdm__conn) cork_link; /* Links the connection into rpc->corked while `corked`. */
    /* Calls that this process sent and that have no reply yet (struct tdm__rpc_call). */
    struct call_table calls;
    /* Calls that the peer sent and that have no reply yet (struct tdm__incoming_call). */
    struct call_table incoming_calls;
    /* ID of the last call that this process sent; 0 before the first. */
    uint64_t last_call_id;

    /* Callback that reports the end of the connection; NULL if unset. */
    tdm__closed_fn *on_closed;
    void *on_closed_arg; /* First argument of `on_closed`. */
    /* Additional observers of the connection's end (borrowed). */
    LIST_HEAD(, tdm__close_watcher) close_watchers;
    /* Pointer that the user attached with tdm__conn_set_user_data(); never dereferenced by this
     * folder. */
    void *user_data;
};

#endif
