/* runtime.h - how a process joins and leaves the cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_RUNTIME_H
#define TANDEM_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rules for all public functions:
 *
 * - A pointer argument must not be NULL unless its function says so.  A function that returns a
 *   tdm_status answers a wrong NULL with TDM_E_INVAL; others return 0, NULL or "" and do
 * nothing. tdm_error_detail() then names the argument.
 * - Timeouts are milliseconds from now.  0 means not to wait, TDM_FOREVER to wait without end.
 * - A handle that a function gives to the caller is freed by the caller.  Texts and arrays that
 * are passed in are borrowed for the call, unless the function says otherwise. */
#define TDM_FOREVER (-1)

/* Largest number of bytes of the name of an actor or a placement group, and of a name space.  Names
 * are UTF-8 without control characters. */
enum { TDM_NAME_BYTES_MAX = 255 };

/* This process's membership in the cluster.  Any thread may use it; functions that block let
 * other threads go on. */
typedef struct tdm_runtime tdm_runtime;

/* Options of tdm_runtime_start().  Initialise with TDM_RUNTIME_OPTIONS_INIT.  Texts are copied. */
struct tdm_runtime_options {
    size_t size_bytes; /* Size of this struct, which TDM_RUNTIME_OPTIONS_INIT sets. */
    /* Address of a daemon: "unix:/run/.../tandemd.sock" or "tcp:host:port".  "auto": the node that
     * `tandem start` has started on this machine.  "host:port": that node if it belongs to the
     * cluster with this address, else the daemon there.  NULL: TANDEM_ADDRESS, or else a private
     * node. */
    const char *address;
    /* Name space for names of actors and placement groups.  NULL: TANDEM_NAMESPACE, or else
     * "default". */
    const char *name_space;
    uint32_t cpus; /* Number of CPUs of a private node.  0: those of the machine. */
    /* Number of GPUs of a private node.  0: TANDEM_GPUS, or else 4 virtual or all real ones. */
    uint32_t gpus;
    /* Memory in bytes of each GPU of a private node.  0: TANDEM_GPU_BYTES, or else 256 MiB of a
     * virtual GPU, and for real ones the memory of the smallest without a reserve
     * (TANDEM_GPU_RESERVE_BYTES, or else 1.25 GiB for each GPU that it is offered as, at most a
     * quarter) for CUDA and its libraries, rounded down to 2 MiB. */
    uint64_t gpu_bytes;
    /* Directory for sockets and logs of a private node.  NULL: a new one in $TMPDIR. */
    const char *directory;
    int64_t start_timeout_ms; /* Milliseconds within which the node must be ready.  0: 10,000. */
    /* For a private node: 1 prints what its actors print, each line as "(name pid=4182) text";
     * -1 does not.  0: TANDEM_LOG_TO_DRIVER, or else 1.  The output is kept in files in any
     * case (docs/observability.md). */
    int log_to_driver;
    /* Kind of device of a private node, "host" or "cuda".  NULL: TANDEM_DEVICE, or else "host". */
    const char *device;
    /* Bytes of large values that a private node keeps in memory before it moves them to disk.
     * 0: TANDEM_OBJECT_STORE_BYTES, or else 0.3 of the machine's memory. */
    uint64_t object_store_bytes;
};

/* Initialiser of struct tdm_runtime_options with all defaults. */
#define TDM_RUNTIME_OPTIONS_INIT                                                                   \
    {                                                                                              \
        .size_bytes = sizeof(struct tdm_runtime_options)                                           \
    }

/* Joins the node at options->address or TANDEM_ADDRESS.  If neither is set, it starts a private
 * node (a daemon with a Redis of its own), which ends with this process, however the process
 * ends. `options` may be NULL.  Blocks until the node is ready, at most
 * options->start_timeout_ms.  Raises the soft limit of open files of this process to the hard one
 * (RLIMIT_NOFILE), as every daemon and actor does: each actor that a process calls needs a
 * descriptor.
 *
 * In a process that the daemon started as a worker, this function becomes the actor and never
 * returns.  A program that defines classes must therefore call it before it does other work.
 *
 * A process has one runtime: TDM_E_STATE if it has one already.  TDM_E_NOT_FOUND: tandemd was
 * not found.  On failure `*runtime_out` is NULL.  The caller stops the runtime. */
TDM_API tdm_status tdm_runtime_start(const struct tdm_runtime_options *options,
                                     tdm_runtime **runtime_out);

