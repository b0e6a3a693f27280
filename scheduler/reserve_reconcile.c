/* reserve_reconcile.c - writes what a node holds into a store that has lost changes. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The reconciliation is one transaction, which reads all actors, names and groups of the cluster:
 * the store loses changes rarely. Its body first computes the node's pool from the running actors
 * whose record names this node after the commit, then takes the bundles of groups from it, and then
 * the actors that were placed here in this generation and have not started yet. What does not fit
 * is removed in this order. So the free resources always equal the node's resources less everything
 * that a remaining record holds, and a later release gives back exactly what was counted. An actor
 * that runs here and was placed elsewhere later counts there, and ends.
 *
 * An actor that was placed here may also never start, because its creator's node was lost before it
 * could ask this node to start it. The caller remembers the placements that are removed, and
 * refuses to start them if the request arrives after all.
 *
 * All actors of a bundle run on one node, so that node also computes the pools of its bundles. An
 * actor whose group has no record is left to tdm__restore_actor(), which waits for the group.
 * Everything runs on the loop's thread. */
#include "scheduler/reserve_reconcile.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/store/txn.h"
#include "scheduler/reserve_restore.h"
#include "scheduler/retrying_txn.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Most records of actors that one commit writes; tdm__restore_actor() writes the others. */
    ACTORS_AT_ONCE = 3000,
    DELETIONS_AT_ONCE = 1500 /* Most records of absent actors that one commit deletes. */
};

/* State of tdm__reserve_reconcile(). All arrays are owned. */
struct reconciliation {
    struct tdm__id node;                /* ID of the node that reconciles. */
    struct tdm__node_resources totals;  /* Resources of the node, all free. */
    const struct tdm__store_view *view; /* What the node knows of the generation (borrowed). */
    struct tdm__actor_record *actors;   /* Actors that run on the node, by ID. */
    uint32_t actors_count;              /* Number of entries in `actors`. */
    struct tdm__id *groups;             /* IDs of the groups in the daemon's table. */
    uint32_t groups_count;              /* Number of entries in `groups`. */
    bool removes_orphans;  /* Whether actors that nobody will start or release are removed. */
    struct tdm__id *known; /* IDs of the actors that the daemon knows, if it removes orphans. */
    uint32_t known_count;  /* Number of entries in `known`. */
    /* IDs of the groups of this node that its daemon does not know, as the last run of the body
     * found them. */
    struct tdm__id *stale_groups;
    uint32_t stale_groups_count; /* Number of entries in `stale_groups`. */
    /* Placements whose records the last run of the body deleted. */
    struct tdm__removed_placement *removed;
    /* Number of records that the last run of the body deleted, not counting names beside them. */
    uint32_t deletions_count;
    uint32_t removed_count;         /* Number of entries in `removed`. */
    tdm__reserve_reconciled_fn *fn; /* Callback that gets the outcome. */
    void *arg;                      /* First argument of the callback `fn`. */
};

/* A placement group of the store during one run of the body. */
struct group_state {
    struct tdm__placement_group_record record; /* Record of the group, as it is to be written. */
    bool is_here;                              /* Whether a bundle was on this node when read. */
    bool has_changed;                          /* Whether the record has to be written. */
};

/* What one run of the body works on. */
struct work {
    struct reconciliation *reconciliation; /* The reconciliation that runs. */
    struct tdm__txn *txn;                  /* The transaction of this run. */
    struct tdm__node_resources node;       /* Resources of the node, as computed so far. */
    struct group_state *groups;            /* Groups of the store (owned), by ID. */
    uint32_t groups_count;                 /* Number of entries in `groups`. */
};

/* Compares two IDs for sorting. */
static int compare_ids(const struct tdm__id *a, const struct tdm__id *b)
{
    return memcmp(a, b, sizeof(*a));
}

/* Compares the IDs of two actors for qsort(). */
static int compare_actors(const void *a, const void *b)
{
    return compare_ids(&((const struct tdm__actor_record *)a)->actor,
                       &((const struct tdm__actor_record *)b)->actor);
}

/* Compares an actor's ID with that of a running actor for bsearch(). */
static int compare_id_to_actor(const void *id, const void *actor)
{
    return compare_ids(id, &((const struct tdm__actor_record *)actor)->actor);
}

/* Returns whether the actor runs on the node. */
static bool runs_here(const struct reconciliation *reconciliation, const struct tdm__id *actor)
{
    return reconciliation->actors_count > 0 &&
           bsearch(actor, reconciliation->actors, reconciliation->actors_count,
                   sizeof(*reconciliation->actors), compare_id_to_actor) != NULL;
}

