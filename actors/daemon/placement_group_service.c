/* placement_group_service.c - the calls about placement placement_groups that a daemon answers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/node.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORE_DEADLINE_MS = 10000, END_THERE_MS = 10000 };

/* Who waits for a group to be gone. */
struct group_remover {
    struct group_remover *next;
    struct tdm__incoming_call *incoming;
};

/* A group that a process of this node made, or asks for, or has removed. */
struct group {
    struct group *next;
    struct tdm__node *node;                      /* borrowed */
    struct tdm__id creator;                      /* none: made elsewhere */
    struct tdm__resources *wanted;               /* owned */
    struct tdm__placement_group_request request; /* what it is to be */
    struct tdm__incoming_call *incoming;         /* who waits for it to be held; NULL afterwards */
    struct group_remover *removers;              /* owned */
    struct tdm__timer *timer; /* ends the waiting; NULL if it was made elsewhere */
    uint32_t ending;          /* nodes whose actors in it are not gone yet */
    bool unheard;             /* one of them did not say so: all are asked again */
    bool asked_again;
    char why[512];                             /* it does not fit now */
    struct tdm__placement_group_record record; /* owned; its places, once it is held */
    bool record_is_lost;       /* this node joined again: the store may not know it any more */
    bool group_record_rewrite; /* and is being told */
    int64_t lost_since_ms;
    bool planning; /* a reservation is under way */
    bool held;
    bool unwanted;
    bool removed_elsewhere; /* another node gives its places back */
};

struct tdm__node_placement_groups {
    struct group *all;
};

static void group_free(struct group *group)
{
    struct group **place = &group->node->placement_groups->all;

    while (*place != group) {
        place = &(*place)->next;
    }
    *place = group->next;
    tdm__timer_destroy(group->timer);
    tdm__placement_group_record_fini(&group->record);
    free(group->wanted);
    free(group);
}

static void group_notify_removers(struct group *group, tdm_status status, const char *detail)
{
    struct group_remover *group_remover;

    while ((group_remover = group->removers) != NULL) {
        group->removers = group_remover->next;
        if (status == TDM_OK) {
            tdm__incoming_reply_pack(group_remover->incoming, "");
        } else {
            tdm__incoming_fail(group_remover->incoming, status, detail);
        }
        free(group_remover);
    }
}

static void group_fail(struct group *group, tdm_status status, const char *detail)
{
    if (group->incoming != NULL) {
        tdm__incoming_fail(group->incoming, status, detail);
    }
    group_notify_removers(group, TDM_OK, "");
    group_free(group);
}

/* ---- remove ----------------------------------------------------------------------------- */

static void group_release_bundles(struct group *group);

static void group_close(struct group *group);

/* What failed so has not failed for good. */
static bool group_is_satisfiable(const struct tdm__node *node, tdm_status status)
{
    return (status == TDM_E_STORE || status == TDM_E_TIMEOUT) && !node->stopping;
}

static void on_group_removed(void *arg, tdm_status status, const char *detail)
{
    struct group *group = arg;
    struct tdm__node *node = group->node;

    if (status != TDM_OK && !node->stopping) {
        tdm__log(TDM__WARN, "placement_groups", "removing a group: %s: %s", tdm_strerror(status),
                 detail);
    }
    group_notify_removers(group, status, detail);
    if (group_is_satisfiable(node, status)) {
        group_release_bundles(group); /* what is not given back is lost to all */
        return;
    }
    group_free(group);
    tdm__node_actors_retry(node);
    tdm__placement_groups_retry(node);
}

static void group_release_bundles(struct group *group)
{
    struct tdm__placement_group_record named = group->record;

    if (group->node->store == NULL) {
        return; /* the node stops, and frees its placement_groups last */
    }
    named.id = group->request.id;
    if (tdm__placement_group_release(group->node->store, &named,
                                     tdm__deadline_after(STORE_DEADLINE_MS), on_group_removed,
                                     group) != TDM_OK) {
        group_fail(group, TDM_E_NOMEM, tdm_error_detail());
    }
}

static void on_remote_node_ended(void *arg)
{
    struct group *group = arg;

    group->ending--;
    if (group->ending > 0) {
        return;
    }
    if (group->unheard) {
        group->unheard = false;
        group->asked_again = true;
        group_close(group); /* which says what nodes there are now */
    } else {
        group_release_bundles(group);
    }
}

/* A lost node's actors are lost with it.  But the first time a connection may just have been
 * cut; and a node that is only slow is there, or loses its lease. */
