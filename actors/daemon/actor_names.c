/* actor_names.c - queries for the actor that holds a name, on whatever node it runs. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A query by name reads name/... of the store and then asks the actor's node what callers must know
 * of the actor ("actor.identify"); the lifecycle uses the same for get_if_exists. The reply has the
 * actor's addresses if the actor is constructed; otherwise the caller awaits the actor by its id
 * ("actor.await"). So a query does not take as long as a constructor.
 *
 * If the name is not in the store, it may be that of an actor of this table that has not got its
 * name yet. It is found as soon as it is placed, or waits for a place. If another actor gets the
 * name instead, the store is asked again.
 *
 * Invariant: each query owns its incoming call, or belongs to an entry of the table, and replies
 * exactly once, then frees itself. Everything runs on the daemon's loop thread. */

#include "actors/daemon/actor_names.h"

#include "actors/daemon/actor_table.h"
#include "actors/daemon/peer_daemons.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/store/txn.h"
#include "scheduler/retrying_txn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_UP_MS = 5000 }; /* Milliseconds for reading a record from the store. */

/* A query for the actor that holds a name. Either a call asks, or an actor of this node with
 * get_if_exists that wants the holder of its own name. */
struct name_query {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    /* Call that asks, to which the daemon must reply, owned; NULL if an actor's entry asks. */
    struct tdm__incoming_call *incoming;
    /* Id of the actor whose entry asks; all zeros if a call asks. */
    struct tdm__id entry;
    char name[2 * TDM__ACTOR_NAME_BYTES]; /* Wanted name and its name space, for messages. */
    char key[TDM__STORE_KEY_BYTES];       /* Key of the record of the wanted name. */
    bool asked_owner_node;                /* True once the owner's node was asked. */
    bool asked_store_again;               /* True once the store was asked a second time. */
    bool asked_new;                       /* True if the actor asked had no name in the store. */
    /* Record of the actor that holds the name, as read from the store. */
    struct tdm__actor_record record;
    /* Reply with the message actor_found of the actor that holds the name, borrowed while it is
     * passed on; NULL otherwise. */
    const struct tdm__rpc_reply *reply;
};

/* Returns the entry of the actor that asks for the holder of its name, or NULL if that actor is
 * gone or a call asks. */
static struct actor_entry *name_query_entry(const struct name_query *name_query)
{
    return name_query->node->actors == NULL
               ? NULL
               : tdm__actor_entry_find(name_query->node, &name_query->entry);
}

/* Replies to one call with the actor found; `arg` is the name query. */
static void query_reply_found(void *arg, struct tdm__incoming_call *incoming)
{
    tdm__incoming_reply(incoming, ((const struct name_query *)arg)->reply->packed, NULL, 0);
}

/* Replies with the found actor to the call that asks, or to the calls that wait for the actor that
 * asks. Frees the query. */
static void name_query_succeed(struct name_query *name_query)
{
    struct actor_entry *entry;

    if (name_query->incoming != NULL) {
        query_reply_found(name_query, name_query->incoming);
    } else if ((entry = name_query_entry(name_query)) != NULL) {
        tdm__actor_entry_reply_waiters(entry, WAITER_FOR_START, query_reply_found, name_query);
        tdm__actor_entry_reply_waiters(entry, WAITER_FOR_NAME, query_reply_found, name_query);
        tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_HOLDER_FOUND});
    }
    free(name_query);
}

/* Reports that no actor with the name was found, and frees the query. */
static void name_query_fail(struct name_query *name_query, tdm_status status, const char *detail)
{
    struct actor_entry *entry;

    if (name_query->incoming != NULL) {
        tdm__incoming_fail(name_query->incoming, status, detail);
    } else if ((entry = name_query_entry(name_query)) != NULL) {
        tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_HOLDER_NOT_FOUND,
                                                            .status = status,
                                                            .detail = detail});
    }
    free(name_query);
}

/* Returns the deadline of the call that asks, or TDM__NEVER if an actor's entry asks. */
static int64_t name_query_deadline(const struct name_query *name_query)
{
    return name_query->incoming == NULL ? TDM__NEVER : tdm__incoming_deadline(name_query->incoming);
}

/* Defined below; it asks the store for the holder of the name. */
static void name_query_look_up(struct name_query *name_query);

/* Handles the reply of the actor that holds the name or was about to get it. Asks the owner's node
 * if the actor's node is lost, and the store if another actor got the name. */
static void on_identified(void *arg, struct tdm__rpc_reply *reply)
{
    struct name_query *name_query = arg;
    const struct tdm__actor_record *record = &name_query->record;
    char detail[TDM__ERROR_DETAIL_BYTES];

    if (reply->status == TDM_OK) {
        name_query->reply = reply;
        name_query_succeed(name_query);
    } else if ((reply->status == TDM_E_EXISTS || reply->status == TDM_E_ACTOR_DIED) &&
               name_query->asked_new && !name_query->asked_store_again) {
        name_query->asked_store_again = true;
        name_query_look_up(name_query);
    } else if (reply->status == TDM_E_NODE_LOST && record->recreate_on_node_loss &&
               !name_query->asked_owner_node) {
        name_query->asked_owner_node = true;
        tdm__node_query_actor(name_query->node, &record->owner_node, "actor.identify",
                              &record->actor, name_query_deadline(name_query), on_identified,
                              name_query);
        /* The actor has ended, and its name is about to be free. */
    } else if (reply->status == TDM_E_ACTOR_DIED) {
        (void)snprintf(detail, sizeof(detail), "no actor is called %s any more: %s",
                       name_query->name, reply->detail);
        name_query_fail(name_query, TDM_E_NOT_FOUND, detail);
    } else if (reply->status == TDM_E_NODE_LOST) {
        name_query_fail(name_query,
                        tdm__node_peer_explain(name_query->node,
                                               name_query->asked_owner_node ? &record->owner_node
                                                                            : &record->node,
                                               reply->detail, detail, sizeof(detail)),
                        detail);
    } else {
        name_query_fail(name_query, reply->status, reply->detail);
    }
}

