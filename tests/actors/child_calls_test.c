/* child_calls_test.c - the calls that a method has made are canceled with it, and no others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/child_calls.h"

#include "tests/support/channel_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct channel_peer peer;

static tdm_ref *call_as(uint64_t parent, int64_t number)
{
    uint64_t before = tdm__child_calls_set_parent(parent);
    tdm_ref *ref = peer_call(&peer, number, NULL);

    assert_int_equal(tdm__child_calls_set_parent(before), parent);
    return ref;
}

static void cancel(uint64_t parent)
{
    TDM__LOCK(peer.runtime);
    tdm__child_calls_cancel(peer.runtime, parent);
}

static void expect_canceled(tdm_ref *ref)
{
    assert_int_equal(tdm_get(ref, PEER_WAIT_MS, ""), TDM_E_CANCELED);
    tdm_ref_release(ref);
}

static void only_the_children_of_that_method_are_canceled(void **state)
{
    tdm_ref *own[2] = {call_as(7, 0), call_as(7, 1)};
    tdm_ref *others[2] = {call_as(8, 2), call_as(0, 3)};
    tdm_ref *waiting;

    (void)state;
    peer_hold(&peer, 4);
    peer_cut(&peer); /* Calls made now wait for a connection. */
    waiting = call_as(7, 4);
    peer_hold(&peer, 4);
    for (int i = 0; i < 2; i++) { /* The second round cancels nothing more. */
        cancel(7);
    }
    expect_canceled(own[0]);
    expect_canceled(own[1]);
    expect_canceled(waiting);
    peer_settle(&peer);
    assert_int_equal(peer.cancels_count, 0);
    assert_true(peer.family_cancels_count >= 2);
    for (uint32_t left = peer.held_count; left > 0; left--) {
        peer_complete(&peer, 0);
    }
    for (int64_t i = 0; i < 2; i++) {
        int64_t number = -1;

        assert_int_equal(tdm_get(others[i], PEER_WAIT_MS, "i", &number), TDM_OK);
        assert_int_equal(number, 2 + i);
        tdm_ref_release(others[i]);
    }
}

static void without_a_runtime_there_are_none(void **state)
{
    (void)state;
    assert_int_equal(tdm__child_calls_parent(), 0);
    tdm__child_calls_cancel(NULL, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOUND_PEER_TEST(only_the_children_of_that_method_are_canceled),
        cmocka_unit_test(without_a_runtime_there_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
