/* weight_update.c - sends a new version of the weights from the trainers to every engine. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The controller is the source of docs/protocols/commit.md. An update goes through five steps:
 * 1. begin: the store assigns epoch and version;
 * 2. stage: trainers write into shadow copies or buckets, and engines verify;
 * 3. vote: each engine rank reports to the store;
 * 4. decide: the controller proposes, and the store records the first outcome;
 * 5. finish: engines switch to the new version or drop it.
 *
 * Invariants: no rank serves or drops staged weights before the outcome is recorded. An engine rank
 * is recorded as dead only after its process was killed. If the store loses its record,
 * restore_record() writes it again from `source_state`.
 * Trainers send the weights by the transfer plan that they computed before the first update
 * (weight_connect.h, stage_transfer): as slices in the engines' layout, or as whole tensors by
 * name. Or engines read a checkpoint (stage_file). All functions run on the controller's thread and
 * block. */
#include "colocate/job/weight_update.h"

#include "actors/process/runtime.h"
#include "colocate/job/engine_failover.h"
#include "colocate/job/transfer_pair.h"
#include "colocate/job/worker_replies.h"
#include "colocate/weights/version_service.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>

static const struct tdm_bytes no_arguments = {"\x90", 1};

/* How long a request to the store is awaited between two checks of the ranks, in milliseconds; how
 * often engines that did not reach the store are told an outcome again when this process does. */
enum { VERSION_SLICE_MS = 2500, STORE_WAITS_MAX = 3 };

/* Returns the timeout of each call of an update in milliseconds. */
static int64_t timeout_of(const struct tdm__worker_group *workers)
{
    return (int64_t)workers->spec->update_timeout_ms;
}

/* Sends one request to the version service and waits for its reply. Asks again if the store or the
 * daemon does not reply, and checks between whether the daemon and the ranks live. Does not repair
 * a lost record. */
static tdm_status version_request_once(struct tdm__worker_group *workers,
                                       const struct tdm__version_request *request,
                                       struct tdm__version_reply *reply)
{
    int64_t deadline_ms = tdm__deadline_after(timeout_of(workers));
    tdm_status status;

    for (;;) {
        int64_t remaining_ms = tdm__deadline_remaining_ms(deadline_ms);

        status = tdm__version_service_call(
            workers->runtime, workers->spec->update_model, request,
            remaining_ms < VERSION_SLICE_MS ? remaining_ms : VERSION_SLICE_MS, reply);
        if ((status != TDM_E_STORE && status != TDM_E_TIMEOUT) ||
            tdm__deadline_remaining_ms(deadline_ms) == 0) {
            break;
        }
        TDM_TRY(tdm__worker_group_check_liveness(workers));
    }
    if (status == TDM_E_STORE || status == TDM_E_TIMEOUT) {
        return tdm__wrap(status, "the cluster's store has not replied to node %s within %lld ms",
                         workers->runtime->node_name, (long long)timeout_of(workers));
    }
    return status;
}

/* ---- a record that is lost -------------------------------------------------------------- */

/* Returns this process as a member of the update protocol. Its incarnation is always 1. */
static struct tdm__member source_member(const struct tdm__worker_group *workers)
{
    return (struct tdm__member){workers->runtime->self.id, 1};
}

/* Lists the live engine ranks as members of the update protocol; with `only_serving` only those
 * of serving engines. The array has space for the dead members behind them. The caller frees it. */
static tdm_status list_members(const struct tdm__worker_group *workers, bool only_serving,
                               struct tdm__member **members_out, uint32_t *count_out)
{
    size_t most = (size_t)workers->engines_count + workers->dead_count;
    struct tdm__member *members = calloc(most + 1, sizeof(*members));
    tdm_status status = TDM_OK;
    uint32_t count = 0;

