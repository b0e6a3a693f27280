/* peer_daemons.c - connections to the daemons of other nodes, and calls over them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A connection is opened at the first call to a node, with the address read from the store, and
 * kept until it closes or the node is lost. A forwarded call owns a copy of its arguments until the
 * reply. Its callback is called exactly once: with the reply, or with TDM_E_NODE_LOST if the node
 * cannot be reached, is lost, or this node stops.
 *
 * tdm__node_peers_update() closes connections in both directions to nodes that are no longer in the
 * list of living nodes, so that no call outlives the lease of its peer. Everything runs on the
 * daemon's loop thread. */

#include "actors/daemon/peer_daemons.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "runtime/wire/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Milliseconds for reading a node's address from the store. */
enum { LOOK_UP_MS = 3000 };

/* A connection that this daemon opened to another daemon. The table of connections owns it until
 * the connection closes. */
struct peer {
    struct tdm__node_peers *peers;   /* Table that contains this entry, borrowed. */
    struct peer *next;               /* Next connection of the table. */
    struct tdm__id id;               /* Id of the other node. */
    char name[TDM__NODE_NAME_BYTES]; /* Name of the other node, for messages. */
    /* RPC connection to the other node's daemon, owned by the RPC endpoint. */
    struct tdm__conn *conn;
};

/* The table of connections and forwarded calls of a daemon. struct tdm__node owns it. */
struct tdm__node_peers {
    struct peer *all; /* List of the connections that this daemon opened to others, owned. */
    /* Ids of the nodes that were alive at the last update, owned; NULL before the first one. */
    struct tdm__id *live_nodes;
    uint32_t live_nodes_count;               /* Number of entries in `live_nodes`. */
    struct forwarded_call *pending_forwards; /* List of forwarded calls without a reply. */
    /* True once the daemon stops and sends no more calls to other daemons. */
    bool is_ended;
};

/* A call to another daemon that has no reply yet. First the address of the node is looked up, then
 * the call is sent. */
struct forwarded_call {
    struct forwarded_call *next; /* Next forwarded call of the table. */
    struct tdm__node *node;      /* State of this node's daemon, borrowed. */
    struct tdm__id other;        /* Id of the other node. */
    /* Name of the other node, for messages; "" until the node's address was looked up. */
    char name[TDM__NODE_NAME_BYTES];
    char method[TDM__RPC_NAME_BYTES_MAX + 1]; /* Method to call on the other daemon. */
    void *bytes;                              /* Packed arguments of the call, owned. */
    size_t bytes_count;                       /* Length of `bytes`. */
    /* Deadline of the call in milliseconds on CLOCK_MONOTONIC, or TDM__NEVER. */
    int64_t deadline_ms;
    tdm__rpc_reply_fn *fn; /* Callback for the reply; NULL once it was called. */
    void *arg;             /* First argument of `fn`. */
};

/* Removes a forwarded call from the table. A call made while the node stops is in no list. */
static void forward_unlist(const struct forwarded_call *forwarded_call)
{
    struct forwarded_call **place = &forwarded_call->node->peers->pending_forwards;

    while (*place != NULL && *place != forwarded_call) {
        place = &(*place)->next;
    }
    if (*place != NULL) {
        *place = forwarded_call->next;
    }
}

/* Removes a forwarded call from the table and frees it. */
static void forward_free(struct forwarded_call *forwarded_call)
{
    if (forwarded_call->node->peers != NULL) {
        forward_unlist(forwarded_call);
    }
    free(forwarded_call->bytes);
    free(forwarded_call);
}

/* Calls the callback of a forwarded call with a failure, and frees the call. */
static void forward_fail(struct forwarded_call *forwarded_call, tdm_status status,
                         const char *detail)
{
    struct tdm__rpc_reply reply = {.status = status, .detail = detail};

    if (forwarded_call->fn != NULL) {
        forwarded_call->fn(forwarded_call->arg, &reply);
        forwarded_call->fn = NULL;
    }
    forward_free(forwarded_call);
}

