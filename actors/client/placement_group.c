/* placement_group.c - the public functions of placement groups; requests to the daemon. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements tdm_placement_group_*(). A handle (struct tdm_placement_group) is a copy of what
 * the daemon replied: the id of the placement group and the node and GPUs of each bundle. It
 * does not change after its creation, except that the handle of a pending group gets the places of
 * the bundles from the first wait that succeeds. Functions with a timeout send a request to the
 * daemon and drive the loop until the reply arrives. Any user thread may enter. */

#include "actors/common/placement_group.h"

#include "actors/common/actor_spec.h"
#include "actors/process/runtime.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Checks a name and its name space, and sets both to "" if there is no name. The name space of
 * the runtime is the default. */
static tdm_status placement_group_check_names(const tdm_runtime *runtime, const char **name_space,
                                              const char **name)
{
    if (*name_space == NULL) {
        *name_space = runtime->name_space;
    }
    if (*name == NULL) {
        *name_space = *name = "";
    }
    TDM_TRY(tdm__check_name("a group's name", *name));
    return tdm__check_name("name space", *name_space);
}

/* Fills one bundle of the message. */
static void placement_group_get_bundle(const void *arg, uint32_t index, void *item_out)
{
    *(struct tdm__resources_message *)item_out =
        tdm__resources_to_message(&((const struct tdm__resources *)arg)[index]);
}

/* Writes the request with the resources of each bundle. */
static tdm_status placement_group_write_bundles(tdm_writer *writer,
                                                const struct tdm_bundle *bundles,
                                                struct tdm__group_create_message *message)
{
    uint32_t count = message->bundles.count;
    struct tdm__resources *wanted = calloc(count, sizeof(*wanted));
    tdm_status status = TDM_OK;

    if (wanted == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", count);
    }
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        status = tdm__wrap(tdm__resources_of_bundle(&bundles[i], &wanted[i]), "bundle %u", i);
    }
    if (status == TDM_OK) {
        message->bundles.get = placement_group_get_bundle;
        message->bundles.arg = wanted;
        status = tdm__group_create_encode(message, writer);
    }
    free(wanted);
    return status;
}

/* Writes the request to create a placement group. */
static tdm_status placement_group_write_request(tdm_writer *writer, const tdm_runtime *runtime,
                                                const struct tdm_bundle *bundles,
                                                uint32_t bundles_count,
                                                const struct tdm_placement_group_options *options)
{
    struct tdm__group_create_message message = {.strategy = (int64_t)options->strategy,
                                                .bundles = {.count = bundles_count},
                                                .name_space = options->name_space,
                                                .name = options->name,
                                                .detached = options->detached != 0,
                                                .asynchronous = options->asynchronous != 0,
                                                .bundles_together = options->bundles_together,
                                                .of_job = options->of_job != 0};

    if (bundles_count == 0 || bundles_count > TDM_BUNDLES_MAX) {
        return tdm__fail(TDM_E_INVAL, "a placement group has 1 to %d bundles, not %u",
                         (int)TDM_BUNDLES_MAX, bundles_count);
    }
    TDM_TRY(placement_group_check_names(runtime, &message.name_space, &message.name));
    return placement_group_write_bundles(writer, bundles, &message);
}

/* Copies the placement of one bundle. */
static tdm_status placement_group_read_bundle(const struct tdm__bundle_placement_message *message,
                                              struct tdm_bundle_placement *place)
{
    (void)snprintf(place->node_id, sizeof(place->node_id), "%s", message->node_id);
    if (message->gpu_indices.count > TDM_BUNDLE_GPUS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "a bundle with %u GPUs", message->gpu_indices.count);
    }
    place->gpus_count = message->gpu_indices.count;
    for (uint32_t i = 0; i < place->gpus_count; i++) {
        tdm__message_list_read(&message->gpu_indices, i, &place->gpu_indices[i],
                               sizeof(place->gpu_indices[i]));
    }
    return TDM_OK;
}

/* Reads the places of all bundles into a new array, which the caller frees. */
static tdm_status placement_group_read_places(const struct tdm__group_placement_message *message,
                                              struct tdm_bundle_placement **places_out)
{
    struct tdm_bundle_placement *places = calloc(message->bundles.count, sizeof(*places));
    tdm_status status = TDM_OK;

    if (places == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the placements of %u bundles", message->bundles.count);
    }
    for (uint32_t i = 0; i < message->bundles.count && status == TDM_OK; i++) {
        struct tdm__bundle_placement_message place;

        tdm__message_list_read(&message->bundles, i, &place, sizeof(place));
        status = placement_group_read_bundle(&place, &places[i]);
    }
    if (status != TDM_OK) {
        free(places);
        return status;
    }
    *places_out = places;
    return TDM_OK;
}

