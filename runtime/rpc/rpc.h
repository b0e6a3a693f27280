/* rpc.h - authenticated connections that carry calls and their replies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_H
#define TDM_RUNTIME_RPC_H

#include "runtime/id.h"
#include "runtime/loop/loop.h"

#include <sys/queue.h>
#include <tandem/value.h>

/* A process has one endpoint (tdm__rpc).  It listens where others may call, and connects to
 * those it calls; either end of a connection may call the other.  A call names a target (an
 * actor or a service of the process) and a method, carries one packed value and up to 8 file
 * descriptors (Unix sockets only), and is answered exactly once: by the callee's reply, or here
 * by the reason why none can come (deadline, closed connection).
 *
 * Before anything else is read, both sides prove that they know the cluster's token
 * (HMAC-SHA256 over both nonces and both identities); a peer that does not within 5 s is
 * dropped.
 *
 * Order: calls on one connection arrive in the order sent.  All functions: loop thread. */

struct tdm__rpc;
struct tdm__conn;
struct tdm__message;

enum { TDM__TOKEN_BYTES = 32, TDM__RPC_FDS_MAX = 8, TDM__RPC_NAME_BYTES_MAX = 63 };
/* Larger frames are refused by the sender (TDM_E_LIMIT) and drop the connection at the
 * receiver. */
#define TDM__RPC_FRAME_BYTES_MAX (256u << 20)

enum tdm__peer_kind { TDM__PEER_DRIVER = 1, TDM__PEER_WORKER, TDM__PEER_DAEMON, TDM__PEER_TOOL };

struct tdm__peer_identity {
    enum tdm__peer_kind kind;
    struct tdm__id id;   /* of the actor (workers), the node (daemons), else random */
    struct tdm__id node; /* where the process runs; none for a driver that has not been told */
    int64_t pid;
    char name[64]; /* for messages */
};

/* Makes the endpoint; copies all it is given. */
tdm_status tdm__rpc_create(struct tdm__loop *loop, const struct tdm__peer_identity *self,
                           const uint8_t token[TDM__TOKEN_BYTES], struct tdm__rpc **rpc_out);
/* Another endpoint of the same identity and token, on another loop. */
tdm_status tdm__rpc_create_like(const struct tdm__rpc *like, struct tdm__loop *loop,
                                struct tdm__rpc **rpc_out);
/* Closes every listener and connection; calls in flight complete first with TDM_E_CLOSED. */
void tdm__rpc_destroy(struct tdm__rpc *rpc);
struct tdm__loop *tdm__rpc_loop(struct tdm__rpc *rpc);
/* A driver learns its node after it has connected. */
void tdm__rpc_set_identity(struct tdm__rpc *rpc, const struct tdm__peer_identity *self);

/* Addresses: "unix:/path" (made 0600; a stale file is replaced), "tcp:127.0.0.1:0".  Writes the
 * address peers can use (the port filled in) to `bound_out`, if not NULL. */
tdm_status tdm__rpc_listen(struct tdm__rpc *rpc, const char *address, char *bound_out,
                           size_t bound_bytes);

/* ---- calls that arrive ------------------------------------------------------------------ */

/* A call to be answered, exactly once, by tdm__incoming_reply() or _fail(), now or later.  If
 * its connection closes first, it must still be answered (the answer then goes nowhere). */
struct tdm__incoming_call;

/* Every call that arrives, on any connection, comes here. */
typedef void tdm__call_handler_fn(void *arg, struct tdm__incoming_call *incoming);
void tdm__rpc_set_call_handler(struct tdm__rpc *rpc, tdm__call_handler_fn *fn, void *arg);

