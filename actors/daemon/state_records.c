/* state_records.c - writes actors, nodes and placement groups as records for lists. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A record is a map with text keys; actors/client/cluster_state.c reads it and
 * include/tandem/state.h describes its fields. An actor is written from its entry; nodes and groups
 * are written from records of the store. Functions that write an array count first, because the
 * header of a packed array holds the count. Everything runs on the daemon's loop thread. */

#include "actors/daemon/state_records.h"

#include "actors/common/state_record.h"
#include "actors/daemon/worker_processes.h"

#include <string.h>

/* Converts an amount of a resource from the fixed point numbers of the scheduler. */
static double amount_of(int64_t amount)
{
    return (double)amount / TDM__RESOURCE_ONE;
}

/* Writes one entry of a map: `key` with an id as text, "" for all zeros. */
static void write_id(tdm_writer *writer, const char *key, const struct tdm__id *id)
{
    char text[TDM__ID_TEXT_BYTES];

    tdm__state_record_write_text(writer, key, tdm__id_is_none(id) ? "" : tdm__id_text(id, text));
}

/* Writes the amount of one resource. */
static void write_amount(tdm_writer *writer, const char *name, int64_t total, int64_t free)
{
    const struct tdm__resource_amount_message message = {name, amount_of(total), amount_of(free)};

    (void)tdm__resource_amount_encode(&message, writer);
}

/* ---- grants and pools ------------------------------------------------------------------- */

/* Writes one entry of a map: "amounts" with a list of resource_amount. `custom` has
 * TDM__CUSTOM_RESOURCES_MAX entries. */
