/* actor_placement.c - reserving resources and the name of an actor in the store, and giving them
 * back. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Reserving: tdm__actor_entry_reserve() asks the scheduler (scheduler/reserve.h) for a node,
 * resources and the name; the result becomes an event. Releasing: a release keeps a copy of the
 * record until the store has taken it back, also across failures of the store. Resources that are
 * not given back are lost to the whole cluster. Only what a record in the store says is given back:
 * if the store has lost the record, nothing is counted for it once this node has made the store
 * agree with its table of actors (node_reconcile.h). Rewriting: after this node lost its lease, the
 * store may have forgotten records of actors that run; they are written again (restored).
 *
 * Invariants: a release exists for at most one pending request at a time (`is_sent`); it outlives
 * its actor entry; waiters for the end are told when the name is free. Everything runs on the
 * daemon's loop thread. */

#include "actors/daemon/actor_placement.h"

#include "actors/daemon/actor_holdings.h"
#include "actors/daemon/actor_table.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "scheduler/reserve_restore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Milliseconds that one request to the store may take. */
enum { STORE_DEADLINE_MS = 10000 };

/* ---- release ------------------------------------------------------------------------------ */

/* Resources and a name of an actor on their way back into the store. The table of actors owns it
 * until the store has taken them. */
struct placement_release {
    struct placement_release *next; /* Next pending release of the table. */
    struct tdm__node *node;         /* State of this node's daemon, borrowed. */
    /* The actor's record, with the resources and the name to give back. */
    struct tdm__actor_record record;
    bool is_sent; /* True while a request to the store is under way. */
    /* Calls to this daemon that killed the actor and wait until its name is free, owned. */
    struct actor_waiter *waiters;
};

/* Defined below; it sends the next request of a release to the store. */
static void placement_release_send(struct placement_release *release);

/* Replies to the calls that wait for the end of the actor whose resources are released. */
static void placement_release_notify(struct placement_release *release)
{
    while (release->waiters != NULL) {
        struct actor_waiter *waiter = release->waiters;

        release->waiters = waiter->next;
        tdm__incoming_reply_pack(waiter->incoming, "");
        free(waiter);
    }
}

/* Removes and frees a finished release, then retries the actors and groups that wait for resources.
 */
static void placement_release_finish(struct placement_release *release)
{
    struct tdm__node *node = release->node;
    struct placement_release **link = &node->actors->pending_releases;

    while (*link != release) {
        link = &(*link)->next;
    }
    *link = release->next;
    placement_release_notify(release);
    free(release);
    node->events->resources_freed(node);
    tdm__node_actors_check_end_waits(node);
}

/* Handles the store's reply to a release of an actor's resources, and repeats the request if the
 * store may not have carried it out. */
static void on_placement_released(void *arg, tdm_status status, const char *detail)
{
    struct placement_release *release = arg;
    struct tdm__node *node = release->node;

    if (status == TDM_E_EXISTS) {
        /* The store has a later placement of the actor. If that one is on this node, too, and the
         * node of the actor's creator is lost, nobody starts it: this node looks for such records.
         */
        node->actors->recount_is_due =
            node->actors->recount_is_due || tdm__id_equal(&release->record.node, &node->record.id);
    } else if (status != TDM_OK) {
        tdm__log(TDM__WARN, "actors", "giving resources back: %s: %s", tdm_strerror(status),
                 detail);
    }
    /* The waiting calls get their replies whatever the result is, because the actor itself is gone.
     */
    placement_release_notify(release);
    release->is_sent = false;
    if (!node->stopping && (status == TDM_E_STORE || status == TDM_E_TIMEOUT)) {
        placement_release_send(release);
    } else {
        placement_release_finish(release);
    }
}

/* Sends the release's next request to the store, or finishes the release if that is impossible. */
static void placement_release_send(struct placement_release *release)
{
    if (release->node->store == NULL) {
        placement_release_finish(
            release); /* The node stops, and the end of its lease gives the resources back. */
        return;
    }
    if (release->node->actors->releases_are_paused && !release->node->stopping) {
        return; /* The function tdm__node_releases_resume() sends the request later. */
    }
    release->is_sent = true;
    if (tdm__release_actor(release->node->store, &release->record,
                           tdm__deadline_after(STORE_DEADLINE_MS), on_placement_released,
                           release) != TDM_OK) {
        tdm__log(TDM__ERROR, "actors", "resources are not given back: %s", tdm_error_detail());
        placement_release_finish(release);
    }
}

