/* broker_service_test.c - the daemon makes and lends blocks, and refuses what makes no sense.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB    ((uint64_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

static tdm_runtime *runtime;

static void the_ledger_has_a_row_for_each_tag(void **state)
{
    tdm_document *document;
    const tdm_value *gpu;
    const tdm_value *row;

    (void)state;
    TRY(one_node_ask(runtime, "block.create", NULL, "us(uu)", (uint64_t)0, "weights", 4 * MIB,
                     2 * MIB));
    TRY(one_node_ask(runtime, "block.create", NULL, "us(u)", (uint64_t)0, "kv_cache", 2 * MIB));
    TRY(one_node_ask(runtime, "block.ledger", &document, ""));
    assert_int_equal(tdm_value_count(tdm_document_root(document)), 1);
    gpu = tdm_value_at(tdm_document_root(document), 0);
    assert_int_equal(tdm_value_uint(tdm_value_find(gpu, "capacity_bytes"), 0), 16 * MIB);
    assert_int_equal(tdm_value_uint(tdm_value_find(gpu, "used_bytes"), 0), 8 * MIB);
    assert_int_equal(tdm_value_count(tdm_value_find(gpu, "rows")), 2);
    row = tdm_value_at(tdm_value_find(gpu, "rows"), 0);
    assert_string_equal(tdm_value_string(tdm_value_find(row, "tag"), ""), "weights");
    assert_string_equal(tdm_value_string(tdm_value_find(row, "owner"), ""),
                        "broker_service_test");
    assert_int_equal(tdm_value_uint(tdm_value_find(row, "bytes"), 0), 6 * MIB);
    assert_int_equal(tdm_value_uint(tdm_value_find(row, "blocks"), 0), 2);
    assert_int_equal(tdm_value_uint(tdm_value_find(row, "releasing_bytes"), 1), 0);
    tdm_document_destroy(document);
}

static void what_does_not_fit_is_not_made_and_says_who_holds_what(void **state)
{
    (void)state;
    TRY(one_node_ask(runtime, "block.create", NULL, "us(u)", (uint64_t)0, "weights", 12 * MIB));
    assert_int_equal(one_node_ask(runtime, "block.create", NULL, "us(uu)", (uint64_t)0,
                                  "kv_cache", 4 * MIB, 2 * MIB),
                     TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "weights 12.0 MiB"));
    assert_true(one_node_used_bytes(runtime) == 12 * MIB);
}

static void a_call_that_makes_no_sense_is_refused_and_makes_nothing(void **state)
{
    static const char key[16] = "no block's key!";

    (void)state;
    assert_int_equal(
        one_node_ask(runtime, "block.create", NULL, "us(u)", (uint64_t)1, "weights", 2 * MIB),
        TDM_E_INVAL);
    assert_int_equal(
        one_node_ask(runtime, "block.create", NULL, "us(u)", UINT64_MAX, "weights", 2 * MIB),
        TDM_E_INVAL);
    assert_int_equal(
        one_node_ask(runtime, "block.create", NULL, "us(u)", (uint64_t)0, NULL, 2 * MIB),
        TDM_E_INVAL);
    assert_int_equal(one_node_ask(runtime, "block.create", NULL, "us(u)", (uint64_t)0,
                                  "weights", (uint64_t)3),
                     TDM_E_INVAL);
    assert_int_equal(one_node_ask(runtime, "block.create", NULL, "us(uuuuuuuuu)", (uint64_t)0,
                                  "weights", MIB, MIB, MIB, MIB, MIB, MIB, MIB, MIB, MIB),
                     TDM_E_LIMIT);
    assert_int_equal(one_node_ask(runtime, "block.create", NULL, "u", (uint64_t)0), TDM_E_TYPE);
    assert_int_equal(one_node_ask(runtime, "block.open", NULL, "b", key, sizeof(key)),
                     TDM_E_NOT_FOUND);
    assert_int_equal(one_node_ask(runtime, "block.open", NULL, "b", key, (size_t)3),
                     TDM_E_INVAL);
    assert_int_equal(one_node_ask(runtime, "block.open", NULL, ""), TDM_E_INVAL);
    assert_int_equal(one_node_ask(runtime, "block.release", NULL, "b", key, sizeof(key)),
                     TDM_E_NOT_FOUND);
    assert_int_equal(one_node_ask(runtime, "block.accept", NULL, "s", "text"), TDM_E_INVAL);
    assert_int_equal(one_node_ask(runtime, "block.burn", NULL, ""), TDM_E_NOT_FOUND);
    assert_true(one_node_used_bytes(runtime) == 0);
}

/* A daemon for each: what one leaves would be in the next one's way. */
static int set_up(void **state)
{
    (void)state;
    runtime = one_node_start(16 * MIB);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tdm_runtime_stop(runtime);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_ledger_has_a_row_for_each_tag),
        TEST(what_does_not_fit_is_not_made_and_says_who_holds_what),
        TEST(a_call_that_makes_no_sense_is_refused_and_makes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
