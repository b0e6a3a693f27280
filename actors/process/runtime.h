/* runtime.h - the runtime of one process: its event loop, its RPC endpoint, its connection to the
 * daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_PROCESS_RUNTIME_H
#define TDM_ACTORS_PROCESS_RUNTIME_H

#include "actors/process/text_sizes.h"
#include "runtime/rpc/rpc.h"
#include "scheduler/resources.h"

#include <tandem/runtime.h>

struct tdm__client;
struct tdm__worker;
struct tdm__private_node;
struct tdm__object_memory;
struct tdm__ref_table;

enum {
    TDM__STOP_HOOKS_MAX = 8,                   /* Most stop hooks of a runtime. */
    TDM__RUNTIME_GPUS_MAX = TDM__NODE_GPUS_MAX /* Most GPUs granted to the actor of a worker. */
};

/* The runtime of one driver or worker process; there is at most one. The functions of the public
 * API that use it hold the loop's lock (TDM__LOCK). Identities and texts are set while it starts
 * and do not change afterwards. */
struct tdm_runtime {
    struct tdm__loop *loop; /* Event loop, owned; its lock guards this struct. */
    struct tdm__rpc *rpc;   /* RPC endpoint for calls in both directions, owned. */
    /* Thread that drives the loop while no user thread does, owned; NULL if not started. */
    struct tdm__background_poller *background_poller;
    struct tdm__peer_identity self; /* Identity that this process presents to its peers. */
    /* Connection to this node's daemon, owned by `rpc`; NULL once it has closed. */
    struct tdm__conn *daemon;
    /* How the daemon ended; "" until the loss has been reported once. */
    char daemon_end_text[256];
    /* Why the connection to the daemon has ended; TDM_OK while it has not. */
    tdm_status daemon_end_reason;
    /* Daemon that this process started, owned; NULL if it joined a running one. */
    struct tdm__private_node *private_node;
    struct tdm__worker *worker; /* State of the worker process, borrowed; NULL in a driver. */
    struct tdm__client *client; /* State of the side that calls actors (actors/client), owned. */
    struct tdm__object_memory *memory; /* Shared memory that holds large values, owned. */
    /* Table of references that are owned or borrowed by this process; owned. */
    struct tdm__ref_table *objects;
    /* True once this process closes its connections, so their end is no failure. */
    bool is_stopping;
    /* True once this process has killed its private daemon, which is then not asked any more. */
    bool daemon_is_killed;
    /* True in a process forked from this one, which must not use the runtime. */
    bool is_forked_child;

    char node_id[TDM__ID_TEXT_BYTES]; /* Id of this node. */
    char node_name[64];               /* Name of this node; "" until the daemon has reported it. */
    char address[TDM__ADDRESS_BYTES]; /* Address of this node's daemon. */
    char directory[TDM__ADDRESS_BYTES]; /* Directory of this node for sockets and files. */
    /* Host at which workers listen for other nodes; "" on a single node. */
    char listen_host[TDM__ADDRESS_BYTES];
    /* Milliseconds without a connection to an actor's process after which its calls end as
     * unavailable, as the daemon says (tandemd --unreachable-ms); 0 for never. */
    int64_t unreachable_ms;
    /* Namespace in which this process names and finds actors. */
    char name_space[TDM__ACTOR_NAME_BYTES];
    char actor_id[TDM__ID_TEXT_BYTES]; /* Id of this worker's actor; "" in a driver. */
    /* Name of this worker's actor; "" if it has none. */
    char actor_name[TDM__ACTOR_NAME_BYTES];
    char class_name[TDM__CLASS_NAME_BYTES]; /* Class of this worker's actor; "" in a driver. */
    char job_id[TDM__ID_TEXT_BYTES]; /* Id of the driver whose job this process belongs to. */
    uint32_t restarts_count;         /* How often this worker's actor was restarted before. */
    /* Placement group of this worker's actor; all zeros if it has none. */
    struct tdm__id group;
    /* True if actors created by this one are placed in the same group. */
    bool captures_child_actors;
    uint32_t gpus_count; /* Number of entries in `gpu_indices`. */
    /* Indices on this node of the GPUs granted to this worker's actor. */
    uint32_t gpu_indices[TDM__RUNTIME_GPUS_MAX];