static void on_ended_there(void *arg, struct tdm__rpc_reply *reply)
{
    struct group *group = arg;

    if (reply->status != TDM_OK) {
        tdm__log(TDM__INFO, "placement_groups", "ending a group's actors on another node: %s",
                 reply->detail);
        group->unheard = group->unheard || group_is_satisfiable(group->node, reply->status) ||
                         !(group->asked_again || group->node->stopping);
    }
    on_remote_node_ended(group);
}

static bool is_in_group(const struct tdm__actor_spec *spec, const void *key)
{
    return tdm__id_equal(&spec->group, key);
}

/* Any node may have made actors in it. */
static void end_actors(struct group *group, const struct tdm__nodes_snapshot *nodes)
{
    struct tdm__node *node = group->node;

    group->ending = 2; /* this node, and one until all have been asked */
    for (uint32_t i = 0; i < nodes->nodes_count; i++) {
        if (!tdm__id_equal(&nodes->nodes[i].id, &node->record.id)) {
            group->ending++;
            tdm__node_query_actor(node, &nodes->nodes[i].id, "placement_group.end",
                                  &group->request.id, tdm__deadline_after(END_THERE_MS),
                                  on_ended_there, group);
        }
    }
    tdm__node_actors_end(node, is_in_group, &group->request.id, true, on_remote_node_ended, group);
    on_remote_node_ended(group);
}

static void on_group_closed(void *arg, tdm_status status, const char *detail,
                            const struct tdm__placement_group_record *record,
                            const struct tdm__nodes_snapshot *nodes)
{
    struct group *group = arg;

    if (status != TDM_OK) { /* the actors end all the same */
        tdm__log(TDM__WARN, "placement_groups", "closing a group: %s: %s", tdm_strerror(status),
                 detail);
    }
    if (group_is_satisfiable(group->node, status)) { /* what nodes there are is not known yet */
        group_notify_removers(group, status, detail);
        tdm__node_actors_end(group->node, is_in_group, &group->request.id, true, NULL, NULL);
        group_close(group);
        return;
    }
    if (record != NULL && group->record.name[0] == '\0') {
        memcpy(group->record.name, record->name, sizeof(record->name));
        memcpy(group->record.name_space, record->name_space, sizeof(record->name_space));
    }
    end_actors(group, nodes);
}

static void group_close(struct group *group)
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

static void group_remove(struct group *group)
{
    if (group->unwanted) {
        return;
    }
    group->unwanted = true;
    if (group->held) {
        group_close(group);
    } else if (!group->planning) {
        group_fail(group, TDM_E_CANCELED, "the group was removed before it was held");
    }
}

bool tdm__placement_groups_are_going(const struct tdm__node *node)
{
    for (const struct group *group = node->placement_groups->all; group != NULL;
         group = group->next) {
        if (group->held && group->unwanted) {
            return true;
        }
    }
    return false;
}

void tdm__placement_groups_creator_gone(struct tdm__node *node, const struct tdm__id *creator)
{
    struct group *next;

    for (struct group *group = node->placement_groups->all; group != NULL; group = next) {
        next = group->next;
        if (tdm__id_equal(&group->creator, creator) && !(group->held && group->request.detached)) {
            group_remove(group);
        }
    }
}

/* ---- create ----------------------------------------------------------------------------- */

struct places {
    const struct tdm__placement_group_record *record;
    char node_id[TDM__ID_TEXT_BYTES]; /* Text of the place that was read last. */
};

static void get_place(const void *arg, uint32_t index, void *item_out)
{
    struct places *places = (struct places *)(uintptr_t)arg;
    const struct tdm__bundle_record *bundle = &places->record->bundles[index];
    struct tdm__bundle_place_message *item = item_out;

    *item = (struct tdm__bundle_place_message){
        .node_id = tdm__id_text(&bundle->node, places->node_id),
        .gpu_indices = {.count = bundle->grant.gpus_count, .items = bundle->grant.gpu_indices}};
}

static void group_reply_held(struct tdm__incoming_call *incoming,
                             const struct tdm__placement_group_record *record)
{
    struct places places = {.record = record};
    const struct tdm__group_places_message message = {
        .id = record->id,
        .places = {.count = record->bundles_count, .get = get_place, .arg = &places}};

    tdm__incoming_reply_message(incoming, tdm__group_places_table(), &message);
}