/* Returns the state of a placement group, or NULL if the store has none. */
static struct group_state *find_group(const struct work *work, const struct tdm__id *id)
{
    for (uint32_t i = 0; i < work->groups_count; i++) {
        if (tdm__id_equal(&work->groups[i].record.id, id)) {
            return &work->groups[i];
        }
    }
    return NULL;
}

/* Returns the bundle of an actor if it is on this node, else NULL. */
static struct tdm__bundle_record *find_bundle(const struct work *work,
                                              const struct tdm__actor_record *actor)
{
    struct group_state *group = find_group(work, &actor->group);

    if (group == NULL || actor->bundle >= group->record.bundles_count ||
        !tdm__id_equal(&group->record.bundles[actor->bundle].node, &work->reconciliation->node)) {
        return NULL;
    }
    return &group->record.bundles[actor->bundle];
}

/* ---- resources -------------------------------------------------------------------------- */

/* Finds out what the record of running actor number `index` holds of this node after the commit.
 * Returns false if it holds nothing: the actor was placed elsewhere later, or has no record until
 * tdm__restore_actor() writes one. */
static bool find_counted(const struct work *work, uint32_t index, struct tdm__grant *grant_out)
{
    const struct reconciliation *reconciliation = work->reconciliation;
    const struct tdm__actor_record *actor = &reconciliation->actors[index];
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(work->txn, tdm__store_key("actor", &actor->actor, key));
    struct tdm__actor_record stored;
    bool is_confirmed =
        record != NULL && tdm__record_is_confirmed(reconciliation->view, record->version);

    if (record != NULL && tdm__actor_record_read(record, &stored) != TDM_OK) {
        return false;
    }
    switch (tdm__reconcile_actor(actor, record == NULL ? NULL : &stored, is_confirmed)) {
    case TDM__ACTOR_WRITE_RECORD:
        *grant_out = actor->grant;
        return index < ACTORS_AT_ONCE;
    case TDM__ACTOR_KEEP_RECORD:
        *grant_out = stored.grant;
        return true;
    case TDM__ACTOR_GIVE_UP:
        break;
    }
    return false;
}

/* Takes the resources of the running actors outside of groups from the node's pool. A daemon never
 * lets two of its actors have the same, so that always succeeds. */
static void allocate_running(struct work *work)
{
    const struct reconciliation *reconciliation = work->reconciliation;
    struct tdm__grant grant;

    for (uint32_t i = 0; i < reconciliation->actors_count; i++) {
        if (tdm__id_is_none(&reconciliation->actors[i].group) && find_counted(work, i, &grant)) {
            (void)tdm__pool_allocate_held_grant(&work->node.pool, &grant);
            work->node.actors_count++;
        }
    }
}

/* Computes the pool of a bundle of this node from the actors that run in it. */
static void fill_bundle(const struct work *work, const struct tdm__id *group, uint32_t index,
                        struct tdm__bundle_record *bundle)
{
    const struct reconciliation *reconciliation = work->reconciliation;
    struct tdm__grant grant;

    tdm__pool_of_grant(&bundle->pool, &bundle->grant);
    for (uint32_t i = 0; i < reconciliation->actors_count; i++) {
        const struct tdm__actor_record *actor = &reconciliation->actors[i];

        if (tdm__id_equal(&actor->group, group) && actor->bundle == index &&
            find_counted(work, i, &grant)) {
            (void)tdm__pool_allocate_held_grant(&bundle->pool, &grant);
        }
    }
}

/* Takes the bundles of a group that are on this node from the node's pool, and computes their own
 * pools. A bundle that does not fit loses its node. */
static void allocate_bundles(struct work *work, struct group_state *group)
{
    for (uint32_t i = 0; i < group->record.bundles_count; i++) {
        struct tdm__bundle_record *bundle = &group->record.bundles[i];
        const struct tdm__pool before = bundle->pool;

        if (!tdm__id_equal(&bundle->node, &work->reconciliation->node)) {
            continue;
        }
        group->is_here = true;
        if (tdm__pool_allocate_grant(&work->node.pool, &bundle->grant) == TDM_OK) {
            fill_bundle(work, &group->record.id, i, bundle);
        } else {
            *bundle = (struct tdm__bundle_record){.wanted = bundle->wanted};
        }
        group->has_changed = group->has_changed || tdm__id_is_none(&bundle->node) ||
                             !tdm__pools_equal(&before, &bundle->pool);
    }
}

