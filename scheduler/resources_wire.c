/* resources_wire.c - converts requests, grants and pools from and to messages. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The file runtime/messages/scheduling.def declares the messages. The functions here copy between
 * them and the structures of the scheduler. Reading checks what a table cannot express: ranges,
 * order, and consistency between fields. A message borrows from its structure, and a structure is a
 * copy of its message. The functions keep no state, so any thread may call them. */
#include "scheduler/resources.h"

#include "runtime/error.h"

#include <string.h>

/* ---- writing ---------------------------------------------------------------------------- */

/* Returns named resource number `index` for the encoder of a message. */
static void get_custom(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm__custom_resource *custom = arg;
    struct tdm__custom_resource_message *item = item_out;

    *item = (struct tdm__custom_resource_message){custom[index].name, custom[index].amount};
}

/* Returns named resources as a list for a message. */
static struct tdm__message_list custom_list(const struct tdm__custom_resource *custom)
{
    uint32_t count = 0;

    while (count < TDM__CUSTOM_RESOURCES_MAX && custom[count].name[0] != '\0') {
        count++;
    }
    return (struct tdm__message_list){.count = count, .get = get_custom, .arg = custom};
}

/* Returns a total and a free amount as a message. */
static struct tdm__amount_message amount_to_message(const struct tdm__amount *amount)
{
    return (struct tdm__amount_message){amount->total, amount->free};
}

/* Returns the amount of GPU number `index` of a pool for the encoder of a message. */
static void get_gpu(const void *arg, uint32_t index, void *item_out)
{
    *(struct tdm__amount_message *)item_out =
        amount_to_message(&((const struct tdm__amount *)arg)[index]);
}

/* Returns named resource number `index` of a pool for the encoder of a message. */
static void get_custom_pool(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm__custom_pool *custom = arg;
    struct tdm__custom_pool_message *item = item_out;

    *item = (struct tdm__custom_pool_message){custom[index].name,
                                              amount_to_message(&custom[index].amount)};
}

struct tdm__resources_message tdm__resources_to_message(const struct tdm__resources *resources)
{
    return (struct tdm__resources_message){resources->cpu, resources->gpu,
                                           custom_list(resources->custom)};
}

struct tdm__grant_message tdm__grant_to_message(const struct tdm__grant *grant)
{
    return (struct tdm__grant_message){
        .cpu = grant->cpu,
        .gpu_amount = grant->gpu_amount,
        .gpu_indices = {.count = grant->gpus_count, .items = grant->gpu_indices},
        .custom = custom_list(grant->custom)};
}

struct tdm__pool_message tdm__pool_to_message(const struct tdm__pool *pool)
{
    uint32_t count = 0;

    while (count < TDM__CUSTOM_RESOURCES_MAX && pool->custom[count].name[0] != '\0') {
        count++;
    }
    return (struct tdm__pool_message){
        .cpu = amount_to_message(&pool->cpu),
        .gpus = {.count = pool->gpus_count, .get = get_gpu, .arg = pool->gpus},
        .custom = {.count = count, .get = get_custom_pool, .arg = pool->custom}};
}

void tdm__resources_write(tdm_writer *writer, const struct tdm__resources *resources)
{
    const struct tdm__resources_message message = tdm__resources_to_message(resources);

    (void)tdm__resources_encode(&message, writer);
}

void tdm__grant_write(tdm_writer *writer, const struct tdm__grant *grant)
{
    const struct tdm__grant_message message = tdm__grant_to_message(grant);

    (void)tdm__grant_encode(&message, writer);
}

void tdm__node_resources_write(tdm_writer *writer, const struct tdm__node_resources *node)
{
    const struct tdm__node_resources_message message = {
        .id = node->id,
        .name = node->name,
        .pool = tdm__pool_to_message(&node->pool),
        .actors_count = node->actors_count,
        .labels = tdm__labels_list(&node->labels),
        .generation = (int64_t)node->generation,
        .names_generation = (int64_t)node->names_generation,
        .has_ticket = !tdm__id_is_none(&node->ticket.group),
        .ticket = {.group = node->ticket.group,
                   .owner_node = node->ticket.owner_node,
                   .number = (int64_t)node->ticket.number}};

    (void)tdm__node_resources_encode(&message, writer);
}

/* ---- reading: nothing of what came is believed ------------------------------------------ */

