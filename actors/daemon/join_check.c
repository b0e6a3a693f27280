/* join_check.c - refuses to join a cluster with whose nodes this node could not work. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes that share a Redis server may still have different tokens, or no address for each other. If
 * such a node joined, actors would be placed on it, and their calls would fail or never be
 * answered. So a node first connects to the others: the handshake compares the tokens and the
 * versions of the protocol, and their records say whether they listen. Nodes that start at the same
 * moment do not see each other then, so a node that has joined looks once more, at those that have
 * joined in between: of two nodes, the one that has joined later refuses. Everything runs on the
 * daemon's loop thread. */

#include "actors/daemon/join_check.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/rpc/rpc.h"

#include <stdio.h>
#include <string.h>

enum {
    /* Longest wait for one reply of the store, in milliseconds. A request that was lost is repeated
     * after it. */
    READ_MS = 2000,
    /* Milliseconds before the list of nodes is read again after the store has failed. */
    READ_AGAIN_MS = 50
};

/* One node of the cluster to which this node connects. */
struct checked_node {
    struct join_check *check;       /* The check, borrowed. */
    struct tdm__node_record record; /* The node's record as read from the store. */
    struct tdm__conn *conn;         /* Connection to the node; NULL before and after. */
    bool is_done;                   /* True once the node has replied or cannot be reached. */
    tdm_status status;              /* What came of it; valid once `is_done` is true. */
    char detail[256];               /* Text of the failure; "" if there is none. */
};

/* State of one tdm__join_check(), on the stack of that function. */
struct join_check {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    bool is_read;           /* True once the store has replied with the list of nodes. */
    tdm_status read_status; /* What the store has replied; valid once `is_read` is true. */
    char read_detail[256];  /* Text of the store's failure; "" if there is none. */
    /* Of the nodes, those with an epoch above this one are checked; 0 for all. */
    uint64_t checked_epoch;
    bool before_own;       /* Whether only nodes are checked that have joined before this node. */
    uint64_t newest_epoch; /* Highest epoch of a node that the store has listed. */
    uint32_t count;        /* Number of entries in `nodes`. */
    /* The nodes to which this node connects. */
    struct checked_node nodes[TDM__JOIN_CHECK_NODES_MAX];
};

/* Returns the epoch of this node in the records of all nodes; 0 if it has not joined. */
static uint64_t find_own_epoch(const struct join_check *check,
                               const struct tdm__store_record *records, uint32_t records_count)
{
    for (uint32_t i = 0; i < records_count; i++) {
        struct tdm__node_record record;

        if (tdm__node_record_read(&records[i], &record) == TDM_OK &&
            tdm__id_equal(&record.id, &check->node->record.id)) {
            return record.epoch;
        }
    }
    return 0;
}

/* Returns whether the node with this record is to be checked. `own_epoch` is that of this node. */
static bool is_checked(const struct join_check *check, const struct tdm__node_record *record,
                       uint64_t own_epoch)
{
    return !tdm__id_equal(&record->id, &check->node->record.id) &&
           record->epoch > check->checked_epoch &&
           (!check->before_own || record->epoch < own_epoch);
}

/* Handles the store's reply with the records of all nodes. */
static void on_nodes_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                          uint32_t records_count)
{
    struct join_check *check = arg;
    uint64_t own_epoch = status == TDM_OK ? find_own_epoch(check, records, records_count) : 0;

    for (uint32_t i = 0; status == TDM_OK && i < records_count; i++) {
        struct tdm__node_record record;

        status = tdm__node_record_read(&records[i], &record);
        if (status != TDM_OK) {
            break;
        }
        if (record.epoch > check->newest_epoch) {
            check->newest_epoch = record.epoch;
        }
        if (is_checked(check, &record, own_epoch) && check->count < TDM__JOIN_CHECK_NODES_MAX) {
            check->nodes[check->count++] = (struct checked_node){.check = check, .record = record};
        }
    }
    check->is_read = true;
    check->read_status = status;
    (void)snprintf(check->read_detail, sizeof(check->read_detail), "%s",
                   status == TDM_OK ? "" : tdm_error_detail());
}

