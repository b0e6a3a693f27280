/* reserve.h - allocates resources for actors and placement groups in the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RESERVE_H
#define TDM_SCHEDULER_RESERVE_H

#include "scheduler/reconcile.h"
#include "scheduler/records.h"

/* Every node places the actors and groups of its own drivers, based on the records that all nodes
 * share. It commits the placement on condition that the records it read are unchanged. So two nodes
 * that allocate the same GPU at the same time cannot both succeed, and the loser chooses again.
 * scheduler/records.h describes the records. The functions return at once, and their callbacks run
 * on the loop's thread. */

/* Callback that gets the outcome of an operation; `detail` is "" or the text of the failure. */
typedef void tdm__reserve_done_fn(void *arg, tdm_status status, const char *detail);
/* Adds a node to the cluster, or writes its records again after the node was lost. The bundles
 * that groups hold on the node, and `grants` (those of its actors outside of groups), are
 * subtracted from `totals`. All structures are copied. */
tdm_status tdm__reserve_node(struct tdm__store *store, const struct tdm__node_record *record,
                             const struct tdm__node_resources *totals,
                             const struct tdm__grant *grants, uint32_t grants_count,
                             int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg);

/* A request to place one actor. */
struct tdm__actor_request {
    struct tdm__id actor; /* ID of the actor. */
    /* Resources that the actor wants and where it may run; `owner_node` is the requesting node. */
    struct tdm__placement_request placement;
    /* Placement group; all zero to place it on any node. */
    struct tdm__id group;
    /* Index of the bundle in the placement group, or TDM_BUNDLE_ANY; only with a group. */
    uint32_t bundle;
    /* Whether the owner node creates the actor again if the actor's node is lost. */
    bool recreate_on_node_loss;
    /* Store key of the actor's name record; "" if the actor has no name. If the name is taken, the
     * request fails with TDM_E_EXISTS. */
    char name_key[TDM__STORE_KEY_BYTES];
    char class_name[64]; /* Name of the actor's class. */
    /* Number of times that the owner node has placed the actor, this placement included. A record
     * with another number is that of an earlier placement, which the new one replaces. */
    uint32_t placements;
    /* Generation of the store in which the actor got its name; 0 if it gets the name now. */
    uint64_t granted;
    /* What the requesting node knows of the store's generation at any time (borrowed until the
     * operation has ended); NULL if nothing. */
    const struct tdm__store_view *view;
};
/* Where an actor was placed. */
struct tdm__actor_placement {
    struct tdm__node_record node; /* Node on which the actor runs. */
    struct tdm__grant grant;      /* Resources that the actor holds. */
    uint32_t bundle; /* Index of the actor's bundle; only if the actor is in a placement group. */
    uint64_t generation; /* Generation of the store in which the actor was placed. */
    uint64_t granted;    /* Generation of the store in which the actor got its name. */
    /* Epoch of the node that placed the actor; 0 if the request names none. */
    uint64_t owner_epoch;
};
/* Callback that gets the placement of an actor. `reserved` is borrowed and not NULL on TDM_OK.
 * Failures: TDM_E_AGAIN (not free now, or the name may be taken), TDM_E_NO_RESOURCES (never
 * possible), TDM_E_EXISTS (the name is taken), TDM_E_NOT_FOUND (no such group), TDM_E_NODE_LOST
 * (the node of the bundle). */
typedef void tdm__reserve_actor_fn(void *arg, tdm_status status, const char *detail,
                                   const struct tdm__actor_placement *reserved);
/* Places an actor and allocates its resources. A record of an earlier placement of the actor, with
 * another number, is replaced, and what it holds is given back; of a lost node it was lost with the
 * node. */
tdm_status tdm__reserve_actor(struct tdm__store *store, const struct tdm__actor_request *request,
                              int64_t deadline_ms, tdm__reserve_actor_fn *fn, void *arg);
/* Part of the body of a transaction that gives an actor the name `name_key`, which may be "": fails
 * with TDM_E_EXISTS if the name belongs to another actor. An actor on a lost node no longer has its
 * name, unless its owner node will create the actor again. The transaction must read the name and
 * all keys of node/. `taker` is the node that claims the name. */
tdm_status tdm__check_actor_name(struct tdm__txn *txn, const char *name_key,
                                 const struct tdm__id *actor, const struct tdm__id *taker);
/* Releases the resources and the name of an actor. Succeeds if they were released already. If the
 * record's node is all zero, the node and the resources are taken from the store. If the actor was
 * placed again later, nothing is released, and TDM_E_EXISTS is returned: the earlier placement was
 * released when it was replaced, or was lost with its node. */
tdm_status tdm__release_actor(struct tdm__store *store, const struct tdm__actor_record *actor,
                              int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg);

/* Removes the records of lost nodes' resources, and of actors and names on lost nodes, except of
 * actors that their owner node creates again. `self` is the requesting node. Returns TDM_E_AGAIN if
 * more records remain, or while no node counts as lost. */
tdm_status tdm__reserve_sweep(struct tdm__store *store, const struct tdm__id *self,
                              int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg);
/* Removes the records of a node that has ended its actors and leaves the cluster. */
tdm_status tdm__reserve_leave(struct tdm__store *store, const struct tdm__id *node,
                              int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg);

/* Callback that gets the IDs of orphaned placement groups. `groups` is borrowed, and valid on
 * TDM_OK. */
typedef void tdm__placement_groups_orphans_fn(void *arg, tdm_status status, const char *detail,
                                              const struct tdm__id *groups, uint32_t groups_count);
