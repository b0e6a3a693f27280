/* engine_staging.c - the methods by which an engine rank stages the buckets of an update. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The source rank of the engine's gather group calls "stage" on rank 0 with what the group has
 * gathered (announcement.h). Rank 0 gives each rank of the engine the announcements for it, the
 * others by "stage_slices", and replies when all have staged theirs. A rank checks each
 * announcement and has the receiver merge and check the descriptions. Only when the receiver has
 * accepted the bucket does the library get the attached bytes, and only then is a byte loaded; a
 * library with gathered() gets those of all ranks before, on rank 0. If it refuses them, no rank
 * stages anything, but each one receives the bytes that its trainer rank sends to an engine with
 * GPUs of its own. An error names the trainer rank whose part is wrong. All of it runs on the
 * actor's method thread. */
#include "colocate/job/announcement_list.h"
#include "colocate/job/attached_bytes.h"
#include "colocate/job/engine.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/messages/messages.h"
#include "runtime/splitmix.h"

#include <stdio.h>
#include <stdlib.h>

tdm_status tdm__engine_check_connected(const struct engine *engine)
{
    return engine->receiver != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_STATE, "this rank does not know the model's tensors yet");
}

void tdm__engine_begin_overwriting(struct engine *engine)
{
    if (engine->rank.overwrites) {
        (void)pthread_mutex_lock(&engine->weights_lock);
    }
}

void tdm__engine_end_overwriting(struct engine *engine)
{
    if (!engine->rank.overwrites) {
        return;
    }
    if (tdm__receiver_is_torn(engine->receiver)) {
        engine->version = 0;
    }
    (void)pthread_mutex_unlock(&engine->weights_lock);
}

/* What has been announced of one bucket to this rank. */
struct announced_bucket {
    struct engine *engine; /* The engine rank; borrowed. */
    /* What each trainer rank that has written a part of the bucket describes. */
    struct tdm__bucket_description *descriptions;
    uint32_t descriptions_count; /* Number of entries of `descriptions`. */
    struct tdm_bytes attached;   /* Bytes that the trainers' library has attached; may be none. */
    bool is_refused;             /* True if rank 0 of the engine has refused the bucket. */
};

uint32_t tdm__engine_image(const struct engine *engine)
{
    const struct tdm_rank_context *context = &engine->rank.context;

    return tdm__gather_groups_image(&engine->rank.groups, context->engine, context->rank);
}

/* Returns the trainer rank that serves this rank's image. */
static uint32_t server_of(const struct engine *engine)
{
    return tdm__gather_groups_server(&engine->rank.groups, tdm__engine_image(engine));
}

/* Gives the library the bytes that the trainer rank that serves this rank's image has attached to
 * the bucket, if there are any. The receiver calls it when it has accepted the bucket. */
static tdm_status give_attached(void *arg, const struct tdm__tensor_handles_header *header)
{
    const struct announced_bucket *announced = arg;
    const struct engine *engine = announced->engine;

    return tdm__merged_handles_wrap(
        server_of(engine),
        tdm__attached_bytes_give(engine->ops, engine->rank.state, header, announced->attached));
}

/* Checks the announcements of a bucket and collects them. An error names the trainer rank whose
 * part is wrong. */
static tdm_status check_announcements(struct announced_bucket *announced,
                                      const struct tdm__announcement_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct tdm__rank_announcement_message *item = &list->items[i];

        TDM_TRY(tdm__merged_handles_wrap(
            item->writer, tdm__rank_announcement_check(item, tdm__engine_image(announced->engine),
                                                       &announced->engine->rank.groups)));
        if (item->tensor_handles.size_bytes > 0) {
            announced->descriptions[announced->descriptions_count++] =
                (struct tdm__bucket_description){item->writer, item->tensor_handles};
        }
        if (item->attached.size_bytes > 0) {
            announced->attached = item->attached;
        }
    }
    return announced->descriptions_count > 0
               ? TDM_OK
               : tdm__fail(TDM_E_PROTOCOL, "a bucket is announced that no trainer rank describes");
}

/* Checks the announcements of a bucket and stages it. With a transfer pair its bytes are received
 * first, also if the bucket is refused, because the trainer rank sends them anyway. */
