/* records.h - the records about nodes, actors and placement groups in the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RECORDS_H
#define TDM_SCHEDULER_RECORDS_H

#include "runtime/store.h"
#include "runtime/store/txn.h"
#include "scheduler/name_key.h"
#include "scheduler/placement.h"

#include <tandem/runtime.h>

/* Keys and values:
 *
 * - node/ID: struct tdm__node_record, with a lease. When the lease and the grace have ended, other
 *   nodes remove the record: the node is lost (runtime/store.h).
 * - free/ID: struct tdm__node_resources. The sweep removes that of a lost node.
 * - group/ID: struct tdm__placement_group_record.
 * - group_name/SPACE/NAME: the ID of the group that has the name.
 * - actor/ID: struct tdm__actor_record.
 * - name/SPACE/NAME: struct tdm__actor_record of the actor that has the name.
 *
 * Reading a record checks everything, and returns TDM_E_PROTOCOL with the key if it is malformed.
 */

/* Limits of records and leases. */
enum {
    /* Milliseconds for which a renewal of a node's lease counts, unless the node is configured
     * otherwise. */
    TDM__NODE_LEASE_MS = 30000,
    TDM__NODE_LEASE_MS_MIN = 5000,    /* Shortest lease that a node may be configured with. */
    TDM__NODE_LEASE_MS_MAX = 3600000, /* Longest lease that a node may be configured with. */
    /* Milliseconds after the end of a node's lease, on the store's kept clock, until other nodes
     * take it over: for the drift of clocks, and for the time that killing takes. */
    TDM__NODE_GRACE_MS = 2000,
    /* Milliseconds between two renewals of a node's lease. */
    TDM__NODE_RENEW_MS = 1000,
    /* Milliseconds within which nodes that can reach the store join again after it has lost their
     * records. */
    TDM__NODE_REJOIN_MS = 6000,
    /* Size in bytes of a placement group's name or name space, including the terminating NUL. */
    TDM__PLACEMENT_GROUP_NAME_BYTES = TDM_NAME_BYTES_MAX + 1
};

/* Five renewals fit in the shortest lease, so a working node may lose four of them. */
_Static_assert(TDM__NODE_RENEW_MS * 5 <= TDM__NODE_LEASE_MS_MIN, "a lease outlives lost renewals");

/* Writes the store key of a record, such as "node/3f...", to `key` and returns `key`. */
const char *tdm__store_key(const char *kind, const struct tdm__id *id,
                           char key[TDM__STORE_KEY_BYTES]);

/* Record of a node of the cluster, which its daemon writes. */
struct tdm__node_record {
    struct tdm__id id;               /* ID of the node, new at each start of its daemon. */
    char name[TDM__NODE_NAME_BYTES]; /* Name of the node for messages and lists. */
    char unix_address[160]; /* Address of the node's daemon for processes on the same machine. */
    /* Address of the node's daemon for other nodes; "" if it does not listen on TCP. */
    char tcp_address[160];
    int64_t pid;      /* Process ID of the node's daemon. */
    int64_t lease_ms; /* Lease of the node in milliseconds; 0 stands for TDM__NODE_LEASE_MS. */
    /* Epoch of the node: the version of its record, which is higher each time that the node has
     * joined. Only records that were read have it; in others it is 0. */
    uint64_t epoch;
    /* Epoch in which the node has joined, if it has got a higher one since without being lost
     * (tdm__reserve_new_epoch()); else 0. */
    uint64_t lives_since;
};
/* Decodes a record node/ID, which describes a node. */
tdm_status tdm__node_record_read(const struct tdm__store_record *record,
                                 struct tdm__node_record *node_out);
/* Returns whether the node with this ID is among the `nodes_count` nodes. */
bool tdm__node_records_contain(const struct tdm__node_record *nodes, uint32_t nodes_count,
                               const struct tdm__id *id);
/* Makes the transaction's commit fail if the node has joined or has been lost since the transaction
 * read its record. */
tdm_status tdm__txn_require_node_unchanged(struct tdm__txn *txn, const struct tdm__id *node);
/* For a decision of the node `taker`, which may be none, that rests on the loss of `node`: makes
 * the transaction's commit fail unless `node` is lost, and `taker` is not. While the store has a
 * new generation, in which no absence counts, the transaction fails with TDM_E_AGAIN. The
 * transaction must read both records. */
