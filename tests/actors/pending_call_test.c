/* pending_call_test.c - one call: its options, and how its results are completed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/pending_call.h"

#include "tests/support/channel_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct channel_peer peer;

static void call_for_three(tdm_ref *refs[3])
{
    const struct tdm_call_options options = {.results_count = 3};

    assert_int_equal(tdm_actor_call_with(&peer.actor, "m", &options, refs, "i", (int64_t)1),
                     TDM_OK);
    peer_hold(&peer, 1);
}

static void several_values_become_several_results(void **state)
{
    static const char three[] = "\x93\x07\xa3two\xc0";
    const char *text;
    const tdm_value *nil;
    int64_t seven;
    tdm_ref *refs[3];

    (void)state;
    call_for_three(refs);
    peer_reply(&peer, 0, (struct tdm_bytes){three, sizeof(three) - 1});
    assert_int_equal(tdm_get(refs[1], PEER_WAIT_MS, "s", &text), TDM_OK);
    assert_string_equal(text, "two");
    assert_int_equal(tdm_get(refs[0], 0, "i", &seven), TDM_OK);
    assert_int_equal(seven, 7);
    assert_int_equal(tdm_get(refs[2], 0, "v", &nil), TDM_OK);
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
}

static void another_number_of_values_fails_all_results(void **state)
{
    tdm_ref *refs[3];

    (void)state;
    call_for_three(refs);
    peer_complete(&peer, 0); /* The reply has one value. */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdm_get(refs[i], PEER_WAIT_MS, ""), TDM_E_TYPE);
        assert_string_equal(tdm_error_detail(), "method m replied 1 values, 3 were asked for");
        tdm_ref_release(refs[i]);
    }
}

static void failure_is_that_of_all_results_and_so_is_a_cancellation(void **state)
{
    tdm_ref *refs[3];

    (void)state;
    call_for_three(refs);
    peer_fail(&peer, 0, TDM_E_METHOD, "no");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdm_get(refs[i], PEER_WAIT_MS, ""), TDM_E_METHOD);
        tdm_ref_release(refs[i]);
    }
    call_for_three(refs);
    assert_int_equal(tdm_cancel(refs[1], 0), TDM_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tdm_get(refs[i], 0, ""), TDM_E_CANCELED);
        tdm_ref_release(refs[i]);
    }
}

static void failure_without_text_gets_one(void **state)
{
    tdm_ref *ref = peer_call(&peer, 1, NULL);

    (void)state;
    peer_hold(&peer, 1);
    peer_fail(&peer, 0, TDM_E_METHOD, "");
    assert_int_equal(tdm_get(ref, PEER_WAIT_MS, ""), TDM_E_METHOD);
    assert_string_equal(tdm_error_detail(), "method m failed without saying why");
    tdm_ref_release(ref);
}

static void invalid_call_options_are_refused(void **state)
{
    const struct tdm_call_options many = {.results_count = 100000};
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_actor_call_with(&peer.actor, "m", &many, &ref, ""), TDM_E_LIMIT);
    assert_int_equal(tdm_actor_call(&peer.actor, "", &ref, ""), TDM_E_INVAL);
    assert_int_equal(peer.channel->pending_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOUND_PEER_TEST(several_values_become_several_results),
        FOUND_PEER_TEST(another_number_of_values_fails_all_results),
        FOUND_PEER_TEST(failure_is_that_of_all_results_and_so_is_a_cancellation),
        FOUND_PEER_TEST(failure_without_text_gets_one),
        FOUND_PEER_TEST(invalid_call_options_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
