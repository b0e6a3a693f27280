/* transfer_pair.c - sends buckets over the network to engines that have GPUs of their own. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The upper part is the code of the two ends: a pair is a collective group of two ranks, in
 * which the trainer broadcasts first the size and then the data. The engine end refuses data
 * that does not fit into its bucket and aborts the group, so that the trainer does not wait.
 * The lower part is the controller's: it calls "open_pair" on both ends of all pairs. The names of
 * the groups contain the ID of the update, so that an old attempt cannot meet a new one. If one
 * rank does not join, the controller cancels the rendezvous of all pairs, so that their other ends
 * do not wait. An end is used by its actor's method thread only. */
#include "colocate/job/transfer_pair.h"

#include "actors/process/runtime.h"
#include "colocate/comm/collective.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>

/* Ranks of the two ends in the collective group, and their number. */
enum { TRAINER = 0, ENGINE = 1, ENDS = 2 };
/* Longest time in milliseconds for canceling a rendezvous. */
enum { OFF_MS = 5000 };

/* ---- one end ---------------------------------------------------------------------------- */

/* Creates the bucket of the engine end, unless it has one that is large enough. */
static tdm_status pair_create_bucket(struct tdm__transfer_pair *pair, uint64_t size_bytes)
{
    const struct tdm_region_options bucket = {
        .tag = "bucket", .size_bytes = size_bytes, .policy = TDM_REGION_DROP, .paused = 1};

    if (pair->bucket != NULL && tdm_region_size(pair->bucket) >= size_bytes) {
        return TDM_OK;
    }
    tdm_region_destroy(pair->bucket);
    pair->bucket = NULL;
    return tdm__region_create(pair->regions, &bucket, &pair->bucket);
}

tdm_status tdm__transfer_pair_open(struct tdm__transfer_pair *pair, tdm_runtime *runtime,
                                   uint32_t rank, tdm_call *call)
{
    struct tdm_collective_options options = {.rank = rank, .ranks_count = ENDS, .on_gpu = 1};
    struct tdm__open_pair_message message;

    TDM_TRY(tdm__open_pair_decode(tdm_call_arguments(call), &message));
    options.name = message.name;
    options.node_id = message.node_id;
    options.timeout_ms = message.timeout_ms;
    tdm_collective_leave(pair->group);
    pair->group = NULL;
    if (rank == ENGINE) {
        TDM_TRY(pair_create_bucket(pair, message.bucket_bytes));
    }
    return tdm_collective_join(runtime, &options, &pair->group);
}

void tdm__transfer_pair_close(struct tdm__transfer_pair *pair)
{
    tdm_collective_leave(pair->group);
    tdm_region_destroy(pair->bucket);
    *pair = (struct tdm__transfer_pair){.group = NULL};
}

tdm_status tdm__transfer_pair_resume_bucket(struct tdm__transfer_pair *pair, int64_t timeout_ms)
{
    return pair->bucket == NULL || tdm_region_is_resident(pair->bucket)
               ? TDM_OK
               : tdm_region_resume(pair->bucket, timeout_ms);
}

tdm_status tdm__transfer_pair_pause_bucket(struct tdm__transfer_pair *pair)
{
    return pair->bucket != NULL && tdm_region_is_resident(pair->bucket)
               ? tdm_region_pause(pair->bucket)
               : TDM_OK;
}

tdm_status tdm__transfer_pair_send(struct tdm__transfer_pair *pair, const void *data,
                                   uint64_t size_bytes)
{
    TDM_TRY(tdm_collective_broadcast(pair->group, &size_bytes, sizeof(size_bytes), TRAINER));
    /* The cast is safe: the root's buffer is only read. */
    return tdm_collective_broadcast(pair->group, (void *)(uintptr_t)data, size_bytes, TRAINER);
}

/* Adds a span to the trace for a chunk that was sent. */
static void record_sent_span(const struct tdm__transfer_pair_payload *load, int64_t begin_ns,
                             struct tdm__rank *trainer)
{
    struct tdm__span span = {.begin_ns = begin_ns, .bytes = load->size_bytes};

    (void)snprintf(span.name, sizeof(span.name), "send bucket %u", load->chunk);
    (void)snprintf(span.from, sizeof(span.from), "trainer/%u", trainer->context.rank);
    (void)snprintf(span.to, sizeof(span.to), "engine/%u/%u", load->engine, load->engine_rank);
    tdm__spans_add_transfer(&trainer->spans, &span);
}

tdm_status tdm__transfer_pair_deliver(struct tdm__transfer_pair *pair,
                                      const struct tdm__transfer_pair_payload *load,
                                      struct tdm__rank *trainer)
{
    int64_t begin_ns = tdm__clock_ns();

    TDM_TRY(tdm__transfer_pair_send(pair, load->data, load->size_bytes));
    record_sent_span(load, begin_ns, trainer);
    return TDM_OK;
}

/* Aborts the group, so that the other end does not wait for data that is refused. */
static void pair_disconnect(struct tdm__transfer_pair *pair)
{
    struct tdm__comm *comm = tdm__collective_comm(pair->group);

    comm->ops->abort(comm);
}

