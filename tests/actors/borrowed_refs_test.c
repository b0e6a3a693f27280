/* borrowed_refs_test.c - the values of borrowed references: from their owner and from siblings. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/borrowed_refs.h"
#include "tests/support/borrowed_ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static void expect_seven(struct borrowed_ref *borrowed)
{
    int64_t number = 0;

    TRY(tdm_get(borrowed->ref, REMOTE_PEER_WAIT_MS, "i", &number));
    assert_int_equal(number, 7);
}

static void reply(struct borrowed_ref *borrowed, const char *method, const char *packed,
                  size_t size_bytes)
{
    tdm__incoming_reply(object_fixture_expect(&borrowed->owner, method),
                        (struct tdm_bytes){packed, size_bytes}, NULL, 0);
}

/* ---- values ----------------------------------------------------------------------------- */

static void value_is_requested_once(void **state)
{
    struct borrowed_ref borrowed;

    borrowed_ref_open(&borrowed, *state);
    borrowed_ref_acknowledge(&borrowed);
    tdm__reference_fetch(borrowed.ref);
    tdm__reference_fetch(borrowed.ref);
    reply(&borrowed, "object.get", "\x91\x07", 2);
    expect_seven(&borrowed);
    tdm__reference_fetch(borrowed.ref);
    object_fixture_settle(borrowed.scene);
    assert_int_equal(borrowed.owner.asked_count, 2);
    borrowed_ref_close(&borrowed);
}

static void malformed_value_fails_the_reference(void **state)
{
    static const struct {
        const char *packed;
        size_t size_bytes;
    } wrong[] = {{"\x07", 1}, {"\x92\x07", 2}, {"", 0}, {"\x81\xa3near", 5}};

    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct borrowed_ref borrowed;

        borrowed_ref_open(&borrowed, *state);
        borrowed_ref_acknowledge(&borrowed);
        tdm__reference_fetch(borrowed.ref);
        reply(&borrowed, "object.get", wrong[i].packed, wrong[i].size_bytes);
        remote_peer_run(borrowed.scene->runtime->loop, borrowed_ref_is_done, &borrowed);
        assert_int_equal(borrowed.ref->status, TDM_E_PROTOCOL);
        borrowed_ref_close(&borrowed);
    }
}

/* A value with two references, each to an object of another process. Its reference is released as
 * soon as it has arrived; its owner keeps the inner references only while this one is pinned. */
static void reference_stays_pinned_until_the_owners_of_those_inside_know(void **state)
{
    struct borrowed_ref borrowed;
    struct remote_peer owners[2];
    tdm_writer *writer;

    borrowed_ref_open(&borrowed, *state);
    borrowed_ref_acknowledge(&borrowed);
    tdm__reference_fetch(borrowed.ref);
    TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 2);
    for (int i = 0; i < 2; i++) {
        struct tdm__id id;

        object_fixture_owner(*state, TDM__PEER_WORKER, &owners[i]);
        TRY(tdm__id_generate(&id));
        object_fixture_write_reference(*state, &owners[i], &id, writer);
    }
    tdm__incoming_reply(object_fixture_expect(&borrowed.owner, "object.get"),
                        tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
    remote_peer_run(borrowed.scene->runtime->loop, borrowed_ref_is_done, &borrowed);
    tdm_ref_release(borrowed.ref);
    for (int i = 0; i < 2; i++) {
        struct tdm__incoming_call *pin = object_fixture_expect(&owners[i], "object.pin");

        object_fixture_settle(borrowed.scene);
        assert_int_equal(borrowed.owner.held_count, 0); /* There is no unpin yet. */
        tdm__incoming_reply_pack(pin, "");
    }
    tdm__incoming_reply_pack(object_fixture_expect(&borrowed.owner, "object.unpin"), "");
    for (int i = 0; i < 2; i++) {
        tdm__incoming_reply_pack(object_fixture_expect(&owners[i], "object.unpin"), "");
    }
    object_fixture_settle(borrowed.scene);
    for (int i = 0; i < 2; i++) {
        remote_peer_close(&owners[i]);
    }
    remote_peer_close(&borrowed.owner);
}

/* ---- values from a process of this node --------------------------------------------------- */

