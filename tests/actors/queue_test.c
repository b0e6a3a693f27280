/* queue_test.c - the order of items, waiting calls, and the time limits of waits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static tdm_runtime *runtime;

static tdm_actor *create(uint32_t items_max)
{
    tdm_actor *queue;

    assert_int_equal(tdm_queue_create(runtime, items_max, NULL, &queue), TDM_OK);
    return queue;
}

static void put(tdm_actor *queue, int64_t number)
{
    assert_int_equal(tdm_queue_put(queue, 0, "is", number, "item"), TDM_OK);
}

static int64_t number_of(tdm_ref *item)
{
    const char *text;
    int64_t number;

    assert_int_equal(tdm_get(item, TEST_TIMEOUT_MS, "is", &number, &text), TDM_OK);
    assert_string_equal(text, "item");
    tdm_ref_release(item);
    return number;
}

static int64_t get(tdm_actor *queue)
{
    tdm_ref *item;

    assert_int_equal(tdm_queue_get(queue, 0, &item), TDM_OK);
    return number_of(item);
}

static uint32_t size(tdm_actor *queue)
{
    uint32_t items_count;

    assert_int_equal(tdm_queue_size(queue, &items_count), TDM_OK);
    return items_count;
}

/* A call of put or get that will have to wait: the queue has it when this returns, since it
 * takes up one call after the other. */
static tdm_ref *begin_get(tdm_actor *queue, int64_t timeout_ms)
{
    tdm_ref *ref;

    assert_int_equal(tdm_actor_call(queue, "get", &ref, "i", timeout_ms), TDM_OK);
    (void)size(queue);
    return ref;
}

static tdm_ref *begin_put(tdm_actor *queue, int64_t timeout_ms, int64_t number)
{
    tdm_ref *ref;

    assert_int_equal(tdm_actor_call(queue, "put", &ref, "i(is)", timeout_ms, number, "item"),
                     TDM_OK);
    (void)size(queue);
    return ref;
}

static void expect(tdm_ref *ref, tdm_status status)
{
    const tdm_value *value;

    assert_int_equal(tdm_get_value(ref, TEST_TIMEOUT_MS, &value), status);
    tdm_ref_release(ref);
}

/* ---- nobody waits ----------------------------------------------------------------------- */

static void items_leave_in_the_order_in_which_they_came(void **state)
{
    tdm_actor *queue = create(0);

    (void)state;
    for (int64_t i = 0; i < 100; i++) {
        put(queue, i);
    }
    assert_int_equal(size(queue), 100);
    for (int64_t i = 0; i < 100; i++) {
        assert_int_equal(get(queue), i);
    }
    assert_int_equal(size(queue), 0);
    tdm_actor_destroy(queue);
}

static void queue_knows_whether_it_is_empty_or_full(void **state)
{
    tdm_actor *queue = create(1);
    tdm_actor *endless = create(0);
    int yes;

    (void)state;
    assert_int_equal(tdm_queue_is_empty(queue, &yes), TDM_OK);
    assert_true(yes);
    put(queue, 1);
    assert_int_equal(tdm_queue_is_empty(queue, &yes), TDM_OK);
    assert_false(yes);
    assert_int_equal(tdm_queue_is_full(queue, &yes), TDM_OK);
    assert_true(yes);
    assert_int_equal(tdm_queue_is_full(endless, &yes), TDM_OK);
    assert_false(yes);
    tdm_actor_destroy(queue);
    tdm_actor_destroy(endless);
}

static void put_and_get_without_waiting_return_at_once(void **state)
{
    tdm_actor *queue = create(1);
    tdm_ref *item;

    (void)state;
    assert_int_equal(tdm_queue_get(queue, 0, &item), TDM_E_AGAIN);
    assert_non_null(strstr(tdm_error_detail(), "the queue is empty"));
    put(queue, 1);
    assert_int_equal(tdm_queue_put(queue, 0, "is", (int64_t)2, "item"), TDM_E_AGAIN);
    assert_non_null(strstr(tdm_error_detail(), "the queue is full: 1 of 1 items"));
    assert_int_equal(get(queue), 1);
    tdm_actor_destroy(queue);
}

static void pack(tdm_writer *writer, int64_t number)
{
    assert_int_equal(tdm_pack(writer, "is", number, "item"), TDM_OK);
}

