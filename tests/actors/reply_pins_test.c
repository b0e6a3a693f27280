/* reply_pins_test.c - references in replies are pinned until the caller has settled, and no
 * longer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/ref_table.h"
#include "actors/objects/reply_pins.h"
#include "runtime/messages/messages.h"
#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* ---- the callee: a reply with one reference ------------------------------------------------- */

/* A reply that contains one reference. */
struct sent_reply {
    struct object_fixture *scene;
    tdm_ref *ref;                    /* Held as the user holds it. */
    struct tdm__passed_refs *passed; /* Owned as the reply cache owns it. */
};

static void reply_with(struct sent_reply *sent_reply, struct object_fixture *scene)
{
    struct tdm__pins holds = {0};

    sent_reply->scene = scene;
    TRY(tdm_put(scene->runtime, &sent_reply->ref, "i", (int64_t)7));
    TRY(tdm__pins_add(&holds, sent_reply->ref));
    TRY(tdm__passed_refs_create(&holds, &sent_reply->passed));
    assert_int_equal(holds.count, 0);
}

static bool is_held(const struct sent_reply *sent_reply)
{
    return atomic_load(&sent_reply->ref->holders_count) > 1;
}

static bool has_arrived(void *arg)
{
    return ((const struct object_fixture *)arg)->last != NULL;
}

/* Replies to a call of `caller`, as stream item `item`, with the reference. Returns the status
 * of the registration. */
static tdm_status send_to(struct sent_reply *sent_reply, struct remote_peer *caller, uint64_t item,
                          uint64_t *call_id_out)
{
    struct object_fixture *scene = sent_reply->scene;
    struct remote_reply reply;
    struct tdm__incoming_call *incoming;
    tdm_status status;

    remote_peer_ask(caller, &reply, "m", "");
    remote_peer_run(scene->runtime->loop, has_arrived, scene);
    incoming = scene->last;
    scene->last = NULL;
    *call_id_out = tdm__incoming_call_id(incoming);
    status = tdm__reply_pins_create(scene->runtime, incoming, item, sent_reply->passed);
    tdm__incoming_reply_pack(incoming, "");
    TRY(remote_peer_wait(caller, &reply));
    remote_reply_free(&reply);
    return status;
}

static void settle(struct remote_peer *caller, uint64_t call_id, uint64_t item)
{
    TRY(remote_peer_call(caller, "object.settled", "uu", call_id, item));
}

static void reply_without_references_pins_nothing(void **state)
{
    struct object_fixture *scene = *state;
    struct sent_reply sent_reply = {.scene = scene};
    struct tdm__pins none = {0};
    struct remote_peer caller;
    uint64_t call_id;

    TRY(tdm__passed_refs_create(&none, &sent_reply.passed));
    assert_null(sent_reply.passed);
    object_fixture_borrower(scene, &caller);
    TRY(send_to(&sent_reply, &caller, 0, &call_id));
    assert_int_equal(object_fixture_count(scene).reply_pins, 0);
    tdm__passed_refs_release(sent_reply.passed);
    remote_peer_close(&caller);
}

static void only_the_caller_settles_a_reply(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer callers[2];
    struct sent_reply sent_reply;
    uint64_t call_id;

    reply_with(&sent_reply, scene);
    object_fixture_borrower(scene, &callers[0]);
    object_fixture_borrower(scene, &callers[1]);
    TRY(send_to(&sent_reply, &callers[0], 3, &call_id));
    settle(&callers[1], call_id, 3);
    settle(&callers[0], call_id + 1, 3);
    settle(&callers[0], call_id, 0);
    assert_int_equal(remote_peer_call(&callers[0], "object.settled", "ss", "which", "call"),
                     TDM_E_PROTOCOL);
    assert_int_equal(remote_peer_call(&callers[0], "object.settled", ""), TDM_E_PROTOCOL);
    assert_int_equal(object_fixture_count(scene).reply_pins, 1);
    assert_true(is_held(&sent_reply));
    settle(&callers[0], call_id, 3);
    assert_int_equal(object_fixture_count(scene).reply_pins, 0);
    assert_false(is_held(&sent_reply));
    settle(&callers[0], call_id, 3); /* Acknowledging twice is allowed. */
    tdm__passed_refs_release(sent_reply.passed);
    tdm_ref_release(sent_reply.ref);
    remote_peer_close(&callers[0]);
    remote_peer_close(&callers[1]);
}

