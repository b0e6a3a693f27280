/* actor_table.c - the table of actors of a node, the calls that wait for them, and the tombstones
 * of ended actors. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The table is an unordered list of entries (actor_entry.h), owned by struct tdm__node. Entries are
 * added when this daemon is asked to create or start an actor, and removed by the action
 * ACTOR_DO_END or ACTOR_DO_REFUSE of the lifecycle. Removing an entry leaves one of
 * ACTOR_TOMBSTONES_MAX tombstones and replies to all waiters.
 *
 * Invariants: an id is in the table at most once; each waiting call is owned by exactly one waiter
 * list; end waits are checked whenever an entry or a pending release goes. Everything runs on the
 * daemon's loop thread. */

#include "actors/daemon/actor_table.h"

#include "actors/daemon/worker_processes.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

struct actor_entry *tdm__actor_entry_find(struct tdm__node *node, const struct tdm__id *id)
{
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (tdm__id_equal(&entry->spec->id, id)) {
            return entry;
        }
    }
    return NULL;
}

const struct actor_tombstone *tdm__tombstone_find(struct tdm__node *node, const struct tdm__id *id)
{
    for (uint32_t i = 1; i <= ACTOR_TOMBSTONES_MAX; i++) { /* The newest one first. */
        const struct actor_tombstone *tombstone =
            &node->actors->tombstones[(node->actors->next_tombstone + ACTOR_TOMBSTONES_MAX - i) %
                                      ACTOR_TOMBSTONES_MAX];

        if (tombstone->text != NULL && tdm__id_equal(&tombstone->id, id)) {
            return tombstone;
        }
    }
    return NULL;
}

struct actor_entry *tdm__actor_entry_add(struct tdm__node *node, struct tdm__actor_spec *spec)
{
    struct actor_entry *entry = calloc(1, sizeof(*entry));

    if (entry == NULL) {
        return NULL;
    }
    entry->node = node;
    entry->spec = spec;
    (void)tdm__actor_label(spec->name, spec->class_name, &spec->id, entry->label,
                           sizeof(entry->label));
    entry->next = node->actors->all;
    node->actors->all = entry;
    return entry;
}

void tdm__actor_entry_add_waiter(struct actor_entry *entry, enum actor_waiter_kind kind,
                                 struct tdm__incoming_call *incoming)
{
    struct actor_waiter *waiter = calloc(1, sizeof(*waiter));

    if (waiter == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a call that waits for an actor");
        return;
    }
    *waiter = (struct actor_waiter){entry->waiters, kind, incoming};
    entry->waiters = waiter;
}

void tdm__actor_entry_reply_waiters(struct actor_entry *entry, enum actor_waiter_kind kind,
                                    void (*reply)(void *arg, struct tdm__incoming_call *incoming),
                                    void *arg)
{
    struct actor_waiter **link = &entry->waiters;

    while (*link != NULL) {
        struct actor_waiter *waiter = *link;

        if (waiter->kind != kind) {
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        reply(arg, waiter->incoming);
        free(waiter);
    }
}

/* True while an actor that matches `wait` is left, or resources of any ended actor are on their way
 * back to the store. */
static bool end_wait_is_pending(struct tdm__node *node, const struct actors_end_wait *wait)
{
    if (node->actors->pending_releases != NULL) {
        return true;
    }
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (wait->matches(entry->spec, &wait->key)) {
            return true;
        }
    }
    return false;
}

void tdm__node_actors_check_end_waits(struct tdm__node *node)
{
    struct actors_end_wait **link = &node->actors->actors_end_waits;

    while (*link != NULL) {
        struct actors_end_wait *wait = *link;

        if (end_wait_is_pending(node, wait)) {
            link = &wait->next;
            continue;
        }
        *link = wait->next;
        wait->fn(wait->arg);
        free(wait);
        /* Start again, because the callback may have changed the list. */
        link = &node->actors->actors_end_waits;
    }
}

/* Replies to all waiters of an actor that has ended: success for those that wait for the end,
 * failure for the others. */
static void actor_entry_finish_waiters(struct actor_entry *entry, tdm_status status,
                                       const char *text)
{
    while (entry->waiters != NULL) {
        struct actor_waiter *waiter = entry->waiters;

        entry->waiters = waiter->next;
        if (waiter->kind == WAITER_FOR_END) {
            tdm__incoming_reply_pack(waiter->incoming, "");
        } else {
            tdm__incoming_fail(waiter->incoming, status, text);
        }
        free(waiter);
    }
}

void tdm__actor_entry_remove(struct actor_entry *entry, tdm_status status, const char *text)
{
    struct tdm__node *node = entry->node;
    struct actor_entry **link = &node->actors->all;
    struct actor_tombstone *tombstone = &node->actors->tombstones[node->actors->next_tombstone];

    while (*link != entry) {
        link = &(*link)->next;
    }
    *link = entry->next;
    tombstone->id = entry->spec->id;
    tombstone->start_incarnation = entry->start_incarnation;
    tombstone->placements = entry->record.placements;
    tombstone->status = status;
    free(tombstone->text);
    tombstone->text = strdup(text);
    TDM_ASSERT(tombstone->text != NULL);
    node->actors->next_tombstone = (node->actors->next_tombstone + 1) % ACTOR_TOMBSTONES_MAX;
    actor_entry_finish_waiters(entry, status, text);
    tdm__timer_destroy(entry->timer);
    tdm__actor_spec_destroy(entry->spec);
    free(entry);
    tdm__node_actors_check_end_waits(node);
}

/* ---- events -------------------------------------------------------------------------------- */

void tdm__actor_entry_report(struct actor_entry *entry, struct actor_event event)
{
    entry->node->events->actor_event(entry, event);
}

/* ---- the whole table -------------------------------------------------------------------- */

tdm_status tdm__actor_table_create(struct tdm__node *node)
{
    node->actors = calloc(1, sizeof(*node->actors));
    return node->actors == NULL ? tdm__fail(TDM_E_NOMEM, "the table of actors") : TDM_OK;
}

void tdm__actor_table_destroy(struct tdm__node *node)
{
    while (node->actors->actors_end_waits != NULL) {
        struct actors_end_wait *wait = node->actors->actors_end_waits;

        node->actors->actors_end_waits = wait->next;
        free(wait);
    }
    for (uint32_t i = 0; i < ACTOR_TOMBSTONES_MAX; i++) {
        free(node->actors->tombstones[i].text);
    }
    free(node->actors);
    node->actors = NULL;
}
