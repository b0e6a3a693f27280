/* placement_group_table.h - the table of placement groups of a daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_PLACEMENT_GROUP_TABLE_H
#define TDM_ACTORS_DAEMON_PLACEMENT_GROUP_TABLE_H

#include "actors/daemon/node_state.h"

#include <sys/queue.h>

/* A call of "placement_group.remove" that waits until the group is removed. */
struct removal_waiter {
    /* Next call that waits for the removal of the same group. */
    struct removal_waiter *next;
    struct tdm__incoming_call *incoming; /* The call, to which the daemon must reply, owned. */
};

/* A placement group that a process of this node created, waits for, or removes. The table of groups
 * owns it. */
struct group_entry {
    TAILQ_ENTRY(group_entry) in_all;   /* Link in the list of all groups. */
    LIST_ENTRY(group_entry) in_bucket; /* Link in the hash bucket of the group's id. */
    struct tdm__node *node;            /* State of this node's daemon, borrowed. */
    /* Id of the process with which the group ends, usually its creator; all zeros if another node
     * created it. */
    struct tdm__id creator;
    /* Resources of each bundle, owned; NULL once the group is held, and if another node created
     * it. */
    struct tdm__resources *bundles;
    /* Request to the scheduler to reserve the group: id, name, strategy and bundles. */
    struct tdm__placement_group_request request;
    /* The creator's call that waits until the group's resources are reserved or, of an asynchronous
     * group, until the store has its record; owned, NULL afterwards. */
    struct tdm__incoming_call *incoming;
    struct removal_waiter *removers; /* Calls that wait until the group is removed, owned. */
    /* Timer that ends the wait for resources, owned; NULL if another node created the group. */
    struct tdm__timer *timer;
    uint32_t nodes_pending; /* Nodes that have not yet ended their actors in the group. */
    /* True if a node did not confirm the end of its actors in the group, so that all nodes with
     * members are asked again. */
    bool has_unheard_node;
    /* True once the nodes have been asked a second time to end their actors in the group. */
    bool was_asked_again;
    /* Why the group cannot be reserved now, owned; NULL once the group is held, and if unknown. The
     * message of a time-out contains this text. */
    char *wait_reason;
    /* Copy of the group's record as the store has it, packed, owned; NULL until the group is held.
     */
    void *packed_record;
    size_t packed_record_bytes; /* Size of `packed_record` in bytes. */
    /* Time since when the group waits for resources, in milliseconds on CLOCK_MONOTONIC; 0 if it
     * has not waited. */
    int64_t waiting_since_ms;
    uint64_t ticket_number; /* Number of the group's ticket (scheduler/ticket.h); 0 for none. */
    /* True if nodes may have the group's ticket, which the removal takes back. */
    bool may_have_ticket;
    /* True if the store may have lost the group's record, because this node joined again. */
    bool record_is_lost;
    bool is_rewriting; /* True while the group's record is being written into the store again. */
    /* Time since when the group's record may be lost, in milliseconds on CLOCK_MONOTONIC. */
    int64_t lost_since_ms;
    bool is_reserving; /* True while a request to reserve the group is under way. */
    /* True if the store has, or may have, a record of the group although it is not held. */
    bool is_pending;
    /* True if the store has, or may have, reserved resources for the group. Only
     * tdm__group_entry_set_held() sets it. */
    bool is_held;
    bool is_unwanted; /* True once the placement group is being removed. */
    /* True if another node removes the group and gives its resources back. */
    bool removed_elsewhere;
};

/* List of placement groups, and of those in one hash bucket. */
TAILQ_HEAD(group_list, group_entry);
LIST_HEAD(group_bucket, group_entry);

/* The table of placement groups of a daemon. struct tdm__node owns it. */
struct tdm__node_placement_groups {
    /* All placement groups, owned. Those that are not held come first. */
    struct group_list all;
    uint32_t count;               /* Number of placement groups in `all`. */
    struct group_bucket *buckets; /* Hash buckets of the groups, owned. */
    uint32_t buckets_count;       /* Number of buckets, a power of two. */
    /* Number of groups that were removed since free memory was last given back to the system. */
    uint32_t removed_count;
    /* Value of `removed_count` at the last call of tdm__placement_group_table_trim(). */
    uint32_t removed_count_seen;
};

/* Number of removed groups after which free memory is given back to the system. */
enum { TDM__GROUPS_TRIM_MIN = 100 };

/* Creates the empty table of placement groups, which is stored in node->placement_groups. */
tdm_status tdm__placement_group_table_create(struct tdm__node *node);
/* Frees the table of placement groups, which must be empty. Without a table it does nothing. */
void tdm__placement_group_table_destroy(struct tdm__node *node);

/* Adds a group with the id `id`, which is not held, to the table and returns it; NULL without
 * memory. */
struct group_entry *tdm__group_entry_add(struct tdm__node *node, const struct tdm__id *id);
/* Returns the group with the id `id` in the daemon's table, or NULL. */
struct group_entry *tdm__group_entry_find(const struct tdm__node *node, const struct tdm__id *id);
/* Replaces the reason for which the group waits by a copy of `reason`. */
void tdm__group_entry_set_wait_reason(struct group_entry *group, const char *reason);
/* Sets is_held, moves the group behind those that are not held, and frees what only a group needs
 * that waits. */
void tdm__group_entry_set_held(struct group_entry *group);
/* Removes a placement group from the table and frees it. */
void tdm__group_entry_remove(struct group_entry *group);

/* Gives free memory back to the system if many groups were removed, and none since the last call.
 * Called about once in a second. Returns whether it has done so. */
bool tdm__placement_group_table_trim(struct tdm__node *node);

#endif
