/* engine_actor.c - the class of engine ranks: a library's table, its memory, its versions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/runtime.h"
#include "colocate/job/completions.h"
#include "colocate/job/rank.h"
#include "colocate/job/transfer_pair.h"
#include "colocate/job/transfer_target.h"
#include "colocate/weights/receiver.h"
#include "colocate/weights/version_service.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/messages/messages.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOTE_MS = 10000, SHADOW_MS = 10000 };

struct engine {
    struct tdm__rank rank;            /* first */
    const struct tdm_engine_ops *ops; /* borrowed from the library */
    struct tdm__manifest *manifest;   /* owned, like the rest */
    struct tdm__receiver *receiver;
    struct tdm__transfer_pair
        pair;              /* from the trainer rank of the same number, where that is far */
    tdm_actor **peers;     /* the engine's other ranks, from 1; only its first rank has them */
    uint64_t version;      /* served; 0: none */
    bool voted;            /* and does not know the outcome: serves nothing until it does */
    struct tdm__hash vote; /* the latest */
    struct tdm__hash hash; /* of the version served */
    /* Held by whoever maps, moves or gives up the weights, and by show(), which reads them on
     * another thread: should it take longer than its caller waits, they stay until it is done.
     * generate() only reads, on the thread of all that changes anything. */
    pthread_mutex_t weights;
};

/* ---- life ------------------------------------------------------------------------------- */

static tdm_status engine_open(tdm_call *call, struct engine *engine)
{
    struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX];
    uint32_t count = 0;

    TDM_TRY(tdm__rank_open(&engine->rank, call, "engine"));
    engine->ops = engine->rank.library.jobs->engine;
    TDM_TRY(engine->ops->open(&engine->rank.context, &engine->rank.state));
    TDM_TRY(engine->ops->regions(engine->rank.state, specs, &count));
    return tdm__rank_reserve_regions(&engine->rank, specs, count);
}

static void engine_destruct(void *self)
{
    struct engine *engine = self;

    tdm__transfer_pair_close(&engine->pair);
    tdm__receiver_destroy(engine->receiver);
    tdm__manifest_destroy(engine->manifest);
    for (uint32_t i = 1; engine->peers != NULL && i < engine->rank.context.ranks_count; i++) {
        tdm_actor_destroy(engine->peers[i]);
    }
    free(engine->peers);
    tdm__rank_close(&engine->rank, engine->ops == NULL ? NULL : engine->ops->close);
    (void)pthread_mutex_destroy(&engine->weights);
}

/* What was opened before a failure is closed again: the other ranks learn of it at once. */
static tdm_status engine_construct(tdm_call *call, void *self)
{
    struct engine *engine = self;
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_status status;

    (void)pthread_mutex_init(&engine->weights, NULL);
    status = engine_open(call, engine);
    if (status == TDM_OK) {
        return TDM_OK;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    engine_destruct(self);
    return tdm__fail(status, "%s", detail);
}

/* Has memory for as long as the library needs to look at its addresses. */
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

/* Replies with a message engine_layout. */
static tdm_status reply_layout(tdm_call *call, const struct tdm__layout *layout,
                               const tdm_region *weights)
{
    tdm_writer *writer;
    tdm_writer *packed;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_writer_create(&packed);
    if (status == TDM_OK) {
        status = tdm__layout_encode(layout, tdm_region_address(weights), packed);
        if (status == TDM_OK) {
            const struct tdm__engine_layout_message message = {tdm_region_size(weights),
                                                               tdm_writer_bytes(packed)};

            status = tdm__engine_layout_encode(&message, writer);
        }
        tdm_writer_destroy(packed);
    }
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Where the library keeps what, or is told to; without an answer it wants whole tensors. */
static tdm_status engine_read_layout(tdm_call *call, struct engine *engine,
                                     const tdm_region *weights)
{
    struct tdm__layout layout = {.slices = NULL};

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
    return reply_layout(call, &layout, weights);
}

/* (manifest) → bytes and layout of the weights, or nil */
static tdm_status engine_connect(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__receiver_options options = {.ops = engine->ops,
                                            .state = engine->rank.state,
                                            .regions = engine->rank.regions,
                                            .location = engine->rank.location,
                                            .verify = engine->rank.verify};
    const void *bytes;
    size_t bytes_count;

    TDM_TRY(tdm_call_unpack(call, "b", &bytes, &bytes_count));
    TDM_TRY(tdm__manifest_decode((struct tdm_bytes){bytes, bytes_count}, &engine->manifest));
    options.manifest = engine->manifest;
    TDM_TRY(tdm__rank_find_region(&engine->rank, "weights", &options.weights));
    TDM_TRY(tdm__receiver_create(&options, &engine->receiver));
    return engine_read_layout(call, engine, options.weights);
}

/* (tag or nil) */
static tdm_status engine_resume(tdm_call *call, void *self)
{
    struct engine *engine = self;
    const char *tag;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "s", &tag));
    (void)pthread_mutex_lock(&engine->weights);
    status = tdm__rank_resume_regions(&engine->rank, tag);
    (void)pthread_mutex_unlock(&engine->weights);
    return status;
}

