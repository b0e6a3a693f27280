/* placement_group_service.c - the methods of the service "placement_group" of a daemon. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A daemon has an entry (placement_group_table.h) for each placement group that a process of its
 * node created, waits for, or removes. States: waiting for resources (neither `is_held` nor
 * `is_reserving`), reserving, held, and being removed (`is_unwanted`). The store has the record of
 * a held group with the nodes of its bundles; scheduler/ reserves and releases it.
 *
 * A call of the creator normally waits until the group is held, and removes it at its deadline. The
 * creator of an asynchronous group gets a reply once the store has a record of the group, also one
 * without nodes (pending). Such a group waits for ever, also for nodes that join later; whoever
 * wants to know when it is held asks by "placement_group.wait" (placement_group_waits.c).
 *
 * A group that waits for long has turns (scheduler/ticket.h), in which nodes keep their resources
 * for it.
 *
 * Removal: the group is closed in the store, so that no actor is placed in it any more; the nodes
 * with its bundles, and those that have placed actors in it, end its actors
 * ("placement_group.end"); then the resources are released. An actor of another node that still
 * waits in the group fails at its next attempt, because the group is closed. Each step is
 * repeated while the store or a node fails, because resources that are not given back are lost to
 * the cluster. After a lost lease the records of held groups are written again.
 *
 * Invariant: a group that may be held is never forgotten before it is released. Everything runs
 * on the daemon's loop thread. */

#include "actors/daemon/placement_group_service.h"

#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_table.h"
#include "actors/daemon/peer_daemons.h"
#include "actors/daemon/placement_group_table.h"
#include "actors/daemon/placement_group_waits.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "scheduler/reserve_restore.h"
#include "scheduler/ticket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STORE_DEADLINE_MS = 10000, /* Milliseconds that a request to the store may take. */
    END_THERE_MS = 10000 /* Milliseconds that another node gets to end its actors in a group. */
};

/* Replies to the calls that wait for the removal of the group. */
static void group_notify_removers(struct group_entry *group, tdm_status status, const char *detail)
{
    struct removal_waiter *removal_waiter;

    while ((removal_waiter = group->removers) != NULL) {
        group->removers = removal_waiter->next;
        if (status == TDM_OK) {
            tdm__incoming_reply_pack(removal_waiter->incoming, "");
        } else {
            tdm__incoming_fail(removal_waiter->incoming, status, detail);
        }
        free(removal_waiter);
    }
}

/* True if the store has, or may have, a record of the group, which must be closed and released. */
static bool group_is_in_store(const struct group_entry *group)
{
    return group->is_held || group->is_pending;
}

/* Fails the creator's call, if it still waits. */
static void group_fail_creator(struct group_entry *group, tdm_status status, const char *detail)
{
    if (group->incoming != NULL) {
        tdm__incoming_fail(group->incoming, status, detail);
        group->incoming = NULL;
    }
}

/* Fails the creator's call, confirms the removal to the calls that wait for it, and frees the
 * group. */
static void group_fail(struct group_entry *group, tdm_status status, const char *detail)
{
    group_fail_creator(group, status, detail);
    group_notify_removers(group, TDM_OK, "");
    tdm__group_entry_remove(group);
}

/* ---- remove ----------------------------------------------------------------------------- */

/* Defined below; it releases the group's resources in the store. */
static void group_release_bundles(struct group_entry *group);

/* Defined below; it closes the placement group in the store. */
static void group_close(struct group_entry *group);

/* True if a request to the store failed with `status` in a way that makes repeating the request
 * sensible. */
static bool is_store_failure(const struct tdm__node *node, tdm_status status)
{
    return (status == TDM_E_STORE || status == TDM_E_TIMEOUT) && !node->stopping;
}

/* Handles the store's reply to the release of the group's resources, and repeats the release if
 * necessary. */
static void on_group_removed(void *arg, tdm_status status, const char *detail)
{
    struct group_entry *group = arg;
    struct tdm__node *node = group->node;

    if (status != TDM_OK && !node->stopping) {
        tdm__log(TDM__WARN, "placement_groups", "removing a group: %s: %s", tdm_strerror(status),
                 detail);
    }
    group_notify_removers(group, status, detail);
    if (is_store_failure(node, status)) {
        /* The release is repeated, because resources that are not given back are lost to the
         * cluster. */
        group_release_bundles(group);
        return;
    }
    tdm__group_entry_remove(group);
    node->events->resources_freed(node);
}

