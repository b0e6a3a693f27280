/* state.h - lists of the nodes, actors, calls, objects and placement groups of the cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_STATE_H
#define TANDEM_STATE_H

#include <stdint.h>
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
    const char *name; /* "CPU", "GPU", or a name that the user defines. */
    double total;     /* Total of a node, or what an actor holds. */
    double free;      /* Free amount of a node's resource; 0 for an actor. */
};

/* One actor in a list. Texts and arrays are borrowed from the list. */
struct tdm_actor_state {
    const char *id;                   /* ID of the actor. */
    const char *class_name;           /* Name of the actor's class. */
    const char *name;                 /* "" if it has no name. */
    const char *name_space;           /* Namespace of the actor's name. */
    const char *state;                /* PENDING, STARTING, ALIVE, ENDING, RESTARTING or DEAD. */
    const char *node_id;              /* ID of its node; "" before it is placed. */
    const char *node_name;            /* Name of its node; "" before it is placed. */
    const char *creator;              /* ID of the driver or actor that created it. */
    const char *group;                /* ID of its placement group; "" if it is in none. */
    const char *death_cause;          /* Why it died, or what it waits for; "" if neither. */
    int64_t pid;                      /* Process ID; 0 without a process. */
    int64_t restarts;                 /* How often it has been restarted. */
    int detached;                     /* 1: the actor does not end with its creator. */
    uint32_t amounts_count;           /* Number of entries of `amounts`. */
    const struct tdm_amount *amounts; /* Resources that it holds. */
    uint32_t gpus_count;              /* Number of entries of `gpu_indices`. */
    const uint32_t *gpu_indices;      /* Indices on its node, ascending. */
};

/* One node in a list. */
struct tdm_node_state {
    const char *id;                   /* ID of the node. */
    const char *name;                 /* Name of the node. */
    const char *unix_address;         /* Address of its daemon on the node. */
    const char *tcp_address;          /* Address of its daemon for other nodes; "" without one. */
    int64_t pid;                      /* Process ID of its daemon. */
    uint32_t amounts_count;           /* Number of entries of `amounts`. */
    const struct tdm_amount *amounts; /* Resources that it offers. */
};

/* A reserved bundle of a placement group. */
struct tdm_bundle_state {
    const char *node_id;              /* ID of the node that the bundle is on. */
    uint32_t amounts_count;           /* Number of entries of `amounts`. */
    const struct tdm_amount *amounts; /* Resources of the bundle. */
    uint32_t gpus_count;              /* Number of entries of `gpu_indices`. */
    const uint32_t *gpu_indices;      /* Indices of its GPUs on that node, ascending. */
};

/* One placement group in a list. */
struct tdm_placement_group_state {
    const char *id;                         /* ID of the placement group. */
    const char *name;                       /* "" if it has no name. */
    const char *name_space;                 /* Namespace of the group's name. */
    int detached;                           /* 1: the group does not end with its creator. */
    uint32_t bundles_count;                 /* Number of entries of `bundles`. */
    const struct tdm_bundle_state *bundles; /* Reserved bundles of the group, in its order. */
};

/* A value that other processes know, because a reference to it was passed on or because they
 * read it in shared memory.  Values that only their owner knows are listed if they are large.
 */
struct tdm_object_state {
    const char *id;    /* "" if no reference was passed on. */
    const char *owner; /* ID of the actor or driver that owns it. */
    /* An actor's name, or its class and the first digits of its ID; or a driver's program. */
    const char *owner_name;
    const char *node_id;   /* Node of the owner. */
    const char *node_name; /* Name of the owner's node. */
    /* PENDING    The value is not there yet.
     * FAILED     There is a failure instead.
     * INLINE     It is in the owner's own memory.
     * SHARED     It is in shared memory of the owner.
     * SPILLED    It is on disk.
     * ELSEWHERE  It is read in the process that made it, which lists it without an ID. */
    const char *where;
    int64_t pid;              /* Process ID of the owner. */
    int64_t size_bytes;       /* Packed bytes; 0 until the value is there. */
    int64_t age_ms;           /* Milliseconds since it was packed or first passed on. */
    uint32_t holders_count;   /* References, calls and documents in the owner. */
    uint32_t borrowers_count; /* Other processes that hold a reference to it. */
    uint32_t readers_count;   /* Exports to processes that read it in shared memory. */
};

