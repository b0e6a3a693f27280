/* node_reconcile.c - writes what this node holds into a store that has lost changes. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The generation of the store changes when Redis was restarted or replaced, or when a node finds
 * that its own record went back in time. Then the store may have lost the newest changes, or all.
 * This daemon then takes these steps, each of which is repeated until it succeeds:
 *
 *   DUE          releases of resources that are under way end first; later ones wait
 *   RECONCILING  one commit makes the store agree with the daemon's table
 *                (scheduler/reserve_reconcile.h)
 *   REWRITING    each actor and group is checked once more, and ends if another claim has won
 *   SETTLING     the generation is noted in free/ID, for the other nodes: first when all records
 *                are written, and again when all names are
 *
 * A name may be that of a record which no daemon has confirmed. An actor that had the name before
 * takes it when all nodes that were known before have written their records, and a new actor when
 * they have written their names; both do so when missing nodes count as lost. At that time all
 * actors and groups are checked again, because another node may have made its claims after this
 * one. Everything runs on the daemon's loop thread. */

#include "actors/daemon/node_reconcile.h"

#include "actors/daemon/actor_holdings.h"
#include "actors/daemon/actor_placement.h"
#include "actors/daemon/actor_table.h"
#include "actors/daemon/placement_group_service.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "scheduler/reserve_reconcile.h"

#include <stdlib.h>

enum {
    STORE_DEADLINE_MS = 10000, /* Milliseconds that one request to the store may take. */
    /* Milliseconds after which a step that waits for something is tried again. Callers that want a
     * name wait for several steps of several nodes, one after the other. */
    LOOK_AGAIN_MS = 200
};

/* Steps of a reconciliation, which the note above describes. */
enum reconcile_step {
    RECONCILE_DONE,        /* Everything is written. */
    RECONCILE_DUE,         /* A reconciliation waits for releases, or for the node to join. */
    RECONCILE_RECONCILING, /* The commit is under way. */
    RECONCILE_REWRITING,   /* Actors and groups are being checked. */
    RECONCILE_SETTLING     /* The generation is being noted. */
};

/* State of this node's reconciliation with the store. struct tdm__node owns it. */
struct tdm__node_reconcile {
    enum reconcile_step step; /* The step that is being taken. */
    bool has_records;         /* Whether the store shows that this node has written its records. */
    bool has_names;           /* Whether the store shows that it has written its names, too. */
    /* True if another reconciliation is due after the step that is under way. */
    bool is_due_again;
    /* True if the store may have lost records of this node, which are then all checked once more.
     * Else only what the store has too much is removed. */
    bool checks_all;
    bool is_held; /* True while no missing node counts as lost. */
    /* True if all actors and groups must be checked when missing nodes count as lost. */
    bool check_is_due;
    bool is_reading; /* True while the records free/ID of all nodes are being read. */
    /* Timer that continues while a step or names wait; owned, NULL until it is needed. */
    struct tdm__timer *timer;
    /* IDs of the other nodes that were known before the generation changed, owned. */
    struct tdm__id *known;
    uint32_t known_count; /* Number of entries in `known`. */
};

/* Defined below; it takes the next step if that is possible. */
static void reconcile_advance(struct tdm__node *node);
/* Defined below; it finds out whether the nodes that were known before have settled. */
static void reconcile_check_names(struct tdm__node *node);

/* ---- the commit ------------------------------------------------------------------------- */

/* Handles the removal of a placement whose actor did not run on this node when the commit began: if
 * the actor was started since, its record is written again. */
static void handle_removed(struct tdm__node *node, const struct tdm__removed_placement *removed)
{
    struct actor_entry *entry = tdm__actor_entry_find(node, &removed->actor);

    tdm__node_placement_removed(node, removed);
    if (entry != NULL && tdm__id_equal(&entry->record.node, &node->record.id)) {
        tdm__actor_entry_record_lost(entry);
    }
}

/* Handles the outcome of the commit that makes the store agree with the daemon's table. */
static void on_reconciled(void *arg, tdm_status status, const char *detail,
                          const struct tdm__reconciled *reconciled)
{
    struct tdm__node *node = arg;

    if (node->stopping || node->reconcile == NULL) {
        return;
    }
    if (status == TDM_OK) {
        node->reconcile->step = RECONCILE_REWRITING;
        if (node->reconcile->checks_all) {
            tdm__placement_groups_records_lost(node);
            tdm__node_actors_records_lost(node);
        }
        node->reconcile->checks_all = node->reconcile->is_due_again && node->reconcile->checks_all;
    } else {
        node->reconcile->step = RECONCILE_DUE;
        tdm__log(TDM__INFO, "node", "writing this node's records again: %s: %s",
                 tdm_strerror(status), detail);
    }
    for (uint32_t i = 0; i < reconciled->removed_count; i++) {
        handle_removed(node, &reconciled->removed[i]);
    }
    tdm__node_releases_resume(node);
    for (uint32_t i = 0; i < reconciled->groups_count; i++) {
        tdm__placement_group_orphaned(node, &reconciled->groups[i]);
    }
    if (status == TDM_OK) {
        tdm__placement_groups_rewrite(node);
        tdm__node_actors_rewrite(node);
        reconcile_advance(node);
    }
}