static void batches_are_put_and_taken_completely_or_not_at_all(void **state)
{
    tdm_actor *queue = create(3);
    struct tdm_bytes items[4];
    tdm_writer *writers[4];
    tdm_ref *all;
    const tdm_value *values;

    (void)state;
    for (int64_t i = 0; i < 4; i++) {
        assert_int_equal(tdm_writer_create(&writers[i]), TDM_OK);
        pack(writers[i], i);
        items[i] = tdm_writer_bytes(writers[i]);
    }
    assert_int_equal(tdm_queue_put_many(queue, items, 4), TDM_E_AGAIN);
    assert_int_equal(size(queue), 0);
    assert_int_equal(tdm_queue_put_many(queue, items, 3), TDM_OK);
    assert_int_equal(tdm_queue_get_many(queue, 4, &all), TDM_E_AGAIN);
    assert_int_equal(tdm_queue_get_many(queue, 2, &all), TDM_OK);
    assert_int_equal(tdm_get_value(all, 0, &values), TDM_OK);
    assert_int_equal(tdm_value_count(values), 2);
    assert_int_equal(tdm_value_int(tdm_value_at(tdm_value_at(values, 1), 0), -1), 1);
    tdm_ref_release(all);
    assert_int_equal(get(queue), 2);
    for (int i = 0; i < 4; i++) {
        tdm_writer_destroy(writers[i]);
    }
    tdm_actor_destroy(queue);
}

static void item_is_an_array_of_values(void **state)
{
    tdm_actor *queue = create(0);
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call(queue, "put", &ref, "ii", (int64_t)0, (int64_t)1), TDM_OK);
    expect(ref, TDM_E_TYPE);
    assert_int_equal(size(queue), 0);
    tdm_actor_destroy(queue);
}

/* ---- some wait -------------------------------------------------------------------------- */

static void longest_waiting_consumer_gets_the_first_item(void **state)
{
    tdm_actor *queue = create(0);
    tdm_ref *first = begin_get(queue, TDM_FOREVER);
    tdm_ref *second = begin_get(queue, TEST_TIMEOUT_MS);

    (void)state;
    put(queue, 1);
    put(queue, 2);
    assert_int_equal(number_of(second), 2);
    assert_int_equal(number_of(first), 1);
    assert_int_equal(size(queue), 0);
    tdm_actor_destroy(queue);
}

static void waiting_producers_keep_the_order_of_their_items(void **state)
{
    tdm_actor *queue = create(1);
    tdm_ref *second;
    tdm_ref *third;

    (void)state;
    put(queue, 1);
    second = begin_put(queue, TDM_FOREVER, 2);
    third = begin_put(queue, TEST_TIMEOUT_MS, 3);
    assert_int_equal(size(queue), 1);
    assert_int_equal(get(queue), 1);
    expect(second, TDM_OK);
    assert_int_equal(get(queue), 2);
    expect(third, TDM_OK);
    assert_int_equal(get(queue), 3);
    tdm_actor_destroy(queue);
}

static void wait_ends_at_its_time_limit(void **state)
{
    tdm_actor *queue = create(1);
    tdm_ref *item;

    (void)state;
    assert_int_equal(tdm_queue_get(queue, 20, &item), TDM_E_AGAIN);
    assert_non_null(strstr(tdm_error_detail(), "the queue is empty, after "));
    put(queue, 1);
    assert_int_equal(tdm_queue_put(queue, 20, "is", (int64_t)2, "item"), TDM_E_AGAIN);
    assert_non_null(strstr(tdm_error_detail(), "the queue is full, after "));
    assert_int_equal(get(queue), 1);
    assert_int_equal(size(queue), 0);
    tdm_actor_destroy(queue);
}

static void item_is_not_given_to_a_consumer_that_gave_up(void **state)
{
    tdm_actor *queue = create(0);
    tdm_ref *first = begin_get(queue, TDM_FOREVER);
    tdm_ref *second = begin_get(queue, TDM_FOREVER);

    (void)state;
    assert_int_equal(tdm_cancel(first, 0), TDM_OK);
    put(queue, 1);
    assert_int_equal(number_of(second), 1);
    expect(first, TDM_E_CANCELED);
    tdm_actor_destroy(queue);
}

static void thousand_and_more_may_wait(void **state)
{
    enum { GETTERS = 1500 }; /* More calls than an asynchronous actor keeps by default. */
    static tdm_ref *refs[GETTERS];
    tdm_actor *queue = create(0);

    (void)state;
    for (int i = 0; i < GETTERS; i++) {
        assert_int_equal(tdm_actor_call(queue, "get", &refs[i], "i", (int64_t)TDM_FOREVER), TDM_OK);
    }
    for (int64_t i = 0; i < GETTERS; i++) {
        put(queue, i);
    }
    for (int i = 0; i < GETTERS; i++) {
        assert_int_equal(number_of(refs[i]), i);
    }
    tdm_actor_destroy(queue);
}

/* ---- several processes ------------------------------------------------------------------ */

/* Takes items until there comes one with 0, and adds them up. */
static tdm_status consume(tdm_call *call, void *self)
{
    int64_t total = 0;
    int64_t number = 1;
    tdm_status status = TDM_OK;
    tdm_actor *queue;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "h", &queue));
    while (status == TDM_OK && number != 0) {
        const char *text;
        tdm_ref *item;

        status = tdm_queue_get(queue, TEST_TIMEOUT_MS, &item);
        if (status == TDM_OK) {
            status = tdm_get(item, 0, "is", &number, &text);
            tdm_ref_release(item);
        }
        total += status == TDM_OK ? number : 0;
    }
    tdm_actor_destroy(queue);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", total);
}

