/* attached_bytes_test.c - an engine's library gets the attached bytes of its rank, or of all. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/attached_bytes.h"

#include "colocate/job/rank_announcement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tandem/error.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { RANKS = 3, FIRST = 6, BYTES_MAX = 1024 }; /* The engine's images are those from FIRST on. */

/* Three gather groups of as many trainer ranks as an engine has ranks. */
static const struct tdm__gather_groups groups = {3, RANKS, RANKS, 1};

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

/* Encodes the description of one tensor in bucket 2 of 5. */
static struct tdm_bytes describe(unsigned char bytes[BYTES_MAX])
{
    struct tdm__storage_record storage = {
        .gpu = {{3}}, .key = {{4}}, .size_bytes = 64, .allocation_bytes = 128};
    struct tdm__tensor_record tensor = {
        .dtype = TDM_F32, .dims_count = 2, .shape = {1, 2}, .stride = {2, 1}};
    const struct tdm__tensor_handles handles = {.header = {.storages_count = 1,
                                                           .tensors_count = 1,
                                                           .update = {{1}},
                                                           .node = {{2}},
                                                           .epoch = 3,
                                                           .bucket = 2,
                                                           .buckets_count = 5},
                                                .storages = &storage,
                                                .tensors = &tensor};
    size_t size_bytes = tdm__tensor_handles_bytes(&handles);

    assert_true(size_bytes <= BYTES_MAX);
    TRY(tdm__tensor_handles_encode(&handles, bytes, size_bytes));
    return (struct tdm_bytes){bytes, size_bytes};
}

/* Fills a list for each rank: with an announcement that attaches the rank's character, with one
 * that attaches nothing ('-'), or with none ('0'). */
static void announce(struct tdm__announcement_list lists[RANKS], const char *ranks)
{
    static unsigned char bytes[BYTES_MAX];

    for (uint32_t i = 0; i < RANKS; i++) {
        struct tdm__rank_announcement_message announcement = {
            .writer = FIRST + i,
            .engine_rank = FIRST + i,
            .tensor_handles = describe(bytes),
            .attached = {&ranks[i], ranks[i] == '-' ? 0 : 1}};

        if (ranks[i] != '0') {
            TRY(tdm__rank_announcement_seal(&announcement));
            TRY(tdm__announcement_list_add(&lists[i], &announcement));
        }
    }
}

static void lists_fini(struct tdm__announcement_list lists[RANKS])
{
    for (uint32_t i = 0; i < RANKS; i++) {
        tdm__announcement_list_fini(&lists[i]);
    }
}

static struct seen give_all(const struct tdm_engine_ops *ops, const char *ranks)
{
    struct tdm__announcement_list lists[RANKS] = {{.count = 0}};
    struct seen seen = {.calls = 0};

    announce(lists, ranks);
    TRY(tdm__attached_bytes_give_all(ops, &seen, FIRST, &groups, lists));
    lists_fini(lists);
    return seen;
}

static void rank_0_gets_what_is_attached_for_all_ranks(void **state)
{
    struct seen seen = give_all(&with_gathered, "abc");

    (void)state;
    assert_int_equal(seen.gathers, 1);
    assert_int_equal(seen.bucket, 2);
    assert_string_equal(seen.bytes, "abc");
    seen = give_all(&with_gathered, "0-c");
    assert_string_equal(seen.bytes, "--c");
    seen = give_all(&with_gathered, "0--");
    assert_int_equal(seen.gathers, 0);
    seen = give_all(&with_attached, "abc");
    assert_int_equal(seen.calls, 0);
}

static void changed_announcement_names_its_trainer_rank_and_gives_nothing(void **state)
{
    struct tdm__announcement_list lists[RANKS] = {{.count = 0}};
    struct seen seen = {.calls = 0};

    (void)state;
    announce(lists, "abc");
    lists[1].items[0].checksum ^= 1;
    assert_int_equal(tdm__attached_bytes_give_all(&with_gathered, &seen, FIRST, &groups, lists),
                     TDM_E_CHECKSUM);
    assert_non_null(strstr(tdm_error_detail(), "trainer rank 7"));
    assert_int_equal(seen.gathers, 0);
    lists_fini(lists);
}

static void bytes_of_an_undescribed_bucket_are_refused(void **state)
{
    struct tdm__announcement_list lists[RANKS] = {{.count = 0}};
    struct tdm__rank_announcement_message announcement = {
        .writer = FIRST, .engine_rank = FIRST, .attached = {"x", 1}};
    struct seen seen = {.calls = 0};

    (void)state;
    TRY(tdm__rank_announcement_seal(&announcement));
    TRY(tdm__announcement_list_add(&lists[0], &announcement));
    assert_int_equal(tdm__attached_bytes_give_all(&with_gathered, &seen, FIRST, &groups, lists),
                     TDM_E_PROTOCOL);
    assert_int_equal(seen.gathers, 0);
    lists_fini(lists);
}

static void each_rank_gets_its_own_bytes_unless_rank_0_has_all(void **state)
{
    const struct tdm__tensor_handles_header header = {.bucket = 3, .buckets_count = 5};
    const struct tdm_bytes bytes = {"xyz", 3};
    struct seen seen = {.calls = 0};

    (void)state;
    TRY(tdm__attached_bytes_give(&with_none, &seen, &header, (struct tdm_bytes){.size_bytes = 0}));
    TRY(tdm__attached_bytes_give(&with_attached, &seen, &header, bytes));
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.bucket, 3);
    assert_int_equal(seen.bytes[0], 'x');
    TRY(tdm__attached_bytes_give(&with_gathered, &seen, &header, bytes));
    assert_int_equal(seen.calls, 1);
    assert_int_equal(tdm__attached_bytes_give(&with_none, &seen, &header, bytes),
                     TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "3 bytes are attached to the bucket"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_gets_what_is_attached_for_all_ranks),
        cmocka_unit_test(changed_announcement_names_its_trainer_rank_and_gives_nothing),
        cmocka_unit_test(bytes_of_an_undescribed_bucket_are_refused),
        cmocka_unit_test(each_rank_gets_its_own_bytes_unless_rank_0_has_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