/* Without them it is lost with the store's data, and nothing else. */
static void keep_places(struct group *group, const struct tdm__placement_group_record *record)
{
    if (tdm__placement_group_record_copy(record, &group->record) != TDM_OK) {
        tdm__log(TDM__WARN, "placement_groups", "a group's places are not kept: %s",
                 tdm_error_detail());
    }
}

/* It may be held, though nobody heard of it: what there is of it is removed. */
static void group_remove_unconfirmed(struct group *group, tdm_status status, const char *detail)
{
    tdm__timer_clear(group->timer);
    if (group->incoming != NULL) {
        tdm__incoming_fail(group->incoming, status, detail);
        group->incoming = NULL;
    }
    group->held = true;
    group->unwanted = false;
    group_remove(group);
}

static void on_group_planned(void *arg, tdm_status status, const char *detail,
                             const struct tdm__placement_group_record *record)
{
    struct group *group = arg;
    bool may_come_free = status == TDM_E_AGAIN ||
                         (status == TDM_E_NO_RESOURCES && tdm__node_lease_was_lost(group->node));

    group->planning = false;
    if (status == TDM_OK) {
        group->held = true;
        keep_places(group, record);
        if (group->incoming != NULL) {
            group_reply_held(group->incoming, record);
            group->incoming = NULL;
        }
        tdm__timer_clear(group->timer);
        if (group->unwanted) {
            group->unwanted = false;
            group_remove(group);
        }
    } else if (may_come_free && !group->unwanted) {
        (void)snprintf(group->why, sizeof(group->why), "%s", detail);
    } else if (group_is_satisfiable(group->node, status)) {
        group_remove_unconfirmed(group, status, detail);
    } else {
        group_fail(group, status, detail);
    }
}

static void group_plan(struct group *group)
{
    group->planning = true;
    if (tdm__placement_group_reserve(group->node->store, &group->request,
                                     tdm__deadline_after(STORE_DEADLINE_MS), on_group_planned,
                                     group) != TDM_OK) {
        group->planning = false;
        group_fail(group, TDM_E_NOMEM, tdm_error_detail());
    }
}

void tdm__placement_groups_retry(struct tdm__node *node)
{
    struct group *next;

    if (node->stopping || node->placement_groups == NULL) {
        return;
    }
    for (struct group *group = node->placement_groups->all; group != NULL; group = next) {
        next = group->next;
        if (!group->held && !group->planning && !group->unwanted) {
            group_plan(group);
        }
    }
}

/* ---- written again ---------------------------------------------------------------------- */

struct group_record_rewrite {
    struct tdm__node *node;
    struct tdm__id id;
};

static void on_group_rewritten(void *arg, tdm_status status, const char *detail)
{
    struct group_record_rewrite group_record_rewrite = *(struct group_record_rewrite *)arg;
    struct group *group = group_record_rewrite.node->placement_groups == NULL
                              ? NULL
                              : group_record_rewrite.node->placement_groups->all;

    free(arg);
    while (group != NULL && !tdm__id_equal(&group->request.id, &group_record_rewrite.id)) {
        group = group->next;
    }
    if (group == NULL) {
        return;
    }
    group->group_record_rewrite = false;
    if (status == TDM_OK) {
        group->record_is_lost = false;
    } else {
        tdm__log(TDM__INFO, "placement_groups", "writing a lost group again: %s", detail);
    }
}

static void group_rewrite_record(struct group *group)
{
    struct tdm__node *node = group->node;
    struct group_record_rewrite *group_record_rewrite = malloc(sizeof(*group_record_rewrite));
    bool without_lost = tdm__clock_ms() - group->lost_since_ms > TDM__NODE_LEASE_MS;

    if (group_record_rewrite == NULL) {
        return; /* again in a second */
    }
    *group_record_rewrite = (struct group_record_rewrite){node, group->request.id};
    group->group_record_rewrite =
        tdm__placement_group_restore(node->store, &group->record, without_lost,
                                     tdm__deadline_after(STORE_DEADLINE_MS), on_group_rewritten,
                                     group_record_rewrite) == TDM_OK;
    if (!group->group_record_rewrite) {
        free(group_record_rewrite);
    }
}

void tdm__placement_groups_records_lost(struct tdm__node *node)
{
    for (struct group *group = node->placement_groups->all; group != NULL; group = group->next) {
        if (group->held && !group->unwanted && group->record.bundles_count > 0) {
            group->record_is_lost = true;
            group->lost_since_ms = tdm__clock_ms();
        }
    }
}

