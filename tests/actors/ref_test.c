/* ref_test.c - results are awaited, read, kept and released. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { RELAYED = 2000 };

static tdm_runtime *runtime;

static void result_that_is_late_can_be_read_later(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "linger", &ref, "i", (int64_t)200), TDM_OK);
    assert_int_equal(tdm_get(ref, 10, ""), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "no result within 10 ms: method linger of actor "));
    assert_non_null(strstr(tdm_error_detail(), " ms ago, probably started"));
    assert_int_equal(tdm_get(ref, 0, ""), TDM_E_TIMEOUT);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, 0, ""), TDM_OK);
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
}

static void unwanted_result_is_dropped(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "linger", &ref, "i", (int64_t)20), TDM_OK);
    tdm_ref_release(ref);
    assert_int_equal(tdm_actor_call(actor, "fail", NULL, "s", "unheard"), TDM_OK);
    assert_true(actor_fixture_call_int(actor, "pid") > 0);
    tdm_ref_release(NULL);
    tdm_actor_destroy(actor);
}

/* Passes results from the thread that makes the calls to one that reads and releases them. */
struct relay {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    tdm_ref *refs[RELAYED];
    int count;
};

static void *read_relayed(void *arg)
{
    struct relay *relay = arg;
    const char *reply;

    for (int i = 0; i < RELAYED; i++) {
        (void)pthread_mutex_lock(&relay->mutex);
        while (relay->count <= i) {
            (void)pthread_cond_wait(&relay->changed, &relay->mutex);
        }
        (void)pthread_mutex_unlock(&relay->mutex);
        if (tdm_get(relay->refs[i], TEST_TIMEOUT_MS, "s", &reply) != TDM_OK ||
            strcmp(reply, "relayed") != 0) {
            return relay->refs[i];
        }
        tdm_ref_release(relay->refs[i]);
    }
    return NULL;
}

static void results_are_read_and_released_while_another_thread_calls(void **state)
{
    static struct relay relay = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                                 .changed = PTHREAD_COND_INITIALIZER};
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    pthread_t reader;
    void *failed;

    (void)state;
    assert_int_equal(pthread_create(&reader, NULL, read_relayed, &relay), 0);
    for (int i = 0; i < RELAYED; i++) {
        assert_int_equal(tdm_actor_call(actor, "echo", &relay.refs[i], "s", "relayed"), TDM_OK);
        (void)pthread_mutex_lock(&relay.mutex);
        relay.count++;
        (void)pthread_cond_signal(&relay.changed);
        (void)pthread_mutex_unlock(&relay.mutex);
    }
    assert_int_equal(pthread_join(reader, &failed), 0);
    assert_null(failed);
    tdm_actor_destroy(actor);
}

static void wait_reports_complete_references(void **state)
{
    tdm_actor *slow = actor_fixture_create(runtime, NULL);
    tdm_actor *quick = actor_fixture_create(runtime, NULL);
    tdm_ref *refs[3];
    uint8_t done[3] = {9, 9, 9};

    (void)state;
    assert_int_equal(tdm_actor_call(slow, "hang", &refs[0], ""), TDM_OK);
    assert_int_equal(tdm_actor_call(quick, "fail", &refs[1], "s", "done is done"), TDM_OK);
    assert_int_equal(tdm_actor_call(quick, "pid", &refs[2], ""), TDM_OK);
    assert_int_equal(tdm_wait(refs, 3, 2, TEST_TIMEOUT_MS, done), TDM_OK);
    assert_memory_equal(done, ((uint8_t[]){0, 1, 1}), 3);
    assert_int_equal(tdm_wait(refs, 3, 3, 50, done), TDM_E_TIMEOUT);
    assert_string_equal(tdm_error_detail(), "fewer than 3 of 3 results within 50 ms");
    assert_memory_equal(done, ((uint8_t[]){0, 1, 1}), 3);
    assert_int_equal(tdm_wait(refs, 3, 0, 0, done), TDM_OK);
    assert_int_equal(tdm_wait(refs, 3, 4, 0, done), TDM_E_INVAL);
    assert_int_equal(tdm_wait(NULL, 0, 0, 0, NULL), TDM_OK);

    assert_int_equal(tdm_actor_kill(slow, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_wait(refs, 3, 3, TEST_TIMEOUT_MS, done), TDM_OK);
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
    tdm_actor_destroy(slow);
    tdm_actor_destroy(quick);
}

static void put_value_can_be_read(void **state)
{
    tdm_ref *ref;
    const char *text;
    int64_t number;

    (void)state;
    assert_int_equal(tdm_put(runtime, &ref, "si", "seven", (int64_t)7), TDM_OK);
    assert_int_equal(tdm_get(ref, 0, "si", &text, &number), TDM_OK);
    assert_string_equal(text, "seven");
    assert_int_equal(number, 7);
    tdm_ref_release(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(result_that_is_late_can_be_read_later),
        cmocka_unit_test(unwanted_result_is_dropped),
        cmocka_unit_test(results_are_read_and_released_while_another_thread_calls),
        cmocka_unit_test(wait_reports_complete_references),
        cmocka_unit_test(put_value_can_be_read),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
