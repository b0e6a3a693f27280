/* call_submit_test.c - calls with options to real actors in processes of their own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

static tdm_runtime *runtime;

static void callee_that_hangs_does_not_hang_the_caller(void **state)
{
    const struct tdm_call_options soon = {.timeout_ms = 100};
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call_with(actor, "hang", &soon, &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "in method hang, call "));
    tdm_ref_release(ref);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void reply_of_several_values_gives_several_results(void **state)
{
    const struct tdm_call_options one = {.results_count = 1};
    const struct tdm_call_options two = {.results_count = 2};
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_ref *refs[2];
    int64_t total;

    (void)state;
    assert_int_equal(tdm_actor_call_with(actor, "add", &one, refs, "i", (int64_t)4), TDM_OK);
    assert_int_equal(tdm_get(refs[0], TEST_TIMEOUT_MS, "i", &total), TDM_OK);
    assert_int_equal(total, 4);
    tdm_ref_release(refs[0]);
    assert_int_equal(tdm_actor_call_with(actor, "add", &two, refs, "i", (int64_t)4), TDM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_get(refs[i], TEST_TIMEOUT_MS, ""), TDM_E_TYPE);
        tdm_ref_release(refs[i]);
    }
    assert_int_equal(tdm_actor_call_with(actor, "add", &two, NULL, "i", (int64_t)4), TDM_OK);
    tdm_actor_destroy(actor);
}

static void packed_arguments_are_arguments(void **state)
{
    const struct tdm_bytes five = {"\x91\x05", 2};
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    int64_t total;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call_packed(actor, "add", five, NULL), TDM_OK);
    assert_int_equal(tdm_actor_call_packed_with(actor, "add", NULL, five, &ref), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &total), TDM_OK);
    assert_int_equal(total, 10);
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
}

static void the_limit_of_pending_calls_is_kept(void **state)
{
    tdm_actor *actor =
        actor_fixture_create(runtime, &(struct tdm_actor_options){.max_pending_calls = 2});
    tdm_ref *refs[2];
    tdm_ref *refused = NULL;
    uint8_t done[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_actor_call(actor, "linger", &refs[i], "i", (int64_t)20), TDM_OK);
    }
    assert_int_equal(tdm_actor_call(actor, "pid", NULL, ""), TDM_E_AGAIN);
    assert_int_equal(tdm_actor_call(actor, "pid", &refused, ""), TDM_E_AGAIN);
    assert_null(refused);
    assert_int_equal(tdm_wait(refs, 2, 2, TEST_TIMEOUT_MS, done), TDM_OK);
    assert_int_equal(tdm_actor_call(actor, "pid", NULL, ""), TDM_OK);
    for (int i = 0; i < 2; i++) {
        tdm_ref_release(refs[i]);
    }
    tdm_actor_destroy(actor);
}

/* ---- restarts --------------------------------------------------------------------------- */

static void restarted_actor_gets_the_calls_that_wait(void **state)
{
    tdm_actor *actor =
        actor_fixture_create(runtime, &(struct tdm_actor_options){.max_restarts = 1});
    int64_t before = actor_fixture_call_int(actor, "pid");
    int64_t after;
    tdm_ref *refs[3];

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "exit", &refs[0], "i", (int64_t)3), TDM_OK);
    assert_int_equal(tdm_get(refs[0], TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_RESTARTING);
    assert_non_null(strstr(tdm_error_detail(), "in method exit, call "));
    assert_int_equal(tdm_actor_call(actor, "pid", &refs[1], ""), TDM_OK);
    assert_int_equal(tdm_get(refs[1], TEST_TIMEOUT_MS, "i", &after), TDM_OK);
    assert_true(after != before);
    assert_int_equal(tdm_actor_call(actor, "exit", &refs[2], "i", (int64_t)3), TDM_OK);
    assert_int_equal(tdm_get(refs[2], TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_DIED);
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
    tdm_actor_destroy(actor);
}

static void calls_with_retries_are_sent_again(void **state)
{
    const struct tdm_actor_options options = {.max_restarts = 1, .max_task_retries = -1};
    tdm_actor *actor = actor_fixture_create(runtime, &options);
    struct tdm_actor_info info;
    tdm_ref *refs[3];
    int64_t total = 0;

    (void)state;
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_describe(actor, &info);
    assert_int_equal(tdm_actor_call(actor, "linger", &refs[0], "i", (int64_t)300), TDM_OK);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(tdm_actor_call(actor, "add", &refs[i], "i", (int64_t)i), TDM_OK);
    }
    assert_int_equal(tdm_get(refs[0], 50, ""), TDM_E_TIMEOUT);
    assert_int_equal(kill((pid_t)info.pid, SIGKILL), 0);
    assert_int_equal(tdm_get(refs[2], TEST_TIMEOUT_MS, "i", &total), TDM_OK);
    assert_int_equal(total, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdm_get(refs[i], 0, ""), i == 0 ? TDM_OK : TDM_E_TYPE);
        tdm_ref_release(refs[i]);
    }
    tdm_actor_destroy(actor);
}

