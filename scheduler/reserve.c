/* reserve.c - allocates resources for nodes and actors in the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation is a transaction on the records of scheduler/records.h, started by a public
 * function. Its state is allocated for the duration of the transaction and freed by its done
 * function.
 *
 * A body may run several times, and its commit may have succeeded although its reply was lost. So
 * every body first checks whether its work is already done. Each decision that depends on a node's
 * existence makes the commit check that node's record. Operations that write shared records are
 * queued, so that those of one process do not conflict with each other (retrying_txn.h). Everything
 * runs on the loop's thread. */

#include "scheduler/reserve.h"

#include "runtime/error.h"
#include "runtime/store/txn.h"
#include "scheduler/nodes_snapshot.h"
#include "scheduler/records.h"
#include "scheduler/retrying_txn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a node joins ----------------------------------------------------------------------- */

/* State of tdm__reserve_node(). */
struct join {
    struct tdm__node_record record;    /* Record of the joining node, to be written. */
    struct tdm__node_resources totals; /* Resources of the joining node, all free. */
    /* Resources that the node's actors outside of placement groups hold, and resources of ended
     * actors whose release is pending and whose record the store may have lost (owned). */
    struct tdm__grant *grants;
    uint32_t grants_count;    /* Number of entries in `grants`. */
    tdm__reserve_done_fn *fn; /* Callback that gets the outcome. */
    void *arg;                /* First argument of the callback `fn`. */
};

/* Subtracts from the joining node's free resources what the bundles of a placement group hold on
 * it. */
static tdm_status allocate_bundles(const struct tdm__store_record *record, struct join *join,
                                   struct tdm__node_resources *node)
{
    struct tdm__placement_group_record group;
    tdm_status status;

    TDM_TRY(tdm__placement_group_record_read(record, &group));
    status = TDM_OK;
    for (uint32_t i = 0; i < group.bundles_count && status == TDM_OK; i++) {
        if (tdm__id_equal(&group.bundles[i].node, &join->record.id)) {
            status = tdm__pool_allocate_grant(&node->pool, &group.bundles[i].grant);
        }
    }
    tdm__placement_group_record_fini(&group);
    return status;
}

/* Body of the transaction of a join: computes the node's free resources and writes its records. */
static tdm_status join_body(void *arg, struct tdm__txn *txn)
{
    struct join *join = arg;
    struct tdm__node_resources node = join->totals;

    for (uint32_t i = 0; i < tdm__txn_records_count(txn); i++) {
        const struct tdm__store_record *record = tdm__txn_record_at(txn, i);

        if (strncmp(record->key, "group/", 6) == 0) {
            TDM_TRY(allocate_bundles(record, join, &node));
            /* The commit fails if the placement group is removed meanwhile, since its removal would
             * not release what was just allocated. */
            TDM_TRY(tdm__txn_require_unchanged(txn, record->key));
        }
    }
    for (uint32_t i = 0; i < join->grants_count; i++) {
        TDM_TRY(tdm__pool_allocate_held_grant(&node.pool, &join->grants[i]));
    }
    node.actors_count = join->grants_count;
    TDM_TRY(tdm__node_record_put(txn, &join->record));
    return tdm__free_record_put(txn, &node);
}

/* Reports the outcome of a join and frees its state. */
static void join_done(void *arg, tdm_status status, const char *detail)
{
    struct join *join = arg;

    join->fn(join->arg, status, detail);
    free(join->grants);
    free(join);
}

tdm_status tdm__reserve_node(struct tdm__store *store, const struct tdm__node_record *record,
                             const struct tdm__node_resources *totals,
                             const struct tdm__grant *grants, uint32_t grants_count,
                             int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg)
{
    struct join *join = calloc(1, sizeof(*join));
    char node_key[TDM__STORE_KEY_BYTES];
    char free_key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("node", &record->id, node_key),
                              tdm__store_key("free", &record->id, free_key), "group/*"};
    tdm_status status;

    if (join != NULL) {
        join->grants = calloc(grants_count + 1, sizeof(*grants));
    }
    if (join == NULL || join->grants == NULL) {
        free(join);
        return tdm__fail(TDM_E_NOMEM, "joining the cluster");
    }
    join->record = *record;
    join->totals = *totals;
    for (uint32_t i = 0; i < grants_count; i++) {
        join->grants[i] = grants[i];
    }
    join->grants_count = grants_count;
    join->fn = fn;
    join->arg = arg;
    status = tdm__retrying_txn_run(store, patterns, 3, deadline_ms, join_body, join_done, join);
    if (status != TDM_OK) {
        free(join->grants);
        free(join);
    }
    return status;
}

