/* peer_pings.c - finds out whether other nodes answer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/peer_pings.h"

#include "actors/daemon/node_notices.h"
#include "actors/daemon/peer_daemons.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdlib.h>

/* Number of pings in the time after which a silent node is unreachable. */
enum { PINGS_IN_TIMEOUT = 10 };

/* Pings of the known nodes. struct tdm__node owns it. */
struct tdm__node_pings {
    struct tdm__timer *timer; /* Timer of the next pings (owned). */
};

/* A ping without a reply. It frees itself when the reply has arrived. */
struct peer_ping {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    struct tdm__id other;   /* ID of the node that is pinged, which may be lost meanwhile. */
};

/* Handles the reply of another daemon to a ping, or its failure. */
static void on_ping_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct peer_ping *ping = arg;
    struct tdm__node *node = ping->node;
    struct tdm__live_node *known = tdm__node_peers_find(node, &ping->other);

    free(ping);
    if (known == NULL) {
        return; /* The node was lost. */
    }
    known->ping_is_sent = false;
    if (reply->status == TDM_OK) {
        known->refuses = false;
        if (tdm__reachability_answered(&known->reachability)) {
            tdm__node_notices_reachable(node, &known->record.id);
        }
    }
}

/* Pings the daemon of a known node. */
static void live_node_ping(struct tdm__node *node, struct tdm__live_node *known)
{
    struct peer_ping *ping = malloc(sizeof(*ping));

    if (ping == NULL) {
        return; /* Without memory the next ping is sent later. */
    }
    *ping = (struct peer_ping){node, known->record.id};
    known->ping_is_sent = true;
    tdm__node_forward(node, &known->record.id, "node.ping", (struct tdm_bytes){"\x90", 1},
                      tdm__deadline_after(node->unreachable_ms), on_ping_reply, ping);
}

/* Tells the processes of this node that a known node does not answer. */
static void live_node_unreachable(struct tdm__node *node, const struct tdm__live_node *known)
{
    char text[512];

    tdm__live_node_explain(node, known, text, sizeof(text));
    tdm__node_notices_unreachable(node, &known->record.id, text);
}

/* Counts the silence of all known nodes, and pings those without a ping under way. */
static void on_ping_timer(void *arg)
{
    struct tdm__node *node = arg;
    int64_t interval_ms = node->unreachable_ms / PINGS_IN_TIMEOUT;
    int64_t now_ms = tdm__clock_ms();

    (void)tdm__timer_set(node->pings->timer, now_ms + interval_ms);
    for (struct tdm__live_node *known = tdm__node_peers_known(node); known != NULL;
         known = known->next) {
        if (tdm__reachability_check(&known->reachability, now_ms, interval_ms,
                                    node->unreachable_ms)) {
            live_node_unreachable(node, known);
        }
        if (!known->ping_is_sent) {
            live_node_ping(node, known);
        }
    }
}

tdm_status tdm__node_pings_create(struct tdm__node *node)
{
    if (node->unreachable_ms == 0) {
        return TDM_OK;
    }
    node->pings = calloc(1, sizeof(*node->pings));
    if (node->pings == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the pings of other nodes");
    }
    TDM_TRY(tdm__timer_create(node->loop, on_ping_timer, node, &node->pings->timer));
    return tdm__timer_set(node->pings->timer,
                          tdm__deadline_after(node->unreachable_ms / PINGS_IN_TIMEOUT));
}

void tdm__node_pings_destroy(struct tdm__node *node)
{
    if (node->pings != NULL) {
        tdm__timer_destroy(node->pings->timer);
        free(node->pings);
        node->pings = NULL;
    }
}
