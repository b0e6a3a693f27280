/* placement_group.c - placement groups, from their creator's side. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/placement_group.h"

#include "actors/runtime.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A name and its name space, "" and "" for none. */
static tdm_status write_names(tdm_writer *writer, const tdm_runtime *runtime,
                              const char *name_space, const char *name)
{
    const char *space = name_space == NULL ? runtime->name_space : name_space;

    if (name == NULL) {
        space = name = "";
    }
    TDM_TRY(tdm__name_check("a group's name", name, "*"));
    TDM_TRY(tdm__name_check("name space", space, "*/"));
    tdm_write_string(writer, space);
    tdm_write_string(writer, name);
    return TDM_OK;
}

static tdm_status write_request(tdm_writer *writer, const tdm_runtime *runtime,
                                const struct tdm_bundle *bundles, uint32_t bundles_count,
                                const struct tdm_placement_group_options *options)
{
    if (bundles_count == 0 || bundles_count > TDM_BUNDLES_MAX) {
        return tdm__fail(TDM_E_INVAL, "a placement group has 1 to %d bundles, not %u",
                         (int)TDM_BUNDLES_MAX, bundles_count);
    }
    tdm_write_array(writer, 5);
    tdm_write_int(writer, (int64_t)options->strategy);
    tdm_write_array(writer, bundles_count);
    for (uint32_t i = 0; i < bundles_count; i++) {
        struct tdm__resources wanted;

        TDM_TRY(tdm__wrap(tdm__resources_of_bundle(&bundles[i], &wanted), "bundle %u", i));
        tdm__resources_write(writer, &wanted);
    }
    TDM_TRY(write_names(writer, runtime, options->name_space, options->name));
    tdm_write_bool(writer, options->detached != 0);
    return tdm_writer_status(writer);
}

static tdm_status read_place(const tdm_value *value, struct tdm_bundle_place *place)
{
    const char *node_id;
    const tdm_value *gpus;

    TDM_TRY(tdm_unpack(value, "sv", &node_id, &gpus));
    (void)snprintf(place->node_id, sizeof(place->node_id), "%s", node_id);
    if (tdm_value_count(gpus) > TDM_BUNDLE_GPUS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "a bundle with %u GPUs", tdm_value_count(gpus));
    }
    place->gpus_count = tdm_value_count(gpus);
    for (uint32_t i = 0; i < place->gpus_count; i++) {
        place->gpu_indices[i] = (uint32_t)tdm_value_uint(tdm_value_at(gpus, i), 0);
    }
    return TDM_OK;
}

static tdm_status read_answer(const tdm_value *answer, tdm_placement_group *group)
{
    const void *id;
    size_t id_bytes;
    const tdm_value *places;

    TDM_TRY(tdm_unpack(answer, "bv", &id, &id_bytes, &places));
    if (id_bytes != sizeof(group->id.bytes) || tdm_value_count(places) == 0) {
        return tdm__fail(TDM_E_PROTOCOL, "an answer with %u places and an id of %zu bytes",
                         tdm_value_count(places), id_bytes);
    }
    memcpy(group->id.bytes, id, id_bytes);
    group->bundles_count = tdm_value_count(places);
    group->places = calloc(group->bundles_count, sizeof(*group->places));
    if (group->places == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the places of %u bundles", group->bundles_count);
    }
    for (uint32_t i = 0; i < group->bundles_count; i++) {
        TDM_TRY(read_place(tdm_value_at(places, i), &group->places[i]));
    }
    return TDM_OK;
}

void tdm_placement_group_release(tdm_placement_group *group)
{
    if (group != NULL) {
        free(group->places);
        free(group);
    }
}

/* What the daemon answers to `method`: a group and its places. */
static tdm_status ask_for_group(tdm_runtime *runtime, const char *method,
                                const tdm_writer *writer, int64_t timeout_ms,
                                tdm_placement_group **group_out)
{
    tdm_placement_group *group = calloc(1, sizeof(*group));
    tdm_document *answer;
    tdm_status status;

    if (group == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a placement group");
    }
    group->runtime = runtime;
    status = tdm__runtime_ask(runtime, method, tdm_writer_bytes(writer), timeout_ms, &answer);
    if (status == TDM_OK) {
        status = read_answer(tdm_document_root(answer), group);
        tdm_document_destroy(answer);
    }
    if (status != TDM_OK) {
        tdm_placement_group_release(group);
        return status;
    }
    *group_out = group;
    return TDM_OK;
}

