/* actor_table.c - the actors of a node, those who wait for them, and how they ended. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/actor_entry.h"
#include "actors/node/state.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
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

const struct tombstone *tdm__tombstone_find(struct tdm__node *node, const struct tdm__id *id)
{
    for (uint32_t i = 0; i < TOMBSTONES_MAX; i++) {
        const struct tombstone *tombstone = &node->actors->tombstones[i];

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

void tdm__actor_entry_wait(struct actor_entry *entry, enum waiter_kind kind,
                           struct tdm__incoming *incoming)
{
    struct waiter *waiter = calloc(1, sizeof(*waiter));

    if (waiter == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "one more who waits for an actor");
        return;
    }
    *waiter = (struct waiter){entry->waiters, kind, incoming};
    entry->waiters = waiter;
}

void tdm__actor_entry_answer_life(struct actor_entry *entry,
                                  void (*answer)(void *arg, struct tdm__incoming *incoming),
                                  void *arg)
{
    struct waiter **place = &entry->waiters;

    while (*place != NULL) {
        struct waiter *waiter = *place;

        if (waiter->kind != WAITS_FOR_LIFE) {
            place = &waiter->next;
            continue;
        }
        *place = waiter->next;
        answer(arg, waiter->incoming);
        free(waiter);
    }
}

/* An end is an end when the places are free again, too. */
static bool anything_matches(struct tdm__node *node, const struct ender *ender)
{
    if (node->actors->releases != NULL) {
        return true;
    }
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (ender->matches(entry->spec, &ender->key)) {
            return true;
        }
    }
    return false;
}

void tdm__node_actors_tell_enders(struct tdm__node *node)
{
    struct ender **place = &node->actors->enders;

    while (*place != NULL) {
        struct ender *ender = *place;

        if (anything_matches(node, ender)) {
            place = &ender->next;
            continue;
        }
        *place = ender->next;
        ender->fn(ender->arg);
        free(ender);
        place = &node->actors->enders; /* it may have had others told */
    }
}

static void answer_all(struct actor_entry *entry, tdm_status status, const char *text)
{
    while (entry->waiters != NULL) {
        struct waiter *waiter = entry->waiters;

        entry->waiters = waiter->next;
        if (waiter->kind == WAITS_FOR_END) {
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
    struct actor_entry **place = &node->actors->all;
    struct tombstone *tombstone = &node->actors->tombstones[node->actors->tombstones_next];

    while (*place != entry) {
        place = &(*place)->next;
    }
    *place = entry->next;
    tdm__node_state_ended(node, entry, text);
    tombstone->id = entry->spec->id;
    tombstone->status = status;
    free(tombstone->text);
    tombstone->text = strdup(text);
    TDM_ASSERT(tombstone->text != NULL);
    node->actors->tombstones_next = (node->actors->tombstones_next + 1) % TOMBSTONES_MAX;
    tdm__actor_entry_tell_home(entry, status, text);
    answer_all(entry, status, text);
    tdm__timer_destroy(entry->timer);
    tdm__actor_spec_destroy(entry->spec);
    free(entry);
    tdm__node_actors_tell_enders(node);
}

/* ---- the whole table -------------------------------------------------------------------- */

tdm_status tdm__node_actors_create(struct tdm__node *node)
{
    node->actors = calloc(1, sizeof(*node->actors));
    return node->actors == NULL ? tdm__fail(TDM_E_NOMEM, "the table of actors")
                                : tdm__node_health_start(node);
}

void tdm__node_actors_destroy(struct tdm__node *node)
{
    if (node->actors == NULL) {
        return;
    }
    for (struct actor_entry *entry = node->actors->all, *next; entry != NULL; entry = next) {
        next = entry->next;
        tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "its node has stopped");
    }
    tdm__node_early_questions(node, TDM__NEVER);
    tdm__node_health_stop(node);
    while (node->actors->enders != NULL) {
        struct ender *ender = node->actors->enders;

        node->actors->enders = ender->next;
        free(ender);
    }
    for (uint32_t i = 0; i < TOMBSTONES_MAX; i++) {
        free(node->actors->tombstones[i].text);
    }
    free(node->actors);
    node->actors = NULL;
}

struct tdm__grant *tdm__node_actor_grants(struct tdm__node *node, uint32_t *count_out)
{
    struct tdm__grant *grants;
    uint32_t count = tdm__node_releases_lost(node, NULL);

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        count++;
    }
    grants = calloc(count + 1, sizeof(*grants));
    TDM_ASSERT(grants != NULL);
    *count_out = tdm__node_releases_lost(node, grants);
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (tdm__actor_lifecycle_holds_resources(&entry->lifecycle) &&
            tdm__id_is_none(&entry->record.group)) {
            grants[(*count_out)++] = entry->record.grant;
        }
    }
    return grants;
}

void tdm__node_actors_list(struct tdm__node *node, tdm_writer *writer)
{
    uint32_t count = 0;
    char id[TDM__ID_TEXT_BYTES];

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        count++;
    }
    tdm_write_array(writer, count);
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        tdm_write_array(writer, 5);
        tdm_write_string(writer, tdm__id_text(&entry->spec->id, id));
        tdm_write_string(writer, entry->spec->name);
        tdm_write_string(writer, entry->spec->class_name);
        tdm_write_string(writer, tdm__actor_state_text(entry->lifecycle.state));
        tdm_write_int(writer, entry->worker == NULL ? 0 : entry->worker->pid);
    }
}
