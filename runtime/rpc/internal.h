/* internal.h - what the files of the rpc share: endpoints, connections, frames that arrive. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Lifetime of a connection.
 *
 * A connection has a reference count. References are held by its endpoint
 * while it is open, by each call that arrived on it until the reply, and by each function of this
 * folder on the stack that works on it. tdm__conn_finish() closes everything at once and notifies
 * all calls and watchers. Until the last reference is released only the memory remains, in state
 * CONN_ENDED, with conn->rpc NULL. So after every callback, code checks conn->state before it
 * touches anything else, and it does not touch the endpoint.
 *
 * The watch of a connection handles all frames that one read brought. Before each frame it asks for
 * another round if more input is buffered. So a callback that runs the loop itself receives the
 * remaining frames there, in order. */
#ifndef TDM_RUNTIME_RPC_INTERNAL_H
#define TDM_RUNTIME_RPC_INTERNAL_H

#include "runtime/rpc/rpc.h"
#include "runtime/wire/frame.h"

#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

_Static_assert((int)TDM__RPC_FDS_MAX == (int)TDM__FRAME_FDS_MAX, "one limit");
_Static_assert((int)TDM__RPC_NAME_BYTES_MAX == (int)TDM__FRAME_METHOD_BYTES_MAX, "one limit");
_Static_assert(TDM__RPC_FRAME_BYTES_MAX == TDM__FRAME_BYTES_MAX, "one limit");

/* Limits of a connection. */
enum {
    /* Milliseconds within which a peer must complete the handshake. */
    HANDSHAKE_MS = 5000,
    /* The same for the other end of a socket pair, which is a process of this node that may still
     * have to start. */
    ADOPTED_HANDSHAKE_MS = 60000,
    HELLO_BYTES = 152,       /* Size of a hello message. */
    MAC_BYTES = 32,          /* Size of HMAC-SHA256. */
    INPUT_BYTES = 32 * 1024, /* Capacity of a connection's input buffer. */
    /* Most descriptors that arrived before their frames. */
    FDS_WAITING_MAX = 32,
    /* Capacity of a connection's label, with the NUL. */
    LABEL_BYTES = 128
};
/* Most bytes of frames that wait for a slow reader; the connection refuses more with TDM_E_AGAIN.
 */
#define QUEUE_BYTES_MAX ((size_t)1 << 30)

/* ---- address.c -------------------------------------------------------------------------- */

/* An address that connect(2) or bind(2) accepts. `socket` is large enough for every family. */
struct tdm__address {
    /* The address in all the forms that the kernel accepts. */
    union {
        struct sockaddr any;
        struct sockaddr_un local;
        struct sockaddr_storage storage;
    } socket;
    socklen_t socket_bytes; /* Number of valid bytes in `socket`. */
};

/* Parses an address: "unix:/path", "tcp:host:port" or "tcp:[::1]:port". Looking up a host name
 * blocks. */
tdm_status tdm__address_parse(const char *text, struct tdm__address *address_out);
/* Writes the address of a bound TCP socket as text, such as "tcp:127.0.0.1:4711". */
tdm_status tdm__address_of_socket(int fd, char *text_out, size_t text_bytes);

/* ---- tables of calls under way (call_table.c) ------------------------------------------------ */

/* A hash table of calls by their IDs, which also keeps the order of insertion. It belongs to its
 * connection and borrows the entries. */
struct call_table {
    /* All entries in the order of insertion. */
    TAILQ_HEAD(, tdm__call_table_entry) in_order;
    /* Hash buckets (owned); NULL before init and after fini. */
    struct tdm__call_table_entry **buckets;
    uint32_t buckets_count; /* Number of buckets, a power of two. */
    uint32_t count;         /* Number of entries. */
};

/* Initialises an empty table with the smallest number of buckets. */
tdm_status tdm__call_table_init(struct call_table *table);
/* Frees the buckets. The table must be empty. */
void tdm__call_table_fini(struct call_table *table);
/* Adds an entry. Its ID must not be in the table yet. Never fails. */
void tdm__call_table_add(struct call_table *table, struct tdm__call_table_entry *entry);
/* Returns the entry with this ID, or NULL. */
struct tdm__call_table_entry *tdm__call_table_find(const struct call_table *table, uint64_t id);
/* Removes an entry that is in the table. */
void tdm__call_table_remove(struct call_table *table, struct tdm__call_table_entry *entry);

/* ---- endpoints (rpc.c) ------------------------------------------------------------------ */

