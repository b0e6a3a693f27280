/* peer_daemons.c - connections to the daemons of other nodes, and calls over them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A connection is opened at the first call to a node, with the address of the list of nodes or else
 * of the store, and kept until it closes or the node is lost. A forwarded call owns a copy of its
 * arguments until the reply. Its callback is called exactly once: with the reply, or with
 * TDM_E_NODE_LOST if the node cannot be reached, is lost, or this node stops.
 *
 * A daemon that starts again is another node, often at the same address. A connection to it does
 * not open, because calls for the earlier node would be forwarded again, for ever.
 *
 * The known nodes are those of the list of living nodes. tdm__node_peers_update() removes the ones
 * that are no longer in it, and has all their connections closed, in both directions, so that no
 * call outlives the lease of its peer. A node that came and went between two lists is found by the
 * epoch that its processes state (tdm__node_peers_lose_unlisted()). Everything runs on the daemon's
 * loop thread. */

#include "actors/daemon/peer_daemons.h"

#include "actors/daemon/node_notices.h"
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
    struct tdm__live_node *known;            /* The living nodes except this one, owned. */
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
    /* Connection over which the call was sent, valid until its reply; NULL before. */
    const struct tdm__conn *conn;
};

/* ---- the known nodes ----------------------------------------------------------------------- */

struct tdm__live_node *tdm__node_peers_known(const struct tdm__node *node)
{
    return node->peers == NULL ? NULL : node->peers->known;
}

struct tdm__live_node *tdm__node_peers_find(const struct tdm__node *node, const struct tdm__id *id)
{
    struct tdm__live_node *known = tdm__node_peers_known(node);

    while (known != NULL && !tdm__id_equal(&known->record.id, id)) {
        known = known->next;
    }
    return known;
}

void tdm__live_node_explain(const struct tdm__node *node, const struct tdm__live_node *known,
                            char *text, size_t text_bytes)
{
    (void)snprintf(text, text_bytes,
                   "node %s has not answered node %s for %.1f s; it counts as lost when it has not "
                   "renewed its lease for %.0f s",
                   known->record.name, node->record.name,
                   (double)known->reachability.silent_ms / 1000.0,
                   (double)tdm__node_lease_ms(&known->record) / 1000.0);
}

tdm_status tdm__node_peer_explain(const struct tdm__node *node, const struct tdm__id *id,
                                  const char *detail, char *text, size_t text_bytes)
{
    const struct tdm__live_node *known = tdm__node_peers_find(node, id);

    if (known != NULL && !known->refuses && known->reachability.is_unreachable) {
        tdm__live_node_explain(node, known, text, text_bytes);
        return TDM_E_ACTOR_UNAVAILABLE;
    }
    (void)snprintf(text, text_bytes, "%s", detail);
    return known == NULL || known->refuses ? TDM_E_NODE_LOST : TDM_E_AGAIN;
}

/* Notes whether the machine of the node `id` has said that its daemon does not listen any more. */
static void peers_note_refusal(const struct tdm__node *node, const struct tdm__id *id, bool refuses)
{
    struct tdm__live_node *known = tdm__node_peers_find(node, id);

    if (known != NULL) {
        known->refuses = refuses;
    }
}

/* ---- calls to other daemons ----------------------------------------------------------------- */

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
        peers_note_refusal(node, &record->id, status == TDM_E_IO && record->tcp_address[0] == '\0');
        free(peer);
        return status;
    }
    tdm__conn_expect_peer(peer->conn, &record->id);
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
        if (forwarded_call->node->peers != NULL) {
            peers_note_refusal(forwarded_call->node, &forwarded_call->other,
                               tdm__conn_was_refused(forwarded_call->conn));
        }
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
    forwarded_call->conn = conn;
    if (tdm__conn_call(conn, &request, on_forward_reply, forwarded_call, NULL) != TDM_OK) {
        forward_fail(forwarded_call, TDM_E_NODE_LOST, tdm_error_detail());
    }
}

/* Sends a forwarded call to the node in `record`, over a new connection if there is none. */
static void forward_connect(struct forwarded_call *forwarded_call,
                            const struct tdm__node_record *record)
{
    /* Another call may have opened the connection while the address was read. */
    struct tdm__conn *conn = peers_find_conn(forwarded_call->node, &record->id);
    char detail[TDM__ERROR_DETAIL_BYTES / 2];

    if (conn == NULL && peers_connect(forwarded_call->node, record, &conn) != TDM_OK) {
        (void)snprintf(detail, sizeof(detail), "node %s cannot be reached: %.400s", record->name,
                       tdm_error_detail());
        forward_fail(forwarded_call, TDM_E_NODE_LOST, detail);
        return;
    }
    forward_send(forwarded_call, conn, record->name);
}

/* Handles the store's reply with the address of the other node: connects to that node and sends the
 * forwarded call. */
