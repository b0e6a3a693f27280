/* trainer_update.c - the methods of a trainer rank in a weight update. */
/* SPDX-License-Identifier: Apache-2.0 */
/* An update goes chunk by chunk. Each trainer rank executes its part of the transfer plan with the
 * weight writer. In donate mode it writes into the engines' shadow copies. Otherwise it writes into
 * the buckets of the trainer ranks, which have two halves: while engines copy chunk n from one
 * half, trainers write chunk n+1 into the other.
 * After each chunk all trainer ranks agree on their status with an all-reduce, so that either all
 * continue or all stop. The all-reduce also means that engines have read the chunk before, so that
 * its half may be overwritten. A failure that the other ranks cannot learn in this way aborts the
 * collective groups (abort_update).
 * An update by names is one whose engines have each tensor whole (whole_tensors.h). Its buckets
 * have no halves, so that a chunk is written after all engines have read the chunk before.
 * In every mode the ranks that serve one engine describe what they wrote, and their gather group's
 * first rank calls the engine (announcement.h). All methods run on the actor's method thread. The
 * transfer protocol is in docs/transfer-plans.md, the commit protocol in
 * docs/protocols/commit.md. */
#include "colocate/job/trainer_update.h"

#include "colocate/comm/collective.h"
#include "colocate/job/announcement.h"
#include "colocate/job/transfer_target.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest time in milliseconds to wait for memory for a bucket. */
enum { BUCKET_MS = 10000 };

void tdm__trainer_disconnect(struct trainer *trainer)
{
    tdm__weight_writer_destroy(trainer->weight_writer);
    tdm__transfer_plan_destroy(trainer->transfer_plan);
    tdm__whole_tensors_destroy(trainer->whole_tensors);
    for (uint32_t i = 0; trainer->engine_layouts != NULL && i < trainer->rank.context.ranks_count;
         i++) {
        tdm__layout_fini(&trainer->engine_layouts[i]);
    }
    free(trainer->engine_layouts);
    trainer->weight_writer = NULL;
    trainer->transfer_plan = NULL;
    trainer->whole_tensors = NULL;
    trainer->engine_layouts = NULL;
}

/* ---- methods: engines and memory -------------------------------------------------------- */

/* Fails with TDM_E_STATE if the method "start" has not been called. */
static tdm_status trainer_check_started(const struct trainer *trainer)
{
    return trainer->manifest != NULL ? TDM_OK
                                     : tdm__fail(TDM_E_STATE, "this rank has not been started");
}

/* Fails with TDM_E_STATE if the method "connect" has not been called. */
static tdm_status trainer_check_connected(const struct trainer *trainer)
{
    TDM_TRY(trainer_check_started(trainer));
    return trainer->weight_writer != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_STATE, "this rank does not know yet what the engines need");
}

/* Computes the transfer plan from the layouts of both sides. `image_bytes` is the size of an engine
 * rank's weights. */
static tdm_status compile_slices_plan(struct trainer *trainer, uint64_t image_bytes, bool in_place)
{
    const struct tdm__transfer_plan_options transfer_plan = {
        .manifest = trainer->manifest,
        .from = trainer->layouts,
        .from_count = trainer->rank.context.ranks_count,
        .to = trainer->engine_layouts,
        .to_count = trainer->rank.context.ranks_count,
        .from_locations = trainer->locations,
        .to_locations = trainer->locations,
        .image_bytes = image_bytes,
        .chunk_bytes = in_place ? 0 : trainer->rank.bucket_bytes / TDM__BUCKET_HALVES};

    return tdm__transfer_plan_create(&transfer_plan, &trainer->transfer_plan);
}

/* Computes the transfer plan to engines that get whole tensors. */
static tdm_status compile_whole_plan(struct trainer *trainer)
{
    uint32_t ranks_count = trainer->rank.context.ranks_count;

    TDM_TRY(tdm__whole_tensors_create(trainer->manifest, trainer->rank.bucket_bytes, ranks_count,
                                      &trainer->whole_tensors));
    return tdm__whole_tensors_compile_plan(trainer->whole_tensors, trainer->layouts, ranks_count,
                                           trainer->locations, trainer->locations,
                                           &trainer->transfer_plan);
}

