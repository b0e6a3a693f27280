/* journal.c - what of an update is in a shadow: which buckets, with which sums. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/journal.h"

#include "runtime/error.h"
#include "runtime/messages/messages.h"

enum { WORDS = 7 };

void tdm__journal_add(struct tdm__journal *journal, uint32_t bucket,
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

        journal->sums = tdm__checksum_contents(&journal->sums, words, WORDS);
    }
    journal->next = bucket + 1;
}

bool tdm__journal_equal(const struct tdm__journal *a, const struct tdm__journal *b)
{
    return a->next == b->next && tdm__hash_equal(&a->sums, &b->sums);
}

/* ---- a member's ------------------------------------------------------------------------- */

void tdm__bookkeeper_go_on(struct tdm__bookkeeper *bookkeeper)
{
    bookkeeper->is_unsettled = true;
}

tdm_status tdm__bookkeeper_open(struct tdm__bookkeeper *bookkeeper, uint32_t bucket,
                                bool *begun_out)
{
    if (bookkeeper->is_unsettled && bucket < bookkeeper->journal.next) {
        *bookkeeper = (struct tdm__bookkeeper){.is_open = false};
    }
    bookkeeper->is_unsettled = false;
    if (bookkeeper->is_open || bucket < bookkeeper->journal.next) {
        return tdm__fail(TDM_E_STATE, "bucket %u came after bucket %u%s", bucket,
                         bookkeeper->journal.next - (bookkeeper->is_open ? 0 : 1),
                         bookkeeper->is_open ? ", which did not arrive" : "");
    }
    *begun_out = bookkeeper->journal.next == 0;
    bookkeeper->is_open = true;
    return TDM_OK;
}

void tdm__bookkeeper_close(struct tdm__bookkeeper *bookkeeper, uint32_t bucket,
                           const struct tdm__tensor_record *records, uint32_t records_count)
{
    tdm__journal_add(&bookkeeper->journal, bucket, records, records_count);
    bookkeeper->is_open = false;
}

struct tdm__journal tdm__bookkeeper_tell(const struct tdm__bookkeeper *bookkeeper, bool is_lent)
{
    return bookkeeper->is_open || (bookkeeper->is_unsettled && is_lent)
               ? (struct tdm__journal){.next = 0}
               : bookkeeper->journal;
}

/* ---- as calls carry it ------------------------------------------------------------------ */

void tdm__journal_write(const struct tdm__journal *journal, tdm_writer *writer)
{
    const struct tdm__journal_message message = {journal->next, journal->sums.high,
                                                 journal->sums.low};

    (void)tdm__journal_encode(&message, writer);
}

struct tdm__journal tdm__journal_of_message(const struct tdm__journal_message *message)
{
    return (struct tdm__journal){
        .next = message->next, .sums = {.high = message->sums_high, .low = message->sums_low}};
}

tdm_status tdm__journal_read(const tdm_value *value, struct tdm__journal *journal_out)
{
    struct tdm__journal_message message;

    if (value == NULL || tdm_value_kind_of(value) == TDM_NIL) {
        *journal_out = (struct tdm__journal){.next = 0};
        return TDM_OK;
    }
    TDM_TRY(tdm__journal_decode(value, &message));
    *journal_out = tdm__journal_of_message(&message);
    return TDM_OK;
}
