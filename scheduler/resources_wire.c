/* resources_wire.c - requests, grants and pools as packed values. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/resources.h"

#include "runtime/error.h"

#include <string.h>

/* request  [cpu, gpu, [name, amount, …]]
 * grant    [cpu, gpu of each, [gpu index, …], [name, amount, …]]
 * pool     [cpu total, cpu free, [gpu total, gpu free, …], [name, total, free, …]]
 * node     [id, name, pool] */

/* ---- writing ---------------------------------------------------------------------------- */

static void write_custom(tdm_writer *writer, const struct tdm__custom_resource *custom)
{
    uint32_t count = 0;

    while (count < TDM__CUSTOM_RESOURCES_MAX && custom[count].name[0] != '\0') {
        count++;
    }
    tdm_write_array(writer, 2 * count);
    for (uint32_t i = 0; i < count; i++) {
        tdm_write_string(writer, custom[i].name);
        tdm_write_int(writer, custom[i].amount);
    }
}

static void write_amount(tdm_writer *writer, const struct tdm__amount *amount)
{
    tdm_write_int(writer, amount->total);
    tdm_write_int(writer, amount->free);
}

void tdm__resources_write(tdm_writer *writer, const struct tdm__resources *resources)
{
    tdm_write_array(writer, 3);
    tdm_write_int(writer, resources->cpu);
    tdm_write_int(writer, resources->gpu);
    write_custom(writer, resources->custom);
}

void tdm__grant_write(tdm_writer *writer, const struct tdm__grant *grant)
{
    tdm_write_array(writer, 4);
    tdm_write_int(writer, grant->cpu);
    tdm_write_int(writer, grant->gpu_amount);
    tdm_write_array(writer, grant->gpus_count);
    for (uint32_t i = 0; i < grant->gpus_count; i++) {
        tdm_write_uint(writer, grant->gpu_indices[i]);
    }
    write_custom(writer, grant->custom);
}

void tdm__pool_write(tdm_writer *writer, const struct tdm__pool *pool)
{
    uint32_t count = 0;

    while (count < TDM__CUSTOM_RESOURCES_MAX && pool->custom[count].name[0] != '\0') {
        count++;
    }
    tdm_write_array(writer, 4);
    write_amount(writer, &pool->cpu);
    tdm_write_array(writer, 2 * pool->gpus_count);
    for (uint32_t i = 0; i < pool->gpus_count; i++) {
        write_amount(writer, &pool->gpus[i]);
    }
    tdm_write_array(writer, 3 * count);
    for (uint32_t i = 0; i < count; i++) {
        tdm_write_string(writer, pool->custom[i].name);
        write_amount(writer, &pool->custom[i].amount);
    }
}

void tdm__node_resources_write(tdm_writer *writer, const struct tdm__node_resources *node)
{
    tdm_write_array(writer, 5);
    tdm_write_bytes(writer, node->id.bytes, sizeof(node->id.bytes));
    tdm_write_string(writer, node->name);
    tdm__pool_write(writer, &node->pool);
    tdm_write_uint(writer, node->actors_count);
    tdm__labels_write(writer, &node->labels);
}

/* ---- reading: nothing of what came is believed ------------------------------------------ */

static tdm_status malformed(const char *what, const char *why)
{
    return tdm__fail(TDM_E_PROTOCOL, "malformed %s: %s", what, why);
}

/* An array of the right length, so that what follows need not ask. */
static tdm_status check_array(const tdm_value *value, uint32_t count, const char *what)
{
    if (value == NULL || tdm_value_kind_of(value) != TDM_ARRAY ||
        tdm_value_count(value) != count) {
        return tdm__fail(TDM_E_PROTOCOL, "malformed %s: not an array of %u", what, count);
    }
    return TDM_OK;
}

static tdm_status read_steps(const tdm_value *value, int64_t max, const char *what,
                             int64_t *steps_out)
{
    int64_t steps = tdm_value_int(value, -1);

    if (steps < 0 || steps > max) {
        return malformed(what, "an amount is missing or out of range");
    }
    *steps_out = steps;
    return TDM_OK;
}

static tdm_status read_amount(const tdm_value *array, uint32_t index, int64_t max,
                              const char *what, struct tdm__amount *amount_out)
{
    TDM_TRY(read_steps(tdm_value_at(array, index), max, what, &amount_out->total));
    return read_steps(tdm_value_at(array, index + 1), amount_out->total, what,
                      &amount_out->free);
}

/* Copies a name that must come after `previous` (NULL for the first). */
static tdm_status read_name(const tdm_value *value, const char *previous, const char *what,
                            char name_out[TDM__RESOURCE_NAME_BYTES])
{
    const char *name = tdm_value_string(value, "");
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

/* The named resources: tuples of `width` values.  Their number, if it is allowed. */
static tdm_status count_custom(const tdm_value *value, uint32_t width, const char *what,
                               uint32_t *count_out)
{
    uint32_t count = tdm_value_count(value) / width;

    TDM_TRY(check_array(value, count * width, what));
    if (count > TDM__CUSTOM_RESOURCES_MAX) {
        return malformed(what, "too many named resources");
    }
    *count_out = count;
    return TDM_OK;
}

static tdm_status read_custom(const tdm_value *value, const char *what,
                              struct tdm__custom_resource *custom_out)
{
    uint32_t count = 0;

    TDM_TRY(count_custom(value, 2, what, &count));
    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(read_name(tdm_value_at(value, 2 * i), i > 0 ? custom_out[i - 1].name : NULL,
                          what, custom_out[i].name));
        TDM_TRY(read_steps(tdm_value_at(value, 2 * i + 1), TDM__RESOURCE_AMOUNT_MAX, what,
                           &custom_out[i].amount));
        if (custom_out[i].amount == 0) {
            return malformed(what, "a named resource of nothing");
        }
    }
    return TDM_OK;
}