/* Releases the group's resources in the store. */
static void group_release_bundles(struct group_entry *group)
{
    struct tdm__placement_group_record named = {.id = group->request.id};

    if (group->node->store == NULL) {
        return; /* The node stops and frees its groups last. */
    }
    memcpy(named.name, group->request.name, sizeof(named.name));
    memcpy(named.name_space, group->request.name_space, sizeof(named.name_space));
    if (tdm__placement_group_release(group->node->store, &named,
                                     tdm__deadline_after(STORE_DEADLINE_MS), on_group_removed,
                                     group) != TDM_OK) {
        group_fail(group, TDM_E_NOMEM, tdm_error_detail());
    }
}

/* Counts one node that has ended its actors in the group `arg`. After the last node it releases the
 * group, or asks the nodes again. */
static void group_on_node_ended(void *arg)
{
    struct group_entry *group = arg;

    group->nodes_pending--;
    if (group->nodes_pending > 0) {
        return;
    }
    if (group->has_unheard_node) {
        group->has_unheard_node = false;
        group->was_asked_again = true;
        group_close(group); /* Closing the group again returns the nodes that are left. */
    } else {
        group_release_bundles(group);
    }
}

/* Handles another node's reply to "placement_group.end". The actors of a lost node are lost with
 * the node. But the first time only the connection may have been cut, so the nodes are asked again.
 */
static void on_end_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct group_entry *group = arg;

    if (reply->status != TDM_OK) {
        tdm__log(TDM__INFO, "placement_groups", "ending a group's actors on another node: %s",
                 reply->detail);
        group->has_unheard_node = group->has_unheard_node ||
                                  is_store_failure(group->node, reply->status) ||
                                  !(group->was_asked_again || group->node->stopping);
    }
    group_on_node_ended(group);
}

/* Matching function: true if the actor was placed in the group with the id `key`. */
static bool match_actor_in_group(const struct tdm__actor_spec *spec, const void *key)
{
    return tdm__id_equal(&spec->group, key);
}

/* Ends the actors in the group on this node and on `nodes`. */
static void group_end_actors(struct group_entry *group, const struct tdm__node_record *nodes,
                             uint32_t nodes_count)
{
    struct tdm__node *node = group->node;

    group->nodes_pending = 2; /* One for this node, and one until all nodes have been asked. */
    for (uint32_t i = 0; i < nodes_count; i++) {
        if (!tdm__id_equal(&nodes[i].id, &node->record.id)) {
            group->nodes_pending++;
            tdm__node_send_id(node, &nodes[i].id, "placement_group.end", &group->request.id,
                              tdm__deadline_after(END_THERE_MS), on_end_reply, group);
        }
    }
    tdm__node_actors_end(node, match_actor_in_group, &group->request.id, true, group_on_node_ended,
                         group);
    group_on_node_ended(group);
}

/* Handles the store's reply to closing the group: ends the group's actors on the nodes in `nodes`.
 */
static void on_group_closed(void *arg, tdm_status status, const char *detail,
                            const struct tdm__placement_group_record *record,
                            const struct tdm__node_record *nodes, uint32_t nodes_count)
{
    struct group_entry *group = arg;

    if (status != TDM_OK) { /* The actors are ended in spite of the failure. */
        tdm__log(TDM__WARN, "placement_groups", "closing a group: %s: %s", tdm_strerror(status),
                 detail);
    }
    /* The list of nodes is not known yet, so closing the group is repeated. */
    if (is_store_failure(group->node, status)) {
        group_notify_removers(group, status, detail);
        tdm__node_actors_end(group->node, match_actor_in_group, &group->request.id, true, NULL,
                             NULL);
        group_close(group);
        return;
    }
    if (record != NULL && group->request.name[0] == '\0') { /* Another node created the group. */
        memcpy(group->request.name, record->name, sizeof(record->name));
        memcpy(group->request.name_space, record->name_space, sizeof(record->name_space));
    }
    group_end_actors(group, nodes, nodes_count);
}