/* Removes the closed connection to another daemon from the table. */
static void on_peer_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    struct peer *peer = arg;
    struct peer **place = &peer->peers->all;

    (void)conn;
    (void)reason;
    (void)detail;
    while (*place != peer) {
        place = &(*place)->next;
    }
    *place = peer->next;
    free(peer);
}

/* Returns the connection that this daemon opened to the node `id`, or NULL. */
static struct tdm__conn *peers_find_conn(const struct tdm__node *node, const struct tdm__id *id)
{
    for (const struct peer *peer = node->peers->all; peer != NULL; peer = peer->next) {
        if (tdm__id_equal(&peer->id, id)) {
            return peer->conn;
        }
    }
    return NULL;
}

/* Opens a connection to the daemon of the node in `record` and adds it to the table. */
static tdm_status peers_connect(struct tdm__node *node, const struct tdm__node_record *record,
                                struct tdm__conn **conn_out)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    const char *address =
        record->tcp_address[0] != '\0' ? record->tcp_address : record->unix_address;
    tdm_status status;

    if (peer == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a connection to node %s", record->name);
    }
    status = tdm__rpc_connect(node->rpc, address, &peer->conn);
    if (status != TDM_OK) {
        free(peer);
        return status;
    }
    peer->peers = node->peers;
    peer->id = record->id;
    memcpy(peer->name, record->name, sizeof(peer->name));
    peer->next = node->peers->all;
    node->peers->all = peer;
    tdm__conn_on_closed(peer->conn, on_peer_closed, peer);
    *conn_out = peer->conn;
    return TDM_OK;
}

/* Passes the other daemon's reply to the callback of the forwarded call; a closed connection
 * becomes TDM_E_NODE_LOST. */
static void on_forward_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct forwarded_call *forwarded_call = arg;

    char detail[TDM__ERROR_DETAIL_BYTES / 2];

    if (reply->status == TDM_E_CLOSED) {
        (void)snprintf(detail, sizeof(detail), "node %s is lost: %.400s", forwarded_call->name,
                       reply->detail);
        reply->status = TDM_E_NODE_LOST;
        reply->detail = detail;
    }
    if (forwarded_call->fn != NULL) {
        forwarded_call->fn(forwarded_call->arg, reply);
    }
    forward_free(forwarded_call);
}

/* Sends a forwarded call over `conn` to the daemon of the node `name`. */
static void forward_send(struct forwarded_call *forwarded_call, struct tdm__conn *conn,
                         const char *name)
{
    struct tdm__rpc_request request = {
        .method = forwarded_call->method,
        .packed = {forwarded_call->bytes, forwarded_call->bytes_count},
        .deadline_ms = forwarded_call->deadline_ms};

    (void)snprintf(forwarded_call->name, sizeof(forwarded_call->name), "%s", name);
    if (tdm__conn_call(conn, &request, on_forward_reply, forwarded_call, NULL) != TDM_OK) {
        forward_fail(forwarded_call, TDM_E_NODE_LOST, tdm_error_detail());
    }
}

/* Handles the store's reply with the address of the other node: connects to that node and sends the
 * forwarded call. */
static void on_address(void *arg, tdm_status status, const struct tdm__store_record *records,
                       uint32_t records_count)
{
    struct forwarded_call *forwarded_call = arg;
    struct tdm__node_record record;
    struct tdm__conn *conn = NULL;
    char id[TDM__ID_TEXT_BYTES];
    char detail[TDM__ERROR_DETAIL_BYTES / 2];

    if (forwarded_call->node->peers == NULL || forwarded_call->node->peers->is_ended) {
        forward_fail(forwarded_call, TDM_E_NODE_LOST, "this node is stopping");
        return;
    }
    if (status == TDM_OK && records_count == 0) {
        (void)snprintf(detail, sizeof(detail), "node %s has left the cluster",
                       tdm__id_text(&forwarded_call->other, id));
        forward_fail(forwarded_call, TDM_E_NODE_LOST, detail);
        return;
    }
    if (status == TDM_OK) {
        status = tdm__node_record_read(&records[0], &record);
    }
    if (status == TDM_OK) {
        /* Another call may have opened the connection while the address was read. */
        conn = peers_find_conn(forwarded_call->node, &record.id);
    }
    if (status != TDM_OK) {
        forward_fail(forwarded_call, status, tdm_error_detail());
        return;
    }
    if (conn == NULL && peers_connect(forwarded_call->node, &record, &conn) != TDM_OK) {
        (void)snprintf(detail, sizeof(detail), "node %s cannot be reached: %.400s", record.name,
                       tdm_error_detail());
        forward_fail(forwarded_call, TDM_E_NODE_LOST, detail);
        return;
    }
    forward_send(forwarded_call, conn, record.name);
}

