/* group_service.c - the calls about placement groups that a daemon answers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/node.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORE_DEADLINE_MS = 10000 };

/* A group that a process of this node made, or asks for. */
struct group {
    struct group *next;
    struct tdm__node *node; /* borrowed */
    struct tdm__id id;
    struct tdm__id creator;
    struct tdm__resources *wanted; /* owned, until it is held */
    uint32_t bundles_count;
    enum tdm_placement_strategy strategy;
    struct tdm__incoming *incoming;  /* who waits for it to be held; NULL afterwards */
    struct tdm__incoming *removal;   /* who waits for it to be gone; may be NULL */
    struct tdm__timer *timer;        /* ends the waiting */
    char why[512];                   /* it does not fit now */
    struct tdm__group_record record; /* owned; its places, once it is held */
    bool record_is_lost; /* this node joined again: the store may not know it any more */
    bool rewriting;      /* and is being told */
    int64_t lost_since_ms;
    bool planning; /* a reservation is under way */
    bool held;
    bool unwanted;
};

struct tdm__node_groups {
    struct group *all;
};

static void group_free(struct group *group)
{
    struct group **place = &group->node->groups->all;

    while (*place != group) {
        place = &(*place)->next;
    }
    *place = group->next;
    tdm__timer_destroy(group->timer);
    tdm__group_record_fini(&group->record);
    free(group->wanted);
    free(group);
}

static void group_fails(struct group *group, tdm_status status, const char *detail)
{
    if (group->incoming != NULL) {
        tdm__incoming_fail(group->incoming, status, detail);
    }
    if (group->removal != NULL) {
        tdm__incoming_reply_pack(group->removal, "");
    }
    group_free(group);
}

/* ---- remove ----------------------------------------------------------------------------- */

static void removed(void *arg, tdm_status status, const char *detail)
{
    struct group *group = arg;
    struct tdm__node *node = group->node;

    if (status != TDM_OK && !node->stopping) {
        tdm__log(TDM__WARN, "groups", "removing a group: %s: %s", tdm_strerror(status), detail);
    }
    if (group->removal != NULL && status == TDM_OK) {
        tdm__incoming_reply_pack(group->removal, "");
    } else if (group->removal != NULL) {
        tdm__incoming_fail(group->removal, status, detail);
    }
    group_free(group);
    tdm__node_actors_retry(node);
    tdm__node_groups_retry(node);
}

static void actors_are_gone(void *arg)
{
    struct group *group = arg;

    if (tdm__release_group(group->node->loop, group->node->store, &group->id,
                           tdm__deadline_in(STORE_DEADLINE_MS), removed, group) != TDM_OK) {
        group_fails(group, TDM_E_NOMEM, tdm_error_detail());
    }
}

static bool is_in_group(const struct tdm__actor_spec *spec, const void *key)
{
    return tdm__id_equal(&spec->group, key);
}

static void group_remove(struct group *group)
{
    if (group->unwanted) {
        return;
    }
    group->unwanted = true;
    if (group->held) {
        tdm__node_actors_end(group->node, is_in_group, &group->id, true, actors_are_gone,
                             group);
    } else if (!group->planning) {
        group_fails(group, TDM_E_CANCELED, "the group was removed before it was held");
    }
}

bool tdm__node_groups_are_going(const struct tdm__node *node)
{
    for (const struct group *group = node->groups->all; group != NULL; group = group->next) {
        if (group->held && group->unwanted) {
            return true;
        }
    }
    return false;
}

void tdm__node_groups_creator_gone(struct tdm__node *node, const struct tdm__id *creator)
{
    struct group *next;

    for (struct group *group = node->groups->all; group != NULL; group = next) {
        next = group->next;
        if (tdm__id_equal(&group->creator, creator)) {
            group_remove(group);
        }
    }
}

/* ---- create ----------------------------------------------------------------------------- */

