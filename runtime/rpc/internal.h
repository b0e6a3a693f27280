/* internal.h - what the files of the rpc share: endpoints, connections, frames that arrive. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Life.  A connection is counted: by its endpoint while it is open, by each call that arrived
 * on it until it is answered, and by each function of ours on the stack that works on it.
 * Ending it (tdm__conn_finish) closes everything at once and tells everyone; what stays until
 * the last count is only memory, in state CONN_ENDED, with conn->rpc NULL.  So after every call
 * out, code looks at conn->state before it touches anything else, and at nothing of the
 * endpoint.
 *
 * A watch of a connection handles one frame per call and asks to be called again while its
 * buffer is not empty; so a callback that runs the loop itself finds the rest there, in order.
 */
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

enum {
    HANDSHAKE_MS = 5000,
    HELLO_BYTES = 152,
    MAC_BYTES = 32,
    INPUT_BYTES = 32 * 1024,
    FDS_WAITING_MAX = 32,
    LABEL_BYTES = 128
};
/* Frames that wait for a slow reader; more are refused with TDM_E_AGAIN. */
#define QUEUE_BYTES_MAX ((size_t)1 << 30)

/* ---- address.c -------------------------------------------------------------------------- */

struct tdm__address {
    union {
        struct sockaddr any;
        struct sockaddr_un local;
        struct sockaddr_storage storage;
    } socket;
    socklen_t socket_bytes;
};

/* "unix:/path", "tcp:host:port", "tcp:[::1]:port".  A host name is looked up, which blocks. */
tdm_status tdm__address_parse(const char *text, struct tdm__address *address_out);
/* "tcp:127.0.0.1:4711" of a bound TCP socket. */
tdm_status tdm__address_of_socket(int fd, char *text_out, size_t text_bytes);

/* ---- tables of calls under way (call_table.c) ------------------------------------------------ */

struct call_table {
    TAILQ_HEAD(, tdm__call_table_entry) in_order;
    struct tdm__call_table_entry **chains; /* owned; NULL before init and after fini */
    uint32_t chains_count;                 /* a power of two */
    uint32_t count;
};

tdm_status tdm__call_table_init(struct call_table *table);
void tdm__call_table_fini(struct call_table *table); /* it is empty */
/* The id is in no other entry. */
void tdm__call_table_add(struct call_table *table, struct tdm__call_table_entry *entry);
struct tdm__call_table_entry *tdm__call_table_find(const struct call_table *table,
                                                   uint64_t id); /* or NULL */
void tdm__call_table_remove(struct call_table *table, struct tdm__call_table_entry *entry);

/* ---- endpoints (rpc.c) ------------------------------------------------------------------ */

struct listener {
    struct listener *next;
    struct tdm__rpc *rpc;        /* borrowed */
    struct tdm__fd_watch *watch; /* owned */
    struct tdm__timer *pause;    /* owned; accepts again after a lack of descriptors */
    int fd;                      /* owned */
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)]; /* to unlink; "" for TCP */
};

struct tdm__rpc {
    struct tdm__loop *loop; /* borrowed */
    struct tdm__peer_identity self;
    uint8_t token[TDM__TOKEN_BYTES];
    tdm__call_handler_fn *serve; /* NULL: every call fails */
    void *serve_arg;
    tdm__late_reply_fn *on_late_reply; /* may be NULL */
    void *on_late_reply_arg;
    tdm__accepted_fn *accepted; /* may be NULL */
    void *accepted_arg;
    tdm_writer *writer;         /* owned; for replies */
    struct listener *listeners; /* owned */
    TAILQ_HEAD(, tdm__conn) conns;
    TAILQ_HEAD(, tdm__conn) corked; /* with output that leaves before the next poll */
    struct tdm__poll_hook flush_hook;
    bool closing;
    int64_t unauthenticated_since_ms; /* the minute in which … */
    uint32_t unauthenticated_count;   /* … so many clients ended without proving who they are */
};

/* ---- frames that arrive (receive.c, incoming.c) ----------------------------------------- */

/* A call until it is answered, or what comes back until it is handed over.  The memory stays as
 * long as a document made of the payload lives, which may end on another thread. */