/* Finds the placement groups that no node will remove: their owner node is lost, and they are not
 * detached, are pending (no other node would place them), or are already being removed. Changes
 * nothing, because a group may contain living actors. Returns TDM_E_AGAIN while `self`, the
 * requesting node, is lost itself, and while no node counts as lost. */
tdm_status tdm__placement_groups_find_orphans(struct tdm__store *store, const struct tdm__id *self,
                                              int64_t deadline_ms,
                                              tdm__placement_groups_orphans_fn *fn, void *arg);

/* A request to create a placement group. */
struct tdm__placement_group_request {
    struct tdm__id id; /* ID of the new placement group. */
    /* Resources of each requested bundle (borrowed during the call). */
    const struct tdm__resources *bundles;
    uint32_t bundles_count;               /* Number of requested bundles. */
    enum tdm_placement_strategy strategy; /* How the bundles are distributed over the nodes. */
    /* Number of consecutive bundles that must be on one node; 0 means 1. */
    uint32_t bundles_together;
    char name_space[TDM__PLACEMENT_GROUP_NAME_BYTES]; /* Name space to which `name` belongs. */
    /* Name of the new placement group; "" for none. If the name is taken, the request fails with
     * TDM_E_EXISTS. */
    char name[TDM__PLACEMENT_GROUP_NAME_BYTES];
    bool detached;             /* Whether the placement group outlives its creator. */
    struct tdm__id owner_node; /* ID of the node that makes the request. */
    /* What the requesting node knows of the store's generation at any time (borrowed until the
     * operation has ended); NULL if nothing. While names wait, a request with a name that is free
     * fails with TDM_E_AGAIN. */
    const struct tdm__store_view *view;
    /* Whether a group that cannot be placed now is written into the store as pending, so that it is
     * found by its ID and name and actors may wait in it. The requesting node makes the request
     * again when resources may have come free. */
    bool keeps_pending;
    /* Number of the turn that the group has because of its age (tdm__ticket_turn()); 0 for none. In
     * its turn a group that cannot be placed gives its ticket to nodes, and otherwise takes it
     * back. */
    uint32_t turn;
    /* Number of the group's ticket (borrowed until the operation has ended); NULL if the group
     * never has a turn. The operation sets it if it is 0 and the group cannot be placed. */
    uint64_t *ticket_number;
};
/* Callback that gets the record of a placement group. `group` is borrowed. It is not NULL on
 * TDM_OK, and if the store has a record of the group, which is pending, although the group could
 * not be placed (TDM_E_AGAIN or TDM_E_NO_RESOURCES). */
typedef void tdm__placement_group_reserve_fn(void *arg, tdm_status status, const char *detail,
                                             const struct tdm__placement_group_record *group);
/* Creates a placement group: places all its bundles and allocates their resources, or fails with
 * TDM_E_AGAIN (not free now), TDM_E_NO_RESOURCES (the present nodes can never hold it),
 * TDM_E_EXISTS (the name is taken), or TDM_E_NOT_FOUND (the group is pending and is being removed).
 * With `keeps_pending` the group is in the store after the first two failures, too, and the same
 * request places it later. Only a group whose name may still belong to another one, because the
 * store lost changes, is not: TDM_E_AGAIN without a record. */
tdm_status tdm__placement_group_reserve(struct tdm__store *store,
                                        const struct tdm__placement_group_request *request,
                                        int64_t deadline_ms, tdm__placement_group_reserve_fn *fn,
                                        void *arg);
/* Which placement group to find. */
struct tdm__placement_group_query {
    struct tdm__id id; /* ID of the placement group to find; all zero to find it by name. */
    /* Name space to which `name` belongs; ignored if `id` is set. */
    char name_space[TDM__PLACEMENT_GROUP_NAME_BYTES];
    /* Name of the placement group to find; ignored if `id` is set. */
    char name[TDM__PLACEMENT_GROUP_NAME_BYTES];
};
/* Finds a placement group by ID or name. Returns TDM_E_NOT_FOUND if no such group exists. */
tdm_status tdm__placement_group_find(struct tdm__store *store,
                                     const struct tdm__placement_group_query *query,
                                     int64_t deadline_ms, tdm__placement_group_reserve_fn *fn,
                                     void *arg);

/* Callback at the end of tdm__placement_group_close(). `group` is NULL if no group has that ID.
 * `nodes` are the `nodes_count` nodes of the cluster that have a bundle of the group or have placed
 * an actor in it; all nodes if the store has no record of the group. Both are borrowed. */
typedef void tdm__placement_group_close_fn(void *arg, tdm_status status, const char *detail,
                                           const struct tdm__placement_group_record *group,
                                           const struct tdm__node_record *nodes,
                                           uint32_t nodes_count);
/* Closes a placement group, so that it accepts no more actors. Of `group` only the ID is read, and
 * `owner_node`, which will remove it: if that node is lost, another node must find the group as an
 * orphan. */
tdm_status tdm__placement_group_close(struct tdm__store *store,
                                      const struct tdm__placement_group_record *group,
                                      int64_t deadline_ms, tdm__placement_group_close_fn *fn,
                                      void *arg);
/* Removes a placement group, and releases its bundles and its name. Of `group` only the ID and the
 * names are read. Succeeds if the group was removed already. */
tdm_status tdm__placement_group_release(struct tdm__store *store,
                                        const struct tdm__placement_group_record *group,
                                        int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg);

#endif
