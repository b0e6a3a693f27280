/* actor_placement.c - a place for an actor: looked for, taken, given back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_entry.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE_DEADLINE_MS = 10000 };

/* ---- given back ------------------------------------------------------------------------- */

/* A place on its way back into the store.  Kept until the store has it: what is not given back
 * is lost to all. */
struct placement_release {
    struct placement_release *next;
    struct tdm__node *node; /* borrowed */
    struct tdm__actor_record record;
    bool record_is_lost;          /* maybe: it has to be there to be given back */
    bool sent;                    /* to the store, which has not answered */
    struct actor_waiter *waiters; /* who killed it: told when its name is free */
};

static void placement_release_send(struct placement_release *placement_release);
static void on_release_record_written(void *arg, tdm_status status, const char *detail);

static void placement_release_notify(struct placement_release *placement_release)
{
    while (placement_release->waiters != NULL) {
        struct actor_waiter *waiter = placement_release->waiters;

        placement_release->waiters = waiter->next;
        tdm__incoming_reply_pack(waiter->incoming, "");
        free(waiter);
    }
}

static void placement_release_finish(struct placement_release *placement_release)
{
    struct tdm__node *node = placement_release->node;
    struct placement_release **place = &node->actors->pending_releases;

    while (*place != placement_release) {
        place = &(*place)->next;
    }
    *place = placement_release->next;
    placement_release_notify(placement_release);
    free(placement_release);
    tdm__node_actors_retry(node);
    tdm__placement_groups_retry(node);
    tdm__node_actors_check_end_waits(node);
}

static void on_placement_released(void *arg, tdm_status status, const char *detail)
{
    struct placement_release *placement_release = arg;

    if (status != TDM_OK) {
        tdm__log(TDM__WARN, "actors", "giving a place back: %s: %s", tdm_strerror(status), detail);
    }
    placement_release_notify(placement_release); /* however it went: the actor itself is gone */
    placement_release->sent = false;
    /* A lost record: the node, joining again, has counted it once more. */
    if (!placement_release->node->stopping &&
        (placement_release->record_is_lost || status == TDM_E_STORE || status == TDM_E_TIMEOUT)) {
        placement_release_send(placement_release);
    } else {
        placement_release_finish(placement_release);
    }
}

static bool must_join_first(const struct tdm__node *node)
{
    return tdm__node_lease_is_joining(node) && !node->stopping;
}

static tdm_status placement_release_submit(struct placement_release *placement_release)
{
    const struct tdm__node *node = placement_release->node;
    int64_t deadline_ms = tdm__deadline_after(PLACE_DEADLINE_MS);

    return placement_release->record_is_lost
               ? tdm__restore_actor(node->store, &placement_release->record, deadline_ms,
                                    on_release_record_written, placement_release)
               : tdm__release_actor(node->store, &placement_release->record, deadline_ms,
                                    on_placement_released, placement_release);
}

static void placement_release_send(struct placement_release *placement_release)
{
    if (placement_release->node->store == NULL) {
        placement_release_finish(
            placement_release); /* the node stops; its lease gives back what it held */
        return;
    }
    if (placement_release->record_is_lost && must_join_first(placement_release->node)) {
        return; /* tdm__node_actors_rewrite() sends it */
    }
    placement_release->sent = true;
    if (placement_release_submit(placement_release) != TDM_OK) {
        tdm__log(TDM__ERROR, "actors", "a place is not given back: %s", tdm_error_detail());
        placement_release_finish(placement_release);
    }
}

/* However it went: what is not there cannot be given back. */
static void on_release_record_written(void *arg, tdm_status status, const char *detail)
{
    struct placement_release *placement_release = arg;

    (void)detail;
    if (status == TDM_E_STORE && placement_release->node->stopping) {
        placement_release_finish(placement_release);
        return;
    }
    placement_release->sent = false;
    placement_release->record_is_lost = status == TDM_E_STORE || status == TDM_E_TIMEOUT;
    placement_release_send(placement_release);
}

static void placement_release_take_waiters(struct actor_entry *entry,
                                           struct placement_release *placement_release)
{
    struct actor_waiter **place = &entry->waiters;