tdm_status tdm__transfer_pair_receive(struct tdm__transfer_pair *pair, uint64_t *size_bytes_out)
{
    uint64_t size_bytes;

    if (pair->bucket == NULL || !tdm_region_is_resident(pair->bucket)) {
        pair_disconnect(pair);
        return tdm__fail(TDM_E_STATE, "a bucket is sent to a rank whose own has no memory");
    }
    TDM_TRY(tdm_collective_broadcast(pair->group, &size_bytes, sizeof(size_bytes), TRAINER));
    if (size_bytes > tdm_region_size(pair->bucket)) {
        pair_disconnect(pair);
        return tdm__fail(TDM_E_PROTOCOL, "%llu bytes for a bucket of %zu",
                         (unsigned long long)size_bytes, tdm_region_size(pair->bucket));
    }
    *size_bytes_out = size_bytes;
    return tdm_collective_broadcast(pair->group, tdm_region_address(pair->bucket), size_bytes,
                                    TRAINER);
}

/* ---- all pairs ------------------------------------------------------------------------- */

/* Calls "open_pair" on both ends of the pair of engine rank `index`: on its trainer rank, whose
 * reply is `trainer_out`, and on the engine rank. */
static tdm_status call_pair(const struct tdm__worker_group *workers, uint32_t index,
                            const struct tdm__open_pair_message *message, tdm_ref **trainer_out,
                            tdm_ref **engine_out)
{
    uint32_t image = tdm__worker_group_image_of_rank(workers, index);
    tdm_actor *trainer =
        workers->trainers[tdm__gather_groups_server(&workers->gather_groups, image)];

    TDM_TRY(tdm__rank_call(trainer, "open_pair", tdm__open_pair_table(), message, trainer_out));
    return tdm__rank_call(workers->engines[index], "open_pair", tdm__open_pair_table(), message,
                          engine_out);
}

/* Calls "open_pair" on both ends of the pairs of all live engine ranks. `refs` gets the
 * trainers' replies, then the engines'. */
static tdm_status call_both_ends(struct tdm__worker_group *workers, const struct tdm__id *update,
                                 tdm_ref **refs)
{
    struct tdm_actor_info info;
    char id[TDM__ID_TEXT_BYTES];
    char name[TDM__ID_TEXT_BYTES + 16];
    struct tdm__open_pair_message message = {.name = name,
                                             .timeout_ms =
                                                 (int64_t)workers->spec->update_timeout_ms,
                                             .bucket_bytes = workers->chunk_bytes};

    tdm_actor_describe(workers->trainers[0], &info);
    message.node_id = info.node_id;
    (void)tdm__id_text(update, id);
    for (uint32_t i = 0; i < workers->engines_count; i++) {
        if (workers->engines[i] == NULL) {
            continue;
        }
        (void)snprintf(name, sizeof(name), "pair/%s/%u", id, i);
        message.engine = i / workers->ranks_per_engine;
        message.engine_rank = i % workers->ranks_per_engine;
        TDM_TRY(call_pair(workers, i, &message, &refs[i], &refs[workers->engines_count + i]));
    }
    return TDM_OK;
}

/* Cancels the rendezvous of all pairs of this update at the daemon, so that ranks that wait
 * there fail. */
static tdm_status request_pairs_abandon(struct tdm__worker_group *workers,
                                        const struct tdm__id *update)
{
    struct tdm_actor_info info;
    struct tdm__rendezvous_cancel_message message;
    char id[TDM__ID_TEXT_BYTES];
    char name[TDM__ID_TEXT_BYTES + 16];
    tdm_writer *writer;
    tdm_status status;

    tdm_actor_describe(workers->trainers[0], &info);
    TDM_TRY(tdm__id_parse(info.node_id, &message.node));
    (void)snprintf(name, sizeof(name), "pair/%s", tdm__id_text(update, id));
    message.name = name;
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__rendezvous_cancel_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(workers->runtime, "rendezvous.cancel",
                                          tdm_writer_bytes(writer), OFF_MS, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Cancels all pairs after one could not be opened, for example because a rank died: its other
 * end must not wait for it. If the cancellation fails, that end waits until the update's
 * timeout. Returns `status`. */
static tdm_status abandon_open_pairs(struct tdm__worker_group *workers,
                                     const struct tdm__id *update, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    if (request_pairs_abandon(workers, update) != TDM_OK) {
        tdm__log(TDM__WARN, "job", "transfer pairs to the engines could not be closed: %s",
                 tdm_error_detail());
    }
    return tdm__fail(status, "%s", detail);
}

tdm_status tdm__transfer_pairs_open_all(struct tdm__worker_group *workers,
                                        const struct tdm__id *update)
{
    uint32_t count = ENDS * workers->engines_count;
    tdm_ref **refs;
    tdm_status status;

    if (workers->transfer_pairs_are_open) {
        return TDM_OK;
    }
    refs = calloc((size_t)count + 1, sizeof(*refs));
    if (refs == NULL) {
        return tdm__fail(TDM_E_NOMEM, "calls to %u ranks", count);
    }
    status = call_both_ends(workers, update, refs);
    if (status == TDM_OK) {
        status = tdm__worker_group_await(workers, refs, count,
                                         (int64_t)workers->spec->update_timeout_ms);
        tdm__worker_group_note_cut_off_engines(workers, refs + workers->engines_count);
    }
    tdm__worker_group_release_refs(refs, count);
    free(refs);
    workers->transfer_pairs_are_open = status == TDM_OK;
    if (status != TDM_OK) {
        status = abandon_open_pairs(workers, update, status);
    }
    return tdm__wrap(status, "transfer pairs to the engines");
}
