/* store_metered_test.c - a metered store passes the conformance suite and counts operations. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store/metered.h"

#include "tests/conformance/store_suite.h"
#include "tests/support/memory_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct store_fixture world;

static int open_store(void **state)
{
    struct tdm__store *memory;

    *state = &world;
    return tdm__loop_create(&world.loop) != TDM_OK ||
           tdm__store_memory_open(world.loop, &memory) != TDM_OK ||
           tdm__store_metered_open(memory, &world.store) != TDM_OK;
}

static int close_store(void **state)
{
    (void)state;
    world.store->ops->close(world.store);
    tdm__loop_destroy(world.loop);
    return 0;
}

/* Runs after the suite, which has read, committed, and caused conflicts. */
static void operations_are_counted(void **state)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    tdm__store_metered_write_metrics(out);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "\ntandem_store_seconds_count{operation=\"read\"} "));
    assert_null(strstr(text, "\ntandem_store_seconds_count{operation=\"read\"} 0\n"));
    assert_null(strstr(text, "\ntandem_store_seconds_count{operation=\"commit\"} 0\n"));
    assert_null(strstr(text, "\ntandem_store_conflicts_total 0\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_counted),
    };

    return store_suite_run(open_store, close_store) +
           cmocka_run_group_tests_name("metered", tests, NULL, NULL);
}
