/* node_notices.c - tells the processes of this node what happens to nodes. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Workers and drivers have no view of the cluster. They notice only a closed socket, which a
 * machine without power or a cut link does not produce. So this daemon tells them what it learns of
 * nodes (actors/common/node_change.h): a node does not answer, answers again, or is lost in an
 * epoch; and the epoch of their own node, which they state in handshakes. Each notice is a call
 * without a reply that matters, over the connection that every process has with its daemon, so that
 * notices arrive in order. A process that starts later is told the sum of what was before.
 *
 * The epoch of a node is the version of its record in the store, which is higher each time that the
 * node has joined. After a loss a process of the lost epoch is refused by everybody who was told,
 * until it states a higher one. A guest's worker learns the higher one only when the daemon of its
 * creator's node has confirmed that it counts on the actor: until then its effects stay on its own
 * node. Everything runs on the daemon's loop thread. */

#include "actors/daemon/node_notices.h"

#include "actors/common/node_change.h"
#include "actors/daemon/actor_entry.h"
#include "actors/daemon/worker_processes.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "runtime/rpc/lost_nodes.h"

#include <stdlib.h>
#include <string.h>

/* An unreachable node. The list of notices owns it. */
struct unreachable {
    struct unreachable *next; /* Next unreachable node. */
    struct tdm__id node;      /* ID of the node. */
    char *text;               /* Why calls of its actors fail (owned). */
};

/* What a new process of this node has to be told. struct tdm__node owns it. */
struct tdm__node_notices {
    struct tdm__lost_nodes lost;     /* Nodes that were lost since this daemon started. */
    struct unreachable *unreachable; /* Nodes that do not answer (owned). */
};

/* ---- sending -------------------------------------------------------------------------------- */

/* A change that is sent to several processes. */
struct notice {
    struct tdm__node_change_message message; /* The change. */
    struct tdm_bytes packed;                 /* The message as bytes (borrowed). */
};

/* Sends the change over the connection `conn` with a process. A process that does not take it is
 * about to end. */
static void notice_send(const struct notice *notice, struct tdm__conn *conn)
{
    struct tdm__rpc_request request = {
        .method = TDM__NODE_CHANGE_METHOD, .packed = notice->packed, .deadline_ms = TDM__NEVER};

    if (tdm__conn_call(conn, &request, NULL, NULL, NULL) != TDM_OK) {
        tdm__log(TDM__DEBUG, "node", "a process is not told of a node: %s", tdm_error_detail());
    }
}

/* Sends the change `arg` over `conn` if a driver is at its other end. */
static void notice_send_to_driver(void *arg, struct tdm__conn *conn)
{
    if (tdm__conn_peer(conn)->kind == TDM__PEER_DRIVER) {
        notice_send(arg, conn);
    }
}

/* True if the actor's worker may state the present epoch of this node: the actor belongs to this
 * node or to nobody, and is not being killed. */
static bool worker_is_of_this_epoch(const struct actor_entry *entry)
{
    return (tdm__id_is_none(&entry->owner_node) || entry->spec->detached) &&
           !tdm__actor_lifecycle_wants_worker_end(&entry->lifecycle);
}

/* Sends the change to all processes of this node; TDM__NODE_EPOCH only to those that may state the
 * epoch. */
static void notice_send_to_all(const struct tdm__node *node, const struct notice *notice)
{
    tdm__rpc_each_conn(node->rpc, notice_send_to_driver, (void *)notice);
    for (const struct actor_entry *entry = node->actors == NULL ? NULL : node->actors->all;
         entry != NULL; entry = entry->next) {
        if (entry->worker != NULL && entry->worker->conn != NULL &&
            (notice->message.kind != TDM__NODE_EPOCH || worker_is_of_this_epoch(entry))) {
            notice_send(notice, entry->worker->conn);
        }
    }
}

/* Sends the change in `message` to the process behind `conn`, or to all processes of this node if
 * `conn` is NULL. */
static void change_send(const struct tdm__node *node, struct tdm__conn *conn,
                        const struct tdm__node_change_message *message)
{
    struct notice notice = {.message = *message};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm__log(TDM__ERROR, "node", "processes are not told of a node: %s", tdm_error_detail());
        return;
    }
    if (tdm__node_change_encode(message, writer) == TDM_OK) {
        notice.packed = tdm_writer_bytes(writer);
        if (conn != NULL) {
            notice_send(&notice, conn);
        } else {
            notice_send_to_all(node, &notice);
        }
    }
    tdm_writer_destroy(writer);
}

/* ---- changes of other nodes ------------------------------------------------------------------ */

/* Removes the node `other` from the list of unreachable nodes. Returns false if it is not there. */
static bool unreachable_remove(struct tdm__node_notices *notices, const struct tdm__id *other)
{
    for (struct unreachable **link = &notices->unreachable; *link != NULL; link = &(*link)->next) {
        struct unreachable *unreachable = *link;

        if (tdm__id_equal(&unreachable->node, other)) {
            *link = unreachable->next;
            free(unreachable->text);
            free(unreachable);
            return true;
        }
    }
    return false;
}