/* What was called.  Valid until answered. */
const struct tdm__id *tdm__incoming_target(const struct tdm__incoming_call *incoming);
const char *tdm__incoming_method(const struct tdm__incoming_call *incoming);
uint64_t tdm__incoming_call_id(const struct tdm__incoming_call *incoming);
struct tdm_bytes tdm__incoming_packed(const struct tdm__incoming_call *incoming);
/* Parsed on first use; TDM_E_PROTOCOL if the payload is no value. */
tdm_status tdm__incoming_value(struct tdm__incoming_call *incoming, const tdm_value **value_out);
tdm_status tdm__incoming_unpack(struct tdm__incoming_call *incoming, const char *format, ...);
/* Decodes the arguments as a message (runtime/messages) into its structure, whose strings,
 * bytes and lists are valid until the call is answered.  Errors name the method. */
tdm_status tdm__incoming_decode(struct tdm__incoming_call *incoming,
                                const struct tdm__message *message, void *structure_out);
/* {NULL, 0} if there is none. */
struct tdm_bytes tdm__incoming_tail(const struct tdm__incoming_call *incoming);
/* If the next call that begins to arrive has a tail of so many bytes, they are read to `place`;
 * while a call is arriving already, nothing is promised to the next.  The place must stay until
 * that call has come or the connection has ended; NULL takes back what was not used. */
void tdm__conn_set_tail_buffer(struct tdm__conn *conn, void *place, size_t size_bytes);
/* Takes the parsed payload, which then outlives the answer; the caller destroys it. */
tdm_status tdm__incoming_take_document(struct tdm__incoming_call *incoming,
                                       tdm_document **document_out);
/* Takes descriptor `index` (the caller closes it); -1 if there is none.  Others close by
 * themselves. */
int tdm__incoming_take_fd(struct tdm__incoming_call *incoming, uint32_t index);
/* Absolute, on this process's clock; TDM__NEVER. */
int64_t tdm__incoming_deadline(const struct tdm__incoming_call *incoming);
/* About, on the same clock. */
int64_t tdm__incoming_arrived(const struct tdm__incoming_call *incoming);
/* NULL once it has closed. */
struct tdm__conn *tdm__incoming_conn(const struct tdm__incoming_call *incoming);
const struct tdm__peer_identity *tdm__incoming_peer(const struct tdm__incoming_call *incoming);

/* As in runtime/wire/frame.h. */
uint64_t tdm__incoming_sequence(const struct tdm__incoming_call *incoming);
uint64_t tdm__incoming_acknowledged(const struct tdm__incoming_call *incoming);
/* Its caller has an on_item. */
bool tdm__incoming_wants_items(const struct tdm__incoming_call *incoming);
uint32_t tdm__incoming_concurrency_group(const struct tdm__incoming_call *incoming);

/* Told while the call is not answered, from the loop, never inside a call to a function of
 * these.  What happened before tdm__incoming_on_notice() is not told again. */
enum tdm__call_notice {
    TDM__NOTICE_CANCEL,          /* the result is no longer wanted */
    TDM__NOTICE_CANCEL_CHILDREN, /* nor what the call's method has called */
    TDM__NOTICE_CREDIT, /* `items_taken` of its items have been taken: more than ever before */
    TDM__NOTICE_CLOSED  /* its connection has ended; once, and the last */
};
/* May answer the call. */
typedef void tdm__call_notice_fn(void *arg, enum tdm__call_notice notice, uint64_t items_taken);
void tdm__incoming_on_notice(struct tdm__incoming_call *incoming, tdm__call_notice_fn *fn,
                             void *arg);
/* Sends item `index` of a stream: from 1, each higher than the one before; descriptors are
 * duplicated.  TDM_E_CLOSED once the connection has ended. */
tdm_status tdm__incoming_send_item(struct tdm__incoming_call *incoming, uint64_t index,
                                   struct tdm_bytes packed, const int *fds, uint32_t fds_count);

/* Both free `incoming`.  Descriptors are duplicated, the caller keeps its own. */
void tdm__incoming_reply(struct tdm__incoming_call *incoming, struct tdm_bytes packed,
                         const int *fds, uint32_t fds_count);