/* Fails with TDM_E_PROTOCOL for a malformed message. `what` names the structure and `why` the
 * problem. */
static tdm_status malformed(const char *what, const char *why)
{
    return tdm__fail(TDM_E_PROTOCOL, "malformed %s: %s", what, why);
}

/* Checks that an amount is in the range from 0 to `max`; `what` names the amount in the error. */
static tdm_status check_steps(int64_t steps, int64_t max, const char *what)
{
    return steps < 0 || steps > max ? malformed(what, "an amount is out of range") : TDM_OK;
}

/* Reads a total and a free amount from a message; the total must be at most `max`. */
static tdm_status read_amount(const struct tdm__amount_message *message, int64_t max,
                              const char *what, struct tdm__amount *amount_out)
{
    TDM_TRY(check_steps(message->total, max, what));
    TDM_TRY(check_steps(message->free, message->total, what));
    *amount_out = (struct tdm__amount){message->total, message->free};
    return TDM_OK;
}

/* Reads the CPUs of a pool from a message; the free amount may be negative. */
static tdm_status read_cpus(const struct tdm__amount_message *message, const char *what,
                            struct tdm__amount *amount_out)
{
    TDM_TRY(check_steps(message->total, TDM__RESOURCE_AMOUNT_MAX, what));
    if (message->free > message->total || message->free < -TDM__RESOURCE_AMOUNT_MAX) {
        return malformed(what, "an amount is out of range");
    }
    *amount_out = (struct tdm__amount){message->total, message->free};
    return TDM_OK;
}

/* Copies the name of a resource, which must be sorted after the name `previous` (NULL for the first
 * one). */
static tdm_status read_name(const char *name, const char *previous, const char *what,
                            char name_out[TDM__RESOURCE_NAME_BYTES])
{
    size_t length = strnlen(name, TDM__RESOURCE_NAME_BYTES);

    if (length == 0 || length == TDM__RESOURCE_NAME_BYTES) {
        return malformed(what, "a resource's name has 1 to 31 bytes");
    }
    if (previous != NULL && strcmp(previous, name) >= 0) {
        return malformed(what, "the named resources are not in order");
    }
    memcpy(name_out, name, length);
    return TDM_OK;
}

/* Reads the named resources of a request or a grant. */
static tdm_status read_custom(const struct tdm__message_list *list, const char *what,
                              struct tdm__custom_resource *custom_out)
{
    if (list->count > TDM__CUSTOM_RESOURCES_MAX) {
        return malformed(what, "too many named resources");
    }
    for (uint32_t i = 0; i < list->count; i++) {
        struct tdm__custom_resource_message item;

        tdm__message_list_read(list, i, &item, sizeof(item));
        TDM_TRY(
            read_name(item.name, i > 0 ? custom_out[i - 1].name : NULL, what, custom_out[i].name));
        TDM_TRY(check_steps(item.amount, TDM__RESOURCE_AMOUNT_MAX, what));
        if (item.amount == 0) {
            return malformed(what, "a named resource of nothing");
        }
        custom_out[i].amount = item.amount;
    }
    return TDM_OK;
}

tdm_status tdm__resources_of_message(const struct tdm__resources_message *message,
                                     struct tdm__resources *resources_out)
{
    static const char what[] = "resource request";
    struct tdm__resources resources = {.cpu = message->cpu, .gpu = message->gpu};

    TDM_TRY(check_steps(message->cpu, TDM__RESOURCE_AMOUNT_MAX, what));
    TDM_TRY(check_steps(message->gpu, TDM__RESOURCE_AMOUNT_MAX, what));
    TDM_TRY(read_custom(&message->custom, what, resources.custom));
    if (resources.gpu > TDM__RESOURCE_ONE && resources.gpu % TDM__RESOURCE_ONE != 0) {
        return malformed(what, "more than one GPU, but not whole ones");
    }
    *resources_out = resources;
    return TDM_OK;
}

tdm_status tdm__resources_read(const tdm_value *value, struct tdm__resources *resources_out)
{
    struct tdm__resources_message message;

    TDM_TRY(tdm__resources_decode(value, &message));
    return tdm__resources_of_message(&message, resources_out);
}

