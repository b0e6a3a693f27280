/* actor_facts.c - what the lifecycle of an actor needs to know about the actor and its node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_facts.h"

#include "actors/daemon/actor_placement.h"

struct actor_facts tdm__actor_entry_facts(const struct actor_entry *entry)
{
    const struct tdm__actor_spec *spec = entry->spec;
    const struct tdm__node *node = entry->node;
    /* An actor that holds resources reserves none, so the list of pending releases is not searched
     * for it. */
    bool may_reserve = !tdm__actor_lifecycle_holds_resources(&entry->lifecycle);

    return (struct actor_facts){.max_restarts = spec->max_restarts,
                                .has_group = !tdm__id_is_none(&spec->group),
                                .is_detached = spec->detached,
                                .is_guest = !tdm__id_is_none(&entry->owner_node),
                                .is_claimable = spec->name[0] != '\0' || spec->max_restarts != 0 ||
                                                entry->record.grant.gpus_count > 0,
                                .takes_name_holder = spec->get_if_exists,
                                .awaits_creator_arguments = spec->awaits_creator_arguments,
                                .is_releasing = may_reserve && tdm__actor_entry_is_returning(entry),
                                .node_is_stopping = node->stopping,
                                .lease_was_lost_recently =
                                    tdm__lease_status_was_lost(&node->lease_status)};
}
