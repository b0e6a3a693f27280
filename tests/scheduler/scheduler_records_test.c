/* scheduler_records_test.c - records of the store are checked when they are read, and errors name
 * the key. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/records.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct tdm__store_record record_of(const char *key, const char *bytes, size_t size_bytes)
{
    return (struct tdm__store_record){.key = key, .version = 1, .bytes = {bytes, size_bytes}};
}

static void a_key_has_its_kind_and_id(void **state)
{
    struct tdm__id id = {{0x3f}};
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    assert_string_equal(tdm__store_key("node", &id, key), "node/3f000000000000000000000000000000");
}

static void node_is_found_among_nodes_by_its_id(void **state)
{
    const struct tdm__node_record nodes[] = {{.id = {{1}}}, {.id = {{2}}}};
    const struct tdm__id other = {{3}};

    (void)state;
    assert_true(tdm__node_records_contain(nodes, 2, &nodes[1].id));
    assert_false(tdm__node_records_contain(nodes, 1, &nodes[1].id));
    assert_false(tdm__node_records_contain(nodes, 2, &other));
}

static void what_is_no_record_is_refused_with_its_key(void **state)
{
    static const struct {
        const char *bytes;
        size_t size_bytes;
    } wrong[] = {{"", 0}, {"\xc1", 1}, {"\x90", 1}, {"\x95\xc4\x01x\xa0\xa0\xa0\x01", 8}};
    struct tdm__node_record node;
    struct tdm__node_resources resources;
    struct tdm__actor_record actor;
    struct tdm__placement_group_record group;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct tdm__store_record record =
            record_of("kind/7f000000000000000000000000000000", wrong[i].bytes, wrong[i].size_bytes);

        assert_int_equal(tdm__node_record_read(&record, &node), TDM_E_PROTOCOL);
        assert_non_null(strstr(tdm_error_detail(), "record kind/7f0"));
        assert_int_equal(tdm__free_record_read(&record, &resources), TDM_E_PROTOCOL);
        assert_int_equal(tdm__actor_record_read(&record, &actor), TDM_E_PROTOCOL);
        assert_int_equal(tdm__placement_group_record_read(&record, &group), TDM_E_PROTOCOL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_has_its_kind_and_id),
        cmocka_unit_test(node_is_found_among_nodes_by_its_id),
        cmocka_unit_test(what_is_no_record_is_refused_with_its_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