struct tdm__incoming_call {
    struct tdm__call_table_entry entry; /* calls: in conn->unanswered while `listed` */
    atomic_uint owners;                 /* of the memory: the frame itself, and each document */
    struct tdm__conn *conn;             /* calls: counted; else NULL */
    bool listed;
    tdm__call_notice_fn *on_notice; /* may be NULL */
    void *on_notice_arg;
    uint64_t items_sent;
    uint64_t items_taken;
    struct tdm__frame frame;
    int64_t deadline_ms;
    int64_t arrived_ms;        /* about: when its first bytes were read */
    tdm_document *document;    /* owned; the payload once parsed */
    int fds[TDM__RPC_FDS_MAX]; /* owned; -1 where taken */
    uint32_t received_bytes;   /* of the payload and the tail, so far */
    size_t allocated_bytes;    /* of this memory */
    char *payload; /* behind the method, and a NUL; 64-aligned if an array may be in it */
    char *tail;    /* behind the payload, or borrowed: where its receiver wants it */
    char method[]; /* and a NUL */
};

/* ---- connections ------------------------------------------------------------------------ */

enum conn_state {
    CONN_CONNECTING, /* the socket is not connected yet */
    CONN_HANDSHAKE,
    CONN_OPEN,
    CONN_CLOSING, /* the user closed it; ends in the next round */
    CONN_ENDED
};

struct hello {
    uint8_t bytes[HELLO_BYTES];
};

struct handshake {
    struct hello ours;
    struct hello theirs;
    uint8_t input[HELLO_BYTES + MAC_BYTES];
    uint32_t input_bytes;
    uint32_t wanted_bytes; /* never more is read before the peer has proved itself */
};

/* Bytes that wait to be written: frames, or the rest of one. */
struct output_chunk {
    TAILQ_ENTRY(output_chunk) link;
    size_t capacity_bytes;
    size_t begin; /* what lies before it has been sent */
    size_t end;
    uint32_t fds_count;        /* sent with the first byte */
    int fds[TDM__RPC_FDS_MAX]; /* owned */
    uint8_t bytes[];
};

/* What a connection has to write, in order. */
struct conn_output {
    TAILQ_HEAD(chunks, output_chunk) chunks; /* one that is empty is the only one */
    size_t size_bytes;                       /* in all chunks */
};

struct tdm__conn {
    TAILQ_ENTRY(tdm__conn) link;
    struct tdm__rpc *rpc;   /* borrowed; NULL once ended */
    struct tdm__loop *loop; /* borrowed */
    uint32_t references;
    enum conn_state state;
    bool server;   /* waits for the other's hello */
    bool accepted; /* by a listener */
    bool local;    /* a Unix socket: descriptors can be passed */
    bool write_failed;
    uint32_t peer_cpu;           /* where its last frame was sent, plus 1; 0: unknown */
    int fd;                      /* owned */
    struct tdm__fd_watch *watch; /* owned */
    struct tdm__timer *timer;    /* owned */
    int64_t timer_ms;            /* what it is set to */
    int64_t handshake_deadline_ms;
    struct tdm__peer_identity peer;
    char label[LABEL_BYTES]; /* "name (pid 4)", before the handshake the address */

    struct handshake *handshake; /* owned; NULL once open */
    uint8_t *input;              /* owned; INPUT_BYTES, from open on */
    size_t input_begin;
    size_t input_end;
    int64_t input_ms;                   /* of the coarse clock, when the last of it was read */
    struct tdm__incoming_call *partial; /* owned; its payload is still arriving */
    int fds[FDS_WAITING_MAX];           /* owned; arrived, not claimed by their frame yet */
    uint32_t fds_count;
    void *
        tail_buffer; /* borrowed; for the tail of the next call, if it has so many bytes; or NULL */
    size_t tail_buffer_bytes;

    struct conn_output output;
    bool output_blocked; /* the socket is full: the watch tells when it is not */
    bool corked;         /* in rpc->corked: flushed before the loop polls */
    TAILQ_ENTRY(tdm__conn) cork_link;
    struct call_table calls;      /* ours: struct tdm__rpc_call */
    struct call_table unanswered; /* the peer's: struct tdm__incoming_call */
    uint64_t last_call_id;

    tdm__closed_fn *on_closed; /* may be NULL */
    void *on_closed_arg;
    LIST_HEAD(, tdm__close_watcher) closers; /* borrowed */
    void *user;
};

