/* state.h - what is in the cluster: nodes, actors, calls, objects, placement groups. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_STATE_H
#define TANDEM_STATE_H

#include <stdint.h>
#include <tandem/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each call asks the node this process has joined, which asks the others: the answer is of the
 * whole cluster, but for nodes that did not answer in time; those are `missing_nodes`.  It
 * blocks at most `timeout_ms`.  A list is one piece of memory, with every text in it, until it
 * is given to tdm_list_free().  Texts are never NULL. */

struct tdm_amount {
    const char *name; /* "CPU", "GPU", or a name of the user's */
    double total;
    double free; /* of a node; 0 for an actor */
};

struct tdm_actor_state {
    const char *id;
    const char *class_name;
    const char *name; /* "" for none */
    const char *name_space;
    const char *state;   /* PENDING, STARTING, ALIVE, ENDING, RESTARTING, DEAD */
    const char *node_id; /* "" before it has a place */
    const char *node_name;
    const char *creator;     /* id of the driver or actor that asked for it */
    const char *group;       /* id of the placement group it lives in; "" */
    const char *death_cause; /* why it died, or why it waits; "" */
    int64_t pid;             /* 0 without a process */
    int64_t restarts;
    int detached;
    uint32_t amounts_count;
    const struct tdm_amount *amounts; /* what it holds */
    uint32_t gpus_count;
    const uint32_t *gpu_indices; /* on its node, ascending */
};

struct tdm_node_state {
    const char *id;
    const char *name;
    const char *unix_address; /* of its daemon */
    const char *tcp_address;  /* "" when it talks to no other */
    int64_t pid;
    uint32_t amounts_count;
    const struct tdm_amount *amounts; /* what it offers */
};

struct tdm_bundle_state {
    const char *node_id;
    uint32_t amounts_count;
    const struct tdm_amount *amounts;
    uint32_t gpus_count;
    const uint32_t *gpu_indices;
};

struct tdm_group_state {
    const char *id;
    const char *name; /* "" for none */
    const char *name_space;
    int detached;
    uint32_t bundles_count;
    const struct tdm_bundle_state *bundles;
};

/* A value that a process owns and others know: by a reference that was passed on, or because
 * they read it in shared memory.  Values that only their owner knows are listed if they are
 * large. */
struct tdm_object_state {
    const char *id;         /* "" where no reference was passed on */
    const char *owner;      /* id of the actor or driver */
    const char *owner_name; /* an actor's name or class, a driver's program */
    const char *node_id;    /* of the owner */
    const char *node_name;
    /* PENDING    not there yet
     * FAILED     there is a failure instead
     * INLINE     in the owner's own memory
     * SHARED     in shared memory of the owner
     * SPILLED    on disk
     * ELSEWHERE  read in place where its maker has it, who lists it without an id */
    const char *where;
    int64_t pid;              /* of the owner */
    int64_t size_bytes;       /* packed; 0 until it is there */
    int64_t age_ms;           /* since it was packed, or a reference to it was passed on */
    uint32_t holders_count;   /* in the owner: references, calls, documents */
    uint32_t borrowers_count; /* processes that hold a reference to it */
    uint32_t readers_count;   /* loans of it to processes that read it in place */
};

/* The calls of one method of one living actor, since its process began: each that has come to
 * the actor is counted once.  What a caller keeps back, because an argument is not there yet,
 * is not among them. */
struct tdm_calls_state {
    const char *actor; /* its id */
    const char *class_name;
    const char *actor_name; /* "" for none */
    const char *node_id;
    const char *node_name;
    int64_t pid;
    const char *method; /* "*": all that the class does not list */
    uint64_t waiting;
    uint64_t running;
    uint64_t finished; /* answered well, also if the method goes on */
    uint64_t failed;   /* answered with a failure, or canceled */
};

/* One call that has no result yet, as the process tells that has it. */
struct tdm_call_state {
    const char *caller;      /* id of the actor or driver */
    const char *caller_name; /* an actor's name or class, a driver's program */
    int64_t caller_pid;
    const char *actor; /* id of the one that is called */
    const char *class_name;
    const char *actor_name; /* "" for none */
    const char *method;
    /* ARGUMENTS  waits for an argument; at its caller also for one of a call in front of it
     * ACTOR      at its caller: the actor is not there yet, or is looked for
     * PAUSING    at its caller: it failed, and is made again
     * QUEUED     at the actor
     * RUNNING    its method does, or has kept it */
    const char *state;
    int64_t age_ms; /* since it was made; at the actor: since it came */
};

/* What a list lacks. */
struct tdm_list_missing {
    uint32_t nodes;     /* that did not answer in time */
    uint32_t processes; /* of the others, that did not answer in time */
    uint64_t rows;      /* a process lists 10,000 objects or calls: how many more there are */
};

/* Those that have died are listed as DEAD while their node remembers them (the last 512).
 * `missing_nodes_out` may be NULL. */
TDM_API tdm_status tdm_list_actors(tdm_runtime *runtime, int64_t timeout_ms,
                                   const struct tdm_actor_state **actors_out,
                                   uint32_t *actors_count_out, uint32_t *missing_nodes_out);
TDM_API tdm_status tdm_list_nodes(tdm_runtime *runtime, int64_t timeout_ms,
                                  const struct tdm_node_state **nodes_out,
                                  uint32_t *nodes_count_out);
/* Each process tells of its own, and has 1 s for it.  `missing_out` may be NULL. */
TDM_API tdm_status tdm_list_objects(tdm_runtime *runtime, int64_t timeout_ms,
                                    const struct tdm_object_state **objects_out,
                                    uint32_t *objects_count_out,
                                    struct tdm_list_missing *missing_out);
/* Each actor tells of its own, and has 1 s for it.  `missing_out` may be NULL. */
TDM_API tdm_status tdm_list_calls(tdm_runtime *runtime, int64_t timeout_ms,
                                  const struct tdm_calls_state **calls_out,
                                  uint32_t *calls_count_out,
                                  struct tdm_list_missing *missing_out);
/* Each process tells of its own, and has 1 s for it; a call that is on its way meanwhile may be
 * told of twice, or not at all.  `missing_out` may be NULL. */
TDM_API tdm_status tdm_list_each_call(tdm_runtime *runtime, int64_t timeout_ms,
                                      const struct tdm_call_state **calls_out,
                                      uint32_t *calls_count_out,
                                      struct tdm_list_missing *missing_out);
/* Groups that hold their bundles. */
TDM_API tdm_status tdm_list_groups(tdm_runtime *runtime, int64_t timeout_ms,
                                   const struct tdm_group_state **groups_out,
                                   uint32_t *groups_count_out);
TDM_API void tdm_list_free(const void *list); /* NULL is allowed */

#ifdef __cplusplus
}
#endif

#endif