/* Closes the placement group in the store, so that no more actors are placed in it. */
static void group_close(struct group_entry *group)
{
    const struct tdm__placement_group_record closing = {.id = group->request.id,
                                                        .owner_node = group->node->record.id};

    if (group->node->store == NULL) {
        return;
    }
    if (tdm__placement_group_close(group->node->store, &closing,
                                   tdm__deadline_after(STORE_DEADLINE_MS), on_group_closed,
                                   group) != TDM_OK) {
        group_fail(group, TDM_E_NOMEM, tdm_error_detail());
    }
}

/* Starts the removal of the group, unless it has begun. */
static void group_remove(struct group_entry *group)
{
    if (group->is_unwanted) {
        return;
    }
    group->is_unwanted = true;
    tdm__placement_group_waits_fail(group->node, &group->request.id,
                                    "the placement group was removed before it was placed");
    if (group->is_reserving) {
        return; /* on_group_reserved() continues. */
    }
    if (group_is_in_store(group)) {
        group_close(group);
    } else if (group->may_have_ticket) { /* The group has no members. */
        group_fail_creator(group, TDM_E_CANCELED, "the group was removed before it was held");
        group_release_bundles(group);
    } else {
        group_fail(group, TDM_E_CANCELED, "the group was removed before it was held");
    }
}

bool tdm__placement_groups_are_going(const struct tdm__node *node)
{
    const struct group_entry *group;

    TAILQ_FOREACH(group, &node->placement_groups->all, in_all)
    {
        if (group_is_in_store(group) && group->is_unwanted) {
            return true;
        }
    }
    return false;
}

void tdm__placement_groups_creator_gone(struct tdm__node *node, const struct tdm__id *creator)
{
    struct group_entry *next;

    for (struct group_entry *group = TAILQ_FIRST(&node->placement_groups->all); group != NULL;
         group = next) {
        next = TAILQ_NEXT(group, in_all);
        if (tdm__id_equal(&group->creator, creator) &&
            !(group_is_in_store(group) && group->request.detached)) {
            group_remove(group);
        }
    }
}

/* ---- create ----------------------------------------------------------------------------- */

/* Stores a copy of the group's record in the group, so that the record can be written again.
 * Without a copy the group is lost if the store loses its data. */
static void group_keep_record(struct group_entry *group,
                              const struct tdm__placement_group_record *record)
{
    if (tdm__placement_group_record_pack(record, &group->packed_record,
                                         &group->packed_record_bytes) != TDM_OK) {
        tdm__log(TDM__WARN, "placement_groups", "a group's record is not kept: %s",
                 tdm_error_detail());
    }
}

/* Fails the creator's call and removes a group whose reservation had an unclear result: the store
 * may have reserved its resources. */
static void group_remove_unconfirmed(struct group_entry *group, tdm_status status,
                                     const char *detail)
{
    tdm__timer_clear(group->timer);
    group_fail_creator(group, status, detail);
    tdm__group_entry_set_held(group);
    group->is_unwanted = false;
    group_remove(group);
}

/* Handles the success of a reservation: replies to the calls that wait for it, and lets the actors
 * that wait in the group be placed. */
static void group_on_held(struct group_entry *group,
                          const struct tdm__placement_group_record *record)
{
    bool was_pending = group->is_pending;

    tdm__group_entry_set_held(group);
    group->is_pending = false;
    group_keep_record(group, record);
    if (group->incoming != NULL) {
        tdm__placement_group_reply(group->incoming, record, NULL);
        group->incoming = NULL;
    }
    tdm__timer_clear(group->timer);
    if (group->is_unwanted) {
        group->is_unwanted = false;
        group_remove(group);
        return;
    }
    if (was_pending) {
        tdm__placement_group_waits_end(group->node, record);
        group->node->events->resources_freed(group->node);
    }
}

/* Lets the group wait until resources may have come free. The creator of an asynchronous group gets
 * its reply. */
static void group_wait_for_resources(struct group_entry *group, tdm_status status,
                                     const char *detail)
{
    tdm__group_entry_set_wait_reason(group, detail);
    group->waiting_since_ms += group->waiting_since_ms == 0 ? tdm__clock_ms() : 0;
    if (group->is_pending && group->incoming != NULL) {
        const struct placement_group_pending pending = {status == TDM_E_NO_RESOURCES, detail};

        tdm__placement_group_reply_pending(group->incoming, &group->request, &pending);
        group->incoming = NULL;
        tdm__timer_clear(group->timer);
    }
}

/* Handles the scheduler's result of reserving the group: the group is held, waits for resources, or
 * fails. */