/* Counts of the calls of one method of one living actor, since its process began.  Each call
 * that has reached the actor is counted once.  Calls that their caller holds back, because an
 * argument is not there yet, are not counted. */
struct tdm_calls_state {
    const char *actor;      /* ID of the actor. */
    const char *class_name; /* Name of the actor's class. */
    const char *actor_name; /* "" if it has no name. */
    const char *node_id;    /* ID of the actor's node. */
    const char *node_name;  /* Name of the actor's node. */
    int64_t pid;            /* Process ID of the actor. */
    const char *method;     /* "*" stands for all methods that the class does not list. */
    uint64_t waiting;       /* Calls that wait at the actor. */
    uint64_t running;       /* Calls that run. */
    uint64_t finished;      /* Replied to with a value, also if the method goes on. */
    uint64_t failed;        /* Replied to with a failure, or canceled. */
};

/* One call without a result, as a process that has it reports it. */
struct tdm_call_state {
    const char *caller;      /* ID of the actor or driver that made it. */
    const char *caller_name; /* An actor's name or class, or a driver's program. */
    int64_t caller_pid;      /* Process ID of the caller. */
    const char *actor;       /* ID of the called actor. */
    const char *class_name;  /* Name of the called actor's class. */
    const char *actor_name;  /* "" if it has no name. */
    const char *method;      /* Name of the called method. */
    /* ARGUMENTS  The call waits for an argument, or at its caller for one of an earlier call.
     * ACTOR      At its caller: the actor is being created or located.
     * PAUSING    At its caller: the call has failed and will be made again.
     * QUEUED     The call waits at the actor.
     * RUNNING    Its method runs, or has kept it. */
    const char *state;
    int64_t age_ms; /* Milliseconds since it was made, or at the actor since it arrived. */
};

/* What is missing in a list. */
struct tdm_list_missing {
    uint32_t nodes;     /* Nodes that did not reply in time. */
    uint32_t processes; /* Processes of the other nodes that did not reply in time. */
    /* Number of objects or calls that were left out because a process lists 10,000 at most. */
    uint64_t rows;
};

/* Lists the actors.  Those that have died are listed as DEAD while their node remembers them,
 * which it does for the last 512.  `missing_nodes_out` gets the number of nodes that did not
 * reply; it may be NULL. */
TDM_API tdm_status tdm_list_actors(tdm_runtime *runtime, int64_t timeout_ms,
                                   const struct tdm_actor_state **actors_out,
                                   uint32_t *actors_count_out, uint32_t *missing_nodes_out);
/* Lists the nodes with what they offer and what is free. */
TDM_API tdm_status tdm_list_nodes(tdm_runtime *runtime, int64_t timeout_ms,
                                  const struct tdm_node_state **nodes_out,
                                  uint32_t *nodes_count_out);
/* Lists the objects.  Each process lists those that it owns, within 1 second.  `missing_out`
 * may be NULL. */
TDM_API tdm_status tdm_list_objects(tdm_runtime *runtime, int64_t timeout_ms,
                                    const struct tdm_object_state **objects_out,
                                    uint32_t *objects_count_out,
                                    struct tdm_list_missing *missing_out);
/* Lists the counts of calls.  Each actor lists its own, within 1 second.  `missing_out` may be
 * NULL. */
TDM_API tdm_status tdm_list_calls(tdm_runtime *runtime, int64_t timeout_ms,
                                  const struct tdm_calls_state **calls_out,
                                  uint32_t *calls_count_out, struct tdm_list_missing *missing_out);
/* Lists the calls without a result.  Each process lists its own, within 1 second.  A call that
 * travels meanwhile may be listed twice or not at all.  `missing_out` may be NULL. */
TDM_API tdm_status tdm_list_each_call(tdm_runtime *runtime, int64_t timeout_ms,
                                      const struct tdm_call_state **calls_out,
                                      uint32_t *calls_count_out,
                                      struct tdm_list_missing *missing_out);
/* Lists the placement groups whose bundles are reserved. */
TDM_API tdm_status tdm_list_placement_groups(tdm_runtime *runtime, int64_t timeout_ms,
                                             const struct tdm_placement_group_state **groups_out,
                                             uint32_t *groups_count_out);
/* Frees a list with all of its texts.  NULL is allowed. */
TDM_API void tdm_list_free(const void *list);

#ifdef __cplusplus
}
#endif

#endif
