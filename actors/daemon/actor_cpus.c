/* actor_cpus.c - actors that lend their CPUs while their methods wait. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A worker says when its actor begins and ceases to lend its CPUs, and goes on without waiting for
 * the reply. The record of the actor's entry has the CPUs that it holds at the moment. One request
 * to the store is under way for an actor at a time; what the worker says meanwhile is carried out
 * after it, so that many short waits do not queue up. When an actor ends, the store's record says
 * what it holds. Everything runs on the daemon's loop thread. */

#include "actors/daemon/actor_cpus.h"

#include "actors/daemon/actor_table.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "scheduler/reserve_cpus.h"

#include <stdlib.h>

/* Milliseconds that one request to the store may take. */
enum { STORE_DEADLINE_MS = 10000 };

/* A request to the store to change the CPUs of an actor, which may have left the table when the
 * reply arrives. */
struct cpu_request {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    struct tdm__id actor;   /* ID of the actor. */
};

/* Defined below; it tells the store what the actor holds. */
static void entry_send_cpus(struct actor_entry *entry);

/* Returns the CPUs that the actor holds, in units of 1/10,000. */
static int64_t wanted_cpus(const struct actor_entry *entry)
{
    return entry->lends_cpus ? 0 : entry->spec->placement.wanted.cpu;
}

/* Tells the store if the actor has begun or ceased to lend its CPUs. Not while the store may lack
 * the actor's record: the record is written again with what the entry has. */
static void entry_update_cpus(struct actor_entry *entry)
{
    if (!entry->cpus_are_changing && entry->lifecycle.reservation == ACTOR_RESERVES &&
        tdm__actor_lifecycle_holds_resources(&entry->lifecycle) &&
        entry->record.grant.cpu != wanted_cpus(entry)) {
        entry->record.grant.cpu = wanted_cpus(entry);
        entry_send_cpus(entry);
    }
}

/* Handles the store's reply. Waiting actors may use CPUs that are lent now. */
static void on_cpus_changed(void *arg, tdm_status status, const char *detail)
{
    struct cpu_request request = *(struct cpu_request *)arg;
    struct tdm__node *node = request.node;
    struct actor_entry *entry =
        node->actors == NULL ? NULL : tdm__actor_entry_find(node, &request.actor);

    free(arg);
    if (status != TDM_OK) {
        tdm__log(TDM__WARN, "actors", "lending CPUs: %s: %s", tdm_strerror(status), detail);
    }
    if (entry != NULL) {
        entry->cpus_are_changing = false;
        if ((status == TDM_E_STORE || status == TDM_E_TIMEOUT) && !node->stopping &&
            entry->lifecycle.reservation == ACTOR_RESERVES) {
            entry_send_cpus(entry); /* The outcome is unknown. */
        } else {
            entry_update_cpus(entry);
        }
    }
    if (status == TDM_OK && !node->stopping) {
        node->events->resources_freed(node);
    }
}

static void entry_send_cpus(struct actor_entry *entry)
{
    struct cpu_request *request = malloc(sizeof(*request));

    if (request == NULL || entry->node->store == NULL) {
        free(request);
        return;
    }
    *request = (struct cpu_request){entry->node, entry->spec->id};
    entry->cpus_are_changing = tdm__reserve_cpus(entry->node->store, &entry->record,
                                                 tdm__deadline_after(STORE_DEADLINE_MS),
                                                 on_cpus_changed, request) == TDM_OK;
    if (!entry->cpus_are_changing) {
        free(request);
    }
}

void tdm__node_serve_actor_cpus(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct actor_entry *entry = tdm__actor_entry_find(node, &tdm__incoming_peer(incoming)->id);
    struct tdm__actor_cpus_message message;

    if (entry == NULL || tdm__incoming_peer(incoming)->kind != TDM__PEER_WORKER) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "no actor of this node");
        return;
    }
    if (tdm__incoming_decode(incoming, tdm__actor_cpus_table(), &message) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    entry->lends_cpus = message.lent;
    entry_update_cpus(entry);
    tdm__incoming_reply_pack(incoming, "");
}

void tdm__actor_entry_take_cpus_back(struct actor_entry *entry)
{
    if (entry->lends_cpus) {
        entry->lends_cpus = false;
        entry_update_cpus(entry);
    }
}
