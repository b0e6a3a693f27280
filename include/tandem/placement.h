/* placement.h - placement groups: resources for several actors, reserved all or none. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_PLACEMENT_H
#define TANDEM_PLACEMENT_H

#include <stdint.h>
#include <tandem/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A handle to a placement group.  Any thread may use it; its owner frees it once. */
typedef struct tdm_placement_group tdm_placement_group;

/* Which nodes get the bundles of a group. */
enum tdm_placement_strategy {
    TDM_PACK,         /* The bundles are placed on as few nodes as possible. */
    TDM_SPREAD,       /* The bundles are placed on as many nodes as possible. */
    TDM_STRICT_PACK,  /* All bundles are placed on one node, or the group is not created. */
    TDM_STRICT_SPREAD /* Each bundle is placed on a node of its own, or the group is not created. */
};

enum {
    TDM_BUNDLE_RESOURCES_MAX = 16, /* Largest number of entries in tdm_bundle.resources. */
    TDM_BUNDLE_GPUS_MAX = 16,      /* Largest number of GPUs of a bundle. */
    TDM_BUNDLES_MAX = 4096         /* Largest number of bundles of a placement group. */
};
/* Value of tdm_actor_options.bundle: any bundle of the placement group that has room. */
#define TDM_BUNDLE_ANY UINT32_MAX

/* Resources that are reserved together on one node. */
struct tdm_bundle {
    double num_cpus; /* Number of CPUs of the bundle. */
    double num_gpus; /* GPUs of the bundle: a fraction of one GPU, or a whole number of GPUs. */
    struct {
        const char *name; /* Name of the resource: "CPU", "GPU", or one that the user defines. */
        double amount;    /* Amount of the resource, above 0. */
    } resources[TDM_BUNDLE_RESOURCES_MAX]; /* The list ends at the first entry without a name.
                                            */
};

/* Creates a placement group: reserves all its bundles, or none.  `bundles` is borrowed for the
 * call.  Blocks until the bundles are reserved, at most `timeout_ms` milliseconds.  TDM_E_TIMEOUT
 * says what is wanted and what is free; TDM_E_NO_RESOURCES says that the present nodes can never
 * hold the bundles.  Bundles are numbered by node, and on a node by lowest GPU index.  The caller
 * frees the handle with tdm_placement_group_remove() or tdm_placement_group_release().  On failure
 * `*group_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_placement_group_create(
    tdm_runtime *runtime, const struct tdm_bundle *bundles, uint32_t bundles_count,
    enum tdm_placement_strategy strategy, int64_t timeout_ms, tdm_placement_group **group_out);

/* Options of tdm_placement_group_create_with().  Zero in a field means the default named beside the
 * field.  Texts are copied. */
struct tdm_placement_group_options {
    /* On which nodes the bundles are placed.  Default: TDM_PACK. */
    enum tdm_placement_strategy strategy;
    /* Name of the group, 1 to 63 bytes, unique in its name space.  Default: no name. */
    const char *name;
    const char *name_space; /* Name space to which `name` belongs.  Default: the runtime's. */
    int detached;           /* 1: the group outlives its creator, until it is removed. */
    /* 1: the call does not wait for the bundles.  It returns as soon as the cluster's store knows
     * the group, which may be pending then: it waits for its bundles without a limit of time, also
     * for nodes that join later.  Actors may be created in it at once and wait with it.
     * tdm_placement_group_wait() waits for the bundles. */
    int asynchronous;
    /* 1: a group that an actor creates does not end with the actor but with the driver of its job,
     * if that driver is on the actor's node.  Not for groups of detached actors. */
    int of_job;
    /* Number of consecutive bundles that are placed on one node: bundles 0 to n - 1, the next n
     * bundles, and so on. They must be equal and have whole GPUs.  The strategy then distributes
     * these sets, and TDM_E_NO_RESOURCES says that no nodes can hold them.  Default: 1. */
    uint32_t bundles_together;
};
/* Creates a placement group as tdm_placement_group_create() does, with options such as a name.
 * TDM_E_EXISTS: another group has the name. */
TDM_API TDM_MUST_CHECK tdm_status tdm_placement_group_create_with(
    tdm_runtime *runtime, const struct tdm_bundle *bundles, uint32_t bundles_count,
    const struct tdm_placement_group_options *options, int64_t timeout_ms,
    tdm_placement_group **group_out);