/* Leaves the cluster and frees the runtime.  The actors that this process created end, unless they
 * are detached, and a private node stops.  References become invalid.  Of the functions that take a
 * handle to an actor, only tdm_actor_destroy() may be called afterwards; a call fails with
 * TDM_E_STATE, and so do tdm_put(), tdm_actor_create() and tdm_actor_find().  Blocks until all has
 * ended, at most 10 seconds; then it kills what is left.  No other thread may be using the runtime.
 * NULL is allowed, and so is a runtime that has stopped. */
TDM_API void tdm_runtime_stop(tdm_runtime *runtime);

/* Ends the actor that calls this function, as if its last handle had been destroyed: the actor ends
 * once the methods that run have returned.  Calls that are still queued fail with TDM_E_ACTOR_DIED,
 * and the actor is not restarted.  Never blocks.  TDM_E_STATE: this process is a driver. */
TDM_API tdm_status tdm_runtime_exit_actor(tdm_runtime *runtime);

/* Declares that this actor depends on the process `pid`, which it has usually started itself: when
 * that process ends, the actor fails with that cause, as if its own process had crashed.  Calls in
 * flight fail with TDM_E_ACTOR_DIED, and the actor is restarted if it has restarts left.  Does not
 * reap the process.  The cause names the process's exit status only if the process is a child of
 * this one and nobody has reaped it yet.  It does not matter any more once the actor ends
 * gracefully.  Any thread may call this.  Never blocks.  TDM_E_STATE: this process is a driver.
 * TDM_E_NOT_FOUND: there is no such process.  TDM_E_EXISTS: it is watched already. */
TDM_API tdm_status tdm_actor_watch(tdm_runtime *runtime, int64_t pid);
/* Ends the watch of a process, which the actor is about to end itself.  Any thread may call this.
 * Never blocks.  TDM_E_NOT_FOUND: the process is not watched. */
TDM_API tdm_status tdm_actor_unwatch(tdm_runtime *runtime, int64_t pid);
/* Lends the CPUs of the actor that calls this function: other actors and placement groups may hold
 * them until tdm_runtime_take_cpus_back().  A method that is going to wait for another actor, for
 * example in tdm_get(), calls it so that the other finds a free CPU.  Calls may be nested; the
 * outermost counts.  The actor's other resources stay its own.  Never blocks.  TDM_E_STATE: this
 * process is a driver. */
TDM_API tdm_status tdm_runtime_lend_cpus(tdm_runtime *runtime);
/* Ends what tdm_runtime_lend_cpus() began.  Never blocks: the actor has its CPUs again at once,
 * also if others hold them meanwhile, and the node then gives CPUs to nobody until as many have
 * come free.  TDM_E_STATE: nothing is lent. */
TDM_API tdm_status tdm_runtime_take_cpus_back(tdm_runtime *runtime);

/* Returns the runtime of this process, of a driver or of an actor; NULL if it has none. */
TDM_API tdm_runtime *tdm_runtime_current(void);

/* The node of this process and, in a worker, its actor.  The texts are borrowed from the
 * runtime. */
struct tdm_runtime_info {
    const char *node_id; /* ID of this process's node: 32 hexadecimal digits. */
    /* Name of this process's node: that of the host, or the name given to the daemon. */
    const char *node_name;
    const char *address;    /* Address of the node's daemon. */
    const char *directory;  /* Directory of the node's sockets and logs. */
    const char *name_space; /* Name space in which this process creates and finds actors. */
    const char *actor_id;   /* ID of this actor; "" in a driver. */
    const char *actor_name; /* Name of this actor; "" in a driver, or if the actor has no name. */
    uint32_t gpus_count;    /* Number of GPUs of this actor; 0 in a driver. */
    const uint32_t *gpu_indices; /* Indices of this actor's GPUs on its node, ascending. */
    const char *job_id;          /* ID of the driver that created the first actor: 32 digits. */
    const char *class_name;      /* Name of this actor's class; "" in a driver. */
    uint32_t restarts_count;     /* How often this actor has been restarted. */
};
/* Writes which node and actor this process belongs to.  Never blocks. */
TDM_API void tdm_runtime_describe(tdm_runtime *runtime, struct tdm_runtime_info *info_out);

/* Returns how many references of this process's own values and actors other processes have or may
 * have: as arguments, in replies, or in the portable form (actor.h).  While it is 0, no other
 * process loses a value if this one ends.  Never blocks.  0 if `runtime` is NULL. */
TDM_API uint32_t tdm_runtime_shared_refs_count(tdm_runtime *runtime);

#ifdef __cplusplus
}
#endif

#endif