/* ---- an actor takes its place ----------------------------------------------------------- */

/* State of tdm__reserve_actor(). */
struct actor_reservation {
    struct tdm__actor_request request; /* Copy of the caller's request. */
    /* Placement that the last run of the transaction's body chose. */
    struct tdm__actor_placement reserved;
    /* Failure of the last run of the body, whose commit only checks that the node for which it
     * failed is lost; TDM_OK if there is none. */
    tdm_status lost_status;
    char lost_detail[256]; /* Text of that failure. */
    /* Node of a bundle that the last run of the body did not find in the cluster; else all zeros.
     */
    struct tdm__id absent;
    /* Record of an earlier placement of the actor, which the last run of the body replaced; its
     * actor ID is all zeros if there was none. */
    struct tdm__actor_record replaced;
    tdm__reserve_actor_fn *fn; /* Callback that gets the placement. */
    void *arg;                 /* First argument of the callback `fn`. */
};

/* Returns whether the node was in the cluster when the transaction read the records. */
static bool node_is_present(const struct tdm__txn *txn, const struct tdm__id *node)
{
    char key[TDM__STORE_KEY_BYTES];

    return tdm__txn_find_record(txn, tdm__store_key("node", node, key)) != NULL;
}

/* Gives back in the snapshot what the replaced placement of the actor holds. Returns the resources
 * of that placement's node, or NULL if there is none. They are also written if that node does not
 * count the placement, which it may do in a moment. */
static struct tdm__node_resources *free_replaced(const struct actor_reservation *actor_reservation,
                                                 struct tdm__nodes_snapshot *snapshot)
{
    const struct tdm__actor_record *replaced = &actor_reservation->replaced;
    struct tdm__node_resources *node = tdm__id_is_none(&replaced->actor)
                                           ? NULL
                                           : tdm__nodes_snapshot_find(snapshot, &replaced->node);

    if (node != NULL && tdm__pool_release_grant(&node->pool, &replaced->grant) == TDM_OK) {
        node->actors_count -= node->actors_count > 0 ? 1 : 0;
    }
    return node;
}

/* Returns how the choice of a node differs from those of other daemons. With a spread, the actors
 * of this one go to the node of the one before them while they fit there, so that a commit of
 * several writes few records; after two lost races they leave it. */
static struct tdm__placement_chance choose_chance(const struct actor_reservation *actor_reservation,
                                                  const struct tdm__txn *txn,
                                                  struct tdm__nodes_snapshot *snapshot)
{
    const struct tdm__actor_request *request = &actor_reservation->request;
    const struct tdm__id *owner = &request->placement.owner_node;
    const struct tdm__last_placed *last = tdm__nodes_snapshot_last_placed(snapshot);
    uint64_t losses = tdm__txn_losses(txn);
    struct tdm__placement_chance chance = tdm__placement_chance_of(
        tdm__id_is_none(owner) ? &request->actor : owner, losses, tdm__txn_spread(txn));

    if (losses - last->losses < 2) {
        chance.again = last->node;
    }
    return chance;
}

/* Notes that an actor is placed on the node. */
static void note_placed(const struct tdm__txn *txn, struct tdm__nodes_snapshot *snapshot,
                        const struct tdm__id *node)
{
    struct tdm__last_placed *last = tdm__nodes_snapshot_last_placed(snapshot);

    if (!tdm__id_equal(&last->node, node)) {
        *last = (struct tdm__last_placed){.node = *node, .losses = tdm__txn_losses(txn)};
    }
}

/* Places the actor on a node, outside of any placement group, and adds the write of that node's
 * resources, and of those of the node on which the actor was placed before. */
