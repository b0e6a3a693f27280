/* trainer_update.c - the methods of a trainer rank in a weight update. */
/* SPDX-License-Identifier: Apache-2.0 */
/* An update goes chunk by chunk. Each trainer rank executes its part of the transfer plan with the
 * weight writer. In donate mode it writes into the engines' shadow copies. Otherwise it writes into
 * the buckets of the trainer ranks, which have two halves: while engines copy chunk n from one
 * half, trainers write chunk n+1 into the other.
 * After each chunk all trainer ranks agree on their status (trainer_agreement.h), so that either
 * all continue or all stop. It also means that engines have read the chunk before, so that its half
 * may be overwritten. A failure that the other ranks cannot learn in this way aborts the collective
 * groups (abort_update).
 * An update by names is one whose engines have each tensor whole (whole_tensors.h). Its buckets
 * have no halves, so that a chunk is written after all engines have read the chunk before.
 * In every mode each rank describes what it wrote (chunk_description.h), and the first rank of each
 * engine's gather group calls the engine (announcement.h).
 * If the trainer ranks are on several nodes, what an engine rank wants from other nodes is
 * exchanged in rounds (node_exchange.h) while the chunk is written.
 * All ranks take part in these collective operations:
 * - one agreement before the first chunk, and one at the end;
 * - one agreement and the all-reduce of the scales, if FP8 blocks are shared;
 * - one agreement for each chunk that is not skipped, and in an update by names one more before the
 *   chunk is written;
 * - for each round an agreement, and the exchanges of the pieces and of their checksums.
 * Beside these, each gather group gathers sizes and announcements once for each chunk that is not
 * skipped. All methods run on the actor's method thread. The
 * transfer protocol is in docs/transfer-plans.md, the commit protocol in docs/protocols/commit.md.
 */
#include "colocate/job/trainer_update.h"

#include "colocate/comm/collective.h"
#include "colocate/job/announcement.h"
#include "colocate/job/chunk_description.h"
#include "colocate/job/exchange_round.h"
#include "colocate/job/trainer_agreement.h"
#include "colocate/job/trainer_plan.h"
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

/* Method "connect": gets the engines' layouts, computes the transfer plan and replies its cost.
 * Without layouts the engines get whole tensors. */
tdm_status tdm__trainer_connect(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    struct tdm__trainer_connect_message message;

    TDM_TRY(trainer_check_started(trainer));
    TDM_TRY(tdm__trainer_connect_decode(tdm_call_arguments(call), &message));
    tdm__trainer_plan_destroy(trainer);
    TDM_TRY(tdm__trainer_plan_create(trainer, &message));
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

/* Method "detach_engine": releases the handles of engines, because an actor was restarted under the
 * same name. */
tdm_status tdm__trainer_detach_engine(tdm_call *call, void *self)
{
    (void)call;
    tdm__served_engines_detach(&((struct trainer *)self)->engines);
    return TDM_OK;
}

/* Aborts a collective group; NULL is allowed. */
static void abort_group(tdm_collective_group *group)
{
    if (group != NULL) {
        struct tdm__comm *comm = tdm__collective_comm(group);

        comm->ops->abort(comm);
    }
}

/* Aborts the collective groups after an error of this rank alone, so that the other ranks do not
 * wait for it. Returns `status`. */
static tdm_status abort_update(struct trainer *trainer, tdm_status status)
{
    abort_group(trainer->rank.group);
    abort_group(trainer->gather);
    abort_group(trainer->exchange);
    return status;
}

/* ---- an update --------------------------------------------------------------------------- */

/* Returns true if an engine rank already has part of the update. */
static bool has_resume_log(const struct tdm__message_list *resume_logs)
{
    for (uint32_t i = 0; i < resume_logs->count; i++) {
        struct tdm__resume_log_message resume_log;

        tdm__message_list_read(resume_logs, i, &resume_log, sizeof(resume_log));
        if (resume_log.next > 0) {
            return true;
        }
    }
    return false;
}

/* Decodes where to write each image and maps that memory. */
static tdm_status read_targets(struct trainer *trainer, const struct tdm__message_list *list,
                               const struct tdm__message_list *resume_logs)
{
    uint32_t count = trainer->transfer_plan->to_count;
    struct tdm__transfer_target *targets;
    tdm_status status = TDM_OK;

    if (list->count != count || resume_logs->count != count) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "targets of %u engine ranks and %u resume_logs, there are %u images",
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
    }
    if (status == TDM_OK) {
        status = tdm__weight_writer_map_targets(trainer->weight_writer, targets);
    }
    free(targets);
    return status;
}

