/* store_rules.c - what no request to the simulated store may do. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cluster_sim/store_rules.h"

#include "runtime/assert.h"
#include "scheduler/records.h"
#include "tests/cluster_sim/cluster_store.h"
#include "tests/cluster_sim/machine.h"
#include "tests/cluster_sim/world.h"
#include "tests/support/kill_limits.h"

#include <stdlib.h>
#include <string.h>

/* Most names that one commit writes. */
enum { NAMES_MAX = 64 };

/* Who had a name that a commit writes. */
struct name_before {
    struct tdm__actor_record holder; /* Holder of the name; valid if `has_holder` is true. */
    bool has_holder;                 /* Whether there was one, which held it by right. */
};

/* What the store had before the commit that it carries out now. */
static struct {
    struct name_before names[NAMES_MAX]; /* In the order of the commit's writes of names. */
    uint64_t node_version; /* Version of the node's record that the commit writes, or 0. */
    /* When each machine's node last renewed its lease or joined, by their numbers. */
    int64_t renewed_ms[MACHINES_MAX + 1];
} before;

void store_rules_begin(void)
{
    memset(&before, 0, sizeof(before));
}

/* Returns the record with the key, which the caller frees with the pointer in `*records_out`; NULL
 * if there is none. */
static const struct tdm__store_record *find(const struct tdm__store *memory, const char *key,
                                            struct tdm__store_records **records_out)
{
    TDM_ASSERT(memory_store_read(memory, &key, 1, records_out) == TDM_OK);
    return (*records_out)->count == 0 ? NULL : &(*records_out)->items[0];
}

static bool has_node(const struct tdm__store *memory, const struct tdm__id *node)
{
    char key[TDM__STORE_KEY_BYTES];
    struct tdm__store_records *records;
    bool has = find(memory, tdm__store_key("node", node, key), &records) != NULL;

    free(records);
    return has;
}

static bool writes_name(const struct tdm__store_write *write)
{
    return write->kind == TDM__STORE_PUT && strncmp(write->key, "name/", 5) == 0;
}

static bool writes_node(const struct tdm__store_write *write)
{
    return write->kind == TDM__STORE_PUT && strncmp(write->key, "node/", 5) == 0;
}

/* Notes in `name` the holder of the name that `write` gives to an actor. */
static void note_holder(const struct tdm__store *memory, const struct tdm__store_write *write,
                        struct name_before *name)
{
    struct tdm__store_records *records;
    const struct tdm__store_record *record = find(memory, write->key, &records);

    name->has_holder = false;
    if (record != NULL) {
        TDM_ASSERT(tdm__actor_record_read(record, &name->holder) == TDM_OK);
        name->has_holder =
            has_node(memory, &name->holder.node) ||
            (name->holder.recreate_on_node_loss && has_node(memory, &name->holder.owner_node));
    }
    free(records);
}

void store_rules_before_commit(const struct tdm__store *memory,
                               const struct tdm__store_write *writes, uint32_t writes_count)
{
    uint32_t names_count = 0;

    before.node_version = 0;
    for (uint32_t i = 0; i < writes_count; i++) {
        struct tdm__store_records *records;
        const struct tdm__store_record *record;

        if (writes_name(&writes[i])) {
            TDM_ASSERT(names_count < NAMES_MAX);
            note_holder(memory, &writes[i], &before.names[names_count++]);
        } else if (writes_node(&writes[i])) {
            record = find(memory, writes[i].key, &records);
            before.node_version = record == NULL ? 0 : record->version;
            free(records);
        }
    }
}

static void check_name(const struct tdm__store *memory, uint32_t machine,
                       const struct tdm__store_write *write, const struct name_before *name)
{
    struct tdm__store_records *records;
    const struct tdm__store_record *record = find(memory, write->key, &records);
    struct tdm__actor_record holder;

    if (record != NULL && name->has_holder && !cluster_store_was_restarted()) {
        TDM_ASSERT(tdm__actor_record_read(record, &holder) == TDM_OK);
        if (!tdm__id_equal(&holder.actor, &name->holder.actor)) {
            world_fail("machine %u gives %s to actor %02x%02x, which actor %02x%02x of a node in "
                       "the cluster has",
                       machine, write->key, holder.actor.bytes[0], holder.actor.bytes[1],
                       name->holder.actor.bytes[0], name->holder.actor.bytes[1]);
        }
    }
    free(records);
}

/* A node that gets a new epoch, because others have counted it as lost, does not join. */
static void check_node(const struct tdm__store *memory, uint32_t machine,
                       const struct tdm__store_write *write)
{
    struct tdm__store_records *records;
    const struct tdm__store_record *record = find(memory, write->key, &records);
    struct tdm__node_record node;

    if (record != NULL && before.node_version != 0 && record->version != before.node_version &&
        !cluster_store_was_restarted()) {
        TDM_ASSERT(tdm__node_record_read(record, &node) == TDM_OK);
        if (node.lives_since == 0) {
            world_fail("node %s of machine %u joins again, although it is in the cluster",
                       node.name, machine);
        }
    }
    if (record != NULL && record->version != before.node_version) {
        before.renewed_ms[machine] = sim_now_ms();
    }
    free(records);
}

void store_rules_after_commit(const struct tdm__store *memory, uint32_t machine,
                              const struct tdm__store_write *writes, uint32_t writes_count,
                              tdm_status status)
{
    uint32_t names_count = 0;

    for (uint32_t i = 0; i < writes_count && status == TDM_OK; i++) {
        if (writes_name(&writes[i])) {
            check_name(memory, machine, &writes[i], &before.names[names_count++]);
        } else if (writes_node(&writes[i])) {
            check_node(memory, machine, &writes[i]);
        }
    }
}

void store_rules_before_renewal(uint32_t machine, const struct tdm__store_renewal *renewal)
{
    if (renewal->grace_ms < KILL_MS_MAX + DRIFT_MS_MAX) {
        world_fail("machine %u takes other nodes over %lld ms after the ends of their leases, but "
                   "killing their processes may take %d ms, and their clocks may be late by %d ms",
                   machine, (long long)renewal->grace_ms, (int)KILL_MS_MAX, (int)DRIFT_MS_MAX);
    }
}

void store_rules_after_renewal(uint32_t machine, const char *writer, tdm_status status)
{
    const struct machine *at = &machines[machine - 1];
    char id[TDM__ID_TEXT_BYTES];

    if (status == TDM_OK) {
        before.renewed_ms[machine] = sim_now_ms();
        return;
    }
    if (status == TDM_E_CONFLICT && at->daemon != NULL && at->daemon->has_joined &&
        !at->daemon->stop_wanted && !at->has_fault && cluster_store_lost_data_ms() == 0 &&
        at->fault_ms < before.renewed_ms[machine] &&
        strcmp(tdm__id_text(&at->daemon->node.record.id, id), writer) == 0) {
        world_fail("node %s is lost, although nothing was wrong with its machine since %lld ms, "
                   "and it renewed its lease at %lld ms",
                   at->daemon->node.record.name, (long long)at->fault_ms,
                   (long long)before.renewed_ms[machine]);
    }
}
