/* state.h - lists of the nodes, actors, calls, objects and placement groups of the cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_STATE_H
#define TANDEM_STATE_H

#include <stdint.h>
#include <tandem/actor.h>
#include <tandem/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each function asks the node of this process, which asks the other nodes.  The list covers the
 * whole cluster, except the nodes that did not reply in time.  It blocks at most `timeout_ms`
 * milliseconds, and any thread may call it.  A list is one block of memory that holds all of
 * its texts; the caller frees it with tdm_list_free().  Texts are never NULL.  On failure the
 * list is NULL and its count 0. */

/* An amount of a resource of a node or an actor. */
struct tdm_amount {
    const char *name; /* Name of the resource: "CPU", "GPU", or a name that the user defines. */
    double total;     /* Total amount of a node's resource, or the amount that an actor holds. */
    double free;      /* Free amount of a node's resource; 0 for an actor. */
};

/* One actor in a list. Texts and arrays are borrowed from the list. */
struct tdm_actor_state {
    const char *id;         /* ID of the actor. */
    const char *class_name; /* Name of the actor's class. */
    const char *name;       /* Name of the actor; "" if it has none. */
    const char *name_space; /* Name space of the actor's name. */
    /* State of the actor: PENDING, STARTING, ALIVE, ENDING, RESTARTING or DEAD. */
    const char *state;
    const char *node_id;              /* ID of the actor's node; "" before the actor is placed. */
    const char *node_name;            /* Name of the actor's node; "" before the actor is placed. */
    const char *creator;              /* ID of the driver or actor that created the actor. */
    const char *group;                /* ID of the actor's placement group; "" if it is in none. */
    const char *death_cause;          /* Why the actor died, or what it waits for; "" if neither. */
    int64_t pid;                      /* Process ID of the actor; 0 while it has no process. */
    int64_t restarts;                 /* How often the actor has been restarted. */
    int detached;                     /* 1: the actor does not end with its creator. */
    uint32_t amounts_count;           /* Number of entries of `amounts`. */
    const struct tdm_amount *amounts; /* Resources that the actor holds. */
    uint32_t gpus_count;              /* Number of entries of `gpu_indices`. */
    const uint32_t *gpu_indices;      /* Indices of the actor's GPUs on its node, ascending. */
};

/* One node in a list.  Texts and arrays are borrowed from the list. */
struct tdm_node_state {
    const char *id;           /* ID of the node. */
    const char *name;         /* Name of the node. */
    const char *unix_address; /* Address of the node's daemon for processes on the node. */
    /* Address of the node's daemon for other nodes; "" if absent. */
    const char *tcp_address;
    int64_t pid;                        /* Process ID of the node's daemon. */
    uint32_t amounts_count;             /* Number of entries of `amounts`. */
    const struct tdm_amount *amounts;   /* Resources that the node offers. */
    uint32_t labels_count;              /* Number of entries of `labels`. */
    const char *labels[TDM_LABELS_MAX]; /* Labels of the node: "NAME=value" each. */
};

/* A bundle of a placement group. */
struct tdm_bundle_state {
    const char *node_id;    /* ID of the node that the bundle is on; "" if the group is pending. */
    uint32_t amounts_count; /* Number of entries of `amounts`. */
    const struct tdm_amount *amounts; /* Resources of the bundle. */
    uint32_t gpus_count;              /* Number of entries of `gpu_indices`. */
    const uint32_t *gpu_indices;      /* Indices of the bundle's GPUs on its node, ascending. */
};

/* One placement group in a list. */
struct tdm_placement_group_state {
    const char *id;         /* ID of the placement group. */
    const char *name;       /* Name of the placement group; "" if it has none. */
    const char *name_space; /* Name space of the group's name. */
    int detached;           /* 1: the group does not end with its creator. */
    /* PENDING   The group waits for its bundles.
     * CREATED   The bundles are reserved.
     * REMOVING  The group is being removed. */
    const char *state;
    /* Placement strategy of the group: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD. */
    const char *strategy;
    uint32_t bundles_count;                 /* Number of entries of `bundles`. */
    const struct tdm_bundle_state *bundles; /* Bundles of the group, in its order. */
    /* Why a PENDING group is not placed yet: what it wants and what is free; "" if the group is not
     * pending, or if its daemon did not reply. */
    const char *waits_for;
    int64_t waited_ms; /* Milliseconds for which a PENDING group has waited for its bundles. */
    /* Number of the group's ticket: of several groups that wait, the one with the lowest number
     * goes first.  Nodes keep their resources for a ticket once its group has waited for 2 s.  0:
     * the group has none. */
    uint64_t ticket;
};