    if (members == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%zu members", most);
    }
    for (uint32_t i = 0; i < workers->engines_count && status == TDM_OK; i++) {
        struct tdm_actor_info info;

        if (workers->engines[i] == NULL ||
            (only_serving &&
             !tdm__worker_group_engine_serves(workers, i / workers->ranks_per_engine))) {
            continue;
        }
        tdm_actor_describe(workers->engines[i], &info);
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

/* Writes the record of the versions again from what the store has acknowledged before. */
static tdm_status restore_record(struct tdm__worker_group *workers)
{
    struct tdm__version_request request = tdm__source_state_restore_request(&workers->source_state);
    struct tdm__version_reply reply;
    struct tdm__member *members;
    tdm_status status;

    TDM_TRY(list_members(workers, request.settled, &members, &request.members_count));
    for (uint32_t i = 0; i < workers->dead_count; i++) {
        members[request.members_count++] = workers->dead[i];
    }
    request.members = members;
    request.source = source_member(workers);
    request.dead = workers->dead;
    request.dead_count = workers->dead_count;
    tdm__failpoint_hit("source.restore");
    status = version_request_once(workers, &request, &reply);
    tdm__failpoint_hit("source.restored");
    free(members);
    return status;
}

/* Decides whether a failed request can be repeated. If the store has lost the record, restores
 * the record and returns TDM_OK, or the failure of restoring. Otherwise returns `failed`. */
static tdm_status continue_after_failure(struct tdm__worker_group *workers, tdm_status failed)
{
    const struct tdm__version_request read = {.kind = TDM__VERSION_READ};
    char detail[TDM__ERROR_DETAIL_BYTES];
    struct tdm__version_reply reply;

    if (failed != TDM_E_NOT_FOUND && failed != TDM_E_CONFLICT) {
        return failed;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    if (version_request_once(workers, &read, &reply) != TDM_OK ||
        !tdm__source_state_is_ahead(&workers->source_state, reply.epoch)) {
        return tdm__fail(failed, "%s", detail);
    }
    TDM_TRY(tdm__wrap(restore_record(workers), "the store lost the record of %s",
                      workers->spec->update_model));
    tdm__log(TDM__WARN, "update", "the store lost the record of %s: version %llu is restored",
             workers->spec->update_model, (unsigned long long)workers->source_state.version);
    return TDM_OK;
}

/* Sends a request to the version service. If the store has lost the record, restores it and
 * sends the request once more. */
static tdm_status version_request(struct tdm__worker_group *workers,
                                  const struct tdm__version_request *request,
                                  struct tdm__version_reply *reply)
{
    tdm_status status = version_request_once(workers, request, reply);

    if (status != TDM_OK) {
        TDM_TRY(continue_after_failure(workers, status));
        status = version_request_once(workers, request, reply);
    }
    return status;
}

/* ---- the steps -------------------------------------------------------------------------- */

/* Step 1: begins the update in the store, which assigns epoch and version. Also reports the dead
 * members. */
static tdm_status begin_update(struct tdm__worker_group *workers, uint64_t base, uint64_t floor,
                               struct tdm__weight_update *update)
{
    struct tdm__version_request request = {.kind = TDM__VERSION_BEGIN,
                                           .update = update->id,
                                           .epoch = workers->source_state.epoch,
                                           .base = base,
                                           .version_floor = floor,
                                           .overwrites = tdm__job_updates_overwrite(workers->spec),
                                           .source = source_member(workers),
                                           .dead = workers->dead,
                                           .dead_count = workers->dead_count};
    struct tdm__version_reply reply;
    struct tdm__member *members;
    tdm_status status;

    TDM_TRY(list_members(workers, false, &members, &request.members_count));
    request.members = members;
    status = version_request(workers, &request, &reply);
    free(members);
    TDM_TRY(status);
    workers->dead_count = 0; /* The store has recorded these members as dead. */
    tdm__source_state_on_begin(&workers->source_state, &update->id, reply.epoch,
                               reply.update_version, reply.version, &reply.hash);
    workers->source_state.overwrites = request.overwrites;
    update->epoch = reply.epoch;
    update->version = reply.update_version;
    return TDM_OK;
}

/* Calls a method of all engine ranks with the arguments (update ID, number). */
static tdm_status call_engines(struct tdm__worker_group *workers, const char *method,
                               const struct tdm__weight_update *update, uint64_t number)
{
    const struct tdm__update_number_message message = {update->id, number};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__update_number_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__worker_group_call(workers, workers->engines, workers->engines_count, method,
                                        tdm_writer_bytes(writer), timeout_of(workers));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Makes every engine rank read the new weights from a safetensors file. */
static tdm_status stage_file(struct tdm__worker_group *workers,
                             const struct tdm__weight_update *update, const char *file)
{
    const struct tdm__stage_file_message message = {update->id, update->epoch, file};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__stage_file_encode(&message, writer);
    if (status == TDM_OK) {
        status =
            tdm__worker_group_call(workers, workers->engines, workers->engines_count, "stage_file",
                                   tdm_writer_bytes(writer), timeout_of(workers));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* ---- an update from the trainers -------------------------------------------------------- */

/* What the message of an update is built from: the replies of the ranks. All pointers
 * are borrowed. */
struct transfer_lists {
    /* The worker group, which says which engine ranks are alive. */
    const struct tdm__worker_group *workers;
    /* Replies that say where trainers write: shadow copies of the engine ranks, or buckets of the
     * trainer ranks. */
    const struct tdm__worker_replies *targets;
    /* Replies of the engine ranks that say what valid data their shadow copies already have. */
    const struct tdm__worker_replies *shadows;
};

/* Returns the number of images of the trainers' transfer plan. */
static uint32_t images_count(const struct tdm__worker_group *workers)
{
    return tdm__gather_groups_images(&workers->gather_groups);
}

/* Returns the index of the first live engine rank, from `index` on, that uses the image number
 * `image`. Returns engines_count if no such rank exists. */
static uint32_t find_rank_of_image(const struct tdm__worker_group *workers, uint32_t image,
                                   uint32_t index)
{
    while (index < workers->engines_count &&
           (workers->engines[index] == NULL ||
            tdm__worker_group_image_of_rank(workers, index) != image)) {
        index++;
    }
    return index;
}

/* Getter of a message list: returns the target of an image, nil if all engine ranks that get it are
 * lost. */
static void get_target(const void *arg, uint32_t image, void *item_out)
{
    const struct transfer_lists *transfer_lists = arg;
    const struct tdm__worker_group *workers = transfer_lists->workers;

    if (find_rank_of_image(workers, image, 0) < workers->engines_count) {
        ((struct tdm__message_value *)item_out)->value = tdm__worker_replies_value(
            transfer_lists->targets,
            workers->in_place ? image : tdm__gather_groups_server(&workers->gather_groups, image));
    }
}

/* Returns the resume log that an engine rank has replied; an empty one if it has no data yet. */
static struct tdm__resume_log_message read_resume_log(const struct tdm__worker_replies *shadows,
                                                      uint32_t index)
{
    struct tdm__update_target_message shadow;

    return tdm__update_target_decode(tdm__worker_replies_value(shadows, index), &shadow) ==
                       TDM_OK &&
                   shadow.has_resume_log
               ? shadow.resume_log
               : (struct tdm__resume_log_message){.next = 0};
}

/* Getter of a message list: returns the resume log of an image. It stays empty if the engine ranks
 * that get the image do not have the same data: then they get all of it again. */
static void get_resume_log(const void *arg, uint32_t image, void *item_out)
{
    const struct transfer_lists *transfer_lists = arg;
    const struct tdm__worker_group *workers = transfer_lists->workers;
    struct tdm__resume_log_message *log_out = item_out;
    uint32_t index = find_rank_of_image(workers, image, 0);

    if (index == workers->engines_count) {
        return;
    }
    *log_out = read_resume_log(transfer_lists->shadows, index);
    while ((index = find_rank_of_image(workers, image, index + 1)) < workers->engines_count) {
        struct tdm__resume_log_message other = read_resume_log(transfer_lists->shadows, index);

        if (other.next != log_out->next || other.sums_high != log_out->sums_high ||
            other.sums_low != log_out->sums_low) {
            *log_out = (struct tdm__resume_log_message){.next = 0};
            return;
        }
    }
}

/* Lists the numbers of the live engines, and returns how many they are. */
static uint32_t list_live_engines(const struct tdm__worker_group *workers,
                                  uint32_t numbers[TDM__JOB_ENGINES_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < workers->engines_count; i += workers->ranks_per_engine) {
        if (workers->engines[i] != NULL) {
            numbers[count++] = i / workers->ranks_per_engine;
        }
    }
    return count;
}

/* Calls "update" on the trainers: they write what each image needs to its target and skip what the
 * shadow copies already have. */
static tdm_status send_weights(struct tdm__worker_group *workers,
                               const struct tdm__weight_update *update,
                               const struct tdm__worker_replies *targets,
                               const struct tdm__worker_replies *shadows,
                               struct tdm__worker_replies *contents)
{
    const struct transfer_lists transfer_lists = {workers, targets, shadows};
    uint32_t numbers[TDM__JOB_ENGINES_MAX];
    const struct tdm__trainer_update_message message = {
        .update = update->id,
        .epoch = update->epoch,
        .targets = {.count = images_count(workers), .get = get_target, .arg = &transfer_lists},
        .resume_logs = {.count = images_count(workers),
                        .get = get_resume_log,
                        .arg = &transfer_lists},
        .engines = {.count = list_live_engines(workers, numbers), .items = numbers}};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__trainer_update_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__worker_replies_collect(workers, workers->trainers, workers->trainers_count,
                                             "update", tdm_writer_bytes(writer),
                                             timeout_of(workers), contents);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Makes all engine ranks verify and vote. `contents` is the reply of trainer rank 0, which
 * describes what all trainers have sent. */
static tdm_status prepare_slices(struct tdm__worker_group *workers,
                                 const struct tdm__weight_update *update, const tdm_value *contents)
{
    struct tdm__prepare_slices_message message = {.update = update->id};
    struct tdm__slices_sent_message sent;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__slices_sent_decode(contents, &sent));
    message.hash_high = sent.hash_high;
    message.hash_low = sent.hash_low;
    message.resume_logs = sent.resume_logs;
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__prepare_slices_encode(&message, writer);
    if (status == TDM_OK) {
        status =
            tdm__worker_group_call(workers, workers->engines, workers->engines_count,
                                   "prepare_slices", tdm_writer_bytes(writer), timeout_of(workers));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Gives all engine ranks memory for their shadow copies. They reply where it is and what it
 * already has. */
static tdm_status acquire_shadows(struct tdm__worker_group *workers,
                                  const struct tdm__weight_update *update,
                                  struct tdm__worker_replies *shadows)
{
    const struct tdm__update_number_message message = {update->id, update->epoch};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__update_number_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__worker_replies_collect(workers, workers->engines, workers->engines_count,
                                             "acquire_shadow", tdm_writer_bytes(writer),
                                             timeout_of(workers), shadows);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Stages what the trainers send, by their transfer plan, and lets the engines vote. Trainers write
 * directly into the engines' shadow copies, or into buckets of their own from which the engines
 * copy. */
static tdm_status stage_transfer(struct tdm__worker_group *workers,
                                 const struct tdm__weight_update *update)
{
    struct tdm__worker_replies shadows = {.refs = NULL};
    struct tdm__worker_replies buckets = {.refs = NULL};
    struct tdm__worker_replies contents = {.refs = NULL};
    tdm_status status = tdm__engines_are_remote(workers)
                            ? tdm__transfer_pairs_open_all(workers, &update->id)
                            : TDM_OK;

    if (status == TDM_OK) {
        status = acquire_shadows(workers, update, &shadows);
    }
    if (status == TDM_OK && !workers->in_place) {
        status = tdm__worker_replies_collect(workers, workers->trainers, workers->trainers_count,
                                             "acquire_bucket", no_arguments, timeout_of(workers),
                                             &buckets);
    }
    if (status == TDM_OK) {
        status = send_weights(workers, update, workers->in_place ? &shadows : &buckets, &shadows,
                              &contents);
    }
    if (status == TDM_OK) {
        status = workers->by_slices
                     ? prepare_slices(workers, update, tdm__worker_replies_value(&contents, 0))
                     : call_engines(workers, "prepare", update, 0);
    }
    tdm__worker_replies_fini(&shadows);
    tdm__worker_replies_fini(&buckets);
    tdm__worker_replies_fini(&contents);
    return status;
}

/* Steps 2 and 3: stages the weights in the way that the job uses, and lets the engines vote. */
static tdm_status stage_update(struct tdm__worker_group *workers, const char *file,
                               const struct tdm__weight_update *update)
{
    if (file == NULL) {
        return stage_transfer(workers, update);
    }
    TDM_TRY(tdm__worker_group_call(workers, workers->engines, workers->engines_count,
                                   "acquire_shadow", no_arguments, timeout_of(workers)));
    TDM_TRY(stage_file(workers, update, file));
    return call_engines(workers, "prepare", update, 0);
}

/* Step 4: proposes an outcome. The store keeps the first proposal, so that the recorded outcome
 * may differ from this one. */
static tdm_status decide_update(struct tdm__worker_group *workers,
                                struct tdm__weight_update *update,
                                enum tdm__update_outcome proposal)
{
    struct tdm__version_request request = {.kind = TDM__VERSION_DECIDE,
                                           .update = update->id,
                                           .proposal = proposal,
                                           .dead = workers->dead,
                                           .dead_count = workers->dead_count};
    struct tdm__version_reply reply;

    TDM_TRY(version_request(workers, &request, &reply));
    tdm__source_state_on_decide(&workers->source_state, reply.outcome, reply.version, &reply.hash);
    update->decided = true;
    update->committed = reply.outcome == TDM__UPDATE_COMMITTED;
    return TDM_OK;
}

/* Removes engines that died while the update was staged or, if none has, those that did not reach
 * the store to vote. Does nothing if the user canceled the job. */
static tdm_status remove_dead_engines(struct tdm__worker_group *workers, tdm_status staged,
                                      struct tdm__weight_update *update)
{
    if (staged == TDM_E_CANCELED) {
        return TDM_OK;
    }
    TDM_TRY(tdm__failover_remove_dead_engines(workers, &update->engines_lost));
    return update->engines_lost > 0
               ? TDM_OK
               : tdm__failover_remove_cut_off_engines(workers, &update->engines_lost);
}

tdm_status tdm__weight_update_run(struct tdm__worker_group *workers, const char *file,
                                  uint64_t base, uint64_t floor,
                                  struct tdm__weight_update *update_out)
{
    struct tdm__weight_update update = {.committed = false};
    char detail[TDM__ERROR_DETAIL_BYTES] = "";
    tdm_status staged;

    *update_out = update;
    TDM_TRY(tdm__id_generate(&update.id));
    tdm__failpoint_hit("source.begin");
    TDM_TRY(begin_update(workers, base, floor, &update));
    tdm__failpoint_hit("source.begun");
    *update_out = update;
    staged = stage_update(workers, file, &update);
    if (staged != TDM_OK) {
        (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        workers->transfer_pairs_are_open = false;
        tdm__log(TDM__INFO, "update", "version %llu: %s", (unsigned long long)update.version,
                 detail);
        TDM_TRY(remove_dead_engines(workers, staged, &update));
        *update_out = update;
    }
    tdm__failpoint_hit("source.decide");
    TDM_TRY(decide_update(workers, &update,
                          staged == TDM_OK ? TDM__UPDATE_COMMITTED : TDM__UPDATE_ABORTED));
    *update_out = update;
    tdm__failpoint_hit("source.decided");
    if (update.committed) {
        return TDM_OK;
    }
    return staged != TDM_OK
               ? tdm__fail(staged, "%s", detail)
               : tdm__fail(TDM_E_ABORTED, "version %llu was aborted: the votes differ, or are lost",
                           (unsigned long long)update.version);
}

/* Tells all engine ranks to switch to the committed version, or to drop the aborted one. */
static tdm_status send_outcome(struct tdm__worker_group *workers,
                               const struct tdm__weight_update *update)
{
    return update->committed ? call_engines(workers, "flip", update, update->version)
                             : call_engines(workers, "drop", update, update->epoch);
}

/* Reports the lost engine ranks to the store, so that the update can be completed without them. */
static tdm_status record_dead_engine(struct tdm__worker_group *workers,
                                     const struct tdm__weight_update *update)
{
    struct tdm__version_request request = {.kind = TDM__VERSION_DEAD,
                                           .update = update->id,
                                           .dead = workers->dead,
                                           .dead_count = workers->dead_count};
    struct tdm__version_reply reply;

    return version_request(workers, &request, &reply);
}

/* Decides whether the outcome is sent again after it failed with `failed`. If no engine reached the
 * store, waits until this process does. Otherwise engines are lost, and are reported to the store.
 */
static tdm_status prepare_outcome_again(struct tdm__worker_group *workers,
                                        const struct tdm__weight_update *update, tdm_status failed,
                                        uint32_t *waits_left)
{
    const struct tdm__version_request read = {.kind = TDM__VERSION_READ};
    struct tdm__version_reply reply;
    tdm_status status = continue_after_failure(workers, failed);

    if (status == TDM_OK) {
        return TDM_OK;
    }
    if (status == TDM_E_STORE && tdm__engine_set_is_empty(&workers->cut_off_engines) &&
        *waits_left > 0) {
        (*waits_left)--;
        return version_request(workers, &read, &reply);
    }
    TDM_TRY(tdm__failover_handle_failure(workers, status));
    return record_dead_engine(workers, update);
}

/* Sends the outcome until all surviving engines have confirmed it. An engine that gets it twice
 * only confirms it again. */
static tdm_status send_outcome_to_survivors(struct tdm__worker_group *workers,
                                            const struct tdm__weight_update *update)
{
    uint32_t waits_left = STORE_WAITS_MAX;
    tdm_status status;

    while ((status = send_outcome(workers, update)) != TDM_OK) {
        TDM_TRY(prepare_outcome_again(workers, update, status, &waits_left));
    }
    tdm__source_state_on_settled(&workers->source_state);
    return TDM_OK;
}

tdm_status tdm__weight_update_finish(struct tdm__worker_group *workers,
                                     const struct tdm__weight_update *update)
{
    TDM_TRY(send_outcome_to_survivors(workers, update));
    tdm__failpoint_hit("source.finished");
    if (workers->in_place) {
        return TDM_OK; /* Trainers wrote directly into the engines' memory. */
    }
    return tdm__worker_group_call(workers, workers->trainers, workers->trainers_count,
                                  "release_bucket", no_arguments, timeout_of(workers));
}