/* Reads the GPU indices of a grant, which must be ascending. */
static tdm_status read_gpu_indices(const struct tdm__message_list *list, struct tdm__grant *grant)
{
    static const char what[] = "grant";

    if (list->count > TDM__NODE_GPUS_MAX) {
        return malformed(what, "too many GPUs");
    }
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t index;

        tdm__message_list_read(list, i, &index, sizeof(index));
        if (index >= TDM__NODE_GPUS_MAX || (i > 0 && index <= grant->gpu_indices[i - 1])) {
            return malformed(what, "GPU indices are out of range or order");
        }
        grant->gpu_indices[i] = index;
    }
    grant->gpus_count = list->count;
    return TDM_OK;
}

tdm_status tdm__grant_of_message(const struct tdm__grant_message *message,
                                 struct tdm__grant *grant_out)
{
    static const char what[] = "grant";
    struct tdm__grant grant = {.cpu = message->cpu, .gpu_amount = message->gpu_amount};

    TDM_TRY(check_steps(message->cpu, TDM__RESOURCE_AMOUNT_MAX, what));
    TDM_TRY(check_steps(message->gpu_amount, TDM__RESOURCE_ONE, what));
    TDM_TRY(read_gpu_indices(&message->gpu_indices, &grant));
    TDM_TRY(read_custom(&message->custom, what, grant.custom));
    if ((grant.gpus_count == 0) != (grant.gpu_amount == 0) ||
        (grant.gpus_count > 1 && grant.gpu_amount != TDM__RESOURCE_ONE)) {
        return malformed(what, "the GPUs and their amount do not agree");
    }
    *grant_out = grant;
    return TDM_OK;
}

tdm_status tdm__grant_read(const tdm_value *value, struct tdm__grant *grant_out)
{
    struct tdm__grant_message message;

    TDM_TRY(tdm__grant_decode(value, &message));
    return tdm__grant_of_message(&message, grant_out);
}

tdm_status tdm__pool_of_message(const struct tdm__pool_message *message, struct tdm__pool *pool_out)
{
    static const char what[] = "resource pool";
    struct tdm__pool pool = {.gpus_count = message->gpus.count};

    TDM_TRY(read_cpus(&message->cpu, what, &pool.cpu));
    if (message->gpus.count > TDM__NODE_GPUS_MAX) {
        return malformed(what, "too many GPUs");
    }
    if (message->custom.count > TDM__CUSTOM_RESOURCES_MAX) {
        return malformed(what, "too many named resources");
    }
    for (uint32_t i = 0; i < pool.gpus_count; i++) {
        struct tdm__amount_message gpu;

        tdm__message_list_read(&message->gpus, i, &gpu, sizeof(gpu));
        TDM_TRY(read_amount(&gpu, TDM__RESOURCE_ONE, what, &pool.gpus[i]));
    }
    for (uint32_t i = 0; i < message->custom.count; i++) {
        struct tdm__custom_pool_message item;

        tdm__message_list_read(&message->custom, i, &item, sizeof(item));
        TDM_TRY(read_name(item.name, i > 0 ? pool.custom[i - 1].name : NULL, what,
                          pool.custom[i].name));
        TDM_TRY(read_amount(&item.amount, TDM__RESOURCE_AMOUNT_MAX, what, &pool.custom[i].amount));
    }
    *pool_out = pool;
    return TDM_OK;
}

tdm_status tdm__node_resources_read(const tdm_value *value, struct tdm__node_resources *node_out)
{
    struct tdm__node_resources_message message;
    struct tdm__node_resources node = {0};
    size_t length;

    TDM_TRY(tdm__node_resources_decode(value, &message));
    length = strnlen(message.name, TDM__NODE_NAME_BYTES);
    if (length == 0 || length == TDM__NODE_NAME_BYTES) {
        return malformed("node", "a name has 1 to 63 bytes");
    }
    node.id = message.id;
    memcpy(node.name, message.name, length);
    node.actors_count = message.actors_count;
    node.generation = (uint64_t)message.generation;
    node.names_generation = (uint64_t)message.names_generation;
    if (message.has_ticket) {
        node.ticket = (struct tdm__ticket){message.ticket.group, message.ticket.owner_node,
                                           (uint64_t)message.ticket.number};
    }
    TDM_TRY(tdm__pool_of_message(&message.pool, &node.pool));
    TDM_TRY(tdm__labels_of_list(&message.labels, &node.labels));
    *node_out = node;
    return TDM_OK;
}