/* Takes the resources of an actor that was placed here and has not started from the node's pool, or
 * from its bundle's. Returns false and changes nothing if they are not free. */
static bool allocate_expected(struct work *work, const struct tdm__actor_record *actor)
{
    struct tdm__bundle_record *bundle;

    if (tdm__id_is_none(&actor->group)) {
        if (tdm__pool_allocate_grant(&work->node.pool, &actor->grant) != TDM_OK) {
            return false;
        }
        work->node.actors_count++;
        return true;
    }
    bundle = find_bundle(work, actor);
    if (bundle == NULL || tdm__pool_allocate_grant(&bundle->pool, &actor->grant) != TDM_OK) {
        return false;
    }
    find_group(work, &actor->group)->has_changed = true;
    return true;
}

/* ---- records ---------------------------------------------------------------------------- */

/* Deletes the name of an actor that is not on this node, if it still belongs to the actor. */
static tdm_status delete_name(struct work *work, const struct tdm__actor_record *actor)
{
    const struct tdm__store_record *record;
    struct tdm__actor_record holder;

    TDM_TRY(tdm__actor_name_find(work->txn, actor->name_key, &record, &holder));
    return record != NULL && tdm__id_equal(&holder.actor, &actor->actor) &&
                   tdm__id_equal(&holder.node, &actor->node)
               ? tdm__txn_delete(work->txn, record->key)
               : TDM_OK;
}

/* Returns whether the actor, which does not run here, has no node that could ask this one to start
 * it. The commit must check that the owner's node is lost. */
static bool is_orphan(const struct work *work, const struct tdm__actor_record *actor)
{
    char key[TDM__STORE_KEY_BYTES];

    return work->reconciliation->removes_orphans && !tdm__id_is_none(&actor->owner_node) &&
           tdm__txn_find_record(work->txn, tdm__store_key("node", &actor->owner_node, key)) == NULL;
}

/* Deletes the record actor/ID of an actor that does not run on this node, with its name. */
static tdm_status delete_actor(struct work *work, const struct tdm__store_record *record,
                               const struct tdm__actor_record *actor)
{
    struct reconciliation *reconciliation = work->reconciliation;

    if (reconciliation->deletions_count == DELETIONS_AT_ONCE) {
        return TDM_OK;
    }
    reconciliation->deletions_count++;
    reconciliation->removed[reconciliation->removed_count++] =
        (struct tdm__removed_placement){.actor = actor->actor, .placements = actor->placements};
    TDM_TRY(tdm__txn_delete(work->txn, record->key));
    return delete_name(work, actor);
}

/* Deletes the record of an actor that this node has placed on a node that is lost now, and that its
 * daemon does not know any more: that node reported the end, and was lost before it could release
 * the actor. The sweep leaves it to this node, which could place it again. */
static tdm_status check_placed_elsewhere(struct work *work, const struct tdm__store_record *record,
                                         const struct tdm__actor_record *actor)
{
    const struct reconciliation *reconciliation = work->reconciliation;
    char key[TDM__STORE_KEY_BYTES];

    if (!reconciliation->removes_orphans || !actor->recreate_on_node_loss ||
        !tdm__id_equal(&actor->owner_node, &reconciliation->node) ||
        tdm__txn_find_record(work->txn, tdm__store_key("node", &actor->node, key)) != NULL) {
        return TDM_OK;
    }
    for (uint32_t i = 0; i < reconciliation->known_count; i++) {
        if (tdm__id_equal(&reconciliation->known[i], &actor->actor)) {
            return TDM_OK;
        }
    }
    TDM_TRY(tdm__txn_require_node_lost(work->txn, &reconciliation->node, &actor->node));
    return delete_actor(work, record, actor);
}

/* Deletes a record actor/ID that names this node although the actor does not run here, unless the
 * actor is expected. */
