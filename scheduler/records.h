/* records.h - the records about nodes, actors and placement groups in the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RECORDS_H
#define TDM_SCHEDULER_RECORDS_H

#include "runtime/store.h"
#include "runtime/store/txn.h"
#include "scheduler/placement.h"

/* Keys and values:
 *
 * - node/ID: struct tdm__node_record, with a lease. A node that has not renewed its record for
 *   TDM__NODE_LEASE_MS counts as lost.
 * - free/ID: struct tdm__node_resources, with the same lease.
 * - group/ID: struct tdm__placement_group_record.
 * - group_name/SPACE/NAME: the ID of the group that has the name.
 * - actor/ID: struct tdm__actor_record.
 * - name/SPACE/NAME: struct tdm__actor_record of the actor that has the name.
 *
 * Reading a record checks everything, and returns TDM_E_PROTOCOL with the key if it is malformed.
 */

/* Limits of records and leases. */
enum {
    /* Milliseconds after which a node that does not renew its lease counts as lost. */
    TDM__NODE_LEASE_MS = 6000,
    /* Milliseconds between two renewals of a node's lease. */
    TDM__NODE_RENEW_MS = 1000,
    TDM__STORE_KEY_BYTES = 200, /* Capacity of a key, with the NUL. */
    /* Capacity of a placement group's name or name space, with the NUL. */
    TDM__PLACEMENT_GROUP_NAME_BYTES = 64
};

/* Six renewals fit in a lease, so a working node may lose five before it counts as lost. */
_Static_assert(TDM__NODE_RENEW_MS * 6 <= TDM__NODE_LEASE_MS, "a lease outlives lost renewals");

/* Writes the key of a record, such as "node/3f...", to `key` and returns it. */
const char *tdm__store_key(const char *kind, const struct tdm__id *id,
                           char key[TDM__STORE_KEY_BYTES]);

/* A node of the cluster. */
struct tdm__node_record {
    struct tdm__id id;               /* The node's ID, new at each start of its daemon. */
    char name[TDM__NODE_NAME_BYTES]; /* Name for messages and lists. */
    /* Address of the daemon for processes of the same machine. */
    char unix_address[160];
    /* Address of the daemon for other nodes; "" if it listens to none. */
    char tcp_address[160];
    int64_t pid; /* Process ID of the daemon. */
};
/* Reads a record node/ID. */
tdm_status tdm__node_record_read(const struct tdm__store_record *record,
                                 struct tdm__node_record *node_out);
/* Returns whether the node with this ID is among the `nodes_count` nodes. */
bool tdm__node_records_contain(const struct tdm__node_record *nodes, uint32_t nodes_count,
                               const struct tdm__id *id);
/* Makes the commit fail if the node has joined or has been lost since the read. (A renewed lease
 * changes no version.) */
tdm_status tdm__txn_require_node_unchanged(struct tdm__txn *txn, const struct tdm__id *node);
/* Adds a write of node/ID to the transaction, with a new lease. */
tdm_status tdm__node_record_put(struct tdm__txn *txn, const struct tdm__node_record *node);

/* Reads a record free/ID. */
tdm_status tdm__free_record_read(const struct tdm__store_record *record,
                                 struct tdm__node_resources *node_out);
/* Adds a write of free/ID to the transaction, with a new lease. */
tdm_status tdm__free_record_put(struct tdm__txn *txn, const struct tdm__node_resources *node);

/* An actor and the resources it holds. */
struct tdm__actor_record {
    struct tdm__id actor; /* The actor's ID. */
    struct tdm__id node;  /* Node on which it runs. */
    /* Placement group; all zero if the actor holds resources of the node itself. */
    struct tdm__id group;
    uint32_t bundle;                     /* Index of its bundle; only with a group. */
    struct tdm__grant grant;             /* Resources that it holds. */
    char name_key[TDM__STORE_KEY_BYTES]; /* Key of its name record; "" if it has no name. */
    char class_name[64];                 /* Name of its class. */
    struct tdm__id owner_node;           /* Node that requested the actor. */
    /* Whether the owner node creates the actor again if its node is lost. */
    bool recreate_on_node_loss;
};
/* Reads a record actor/ID or name/SPACE/NAME. */
tdm_status tdm__actor_record_read(const struct tdm__store_record *record,
                                  struct tdm__actor_record *actor_out);