/* Returns the first copy of a transfer plan between two nodes, and its image; NULL if there is
 * none. */
static const struct tdm__rect_copy *
find_copy_between_nodes(const struct tdm__transfer_plan *transfer_plan, uint32_t *image_out)
{
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        const struct tdm__transfer_plan_image *image = &transfer_plan->images[i];

        for (uint32_t k = 0; k < image->copies_count; k++) {
            if (image->copies[k].locality == TDM__LOCALITY_OTHER_NODE) {
                *image_out = i;
                return &image->copies[k];
            }
        }
    }
    return NULL;
}

/* Refuses a transfer plan that copies between nodes: trainer ranks write into memory of their own
 * node only. */
static tdm_status check_nodes(const struct trainer *trainer)
{
    const struct tdm__transfer_plan *transfer_plan = trainer->transfer_plan;
    const uint64_t *bytes = transfer_plan->cost.bytes_by_locality;
    uint32_t image = 0;
    const struct tdm__rect_copy *copy = find_copy_between_nodes(transfer_plan, &image);

    if (copy == NULL) {
        return TDM_OK;
    }
    return tdm__fail(TDM_E_UNSUPPORTED,
                     "update of engine/%u/%u failed: no trainer rank on its node has all of the "
                     "tensor %s, and %llu of %llu bytes of an update would come from other nodes. "
                     "Let the trainer ranks of each node hold the whole model, or give the job a "
                     "node with %u GPUs",
                     image / trainer->rank.ranks_per_engine, image % trainer->rank.ranks_per_engine,
                     tdm__transfer_plan_tensor(transfer_plan, image, copy)->name,
                     (unsigned long long)bytes[TDM__LOCALITY_OTHER_NODE],
                     (unsigned long long)(bytes[TDM__LOCALITY_SAME_GPU] +
                                          bytes[TDM__LOCALITY_SAME_NODE] +
                                          bytes[TDM__LOCALITY_OTHER_NODE]),
                     trainer->rank.context.ranks_count);
}

/* Creates the writer that executes the transfer plan for this rank. */
static tdm_status create_weight_writer(struct trainer *trainer, bool in_place)
{
    const struct tdm__weight_writer_options weight_writer = {
        .transfer_plan = trainer->transfer_plan,
        .rank = trainer->rank.context.rank,
        .regions = trainer->rank.regions,
        .group = trainer->rank.group,
        .node = trainer->rank.location.node,
        .in_place = in_place,
        .has_one_half = trainer->whole_tensors != NULL};

    return tdm__weight_writer_create(&weight_writer, &trainer->weight_writer);
}

/* Decodes the layouts of the engine ranks. */
static tdm_status read_engine_layouts(struct trainer *trainer,
                                      const struct tdm__message_list *layouts)
{
    uint32_t count = trainer->rank.context.ranks_count;

    if (layouts->count != count) {
        return tdm__fail(TDM_E_PROTOCOL, "layouts of %u engine ranks for %u trainer ranks",
                         layouts->count, count);
    }
    trainer->engine_layouts = calloc(count, sizeof(*trainer->engine_layouts));
    if (trainer->engine_layouts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "layouts of %u ranks", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct tdm_bytes layout;

        tdm__message_list_read(layouts, i, &layout, sizeof(layout));
        TDM_TRY(tdm__layout_decode(layout, &trainer->engine_layouts[i]));
    }
    return TDM_OK;
}

/* Method "connect": gets the engines' layouts, computes the transfer plan and replies its cost.
 * Without layouts the engines get whole tensors. */
tdm_status tdm__trainer_connect(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    struct tdm__trainer_connect_message message;

    TDM_TRY(trainer_check_started(trainer));
    TDM_TRY(tdm__trainer_connect_decode(tdm_call_arguments(call), &message));
    tdm__trainer_disconnect(trainer);
    if (message.layouts.count == 0) {
        TDM_TRY(compile_whole_plan(trainer));
    } else {
        TDM_TRY(read_engine_layouts(trainer, &message.layouts));
        TDM_TRY(compile_slices_plan(trainer, message.weights_bytes, message.in_place));
    }
    TDM_TRY(check_nodes(trainer));
    TDM_TRY(create_weight_writer(trainer, message.layouts.count > 0 && message.in_place));
    return tdm__transfer_cost_reply(call, trainer->transfer_plan);
}

