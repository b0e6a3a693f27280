/* placement.h - placement groups: resources for several actors, all or nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_PLACEMENT_H
#define TANDEM_PLACEMENT_H

#include <stdint.h>
#include <tandem/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tdm_placement_group tdm_placement_group;

enum tdm_placement_strategy {
    TDM_PACK,         /* as few nodes as possible */
    TDM_SPREAD,       /* as many nodes as possible */
    TDM_STRICT_PACK,  /* one node, or never */
    TDM_STRICT_SPREAD /* a node each, or never */
};

enum { TDM_BUNDLE_RESOURCES_MAX = 8, TDM_BUNDLE_GPUS_MAX = 16, TDM_BUNDLES_MAX = 4096 };
#define TDM_BUNDLE_ANY UINT32_MAX /* for an actor: the first bundle that has room */

struct tdm_bundle {
    double num_cpus;
    double num_gpus; /* a fraction of one GPU, or whole ones */
    struct {
        const char *name;
        double amount;
    } resources[TDM_BUNDLE_RESOURCES_MAX]; /* ends at the first without a name */
};

/* Reserves all bundles or none.  Blocks until they are held, at most `timeout_ms`:
 * TDM_E_TIMEOUT tells what is free and what was wanted; TDM_E_NO_RESOURCES when no state of the
 * present nodes could hold them.  Bundle i is promised in the order (node, then lowest GPU
 * index). */
TDM_API tdm_status tdm_placement_group_create(
    tdm_runtime *runtime, const struct tdm_bundle *bundles, uint32_t bundles_count,
    enum tdm_placement_strategy strategy, int64_t timeout_ms, tdm_placement_group **group_out);

/* Zero in a field means the default named beside it. */
struct tdm_placement_group_options {
    enum tdm_placement_strategy strategy; /* TDM_PACK */
    const char *name;       /* 1 to 63 bytes, of one group in its name space; default none */
    const char *name_space; /* of the name; default: the runtime's */
    int detached;           /* 1: outlives its creator, until it is removed */
};
/* The same with a name, or detached.  TDM_E_EXISTS: another group has the name. */
TDM_API tdm_status tdm_placement_group_create_with(
    tdm_runtime *runtime, const struct tdm_bundle *bundles, uint32_t bundles_count,
    const struct tdm_placement_group_options *options, int64_t timeout_ms,
    tdm_placement_group **group_out);

/* The group of that name, made by any process of the cluster, as one of its own: actors may be
 * made in it, and it may be removed.  `name_space` NULL: the runtime's.  TDM_E_NOT_FOUND.
 * Blocks for the answer, at most `timeout_ms`. */
TDM_API tdm_status tdm_placement_group_find(tdm_runtime *runtime, const char *name_space,
                                            const char *name, int64_t timeout_ms,
                                            tdm_placement_group **group_out);
/* Inside an actor: the group it lies in, likewise.  TDM_E_NOT_FOUND outside of one. */
TDM_API tdm_status tdm_placement_group_current(tdm_runtime *runtime, int64_t timeout_ms,
                                               tdm_placement_group **group_out);

struct tdm_bundle_place {
    char node_id[33];
    uint32_t gpus_count;
    uint32_t gpu_indices[TDM_BUNDLE_GPUS_MAX]; /* on that node, ascending */
};
/* Where bundle `bundle` lies.  TDM_E_INVAL for one that the group does not have. */
TDM_API tdm_status tdm_placement_group_place(const tdm_placement_group *group, uint32_t bundle,
                                             struct tdm_bundle_place *place_out);
TDM_API uint32_t tdm_placement_group_bundles_count(const tdm_placement_group *group);

/* Gives the resources and the name back and kills the actors that still live on them, whoever
 * made them.  Blocks until that is so, at most `timeout_ms`.  TDM_OK if it is gone already. The
 * handle is freed in any case.  NULL is allowed. */
TDM_API tdm_status tdm_placement_group_remove(tdm_placement_group *group, int64_t timeout_ms);
/* Frees the handle only: the group goes with its creator, if it is not detached.  NULL is
 * allowed. */
TDM_API void tdm_placement_group_release(tdm_placement_group *group);

#ifdef __cplusplus
}
#endif

#endif