static void on_group_reserved(void *arg, tdm_status status, const char *detail,
                              const struct tdm__placement_group_record *record)
{
    struct group_entry *group = arg;
    bool may_come_free =
        status == TDM_E_AGAIN ||
        (status == TDM_E_NO_RESOURCES &&
         (group->request.keeps_pending || tdm__lease_status_was_lost(&group->node->lease_status)));

    group->is_reserving = false;
    if (status == TDM_OK) {
        group_on_held(group, record);
        return;
    }
    /* The scheduler has written an asynchronous group as pending, unless it has to wait for its
     * name: then another group may get the name, and the creator waits, too. */
    group->is_pending = group->is_pending || record != NULL;
    if (may_come_free && !group->is_unwanted) {
        group_wait_for_resources(group, status, detail);
    } else if (group->is_pending && is_store_failure(group->node, status) && !group->is_unwanted) {
        return; /* The reservation is tried again after a second. */
    } else if (group->is_pending || group->may_have_ticket ||
               is_store_failure(group->node, status)) {
        group_remove_unconfirmed(group, status, detail);
    } else {
        group_fail(group, status, detail);
    }
}

/* Asks the scheduler to reserve the group. */
static void group_reserve(struct group_entry *group)
{
    int64_t since_ms = group->waiting_since_ms;

    group->is_reserving = true;
    group->request.view = &group->node->store_view;
    group->request.turn = since_ms == 0 ? 0 : tdm__ticket_turn(tdm__clock_ms() - since_ms);
    group->request.ticket_number = &group->ticket_number;
    group->may_have_ticket = group->may_have_ticket || group->request.turn > 0;
    if (tdm__placement_group_reserve(group->node->store, &group->request,
                                     tdm__deadline_after(STORE_DEADLINE_MS), on_group_reserved,
                                     group) != TDM_OK) {
        group->is_reserving = false;
        group_fail(group, TDM_E_NOMEM, tdm_error_detail());
    }
}

void tdm__placement_groups_retry(struct tdm__node *node)
{
    struct group_entry *next;

    if (node->stopping || node->placement_groups == NULL) {
        return;
    }
    tdm__placement_group_waits_retry(node);
    for (struct group_entry *group = TAILQ_FIRST(&node->placement_groups->all);
         group != NULL && !group->is_held; group = next) {
        next = TAILQ_NEXT(group, in_all);
        if (!group->is_reserving && !group->is_unwanted) {
            group_reserve(group);
        }
    }
}

/* ---- written again ---------------------------------------------------------------------- */

/* A request to write a group's record into the store again; the group may be gone when the reply
 * arrives. */
struct group_rewrite {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    struct tdm__id id;      /* Id of the group. */
};

/* Handles the store's reply to writing a group's record again. */
static void on_group_rewritten(void *arg, tdm_status status, const char *detail)
{
    struct group_rewrite rewrite = *(struct group_rewrite *)arg;
    struct group_entry *group = tdm__group_entry_find(rewrite.node, &rewrite.id);

    free(arg);
    if (group == NULL) {
        return;
    }
    group->is_rewriting = false;
    if (status == TDM_OK) {
        group->record_is_lost = false;
    } else {
        tdm__log(TDM__INFO, "placement_groups", "writing a lost group again: %s", detail);
    }
}

/* Reads the copy of the group's record. The caller frees it with
 * tdm__placement_group_record_fini(). */
static tdm_status group_read_record(const struct group_entry *group,
                                    struct tdm__placement_group_record *record_out)
{
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record stored = {
        .key = tdm__store_key("group", &group->request.id, key),
        .bytes = {group->packed_record, group->packed_record_bytes}};

    return tdm__placement_group_record_read(&stored, record_out);
}

/* Writes the group's record into the store again. */
static void group_rewrite_record(struct group_entry *group)
{
    struct tdm__node *node = group->node;
    struct tdm__placement_group_record record;
    struct group_rewrite *rewrite = malloc(sizeof(*rewrite));
    bool without_lost = tdm__clock_ms() - group->lost_since_ms >
                        tdm__node_lease_ms(&node->record) + TDM__NODE_GRACE_MS;

    if (rewrite == NULL || group_read_record(group, &record) != TDM_OK) {
        free(rewrite);
        return; /* The rewrite is tried again after a second. */
    }
    *rewrite = (struct group_rewrite){node, group->request.id};
    group->is_rewriting =
        tdm__placement_group_restore(node->store, &record, without_lost, &node->store_view,
                                     tdm__deadline_after(STORE_DEADLINE_MS), on_group_rewritten,
                                     rewrite) == TDM_OK;
    tdm__placement_group_record_fini(&record);
    if (!group->is_rewriting) {
        free(rewrite);
    }
}

