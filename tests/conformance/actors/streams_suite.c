/* streams_suite.c - conformance: items that a method yields, as fast as they are taken. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

#include <poll.h>
#include <stdatomic.h>

static tdm_actor *make_source(void)
{
    return stage_make("source", &(struct tdm_actor_options){.max_concurrency = 2}, NULL);
}

static tdm_stream *open_stream(tdm_actor *actor, const char *method, int64_t items)
{
    tdm_stream *stream = NULL;

    MUST(tdm_actor_stream(actor, method, NULL, &stream, "i", items));
    return stream;
}

static void take(tdm_stream *stream, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        tdm_ref *ref;

        MUST(tdm_stream_next(stream, TEST_TIMEOUT_MS, &ref));
        assert_int_equal(stage_int(ref), i);
    }
}

static void stream_returns_its_items_in_order_and_then_the_end(void **state)
{
    tdm_actor *source = make_source();
    tdm_stream *stream = open_stream(source, "count", 100);
    tdm_ref *ref;

    (void)state;
    take(stream, 0, 100);
    assert_int_equal(tdm_stream_next(stream, TEST_TIMEOUT_MS, &ref), TDM_E_END);
    assert_int_equal(tdm_stream_next(stream, 0, &ref), TDM_E_END);
    tdm_stream_destroy(stream);
    stage_end(source);
}

static void stream_waits_for_its_reader(void **state)
{
    tdm_actor *source = make_source();
    tdm_stream *stream = open_stream(source, "count", 1000);

    (void)state;
    while (stage_int(stage_call(source, "sent")) < TDM_STREAM_ITEMS_AHEAD) {
    }
    (void)poll(NULL, 0, 20);
    assert_int_equal(stage_int(stage_call(source, "sent")), TDM_STREAM_ITEMS_AHEAD);
    take(stream, 0, 10);
    while (stage_int(stage_call(source, "sent")) < TDM_STREAM_ITEMS_AHEAD + 10) {
    }
    tdm_stream_destroy(stream);
    stage_end(source);
}

static void failure_of_a_stream_comes_after_its_items(void **state)
{
    tdm_actor *source = make_source();
    tdm_stream *stream = open_stream(source, "falter", 3);
    tdm_ref *ref;

    (void)state;
    take(stream, 0, 3);
    assert_int_equal(tdm_stream_next(stream, TEST_TIMEOUT_MS, &ref), TDM_E_METHOD);
    stage_detail_has("the source is dry");
    tdm_stream_destroy(stream);
    stage_end(source);
}

static void dropped_stream_ends_its_method(void **state)
{
    tdm_actor *source = make_source();
    tdm_stream *stream;

    (void)state;
    MUST(tdm_actor_stream(source, "flow", NULL, &stream, ""));
    take(stream, 0, 5);
    tdm_stream_destroy(stream);
    while (stage_int(stage_call(source, "stopped")) < 1) {
    }
    stage_end(source);
}

static void stream_may_have_a_deadline(void **state)
{
    const struct tdm_call_options soon = {.timeout_ms = 300};
    tdm_actor *source = make_source();
    tdm_status status = TDM_OK;
    tdm_stream *stream;

    (void)state;
    MUST(tdm_actor_stream(source, "flow", &soon, &stream, ""));
    while (status == TDM_OK) {
        tdm_ref *ref;

        status = tdm_stream_next(stream, TEST_TIMEOUT_MS, &ref);
        if (status == TDM_OK) {
            tdm_ref_release(ref);
        }
    }
    assert_int_equal(status, TDM_E_TIMEOUT);
    tdm_stream_destroy(stream);
    stage_end(source);
}

static void stream_ends_with_its_actor(void **state)
{
    tdm_actor *source = make_source();
    tdm_status status = TDM_OK;
    tdm_stream *stream;
    tdm_ref *ref;

    (void)state;
    MUST(tdm_actor_stream(source, "flow", NULL, &stream, ""));
    take(stream, 0, 3);
    MUST(tdm_actor_kill(source, TEST_TIMEOUT_MS));
    while ((status = tdm_stream_next(stream, TEST_TIMEOUT_MS, &ref)) == TDM_OK) {
        tdm_ref_release(ref); /* These items had arrived before. */
    }
    assert_int_equal(status, TDM_E_ACTOR_DIED);
    tdm_stream_destroy(stream);
    tdm_actor_destroy(source);
}

static void items_can_be_sent_only_to_a_stream(void **state)
{
    tdm_actor *source = make_source();

    (void)state;
    assert_int_equal(stage_status(stage_call_int(source, "count", 3)), TDM_E_STATE);
    stage_end(source);
}

/* What the callback of a stream has seen. The callback may run on another thread than the test. */
struct callback_log {
    int64_t items;          /* Number of items so far; read it after the end. */
    _Atomic tdm_status end; /* Status after the last item; TDM_OK before. */
    atomic_bool destroyed;  /* The stream was destroyed before. */
};

/* Takes all items that are there, and waits for more by itself. */
static void on_item(void *arg, tdm_stream *stream)
{
    struct callback_log *log = arg;
    tdm_status status = TDM_OK;

    atomic_store(&log->destroyed, stream == NULL);
    while (stream != NULL && status == TDM_OK) {
        tdm_ref *ref;

        status = tdm_stream_next(stream, 0, &ref);
        log->items += status == TDM_OK ? 1 : 0;
        tdm_ref_release(ref);
    }
    if (status == TDM_E_TIMEOUT) {
        MUST(tdm_stream_on_item(stream, on_item, log));
    } else {
        atomic_store(&log->end, status);
    }
}