static tdm_status place_on_node(struct actor_reservation *actor_reservation, struct tdm__txn *txn)
{
    struct tdm__nodes_snapshot snapshot;
    struct tdm__bundle_placement placement;
    const struct tdm__node_resources *freed;
    struct tdm__placement_chance chance;
    tdm_status status;

    static const struct tdm__ticket no_ticket;

    TDM_TRY(tdm__nodes_snapshot_read(txn, &snapshot));
    tdm__nodes_snapshot_apply_tickets(&snapshot, &no_ticket, false);
    freed = free_replaced(actor_reservation, &snapshot);
    chance = choose_chance(actor_reservation, txn, &snapshot);
    status = tdm__placement_choose_one(snapshot.resources, snapshot.nodes_count,
                                       &actor_reservation->request.placement, &chance, &placement);
    if (status == TDM_OK) {
        struct tdm__node_resources *node = tdm__nodes_snapshot_change(&snapshot, placement.node);

        actor_reservation->reserved.node = snapshot.nodes[placement.node];
        note_placed(txn, &snapshot, &node->id);
        actor_reservation->reserved.grant = placement.grant;
        status = tdm__pool_allocate_grant(&node->pool, &placement.grant);
        node->actors_count++;
        if (!node->is_kept) {
            node->ticket = no_ticket;
        }
        if (status == TDM_OK) {
            status = tdm__txn_require_node_unchanged(txn, &node->id);
        }
        if (status == TDM_OK) {
            status = tdm__free_record_put(txn, node);
        }
        if (status == TDM_OK && freed != NULL && freed != node) {
            status = tdm__free_record_put(txn, freed);
        }
    }
    tdm__nodes_snapshot_fini(&snapshot);
    return status;
}

/* Fails because the actor does not fit into the bundle: with TDM_E_AGAIN if it would fit into the
 * idle bundle, else with TDM_E_NO_RESOURCES. */
static tdm_status fail_bundle(const struct actor_reservation *actor_reservation,
                              const struct tdm__bundle_record *bundle, uint32_t index)
{
    const struct tdm__resources *wanted = &actor_reservation->request.placement.wanted;
    char free_text[256];
    char wanted_text[128];
    struct tdm__text free_of = tdm__text_init(free_text, sizeof(free_text));
    struct tdm__text wanted_of = tdm__text_init(wanted_text, sizeof(wanted_text));
    struct tdm__pool whole = bundle->pool;

    tdm__pool_describe(&bundle->pool, &free_of);
    tdm__resources_describe(wanted, &wanted_of);
    tdm__pool_release_all(&whole);
    return tdm__fail(tdm__pool_fits(&whole, wanted) ? TDM_E_AGAIN : TDM_E_NO_RESOURCES,
                     "bundle %u cannot hold %s: it has %s", index, wanted_text, free_text);
}

/* Allocates the actor's resources from bundle number `index` of its placement group. Fails with
 * TDM_E_NODE_LOST if the bundle's node has no record. */
static tdm_status allocate_from_bundle(struct actor_reservation *actor_reservation,
                                       const struct tdm__txn *txn,
                                       struct tdm__placement_group_record *group, uint32_t index)
{
    struct tdm__bundle_record *bundle = &group->bundles[index];

    if (!node_is_present(txn, &bundle->node)) {
        actor_reservation->absent = bundle->node;
        return tdm__fail(TDM_E_NODE_LOST, "the node of bundle %u has left", index);
    }
    if (!tdm__pool_allocate(&bundle->pool, &actor_reservation->request.placement.wanted,
                            &actor_reservation->reserved.grant)) {
        return fail_bundle(actor_reservation, bundle, index);
    }
    actor_reservation->reserved.node.id = bundle->node;
    actor_reservation->reserved.bundle = index;
    return TDM_OK;
}

/* Allocates the actor's resources from the first bundle of the placement group that has room. Fails
 * with TDM_E_AGAIN if a bundle may have room later. */
static tdm_status allocate_from_any(struct actor_reservation *actor_reservation,
                                    const struct tdm__txn *txn,
                                    struct tdm__placement_group_record *group)
{
    bool may_come_free = false;
    tdm_status status = TDM_E_NO_RESOURCES;

