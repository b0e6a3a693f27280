/* error_test.c - failures carry the text of the function that recorded them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/error.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void failure_keeps_its_detail(void **state)
{
    (void)state;
    assert_int_equal(tdm__fail(TDM_E_LIMIT, "%d of %d", 5, 4), TDM_E_LIMIT);
    assert_string_equal(tdm_error_detail(), "5 of 4");
}

static void wrapping_puts_the_context_first(void **state)
{
    (void)state;
    (void)tdm__fail(TDM_E_IO, "inner");
    assert_int_equal(tdm__wrap(TDM_E_IO, "node %d", 7), TDM_E_IO);
    assert_string_equal(tdm_error_detail(), "node 7: inner");
    assert_int_equal(tdm__wrap(TDM_OK, "never"), TDM_OK);
    assert_string_equal(tdm_error_detail(), "node 7: inner");
}

static void errno_is_spelled_out(void **state)
{
    (void)state;
    assert_int_equal(tdm__fail_errno(ENOENT, "open %s", "x"), TDM_E_IO);
    assert_string_equal(tdm_error_detail(), "open x: No such file or directory");
    assert_int_equal(tdm__fail_errno(ENOMEM, "mmap"), TDM_E_NOMEM);
}

static void every_status_has_a_text(void **state)
{
    (void)state;
#define X(name, value, text) assert_string_equal(tdm_strerror(name), text);
    TDM_STATUS_MAP(X)
#undef X
    assert_string_equal(tdm_strerror((tdm_status)-1000), "unknown status");
}

static void first_failure_is_kept_with_its_text(void **state)
{
    struct tdm__first_failure failure = {TDM_OK, ""};

    (void)state;
    tdm__first_failure_note(&failure, TDM_OK);
    assert_int_equal(tdm__first_failure_return(&failure), TDM_OK);
    tdm__first_failure_note(&failure, tdm__fail(TDM_E_ACTOR_DIED, "engine %d died", 1));
    tdm__first_failure_note(&failure, tdm__fail(TDM_E_TIMEOUT, "engine %d is late", 2));
    tdm__first_failure_note(&failure, TDM_OK);
    assert_int_equal(tdm__first_failure_return(&failure), TDM_E_ACTOR_DIED);
    assert_string_equal(tdm_error_detail(), "engine 1 died");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failure_keeps_its_detail),
        cmocka_unit_test(wrapping_puts_the_context_first),
        cmocka_unit_test(errno_is_spelled_out),
        cmocka_unit_test(every_status_has_a_text),
        cmocka_unit_test(first_failure_is_kept_with_its_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