/* Starts the commit, unless this node has to join first or releases are under way. */
static void reconcile_commit(struct tdm__node *node)
{
    struct tdm__node_holdings holdings = {.node = node->record.id,
                                          .totals = &node->totals,
                                          .removes_orphans = !node->reconcile->is_held};
    static const struct tdm__reconciled nothing;
    struct tdm__actor_record *actors;
    struct tdm__id *groups;
    struct tdm__id *known;
    tdm_status status;

    if (node->lease_status.is_joining || !tdm__node_releases_pause(node)) {
        return;
    }
    actors = tdm__node_held_records(node, &holdings.actors_count);
    groups = tdm__placement_groups_ids(node, &holdings.groups_count);
    known = tdm__node_known_actors(node, &holdings.known_count);
    holdings.actors = actors;
    holdings.groups = groups;
    holdings.known = known;
    node->reconcile->step = RECONCILE_RECONCILING;
    node->reconcile->is_due_again = false;
    node->reconcile->has_records = node->reconcile->has_names = false;
    status = tdm__reserve_reconcile(node->store, &holdings, &node->store_view,
                                    tdm__deadline_after(STORE_DEADLINE_MS), on_reconciled, node);
    free(actors);
    free(groups);
    free(known);
    if (status != TDM_OK) {
        on_reconciled(node, status, tdm_error_detail(), &nothing);
    }
}

/* ---- settling --------------------------------------------------------------------------- */

/* Handles the outcome of noting the generation in free/ID. */
static void on_settled(void *arg, tdm_status status, const char *detail)
{
    struct tdm__node *node = arg;
    struct tdm__node_reconcile *reconcile = node->reconcile;

    if (node->stopping || reconcile == NULL) {
        return;
    }
    reconcile->step = RECONCILE_REWRITING;
    if (status != TDM_OK) {
        reconcile->has_records = reconcile->has_names = false;
        tdm__log(TDM__INFO, "node", "writing this node's records again: %s: %s",
                 tdm_strerror(status), detail);
        return;
    }
    if (reconcile->has_names) {
        reconcile->step = RECONCILE_DONE;
        tdm__log(TDM__INFO, "node", "the store has all records of this node");
    }
    reconcile_advance(node);
    reconcile_check_names(node);
}

/* Notes the generation in free/ID if all actors and groups are written, and again if the names are
 * written, too. */
static void reconcile_settle(struct tdm__node *node)
{
    struct tdm__node_reconcile *reconcile = node->reconcile;
    bool has_records =
        tdm__node_actors_are_written(node) && tdm__placement_groups_are_written(node);
    bool has_names = has_records && tdm__node_actors_have_names(node);

    if (!has_records || (reconcile->has_records && reconcile->has_names == has_names)) {
        return;
    }
    reconcile->step = RECONCILE_SETTLING;
    reconcile->has_records = has_records;
    reconcile->has_names = has_names;
    if (tdm__reserve_settled(node->store, &node->record.id, node->store_view.generation, has_names,
                             tdm__deadline_after(STORE_DEADLINE_MS), on_settled, node) != TDM_OK) {
        on_settled(node, TDM_E_NOMEM, tdm_error_detail());
    }
}

static void reconcile_advance(struct tdm__node *node)
{
    struct tdm__node_reconcile *reconcile = node->reconcile;
    bool is_under_way =
        reconcile->step == RECONCILE_RECONCILING || reconcile->step == RECONCILE_SETTLING;

    if (reconcile->is_due_again && !is_under_way) {
        reconcile->step = RECONCILE_DUE;
    }
    if (reconcile->step == RECONCILE_DUE) {
        reconcile_commit(node);
    } else if (reconcile->step == RECONCILE_REWRITING) {
        reconcile_settle(node);
    }
}

/* ---- names ------------------------------------------------------------------------------ */

/* Lets actors that had names before take them. */
static void reconcile_release_holders(struct tdm__node *node)
{
    if (node->store_view.holders_wait) {
        node->store_view.holders_wait = false;
        tdm__node_actors_rewrite(node);
    }
}

/* Lets new actors have names, and tries again to place those that wait for one. */
static void reconcile_release_names(struct tdm__node *node)
{
    if (node->store_view.names_wait) {
        node->store_view.names_wait = false;
        node->events->resources_freed(node);
    }
}

/* Handles the resources of all nodes, which say which nodes have settled. */
static void on_resources_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                              uint32_t records_count)
{
    struct tdm__node *node = arg;
    const struct tdm__node_reconcile *reconcile = node->reconcile;
    struct tdm__node_resources *resources;
    uint32_t count = 0;

    if (reconcile == NULL) {
        return;
    }
    node->reconcile->is_reading = false;
    resources = calloc(records_count + 1u, sizeof(*resources));
    TDM_ASSERT(resources != NULL);
    for (uint32_t i = 0; status == TDM_OK && i < records_count; i++) {
        if (tdm__free_record_read(&records[i], &resources[count]) == TDM_OK) {
            count++;
        }
    }
    if (tdm__nodes_have_settled(reconcile->known, reconcile->known_count, resources, count,
                                node->store_view.generation, false)) {
        reconcile_release_holders(node);
    }
    if (reconcile->step == RECONCILE_DONE && reconcile->has_names &&
        tdm__nodes_have_settled(reconcile->known, reconcile->known_count, resources, count,
                                node->store_view.generation, true)) {
        reconcile_release_names(node);
    }
    free(resources);
}