/* Method "open_pair": opens the transfer pair to an engine rank whose image this rank serves
 * (transfer_pair.h). */
tdm_status tdm__trainer_open_pair(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    struct tdm__open_pair_message message;
    struct tdm__served_engine *engine;
    struct tdm__transfer_pair *pair;

    TDM_TRY(tdm__open_pair_decode(tdm_call_arguments(call), &message));
    TDM_TRY(tdm__served_engines_find(&trainer->engines, message.engine, &engine));
    TDM_TRY(tdm__served_engine_add_pair(engine, message.engine_rank, &pair));
    return tdm__transfer_pair_open(pair, tdm_runtime_current(), 0, call);
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

/* Sends the chunk of an image from the bucket to the rank of each remote engine that has the image
 * and has been told to receive it. A failure does not keep the chunk from the other engines, which
 * wait for it. Notes the first failure. */
static void deliver_image(struct trainer *trainer, uint32_t chunk, uint32_t image,
                          struct tdm__first_failure *failure)
{
    const struct tdm__transfer_plan_chunk *about =
        &trainer->transfer_plan->images[image].chunks[chunk];
    const char *bucket = tdm_region_address(tdm__weight_writer_bucket(trainer->weight_writer));
    struct tdm__transfer_pair_payload load = {
        .data = bucket + tdm__weight_writer_chunk_offset(trainer->weight_writer, chunk, image),
        .size_bytes = about->end - about->begin,
        .chunk = chunk,
        .engine_rank = image % trainer->rank.groups.ranks_per_engine};

    for (uint32_t i = 0; i < trainer->engines.count; i++) {
        const struct tdm__served_engine *engine = &trainer->engines.items[i];
        struct tdm__transfer_pair *pair = tdm__served_engine_pair(engine, load.engine_rank);

        if (tdm__announcement_is_told(trainer, engine) && pair != NULL) {
            load.engine = engine->number;
            tdm__first_failure_note(failure,
                                    tdm__transfer_pair_deliver(pair, &load, &trainer->rank));
        }
    }
}

/* Sends the chunk of each image that this rank serves and that has a part of it. Returns the first
 * failure. */
static tdm_status deliver_to_remote(struct trainer *trainer, uint32_t chunk)
{
    struct tdm__first_failure failure = {TDM_OK, ""};
    const struct tdm__gather_groups *groups = &trainer->rank.groups;
    uint32_t first = tdm__gather_groups_first_image(groups, trainer->rank.context.rank);
    uint32_t end = first + tdm__gather_groups_images_of(groups, trainer->rank.context.rank);

    for (uint32_t image = first; image < end; image++) {
        if (tdm__weight_writer_has_part(trainer->weight_writer, chunk, image)) {
            deliver_image(trainer, chunk, image, &failure);
        }
    }
    return tdm__first_failure_return(&failure);
}

/* Describes the written chunk for the engines of this rank's gather group and announces it with the
 * group. Engines with GPUs of their own then get the bytes. A rank that cannot describe its part
 * gives nothing, so that its group goes on until all ranks agree. */
static tdm_status announce_chunk(struct chunk_transfer *transfer, uint32_t chunk)
{
    struct trainer *trainer = transfer->trainer;
    const struct tdm__written_chunk written = {transfer->update, transfer->epoch, chunk};
    struct tdm__first_failure failure = {TDM_OK, ""};
    bool is_told;

    transfer->announced_chunk = chunk;
    tdm__first_failure_note(&failure, tdm__chunk_describe_for_group(trainer, &written));
    tdm__first_failure_note(&failure,
                            tdm__announcement_send(trainer, chunk, &trainer->for_gather, &is_told));
    if (is_told) {
        tdm__first_failure_note(&failure, deliver_to_remote(trainer, chunk));
    }
    return wrap_chunk_error(transfer, tdm__first_failure_return(&failure), chunk);
}

/* Waits for the replies to the announced chunk. On return no engine reads it any longer. If
 * `status` is already an error, it is returned with its detail. */
static tdm_status await_announced(struct chunk_transfer *transfer, tdm_status status)
{
    struct tdm__first_failure failure = {TDM_OK, ""};

    tdm__first_failure_note(&failure, status);
    tdm__first_failure_note(&failure,
                            wrap_chunk_error(transfer, tdm__announcement_await(transfer->trainer),
                                             transfer->announced_chunk));
    return tdm__first_failure_return(&failure);
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

/* Exchanges with all other ranks what of the chunk comes from other nodes, round by round, after
 * this rank has written what it holds with the result `status`. Before each round all ranks agree
 * on their status, so that a rank that has failed is not waited for. */
static tdm_status exchange_chunk(struct chunk_transfer *transfer, uint32_t chunk, tdm_status status)
{
    struct trainer *trainer = transfer->trainer;
    uint32_t rounds_count = tdm__weight_writer_rounds_count(trainer->weight_writer, chunk);

    for (uint32_t i = 0; i < rounds_count; i++) {
        struct tdm__exchange_round round;

        TDM_TRY(tdm__trainer_agree(trainer, status));
        tdm__failpoint_hit("trainer.exchange");
        tdm__weight_writer_begin_round(trainer->weight_writer, chunk, i, &round);
        status = tdm__exchange_round_run(trainer->exchange, &round);
        if (status != TDM_OK) {
            return abort_update(trainer, status); /* The group has ended for all ranks. */
        }
        status = wrap_chunk_error(
            transfer, tdm__weight_writer_end_round(trainer->weight_writer, chunk, i), chunk);
    }
    return status;
}

/* Writes this rank's part of the chunk to the targets, unless this rank has failed with `status`
 * before. */
static tdm_status write_chunk(struct chunk_transfer *transfer, uint32_t chunk, tdm_status status)
{
    struct trainer *trainer = transfer->trainer;
    int64_t begin_ns = tdm__clock_ns();

    if (status == TDM_OK) {
        status = wrap_chunk_error(
            transfer, tdm__weight_writer_write_chunk(trainer->weight_writer, chunk), chunk);
    }
    TDM_TRY(exchange_chunk(transfer, chunk, status));
    record_write_span(trainer, chunk, begin_ns);
    return TDM_OK;
}

/* Counts the known checksums of a chunk that all its engine ranks already have, without sending
 * it. Engine ranks that still read another chunk have no part of this one. */
static tdm_status skip_chunk(struct chunk_transfer *transfer, uint32_t chunk)
{
    struct tdm__weight_writer *weight_writer = transfer->trainer->weight_writer;

    tdm__failpoint_hit("trainer.skip");
    return wrap_chunk_error(transfer, tdm__weight_writer_write_chunk(weight_writer, chunk), chunk);
}

/* Waits until all engines have read the chunk before, if the next chunk is written over it. */
static tdm_status await_room(struct chunk_transfer *transfer, uint32_t chunk)
{
    return transfer->trainer->whole_tensors == NULL || chunk == 0
               ? TDM_OK
               : tdm__trainer_agree(transfer->trainer,
                                    await_announced(transfer, transfer->announce_status));
}

/* Writes one chunk and announces it. Meanwhile engines may read the chunk before from the other
 * half of the buckets. When all ranks have agreed, they have finished, and that half may be
 * overwritten. */
static tdm_status transfer_chunk(struct chunk_transfer *transfer, uint32_t chunk)
{
    struct trainer *trainer = transfer->trainer;
    const struct tdm__written_chunk written = {transfer->update, transfer->epoch, chunk};
    tdm_status status;

    if (tdm__weight_writer_chunk_is_held(trainer->weight_writer, chunk)) {
        return skip_chunk(transfer, chunk);
    }
    TDM_TRY(await_room(transfer, chunk));
    tdm__failpoint_hit("trainer.write");
    status = write_chunk(transfer, chunk, transfer->announce_status);
    status = status == TDM_OK ? tdm__chunk_describe_for_others(trainer, &written) : status;
    TDM_TRY(tdm__trainer_agree_on_chunk(trainer, await_announced(transfer, status), chunk,
                                        &trainer->for_others));
    tdm__failpoint_hit("trainer.written");
    transfer->announce_status = announce_chunk(transfer, chunk);
    return TDM_OK;
}

/* Acquires memory for an exchange between nodes, if there is one and no bucket. Maps the targets of
 * this rank and agrees with all ranks on the status. If an engine just died, its memory cannot be
 * mapped, but the trainers continue to work together. If the update resumes, the ranks also find
 * out what engine ranks already have. */
static tdm_status open_targets(struct trainer *trainer, const struct tdm__message_list *targets,
                               const struct tdm__message_list *resume_logs)
{
    const uint64_t *claims;
    tdm_status status = tdm__weight_writer_resume_bucket(trainer->weight_writer, BUCKET_MS);

    status = status == TDM_OK ? read_targets(trainer, targets, resume_logs) : status;
    if (!has_resume_log(resume_logs)) { /* All ranks get the same resume logs. */
        return tdm__trainer_agree(trainer, status);
    }
    tdm__failpoint_hit("trainer.find_held");
    if (status == TDM_OK) {
        tdm__weight_writer_claim_held(trainer->weight_writer, tdm__trainer_own_claim(trainer));
    }
    TDM_TRY(tdm__trainer_agree_on_claims(trainer, status, &claims));
    tdm__weight_writer_settle_held(trainer->weight_writer, claims);
    return TDM_OK;
}

/* Agrees on the end of the last chunk and, unless tensors are sent whole, on what the engines have
 * then. */
static tdm_status agree_on_result(struct trainer *trainer, tdm_status status)
{
    const uint64_t *claims;

    if (trainer->whole_tensors != NULL) {
        return tdm__trainer_agree(trainer, status);
    }
    if (status == TDM_OK) {
        tdm__weight_writer_claim_result(trainer->weight_writer, tdm__trainer_own_claim(trainer));
    }
    TDM_TRY(tdm__trainer_agree_on_claims(trainer, status, &claims));
    tdm__weight_writer_settle_result(trainer->weight_writer, claims);
    return TDM_OK;
}

/* Exchanges the scales of FP8 blocks that several trainer ranks share. The scale depends on the
 * elements of all of them. */
static tdm_status share_scales(struct trainer *trainer)
{
    tdm_status status;

    if (!tdm__weight_writer_shares_blocks(trainer->weight_writer)) {
        return TDM_OK;
    }
    TDM_TRY(tdm__trainer_agree(trainer, tdm__weight_writer_find_scales(trainer->weight_writer)));
    status = tdm__weight_writer_share_scales(trainer->weight_writer);
    return status == TDM_OK ? TDM_OK : abort_update(trainer, status);
}

/* Returns the number of operations of this rank's gather group so far; 0 if it has none. */
static uint64_t gather_calls_count(const struct trainer *trainer)
{
    return trainer->gather == NULL ? 0 : tdm__collective_calls_count(trainer->gather);
}

/* Adds a span to the trace with the number of collective operations of an update: of all trainer
 * ranks, and of this rank's gather group with what moves its data. Both groups had run `all` and
 * `gather` before. */
static void record_collectives(struct trainer *trainer, int64_t begin_ns, uint64_t all,
                               uint64_t gather)
{
    char name[TDM__SPAN_NAME_BYTES];

    (void)snprintf(name, sizeof(name), "collectives %u, %s %u",
                   (unsigned)(tdm__collective_calls_count(trainer->rank.group) - all),
                   trainer->gather == NULL ? "no gather group"
                                           : tdm__collective_comm(trainer->gather)->ops->name,
                   (unsigned)(gather_calls_count(trainer) - gather));
    tdm__spans_add(&trainer->rank.spans, name, begin_ns, 0, 0);
}

/* Releases the memory of an exchange of a rank without a bucket; that of a bucket is released with
 * it. If `status` is already an error, it is returned with its detail. */
static tdm_status release_exchange(struct trainer *trainer, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_status released;

    if (tdm__weight_writer_bucket(trainer->weight_writer) != NULL) {
        return status;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    released = tdm__weight_writer_pause_bucket(trainer->weight_writer);
    return status == TDM_OK ? released : tdm__fail(status, "%s", detail);
}

/* Transfers all chunks. On return, with success or failure, no engine reads memory of this rank,
 * and no target is mapped. */
static tdm_status transfer_all_chunks(struct trainer *trainer, const struct tdm__id *update,
                                      uint64_t epoch,
                                      const struct tdm__trainer_update_message *message)
{
    struct chunk_transfer transfer = {.trainer = trainer, .update = update, .epoch = epoch};
    uint64_t all_before = tdm__collective_calls_count(trainer->rank.group);
    uint64_t gather_before = gather_calls_count(trainer);
    int64_t begin_ns = tdm__clock_ns();
    tdm_status status = open_targets(trainer, &message->targets, &message->resume_logs);

    status = status == TDM_OK ? share_scales(trainer) : status;
    for (uint32_t i = 0; i < trainer->transfer_plan->chunks_count && status == TDM_OK; i++) {
        status = transfer_chunk(&transfer, i);
    }
    status = status == TDM_OK
                 ? agree_on_result(trainer, await_announced(&transfer, transfer.announce_status))
                 : await_announced(&transfer, status);
    tdm__weight_writer_unmap_targets(trainer->weight_writer);
    status = release_exchange(trainer, status);
    record_collectives(trainer, begin_ns, all_before, gather_before);
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
    TDM_TRY(tdm__served_engines_begin_update(&trainer->engines, &message.engines,
                                             &trainer->rank.groups, trainer->rank.context.rank));
    TDM_TRY(transfer_all_chunks(trainer, &message.update, message.epoch, &message));
    return trainer->rank.context.rank == 0
               ? tdm__transfer_result_reply(call, trainer->weight_writer,
                                            trainer->transfer_plan->to_count)
               : TDM_OK;
}
