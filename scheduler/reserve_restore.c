/* reserve_restore.c - writes records of actors and groups again, after the store lost changes. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each restoration is a transaction that compares the record in the store, if there is one, with
 * what the daemon knows, decides by the functions of reconcile.h, and writes what is missing or
 * wrong. With its record an actor takes its share of the node or bundle again, and what a replaced
 * record held is given back: a node's free resources are always its total less what the records of
 * actors and groups that name it hold. A group takes its bundles from their nodes. So a body that
 * was committed before finds its own record and changes nothing. Everything runs on the loop's
 * thread. */
#include "scheduler/reserve_restore.h"

#include "runtime/error.h"
#include "runtime/store/txn.h"
#include "scheduler/nodes_snapshot.h"
#include "scheduler/retrying_txn.h"

#include <stdlib.h>
#include <string.h>

/* ---- actors ----------------------------------------------------------------------------- */

/* State of tdm__restore_actor(). */
struct restoration {
    struct tdm__actor_record actor; /* Record of the running actor, to be written. */
    /* What the requesting node knows of the store's generation (borrowed). */
    const struct tdm__store_view *view;
    bool name_waits;          /* Whether the last run of the body did not decide about the name. */
    tdm__reserve_done_fn *fn; /* Callback that gets the outcome. */
    void *arg;                /* First argument of the callback `fn`. */
};

/* The record that an actor gets, and the one that it replaces. */
struct replacement {
    const struct tdm__actor_record *actor; /* New record of the actor (borrowed). */
    /* Record of the actor that the store had until now (borrowed), or NULL. */
    const struct tdm__actor_record *stored;
};

/* Takes what the new record of the replacement `arg` holds from the pool of its bundle, to which
 * the old record gives back what it holds there. */
static tdm_status replace_in_pool(void *arg, struct tdm__pool *pool)
{
    const struct replacement *replacement = arg;
    const struct tdm__actor_record *stored = replacement->stored;

    if (stored != NULL && tdm__id_equal(&stored->group, &replacement->actor->group) &&
        stored->bundle == replacement->actor->bundle) {
        (void)tdm__pool_release_grant(pool, &stored->grant);
    }
    return tdm__pool_allocate_held_grant(pool, &replacement->actor->grant);
}

/* Changes the resources of the nodes or of the bundle that the two records of a replacement name.
 */
static tdm_status replace_resources(struct tdm__txn *txn, const struct replacement *replacement)
{
    const struct tdm__actor_record *actor = replacement->actor;
    const struct tdm__actor_record *stored = replacement->stored;
    bool has_moved = stored != NULL && !tdm__id_equal(&stored->node, &actor->node);

    if (!tdm__id_is_none(&actor->group)) {
        return tdm__txn_change_bundle(txn, actor, replace_in_pool, (void *)replacement);
    }
    if (has_moved) {
        TDM_TRY(tdm__txn_change_node(txn, &stored->node, &stored->grant, NULL));
    }
    return tdm__txn_change_node(txn, &actor->node,
                                stored == NULL || has_moved ? NULL : &stored->grant, &actor->grant);
}

tdm_status tdm__restore_name(struct tdm__txn *txn, const struct tdm__actor_record *actor,
                             const struct tdm__store_view *view, bool *waits_out)
{
    const struct tdm__store_record *record;
    struct tdm__actor_record holder;

    *waits_out = false;
    if (actor->name_key[0] == '\0') {
        return TDM_OK;
    }
    TDM_TRY(tdm__actor_name_find(txn, actor->name_key, &record, &holder));
    switch (tdm__reconcile_name(actor, record == NULL ? NULL : &holder,
                                record != NULL && tdm__record_is_confirmed(view, record->version),
                                view->holders_wait)) {
    case TDM__NAME_WRITE:
        return tdm__actor_name_put(txn, actor);
    case TDM__NAME_WAIT:
        *waits_out = true;
        return TDM_OK;
    case TDM__NAME_TAKEN:
        break;
    }
    /* Unless the holder's node is lost. */
    TDM_TRY(tdm__check_actor_name(txn, actor->name_key, &actor->actor, &actor->node));
    return tdm__actor_name_put(txn, actor);
}

