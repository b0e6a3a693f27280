/* runtime_create_test.c - a runtime is complete after its creation, and ends with its parts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/runtime_create.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <tandem/actor.h>

/* Creates the runtime of a driver without a daemon. */
static tdm_runtime *create_runtime(void)
{
    static const uint8_t token[TDM__TOKEN_BYTES] = {1};
    struct tdm__peer_identity self = {
        .kind = TDM__PEER_DRIVER, .id = {{7}}, .pid = getpid(), .name = "driver"};
    tdm_runtime *runtime = NULL;

    assert_int_equal(tdm__runtime_create(&self, token, &runtime), TDM_OK);
    return runtime;
}

static void test_a_runtime_without_daemon_reports_a_lost_node(void **state)
{
    tdm_runtime *runtime = create_runtime();
    struct tdm__conn *daemon;

    (void)state;
    assert_int_equal(tdm__runtime_daemon(runtime, &daemon), TDM_E_NODE_LOST);
    assert_non_null(strstr(tdm_error_detail(), "its connection has ended"));
    tdm__runtime_destroy(runtime);
}

static void test_the_current_runtime_is_forgotten_when_it_is_destroyed(void **state)
{
    tdm_runtime *runtime = create_runtime();

    (void)state;
    tdm__runtime_set_current(runtime);
    assert_ptr_equal(tdm_runtime_current(), runtime);
    assert_ptr_equal(tdm__current_loop(), runtime->loop);
    tdm__runtime_destroy(runtime);
    assert_null(tdm_runtime_current());
    assert_null(tdm__current_loop());
}

static void test_a_value_put_before_the_end_can_be_released_after_it(void **state)
{
    tdm_runtime *runtime = create_runtime();
    const tdm_value *value;
    tdm_ref *ref;

    (void)state;
    tdm__runtime_set_current(runtime);
    assert_int_equal(tdm_put(runtime, &ref, "i", (int64_t)5), TDM_OK);
    tdm__runtime_destroy(runtime);
    assert_int_equal(tdm_get_value(ref, 0, &value), TDM_OK);
    assert_int_equal(tdm_value_int(tdm_value_at(value, 0), 0), 5);
    tdm_ref_release(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_runtime_without_daemon_reports_a_lost_node),
        cmocka_unit_test(test_the_current_runtime_is_forgotten_when_it_is_destroyed),
        cmocka_unit_test(test_a_value_put_before_the_end_can_be_released_after_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