/* Method "acquire_bucket": gives the staging bucket its memory and replies where it is. */
tdm_status tdm__trainer_acquire_bucket(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    int64_t begin_ns = tdm__clock_ns();
    const tdm_region *bucket;

    tdm__failpoint_hit("trainer.acquire_bucket");
    TDM_TRY(trainer_check_connected(trainer));
    bucket = tdm__weight_writer_bucket(trainer->weight_writer);
    TDM_TRY(tdm__weight_writer_resume_bucket(trainer->weight_writer, BUCKET_MS));
    tdm__spans_add(&trainer->rank.spans, "resume bucket", begin_ns,
                   bucket == NULL ? 0 : tdm_region_size(bucket), 0);
    return bucket == NULL ? TDM_OK
                          : tdm__transfer_target_reply(call, &trainer->rank.location, bucket, NULL);
}

/* Method "release_bucket": frees the memory of the staging bucket, if there is one. */
tdm_status tdm__trainer_release_bucket(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    int64_t begin_ns = tdm__clock_ns();
    const tdm_region *bucket;

    (void)call;
    tdm__failpoint_hit("trainer.release_bucket");
    TDM_TRY(trainer_check_connected(trainer));
    bucket = tdm__weight_writer_bucket(trainer->weight_writer);
    TDM_TRY(tdm__weight_writer_pause_bucket(trainer->weight_writer));
    tdm__spans_add(&trainer->rank.spans, "pause bucket", begin_ns,
                   bucket == NULL ? 0 : tdm_region_size(bucket), 0);
    return TDM_OK;
}

/* Method "detach_engine": releases the handle of the engine's first rank, because the actor was
 * restarted under the same name. */
tdm_status tdm__trainer_detach_engine(tdm_call *call, void *self)
{
    struct trainer *trainer = self;

    (void)call;
    tdm_actor_destroy(trainer->engine);
    trainer->engine = NULL;
    return TDM_OK;
}

/* Makes all trainer ranks agree on the status of a chunk or bucket. If one rank failed, all
 * ranks stop with an error, and the collective group stays usable. No rank continues to write
 * while an engine may still read. Returns the rank's own error if it has one. */
static tdm_status agree_on_status(struct trainer *trainer, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    double worst = status == TDM_OK ? 0 : (double)(trainer->rank.context.rank + 1);
    tdm_status announced;

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    announced = tdm_collective_all_reduce_double(trainer->rank.group, &worst, 1, TDM_MAX);
    if (status != TDM_OK) {
        return tdm__fail(status, "%s", detail);
    }
    TDM_TRY(announced);
    if (worst > 0) {
        return tdm__fail(TDM_E_ABORTED, "trainer rank %d has stopped the update", (int)worst - 1);
    }
    return TDM_OK;
}

/* Aborts the collective groups after an error of this rank alone, so that the other ranks do not
 * wait for it. Returns `status`. */
static tdm_status abort_update(struct trainer *trainer, tdm_status status)
{
    struct tdm__comm *all = tdm__collective_comm(trainer->rank.group);
    struct tdm__comm *gather = tdm__collective_comm(trainer->gather);

    all->ops->abort(all);
    gather->ops->abort(gather);
    return status;
}

/* ---- an update --------------------------------------------------------------------------- */

/* Decodes where to write for each engine rank and maps that memory. `resumes_out` is set to true
 * if an engine rank already has part of the update. */
static tdm_status read_targets(struct trainer *trainer, const struct tdm__message_list *list,
                               const struct tdm__message_list *resume_logs, bool *resumes_out)
{
    uint32_t count = trainer->rank.context.ranks_count;
    struct tdm__transfer_target *targets;
    tdm_status status = TDM_OK;

    if (list->count != count || resume_logs->count != count) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "targets of %u engine ranks and %u resume_logs, there are %u ranks",
                         list->count, resume_logs->count, count);
    }
    targets = calloc(count, sizeof(*targets));
    if (targets == NULL) {
        return tdm__fail(TDM_E_NOMEM, "targets of %u engine ranks", count);
    }
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        struct tdm__message_value target;
        struct tdm__resume_log_message resume_log;

        tdm__message_list_read(list, i, &target, sizeof(target));
        tdm__message_list_read(resume_logs, i, &resume_log, sizeof(resume_log));
        status = tdm__transfer_target_read(target.value, &targets[i]);
        targets[i].resume_log = tdm__resume_log_of_message(&resume_log);
        *resumes_out = *resumes_out || targets[i].resume_log.next > 0;
    }
    if (status == TDM_OK) {
        trainer->engine_absent = targets[trainer->rank.context.rank].absent;
        status = tdm__weight_writer_map_targets(trainer->weight_writer, targets);
    }
    free(targets);
    return status;
}

