/* worker_query.h - one question to every worker of a node, or to every process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_WORKER_QUERY_H
#define TDM_ACTORS_DAEMON_WORKER_QUERY_H

#include "actors/daemon/node.h"

/* Who answered, as it was when it was asked: the actor may be dead by now. */
struct tdm__queried_worker {
    char actor[TDM__ID_TEXT_BYTES];
    char class_name[TDM__ACTOR_NAME_BYTES];
    char name[TDM__ACTOR_NAME_BYTES];
    int64_t pid;
};

/* each(arg, …) for every one that answered well within `timeout_ms`; then done(arg, how many
 * did not and are still there), once, maybe before this returns.  Both also run while the node
 * stops: `arg` outlives it. */
typedef void tdm__query_reply_fn(void *arg, const struct tdm__queried_worker *worker,
                                 struct tdm_bytes reply);
typedef void tdm__query_done_fn(void *arg, uint32_t silent_count);

/* Every living actor. */
tdm_status tdm__query_workers(struct tdm__node *node, const char *method, int64_t timeout_ms,
                              tdm__query_reply_fn *each, tdm__query_done_fn *done, void *arg);
/* Every worker, also one that is not an actor yet, and every driver: of each, `pid` alone. */
tdm_status tdm__query_processes(struct tdm__node *node, const char *method, int64_t timeout_ms,
                                tdm__query_reply_fn *each, tdm__query_done_fn *done, void *arg);

#endif