void tdm__placement_groups_rewrite(struct tdm__node *node)
{
    if (tdm__node_lease_is_joining(node)) {
        return;
    }
    for (struct group *group = node->placement_groups->all; group != NULL; group = group->next) {
        if (group->record_is_lost && !group->group_record_rewrite && !group->unwanted) {
            group_rewrite_record(group);
        }
    }
}

static void on_patience_ends(void *arg)
{
    struct group *group = arg;

    if (group->incoming != NULL) {
        tdm__incoming_fail(group->incoming, TDM_E_TIMEOUT, group->why);
        group->incoming = NULL;
    }
    group_remove(group);
}

static tdm_status read_wanted(const struct tdm__message_list *bundles, struct group *group)
{
    uint32_t count = bundles->count;

    if (count == 0 || count > TDM_BUNDLES_MAX) {
        return tdm__fail(TDM_E_INVAL, "a placement group has 1 to %d bundles, not %u",
                         (int)TDM_BUNDLES_MAX, count);
    }
    group->wanted = calloc(count, sizeof(*group->wanted));
    if (group->wanted == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct tdm__resources_message wanted;

        tdm__message_list_read(bundles, i, &wanted, sizeof(wanted));
        TDM_TRY(tdm__resources_of_message(&wanted, &group->wanted[i]));
    }
    group->request.bundles = group->wanted;
    group->request.bundles_count = count;
    return TDM_OK;
}

static tdm_status copy_name(const char *text, char name[TDM__PLACEMENT_GROUP_NAME_BYTES])
{
    if (strlen(text) >= TDM__PLACEMENT_GROUP_NAME_BYTES) {
        return tdm__fail(TDM_E_INVAL, "a group's name and name space have at most %d bytes",
                         (int)TDM__PLACEMENT_GROUP_NAME_BYTES - 1);
    }
    memcpy(name, text, strlen(text) + 1);
    return TDM_OK;
}

static tdm_status read_group(struct tdm__incoming_call *incoming, struct group *group)
{
    struct tdm__placement_group_request *request = &group->request;
    struct tdm__group_create_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__group_create_table(), &message));
    if (message.strategy < TDM_PACK || message.strategy > TDM_STRICT_SPREAD) {
        return tdm__fail(TDM_E_INVAL, "no placement strategy has the number %lld",
                         (long long)message.strategy);
    }
    request->strategy = (enum tdm_placement_strategy)message.strategy;
    request->detached = message.detached;
    request->owner_node = group->node->record.id;
    TDM_TRY(copy_name(message.name_space, request->name_space));
    TDM_TRY(copy_name(message.name, request->name));
    TDM_TRY(tdm__id_generate(&request->id));
    TDM_TRY(tdm__timer_create(group->node->loop, on_patience_ends, group, &group->timer));
    return read_wanted(&message.bundles, group);
}

/* NULL without memory. */
static struct group *group_add(struct tdm__node *node)
{
    struct group *group = calloc(1, sizeof(*group));

    if (group != NULL) {
        group->node = node;
        group->next = node->placement_groups->all;
        node->placement_groups->all = group;
    }
    return group;
}

static void serve_create(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct group *group = group_add(node);
    tdm_status status;

    if (group == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a group");
        return;
    }
    group->creator = tdm__incoming_peer(incoming)->id;
    status = read_group(incoming, group);
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        group_free(group);
        return;
    }
    group->incoming = incoming;
    (void)snprintf(group->why, sizeof(group->why), "the cluster's store has not answered yet");
    if (tdm__incoming_deadline(incoming) != TDM__NEVER) {
        /* A little before the caller stops listening, so that it reads why. */
        (void)tdm__timer_set(group->timer, tdm__incoming_deadline(incoming) - 20);
    }
    group_plan(group);
}

/* ---- find, remove, end ------------------------------------------------------------------ */

static void on_group_found(void *arg, tdm_status status, const char *detail,
                           const struct tdm__placement_group_record *record)
{
    if (status == TDM_OK) {
        group_reply_held(arg, record);
    } else {
        tdm__incoming_fail(arg, status, detail);
    }
}

/* By id, or by name if the id is none. */
static tdm_status read_question(struct tdm__incoming_call *incoming,
                                struct tdm__placement_group_query *question)
{
    struct tdm__group_find_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__group_find_table(), &message));
    question->id = message.id;
    TDM_TRY(copy_name(message.name_space, question->name_space));
    return copy_name(message.name, question->name);
}

