/* client_test.c - blocked calls leave when a result has arrived; a runtime may lack a client side.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/client.h"

#include "actors/objects/ref.h"
#include "actors/objects/ref_complete.h"
#include "tests/support/channel_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct channel_peer peer;

/* Completes `ref` with [number]. */
static void complete_with(tdm_ref *ref, char number)
{
    const char packed[] = {(char)0x91, number};
    tdm_document *document;

    assert_int_equal(tdm_document_parse((struct tdm_bytes){packed, sizeof(packed)}, &document),
                     TDM_OK);
    tdm__ref_complete(ref, TDM_OK, NULL, document);
}

static void test_a_blocked_call_leaves_when_its_argument_has_arrived(void **state)
{
    TDM__LOCK(peer.runtime);
    tdm_ref *argument;
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm__ref_create(peer.runtime, &argument), TDM_OK);
    assert_int_equal(tdm_actor_call(&peer.actor, "m", &ref, "r", argument), TDM_OK);
    assert_true(peer.runtime->client->calls_blocked);
    complete_with(argument, 7);
    tdm__actor_channels_flush(peer.runtime); /* No result has been recorded. */
    assert_true(TAILQ_EMPTY(&peer.channel->in_flight));
    tdm__client_object_callbacks()->result_arrived(peer.runtime);
    tdm__client_object_callbacks()->send_ready_calls(peer.runtime);
    assert_false(TAILQ_EMPTY(&peer.channel->in_flight));
    assert_false(peer.runtime->client->calls_blocked);
    tdm_ref_release(argument);
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    peer_expect_result(ref, 7);
}

static void test_a_runtime_without_a_client_side_can_end(void **state)
{
    tdm_runtime runtime = {0};

    (void)state;
    assert_int_equal(tdm__client_create(&runtime), TDM_OK);
    assert_non_null(runtime.client);
    tdm__client_destroy(&runtime);
    assert_null(runtime.client);
    tdm__client_destroy(&runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOUND_PEER_TEST(test_a_blocked_call_leaves_when_its_argument_has_arrived),
        cmocka_unit_test(test_a_runtime_without_a_client_side_can_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
