/* rpc.h - authenticated connections that carry calls and their replies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_H
#define TDM_RUNTIME_RPC_H

#include "runtime/id.h"
#include "runtime/loop/loop.h"

#include <sys/queue.h>
#include <tandem/value.h>

/* A process has one endpoint (tdm__rpc). The endpoint listens for other processes and connects to
 * the processes it calls. Either end of a connection may call the other. A call names a target (an
 * actor or a service of the process) and a method. It carries one packed value and up to 8 file
 * descriptors (Unix sockets only). Each call completes exactly once: with the callee's reply, or
 * with the reason why no reply can arrive (deadline, closed connection).
 *
 * Before anything else is read, both sides prove that they know the cluster's token, by HMAC-SHA256
 * over both nonces and both identities. A peer that does not do so within 5 s is dropped.
 *
 * Calls on one connection arrive in the order of sending. All functions must be called on the
 * loop's thread. */

struct tdm__rpc;
struct tdm__conn;
struct tdm__message;

/* Bytes of the cluster's secret token, the most file descriptors that one frame carries, and the
 * most bytes of a method's name. */
enum { TDM__TOKEN_BYTES = 32, TDM__RPC_FDS_MAX = 8, TDM__RPC_NAME_BYTES_MAX = 63 };
/* Most bytes of a frame. A sender refuses a larger one with TDM_E_LIMIT; a receiver drops the
 * connection. */
#define TDM__RPC_FRAME_BYTES_MAX (256u << 20)

/* What a process is. The values travel in the handshake. */
enum tdm__peer_kind { TDM__PEER_DRIVER = 1, TDM__PEER_WORKER, TDM__PEER_DAEMON, TDM__PEER_TOOL };

/* The identity that a process states in the handshake. The MAC of the handshake protects it. */
struct tdm__peer_identity {
    /* What the process is; 0 before the peer is authenticated. */
    enum tdm__peer_kind kind;
    /* ID of the actor (workers) or of the node (daemons); random for other processes. */
    struct tdm__id id;
    /* Node on which the process runs; all zero for a driver that does not know it yet. */
    struct tdm__id node;
    int64_t pid; /* Process ID, as the process itself sees it. */
    /* Name that log messages show, such as "tandemd"; ends with NUL. */
    char name[64];
};

/* Creates an endpoint without listeners and connections. The identity and the token are copied; the
 * loop is borrowed and must outlive the endpoint. */
tdm_status tdm__rpc_create(struct tdm__loop *loop, const struct tdm__peer_identity *self,
                           const uint8_t token[TDM__TOKEN_BYTES], struct tdm__rpc **rpc_out);
/* Creates another endpoint with the identity and token of `like`, on another loop. */
tdm_status tdm__rpc_create_like(const struct tdm__rpc *like, struct tdm__loop *loop,
                                struct tdm__rpc **rpc_out);
/* Closes every listener and connection and frees the endpoint. Calls in flight complete first with
 * TDM_E_CLOSED. NULL is allowed. */
void tdm__rpc_destroy(struct tdm__rpc *rpc);
/* Returns the loop on which the endpoint runs (borrowed). */
struct tdm__loop *tdm__rpc_loop(struct tdm__rpc *rpc);
/* Replaces the identity that later handshakes state. A driver learns its node only after it has
 * connected. */
void tdm__rpc_set_identity(struct tdm__rpc *rpc, const struct tdm__peer_identity *self);

/* Listens at an address: "unix:/path" (created with mode 0600; a stale socket file is replaced) or
 * "tcp:127.0.0.1:0". Writes the address that peers can use, with the port filled in, to `bound_out`
 * if that is not NULL. */
tdm_status tdm__rpc_listen(struct tdm__rpc *rpc, const char *address, char *bound_out,
                           size_t bound_bytes);

/* ---- calls that arrive ------------------------------------------------------------------ */

/* A call that arrived from a peer. The process that received it must reply to it exactly once, with
 * tdm__incoming_reply() or tdm__incoming_fail(), immediately or later. If the connection closes
 * first, it must still be replied to; that reply is then discarded. */
struct tdm__incoming_call;

/* Handles one call that arrived on any connection of an endpoint. The handler must reply to the
 * call, during the callback or later. */