static tdm_status check_absent(struct work *work, const struct tdm__store_record *record)
{
    struct tdm__actor_record actor;
    bool is_confirmed = tdm__record_is_confirmed(work->reconciliation->view, record->version);

    TDM_TRY(tdm__actor_record_read(record, &actor));
    if (!tdm__id_equal(&actor.node, &work->reconciliation->node)) {
        return check_placed_elsewhere(work, record, &actor);
    }
    if (runs_here(work->reconciliation, &actor.actor)) {
        return TDM_OK;
    }
    if (is_confirmed && is_orphan(work, &actor)) {
        TDM_TRY(
            tdm__txn_require_node_lost(work->txn, &work->reconciliation->node, &actor.owner_node));
        return delete_actor(work, record, &actor);
    }
    if (tdm__reconcile_absent(is_confirmed, is_confirmed && allocate_expected(work, &actor)) ==
        TDM__ABSENT_EXPECT) {
        return tdm__txn_require_unchanged(work->txn, record->key);
    }
    return delete_actor(work, record, &actor);
}

/* Deletes a name record that names this node, if the store has no other record of the actor and the
 * actor does not run here. */
static tdm_status check_name(struct work *work, const struct tdm__store_record *record)
{
    struct tdm__actor_record holder;
    char key[TDM__STORE_KEY_BYTES];

    TDM_TRY(tdm__actor_record_read(record, &holder));
    if (!tdm__id_equal(&holder.node, &work->reconciliation->node) ||
        runs_here(work->reconciliation, &holder.actor) ||
        tdm__txn_find_record(work->txn, tdm__store_key("actor", &holder.actor, key)) != NULL ||
        work->reconciliation->deletions_count == DELETIONS_AT_ONCE) {
        return TDM_OK;
    }
    work->reconciliation->deletions_count++;
    return tdm__txn_delete(work->txn, record->key);
}

/* Adds the writes of the records of a running actor, unless its group has no record or the actor
 * has to end. */
static tdm_status write_running(struct work *work, const struct tdm__actor_record *actor)
{
    const struct tdm__store_view *view = work->reconciliation->view;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(work->txn, tdm__store_key("actor", &actor->actor, key));
    struct tdm__actor_record stored;
    bool name_waits;
    tdm_status status;

    if (!tdm__id_is_none(&actor->group) && find_bundle(work, actor) == NULL) {
        return TDM_OK;
    }
    if (record != NULL) {
        TDM_TRY(tdm__actor_record_read(record, &stored));
    }
    if (tdm__reconcile_actor(actor, record == NULL ? NULL : &stored,
                             record != NULL && tdm__record_is_confirmed(view, record->version)) !=
        TDM__ACTOR_WRITE_RECORD) {
        return TDM_OK;
    }
    status = tdm__restore_name(work->txn, actor, view, &name_waits);
    if (status != TDM_OK && status != TDM_E_EXISTS) {
        return status;
    }
    /* The daemon ends an actor whose name is taken, and then releases what the record says. */
    return tdm__actor_record_put_unnamed(work->txn, actor);
}

/* ---- the transaction -------------------------------------------------------------------- */

/* Reads the groups of the store into `work`. */
static tdm_status read_groups(struct work *work)
{
    uint32_t count = tdm__txn_records_count(work->txn);

    work->groups = calloc(count + 1, sizeof(*work->groups));
    if (work->groups == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a list of %u groups", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct tdm__store_record *record = tdm__txn_record_at(work->txn, i);

        if (strncmp(record->key, "group/", 6) == 0) {
            TDM_TRY(
                tdm__placement_group_record_read(record, &work->groups[work->groups_count].record));
            work->groups_count++;
        }
    }
    return TDM_OK;
}

/* Notes in the group's record the nodes that have placed its actors on this node, because the
 * record may have been written again since. */
static tdm_status add_requesters(const struct reconciliation *reconciliation,
                                 struct group_state *group)
{
    uint32_t count_before = group->record.requesters_count;

    for (uint32_t i = 0; i < reconciliation->actors_count && group->is_here; i++) {
        const struct tdm__actor_record *actor = &reconciliation->actors[i];

        if (tdm__id_equal(&actor->group, &group->record.id)) {
            TDM_TRY(tdm__placement_group_add_requester(&group->record, &actor->owner_node));
        }
    }
    group->has_changed = group->has_changed || group->record.requesters_count > count_before;
    return TDM_OK;
}

/* Adds the writes of the groups with bundles on this node, and collects the groups of this node
 * that its daemon does not know. */
