/* actor_holdings.c - what the actors of this node hold, according to the daemon's own table. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_holdings.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Returns the part of an actor's grant that counts on its node: of an actor in a placement group
 * only the GPUs, since the group holds the rest. */
static struct tdm__grant grant_on_node(const struct tdm__actor_record *record, bool gpus_only)
{
    struct tdm__grant grant = record->grant;

    if (gpus_only || !tdm__id_is_none(&record->group)) {
        grant.cpu = 0;
        memset(grant.custom, 0, sizeof(grant.custom));
    }
    return grant;
}

/* Returns whether the actor of the entry holds resources of this node. */
static bool entry_holds(const struct actor_entry *entry)
{
    return tdm__actor_lifecycle_holds_resources(&entry->lifecycle);
}

/* Returns whether this node has removed the placement of the record, or a later one of the actor.
 */
static bool placement_was_removed(const struct tdm__node *node,
                                  const struct tdm__actor_record *record)
{
    for (uint32_t i = 0; i < REMOVED_PLACEMENTS_MAX; i++) {
        const struct tdm__removed_placement *removed = &node->actors->removed_placements[i];

        if (tdm__id_equal(&removed->actor, &record->actor) &&
            record->placements <= removed->placements) {
            return true;
        }
    }
    return false;
}

void tdm__node_placement_removed(struct tdm__node *node,
                                 const struct tdm__removed_placement *removed)
{
    struct tdm__node_actors *actors = node->actors;

    actors->removed_placements[actors->next_removed_placement] = *removed;
    actors->next_removed_placement = (actors->next_removed_placement + 1) % REMOVED_PLACEMENTS_MAX;
}

tdm_status tdm__node_check_placement(const struct tdm__node *node,
                                     const struct tdm__actor_record *record, uint64_t generation)
{
    struct tdm__pool pool = node->totals.pool;
    bool gpus_only = !node->store_view.names_wait;
    struct tdm__grant wanted = grant_on_node(record, gpus_only);

    if (generation < node->store_view.generation) {
        return tdm__fail(TDM_E_NO_RESOURCES,
                         "it was placed on node %s before the cluster's store lost changes",
                         node->record.name);
    }
    if (placement_was_removed(node, record)) {
        return tdm__fail(TDM_E_NO_RESOURCES,
                         "node %s has given up the resources at which it was placed, because the "
                         "request to start it had not arrived",
                         node->record.name);
    }
    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (entry_holds(entry) && !tdm__id_equal(&entry->spec->id, &record->actor)) {
            struct tdm__grant grant = grant_on_node(&entry->record, gpus_only);

            (void)tdm__pool_allocate_held_grant(&pool, &grant);
        }
    }
    if (tdm__pool_allocate_grant(&pool, &wanted) != TDM_OK) {
        return tdm__fail(TDM_E_NO_RESOURCES,
                         "other actors of node %s hold the resources at which it was placed",
                         node->record.name);
    }
    return TDM_OK;
}

/* A node may also have got a new epoch without being lost. The actor is placed again then, too. */
tdm_status tdm__node_check_placed_epoch(const struct tdm__node *node, uint64_t epoch)
{
    if (node->lease_status.awaits_epoch) {
        return tdm__fail(TDM_E_AGAIN, "node %s joins the cluster again", node->record.name);
    }
    if (epoch < node->record.epoch) {
        return tdm__fail(TDM_E_NO_RESOURCES,
                         "it was placed on node %s in epoch %llu, but the node has joined again in "
                         "epoch %llu",
                         node->record.name, (unsigned long long)epoch,
                         (unsigned long long)node->record.epoch);
    }
    return TDM_OK;
}

struct tdm__actor_record *tdm__node_held_records(const struct tdm__node *node, uint32_t *count_out)
{
    struct tdm__actor_record *records;
    uint32_t count = 0;

    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        count += entry_holds(entry) ? 1 : 0;
    }
    records = calloc(count + 1u, sizeof(*records));
    TDM_ASSERT(records != NULL);
    *count_out = 0;
    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (entry_holds(entry)) {
            records[(*count_out)++] = entry->record;
        }
    }
    return records;
}