/* Moves the calls that wait for the end of the actor from the entry to the release. */
static void placement_release_take_waiters(struct actor_entry *entry,
                                           struct placement_release *release)
{
    struct actor_waiter **link = &entry->waiters;

    while (*link != NULL) {
        struct actor_waiter *waiter = *link;

        if (waiter->kind != WAITER_FOR_END) {
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        waiter->next = release->waiters;
        release->waiters = waiter;
    }
}

/* ---- reservation -------------------------------------------------------------------------- */

/* Fills the request to the scheduler for the actor's resources and name from the actor's spec. */
static void actor_request_fill(const struct actor_entry *entry, struct tdm__actor_request *request)
{
    const struct tdm__actor_spec *spec = entry->spec;

    *request = (struct tdm__actor_request){.actor = spec->id,
                                           .placement = spec->placement,
                                           .group = spec->group,
                                           .bundle = spec->bundle,
                                           .recreate_on_node_loss = spec->max_restarts != 0 &&
                                                                    tdm__id_is_none(&spec->group),
                                           .placements = entry->record.placements + 1,
                                           .granted = entry->record.granted,
                                           .view = &entry->node->store_view};
    request->placement.owner_node = entry->node->record.id;
    if (spec->name[0] != '\0') {
        (void)tdm__name_key("name", spec->name_space, spec->name, request->name_key);
    }
    memcpy(request->class_name, spec->class_name, sizeof(request->class_name));
}

/* Fills entry->record, the actor's record, with what the scheduler has reserved. */
static void actor_entry_set_record(struct actor_entry *entry,
                                   const struct tdm__actor_request *request,
                                   const struct tdm__actor_placement *reserved)
{
    entry->record =
        (struct tdm__actor_record){.actor = entry->spec->id,
                                   .node = reserved->node.id,
                                   .group = entry->spec->group,
                                   .bundle = entry->spec->bundle,
                                   .grant = reserved->grant,
                                   .owner_node = request->placement.owner_node,
                                   .recreate_on_node_loss = request->recreate_on_node_loss,
                                   .placements = request->placements,
                                   .granted = reserved->granted};
    memcpy(entry->record.name_key, request->name_key, sizeof(entry->record.name_key));
    entry->is_lost_with_node = false;
    memcpy(entry->placement_node_name, reserved->node.name, sizeof(entry->placement_node_name));
    memcpy(entry->record.class_name, entry->spec->class_name, sizeof(entry->record.class_name));
}

/* Fills entry->record, the actor's record, without a node: a release then gives back whatever the
 * store has for the actor. */
static void actor_entry_set_unknown_record(struct actor_entry *entry)
{
    struct tdm__actor_request request;

    actor_request_fill(entry, &request);
    actor_entry_set_record(
        entry, &request,
        &(struct tdm__actor_placement){.bundle = request.bundle, .granted = request.granted});
}

void tdm__actor_entry_release_placement(struct actor_entry *entry,
                                        enum actor_reservation reservation)
{
    struct placement_release *release = calloc(1, sizeof(*release));

