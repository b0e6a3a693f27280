/* actor_place.c - a place for an actor: looked for, taken, given back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/actor_entry.h"
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
struct release {
    struct release *next;
    struct tdm__node *node; /* borrowed */
    struct tdm__actor_record record;
    bool record_is_lost;    /* maybe: it has to be there to be given back */
    bool sent;              /* to the store, which has not answered */
    struct waiter *waiters; /* who killed it: told when its name is free */
};

static void release_send(struct release *release);
static void written_for_release(void *arg, tdm_status status, const char *detail);

static void tell_killers(struct release *release)
{
    while (release->waiters != NULL) {
        struct waiter *waiter = release->waiters;

        release->waiters = waiter->next;
        tdm__incoming_reply_pack(waiter->incoming, "");
        free(waiter);
    }
}

static void release_over(struct release *release)
{
    struct tdm__node *node = release->node;
    struct release **place = &node->actors->releases;

    while (*place != release) {
        place = &(*place)->next;
    }
    *place = release->next;
    tell_killers(release);
    free(release);
    tdm__node_actors_retry(node);
    tdm__node_groups_retry(node);
    tdm__node_actors_tell_enders(node);
}

static void given_back(void *arg, tdm_status status, const char *detail)
{
    struct release *release = arg;

    if (status != TDM_OK) {
        tdm__log(TDM__WARN, "actors", "giving a place back: %s: %s", tdm_strerror(status),
                 detail);
    }
    tell_killers(release); /* however it went: the actor itself is gone */
    release->sent = false;
    /* A lost record: the node, joining again, has counted it once more. */
    if (!release->node->stopping &&
        (release->record_is_lost || status == TDM_E_STORE || status == TDM_E_TIMEOUT)) {
        release_send(release);
    } else {
        release_over(release);
    }
}

static bool must_join_first(const struct tdm__node *node)
{
    return tdm__node_is_joining(node) && !node->stopping;
}

static tdm_status release_ask(struct release *release)
{
    const struct tdm__node *node = release->node;
    int64_t deadline_ms = tdm__deadline_in(PLACE_DEADLINE_MS);

    return release->record_is_lost
               ? tdm__reserve_again(node->store, &release->record, deadline_ms,
                                    written_for_release, release)
               : tdm__release_actor(node->store, &release->record, deadline_ms, given_back,
                                    release);
}

static void release_send(struct release *release)
{
    if (release->node->store == NULL) {
        release_over(release); /* the node stops; its lease gives back what it held */
        return;
    }
    if (release->record_is_lost && must_join_first(release->node)) {
        return; /* tdm__node_actors_rewrite() sends it */
    }
    release->sent = true;
    if (release_ask(release) != TDM_OK) {
        tdm__log(TDM__ERROR, "actors", "a place is not given back: %s", tdm_error_detail());
        release_over(release);
    }
}

/* However it went: what is not there cannot be given back. */
static void written_for_release(void *arg, tdm_status status, const char *detail)
{
    struct release *release = arg;

    (void)detail;
    if (status == TDM_E_STORE && release->node->stopping) {
        release_over(release);
        return;
    }
    release->sent = false;
    release->record_is_lost = status == TDM_E_STORE || status == TDM_E_TIMEOUT;
    release_send(release);
}

static void take_killers(struct actor_entry *entry, struct release *release)
{
    struct waiter **place = &entry->waiters;

    while (*place != NULL) {
        struct waiter *waiter = *place;

        if (waiter->kind != WAITS_FOR_END) {
            place = &waiter->next;
            continue;
        }
        *place = waiter->next;
        waiter->next = release->waiters;
        release->waiters = waiter;
    }
}

/* ---- taken ------------------------------------------------------------------------------ */

static void make_request(const struct actor_entry *entry, struct tdm__reserve_actor *request)
{
    const struct tdm__actor_spec *spec = entry->spec;

    *request = (struct tdm__reserve_actor){.actor = spec->id,
                                           .wish = spec->wish,
                                           .group = spec->group,
                                           .bundle = spec->bundle,
                                           .returns = spec->max_restarts != 0 &&
                                                      tdm__id_is_none(&spec->group)};
    request->wish.home = entry->node->record.id;
    if (spec->name[0] != '\0') {
        (void)snprintf(request->name_key, sizeof(request->name_key), "name/%s/%s",
                       spec->name_space, spec->name);
    }
    memcpy(request->class_name, spec->class_name, sizeof(request->class_name));
}