static void on_address(void *arg, tdm_status status, const struct tdm__store_record *records,
                       uint32_t records_count)
{
    struct forwarded_call *forwarded_call = arg;
    struct tdm__node_record record;
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
    if (status != TDM_OK) {
        forward_fail(forwarded_call, status, tdm_error_detail());
        return;
    }
    forward_connect(forwarded_call, &record);
}

void tdm__node_forward(struct tdm__node *node, const struct tdm__id *other, const char *method,
                       struct tdm_bytes packed, int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                       void *arg)
{
    struct forwarded_call *forwarded_call = calloc(1, sizeof(*forwarded_call));
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("node", other, key)};
    const struct tdm__live_node *known;

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
    known = tdm__node_peers_find(node, other);
    if (known != NULL) { /* The address is known also while the store does not answer. */
        forward_connect(forwarded_call, &known->record);
        return;
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

/* ---- the list of living nodes ---------------------------------------------------------------- */

void tdm__node_peers_note(struct tdm__node *node, const struct tdm__node_record *nodes,
                          uint32_t nodes_count)
{
    for (uint32_t i = 0; i < nodes_count; i++) {
        struct tdm__live_node *known = tdm__node_peers_find(node, &nodes[i].id);

        if (tdm__id_equal(&nodes[i].id, &node->record.id)) {
            continue;
        }
        if (known == NULL) {
            known = calloc(1, sizeof(*known));
            if (known == NULL) {
                return; /* Without memory the node is noted with a later list. */
            }
            known->next = node->peers->known;
            node->peers->known = known;
        }
        known->record = nodes[i];
    }
}

/* Connections opened by a node that was in no list stay, because the node may have joined after
 * this list was read. */
bool tdm__node_peers_update(struct tdm__node *node, const struct tdm__node_record *nodes,
                            uint32_t nodes_count)
{
    struct tdm__live_node **link = &node->peers->known;
    bool has_lost_one = false;

    while (*link != NULL) {
        struct tdm__live_node *known = *link;

        if (tdm__node_records_contain(nodes, nodes_count, &known->record.id)) {
            link = &known->next;
            continue;
        }
        *link = known->next;
        tdm__node_lost(node, &known->record);
        free(known);
        has_lost_one = true;
    }
    tdm__node_peers_note(node, nodes, nodes_count);
    for (struct peer *peer = node->peers->all; peer != NULL; peer = peer->next) {
        if (!tdm__node_records_contain(nodes, nodes_count, &peer->id)) {
            tdm__conn_close(peer->conn); /* The node was lost before it was in a list. */
        }
    }
    return has_lost_one;
}

/* A connection with a process of a node that is missing in the list of living nodes. */
struct unlisted_conn {
    const struct tdm__node *node;          /* State of this node's daemon, borrowed. */
    const struct tdm__node_record *listed; /* The list, borrowed. */
    uint32_t listed_count;                 /* Number of nodes in `listed`. */
    uint64_t listed_epoch;                 /* Epoch of the list. */
    /* Identity of the peer of the first such connection; NULL while none is found. */
    const struct tdm__peer_identity *found;
};

/* Stores the peer of the connection as the result of the search if its node is not in the list;
 * the callback for tdm__rpc_each_conn(). */
static void find_unlisted(void *arg, struct tdm__conn *conn)
{
    struct unlisted_conn *search = arg;
    const struct tdm__peer_identity *peer = tdm__conn_peer(conn);

    if (search->found == NULL && peer->kind != 0 && peer->node_epoch != 0 &&
        peer->node_epoch <= search->listed_epoch &&
        !tdm__id_equal(&peer->node, &search->node->record.id) &&
        !tdm__node_records_contain(search->listed, search->listed_count, &peer->node) &&
        !tdm__node_was_lost(search->node, &peer->node, peer->node_epoch)) {
        search->found = peer;
    }
}

void tdm__node_peers_lose_unlisted(struct tdm__node *node, const struct tdm__node_record *nodes,
                                   uint32_t nodes_count, uint64_t list_epoch)
{
    struct unlisted_conn search = {
        .node = node, .listed = nodes, .listed_count = nodes_count, .listed_epoch = list_epoch};

    for (;;) {
        struct tdm__node_record lost = {0};

        search.found = NULL;
        tdm__rpc_each_conn(node->rpc, find_unlisted, &search);
        if (search.found == NULL) {
            return;
        }
        lost.id = search.found->node;
        lost.epoch = search.found->node_epoch;
        (void)snprintf(lost.name, sizeof(lost.name), "%s", search.found->name);
        tdm__node_lost(node, &lost);
    }
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
    while (node->peers != NULL && node->peers->known != NULL) {
        struct tdm__live_node *known = node->peers->known;

        node->peers->known = known->next;
        free(known);
    }
    free(node->peers);
    node->peers = NULL;
}