    while (*place != NULL) {
        struct actor_waiter *waiter = *place;

        if (waiter->kind != WAITER_FOR_END) {
            place = &waiter->next;
            continue;
        }
        *place = waiter->next;
        waiter->next = placement_release->waiters;
        placement_release->waiters = waiter;
    }
}

/* ---- taken ------------------------------------------------------------------------------ */

static void make_request(const struct actor_entry *entry, struct tdm__actor_request *request)
{
    const struct tdm__actor_spec *spec = entry->spec;

    *request = (struct tdm__actor_request){.actor = spec->id,
                                           .wish = spec->wish,
                                           .group = spec->group,
                                           .bundle = spec->bundle,
                                           .recreate_on_node_loss = spec->max_restarts != 0 &&
                                                                    tdm__id_is_none(&spec->group)};
    request->wish.owner_node = entry->node->record.id;
    if (spec->name[0] != '\0') {
        (void)snprintf(request->name_key, sizeof(request->name_key), "name/%s/%s", spec->name_space,
                       spec->name);
    }
    memcpy(request->class_name, spec->class_name, sizeof(request->class_name));
}

static void make_record(struct actor_entry *entry, const struct tdm__actor_request *request,
                        const struct tdm__actor_placement *reserved)
{
    entry->record =
        (struct tdm__actor_record){.actor = entry->spec->id,
                                   .node = reserved->node.id,
                                   .group = entry->spec->group,
                                   .bundle = entry->spec->bundle,
                                   .grant = reserved->grant,
                                   .owner_node = request->wish.owner_node,
                                   .recreate_on_node_loss = request->recreate_on_node_loss};
    memcpy(entry->record.name_key, request->name_key, sizeof(entry->record.name_key));
    memcpy(entry->placement_node_name, reserved->node.name, sizeof(entry->placement_node_name));
    memcpy(entry->record.class_name, entry->spec->class_name, sizeof(entry->record.class_name));
}

/* Without a node: whatever the store says that the actor has. */
static void make_unknown_record(struct actor_entry *entry)
{
    struct tdm__actor_request request;

    make_request(entry, &request);
    make_record(entry, &request, &(struct tdm__actor_placement){.bundle = request.bundle});
}

void tdm__actor_entry_release_placement(struct actor_entry *entry,
                                        enum actor_reservation reservation)
{
    struct placement_release *placement_release = calloc(1, sizeof(*placement_release));

    if (placement_release == NULL) {
        tdm__log(TDM__ERROR, "actors", "out of memory: a place is not given back");
        return;
    }
    if (reservation == ACTOR_RESERVES_UNKNOWN) {
        make_unknown_record(entry);
    }
    *placement_release =
        (struct placement_release){.next = entry->node->actors->pending_releases,
                                   .node = entry->node,
                                   .record = entry->record,
                                   .record_is_lost = reservation == ACTOR_RESERVATION_LOST ||
                                                     reservation == ACTOR_RESERVATION_REWRITTEN};
    placement_release_take_waiters(entry, placement_release);
    entry->node->actors->pending_releases = placement_release;
    placement_release_send(placement_release);
}

bool tdm__actor_entry_is_returning(const struct actor_entry *entry)
{
    struct tdm__actor_request request;

    if (entry->node->actors->pending_releases == NULL) {
        return false;
    }
    make_request(entry, &request);
    for (const struct placement_release *placement_release = entry->node->actors->pending_releases;
         placement_release != NULL; placement_release = placement_release->next) {
        if (tdm__id_equal(&placement_release->record.actor, &entry->spec->id) ||
            (request.name_key[0] != '\0' &&
             strcmp(placement_release->record.name_key, request.name_key) == 0)) {
            return true;
        }
    }
    return false;
}

static void on_placement_failed(struct actor_entry *entry, tdm_status status, const char *detail)
{
    tdm__log(TDM__INFO, "actors", "actor %s has no place: %s", entry->label, detail);
    tdm__actor_entry_handle(
        entry,
        (struct actor_event){.kind = ACTOR_ON_NOT_RESERVED, .status = status, .detail = detail});
}

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
    entry->waits_for[0] = '\0';
    entry->spec->bundle = reserved->bundle; /* chosen, if any would do */
    make_request(entry, &request);
    make_record(entry, &request, reserved);
    if (tdm__id_equal(&reserved->node.id, &entry->node->record.id)) {
        event.kind = ACTOR_ON_RESERVED_HERE;
    }
    tdm__actor_entry_handle(entry, event);
}