/* answer: (id, [(node id, [gpu …]) …]) */
static void answer_held(struct group *group, const struct tdm__group_record *record)
{
    tdm_writer *writer;
    char id[TDM__ID_TEXT_BYTES];

    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm__incoming_fail(group->incoming, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    tdm_write_array(writer, 2);
    tdm_write_bytes(writer, group->id.bytes, sizeof(group->id.bytes));
    tdm_write_array(writer, record->bundles_count);
    for (uint32_t i = 0; i < record->bundles_count; i++) {
        const struct tdm__bundle_record *bundle = &record->bundles[i];

        tdm_write_array(writer, 2);
        tdm_write_string(writer, tdm__id_text(&bundle->node, id));
        tdm_write_array(writer, bundle->grant.gpus_count);
        for (uint32_t gpu = 0; gpu < bundle->grant.gpus_count; gpu++) {
            tdm_write_uint(writer, bundle->grant.gpu_indices[gpu]);
        }
    }
    tdm__incoming_reply(group->incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}

/* Without them it is lost with the store's data, and nothing else. */
static void keep_places(struct group *group, const struct tdm__group_record *record)
{
    if (tdm__group_record_copy(record, &group->record) != TDM_OK) {
        tdm__log(TDM__WARN, "groups", "a group's places are not kept: %s", tdm_error_detail());
    }
}

static void planned(void *arg, tdm_status status, const char *detail,
                    const struct tdm__group_record *record)
{
    struct group *group = arg;
    bool may_come_free = status == TDM_E_AGAIN || (status == TDM_E_NO_RESOURCES &&
                                                   tdm__node_lease_was_lost(group->node));

    group->planning = false;
    if (status == TDM_OK) {
        group->held = true;
        keep_places(group, record);
        if (group->incoming != NULL) {
            answer_held(group, record);
            group->incoming = NULL;
        }
        tdm__timer_clear(group->timer);
        if (group->unwanted) {
            group->unwanted = false;
            group_remove(group);
        }
    } else if (may_come_free && !group->unwanted) {
        (void)snprintf(group->why, sizeof(group->why), "%s", detail);
    } else {
        group_fails(group, status, detail);
    }
}

static void group_plan(struct group *group)
{
    group->planning = true;
    if (tdm__reserve_group(group->node->loop, group->node->store, &group->id, group->wanted,
                           group->bundles_count, group->strategy,
                           tdm__deadline_in(STORE_DEADLINE_MS), planned, group) != TDM_OK) {
        group->planning = false;
        group_fails(group, TDM_E_NOMEM, tdm_error_detail());
    }
}

void tdm__node_groups_retry(struct tdm__node *node)
{
    struct group *next;

    if (node->stopping || node->groups == NULL) {
        return;
    }
    for (struct group *group = node->groups->all; group != NULL; group = next) {
        next = group->next;
        if (!group->held && !group->planning && !group->unwanted) {
            group_plan(group);
        }
    }
}

/* ---- written again ---------------------------------------------------------------------- */

struct rewriting {
    struct tdm__node *node;
    struct tdm__id id;
};

static void rewritten(void *arg, tdm_status status, const char *detail)
{
    struct rewriting rewriting = *(struct rewriting *)arg;
    struct group *group = rewriting.node->groups == NULL ? NULL : rewriting.node->groups->all;

    free(arg);
    while (group != NULL && !tdm__id_equal(&group->id, &rewriting.id)) {
        group = group->next;
    }
    if (group == NULL) {
        return;
    }
    group->rewriting = false;
    if (status == TDM_OK) {
        group->record_is_lost = false;
    } else {
        tdm__log(TDM__INFO, "groups", "writing a lost group again: %s", detail);
    }
}

static void rewrite(struct group *group)
{
    struct tdm__node *node = group->node;
    struct rewriting *rewriting = malloc(sizeof(*rewriting));
    bool without_lost = tdm__clock_ms() - group->lost_since_ms > TDM__NODE_LEASE_MS;

    if (rewriting == NULL) {
        return; /* again in a second */
    }
    *rewriting = (struct rewriting){node, group->id};
    group->rewriting = tdm__reserve_group_again(
                           node->loop, node->store, &group->id, &group->record, without_lost,
                           tdm__deadline_in(STORE_DEADLINE_MS), rewritten, rewriting) == TDM_OK;
    if (!group->rewriting) {
        free(rewriting);
    }
}

void tdm__node_groups_records_lost(struct tdm__node *node)
{
    for (struct group *group = node->groups->all; group != NULL; group = group->next) {
        if (group->held && !group->unwanted && group->record.bundles_count > 0) {
            group->record_is_lost = true;
            group->lost_since_ms = tdm__clock_ms();
        }
    }
}

void tdm__node_groups_rewrite(struct tdm__node *node)
{
    if (tdm__node_is_joining(node)) {
        return;
    }
    for (struct group *group = node->groups->all; group != NULL; group = group->next) {
        if (group->record_is_lost && !group->rewriting && !group->unwanted) {
            rewrite(group);
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

static tdm_status read_wanted(const tdm_value *bundles, struct group *group)
{
    group->bundles_count = tdm_value_count(bundles);
    if (group->bundles_count == 0 || group->bundles_count > TDM_BUNDLES_MAX) {
        return tdm__fail(TDM_E_INVAL, "a placement group has 1 to %d bundles, not %u",
                         (int)TDM_BUNDLES_MAX, group->bundles_count);
    }
    group->wanted = calloc(group->bundles_count, sizeof(*group->wanted));
    if (group->wanted == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", group->bundles_count);
    }
    for (uint32_t i = 0; i < group->bundles_count; i++) {
        TDM_TRY(tdm__resources_read(tdm_value_at(bundles, i), &group->wanted[i]));
    }
    return TDM_OK;
}

static tdm_status read_group(struct tdm__incoming *incoming, struct group *group)
{
    int64_t strategy;
    const tdm_value *bundles;

    TDM_TRY(tdm__incoming_unpack(incoming, "iv", &strategy, &bundles));
    if (strategy < TDM_PACK || strategy > TDM_STRICT_SPREAD) {
        return tdm__fail(TDM_E_INVAL, "no placement strategy has the number %lld",
                         (long long)strategy);
    }
    group->strategy = (enum tdm_placement_strategy)strategy;
    TDM_TRY(tdm__id_make(&group->id));
    TDM_TRY(tdm__timer_create(group->node->loop, on_patience_ends, group, &group->timer));
    return read_wanted(bundles, group);
}

static void serve_create(struct tdm__node *node, struct tdm__incoming *incoming)
{
    struct group *group = calloc(1, sizeof(*group));
    tdm_status status;

    if (group == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a group");
        return;
    }
    group->node = node;
    group->next = node->groups->all;
    node->groups->all = group;
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

static void serve_remove(struct tdm__node *node, struct tdm__incoming *incoming)
{
    const void *bytes;
    size_t size_bytes;

    if (tdm__incoming_unpack(incoming, "b", &bytes, &size_bytes) != TDM_OK ||
        size_bytes != sizeof(struct tdm__id)) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, "group.remove wants an id");
        return;
    }
    for (struct group *group = node->groups->all; group != NULL; group = group->next) {
        if (memcmp(group->id.bytes, bytes, size_bytes) == 0 && group->removal == NULL) {
            group->removal = incoming; /* its removal may have begun with its creator's end */
            group_remove(group);
            return;
        }
    }
    tdm__incoming_reply_pack(incoming, ""); /* gone already */
}

void tdm__node_groups_serve(void *self, struct tdm__incoming *incoming)
{
    const char *method = tdm__incoming_method(incoming);

    if (strcmp(method, "group.create") == 0) {
        serve_create(self, incoming);
    } else if (strcmp(method, "group.remove") == 0) {
        serve_remove(self, incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    }
}

tdm_status tdm__node_groups_create(struct tdm__node *node)
{
    node->groups = calloc(1, sizeof(*node->groups));
    return node->groups == NULL ? tdm__fail(TDM_E_NOMEM, "the table of groups") : TDM_OK;
}

void tdm__node_groups_destroy(struct tdm__node *node)
{
    for (struct group *group = node->groups == NULL ? NULL : node->groups->all, *next;
         group != NULL; group = next) {
        next = group->next;
        group_fails(group, TDM_E_CANCELED, "the node has stopped");
    }
    free(node->groups);
    node->groups = NULL;
}