void tdm__placement_groups_records_lost(struct tdm__node *node)
{
    struct group_entry *group;

    TAILQ_FOREACH(group, &node->placement_groups->all, in_all)
    {
        if (group->is_held && !group->is_unwanted && group->packed_record != NULL) {
            group->record_is_lost = true;
            group->lost_since_ms = tdm__clock_ms();
        }
    }
}

void tdm__placement_groups_rewrite(struct tdm__node *node)
{
    struct group_entry *group;

    if (node->lease_status.is_joining) {
        return;
    }
    TAILQ_FOREACH(group, &node->placement_groups->all, in_all)
    {
        if (group->record_is_lost && !group->is_rewriting && !group->is_unwanted) {
            group_rewrite_record(group);
        }
    }
}

bool tdm__placement_groups_are_written(const struct tdm__node *node)
{
    const struct group_entry *group;

    TAILQ_FOREACH(group, &node->placement_groups->all, in_all)
    {
        if (group->record_is_lost && !group->is_unwanted) {
            return false;
        }
    }
    return true;
}

struct tdm__id *tdm__placement_groups_ids(const struct tdm__node *node, uint32_t *count_out)
{
    struct tdm__id *ids = calloc(node->placement_groups->count + 1u, sizeof(*ids));
    const struct group_entry *group;

    TDM_ASSERT(ids != NULL);
    *count_out = 0;
    TAILQ_FOREACH(group, &node->placement_groups->all, in_all)
    {
        ids[(*count_out)++] = group->request.id;
    }
    return ids;
}

/* Handles the time-out of the creator's call: fails the call with TDM_E_TIMEOUT and removes the
 * group. */
static void on_group_timer(void *arg)
{
    struct group_entry *group = arg;

    group_fail_creator(group, TDM_E_TIMEOUT, group->wait_reason == NULL ? "" : group->wait_reason);
    group_remove(group);
}

/* Copies the bundles of the message "placement_group.create" into the group. */
static tdm_status group_read_bundles(const struct tdm__message_list *bundles,
                                     struct group_entry *group)
{
    uint32_t count = bundles->count;

    if (count == 0 || count > TDM_BUNDLES_MAX) {
        return tdm__fail(TDM_E_INVAL, "a placement group has 1 to %d bundles, not %u",
                         (int)TDM_BUNDLES_MAX, count);
    }
    group->bundles = calloc(count, sizeof(*group->bundles));
    if (group->bundles == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct tdm__resources_message bundle;

        tdm__message_list_read(bundles, i, &bundle, sizeof(bundle));
        TDM_TRY(tdm__resources_of_message(&bundle, &group->bundles[i]));
    }
    group->request.bundles = group->bundles;
    group->request.bundles_count = count;
    return TDM_OK;
}

/* Copies the name or name space `text` of a group to `name`; TDM_E_INVAL if it is too long. */
static tdm_status group_copy_name(const char *text, char name[TDM__PLACEMENT_GROUP_NAME_BYTES])
{
    if (strlen(text) >= TDM__PLACEMENT_GROUP_NAME_BYTES) {
        return tdm__fail(TDM_E_INVAL, "a group's name or name space of %zu bytes, at most %d",
                         strlen(text), (int)TDM__PLACEMENT_GROUP_NAME_BYTES - 1);
    }
    memcpy(name, text, strlen(text) + 1);
    return TDM_OK;
}

/* Returns the process with which a group of the process `peer` ends: the driver of its job if it is
 * an actor whose creators, up to that driver, are all on this node; else `peer` itself. */
static struct tdm__id job_or_peer(struct tdm__node *node, const struct tdm__id *peer)
{
    const struct actor_entry *entry = tdm__actor_entry_find(node, peer);
    struct tdm__id ancestor = *peer;
    struct tdm__id job = entry == NULL ? *peer : entry->spec->job;

