/* records.h - what the cluster's store holds about nodes, actors and placement groups. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RECORDS_H
#define TDM_SCHEDULER_RECORDS_H

#include "runtime/store.h"
#include "scheduler/placement.h"

/* - node/ID: struct tdm__node_record, leased: a node that has not renewed its record for
 *   TDM__NODE_LEASE_MS is no longer there;
 * - free/ID: struct tdm__node_resources, leased with it;
 * - group/ID: struct tdm__placement_group_record;
 * - group_name/SPACE/NAME: the id of the group that has the name;
 * - actor/ID: struct tdm__actor_record;
 * - name/SPACE/NAME: struct tdm__actor_record too: who has the name.
 *
 * Reading checks everything (TDM_E_PROTOCOL naming the key). */

enum {
    TDM__NODE_LEASE_MS = 6000,
    TDM__NODE_RENEW_MS = 1000,
    TDM__STORE_KEY_BYTES = 200,
    TDM__PLACEMENT_GROUP_NAME_BYTES = 64
};

/* Six renewals fit in a lease, so five may be lost before a living node is called dead. */
_Static_assert(TDM__NODE_RENEW_MS * 6 <= TDM__NODE_LEASE_MS, "a lease outlives lost renewals");

/* "node/3f…"; returns `key`. */
const char *tdm__store_key(const char *kind, const struct tdm__id *id,
                           char key[TDM__STORE_KEY_BYTES]);

struct tdm__node_record {
    struct tdm__id id;
    char name[TDM__NODE_NAME_BYTES];
    char unix_address[160];
    char tcp_address[160]; /* "" when the node talks to no other */
    int64_t pid;
};
tdm_status tdm__node_record_read(const struct tdm__store_record *record,
                                 struct tdm__node_record *node_out);
/* The decision rests on the node's being there, or away: a renewal changes no version. */
tdm_status tdm__txn_require_node_unchanged(struct tdm__txn *txn, const struct tdm__id *node);
tdm_status tdm__node_record_put(struct tdm__txn *txn, const struct tdm__node_record *node);

tdm_status tdm__free_record_read(const struct tdm__store_record *record,
                                 struct tdm__node_resources *node_out);
tdm_status tdm__free_record_put(struct tdm__txn *txn, const struct tdm__node_resources *node);

struct tdm__actor_record {
    struct tdm__id actor;
    struct tdm__id node;
    struct tdm__id group; /* none: the grant is the node's own */
    uint32_t bundle;
    struct tdm__grant grant;
    char name_key[TDM__STORE_KEY_BYTES]; /* "" for none */
    char class_name[64];
    struct tdm__id owner_node;  /* the node that asked for it, and makes it anew ... */
    bool recreate_on_node_loss; /* ... if its own node is lost */
};
tdm_status tdm__actor_record_read(const struct tdm__store_record *record,
                                  struct tdm__actor_record *actor_out);
/* Writes actor/ID and, if it has a name, that record too. */
tdm_status tdm__actor_record_put(struct tdm__txn *txn, const struct tdm__actor_record *actor);

struct tdm__bundle_record {
    struct tdm__id node;
    struct tdm__grant grant; /* what the bundle holds on its node */
    struct tdm__pool pool;   /* what of it is free */
};
struct tdm__placement_group_record {
    struct tdm__id id; /* it is in the key */
    uint32_t bundles_count;
    struct tdm__bundle_record *bundles; /* owned */
    char name_space[TDM__PLACEMENT_GROUP_NAME_BYTES];
    char name[TDM__PLACEMENT_GROUP_NAME_BYTES]; /* "" for none */
    bool detached;                              /* it outlives its creator */
    bool closed;               /* it is being removed, and takes no actor any more */
    struct tdm__id owner_node; /* the node that made it, or, once it is closed, removes it */
};
tdm_status tdm__placement_group_record_read(const struct tdm__store_record *record,
                                            struct tdm__placement_group_record *group_out);
tdm_status tdm__placement_group_record_copy(const struct tdm__placement_group_record *group,
                                            struct tdm__placement_group_record *copy_out);
void tdm__placement_group_record_fini(struct tdm__placement_group_record *group);
tdm_status tdm__placement_group_record_put(struct tdm__txn *txn, const char *key,
                                           const struct tdm__placement_group_record *group);

/* "group_name/SPACE/NAME", "" for a group without a name; returns `key`. */
const char *tdm__placement_group_name_key(const struct tdm__placement_group_record *group,
                                          char key[TDM__STORE_KEY_BYTES]);
/* In a transaction that read that key.  TDM_E_EXISTS when another group has the name. */
tdm_status tdm__placement_group_name_claim(struct tdm__txn *txn,
                                           const struct tdm__placement_group_record *group);
tdm_status tdm__placement_group_name_release(struct tdm__txn *txn,
                                             const struct tdm__placement_group_record *group);

/* The nodes that are there, with what they have free, by id: what a plan starts from. */
struct tdm__nodes_snapshot {
    uint32_t nodes_count;
    struct tdm__node_record *nodes;        /* owned */
    struct tdm__node_resources *resources; /* owned, in the same order */
};
/* From a transaction that read node/ and free/ . */
tdm_status tdm__nodes_snapshot_read(const struct tdm__txn *txn,
                                    struct tdm__nodes_snapshot *snapshot_out);
void tdm__nodes_snapshot_fini(struct tdm__nodes_snapshot *snapshot);

#endif
