/* node_changes.c - what this process does when a node is lost, does not answer, or answers again.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/node_changes.h"

#include "actors/client/actor_channel.h"
#include "actors/common/node_change.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

/* Removes the node `node` from the unreachable nodes that this process knows. */
static void client_forget_unreachable(struct tdm__client *client, const char *node_id)
{
    for (struct tdm__unreachable_node **link = &client->unreachable_nodes; *link != NULL;
         link = &(*link)->next) {
        struct tdm__unreachable_node *unreachable = *link;

        if (strcmp(unreachable->node_id, node_id) == 0) {
            *link = unreachable->next;
            free(unreachable->text);
            free(unreachable);
            return;
        }
    }
}

/* Handles TDM__NODE_UNREACHABLE: the calls to actors of the node fail, except those that may be
 * retried. So do later calls until the node answers. */
static void on_node_unreachable(tdm_runtime *runtime, const char *node_id, const char *text)
{
    struct tdm__client *client = runtime->client;
    struct tdm__unreachable_node *unreachable = calloc(1, sizeof(*unreachable));

    client_forget_unreachable(client, node_id);
    if (unreachable != NULL) {
        unreachable->text = strdup(text);
    }
    if (unreachable == NULL || unreachable->text == NULL) {
        free(unreachable); /* Without memory later calls wait until the node is lost or answers. */
    } else {
        memcpy(unreachable->node_id, node_id, sizeof(unreachable->node_id));
        unreachable->next = client->unreachable_nodes;
        client->unreachable_nodes = unreachable;
    }
    tdm__actor_channels_node_unreachable(runtime, node_id, text);
}

/* Handles TDM__NODE_LOST: closes the connections with processes of the node, whose channels then
 * ask the daemon about their actors. */
static void on_node_lost(tdm_runtime *runtime, const struct tdm__node_change_message *change,
                         const char *node_id)
{
    client_forget_unreachable(runtime->client, node_id);
    if (tdm__rpc_lose_node(runtime->rpc, &change->node, change->epoch) != TDM_OK) {
        tdm__log(TDM__ERROR, "runtime", "a lost node is not remembered: %s", tdm_error_detail());
    }
}

/* Carries out one change. An unknown kind is an error. */
static tdm_status node_change_handle(tdm_runtime *runtime,
                                     const struct tdm__node_change_message *change)
{
    char node_id[TDM__ID_TEXT_BYTES];

    (void)tdm__id_text(&change->node, node_id);
    switch ((enum tdm__node_change)change->kind) {
    case TDM__NODE_UNREACHABLE:
        on_node_unreachable(runtime, node_id, change->text);
        return TDM_OK;
    case TDM__NODE_REACHABLE:
        client_forget_unreachable(runtime->client, node_id);
        return TDM_OK;
    case TDM__NODE_LOST:
        on_node_lost(runtime, change, node_id);
        return TDM_OK;
    case TDM__NODE_EPOCH:
        runtime->self.node_epoch = change->epoch;
        tdm__rpc_set_node_epoch(runtime->rpc, change->epoch);
        return TDM_OK;
    }
    return tdm__fail(TDM_E_PROTOCOL, "change %u of a node is unknown", change->kind);
}

bool tdm__node_change_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming)
{
    struct tdm__node_change_message change;
    tdm_status status;

    if (strcmp(tdm__incoming_method(incoming), TDM__NODE_CHANGE_METHOD) != 0 ||
        tdm__incoming_conn(incoming) != runtime->daemon) {
        return false;
    }
    status = tdm__incoming_decode(incoming, tdm__node_change_table(), &change);
    if (status == TDM_OK) {
        status = node_change_handle(runtime, &change);
    }
    if (status == TDM_OK) {
        tdm__incoming_reply_pack(incoming, "");
    } else {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
    return true;
}

void tdm__node_changes_forget(tdm_runtime *runtime)
{
    while (runtime->client->unreachable_nodes != NULL) {
        client_forget_unreachable(runtime->client, runtime->client->unreachable_nodes->node_id);
    }
}
