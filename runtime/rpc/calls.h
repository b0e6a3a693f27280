/* calls.h - calls that this process sends, and their replies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_CALLS_H
#define TDM_RUNTIME_RPC_CALLS_H

#include "runtime/rpc/call_table.h"
#include "runtime/rpc/types.h"

/* A reply to an RPC call, or an item of its stream, as passed to callbacks. Everything is borrowed
 * until the callback returns; the callback may take descriptors. */
struct tdm__rpc_reply {
    /* Outcome of the call: the callee's status, or why no reply can come. */
    tdm_status status;
    const char *detail; /* Text of the call's failure; "" if `status` is TDM_OK. */
    /* Packed value that the callee returned; after a failure the value that the failure carries,
     * which is empty if it carries none. */
    struct tdm_bytes packed;
    /* Descriptors of the reply. The callback takes one by setting its entry to -1. Entries without
     * a descriptor are -1. */
    int fds[TDM__RPC_FDS_MAX];
    uint32_t fds_count; /* Number of descriptors that the reply carried. */
    /* True if the reply carried descriptors that were dropped, because this process had too few
     * free ones. `status` is TDM_E_AGAIN and `packed` is empty then, although the callee has
     * succeeded; tdm__rpc_reply_lost_document() gives the callee's value. */
    bool fds_lost;
    /* Frame of the reply, whose payload is `packed`; NULL after a failure of the callee. */
    struct tdm__incoming_call *incoming;
};
/* Callback that completes a call with its reply. It runs once, on the loop's thread. */
typedef void tdm__rpc_reply_fn(void *arg, struct tdm__rpc_reply *reply);
/* Callback that delivers item `index` (from 1) of a call's stream before the call's reply. `arg` is
 * that of the call. */
typedef void tdm__stream_item_fn(void *arg, uint64_t index, struct tdm__rpc_reply *item);
/* Parses the value of a reply into a document that outlives the reply; the caller destroys it. Only
 * small values are copied. */
tdm_status tdm__rpc_reply_document(const struct tdm__rpc_reply *reply, tdm_document **document_out);
/* Parses the value of a reply whose descriptors were lost (`fds_lost`), so that what the callee has
 * done can be taken back. The caller destroys the document. */
tdm_status tdm__rpc_reply_lost_document(const struct tdm__rpc_reply *reply,
                                        tdm_document **document_out);

/* A call that this process sent and that has no reply yet. Only the files of this folder use the
 * fields. The memory may belong to the sender (tdm__rpc_request.call). */
struct tdm__rpc_call {
    /* Entry in the table of the connection's pending calls. */
    struct tdm__call_table_entry entry;
    /* Time at which the call was sent, in milliseconds on CLOCK_MONOTONIC; 0 if it has no deadline.
     */
    int64_t sent_ms;
    /* Deadline of the call in milliseconds on CLOCK_MONOTONIC; TDM__NEVER if absent. */
    int64_t deadline_ms;
    tdm__rpc_reply_fn *fn; /* Callback that receives the call's reply; NULL discards it. */
    /* Callback that receives the items of the call's stream; NULL ignores them. */
    tdm__stream_item_fn *on_item;
    void *arg; /* First argument of `fn` and `on_item`. */
    /* Index of the last item of the call's stream that arrived; 0 before the first. */
    uint64_t last_item;
    /* Name of the called method: stored behind this structure, or borrowed from the sender. */
    const char *method;
    /* Size in bytes of the allocation that this structure begins; 0 if the sender owns the memory.
     */
    size_t allocated_bytes;
};

/* A call to be sent by tdm__conn_call(). The pointers are borrowed only until that function
 * returns, except `call`. */