static tdm_status engine_pause(tdm_call *call, void *self)
{
    struct engine *engine = self;
    tdm_status status;

    (void)call;
    (void)pthread_mutex_lock(&engine->weights);
    status = tdm__rank_pause_regions(&engine->rank);
    (void)pthread_mutex_unlock(&engine->weights);
    return status;
}

static tdm_status engine_trace(tdm_call *call, void *self)
{
    return tdm__rank_method_trace(self, call);
}

/* ---- an update -------------------------------------------------------------------------- */

static tdm_status engine_check_connected(const struct engine *engine)
{
    return engine->receiver != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_STATE, "this rank does not know the model's tensors yet");
}

/* update_number → update_target; without arguments nothing is there already */
static tdm_status engine_acquire_shadow(tdm_call *call, void *self)
{
    struct engine *engine = self;
    const tdm_value *arguments = tdm_call_arguments(call);
    int64_t begin_ns = tdm__clock_ns();
    struct tdm__resume_log resume_log = {.next = 0};
    struct tdm__update_number_message message;

    TDM_TRY(engine_check_connected(engine));
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

/* (transfer_pair.h): from the trainer rank of this rank's number */
static tdm_status engine_open_pair(tdm_call *call, void *self)
{
    struct engine *engine = self;

    engine->pair.regions = engine->rank.regions;
    tdm__failpoint_hit("engine.draw");
    TDM_TRY(tdm__transfer_pair_open(&engine->pair, engine->rank.runtime, 1, call));
    tdm__failpoint_hit("engine.drawn");
    return TDM_OK;
}

/* Where trainers are far, what is listed follows on the line. */
static tdm_status stage_handle_list(struct engine *engine, struct tdm_bytes list)
{
    uint64_t come_bytes;

    if (engine->pair.group == NULL) {
        return tdm__receiver_stage_bucket(engine->receiver, list);
    }
    TDM_TRY(tdm__transfer_pair_receive(&engine->pair, &come_bytes));
    return tdm__receiver_stage_bucket_from(engine->receiver, list,
                                           tdm_region_address(engine->pair.bucket), come_bytes);
}

/* Nothing is listed where this rank has nothing in the bucket. */
static tdm_status stage_on_this_rank(struct engine *engine, const tdm_value *list)
{
    int64_t begin_ns = tdm__clock_ns();
    struct tdm_bytes bytes = tdm_value_bytes(list);

    TDM_TRY(engine_check_connected(engine));
    if (bytes.size_bytes == 0) {
        return TDM_OK;
    }
    tdm__failpoint_hit("engine.stage");
    TDM_TRY(stage_handle_list(engine, bytes));
    tdm__failpoint_hit("engine.staged");
    tdm__spans_add(&engine->rank.spans, "stage bucket", begin_ns,
                   tdm__receiver_staged_bytes(engine->receiver),
                   tdm__checksum_tensor(bytes.data, bytes.size_bytes));
    return TDM_OK;
}

/* (list) */
static tdm_status engine_stage_list(tdm_call *call, void *self)
{
    return stage_on_this_rank(self, tdm_value_at(tdm_call_arguments(call), 0));
}

static tdm_status find_peers(struct engine *engine)
{
    uint32_t count = engine->rank.context.ranks_count;

    if (engine->peers != NULL) {
        return TDM_OK;
    }
    engine->peers = calloc(count, sizeof(tdm_actor *));
    if (engine->peers == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u ranks of an engine", count);
    }
    for (uint32_t i = 1; i < count; i++) {
        char name[TDM__RANK_NAME_BYTES];

        tdm__rank_name(name, engine->rank.model, "engine/%u/%u", engine->rank.context.engine, i);
        TDM_TRY(
            tdm_actor_find(engine->rank.runtime, name, engine->rank.timeout_ms, &engine->peers[i]));
    }
    return TDM_OK;
}

static tdm_status forward_to_peers(struct engine *engine, const tdm_value *lists, tdm_ref **refs)
{
    for (uint32_t i = 1; i < engine->rank.context.ranks_count; i++) {
        struct tdm_bytes list = tdm_value_bytes(tdm_value_at(lists, i));

        TDM_TRY(tdm_actor_call(engine->peers[i], "stage_slices", &refs[i], "b", list.data,
                               list.size_bytes));
    }
    return TDM_OK;
}

static tdm_status await_peers(struct engine *engine, tdm_ref **refs, tdm_status status)
{
    for (uint32_t i = 1; i < engine->rank.context.ranks_count; i++) {
        const tdm_value *nothing;

        if (refs[i] != NULL && status == TDM_OK) {
            status = tdm_get_value(refs[i], engine->rank.timeout_ms, &nothing);
        }
        tdm_ref_release(refs[i]);
    }
    return status;
}

/* (list of rank 0, list of rank 1, …): every rank takes its own. */
static tdm_status engine_stage(tdm_call *call, void *self)
{
    struct engine *engine = self;
    const tdm_value *lists = tdm_call_arguments(call);
    tdm_ref **refs;
    tdm_status status;

    if (tdm_value_count(lists) != engine->rank.context.ranks_count) {
        return tdm__fail(TDM_E_PROTOCOL, "%u lists for an engine of %u ranks",
                         tdm_value_count(lists), engine->rank.context.ranks_count);
    }
    TDM_TRY(find_peers(engine));
    refs = calloc(engine->rank.context.ranks_count, sizeof(*refs));
    if (refs == NULL) {
        return tdm__fail(TDM_E_NOMEM, "calls to the other ranks");
    }
    status = forward_to_peers(engine, lists, refs);
    if (status == TDM_OK) {
        status = stage_on_this_rank(engine, tdm_value_at(lists, 0));
    }
    status = await_peers(engine, refs, status);
    free(refs);
    return status;
}

static tdm_status read_update(tdm_call *call, struct tdm__id *update, uint64_t *number)
{
    struct tdm__update_number_message message;

    TDM_TRY(tdm__update_number_decode(tdm_call_arguments(call), &message));
    *update = message.update;
    *number = message.number;
    return TDM_OK;
}

/* stage_file: from disk instead of from buckets */
static tdm_status engine_stage_file(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__stage_file_message message;
    int64_t begin_ns = tdm__clock_ns();

    TDM_TRY(tdm__stage_file_decode(tdm_call_arguments(call), &message));
    TDM_TRY(engine_check_connected(engine));
    TDM_TRY(
        tdm__receiver_stage_file(engine->receiver, &message.update, message.epoch, message.file));
    tdm__spans_add(&engine->rank.spans, "stage file", begin_ns, engine->manifest->size_bytes, 0);
    return TDM_OK;
}

static struct tdm__version_request make_version_request(const struct engine *engine,
                                                        enum tdm__version_request_kind kind,
                                                        const struct tdm__id *update)
{
    struct tdm__version_request request = {
        .kind = kind, .update = *update, .member = {.incarnation = 1}};

    request.member.actor = engine->rank.runtime->self.id;
    return request;
}

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

/* (update id, –): votes for the tensors that it has seen whole */
static tdm_status engine_prepare(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__version_request request;
    struct tdm__id update;
    uint64_t ignored;

    TDM_TRY(read_update(call, &update, &ignored));
    request = make_version_request(engine, TDM__VERSION_PREPARED, &update);
    TDM_TRY(engine_check_connected(engine));
    TDM_TRY(tdm__receiver_prepare(engine->receiver, &update, &request.hash));
    return record_vote(engine, &request);
}

/* prepare_parts: votes for what the sender says its parts are parts of, if it has what the
 * sender says it was sent */
static tdm_status engine_prepare_slices(tdm_call *call, void *self)
{
    struct engine *engine = self;
    const struct tdm_rank_context *context = &engine->rank.context;
    uint32_t index = context->engine * context->ranks_count + context->rank;
    struct tdm__prepare_parts_message message;
    struct tdm__journal_message resume_log = {.next = 0};
    struct tdm__version_request request;
    struct tdm__resume_log sent;

    TDM_TRY(tdm__prepare_parts_decode(tdm_call_arguments(call), &message));
    if (index < message.journals.count) {
        tdm__message_list_read(&message.journals, index, &resume_log, sizeof(resume_log));
    }
    sent = tdm__journal_of_message(&resume_log);
    request = make_version_request(engine, TDM__VERSION_PREPARED, &message.update);
    request.hash.high = message.hash_high;
    request.hash.low = message.hash_low;
    TDM_TRY(engine_check_connected(engine));
    TDM_TRY(tdm__receiver_prepare_sent(engine->receiver, &message.update, &sent));
    return record_vote(engine, &request);
}

static tdm_status report_flip(struct engine *engine, const struct tdm__id *update)
{
    struct tdm__version_request request =
        make_version_request(engine, TDM__VERSION_FLIPPED, update);
    struct tdm__version_reply answer;

    TDM_TRY(tdm__version_service_call(engine->rank.runtime, engine->rank.model, &request, VOTE_MS,
                                      &answer));
    tdm__failpoint_hit("engine.reported");
    return TDM_OK;
}

/* Under the lock.  Who serves the version, and is told again, only reports again: the record
 * may have been lost since. */
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
    engine->version = 0; /* the old one is gone; the new one is served once all this is done */
    tdm__spans_add(&engine->rank.spans, "pause shadow", begin_ns,
                   tdm__receiver_shadow_bytes(engine->receiver), 0);
    TDM_TRY(engine->ops->flush_cache(engine->rank.state));
    TDM_TRY(report_flip(engine, update));
    engine->version = version;
    engine->hash = engine->vote;
    engine->voted = false;
    tdm__spans_add(&engine->rank.spans, "flip", begin_ns, 0, 0);
    return TDM_OK;
}