/* The caller requests the reply again over another connection. */
static void reconnected_caller_gets_the_references(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer callers[2];
    struct sent_reply sent_reply;
    uint64_t first;
    uint64_t again;

    reply_with(&sent_reply, scene);
    object_fixture_borrower(scene, &callers[0]);
    object_fixture_borrower(scene, &callers[1]);
    TRY(send_to(&sent_reply, &callers[0], 0, &first));
    remote_peer_cut(&callers[0]);
    object_fixture_settle(scene);
    assert_int_equal(object_fixture_count(scene).reply_pins, 1);
    assert_true(is_held(&sent_reply));
    TRY(send_to(&sent_reply, &callers[1], 0, &again));
    assert_int_equal(object_fixture_count(scene).reply_pins, 1);
    settle(&callers[1], again, 0);
    assert_false(is_held(&sent_reply));
    tdm__passed_refs_release(sent_reply.passed);
    tdm_ref_release(sent_reply.ref);
    remote_peer_close(&callers[0]);
    remote_peer_close(&callers[1]);
}

static void closing_the_old_connection_keeps_the_pins(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer callers[2];
    struct sent_reply sent_reply;
    uint64_t call_id;

    reply_with(&sent_reply, scene);
    object_fixture_borrower(scene, &callers[0]);
    object_fixture_borrower(scene, &callers[1]);
    TRY(send_to(&sent_reply, &callers[0], 0, &call_id));
    TRY(send_to(&sent_reply, &callers[1], 0, &call_id));
    /* The reply is no longer cached, so it cannot be sent again. */
    tdm__passed_refs_release(sent_reply.passed);
    remote_peer_cut(&callers[0]);
    object_fixture_settle(scene);
    assert_int_equal(object_fixture_count(scene).reply_pins, 1);
    assert_true(is_held(&sent_reply));
    remote_peer_cut(&callers[1]);
    object_fixture_settle(scene);
    assert_int_equal(object_fixture_count(scene).reply_pins, 0);
    assert_false(is_held(&sent_reply));
    tdm_ref_release(sent_reply.ref);
    remote_peer_close(&callers[0]);
    remote_peer_close(&callers[1]);
}

static void pins_end_without_caller_and_cached_reply(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer caller;
    struct sent_reply sent_reply;
    uint64_t call_id;

    reply_with(&sent_reply, scene);
    object_fixture_borrower(scene, &caller);
    TRY(send_to(&sent_reply, &caller, 0, &call_id));
    remote_peer_cut(&caller);
    object_fixture_settle(scene);
    assert_true(is_held(&sent_reply));
    tdm__passed_refs_release(sent_reply.passed);
    assert_int_equal(object_fixture_count(scene).reply_pins, 0);
    assert_false(is_held(&sent_reply));
    tdm_ref_release(sent_reply.ref);
    remote_peer_close(&caller);
}

/* The references have been released, so the same reply would name objects that do not exist. */
static void released_references_are_not_sent_again(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer caller;
    struct sent_reply sent_reply;
    uint64_t call_id;

    reply_with(&sent_reply, scene);
    object_fixture_borrower(scene, &caller);
    TRY(send_to(&sent_reply, &caller, 0, &call_id));
    settle(&caller, call_id, 0);
    assert_int_equal(send_to(&sent_reply, &caller, 0, &call_id), TDM_E_VALUE_LOST);
    assert_int_equal(object_fixture_count(scene).reply_pins, 0);
    tdm__passed_refs_release(sent_reply.passed);
    tdm_ref_release(sent_reply.ref);
    remote_peer_close(&caller);
}

/* ---- the caller ----------------------------------------------------------------------------- */