static tdm_status write_groups(struct work *work, struct reconciliation *reconciliation)
{
    for (uint32_t i = 0; i < work->groups_count; i++) {
        struct group_state *group = &work->groups[i];
        char key[TDM__STORE_KEY_BYTES];
        bool is_known = false;

        (void)tdm__store_key("group", &group->record.id, key);
        for (uint32_t k = 0; k < reconciliation->groups_count; k++) {
            is_known = is_known || tdm__id_equal(&reconciliation->groups[k], &group->record.id);
        }
        if (!is_known && tdm__id_equal(&group->record.owner_node, &reconciliation->node)) {
            reconciliation->stale_groups[reconciliation->stale_groups_count++] = group->record.id;
        }
        TDM_TRY(add_requesters(reconciliation, group));
        if (group->has_changed) {
            TDM_TRY(tdm__placement_group_record_put(work->txn, key, &group->record));
        } else if (group->is_here) {
            TDM_TRY(tdm__txn_require_unchanged(work->txn, key));
        }
    }
    return TDM_OK;
}

/* Adds the deletions of records that name this node wrongly. */
static tdm_status check_records(struct work *work)
{
    for (uint32_t i = 0; i < tdm__txn_records_count(work->txn); i++) {
        const struct tdm__store_record *record = tdm__txn_record_at(work->txn, i);

        if (strncmp(record->key, "actor/", 6) == 0) {
            TDM_TRY(check_absent(work, record));
        } else if (strncmp(record->key, "name/", 5) == 0) {
            TDM_TRY(check_name(work, record));
        }
    }
    return TDM_OK;
}

/* Makes room for the IDs of all groups that the body may find to be stale. */
static tdm_status reset_stale_groups(struct reconciliation *reconciliation, uint32_t count)
{
    free(reconciliation->stale_groups);
    reconciliation->stale_groups_count = 0;
    reconciliation->stale_groups = calloc(count + 1, sizeof(*reconciliation->stale_groups));
    return reconciliation->stale_groups == NULL
               ? tdm__fail(TDM_E_NOMEM, "a list of %u groups", count)
               : TDM_OK;
}

/* Adds all writes of a reconciliation to its transaction. */
static tdm_status work_do(struct work *work, struct reconciliation *reconciliation)
{
    char key[TDM__STORE_KEY_BYTES];

    reconciliation->deletions_count = reconciliation->removed_count = 0;
    TDM_TRY(read_groups(work));
    TDM_TRY(reset_stale_groups(reconciliation, work->groups_count));
    allocate_running(work);
    for (uint32_t i = 0; i < work->groups_count; i++) {
        allocate_bundles(work, &work->groups[i]);
    }
    TDM_TRY(check_records(work));
    for (uint32_t i = 0; i < reconciliation->actors_count && i < ACTORS_AT_ONCE; i++) {
        TDM_TRY(write_running(work, &reconciliation->actors[i]));
    }
    TDM_TRY(write_groups(work, reconciliation));
    TDM_TRY(
        tdm__txn_require_unchanged(work->txn, tdm__store_key("node", &reconciliation->node, key)));
    return tdm__free_record_put(work->txn, &work->node);
}

/* Body of the transaction of a reconciliation. */
static tdm_status reconciliation_body(void *arg, struct tdm__txn *txn)
{
    struct reconciliation *reconciliation = arg;
    struct work work = {
        .reconciliation = reconciliation, .txn = txn, .node = reconciliation->totals};
    char key[TDM__STORE_KEY_BYTES];
    tdm_status status;

    if (tdm__txn_find_record(txn, tdm__store_key("node", &reconciliation->node, key)) == NULL) {
        return tdm__fail(TDM_E_AGAIN, "this node has not joined again yet");
    }
    status = work_do(&work, reconciliation);
    for (uint32_t i = 0; i < work.groups_count; i++) {
        tdm__placement_group_record_fini(&work.groups[i].record);
    }
    free(work.groups);
    return status;
}

/* Frees the state of a reconciliation. NULL is allowed. */
static void reconciliation_free(struct reconciliation *reconciliation)
{
    if (reconciliation != NULL) {
        free(reconciliation->actors);
        free(reconciliation->groups);
        free(reconciliation->stale_groups);
        free(reconciliation->removed);
        free(reconciliation->known);
        free(reconciliation);
    }
}

/* Reports the outcome of a reconciliation and frees the operation's state. */
static void reconciliation_done(void *arg, tdm_status status, const char *detail)
{
    struct reconciliation *reconciliation = arg;
    struct tdm__reconciled reconciled = {.groups = reconciliation->stale_groups,
                                         .groups_count = reconciliation->stale_groups_count,
                                         .removed = reconciliation->removed,
                                         .removed_count = reconciliation->removed_count};

    if (status != TDM_OK) {
        reconciled.groups_count = reconciled.removed_count = 0;
    }
    if (status == TDM_OK && reconciliation->deletions_count == DELETIONS_AT_ONCE) {
        status = TDM_E_AGAIN;
        detail = "there are more records of actors that do not run here";
    }
    reconciliation->fn(reconciliation->arg, status, detail, &reconciled);
    reconciliation_free(reconciliation);
}

