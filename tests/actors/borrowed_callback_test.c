/* borrowed_callback_test.c - a callback of a reference whose value is in another process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 30000, PAUSE_US = 1000 };

static const char *const program = TDM_TEST_BUILD_DIR "/tests/any_class_program";

/* Number of callbacks that have run. */
static atomic_int callbacks_count;

static void on_done(void *arg, tdm_ref *ref)
{
    int64_t *number = arg;

    assert_int_equal(tdm_get(ref, 0, "i", number), TDM_OK);
    atomic_fetch_add(&callbacks_count, 1);
}

static void callback_requests_the_value_of_a_borrowed_reference(void **state)
{
    struct tdm_actor_options options = {.program = program};
    tdm_runtime *runtime = NULL;
    tdm_actor *actor = NULL;
    tdm_ref *result;
    tdm_ref *borrowed;
    int64_t number = 0;

    (void)state;
    assert_int_equal(tdm_runtime_start(NULL, &runtime), TDM_OK);
    assert_int_equal(tdm_actor_create(runtime, "lender", &options, &actor, ""), TDM_OK);
    assert_int_equal(tdm_actor_call(actor, "lend", &result, ""), TDM_OK);
    assert_int_equal(tdm_get(result, WAIT_MS, "R", &borrowed), TDM_OK);
    assert_int_equal(tdm_ref_on_done(borrowed, on_done, &number), TDM_OK);
    for (int i = 0; i < WAIT_MS && atomic_load(&callbacks_count) == 0; i++) {
        (void)usleep(PAUSE_US);
    }
    assert_int_equal(atomic_load(&callbacks_count), 1);
    assert_int_equal(number, 42);
    tdm_ref_release(borrowed);
    tdm_ref_release(result);
    tdm_actor_destroy(actor);
    tdm_runtime_stop(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callback_requests_the_value_of_a_borrowed_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