    while (entry != NULL && tdm__id_is_none(&entry->owner_node) && !entry->spec->detached) {
        ancestor = entry->spec->creator;
        entry = tdm__actor_entry_find(node, &ancestor);
    }
    return entry == NULL && tdm__id_equal(&ancestor, &job) ? job : *peer;
}

/* Reads the arguments of "placement_group.create" into the group. */
static tdm_status group_read_request(struct tdm__incoming_call *incoming, struct group_entry *group)
{
    struct tdm__placement_group_request *request = &group->request;
    struct tdm__group_create_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__group_create_table(), &message));
    if (message.strategy < TDM_PACK || message.strategy > TDM_STRICT_SPREAD) {
        return tdm__fail(TDM_E_INVAL, "no placement strategy has the number %lld",
                         (long long)message.strategy);
    }
    request->strategy = (enum tdm_placement_strategy)message.strategy;
    request->bundles_together = message.bundles_together;
    request->detached = message.detached;
    request->keeps_pending = message.asynchronous;
    group->creator = tdm__incoming_peer(incoming)->id;
    if (message.of_job) {
        group->creator = job_or_peer(group->node, &group->creator);
    }
    request->owner_node = group->node->record.id;
    TDM_TRY(group_copy_name(message.name_space, request->name_space));
    TDM_TRY(group_copy_name(message.name, request->name));
    TDM_TRY(tdm__timer_create(group->node->loop, on_group_timer, group, &group->timer));
    return group_read_bundles(&message.bundles, group);
}

/* Serves the call "placement_group.create": replies when the group's resources are reserved, or
 * fails at the deadline. */
static void serve_create(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct group_entry *group = NULL;
    struct tdm__id id;
    tdm_status status = tdm__id_generate(&id);

    if (status == TDM_OK) {
        group = tdm__group_entry_add(node, &id);
    }
    if (group == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a group");
        return;
    }
    status = group_read_request(incoming, group);
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        tdm__group_entry_remove(group);
        return;
    }
    group->incoming = incoming;
    tdm__group_entry_set_wait_reason(group, "the cluster's store has not answered yet");
    if (tdm__incoming_deadline(incoming) != TDM__NEVER) {
        /* The timer fires a little before the caller's deadline, so that the caller gets the
         * reason. */
        (void)tdm__timer_set(group->timer, tdm__incoming_deadline(incoming) - 20);
    }
    group_reserve(group);
}

/* ---- find, remove, end ------------------------------------------------------------------ */

/* Handles the store's reply with a group's record: replies to the call "placement_group.find",
 * `arg`. */
static void on_group_found(void *arg, tdm_status status, const char *detail,
                           const struct tdm__placement_group_record *record)
{
    if (status == TDM_OK) {
        tdm__placement_group_reply(arg, record, NULL);
    } else {
        tdm__incoming_fail(arg, status, detail);
    }
}

/* Reads the arguments of "placement_group.find": the group's id or, if the id is all zeros, its
 * name. */
static tdm_status group_read_query(struct tdm__incoming_call *incoming,
                                   struct tdm__placement_group_query *query)
{
    struct tdm__group_find_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__group_find_table(), &message));
    query->id = message.id;
    TDM_TRY(group_copy_name(message.name_space, query->name_space));
    return group_copy_name(message.name, query->name);
}

/* Serves the call "placement_group.find": looks the group up in the store. */
static void serve_find(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct tdm__placement_group_query query = {0};
    tdm_status status = group_read_query(incoming, &query);

    if (status == TDM_OK) {
        status = tdm__placement_group_find(
            node->store, &query, tdm__deadline_after(STORE_DEADLINE_MS), on_group_found, incoming);
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* Reads the id that is the only argument of a call. */
static tdm_status group_read_id(struct tdm__incoming_call *incoming, struct tdm__id *id)
{
    struct tdm__id_request_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__id_request_table(), &message));
    *id = message.id;
    return TDM_OK;
}

/* Returns the group to be removed. If the group is not in the table (another node created it, or it
 * is gone), a held group with the id is added. NULL without memory. */
static struct group_entry *group_find_or_add(struct tdm__node *node, const struct tdm__id *id)
{
    struct group_entry *group = tdm__group_entry_find(node, id);

    if (group == NULL) {
        group = tdm__group_entry_add(node, id);
        if (group != NULL) {
            tdm__group_entry_set_held(group);
        }
    }
    return group;
}