typedef void tdm__call_handler_fn(void *arg, struct tdm__incoming_call *incoming);
/* Sets the handler of all calls that arrive. NULL makes every call fail with TDM_E_NOT_FOUND. */
void tdm__rpc_set_call_handler(struct tdm__rpc *rpc, tdm__call_handler_fn *fn, void *arg);

/* Returns the actor that the call addresses; all zero for a service of the process. Valid until the
 * reply. */
const struct tdm__id *tdm__incoming_target(const struct tdm__incoming_call *incoming);
/* Returns the name of the called method, ending with NUL. Valid until the reply. */
const char *tdm__incoming_method(const struct tdm__incoming_call *incoming);
/* Returns the call's ID, which the caller chose and which is unique on its connection. */
uint64_t tdm__incoming_call_id(const struct tdm__incoming_call *incoming);
/* Returns the packed value that the call carries. Valid until the reply. */
struct tdm_bytes tdm__incoming_packed(const struct tdm__incoming_call *incoming);
/* Returns the root of the call's value, parsed on first use. Returns TDM_E_PROTOCOL if the payload
 * is not a valid packed value. */
tdm_status tdm__incoming_value(struct tdm__incoming_call *incoming, const tdm_value **value_out);
/* Unpacks the call's value by a format as tdm_unpack() does. Errors name the method. */
tdm_status tdm__incoming_unpack(struct tdm__incoming_call *incoming, const char *format, ...);
/* Decodes the arguments as a message (runtime/messages) into its structure. The strings, bytes and
 * lists in the structure are valid until the reply. Errors name the method. */
tdm_status tdm__incoming_decode(struct tdm__incoming_call *incoming,
                                const struct tdm__message *message, void *structure_out);
/* Returns the bytes that follow the call's value (its tail), or {NULL, 0} if absent. Valid
 * until the reply. */
struct tdm_bytes tdm__incoming_tail(const struct tdm__incoming_call *incoming);
/* Sets the buffer that receives the tail of the next call if that tail has exactly `size_bytes`
 * bytes. A call that is already arriving does not use it. The buffer is borrowed until the next
 * call has arrived or the connection has ended. `place` NULL withdraws an unused buffer. */
void tdm__conn_set_tail_buffer(struct tdm__conn *conn, void *place, size_t size_bytes);
/* Moves the parsed payload to the caller, who destroys it. The document stays valid after the
 * reply. */
tdm_status tdm__incoming_take_document(struct tdm__incoming_call *incoming,
                                       tdm_document **document_out);
/* Moves descriptor `index` to the caller, who closes it; returns -1 if the call carries no such
 * descriptor. Descriptors that are not taken are closed with the call. */
int tdm__incoming_take_fd(struct tdm__incoming_call *incoming, uint32_t index);
/* Returns the call's deadline in milliseconds on this process's CLOCK_MONOTONIC; TDM__NEVER if it
 * has none. */
int64_t tdm__incoming_deadline(const struct tdm__incoming_call *incoming);
/* Returns approximately when the call arrived, in milliseconds on CLOCK_MONOTONIC. */
int64_t tdm__incoming_arrived(const struct tdm__incoming_call *incoming);
/* Returns the connection that brought the call (borrowed), or NULL if that connection has closed.
 */
struct tdm__conn *tdm__incoming_conn(const struct tdm__incoming_call *incoming);
/* Returns the identity of the process that sent the call. Valid until the reply. */
const struct tdm__peer_identity *tdm__incoming_peer(const struct tdm__incoming_call *incoming);

/* Returns the call's sequence number within its client session, as in runtime/wire/frame.h; 0 if it
 * has none. */
uint64_t tdm__incoming_sequence(const struct tdm__incoming_call *incoming);
/* Returns the number up to which the caller has received all replies, as in runtime/wire/frame.h.
 */
uint64_t tdm__incoming_acknowledged(const struct tdm__incoming_call *incoming);
/* Returns whether the caller accepts items of a stream, that is, whether it has set `on_item`. */
bool tdm__incoming_wants_items(const struct tdm__incoming_call *incoming);
/* Returns the index of the call's concurrency group, as in runtime/wire/frame.h. */
uint32_t tdm__incoming_concurrency_group(const struct tdm__incoming_call *incoming);

