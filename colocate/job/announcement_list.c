/* announcement_list.c - announcements of a bucket on their way to the engine ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/announcement_list.h"

#include "runtime/array_grow.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bound of the bytes that a packed announcement has beside its tensor handles, and of those that a
 * packed list has beside its announcements: the heads of arrays, numbers and bytes. */
enum { PACKED_HEADS_BYTES = 40 };

tdm_status tdm__announcement_list_add(struct tdm__announcement_list *list,
                                      const struct tdm__rank_announcement_message *announcement)
{
    const struct tdm_bytes *handles = &announcement->tensor_handles;
    const struct tdm_bytes *attached = &announcement->attached;
    struct tdm__rank_announcement_message copy = *announcement;
    char *bytes;

    TDM_TRY(tdm__array_grow((void **)&list->items, &list->capacity, list->count, sizeof(copy)));
    bytes = malloc(handles->size_bytes + attached->size_bytes + 1);
    if (bytes == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an announcement of %zu bytes",
                         handles->size_bytes + attached->size_bytes);
    }
    copy.tensor_handles.data = bytes;
    copy.attached.data = bytes + handles->size_bytes;
    if (handles->size_bytes > 0) {
        memcpy(bytes, handles->data, handles->size_bytes);
    }
    if (attached->size_bytes > 0) {
        memcpy(bytes + handles->size_bytes, attached->data, attached->size_bytes);
    }
    list->items[list->count++] = copy;
    return TDM_OK;
}

void tdm__announcement_list_clear(struct tdm__announcement_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free((void *)(uintptr_t)list->items[i].tensor_handles.data);
    }
    list->count = 0;
}

void tdm__announcement_list_fini(struct tdm__announcement_list *list)
{
    tdm__announcement_list_clear(list);
    free(list->items);
    *list = (struct tdm__announcement_list){.items = NULL};
}

tdm_status tdm__announcement_list_pack(const struct tdm__announcement_list *list,
                                       tdm_writer *writer)
{
    const struct tdm__announcement_list_message message = {
        .announcements = {.count = list->count, .items = list->items}};

    return tdm__announcement_list_encode(&message, writer);
}

size_t tdm__announcement_list_packed_max(size_t handles_bytes)
{
    return handles_bytes + PACKED_HEADS_BYTES;
}

/* Where the announcements of a packed list go. */
struct list_target {
    uint32_t first;       /* Image of the first wanted engine rank. */
    uint32_t ranks_count; /* Number of wanted engine ranks. */
    /* One list, or one for each engine rank. */
    struct tdm__announcement_list *lists;
    bool is_routed; /* True if there is a list for each engine rank. */
    /* First image of the gather group, and number of its images, outside of which an announcement
     * is refused. Only used if `is_routed`. */
    uint32_t group_first;
    uint32_t group_count;
};

/* Appends a decoded announcement to its list. */
static tdm_status add_to_target(const struct list_target *target,
                                const struct tdm__rank_announcement_message *announcement)
{
    uint32_t index = announcement->engine_rank - target->first;

    if (announcement->engine_rank >= target->first && index < target->ranks_count) {
        return tdm__announcement_list_add(&target->lists[target->is_routed ? index : 0],
                                          announcement);
    }
    index = announcement->engine_rank - target->group_first;
    return target->is_routed &&
                   (announcement->engine_rank < target->group_first || index >= target->group_count)
               ? tdm__fail(TDM_E_PROTOCOL,
                           "an announcement for engine rank %" PRIu32
                           " came to an engine with the ranks %" PRIu32 " to %" PRIu32,
                           announcement->engine_rank, target->first,
                           target->first + target->ranks_count - 1)
               : TDM_OK;
}

/* Reads a packed list and appends its announcements where they go. */
static tdm_status unpack_to_target(struct tdm_bytes packed, const struct list_target *target)
{
    struct tdm__announcement_list_message message = {.announcements = {.count = 0}};
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm_document_parse(packed, &document));
    status = tdm__announcement_list_decode(tdm_document_root(document), &message);
    for (uint32_t i = 0; status == TDM_OK && i < message.announcements.count; i++) {
        struct tdm__rank_announcement_message announcement;

        tdm__message_list_read(&message.announcements, i, &announcement, sizeof(announcement));
        status = add_to_target(target, &announcement);
    }
    tdm_document_destroy(document);
    return status;
}

tdm_status tdm__announcement_list_unpack(struct tdm_bytes packed, uint32_t first,
                                         uint32_t ranks_count, struct tdm__announcement_list *list)
{
    const struct list_target target = {
        .first = first, .ranks_count = ranks_count, .lists = list, .is_routed = false};

    return unpack_to_target(packed, &target);
}

tdm_status tdm__announcement_list_route(struct tdm_bytes packed,
                                        const struct tdm__gather_groups *groups, uint32_t engine,
                                        struct tdm__announcement_list *lists)
{
    uint32_t each = tdm__gather_groups_images_each(groups);
    const struct list_target target = {.first = tdm__gather_groups_image(groups, engine, 0),
                                       .ranks_count = groups->ranks_per_engine,
                                       .lists = lists,
                                       .is_routed = true,
                                       .group_first =
                                           tdm__gather_groups_of_engine(groups, engine) * each,
                                       .group_count = each};

    return unpack_to_target(packed, &target);
}
