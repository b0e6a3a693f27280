/* actor_names.h - queries for the actor that holds a name, on whatever node it runs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_NAMES_H
#define TDM_ACTORS_DAEMON_ACTOR_NAMES_H

#include "actors/daemon/actor_entry.h"

/* Serves the call "actor.find" (name space, name) with a message actor_found, as soon as it is
 * known which actor has the name. Takes ownership of `incoming`. */
void tdm__node_serve_actor_find(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* Replies to the calls that wait for the actor's start or name with the other actor that holds the
 * wanted name (get_if_exists). Reports to the state machine whether that actor was found. */
void tdm__actor_entry_reply_name_holder(struct actor_entry *entry);

#endif
