/* peer_daemons.c - the way to other nodes' daemons. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/node.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "runtime/wire/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_UP_MS = 3000 };

/* A connection to another daemon, kept while it lasts. */
struct peer {
    struct tdm__node_peers *peers;
    struct peer *next;
    struct tdm__id id;
    char name[TDM__NODE_NAME_BYTES];
    struct tdm__conn *conn;
};

struct tdm__node_peers {
    struct peer *all;
    struct tdm__id *there; /* owned: the nodes at the last look */
    uint32_t there_count;
    struct forward *forwards;
    bool ended; /* nothing is sent any more */
};

/* A call on its way: first the other node's address is looked up, then it is sent. */
struct forward {
    struct forward *next;
    struct tdm__node *node;
    struct tdm__id other;
    char name[TDM__NODE_NAME_BYTES]; /* of the other, for messages */
    char method[TDM__RPC_NAME_BYTES_MAX + 1];
    void *bytes; /* owned */
    size_t bytes_count;
    int64_t deadline_ms;
    tdm__rpc_reply_fn *fn;
    void *arg;
};

/* One that came while the node ends is in no list. */
static void forward_unlist(const struct forward *forward)
{
    struct forward **place = &forward->node->peers->forwards;

    while (*place != NULL && *place != forward) {
        place = &(*place)->next;
    }
    if (*place != NULL) {
        *place = forward->next;
    }
}

static void forward_free(struct forward *forward)
{
    if (forward->node->peers != NULL) {
        forward_unlist(forward);
    }
    free(forward->bytes);
    free(forward);
}

static void forward_fails(struct forward *forward, tdm_status status, const char *detail)
{
    struct tdm__rpc_reply reply = {.status = status, .detail = detail};

    if (forward->fn != NULL) {
        forward->fn(forward->arg, &reply);
        forward->fn = NULL;
    }
    forward_free(forward);
}

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

static struct tdm__conn *find_peer(const struct tdm__node *node, const struct tdm__id *id)
{
    for (const struct peer *peer = node->peers->all; peer != NULL; peer = peer->next) {
        if (tdm__id_equal(&peer->id, id)) {
            return peer->conn;
        }
    }
    return NULL;
}

static tdm_status connect_peer(struct tdm__node *node, const struct tdm__node_record *record,
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

static void on_forward_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct forward *forward = arg;

    char detail[TDM__ERROR_DETAIL_BYTES / 2];

    if (reply->status == TDM_E_CLOSED) {
        (void)snprintf(detail, sizeof(detail), "node %s is lost: %.400s", forward->name,
                       reply->detail);
        reply->status = TDM_E_NODE_LOST;
        reply->detail = detail;
    }
    if (forward->fn != NULL) {
        forward->fn(forward->arg, reply);
    }
    forward_free(forward);
}

static void forward_send(struct forward *forward, struct tdm__conn *conn, const char *name)
{
    struct tdm__rpc_request request = {.method = forward->method,
                                       .packed = {forward->bytes, forward->bytes_count},
                                       .deadline_ms = forward->deadline_ms};

    (void)snprintf(forward->name, sizeof(forward->name), "%s", name);
    if (tdm__conn_call(conn, &request, on_forward_reply, forward, NULL) != TDM_OK) {
        forward_fails(forward, TDM_E_NODE_LOST, tdm_error_detail());
    }
}

static void on_address(void *arg, tdm_status status, const struct tdm__store_record *records,
                       uint32_t records_count)
{
    struct forward *forward = arg;
    struct tdm__node_record record;
    struct tdm__conn *conn = NULL;
    char id[TDM__ID_TEXT_BYTES];
    char detail[TDM__ERROR_DETAIL_BYTES / 2];

    if (forward->node->peers == NULL || forward->node->peers->ended) {
        forward_fails(forward, TDM_E_NODE_LOST, "this node is stopping");
        return;
    }
    if (status == TDM_OK && records_count == 0) {
        (void)snprintf(detail, sizeof(detail), "node %s has left the cluster",
                       tdm__id_text(&forward->other, id));
        forward_fails(forward, TDM_E_NODE_LOST, detail);
        return;
    }
    if (status == TDM_OK) {
        status = tdm__node_record_read(&records[0], &record);
    }
    if (status == TDM_OK) {
        conn = find_peer(forward->node, &record.id); /* made while the address was read */
    }
    if (status != TDM_OK) {
        forward_fails(forward, status, tdm_error_detail());
        return;
    }
    if (conn == NULL && connect_peer(forward->node, &record, &conn) != TDM_OK) {
        (void)snprintf(detail, sizeof(detail), "node %s cannot be reached: %.400s", record.name,
                       tdm_error_detail());
        forward_fails(forward, TDM_E_NODE_LOST, detail);
        return;
    }
    forward_send(forward, conn, record.name);
}