static void reconcile_check_names(struct tdm__node *node)
{
    static const char *const patterns[] = {"free/*"};

    if (node->store_view.names_wait && !node->reconcile->is_reading) {
        node->reconcile->is_reading = true;
        node->store->ops->read(node->store, patterns, 1, tdm__deadline_after(STORE_DEADLINE_MS),
                               on_resources_read, node);
    }
}

/* ---- events ----------------------------------------------------------------------------- */

/* Defined below; it continues what waits, and sets the timer again. */
static void on_reconcile_timer(void *arg);

/* Sets the timer if a step or names wait. Without a timer the lease's timer continues, once a
 * second. */
static void reconcile_continue_soon(struct tdm__node *node)
{
    struct tdm__node_reconcile *reconcile = node->reconcile;

    if (node->stopping || (reconcile->step == RECONCILE_DONE && !reconcile->is_due_again &&
                           !node->store_view.names_wait)) {
        return;
    }
    if (reconcile->timer == NULL &&
        tdm__timer_create(node->loop, on_reconcile_timer, node, &reconcile->timer) != TDM_OK) {
        return;
    }
    (void)tdm__timer_set(reconcile->timer, tdm__deadline_after(LOOK_AGAIN_MS));
}

static void on_reconcile_timer(void *arg)
{
    struct tdm__node *node = arg;

    if (!node->stopping) {
        tdm__node_reconcile_continue(node);
        reconcile_continue_soon(node);
    }
}

/* Remembers the other nodes that were known before the generation changed. */
static void reconcile_set_known(struct tdm__node *node, const struct tdm__node_record *known,
                                uint32_t known_count)
{
    struct tdm__node_reconcile *reconcile = node->reconcile;

    free(reconcile->known);
    reconcile->known = calloc(known_count + 1u, sizeof(*reconcile->known));
    TDM_ASSERT(reconcile->known != NULL);
    reconcile->known_count = 0;
    for (uint32_t i = 0; i < known_count; i++) {
        if (!tdm__id_equal(&known[i].id, &node->record.id)) {
            reconcile->known[reconcile->known_count++] = known[i].id;
        }
    }
}

void tdm__node_reconcile_renewed(struct tdm__node *node, uint64_t generation, bool is_held,
                                 const struct tdm__node_record *known, uint32_t known_count)
{
    struct tdm__node_reconcile *reconcile = node->reconcile;
    bool is_first = node->store_view.generation == 0;

    reconcile->is_held = is_held;
    if (generation != node->store_view.generation) {
        reconcile_set_known(node, known, known_count);
        node->store_view.generation = generation;
        node->store_view.holders_wait = is_held && reconcile->known_count > 0;
        node->store_view.names_wait = is_held && (reconcile->known_count > 0 || !is_first);
        reconcile->check_is_due = !is_first;
        if (!is_first) {
            /* Resources may be missing until other nodes have written their records. */
            node->lease_status.lost_ms = tdm__clock_ms();
        }
        tdm__node_reconcile_start(node);
        reconcile_check_names(node);
        reconcile_continue_soon(node);
    }
    if (!is_held) {
        reconcile_release_holders(node);
        reconcile_release_names(node);
        if (reconcile->check_is_due) {
            reconcile->check_is_due = false;
            tdm__node_reconcile_start(node);
        }
    }
}

void tdm__node_reconcile_start(struct tdm__node *node)
{
    node->reconcile->is_due_again = true;
    node->reconcile->checks_all = true;
    reconcile_advance(node);
    reconcile_continue_soon(node);
}

void tdm__node_reconcile_orphans(struct tdm__node *node)
{
    node->reconcile->is_due_again = true;
    reconcile_advance(node);
}

void tdm__node_reconcile_continue(struct tdm__node *node)
{
    if (node->actors->recount_is_due) {
        node->actors->recount_is_due = false;
        node->reconcile->is_due_again = true;
    }
    reconcile_advance(node);
    reconcile_check_names(node);
}

tdm_status tdm__node_reconcile_create(struct tdm__node *node)
{
    node->reconcile = calloc(1, sizeof(*node->reconcile));
    return node->reconcile == NULL ? tdm__fail(TDM_E_NOMEM, "a node's reconciliation") : TDM_OK;
}

void tdm__node_reconcile_destroy(struct tdm__node *node)
{
    if (node->reconcile != NULL) {
        tdm__timer_destroy(node->reconcile->timer);
        free(node->reconcile->known);
        free(node->reconcile);
        node->reconcile = NULL;
        node->store_view = (struct tdm__store_view){0};
    }
}