tdm_status tdm_placement_group_create_with(tdm_runtime *runtime,
                                           const struct tdm_bundle *bundles,
                                           uint32_t bundles_count,
                                           const struct tdm_placement_group_options *options,
                                           int64_t timeout_ms, tdm_placement_group **group_out)
{
    TDM__REQUIRE(group_out);
    *group_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE_ARRAY(bundles, bundles_count);
    TDM__REQUIRE(options);

    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = write_request(writer, runtime, bundles, bundles_count, options);
    if (status == TDM_OK) {
        status = ask_for_group(runtime, "group.create", writer, timeout_ms, group_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm_placement_group_create(tdm_runtime *runtime, const struct tdm_bundle *bundles,
                                      uint32_t bundles_count,
                                      enum tdm_placement_strategy strategy, int64_t timeout_ms,
                                      tdm_placement_group **group_out)
{
    TDM__REQUIRE(group_out);
    *group_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE_ARRAY(bundles, bundles_count);

    const struct tdm_placement_group_options options = {.strategy = strategy};

    return tdm_placement_group_create_with(runtime, bundles, bundles_count, &options,
                                           timeout_ms, group_out);
}

static tdm_status find_group(tdm_runtime *runtime, const struct tdm__id *id,
                             const char *name_space, const char *name, int64_t timeout_ms,
                             tdm_placement_group **group_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 3);
    tdm_write_bytes(writer, id->bytes, sizeof(id->bytes));
    status = write_names(writer, runtime, name_space, name);
    if (status == TDM_OK) {
        status = ask_for_group(runtime, "group.find", writer, timeout_ms, group_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm_placement_group_find(tdm_runtime *runtime, const char *name_space,
                                    const char *name, int64_t timeout_ms,
                                    tdm_placement_group **group_out)
{
    TDM__REQUIRE(group_out);
    *group_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(name);

    const struct tdm__id any = {{0}};

    if (name == NULL || name[0] == '\0') {
        return tdm__fail(TDM_E_INVAL, "a placement group is found by its name");
    }
    return find_group(runtime, &any, name_space, name, timeout_ms, group_out);
}

tdm_status tdm_placement_group_current(tdm_runtime *runtime, int64_t timeout_ms,
                                       tdm_placement_group **group_out)
{
    TDM__REQUIRE(group_out);
    *group_out = NULL;
    TDM__REQUIRE(runtime);

    if (tdm__id_is_none(&runtime->group)) {
        return tdm__fail(TDM_E_NOT_FOUND, "this process is in no placement group");
    }
    return find_group(runtime, &runtime->group, NULL, NULL, timeout_ms, group_out);
}

tdm_status tdm_placement_group_place(const tdm_placement_group *group, uint32_t bundle,
                                     struct tdm_bundle_place *place_out)
{
    TDM__REQUIRE(group);
    TDM__REQUIRE(place_out);

    if (bundle >= group->bundles_count) {
        return tdm__fail(TDM_E_INVAL, "bundle %u of a group of %u", bundle,
                         group->bundles_count);
    }
    *place_out = group->places[bundle];
    return TDM_OK;
}

uint32_t tdm_placement_group_bundles_count(const tdm_placement_group *group)
{
    TDM__REQUIRE_OR(group, 0);

    return group->bundles_count;
}

tdm_status tdm_placement_group_remove(tdm_placement_group *group, int64_t timeout_ms)
{
    tdm_writer *writer;
    tdm_status status;

    if (group == NULL) {
        return TDM_OK;
    }
    status = tdm_writer_create(&writer);
    if (status == TDM_OK) {
        status = tdm_pack(writer, "b", (const void *)group->id.bytes, sizeof(group->id.bytes));
        if (status == TDM_OK) {
            status = tdm__runtime_ask(group->runtime, "group.remove", tdm_writer_bytes(writer),
                                      timeout_ms, NULL);
        }
        tdm_writer_destroy(writer);
    }
    tdm_placement_group_release(group);
    return status;
}