/* A value that other processes know, because a reference to it was passed on or because they
 * read it in shared memory.  Values that only their owner knows are listed if they are large.
 */
struct tdm_object_state {
    const char *id;    /* ID of the object; "" if no reference to it was passed on. */
    const char *owner; /* ID of the actor or driver that owns the object. */
    /* Name of the owner: an actor's name, or its class and the first digits of its ID; or a
     * driver's program. */
    const char *owner_name;
    const char *node_id;   /* ID of the owner's node. */
    const char *node_name; /* Name of the owner's node. */
    /* PENDING    The value is not there yet.
     * FAILED     There is a failure instead.
     * INLINE     It is in the owner's own memory.
     * SHARED     It is in shared memory of the owner.
     * SPILLED    It is on disk.
     * ELSEWHERE  It is read in the process that made it, which lists it without an ID. */
    const char *where;
    int64_t pid;        /* Process ID of the owner. */
    int64_t size_bytes; /* Size of the packed value in bytes; 0 until the value is there. */
    /* Milliseconds since the value was packed or a reference to it was first passed on. */
    int64_t age_ms;
    /* Number of references, calls and documents in the owner's process that hold the object. */
    uint32_t holders_count;
    uint32_t borrowers_count; /* Number of other processes that hold a reference to the object. */
    /* Number of exports of the value to processes that read it in shared memory. */
    uint32_t readers_count;
};

/* Counts of the calls of one method of one living actor, since its process began.  Each call
 * that has reached the actor is counted once.  Calls that their caller holds back, because an
 * argument is not there yet, are not counted. */
struct tdm_calls_state {
    const char *actor;      /* ID of the actor. */
    const char *class_name; /* Name of the actor's class. */
    const char *actor_name; /* Name of the actor; "" if it has none. */
    const char *node_id;    /* ID of the actor's node. */
    const char *node_name;  /* Name of the actor's node. */
    int64_t pid;            /* Process ID of the actor. */
    /* Name of the method; "*" stands for all methods that the class does not list. */
    const char *method;
    uint64_t waiting; /* Number of calls that wait at the actor. */
    uint64_t running; /* Number of calls whose method runs. */
    /* Number of calls that got a value as their reply, also if the method goes on. */
    uint64_t finished;
    uint64_t failed; /* Number of calls that got a failure as their reply, or were canceled. */
};

/* One call without a result, as a process that has it reports it. */
struct tdm_call_state {
    const char *caller; /* ID of the actor or driver that made the call. */
    /* Name of the caller: an actor's name or class, or a driver's program. */
    const char *caller_name;
    int64_t caller_pid;     /* Process ID of the caller. */
    const char *actor;      /* ID of the called actor. */
    const char *class_name; /* Name of the called actor's class. */
    const char *actor_name; /* Name of the called actor; "" if it has none. */
    const char *method;     /* Name of the called method. */
    /* ARGUMENTS  The call waits for an argument, or at its caller for one of an earlier call.
     * ACTOR      At its caller: the actor is being created or located.
     * PAUSING    At its caller: the call has failed and will be made again.
     * QUEUED     The call waits at the actor, or at its caller behind 100,000 others to that actor.
     * RUNNING    Its method runs, or has kept it. */
    const char *state;
    /* Milliseconds since the call was made or, if it has arrived at the actor, since then. */
    int64_t age_ms;
};

/* What is missing in a list. */
struct tdm_list_missing {
    uint32_t nodes;     /* Number of nodes that did not reply in time. */
    uint32_t processes; /* Number of processes of the other nodes that did not reply in time. */
    /* Number of objects or calls that were left out because a process lists 10,000 at most. */
    uint64_t rows;
};