    for (uint32_t i = 0; i < group->bundles_count; i++) {
        status = allocate_from_bundle(actor_reservation, txn, group, i);
        if (status == TDM_OK) {
            return TDM_OK;
        }
        may_come_free = may_come_free || status == TDM_E_AGAIN;
    }
    return may_come_free
               ? tdm__fail(TDM_E_AGAIN, "none of %u bundles has room now", group->bundles_count)
               : tdm__wrap(status, "none of %u bundles", group->bundles_count);
}

/* Allocates the actor's resources from the requested bundle of its placement group, or from any
 * bundle. */
static tdm_status allocate_from_group(struct actor_reservation *actor_reservation,
                                      const struct tdm__txn *txn,
                                      struct tdm__placement_group_record *group)
{
    uint32_t index = actor_reservation->request.bundle;
    const struct tdm__actor_record *replaced = &actor_reservation->replaced;

    if (!tdm__id_is_none(&replaced->actor) && replaced->bundle < group->bundles_count) {
        (void)tdm__pool_release_grant(&group->bundles[replaced->bundle].pool, &replaced->grant);
    }
    if (index == TDM_BUNDLE_ANY) {
        return allocate_from_any(actor_reservation, txn, group);
    }
    return index < group->bundles_count
               ? allocate_from_bundle(actor_reservation, txn, group, index)
               : tdm__fail(TDM_E_INVAL, "bundle %u of a group of %u", index, group->bundles_count);
}

/* Makes a commit of checks only of an attempt that failed with `status` and this thread's error
 * detail, because a node has no record: while the store has a new generation, that does not mean
 * that the node is lost, and the actor must wait. */
static tdm_status fail_if_lost(struct actor_reservation *actor_reservation, struct tdm__txn *txn,
                               tdm_status status)
{
    actor_reservation->lost_status = status;
    (void)snprintf(actor_reservation->lost_detail, sizeof(actor_reservation->lost_detail), "%s",
                   tdm_error_detail());
    return tdm__txn_require_node_lost(txn, &actor_reservation->request.placement.owner_node,
                                      &actor_reservation->absent);
}

/* Places the actor in its placement group and adds the write of the group's record. */
static tdm_status place_in_group(struct actor_reservation *actor_reservation, struct tdm__txn *txn)
{
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("group", &actor_reservation->request.group, key));
    const struct tdm__store_record *node;
    struct tdm__placement_group_record group;
    tdm_status status;

    if (record == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND, "the placement group is gone");
    }
    TDM_TRY(tdm__placement_group_record_read(record, &group));
    if (group.closed) {
        status = tdm__fail(TDM_E_NOT_FOUND, "the placement group is being removed");
    } else if (!group.placed) {
        status = tdm__fail(TDM_E_AGAIN, "its placement group waits for resources");
    } else {
        status = allocate_from_group(actor_reservation, txn, &group);
    }
    if (status == TDM_OK) {
        status = tdm__placement_group_add_requester(
            &group, &actor_reservation->request.placement.owner_node);
    }
    if (status == TDM_OK) {
        status = tdm__placement_group_record_put(txn, key, &group);
    }
    tdm__placement_group_record_fini(&group);
    if (status != TDM_OK && status != TDM_E_AGAIN && !tdm__id_is_none(&actor_reservation->absent)) {
        return fail_if_lost(actor_reservation, txn, status);
    }
    TDM_TRY(status);
    TDM_TRY(tdm__txn_require_node_unchanged(txn, &actor_reservation->reserved.node.id));
    node = tdm__txn_find_record(txn,
                                tdm__store_key("node", &actor_reservation->reserved.node.id, key));
    return tdm__node_record_read(node, &actor_reservation->reserved.node);
}

tdm_status tdm__check_actor_name(struct tdm__txn *txn, const char *name_key,
                                 const struct tdm__id *actor, const struct tdm__id *taker)
{
    const struct tdm__store_record *record;
    struct tdm__actor_record holder;
    char holder_text[TDM__ID_TEXT_BYTES];
    char name[TDM__NAME_OF_KEY_BYTES];

    TDM_TRY(tdm__actor_name_find(txn, name_key, &record, &holder));
    if (record == NULL || tdm__id_equal(&holder.actor, actor)) {
        return TDM_OK;
    }
    if (!node_is_present(txn, &holder.node) &&
        !(holder.recreate_on_node_loss && node_is_present(txn, &holder.owner_node))) {
        TDM_TRY(tdm__txn_require_node_lost(txn, taker, &holder.node));
        return holder.recreate_on_node_loss
                   ? tdm__txn_require_node_lost(txn, taker, &holder.owner_node)
                   : TDM_OK;
    }
    return tdm__fail(TDM_E_EXISTS, "the name \"%s\" is taken by actor %s",
                     tdm__name_of_key(name_key, name), tdm__id_text(&holder.actor, holder_text));
}

