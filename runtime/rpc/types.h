/* types.h - limits, identities and callbacks that the headers of this folder share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_TYPES_H
#define TDM_RUNTIME_RPC_TYPES_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/value.h>

/* An RPC endpoint of a process: its listeners and connections. rpc.h declares its functions. */
struct tdm__rpc;
/* An RPC connection to another process. conn.h declares its functions. */
struct tdm__conn;
/* A reply to an RPC call, or an item of a call's stream. calls.h defines it. */
struct tdm__rpc_reply;
/* A call that arrived from a peer. The process that received it must reply to it exactly once, with
 * tdm__incoming_reply() or tdm__incoming_fail(), immediately or later. If the connection closes
 * first, it must still be replied to; that reply is then discarded. */
struct tdm__incoming_call;

/* Most file descriptors that one RPC frame carries, and most bytes of a method's name. */
enum { TDM__RPC_FDS_MAX = 8, TDM__RPC_NAME_BYTES_MAX = 63 };
/* Most bytes of an RPC frame. A sender refuses a larger one with TDM_E_LIMIT; a receiver drops the
 * connection. */
#define TDM__RPC_FRAME_BYTES_MAX (256u << 20)

/* What kind of process a peer is. The values travel in the handshake. Commands of `tandem` are
 * drivers. */
enum tdm__peer_kind {
    TDM__PEER_DRIVER = 1, /* A process that runs the user's program. */
    TDM__PEER_WORKER,     /* A process that runs one actor. */
    TDM__PEER_DAEMON      /* The daemon of a node. */
};

/* The identity that a process states in the handshake. The MAC of the handshake protects it. */
struct tdm__peer_identity {
    /* Kind of the process; 0 before the peer is authenticated. */
    enum tdm__peer_kind kind;
    /* ID of the actor (workers) or of the node (daemons); random for other processes. */
    struct tdm__id id;
    /* Node on which the process runs; all zero for a driver that does not know it yet. */
    struct tdm__id node;
    /* Epoch of that node, which is higher each time that the node has joined the cluster again; 0
     * for a process that does not know it. */
    uint64_t node_epoch;
    int64_t pid; /* Process ID, as the process itself sees it. */
    /* Name that log messages show, such as "tandemd"; ends with NUL. */
    char name[64];
};

/* Callback that handles one call, which arrived on any connection of an endpoint. The handler must
 * reply to the call, during the callback or later. */
typedef void tdm__call_handler_fn(void *arg, struct tdm__incoming_call *incoming);

/* What happened to a call that has no reply yet. The loop delivers notices, never a function of
 * incoming.h. Events before tdm__incoming_on_notice() are not reported. */
enum tdm__call_notice {
    TDM__NOTICE_CANCEL, /* The caller cancels the call: it no longer wants the result. */
    /* The caller cancels the call and the calls that the called method has made. */
    TDM__NOTICE_CANCEL_CHILDREN,
    /* The consumer of the call's stream has taken `items_taken` items in total, more than at the
     * last notice. */
    TDM__NOTICE_CREDIT,
    /* The call's connection has ended. This is the last notice. */
    TDM__NOTICE_CLOSED
};
/* Callback that receives a notice about a call that has no reply yet. It may reply to the call,
 * which frees the call. */
typedef void tdm__call_notice_fn(void *arg, enum tdm__call_notice notice, uint64_t items_taken);

/* Callback that reports why a connection ended: TDM_E_CLOSED, TDM_E_AUTH, TDM_E_PROTOCOL,
 * TDM_E_IO, or TDM_E_NODE_LOST (the peer's node is lost, see tdm__rpc_lose_node()). It runs once,
 * after all calls of the connection have completed, and never inside the function that caused the
 * end. The connection is freed after this function returns. */
typedef void tdm__closed_fn(void *arg, struct tdm__conn *conn, tdm_status reason,
                            const char *detail);
/* Callback that reports a connection that a listener accepted, once its peer is authenticated. */
typedef void tdm__accepted_fn(void *arg, struct tdm__conn *conn);
/* Callback that receives replies and stream items of calls that their sender has forgotten, so that
 * resources in the replies can be released. `item` is 0 for a reply. */
typedef void tdm__late_reply_fn(void *arg, struct tdm__conn *conn, uint64_t call_id, uint64_t item,
                                struct tdm__rpc_reply *reply);

#endif