    if (release == NULL) {
        tdm__log(TDM__ERROR, "actors", "out of memory: resources are not given back");
        return;
    }
    if (reservation == ACTOR_RESERVES_UNKNOWN) {
        actor_entry_set_unknown_record(entry);
    }
    *release = (struct placement_release){.next = entry->node->actors->pending_releases,
                                          .node = entry->node,
                                          .record = entry->record};
    placement_release_take_waiters(entry, release);
    entry->node->actors->pending_releases = release;
    placement_release_send(release);
}

bool tdm__actor_entry_is_returning(const struct actor_entry *entry)
{
    struct tdm__actor_request request;

    if (entry->node->actors->pending_releases == NULL) {
        return false;
    }
    actor_request_fill(entry, &request);
    for (const struct placement_release *release = entry->node->actors->pending_releases;
         release != NULL; release = release->next) {
        if (tdm__id_equal(&release->record.actor, &entry->spec->id) ||
            (request.name_key[0] != '\0' &&
             strcmp(release->record.name_key, request.name_key) == 0)) {
            return true;
        }
    }
    return false;
}

/* Reports to the actor's state machine that its resources or name were not reserved. */
static void on_placement_failed(struct actor_entry *entry, tdm_status status, const char *detail)
{
    tdm__log(TDM__INFO, "actors", "actor %s has no place: %s", entry->label, detail);
    tdm__actor_entry_report(
        entry,
        (struct actor_event){.kind = ACTOR_ON_NOT_RESERVED, .status = status, .detail = detail});
}

/* Fails if an actor that was placed on this node must not be started: this node was lost since,
 * cannot hold the actor, or is making the store agree with its table of actors. What the table
 * lacked when that began is removed from the store, the actor's name included, and another actor
 * could get the name. */
static tdm_status check_may_start_here(const struct actor_entry *entry)
{
    const struct tdm__node *node = entry->node;

    if (node->actors->releases_are_paused) {
        return tdm__fail(TDM_E_AGAIN, "node %s is writing its records", node->record.name);
    }
    TDM_TRY(tdm__node_check_placed_epoch(node, entry->placed_epoch));
    return tdm__node_check_placement(node, &entry->record, entry->placed_generation);
}

/* Handles the scheduler's result of the reservation for an actor, and reports it to the actor's
 * state machine. */
static void on_placement_reserved(void *arg, tdm_status status, const char *detail,
                                  const struct tdm__actor_placement *reserved)
{
    struct actor_entry *entry = arg;
    struct tdm__actor_request request;
    struct actor_event event = {.kind = ACTOR_ON_RESERVED_ELSEWHERE};

    if (status != TDM_OK) {
        on_placement_failed(entry, status, detail);
        return;
    }
    /* The scheduler has chosen the bundle of the placement group if the spec allowed any. */
    entry->spec->bundle = reserved->bundle;
    actor_request_fill(entry, &request);
    actor_entry_set_record(entry, &request, reserved);
    entry->placed_generation = reserved->generation;
    entry->placed_epoch = reserved->node.epoch;
    entry->owner_epoch = reserved->owner_epoch;
    if (tdm__id_equal(&reserved->node.id, &entry->node->record.id)) {
        event.kind = ACTOR_ON_RESERVED_HERE;
        if (check_may_start_here(entry) != TDM_OK) {
            /* The placement is forgotten when this node writes its records into the store. */
            on_placement_failed(entry, TDM_E_STORE, tdm_error_detail());
            return;
        }
    }
    entry->waits_for[0] = '\0';
    tdm__actor_entry_report(entry, event);
}

void tdm__actor_entry_reserve(struct actor_entry *entry)
{
    struct tdm__actor_request request;

    actor_request_fill(entry, &request);
    if (tdm__reserve_actor(entry->node->store, &request, tdm__deadline_after(STORE_DEADLINE_MS),
                           on_placement_reserved, entry) != TDM_OK) {
        on_placement_failed(entry, TDM_E_NOMEM, tdm_error_detail());
    }
}

/* ---- rewrite lost records --------------------------------------------------------------- */

/* A request to write an actor's lost record into the store again; the actor may have left the table
 * when the reply arrives. */
struct record_rewrite {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    struct tdm__id actor;   /* Id of the actor whose record is written. */
};

/* Handles the store's reply to writing an actor's record again, and reports the result to the
 * actor's state machine. */
static void on_record_rewritten(void *arg, tdm_status status, const char *detail)
{
    struct record_rewrite rewrite = *(struct record_rewrite *)arg;
    struct actor_entry *entry =
        rewrite.node->actors == NULL ? NULL : tdm__actor_entry_find(rewrite.node, &rewrite.actor);
    char text[TDM__ERROR_DETAIL_BYTES];

    free(arg);
    if (entry == NULL) {
        return;
    }
    /* TDM_E_AGAIN: only the name is not written, see scheduler/reserve_restore.h. */
    entry->record_is_written = status == TDM_OK || status == TDM_E_AGAIN;
    (void)snprintf(text, sizeof(text), "the cluster's store lost its record, and %.400s", detail);
    tdm__actor_entry_report(
        entry, (struct actor_event){.kind = ACTOR_ON_REWRITTEN,
                                    .status = status,
                                    .detail = text,
                                    .is_overdue = tdm__clock_ms() - entry->lost_since_ms >
                                                  2 * tdm__node_lease_ms(&rewrite.node->record)});
}

/* A request that cannot be sent is reported as a failure of the store, so that the rewrite is
 * repeated after a second. */
void tdm__actor_entry_rewrite(struct actor_entry *entry)
{
    struct tdm__node *node = entry->node;
    struct record_rewrite *rewrite = malloc(sizeof(*rewrite));

    if (rewrite != NULL) {
        *rewrite = (struct record_rewrite){node, entry->spec->id};
        if (tdm__restore_actor(node->store, &entry->record, &node->store_view,
                               tdm__deadline_after(STORE_DEADLINE_MS), on_record_rewritten,
                               rewrite) == TDM_OK) {
            return;
        }
        free(rewrite);
    }
    tdm__actor_entry_report(
        entry, (struct actor_event){.kind = ACTOR_ON_REWRITTEN, .status = TDM_E_NOMEM});
}

void tdm__actor_entry_record_lost(struct actor_entry *entry)
{
    tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_RECORD_LOST});
    entry->record_is_written = false;
    entry->lost_since_ms = tdm__clock_ms();
}

