/* rpc_call_table_test.c - a table finds the calls that it contains, and keeps their order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/call_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { ENTRIES = 500 };

static struct call_table table;
static struct tdm__call_table_entry entries[ENTRIES];

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(tdm__call_table_init(&table), TDM_OK);
    for (uint64_t i = 0; i < ENTRIES; i++) {
        entries[i].id = i * 64 + 1; /* Many of these IDs share a bucket. */
        tdm__call_table_add(&table, &entries[i]);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    while (!TAILQ_EMPTY(&table.in_order)) {
        tdm__call_table_remove(&table, TAILQ_FIRST(&table.in_order));
    }
    tdm__call_table_fini(&table);
    return 0;
}

static void an_entry_is_found_until_it_is_removed(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ENTRIES; i += 3) {
        assert_ptr_equal(tdm__call_table_find(&table, entries[i].id), &entries[i]);
        tdm__call_table_remove(&table, &entries[i]);
        assert_null(tdm__call_table_find(&table, entries[i].id));
    }
    assert_ptr_equal(tdm__call_table_find(&table, entries[1].id), &entries[1]);
    assert_null(tdm__call_table_find(&table, 2));
    assert_int_equal(table.count, ENTRIES - (ENTRIES + 2) / 3);
}

static void the_order_is_that_of_adding_also_after_growth(void **state)
{
    const struct tdm__call_table_entry *entry;
    uint64_t last_id = 0;

    (void)state;
    tdm__call_table_remove(&table, &entries[100]);
    TAILQ_FOREACH(entry, &table.in_order, link)
    {
        assert_true(entry->id > last_id);
        last_id = entry->id;
    }
    assert_true(last_id == entries[ENTRIES - 1].id);
}

static void a_table_without_memory_finds_nothing(void **state)
{
    const struct call_table none = {.buckets = NULL};

    (void)state;
    assert_null(tdm__call_table_find(&none, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_entry_is_found_until_it_is_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_order_is_that_of_adding_also_after_growth, set_up,
                                        tear_down),
        cmocka_unit_test(a_table_without_memory_finds_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