static void serve_find(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct tdm__placement_group_query question = {0};
    tdm_status status = read_question(incoming, &question);

    if (status == TDM_OK) {
        status = tdm__placement_group_find(node->store, &question,
                                           tdm__deadline_after(STORE_DEADLINE_MS), on_group_found,
                                           incoming);
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

static struct group *find_here(const struct tdm__node *node, const struct tdm__id *id)
{
    struct group *group = node->placement_groups == NULL ? NULL : node->placement_groups->all;

    while (group != NULL && !tdm__id_equal(&group->request.id, id)) {
        group = group->next;
    }
    return group;
}

static tdm_status read_which(struct tdm__incoming_call *incoming, struct tdm__id *id)
{
    struct tdm__id_request_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__id_request_table(), &message));
    *id = message.id;
    return TDM_OK;
}

/* To be removed here: another node's, or gone already.  NULL without memory. */
static struct group *find_or_add(struct tdm__node *node, const struct tdm__id *id)
{
    struct group *group = find_here(node, id);

    if (group == NULL) {
        group = group_add(node);
        if (group != NULL) {
            group->request.id = *id;
            group->held = true;
        }
    }
    return group;
}

void tdm__placement_group_orphaned(struct tdm__node *node, const struct tdm__id *id)
{
    struct group *group = find_or_add(node, id);

    if (group != NULL) {
        group_remove(group);
    }
}

/* Its removal may have begun already, for another process or with its creator's end. */
static void serve_remove(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct group_remover *group_remover;
    struct group *group;
    struct tdm__id id;

    if (read_which(incoming, &id) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    group_remover = malloc(sizeof(*group_remover));
    group = group_remover == NULL ? NULL : find_or_add(node, &id);
    if (group == NULL) {
        free(group_remover);
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a group");
        return;
    }
    *group_remover = (struct group_remover){group->removers, incoming};
    group->removers = group_remover;
    group_remove(group);
}

/* Another node removes a group: the actors in it that this node made end. */
struct remote_group_removal {
    struct tdm__node *node;
    struct tdm__incoming_call *incoming;
    struct tdm__id group;
};

static void ended_here(void *arg)
{
    struct remote_group_removal removal = *(struct remote_group_removal *)arg;
    struct group *group = find_here(removal.node, &removal.group);

    free(arg);
    tdm__incoming_reply_pack(removal.incoming, "");
    if (group == NULL || !group->removed_elsewhere) {
        return;
    }
    group->removed_elsewhere = false;
    if (group->removers != NULL) {
        group_close(group); /* they wait for all of it: what is gone may be removed again */
    } else {
        group_free(group);
    }
}

static void serve_end(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct remote_group_removal *removal = malloc(sizeof(*removal));
    struct tdm__id id;
    struct group *group;

    if (removal == NULL || tdm__incoming_peer(incoming)->kind != TDM__PEER_DAEMON ||
        read_which(incoming, &id) != TDM_OK) {
        free(removal);
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, "group.end: (id), from a daemon");
        return;
    }
    *removal = (struct remote_group_removal){node, incoming, id};
    group = find_here(node, &id);
    if (group != NULL && !group->unwanted) {
        group->unwanted = true; /* nobody writes its record again */
        group->removed_elsewhere = group->held;
    }
    tdm__node_actors_end(node, is_in_group, &id, true, ended_here, removal);
}

void tdm__placement_groups_serve(void *self, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);

    if (strcmp(method, "placement_group.create") == 0) {
        serve_create(self, incoming);
    } else if (strcmp(method, "placement_group.find") == 0) {
        serve_find(self, incoming);
    } else if (strcmp(method, "placement_group.remove") == 0) {
        serve_remove(self, incoming);
    } else if (strcmp(method, "placement_group.end") == 0) {
        serve_end(self, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    }
}

tdm_status tdm__placement_groups_create(struct tdm__node *node)
{
    node->placement_groups = calloc(1, sizeof(*node->placement_groups));
    return node->placement_groups == NULL ? tdm__fail(TDM_E_NOMEM, "the table of placement_groups")
                                          : TDM_OK;
}

void tdm__placement_groups_destroy(struct tdm__node *node)
{
    for (struct group *group = node->placement_groups == NULL ? NULL : node->placement_groups->all,
                      *next;
         group != NULL; group = next) {
        next = group->next;
        group_fail(group, TDM_E_CANCELED, "the node has stopped");
    }
    free(node->placement_groups);
    node->placement_groups = NULL;
}
