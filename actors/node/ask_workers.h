/* ask_workers.h - one question to every worker of a node, or to every process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NODE_ASK_WORKERS_H
#define TDM_NODE_ASK_WORKERS_H

#include "actors/node/node.h"

/* Who answered, as it was when it was asked: the actor may be dead by now. */
struct tdm__asked_worker {
    char actor[TDM__ID_TEXT_BYTES];
    char class_name[TDM__ACTOR_NAME_BYTES];
    char name[TDM__ACTOR_NAME_BYTES];
    int64_t pid;
};

/* each(arg, …) for every one that answered well within `timeout_ms`; then done(arg, how many
 * did not and are still there), once, maybe before this returns.  Both also run while the node
 * stops: `arg` outlives it. */
typedef void tdm__asked_each(void *arg, const struct tdm__asked_worker *worker,
                             struct tdm_bytes answer);
typedef void tdm__asked_done(void *arg, uint32_t silent_count);

/* Every living actor. */
tdm_status tdm__ask_workers(struct tdm__node *node, const char *method, int64_t timeout_ms,
                            tdm__asked_each *each, tdm__asked_done *done, void *arg);
/* Every worker, also one that is not an actor yet, and every driver: of each, `pid` alone. */
tdm_status tdm__ask_processes(struct tdm__node *node, const char *method, int64_t timeout_ms,
                              tdm__asked_each *each, tdm__asked_done *done, void *arg);

#endif