/* A socket that accepts connections for an endpoint. */
struct listener {
    /* Next listener of the same endpoint; NULL at the end. */
    struct listener *next;
    struct tdm__rpc *rpc;        /* Endpoint that owns the listener (borrowed). */
    struct tdm__fd_watch *watch; /* Reports clients that want to connect (owned). */
    /* Resumes accepting after a lack of descriptors (owned). */
    struct tdm__timer *pause_timer;
    int fd; /* Listening socket (owned); -1 before it exists. */
    /* Path to unlink at the end; "" for TCP. */
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
};

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
    tdm__accepted_fn *accepted;        /* Reports accepted connections; NULL if unset. */
    void *accepted_arg;                /* Passed to `accepted`. */
    tdm_writer *writer;                /* Buffer in which replies are packed (owned). */
    struct listener *listeners;        /* First listener (owned); NULL if absent. */
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

/* ---- frames that arrive (receive.c, incoming.c) ----------------------------------------- */

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

/* Bytes of a hello message as sent. */
struct hello {
    uint8_t bytes[HELLO_BYTES]; /* The structure wire_hello of handshake.c. */
};

/* State of a handshake in progress. It belongs to its connection. */
struct handshake {
    struct hello own_hello;  /* Hello that this process sends. */
    struct hello peer_hello; /* Hello that the peer sent. */
    /* Bytes received: the peer's hello, then its MAC. */
    uint8_t input[HELLO_BYTES + MAC_BYTES];
    uint32_t input_bytes; /* Number of valid bytes in `input`. */
    /* Number of bytes to receive before the next step. Nothing beyond them is read before the peer
     * is authenticated. */
    uint32_t wanted_bytes;
};

/* A block of bytes that wait to be written: whole frames, or the rest of one. */
struct output_chunk {
    TAILQ_ENTRY(output_chunk) link; /* Links the chunk into its connection's output. */
    size_t capacity_bytes;          /* Size of `bytes`. */
    /* Offset in `bytes` of the first byte that has not been sent. */
    size_t begin;
    size_t end;         /* Offset in `bytes` behind the last valid byte. */
    uint32_t fds_count; /* Number of descriptors in `fds`. */
    /* Descriptors that are sent with the first byte (owned). */
    int fds[TDM__RPC_FDS_MAX];
    /* The bytes, of which `begin` to `end` are waiting. */
    uint8_t bytes[];
};

/* The bytes that a connection still has to write, in order. */
struct conn_output {
    /* Chunks in the order of sending. An empty chunk is always the only one. */
    TAILQ_HEAD(chunks, output_chunk) chunks;
    size_t size_bytes; /* Unsent bytes in all chunks. */
};

/* A connection, see the note on its lifetime above. Only the loop's thread uses it. */
struct tdm__conn {
    /* Links the connection into rpc->conns until it ends. */
    TAILQ_ENTRY(tdm__conn) link;
    /* Endpoint (borrowed); NULL once the connection has ended. */
    struct tdm__rpc *rpc;
    struct tdm__loop *loop; /* Loop of the endpoint (borrowed). */
    uint32_t references;    /* Number of references to this memory. */
    enum conn_state state;
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

    /* Handshake in progress (owned); NULL once it has succeeded. */
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
    LIST_HEAD(, tdm__close_watcher) closers;
    /* Pointer of the connection's user; never read here. */
    void *user;
};

/* Returns the CPU on which this thread runs, plus 1, as frames carry it; 0 if unknown. */
uint32_t tdm__current_cpu(void);

/* Retains the connection's memory. conn_refcount.c defines this function and the next one. */
void tdm__conn_retain(struct tdm__conn *conn);
/* Releases one reference. The last one frees the memory; the state must be CONN_ENDED. */
void tdm__conn_release(struct tdm__conn *conn);

/* Creates a connection over the socket `fd` and starts its handshake. It owns the socket after
 * TDM_OK. `label` names the peer until it is authenticated. conn.c defines this function and the
 * next two. */
tdm_status tdm__conn_create(struct tdm__rpc *rpc, int fd, bool server, const char *label,
                            struct tdm__conn **conn_out);
/* Ends the connection for the reason of the last failure (tdm_error_detail). It runs callbacks, so
 * only the loop may call it. */
void tdm__conn_finish(struct tdm__conn *conn, tdm_status reason);
/* Ensures that the timer fires at the deadline or before. It never postpones the timer. */
tdm_status tdm__conn_set_timer(struct tdm__conn *conn, int64_t deadline_ms);