tdm_status tdm__resources_read(const tdm_value *value, struct tdm__resources *resources_out)
{
    static const char what[] = "resource request";
    struct tdm__resources resources = {0};

    TDM_TRY(check_array(value, 3, what));
    TDM_TRY(read_steps(tdm_value_at(value, 0), TDM__RESOURCE_AMOUNT_MAX, what, &resources.cpu));
    TDM_TRY(read_steps(tdm_value_at(value, 1), TDM__RESOURCE_AMOUNT_MAX, what, &resources.gpu));
    TDM_TRY(read_custom(tdm_value_at(value, 2), what, resources.custom));
    if (resources.gpu > TDM__RESOURCE_ONE && resources.gpu % TDM__RESOURCE_ONE != 0) {
        return malformed(what, "more than one GPU, but not whole ones");
    }
    *resources_out = resources;
    return TDM_OK;
}

static tdm_status read_gpu_indices(const tdm_value *value, struct tdm__grant *grant)
{
    static const char what[] = "grant";
    uint32_t count = tdm_value_count(value);

    TDM_TRY(check_array(value, count, what));
    if (count > TDM__NODE_GPUS_MAX) {
        return malformed(what, "too many GPUs");
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t index = tdm_value_uint(tdm_value_at(value, i), UINT64_MAX);

        if (index >= TDM__NODE_GPUS_MAX || (i > 0 && index <= grant->gpu_indices[i - 1])) {
            return malformed(what, "GPU indices are out of range or order");
        }
        grant->gpu_indices[i] = (uint32_t)index;
    }
    grant->gpus_count = count;
    return TDM_OK;
}

tdm_status tdm__grant_read(const tdm_value *value, struct tdm__grant *grant_out)
{
    static const char what[] = "grant";
    struct tdm__grant grant = {0};

    TDM_TRY(check_array(value, 4, what));
    TDM_TRY(read_steps(tdm_value_at(value, 0), TDM__RESOURCE_AMOUNT_MAX, what, &grant.cpu));
    TDM_TRY(read_steps(tdm_value_at(value, 1), TDM__RESOURCE_ONE, what, &grant.gpu_amount));
    TDM_TRY(read_gpu_indices(tdm_value_at(value, 2), &grant));
    TDM_TRY(read_custom(tdm_value_at(value, 3), what, grant.custom));
    if ((grant.gpus_count == 0) != (grant.gpu_amount == 0) ||
        (grant.gpus_count > 1 && grant.gpu_amount != TDM__RESOURCE_ONE)) {
        return malformed(what, "the GPUs and their amount do not agree");
    }
    *grant_out = grant;
    return TDM_OK;
}

static tdm_status read_gpus(const tdm_value *value, struct tdm__pool *pool)
{
    static const char what[] = "resource pool";
    uint32_t count = tdm_value_count(value) / 2;

    TDM_TRY(check_array(value, 2 * count, what));
    if (count > TDM__NODE_GPUS_MAX) {
        return malformed(what, "too many GPUs");
    }
    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(read_amount(value, 2 * i, TDM__RESOURCE_ONE, what, &pool->gpus[i]));
    }
    pool->gpus_count = count;
    return TDM_OK;
}

tdm_status tdm__pool_read(const tdm_value *value, struct tdm__pool *pool_out)
{
    static const char what[] = "resource pool";
    const tdm_value *custom = tdm_value_at(value, 3);
    struct tdm__pool pool = {0};
    uint32_t count = 0;

    TDM_TRY(check_array(value, 4, what));
    TDM_TRY(read_amount(value, 0, TDM__RESOURCE_AMOUNT_MAX, what, &pool.cpu));
    TDM_TRY(read_gpus(tdm_value_at(value, 2), &pool));
    TDM_TRY(count_custom(custom, 3, what, &count));
    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(read_name(tdm_value_at(custom, 3 * i), i > 0 ? pool.custom[i - 1].name : NULL,
                          what, pool.custom[i].name));
        TDM_TRY(read_amount(custom, 3 * i + 1, TDM__RESOURCE_AMOUNT_MAX, what,
                            &pool.custom[i].amount));
    }
    *pool_out = pool;
    return TDM_OK;
}

tdm_status tdm__node_resources_read(const tdm_value *value,
                                    struct tdm__node_resources *node_out)
{
    static const char what[] = "node";
    struct tdm__node_resources node = {0};
    struct tdm_bytes id = tdm_value_bytes(tdm_value_at(value, 0));
    const char *name = tdm_value_string(tdm_value_at(value, 1), "");
    size_t length = strnlen(name, TDM__NODE_NAME_BYTES);

    TDM_TRY(check_array(value, 5, what));
    if (id.size_bytes != sizeof(node.id.bytes)) {
        return malformed(what, "an id has 16 bytes");
    }
    if (length == 0 || length == TDM__NODE_NAME_BYTES) {
        return malformed(what, "a name has 1 to 63 bytes");
    }
    TDM_TRY(tdm__pool_read(tdm_value_at(value, 2), &node.pool));
    node.actors_count = (uint32_t)tdm_value_uint(tdm_value_at(value, 3), 0);
    TDM_TRY(tdm__labels_read(tdm_value_at(value, 4), &node.labels));
    memcpy(node.id.bytes, id.data, id.size_bytes);
    memcpy(node.name, name, length);
    *node_out = node;
    return TDM_OK;
}
