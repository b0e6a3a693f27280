/* weight_update.c - a new version of the weights, from the trainers to every engine. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/weight_update.h"

#include "actors/runtime.h"
#include "colocate/job/far.h"
#include "colocate/job/loss.h"
#include "colocate/job/revive.h"
#include "colocate/weights/version_service.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"
#include "runtime/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tdm_bytes no_arguments = {"\x90", 1};

static int64_t timeout_of(const struct tdm__crew *crew)
{
    return (int64_t)crew->spec->update_timeout_ms;
}

static tdm_status ask_once(struct tdm__crew *crew, const struct tdm__version_request *request,
                           struct tdm__version_answer *answer)
{
    return tdm__version_call(crew->runtime, crew->spec->update_model, request, timeout_of(crew),
                             answer);
}

/* ---- a record that is lost -------------------------------------------------------------- */

static struct tdm__member self_of(const struct tdm__crew *crew)
{
    return (struct tdm__member){crew->runtime->self.id, 1};
}

/* The engine ranks that live, and of a version that all serve only those that serve it.  Has
 * room for the dead behind them; the caller frees it. */
static tdm_status list_members(const struct tdm__crew *crew, bool only_serving,
                               struct tdm__member **members_out, uint32_t *count_out)
{
    size_t most = (size_t)crew->engines_count + crew->dead_count;
    struct tdm__member *members = calloc(most + 1, sizeof(*members));
    tdm_status status = TDM_OK;
    uint32_t count = 0;

    if (members == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%zu members", most);
    }
    for (uint32_t i = 0; i < crew->engines_count && status == TDM_OK; i++) {
        struct tdm_actor_info info;

        if (crew->engines[i] == NULL ||
            (only_serving && !tdm__crew_serves(crew, i / crew->per_engine))) {
            continue;
        }
        tdm_actor_describe(crew->engines[i], &info);
        members[count].incarnation = 1;
        status = tdm__id_parse(info.id, &members[count++].actor);
    }
    if (status != TDM_OK) {
        free(members);
        return status;
    }
    *members_out = members;
    *count_out = count;
    return TDM_OK;
}

static tdm_status restore(struct tdm__crew *crew)
{
    struct tdm__version_request request = tdm__standing_restore(&crew->standing);
    struct tdm__version_answer answer;
    struct tdm__member *members;
    tdm_status status;

    TDM_TRY(list_members(crew, request.settled, &members, &request.members_count));
    for (uint32_t i = 0; i < crew->dead_count; i++) {
        members[request.members_count++] = crew->dead[i];
    }
    request.members = members;
    request.source = self_of(crew);
    request.dead = crew->dead;
    request.dead_count = crew->dead_count;
    tdm__step("source.restore");
    status = ask_once(crew, &request, &answer);
    tdm__step("source.restored");
    free(members);
    return status;
}

/* TDM_OK: something was refused because the store has lost the record, which is restored, so
 * that it may be tried again.  Else the failure stays. */