/* What happened to a call that has no reply yet. The loop delivers notices, never a function of
 * this file. Events before tdm__incoming_on_notice() are not reported. */
enum tdm__call_notice {
    TDM__NOTICE_CANCEL, /* The caller no longer wants the result. */
    /* The caller wants neither the result nor the results of the calls that the called method has
     * made. */
    TDM__NOTICE_CANCEL_CHILDREN,
    /* The consumer has taken `items_taken` items of the call's stream, more than at the last
     * notice. */
    TDM__NOTICE_CREDIT,
    /* The call's connection has ended. This is the last notice. */
    TDM__NOTICE_CLOSED
};
/* Receives a notice about a call. It may reply to the call, which frees it. */
typedef void tdm__call_notice_fn(void *arg, enum tdm__call_notice notice, uint64_t items_taken);
/* Sets the function that receives the notices of this call; NULL receives none. */
void tdm__incoming_on_notice(struct tdm__incoming_call *incoming, tdm__call_notice_fn *fn,
                             void *arg);
/* Sends item `index` of the call's stream. The first index is 1, and each is higher than the one
 * before. The descriptors are duplicated. Returns TDM_E_CLOSED if the connection has ended. */
tdm_status tdm__incoming_send_item(struct tdm__incoming_call *incoming, uint64_t index,
                                   struct tdm_bytes packed, const int *fds, uint32_t fds_count);

/* Replies with a packed value and frees `incoming`. The descriptors are duplicated; the caller
 * keeps its own. */
void tdm__incoming_reply(struct tdm__incoming_call *incoming, struct tdm_bytes packed,
                         const int *fds, uint32_t fds_count);
/* Replies with a value that is packed by a format as tdm_pack() does, and frees `incoming`. */
void tdm__incoming_reply_pack(struct tdm__incoming_call *incoming, const char *format, ...);
/* Replies with a message (runtime/messages) that is encoded from its structure, and frees
 * `incoming`. */
void tdm__incoming_reply_message(struct tdm__incoming_call *incoming,
                                 const struct tdm__message *message, const void *structure);
/* Replies with a failure, and frees `incoming`. The status and the detail text travel to the
 * caller. */
void tdm__incoming_fail(struct tdm__incoming_call *incoming, tdm_status status, const char *detail);

/* ---- calls that leave ------------------------------------------------------------------- */

/* Starts to connect to `address` and returns the new connection, which the endpoint owns. Calls may
 * be sent at once; they leave when the handshake has succeeded. Blocks only to look up a host name.
 */
tdm_status tdm__rpc_connect(struct tdm__rpc *rpc, const char *address, struct tdm__conn **conn_out);
/* Creates a connection over a connected socket (a socketpair). It owns `fd` after TDM_OK. `server`
 * is true on the side that waits for the other side's hello. */
tdm_status tdm__rpc_adopt(struct tdm__rpc *rpc, int fd, bool server, struct tdm__conn **conn_out);

/* Reports that a connection ended, with TDM_E_CLOSED, TDM_E_AUTH, TDM_E_PROTOCOL or TDM_E_IO. It
 * runs once, after all calls of the connection have completed, and never inside the function that
 * caused the end. The connection is freed after `fn` returns. */
typedef void tdm__closed_fn(void *arg, struct tdm__conn *conn, tdm_status reason,
                            const char *detail);
/* Sets the function that reports the end of this connection. */
void tdm__conn_on_closed(struct tdm__conn *conn, tdm__closed_fn *fn, void *arg);
/* An additional observer of a connection's end, notified after the tdm__closed_fn whichever side
 * ended the connection. The memory is the caller's, and must stay until `fn` has run or the watcher
 * has been removed. */
struct tdm__close_watcher {
    LIST_ENTRY(tdm__close_watcher) link; /* Links the watcher into its connection's list. */
    /* Runs once when the connection has ended. */
    void (*fn)(struct tdm__close_watcher *closer);
};
/* Adds a close watcher. Returns TDM_E_CLOSED if the connection has already ended; `fn` does not run
 * then. */