/* Returns what the requesting node knows of the store's generation. */
static const struct tdm__store_view *view_of(const struct tdm__actor_request *request)
{
    static const struct tdm__store_view nothing;

    return request->view != NULL ? request->view : &nothing;
}

/* Fails with TDM_E_AGAIN while the name of the request may belong to an actor whose node has not
 * written its records again after the store lost changes. Makes the commit fail so if the store has
 * lost changes that the requesting node does not know of yet. */
static tdm_status check_name_may_move(struct tdm__txn *txn,
                                      const struct tdm__actor_request *request)
{
    const struct tdm__store_record *record;
    struct tdm__actor_record holder;
    char name[TDM__NAME_OF_KEY_BYTES];

    if (request->name_key[0] == '\0') {
        return TDM_OK;
    }
    TDM_TRY(tdm__txn_require_generation(txn, request->name_key, view_of(request)->generation));
    if (!view_of(request)->names_wait) {
        return TDM_OK;
    }
    TDM_TRY(tdm__actor_name_find(txn, request->name_key, &record, &holder));
    if (record != NULL && (tdm__id_equal(&holder.actor, &request->actor) ||
                           tdm__record_is_confirmed(view_of(request), record->version))) {
        return TDM_OK;
    }
    return tdm__fail(TDM_E_AGAIN,
                     "the cluster's store lost changes, and the name \"%s\" may belong to an actor "
                     "of a node that has not written its records again",
                     tdm__name_of_key(request->name_key, name));
}

/* Finds the placement that an earlier commit of this request made, in case the commit's reply was
 * lost. The number of the placement tells it from earlier ones, which the present one replaces. A
 * placement on a lost node does not count. */
static tdm_status find_own_placement(struct actor_reservation *actor_reservation,
                                     struct tdm__txn *txn, bool *found_out)
{
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("actor", &actor_reservation->request.actor, key));
    struct tdm__actor_record own;

    *found_out = false;
    actor_reservation->replaced = (struct tdm__actor_record){.placements = 0};
    if (record == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__actor_record_read(record, &own));
    record = tdm__txn_find_record(txn, tdm__store_key("node", &own.node, key));
    if (record == NULL) { /* The node of the placement is lost. */
        return tdm__txn_require_node_lost(txn, &actor_reservation->request.placement.owner_node,
                                          &own.node);
    }
    if (own.placements != actor_reservation->request.placements) {
        actor_reservation->replaced = own;
        return tdm__txn_require_unchanged(txn, key); /* Of a lost node nothing is given back. */
    }
    *found_out = true;
    actor_reservation->reserved.grant = own.grant;
    actor_reservation->reserved.bundle = own.bundle;
    actor_reservation->reserved.granted = own.granted;
    return tdm__node_record_read(record, &actor_reservation->reserved.node);
}

/* Returns the epoch of the node when the transaction read the records, or 0 if it had none. */
static uint64_t epoch_of(const struct tdm__txn *txn, const struct tdm__id *node)
{
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("node", node, key));

    return record == NULL ? 0 : record->version;
}

/* Body of the transaction that places an actor: chooses a place and adds the writes of its records,
 * unless an earlier commit did so. */