static tdm_status check_and_stage(struct announced_bucket *announced,
                                  const struct tdm__announcement_list *list)
{
    struct engine *engine = announced->engine;
    struct tdm__bucket_arrival arrival = {.accepted = give_attached, .arg = announced};
    tdm_status status;

    if (engine->pair.group != NULL) {
        uint64_t come_bytes = 0;

        TDM_TRY(tdm__transfer_pair_receive(&engine->pair, &come_bytes));
        arrival.source = tdm_region_address(engine->pair.bucket);
        arrival.source_bytes = come_bytes;
    }
    if (announced->is_refused) {
        return tdm__fail(TDM_E_ABORTED, "rank 0 of the engine has refused the bucket");
    }
    TDM_TRY(check_announcements(announced, list));
    arrival.descriptions = announced->descriptions;
    arrival.descriptions_count = announced->descriptions_count;
    tdm__engine_begin_overwriting(engine);
    status = tdm__receiver_stage_arrival(engine->receiver, &arrival);
    tdm__engine_end_overwriting(engine);
    return status;
}

/* Returns a checksum of the announcements, by which the trace tells buckets apart. */
static uint64_t sum_announcements(const struct tdm__announcement_list *list)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        sum = tdm__splitmix64(sum, list->items[i].checksum);
    }
    return sum;
}

/* Stages what trainer ranks have announced to this rank, unless the bucket is refused. An empty
 * list means that the bucket has nothing for this rank. */
static tdm_status stage_on_this_rank(struct engine *engine,
                                     const struct tdm__announcement_list *list, bool is_refused)
{
    struct announced_bucket announced = {.engine = engine, .is_refused = is_refused};
    int64_t begin_ns = tdm__clock_ns();
    tdm_status status;

    TDM_TRY(tdm__engine_check_connected(engine));
    if (list->count == 0) {
        return TDM_OK;
    }
    announced.descriptions = calloc(list->count, sizeof(*announced.descriptions));
    if (announced.descriptions == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u announcements of a bucket", list->count);
    }
    tdm__failpoint_hit("engine.stage");
    status = check_and_stage(&announced, list);
    free(announced.descriptions);
    TDM_TRY(status);
    tdm__failpoint_hit("engine.staged");
    tdm__spans_add(&engine->rank.spans, "stage bucket", begin_ns,
                   tdm__receiver_staged_bytes(engine->receiver), sum_announcements(list));
    return TDM_OK;
}

tdm_status tdm__engine_stage_slices(tdm_call *call, void *self)
{
    struct tdm__stage_slices_message message;
    struct tdm__announcement_list list = {.count = 0};
    tdm_status status = TDM_OK;

    TDM_TRY(tdm__stage_slices_decode(tdm_call_arguments(call), &message));
    for (uint32_t i = 0; i < message.announcements.count && status == TDM_OK; i++) {
        struct tdm__rank_announcement_message announcement;

        tdm__message_list_read(&message.announcements, i, &announcement, sizeof(announcement));
        status = tdm__announcement_list_add(&list, &announcement);
    }
    status = status == TDM_OK ? stage_on_this_rank(self, &list, message.is_refused) : status;
    tdm__announcement_list_fini(&list);
    return status;
}

/* Gets the handles of the engine's other ranks, unless rank 0 has them already. */
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

/* Sends each of the other ranks its announcements, and whether the bucket is refused; `refs` gets
 * the references to the replies. A rank without any announcement has no part in the bucket and is
 * not called. Returns the first failure; the others are called all the same. */
static tdm_status forward_to_peers(struct engine *engine,
                                   const struct tdm__announcement_list *lists, bool is_refused,
                                   tdm_ref **refs)
{
    struct tdm__first_failure failure = {TDM_OK, ""};

    for (uint32_t i = 1; i < engine->rank.context.ranks_count; i++) {
        const struct tdm__stage_slices_message message = {
            .is_refused = is_refused,
            .announcements = {.count = lists[i].count, .items = lists[i].items}};

        if (lists[i].count > 0) {
            tdm__first_failure_note(&failure,
                                    tdm__rank_call(engine->peers[i], "stage_slices",
                                                   tdm__stage_slices_table(), &message, &refs[i]));
        }
    }
    return tdm__first_failure_return(&failure);
}