void tdm__node_actors_records_lost(struct tdm__node *node)
{
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        tdm__actor_entry_record_lost(entry);
    }
}

bool tdm__node_actors_are_written(const struct tdm__node *node)
{
    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        enum actor_reservation reservation = entry->lifecycle.reservation;

        if (!entry->record_is_written &&
            (reservation == ACTOR_RESERVATION_LOST || reservation == ACTOR_RESERVATION_REWRITTEN)) {
            return false;
        }
    }
    return true;
}

bool tdm__node_actors_have_names(const struct tdm__node *node)
{
    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (entry->lifecycle.reservation == ACTOR_RESERVATION_LOST ||
            entry->lifecycle.reservation == ACTOR_RESERVATION_REWRITTEN) {
            return false;
        }
    }
    return true;
}

bool tdm__node_releases_pause(struct tdm__node *node)
{
    for (const struct placement_release *release = node->actors->pending_releases; release != NULL;
         release = release->next) {
        if (release->is_sent) {
            return false;
        }
    }
    node->actors->releases_are_paused = true;
    return true;
}

void tdm__node_releases_resume(struct tdm__node *node)
{
    struct placement_release *next;

    node->actors->releases_are_paused = false;
    for (struct placement_release *release = node->actors->pending_releases; release != NULL;
         release = next) {
        next = release->next;
        if (!release->is_sent) {
            placement_release_send(release);
        }
    }
}

struct tdm__grant *tdm__node_actor_grants(const struct tdm__node *node, uint32_t *count_out)
{
    struct tdm__grant *grants;
    uint32_t count = 0;

    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        count++;
    }
    grants = calloc(count + 1, sizeof(*grants));
    TDM_ASSERT(grants != NULL);
    *count_out = 0;
    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (tdm__actor_lifecycle_holds_resources(&entry->lifecycle) &&
            tdm__id_is_none(&entry->record.group)) {
            grants[(*count_out)++] = entry->record.grant;
        }
    }
    return grants;
}

struct tdm__id *tdm__node_known_actors(const struct tdm__node *node, uint32_t *count_out)
{
    struct tdm__id *known;
    uint32_t count = 0;

    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        count++;
    }
    for (const struct placement_release *release = node->actors->pending_releases; release != NULL;
         release = release->next) {
        count++;
    }
    known = calloc(count + 1u, sizeof(*known));
    TDM_ASSERT(known != NULL);
    *count_out = 0;
    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        known[(*count_out)++] = entry->spec->id;
    }
    for (const struct placement_release *release = node->actors->pending_releases; release != NULL;
         release = release->next) {
        known[(*count_out)++] = release->record.actor;
    }
    return known;
}

void tdm__node_actors_rewrite(struct tdm__node *node)
{
    if (node->lease_status.is_joining && !node->stopping) {
        return; /* Records of actors cannot be restored before. */
    }
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_REWRITE_DUE});
    }
}

/* ---- retry -------------------------------------------------------------------------------- */

void tdm__node_actors_retry(struct tdm__node *node)
{
    struct actor_entry *next;

    if (node->stopping) {
        return;
    }
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (entry->lifecycle.state == ACTOR_WAITING) {
            tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_RETRY});
        }
    }
}