static void forced_cancellation_kills_and_restarts_the_actor(void **state)
{
    tdm_actor *actor =
        actor_fixture_create(runtime, &(struct tdm_actor_options){.max_restarts = 1});
    const struct tdm_call_options again = {.max_retries = 1};
    int64_t before = actor_fixture_call_int(actor, "pid");
    tdm_ref *ref;
    int64_t after;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, 50, ""), TDM_E_TIMEOUT);
    assert_int_equal(tdm_cancel(ref, 1), TDM_OK);
    assert_int_equal(tdm_get(ref, 0, ""), TDM_E_CANCELED);
    tdm_ref_release(ref);
    assert_int_equal(wait_process_exit(before, TEST_TIMEOUT_MS), 1);
    /* The call may still be sent to the process that has ended. */
    assert_int_equal(tdm_actor_call_with(actor, "pid", &again, &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &after), TDM_OK);
    assert_true(after != before);
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
}

/* ---- calls while the driver does not drive the loop --------------------------------------- */

struct completion {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    int64_t pid;
};

static void on_done(void *arg, tdm_ref *ref)
{
    struct completion *completion = arg;

    (void)pthread_mutex_lock(&completion->mutex);
    assert_int_equal(tdm_get(ref, 0, "i", &completion->pid), TDM_OK);
    (void)pthread_cond_signal(&completion->condition);
    (void)pthread_mutex_unlock(&completion->mutex);
    tdm_ref_release(ref);
}

static void callback_runs_while_the_driver_waits_elsewhere(void **state)
{
    struct completion completion = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    struct tdm_actor_info info;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_describe(actor, &info);
    assert_int_equal(tdm_actor_call(actor, "pid", &ref, ""), TDM_OK);
    assert_int_equal(tdm_ref_on_done(ref, on_done, &completion), TDM_OK);
    (void)pthread_mutex_lock(&completion.mutex);
    while (completion.pid == 0) {
        /* No thread of the user drives the loop meanwhile. */
        (void)pthread_cond_wait(&completion.condition, &completion.mutex);
    }
    (void)pthread_mutex_unlock(&completion.mutex);
    assert_true(completion.pid == info.pid);
    tdm_actor_destroy(actor);
}

static void calls_are_sent_while_the_driver_does_not_wait(void **state)
{
    enum { CALLS = 40 }; /* More calls than are sent at once. */
    struct completion completion = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_ref *refs[CALLS];
    tdm_ref *last;

    (void)state;
    for (int64_t i = 0; i < CALLS; i++) {
        assert_int_equal(tdm_actor_call(actor, "append", &refs[i], "i", i + 1), TDM_OK);
    }
    assert_int_equal(tdm_actor_call(actor, "pid", &last, ""), TDM_OK);
    assert_int_equal(tdm_ref_on_done(last, on_done, &completion), TDM_OK);
    (void)pthread_mutex_lock(&completion.mutex);
    while (completion.pid == 0) {
        (void)pthread_cond_wait(&completion.condition, &completion.mutex);
    }
    (void)pthread_mutex_unlock(&completion.mutex);
    for (int i = 0; i < CALLS; i++) {
        int64_t out_of_order = -1;

        assert_int_equal(tdm_get(refs[i], 0, "i", &out_of_order), TDM_OK);
        assert_int_equal(out_of_order, 0);
        tdm_ref_release(refs[i]);
    }
    tdm_actor_destroy(actor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callee_that_hangs_does_not_hang_the_caller),
        cmocka_unit_test(reply_of_several_values_gives_several_results),
        cmocka_unit_test(packed_arguments_are_arguments),
        cmocka_unit_test(the_limit_of_pending_calls_is_kept),
        cmocka_unit_test(restarted_actor_gets_the_calls_that_wait),
        cmocka_unit_test(calls_with_retries_are_sent_again),
        cmocka_unit_test(forced_cancellation_kills_and_restarts_the_actor),
        cmocka_unit_test(callback_runs_while_the_driver_waits_elsewhere),
        cmocka_unit_test(calls_are_sent_while_the_driver_does_not_wait),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
