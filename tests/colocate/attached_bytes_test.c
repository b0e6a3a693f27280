/* attached_bytes_test.c - an engine's library gets the attached bytes of its rank, or of all. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/attached_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tandem/error.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { RANKS = 3 };

/* What the two functions of the library got. */
struct seen {
    uint32_t calls;        /* Calls of attached(). */
    uint32_t gathers;      /* Calls of gathered(). */
    uint32_t bucket;       /* Bucket of the last call. */
    char bytes[RANKS + 1]; /* First byte for each rank, '-' for nothing. */
};

static tdm_status attached(void *state, uint32_t bucket, uint32_t buckets_count,
                           struct tdm_bytes bytes)
{
    struct seen *seen = state;

    assert_int_equal(buckets_count, 5);
    seen->calls++;
    seen->bucket = bucket;
    seen->bytes[0] = *(const char *)bytes.data;
    return TDM_OK;
}

static tdm_status gathered(void *state, uint32_t bucket, uint32_t buckets_count,
                           const struct tdm_bytes *parts, uint32_t ranks_count)
{
    struct seen *seen = state;

    assert_int_equal(buckets_count, 5);
    assert_int_equal(ranks_count, RANKS);
    seen->gathers++;
    seen->bucket = bucket;
    for (uint32_t i = 0; i < RANKS; i++) {
        seen->bytes[i] = '-';
        if (parts[i].size_bytes > 0) {
            seen->bytes[i] = *(const char *)parts[i].data;
        }
    }
    return TDM_OK;
}

static const struct tdm_engine_ops with_attached = {.attached = attached};
static const struct tdm_engine_ops with_gathered = {.gathered = gathered};
static const struct tdm_engine_ops with_none = {.size_bytes = sizeof(struct tdm_engine_ops)};

/* Getter of a message list: the bytes of a writer, or none. */
static void get_packed(const void *arg, uint32_t index, void *item_out)
{
    tdm_writer *const *writers = arg;
    struct tdm_bytes bytes = {.size_bytes = 0};

    if (writers[index] != NULL) {
        bytes = tdm_writer_bytes(writers[index]);
    }
    memcpy(item_out, &bytes, sizeof(bytes));
}

/* Sends the bytes of the writers as the call to an engine does. Returns the status of
 * tdm__attached_bytes_give_all(). */
static tdm_status give_packed(const struct tdm_engine_ops *ops, tdm_writer *const *writers,
                              struct seen *seen)
{
    struct tdm__stage_bucket_message message = {
        .announcements = {.count = RANKS, .get = get_packed, .arg = writers}};
    tdm_document *document;
    tdm_writer *writer;
    tdm_status status;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__stage_bucket_encode(&message, writer));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    TRY(tdm__stage_bucket_decode(tdm_document_root(document), &message));
    status = tdm__attached_bytes_give_all(ops, seen, &message.announcements);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    return status;
}

/* Packs an announcement for each rank that attaches the rank's character: '-' attaches nothing, and
 * '0' has no part in the bucket. Returns the status of tdm__attached_bytes_give_all(). */
static tdm_status give_all(const struct tdm_engine_ops *ops, const char *ranks, struct seen *seen)
{
    tdm_writer *writers[RANKS] = {NULL};
    tdm_status status;

    for (uint32_t i = 0; i < RANKS; i++) {
        const struct tdm__rank_announcement announcement = {
            .bucket = 2,
            .buckets_count = 5,
            .tensor_handles = {"where", 5},
            .attached = {&ranks[i], ranks[i] == '-' ? 0 : 1}};

        if (ranks[i] != '0') {
            TRY(tdm_writer_create(&writers[i]));
            TRY(tdm__rank_announcement_pack(&announcement, writers[i]));
        }
    }
    *seen = (struct seen){.calls = 0};
    status = give_packed(ops, writers, seen);
    for (uint32_t i = 0; i < RANKS; i++) {
        tdm_writer_destroy(writers[i]);
    }
    return status;
}

static void rank_0_gets_what_is_attached_for_all_ranks(void **state)
{
    struct seen seen;

    (void)state;
    TRY(give_all(&with_gathered, "abc", &seen));
    assert_int_equal(seen.gathers, 1);
    assert_int_equal(seen.bucket, 2);
    assert_string_equal(seen.bytes, "abc");
    TRY(give_all(&with_gathered, "0-c", &seen));
    assert_string_equal(seen.bytes, "--c");
    TRY(give_all(&with_gathered, "0--", &seen));
    assert_int_equal(seen.gathers, 0);
    TRY(give_all(&with_attached, "abc", &seen));
    assert_int_equal(seen.calls, 0);
}

static void bytes_that_are_no_announcement_name_their_rank(void **state)
{
    struct seen seen = {.calls = 0};
    tdm_writer *writers[RANKS] = {NULL};

    (void)state;
    TRY(tdm_writer_create(&writers[1]));
    TRY(tdm_pack(writers[1], "s", "nonsense"));
    assert_int_not_equal(give_packed(&with_gathered, writers, &seen), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "what is announced to rank 1 of the engine"));
    assert_int_equal(seen.gathers, 0);
    tdm_writer_destroy(writers[1]);
}

static void each_rank_gets_its_own_bytes_unless_rank_0_has_all(void **state)
{
    const struct tdm__rank_announcement announcement = {
        .bucket = 3, .buckets_count = 5, .attached = {"xyz", 3}};
    struct seen seen = {.calls = 0};

    (void)state;
    TRY(tdm__attached_bytes_give(&with_attached, &seen, &announcement));
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.bucket, 3);
    assert_int_equal(seen.bytes[0], 'x');
    TRY(tdm__attached_bytes_give(&with_gathered, &seen, &announcement));
    assert_int_equal(seen.calls, 1);
    assert_int_equal(tdm__attached_bytes_give(&with_none, &seen, &announcement), TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "3 bytes are attached to the bucket"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_gets_what_is_attached_for_all_ranks),
        cmocka_unit_test(bytes_that_are_no_announcement_name_their_rank),
        cmocka_unit_test(each_rank_gets_its_own_bytes_unless_rank_0_has_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