void tdm__incoming_reply_pack(struct tdm__incoming_call *incoming, const char *format, ...);
/* Replies with a message (runtime/messages) that is encoded from its structure. */
void tdm__incoming_reply_message(struct tdm__incoming_call *incoming,
                                 const struct tdm__message *message, const void *structure);
/* The status and its text travel to the caller. */
void tdm__incoming_fail(struct tdm__incoming_call *incoming, tdm_status status, const char *detail);

/* ---- calls that leave ------------------------------------------------------------------- */

/* A connection that is being made at once; calls may be sent already and leave when both sides
 * have proved themselves.  Never blocks, except to look up a host name. */
tdm_status tdm__rpc_connect(struct tdm__rpc *rpc, const char *address, struct tdm__conn **conn_out);
/* Over a connected socket (a socketpair); takes `fd` on TDM_OK.  `server` says which side waits
 * for the other's hello. */
tdm_status tdm__rpc_adopt(struct tdm__rpc *rpc, int fd, bool server, struct tdm__conn **conn_out);

/* Told once, later than the call that caused it, when an open or opening connection ends, after
 * all its calls have completed: TDM_E_CLOSED, TDM_E_AUTH, TDM_E_PROTOCOL, TDM_E_IO.  The
 * connection is freed after fn returns. */
typedef void tdm__closed_fn(void *arg, struct tdm__conn *conn, tdm_status reason,
                            const char *detail);
void tdm__conn_on_closed(struct tdm__conn *conn, tdm__closed_fn *fn, void *arg);
/* More who want to know, told with the one above, who ended it or not.  The watcher is the
 * caller's, in its own memory, until it has been told or taken back. */
struct tdm__close_watcher {
    LIST_ENTRY(tdm__close_watcher) link;
    void (*fn)(struct tdm__close_watcher *closer);
};
/* TDM_E_CLOSED when it has ended already. */
tdm_status tdm__conn_watch_close(struct tdm__conn *conn, struct tdm__close_watcher *closer);
void tdm__conn_unwatch_close(struct tdm__close_watcher *closer);
/* Told for each connection that a listener accepted, once it is authenticated. */
typedef void tdm__accepted_fn(void *arg, struct tdm__conn *conn);
void tdm__rpc_on_accepted(struct tdm__rpc *rpc, tdm__accepted_fn *fn, void *arg);
/* Runs for each open connection, either side's; `fn` may call over it, but end none. */
void tdm__rpc_each_conn(struct tdm__rpc *rpc, void (*fn)(void *arg, struct tdm__conn *conn),
                        void *arg);
/* Ends it; never blocks.  What is queued is tried once more. on_closed is still told. */
void tdm__conn_close(struct tdm__conn *conn);
bool tdm__conn_is_open(const struct tdm__conn *conn); /* authenticated and not closing */
/* The other side; kind 0 until it has proved itself. */
const struct tdm__peer_identity *tdm__conn_peer(const struct tdm__conn *conn);
/* A new pidfd of the process at the other end of a local connection: unlike the connection it
 * tells the end of a process whose forked child keeps the socket open.  -1 where it cannot be
 * had (TCP, another PID namespace). */
int tdm__conn_peer_pidfd(const struct tdm__conn *conn);
/* A place for the user of the connection. */
void tdm__conn_set_user_data(struct tdm__conn *conn, void *user);
void *tdm__conn_user_data(const struct tdm__conn *conn);

/* Asks the callee to give up a call, and its `children`: a reply still comes, if only to say
 * so. Unknown ids are ignored. */
void tdm__conn_cancel_call(struct tdm__conn *conn, uint64_t call_id, bool children);
/* Tells it that `items_taken` items of the call's stream have been taken so far. */
void tdm__conn_send_credit(struct tdm__conn *conn, uint64_t call_id, uint64_t items_taken);

