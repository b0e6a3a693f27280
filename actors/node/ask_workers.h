/* ask_workers.h - one question to every worker of a node. */
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

/* each(arg, …) for every living actor that answered well within `timeout_ms`; then done(arg),
 * once, maybe before this returns.  Both also run while the node stops: `arg` outlives it. */
tdm_status tdm__ask_workers(struct tdm__node *node, const char *method, int64_t timeout_ms,
                            void (*each)(void *arg, const struct tdm__asked_worker *worker,
                                         struct tdm_bytes answer),
                            void (*done)(void *arg), void *arg);

#endif
