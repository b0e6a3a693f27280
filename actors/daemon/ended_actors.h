/* ended_actors.h - remembers the actors that ended last, and lists the actors of a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ENDED_ACTORS_H
#define TDM_ACTORS_DAEMON_ENDED_ACTORS_H

#include "actors/daemon/actor_entry.h"

enum {
    /* Number of ended actors whose records are kept. */
    TDM__ENDED_ACTORS_MAX = 512,
    /* Number of actors that were lost with their nodes whose records are kept. */
    TDM__LOST_ACTORS_MAX = 10000
};

/* List record of an actor that was lost with its node, which cannot list it any more. */
struct tdm__lost_actor {
    struct tdm__lost_actor *next; /* Actor that was lost next. */
    struct tdm__id creator;       /* Process that created the actor; the record goes with it. */
    size_t size_bytes;            /* Length of the packed record. */
    uint8_t bytes[];              /* Packed record. */
};

/* List records of the actors of this node that ended last. struct tdm__node owns it. */
struct tdm__ended_actors {
    struct {
        /* Packed record of an ended actor, owned; NULL in an unused entry. */
        void *bytes;
        size_t size_bytes;            /* Length of the packed record. */
    } records[TDM__ENDED_ACTORS_MAX]; /* Ring of the records of the actors that ended last. */
    uint32_t next;                /* Index of the entry of `records` that is overwritten next. */
    uint64_t count;               /* Number of actors that have ended since the node started. */
    struct tdm__lost_actor *lost; /* Actors of this node that other nodes lost, owned. */
    uint32_t lost_count;          /* Number of actors in `lost`. */
};

/* Creates the empty table of ended actors, which is stored in node->ended_actors. */
tdm_status tdm__ended_actors_create(struct tdm__node *node);
/* Frees the table of ended actors. A node without the table is allowed. */
void tdm__ended_actors_destroy(struct tdm__node *node);
/* Stores the list record of an actor that is about to leave the table of actors; `text` is the
 * cause of its end. An actor that ran on another node is left out, because that node lists it; but
 * if that node is lost, the record is kept until the creator of the actor leaves, and the node does
 * not list the actor when it has joined again. */
void tdm__ended_actors_add(struct tdm__node *node, const struct actor_entry *entry,
                           const char *text);
/* Forgets the lost actors that the process `creator`, which has ended, had created. */
void tdm__ended_actors_creator_left(struct tdm__node *node, const struct tdm__id *creator);
/* Writes the reply to "state.here" for actors: the records of this node's actors, recently ended
 * ones included. */
void tdm__state_write_actors(tdm_writer *writer, const struct tdm__node *node);

#endif
