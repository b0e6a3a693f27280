/* announcement.c - tells an engine, through its gather group, what trainer ranks have written. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/announcement.h"

#include "colocate/job/rank_announcement.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/messages/messages.h"

#include <stdio.h>

/* Rank in its gather group of the source rank, which calls the engine. */
enum { SOURCE_RANK = 0 };

/* Returns this rank's number in its gather group. */
static uint32_t rank_in_group(const struct trainer *trainer)
{
    TDM_ASSERT(trainer->rank.ranks_per_engine > 0);
    return trainer->rank.context.rank % trainer->rank.ranks_per_engine;
}

/* Gets the handle of the engine's first rank, unless this rank has it already. */
static tdm_status find_engine(struct trainer *trainer)
{
    char name[TDM__RANK_NAME_BYTES];

    if (trainer->engine != NULL) {
        return TDM_OK;
    }
    tdm__rank_name(name, trainer->rank.model, "engine/%u/0",
                   trainer->rank.context.rank / trainer->rank.ranks_per_engine);
    return tdm_actor_find(trainer->rank.runtime, name, trainer->rank.timeout_ms, &trainer->engine);
}

/* Getter of a message list: what rank `index` of the gather group gave. */
static void get_announcement(const void *arg, uint32_t index, void *item_out)
{
    *(struct tdm_bytes *)item_out = tdm__gathered_part(arg, index);
}

tdm_status tdm__announcement_encode(const struct tdm__gathered *gathered, uint32_t ranks_count,
                                    tdm_writer *writer)
{
    const struct tdm__stage_bucket_message message = {
        .announcements = {.count = ranks_count, .get = get_announcement, .arg = gathered}};

    return tdm__stage_bucket_encode(&message, writer);
}

/* Calls "stage" on the engine's first rank with the gathered descriptions. */
static tdm_status call_engine(struct trainer *trainer, tdm_ref **announced_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(find_engine(trainer));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__announcement_encode(&trainer->gathered, trainer->rank.ranks_per_engine, writer);
    if (status == TDM_OK) {
        tdm__failpoint_hit("trainer.announce");
        status = tdm_actor_call_packed(trainer->engine, "stage", tdm_writer_bytes(writer),
                                       announced_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Packs this rank's description of the bucket and the bytes that the library attaches to it into
 * `writer`, which stays empty if the description is. */
static tdm_status pack_announcement(const struct trainer *trainer,
                                    const struct tdm_update_bucket *bucket,
                                    struct tdm_bytes description, tdm_writer *writer)
{
    struct tdm__rank_announcement announcement = {.bucket = bucket->index,
                                                  .buckets_count = bucket->buckets_count,
                                                  .tensor_handles = description};

    if (description.size_bytes == 0) {
        return TDM_OK;
    }
    if (trainer->ops->attach != NULL) {
        TDM_TRY(trainer->ops->attach(trainer->rank.state, bucket, &announcement.attached));
    }
    return tdm__rank_announcement_pack(&announcement, writer);
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
    for (uint32_t i = 0; i < trainer->rank.ranks_per_engine; i++) {
        bytes += trainer->gathered.sizes[i];
    }
    if (rank_in_group(trainer) == SOURCE_RANK && bytes > 0) {
        (void)snprintf(name, sizeof(name), "gather bucket %u", bucket);
        tdm__spans_add(&trainer->rank.spans, name, begin_ns, bytes, 0);
    }
    *gathered_bytes_out = bytes;
    return TDM_OK;
}

/* Gathers what this rank announces, and calls the engine on the source rank. */
static tdm_status gather_and_call(struct trainer *trainer, uint32_t bucket, struct tdm_bytes own,
                                  tdm_ref **announced_out)
{
    uint64_t gathered_bytes = 0;

    tdm__failpoint_hit("trainer.gather");
    tdm__failpoint_change("trainer.described", own);
    if (!tdm__failpoint_skips("trainer.gather_lists")) {
        TDM_TRY(gather_announcements(trainer, bucket, own, &gathered_bytes));
    }
    return rank_in_group(trainer) == SOURCE_RANK && gathered_bytes > 0
               ? call_engine(trainer, announced_out)
               : TDM_OK;
}

tdm_status tdm__announcement_send(struct trainer *trainer, const struct tdm_update_bucket *bucket,
                                  struct tdm_bytes description, tdm_ref **announced_out)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_writer *writer = NULL;
    tdm_status packed;
    tdm_status status;

    *announced_out = NULL;
    if (trainer->engine_absent) {
        return TDM_OK;
    }
    packed = tdm_writer_create(&writer);
    if (packed == TDM_OK) {
        packed = pack_announcement(trainer, bucket, description, writer);
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    status = gather_and_call(trainer, bucket->index,
                             packed == TDM_OK ? tdm_writer_bytes(writer)
                                              : (struct tdm_bytes){.size_bytes = 0},
                             announced_out);
    tdm_writer_destroy(writer);
    return packed == TDM_OK ? status : tdm__fail(packed, "%s", detail);
}

tdm_status tdm__announcement_await(const struct trainer *trainer, tdm_ref *announced)
{
    const tdm_value *nothing;
    tdm_status status;

    if (announced == NULL) {
        return TDM_OK;
    }
    status = tdm_get_value(announced, trainer->rank.timeout_ms, &nothing);
    tdm__failpoint_hit("trainer.announced");
    tdm_ref_release(announced);
    return status;
}
