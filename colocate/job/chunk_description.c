/* chunk_description.c - describes what a trainer rank has written of a chunk. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A rank writes parts of many images. The parts for engines of its own gather group are described
 * in the gather of that group. The description includes what the library attaches to the images
 * that this rank serves. The parts for other engines are described to all ranks when they agree on
 * the chunk. Whole tensors are sent within a gather group only. All functions run on the actor's
 * method thread. */
#include "colocate/job/chunk_description.h"

#include "colocate/job/trainer_agreement.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"

/* Images of the transfer plan that follow one another. */
struct image_range {
    uint32_t first; /* The first image. */
    uint32_t end;   /* The number after the last image. */
};

/* Returns the images that this rank serves; none if it is in no gather group. */
static struct image_range own_images(const struct trainer *trainer)
{
    uint32_t rank = trainer->rank.context.rank;
    uint32_t first = tdm__gather_groups_first_image(&trainer->rank.groups, rank);

    return (struct image_range){first,
                                first + tdm__gather_groups_images_of(&trainer->rank.groups, rank)};
}

/* Returns the images that this rank's gather group serves. Their numbers are above those of the
 * plan if the rank is in no group. */
static struct image_range group_images(const struct trainer *trainer)
{
    uint32_t each = tdm__gather_groups_images_each(&trainer->rank.groups);
    uint32_t group =
        tdm__gather_groups_of_trainer(&trainer->rank.groups, trainer->rank.context.rank);

    return (struct image_range){group * each, (group + 1) * each};
}

/* Describes the whole tensors in this rank's bucket; `about` gets views of them. */
static tdm_status describe_whole_tensors(struct trainer *trainer,
                                         const struct tdm__written_chunk *written,
                                         struct tdm_update_bucket *about,
                                         struct tdm_bytes *handles_out)
{
    const tdm_region *bucket = tdm__weight_writer_bucket(trainer->weight_writer);
    const struct tdm__written_bucket filled = {.device = tdm__regions_device(trainer->rank.regions),
                                               .region = bucket,
                                               .location = &trainer->rank.location,
                                               .update = written->update,
                                               .epoch = written->epoch,
                                               .index = written->index,
                                               .writer = trainer->rank.context.rank};

    about->tensors = tdm__whole_tensors_views(trainer->whole_tensors, bucket, written->index,
                                              &about->tensors_count);
    return tdm__whole_tensors_describe(trainer->whole_tensors, &filled, handles_out);
}

/* Appends an announcement of this rank to `list`, unless it is empty. The failpoint may change a
 * byte of its description. */
static tdm_status add_announcement(struct tdm__announcement_list *list,
                                   struct tdm__rank_announcement_message *announcement,
                                   const char *failpoint)
{
    if (announcement->tensor_handles.size_bytes == 0 && announcement->attached.size_bytes == 0) {
        return TDM_OK;
    }
    TDM_TRY(tdm__rank_announcement_seal(announcement));
    TDM_TRY(tdm__announcement_list_add(list, announcement));
    tdm__failpoint_change(failpoint, list->items[list->count - 1].tensor_handles);
    return TDM_OK;
}

/* Appends to `list` what this rank has written of the chunk for the engine ranks from `first` to
 * `end` - 1. */
static tdm_status describe_slices(struct trainer *trainer, const struct tdm__written_chunk *written,
                                  uint32_t first, uint32_t end, const char *failpoint,
                                  struct tdm__announcement_list *list)
{

    for (uint32_t i = first; i < end; i++) {
        struct tdm__rank_announcement_message announcement = {.writer = trainer->rank.context.rank,
                                                              .engine_rank = i};

        TDM_TRY(tdm__weight_writer_describe_chunk(trainer->weight_writer, written->update,
                                                  written->epoch, written->index, i,
                                                  &announcement.tensor_handles));
        TDM_TRY(add_announcement(list, &announcement, failpoint));
    }
    return TDM_OK;
}

tdm_status tdm__chunk_describe_for_others(struct trainer *trainer,
                                          const struct tdm__written_chunk *written)
{
    uint32_t count = tdm__gather_groups_images(&trainer->rank.groups);
    const struct image_range group = group_images(trainer);
    static const char failpoint[] = "trainer.described_for_others";

    tdm__announcement_list_clear(&trainer->for_others);
    if (!tdm__trainer_chunk_crosses_groups(trainer, written->index)) {
        return TDM_OK;
    }
    TDM_TRY(describe_slices(trainer, written, 0, group.first < count ? group.first : count,
                            failpoint, &trainer->for_others));
    return describe_slices(trainer, written, group.end, count, failpoint, &trainer->for_others);
}

/* Failpoint that may change what a rank describes for engines of its own gather group. */
static const char described_failpoint[] = "trainer.described";

/* Appends to `list` what this rank has written of the chunk for an image that it serves, and what
 * the library attaches to it. */
static tdm_status describe_own(struct trainer *trainer, const struct tdm__written_chunk *written,
                               uint32_t image, struct tdm__announcement_list *list)
{
    struct tdm_update_bucket about = {.index = written->index,
                                      .buckets_count = trainer->transfer_plan->chunks_count,
                                      .engine_rank = image % trainer->rank.groups.ranks_per_engine};
    struct tdm__rank_announcement_message own = {.writer = trainer->rank.context.rank,
                                                 .engine_rank = image};

    if (trainer->whole_tensors != NULL) {
        TDM_TRY(describe_whole_tensors(trainer, written, &about, &own.tensor_handles));
    } else {
        TDM_TRY(tdm__weight_writer_describe_chunk(trainer->weight_writer, written->update,
                                                  written->epoch, written->index, image,
                                                  &own.tensor_handles));
    }
    if (trainer->ops->attach != NULL &&
        tdm__weight_writer_has_part(trainer->weight_writer, written->index, image)) {
        TDM_TRY(trainer->ops->attach(trainer->rank.state, &about, &own.attached));
    }
    return add_announcement(list, &own, described_failpoint);
}

/* Appends to `list` what this rank has written of the chunk for the engines of its gather group:
 * for the images that it serves, and for those that other ranks of the group serve. */
static tdm_status describe_all(struct trainer *trainer, const struct tdm__written_chunk *written,
                               struct tdm__announcement_list *list)
{
    const struct image_range own = own_images(trainer);
    const struct image_range group = group_images(trainer);

    for (uint32_t image = own.first; image < own.end; image++) {
        TDM_TRY(describe_own(trainer, written, image, list));
    }
    if (trainer->whole_tensors != NULL) {
        return TDM_OK;
    }
    TDM_TRY(describe_slices(trainer, written, group.first, own.first, described_failpoint, list));
    return describe_slices(trainer, written, own.end, group.end, described_failpoint, list);
}

tdm_status tdm__chunk_describe_for_group(struct trainer *trainer,
                                         const struct tdm__written_chunk *written)
{
    tdm_status status;

    tdm__announcement_list_clear(&trainer->for_gather);
    if (!tdm__served_engines_any(&trainer->engines)) {
        return TDM_OK;
    }
    status = describe_all(trainer, written, &trainer->for_gather);
    if (status == TDM_OK) {
        status = tdm__trainer_receive_announcements(trainer, written->index, &trainer->for_gather);
    }
    if (status != TDM_OK) {
        tdm__announcement_list_clear(&trainer->for_gather);
    }
    return status;
}