void tdm__actor_entry_reserve(struct actor_entry *entry)
{
    struct tdm__actor_request request;

    make_request(entry, &request);
    if (tdm__reserve_actor(entry->node->store, &request, tdm__deadline_after(PLACE_DEADLINE_MS),
                           on_placement_reserved, entry) != TDM_OK) {
        on_placement_failed(entry, TDM_E_NOMEM, tdm_error_detail());
    }
}

/* ---- written again ---------------------------------------------------------------------- */

struct rewriting {
    struct tdm__node *node;
    struct tdm__id actor;
};

static void rewritten(void *arg, tdm_status status, const char *detail)
{
    struct rewriting rewriting = *(struct rewriting *)arg;
    struct actor_entry *entry = rewriting.node->actors == NULL
                                    ? NULL
                                    : tdm__actor_entry_find(rewriting.node, &rewriting.actor);
    char text[TDM__ERROR_DETAIL_BYTES];

    free(arg);
    if (entry == NULL) {
        return;
    }
    (void)snprintf(text, sizeof(text), "the cluster's store lost its record, and %.400s", detail);
    tdm__actor_entry_handle(
        entry, (struct actor_event){.kind = ACTOR_ON_REWRITTEN,
                                    .status = status,
                                    .detail = text,
                                    .is_overdue = tdm__clock_ms() - entry->lost_since_ms >
                                                  (int64_t)2 * TDM__NODE_LEASE_MS});
}

/* A failure is reported as one of the store: the rewriting is due again in a second. */
void tdm__actor_entry_rewrite(struct actor_entry *entry)
{
    struct tdm__node *node = entry->node;
    struct rewriting *rewriting = malloc(sizeof(*rewriting));

    if (rewriting != NULL) {
        *rewriting = (struct rewriting){node, entry->spec->id};
        if (tdm__restore_actor(node->store, &entry->record, tdm__deadline_after(PLACE_DEADLINE_MS),
                               rewritten, rewriting) == TDM_OK) {
            return;
        }
        free(rewriting);
    }
    tdm__actor_entry_handle(
        entry, (struct actor_event){.kind = ACTOR_ON_REWRITTEN, .status = TDM_E_NOMEM});
}

void tdm__node_actors_records_lost(struct tdm__node *node)
{
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_RECORD_LOST});
        entry->lost_since_ms = tdm__clock_ms();
    }
    for (struct placement_release *placement_release = node->actors->pending_releases;
         placement_release != NULL; placement_release = placement_release->next) {
        placement_release->record_is_lost = !tdm__id_is_none(&placement_release->record.node);
    }
}

uint32_t tdm__node_pending_releases(const struct tdm__node *node, struct tdm__grant *grants)
{
    uint32_t count = 0;

    for (const struct placement_release *placement_release = node->actors->pending_releases;
         placement_release != NULL; placement_release = placement_release->next) {
        if (placement_release->record_is_lost &&
            tdm__id_is_none(&placement_release->record.group)) {
            if (grants != NULL) {
                grants[count] = placement_release->record.grant;
            }
            count++;
        }
    }
    return count;
}

void tdm__node_actors_rewrite(struct tdm__node *node)
{
    struct placement_release *next;

    if (must_join_first(node)) {
        return;
    }
    for (struct placement_release *placement_release = node->actors->pending_releases;
         placement_release != NULL; placement_release = next) {
        next = placement_release->next;
        if (placement_release->record_is_lost && !placement_release->sent) {
            placement_release_send(placement_release);
        }
    }
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_REWRITE_DUE});
    }
}

/* ---- another try ------------------------------------------------------------------------ */

void tdm__node_actors_retry(struct tdm__node *node)
{
    struct actor_entry *next;

    if (node->stopping) {
        return;
    }
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (entry->lifecycle.state == ACTOR_WAITING) {
            tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_RETRY});
        }
    }
}
