/* announcement.c - tells engines, through their gather group, what trainer ranks have written. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/announcement.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/messages/messages.h"

#include <stdio.h>

/* Rank in its gather group of the source rank, which calls the engines. */
enum { SOURCE_RANK = 0 };

/* Returns this rank's number in its gather group. */
static uint32_t rank_in_group(const struct trainer *trainer)
{
    TDM_ASSERT(trainer->rank.groups.ranks_per_group > 0);
    return trainer->rank.context.rank % trainer->rank.groups.ranks_per_group;
}

/* Gets the handle of the engine's first rank, unless this rank has it already. */
static tdm_status find_first_rank(const struct trainer *trainer, struct tdm__served_engine *engine)
{
    char name[TDM__RANK_NAME_BYTES];

    if (engine->first_rank != NULL) {
        return TDM_OK;
    }
    tdm__rank_name(name, trainer->rank.model, "engine/%u/0", engine->number);
    return tdm_actor_find(trainer->rank.runtime, name, trainer->rank.timeout_ms,
                          &engine->first_rank);
}

/* Getter of a message list: what rank `index` of the gather group gave. */
static void get_gathered(const void *arg, uint32_t index, void *item_out)
{
    *(struct tdm_bytes *)item_out = tdm__gathered_part(arg, index);
}

tdm_status tdm__announcement_encode(const struct tdm__gathered *gathered, uint32_t ranks_count,
                                    tdm_writer *writer)
{
    const struct tdm__stage_bucket_message message = {
        .gathered = {.count = ranks_count, .get = get_gathered, .arg = gathered}};

    return tdm__stage_bucket_encode(&message, writer);
}

/* Calls "stage" on the engine's first rank with the encoded arguments. */
static tdm_status call_engine(const struct trainer *trainer, struct tdm__served_engine *engine,
                              struct tdm_bytes arguments)
{
    TDM_TRY(find_first_rank(trainer, engine));
    tdm__failpoint_hit("trainer.announce");
    return tdm_actor_call_packed(engine->first_rank, "stage", arguments, &engine->announced);
}

/* Calls all engines that take part in the update with the gathered descriptions. Returns the first
 * failure. */
static tdm_status call_engines(struct trainer *trainer)
{
    struct tdm__first_failure failure = {TDM_OK, ""};
    tdm_writer *writer;
    bool can_call;

    TDM_TRY(tdm_writer_create(&writer));
    tdm__first_failure_note(
        &failure,
        tdm__announcement_encode(&trainer->gathered, trainer->rank.groups.ranks_per_group, writer));
    can_call = failure.status == TDM_OK;
    for (uint32_t i = 0; i < trainer->engines.count; i++) {
        struct tdm__served_engine *engine = &trainer->engines.items[i];

        if (can_call && engine->takes_part) {
            tdm__first_failure_note(
                &failure, tdm__served_engine_called(
                              engine, call_engine(trainer, engine, tdm_writer_bytes(writer))));
        }
    }
    tdm_writer_destroy(writer);
    return tdm__first_failure_return(&failure);
}

/* Gathers the announcements of all ranks of the group on the source rank, and adds a span to the
 * trace with the number of bytes that the source rank then has. */
static tdm_status gather_announcements(struct trainer *trainer, uint32_t bucket,
                                       struct tdm_bytes own, uint64_t *gathered_bytes_out)
{
    int64_t begin_ns = tdm__clock_ns();
    char name[TDM__SPAN_NAME_BYTES];
    uint64_t bytes = 0;

    TDM_TRY(tdm__collective_gather_unequal(trainer->gather, own, SOURCE_RANK, &trainer->gathered));
    for (uint32_t i = 0; i < trainer->rank.groups.ranks_per_group; i++) {
        bytes += trainer->gathered.sizes[i];
    }
    if (rank_in_group(trainer) == SOURCE_RANK && bytes > 0) {
        (void)snprintf(name, sizeof(name), "gather bucket %u", bucket);
        tdm__spans_add(&trainer->rank.spans, name, begin_ns, bytes, 0);
    }
    *gathered_bytes_out = bytes;
    return TDM_OK;
}

/* Gathers what this rank announces, and calls the engines on the source rank. */
static tdm_status gather_and_call(struct trainer *trainer, uint32_t bucket, struct tdm_bytes own,
                                  bool *is_told_out)
{
    uint64_t gathered_bytes = 0;

    tdm__failpoint_hit("trainer.gather");
    if (!tdm__failpoint_skips("trainer.gather_lists")) {
        TDM_TRY(gather_announcements(trainer, bucket, own, &gathered_bytes));
    }
    *is_told_out = gathered_bytes > 0;
    return rank_in_group(trainer) == SOURCE_RANK && gathered_bytes > 0 ? call_engines(trainer)
                                                                       : TDM_OK;
}

tdm_status tdm__announcement_send(struct trainer *trainer, uint32_t bucket,
                                  const struct tdm__announcement_list *list, bool *is_told_out)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    struct tdm_bytes own = {.size_bytes = 0};
    tdm_writer *writer = NULL;
    tdm_status packed = TDM_OK;
    tdm_status status;

    *is_told_out = false;
    if (!tdm__served_engines_any(&trainer->engines)) {
        return TDM_OK;
    }
    if (list->count > 0) {
        packed = tdm_writer_create(&writer);
        packed = packed == TDM_OK ? tdm__announcement_list_pack(list, writer) : packed;
        own = packed == TDM_OK ? tdm_writer_bytes(writer) : own;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    status = gather_and_call(trainer, bucket, own, is_told_out);
    tdm_writer_destroy(writer);
    return packed == TDM_OK ? status : tdm__fail(packed, "%s", detail);
}

bool tdm__announcement_is_told(const struct trainer *trainer,
                               const struct tdm__served_engine *engine)
{
    return engine->takes_part &&
           (rank_in_group(trainer) != SOURCE_RANK || engine->announced != NULL);
}

tdm_status tdm__announcement_await(struct trainer *trainer)
{
    struct tdm__first_failure failure = {TDM_OK, ""};

    for (uint32_t i = 0; i < trainer->engines.count; i++) {
        struct tdm__served_engine *engine = &trainer->engines.items[i];
        const tdm_value *nothing;

        if (engine->announced == NULL) {
            continue;
        }
        tdm__first_failure_note(
            &failure,
            tdm__served_engine_called(
                engine, tdm_get_value(engine->announced, trainer->rank.timeout_ms, &nothing)));
        tdm__failpoint_hit("trainer.announced");
        tdm_ref_release(engine->announced);
        engine->announced = NULL;
    }
    return tdm__first_failure_return(&failure);
}
