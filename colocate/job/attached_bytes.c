/* attached_bytes.c - hands an engine's library what trainer ranks have attached to a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/attached_bytes.h"

#include "runtime/error.h"

#include <stdlib.h>

tdm_status tdm__attached_bytes_give(const struct tdm_engine_ops *ops, void *state,
                                    const struct tdm__rank_announcement *announcement)
{
    if (ops->attached != NULL) {
        return ops->attached(state, announcement->bucket, announcement->buckets_count,
                             announcement->attached);
    }
    return ops->gathered != NULL
               ? TDM_OK /* Rank 0 has got the bytes of all ranks. */
               : tdm__fail(TDM_E_UNSUPPORTED,
                           "%zu bytes are attached to the bucket, but the engine's table has no "
                           "function attached(), which reads them",
                           announcement->attached.size_bytes);
}

/* Reads what each trainer rank has attached into `attached`, which borrows from `documents`.
 * `first_out` becomes the first announcement with attached bytes; its buckets_count stays 0 if
 * there is none. */
static tdm_status read_all(const struct tdm__message_list *announcements,
                           struct tdm_bytes *attached, tdm_document **documents,
                           struct tdm__rank_announcement *first_out)
{
    for (uint32_t i = 0; i < announcements->count; i++) {
        struct tdm__rank_announcement announcement;
        struct tdm_bytes bytes;

        tdm__message_list_read(announcements, i, &bytes, sizeof(bytes));
        if (bytes.size_bytes == 0) {
            continue;
        }
        TDM_TRY(tdm__wrap(tdm__rank_announcement_parse(bytes, &announcement, &documents[i]),
                          "what is announced to rank %u of the engine", i));
        attached[i] = announcement.attached;
        if (announcement.attached.size_bytes > 0 && first_out->buckets_count == 0) {
            *first_out = announcement;
        }
    }
    return TDM_OK;
}

tdm_status tdm__attached_bytes_give_all(const struct tdm_engine_ops *ops, void *state,
                                        const struct tdm__message_list *announcements)
{
    struct tdm__rank_announcement first = {.buckets_count = 0};
    tdm_document **documents;
    struct tdm_bytes *attached;
    tdm_status status;

    if (ops->gathered == NULL) {
        return TDM_OK;
    }
    documents = calloc(announcements->count, sizeof(tdm_document *));
    attached = calloc(announcements->count, sizeof(*attached));
    status = documents == NULL || attached == NULL
                 ? tdm__fail(TDM_E_NOMEM, "bytes of %u ranks", announcements->count)
                 : read_all(announcements, attached, documents, &first);
    if (status == TDM_OK && first.buckets_count > 0) {
        status =
            ops->gathered(state, first.bucket, first.buckets_count, attached, announcements->count);
    }
    for (uint32_t i = 0; documents != NULL && i < announcements->count; i++) {
        tdm_document_destroy(documents[i]);
    }
    free(documents);
    free(attached);
    return status;
}