void tdm__placement_group_orphaned(struct tdm__node *node, const struct tdm__id *id)
{
    struct group_entry *group = group_find_or_add(node, id);

    if (group != NULL) {
        group_remove(group);
    }
}

/* Serves "placement_group.remove". The removal may have begun already, for another process or with
 * its creator's end. */
static void serve_remove(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct removal_waiter *removal_waiter;
    struct group_entry *group;
    struct tdm__id id;

    if (group_read_id(incoming, &id) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    removal_waiter = malloc(sizeof(*removal_waiter));
    group = removal_waiter == NULL ? NULL : group_find_or_add(node, &id);
    if (group == NULL) {
        free(removal_waiter);
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a group");
        return;
    }
    *removal_waiter = (struct removal_waiter){group->removers, incoming};
    group->removers = removal_waiter;
    group_remove(group);
}

/* A call "placement_group.end": another node removes a group and asks this node to end its actors
 * in that group. */
struct remote_group_removal {
    struct tdm__node *node;              /* State of this node's daemon, borrowed. */
    struct tdm__incoming_call *incoming; /* The call, to which the daemon must reply, owned. */
    struct tdm__id group;                /* Id of the group. */
};

/* Replies to the node that removes a group when the group's actors on this node have ended, and
 * drops this node's entry of the group. */
static void on_actors_ended_for_other(void *arg)
{
    struct remote_group_removal removal = *(struct remote_group_removal *)arg;
    struct group_entry *group = tdm__group_entry_find(removal.node, &removal.group);

    free(arg);
    tdm__incoming_reply_pack(removal.incoming, "");
    if (group == NULL || !group->removed_elsewhere) {
        return;
    }
    group->removed_elsewhere = false;
    if (group->removers != NULL) {
        /* Calls of this node wait for the whole removal, which may be repeated without harm. */
        group_close(group);
    } else {
        tdm__group_entry_remove(group);
    }
}

/* Serves the call "placement_group.end" of another node's daemon: ends this node's actors in the
 * group. */
static void serve_end(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct remote_group_removal *removal = malloc(sizeof(*removal));
    struct tdm__id id;
    struct group_entry *group;

    if (removal == NULL || tdm__incoming_peer(incoming)->kind != TDM__PEER_DAEMON ||
        group_read_id(incoming, &id) != TDM_OK) {
        free(removal);
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL,
                           "placement_group.end takes (id), from a daemon");
        return;
    }
    *removal = (struct remote_group_removal){node, incoming, id};
    group = tdm__group_entry_find(node, &id);
    if (group != NULL && !group->is_unwanted) {
        group->is_unwanted = true; /* The record must not be written again. */
        group->removed_elsewhere = group_is_in_store(group) && !group->is_reserving;
        tdm__placement_group_waits_fail(node, &id, "another process removed the placement group");
    }
    tdm__node_actors_end(node, match_actor_in_group, &id, true, on_actors_ended_for_other, removal);
}

/* Serves the calls of the service "placement_group"; `self` is the node. */
static void placement_group_serve(void *self, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);

    if (strcmp(method, "placement_group.create") == 0) {
        serve_create(self, incoming);
    } else if (strcmp(method, "placement_group.find") == 0) {
        serve_find(self, incoming);
    } else if (strcmp(method, "placement_group.wait") == 0) {
        tdm__placement_group_waits_serve(self, incoming);
    } else if (strcmp(method, "placement_group.remove") == 0) {
        serve_remove(self, incoming);
    } else if (strcmp(method, "placement_group.end") == 0) {
        serve_end(self, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    }
}

const struct tdm__service_ops tdm__placement_group_service = {.prefix = "placement_group",
                                                              .serve = placement_group_serve};

tdm_status tdm__placement_groups_create(struct tdm__node *node)
{
    TDM_TRY(tdm__placement_group_table_create(node));
    return tdm__placement_group_waits_create(node);
}

void tdm__placement_groups_destroy(struct tdm__node *node)
{
    struct group_entry *group;

    while (node->placement_groups != NULL &&
           (group = TAILQ_FIRST(&node->placement_groups->all)) != NULL) {
        group_fail(group, TDM_E_CANCELED, "the node has stopped");
    }
    tdm__placement_group_table_destroy(node);
    tdm__placement_group_waits_destroy(node);
}
