/* announcement_list_test.c - announcements reach the lists of their engine ranks, or are refused.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/announcement_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tandem/error.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { FIRST = 6, RANKS = 3, ENGINE = 2 };

/* Engines with a gather group each, of which engine 2 has the images from FIRST on. */
static const struct tdm__gather_groups groups = {3, RANKS, RANKS, 1};
/* Three engines with one gather group. */
static const struct tdm__gather_groups one_group = {1, 1, RANKS, 3};

/* Appends an announcement of trainer rank `writer` for an engine rank, with these handles. */
static void add(struct tdm__announcement_list *list, uint32_t writer, uint32_t engine_rank,
                const char *handles)
{
    struct tdm__rank_announcement_message announcement = {
        .writer = writer, .engine_rank = engine_rank, .tensor_handles = {handles, strlen(handles)}};

    TRY(tdm__rank_announcement_seal(&announcement));
    TRY(tdm__announcement_list_add(list, &announcement));
}

/* Packs three announcements for the engine ranks 6, 8 and 6. */
static tdm_writer *pack_three(void)
{
    struct tdm__announcement_list list = {.count = 0};
    tdm_writer *writer;

    add(&list, 9, FIRST, "one");
    add(&list, 1, FIRST + 2, "");
    add(&list, 2, FIRST, "three");
    TRY(tdm_writer_create(&writer));
    TRY(tdm__announcement_list_pack(&list, writer));
    tdm__announcement_list_fini(&list);
    return writer;
}

static void each_list_gets_what_is_for_its_engine_rank(void **state)
{
    struct tdm__announcement_list lists[RANKS] = {{.count = 0}};
    tdm_writer *writer = pack_three();

    (void)state;
    TRY(tdm__announcement_list_route(tdm_writer_bytes(writer), &groups, ENGINE, lists));
    tdm_writer_destroy(writer); /* The lists have memory of their own. */
    assert_int_equal(lists[0].count, 2);
    assert_int_equal(lists[1].count, 0);
    assert_int_equal(lists[2].count, 1);
    assert_int_equal(lists[0].items[0].writer, 9);
    assert_int_equal(lists[0].items[1].writer, 2);
    assert_memory_equal(lists[0].items[1].tensor_handles.data, "three", 5);
    TRY(tdm__rank_announcement_check(&lists[0].items[1], FIRST, &groups));
    for (uint32_t i = 0; i < RANKS; i++) {
        tdm__announcement_list_fini(&lists[i]);
    }
}

static void announcement_for_another_engine_is_refused_or_left_out(void **state)
{
    struct tdm__announcement_list lists[RANKS] = {{.count = 0}};
    struct tdm__announcement_list one = {.count = 0};
    tdm_writer *writer = pack_three();

    (void)state;
    assert_int_equal(
        tdm__announcement_list_route(tdm_writer_bytes(writer), &groups, ENGINE - 1, lists),
        TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "for engine rank 6 came to an engine with the "
                                               "ranks 3 to 5"));
    TRY(tdm__announcement_list_route(tdm_writer_bytes(writer), &one_group, ENGINE - 1, lists));
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(lists[i].count, 0);
    }
    TRY(tdm__announcement_list_unpack(tdm_writer_bytes(writer), FIRST + 1, 2, &one));
    assert_int_equal(one.count, 1);
    assert_int_equal(one.items[0].engine_rank, FIRST + 2);
    tdm__announcement_list_clear(&one);
    TRY(tdm__announcement_list_unpack(tdm_writer_bytes(writer), 0, FIRST, &one));
    assert_int_equal(one.count, 0);
    tdm__announcement_list_fini(&one);
    for (uint32_t i = 0; i < RANKS; i++) {
        tdm__announcement_list_fini(&lists[i]);
    }
    tdm_writer_destroy(writer);
}

static void packed_lists_keep_their_bound(void **state)
{
    struct tdm__announcement_list list = {.count = 0};
    size_t bound = tdm__announcement_list_packed_max(0);

    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        tdm_writer *writer;

        add(&list, UINT32_MAX - i, UINT32_MAX, "0123456789");
        bound += tdm__announcement_list_packed_max(10);
        TRY(tdm_writer_create(&writer));
        TRY(tdm__announcement_list_pack(&list, writer));
        assert_true(tdm_writer_bytes(writer).size_bytes <= bound);
        tdm_writer_destroy(writer);
    }
    tdm__announcement_list_fini(&list);
}

static void bytes_that_are_no_list_are_refused(void **state)
{
    struct tdm__announcement_list list = {.count = 0};
    tdm_writer *writer = pack_three();
    struct tdm_bytes packed = tdm_writer_bytes(writer);

    (void)state;
    for (size_t bytes = 0; bytes < packed.size_bytes; bytes++) {
        assert_int_equal(tdm__announcement_list_unpack((struct tdm_bytes){packed.data, bytes},
                                                       FIRST, RANKS, &list),
                         TDM_E_PROTOCOL);
    }
    tdm__announcement_list_fini(&list);
    tdm_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_list_gets_what_is_for_its_engine_rank),
        cmocka_unit_test(announcement_for_another_engine_is_refused_or_left_out),
        cmocka_unit_test(packed_lists_keep_their_bound),
        cmocka_unit_test(bytes_that_are_no_list_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