static void callback_runs_for_each_item_and_the_end(void **state)
{
    struct callback_log log = {.end = TDM_OK};
    struct callback_log late = {.end = TDM_OK};
    tdm_actor *source = make_source();
    tdm_stream *stream = open_stream(source, "falter", 100);

    (void)state;
    MUST(tdm_stream_on_item(stream, on_item, &log));
    while (atomic_load(&log.end) == TDM_OK) {
        (void)stage_int(stage_call(source, "sent")); /* Meanwhile the loop runs. */
    }
    assert_int_equal(log.items, 100);
    assert_int_equal(atomic_load(&log.end), TDM_E_METHOD);
    MUST(tdm_stream_on_item(stream, on_item, &late)); /* The end is there. */
    assert_int_equal(atomic_load(&late.end), TDM_E_METHOD);
    tdm_stream_destroy(stream);
    assert_false(atomic_load(&log.destroyed));
    stage_end(source);
}

static void callback_learns_that_its_stream_is_destroyed(void **state)
{
    struct callback_log log = {.end = TDM_OK};
    tdm_actor *patient =
        stage_make("patient", &(struct tdm_actor_options){.max_concurrency = 2}, NULL);
    tdm_stream *stream = NULL;

    (void)state;
    MUST(tdm_actor_stream(patient, "endure", NULL, &stream, "")); /* It ends when it is canceled. */
    MUST(tdm_stream_on_item(stream, on_item, &log));
    assert_int_equal(tdm_stream_on_item(stream, on_item, &log), TDM_E_STATE);
    assert_false(atomic_load(&log.destroyed));
    tdm_stream_destroy(stream);
    assert_true(atomic_load(&log.destroyed));
    stage_end(patient);
}

static void method_sets_how_far_it_is_ahead_of_its_reader(void **state)
{
    tdm_actor *source = make_source();
    tdm_stream *stream = open_stream(source, "drip", 1000);

    (void)state;
    take(stream, 0, 5);
    while (stage_int(stage_call(source, "sent")) < 6) {
    }
    (void)poll(NULL, 0, 20);
    assert_int_equal(stage_int(stage_call(source, "sent")), 6);
    tdm_stream_destroy(stream);
    stream = open_stream(source, "pour", 1000);
    while (stage_int(stage_call(source, "sent")) < 1006) {
    }
    take(stream, 0, 1000);
    tdm_stream_destroy(stream);
    assert_int_equal(stage_status(stage_call_int(source, "pour", 3)), TDM_E_METHOD);
    stage_end(source);
}

static void end_of_a_stream_is_a_reference(void **state)
{
    tdm_actor *source = make_source();
    tdm_stream *stream = open_stream(source, "pour", 40);
    tdm_ref *ends[3];

    (void)state;
    MUST(tdm_stream_completed(stream, &ends[0]));
    MUST(tdm_get(ends[0], TEST_TIMEOUT_MS, "")); /* No item was taken. */
    MUST(tdm_stream_completed(stream, &ends[1]));
    assert_ptr_equal(ends[0], ends[1]);
    tdm_ref_release(ends[1]);
    take(stream, 0, 40);
    tdm_stream_destroy(stream);
    MUST(tdm_get(ends[0], 0, ""));
    tdm_ref_release(ends[0]);

    stream = open_stream(source, "falter", 3);
    take(stream, 0, 3);
    MUST(tdm_stream_completed(stream, &ends[0]));
    assert_int_equal(tdm_get(ends[0], TEST_TIMEOUT_MS, ""), TDM_E_METHOD);
    stage_detail_has("the source is dry");
    tdm_ref_release(ends[0]);
    tdm_stream_destroy(stream);

    stream = open_stream(source, "falter", 3); /* Asked after the end. */
    take(stream, 0, 3);
    assert_int_equal(tdm_stream_next(stream, TEST_TIMEOUT_MS, &ends[2]), TDM_E_METHOD);
    MUST(tdm_stream_completed(stream, &ends[0]));
    tdm_stream_destroy(stream);
    assert_int_equal(tdm_get(ends[0], 0, ""), TDM_E_METHOD);
    tdm_ref_release(ends[0]);

    MUST(tdm_actor_stream(source, "flow", NULL, &stream, ""));
    MUST(tdm_stream_completed(stream, &ends[0]));
    assert_int_equal(tdm_get(ends[0], 50, ""), TDM_E_TIMEOUT);
    tdm_stream_destroy(stream);
    assert_int_equal(tdm_get(ends[0], TEST_TIMEOUT_MS, ""), TDM_E_CANCELED);
    tdm_ref_release(ends[0]);
    stage_end(source);
}

int conformance_streams(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_returns_its_items_in_order_and_then_the_end),
        cmocka_unit_test(stream_waits_for_its_reader),
        cmocka_unit_test(method_sets_how_far_it_is_ahead_of_its_reader),
        cmocka_unit_test(end_of_a_stream_is_a_reference),
        cmocka_unit_test(failure_of_a_stream_comes_after_its_items),
        cmocka_unit_test(dropped_stream_ends_its_method),
        cmocka_unit_test(stream_may_have_a_deadline),
        cmocka_unit_test(stream_ends_with_its_actor),
        cmocka_unit_test(items_can_be_sent_only_to_a_stream),
        cmocka_unit_test(callback_runs_for_each_item_and_the_end),
        cmocka_unit_test(callback_learns_that_its_stream_is_destroyed),
    };

    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