static tdm_status survive_loss(struct tdm__crew *crew, tdm_status failed)
{
    const struct tdm__version_request read = {.kind = TDM__VERSION_READ};
    char detail[TDM__ERROR_DETAIL_BYTES];
    struct tdm__version_answer answer;

    if (failed != TDM_E_NOT_FOUND && failed != TDM_E_CONFLICT) {
        return failed;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    if (ask_once(crew, &read, &answer) != TDM_OK ||
        !tdm__standing_is_ahead(&crew->standing, answer.epoch)) {
        return tdm__fail(failed, "%s", detail);
    }
    TDM_TRY(
        tdm__wrap(restore(crew), "the store lost the record of %s", crew->spec->update_model));
    tdm__log(TDM__WARN, "update", "the store lost the record of %s: version %llu is restored",
             crew->spec->update_model, (unsigned long long)crew->standing.version);
    return TDM_OK;
}

static tdm_status ask(struct tdm__crew *crew, const struct tdm__version_request *request,
                      struct tdm__version_answer *answer)
{
    tdm_status status = ask_once(crew, request, answer);

    if (status != TDM_OK) {
        TDM_TRY(survive_loss(crew, status));
        status = ask_once(crew, request, answer);
    }
    return status;
}

/* ---- the steps -------------------------------------------------------------------------- */

static tdm_status begin(struct tdm__crew *crew, uint64_t base, uint64_t floor,
                        struct tdm__weight_update *update)
{
    struct tdm__version_request request = {.kind = TDM__VERSION_BEGIN,
                                           .update = update->id,
                                           .epoch = crew->standing.epoch,
                                           .base = base,
                                           .version_floor = floor,
                                           .source = self_of(crew),
                                           .dead = crew->dead,
                                           .dead_count = crew->dead_count};
    struct tdm__version_answer answer;
    struct tdm__member *members;
    tdm_status status;

    TDM_TRY(list_members(crew, false, &members, &request.members_count));
    request.members = members;
    status = ask(crew, &request, &answer);
    free(members);
    TDM_TRY(status);
    crew->dead_count = 0; /* the record knows */
    tdm__standing_begun(&crew->standing, &update->id, answer.epoch, answer.update_version,
                        answer.version, &answer.hash);
    update->epoch = answer.epoch;
    update->version = answer.update_version;
    return TDM_OK;
}

/* A call whose arguments are the update and a number, to all engine ranks. */
static tdm_status call_engines(struct tdm__crew *crew, const char *method,
                               const struct tdm__weight_update *update, uint64_t number)
{
    const struct tdm__update_number_message message = {update->id, number};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__update_number_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__crew_call(crew, crew->engines, crew->engines_count, method,
                                tdm_writer_bytes(writer), timeout_of(crew));
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status stage_file(struct tdm__crew *crew, const struct tdm__weight_update *update,
                             const char *file)
{
    const struct tdm__stage_file_message message = {update->id, update->epoch, file};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__stage_file_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__crew_call(crew, crew->engines, crew->engines_count, "stage_file",
                                tdm_writer_bytes(writer), timeout_of(crew));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* ---- calls whose answers matter --------------------------------------------------------- */

struct answers {
    tdm_ref **refs; /* owned */
    uint32_t count;
};

static void answers_fini(struct answers *answers)
{
    if (answers->refs != NULL) {
        tdm__crew_release(answers->refs, answers->count);
        free(answers->refs);
    }
    *answers = (struct answers){.refs = NULL};
}

/* The same call to all that there are; TDM_OK when all have answered well.  Free the answers in
 * any case. */
static tdm_status ask_all(struct tdm__crew *crew, tdm_actor *const *actors, uint32_t count,
                          const char *method, struct tdm_bytes arguments,
                          struct answers *answers)
{
    *answers = (struct answers){.refs = calloc(count + 1, sizeof(tdm_ref *)), .count = count};
    if (answers->refs == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u calls of %s", count, method);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (actors[i] != NULL) {
            TDM_TRY(tdm_actor_call_packed(actors[i], method, arguments, &answers->refs[i]));
        }
    }
    return tdm__crew_await(crew, answers->refs, count, timeout_of(crew));
}

static const tdm_value *answer_of(const struct answers *answers, uint32_t index)
{
    const tdm_value *value = NULL;

    return tdm_get_value(answers->refs[index], 0, &value) == TDM_OK ? value : NULL;
}

/* ---- where engines keep what ------------------------------------------------------------ */

/* Decodes what engine rank `index` replied to connect; false if it has no layout. */
static bool read_layout(const struct answers *layouts, uint32_t index,
                        struct tdm__engine_layout_message *layout_out)
{
    return tdm__engine_layout_decode(answer_of(layouts, index), layout_out) == TDM_OK;
}

static void get_layout(const void *arg, uint32_t index, void *item_out)
{
    struct tdm__engine_layout_message layout;

    if (read_layout(arg, index, &layout)) {
        *(struct tdm_bytes *)item_out = layout.layout;
    }
}

static tdm_status connect_trainers(struct tdm__crew *crew, const struct answers *layouts,
                                   struct tdm__weight_cost *cost_out)
{
    struct answers costs = {.refs = NULL};
    struct tdm__engine_layout_message first = {.weights_bytes = 0};
    struct tdm__trainer_connect_message message = {
        .in_place = crew->in_place,
        .layouts = {.count = layouts->count, .get = get_layout, .arg = layouts}};
    struct tdm__update_cost_message cost;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    message.weights_bytes = read_layout(layouts, 0, &first) ? first.weights_bytes : 0;
    status = tdm__trainer_connect_encode(&message, writer);
    if (status == TDM_OK) {
        status = ask_all(crew, crew->trainers, crew->trainers_count, "connect",
                         tdm_writer_bytes(writer), &costs);
    }
    if (status == TDM_OK) {
        status = tdm__update_cost_decode(answer_of(&costs, 0), &cost);
    }
    if (status == TDM_OK) {
        *cost_out = (struct tdm__weight_cost){.same_gpu_bytes = cost.same_gpu_bytes,
                                              .other_gpu_bytes = cost.other_gpu_bytes,
                                              .copies_max = cost.copies_max,
                                              .buckets_count = cost.buckets_count,
                                              .bucket_bytes = cost.bucket_bytes,
                                              .measured_bytes = cost.measured_bytes};
        crew->window_bytes = cost_out->bucket_bytes;
    }
    answers_fini(&costs);
    tdm_writer_destroy(writer);
    return status;
}

static bool all_have_layouts(const struct answers *layouts)
{
    for (uint32_t i = 0; i < layouts->count; i++) {
        struct tdm__engine_layout_message layout;

        if (!read_layout(layouts, i, &layout)) {
            return false;
        }
    }
    return true;
}

/* Returns the checksum of the layout that engine rank `index` replied; 0 if it has none. */
static uint64_t layout_sum(const struct answers *layouts, uint32_t index)
{
    struct tdm__engine_layout_message message;

    return !read_layout(layouts, index, &message) || message.layout.size_bytes == 0
               ? 0
               : tdm__checksum_tensor(message.layout.data, message.layout.size_bytes);
}

/* For engines that come back. */
static tdm_status keep_manifest(struct tdm__crew *crew, const tdm_value *manifest)
{
    struct tdm_bytes packed;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_value(writer, manifest);
    status = tdm_writer_status(writer);
    packed = tdm_writer_bytes(writer);
    crew->manifest = status == TDM_OK ? malloc(packed.size_bytes) : NULL;
    if (crew->manifest != NULL) {
        memcpy(crew->manifest, packed.data, packed.size_bytes);
        crew->manifest_bytes = packed.size_bytes;
    } else if (status == TDM_OK) {
        status = tdm__fail(TDM_E_NOMEM, "a manifest of %zu bytes", packed.size_bytes);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__weight_update_connect(struct tdm__crew *crew, const tdm_value *manifest,
                                      struct tdm__weight_cost *cost_out)
{
    struct answers layouts = {.refs = NULL};
    tdm_status status;

    memset(cost_out, 0, sizeof(*cost_out));
    TDM_TRY(keep_manifest(crew, manifest));
    status = ask_all(crew, crew->engines, crew->engines_count, "connect",
                     (struct tdm_bytes){crew->manifest, crew->manifest_bytes}, &layouts);
    if (status == TDM_OK) {
        crew->by_parts = strcmp(crew->spec->update_mode, "names") != 0 &&
                         crew->engines_count == crew->trainers_count &&
                         all_have_layouts(&layouts);
        crew->in_place =
            strcmp(crew->spec->update_mode, "donate") == 0 && !tdm__crew_is_far(crew);
        for (uint32_t i = 0; i < crew->engines_count; i++) {
            crew->layouts[i] = layout_sum(&layouts, i);
        }
    }
    if (status == TDM_OK && !crew->by_parts && tdm__crew_is_far(crew)) {
        status =
            tdm__fail(TDM_E_UNSUPPORTED, "engines on GPUs of their own get parts of tensors: "
                                         "they need a layout");
    }
    if (status == TDM_OK && crew->by_parts) {
        status = connect_trainers(crew, &layouts, cost_out);
    }
    answers_fini(&layouts);
    return status;
}

tdm_status tdm__weight_update_connect_again(struct tdm__crew *crew, uint32_t engine)
{
    uint32_t first = engine * crew->per_engine;
    struct answers layouts = {.refs = NULL};
    tdm_status status =
        ask_all(crew, &crew->engines[first], crew->per_engine, "connect",
                (struct tdm_bytes){crew->manifest, crew->manifest_bytes}, &layouts);

    crew->lines_stand = false;
    for (uint32_t i = 0; i < crew->per_engine && status == TDM_OK; i++) {
        if (layout_sum(&layouts, i) != crew->layouts[first + i]) {
            status = tdm__fail(TDM_E_STATE,
                               "engine/%u/%u keeps its weights elsewhere than the one before "
                               "it did, for which trainers have their routes",
                               engine, i);
        }
    }
    answers_fini(&layouts);
    return status;
}

/* ---- by parts --------------------------------------------------------------------------- */

struct parts {
    const struct tdm__crew *crew;
    const struct answers *targets;
    const struct answers *shadows;
};

/* Leaves nil for an engine rank that is absent. */
static void get_target(const void *arg, uint32_t index, void *item_out)
{
    const struct parts *parts = arg;

    if (parts->crew->engines[index] != NULL) {
        ((struct tdm__message_value *)item_out)->value = answer_of(parts->targets, index);
    }
}

/* Leaves an empty journal for an engine rank that is absent or has nothing. */
static void get_journal(const void *arg, uint32_t index, void *item_out)
{
    const struct parts *parts = arg;
    struct tdm__update_target_message shadow;

    if (parts->crew->engines[index] != NULL &&
        tdm__update_target_decode(answer_of(parts->shadows, index), &shadow) == TDM_OK &&
        shadow.has_journal) {
        *(struct tdm__journal_message *)item_out = shadow.journal;
    }
}

/* Where each engine rank's parts go, and what it says it has of them already. */
static tdm_status send_parts(struct tdm__crew *crew, const struct tdm__weight_update *update,
                             const struct answers *targets, const struct answers *shadows,
                             struct answers *contents)
{
    const struct parts parts = {crew, targets, shadows};
    const struct tdm__update_parts_message message = {
        .update = update->id,
        .epoch = update->epoch,
        .targets = {.count = targets->count, .get = get_target, .arg = &parts},
        .journals = {.count = shadows->count, .get = get_journal, .arg = &parts}};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__update_parts_encode(&message, writer);
    if (status == TDM_OK) {
        status = ask_all(crew, crew->trainers, crew->trainers_count, "update_parts",
                         tdm_writer_bytes(writer), contents);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* `contents`: what the first trainer rank says that all have sent. */
static tdm_status prepare_parts(struct tdm__crew *crew, const struct tdm__weight_update *update,
                                const tdm_value *contents)
{
    struct tdm__prepare_parts_message message = {.update = update->id};
    struct tdm__parts_sent_message sent;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__parts_sent_decode(contents, &sent));
    message.hash_high = sent.hash_high;
    message.hash_low = sent.hash_low;
    message.journals = sent.journals;
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__prepare_parts_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__crew_call(crew, crew->engines, crew->engines_count, "prepare_parts",
                                tdm_writer_bytes(writer), timeout_of(crew));
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status take_shadows(struct tdm__crew *crew, const struct tdm__weight_update *update,
                               struct answers *shadows)
{
    const struct tdm__update_number_message message = {update->id, update->epoch};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__update_number_encode(&message, writer);
    if (status == TDM_OK) {
        status = ask_all(crew, crew->engines, crew->engines_count, "take_shadow",
                         tdm_writer_bytes(writer), shadows);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Trainers write where somebody has memory: the engines' shadows or buckets of their own. */
static tdm_status stage_parts(struct tdm__crew *crew, const struct tdm__weight_update *update)
{
    struct answers shadows = {.refs = NULL};
    struct answers buckets = {.refs = NULL};
    struct answers contents = {.refs = NULL};
    tdm_status status = tdm__crew_is_far(crew) ? tdm__lines_make(crew, &update->id) : TDM_OK;

    if (status == TDM_OK) {
        status = take_shadows(crew, update, &shadows);
    }
    if (status == TDM_OK && !crew->in_place) {
        status = ask_all(crew, crew->trainers, crew->trainers_count, "take_bucket",
                         no_arguments, &buckets);
    }
    if (status == TDM_OK) {
        status =
            send_parts(crew, update, crew->in_place ? &shadows : &buckets, &shadows, &contents);
    }
    if (status == TDM_OK) {
        status = prepare_parts(crew, update, answer_of(&contents, 0));
    }
    answers_fini(&shadows);
    answers_fini(&buckets);
    answers_fini(&contents);
    return status;
}

/* ---- by name ---------------------------------------------------------------------------- */

/* Says of each engine whether it is there. */
static void get_present(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm__crew *crew = arg;

    *(bool *)item_out = crew->engines[(size_t)index * crew->per_engine] != NULL;
}

static tdm_status write_update(tdm_writer *writer, const struct tdm__crew *crew,
                               const struct tdm__weight_update *update)
{
    const struct tdm__update_names_message message = {
        .update = update->id,
        .epoch = update->epoch,
        .present = {
            .count = crew->engines_count / crew->per_engine, .get = get_present, .arg = crew}};

    return tdm__update_names_encode(&message, writer);
}

static tdm_status stage_buckets(struct tdm__crew *crew, const struct tdm__weight_update *update)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__crew_call(crew, crew->trainers, crew->trainers_count, "take_bucket",
                           no_arguments, timeout_of(crew)));
    TDM_TRY(tdm_writer_create(&writer));
    status = write_update(writer, crew, update);
    if (status == TDM_OK) {
        status = tdm__crew_call(crew, crew->trainers, crew->trainers_count, "update",
                                tdm_writer_bytes(writer), timeout_of(crew));
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status stage(struct tdm__crew *crew, const char *file,
                        const struct tdm__weight_update *update)
{
    if (file == NULL && crew->by_parts) {
        return stage_parts(crew, update);
    }
    TDM_TRY(tdm__crew_call(crew, crew->engines, crew->engines_count, "take_shadow",
                           no_arguments, timeout_of(crew)));
    TDM_TRY(file != NULL ? stage_file(crew, update, file) : stage_buckets(crew, update));
    return call_engines(crew, "prepare", update, 0);
}

/* The first outcome stored stays; what is proposed here may not be what comes back. */
static tdm_status decide(struct tdm__crew *crew, struct tdm__weight_update *update,
                         enum tdm__update_outcome proposal)
{
    struct tdm__version_request request = {.kind = TDM__VERSION_DECIDE,
                                           .update = update->id,
                                           .proposal = proposal,
                                           .dead = crew->dead,
                                           .dead_count = crew->dead_count};
    struct tdm__version_answer answer;

    TDM_TRY(ask(crew, &request, &answer));
    tdm__standing_decided(&crew->standing, answer.outcome, answer.version, &answer.hash);
    update->decided = true;
    update->committed = answer.outcome == TDM__UPDATE_COMMITTED;
    return TDM_OK;
}

/* Who is to be named dead with the decision. */
static tdm_status find_lost(struct tdm__crew *crew, tdm_status staged,
                            struct tdm__weight_update *update)
{
    return staged == TDM_E_CANCELED ? TDM_OK : tdm__loss_find(crew, &update->engines_lost);
}

tdm_status tdm__weight_update_run(struct tdm__crew *crew, const char *file, uint64_t base,
                                  uint64_t floor, struct tdm__weight_update *update_out)
{
    struct tdm__weight_update update = {.committed = false};
    char detail[TDM__ERROR_DETAIL_BYTES] = "";
    tdm_status staged;

    *update_out = update;
    TDM_TRY(tdm__id_make(&update.id));
    tdm__step("source.begin");
    TDM_TRY(begin(crew, base, floor, &update));
    tdm__step("source.begun");
    *update_out = update;
    staged = stage(crew, file, &update);
    if (staged != TDM_OK) {
        (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        crew->lines_stand = false;
        tdm__log(TDM__INFO, "update", "version %llu: %s", (unsigned long long)update.version,
                 detail);
        TDM_TRY(find_lost(crew, staged, &update));
        *update_out = update;
    }
    tdm__step("source.decide");
    TDM_TRY(
        decide(crew, &update, staged == TDM_OK ? TDM__UPDATE_COMMITTED : TDM__UPDATE_ABORTED));
    *update_out = update;
    tdm__step("source.decided");
    if (update.committed) {
        return TDM_OK;
    }
    return staged != TDM_OK
               ? tdm__fail(staged, "%s", detail)
               : tdm__fail(TDM_E_ABORTED,
                           "version %llu was aborted: the votes differ, or are lost",
                           (unsigned long long)update.version);
}

static tdm_status tell_outcome(struct tdm__crew *crew, const struct tdm__weight_update *update)
{
    return update->committed ? call_engines(crew, "flip", update, update->version)
                             : call_engines(crew, "drop", update, update->epoch);
}

static tdm_status name_dead(struct tdm__crew *crew, const struct tdm__weight_update *update)
{
    struct tdm__version_request request = {.kind = TDM__VERSION_DEAD,
                                           .update = update->id,
                                           .dead = crew->dead,
                                           .dead_count = crew->dead_count};
    struct tdm__version_answer answer;

    return ask(crew, &request, &answer);
}

/* An engine may be told twice: that changes nothing but that it reports again. */
static tdm_status tell_survivors(struct tdm__crew *crew,
                                 const struct tdm__weight_update *update)
{
    tdm_status status;

    while ((status = tell_outcome(crew, update)) != TDM_OK) {
        status = survive_loss(crew, status);
        if (status != TDM_OK) {
            TDM_TRY(tdm__loss_survive(crew, status));
            TDM_TRY(name_dead(crew, update));
        }
    }
    tdm__standing_settled(&crew->standing);
    return TDM_OK;
}

tdm_status tdm__weight_update_finish(struct tdm__crew *crew,
                                     const struct tdm__weight_update *update)
{
    TDM_TRY(tell_survivors(crew, update));
    if (update->committed) {
        tdm__revive_welcome(crew);
    }
    tdm__step("source.finished");
    if (crew->by_parts && crew->in_place) {
        return TDM_OK; /* trainers have no buckets */
    }
    return tdm__crew_call(crew, crew->trainers, crew->trainers_count, "give_bucket",
                          no_arguments, timeout_of(crew));
}