/* (update id, version): it was committed; serves it from now on */
static tdm_status engine_flip(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__id update;
    uint64_t version;
    tdm_status status;

    TDM_TRY(read_update(call, &update, &version));
    TDM_TRY(engine_check_connected(engine));
    (void)pthread_mutex_lock(&engine->weights);
    status = flip_to_update(engine, &update, version);
    (void)pthread_mutex_unlock(&engine->weights);
    return status;
}

/* (update id, epoch): it was aborted; what was staged is void, the old version serves on */
static tdm_status engine_drop(tdm_call *call, void *self)
{
    struct engine *engine = self;
    int64_t begin_ns = tdm__clock_ns();
    struct tdm__id update;
    uint64_t epoch;

    TDM_TRY(read_update(call, &update, &epoch));
    TDM_TRY(engine_check_connected(engine));
    tdm__failpoint_hit("engine.drop");
    TDM_TRY(tdm__receiver_drop_shadow(engine->receiver, epoch));
    TDM_TRY(tdm__transfer_pair_pause_bucket(&engine->pair));
    engine->voted = tdm__receiver_has_voted(engine->receiver); /* for a later one */
    tdm__spans_add(&engine->rank.spans, "pause shadow", begin_ns,
                   tdm__receiver_shadow_bytes(engine->receiver), 0);
    return TDM_OK;
}