    struct {
        void (*fn)(void *arg); /* Function to run when the runtime stops. */
        void *arg;             /* Argument of `fn`, owned by the caller that registered it. */
    } stop_hooks[TDM__STOP_HOOKS_MAX];
    uint32_t stop_hooks_count; /* Number of entries in `stop_hooks`. */
};

/* Acquires the loop's lock until the end of the block. Every function of the public API that reads
 * or changes the runtime starts with it. */
#define TDM__LOCK(runtime) TDM__LOOP_ENTER((runtime)->loop)

/* Makes `runtime` the one that tdm_runtime_current() returns; NULL if absent any more. */
void tdm__runtime_set_current(tdm_runtime *runtime);

/* Returns TDM_E_STATE if `runtime` is the runtime that this process has stopped, whose memory is
 * freed. The runtime is only compared. */
tdm_status tdm__runtime_check_running(const tdm_runtime *runtime);
/* Returns from a public function if `runtime` is NULL or has stopped. It stands before TDM__LOCK.
 */
#define TDM__REQUIRE_RUNNING(runtime)                                                              \
    do {                                                                                           \
        TDM__REQUIRE(runtime);                                                                     \
        TDM_TRY(tdm__runtime_check_running(runtime));                                              \
    } while (0)

/* Returns the loop of the process's running runtime, or NULL. Documents are destroyed on any
 * thread, and some after the runtime has stopped. */
struct tdm__loop *tdm__current_loop(void);

/* Stores the connection to this node's daemon in `*daemon_out`. Returns TDM_E_NODE_LOST with the
 * way the daemon ended once the connection has closed. */
tdm_status tdm__runtime_daemon(tdm_runtime *runtime, struct tdm__conn **daemon_out);
/* Kills the daemon of a private node; its supervisor then kills everything that runs on the node.
 * Does nothing on a node that others may use, and returns false. Does not block. */
bool tdm__runtime_kill_private_daemon(tdm_runtime *runtime);
/* Sets the error detail to how the daemon ended and returns TDM_E_NODE_LOST. `detail` is used where
 * the end of a private daemon is not known. For calls to the daemon that failed with TDM_E_CLOSED.
 */
tdm_status tdm__runtime_set_daemon_lost(tdm_runtime *runtime, const char *detail);
/* Drives the loop until done(arg) is true. Blocks at most `timeout_ms`, then returns TDM_E_TIMEOUT
 * without a detail. Returns TDM_E_STATE in a forked child. */
tdm_status tdm__runtime_wait(tdm_runtime *runtime, bool (*done)(void *arg), void *arg,
                             int64_t timeout_ms);
/* Returns TDM_E_STATE in a process that was forked from the runtime's process, else TDM_OK. */
tdm_status tdm__runtime_check(const tdm_runtime *runtime);
/* Calls `method` of the daemon and blocks at most `timeout_ms` for the reply. The caller owns
 * `*document_out`; `document_out` may be NULL. */
tdm_status tdm__runtime_call_daemon(tdm_runtime *runtime, const char *method,
                                    struct tdm_bytes packed, int64_t timeout_ms,
                                    tdm_document **document_out);
/* Runs and removes all stop hooks, last registered first. */
void tdm__runtime_run_stop_hooks(tdm_runtime *runtime);
/* Registers fn(arg) to run when the runtime stops, while the daemon still accepts calls. Hooks run
 * in reverse order of registration; TDM_E_LIMIT if there are too many. */
tdm_status tdm__runtime_on_stop(tdm_runtime *runtime, void (*fn)(void *arg), void *arg);

#endif
