/* engine_actor.c - the actor class of engine ranks: the library's engine, its memory, its weight
 * versions. */
/* SPDX-License-Identifier: Apache-2.0 */
/* An engine rank serves one version of the weights or none. During an update it stages new
 * weights in a shadow copy (colocate/weights/receiver.h), verifies them and votes. With
 * update.mode "bucket" it has no shadow copy: it stages over the weights that it serves, and serves
 * nothing from the first bucket to the flip. After its vote it must not serve until it learns the
 * outcome: "flip" makes the shadow copy the served weights, "drop" discards it. A restarted engine
 * gets its weights from a peer ("export_weights" on the peer, "join" here) or in the next update.
 * Methods run on the actor's method thread, one at a time. Only "export_weights" has a concurrency
 * group and thread of its own, so that a peer can copy weights while this engine generates.
 * `weights_lock` keeps the weights mapped and unchanged meanwhile.
 * The commit protocol is specified in docs/protocols/commit.md. */
#include "actors/process/runtime.h"
#include "colocate/job/completions.h"
#include "colocate/job/engine.h"
#include "colocate/job/named_layout_slices.h"
#include "colocate/job/transfer_target.h"
#include "colocate/weights/version_service.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest time in milliseconds for a request to the version service, and for getting memory for
 * the shadow copy. */
enum { VOTE_MS = 10000, SHADOW_MS = 10000 };

/* ---- life ------------------------------------------------------------------------------- */

/* Opens the rank and the library, and reserves the regions that the library declares. */
static tdm_status engine_open(tdm_call *call, struct engine *engine)
{
    struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX];
    uint32_t count = 0;

    TDM_TRY(tdm__rank_open(&engine->rank, call, "engine"));
    engine->ops = engine->rank.library.jobs->engine;
    TDM_TRY(engine->ops->open(&engine->rank.context, &engine->rank.state));
    TDM_TRY(engine->ops->regions(engine->rank.state, specs, &count));
    engine->rank.resume_outside = engine->ops->resume;
    engine->rank.pause_outside = engine->ops->pause;
    return tdm__rank_reserve_regions(&engine->rank, specs, count);
}

/* Destructor of the class: releases everything, also after a failed constructor. */
static void engine_destruct(void *self)
{
    struct engine *engine = self;

    tdm__transfer_pair_close(&engine->pair);
    tdm__served_weights_destroy(engine->served);
    tdm__receiver_destroy(engine->receiver);
    tdm__manifest_destroy(engine->manifest);
    for (uint32_t i = 1; engine->peers != NULL && i < engine->rank.context.ranks_count; i++) {
        tdm_actor_destroy(engine->peers[i]);
    }
    free(engine->peers);
    tdm__rank_close(&engine->rank, engine->ops == NULL ? NULL : engine->ops->close);
    (void)pthread_mutex_destroy(&engine->weights_lock);
}

/* Constructor of the class. After a failure everything is closed again, so that the other ranks
 * of the group notice at once. */