/* Returns whether the name in the store is that of the actor's record, so that nothing has to be
 * written. */
static bool has_own_name(const struct tdm__txn *txn, const struct tdm__actor_record *actor)
{
    const struct tdm__store_record *record;
    struct tdm__actor_record holder;

    return actor->name_key[0] == '\0' ||
           (tdm__actor_name_find(txn, actor->name_key, &record, &holder) == TDM_OK &&
            record != NULL && tdm__id_equal(&holder.actor, &actor->actor));
}

/* Body of the transaction that restores an actor: writes its records again, unless they exist. */
static tdm_status restore_body(void *arg, struct tdm__txn *txn)
{
    struct restoration *restoration = arg;
    const struct tdm__actor_record *actor = &restoration->actor;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("actor", &actor->actor, key));
    struct tdm__actor_record stored;
    bool is_confirmed =
        record != NULL && tdm__record_is_confirmed(restoration->view, record->version);

    restoration->name_waits = false;
    if (record != NULL) {
        TDM_TRY(tdm__actor_record_read(record, &stored));
    }
    switch (tdm__reconcile_actor(actor, record == NULL ? NULL : &stored, is_confirmed)) {
    case TDM__ACTOR_KEEP_RECORD:
        if (!has_own_name(txn, actor)) {
            return tdm__restore_name(txn, actor, restoration->view, &restoration->name_waits);
        }
        return actor->name_key[0] == '\0' ? TDM_OK
                                          : tdm__txn_require_confirmed(txn, actor->name_key);
    case TDM__ACTOR_GIVE_UP:
        return tdm__fail(TDM_E_EXISTS, "the actor was created again on another node");
    case TDM__ACTOR_WRITE_RECORD:
        break;
    }
    TDM_TRY(tdm__restore_name(txn, actor, restoration->view, &restoration->name_waits));
    TDM_TRY(replace_resources(
        txn, &(struct replacement){.actor = actor, .stored = record == NULL ? NULL : &stored}));
    return tdm__actor_record_put_unnamed(txn, actor);
}

/* Reports the outcome of a restoration and frees the operation's state. */
static void restore_done(void *arg, tdm_status status, const char *detail)
{
    struct restoration *restoration = arg;

    if (status == TDM_OK && restoration->name_waits) {
        restoration->fn(restoration->arg, TDM_E_AGAIN,
                        "its name may belong to an actor of a node that has not written its "
                        "records again");
    } else {
        restoration->fn(restoration->arg, status, detail);
    }
    free(restoration);
}

tdm_status tdm__restore_actor(struct tdm__store *store, const struct tdm__actor_record *actor,
                              const struct tdm__store_view *view, int64_t deadline_ms,
                              tdm__reserve_done_fn *fn, void *arg)
{
    struct restoration *restoration = calloc(1, sizeof(*restoration));
    char actor_key[TDM__STORE_KEY_BYTES];
    char group_key[TDM__STORE_KEY_BYTES];
    const char *patterns[4] = {"node/*", tdm__store_key("actor", &actor->actor, actor_key)};
    bool in_group = !tdm__id_is_none(&actor->group);
    uint32_t count = 2;
    tdm_status status;

    if (restoration == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an actor's record");
    }
    *restoration = (struct restoration){.actor = *actor, .view = view, .fn = fn, .arg = arg};
    patterns[count++] = in_group ? tdm__store_key("group", &actor->group, group_key) : "free/*";
    if (actor->name_key[0] != '\0') {
        patterns[count++] = actor->name_key;
    }
    status = tdm__retrying_txn_run_queued(store, patterns, count, deadline_ms, restore_body,
                                          restore_done, restoration);
    if (status != TDM_OK) {
        free(restoration);
    }
    return status;
}

/* ---- written again ---------------------------------------------------------------------- */