/* Waits for the replies of the other ranks and releases the references. Returns the first error. */
static tdm_status await_peers(struct engine *engine, tdm_ref **refs)
{
    struct tdm__first_failure failure = {TDM_OK, ""};

    for (uint32_t i = 1; i < engine->rank.context.ranks_count; i++) {
        const tdm_value *nothing;

        if (refs[i] != NULL) {
            tdm__first_failure_note(&failure,
                                    tdm_get_value(refs[i], engine->rank.timeout_ms, &nothing));
        }
        tdm_ref_release(refs[i]);
    }
    return tdm__first_failure_return(&failure);
}

/* Distributes what the gather group has gathered to one list for each rank of the engine. An error
 * names the trainer rank that gave what cannot be read. */
static tdm_status route_gathered(const struct engine *engine,
                                 const struct tdm__message_list *gathered,
                                 struct tdm__announcement_list *lists, uint64_t *bytes_out)
{
    const struct tdm__gather_groups *groups = &engine->rank.groups;
    uint32_t givers_count = groups->ranks_per_group;

    if (gathered->count != givers_count) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "what %u ranks have gathered for an engine that %u ranks serve",
                         gathered->count, givers_count);
    }
    for (uint32_t i = 0; i < givers_count; i++) {
        struct tdm_bytes part;

        tdm__message_list_read(gathered, i, &part, sizeof(part));
        *bytes_out += part.size_bytes;
        if (part.size_bytes > 0) {
            TDM_TRY(tdm__wrap(
                tdm__announcement_list_route(part, groups, engine->rank.context.engine, lists),
                "what trainer rank %u gave to the gather", server_of(engine) + i));
        }
    }
    return TDM_OK;
}

/* Has all ranks of the engine stage what is announced to them, and blocks until they have: after
 * that none of them reads a trainer's bucket. Returns the first failure; after one in this rank,
 * the others still take part, so that no trainer rank waits for them. */
static tdm_status stage_on_all_ranks(struct engine *engine,
                                     const struct tdm__announcement_list *lists, tdm_ref **refs)
{
    struct tdm__first_failure failure = {TDM_OK, ""};

    TDM_TRY(find_peers(engine));
    tdm__first_failure_note(&failure, tdm__attached_bytes_give_all(engine->ops, engine->rank.state,
                                                                   tdm__engine_image(engine),
                                                                   &engine->rank.groups, lists));
    tdm__first_failure_note(&failure,
                            forward_to_peers(engine, lists, failure.status != TDM_OK, refs));
    tdm__first_failure_note(&failure,
                            stage_on_this_rank(engine, &lists[0], failure.status != TDM_OK));
    tdm__first_failure_note(&failure, await_peers(engine, refs));
    return tdm__first_failure_return(&failure);
}

tdm_status tdm__engine_stage(tdm_call *call, void *self)
{
    struct engine *engine = self;
    uint32_t ranks_count = engine->rank.context.ranks_count;
    struct tdm__stage_bucket_message message;
    int64_t begin_ns = tdm__clock_ns();
    uint64_t gathered_bytes = 0;
    struct tdm__announcement_list *lists;
    tdm_ref **refs;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm__stage_bucket_decode(tdm_call_arguments(call), &message));
    lists = calloc(ranks_count, sizeof(*lists));
    refs = calloc(ranks_count, sizeof(*refs));
    if (lists == NULL || refs == NULL) {
        status = tdm__fail(TDM_E_NOMEM, "calls to the other ranks");
    }
    if (status == TDM_OK) {
        status = route_gathered(engine, &message.gathered, lists, &gathered_bytes);
    }
    if (status == TDM_OK) {
        status = stage_on_all_ranks(engine, lists, refs);
    }
    for (uint32_t i = 0; lists != NULL && i < ranks_count; i++) {
        tdm__announcement_list_fini(&lists[i]);
    }
    free(lists);
    free(refs);
    tdm__spans_add(&engine->rank.spans, "stage gathered", begin_ns, gathered_bytes, 0);
    return status;
}