static tdm_status engine_construct(tdm_call *call, void *self)
{
    struct engine *engine = self;
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_status status;

    (void)pthread_mutex_init(&engine->weights_lock, NULL);
    status = engine_open(call, engine);
    if (status == TDM_OK) {
        return TDM_OK;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    engine_destruct(self);
    return tdm__fail(status, "%s", detail);
}

/* Method "start": resumes all regions while the library starts, then pauses them. */
static tdm_status engine_start(tdm_call *call, void *self)
{
    struct engine *engine = self;
    void *addresses[TDM_RANK_REGIONS_MAX];

    (void)call;
    TDM_TRY(tdm__rank_resume_regions(&engine->rank, NULL));
    tdm__rank_region_addresses(&engine->rank, addresses);
    TDM_TRY(engine->ops->start(engine->rank.state, addresses));
    return tdm__rank_pause_regions(&engine->rank);
}

/* Gets the layout of this rank from the job file or the library and replies with it. Without a
 * layout the reply is nil, `layout_out` is empty, and the rank gets whole tensors by name. */
static tdm_status engine_read_layout(tdm_call *call, struct engine *engine,
                                     const tdm_region *weights, struct tdm__layout *layout_out)
{
    struct tdm__layout layout = {.slices = NULL};

    *layout_out = layout;
    if (engine->rank.named_layout != NULL) {
        TDM_TRY(tdm__named_layout_build_engine(
            engine->rank.named_layout, tdm_region_address(weights), engine->manifest, &layout));
    } else if (engine->ops->layout == NULL) {
        return TDM_OK;
    } else {
        TDM_TRY(engine->ops->layout(engine->rank.state, engine->manifest->tensors,
                                    engine->manifest->tensors_count, &layout.slices,
                                    &layout.slices_count));
    }
    TDM_TRY(tdm__receiver_set_layout(engine->receiver, &layout));
    *layout_out = layout;
    return tdm__rank_reply_layout(&engine->rank, call, &layout, weights,
                                  tdm__served_weights_converted(engine->manifest, &layout) > 0);
}

/* Creates the record of the weights that are served, if the job compares log-probabilities. */
static tdm_status create_served_weights(struct engine *engine, tdm_region *weights,
                                        const struct tdm__layout *layout)
{
    const struct tdm__served_weights_options options = {
        .manifest = engine->manifest,
        .layout = *layout,
        .weights = weights,
        .device = tdm__regions_device(engine->rank.regions),
        .ops = engine->ops,
        .state = engine->rank.state};
    bool compares;

    TDM_TRY(tdm__rank_compares_logprobs(&engine->rank, &compares));
    return compares ? tdm__served_weights_create(&options, &engine->served) : TDM_OK;
}

/* Method "connect": gets the list of the trainers' tensors, creates the receiver, and replies
 * the layout or nil. */
static tdm_status engine_connect(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__receiver_options options = {
        .ops = engine->ops,
        .state = engine->rank.state,
        .regions = engine->rank.regions,
        .location = engine->rank.location,
        .reads_other_gpus = tdm__gather_groups_images_max(&engine->rank.groups) > 1,
        .verify = engine->rank.verify,
        .overwrites = engine->rank.overwrites};
    struct tdm__model_manifest_message message;
    struct tdm__layout layout;

    TDM_TRY(tdm__model_manifest_decode(tdm_call_arguments(call), &message));
    TDM_TRY(tdm__manifest_from_message(&message, &engine->manifest));
    options.manifest = engine->manifest;
    TDM_TRY(tdm__rank_find_region(&engine->rank, "weights", &options.weights));
    TDM_TRY(tdm__receiver_create(&options, &engine->receiver));
    TDM_TRY(engine_read_layout(call, engine, options.weights, &layout));
    return create_served_weights(engine, options.weights, &layout);
}

/* Method "resume": resumes the regions with the given tag, or all regions if the tag is nil. */
static tdm_status engine_resume(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__resume_regions_message message;
    tdm_status status;

    TDM_TRY(tdm__resume_regions_decode(tdm_call_arguments(call), &message));
    tdm__failpoint_hit("engine.resume");
    (void)pthread_mutex_lock(&engine->weights_lock);
    status = tdm__rank_resume_regions(&engine->rank, message.tag);
    (void)pthread_mutex_unlock(&engine->weights_lock);
    return status;
}

/* Method "pause": pauses all regions. */
static tdm_status engine_pause(tdm_call *call, void *self)
{
    struct engine *engine = self;
    tdm_status status;

    (void)call;
    tdm__failpoint_hit("engine.pause");
    (void)pthread_mutex_lock(&engine->weights_lock);
    status = tdm__rank_pause_regions(&engine->rank);
    (void)pthread_mutex_unlock(&engine->weights_lock);
    return status;
}

/* Method "trace": replies the spans for the trace. */
static tdm_status engine_trace(tdm_call *call, void *self)
{
    tdm__failpoint_hit("engine.trace");
    return tdm__rank_method_trace(self, call);
}

/* ---- an update -------------------------------------------------------------------------- */

/* Method "acquire_shadow": gives the shadow copy its memory and replies where it is. With an
 * update ID and epoch as arguments the reply also says which part of that update is already
 * there after an interruption. Without arguments the reply says that nothing is there. */
static tdm_status engine_acquire_shadow(tdm_call *call, void *self)
{
    struct engine *engine = self;
    const tdm_value *arguments = tdm_call_arguments(call);
    int64_t begin_ns = tdm__clock_ns();
    struct tdm__resume_log resume_log = {.next = 0};
    struct tdm__update_number_message message;

    TDM_TRY(tdm__engine_check_connected(engine));
    tdm__failpoint_hit("engine.acquire_shadow");
    TDM_TRY(tdm__receiver_resume_shadow(engine->receiver, SHADOW_MS));
    TDM_TRY(tdm__transfer_pair_resume_bucket(&engine->pair, SHADOW_MS));
    if (tdm_value_count(arguments) > 0) {
        TDM_TRY(tdm__update_number_decode(arguments, &message));
        TDM_TRY(tdm__receiver_resume_update(engine->receiver, &message.update, message.number,
                                            &resume_log));
    }
    if (resume_log.next > 0) {
        tdm__failpoint_hit("engine.resume_update");
    }
    tdm__spans_add(&engine->rank.spans, "resume shadow", begin_ns,
                   tdm__receiver_shadow_bytes(engine->receiver), resume_log.sums.low);
    return tdm__transfer_target_reply(call, &engine->rank.location,
                                      tdm__receiver_shadow(engine->receiver), &resume_log);
}

/* Method "open_pair": opens the transfer pair to the trainer rank that serves this rank's image
 * (transfer_pair.h). */
static tdm_status engine_open_pair(tdm_call *call, void *self)
{
    struct engine *engine = self;

    engine->pair.regions = engine->rank.regions;
    tdm__failpoint_hit("engine.draw");
    TDM_TRY(tdm__transfer_pair_open(&engine->pair, engine->rank.runtime, 1, call));
    tdm__failpoint_hit("engine.drawn");
    return TDM_OK;
}

/* Decodes the arguments (update ID, number) of a call. */
static tdm_status read_update(tdm_call *call, struct tdm__id *update, uint64_t *number)
{
    struct tdm__update_number_message message;

    TDM_TRY(tdm__update_number_decode(tdm_call_arguments(call), &message));
    *update = message.update;
    *number = message.number;
    return TDM_OK;
}

/* Method "stage_file": stages the weights from a safetensors file instead of from the trainers. */
static tdm_status engine_stage_file(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__stage_file_message message;
    int64_t begin_ns = tdm__clock_ns();
    tdm_status status;

    TDM_TRY(tdm__stage_file_decode(tdm_call_arguments(call), &message));
    TDM_TRY(tdm__engine_check_connected(engine));
    tdm__engine_begin_overwriting(engine);
    status =
        tdm__receiver_stage_file(engine->receiver, &message.update, message.epoch, message.file);
    tdm__engine_end_overwriting(engine);
    TDM_TRY(status);
    tdm__spans_add(&engine->rank.spans, "stage file", begin_ns, engine->manifest->size_bytes, 0);
    return TDM_OK;
}

/* Returns a request of this rank to the version service. */
static struct tdm__version_request init_version_request(const struct engine *engine,
                                                        enum tdm__version_request_kind kind,
                                                        const struct tdm__id *update)
{
    struct tdm__version_request request = {
        .kind = kind, .update = *update, .member = {.incarnation = 1}};

    request.member.actor = engine->rank.runtime->self.id;
    return request;
}

/* Reports the vote to the version service. The rank counts as having voted even if the request
 * fails, because the service may have recorded it. */
static tdm_status record_vote(struct engine *engine, const struct tdm__version_request *request)
{
    struct tdm__version_reply answer;

    engine->voted = true;
    engine->vote = request->hash;
    tdm__failpoint_hit("engine.vote");
    TDM_TRY(tdm__version_service_call(engine->rank.runtime, engine->rank.model, request, VOTE_MS,
                                      &answer));
    tdm__failpoint_hit("engine.voted");
    return TDM_OK;
}

/* Method "prepare" (update by names): verifies that all tensors were staged, and votes for their
 * hash. */
static tdm_status engine_prepare(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__version_request request;
    struct tdm__id update;
    uint64_t ignored;

    TDM_TRY(read_update(call, &update, &ignored));
    request = init_version_request(engine, TDM__VERSION_PREPARED, &update);
    TDM_TRY(tdm__engine_check_connected(engine));
    TDM_TRY(tdm__receiver_prepare(engine->receiver, &update, &request.hash));
    return record_vote(engine, &request);
}

/* Method "prepare_slices" (update by slices): checks that the shadow copy has exactly what the
 * trainers say they sent to this rank, and votes for the hash of the whole model that they
 * computed. */
static tdm_status engine_prepare_slices(tdm_call *call, void *self)
{
    struct engine *engine = self;
    uint32_t index = tdm__engine_image(engine);
    struct tdm__prepare_slices_message message;
    struct tdm__resume_log_message resume_log = {.next = 0};
    struct tdm__version_request request;
    struct tdm__resume_log sent;

    TDM_TRY(tdm__prepare_slices_decode(tdm_call_arguments(call), &message));
    if (index < message.resume_logs.count) {
        tdm__message_list_read(&message.resume_logs, index, &resume_log, sizeof(resume_log));
    }
    sent = tdm__resume_log_of_message(&resume_log);
    request = init_version_request(engine, TDM__VERSION_PREPARED, &message.update);
    request.hash.high = message.hash_high;
    request.hash.low = message.hash_low;
    TDM_TRY(tdm__engine_check_connected(engine));
    TDM_TRY(tdm__receiver_prepare_sent(engine->receiver, &message.update, &sent));
    return record_vote(engine, &request);
}

/* Drops what the library computed from the old weights, and records the checksums of the new ones
 * if the job compares log-probabilities. `tensor_sums` has the checksums of whole tensors, NULL if
 * they are not known. */
static tdm_status begin_serving(struct engine *engine, const uint64_t *tensor_sums)
{
    TDM_TRY(engine->ops->flush_cache(engine->rank.state));
    return engine->served == NULL ? TDM_OK
                                  : tdm__served_weights_record(engine->served, tensor_sums);
}

/* Reports to the version service that this rank serves the update's version. */
static tdm_status report_flip(struct engine *engine, const struct tdm__id *update)
{
    struct tdm__version_request request =
        init_version_request(engine, TDM__VERSION_FLIPPED, update);
    struct tdm__version_reply answer;

    TDM_TRY(tdm__version_service_call(engine->rank.runtime, engine->rank.model, &request, VOTE_MS,
                                      &answer));
    tdm__failpoint_hit("engine.reported");
    return TDM_OK;
}

/* Makes the shadow copy the served weights and reports it. If the rank serves this version
 * already, it only reports again, because the store may have lost its record. The caller must
 * hold `weights_lock`. */
static tdm_status flip_to_update(struct engine *engine, const struct tdm__id *update,
                                 uint64_t version)
{
    int64_t begin_ns = tdm__clock_ns();

    if (version != 0 && engine->version == version) {
        return report_flip(engine, update);
    }
    tdm__failpoint_hit("engine.flip");
    TDM_TRY(tdm__receiver_flip_shadow(engine->receiver, update));
    TDM_TRY(tdm__transfer_pair_pause_bucket(&engine->pair));
    tdm__failpoint_hit("engine.flipped");
    /* The old version is gone. The new one counts as served only after all of the following
     * succeeded. */
    engine->version = 0;
    tdm__spans_add(&engine->rank.spans, "pause shadow", begin_ns,
                   tdm__receiver_shadow_bytes(engine->receiver), 0);
    TDM_TRY(begin_serving(engine, tdm__receiver_tensor_sums(engine->receiver)));
    TDM_TRY(report_flip(engine, update));
    engine->version = version;
    engine->hash = engine->vote;
    engine->voted = false;
    tdm__spans_add(&engine->rank.spans, "flip", begin_ns, 0, 0);
    return TDM_OK;
}

/* Method "flip": the update was committed; serves the new version from now on. */
static tdm_status engine_flip(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__id update;
    uint64_t version;
    tdm_status status;

    TDM_TRY(read_update(call, &update, &version));
    TDM_TRY(tdm__engine_check_connected(engine));
    (void)pthread_mutex_lock(&engine->weights_lock);
    status = flip_to_update(engine, &update, version);
    (void)pthread_mutex_unlock(&engine->weights_lock);
    return status;
}

/* Method "drop": the update was aborted; discards what was staged and continues to serve the old
 * version, unless the update has overwritten it. */
static tdm_status engine_drop(tdm_call *call, void *self)
{
    struct engine *engine = self;
    int64_t begin_ns = tdm__clock_ns();
    struct tdm__id update;
    uint64_t epoch;

    TDM_TRY(read_update(call, &update, &epoch));
    TDM_TRY(tdm__engine_check_connected(engine));
    tdm__failpoint_hit("engine.drop");
    TDM_TRY(tdm__receiver_drop_shadow(engine->receiver, epoch));
    TDM_TRY(tdm__transfer_pair_pause_bucket(&engine->pair));
    /* The receiver may have voted for a later update already. */
    engine->voted = tdm__receiver_has_voted(engine->receiver);
    tdm__spans_add(&engine->rank.spans, "pause shadow", begin_ns,
                   tdm__receiver_shadow_bytes(engine->receiver), 0);
    return TDM_OK;
}

/* ---- without an update ------------------------------------------------------------------ */

/* Method "held_version": replies which version this rank holds; 0 if it has none, or if an update
 * has overwritten it. */
static tdm_status engine_held_version(tdm_call *call, void *self)
{
    const struct tdm__held_version_message message = {((struct engine *)self)->version};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__held_version_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Exports the weights so that another process can map them. Fails unless they are served and
 * resident. The caller must hold `weights_lock`. */
static tdm_status export_served_weights(struct engine *engine,
                                        struct tdm__weight_blocks *blocks_out)
{
    tdm_region *weights;

    if (engine->version == 0 || engine->voted) {
        return tdm__fail(TDM_E_STATE, "this engine serves no version to be copied");
    }
    TDM_TRY(tdm__rank_find_region(&engine->rank, "weights", &weights));
    if (!tdm_region_is_resident(weights)) {
        return tdm__fail(TDM_E_STATE, "this engine's weights are paused");
    }
    tdm__failpoint_hit("engine.export_weights");
    return tdm__receiver_export_weights(engine->receiver, blocks_out);
}

/* Encodes version, hash, and the keys and checksums of the exported blocks. */
static tdm_status write_exported_blocks(tdm_writer *writer, const struct engine *engine,
                                        const struct tdm__weight_blocks *blocks)
{
    const struct tdm__shown_weights_message message = {
        .version = engine->version,
        .hash_high = engine->hash.high,
        .hash_low = engine->hash.low,
        .keys = {.count = blocks->count, .items = blocks->keys},
        .sums = {.count = blocks->count, .items = blocks->sums}};

    return tdm__shown_weights_encode(&message, writer);
}

/* Method "export_weights": exports the weights to an engine that has none. It runs on a thread
 * of its own while this engine continues to generate. */
static tdm_status engine_export_weights(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__weight_blocks blocks = {.count = 0};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    (void)pthread_mutex_lock(&engine->weights_lock);
    status = export_served_weights(engine, &blocks);
    if (status == TDM_OK) {
        status = write_exported_blocks(writer, engine, &blocks);
    }
    (void)pthread_mutex_unlock(&engine->weights_lock);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Decodes the blocks that another engine has exported. TDM_E_PROTOCOL if their number is
 * invalid. */
static tdm_status read_blocks(const struct tdm__shown_weights_message *shown,
                              struct tdm__weight_blocks *blocks)
{
    blocks->count = shown->keys.count;
    if (blocks->count > TDM__DEVICE_BLOCKS_MAX || blocks->count != shown->sums.count) {
        return tdm__fail(TDM_E_PROTOCOL, "a peer's weights of %u blocks, %u sums", blocks->count,
                         shown->sums.count);
    }
    for (uint32_t i = 0; i < blocks->count; i++) {
        tdm__message_list_read(&shown->keys, i, &blocks->keys[i], sizeof(blocks->keys[i]));
        tdm__message_list_read(&shown->sums, i, &blocks->sums[i], sizeof(blocks->sums[i]));
    }
    return TDM_OK;
}

/* Method "join": copies the weights that the same rank of a serving engine has exported, and
 * serves them once the version service has recorded it. */
static tdm_status engine_join(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__shown_weights_message shown;
    struct tdm__id none = {{0}};
    struct tdm__version_request request = init_version_request(engine, TDM__VERSION_JOIN, &none);
    struct tdm__weight_blocks blocks;
    struct tdm__version_reply answer;
    int64_t begin_ns = tdm__clock_ns();

    TDM_TRY(tdm__engine_check_connected(engine));
    if (engine->version != 0 || engine->voted) {
        return tdm__fail(TDM_E_STATE, "this engine serves a version, or is about to");
    }
    TDM_TRY(tdm__shown_weights_decode(tdm_call_arguments(call), &shown));
    request.version = shown.version;
    request.hash.high = shown.hash_high;
    request.hash.low = shown.hash_low;
    TDM_TRY(read_blocks(&shown, &blocks));
    TDM_TRY(tdm__rank_resume_regions(&engine->rank, "weights"));
    tdm__failpoint_hit("engine.pull");
    TDM_TRY(tdm__receiver_pull_weights(engine->receiver, &blocks));
    tdm__failpoint_hit("engine.pulled");
    TDM_TRY(begin_serving(engine, NULL));
    TDM_TRY(tdm__version_service_call(engine->rank.runtime, engine->rank.model, &request, VOTE_MS,
                                      &answer));
    tdm__failpoint_hit("engine.joined");
    tdm__receiver_join(engine->receiver, answer.epoch);
    engine->version = request.version;
    engine->hash = request.hash;
    tdm__spans_add(&engine->rank.spans, "join", begin_ns, 0, 0);
    return TDM_OK;
}

/* ---- generate --------------------------------------------------------------------------- */

/* Method "generate": completes the prompts. All ranks of an engine compute; only rank 0 replies
 * the completions with the version. */
static tdm_status engine_generate(tdm_call *call, void *self)
{
    struct engine *engine = self;
    int64_t begin_ns = tdm__clock_ns();
    struct tdm__generation generation;
    tdm_status status;

    tdm__failpoint_hit("engine.generate");
    if (engine->version == 0) {
        return tdm__fail(TDM_E_STATE, "this engine serves no version yet");
    }
    if (engine->voted) {
        return tdm__fail(TDM_E_STATE, "this engine has voted and waits for the outcome");
    }
    TDM_TRY(tdm__generation_read_request(tdm_call_arguments(call), &generation));
    status = engine->ops->generate(engine->rank.state, generation.prompts, generation.prompts_count,
                                   &generation.sampling, generation.completions);
    if (status == TDM_OK && engine->rank.context.rank == 0) {
        status = tdm__generation_reply(&generation, engine->version, call);
    }
    tdm__generation_fini(&generation);
    tdm__spans_add(&engine->rank.spans, "generate", begin_ns, 0, 0);
    return tdm__rank_check_device(&engine->rank, status);
}

/* ---- compare ---------------------------------------------------------------------------- */

/* Replies what a comparison has found. */
static tdm_status reply_difference(tdm_call *call, const struct tdm__served_difference *difference)
{
    const struct tdm__served_difference_message message = {.tensor = difference->tensor,
                                                           .text = difference->text};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__served_difference_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Method "compare_served": finds the first tensor that is not as the update wrote it. Resumes all
 * regions first. Called when the engine's log-probabilities differ from the trainer's. */
static tdm_status engine_compare_served(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__served_difference difference;
    tdm_status status;

    TDM_TRY(tdm__engine_check_connected(engine));
    if (engine->served == NULL) {
        return tdm__fail(TDM_E_STATE, "update.logprob_tolerance is 0 in this job");
    }
    (void)pthread_mutex_lock(&engine->weights_lock);
    status = tdm__rank_resume_regions(&engine->rank, NULL);
    if (status == TDM_OK) {
        status = tdm__served_weights_compare(engine->served, &difference);
    }
    (void)pthread_mutex_unlock(&engine->weights_lock);
    TDM_TRY(status);
    return reply_difference(call, &difference);
}

static const struct tdm_actor_class engine_class = {
    .name = "tandem.engine",
    .state_bytes = sizeof(struct engine),
    .construct = engine_construct,
    .destruct = engine_destruct,
    .concurrency_groups = {{"export_weights", 1}},
    .methods = {{"start", engine_start},
                {"connect", engine_connect},
                {"resume", engine_resume},
                {"pause", engine_pause},
                {"open_pair", engine_open_pair},
                {"acquire_shadow", engine_acquire_shadow},
                {"stage", tdm__engine_stage},
                {"stage_slices", tdm__engine_stage_slices},
                {"stage_file", engine_stage_file},
                {"prepare", engine_prepare},
                {"prepare_slices", engine_prepare_slices},
                {"flip", engine_flip},
                {"drop", engine_drop},
                {"held_version", engine_held_version},
                {"export_weights", engine_export_weights, "export_weights"},
                {"join", engine_join},
                {"generate", engine_generate},
                {"compare_served", engine_compare_served},
                {"trace", engine_trace}},
};

__attribute__((constructor)) static void register_engine(void)
{
    tdm_class_register(&engine_class);
}
