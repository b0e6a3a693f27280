/* process_fault_test.c - a fault of the process is passed to the handler, if there is one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process_fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* The last cause that the handler was given. */
static char reported[64];

static void record(const char *cause)
{
    (void)snprintf(reported, sizeof(reported), "%s", cause);
}

static void test_handler_gets_the_cause(void **state)
{
    (void)state;
    tdm__process_fault_report("nobody listens");
    tdm__process_fault_set_handler(record);
    tdm__process_fault_report("the GPU is gone");
    assert_string_equal(reported, "the GPU is gone");
    tdm__process_fault_set_handler(NULL);
    tdm__process_fault_report("nobody listens any more");
    assert_string_equal(reported, "the GPU is gone");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_handler_gets_the_cause)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