void tdm__node_lost(struct tdm__node *node, const struct tdm__node_record *lost)
{
    const struct tdm__node_change_message message = {
        .kind = TDM__NODE_LOST, .node = lost->id, .epoch = lost->epoch, .text = ""};

    tdm__log(TDM__INFO, "node", "node %s is lost in epoch %llu: its processes are refused",
             lost->name, (unsigned long long)lost->epoch);
    if (tdm__rpc_lose_node(node->rpc, &lost->id, lost->epoch) != TDM_OK ||
        tdm__lost_nodes_add(&node->notices->lost, &lost->id, lost->epoch) != TDM_OK) {
        tdm__log(TDM__ERROR, "node", "node %s: %s", lost->name, tdm_error_detail());
    }
    (void)unreachable_remove(node->notices, &lost->id);
    change_send(node, NULL, &message);
}

bool tdm__node_was_lost(const struct tdm__node *node, const struct tdm__id *other, uint64_t epoch)
{
    return tdm__lost_nodes_contain(&node->notices->lost, other, epoch);
}

void tdm__node_notices_unreachable(struct tdm__node *node, const struct tdm__id *other,
                                   const char *text)
{
    struct unreachable *unreachable = calloc(1, sizeof(*unreachable));
    const struct tdm__node_change_message message = {
        .kind = TDM__NODE_UNREACHABLE, .node = *other, .text = text};

    (void)unreachable_remove(node->notices, other);
    if (unreachable != NULL) {
        unreachable->node = *other;
        unreachable->text = strdup(text);
    }
    if (unreachable == NULL || unreachable->text == NULL) {
        free(unreachable); /* Without memory only new processes are not told. */
    } else {
        unreachable->next = node->notices->unreachable;
        node->notices->unreachable = unreachable;
    }
    tdm__log(TDM__WARN, "node", "%s", text);
    change_send(node, NULL, &message);
}

void tdm__node_notices_reachable(struct tdm__node *node, const struct tdm__id *other)
{
    const struct tdm__node_change_message message = {
        .kind = TDM__NODE_REACHABLE, .node = *other, .text = ""};

    if (unreachable_remove(node->notices, other)) {
        change_send(node, NULL, &message);
    }
}

/* ---- this node ------------------------------------------------------------------------------- */

/* Returns the message by which processes of this node learn its epoch. */
static struct tdm__node_change_message epoch_message(const struct tdm__node *node)
{
    return (struct tdm__node_change_message){
        .kind = TDM__NODE_EPOCH, .node = node->record.id, .epoch = node->record.epoch, .text = ""};
}

void tdm__node_set_epoch(struct tdm__node *node, uint64_t epoch)
{
    struct tdm__node_change_message message;

    if (node->record.epoch == epoch) {
        return;
    }
    node->record.epoch = epoch;
    tdm__rpc_set_node_epoch(node->rpc, epoch);
    message = epoch_message(node);
    change_send(node, NULL, &message);
}

void tdm__node_notices_confirm(const struct actor_entry *entry)
{
    const struct tdm__node_change_message message = epoch_message(entry->node);

    if (entry->worker != NULL && entry->worker->conn != NULL &&
        !tdm__actor_lifecycle_wants_worker_end(&entry->lifecycle)) {
        change_send(entry->node, entry->worker->conn, &message);
    }
}

void tdm__node_notices_greet(struct tdm__node *node, struct tdm__conn *conn)
{
    const struct tdm__node_notices *notices = node->notices;
    struct tdm__node_change_message message = epoch_message(node);

    if (notices == NULL) {
        return; /* A test runs the node without notices. */
    }
    change_send(node, conn, &message);
    for (uint32_t i = 0; i < notices->lost.count; i++) {
        message = (struct tdm__node_change_message){.kind = TDM__NODE_LOST,
                                                    .node = notices->lost.entries[i].node,
                                                    .epoch = notices->lost.entries[i].epoch,
                                                    .text = ""};
        change_send(node, conn, &message);
    }
    for (const struct unreachable *unreachable = notices->unreachable; unreachable != NULL;
         unreachable = unreachable->next) {
        message = (struct tdm__node_change_message){
            .kind = TDM__NODE_UNREACHABLE, .node = unreachable->node, .text = unreachable->text};
        change_send(node, conn, &message);
    }
}

/* ---- creation and end ------------------------------------------------------------------------ */

tdm_status tdm__node_notices_create(struct tdm__node *node)
{
    node->notices = calloc(1, sizeof(*node->notices));
    return node->notices == NULL ? tdm__fail(TDM_E_NOMEM, "the notices of a node") : TDM_OK;
}

void tdm__node_notices_destroy(struct tdm__node *node)
{
    if (node->notices == NULL) {
        return;
    }
    while (node->notices->unreachable != NULL) {
        (void)unreachable_remove(node->notices, &node->notices->unreachable->node);
    }
    tdm__lost_nodes_fini(&node->notices->lost);
    free(node->notices);
    node->notices = NULL;
}
