/* placement_group_table_test.c - groups are found among thousands, and those that wait come first.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/placement_group_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { GROUPS = 5000 };

static struct tdm__node node;
static struct tdm__id ids[GROUPS];

static int open_table(void **state)
{
    (void)state;
    memset(&node, 0, sizeof(node));
    TRY(tdm__placement_group_table_create(&node));
    return 0;
}

static int close_table(void **state)
{
    struct group_entry *group;

    (void)state;
    while ((group = TAILQ_FIRST(&node.placement_groups->all)) != NULL) {
        tdm__group_entry_remove(group);
    }
    assert_int_equal(node.placement_groups->count, 0);
    tdm__placement_group_table_destroy(&node);
    assert_null(node.placement_groups);
    return 0;
}

static void without_a_table_there_is_no_group(void **state)
{
    static const struct tdm__node bare;
    const struct tdm__id id = {{1}};

    (void)state;
    assert_null(tdm__group_entry_find(&bare, &id));
}

static void each_of_many_groups_is_found_until_it_is_removed(void **state)
{
    (void)state;
    for (int i = 0; i < GROUPS; i++) {
        TRY(tdm__id_generate(&ids[i]));
        assert_null(tdm__group_entry_find(&node, &ids[i]));
        assert_non_null(tdm__group_entry_add(&node, &ids[i]));
    }
    assert_int_equal(node.placement_groups->count, GROUPS);
    for (int i = 0; i < GROUPS; i += 2) {
        tdm__group_entry_remove(tdm__group_entry_find(&node, &ids[i]));
    }
    assert_int_equal(node.placement_groups->count, GROUPS / 2);
    for (int i = 0; i < GROUPS; i++) {
        const struct group_entry *group = tdm__group_entry_find(&node, &ids[i]);

        assert_int_equal(group != NULL, i % 2);
        assert_true(group == NULL || tdm__id_equal(&group->request.id, &ids[i]));
    }
}

/* Otherwise each group that is removed costs a look at all others. */
static void bucket_has_few_groups(void **state)
{
    uint32_t longest = 0;

    (void)state;
    for (int i = 0; i < GROUPS; i++) {
        TRY(tdm__id_generate(&ids[i]));
        assert_non_null(tdm__group_entry_add(&node, &ids[i]));
    }
    for (uint32_t i = 0; i < node.placement_groups->buckets_count; i++) {
        const struct group_entry *group;
        uint32_t count = 0;

        LIST_FOREACH(group, &node.placement_groups->buckets[i], in_bucket)
        {
            count++;
        }
        longest = count > longest ? count : longest;
    }
    assert_in_range(longest, 1, 16);
}

static void groups_that_are_not_held_come_first(void **state)
{
    struct group_entry *groups[6];
    const struct group_entry *group;
    uint32_t held_count = 0;

    (void)state;
    for (int i = 0; i < 6; i++) {
        TRY(tdm__id_generate(&ids[i]));
        groups[i] = tdm__group_entry_add(&node, &ids[i]);
        if (i % 2 == 0) {
            tdm__group_entry_set_held(groups[i]);
        }
    }
    tdm__group_entry_set_held(groups[0]); /* A second time. */
    TAILQ_FOREACH(group, &node.placement_groups->all, in_all)
    {
        assert_true(held_count == 0 || group->is_held);
        held_count += group->is_held ? 1 : 0;
    }
    assert_int_equal(held_count, 3);
}

/* Giving memory back takes time, so that it waits until no more groups are removed. */
static void memory_is_given_back_once_many_groups_were_removed(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * TDM__GROUPS_TRIM_MIN; i++) {
        TRY(tdm__id_generate(&ids[i]));
        assert_non_null(tdm__group_entry_add(&node, &ids[i]));
    }
    assert_false(tdm__placement_group_table_trim(&node));
    for (int i = 0; i < TDM__GROUPS_TRIM_MIN - 1; i++) {
        tdm__group_entry_remove(tdm__group_entry_find(&node, &ids[i]));
    }
    assert_false(tdm__placement_group_table_trim(&node));
    assert_false(tdm__placement_group_table_trim(&node)); /* They are too few. */
    tdm__group_entry_remove(tdm__group_entry_find(&node, &ids[TDM__GROUPS_TRIM_MIN]));
    assert_false(tdm__placement_group_table_trim(&node)); /* One was removed just now. */
    assert_true(tdm__placement_group_table_trim(&node));
    assert_false(tdm__placement_group_table_trim(&node));
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, open_table, close_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_table_there_is_no_group),
        TEST(each_of_many_groups_is_found_until_it_is_removed),
        TEST(bucket_has_few_groups),
        TEST(groups_that_are_not_held_come_first),
        TEST(memory_is_given_back_once_many_groups_were_removed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