void tdm__node_forward(struct tdm__node *node, const struct tdm__id *other, const char *method,
                       struct tdm_bytes packed, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                       void *arg)
{
    struct forwarded_call *forwarded_call = calloc(1, sizeof(*forwarded_call));
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("node", other, key)};

    TDM_ASSERT(forwarded_call != NULL);
    if (node->peers->is_ended) {
        *forwarded_call = (struct forwarded_call){.node = node, .fn = fn, .arg = arg};
        forward_fail(forwarded_call, TDM_E_NODE_LOST, "this node is stopping");
        return;
    }
    *forwarded_call = (struct forwarded_call){.next = node->peers->pending_forwards,
                                              .node = node,
                                              .other = *other,
                                              .bytes = malloc(packed.size_bytes + 1),
                                              .bytes_count = packed.size_bytes,
                                              .deadline_ms = deadline_ms,
                                              .fn = fn,
                                              .arg = arg};
    TDM_ASSERT(forwarded_call->bytes != NULL);
    memcpy(forwarded_call->bytes, packed.data, packed.size_bytes);
    (void)snprintf(forwarded_call->method, sizeof(forwarded_call->method), "%s", method);
    node->peers->pending_forwards = forwarded_call;
    for (struct peer *peer = node->peers->all; peer != NULL; peer = peer->next) {
        if (tdm__id_equal(&peer->id, other)) {
            forward_send(forwarded_call, peer->conn, peer->name);
            return;
        }
    }
    node->store->ops->read(node->store, patterns, 1, tdm__deadline_after(LOOK_UP_MS), on_address,
                           forwarded_call);
}

/* A message that is sent to another daemon. */
struct small_message {
    const struct tdm__message *table; /* Table of the message; static. */
    const void *structure; /* Structure of the message, whose packed size is at most 64 bytes. */
};

/* Like tdm__node_forward(), with the arguments in `message`. */
static void node_forward_message(struct tdm__node *node, const struct tdm__id *other,
                                 const char *method, const struct small_message *message,
                                 int64_t deadline_ms, tdm__rpc_reply_fn *fn, void *arg)
{
    uint8_t packed[64];
    tdm_writer *writer;

    if (tdm__writer_create_over(packed, sizeof(packed), &writer) != TDM_OK) {
        struct tdm__rpc_reply reply = {.status = TDM_E_NOMEM, .detail = tdm_error_detail()};

        if (fn != NULL) {
            fn(arg, &reply);
        }
        return;
    }
    (void)tdm__message_encode(message->table, message->structure, writer);
    tdm__node_forward(node, other, method, tdm_writer_bytes(writer), deadline_ms, fn, arg);
    tdm_writer_destroy(writer);
}

void tdm__node_send_id(struct tdm__node *node, const struct tdm__id *other, const char *method,
                       const struct tdm__id *id, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                       void *arg)
{
    const struct tdm__id_request_message request = {*id};
    const struct small_message message = {tdm__id_request_table(), &request};

    node_forward_message(node, other, method, &message, deadline_ms, fn, arg);
}

void tdm__node_query_actor(struct tdm__node *node, const struct tdm__id *other, const char *method,
                           const struct tdm__id *actor, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                           void *arg)
{
    const struct tdm__actor_query_message query = {.actor = *actor};
    const struct small_message message = {tdm__actor_query_table(), &query};

    node_forward_message(node, other, method, &message, deadline_ms, fn, arg);
}

/* A search through all RPC connections for one to or from a certain node. */
struct peer_search {
    const struct tdm__id *id; /* Id of the wanted node, borrowed. */
    struct tdm__conn *conn;   /* Connection to that node; NULL while none was found. */
};

