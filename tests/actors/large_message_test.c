/* large_message_test.c - a value in a segment is sent as its bytes, or returned to its sender. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/large_message.h"

#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* Lets a process of another node call the runtime. The call is in scene->last. */
static void receive_call(struct object_fixture *scene, struct remote_peer *caller,
                         struct remote_reply *reply)
{
    object_fixture_borrower(scene, caller);
    remote_peer_ask(caller, reply, "method", "i", (int64_t)1);
    object_fixture_settle(scene);
    assert_non_null(scene->last);
}

static void test_a_reply_to_another_node_contains_the_bytes_if_they_fit(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_reply reply;
    struct remote_peer caller;
    struct tdm__large *large;

    receive_call(scene, &caller, &reply);
    TRY(tdm__large_create(scene->runtime, 2, &large));
    memcpy((void *)(uintptr_t)tdm__large_bytes(large).data, "\x91\x07", 2);
    assert_false(tdm__large_is_offered(large, scene->runtime, scene->last));
    tdm__large_reply(large, scene->runtime, scene->last);
    scene->last = NULL;
    TRY(remote_peer_wait(&caller, &reply));
    assert_int_equal(tdm_value_int(tdm_value_at(remote_reply_value(&reply), 0), 0), 7);
    remote_reply_free(&reply);
    tdm__large_release(large);
    remote_peer_close(&caller);
}

static void test_a_refused_call_fails_with_its_reason(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_reply reply;
    struct remote_peer caller;

    receive_call(scene, &caller, &reply);
    tdm__incoming_refuse(scene->last, TDM_E_AGAIN, "too many calls");
    scene->last = NULL;
    assert_int_equal(remote_peer_wait(&caller, &reply), TDM_E_AGAIN);
    assert_non_null(strstr(reply.detail, "too many calls"));
    remote_reply_free(&reply);
    remote_peer_close(&caller);
}

static void test_small_arguments_are_read_from_their_message(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_reply reply;
    struct remote_peer caller;
    tdm_document *document;

    receive_call(scene, &caller, &reply);
    TRY(tdm__incoming_document(scene->runtime, scene->last, &document));
    assert_int_equal(tdm_value_int(tdm_value_at(tdm_document_root(document), 0), 0), 1);
    tdm_document_destroy(document);
    tdm__incoming_reply_pack(scene->last, "");
    scene->last = NULL;
    TRY(remote_peer_wait(&caller, &reply));
    remote_reply_free(&reply);
    remote_peer_close(&caller);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(test_a_reply_to_another_node_contains_the_bytes_if_they_fit),
        OBJECT_FIXTURE_TEST(test_a_refused_call_fails_with_its_reason),
        OBJECT_FIXTURE_TEST(test_small_arguments_are_read_from_their_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