/* State of tdm__placement_group_restore(). */
struct group_restoration {
    /* Copy of the placement group's record, with all bundles free (owned). */
    struct tdm__placement_group_record record;
    bool without_lost; /* Whether bundles whose nodes are lost are left out. */
    /* What the requesting node knows of the store's generation (borrowed). */
    const struct tdm__store_view *view;
    tdm__reserve_done_fn *fn; /* Callback that gets the outcome. */
    void *arg;                /* First argument of the callback `fn`. */
};

/* Allocates the group's bundles on their nodes again in the snapshot. */
static tdm_status allocate_bundles_again(const struct group_restoration *group_restoration,
                                         struct tdm__txn *txn, struct tdm__nodes_snapshot *snapshot)
{
    for (uint32_t i = 0; i < group_restoration->record.bundles_count; i++) {
        const struct tdm__bundle_record *bundle = &group_restoration->record.bundles[i];
        struct tdm__node_resources *node = tdm__nodes_snapshot_find(snapshot, &bundle->node);

        if (node != NULL) {
            TDM_TRY(tdm__pool_allocate_grant(&node->pool, &bundle->grant));
        } else if (!group_restoration->without_lost) {
            return tdm__fail(TDM_E_AGAIN, "the node of bundle %u is not there", i);
        } else {
            /* A node that joins meanwhile would compute its free resources without the bundle. */
            TDM_TRY(tdm__txn_require_node_lost(txn, &group_restoration->record.owner_node,
                                               &bundle->node));
        }
    }
    return TDM_OK;
}

/* Returns whether both bundles have the same resources of the same node. */
static bool bundles_equal(const struct tdm__bundle_record *a, const struct tdm__bundle_record *b)
{
    return tdm__id_equal(&a->node, &b->node) && tdm__grants_equal(&a->grant, &b->grant);
}

/* Returns whether the stored record of a group is that of the placed group, or is being removed. */
static bool record_is_right(const struct tdm__placement_group_record *stored,
                            const struct tdm__placement_group_record *group)
{
    bool is_right = stored->placed && stored->bundles_count == group->bundles_count;

    for (uint32_t i = 0; is_right && i < group->bundles_count; i++) {
        is_right = bundles_equal(&stored->bundles[i], &group->bundles[i]);
    }
    return is_right || stored->closed;
}

/* Releases the bundles of a wrong record of the group in the snapshot. Of bundles that stay where
 * they are, the restored group keeps the pools, which the bundles' nodes have computed. */
static void release_wrong_bundles(const struct tdm__placement_group_record *stored,
                                  const struct tdm__placement_group_record *group,
                                  struct tdm__nodes_snapshot *snapshot)
{
    for (uint32_t i = 0; stored->placed && i < stored->bundles_count; i++) {
        struct tdm__node_resources *node =
            tdm__nodes_snapshot_find(snapshot, &stored->bundles[i].node);

        if (node != NULL) {
            (void)tdm__pool_release_grant(&node->pool, &stored->bundles[i].grant);
        }
        if (i < group->bundles_count && bundles_equal(&stored->bundles[i], &group->bundles[i])) {
            group->bundles[i].pool = stored->bundles[i].pool;
        }
    }
}

/* Adds the write of the restored group's name, or removes the name from `group` if another group
 * has it. */
static tdm_status restore_group_name(const struct group_restoration *group_restoration,
                                     struct tdm__txn *txn,
                                     struct tdm__placement_group_record *group)
{
    tdm_status status = tdm__placement_group_name_claim(txn, group);
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record;

    if (status != TDM_E_EXISTS) {
        return status;
    }
    record = tdm__txn_find_record(txn, tdm__placement_group_name_key(group, key));
    if (record != NULL && group_restoration->view->holders_wait &&
        !tdm__record_is_confirmed(group_restoration->view, record->version)) {
        return tdm__fail(TDM_E_AGAIN, "its name may belong to another group");
    }
    group->name[0] = '\0';
    return TDM_OK;
}

