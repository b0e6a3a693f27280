/* state_service.h - lists of actors, calls, objects, nodes and groups, for tools. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_STATE_SERVICE_H
#define TDM_ACTORS_DAEMON_STATE_SERVICE_H

#include "actors/daemon/node.h"

struct actor_entry;

/* The service "state". A list consists of records, which are maps and are read by
 * actors/client/cluster_state.c. "state.list" (kind) lists the whole cluster; kind is "actors",
 * "calls", "each call", "objects", "nodes" or "groups". It replies with ([record ...], silent
 * nodes, silent processes, records left out). "state.here" (kind) lists the actors, calls or
 * objects of this node alone and replies with ([record ...], silent processes, records left out).
 */
extern const struct tdm__service_ops tdm__state_service;

/* Creates the table of ended actors and adds the service "state". */
tdm_status tdm__node_state_create(struct tdm__node *node);
/* Frees the table of ended actors. NULL is allowed. */
void tdm__node_state_destroy(struct tdm__node *node);
/* Keeps the record of an actor that leaves the table for a while; `text` is the cause of its end.
 */
void tdm__node_state_ended(struct tdm__node *node, const struct actor_entry *entry,
                           const char *text);

/* ---- records (state_records.c) ---------------------------------------------------------- */

/* Records of actors of this node that have ended, and their number. struct tdm__node owns it. */
struct tdm__node_state {
    struct {
        void *bytes;       /* One packed record, owned; NULL in an unused entry. */
        size_t size_bytes; /* Length of the packed record. */
    } ended[512];          /* Ring of the records of the actors that ended last. */
    uint32_t ended_next;   /* Index of the entry of `ended` that is overwritten next. */
    uint64_t ended_count;  /* Actors that have ended since the node started. */
};

/* Writes the record of one actor. `text` is the cause of its death; NULL if it has not died. */
void tdm__state_write_actor(tdm_writer *writer, const struct actor_entry *entry, const char *text);
/* Writes the reply of "state.here" for actors: those of this node, recently ended ones included. */
void tdm__state_write_actors(tdm_writer *writer, const struct tdm__node *node);
/* Writes an array of node records from the store records node/... and free/...; unreadable ones are
 * left out. */
void tdm__state_write_nodes(tdm_writer *writer, const struct tdm__store_record *records,
                            uint32_t records_count);
/* Writes an array of placement group records from the store records group/...; unreadable ones are
 * left out. */
void tdm__state_write_groups(tdm_writer *writer, const struct tdm__store_record *records,
                             uint32_t records_count);

/* ---- objects and calls (state_processes.c) ---------------------------------------------- */

/* Receives the reply of "state.here", or a failure. Called once, maybe before
 * tdm__state_query_processes() returns or while the node stops. */
typedef void tdm__local_state_fn(void *arg, tdm_status status, struct tdm_bytes part);
/* Asks the processes of this node for their objects or calls and passes the collected list to
 * fn(arg, ...). `arg` must stay valid until then. */
void tdm__state_query_processes(struct tdm__node *node, const char *kind, tdm__local_state_fn *fn,
                                void *arg);

#endif