/* Replies {"sibling": (kind, process, name)} that names the process `sibling`. */
static void reply_redirection(struct borrowed_ref *borrowed, const char *method,
                              const struct remote_peer *sibling)
{
    struct tdm__incoming_call *incoming = object_fixture_expect(&borrowed->owner, method);
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    tdm_write_map(writer, 1);
    tdm_write_string(writer, "sibling");
    TRY(tdm_pack(writer, "ibs", (int64_t)sibling->self.kind, (const void *)sibling->self.id.bytes,
                 sizeof(sibling->self.id.bytes), "neighbour"));
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}

static void sibling_without_the_value_is_not_asked_again(void **state)
{
    struct borrowed_ref borrowed;
    struct remote_peer sibling;

    borrowed_ref_open(&borrowed, *state);
    borrowed_ref_acknowledge(&borrowed);
    object_fixture_owner(*state, TDM__PEER_WORKER, &sibling);
    tdm__reference_fetch(borrowed.ref);
    reply_redirection(&borrowed, "object.get", &sibling);
    tdm__incoming_fail(object_fixture_expect(&sibling, "object.sibling"), TDM_E_VALUE_LOST, "gone");
    reply(&borrowed, "object.fetch", "\x91\x07", 2);
    expect_seven(&borrowed);
    assert_int_equal(sibling.asked_count, 1);
    remote_peer_close(&sibling);
    borrowed_ref_close(&borrowed);
}

static void closed_sibling_is_replaced_by_the_owner(void **state)
{
    struct borrowed_ref borrowed;
    struct remote_peer sibling;

    borrowed_ref_open(&borrowed, *state);
    borrowed_ref_acknowledge(&borrowed);
    object_fixture_owner(*state, TDM__PEER_WORKER, &sibling);
    remote_peer_close(&sibling);
    tdm__reference_fetch(borrowed.ref);
    reply_redirection(&borrowed, "object.get", &sibling);
    reply(&borrowed, "object.fetch", "\x91\x07", 2);
    expect_seven(&borrowed);
    borrowed_ref_close(&borrowed);
}

static void sibling_that_ends_during_the_request_is_replaced(void **state)
{
    struct borrowed_ref borrowed;
    struct remote_peer sibling;

    borrowed_ref_open(&borrowed, *state);
    borrowed_ref_acknowledge(&borrowed);
    object_fixture_owner(*state, TDM__PEER_WORKER, &sibling);
    tdm__reference_fetch(borrowed.ref);
    reply_redirection(&borrowed, "object.get", &sibling);
    remote_peer_hold(&sibling, 1);
    remote_peer_close(&sibling);
    reply(&borrowed, "object.fetch", "\x91\x07", 2);
    expect_seven(&borrowed);
    borrowed_ref_close(&borrowed);
}

static void sibling_reply_after_owner_end_is_ignored(void **state)
{
    struct borrowed_ref borrowed;
    struct remote_peer sibling;

    borrowed_ref_open(&borrowed, *state);
    borrowed_ref_acknowledge(&borrowed);
    object_fixture_owner(*state, TDM__PEER_WORKER, &sibling);
    tdm__reference_fetch(borrowed.ref);
    reply_redirection(&borrowed, "object.get", &sibling);
    remote_peer_hold(&sibling, 1);
    remote_peer_close(&borrowed.owner);
    borrowed_ref_expect_failure(&borrowed, TDM_E_OWNER_DIED, "has gone");
    tdm__incoming_reply(remote_peer_take(&sibling), (struct tdm_bytes){"\x91\x07", 2}, NULL, 0);
    object_fixture_settle(borrowed.scene);
    assert_int_equal(borrowed.ref->status, TDM_E_OWNER_DIED);
    tdm_ref_release(borrowed.ref);
    remote_peer_close(&sibling);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(value_is_requested_once),
        OBJECT_FIXTURE_TEST(malformed_value_fails_the_reference),
        OBJECT_FIXTURE_TEST(reference_stays_pinned_until_the_owners_of_those_inside_know),
        OBJECT_FIXTURE_TEST(sibling_without_the_value_is_not_asked_again),
        OBJECT_FIXTURE_TEST(closed_sibling_is_replaced_by_the_owner),
        OBJECT_FIXTURE_TEST(sibling_that_ends_during_the_request_is_replaced),
        OBJECT_FIXTURE_TEST(sibling_reply_after_owner_end_is_ignored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
