/* rank_announcement.c - what one trainer rank tells one engine rank about a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rank_announcement.h"

#include "colocate/weights/checksum.h"
#include "runtime/error.h"

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

/* Returns the checksum of all fields but the checksum itself. */
static uint64_t sum_announcement(const struct tdm__rank_announcement_message *announcement)
{
    const struct tdm_bytes *handles = &announcement->tensor_handles;
    const struct tdm_bytes *attached = &announcement->attached;
    const uint64_t words[] = {
        announcement->writer, announcement->engine_rank,
        handles->size_bytes,  tdm__checksum_tensor(handles->data, handles->size_bytes),
        attached->size_bytes, tdm__checksum_tensor(attached->data, attached->size_bytes)};

    return tdm__checksum_tensor(words, sizeof(words));
}

tdm_status tdm__rank_announcement_seal(struct tdm__rank_announcement_message *announcement)
{
    TDM_TRY(check_attached_size(announcement->attached.size_bytes));
    announcement->checksum = sum_announcement(announcement);
    return TDM_OK;
}

tdm_status tdm__rank_announcement_check(const struct tdm__rank_announcement_message *announcement,
                                        uint32_t image, const struct tdm__gather_groups *groups)
{
    uint64_t found;

    TDM_TRY(check_attached_size(announcement->attached.size_bytes));
    found = sum_announcement(announcement);
    if (found != announcement->checksum) {
        return tdm__fail(TDM_E_CHECKSUM,
                         "the checksum of an announcement with %zu attached bytes is %016" PRIx64
                         ", the announcement says %016" PRIx64,
                         announcement->attached.size_bytes, found, announcement->checksum);
    }
    if (announcement->engine_rank != image) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "an announcement for engine rank %" PRIu32 " came to %" PRIu32,
                         announcement->engine_rank, image);
    }
    if (announcement->tensor_handles.size_bytes == 0 && announcement->attached.size_bytes == 0) {
        return tdm__fail(TDM_E_PROTOCOL, "an announcement is empty");
    }
    if (announcement->attached.size_bytes > 0 &&
        announcement->writer != tdm__gather_groups_server(groups, image)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "trainer rank %" PRIu32 " attaches bytes for engine rank %" PRIu32
                         ", only trainer rank %" PRIu32 " may, which serves it",
                         announcement->writer, image, tdm__gather_groups_server(groups, image));
    }
    return TDM_OK;
}
