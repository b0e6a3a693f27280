/* resume_log.c - which buckets of an aborted update a receiver still has. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/resume_log.h"

#include "runtime/error.h"
#include "runtime/messages/messages.h"

/* Number of 64-bit words that the hash covers for each tensor record. */
enum { WORDS = 7 };

void tdm__resume_log_add_bucket(struct tdm__resume_log *resume_log, uint32_t bucket,
                                const struct tdm__tensor_record *records, uint32_t records_count)
{
    for (uint32_t i = 0; i < records_count; i++) {
        const struct tdm__tensor_record *record = &records[i];
        const uint64_t words[WORDS] = {(uint64_t)bucket << 32 | record->tensor,
                                       record->dtype,
                                       record->shape[0],
                                       record->shape[1],
                                       record->stride[0],
                                       record->image,
                                       record->checksum};

        const struct tdm__hash none = {.high = 0};
        const struct tdm__hash hash = tdm__checksum_contents_hash(&none, words, WORDS);

        tdm__resume_log_add_share(resume_log, &hash);
    }
    resume_log->next = bucket + 1;
}

void tdm__resume_log_add_share(struct tdm__resume_log *resume_log, const struct tdm__hash *share)
{
    resume_log->sums.high += share->high;
    resume_log->sums.low += share->low;
}

bool tdm__resume_log_equal(const struct tdm__resume_log *a, const struct tdm__resume_log *b)
{
    return a->next == b->next && tdm__hash_equal(&a->sums, &b->sums);
}

/* ---- the tracker of a receiver ------------------------------------------------------- */

void tdm__resume_tracker_begin_update(struct tdm__resume_tracker *tracker)
{
    tracker->is_unsettled = true;
}

tdm_status tdm__resume_tracker_open_bucket(struct tdm__resume_tracker *tracker, uint32_t bucket,
                                           bool *begun_out)
{
    if (tracker->is_unsettled && bucket < tracker->resume_log.next) {
        *tracker = (struct tdm__resume_tracker){.is_open = false};
    }
    tracker->is_unsettled = false;
    if (tracker->is_open || bucket < tracker->resume_log.next) {
        return tdm__fail(TDM_E_STATE,
                         "receiving a bucket failed: bucket %u came after bucket %u%s. Send the "
                         "buckets of an update in ascending order",
                         bucket, tracker->resume_log.next - (tracker->is_open ? 0 : 1),
                         tracker->is_open ? ", which did not arrive" : "");
    }
    *begun_out = tracker->resume_log.next == 0;
    tracker->is_open = true;
    return TDM_OK;
}

void tdm__resume_tracker_close_bucket(struct tdm__resume_tracker *tracker, uint32_t bucket,
                                      const struct tdm__tensor_record *records,
                                      uint32_t records_count)
{
    tdm__resume_log_add_bucket(&tracker->resume_log, bucket, records, records_count);
    tracker->is_open = false;
}

struct tdm__resume_log tdm__resume_tracker_snapshot(const struct tdm__resume_tracker *tracker,
                                                    bool is_exported)
{
    return tracker->is_open || (tracker->is_unsettled && is_exported)
               ? (struct tdm__resume_log){.next = 0}
               : tracker->resume_log;
}

/* ---- as calls carry it --------------------------------------------------------------- */

void tdm__resume_log_write(const struct tdm__resume_log *resume_log, tdm_writer *writer)
{
    const struct tdm__resume_log_message message = {resume_log->next, resume_log->sums.high,
                                                    resume_log->sums.low};

    (void)tdm__resume_log_encode(&message, writer);
}

struct tdm__resume_log tdm__resume_log_of_message(const struct tdm__resume_log_message *message)
{
    return (struct tdm__resume_log){.next = message->next,
                                    .sums = {.high = message->sums_high, .low = message->sums_low}};
}

tdm_status tdm__resume_log_read(const tdm_value *value, struct tdm__resume_log *resume_log_out)
{
    struct tdm__resume_log_message message;

    if (value == NULL || tdm_value_kind_of(value) == TDM_NIL) {
        *resume_log_out = (struct tdm__resume_log){.next = 0};
        return TDM_OK;
    }
    TDM_TRY(tdm__resume_log_decode(value, &message));
    *resume_log_out = tdm__resume_log_of_message(&message);
    return TDM_OK;
}
