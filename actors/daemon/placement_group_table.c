/* placement_group_table.c - the table of placement groups of a daemon. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A daemon has an entry for each placement group that a process of its node created, waits for, or
 * removes (placement_group_service.c). Programs may have thousands of groups, so entries are found
 * by a hash table, and the list of all groups begins with those that are not held: whoever looks
 * for groups that wait stops at the first one that is held. Everything runs on the daemon's loop
 * thread. */

#include "actors/daemon/placement_group_table.h"

#include "runtime/error.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* Number of hash buckets of an empty table. */
enum { BUCKETS_MIN = 64 };

/* Returns the bucket of the group with this id. */
static struct group_bucket *group_bucket_of(const struct tdm__node_placement_groups *groups,
                                            const struct tdm__id *id)
{
    uint64_t hash;

    /* Ids are random, so their first bytes serve as the hash. */
    memcpy(&hash, id->bytes, sizeof(hash));
    return &groups->buckets[hash & (groups->buckets_count - 1)];
}

/* Doubles the number of buckets. Without memory, the table stays as it is. */
static void group_table_grow(struct tdm__node_placement_groups *groups)
{
    struct group_bucket *old = groups->buckets;
    struct group_bucket *buckets = calloc(2 * (size_t)groups->buckets_count, sizeof(*buckets));
    struct group_entry *group;

    if (buckets == NULL) {
        return;
    }
    groups->buckets = buckets;
    groups->buckets_count *= 2;
    TAILQ_FOREACH(group, &groups->all, in_all)
    {
        LIST_INSERT_HEAD(group_bucket_of(groups, &group->request.id), group, in_bucket);
    }
    free(old);
}

tdm_status tdm__placement_group_table_create(struct tdm__node *node)
{
    struct tdm__node_placement_groups *groups = calloc(1, sizeof(*groups));
    struct group_bucket *buckets = calloc(BUCKETS_MIN, sizeof(*buckets));

    if (groups == NULL || buckets == NULL) {
        free(groups);
        free(buckets);
        return tdm__fail(TDM_E_NOMEM, "the table of placement groups");
    }
    TAILQ_INIT(&groups->all);
    groups->buckets = buckets;
    groups->buckets_count = BUCKETS_MIN;
    node->placement_groups = groups;
    return TDM_OK;
}

void tdm__placement_group_table_destroy(struct tdm__node *node)
{
    if (node->placement_groups == NULL) {
        return;
    }
    free(node->placement_groups->buckets);
    free(node->placement_groups);
    node->placement_groups = NULL;
}

struct group_entry *tdm__group_entry_add(struct tdm__node *node, const struct tdm__id *id)
{
    struct tdm__node_placement_groups *groups = node->placement_groups;
    struct group_entry *group = calloc(1, sizeof(*group));

    if (group == NULL) {
        return NULL;
    }
    if (groups->count >= groups->buckets_count) {
        group_table_grow(groups);
    }
    group->node = node;
    group->request.id = *id;
    TAILQ_INSERT_HEAD(&groups->all, group, in_all);
    LIST_INSERT_HEAD(group_bucket_of(groups, id), group, in_bucket);
    groups->count++;
    return group;
}

struct group_entry *tdm__group_entry_find(const struct tdm__node *node, const struct tdm__id *id)
{
    struct group_entry *group;

    if (node->placement_groups == NULL) {
        return NULL;
    }
    LIST_FOREACH(group, group_bucket_of(node->placement_groups, id), in_bucket)
    {
        if (tdm__id_equal(&group->request.id, id)) {
            return group;
        }
    }
    return NULL;
}

void tdm__group_entry_set_wait_reason(struct group_entry *group, const char *reason)
{
    free(group->wait_reason);
    group->wait_reason = strdup(reason);
}

void tdm__group_entry_set_held(struct group_entry *group)
{
    struct group_list *all = &group->node->placement_groups->all;

    group->is_held = true;
    group->request.bundles = NULL;
    group->request.bundles_count = 0;
    free(group->bundles);
    group->bundles = NULL;
    free(group->wait_reason);
    group->wait_reason = NULL;
    TAILQ_REMOVE(all, group, in_all);
    TAILQ_INSERT_TAIL(all, group, in_all);
}

void tdm__group_entry_remove(struct group_entry *group)
{
    struct tdm__node_placement_groups *groups = group->node->placement_groups;

    TAILQ_REMOVE(&groups->all, group, in_all);
    LIST_REMOVE(group, in_bucket);
    groups->count--;
    groups->removed_count++;
    tdm__timer_destroy(group->timer);
    free(group->packed_record);
    free(group->wait_reason);
    free(group->bundles);
    free(group);
}

bool tdm__placement_group_table_trim(struct tdm__node *node)
{
    struct tdm__node_placement_groups *groups = node->placement_groups;
    bool is_quiet = groups->removed_count == groups->removed_count_seen;

    groups->removed_count_seen = groups->removed_count;
    if (!is_quiet || groups->removed_count < TDM__GROUPS_TRIM_MIN) {
        return false;
    }
    groups->removed_count = 0;
    groups->removed_count_seen = 0;
    /* The memory of the groups lies between smaller pieces of other origin, which keep the heap of
     * glibc from shrinking by itself. */
    (void)malloc_trim(0);
    return true;
}
