/* actor_health.c - pings worker processes, and kills those that do not respond. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_health.h"

#include "actors/daemon/actor_start.h"
#include "actors/daemon/actor_table.h"
#include "actors/daemon/worker_processes.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>

/* A ping of a worker that waits for the reply. Any reply proves that the worker lives: its
 * background poller replies even while a method runs, so only a stopped or broken process does not.
 */
struct ping {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    /* Id of the pinged actor; its entry may be gone when the reply arrives. */
    struct tdm__id actor;
    uint32_t incarnation; /* Incarnation of the worker that was pinged. */
    /* Call for which the ping was sent, owned; NULL for the daemon's own health check. */
    struct tdm__incoming_call *incoming;
};

/* Sends a ping to the actor's worker. fn(ping, ...) receives the reply and frees the ping. */
static tdm_status ping_send(struct actor_entry *entry, struct tdm__incoming_call *incoming,
                            int64_t deadline_ms, tdm__rpc_reply_fn *fn,
                            const struct ping **ping_out)
{
    struct tdm__rpc_request request = {
        .method = "worker.ping", .packed = {"\x90", 1}, .deadline_ms = deadline_ms};
    struct ping *ping = calloc(1, sizeof(*ping));
    tdm_status status;

    if (ping == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a ping");
    }
    *ping = (struct ping){entry->node, entry->spec->id, entry->lifecycle.incarnation, incoming};
    *ping_out = ping;
    status = entry->worker->conn == NULL
                 ? tdm__fail(TDM_E_CLOSED, "its connection has closed")
                 : tdm__conn_call(entry->worker->conn, &request, fn, ping, NULL);
    if (status != TDM_OK) {
        free(ping);
        *ping_out = NULL;
    }
    return status;
}

/* Returns the entry of the pinged actor, or NULL if the actor or the whole table is gone. */
static struct actor_entry *ping_find_entry(const struct ping *ping)
{
    return ping->node->actors == NULL ? NULL : tdm__actor_entry_find(ping->node, &ping->actor);
}

/* ---- pings for callers that lost their connection ------------------------------------------ */

/* Fails the caller for which the ping was sent, because the actor has ended; says how if that is
 * remembered. */
static void health_reply_dead(const struct ping *ping)
{
    const struct actor_tombstone *tombstone =
        ping->node->actors == NULL ? NULL : tdm__tombstone_find(ping->node, &ping->actor);

    tdm__incoming_fail(ping->incoming, tombstone == NULL ? TDM_E_ACTOR_DIED : tombstone->status,
                       tombstone == NULL ? "the actor has ended" : tombstone->text);
}

/* Handles the worker's reply to a ping for a caller: replies with the actor's description, or lets
 * the caller wait for the next incarnation. */
static void on_query_ping_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct ping *ping = arg;
    struct actor_entry *entry = ping_find_entry(ping);
    bool has_replied = reply->status != TDM_E_CLOSED && reply->status != TDM_E_TIMEOUT;

    if (entry == NULL) {
        health_reply_dead(ping);
    } else if (entry->lifecycle.state == ACTOR_ALIVE &&
               (has_replied || entry->lifecycle.incarnation != ping->incarnation)) {
        tdm__actor_entry_reply_description(entry, ping->incoming);
    } else {
        tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, ping->incoming);
    }
    free(ping);
}

void tdm__actor_entry_ping(struct actor_entry *entry, struct tdm__incoming_call *incoming)
{
    const struct ping *ping;

    if (ping_send(entry, incoming, tdm__incoming_deadline(incoming), on_query_ping_reply, &ping) !=
        TDM_OK) {
        /* The worker is dying. */
        tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, incoming);
    }
}

/* ---- health checks of the node ----------------------------------------------------------- */

/* Handles the worker's reply to a ping of the health check, and reports a worker that did not
 * respond in time. */
static void on_health_ping_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct ping *ping = arg;
    struct actor_entry *entry = ping_find_entry(ping);
    bool is_current = entry != NULL && entry->ping == ping;
    char text[96];

    if (is_current) {
        entry->ping = NULL;
    }
    if (is_current && reply->status == TDM_E_TIMEOUT) {
        (void)snprintf(text, sizeof(text), "killed by its node: it had not answered for %lld ms",
                       (long long)ping->node->health_timeout_ms);
        tdm__actor_entry_report(entry,
                                (struct actor_event){.kind = ACTOR_ON_SILENCE, .detail = text});
    }
    free(ping);
}

/* Pings every living worker without a pending ping, three times per health timeout. */
static void on_health_timer(void *arg)
{
    struct tdm__node *node = arg;

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (entry->lifecycle.state == ACTOR_ALIVE && entry->ping == NULL) {
            (void)ping_send(entry, NULL, tdm__deadline_after(node->health_timeout_ms),
                            on_health_ping_reply, &entry->ping);
        }
    }
    (void)tdm__timer_set(node->actors->health_timer,
                         tdm__deadline_after(node->health_timeout_ms / 3 + 1));
}

tdm_status tdm__node_health_start(struct tdm__node *node)
{
    if (node->health_timeout_ms == 0) {
        return TDM_OK;
    }
    TDM_TRY(tdm__timer_create(node->loop, on_health_timer, node, &node->actors->health_timer));
    return tdm__timer_set(node->actors->health_timer,
                          tdm__deadline_after(node->health_timeout_ms / 3 + 1));
}

void tdm__node_health_stop(struct tdm__node *node)
{
    tdm__timer_destroy(node->actors->health_timer);
    node->actors->health_timer = NULL;
}