tdm_status tdm__txn_require_node_lost(struct tdm__txn *txn, const struct tdm__id *taker,
                                      const struct tdm__id *node);
/* Returns the lease of a node in milliseconds, from its record. */
int64_t tdm__node_lease_ms(const struct tdm__node_record *node);
/* Adds a write of the node's record node/ID to the transaction, with a new lease. */
tdm_status tdm__node_record_put(struct tdm__txn *txn, const struct tdm__node_record *node);

/* Decodes a record free/ID: the resources of a node. */
tdm_status tdm__free_record_read(const struct tdm__store_record *record,
                                 struct tdm__node_resources *node_out);
/* Adds a write of the node's resources, free/ID, to the transaction. */
tdm_status tdm__free_record_put(struct tdm__txn *txn, const struct tdm__node_resources *node);

/* Record of an actor and of the resources that it holds. */
struct tdm__actor_record {
    struct tdm__id actor; /* ID of the actor. */
    struct tdm__id node;  /* ID of the node on which the actor runs. */
    /* ID of the placement group that holds the actor's resources; all zero if the node itself
     * does. */
    struct tdm__id group;
    uint32_t bundle; /* Index of the actor's bundle in the placement group; only with a group. */
    struct tdm__grant grant; /* Resources that the actor holds. */
    /* Store key of the actor's name record; "" if the actor has no name. */
    char name_key[TDM__STORE_KEY_BYTES];
    char class_name[64];       /* Name of the actor's class. */
    struct tdm__id owner_node; /* ID of the node that requested the actor. */
    /* Whether the owner node creates the actor again if the actor's node is lost. */
    bool recreate_on_node_loss;
    /* Number of times that the owner node has placed the actor, this placement included. */
    uint32_t placements;
    /* Generation of the store in which the actor got its name, or would have got one. */
    uint64_t granted;
};
/* Decodes a record actor/ID or name/SPACE/NAME, which both describe an actor. */
tdm_status tdm__actor_record_read(const struct tdm__store_record *record,
                                  struct tdm__actor_record *actor_out);
/* Adds writes of the actor's record actor/ID and, if the actor has a name, of its name record to
 * the transaction. */
tdm_status tdm__actor_record_put(struct tdm__txn *txn, const struct tdm__actor_record *actor);
/* Adds the write of the actor's record actor/ID to the transaction, without its name record. */
tdm_status tdm__actor_record_put_unnamed(struct tdm__txn *txn,
                                         const struct tdm__actor_record *actor);
/* Adds the write of the name record of an actor that has a name to the transaction. */
tdm_status tdm__actor_name_put(struct tdm__txn *txn, const struct tdm__actor_record *actor);
/* Finds the record of an actor's name in the transaction, which must have read it, and decodes it.
 * `*record_out` is NULL, and `*holder_out` not written, if there is no such record, or if
 * `name_key` is "". */
tdm_status tdm__actor_name_find(const struct tdm__txn *txn, const char *name_key,
                                const struct tdm__store_record **record_out,
                                struct tdm__actor_record *holder_out);
/* Changes the free resources of a node, and its number of actors, by an actor that leaves it and
 * one that comes: gives back the grant `left`, takes the grant `came`, and adds the write to the
 * transaction. Either grant may be NULL. If the node has no record free/ID, the commit only checks
 * that it has not joined meanwhile, because a node counts its actors when it joins. The transaction
 * must have read that key. */
tdm_status tdm__txn_change_node(struct tdm__txn *txn, const struct tdm__id *node_id,
                                const struct tdm__grant *left, const struct tdm__grant *came);

