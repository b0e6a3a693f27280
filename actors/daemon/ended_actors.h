/* ended_actors.h - remembers the actors that ended last, and lists the actors of a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ENDED_ACTORS_H
#define TDM_ACTORS_DAEMON_ENDED_ACTORS_H

#include "actors/daemon/actor_entry.h"

/* Number of ended actors whose records are kept. */
enum { TDM__ENDED_ACTORS_MAX = 512 };

/* Records of actors of this node that have ended, and their number. struct tdm__node owns it. */
struct tdm__ended_actors {
    struct {
        void *bytes;                  /* One packed record, owned; NULL in an unused entry. */
        size_t size_bytes;            /* Length of the packed record. */
    } records[TDM__ENDED_ACTORS_MAX]; /* Ring of the records of the actors that ended last. */
    uint32_t next;  /* Index of the entry of `records` that is overwritten next. */
    uint64_t count; /* Actors that have ended since the node started. */
};

/* Creates the empty table of ended actors, which is stored in node->ended_actors. */
tdm_status tdm__ended_actors_create(struct tdm__node *node);
/* Frees the table of ended actors. A node without the table is allowed. */
void tdm__ended_actors_destroy(struct tdm__node *node);
/* Keeps the record of an actor that is about to leave the table of actors for a while; `text` is
 * the cause of its end. An actor that runs on another node is not kept, because that node lists it.
 */
void tdm__ended_actors_add(struct tdm__node *node, const struct actor_entry *entry,
                           const char *text);
/* Writes the reply of "state.here" for actors: those of this node, recently ended ones included. */
void tdm__state_write_actors(tdm_writer *writer, const struct tdm__node *node);

#endif
