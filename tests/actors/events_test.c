/* events_test.c - one descriptor tells which results and stream items have come. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/tandem.h>

#include <cmocka.h>

enum { MOMENT_MS = 50 };

static tdm_runtime *runtime;
static tdm_events *events;

/* Method "tick" (i): yields so many numbers. */
static tdm_status ticker_tick(tdm_call *call, void *self)
{
    int64_t count;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &count));
    for (int64_t i = 0; i < count; i++) {
        TDM_TRY(tdm_call_yield(call, "i", i));
    }
    return TDM_OK;
}

/* Method "later" (i): replies the number after a moment. */
static tdm_status ticker_later(tdm_call *call, void *self)
{
    int64_t number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &number));
    (void)poll(NULL, 0, MOMENT_MS);
    return tdm_call_reply(call, "i", number);
}

TDM_ACTOR_CLASS(ticker, .methods = {{"tick", ticker_tick}, {"later", ticker_later}});

static int set_up(void **state)
{
    tdm_actor *actor = NULL;

    if (tdm_actor_create(runtime, "ticker", NULL, &actor, "") != TDM_OK ||
        tdm_events_create(&events) != TDM_OK) {
        return -1;
    }
    *state = actor;
    return 0;
}

static int tear_down(void **state)
{
    tdm_actor_destroy(*state);
    tdm_events_destroy(events);
    return 0;
}

/* Waits until the descriptor is readable, at most `timeout_ms` milliseconds. */
static bool is_readable(int timeout_ms)
{
    struct pollfd watched = {.fd = tdm_events_fd(events), .events = POLLIN};

    return poll(&watched, 1, timeout_ms) == 1;
}

static void expect_event(uint64_t expected)
{
    uint64_t token = 0;

    assert_true(is_readable(TEST_TIMEOUT_MS));
    assert_int_equal(tdm_events_next(events, &token), TDM_OK);
    assert_int_equal(token, expected);
}

static void expect_no_event(void)
{
    uint64_t token;

    assert_false(is_readable(0));
    assert_int_equal(tdm_events_next(events, &token), TDM_E_AGAIN);
}

static void results_are_reported_as_they_come(void **state)
{
    tdm_ref *refs[2];
    tdm_ref *present;

    expect_no_event();
    for (int64_t i = 0; i < 2; i++) {
        assert_int_equal(tdm_actor_call(*state, "later", &refs[i], "i", i), TDM_OK);
        assert_int_equal(tdm_events_add_ref(events, refs[i], 10 + (uint64_t)i), TDM_OK);
    }
    assert_int_equal(tdm_put(runtime, &present, "i", INT64_C(1)), TDM_OK);
    assert_int_equal(tdm_events_add_ref(events, present, 99), TDM_OK);
    expect_event(99); /* It was there already. */
    expect_event(10);
    expect_event(11);
    expect_no_event();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_get(refs[i], 0, "i", &(int64_t){0}), TDM_OK);
        tdm_ref_release(refs[i]);
    }
    tdm_ref_release(present);
}

static void items_and_the_end_of_a_stream_are_reported(void **state)
{
    tdm_stream *stream = NULL;
    tdm_status status = TDM_OK;
    int items = 0;

    assert_int_equal(tdm_actor_stream(*state, "tick", NULL, &stream, "i", INT64_C(40)), TDM_OK);
    while (status == TDM_OK) {
        tdm_ref *ref;

        assert_int_equal(tdm_events_add_stream(events, stream, 5), TDM_OK);
        expect_event(5);
        status = tdm_stream_next(stream, 0, &ref);
        items += status == TDM_OK ? 1 : 0;
        tdm_ref_release(ref);
    }
    assert_int_equal(status, TDM_E_END);
    assert_int_equal(items, 40);
    expect_no_event();
    tdm_stream_destroy(stream);
}

static void destroyed_set_and_stream_report_nothing(void **state)
{
    tdm_stream *stream = NULL;
    tdm_ref *ref;
    tdm_ref *after;

    assert_int_equal(tdm_actor_call(*state, "later", &ref, "i", INT64_C(1)), TDM_OK);
    assert_int_equal(tdm_actor_stream(*state, "tick", NULL, &stream, "i", INT64_C(1)), TDM_OK);
    assert_int_equal(tdm_events_add_stream(events, stream, 1), TDM_OK);
    assert_int_equal(tdm_events_add_stream(events, stream, 2), TDM_E_STATE);
    tdm_stream_destroy(stream);
    expect_no_event();
    assert_int_equal(tdm_events_add_ref(events, ref, 3), TDM_OK);
    tdm_ref_release(ref);
    tdm_events_destroy(events);
    events = NULL;
    assert_int_equal(tdm_actor_call(*state, "later", &after, "i", INT64_C(2)), TDM_OK);
    assert_int_equal(tdm_get(after, TEST_TIMEOUT_MS, "i", &(int64_t){0}), TDM_OK);
    tdm_ref_release(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(results_are_reported_as_they_come, set_up, tear_down),
        cmocka_unit_test_setup_teardown(items_and_the_end_of_a_stream_are_reported, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(destroyed_set_and_stream_report_nothing, set_up, tear_down),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    if (runtime == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return actor_fixture_close(runtime) != 0 || failed != 0;
}