/* Records what came of a node, once. */
static void checked_node_done(struct checked_node *checked, tdm_status status, const char *detail)
{
    if (!checked->is_done) {
        checked->is_done = true;
        checked->status = status;
        (void)snprintf(checked->detail, sizeof(checked->detail), "%s", detail);
    }
}

/* Handles the end of the connection to a node: the reason says whether the tokens differ. */
static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    struct checked_node *checked = arg;

    (void)conn;
    checked->conn = NULL;
    checked_node_done(checked, reason, detail);
}

/* Handles the node's reply to "node.describe". A failure is reported by on_closed(). After a crash
 * another node may use the address, even this one. */
static void on_described(void *arg, struct tdm__rpc_reply *reply)
{
    struct checked_node *checked = arg;

    if (reply->status == TDM_E_CLOSED) {
        return;
    }
    if (tdm__id_equal(&tdm__conn_peer(checked->conn)->id, &checked->record.id)) {
        checked_node_done(checked, TDM_OK, "");
    } else {
        checked_node_done(checked, TDM_E_CLOSED, "another node has its address");
    }
}

/* Connects to a node and calls it. */
static void checked_node_ask(struct checked_node *checked)
{
    const struct tdm__node_record *record = &checked->record;
    struct tdm__rpc_request request = {
        .method = "node.describe", .packed = {"\x90", 1}, .deadline_ms = TDM__NEVER};
    tdm_status status = tdm__rpc_connect(checked->check->node->rpc,
                                         record->tcp_address[0] != '\0' ? record->tcp_address
                                                                        : record->unix_address,
                                         &checked->conn);

    if (status == TDM_OK) {
        tdm__conn_on_closed(checked->conn, on_closed, checked);
        status = tdm__conn_call(checked->conn, &request, on_described, checked, NULL);
    }
    if (status != TDM_OK) {
        checked_node_done(checked, TDM_E_CLOSED, tdm_error_detail());
    }
}

/* Condition of the loop: whether the store has replied. */
static bool nodes_are_read(void *arg)
{
    return ((const struct join_check *)arg)->is_read;
}

/* Condition of the loop that is never true: the loop runs until its deadline. */
static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* Reads the list of nodes from the store, which may lose any request, also the first one of a
 * daemon: a read that fails is repeated until `timeout_ms` milliseconds have passed. */
static tdm_status check_read_nodes(struct join_check *check, int64_t timeout_ms)
{
    static const char *const patterns[] = {"node/*"};
    struct tdm__node *node = check->node;
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);

    for (uint32_t attempts = 1;; attempts++) {
        int64_t left_ms = tdm__deadline_remaining_ms(deadline_ms);

        check->is_read = false;
        node->store->ops->read(node->store, patterns, 1,
                               tdm__deadline_after(left_ms < READ_MS ? left_ms : READ_MS),
                               on_nodes_read, check);
        /* The store replies in any case, at the deadline at the latest. */
        TDM_TRY(tdm__loop_run(node->loop, nodes_are_read, check, TDM__NEVER));
        if (check->read_status != TDM_E_STORE && check->read_status != TDM_E_TIMEOUT) {
            return check->read_status == TDM_OK
                       ? TDM_OK
                       : tdm__fail(check->read_status, "the list of nodes: %s", check->read_detail);
        }
        if (tdm__deadline_remaining_ms(deadline_ms) <= READ_AGAIN_MS) {
            return tdm__fail(TDM_E_STORE,
                             "reading the list of nodes from the cluster's store failed %u times "
                             "in %lld ms: %s. Check that Redis answers, and start the node again",
                             attempts, (long long)timeout_ms, check->read_detail);
        }
        (void)tdm__loop_run(node->loop, never, NULL, tdm__deadline_after(READ_AGAIN_MS));
    }
}

