/* ref_callbacks_test.c - callbacks of references run once; tdm_get_many() returns all results or
 * one failure. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/ref.h"
#include "tests/support/channel_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct channel_peer peer;

struct observed_callback {
    uint32_t count;
    tdm_status status;
    int64_t number;
    bool releases;
    bool waits;
};

static void on_done(void *arg, tdm_ref *ref)
{
    struct observed_callback *observed_callback = arg;

    observed_callback->count++;
    if (observed_callback
            ->waits) { /* The callback runs without the lock, so it may call any function. */
        tdm_ref *other = peer_call(&peer, 99, NULL);

        peer_hold(&peer, 1);
        peer_complete(&peer, 0);
        assert_int_equal(tdm_get(other, PEER_WAIT_MS, "i", &observed_callback->number), TDM_OK);
        tdm_ref_release(other);
    }
    observed_callback->status = tdm_get(ref, 0, "i", &observed_callback->number);
    if (observed_callback->releases) {
        tdm_ref_release(ref);
    }
}

static bool callback_was_called(void *arg)
{
    return ((const struct observed_callback *)arg)->count > 0;
}

static void callback_of_a_complete_reference_runs_at_once(void **state)
{
    struct observed_callback observed_callback = {.releases = true};
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_put(peer.runtime, &ref, "i", (int64_t)5), TDM_OK);
    assert_int_equal(tdm_ref_on_done(ref, on_done, &observed_callback), TDM_OK);
    assert_int_equal(observed_callback.count, 1);
    assert_int_equal(observed_callback.number, 5);
}

static void callback_runs_once_when_the_result_arrives(void **state)
{
    struct observed_callback observed_callback[2] = {{.waits = true}, {.releases = true}};
    tdm_ref *ref = peer_call(&peer, 3, NULL);

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_ref_on_done(ref, on_done, &observed_callback[i]), TDM_OK);
    }
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    assert_int_equal(observed_callback[0].count, 0);
    peer_run_until(&peer, callback_was_called, &observed_callback[1]);
    peer_settle(&peer);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(observed_callback[i].count, 1);
        assert_int_equal(observed_callback[i].status, TDM_OK);
        assert_int_equal(observed_callback[i].number, 3);
    }
}

static bool is_done(void *arg)
{
    return ((const tdm_ref *)arg)->done;
}

static void callback_runs_before_the_runtime_stops(void **state)
{
    struct observed_callback observed_callback = {.releases = true};
    tdm_ref *ref;

    (void)state;
    peer_create(&peer);
    peer_found(&peer);
    ref = peer_call(&peer, 5, NULL);
    assert_int_equal(tdm_ref_on_done(ref, on_done, &observed_callback), TDM_OK);
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    /* The loop runs until the reference is complete and no further. */
    peer_run_until(&peer, is_done, ref);
    assert_int_equal(observed_callback.count, 0);
    peer_destroy(&peer);
    assert_int_equal(observed_callback.count, 1);
    assert_int_equal(observed_callback.number, 5);
}

static void callback_runs_for_failures(void **state)
{
    struct observed_callback observed_callback = {.releases = true};
    tdm_ref *ref = peer_call(&peer, 3, NULL);

    (void)state;
    assert_int_equal(tdm_ref_on_done(ref, on_done, &observed_callback), TDM_OK);
    assert_int_equal(tdm_cancel(ref, 0), TDM_OK);
    assert_int_equal(observed_callback.count, 0);
    peer_run_until(&peer, callback_was_called, &observed_callback);
    assert_int_equal(observed_callback.status, TDM_E_CANCELED);
}

static void all_of_many_are_given_in_order(void **state)
{
    const tdm_value *values[20];
    tdm_ref *refs[20];

    (void)state;
    for (int64_t i = 0; i < 20; i++) {
        refs[i] = peer_call(&peer, i, NULL);
    }
    peer_hold(&peer, 20);
    for (uint32_t i = 20; i > 0; i--) {
        assert_int_equal(tdm_get_many(refs, 20, 0, values), TDM_E_TIMEOUT);
        peer_complete(&peer, i - 1);
    }
    assert_int_equal(tdm_get_many(refs, 20, PEER_WAIT_MS, values), TDM_OK);
    for (int64_t i = 0; i < 20; i++) {
        assert_int_equal(tdm_value_int(tdm_value_at(values[i], 0), -1), i);
        tdm_ref_release(refs[i]);
    }
    assert_int_equal(tdm_get_many(NULL, 0, 0, NULL), TDM_OK);
}

static void the_first_failure_comes_without_the_others(void **state)
{
    const tdm_value *values[3];
    tdm_ref *refs[3];

    (void)state;
    for (int64_t i = 0; i < 3; i++) {
        refs[i] = peer_call(&peer, i, NULL);
    }
    peer_hold(&peer, 3);
    peer_fail(&peer, 2, TDM_E_METHOD, "the third");
    assert_int_equal(tdm_get_many(refs, 3, PEER_WAIT_MS, values), TDM_E_METHOD);
    assert_non_null(strstr(tdm_error_detail(), "the third"));
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOUND_PEER_TEST(callback_of_a_complete_reference_runs_at_once),
        FOUND_PEER_TEST(callback_runs_once_when_the_result_arrives),
        cmocka_unit_test(callback_runs_before_the_runtime_stops),
        FOUND_PEER_TEST(callback_runs_for_failures),
        FOUND_PEER_TEST(all_of_many_are_given_in_order),
        FOUND_PEER_TEST(the_first_failure_comes_without_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