/* Lists the actors of the cluster.  Actors that have died are listed as DEAD while their node
 * remembers them, which it does for the last 512; those that were lost with their node until their
 * creator leaves.  `missing_nodes_out` gets the number of nodes
 * that did not reply; it may be NULL. */
TDM_API tdm_status tdm_list_actors(tdm_runtime *runtime, int64_t timeout_ms,
                                   const struct tdm_actor_state **actors_out,
                                   uint32_t *actors_count_out, uint32_t *missing_nodes_out);
/* Lists the nodes of the cluster with the resources that they offer and what of these is free. */
TDM_API tdm_status tdm_list_nodes(tdm_runtime *runtime, int64_t timeout_ms,
                                  const struct tdm_node_state **nodes_out,
                                  uint32_t *nodes_count_out);
/* Lists the objects (values with references) of the cluster.  Each process lists the objects that
 * it owns, within 1 second.  `missing_out` may be NULL. */
TDM_API tdm_status tdm_list_objects(tdm_runtime *runtime, int64_t timeout_ms,
                                    const struct tdm_object_state **objects_out,
                                    uint32_t *objects_count_out,
                                    struct tdm_list_missing *missing_out);
/* Lists for each method of each actor how many calls wait, run and have ended.  Each actor lists
 * its own calls, within 1 second.  `missing_out` may be NULL. */
TDM_API tdm_status tdm_list_calls(tdm_runtime *runtime, int64_t timeout_ms,
                                  const struct tdm_calls_state **calls_out,
                                  uint32_t *calls_count_out, struct tdm_list_missing *missing_out);
/* Lists all calls of the cluster that do not have a result yet.  Each process lists its own calls,
 * within 1 second.  A call that travels meanwhile may be listed twice or not at all.  `missing_out`
 * may be NULL. */
TDM_API tdm_status tdm_list_each_call(tdm_runtime *runtime, int64_t timeout_ms,
                                      const struct tdm_call_state **calls_out,
                                      uint32_t *calls_count_out,
                                      struct tdm_list_missing *missing_out);
/* Lists the placement groups of the cluster, also those that wait for their bundles while their
 * creator waits for them.  Each node lists the groups that wait at it; of a node that does not
 * reply, the list has only those that were created with
 * tdm_placement_group_options.asynchronous. */
TDM_API tdm_status tdm_list_placement_groups(tdm_runtime *runtime, int64_t timeout_ms,
                                             const struct tdm_placement_group_state **groups_out,
                                             uint32_t *groups_count_out);
/* Lines that one worker wrote to one stream.  Texts are valid during the callback only. */
struct tdm_worker_output {
    const char *origin; /* Name of the actor or function, and the process: "trainer pid=4182". */
    const char *text;   /* Whole lines; the last one may have no newline.  Not ended by NUL. */
    size_t text_bytes;  /* Length of `text` in bytes. */
    int is_error;       /* 1 for stderr, 0 for stdout. */
};

/* Receives lines that a worker wrote.  `arg` is the caller's. */
typedef void tdm_worker_output_fn(void *arg, const struct tdm_worker_output *output);

/* Hands the lines that workers of this process's job have written on a node, and that were not
 * taken before, to fn(arg, ...) on the calling thread.  A driver that joined a running node prints
 * its actors' output so; a private node with log_to_driver prints the output itself, and nothing is
 * left to take.  `node_id` is that of struct tdm_node_state; NULL means the node of this process.
 * Blocks at most `timeout_ms` for each 256 KiB.  Any thread may call it, one at a time for each
 * node.  TDM_E_NODE_LOST: the node has ended. */
TDM_API tdm_status tdm_take_worker_output(tdm_runtime *runtime, const char *node_id,
                                          int64_t timeout_ms, tdm_worker_output_fn *fn, void *arg);
/* Frees a list that a function of this header returned, with all of its texts.  NULL is allowed. */
TDM_API void tdm_list_free(const void *list);

#ifdef __cplusplus
}
#endif

#endif