void tdm__node_forward(struct tdm__node *node, const struct tdm__id *other, const char *method,
                       struct tdm_bytes packed, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                       void *arg)
{
    struct forward *forward = calloc(1, sizeof(*forward));
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("node", other, key)};

    TDM_ASSERT(forward != NULL);
    if (node->peers->ended) {
        *forward = (struct forward){.node = node, .fn = fn, .arg = arg};
        forward_fails(forward, TDM_E_NODE_LOST, "this node is stopping");
        return;
    }
    *forward = (struct forward){.next = node->peers->forwards,
                                .node = node,
                                .other = *other,
                                .bytes = malloc(packed.size_bytes + 1),
                                .bytes_count = packed.size_bytes,
                                .deadline_ms = deadline_ms,
                                .fn = fn,
                                .arg = arg};
    TDM_ASSERT(forward->bytes != NULL);
    memcpy(forward->bytes, packed.data, packed.size_bytes);
    (void)snprintf(forward->method, sizeof(forward->method), "%s", method);
    node->peers->forwards = forward;
    for (struct peer *peer = node->peers->all; peer != NULL; peer = peer->next) {
        if (tdm__id_equal(&peer->id, other)) {
            forward_send(forward, peer->conn, peer->name);
            return;
        }
    }
    node->store->ops->read(node->store, patterns, 1, tdm__deadline_after(LOOK_UP_MS), on_address,
                           forward);
}

void tdm__node_query_actor(struct tdm__node *node, const struct tdm__id *other, const char *method,
                           const struct tdm__id *actor, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                           void *arg)
{
    const struct tdm__id_request_message message = {*actor};
    uint8_t packed[8 + sizeof(actor->bytes)];
    tdm_writer *writer;

    if (tdm__writer_create_over(packed, sizeof(packed), &writer) != TDM_OK) {
        struct tdm__rpc_reply reply = {.status = TDM_E_NOMEM, .detail = tdm_error_detail()};

        if (fn != NULL) {
            fn(arg, &reply);
        }
        return;
    }
    (void)tdm__id_request_encode(&message, writer);
    tdm__node_forward(node, other, method, tdm_writer_bytes(writer), deadline_ms, fn, arg);
    tdm_writer_destroy(writer);
}

static bool is_among(const struct tdm__id *id, const struct tdm__node_record *nodes,
                     uint32_t nodes_count)
{
    for (uint32_t i = 0; i < nodes_count; i++) {
        if (tdm__id_equal(&nodes[i].id, id)) {
            return true;
        }
    }
    return false;
}

struct peer_search {
    const struct tdm__id *id;
    struct tdm__conn *conn;
};

static void find_conn(void *arg, struct tdm__conn *conn)
{
    struct peer_search *peer_search = arg;
    const struct tdm__peer_identity *peer = tdm__conn_peer(conn);

    if (peer->kind == TDM__PEER_DAEMON && tdm__id_equal(&peer->id, peer_search->id)) {
        peer_search->conn = conn;
    }
}

/* Those that the other node made, too: who waits for something over them hears of its end. */
static void end_connections(struct tdm__node *node, const struct tdm__id *id)
{
    struct peer_search peer_search = {.id = id};

    do {
        peer_search.conn = NULL;
        tdm__rpc_each_conn(node->rpc, find_conn, &peer_search);
        if (peer_search.conn != NULL) {
            tdm__conn_close(peer_search.conn);
        }
    } while (peer_search.conn != NULL);
}

/* Without memory the next look finds nobody missing. */
static void remember_nodes(struct tdm__node_peers *peers, const struct tdm__node_record *nodes,
                           uint32_t nodes_count)
{
    free(peers->there);
    peers->there = calloc(nodes_count + 1u, sizeof(*peers->there));
    peers->there_count = peers->there == NULL ? 0 : nodes_count;
    for (uint32_t i = 0; i < peers->there_count; i++) {
        peers->there[i] = nodes[i].id;
    }
}

/* A node that was not there at the last look either may have joined since this one was asked
 * for: it keeps the connections that it made. */
bool tdm__node_peers_update(struct tdm__node *node, const struct tdm__node_record *nodes,
                            uint32_t nodes_count)
{
    bool has_lost_one = false;
    struct peer *next;

    for (uint32_t i = 0; i < node->peers->there_count; i++) {
        if (!is_among(&node->peers->there[i], nodes, nodes_count)) {
            end_connections(node, &node->peers->there[i]);
            has_lost_one = true;
        }
    }
    remember_nodes(node->peers, nodes, nodes_count);

    for (struct peer *peer = node->peers->all; peer != NULL; peer = next) {
        next = peer->next;
        if (!is_among(&peer->id, nodes, nodes_count)) {
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

/* Answers for the others; what their connections bring later goes to nobody. */
static void end_forwards(struct tdm__node_peers *peers)
{
    peers->ended = true;
    for (struct forward *forward = peers->forwards; forward != NULL; forward = forward->next) {
        struct tdm__rpc_reply reply = {.status = TDM_E_NODE_LOST,
                                       .detail = "this node is stopping"};
        tdm__rpc_reply_fn *fn = forward->fn;

        forward->fn = NULL;
        if (fn != NULL) {
            fn(forward->arg, &reply);
        }
    }
}

void tdm__node_peers_destroy(struct tdm__node *node)
{
    if (node->peers != NULL) {
        end_forwards(node->peers);
    }
    while (node->peers != NULL && node->peers->all != NULL) {
        struct peer *peer = node->peers->all;

        tdm__conn_on_closed(peer->conn, NULL, NULL);
        tdm__conn_close(peer->conn);
        node->peers->all = peer->next;
        free(peer);
    }
    if (node->peers != NULL) {
        free(node->peers->there);
    }
    free(node->peers);
    node->peers = NULL;
}
