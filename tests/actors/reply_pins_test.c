/* reply_pins_test.c - what an answer contains is kept until its caller has settled, and no longer.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* ---- the callee: an answer with one reference -------------------------------------------- */

struct called {
    struct object_fixture *scene;
    tdm_ref *ref;                    /* the user's */
    struct tdm__passed_refs *passed; /* as the kept answer owns it */
};

static void reply_with(struct called *called, struct object_fixture *scene)
{
    struct tdm__pins holds = {0};

    called->scene = scene;
    TRY(tdm_put(scene->runtime, &called->ref, "i", (int64_t)7));
    TRY(tdm__pins_add(&holds, called->ref));
    TRY(tdm__passed_refs_create(&holds, &called->passed));
    assert_int_equal(holds.count, 0);
}

static bool is_held(const struct called *called)
{
    return atomic_load(&called->ref->holders_count) > 1;
}

static bool has_arrived(void *arg)
{
    return ((const struct object_fixture *)arg)->last != NULL;
}

/* A call of `caller` that is answered with it, as item `item`; how that went. */
static tdm_status send_to(struct called *called, struct remote_peer *caller, uint64_t item,
                          uint64_t *call_id_out)
{
    struct object_fixture *scene = called->scene;
    struct remote_reply reply;
    struct tdm__incoming_call *incoming;
    tdm_status status;

    remote_peer_ask(caller, &reply, "m", "");
    remote_peer_run(scene->runtime->loop, has_arrived, scene);
    incoming = scene->last;
    scene->last = NULL;
    *call_id_out = tdm__incoming_call_id(incoming);
    status = tdm__reply_pins_create(scene->runtime, incoming, item, called->passed);
    tdm__incoming_reply_pack(incoming, "");
    TRY(remote_peer_wait(caller, &reply));
    remote_reply_free(&reply);
    return status;
}

static void settle(struct remote_peer *caller, uint64_t call_id, uint64_t item)
{
    TRY(remote_peer_call(caller, "object.settled", "uu", call_id, item));
}

static void nothing_passed_is_nothing_to_keep(void **state)
{
    struct object_fixture *scene = *state;
    struct called called = {.scene = scene};
    struct tdm__pins none = {0};
    struct remote_peer caller;
    uint64_t call_id;

    TRY(tdm__passed_refs_create(&none, &called.passed));
    assert_null(called.passed);
    object_fixture_borrower(scene, &caller);
    TRY(send_to(&called, &caller, 0, &call_id));
    assert_int_equal(object_fixture_count(scene).reply_pins, 0);
    tdm__passed_refs_release(called.passed);
    remote_peer_close(&caller);
}

static void only_its_caller_settles_it(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer callers[2];
    struct called called;
    uint64_t call_id;

    reply_with(&called, scene);
    object_fixture_borrower(scene, &callers[0]);
    object_fixture_borrower(scene, &callers[1]);
    TRY(send_to(&called, &callers[0], 3, &call_id));
    settle(&callers[1], call_id, 3);
    settle(&callers[0], call_id + 1, 3);
    settle(&callers[0], call_id, 0);
    assert_int_equal(remote_peer_call(&callers[0], "object.settled", "ss", "which", "call"),
                     TDM_E_PROTOCOL);
    assert_int_equal(remote_peer_call(&callers[0], "object.settled", ""), TDM_E_PROTOCOL);
    assert_int_equal(object_fixture_count(scene).reply_pins, 1);
    assert_true(is_held(&called));
    settle(&callers[0], call_id, 3);
    assert_int_equal(object_fixture_count(scene).reply_pins, 0);
    assert_false(is_held(&called));
    settle(&callers[0], call_id, 3); /* twice is fine */
    tdm__passed_refs_release(called.passed);
    tdm_ref_release(called.ref);
    remote_peer_close(&callers[0]);
    remote_peer_close(&callers[1]);
}

/* The answer may be asked for again: over another connection. */
static void a_caller_that_comes_again_finds_it(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer callers[2];
    struct called called;
    uint64_t first;
    uint64_t again;

    reply_with(&called, scene);
    object_fixture_borrower(scene, &callers[0]);
    object_fixture_borrower(scene, &callers[1]);
    TRY(send_to(&called, &callers[0], 0, &first));
    remote_peer_cut(&callers[0]);
    object_fixture_settle(scene);
    assert_int_equal(object_fixture_count(scene).reply_pins, 1);
    assert_true(is_held(&called));
    TRY(send_to(&called, &callers[1], 0, &again));
    assert_int_equal(object_fixture_count(scene).reply_pins, 1);
    settle(&callers[1], again, 0);
    assert_false(is_held(&called));
    tdm__passed_refs_release(called.passed);
    tdm_ref_release(called.ref);
    remote_peer_close(&callers[0]);
    remote_peer_close(&callers[1]);
}

