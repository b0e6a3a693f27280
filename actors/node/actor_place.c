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

bool tdm__actor_entry_has_place(const struct actor_entry *entry)
{
    return entry->state == ACTOR_STARTING || entry->state == ACTOR_ALIVE ||
           entry->state == ACTOR_RESTARTING || entry->state == ACTOR_ENDING;
}

bool tdm__actor_entry_may_restart(const struct actor_entry *entry)
{
    int32_t most = entry->spec->max_restarts;

    return most < 0 || entry->incarnation < (uint32_t)most;
}

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

void tdm__actor_entry_give_place_back(struct actor_entry *entry)
{
    struct release *release = calloc(1, sizeof(*release));

    if (release == NULL) {
        tdm__log(TDM__ERROR, "actors", "out of memory: a place is not given back");
        return;
    }
    *release = (struct release){.next = entry->node->actors->releases,
                                .node = entry->node,
                                .record = entry->record,
                                .record_is_lost = entry->record_is_lost || entry->rewriting};
    entry->record_is_lost = false;
    take_killers(entry, release);
    entry->node->actors->releases = release;
    release_send(release);
}

/* What this actor, or the one that had its name, held is still on its way back. */
static bool is_returning(const struct actor_entry *entry, const char *name_key)
{
    for (const struct release *release = entry->node->actors->releases; release != NULL;
         release = release->next) {
        if (tdm__id_equal(&release->record.actor, &entry->spec->id) ||
            (name_key[0] != '\0' && strcmp(release->record.name_key, name_key) == 0)) {
            return true;
        }
    }
    return false;
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

void tdm__actor_entry_give_any_place_back(struct actor_entry *entry)
{
    struct tdm__reserve_actor request;

    if (!entry->may_hold_place) {
        return;
    }
    entry->may_hold_place = false;
    make_request(entry, &request);
    make_record(entry, &request, &(struct tdm__reserved){.bundle = request.bundle});
    tdm__actor_entry_give_place_back(entry);
}

void tdm__actor_entry_wait_for_place(struct actor_entry *entry, const char *why)
{
    if (entry->released) {
        tdm__actor_entry_give_any_place_back(entry);
        tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED,
                                "its last handle was gone before it had a place");
        return;
    }
    entry->state = ACTOR_WAITING;
    (void)snprintf(entry->waits_for, sizeof(entry->waits_for), "%s", why);
}

static void not_placed(struct actor_entry *entry, tdm_status status, const char *detail)
{
    bool may_come_free = status == TDM_E_AGAIN || status == TDM_E_STORE ||
                         status == TDM_E_TIMEOUT ||
                         (status == TDM_E_NO_RESOURCES &&
                          (entry->incarnation > 0 || tdm__node_lease_was_lost(entry->node)));
    char text[512];

    entry->may_hold_place =
        entry->may_hold_place || status == TDM_E_STORE || status == TDM_E_TIMEOUT;
    if (may_come_free && !entry->unwanted && !entry->node->stopping) {
        tdm__log(TDM__INFO, "actors", "actor %s waits: %s", entry->label, detail);
        (void)snprintf(text, sizeof(text), "it waits: %s", detail);
        tdm__actor_entry_wait_for_place(entry, text);
        return;
    }
    tdm__actor_entry_give_any_place_back(entry);
    if (status == TDM_E_EXISTS && entry->spec->get_if_exists && !entry->unwanted) {
        tdm__actor_entry_give_holder(entry);
        return;
    }
    (void)snprintf(text, sizeof(text), "actor %s cannot be made: %s", entry->label,
                   entry->unwanted ? "it was ended before it had a place" : detail);
    tdm__actor_entry_remove(entry, entry->unwanted ? TDM_E_ACTOR_DIED : status, text);
}

static void placed(void *arg, tdm_status status, const char *detail,
                   const struct tdm__reserved *reserved)
{
    struct actor_entry *entry = arg;
    struct tdm__reserve_actor request;

    if (status != TDM_OK) {
        not_placed(entry, status, detail);
        return;
    }
    entry->waits_for[0] = '\0';
    entry->may_hold_place = false;          /* the same commit gave it up */
    entry->spec->bundle = reserved->bundle; /* chosen, if any would do */
    make_request(entry, &request);
    make_record(entry, &request, reserved);
    if (entry->unwanted || entry->node->stopping) {
        tdm__actor_entry_give_place_back(entry);
        tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "it was ended before it was started");
    } else if (tdm__id_equal(&reserved->node.id, &entry->node->record.id)) {
        tdm__actor_entry_start(entry);
    } else {
        tdm__actor_entry_start_on_other(entry);
    }
}

void tdm__actor_entry_place(struct actor_entry *entry)
{
    struct tdm__node *node = entry->node;
    struct tdm__reserve_actor request;

    if (entry->spec->awaits_arguments) {
        tdm__actor_entry_wait_for_place(
            entry, "it waits: a reference among its constructor's arguments is not there yet");
        return;
    }
    make_request(entry, &request);
    if (is_returning(entry, request.name_key)) {
        tdm__actor_entry_wait_for_place(entry, "");
        return;
    }
    entry->state = ACTOR_PLACING;
    if (tdm__reserve_actor(node->store, &request, tdm__deadline_in(PLACE_DEADLINE_MS), placed,
                           entry) != TDM_OK) {
        tdm__actor_entry_give_any_place_back(entry);
        tdm__actor_entry_remove(entry, TDM_E_NOMEM, tdm_error_detail());
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

    free(arg);
    if (entry == NULL) {
        return;
    }
    entry->rewriting = false;
    if (status == TDM_OK) {
        entry->record_is_lost = false;
    } else if (status == TDM_E_EXISTS ||
               (status == TDM_E_NOT_FOUND &&
                tdm__clock_ms() - entry->lost_since_ms > (int64_t)2 * TDM__NODE_LEASE_MS)) {
        tdm__log(TDM__WARN, "actors", "actor %s is stopped: the store lost it, and %s",
                 entry->label, detail);
        (void)snprintf(entry->failure, sizeof(entry->failure),
                       "the cluster's store lost its record, and %.400s", detail);
        entry->record_is_lost = false;
        tdm__actor_entry_end(entry, true);
    }
}

static void rewrite(struct actor_entry *entry)
{
    struct tdm__node *node = entry->node;
    struct rewriting *rewriting = malloc(sizeof(*rewriting));

    if (rewriting == NULL) {
        return; /* again in a second */
    }
    *rewriting = (struct rewriting){node, entry->spec->id};
    entry->rewriting =
        tdm__reserve_again(node->store, &entry->record, tdm__deadline_in(PLACE_DEADLINE_MS),
                           rewritten, rewriting) == TDM_OK;
    if (!entry->rewriting) {
        free(rewriting);
    }
}

void tdm__node_actors_records_lost(struct tdm__node *node)
{
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (tdm__actor_entry_has_place(entry) && !entry->place_is_lost) {
            entry->record_is_lost = true;
            entry->lost_since_ms = tdm__clock_ms();
        }
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
        if (entry->record_is_lost && !entry->rewriting && !node->stopping) {
            rewrite(entry);
        }
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
        if (entry->state == ACTOR_WAITING) {
            tdm__actor_entry_place(entry);
        }
    }
}