TDM_ACTOR_CLASS(consumer, .methods = {{"consume", consume}});

static void each_item_reaches_one_of_many_consumers(void **state)
{
    enum { CONSUMERS = 3, ITEMS = 300 };
    tdm_actor *queue = create(4);
    tdm_actor *consumers[CONSUMERS];
    tdm_ref *totals[CONSUMERS];
    int64_t sum = 0;

    (void)state;
    for (int i = 0; i < CONSUMERS; i++) {
        assert_int_equal(tdm_actor_create(runtime, "consumer", NULL, &consumers[i], ""), TDM_OK);
        assert_int_equal(tdm_actor_call(consumers[i], "consume", &totals[i], "h", queue), TDM_OK);
    }
    for (int64_t i = 1; i <= ITEMS + CONSUMERS; i++) {
        assert_int_equal(
            tdm_queue_put(queue, TEST_TIMEOUT_MS, "is", i <= ITEMS ? i : (int64_t)0, "item"),
            TDM_OK);
    }
    for (int i = 0; i < CONSUMERS; i++) {
        int64_t total;

        assert_int_equal(tdm_get(totals[i], TEST_TIMEOUT_MS, "i", &total), TDM_OK);
        sum += total;
        tdm_ref_release(totals[i]);
        tdm_actor_destroy(consumers[i]);
    }
    assert_int_equal(sum, ITEMS * (ITEMS + 1) / 2);
    tdm_actor_destroy(queue);
}

static void queue_keeps_what_its_items_refer_to(void **state)
{
    tdm_actor *queue = create(0);
    tdm_ref *value;
    tdm_ref *done;
    tdm_ref *item;
    tdm_ref *taken;
    int64_t number;

    (void)state;
    assert_int_equal(tdm_put(runtime, &value, "i", (int64_t)42), TDM_OK);
    assert_int_equal(tdm_actor_call(queue, "put", &done, "i(R)", (int64_t)0, value), TDM_OK);
    expect(done, TDM_OK);
    tdm_ref_release(value);
    assert_int_equal(tdm_queue_get(queue, 0, &item), TDM_OK);
    assert_int_equal(tdm_get(item, 0, "R", &taken), TDM_OK);
    assert_int_equal(tdm_get(taken, TEST_TIMEOUT_MS, "i", &number), TDM_OK);
    assert_int_equal(number, 42);
    tdm_ref_release(taken);
    tdm_ref_release(item);
    tdm_actor_destroy(queue);
}

static void end_of_a_queue_fails_waiting_calls(void **state)
{
    tdm_actor *queue = create(0);
    tdm_ref *ref = begin_get(queue, TDM_FOREVER);

    (void)state;
    assert_int_equal(tdm_actor_kill(queue, TEST_TIMEOUT_MS), TDM_OK);
    expect(ref, TDM_E_ACTOR_DIED);
    tdm_actor_destroy(queue);
}

static void queue_ends_gracefully_although_a_waiting_client_has_left(void **state)
{
    tdm_actor *queue = create(0);
    tdm_ref *ref = begin_get(queue, TDM_FOREVER);
    struct tdm_actor_info info;

    (void)state;
    assert_int_equal(tdm_actor_wait_ready(queue, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_describe(queue, &info);
    assert_int_equal(tdm_cancel(ref, 0), TDM_OK);
    tdm_actor_destroy(queue);
    assert_true(wait_process_exit(info.pid, TEST_TIMEOUT_MS));
    tdm_ref_release(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_leave_in_the_order_in_which_they_came),
        cmocka_unit_test(queue_knows_whether_it_is_empty_or_full),
        cmocka_unit_test(put_and_get_without_waiting_return_at_once),
        cmocka_unit_test(batches_are_put_and_taken_completely_or_not_at_all),
        cmocka_unit_test(item_is_an_array_of_values),
        cmocka_unit_test(longest_waiting_consumer_gets_the_first_item),
        cmocka_unit_test(waiting_producers_keep_the_order_of_their_items),
        cmocka_unit_test(wait_ends_at_its_time_limit),
        cmocka_unit_test(item_is_not_given_to_a_consumer_that_gave_up),
        cmocka_unit_test(thousand_and_more_may_wait),
        cmocka_unit_test(each_item_reaches_one_of_many_consumers),
        cmocka_unit_test(queue_keeps_what_its_items_refer_to),
        cmocka_unit_test(end_of_a_queue_fails_waiting_calls),
        cmocka_unit_test(queue_ends_gracefully_although_a_waiting_client_has_left),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
