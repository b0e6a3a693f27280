/* store_check_test.c - malformed keys, patterns and commits are refused before they are sent. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A key that is one byte too long. */
static char long_key[TDM__STORE_KEY_BYTES_MAX + 2];

static int fill_key(void **state)
{
    (void)state;
    memset(long_key, 'k', TDM__STORE_KEY_BYTES_MAX + 1);
    return 0;
}

static void key_is_short_printable_and_no_pattern(void **state)
{
    (void)state;
    assert_true(tdm__store_is_key("node/1", 6));
    assert_true(tdm__store_is_key(" ~", 2));
    assert_true(tdm__store_is_key(long_key, TDM__STORE_KEY_BYTES_MAX));
    assert_false(tdm__store_is_key(long_key, TDM__STORE_KEY_BYTES_MAX + 1));
    assert_false(tdm__store_is_key("", 0));
    assert_false(tdm__store_is_key("node/*", 6));
    assert_false(tdm__store_is_key("a\nb", 3));
    assert_false(tdm__store_is_key("a\0b", 3));
    assert_false(tdm__store_is_key("\x7f", 1));
    assert_false(tdm__store_is_key("\xc3\xa4", 2));
}

static void prefix_may_be_empty(void **state)
{
    (void)state;
    assert_int_equal(tdm__store_check_prefix(""), TDM_OK);
    assert_int_equal(tdm__store_check_prefix("node/"), TDM_OK);
    assert_int_equal(tdm__store_check_prefix("node/*"), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "prefix \"node/*\" of 6 bytes"));
    assert_int_equal(tdm__store_check_prefix(long_key), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "of 201 bytes: wanted 1 to 200"));
}

static void pattern_is_a_key_or_a_prefix_with_a_star(void **state)
{
    const char *good[] = {"node/1", "node/*", "*"};
    const char *bad[] = {"", "a*b", "**", "a\tb", long_key};

    (void)state;
    assert_int_equal(tdm__store_check_patterns(good, 3), TDM_OK);
    assert_int_equal(tdm__store_check_patterns(good, 0), TDM_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *both[] = {"node/1", bad[i]};

        assert_int_equal(tdm__store_check_patterns(both, 2), TDM_E_INVAL);
        assert_non_null(strstr(tdm_error_detail(), "pattern \""));
    }
}

static void too_many_patterns_are_refused(void **state)
{
    static const char *patterns[TDM__STORE_PATTERNS_MAX + 1];

    (void)state;
    for (int i = 0; i <= TDM__STORE_PATTERNS_MAX; i++) {
        patterns[i] = "a";
    }
    assert_int_equal(tdm__store_check_patterns(patterns, TDM__STORE_PATTERNS_MAX), TDM_OK);
    assert_int_equal(tdm__store_check_patterns(patterns, TDM__STORE_PATTERNS_MAX + 1), TDM_E_LIMIT);
    assert_string_equal(tdm_error_detail(), "1001 patterns in one read, at most 1000");
}

static void write_has_a_key_and_no_lease_that_is_over(void **state)
{
    struct tdm__store_write writes[2] = {{.kind = TDM__STORE_PUT, .key = "a"},
                                         {.kind = TDM__STORE_PUT, .key = "b", .lease_ms = 1}};

    (void)state;
    assert_int_equal(tdm__store_check_writes(writes, 2), TDM_OK);
    writes[1].lease_ms = -1;
    assert_int_equal(tdm__store_check_writes(writes, 2), TDM_E_INVAL);
    assert_string_equal(tdm_error_detail(), "b: a lease of -1 ms");
    writes[0].key = "a*";
    assert_int_equal(tdm__store_check_writes(writes, 2), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "key \"a*\""));
}

static void too_many_writes_are_refused(void **state)
{
    static struct tdm__store_write writes[TDM__STORE_WRITES_MAX + 1];

    (void)state;
    for (int i = 0; i <= TDM__STORE_WRITES_MAX; i++) {
        writes[i].key = "a";
    }
    assert_int_equal(tdm__store_check_writes(writes, TDM__STORE_WRITES_MAX), TDM_OK);
    assert_int_equal(tdm__store_check_writes(writes, TDM__STORE_WRITES_MAX + 1), TDM_E_LIMIT);
}

static void pattern_finds_its_keys(void **state)
{
    (void)state;
    assert_true(tdm__store_matches("node/1", "node/1"));
    assert_false(tdm__store_matches("node/1", "node/12"));
    assert_true(tdm__store_matches("node/*", "node/12"));
    assert_true(tdm__store_matches("node/*", "node/"));
    assert_false(tdm__store_matches("node/*", "node"));
    assert_true(tdm__store_matches("*", "anything"));
    assert_false(tdm__store_matches("", "anything"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_is_short_printable_and_no_pattern),
        cmocka_unit_test(prefix_may_be_empty),
        cmocka_unit_test(pattern_is_a_key_or_a_prefix_with_a_star),
        cmocka_unit_test(too_many_patterns_are_refused),
        cmocka_unit_test(write_has_a_key_and_no_lease_that_is_over),
        cmocka_unit_test(too_many_writes_are_refused),
        cmocka_unit_test(pattern_finds_its_keys),
    };

    return cmocka_run_group_tests(tests, fill_key, NULL);
}
