/* worker_query.h - sends one request to every worker, or to every process, of a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_WORKER_QUERY_H
#define TDM_ACTORS_DAEMON_WORKER_QUERY_H

#include "actors/daemon/node_state.h"

/* A process that replied to a query, as it was when it was asked; its actor may have died since. */
struct tdm__queried_worker {
    char actor[TDM__ID_TEXT_BYTES]; /* Id of the actor; "" in a query of all processes. */
    /* Class of the actor; "" in a query of all processes. */
    char class_name[TDM__CLASS_NAME_BYTES];
    char name[TDM__ACTOR_NAME_BYTES]; /* Name of the actor; "" if it has none. */
    int64_t pid;                      /* Process id of the worker or driver. */
};

/* Called for each process whose successful reply arrives in time, maybe while the node stops.
 * `reply` is borrowed. */
typedef void tdm__query_reply_fn(void *arg, const struct tdm__queried_worker *worker,
                                 struct tdm_bytes reply);
/* Called once after the last reply to a query, maybe before the function that started the query
 * returns and maybe while the node stops. `silent_count` is the number of processes that are still
 * connected and did not reply. */
typedef void tdm__query_done_fn(void *arg, uint32_t silent_count);

/* Calls `method` of every living actor's worker and passes the replies of the next `timeout_ms` to
 * `each`, then calls `done`. `arg` must stay valid until then. On failure neither is called. */
tdm_status tdm__query_workers(struct tdm__node *node, const char *method, int64_t timeout_ms,
                              tdm__query_reply_fn *each, tdm__query_done_fn *done, void *arg);
/* Like tdm__query_workers(), but asks every worker, also one whose actor is not constructed yet,
 * and every driver of the node. Of each process only `pid` is known. */
tdm_status tdm__query_processes(struct tdm__node *node, const char *method, int64_t timeout_ms,
                                tdm__query_reply_fn *each, tdm__query_done_fn *done, void *arg);

#endif
