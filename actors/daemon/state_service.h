/* state_service.h - what a node knows, as rows for those who look. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_STATE_SERVICE_H
#define TDM_ACTORS_DAEMON_STATE_SERVICE_H

#include "actors/daemon/node.h"

struct actor_entry;

/* Rows are maps, read by actors/client/cluster_state.c:
 *   "state.list" (kind)   of the whole cluster; kind: "actors", "calls", "objects", "nodes",
 *                         "groups"
 *                         answer: ([row …], nodes, and processes, that did not answer, rows
 *                         that were left out)
 *   "state.here" (kind)   of this node alone, actors, calls or objects; answer: a part, ([row
 * …], processes that did not answer, rows that were left out) */
extern const struct tdm__service_ops tdm__state_service;

tdm_status tdm__node_state_create(struct tdm__node *node);
void tdm__node_state_destroy(struct tdm__node *node);
/* Its row is kept for a while: it is leaving the table. */
void tdm__node_state_ended(struct tdm__node *node, const struct actor_entry *entry,
                           const char *text);

/* ---- rows (state_records.c) ---------------------------------------------------------------- */

/* Ends known since the node started, for those who count. */
struct tdm__node_state {
    struct {
        void *bytes; /* owned: one packed row */
        size_t size_bytes;
    } ended[512]; /* a ring */
    uint32_t ended_next;
    uint64_t ended_count;
};

/* `text`: why it died; NULL while it has not. */
void tdm__state_write_actor(tdm_writer *writer, const struct actor_entry *entry, const char *text);
/* A part: all of this node, the dead ones too. */
void tdm__state_write_actors(tdm_writer *writer, const struct tdm__node *node);
/* What cannot be read is left out: `records` hold node/… and free/…, or group/… . */
void tdm__state_write_nodes(tdm_writer *writer, const struct tdm__store_record *records,
                            uint32_t records_count);
void tdm__state_write_groups(tdm_writer *writer, const struct tdm__store_record *records,
                             uint32_t records_count);

/* ---- objects and calls (state_processes.c) ---------------------------------------------- */

/* Asks the processes of this node for theirs: a part, or a failure, to fn(arg, …), once, maybe
 * before this returns and maybe while the node stops: `arg` outlives it. */
typedef void tdm__local_state_fn(void *arg, tdm_status status, struct tdm_bytes part);
void tdm__state_query_processes(struct tdm__node *node, const char *kind, tdm__local_state_fn *fn,
                                void *arg);

#endif
