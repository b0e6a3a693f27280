/* rank_announcement.c - what one trainer rank gives to the gather of a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rank_announcement.h"

#include "colocate/weights/checksum.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <inttypes.h>
#include <tandem/job.h>

/* Checks the number of attached bytes. */
static tdm_status check_attached_size(size_t size_bytes)
{
    return size_bytes <= TDM_ATTACHED_BYTES_MAX
               ? TDM_OK
               : tdm__fail(TDM_E_LIMIT,
                           "a trainer rank attaches %zu bytes to a bucket, at most %d are carried. "
                           "Attach handles or names instead of contents, or use smaller buckets",
                           size_bytes, TDM_ATTACHED_BYTES_MAX);
}

/* Returns the checksum of the bytes that a job library has attached; 0 if it has attached none. */
static uint64_t sum_attached(struct tdm_bytes attached)
{
    return attached.size_bytes == 0 ? 0 : tdm__checksum_tensor(attached.data, attached.size_bytes);
}

tdm_status tdm__rank_announcement_pack(const struct tdm__rank_announcement *announcement,
                                       tdm_writer *writer)
{
    const struct tdm__rank_announcement_message message = {
        .bucket = announcement->bucket,
        .buckets_count = announcement->buckets_count,
        .tensor_handles = announcement->tensor_handles,
        .attached_sum = sum_attached(announcement->attached),
        .attached = announcement->attached};

    TDM_TRY(check_attached_size(announcement->attached.size_bytes));
    return tdm__rank_announcement_encode(&message, writer);
}

/* Reads the announcement from the parsed document. */
static tdm_status read_announcement(const tdm_document *document,
                                    struct tdm__rank_announcement *announcement_out)
{
    struct tdm__rank_announcement_message message;
    uint64_t found;

    TDM_TRY(tdm__rank_announcement_decode(tdm_document_root(document), &message));
    TDM_TRY(check_attached_size(message.attached.size_bytes));
    found = sum_attached(message.attached);
    if (found != message.attached_sum) {
        return tdm__fail(TDM_E_CHECKSUM,
                         "the checksum of the %zu attached bytes is %016" PRIx64
                         ", the announcement says %016" PRIx64,
                         message.attached.size_bytes, found, message.attached_sum);
    }
    *announcement_out = (struct tdm__rank_announcement){.bucket = message.bucket,
                                                        .buckets_count = message.buckets_count,
                                                        .tensor_handles = message.tensor_handles,
                                                        .attached = message.attached};
    return TDM_OK;
}

tdm_status tdm__rank_announcement_parse(struct tdm_bytes bytes,
                                        struct tdm__rank_announcement *announcement_out,
                                        tdm_document **document_out)
{
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm_document_parse(bytes, &document));
    status = read_announcement(document, announcement_out);
    if (status != TDM_OK) {
        tdm_document_destroy(document);
        return status;
    }
    *document_out = document;
    return TDM_OK;
}