static tdm_status reservation_body(void *arg, struct tdm__txn *txn)
{
    struct actor_reservation *actor_reservation = arg;
    const struct tdm__actor_request *request = &actor_reservation->request;
    struct tdm__actor_record actor = {
        .group = request->group,
        .actor = request->actor,
        .owner_node = request->placement.owner_node,
        .recreate_on_node_loss = request->recreate_on_node_loss,
        .placements = request->placements,
        .granted = request->granted != 0 ? request->granted : view_of(request)->generation};
    const struct tdm__id *owner = &request->placement.owner_node;
    char key[TDM__STORE_KEY_BYTES];
    bool is_placed;

    actor_reservation->lost_status = TDM_OK;
    actor_reservation->absent = (struct tdm__id){{0}};
    actor_reservation->reserved.generation = view_of(request)->generation;
    actor_reservation->reserved.granted = actor.granted;
    actor_reservation->reserved.owner_epoch = epoch_of(txn, owner);
    TDM_TRY(find_own_placement(actor_reservation, txn, &is_placed));
    if (is_placed) {
        TDM_TRY(tdm__txn_require_node_unchanged(txn, &actor_reservation->reserved.node.id));
        return tdm__txn_require_confirmed(txn, tdm__store_key("actor", &request->actor, key));
    }
    if (!tdm__id_is_none(owner) && !node_is_present(txn, owner)) {
        return tdm__fail(TDM_E_AGAIN, "the node that asks has not joined again yet");
    }
    if (!tdm__id_is_none(owner)) {
        TDM_TRY(tdm__txn_require_node_unchanged(txn, owner));
    }
    TDM_TRY(check_name_may_move(txn, request));
    TDM_TRY(tdm__check_actor_name(txn, request->name_key, &request->actor, owner));
    TDM_TRY(tdm__id_is_none(&request->group) ? place_on_node(actor_reservation, txn)
                                             : place_in_group(actor_reservation, txn));
    if (actor_reservation->lost_status != TDM_OK) {
        return TDM_OK;
    }
    actor.node = actor_reservation->reserved.node.id;
    actor.grant = actor_reservation->reserved.grant;
    actor.bundle = actor_reservation->reserved.bundle;
    (void)snprintf(actor.name_key, sizeof(actor.name_key), "%s", request->name_key);
    (void)snprintf(actor.class_name, sizeof(actor.class_name), "%s", request->class_name);
    return tdm__actor_record_put(txn, &actor);
}

/* Reports the placement of an actor to the caller and frees the state of the reservation. */
static void reservation_done(void *arg, tdm_status status, const char *detail)
{
    struct actor_reservation *actor_reservation = arg;

    if (status == TDM_OK && actor_reservation->lost_status != TDM_OK) {
        status = actor_reservation->lost_status;
        detail = actor_reservation->lost_detail;
    }
    actor_reservation->fn(actor_reservation->arg, status, detail,
                          status == TDM_OK ? &actor_reservation->reserved : NULL);
    free(actor_reservation);
}

tdm_status tdm__reserve_actor(struct tdm__store *store, const struct tdm__actor_request *request,
                              int64_t deadline_ms, tdm__reserve_actor_fn *fn, void *arg)
{
    struct actor_reservation *actor_reservation = calloc(1, sizeof(*actor_reservation));
    bool in_group = !tdm__id_is_none(&request->group);
    char actor_key[TDM__STORE_KEY_BYTES];
    char group_key[TDM__STORE_KEY_BYTES];
    const char *patterns[4] = {"node/*", tdm__store_key("actor", &request->actor, actor_key)};
    uint32_t count = 2;
    tdm_status status;

    if (actor_reservation == NULL) {
        return tdm__fail(TDM_E_NOMEM, "placing an actor");
    }
    *actor_reservation = (struct actor_reservation){.request = *request, .fn = fn, .arg = arg};
    patterns[count++] = in_group ? tdm__store_key("group", &request->group, group_key) : "free/*";
    if (request->name_key[0] != '\0') {
        patterns[count++] = request->name_key;
    }
    status = tdm__retrying_txn_run_shared(store, patterns, count, deadline_ms, reservation_body,
                                          reservation_done, actor_reservation);
    if (status != TDM_OK) {
        free(actor_reservation);
    }
    return status;
}

/* ---- an actor leaves its place ---------------------------------------------------------- */

/* State of tdm__release_actor(). */
struct actor_release {
    /* Copy of the record of the actor that is released. */
    struct tdm__actor_record actor;
    tdm__reserve_done_fn *fn; /* Callback that gets the outcome. */
    void *arg;                /* First argument of the callback `fn`. */
};

/* Gives back the resources of the actor `arg` to the pool of its bundle. The group's record is also
 * written if it was written again without this actor, as in release_body(). */