/* What came back.  Borrowed until the callback returns; descriptors can be taken. */
struct tdm__rpc_reply {
    tdm_status status;
    const char *detail;        /* why, when status is not TDM_OK; else "" */
    struct tdm_bytes packed;   /* the callee's value */
    int fds[TDM__RPC_FDS_MAX]; /* -1 where there is none; set to -1 to take one */
    uint32_t fds_count;
    struct tdm__incoming_call *incoming; /* whose payload `packed` is; NULL if it is not one's */
};
typedef void tdm__rpc_reply_fn(void *arg, struct tdm__rpc_reply *reply);
/* Item `index` (from 1) of a stream, with the arg of the call; before its reply. */
typedef void tdm__stream_item_fn(void *arg, uint64_t index, struct tdm__rpc_reply *item);
/* Told of what comes for calls that were forgotten: something in it may have to go back. */
typedef void tdm__late_reply_fn(void *arg, struct tdm__conn *conn, uint64_t call_id, uint64_t item,
                                struct tdm__rpc_reply *reply);
void tdm__rpc_on_late_reply(struct tdm__rpc *rpc, tdm__late_reply_fn *fn, void *arg);
/* The callee's value as a document that outlives the reply, without a copy of its bytes unless
 * they are few. */
tdm_status tdm__rpc_reply_document(const struct tdm__rpc_reply *reply, tdm_document **document_out);

/* First member of what lies in a table of calls; for the files of this folder. */
struct tdm__call_table_entry {
    TAILQ_ENTRY(tdm__call_table_entry) link; /* in the order added */
    struct tdm__call_table_entry *next;      /* in its bucket */
    uint64_t id;
};

/* A call without its reply yet; for the files of this folder.  Others may lend the memory. */
struct tdm__rpc_call {
    struct tdm__call_table_entry entry; /* among the calls of its connection */
    int64_t sent_ms;                    /* where there is a deadline: for its message */
    int64_t deadline_ms;
    tdm__rpc_reply_fn *fn;
    tdm__stream_item_fn *on_item; /* may be NULL */
    void *arg;
    uint64_t last_item;
    const char *method;     /* behind this, or the lender's */
    size_t allocated_bytes; /* of this memory; 0: it is lent */
};

struct tdm__rpc_request {
    struct tdm__id target; /* none: the process's services */
    const char *method;
    struct tdm_bytes packed; /* copied */
    struct tdm_bytes tail;   /* bytes behind the value; copied only as far as the socket is full */
    const int *fds;          /* duplicated */
    uint32_t fds_count;
    int64_t deadline_ms; /* tdm__clock_ms scale; TDM__NEVER; travels as what is left */
    uint64_t sequence;   /* runtime/wire/frame.h; 0: none */
    uint64_t acknowledged;
    uint32_t concurrency_group;   /* likewise */
    tdm__stream_item_fn *on_item; /* for a stream; NULL: items are ignored */
    /* Lent, and `method` with it, until fn runs or the call is forgotten; NULL: both are
     * copied. */
    struct tdm__rpc_call *call;
};

/* Sends a call.  `fn` runs exactly once, later, unless this fails; `fn` may be NULL.  The call
 * id (0 is never one) can be used to forget the call. */
tdm_status tdm__conn_call(struct tdm__conn *conn, const struct tdm__rpc_request *request,
                          tdm__rpc_reply_fn *fn, void *arg, uint64_t *call_id_out);
/* The reply, if it still comes, is dropped; fn will not run.  Unknown ids are ignored. */
void tdm__conn_forget_call(struct tdm__conn *conn, uint64_t call_id);

/* Calls and waits, driving the loop.  On TDM_OK `*document_out` (if not NULL) is the caller's;
 * descriptors go to `fds_out[0 … *fds_count_out)` if not NULL (in: room, out: number).  A
 * failed call's detail is the remote one. */
tdm_status tdm__conn_call_wait(struct tdm__conn *conn, const struct tdm__rpc_request *request,
                               tdm_document **document_out, int *fds_out, uint32_t *fds_count_out);

#endif
