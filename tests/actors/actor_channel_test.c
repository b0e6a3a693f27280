/* actor_channel_test.c - the channel to an actor: order of calls, and failures when the actor
 * ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

enum { CALLS = 1000 };

static tdm_runtime *runtime;

static void thousand_calls_arrive_in_order(void **state)
{
    tdm_ref **refs = calloc(CALLS, sizeof(tdm_ref *));
    tdm_actor *actor;

    (void)state;
    assert_non_null(refs);
    /* The first calls are made before the actor exists. */
    assert_int_equal(tdm_actor_create(runtime, "tester", NULL, &actor, ""), TDM_OK);
    for (int64_t i = 0; i < CALLS; i++) {
        assert_int_equal(tdm_actor_call(actor, "append", &refs[i], "i", i + 1), TDM_OK);
    }
    for (int i = 0; i < CALLS; i++) {
        int64_t out_of_order;

        assert_int_equal(tdm_get(refs[i], TEST_TIMEOUT_MS, "i", &out_of_order), TDM_OK);
        assert_int_equal(out_of_order, 0);
        tdm_ref_release(refs[i]);
    }
    tdm_actor_destroy(actor);
    free(refs);
}

static void two_handles_share_one_order(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "shared"});
    tdm_actor *same;
    tdm_ref *ref;
    int64_t out_of_order;

    (void)state;
    assert_int_equal(tdm_actor_find(runtime, "shared", TEST_TIMEOUT_MS, &same), TDM_OK);
    for (int64_t i = 1; i <= 100; i++) {
        assert_int_equal(tdm_actor_call(i % 2 == 0 ? actor : same, "append", &ref, "i", i), TDM_OK);
        if (i < 100) {
            tdm_ref_release(ref);
        }
    }
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &out_of_order), TDM_OK);
    assert_int_equal(out_of_order, 0);
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
    tdm_actor_destroy(same);
}

static void death_message_names_node_pid_signal_method_and_time(void **state)
{
    tdm_actor *actor =
        actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "trainer/2"});
    struct tdm_runtime_info node;
    struct tdm_actor_info info;
    char expected[256];
    unsigned long long call;
    long long after_ms;
    tdm_ref *ref;
    size_t length;

    (void)state;
    tdm_runtime_describe(runtime, &node);
    tdm_actor_describe(actor, &info);
    assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, 50, ""), TDM_E_TIMEOUT);
    assert_int_equal(kill((pid_t)info.pid, SIGKILL), 0);
    assert_int_equal(tdm_get(ref, 2000, ""), TDM_E_ACTOR_DIED);
    length = (size_t)snprintf(expected, sizeof(expected),
                              "actor trainer/2 died: node %s, pid %lld, signal 9 (killed), in "
                              "method hang, call ",
                              node.node_name, (long long)info.pid);
    assert_memory_equal(tdm_error_detail(), expected, length);
    assert_int_equal(sscanf(tdm_error_detail() + length, "%llu, made %lld ms ago, probably started",
                            &call, &after_ms),
                     2);
    assert_true(after_ms >= 50 && after_ms < 2050);
    tdm_ref_release(ref);
    assert_int_equal(tdm_actor_call(actor, "pid", &ref, ""), TDM_E_ACTOR_DIED);
    tdm_actor_destroy(actor);
}

static void death_message_names_the_exit_code(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "exit", &ref, "i", (int64_t)5), TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "exit code 5"));
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
}

static void pending_calls_fail_when_the_actor_dies(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_ref *refs[20];

    uint32_t pending_count = 1;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "exit", &refs[0], "i", (int64_t)0), TDM_OK);
    /* The actor may die before all calls are made; a later one is refused at once. */
    while (pending_count < 20 && tdm_actor_call(actor, "pid", &refs[pending_count], "") == TDM_OK) {
        pending_count++;
    }
    for (uint32_t i = 0; i < pending_count; i++) {
        assert_int_equal(tdm_get(refs[i], TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_DIED);
        assert_non_null(strstr(tdm_error_detail(), i == 0 ? "in method exit" : "in method pid"));
        /* The actor may be dead before the later calls are sent. */
        assert_true(strstr(tdm_error_detail(),
                           i == 0 ? "probably started" : "perhaps not started: call ") != NULL ||
                    (i > 0 && strstr(tdm_error_detail(), " ms ago, not sent") != NULL));
        tdm_ref_release(refs[i]);
    }
    tdm_actor_destroy(actor);
}

static void handle_may_be_destroyed_before_results_arrive(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_ref *ref;
    int64_t pid;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "linger", NULL, "i", (int64_t)50), TDM_OK);
    assert_int_equal(tdm_actor_call(actor, "pid", &ref, ""), TDM_OK);
    tdm_actor_destroy(actor);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &pid), TDM_OK);
    tdm_ref_release(ref);
    tdm_actor_destroy(NULL);
}

static void method_name_of_wrong_length_is_refused(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "", NULL, ""), TDM_E_INVAL);
    assert_int_equal(
        tdm_actor_call(actor, "a2345678901234567890123456789012345678901234567890123456789012345",
                       NULL, ""),
        TDM_E_INVAL);
    tdm_actor_destroy(actor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousand_calls_arrive_in_order),
        cmocka_unit_test(two_handles_share_one_order),
        cmocka_unit_test(death_message_names_node_pid_signal_method_and_time),
        cmocka_unit_test(death_message_names_the_exit_code),
        cmocka_unit_test(pending_calls_fail_when_the_actor_dies),
        cmocka_unit_test(handle_may_be_destroyed_before_results_arrive),
        cmocka_unit_test(method_name_of_wrong_length_is_refused),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