/* Condition of the loop: whether something came of every node. */
static bool nodes_are_done(void *arg)
{
    const struct join_check *check = arg;

    for (uint32_t i = 0; i < check->count; i++) {
        if (!check->nodes[i].is_done) {
            return false;
        }
    }
    return true;
}

/* Returns what keeps this node from working with a node of the cluster. */
static tdm_status checked_node_verdict(const struct checked_node *checked)
{
    const struct tdm__node_record *own = &checked->check->node->record;
    const struct tdm__node_record *other = &checked->record;

    if (checked->is_done && checked->status == TDM_E_AUTH) {
        return tdm__fail(TDM_E_AUTH,
                         "node %s of the cluster has another token than this node %s: set "
                         "TANDEM_TOKEN_FILE to the same file on every node",
                         other->name, own->name);
    }
    if (checked->is_done && checked->status == TDM_E_PROTOCOL) {
        return tdm__fail(TDM_E_PROTOCOL, "node %s of the cluster: %s", other->name,
                         checked->detail);
    }
    if (!checked->is_done || checked->status != TDM_OK) {
        tdm__log(TDM__WARN, "node", "node %s of the cluster does not answer: %s", other->name,
                 checked->is_done ? checked->detail : "no reply in time");
        return TDM_OK;
    }
    if (own->tcp_address[0] == '\0' || other->tcp_address[0] == '\0') {
        return tdm__fail(TDM_E_STATE,
                         "node %s does not listen for other nodes, but the cluster has nodes %s "
                         "and %s: start each of them with --listen HOST",
                         own->tcp_address[0] == '\0' ? own->name : other->name, own->name,
                         other->name);
    }
    return TDM_OK;
}

/* Condition of the loop: whether all connections to the nodes have ended. */
static bool connections_have_ended(void *arg)
{
    const struct join_check *check = arg;

    for (uint32_t i = 0; i < check->count; i++) {
        if (check->nodes[i].conn != NULL) {
            return false;
        }
    }
    return true;
}

/* Ends the connections to the nodes, and waits for their ends, which are reported to `check`. */
static tdm_status check_close(struct join_check *check)
{
    for (uint32_t i = 0; i < check->count; i++) {
        if (check->nodes[i].conn != NULL) {
            tdm__conn_close(check->nodes[i].conn);
        }
    }
    return tdm__loop_run(check->node->loop, connections_have_ended, check, TDM__NEVER);
}

/* Reads the list of nodes, connects to those that are to be checked, and returns the first verdict
 * that is a failure. */
static tdm_status check_run(struct join_check *check, int64_t store_timeout_ms,
                            int64_t nodes_timeout_ms)
{
    TDM_TRY(check_read_nodes(check, store_timeout_ms));
    for (uint32_t i = 0; i < check->count; i++) {
        checked_node_ask(&check->nodes[i]);
    }
    (void)tdm__loop_run(check->node->loop, nodes_are_done, check,
                        tdm__deadline_after(nodes_timeout_ms));
    TDM_TRY(check_close(check));
    for (uint32_t i = 0; i < check->count; i++) {
        TDM_TRY(checked_node_verdict(&check->nodes[i]));
    }
    return TDM_OK;
}

tdm_status tdm__join_check(struct tdm__node *node, int64_t store_timeout_ms,
                           int64_t nodes_timeout_ms, uint64_t *newest_epoch_out)
{
    struct join_check check = {.node = node};

    TDM_TRY(check_run(&check, store_timeout_ms, nodes_timeout_ms));
    *newest_epoch_out = check.newest_epoch;
    return TDM_OK;
}

tdm_status tdm__join_check_again(struct tdm__node *node, int64_t store_timeout_ms,
                                 int64_t nodes_timeout_ms, uint64_t newest_epoch)
{
    struct join_check check = {.node = node, .checked_epoch = newest_epoch, .before_own = true};

    return check_run(&check, store_timeout_ms, nodes_timeout_ms);
}