/* Method "open_pair": opens the transfer pair to the engine rank of the same number
 * (transfer_pair.h). */
tdm_status tdm__trainer_open_pair(tdm_call *call, void *self)
{
    return tdm__transfer_pair_open(&((struct trainer *)self)->pair, tdm_runtime_current(), 0, call);
}

/* One update that is in progress. One chunk may be announced to the engine and not be
 * read yet, while the next one is written. */
struct chunk_transfer {
    /* Borrowed trainer rank. */
    struct trainer *trainer;
    /* Borrowed ID of the update. */
    const struct tdm__id *update;
    /* Epoch of the update. */
    uint64_t epoch;
    /* Owned reference to the engine's pending reply for `announced_chunk`; NULL if no reply is
     * pending. */
    tdm_ref *announced;
    /* Index of the chunk that was announced last. */
    uint32_t announced_chunk;
    /* Status of the last announcement. The other ranks learn it when they next agree. */
    tdm_status announce_status;
};

/* Prefixes the error detail with the number of the chunk. TDM_OK stays TDM_OK. */
static tdm_status wrap_chunk_error(const struct chunk_transfer *transfer, tdm_status status,
                                   uint32_t chunk)
{
    return tdm__wrap(status, "bucket %u of %u", chunk,
                     transfer->trainer->transfer_plan->chunks_count);
}

/* Sends the chunk from the bucket to the remote engine rank of the same number, which has been
 * told to receive it. */
static tdm_status deliver_to_remote(struct trainer *trainer, uint32_t chunk)
{
    const struct tdm__transfer_plan_chunk *about =
        &trainer->transfer_plan->images[trainer->rank.context.rank].chunks[chunk];
    const char *bucket = tdm_region_address(tdm__weight_writer_bucket(trainer->weight_writer));
    const struct tdm__transfer_pair_payload load = {
        .data = bucket + tdm__weight_writer_chunk_offset(trainer->weight_writer, chunk),
        .size_bytes = about->end - about->begin,
        .chunk = chunk};

    return tdm__transfer_pair_deliver(&trainer->pair, &load, &trainer->rank);
}

/* Describes the written chunk for the engine rank of this rank's number: the slices in its memory,
 * or the whole tensors in this rank's bucket, of which `about` gets views. */
static tdm_status describe_chunk(const struct chunk_transfer *transfer, uint32_t chunk,
                                 struct tdm_update_bucket *about, struct tdm_bytes *bytes_out)
{
    struct trainer *trainer = transfer->trainer;
    const tdm_region *bucket = tdm__weight_writer_bucket(trainer->weight_writer);
    const struct tdm__written_bucket written = {.device =
                                                    tdm__regions_device(trainer->rank.regions),
                                                .region = bucket,
                                                .location = &trainer->rank.location,
                                                .update = transfer->update,
                                                .epoch = transfer->epoch,
                                                .index = chunk};

    if (trainer->whole_tensors == NULL) {
        return tdm__weight_writer_describe_chunk(trainer->weight_writer, transfer->update,
                                                 transfer->epoch, chunk, trainer->rank.context.rank,
                                                 bytes_out);
    }
    about->tensors =
        tdm__whole_tensors_views(trainer->whole_tensors, bucket, chunk, &about->tensors_count);
    return tdm__whole_tensors_describe(trainer->whole_tensors, &written, bytes_out);
}

/* Describes the written chunk for the engine rank of this rank's number and announces it with the
 * gather group. An engine with GPUs of its own then gets the bytes. A rank that cannot describe its
 * part gives an empty description, so that its group goes on until all ranks agree. */