/* One bundle of a placement group, as its record contains it. */
struct tdm__bundle_record {
    struct tdm__id node; /* ID of the node on which the bundle is; all zero in a pending group. */
    struct tdm__resources wanted; /* Resources that the group's creator asked for. */
    struct tdm__grant grant;      /* Resources that the bundle holds on its node. */
    struct tdm__pool pool; /* The bundle's resources, with the amounts that are free for actors. */
};
/* Record of a placement group. */
struct tdm__placement_group_record {
    struct tdm__id id;      /* ID of the placement group, which only the record's key contains. */
    uint32_t bundles_count; /* Number of entries in `bundles`. */
    /* Bundles of the placement group (owned; tdm__placement_group_record_fini() frees them). */
    struct tdm__bundle_record *bundles;
    char name_space[TDM__PLACEMENT_GROUP_NAME_BYTES]; /* Name space to which `name` belongs. */
    /* Name of the placement group; "" if it has none. */
    char name[TDM__PLACEMENT_GROUP_NAME_BYTES];
    bool detached; /* Whether the placement group outlives its creator. */
    bool closed;   /* Whether the placement group is being removed and accepts no actors. */
    /* Whether the bundles are reserved. A pending group, whose bundles are not, waits for resources
     * and holds none; its actors wait, too. */
    bool placed;
    enum tdm_placement_strategy strategy; /* How the bundles are distributed over the nodes. */
    /* ID of the node that created the placement group; once the group is closed, of the node that
     * removes it. */
    struct tdm__id owner_node;
    uint32_t requesters_count; /* Number of entries in `requesters`. */
    /* IDs of the nodes that have placed actors in the group and have none of its bundles (owned).
     * They take part in the end of these actors when the group is removed. */
    struct tdm__id *requesters;
};
/* Decodes a record group/ID, which describes a placement group. The caller frees the result with
 * tdm__placement_group_record_fini(). */
tdm_status tdm__placement_group_record_read(const struct tdm__store_record *record,
                                            struct tdm__placement_group_record *group_out);
/* Copies the record of a placement group with its bundles; the caller frees the copy with
 * tdm__placement_group_record_fini(). */
tdm_status tdm__placement_group_record_copy(const struct tdm__placement_group_record *group,
                                            struct tdm__placement_group_record *copy_out);
/* Packs the record of a placement group as the store has it, which takes a fraction of the memory
 * of the structure. The caller frees `*bytes_out`. */
tdm_status tdm__placement_group_record_pack(const struct tdm__placement_group_record *group,
                                            void **bytes_out, size_t *size_out);
/* Frees the lists of a placement group's record. A zeroed record is allowed. */
void tdm__placement_group_record_fini(struct tdm__placement_group_record *group);
/* Returns whether a bundle of the placement group is on the node. */
bool tdm__placement_group_has_bundle_on(const struct tdm__placement_group_record *group,
                                        const struct tdm__id *node);
/* Notes in the record that the node, which may be none, has placed an actor in the group. */
tdm_status tdm__placement_group_add_requester(struct tdm__placement_group_record *group,
                                              const struct tdm__id *node);
/* Returns whether the node has a bundle of the group, or has placed an actor in it. */
bool tdm__placement_group_has_member_on(const struct tdm__placement_group_record *group,
                                        const struct tdm__id *node);
/* Adds a write of the placement group's record to the transaction, under `key`. */
tdm_status tdm__placement_group_record_put(struct tdm__txn *txn, const char *key,
                                           const struct tdm__placement_group_record *group);
/* Function that changes the pool of a bundle. If it fails, the change is not written. */
typedef tdm_status tdm__change_bundle_fn(void *arg, struct tdm__pool *pool);
/* Changes the pool of the actor's bundle by `fn`, notes that the actor's owner has placed it there,
 * and adds the write of its group's record to the transaction. Returns TDM_E_NOT_FOUND if the group
 * has no record, TDM_E_PROTOCOL if it has no such bundle, and otherwise what `fn` returns. The
 * transaction must have read the group's key. */
tdm_status tdm__txn_change_bundle(struct tdm__txn *txn, const struct tdm__actor_record *actor,
                                  tdm__change_bundle_fn *fn, void *arg);

/* Writes the store key of the placement group's name, "group_name/SPACE/NAME", to `key` and returns
 * `key`. The key is "" for a group without a name. */
const char *tdm__placement_group_name_key(const struct tdm__placement_group_record *group,
                                          char key[TDM__STORE_KEY_BYTES]);
/* Adds a write to the transaction that gives the placement group its name. If the group has the
 * name already, the commit only checks that it counts (tdm__txn_require_confirmed()). The
 * transaction must have read the name's key. Returns TDM_E_EXISTS if another group has the name. */
tdm_status tdm__placement_group_name_claim(struct tdm__txn *txn,
                                           const struct tdm__placement_group_record *group);
/* Adds a write to the transaction that removes the placement group's name, if this group has the
 * name. */
tdm_status tdm__placement_group_name_release(struct tdm__txn *txn,
                                             const struct tdm__placement_group_record *group);

#endif