/* The processor this thread runs on, plus 1: for frames. */
uint32_t tdm__current_cpu(void);

/* conn_refcount.c */
void tdm__conn_retain(struct tdm__conn *conn);
void tdm__conn_release(struct tdm__conn *conn);

/* conn.c */
tdm_status tdm__conn_create(struct tdm__rpc *rpc, int fd, bool server, const char *label,
                            struct tdm__conn **conn_out);
/* Ends the connection for the reason of the last failure (tdm_error_detail).  Only from the
 * loop: it calls out. */
void tdm__conn_finish(struct tdm__conn *conn, tdm_status reason);
/* The timer will fire at the deadline or before. */
tdm_status tdm__conn_set_timer(struct tdm__conn *conn, int64_t deadline_ms);

/* handshake.c */
tdm_status tdm__handshake_start(struct tdm__conn *conn);
/* Reads what is there.  When it returns TDM_OK and the state is CONN_OPEN, the peer is proved.
 */
tdm_status tdm__handshake_step(struct tdm__conn *conn);

/* output.c */
enum { FRAME_PIECES = 4 }; /* header, method, payload, tail */
void tdm__output_init(struct conn_output *output);
/* Room at the end for so many bytes, which are the caller's to write before anything else is
 * done with the output. */
tdm_status tdm__output_place(struct conn_output *output, size_t size_bytes, uint8_t **place_out);
/* Copies the pieces less the first `skip` bytes; descriptors are duplicated. */
tdm_status tdm__output_append(struct conn_output *output, const struct iovec pieces[FRAME_PIECES],
                              size_t skip, const int *fds, uint32_t fds_count);
enum { OUTPUT_PIECES_MAX = 16 };
/* What goes out in one call: up to the next chunk that has descriptors of its own, which go
 * with the first byte. */
size_t tdm__output_gather(const struct conn_output *output, struct iovec pieces[OUTPUT_PIECES_MAX],
                          const int **fds_out, uint32_t *fds_count_out);
void tdm__output_forget(struct conn_output *output, size_t sent_bytes);
void tdm__output_drop(struct conn_output *output); /* all of it, with its memory */

/* send.c: `frame` goes out now, or soon.  TDM_E_AGAIN when too much waits (never for failures
 * and notices). */
tdm_status tdm__conn_send(struct tdm__conn *conn, const struct tdm__frame *frame,
                          const char *method, const void *payload, const void *tail,
                          const int *fds);
void tdm__conn_flush(struct tdm__conn *conn);
/* The socket takes bytes again. */
void tdm__conn_unblock(struct tdm__conn *conn);
void tdm__conn_uncork(struct tdm__conn *conn); /* no longer to be flushed */
void tdm__rpc_flush(void *arg);                /* the rpc: all that is corked */

/* receive.c: one frame, if there is a whole one; else `*incoming_out` is NULL. */
tdm_status tdm__conn_receive(struct tdm__conn *conn, bool readable,
                             struct tdm__incoming_call **incoming_out);
void tdm__conn_discard_input(struct tdm__conn *conn);
/* Closes what was not taken; frees the memory unless a document owns it, too. */
void tdm__incoming_free(struct tdm__incoming_call *incoming);
/* A document of the payload, without a copy. */
tdm_status tdm__incoming_parse(struct tdm__incoming_call *incoming, tdm_document **document_out);

/* incoming.c */
/* Hands a call to the server.  TDM_E_PROTOCOL when its id is in use. */
tdm_status tdm__conn_serve(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Tells the call about a CANCEL or CREDIT; TDM_E_PROTOCOL for credit that cannot be. */
tdm_status tdm__conn_notice(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Tells every call that is not answered that the connection has ended. */
void tdm__unanswered_notify_closed(struct tdm__conn *conn);

/* calls.c */
/* Hands a reply to its call, if it is still waited for. */
void tdm__calls_complete(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Hands over one item of a stream; TDM_E_PROTOCOL when it is out of order. */
tdm_status tdm__calls_deliver_item(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Completes one call whose deadline has passed and sets the timer for the others. */
void tdm__calls_fail_expired(struct tdm__conn *conn);
/* Completes all, because the connection has ended for the reason in `detail`. */
void tdm__calls_fail_all(struct tdm__conn *conn, const char *detail);

#endif