/* Copies `count` items of `size` bytes. Running out of memory ends the process. */
static void *copy_items(const void *items, uint32_t count, size_t size)
{
    void *copy = calloc(count + 1u, size);

    TDM_ASSERT(copy != NULL);
    if (count > 0) {
        memcpy(copy, items, count * size);
    }
    return copy;
}

tdm_status tdm__reserve_reconcile(struct tdm__store *store,
                                  const struct tdm__node_holdings *holdings,
                                  const struct tdm__store_view *view, int64_t deadline_ms,
                                  tdm__reserve_reconciled_fn *fn, void *arg)
{
    struct reconciliation *reconciliation = calloc(1, sizeof(*reconciliation));
    char free_key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {"node/*", tdm__store_key("free", &holdings->node, free_key),
                              "group/*", "actor/*", "name/*"};
    tdm_status status;

    if (reconciliation == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a reconciliation with the store");
    }
    *reconciliation = (struct reconciliation){
        .node = holdings->node,
        .totals = *holdings->totals,
        .view = view,
        .actors = copy_items(holdings->actors, holdings->actors_count, sizeof(*holdings->actors)),
        .actors_count = holdings->actors_count,
        .groups = copy_items(holdings->groups, holdings->groups_count, sizeof(*holdings->groups)),
        .groups_count = holdings->groups_count,
        .removes_orphans = holdings->removes_orphans,
        .known = copy_items(holdings->known, holdings->known_count, sizeof(*holdings->known)),
        .known_count = holdings->known_count,
        .removed = calloc(DELETIONS_AT_ONCE, sizeof(*reconciliation->removed)),
        .fn = fn,
        .arg = arg};
    qsort(reconciliation->actors, reconciliation->actors_count, sizeof(*reconciliation->actors),
          compare_actors);
    TDM_ASSERT(reconciliation->removed != NULL);
    /* Without the read cache, which may lack records that name this node. */
    status = tdm__retrying_txn_run(store, patterns, 5, deadline_ms, reconciliation_body,
                                   reconciliation_done, reconciliation);
    if (status != TDM_OK) {
        reconciliation_free(reconciliation);
    }
    return status;
}

/* ---- all records are written ------------------------------------------------------------ */

/* State of tdm__reserve_settled(). */
struct settlement {
    struct tdm__id node;      /* ID of the node that has written its records. */
    uint64_t generation;      /* Generation of the store in which it has done so. */
    bool with_names;          /* Whether the names of its actors are written, too. */
    tdm__reserve_done_fn *fn; /* Callback that gets the outcome. */
    void *arg;                /* First argument of the callback `fn`. */
};

/* Body of the transaction that notes the generation in free/ID. */
static tdm_status settlement_body(void *arg, struct tdm__txn *txn)
{
    const struct settlement *settlement = arg;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("free", &settlement->node, key));
    struct tdm__node_resources node;

    if (record == NULL) {
        return tdm__fail(TDM_E_AGAIN, "this node has not joined again yet");
    }
    TDM_TRY(tdm__free_record_read(record, &node));
    node.generation = settlement->generation;
    if (settlement->with_names) {
        node.names_generation = settlement->generation;
    }
    return tdm__free_record_put(txn, &node);
}

/* Reports that the generation is noted, and frees the operation's state. */
static void settlement_done(void *arg, tdm_status status, const char *detail)
{
    struct settlement *settlement = arg;

    settlement->fn(settlement->arg, status, detail);
    free(settlement);
}

tdm_status tdm__reserve_settled(struct tdm__store *store, const struct tdm__id *node,
                                uint64_t generation, bool with_names, int64_t deadline_ms,
                                tdm__reserve_done_fn *fn, void *arg)
{
    struct settlement *settlement = calloc(1, sizeof(*settlement));
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("free", node, key)};
    tdm_status status;

    if (settlement == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a reconciliation with the store");
    }
    *settlement = (struct settlement){*node, generation, with_names, fn, arg};
    status = tdm__retrying_txn_run_queued(store, patterns, 1, deadline_ms, settlement_body,
                                          settlement_done, settlement);
    if (status != TDM_OK) {
        free(settlement);
    }
    return status;
}