struct tdm__rpc_request {
    /* Id of the actor that is called; all zero for a service of the peer. */
    struct tdm__id target;
    /* Name of the method to call: 1 to TDM__RPC_NAME_BYTES_MAX printable characters. */
    const char *method;
    struct tdm_bytes packed; /* Arguments of the call as one packed value. */
    /* Bytes that follow the packed value (the tail). Only what the socket does not accept at once
     * is copied. Empty if absent. */
    struct tdm_bytes tail;
    /* Descriptors to send with the call, which are duplicated; NULL if absent. */
    const int *fds;
    uint32_t fds_count; /* Number of descriptors in `fds`, at most TDM__RPC_FDS_MAX. */
    /* Deadline of the call in milliseconds on CLOCK_MONOTONIC, or TDM__NEVER. The frame carries the
     * time that remains. */
    int64_t deadline_ms;
    /* Sequence number of the call within the client session (runtime/wire/frame.h); 0 if it has
     * none. */
    uint64_t sequence;
    /* Sequence number up to which this process has received all replies of the client session
     * (runtime/wire/frame.h). */
    uint64_t acknowledged;
    /* Index of the concurrency group that runs the method (runtime/wire/frame.h). */
    uint32_t concurrency_group;
    /* Callback that receives the items of the call's stream; NULL ignores them. */
    tdm__stream_item_fn *on_item;
    /* Memory for the pending call, borrowed together with `method` until the call completes or is
     * forgotten. If NULL, memory is allocated and `method` is copied. */
    struct tdm__rpc_call *call;
};

/* Sends a call to the peer. `fn` receives the reply exactly once, later, unless this function
 * fails; NULL discards the reply. The call's ID, which is never 0, goes to `call_id_out` if that is
 * not NULL. */
tdm_status tdm__conn_call(struct tdm__conn *conn, const struct tdm__rpc_request *request,
                          tdm__rpc_reply_fn *fn, void *arg, uint64_t *call_id_out);
/* Forgets a pending call: `fn` does not run, and a reply that still arrives is late. Unknown IDs
 * are ignored. */
void tdm__conn_forget_call(struct tdm__conn *conn, uint64_t call_id);

/* Sends a call to the peer and blocks until its reply, running the loop. On TDM_OK `*document_out`
 * (if not NULL) belongs to the caller. Descriptors go to `fds_out` if it is not NULL;
 * `*fds_count_out` is its capacity on entry and the number of descriptors on return. The detail of
 * a failed call is the callee's. If the descriptors of the reply were lost because this process had
 * too few free ones, returns TDM_E_AGAIN, and `*document_out` is nevertheless set and belongs to
 * the caller; it is not written after any other failure. */
tdm_status tdm__conn_call_wait(struct tdm__conn *conn, const struct tdm__rpc_request *request,
                               tdm_document **document_out, int *fds_out, uint32_t *fds_count_out);
/* Asks the peer to cancel a pending call and, if `children` is true, the calls that the called
 * method has made. The peer still replies, at least to confirm. Unknown IDs are ignored. */
void tdm__conn_cancel_call(struct tdm__conn *conn, uint64_t call_id, bool children);
/* Tells the peer that this process has taken `items_taken` items of the call's stream so far. An
 * unknown ID is ignored. */
void tdm__conn_send_credit(struct tdm__conn *conn, uint64_t call_id, uint64_t items_taken);

/* ---- for the files of this folder ------------------------------------------------------- */

/* Passes a REPLY frame that arrived to its pending call, or reports it as late if the call was
 * forgotten. */
void tdm__calls_complete(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Passes an ITEM frame that arrived to its pending call. Returns TDM_E_PROTOCOL if the item is out
 * of order. */
tdm_status tdm__calls_deliver_item(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Fails one pending call whose deadline has passed and sets the connection's timer for the others.
 * Returns the failure of setting the timer; the caller then ends the connection, which fails all
 * calls. */
tdm_status tdm__calls_fail_expired(struct tdm__conn *conn);
/* Fails all pending calls of a connection that has ended for the reason in `detail`. */
void tdm__calls_fail_all(struct tdm__conn *conn, const char *detail);

#endif