static tdm_status release_from_pool(void *arg, struct tdm__pool *pool)
{
    (void)tdm__pool_release_grant(pool, &((const struct tdm__actor_record *)arg)->grant);
    return TDM_OK;
}

/* Releases the actor's resources in the bundle of its placement group and adds the write of the
 * group's record. */
static tdm_status release_in_bundle(struct tdm__txn *txn, const struct tdm__actor_record *actor)
{
    tdm_status status = tdm__txn_change_bundle(txn, actor, release_from_pool, (void *)actor);

    /* The group may have been removed with everything that its bundles held. */
    return status == TDM_E_NOT_FOUND ? TDM_OK : status;
}

/* Removes the actor's name record if it still belongs to the actor. */
static tdm_status release_name(struct tdm__txn *txn, const struct tdm__actor_record *actor)
{
    const struct tdm__store_record *record;
    struct tdm__actor_record holder;

    TDM_TRY(tdm__actor_name_find(txn, actor->name_key, &record, &holder));
    return record != NULL && tdm__id_equal(&holder.actor, &actor->actor)
               ? tdm__txn_delete(txn, actor->name_key)
               : TDM_OK;
}

/* Body of the transaction that releases an actor: removes its records and releases its resources.
 *
 * The record in the store says what the actor holds, so only the placement in that record is
 * released. Both the daemon of the actor's node and that of its owner's node may release the same
 * placement, each more than once if replies are lost. Meanwhile the actor may have been placed
 * again.
 *
 * The resources of the node are also written if the node has joined again and does not count the
 * grant: it may count the grant in a moment, from records that it has read before this commit, and
 * its commit must not succeed then. */
static tdm_status release_body(void *arg, struct tdm__txn *txn)
{
    const struct actor_release *actor_release = arg;
    const struct tdm__actor_record *actor = &actor_release->actor;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("actor", &actor->actor, key));
    struct tdm__actor_record now;

    if (record == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__actor_record_read(record, &now));
    if (!tdm__id_is_none(&actor->node) &&
        (!tdm__id_equal(&now.node, &actor->node) || now.placements > actor->placements)) {
        return tdm__fail(TDM_E_EXISTS, "the actor was placed again");
    }
    TDM_TRY(tdm__txn_delete(txn, key));
    TDM_TRY(release_name(txn, tdm__id_is_none(&actor->node) ? &now : actor));
    /* The grant of `actor` may contain CPUs that the actor has lent. */
    return tdm__id_is_none(&now.group) ? tdm__txn_change_node(txn, &now.node, &now.grant, NULL)
                                       : release_in_bundle(txn, &now);
}

/* Reports the outcome of an actor's release and frees the operation's state. */
static void release_done(void *arg, tdm_status status, const char *detail)
{
    struct actor_release *actor_release = arg;

    actor_release->fn(actor_release->arg, status, detail);
    free(actor_release);
}

tdm_status tdm__release_actor(struct tdm__store *store, const struct tdm__actor_record *actor,
                              int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg)
{
    struct actor_release *actor_release = calloc(1, sizeof(*actor_release));
    char actor_key[TDM__STORE_KEY_BYTES];
    char place_key[TDM__STORE_KEY_BYTES];
    const char *patterns[3] = {tdm__store_key("actor", &actor->actor, actor_key)};
    uint32_t count = 1;
    tdm_status status;

    if (actor_release == NULL) {
        return tdm__fail(TDM_E_NOMEM, "releasing an actor's place");
    }
    *actor_release = (struct actor_release){*actor, fn, arg};
    if (!tdm__id_is_none(&actor->group)) {
        patterns[count++] = tdm__store_key("group", &actor->group, place_key);
    } else {
        patterns[count++] = tdm__id_is_none(&actor->node)
                                ? "free/*"
                                : tdm__store_key("free", &actor->node, place_key);
    }
    if (actor->name_key[0] != '\0') {
        patterns[count++] = actor->name_key;
    }
    status = tdm__retrying_txn_run_shared(store, patterns, count, deadline_ms, release_body,
                                          release_done, actor_release);
    if (status != TDM_OK) {
        free(actor_release);
    }
    return status;
}