/* Adds writes of actor/ID and, if the actor has a name, of its name record. */
tdm_status tdm__actor_record_put(struct tdm__txn *txn, const struct tdm__actor_record *actor);

/* One bundle of a placement group. */
struct tdm__bundle_record {
    struct tdm__id node;     /* Node on which the bundle is. */
    struct tdm__grant grant; /* Resources that the bundle holds on its node. */
    /* The same resources, with the amounts that are free for actors. */
    struct tdm__pool pool;
};
/* A placement group. */
struct tdm__placement_group_record {
    struct tdm__id id;      /* The group's ID, which is stored in the key only. */
    uint32_t bundles_count; /* Number of `bundles`. */
    /* The bundles (owned; tdm__placement_group_record_fini() frees them). */
    struct tdm__bundle_record *bundles;
    /* Name space of `name`. */
    char name_space[TDM__PLACEMENT_GROUP_NAME_BYTES];
    /* Name of the group; "" if it has none. */
    char name[TDM__PLACEMENT_GROUP_NAME_BYTES];
    bool detached; /* Whether the group outlives its creator. */
    /* Whether the group is being removed and accepts no actors. */
    bool closed;
    /* Node that created the group. Once the group is closed: node that removes it. */
    struct tdm__id owner_node;
};
/* Reads a record group/ID. The caller must finish the result with
 * tdm__placement_group_record_fini(). */
tdm_status tdm__placement_group_record_read(const struct tdm__store_record *record,
                                            struct tdm__placement_group_record *group_out);
/* Copies a group with its bundles. */
tdm_status tdm__placement_group_record_copy(const struct tdm__placement_group_record *group,
                                            struct tdm__placement_group_record *copy_out);
/* Frees the bundles. A zeroed record is allowed. */
void tdm__placement_group_record_fini(struct tdm__placement_group_record *group);
/* Adds a write of the group to the transaction, under `key`. */
tdm_status tdm__placement_group_record_put(struct tdm__txn *txn, const char *key,
                                           const struct tdm__placement_group_record *group);

/* Writes the key "group_name/SPACE/NAME" to `key`, or "" for a group without a name, and returns
 * it. */
const char *tdm__placement_group_name_key(const struct tdm__placement_group_record *group,
                                          char key[TDM__STORE_KEY_BYTES]);
/* Adds a write that gives the group its name, unless it has it. The transaction must have read the
 * name's key. Returns TDM_E_EXISTS if another group has the name. */
tdm_status tdm__placement_group_name_claim(struct tdm__txn *txn,
                                           const struct tdm__placement_group_record *group);
/* Adds a write that removes the group's name, if the group has it. */
tdm_status tdm__placement_group_name_release(struct tdm__txn *txn,
                                             const struct tdm__placement_group_record *group);

/* All nodes of the cluster with their free resources, sorted by ID. */
struct tdm__nodes_snapshot {
    uint32_t nodes_count;           /* Number of entries in both arrays. */
    struct tdm__node_record *nodes; /* Records of the nodes (owned). */
    /* Free resources of the nodes in the same order (owned). */
    struct tdm__node_resources *resources;
};
/* Creates a snapshot from a transaction that read all keys of node/ and free/. */
tdm_status tdm__nodes_snapshot_read(const struct tdm__txn *txn,
                                    struct tdm__nodes_snapshot *snapshot_out);
/* Frees the arrays. A zeroed snapshot is allowed. */
void tdm__nodes_snapshot_fini(struct tdm__nodes_snapshot *snapshot);

#endif
