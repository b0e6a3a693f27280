/* weight_update.c - a new version of the weights, from the trainers to every engine. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/weight_update.h"

#include "actors/runtime.h"
#include "colocate/weights/version_service.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>

static const struct tdm_bytes no_arguments = {"\x90", 1};

static int64_t timeout_of(const struct tdm__crew *crew)
{
    return (int64_t)crew->spec->update_timeout_ms;
}

static tdm_status ask(struct tdm__crew *crew, const struct tdm__version_request *request,
                      struct tdm__version_answer *answer)
{
    return tdm__version_call(crew->runtime, "policy", request, timeout_of(crew), answer);
}

/* ---- the steps -------------------------------------------------------------------------- */

static tdm_status begin(struct tdm__crew *crew, uint64_t base, uint64_t floor,
                        struct tdm__weight_update *update)
{
    struct tdm__member *members = calloc(crew->engines_count + 1, sizeof(*members));
    struct tdm__version_request request = {.kind = TDM__VERSION_BEGIN,
                                           .update = update->id,
                                           .base = base,
                                           .version_floor = floor,
                                           .source = {.incarnation = 1},
                                           .members = members,
                                           .members_count = crew->engines_count};
    struct tdm__version_answer answer;
    tdm_status status = TDM_OK;

    if (members == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u members", crew->engines_count);
    }
    request.source.actor = crew->runtime->self.id;
    for (uint32_t i = 0; i < crew->engines_count && status == TDM_OK; i++) {
        struct tdm_actor_info info;

        tdm_actor_describe(crew->engines[i], &info);
        members[i].incarnation = 1;
        status = tdm__id_parse(info.id, &members[i].actor);
    }
    if (status == TDM_OK) {
        status = ask(crew, &request, &answer);
    }
    free(members);
    TDM_TRY(status);
    update->epoch = answer.epoch;
    update->version = answer.update_version;
    return TDM_OK;
}

/* A call whose arguments are the update and a number, to all of these actors. */
static tdm_status call_about(struct tdm__crew *crew, tdm_actor *const *actors, uint32_t count,
                             const char *method, const struct tdm__weight_update *update,
                             uint64_t number)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "bu", (const void *)update->id.bytes, sizeof(update->id.bytes),
                      number);
    if (status == TDM_OK) {
        status = tdm__crew_call(crew, actors, count, method, tdm_writer_bytes(writer),
                                timeout_of(crew));
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status stage_file(struct tdm__crew *crew, const struct tdm__weight_update *update,
                             const char *file)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "bus", (const void *)update->id.bytes, sizeof(update->id.bytes),
                      update->epoch, file);
    if (status == TDM_OK) {
        status = tdm__crew_call(crew, crew->engines, crew->engines_count, "stage_file",
                                tdm_writer_bytes(writer), timeout_of(crew));
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status stage_buckets(struct tdm__crew *crew, const struct tdm__weight_update *update)
{
    TDM_TRY(tdm__crew_call(crew, crew->trainers, crew->trainers_count, "take_bucket",
                           no_arguments, timeout_of(crew)));
    return call_about(crew, crew->trainers, crew->trainers_count, "update", update,
                      update->epoch);
}

static tdm_status stage(struct tdm__crew *crew, const char *file,
                        const struct tdm__weight_update *update)
{
    TDM_TRY(tdm__crew_call(crew, crew->engines, crew->engines_count, "take_shadow",
                           no_arguments, timeout_of(crew)));
    TDM_TRY(file != NULL ? stage_file(crew, update, file) : stage_buckets(crew, update));
    return call_about(crew, crew->engines, crew->engines_count, "prepare", update, 0);
}

/* The first outcome stored stays; what is proposed here may not be what comes back. */
static tdm_status decide(struct tdm__crew *crew, struct tdm__weight_update *update,
                         enum tdm__update_outcome proposal)
{
    struct tdm__version_request request = {
        .kind = TDM__VERSION_DECIDE, .update = update->id, .proposal = proposal};
    struct tdm__version_answer answer;

    TDM_TRY(ask(crew, &request, &answer));
    update->decided = true;
    update->committed = answer.outcome == TDM__UPDATE_COMMITTED;
    return TDM_OK;
}

tdm_status tdm__weight_update_run(struct tdm__crew *crew, const char *file, uint64_t base,
                                  uint64_t floor, struct tdm__weight_update *update_out)
{
    struct tdm__weight_update update = {.committed = false};
    char detail[TDM__ERROR_DETAIL_BYTES] = "";
    tdm_status staged;

    *update_out = update;
    TDM_TRY(tdm__id_make(&update.id));
    TDM_TRY(begin(crew, base, floor, &update));
    *update_out = update;
    staged = stage(crew, file, &update);
    if (staged != TDM_OK) {
        (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        tdm__log(TDM__INFO, "update", "version %llu: %s", (unsigned long long)update.version,
                 detail);
    }
    TDM_TRY(
        decide(crew, &update, staged == TDM_OK ? TDM__UPDATE_COMMITTED : TDM__UPDATE_ABORTED));
    *update_out = update;
    if (update.committed) {
        return TDM_OK;
    }
    return staged != TDM_OK
               ? tdm__fail(staged, "%s", detail)
               : tdm__fail(TDM_E_ABORTED, "version %llu was aborted: the members' votes differ",
                           (unsigned long long)update.version);
}

tdm_status tdm__weight_update_finish(struct tdm__crew *crew,
                                     const struct tdm__weight_update *update)
{
    TDM_TRY(update->committed ? call_about(crew, crew->engines, crew->engines_count, "flip",
                                           update, update->version)
                              : tdm__crew_call(crew, crew->engines, crew->engines_count, "drop",
                                               no_arguments, timeout_of(crew)));
    return tdm__crew_call(crew, crew->trainers, crew->trainers_count, "give_bucket",
                          no_arguments, timeout_of(crew));
}