/* Adds the writes of a restored group, which replaces the record `stored`. */
static tdm_status write_restored(const struct group_restoration *group_restoration,
                                 const struct tdm__placement_group_record *stored,
                                 struct tdm__txn *txn)
{
    /* The bundles belong to the state of the operation. */
    struct tdm__placement_group_record group = group_restoration->record;
    char key[TDM__STORE_KEY_BYTES];
    struct tdm__nodes_snapshot snapshot;
    tdm_status status;

    TDM_TRY(restore_group_name(group_restoration, txn, &group));
    TDM_TRY(tdm__nodes_snapshot_read(txn, &snapshot));
    for (uint32_t i = 0; i < group.bundles_count; i++) {
        tdm__pool_of_grant(&group.bundles[i].pool, &group.bundles[i].grant);
    }
    release_wrong_bundles(stored, &group, &snapshot);
    status = allocate_bundles_again(group_restoration, txn, &snapshot);
    for (uint32_t i = 0; i < snapshot.nodes_count && status == TDM_OK; i++) {
        if (tdm__placement_group_has_bundle_on(&group, &snapshot.nodes[i].id) ||
            tdm__placement_group_has_bundle_on(stored, &snapshot.nodes[i].id)) {
            status = tdm__free_record_put(txn, &snapshot.resources[i]);
        }
    }
    tdm__nodes_snapshot_fini(&snapshot);
    TDM_TRY(status);
    return tdm__placement_group_record_put(txn, tdm__store_key("group", &group.id, key), &group);
}

/* Body of the transaction that restores a placement group: writes its record again, unless the
 * record exists and is right. */
static tdm_status group_restoration_body(void *arg, struct tdm__txn *txn)
{
    struct group_restoration *group_restoration = arg;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("group", &group_restoration->record.id, key));
    struct tdm__placement_group_record stored = {.bundles = NULL};
    tdm_status status = TDM_OK;

    if (record != NULL) {
        TDM_TRY(tdm__placement_group_record_read(record, &stored));
    }
    for (uint32_t i = 0; i < stored.requesters_count && status == TDM_OK; i++) {
        status =
            tdm__placement_group_add_requester(&group_restoration->record, &stored.requesters[i]);
    }
    if (status == TDM_OK &&
        (record == NULL || !record_is_right(&stored, &group_restoration->record))) {
        status = write_restored(group_restoration, &stored, txn);
    }
    tdm__placement_group_record_fini(&stored);
    return status;
}

/* Frees the state of a placement group's restoration. */
static void group_restoration_free(struct group_restoration *group_restoration)
{
    tdm__placement_group_record_fini(&group_restoration->record);
    free(group_restoration);
}

/* Reports the outcome of a placement group's restoration and frees the operation's state. */
static void group_restoration_done(void *arg, tdm_status status, const char *detail)
{
    struct group_restoration *group_restoration = arg;

    group_restoration->fn(group_restoration->arg, status, detail);
    group_restoration_free(group_restoration);
}

tdm_status tdm__placement_group_restore(struct tdm__store *store,
                                        const struct tdm__placement_group_record *group,
                                        bool without_lost, const struct tdm__store_view *view,
                                        int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    char name_key[TDM__STORE_KEY_BYTES];
    const char *patterns[4] = {"node/*", "free/*", tdm__store_key("group", &group->id, key),
                               tdm__placement_group_name_key(group, name_key)};
    struct group_restoration *group_restoration = calloc(1, sizeof(*group_restoration));
    tdm_status status;

    if (group_restoration == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", group->bundles_count);
    }
    *group_restoration = (struct group_restoration){
        .without_lost = without_lost, .view = view, .fn = fn, .arg = arg};
    status = tdm__placement_group_record_copy(group, &group_restoration->record);
    if (status == TDM_OK) {
        status = tdm__retrying_txn_run_queued(store, patterns, name_key[0] == '\0' ? 3 : 4,
                                              deadline_ms, group_restoration_body,
                                              group_restoration_done, group_restoration);
    }
    if (status != TDM_OK) {
        group_restoration_free(group_restoration);
    }
    return status;
}