static void make_record(struct actor_entry *entry, const struct tdm__reserve_actor *request,
                        const struct tdm__reserved *reserved)
{
    entry->record = (struct tdm__actor_record){.actor = entry->spec->id,
                                               .node = reserved->node.id,
                                               .group = entry->spec->group,
                                               .bundle = entry->spec->bundle,
                                               .grant = reserved->grant,
                                               .home = request->wish.home,
                                               .returns = request->returns};
    memcpy(entry->record.name_key, request->name_key, sizeof(entry->record.name_key));
    memcpy(entry->place_name, reserved->node.name, sizeof(entry->place_name));
    memcpy(entry->record.class_name, entry->spec->class_name, sizeof(entry->record.class_name));
}

/* Without a node: whatever the store says that the actor has. */
static void make_unknown_record(struct actor_entry *entry)
{
    struct tdm__reserve_actor request;

    make_request(entry, &request);
    make_record(entry, &request, &(struct tdm__reserved){.bundle = request.bundle});
}

void tdm__actor_entry_give_place_back(struct actor_entry *entry,
                                      enum actor_reservation reservation)
{
    struct release *release = calloc(1, sizeof(*release));

    if (release == NULL) {
        tdm__log(TDM__ERROR, "actors", "out of memory: a place is not given back");
        return;
    }
    if (reservation == ACTOR_RESERVES_UNKNOWN) {
        make_unknown_record(entry);
    }
    *release = (struct release){.next = entry->node->actors->releases,
                                .node = entry->node,
                                .record = entry->record,
                                .record_is_lost = reservation == ACTOR_RESERVATION_LOST ||
                                                  reservation == ACTOR_RESERVATION_REWRITTEN};
    take_killers(entry, release);
    entry->node->actors->releases = release;
    release_send(release);
}

bool tdm__actor_entry_is_returning(const struct actor_entry *entry)
{
    struct tdm__reserve_actor request;

    if (entry->node->actors->releases == NULL) {
        return false;
    }
    make_request(entry, &request);
    for (const struct release *release = entry->node->actors->releases; release != NULL;
         release = release->next) {
        if (tdm__id_equal(&release->record.actor, &entry->spec->id) ||
            (request.name_key[0] != '\0' &&
             strcmp(release->record.name_key, request.name_key) == 0)) {
            return true;
        }
    }
    return false;
}

static void not_placed(struct actor_entry *entry, tdm_status status, const char *detail)
{
    tdm__log(TDM__INFO, "actors", "actor %s has no place: %s", entry->label, detail);
    tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_NOT_RESERVED,
                                                        .status = status,
                                                        .detail = detail});
}

static void placed(void *arg, tdm_status status, const char *detail,
                   const struct tdm__reserved *reserved)
{
    struct actor_entry *entry = arg;
    struct tdm__reserve_actor request;
    struct actor_event event = {.kind = ACTOR_ON_RESERVED_ELSEWHERE};

    if (status != TDM_OK) {
        not_placed(entry, status, detail);
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
    struct tdm__reserve_actor request;

    make_request(entry, &request);
    if (tdm__reserve_actor(entry->node->store, &request, tdm__deadline_in(PLACE_DEADLINE_MS),
                           placed, entry) != TDM_OK) {
        not_placed(entry, TDM_E_NOMEM, tdm_error_detail());
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
    (void)snprintf(text, sizeof(text), "the cluster's store lost its record, and %.400s",
                   detail);
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
        if (tdm__reserve_again(node->store, &entry->record, tdm__deadline_in(PLACE_DEADLINE_MS),
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
    for (struct release *release = node->actors->releases; release != NULL;
         release = release->next) {
        release->record_is_lost = !tdm__id_is_none(&release->record.node);
    }
}

uint32_t tdm__node_releases_lost(const struct tdm__node *node, struct tdm__grant *grants)
{
    uint32_t count = 0;

    for (const struct release *release = node->actors->releases; release != NULL;
         release = release->next) {
        if (release->record_is_lost && tdm__id_is_none(&release->record.group)) {
            if (grants != NULL) {
                grants[count] = release->record.grant;
            }
            count++;
        }
    }
    return count;
}

void tdm__node_actors_rewrite(struct tdm__node *node)
{
    struct release *next;

    if (must_join_first(node)) {
        return;
    }
    for (struct release *release = node->actors->releases; release != NULL; release = next) {
        next = release->next;
        if (release->record_is_lost && !release->sent) {
            release_send(release);
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