static void the_end_of_the_old_connection_is_nothing_to_the_new(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer callers[2];
    struct called called;
    uint64_t call_id;

    reply_with(&called, scene);
    object_fixture_borrower(scene, &callers[0]);
    object_fixture_borrower(scene, &callers[1]);
    TRY(send_to(&called, &callers[0], 0, &call_id));
    TRY(send_to(&called, &callers[1], 0, &call_id));
    tdm__passed_refs_release(called.passed); /* no answer is left to send again */
    remote_peer_cut(&callers[0]);
    object_fixture_settle(scene);
    assert_int_equal(object_fixture_count(scene).reply_pins, 1);
    assert_true(is_held(&called));
    remote_peer_cut(&callers[1]);
    object_fixture_settle(scene);
    assert_int_equal(object_fixture_count(scene).reply_pins, 0);
    assert_false(is_held(&called));
    tdm_ref_release(called.ref);
    remote_peer_close(&callers[0]);
    remote_peer_close(&callers[1]);
}

static void without_caller_and_answer_it_is_kept_for_nobody(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer caller;
    struct called called;
    uint64_t call_id;

    reply_with(&called, scene);
    object_fixture_borrower(scene, &caller);
    TRY(send_to(&called, &caller, 0, &call_id));
    remote_peer_cut(&caller);
    object_fixture_settle(scene);
    assert_true(is_held(&called));
    tdm__passed_refs_release(called.passed);
    assert_int_equal(object_fixture_count(scene).reply_pins, 0);
    assert_false(is_held(&called));
    tdm_ref_release(called.ref);
    remote_peer_close(&caller);
}

/* Its references are gone: the same answer would name what is not there. */
static void what_was_let_go_of_is_not_sent_again(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer caller;
    struct called called;
    uint64_t call_id;

    reply_with(&called, scene);
    object_fixture_borrower(scene, &caller);
    TRY(send_to(&called, &caller, 0, &call_id));
    settle(&caller, call_id, 0);
    assert_int_equal(send_to(&called, &caller, 0, &call_id), TDM_E_VALUE_LOST);
    assert_int_equal(object_fixture_count(scene).reply_pins, 0);
    tdm__passed_refs_release(called.passed);
    tdm_ref_release(called.ref);
    remote_peer_close(&caller);
}

/* ---- the caller ------------------------------------------------------------------------- */

/* An answer over the connection to `callee`, with one reference of `owner`. */
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

static void the_callee_is_told_when_the_owner_has_answered(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer callee;
    struct remote_peer owner;
    struct tdm__incoming_call *told;
    uint64_t call_id;
    uint64_t item;

    object_fixture_owner(scene, TDM__PEER_DRIVER, &owner);
    arrive(scene, connect_to(scene, &callee), &owner);
    remote_peer_hold(&owner, 1);
    object_fixture_settle(scene);
    assert_int_equal(callee.asked_count, 0);
    tdm__incoming_reply_pack(object_fixture_expect(&owner, "object.pin"), "");
    told = object_fixture_expect(&callee, "object.settled");
    TRY(tdm__incoming_unpack(told, "uu", &call_id, &item));
    assert_int_equal(call_id, 41);
    assert_int_equal(item, 5);
    tdm__incoming_reply_pack(told, "");
    tdm__incoming_reply_pack(object_fixture_expect(&owner, "object.unpin"), "");
    object_fixture_settle(scene);
    assert_int_equal(callee.asked_count, 1);
    remote_peer_close(&callee);
    remote_peer_close(&owner);
}

static void an_owner_that_is_gone_keeps_no_callee_waiting(void **state)
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

static void a_callee_that_is_gone_is_told_nothing(void **state)
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
        OBJECT_FIXTURE_TEST(nothing_passed_is_nothing_to_keep),
        OBJECT_FIXTURE_TEST(only_its_caller_settles_it),
        OBJECT_FIXTURE_TEST(a_caller_that_comes_again_finds_it),
        OBJECT_FIXTURE_TEST(the_end_of_the_old_connection_is_nothing_to_the_new),
        OBJECT_FIXTURE_TEST(without_caller_and_answer_it_is_kept_for_nobody),
        OBJECT_FIXTURE_TEST(what_was_let_go_of_is_not_sent_again),
        OBJECT_FIXTURE_TEST(the_callee_is_told_when_the_owner_has_answered),
        OBJECT_FIXTURE_TEST(an_owner_that_is_gone_keeps_no_callee_waiting),
        OBJECT_FIXTURE_TEST(a_callee_that_is_gone_is_told_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