tdm_status tdm__conn_watch_close(struct tdm__conn *conn, struct tdm__close_watcher *closer);
/* Removes a close watcher whose function has not run yet. */
void tdm__conn_unwatch_close(struct tdm__close_watcher *closer);
/* Reports a connection that a listener accepted, once its peer is authenticated. */
typedef void tdm__accepted_fn(void *arg, struct tdm__conn *conn);
/* Sets the function that reports accepted connections. */
void tdm__rpc_on_accepted(struct tdm__rpc *rpc, tdm__accepted_fn *fn, void *arg);
/* Calls `fn` for each open connection, accepted ones and outgoing ones. `fn` may send calls but
 * must not end a connection. */
void tdm__rpc_each_conn(struct tdm__rpc *rpc, void (*fn)(void *arg, struct tdm__conn *conn),
                        void *arg);
/* Closes a connection without blocking. One more attempt is made to send the queued output. The
 * connection ends in the next round of the loop, and its tdm__closed_fn still runs. */
void tdm__conn_close(struct tdm__conn *conn);
/* Returns whether the peer is authenticated and the connection is not closing. */
bool tdm__conn_is_open(const struct tdm__conn *conn);
/* Returns the identity of the peer (borrowed from the connection). Its kind is 0 until the
 * handshake has succeeded. */
const struct tdm__peer_identity *tdm__conn_peer(const struct tdm__conn *conn);
/* Returns a new pidfd of the process at the other end of a Unix socket, which the caller closes.
 * Unlike the connection it shows the end of a process whose forked child keeps the socket open.
 * Returns -1 if the process has none (TCP, another PID namespace). */
int tdm__conn_peer_pidfd(const struct tdm__conn *conn);
/* Attaches a pointer of the connection's user. This module never reads it. */
void tdm__conn_set_user_data(struct tdm__conn *conn, void *user);
/* Returns the pointer of tdm__conn_set_user_data(), or NULL. */
void *tdm__conn_user_data(const struct tdm__conn *conn);

/* Asks the callee to cancel a call and, if `children` is true, the calls that it has made. The
 * callee still replies, at least to confirm. Unknown IDs are ignored. */
void tdm__conn_cancel_call(struct tdm__conn *conn, uint64_t call_id, bool children);
/* Tells the callee that `items_taken` items of the call's stream have been taken so far. An unknown
 * ID is ignored. */
void tdm__conn_send_credit(struct tdm__conn *conn, uint64_t call_id, uint64_t items_taken);

/* A reply or a stream item, as passed to callbacks. Everything is borrowed until the callback
 * returns; the callback may take descriptors. */
struct tdm__rpc_reply {
    /* Outcome of the call: the callee's status, or why no reply can come. */
    tdm_status status;
    const char *detail; /* Text of the failure; "" if the status is TDM_OK. */
    /* The callee's packed value; empty after a failure. */
    struct tdm_bytes packed;
    /* Descriptors of the reply. The callback takes one by setting its entry to -1. Entries without
     * a descriptor are -1. */
    int fds[TDM__RPC_FDS_MAX];
    uint32_t fds_count; /* Number of descriptors that the reply carried. */
    /* Frame that holds `packed`; NULL if no frame does. */
    struct tdm__incoming_call *incoming;
};
/* Completes a call. It runs once, on the loop's thread. */
typedef void tdm__rpc_reply_fn(void *arg, struct tdm__rpc_reply *reply);
/* Delivers item `index` (from 1) of a stream before the call's reply. `arg` is that of the call. */
typedef void tdm__stream_item_fn(void *arg, uint64_t index, struct tdm__rpc_reply *item);
/* Receives replies and items of calls that were forgotten, so that resources in them can be
 * released. `item` is 0 for a reply. */
typedef void tdm__late_reply_fn(void *arg, struct tdm__conn *conn, uint64_t call_id, uint64_t item,
                                struct tdm__rpc_reply *reply);
/* Sets the function that receives late replies of all connections; NULL discards them. */
void tdm__rpc_on_late_reply(struct tdm__rpc *rpc, tdm__late_reply_fn *fn, void *arg);
/* Parses the callee's value into a document that outlives the reply; the caller destroys it. Only
 * small values are copied. */
tdm_status tdm__rpc_reply_document(const struct tdm__rpc_reply *reply, tdm_document **document_out);
/* A tdm__rpc_reply_fn for a call that this process forwards: replies to `incoming`, a struct
 * tdm__incoming_call, with the value or the failure of `reply`, and frees `incoming`. */
