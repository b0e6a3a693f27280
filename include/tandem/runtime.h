/* runtime.h - a process joins the cluster, and leaves it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_RUNTIME_H
#define TANDEM_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Deadlines are milliseconds from now.  Waiting for ever is written out, never a default. */
#define TDM_FOREVER (-1)

typedef struct tdm_runtime tdm_runtime;

struct tdm_runtime_options {
    size_t size_bytes; /* sizeof(struct tdm_runtime_options) */
    const char *
        address; /* of a daemon: "unix:/run/…/tandemd.sock", "tcp:host:port"; NULL: see below */
    const char
        *name_space;    /* where names of actors live; NULL: TANDEM_NAMESPACE, else "default" */
    uint32_t cpus;      /* of a private node; 0: what the machine has */
    uint32_t gpus;      /* of a private node; 0: TANDEM_GPUS, else 4 virtual or all real ones */
    uint64_t gpu_bytes; /* of each; 0: TANDEM_GPU_BYTES, else 256 MiB, or all of real ones' */
    const char *directory; /* of a private node, for sockets and logs; NULL: made in $TMPDIR */
    int64_t start_timeout_ms; /* for the node to be ready; 0: 10,000 */
    /* Of a private node: what its actors print comes out here, each line as "(name pid=4182)
     * text"; in any case it is kept in files (docs/looking.md).  0: TANDEM_LOG_TO_DRIVER, else
     * yes; 1: yes; -1: no. */
    int log_to_driver;
    const char
        *device; /* of a private node: "host", "cuda"; NULL: TANDEM_DEVICE, else "host" */
    uint64_t
        object_store_bytes; /* of a private node: large values in memory, before they go to
                               disk; 0: TANDEM_OBJECT_STORE_BYTES, else 0.3 of its memory */
};

#define TDM_RUNTIME_OPTIONS_INIT                                                               \
    {                                                                                          \
        .size_bytes = sizeof(struct tdm_runtime_options)                                       \
    }

/* Joins the node at `options->address` or TANDEM_ADDRESS; where neither is set, starts a
 * private node (a daemon and a Redis of its own) that ends with this process however it ends.
 * `options` may be NULL.  Blocks until the node answers.
 *
 * In a process that the daemon started as a worker this call *becomes the actor* and never
 * returns: so a program that defines classes must come here before it does its own work.
 *
 * One runtime per process.  Any thread may use it: functions that wait let the others go on. */
TDM_API tdm_status tdm_runtime_start(const struct tdm_runtime_options *options,
                                     tdm_runtime **runtime_out);

/* Leaves: actors that this process created end (unless detached), references become invalid, a
 * private node stops.  Blocks until that is so, at most 10 s; then it kills.  NULL is allowed.
 */
TDM_API void tdm_runtime_stop(tdm_runtime *runtime);

/* Inside an actor: it ends in good order, as if its last handle had gone, once the methods that
 * run have returned; calls still in its mailbox fail with TDM_E_ACTOR_DIED, and it is not
 * restarted.  TDM_E_STATE in a driver. */
TDM_API tdm_status tdm_runtime_exit_actor(tdm_runtime *runtime);

/* The runtime of this process: the driver's own, or in an actor the worker's.  NULL outside. */
TDM_API tdm_runtime *tdm_runtime_current(void);

/* What this process is.  Strings live as long as the runtime. */
struct tdm_runtime_info {
    const char *node_id;   /* 32 hexadecimal digits */
    const char *node_name; /* host name, or the name given to the daemon */
    const char *address;   /* of the node's daemon */
    const char *directory; /* of the node: sockets, logs */
    const char *name_space;
    const char *actor_id;        /* "" in a driver */
    const char *actor_name;      /* "" in a driver or for an unnamed actor */
    uint32_t gpus_count;         /* GPUs assigned to this actor; 0 in a driver */
    const uint32_t *gpu_indices; /* their indices on the node, ascending */
    const char *job_id;          /* of the driver that began it all: 32 hexadecimal digits */
    const char *class_name;      /* "" in a driver */
    uint32_t restarts_count;     /* how often this actor has been restarted so far */
};
TDM_API void tdm_runtime_describe(tdm_runtime *runtime, struct tdm_runtime_info *info_out);

#ifdef __cplusplus
}
#endif

#endif