static void write_amounts(tdm_writer *writer, int64_t cpu, int64_t gpu,
                          const struct tdm__custom_resource *custom)
{
    uint32_t count = 0;

    while (count < TDM__CUSTOM_RESOURCES_MAX && custom[count].name[0] != '\0') {
        count++;
    }
    tdm_write_string(writer, "amounts");
    tdm_write_array(writer, count + (cpu > 0 ? 1 : 0) + (gpu > 0 ? 1 : 0));
    if (cpu > 0) {
        write_amount(writer, "CPU", cpu, 0);
    }
    if (gpu > 0) {
        write_amount(writer, "GPU", gpu, 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        write_amount(writer, custom[i].name, custom[i].amount, 0);
    }
}

/* Writes one entry of a map: "gpus" with the indices of the GPUs. */
static void write_gpus(tdm_writer *writer, const struct tdm__grant *grant)
{
    tdm_write_string(writer, "gpus");
    tdm_write_array(writer, grant->gpus_count);
    for (uint32_t i = 0; i < grant->gpus_count; i++) {
        tdm_write_uint(writer, grant->gpu_indices[i]);
    }
}

/* Writes two entries of a map: "amounts" with a list of resource_amount, and "gpus" with the
 * indices. */
static void write_grant(tdm_writer *writer, const struct tdm__grant *grant)
{
    write_amounts(writer, grant->cpu, grant->gpu_amount * grant->gpus_count, grant->custom);
    write_gpus(writer, grant);
}

/* Writes one entry of a map: "amounts" with [(name, total, free) ...] of a node's resources. */
static void write_pool(tdm_writer *writer, const struct tdm__pool *pool)
{
    struct tdm__amount gpu = {0, 0};
    uint32_t custom = 0;

    while (custom < TDM__CUSTOM_RESOURCES_MAX && pool->custom[custom].name[0] != '\0') {
        custom++;
    }
    for (uint32_t i = 0; i < pool->gpus_count; i++) {
        gpu.total += pool->gpus[i].total;
        gpu.free += pool->gpus[i].free;
    }
    tdm_write_string(writer, "amounts");
    tdm_write_array(writer, custom + 2);
    write_amount(writer, "CPU", pool->cpu.total, pool->cpu.free < 0 ? 0 : pool->cpu.free);
    write_amount(writer, "GPU", gpu.total, gpu.free);
    for (uint32_t i = 0; i < custom; i++) {
        write_amount(writer, pool->custom[i].name, pool->custom[i].amount.total,
                     pool->custom[i].amount.free);
    }
}

/* ---- actors ----------------------------------------------------------------------------- */

/* Returns the name that lists show for a state of an actor. */
static const char *public_state_text(enum actor_state state)
{
    switch (state) {
    case ACTOR_NEW:
    case ACTOR_PLACING:
    case ACTOR_FINDING_HOLDER:
    case ACTOR_WAITING:
        return "PENDING";
    case ACTOR_STARTING:
    case ACTOR_CONSTRUCTOR_FAILED:
        return "STARTING";
    case ACTOR_ALIVE:
        return "ALIVE";
    case ACTOR_RESTARTING:
        return "RESTARTING";
    case ACTOR_ENDING:
    case ACTOR_ENDED:
        return "ENDING";
    case ACTOR_REMOTE_STARTING:
    case ACTOR_REMOTE_UNSURE:
    case ACTOR_REMOTE:
    case ACTOR_REMOTE_REFUSED:
    case ACTOR_ENDED_ELSEWHERE:
        break;
    }
    return "REMOTE";
}

/* True if the actor has been placed on a node. */
static bool has_node(const struct actor_entry *entry)
{
    return !tdm__id_is_none(&entry->record.node);
}

void tdm__state_write_actor(tdm_writer *writer, const struct actor_entry *entry, const char *text)
{
    const struct tdm__actor_spec *spec = entry->spec;

    tdm_write_map(writer, 15);
    write_id(writer, "id", &spec->id);
    tdm__state_record_write_text(writer, "class_name", spec->class_name);
    tdm__state_record_write_text(writer, "name", spec->name);
    tdm__state_record_write_text(writer, "name_space", spec->name_space);
    tdm__state_record_write_text(writer, "state",
                                 text != NULL ? "DEAD" : public_state_text(entry->lifecycle.state));
    write_id(writer, "node_id", &entry->record.node);
    tdm__state_record_write_text(writer, "node_name",
                                 !has_node(entry)           ? ""
                                 : entry->is_lost_with_node ? entry->placement_node_name
                                                            : entry->node->record.name);
    write_id(writer, "creator", &spec->creator);
    write_id(writer, "group", &spec->group);
    tdm__state_record_write_text(writer, "death_cause", text != NULL ? text : entry->waits_for);
    tdm__state_record_write_int(writer, "pid",
                                entry->worker != NULL ? entry->worker->pid : entry->pid);
    tdm__state_record_write_int(writer, "restarts", entry->lifecycle.incarnation);
    tdm__state_record_write_int(writer, "detached", spec->detached ? 1 : 0);
    write_grant(writer, &entry->record.grant); /* This call writes two entries of the map. */
}

/* ---- records of the store --------------------------------------------------------------- */

/* True if the key of the store record begins with `kind`. */
static bool is_kind(const struct tdm__store_record *record, const char *kind)
{
    return strncmp(record->key, kind, strlen(kind)) == 0;
}

/* Reads the free resources of the node `node` from the store's records to `found`; false if
 * absent. */
static bool find_free(const struct tdm__store_record *records, uint32_t records_count,
                      const struct tdm__id *node, struct tdm__node_resources *found)
{
    char key[TDM__STORE_KEY_BYTES];

    (void)tdm__store_key("free", node, key);
    for (uint32_t i = 0; i < records_count; i++) {
        if (strcmp(records[i].key, key) == 0) {
            return tdm__free_record_read(&records[i], found) == TDM_OK;
        }
    }
    return false;
}

/* Writes one entry of a map: "labels" with one text for each label. */
static void write_labels(tdm_writer *writer, const struct tdm__labels *labels)
{
    tdm_write_string(writer, "labels");
    tdm_write_array(writer, labels->count);
    for (uint32_t i = 0; i < labels->count; i++) {
        tdm_write_string(writer, labels->texts[i]);
    }
}

/* Reads the store record `index` and the node's resources; false unless the record is a readable
 * node with known resources. */
static bool read_node(const struct tdm__store_record *records, uint32_t records_count,
                      uint32_t index, struct tdm__node_record *node,
                      struct tdm__node_resources *resources)
{
    return is_kind(&records[index], "node/") &&
           tdm__node_record_read(&records[index], node) == TDM_OK &&
           find_free(records, records_count, &node->id, resources);
}

void tdm__state_write_nodes(tdm_writer *writer, const struct tdm__store_record *records,
                            uint32_t records_count)
{
    struct tdm__node_record node;
    struct tdm__node_resources resources;
    uint32_t count = 0;

    for (uint32_t i = 0; i < records_count; i++) {
        count += read_node(records, records_count, i, &node, &resources) ? 1 : 0;
    }
    tdm_write_array(writer, count);
    for (uint32_t i = 0; i < records_count; i++) {
        if (!read_node(records, records_count, i, &node, &resources)) {
            continue;
        }
        tdm_write_map(writer, 7);
        write_id(writer, "id", &node.id);
        tdm__state_record_write_text(writer, "name", node.name);
        tdm__state_record_write_text(writer, "unix_address", node.unix_address);
        tdm__state_record_write_text(writer, "tcp_address", node.tcp_address);
        tdm__state_record_write_int(writer, "pid", node.pid);
        write_labels(writer, &resources.labels);
        write_pool(writer, &resources.pool);
    }
}

/* Returns the name that lists show for the strategy of a placement group. */
static const char *strategy_text(enum tdm_placement_strategy strategy)
{
    switch (strategy) {
    case TDM_PACK:
        return "PACK";
    case TDM_SPREAD:
        return "SPREAD";
    case TDM_STRICT_PACK:
        return "STRICT_PACK";
    case TDM_STRICT_SPREAD:
        break;
    }
    return "STRICT_SPREAD";
}

/* Returns the name that lists show for the state of a placement group. */
static const char *group_state_text(const struct tdm__placement_group_record *group)
{
    if (group->closed) {
        return "REMOVING";
    }
    return group->placed ? "CREATED" : "PENDING";
}

void tdm__state_write_group(tdm_writer *writer, const struct tdm__placement_group_record *group,
                            const struct tdm__group_wait *wait)
{
    static const struct tdm__group_wait no_wait = {.cause = ""};

    wait = wait == NULL ? &no_wait : wait;
    tdm_write_map(writer, 10);
    write_id(writer, "id", &group->id);
    tdm__state_record_write_text(writer, "name", group->name);
    tdm__state_record_write_text(writer, "name_space", group->name_space);
    tdm__state_record_write_int(writer, "detached", group->detached ? 1 : 0);
    tdm__state_record_write_text(writer, "state", group_state_text(group));
    tdm__state_record_write_text(writer, "strategy", strategy_text(group->strategy));
    tdm__state_record_write_text(writer, "waits_for", wait->cause);
    tdm__state_record_write_int(writer, "waited_ms", wait->waited_ms);
    tdm__state_record_write_int(writer, "ticket", (int64_t)wait->ticket_number);
    tdm_write_string(writer, "bundles");
    tdm_write_array(writer, group->bundles_count);
    for (uint32_t i = 0; i < group->bundles_count; i++) {
        tdm_write_map(writer, 3);
        write_id(writer, "node_id", &group->bundles[i].node);
        write_amounts(writer, group->bundles[i].wanted.cpu, group->bundles[i].wanted.gpu,
                      group->bundles[i].wanted.custom);
        write_gpus(writer, &group->bundles[i].grant);
    }
}

void tdm__state_write_groups(tdm_writer *writer, const struct tdm__store_record *records,
                             uint32_t records_count)
{
    struct tdm__placement_group_record group;
    uint32_t count = 0;

    for (uint32_t i = 0; i < records_count; i++) {
        if (is_kind(&records[i], "group/") &&
            tdm__placement_group_record_read(&records[i], &group) == TDM_OK) {
            count++;
            tdm__placement_group_record_fini(&group);
        }
    }
    tdm_write_array(writer, count);
    for (uint32_t i = 0; i < records_count; i++) {
        if (is_kind(&records[i], "group/") &&
            tdm__placement_group_record_read(&records[i], &group) == TDM_OK) {
            tdm__state_write_group(writer, &group, NULL);
            tdm__placement_group_record_fini(&group);
        }
    }
}