/* Body of the transaction that reads the record of the actor that holds the name. */
static tdm_status name_query_body(void *arg, struct tdm__txn *txn)
{
    struct name_query *name_query = arg;

    if (tdm__txn_records_count(txn) == 0) {
        return tdm__fail(TDM_E_NOT_FOUND, "no actor is called %s", name_query->name);
    }
    return tdm__actor_record_read(tdm__txn_record_at(txn, 0), &name_query->record);
}

/* Returns the wanted actor of this table that has the name for which a call asks, or will get it;
 * NULL if there is none, or if no call asks. */
static struct actor_entry *name_query_find_local(const struct name_query *name_query)
{
    struct tdm__actor_find_message message;

    if (name_query->incoming == NULL || name_query->node->actors == NULL ||
        tdm__incoming_decode(name_query->incoming, tdm__actor_find_table(), &message) != TDM_OK) {
        return NULL;
    }
    for (struct actor_entry *entry = name_query->node->actors->all; entry != NULL;
         entry = entry->next) {
        if (entry->lifecycle.demand < ACTOR_UNWANTED &&
            strcmp(entry->spec->name, message.name) == 0 &&
            strcmp(entry->spec->name_space, message.name_space) == 0) {
            return entry;
        }
    }
    return NULL;
}

/* Handles the store's reply that nobody has the name. It may be that of an actor which is being
 * created: then that actor is asked, or, if it has just been placed on another node, the store is
 * asked again. */
static void name_query_find_new(struct name_query *name_query, const char *detail)
{
    const struct actor_entry *entry = name_query_find_local(name_query);
    enum actor_state state = entry == NULL ? ACTOR_ENDED : entry->lifecycle.state;

    if (state < ACTOR_ENDING && state != ACTOR_CONSTRUCTOR_FAILED) {
        name_query->asked_new = true;
        tdm__node_query_actor(name_query->node, &name_query->node->record.id, "actor.identify",
                              &entry->spec->id, name_query_deadline(name_query), on_identified,
                              name_query);
    } else if (tdm__actor_state_is_remote(state) && !name_query->asked_store_again) {
        name_query->asked_store_again = true;
        name_query_look_up(name_query);
    } else {
        name_query_fail(name_query, TDM_E_NOT_FOUND, detail);
    }
}

/* Handles the store's reply with the holder of the name: asks the node of that actor. */
static void on_name_looked_up(void *arg, tdm_status status, const char *detail)
{
    struct name_query *name_query = arg;

    if (status == TDM_E_NOT_FOUND) {
        name_query_find_new(name_query, detail);
        return;
    }
    if (status != TDM_OK) {
        name_query_fail(name_query, status, detail);
        return;
    }
    name_query->asked_new = false;
    tdm__node_query_actor(name_query->node, &name_query->record.node, "actor.identify",
                          &name_query->record.actor, name_query_deadline(name_query), on_identified,
                          name_query);
}

/* Reads the record of the actor that holds the name from the store. */
static void name_query_look_up(struct name_query *name_query)
{
    const char *patterns[] = {name_query->key};

    if (tdm__retrying_txn_run(name_query->node->store, patterns, 1, tdm__deadline_after(LOOK_UP_MS),
                              name_query_body, on_name_looked_up, name_query) != TDM_OK) {
        name_query_fail(name_query, TDM_E_INVAL, tdm_error_detail());
    }
}

/* Starts a query for the actor that holds `name`. `wanted` says who asks: its fields `node`,
 * `incoming` and `entry` are copied. */
static void name_query_start(const struct name_query *wanted, const char *name_space,
                             const char *name)
{
    struct name_query *name_query = malloc(sizeof(*name_query));

    TDM_ASSERT(name_query != NULL);
    *name_query = *wanted;
    (void)snprintf(name_query->name, sizeof(name_query->name), "%s in name space %s", name,
                   name_space);
    (void)tdm__name_key("name", name_space, name, name_query->key);
    name_query_look_up(name_query);
}

void tdm__actor_entry_reply_name_holder(struct actor_entry *entry)
{
    struct name_query name_query = {.node = entry->node, .entry = entry->spec->id};

    name_query_start(&name_query, entry->spec->name_space, entry->spec->name);
}

void tdm__node_serve_actor_find(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct tdm__actor_find_message message;
    tdm_status status = tdm__incoming_decode(incoming, tdm__actor_find_table(), &message);

    if (status == TDM_OK) {
        status = tdm__check_name("actor name", message.name);
    }
    if (status == TDM_OK) {
        status = tdm__check_name("name space", message.name_space);
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        return;
    }
    name_query_start(&(struct name_query){.node = node, .incoming = incoming}, message.name_space,
                     message.name);
}