/* Finds the group of that name, whichever process of the cluster created it.  The caller gets a
 * handle of its own: it may create actors in the group, and may remove it.  `name_space` NULL
 * means the runtime's.  Blocks for the reply, at most `timeout_ms` milliseconds.
 * TDM_E_NOT_FOUND: there is no such group.  On failure `*group_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_placement_group_find(tdm_runtime *runtime,
                                                           const char *name_space, const char *name,
                                                           int64_t timeout_ms,
                                                           tdm_placement_group **group_out);
/* Finds the group with the ID `id`, 32 hexadecimal digits, like tdm_placement_group_find(). */
TDM_API TDM_MUST_CHECK tdm_status tdm_placement_group_find_by_id(tdm_runtime *runtime,
                                                                 const char *id, int64_t timeout_ms,
                                                                 tdm_placement_group **group_out);
/* Gives a handle to the placement group of the actor that calls it, like
 * tdm_placement_group_find().  TDM_E_NOT_FOUND: this process is not an actor in a group. */
TDM_API TDM_MUST_CHECK tdm_status tdm_placement_group_current(tdm_runtime *runtime,
                                                              int64_t timeout_ms,
                                                              tdm_placement_group **group_out);

/* Blocks until all bundles of the group are reserved, at most `timeout_ms` milliseconds.  Several
 * threads may wait.  TDM_E_TIMEOUT says what the group waits for, as far as that is known.
 * TDM_E_NOT_FOUND: the group was removed. */
TDM_API tdm_status tdm_placement_group_wait(tdm_placement_group *group, int64_t timeout_ms);

/* What a handle knows of its placement group. */
struct tdm_placement_group_info {
    char id[33];                       /* ID of the group: 32 hexadecimal digits. */
    char name[TDM_NAME_BYTES_MAX + 1]; /* Name of the group; "" if it has none. */
    /* Name space of the group's name; "" without a name. */
    char name_space[TDM_NAME_BYTES_MAX + 1];
    /* On which nodes the bundles are placed. */
    enum tdm_placement_strategy strategy;
    int detached;           /* 1: the group outlives its creator. */
    uint32_t bundles_count; /* Number of bundles of the group. */
    /* 1: the bundles are reserved, and this handle knows where.  0: the group was pending when this
     * handle was created, and tdm_placement_group_wait() has not returned TDM_OK for it yet. */
    int is_placed;
    /* 1: when this handle was created, the nodes of the cluster could not have held the bundles
     * even if nothing else had used them.  The group waits for other nodes. */
    int is_infeasible;
    /* What the group waited for when this handle was created; "" if it was placed or that is not
     * known. */
    char pending_cause[512];
};
/* Writes what the handle knows of its group.  Never blocks. */
TDM_API void tdm_placement_group_describe(const tdm_placement_group *group,
                                          struct tdm_placement_group_info *info_out);

/* Where a bundle was reserved. */
struct tdm_bundle_placement {
    char node_id[33];    /* ID of the bundle's node: 32 hexadecimal digits. */
    uint32_t gpus_count; /* Number of GPUs of the bundle. */
    /* Indices of the bundle's GPUs on its node, ascending. */
    uint32_t gpu_indices[TDM_BUNDLE_GPUS_MAX];
};
/* Writes where bundle number `bundle` was reserved.  Never blocks.  TDM_E_INVAL: the group has
 * no such bundle.  TDM_E_AGAIN: the handle does not know it yet, because the group was pending;
 * call tdm_placement_group_wait() first.  `*placement_out` is unchanged after a failure. */
TDM_API tdm_status tdm_placement_group_locate_bundle(const tdm_placement_group *group,
                                                     uint32_t bundle,
                                                     struct tdm_bundle_placement *placement_out);
/* Returns the number of bundles of the placement group.  Never blocks. */
TDM_API uint32_t tdm_placement_group_bundles_count(const tdm_placement_group *group);

/* Removes a placement group: releases its resources and its name, and kills the actors that still
 * use them, whichever process created them.  Blocks until that is done, at most `timeout_ms`
 * milliseconds.  Returns TDM_OK if the group is gone already.  Frees the handle in any case.  NULL
 * is allowed. */
TDM_API tdm_status tdm_placement_group_remove(tdm_placement_group *group, int64_t timeout_ms);
/* Frees a handle to a placement group, which stays.  A group that is not detached ends with its
 * creator.  NULL is allowed. */
TDM_API void tdm_placement_group_release(tdm_placement_group *group);

#ifdef __cplusplus
}
#endif

#endif