/* Stores `conn` in the search if the daemon of the wanted node is at its other end. */
static void peer_search_visit(void *arg, struct tdm__conn *conn)
{
    struct peer_search *peer_search = arg;
    const struct tdm__peer_identity *peer = tdm__conn_peer(conn);

    if (peer->kind == TDM__PEER_DAEMON && tdm__id_equal(&peer->id, peer_search->id)) {
        peer_search->conn = conn;
    }
}

/* Closes all connections between this daemon and the node `id`, whichever side opened them, so that
 * calls over them fail. */
static void peers_close_connections(struct tdm__node *node, const struct tdm__id *id)
{
    struct peer_search peer_search = {.id = id};

    do {
        peer_search.conn = NULL;
        tdm__rpc_each_conn(node->rpc, peer_search_visit, &peer_search);
        if (peer_search.conn != NULL) {
            tdm__conn_close(peer_search.conn);
        }
    } while (peer_search.conn != NULL);
}

/* Stores the ids of the living nodes in the table, for the next update. Without memory, the next
 * update finds no node missing. */
static void peers_set_live_nodes(struct tdm__node_peers *peers,
                                 const struct tdm__node_record *nodes, uint32_t nodes_count)
{
    free(peers->live_nodes);
    peers->live_nodes = calloc(nodes_count + 1u, sizeof(*peers->live_nodes));
    peers->live_nodes_count = peers->live_nodes == NULL ? 0 : nodes_count;
    for (uint32_t i = 0; i < peers->live_nodes_count; i++) {
        peers->live_nodes[i] = nodes[i].id;
    }
}

/* Connections opened by a node that is missing in this list and in the previous one stay, because
 * the node may have joined after this list was read. */
bool tdm__node_peers_update(struct tdm__node *node, const struct tdm__node_record *nodes,
                            uint32_t nodes_count)
{
    bool has_lost_one = false;
    struct peer *next;

    for (uint32_t i = 0; i < node->peers->live_nodes_count; i++) {
        if (!tdm__node_records_contain(nodes, nodes_count, &node->peers->live_nodes[i])) {
            peers_close_connections(node, &node->peers->live_nodes[i]);
            has_lost_one = true;
        }
    }
    peers_set_live_nodes(node->peers, nodes, nodes_count);

    for (struct peer *peer = node->peers->all; peer != NULL; peer = next) {
        next = peer->next;
        if (!tdm__node_records_contain(nodes, nodes_count, &peer->id)) {
            tdm__log(TDM__INFO, "peers", "node %s is lost: ending the connection to it",
                     peer->name);
            tdm__conn_close(peer->conn);
        }
    }
    return has_lost_one;
}

tdm_status tdm__node_peers_create(struct tdm__node *node)
{
    node->peers = calloc(1, sizeof(*node->peers));
    return node->peers == NULL ? tdm__fail(TDM_E_NOMEM, "the table of nodes") : TDM_OK;
}

/* Fails all forwarded calls that have no reply. Replies that still arrive are ignored. */
static void peers_fail_forwards(struct tdm__node_peers *peers)
{
    peers->is_ended = true;
    for (struct forwarded_call *forwarded_call = peers->pending_forwards; forwarded_call != NULL;
         forwarded_call = forwarded_call->next) {
        struct tdm__rpc_reply reply = {.status = TDM_E_NODE_LOST,
                                       .detail = "this node is stopping"};
        tdm__rpc_reply_fn *fn = forwarded_call->fn;

        forwarded_call->fn = NULL;
        if (fn != NULL) {
            fn(forwarded_call->arg, &reply);
        }
    }
}

void tdm__node_peers_destroy(struct tdm__node *node)
{
    if (node->peers != NULL) {
        peers_fail_forwards(node->peers);
    }
    while (node->peers != NULL && node->peers->all != NULL) {
        struct peer *peer = node->peers->all;

        tdm__conn_on_closed(peer->conn, NULL, NULL);
        tdm__conn_close(peer->conn);
        node->peers->all = peer->next;
        free(peer);
    }
    if (node->peers != NULL) {
        free(node->peers->live_nodes);
    }
    free(node->peers);
    node->peers = NULL;
}
