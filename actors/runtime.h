/* runtime.h - this process in the cluster: its loop, its endpoint, its node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_RUNTIME_H
#define TDM_ACTORS_RUNTIME_H

#include "actors/common/actor_spec.h"
#include "runtime/rpc/rpc.h"

#include <tandem/runtime.h>

struct tdm__actor_channel;
struct tdm__worker;
struct tdm__private_node;
struct tdm__object_memory;
struct tdm__ref_table;

enum { TDM__STOP_HOOKS_MAX = 8, TDM__RUNTIME_GPUS_MAX = TDM__NODE_GPUS_MAX };

struct tdm_runtime {
    struct tdm__loop *loop; /* owned */
    struct tdm__rpc *rpc;   /* owned */
    struct tdm__background_poller
        *background_poller; /* owned; drives the loop while the user's threads do not */
    struct tdm__peer_identity self;
    struct tdm__conn *daemon;                     /* NULL once it is lost */
    char daemon_end_text[256];                    /* how it ended, once that has been told */
    struct tdm__private_node *private_node;       /* owned; NULL when this process joined a node */
    struct tdm__worker *worker;                   /* borrowed; NULL in a driver */
    struct tdm__actor_channel *actor_channels;    /* owned: one for each actor it knows */
    struct tdm__object_memory *memory;            /* owned: what large values lie in */
    struct tdm__ref_table *objects;               /* owned: references that others know, or own */
    struct tdm__call_arguments *cached_arguments; /* owned: for the next call; or NULL */
    uint64_t last_sequence; /* of the actor_channels that are gone: a later one to the same actor is
                             * no other caller, so its calls have higher numbers */
    bool calls_blocked;     /* a call or a creation waits for a reference in its arguments */
    bool results_arrived;   /* since the calls that wait were last looked at */
    bool is_stopping;       /* connections that end now are ended here */
    bool is_forked_child;   /* this process is a child of the runtime's own: it may not use it */

    char node_id[TDM__ID_TEXT_BYTES];
    char node_name[64];
    char address[TDM__ADDRESS_BYTES];
    char directory[TDM__ADDRESS_BYTES];
    char listen_host[TDM__ADDRESS_BYTES]; /* "" when the node talks to no other */
    char name_space[TDM__ACTOR_NAME_BYTES];
    char actor_id[TDM__ID_TEXT_BYTES];
    char actor_name[TDM__ACTOR_NAME_BYTES];
    char class_name[TDM__ACTOR_NAME_BYTES];
    char job_id[TDM__ID_TEXT_BYTES];
    uint32_t restarts_count;
    struct tdm__id group;       /* in which this actor lies; none */
    bool captures_child_actors; /* those that it makes go there */
    uint32_t gpus_count;
    uint32_t gpu_indices[TDM__RUNTIME_GPUS_MAX];

    struct {
        void (*fn)(void *arg);
        void *arg;
    } stop_hooks[TDM__STOP_HOOKS_MAX];
    uint32_t stop_hooks_count;
};

/* Holds the loop's lock until the end of the block: every function of the public API that
 * touches what hangs on the loop begins with it. */
#define TDM__LOCK(runtime) TDM__LOOP_ENTER((runtime)->loop)

/* Makes loop and endpoint; the rest of the fields are the caller's to fill. */
tdm_status tdm__runtime_create(const struct tdm__peer_identity *self,
                               const uint8_t token[TDM__TOKEN_BYTES], tdm_runtime **runtime_out);
/* Closes everything, without telling the daemon anything. */
void tdm__runtime_destroy(tdm_runtime *runtime);
/* From now on `conn` is the daemon's. */
void tdm__runtime_set_daemon(tdm_runtime *runtime, struct tdm__conn *conn);
void tdm__runtime_set_current(tdm_runtime *runtime);

/* The connection to this node's daemon; TDM_E_NODE_LOST, saying how it ended, once it is gone.
 */
tdm_status tdm__runtime_daemon(tdm_runtime *runtime, struct tdm__conn **daemon_out);
/* Says that the daemon has gone, and how if that is known; `detail` is what its connection
 * says. For calls to it that ended with TDM_E_CLOSED.  Returns TDM_E_NODE_LOST. */
tdm_status tdm__runtime_set_daemon_lost(tdm_runtime *runtime, const char *detail);
/* Drives the loop until done(arg): TDM_E_TIMEOUT without a detail, TDM_E_STATE after fork(). */
tdm_status tdm__runtime_wait(tdm_runtime *runtime, bool (*done)(void *arg), void *arg,
                             int64_t timeout_ms);
/* TDM_E_STATE in a process that was forked from the runtime's own. */
tdm_status tdm__runtime_check(const tdm_runtime *runtime);
/* A call to the daemon that waits for its answer. */
tdm_status tdm__runtime_call_daemon(tdm_runtime *runtime, const char *method,
                                    struct tdm_bytes packed, int64_t timeout_ms,
                                    tdm_document **document_out);
void tdm__runtime_run_stop_hooks(tdm_runtime *runtime);
/* Runs fn(arg) when the runtime stops, while the daemon still listens; last registered first.
 */
tdm_status tdm__runtime_on_stop(tdm_runtime *runtime, void (*fn)(void *arg), void *arg);

#endif
