/* attached_bytes.c - hands an engine's library what trainer ranks have attached to a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/attached_bytes.h"

#include "colocate/job/rank_announcement.h"
#include "colocate/weights/merged_handles.h"
#include "runtime/error.h"

#include <stdlib.h>

tdm_status tdm__attached_bytes_give(const struct tdm_engine_ops *ops, void *state,
                                    const struct tdm__tensor_handles_header *header,
                                    struct tdm_bytes attached)
{
    if (attached.size_bytes == 0) {
        return TDM_OK;
    }
    if (ops->attached != NULL) {
        return ops->attached(state, header->bucket, header->buckets_count, attached);
    }
    return ops->gathered != NULL
               ? TDM_OK /* Rank 0 has got the bytes of all ranks. */
               : tdm__fail(TDM_E_UNSUPPORTED,
                           "%zu bytes are attached to the bucket, but the engine's table has no "
                           "function attached(), which reads them",
                           attached.size_bytes);
}

/* What all trainer ranks have attached to a bucket. */
struct gathered_bytes {
    struct tdm_bytes *attached; /* One entry for each engine rank; of size 0 for none. */
    bool are_there;             /* Whether any entry has bytes. */
    /* A description of the bucket, whose header says which one it is; of size 0 if there is none.
     */
    struct tdm_bytes description;
};

/* Checks the announcements for one engine rank and collects their attached bytes. An error names
 * the trainer rank whose part is wrong. */
static tdm_status collect(const struct tdm__announcement_list *list, uint32_t image,
                          const struct tdm__gather_groups *groups, struct gathered_bytes *gathered,
                          struct tdm_bytes *attached_out)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct tdm__rank_announcement_message *item = &list->items[i];

        TDM_TRY(tdm__merged_handles_wrap(item->writer,
                                         tdm__rank_announcement_check(item, image, groups)));
        if (item->attached.size_bytes > 0) {
            *attached_out = item->attached;
            gathered->are_there = true;
        }
        if (item->tensor_handles.size_bytes > 0) {
            gathered->description = item->tensor_handles;
        }
    }
    return TDM_OK;
}

/* Reads which bucket the description is about, and calls ops->gathered(). */
static tdm_status give_gathered(const struct tdm_engine_ops *ops, void *state,
                                const struct gathered_bytes *gathered, uint32_t ranks_count)
{
    struct tdm__tensor_handles handles;
    tdm_status status;

    if (gathered->description.size_bytes == 0) {
        return tdm__fail(TDM_E_PROTOCOL, "a bucket is announced that no trainer rank describes");
    }
    TDM_TRY(tdm__tensor_handles_decode(gathered->description, &handles));
    status = ops->gathered(state, handles.header.bucket, handles.header.buckets_count,
                           gathered->attached, ranks_count);
    tdm__tensor_handles_fini(&handles);
    return status;
}

tdm_status tdm__attached_bytes_give_all(const struct tdm_engine_ops *ops, void *state,
                                        uint32_t first, const struct tdm__gather_groups *groups,
                                        const struct tdm__announcement_list *lists)
{
    uint32_t ranks_count = groups->ranks_per_engine;
    struct gathered_bytes gathered = {.are_there = false};
    tdm_status status = TDM_OK;

    if (ops->gathered == NULL) {
        return TDM_OK;
    }
    gathered.attached = calloc(ranks_count, sizeof(*gathered.attached));
    if (gathered.attached == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the attached bytes of %u ranks", ranks_count);
    }
    for (uint32_t i = 0; i < ranks_count && status == TDM_OK; i++) {
        status = collect(&lists[i], first + i, groups, &gathered, &gathered.attached[i]);
    }
    if (status == TDM_OK && gathered.are_there) {
        status = give_gathered(ops, state, &gathered, ranks_count);
    }
    free(gathered.attached);
    return status;
}
