/* call_retry_test.c - failed calls that are sent again after a pause. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/call_retry.h"

#include "actors/objects/ref.h"
#include "runtime/clock.h"
#include "tests/support/channel_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct channel_peer peer;

static const struct tdm_call_options when_full = {.max_retries = -1,
                                                  .retry_failures = {TDM_E_IO, TDM_E_AGAIN}};

static void expect_failure(tdm_ref *ref, tdm_status status)
{
    assert_int_equal(tdm_get(ref, PEER_WAIT_MS, ""), status);
    tdm_ref_release(ref);
}

static bool call_is_paused(void *arg)
{
    (void)arg;
    return !TAILQ_EMPTY(&peer.channel->retry_paused);
}

/* Replies with a failure to the call each time it arrives, `times` times. */
static void reply_failures(int times)
{
    for (int i = 0; i < times; i++) {
        peer_hold(&peer, 1);
        peer_fail(&peer, 0, TDM_E_AGAIN, "full");
    }
}

static void only_named_failures_are_a_reason(void **state)
{
    tdm_ref *ref = peer_call(&peer, 1, &when_full);

    (void)state;
    reply_failures(1);
    peer_hold(&peer, 1);
    peer_fail(&peer, 0, TDM_E_METHOD, "this is another one");
    expect_failure(ref, TDM_E_METHOD);
    assert_int_equal(peer.runs_count, 2);
}

/* TDM_ANY_FAILURE does not include this status; with unlimited retries the call would never end. */
static void missing_method_is_a_reason_where_it_is_named(void **state)
{
    const struct tdm_call_options options = {.max_retries = 1,
                                             .retry_failures = {TDM_ANY_FAILURE, TDM_E_NOT_FOUND}};
    tdm_ref *ref = peer_call(&peer, 1, &options);

    (void)state;
    peer_hold(&peer, 1);
    peer_fail(&peer, 0, TDM_E_NOT_FOUND, "no such method");
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    peer_expect_result(ref, 1);
}

static void retry_status_that_is_no_failure_is_refused(void **state)
{
    const struct tdm_call_options options = {.retry_failures = {TDM_E_IO, (tdm_status)5}};
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call_with(&peer.actor, "m", &options, &ref, ""), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "retry_failures[1] is 5"));
}

static void each_pause_is_twice_as_long_as_the_one_before(void **state)
{
    tdm_ref *ref = peer_call(&peer, 1, &when_full);

    (void)state;
    for (int64_t pause_ms = 1; pause_ms <= 64; pause_ms *= 2) {
        int64_t failed_ms;

        peer_hold(&peer, 1);
        failed_ms = tdm__clock_ms();
        peer_fail(&peer, 0, TDM_E_AGAIN, "full");
        peer_hold(&peer, 1);
        assert_true(tdm__clock_ms() - failed_ms >= pause_ms);
    }
    peer_complete(&peer, 0);
    peer_expect_result(ref, 1);
    assert_int_equal(peer.runs_count, 8);
}

static void paused_call_delays_no_other(void **state)
{
    tdm_ref *refs[2];

    (void)state;
    refs[0] = peer_call(&peer, 0, &when_full);
    reply_failures(6);
    peer_run_until(&peer, call_is_paused, NULL);
    refs[1] = peer_call(&peer, 1, NULL);
    peer_hold(&peer, 2);
    assert_int_equal(peer.runs[6].number, 1);
    assert_int_equal(peer.runs[7].number, 0);
    peer_complete(&peer, 0);
    peer_complete(&peer, 0);
    peer_expect_result(refs[1], 1);
    peer_expect_result(refs[0], 0);
}

/* The failure of the call is the result, not the deadline. */
static void no_pause_outlasts_the_deadline(void **state)
{
    struct tdm_call_options options = when_full;
    int64_t begun_ms = tdm__clock_ms();
    tdm_ref *ref;

    (void)state;
    options.timeout_ms = 900;
    ref = peer_call(&peer, 1, &options);
    peer_hold(&peer, 1);
    TAILQ_FIRST(&peer.channel->in_flight)->retry_pauses = 40; /* The longest pause is a second. */
    peer_fail(&peer, 0, TDM_E_AGAIN, "full");
    expect_failure(ref, TDM_E_AGAIN);
    assert_true(tdm__clock_ms() - begun_ms < options.timeout_ms);
}

static void paused_call_survives_a_reconnect(void **state)
{
    tdm_ref *refs[2];

    (void)state;
    refs[0] = peer_call(&peer, 0, &when_full);
    reply_failures(5);
    peer_run_until(&peer, call_is_paused, NULL);
    refs[1] = peer_call(&peer, 1, NULL);
    peer_cut(&peer);
    peer_hold(&peer, 2);
    for (uint32_t i = 1; i < peer.runs_count; i++) {
        assert_true(peer.runs[i].sequence > peer.runs[i - 1].sequence);
    }
    peer_complete(&peer, 0);
    peer_complete(&peer, 0);
    peer_expect_result(refs[0], 0);
    peer_expect_result(refs[1], 1);
    assert_int_equal(peer.runs_count, 7);
}

static void paused_call_is_canceled_or_fails_with_its_actor(void **state)
{
    tdm_ref *refs[2];

    (void)state;
    refs[0] = peer_call(&peer, 0, &when_full);
    reply_failures(6);
    peer_run_until(&peer, call_is_paused, NULL);
    assert_int_equal(tdm_cancel(refs[0], 0), TDM_OK);
    expect_failure(refs[0], TDM_E_CANCELED);
    assert_true(TAILQ_EMPTY(&peer.channel->retry_paused));
    refs[1] = peer_call(&peer, 1, &when_full);
    reply_failures(6);
    peer_run_until(&peer, call_is_paused, NULL);
    peer_die(&peer);
    expect_failure(refs[1], TDM_E_ACTOR_DIED);
    assert_int_equal(peer.channel->pending_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOUND_PEER_TEST(only_named_failures_are_a_reason),
        FOUND_PEER_TEST(missing_method_is_a_reason_where_it_is_named),
        FOUND_PEER_TEST(retry_status_that_is_no_failure_is_refused),
        FOUND_PEER_TEST(each_pause_is_twice_as_long_as_the_one_before),
        FOUND_PEER_TEST(paused_call_delays_no_other),
        FOUND_PEER_TEST(no_pause_outlasts_the_deadline),
        FOUND_PEER_TEST(paused_call_survives_a_reconnect),
        FOUND_PEER_TEST(paused_call_is_canceled_or_fails_with_its_actor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