/* Prepares this side's hello; a client sends it at once. handshake.c defines this function and the
 * next one. */
tdm_status tdm__handshake_start(struct tdm__conn *conn);
/* Reads available bytes and continues the handshake. If it returns TDM_OK and the state is
 * CONN_OPEN, the peer is authenticated. */
tdm_status tdm__handshake_step(struct tdm__conn *conn);

/* Number of pieces of a frame: header, method, payload and tail. */
enum { FRAME_PIECES = 4 };
/* Initialises empty output. The functions of this group are in output.c. */
void tdm__output_init(struct conn_output *output);
/* Reserves `size_bytes` at the end of the output. The caller must fill them before any other call
 * on the output. */
tdm_status tdm__output_reserve(struct conn_output *output, size_t size_bytes, uint8_t **place_out);
/* Copies the pieces without their first `skip` bytes to the end of the output. The descriptors are
 * duplicated. */
tdm_status tdm__output_append(struct conn_output *output, const struct iovec pieces[FRAME_PIECES],
                              size_t skip, const int *fds, uint32_t fds_count);
/* Most pieces that one sendmsg(2) writes. */
enum { OUTPUT_PIECES_MAX = 16 };
/* Collects what one sendmsg(2) can write and returns the number of pieces. It stops before the next
 * chunk that has descriptors, because these are sent with the chunk's first byte. */
size_t tdm__output_gather(const struct conn_output *output, struct iovec pieces[OUTPUT_PIECES_MAX],
                          const int **fds_out, uint32_t *fds_count_out);
/* Removes the first `sent_bytes` bytes, which have been written. */
void tdm__output_consume(struct conn_output *output, size_t sent_bytes);
/* Discards all bytes and frees the memory. */
void tdm__output_clear(struct conn_output *output);

/* Sends a frame now or before the next poll. Returns TDM_E_AGAIN when too many bytes wait, but
 * never for failures and notices. send.c defines this function and the next four. */
tdm_status tdm__conn_send(struct tdm__conn *conn, const struct tdm__frame *frame,
                          const char *method, const void *payload, const void *tail,
                          const int *fds);
/* Writes as much of the output as the socket accepts. */
void tdm__conn_flush(struct tdm__conn *conn);
/* Continues to write after the socket has become writable. */
void tdm__conn_unblock(struct tdm__conn *conn);
/* Removes the connection from the list of corked ones. */
void tdm__conn_uncork(struct tdm__conn *conn);
/* Flushes all corked connections of the endpoint `arg`. Runs before each poll of the loop. */
void tdm__rpc_flush(void *arg);

/* Returns the next complete frame, or NULL in `*incoming_out`. It reads the socket only if
 * `readable`. receive.c defines this function and the next three. */
tdm_status tdm__conn_receive(struct tdm__conn *conn, bool readable,
                             struct tdm__incoming_call **incoming_out);
/* Frees the input buffer and the partial frame, and closes the descriptors without a frame. */
void tdm__conn_discard_input(struct tdm__conn *conn);
/* Closes the descriptors that were not taken, and frees the memory unless a document still borrows
 * it. */
void tdm__incoming_free(struct tdm__incoming_call *incoming);
/* Parses the payload into a document that borrows it, without a copy. */
tdm_status tdm__incoming_parse(struct tdm__incoming_call *incoming, tdm_document **document_out);

/* Passes a call to the endpoint's handler. Returns TDM_E_PROTOCOL if the call's ID is in use.
 * The functions on calls of the peer are in incoming.c. */
tdm_status tdm__conn_serve(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Passes a CANCEL or CREDIT frame to its call. Returns TDM_E_PROTOCOL for impossible credit. */
tdm_status tdm__conn_notice(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Notifies every call without a reply that the connection has ended. */
void tdm__incoming_notify_closed(struct tdm__conn *conn);

/* Passes a reply to its call, or reports it as late if the call was forgotten. The
 * functions on calls of this process are in calls.c. */
void tdm__calls_complete(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Passes a stream item to its call. Returns TDM_E_PROTOCOL if it is out of order. */
tdm_status tdm__calls_deliver_item(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Fails one call whose deadline has passed and sets the timer for the others. */
void tdm__calls_fail_expired(struct tdm__conn *conn);
/* Fails all pending calls because the connection has ended for the reason in `detail`. */
void tdm__calls_fail_all(struct tdm__conn *conn, const char *detail);

#endif