static tdm_status announce_chunk(struct chunk_transfer *transfer, uint32_t chunk)
{
    struct trainer *trainer = transfer->trainer;
    struct tdm_update_bucket about = {.index = chunk,
                                      .buckets_count = trainer->transfer_plan->chunks_count};
    struct tdm_bytes description = {.size_bytes = 0};
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_status described = TDM_OK;
    tdm_status status;

    transfer->announced_chunk = chunk;
    if (!trainer->engine_absent) {
        described = describe_chunk(transfer, chunk, &about, &description);
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    status = tdm__announcement_send(trainer, &about, description, &transfer->announced);
    if (status == TDM_OK && trainer->pair.group != NULL && description.size_bytes > 0) {
        status = deliver_to_remote(trainer, chunk);
    }
    status = described == TDM_OK ? status : tdm__fail(described, "%s", detail);
    return wrap_chunk_error(transfer, status, chunk);
}

/* Waits for the reply to the announced chunk. On return the engine no longer reads it. If
 * `status` is already an error, it is returned with its detail. */
static tdm_status await_announced(struct chunk_transfer *transfer, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_ref *announced = transfer->announced;

    transfer->announced = NULL;
    if (announced == NULL) {
        return status;
    }
    if (status == TDM_OK) {
        return wrap_chunk_error(transfer, tdm__announcement_await(transfer->trainer, announced),
                                transfer->announced_chunk);
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    (void)tdm__announcement_await(transfer->trainer, announced);
    return tdm__fail(status, "%s", detail);
}

/* Adds spans to the trace: the bytes that went to the same GPU, to other GPUs and to other
 * nodes. */
static void record_write_span(struct trainer *trainer, uint32_t chunk, int64_t begin_ns)
{
    static const char *const ends[TDM__LOCALITIES_COUNT] = {"same GPU", "other GPUs",
                                                            "other nodes"};
    const struct tdm__transfer_totals *moved =
        tdm__weight_writer_last_totals(trainer->weight_writer);
    struct tdm__span span = {.begin_ns = begin_ns};

    (void)snprintf(span.name, sizeof(span.name), "write bucket %u", chunk);
    (void)snprintf(span.from, sizeof(span.from), "trainer/%u", trainer->rank.context.rank);
    for (uint32_t edge = 0; edge < TDM__LOCALITIES_COUNT; edge++) {
        if (moved->bytes[edge] > 0) {
            (void)snprintf(span.to, sizeof(span.to), "%s", ends[edge]);
            span.bytes = moved->bytes[edge];
            span.checksum = moved->sums[edge];
            tdm__spans_add_transfer(&trainer->rank.spans, &span);
        }
    }
}

/* Writes this rank's part of the chunk to the targets. */
static tdm_status write_chunk(struct chunk_transfer *transfer, uint32_t chunk)
{
    struct trainer *trainer = transfer->trainer;
    int64_t begin_ns = tdm__clock_ns();

    TDM_TRY(wrap_chunk_error(transfer,
                             tdm__weight_writer_write_chunk(trainer->weight_writer, chunk), chunk));
    record_write_span(trainer, chunk, begin_ns);
    return TDM_OK;
}

/* Computes and shares the checksums of a chunk that all its engine ranks already have, without
 * sending it. Engine ranks that still read another chunk have no part of this one. */
static tdm_status skip_chunk(struct chunk_transfer *transfer, uint32_t chunk)
{
    struct tdm__weight_writer *weight_writer = transfer->trainer->weight_writer;

    tdm__failpoint_hit("trainer.skip");
    TDM_TRY(
        wrap_chunk_error(transfer, tdm__weight_writer_write_chunk(weight_writer, chunk), chunk));
    return wrap_chunk_error(transfer, tdm__weight_writer_share_sums(weight_writer, chunk), chunk);
}

/* Waits until all engines have read the chunk before, if the next chunk is written over it. */
static tdm_status await_room(struct chunk_transfer *transfer, uint32_t chunk)
{
    return transfer->trainer->whole_tensors == NULL || chunk == 0
               ? TDM_OK
               : agree_on_status(transfer->trainer,
                                 await_announced(transfer, transfer->announce_status));
}

/* Exchanges the checksums of a chunk's slices, which ranks describe for each other. Each rank
 * computes those of whole tensors itself, from the bytes in its bucket. */
static tdm_status share_sums(const struct trainer *trainer, uint32_t chunk)
{
    return trainer->whole_tensors != NULL
               ? TDM_OK
               : tdm__weight_writer_share_sums(trainer->weight_writer, chunk);
}

/* Writes one chunk and announces it. Meanwhile engines may read the chunk before from the other
 * half of the buckets. When all ranks have agreed, they have finished, and that half may be
 * overwritten. */
static tdm_status transfer_chunk(struct chunk_transfer *transfer, uint32_t chunk)
{
    struct trainer *trainer = transfer->trainer;
    tdm_status status;

    if (tdm__weight_writer_chunk_is_held(trainer->weight_writer, chunk)) {
        return skip_chunk(transfer, chunk);
    }
    TDM_TRY(await_room(transfer, chunk));
    tdm__failpoint_hit("trainer.write");
    status = transfer->announce_status;
    status = status == TDM_OK ? write_chunk(transfer, chunk) : status;
    TDM_TRY(agree_on_status(trainer, await_announced(transfer, status)));
    status = share_sums(trainer, chunk);
    tdm__failpoint_hit("trainer.written");
    if (status != TDM_OK) {
        return abort_update(trainer, wrap_chunk_error(transfer, status, chunk));
    }
    transfer->announce_status = announce_chunk(transfer, chunk);
    return TDM_OK;
}

/* Maps the targets of all ranks and agrees on the status: if an engine just died, its memory
 * cannot be mapped, but the trainers continue to work together. If the update resumes, finds out
 * what engine ranks already have. */
static tdm_status open_targets(struct trainer *trainer, const struct tdm__message_list *targets,
                               const struct tdm__message_list *resume_logs)
{
    /* The value is the same on all ranks, because all get the same message. */
    bool resumes = false;

    TDM_TRY(agree_on_status(trainer, read_targets(trainer, targets, resume_logs, &resumes)));
    if (!resumes) {
        return TDM_OK;
    }
    tdm__failpoint_hit("trainer.find_held");
    return tdm__weight_writer_find_held(trainer->weight_writer);
}

/* Exchanges the scales of FP8 blocks that several trainer ranks share. The scale depends on the
 * elements of all of them. */
static tdm_status share_scales(struct trainer *trainer)
{
    tdm_status status;

    if (!tdm__weight_writer_shares_blocks(trainer->weight_writer)) {
        return TDM_OK;
    }
    TDM_TRY(agree_on_status(trainer, tdm__weight_writer_find_scales(trainer->weight_writer)));
    status = tdm__weight_writer_share_scales(trainer->weight_writer);
    return status == TDM_OK ? TDM_OK : abort_update(trainer, status);
}

/* Transfers all chunks. On return, with success or failure, no engine reads memory of this rank,
 * and no target is mapped. */
static tdm_status transfer_all_chunks(struct trainer *trainer, const struct tdm__id *update,
                                      uint64_t epoch,
                                      const struct tdm__trainer_update_message *message)
{
    struct chunk_transfer transfer = {.trainer = trainer, .update = update, .epoch = epoch};
    tdm_status status = open_targets(trainer, &message->targets, &message->resume_logs);

    status = status == TDM_OK ? share_scales(trainer) : status;
    for (uint32_t i = 0; i < trainer->transfer_plan->chunks_count && status == TDM_OK; i++) {
        status = transfer_chunk(&transfer, i);
    }
    status = status == TDM_OK
                 ? agree_on_status(trainer, await_announced(&transfer, transfer.announce_status))
                 : await_announced(&transfer, status);
    tdm__weight_writer_unmap_targets(trainer->weight_writer);
    return status;
}

/* Method "update": sends one update. Rank 0 replies the hash of the contents and the resume logs,
 * which say nothing of whole tensors. */
tdm_status tdm__trainer_update(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    struct tdm__trainer_update_message message;

    TDM_TRY(trainer_check_connected(trainer));
    TDM_TRY(tdm__trainer_update_decode(tdm_call_arguments(call), &message));
    TDM_TRY(transfer_all_chunks(trainer, &message.update, message.epoch, &message));
    return trainer->rank.context.rank == 0
               ? tdm__transfer_result_reply(call, trainer->weight_writer,
                                            trainer->rank.context.ranks_count)
               : TDM_OK;
}
