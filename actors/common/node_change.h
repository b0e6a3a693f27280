/* node_change.h - what a daemon tells the processes of its node about nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_NODE_CHANGE_H
#define TDM_ACTORS_COMMON_NODE_CHANGE_H

/* Method of the call by which a daemon tells a process of its node of a change; the request is the
 * message node_change. Only the daemon of the process's own node may call it. */
#define TDM__NODE_CHANGE_METHOD "process.node_change"

/* What has happened to a node. The values travel in the message node_change. */
enum tdm__node_change {
    /* The node has not answered this node's daemon for so long that calls to its actors end with
     * TDM_E_ACTOR_UNAVAILABLE, unless they may be retried. */
    TDM__NODE_UNREACHABLE = 1,
    TDM__NODE_REACHABLE, /* The node answers again. */
    /* The node is lost in `epoch`: its processes of this epoch or a lower one are refused. */
    TDM__NODE_LOST,
    TDM__NODE_EPOCH /* The receiver's own node is in `epoch`, which its handshakes state. */
};

#endif