/* Lets a reply arrive over the connection to `callee`, with one reference of `owner`. */
static void arrive(struct object_fixture *scene, struct tdm__conn *conn,
                   const struct remote_peer *owner)
{
    tdm_document *document;
    tdm_writer *writer;
    struct tdm__id id;
    tdm_ref *ref;

    TRY(tdm__id_generate(&id));
    TRY(object_fixture_open_reference(scene, owner, &id, &ref));
    TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 1);
    TRY(tdm__reference_write(writer, ref));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    tdm_writer_destroy(writer);
    tdm__reply_pins_acknowledge(scene->runtime, conn, 41, 5, document);
    tdm_document_destroy(document);
    tdm_ref_release(ref);
}

static struct tdm__conn *connect_to(struct object_fixture *scene, struct remote_peer *callee)
{
    char address[64];
    struct tdm__conn *conn;

    remote_peer_open(callee, scene->runtime->loop, TDM__PEER_WORKER, "callee");
    (void)snprintf(address, sizeof(address), "unix:%s/callee", scene->directory);
    remote_peer_listen(callee, address, NULL, 0);
    TRY(tdm__rpc_connect(scene->runtime->rpc, address, &conn));
    return conn;
}

static void callee_is_notified_after_the_owner_acknowledged(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer callee;
    struct remote_peer owner;
    struct tdm__incoming_call *told;
    struct tdm__reply_settled_message settled;

    object_fixture_owner(scene, TDM__PEER_DRIVER, &owner);
    arrive(scene, connect_to(scene, &callee), &owner);
    remote_peer_hold(&owner, 1);
    object_fixture_settle(scene);
    assert_int_equal(callee.asked_count, 0);
    tdm__incoming_reply_pack(object_fixture_expect(&owner, "object.pin"), "");
    told = object_fixture_expect(&callee, "object.settled");
    TRY(tdm__incoming_decode(told, tdm__reply_settled_table(), &settled));
    assert_int_equal(settled.call_id, 41);
    assert_int_equal(settled.item, 5);
    tdm__incoming_reply_pack(told, "");
    tdm__incoming_reply_pack(object_fixture_expect(&owner, "object.unpin"), "");
    object_fixture_settle(scene);
    assert_int_equal(callee.asked_count, 1);
    remote_peer_close(&callee);
    remote_peer_close(&owner);
}

static void ended_owner_does_not_delay_the_callee(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer callee;
    struct remote_peer owner;

    object_fixture_owner(scene, TDM__PEER_DRIVER, &owner);
    arrive(scene, connect_to(scene, &callee), &owner);
    remote_peer_hold(&owner, 1);
    remote_peer_close(&owner);
    tdm__incoming_reply_pack(object_fixture_expect(&callee, "object.settled"), "");
    object_fixture_settle(scene);
    remote_peer_close(&callee);
}

static void ended_callee_is_not_notified(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer callee;
    struct remote_peer owner;

    object_fixture_owner(scene, TDM__PEER_DRIVER, &owner);
    arrive(scene, connect_to(scene, &callee), &owner);
    remote_peer_hold(&owner, 1);
    remote_peer_cut(&callee);
    object_fixture_settle(scene);
    tdm__incoming_reply_pack(object_fixture_expect(&owner, "object.pin"), "");
    tdm__incoming_reply_pack(object_fixture_expect(&owner, "object.unpin"), "");
    object_fixture_settle(scene);
    assert_int_equal(callee.asked_count, 0);
    remote_peer_close(&callee);
    remote_peer_close(&owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(reply_without_references_pins_nothing),
        OBJECT_FIXTURE_TEST(only_the_caller_settles_a_reply),
        OBJECT_FIXTURE_TEST(reconnected_caller_gets_the_references),
        OBJECT_FIXTURE_TEST(closing_the_old_connection_keeps_the_pins),
        OBJECT_FIXTURE_TEST(pins_end_without_caller_and_cached_reply),
        OBJECT_FIXTURE_TEST(released_references_are_not_sent_again),
        OBJECT_FIXTURE_TEST(callee_is_notified_after_the_owner_acknowledged),
        OBJECT_FIXTURE_TEST(ended_owner_does_not_delay_the_callee),
        OBJECT_FIXTURE_TEST(ended_callee_is_not_notified),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