/* Fills the handle from the daemon's reply. */
static tdm_status placement_group_read_reply(const tdm_value *reply, tdm_placement_group *group)
{
    struct tdm_bundle_placement *places = NULL;
    struct tdm__group_placement_message message;
    struct tdm_placement_group_info *info = &group->info;

    TDM_TRY(tdm__group_placement_decode(reply, &message));
    if (message.bundles.count == 0) {
        return tdm__fail(TDM_E_PROTOCOL, "a reply without bundle placements");
    }
    group->id = message.id;
    group->bundles_count = info->bundles_count = message.bundles.count;
    (void)tdm__id_text(&message.id, info->id);
    (void)snprintf(info->name, sizeof(info->name), "%s", message.name);
    (void)snprintf(info->name_space, sizeof(info->name_space), "%s", message.name_space);
    (void)snprintf(info->pending_cause, sizeof(info->pending_cause), "%s", message.pending_cause);
    info->strategy = (enum tdm_placement_strategy)message.strategy;
    info->detached = message.detached ? 1 : 0;
    info->is_infeasible = message.infeasible ? 1 : 0;
    if (message.placed) {
        TDM_TRY(placement_group_read_places(&message, &places));
    }
    atomic_init(&group->places, places);
    return TDM_OK;
}

void tdm_placement_group_release(tdm_placement_group *group)
{
    if (group != NULL) {
        free(atomic_load(&group->places));
        free(group);
    }
}

/* Sends a request to the daemon whose reply describes a placement group, and creates a handle to
 * it. */
static tdm_status placement_group_request(tdm_runtime *runtime, const char *method,
                                          const tdm_writer *writer, int64_t timeout_ms,
                                          tdm_placement_group **group_out)
{
    tdm_placement_group *group = calloc(1, sizeof(*group));
    tdm_document *reply;
    tdm_status status;

    if (group == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a placement group");
    }
    group->runtime = runtime;
    status =
        tdm__runtime_call_daemon(runtime, method, tdm_writer_bytes(writer), timeout_ms, &reply);
    if (status == TDM_OK) {
        status = placement_group_read_reply(tdm_document_root(reply), group);
        tdm_document_destroy(reply);
    }
    if (status != TDM_OK) {
        tdm_placement_group_release(group);
        return status;
    }
    *group_out = group;
    return TDM_OK;
}