/* ---- without an update ------------------------------------------------------------------ */

/* Under the lock. */
static tdm_status lock_and_export_weights(struct engine *engine,
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

/* → shown_weights, for one that has no weights.  On a thread of its own, since this engine goes
 * on generating. */
static tdm_status engine_export_weights(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__weight_blocks blocks = {.count = 0};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    (void)pthread_mutex_lock(&engine->weights);
    status = lock_and_export_weights(engine, &blocks);
    if (status == TDM_OK) {
        status = write_exported_blocks(writer, engine, &blocks);
    }
    (void)pthread_mutex_unlock(&engine->weights);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

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

/* (what the same rank of an engine that serves has shown): copies that, and serves it once the
 * record knows */
static tdm_status engine_join(tdm_call *call, void *self)
{
    struct engine *engine = self;
    struct tdm__shown_weights_message shown;
    struct tdm__id none = {{0}};
    struct tdm__version_request request = make_version_request(engine, TDM__VERSION_JOIN, &none);
    struct tdm__weight_blocks blocks;
    struct tdm__version_reply answer;
    int64_t begin_ns = tdm__clock_ns();

    TDM_TRY(engine_check_connected(engine));
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
    TDM_TRY(engine->ops->flush_cache(engine->rank.state));
    TDM_TRY(tdm__version_service_call(engine->rank.runtime, engine->rank.model, &request, VOTE_MS,
                                      &answer));
    tdm__failpoint_hit("engine.joined");
    engine->version = request.version;
    engine->hash = request.hash;
    tdm__spans_add(&engine->rank.spans, "join", begin_ns, 0, 0);
    return TDM_OK;
}

/* ---- generate --------------------------------------------------------------------------- */

/* (temperature, tokens_max, [(text, seed) …]) → on the first rank, (version, [completion …]) */
static tdm_status engine_generate(tdm_call *call, void *self)
{
    struct engine *engine = self;
    int64_t begin_ns = tdm__clock_ns();
    struct tdm__generation generation;
    tdm_status status;

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
    return status;
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
                {"stage", engine_stage},
                {"stage_slices", engine_stage_list},
                {"stage_file", engine_stage_file},
                {"prepare", engine_prepare},
                {"prepare_slices", engine_prepare_slices},
                {"flip", engine_flip},
                {"drop", engine_drop},
                {"export_weights", engine_export_weights, "export_weights"},
                {"join", engine_join},
                {"generate", engine_generate},
                {"trace", engine_trace}},
};

__attribute__((constructor)) static void register_engine(void)
{
    tdm_class_register(&engine_class);
}
