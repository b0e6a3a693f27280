/* reserve.h - places for actors and groups, taken and given back in the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RESERVE_H
#define TDM_SCHEDULER_RESERVE_H

#include "scheduler/records.h"

/* Every node plans for its own drivers on the state that all nodes share, and commits the plan
 * with the versions of what it read: two that take the same GPU at once cannot both succeed,
 * and the loser plans again. What the records hold is in scheduler/records.h. */

/* Adds the node, or its record anew after its lease was lost: what groups hold on it, and what
 * `grants` (its actors outside groups) hold, is taken from `totals` again.  All structs are
 * copied. */
typedef void tdm__reserve_done_fn(void *arg, tdm_status status, const char *detail);
tdm_status tdm__reserve_node(struct tdm__store *store, const struct tdm__node_record *record,
                             const struct tdm__node_resources *totals,
                             const struct tdm__grant *grants, uint32_t grants_count,
                             int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg);

/* A place for one actor. */
struct tdm__actor_request {
    struct tdm__id actor;
    struct tdm__placement_request wish;  /* `owner_node` is the node that asks */
    struct tdm__id group;                /* none: anywhere */
    uint32_t bundle;                     /* or TDM_BUNDLE_ANY */
    bool recreate_on_node_loss;          /* see struct tdm__actor_record */
    char name_key[TDM__STORE_KEY_BYTES]; /* "" or the name to claim: TDM_E_EXISTS when taken */
    char class_name[64];
};
struct tdm__actor_placement {
    struct tdm__node_record node;
    struct tdm__grant grant;
    uint32_t bundle; /* of a group */
};
/* An actor whose node was lost takes its next place by the same request: what it held went with
 * its node.  `reserved` is set on TDM_OK; else `detail` says what is missing: TDM_E_AGAIN (busy
 * now), TDM_E_NO_RESOURCES (never), TDM_E_EXISTS, TDM_E_NOT_FOUND (no such group). */
typedef void tdm__reserve_actor_fn(void *arg, tdm_status status, const char *detail,
                                   const struct tdm__actor_placement *reserved);
tdm_status tdm__reserve_actor(struct tdm__store *store, const struct tdm__actor_request *request,
                              int64_t deadline_ms, tdm__reserve_actor_fn *fn, void *arg);
/* Gives back what the actor holds, and its name.  Fine if that is gone already.  Without a node
 * it is what the store says that it holds, wherever. */
tdm_status tdm__release_actor(struct tdm__store *store, const struct tdm__actor_record *actor,
                              int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg);

/* Writes again what the store has lost of an actor that holds its place: its record, its name,
 * what it takes from its bundle.  (What it takes from its node tdm__reserve_node() has
 * counted.) Fine if nothing is lost.  TDM_E_EXISTS: another has the name by now, or the actor
 * was made anew elsewhere; TDM_E_NOT_FOUND: its group is not there. */
tdm_status tdm__restore_actor(struct tdm__store *store, const struct tdm__actor_record *actor,
                              int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg);

/* Removes the actors' and names' records of nodes that are no longer there, but for actors that
 * their owner_node makes anew.  TDM_E_AGAIN: there are more. */
tdm_status tdm__reserve_sweep(struct tdm__store *store, int64_t deadline_ms,
                              tdm__reserve_done_fn *fn, void *arg);

/* The groups that nobody removes any more: their owner_node is not there, and they are not
 * detached, or are half removed already.  Changes nothing: in a group there may be living actors.
 * TDM_E_AGAIN while `self`, the node that asks, is itself not there: then nothing is known of
 * others either.  `groups` is borrowed, and set on TDM_OK. */
typedef void tdm__placement_groups_orphans_fn(void *arg, tdm_status status, const char *detail,
                                              const struct tdm__id *groups, uint32_t groups_count);
tdm_status tdm__placement_groups_find_orphans(struct tdm__store *store, const struct tdm__id *self,
                                              int64_t deadline_ms,
                                              tdm__placement_groups_orphans_fn *fn, void *arg);

/* What a placement group is to be. */
struct tdm__placement_group_request {
    struct tdm__id id;
    const struct tdm__resources *bundles; /* borrowed during the call */
    uint32_t bundles_count;
    enum tdm_placement_strategy strategy;
    char name_space[TDM__PLACEMENT_GROUP_NAME_BYTES];
    char name[TDM__PLACEMENT_GROUP_NAME_BYTES]; /* "" or the name to claim: TDM_E_EXISTS when taken
                                                 */
    bool detached;
    struct tdm__id owner_node; /* the node that asks */
};
/* Places for the bundles of a group; `group` is set on TDM_OK, borrowed. */
typedef void tdm__placement_group_reserve_fn(void *arg, tdm_status status, const char *detail,
                                             const struct tdm__placement_group_record *group);
tdm_status tdm__placement_group_reserve(struct tdm__store *store,
                                        const struct tdm__placement_group_request *request,
                                        int64_t deadline_ms, tdm__placement_group_reserve_fn *fn,
                                        void *arg);
/* The group of that id, or, where it is none, of that name: TDM_E_NOT_FOUND. */
struct tdm__placement_group_query {
    struct tdm__id id;
    char name_space[TDM__PLACEMENT_GROUP_NAME_BYTES];
    char name[TDM__PLACEMENT_GROUP_NAME_BYTES];
};
tdm_status tdm__placement_group_find(struct tdm__store *store,
                                     const struct tdm__placement_group_query *question,
                                     int64_t deadline_ms, tdm__placement_group_reserve_fn *fn,
                                     void *arg);
/* Writes again what the store has lost of a group that is held, `group` as it was planned, with
 * free bundles.  Fine if nothing is lost.  TDM_E_AGAIN while one of its nodes is not there, but
 * with `without_lost` such nodes are left out.  A name that another group has by now stays
 * there. */
tdm_status tdm__placement_group_restore(struct tdm__store *store,
                                        const struct tdm__placement_group_record *group,
                                        bool without_lost, int64_t deadline_ms,
                                        tdm__reserve_done_fn *fn, void *arg);

/* From now on the group takes no actor; of `group` only its id is read, and as owner_node who
 * removes it: if that node is lost, somebody else has to.  In the answer `group` is NULL if there
 * is none of that id; both it and `nodes`, those that are there, are borrowed. */
typedef void tdm__placement_group_close_fn(void *arg, tdm_status status, const char *detail,
                                           const struct tdm__placement_group_record *group,
                                           const struct tdm__nodes_snapshot *nodes);
tdm_status tdm__placement_group_close(struct tdm__store *store,
                                      const struct tdm__placement_group_record *group,
                                      int64_t deadline_ms, tdm__placement_group_close_fn *fn,
                                      void *arg);
/* Gives back its bundles and its name, of which only id and names are read in `group`.  Fine if
 * it is gone already. */
tdm_status tdm__placement_group_release(struct tdm__store *store,
                                        const struct tdm__placement_group_record *group,
                                        int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg);

#endif