tdm_status tdm_placement_group_create_with(tdm_runtime *runtime, const struct tdm_bundle *bundles,
                                           uint32_t bundles_count,
                                           const struct tdm_placement_group_options *options,
                                           int64_t timeout_ms, tdm_placement_group **group_out)
{
    TDM__REQUIRE(group_out);
    *group_out = NULL;
    TDM__REQUIRE_RUNNING(runtime);
    TDM__REQUIRE_ARRAY(bundles, bundles_count);
    TDM__REQUIRE(options);

    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = placement_group_write_request(writer, runtime, bundles, bundles_count, options);
    if (status == TDM_OK) {
        status = placement_group_request(runtime, "placement_group.create", writer, timeout_ms,
                                         group_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm_placement_group_create(tdm_runtime *runtime, const struct tdm_bundle *bundles,
                                      uint32_t bundles_count, enum tdm_placement_strategy strategy,
                                      int64_t timeout_ms, tdm_placement_group **group_out)
{
    TDM__REQUIRE(group_out);
    *group_out = NULL;
    TDM__REQUIRE_RUNNING(runtime);
    TDM__REQUIRE_ARRAY(bundles, bundles_count);

    const struct tdm_placement_group_options options = {.strategy = strategy};

    return tdm_placement_group_create_with(runtime, bundles, bundles_count, &options, timeout_ms,
                                           group_out);
}

/* Asks the daemon for a placement group by id or, if that is the none id, by name. */
static tdm_status placement_group_find_by(tdm_runtime *runtime, const struct tdm__id *id,
                                          const char *name_space, const char *name,
                                          int64_t timeout_ms, tdm_placement_group **group_out)
{
    struct tdm__group_find_message message = {*id, name_space, name};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(placement_group_check_names(runtime, &message.name_space, &message.name));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__group_find_encode(&message, writer);
    if (status == TDM_OK) {
        status =
            placement_group_request(runtime, "placement_group.find", writer, timeout_ms, group_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm_placement_group_find(tdm_runtime *runtime, const char *name_space, const char *name,
                                    int64_t timeout_ms, tdm_placement_group **group_out)
{
    TDM__REQUIRE(group_out);
    *group_out = NULL;
    TDM__REQUIRE_RUNNING(runtime);
    TDM__REQUIRE(name);

    const struct tdm__id any = {{0}};

    if (name == NULL || name[0] == '\0') {
        return tdm__fail(TDM_E_INVAL, "a placement group is found by its name");
    }
    return placement_group_find_by(runtime, &any, name_space, name, timeout_ms, group_out);
}

tdm_status tdm_placement_group_find_by_id(tdm_runtime *runtime, const char *id, int64_t timeout_ms,
                                          tdm_placement_group **group_out)
{
    TDM__REQUIRE(group_out);
    *group_out = NULL;
    TDM__REQUIRE_RUNNING(runtime);
    TDM__REQUIRE(id);

    struct tdm__id parsed;

    TDM_TRY(tdm__wrap(tdm__id_parse(id, &parsed), "a group's ID"));
    if (tdm__id_is_none(&parsed)) {
        return tdm__fail(TDM_E_INVAL, "a group's ID is not all zeros");
    }
    return placement_group_find_by(runtime, &parsed, NULL, NULL, timeout_ms, group_out);
}

tdm_status tdm_placement_group_current(tdm_runtime *runtime, int64_t timeout_ms,
                                       tdm_placement_group **group_out)
{
    TDM__REQUIRE(group_out);
    *group_out = NULL;
    TDM__REQUIRE_RUNNING(runtime);

    if (tdm__id_is_none(&runtime->group)) {
        return tdm__fail(TDM_E_NOT_FOUND, "this process is in no placement group");
    }
    return placement_group_find_by(runtime, &runtime->group, NULL, NULL, timeout_ms, group_out);
}

tdm_status tdm_placement_group_locate_bundle(const tdm_placement_group *group, uint32_t bundle,
                                             struct tdm_bundle_placement *placement_out)
{
    TDM__REQUIRE(group);
    TDM__REQUIRE(placement_out);

    if (bundle >= group->bundles_count) {
        return tdm__fail(TDM_E_INVAL, "bundle %u of a group of %u", bundle, group->bundles_count);
    }
    if (atomic_load(&group->places) == NULL) {
        return tdm__fail(TDM_E_AGAIN,
                         "placement group %s is not placed yet: wait for it with "
                         "tdm_placement_group_wait()",
                         group->info.id);
    }
    *placement_out = atomic_load(&group->places)[bundle];
    return TDM_OK;
}

void tdm_placement_group_describe(const tdm_placement_group *group,
                                  struct tdm_placement_group_info *info_out)
{
    TDM__REQUIRE_OR(info_out, );
    *info_out = (struct tdm_placement_group_info){.detached = 0};
    TDM__REQUIRE_OR(group, );

    *info_out = group->info;
    info_out->is_placed = atomic_load(&group->places) != NULL ? 1 : 0;
}

/* Keeps the places of the bundles in the handle, unless another thread has done so. */
static tdm_status placement_group_keep_places(tdm_placement_group *group, const tdm_value *reply)
{
    struct tdm_bundle_placement *none = NULL;
    struct tdm_bundle_placement *places = NULL;
    struct tdm__group_placement_message message;

    TDM_TRY(tdm__group_placement_decode(reply, &message));
    if (message.bundles.count != group->bundles_count) {
        return tdm__fail(TDM_E_PROTOCOL, "a group of %u bundles instead of %u",
                         message.bundles.count, group->bundles_count);
    }
    TDM_TRY(placement_group_read_places(&message, &places));
    if (!atomic_compare_exchange_strong(&group->places, &none, places)) {
        free(places);
    }
    return TDM_OK;
}

/* Asks the daemon to reply when the group is placed, and waits for the reply. */
static tdm_status placement_group_await(tdm_placement_group *group, int64_t timeout_ms)
{
    const struct tdm__group_find_message message = {.id = group->id, .name_space = "", .name = ""};
    tdm_document *reply;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__group_find_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(group->runtime, "placement_group.wait",
                                          tdm_writer_bytes(writer), timeout_ms, &reply);
    }
    tdm_writer_destroy(writer);
    TDM_TRY(status);
    status = placement_group_keep_places(group, tdm_document_root(reply));
    tdm_document_destroy(reply);
    return status;
}

tdm_status tdm_placement_group_wait(tdm_placement_group *group, int64_t timeout_ms)
{
    TDM__REQUIRE(group);

    const struct tdm_placement_group_info *info = &group->info;
    tdm_status status;

    if (atomic_load(&group->places) != NULL) {
        return TDM_OK;
    }
    status = placement_group_await(group, timeout_ms);
    if (status != TDM_E_TIMEOUT) {
        return status;
    }
    return tdm__fail(status, "placement group %s is not placed yet%s%s", info->id,
                     info->pending_cause[0] == '\0' ? "" : "; at first it waited because ",
                     info->pending_cause);
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
        const struct tdm__id_request_message message = {group->id};

        status = tdm__id_request_encode(&message, writer);
        if (status == TDM_OK) {
            status = tdm__runtime_call_daemon(group->runtime, "placement_group.remove",
                                              tdm_writer_bytes(writer), timeout_ms, NULL);
        }
        tdm_writer_destroy(writer);
    }
    tdm_placement_group_release(group);
    return status;
}