void tdm__incoming_pass_reply(void *incoming, struct tdm__rpc_reply *reply);

/* First member of each structure that is kept in a table of calls. Only the files of this folder
 * use the fields. */
struct tdm__call_table_entry {
    /* Links the entry into the table's list, in the order of insertion. */
    TAILQ_ENTRY(tdm__call_table_entry) link;
    /* Next entry of the same hash bucket; NULL at its end. */
    struct tdm__call_table_entry *next;
    uint64_t id; /* The call's ID, unique in its table. */
};

/* A call that this process sent and that has no reply yet. Only the files of this folder use the
 * fields. The memory may belong to the caller (tdm__rpc_request.call). */
struct tdm__rpc_call {
    /* Entry in the table of the connection's pending calls. */
    struct tdm__call_table_entry entry;
    /* Milliseconds on CLOCK_MONOTONIC when the call was sent; 0 if it has no deadline. */
    int64_t sent_ms;
    /* Milliseconds on CLOCK_MONOTONIC; TDM__NEVER if there is no deadline. */
    int64_t deadline_ms;
    tdm__rpc_reply_fn *fn; /* Completes the call. */
    /* Receives the items of a stream; NULL ignores them. */
    tdm__stream_item_fn *on_item;
    void *arg; /* Passed to `fn` and `on_item`. */
    /* Highest index of an item that arrived; 0 before the first. */
    uint64_t last_item;
    /* Method's name: stored behind this structure, or borrowed with the caller's memory. */
    const char *method;
    /* Size of this allocation in bytes; 0 if the caller owns the memory. */
    size_t allocated_bytes;
};

/* What tdm__conn_call() sends. The pointers are borrowed during the call only, except `call`. */
struct tdm__rpc_request {
    /* Actor that is called; all zero for a service of the process. */
    struct tdm__id target;
    /* Method's name: 1 to TDM__RPC_NAME_BYTES_MAX printable characters. */
    const char *method;
    struct tdm_bytes packed; /* Arguments as one packed value. They are copied. */
    /* Bytes that follow the value. Only what the socket does not accept at once is copied. Empty if
     * absent. */
    struct tdm_bytes tail;
    /* Descriptors to send with the call. They are duplicated. */
    const int *fds;
    uint32_t fds_count; /* Number of descriptors, at most TDM__RPC_FDS_MAX. */
    /* Milliseconds on CLOCK_MONOTONIC, or TDM__NEVER. The frame carries the time that remains. */
    int64_t deadline_ms;
    /* Sequence number within the client session (runtime/wire/frame.h); 0 if absent. */
    uint64_t sequence;
    /* Number up to which all replies have been received (runtime/wire/frame.h). */
    uint64_t acknowledged;
    /* Index of the concurrency group (runtime/wire/frame.h). */
    uint32_t concurrency_group;
    /* Receives the items of a stream; NULL ignores them. */
    tdm__stream_item_fn *on_item;
    /* Memory for the pending call, borrowed together with `method` until the call completes or is
     * forgotten. NULL allocates memory and copies the method's name. */
    struct tdm__rpc_call *call;
};

/* Sends a call. `fn` runs exactly once, later, unless this function fails; NULL discards the reply.
 * The call's ID, which is never 0, goes to `call_id_out` if that is not NULL. */
tdm_status tdm__conn_call(struct tdm__conn *conn, const struct tdm__rpc_request *request,
                          tdm__rpc_reply_fn *fn, void *arg, uint64_t *call_id_out);
/* Forgets a pending call: `fn` does not run, and a reply that still arrives is late. Unknown IDs
 * are ignored. */
void tdm__conn_forget_call(struct tdm__conn *conn, uint64_t call_id);

/* Sends a call and blocks until its reply, running the loop. On TDM_OK `*document_out` (if not
 * NULL) belongs to the caller. Descriptors go to `fds_out` if it is not NULL; `*fds_count_out` is
 * its capacity on entry and their number on return. The detail of a failed call is the callee's. */
tdm_status tdm__conn_call_wait(struct tdm__conn *conn, const struct tdm__rpc_request *request,
                               tdm_document **document_out, int *fds_out, uint32_t *fds_count_out);

#endif
