/* replies_test.c - what an answer contains is kept until its caller has settled, and no longer.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/object_scene.h"

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
    struct object_scene *scene;
    tdm_ref *ref;               /* the user's */
    struct tdm__passed *passed; /* as the kept answer owns it */
};

static void answer_with(struct called *called, struct object_scene *scene)
{
    struct tdm__holds holds = {0};

    called->scene = scene;
    TRY(tdm_put(scene->runtime, &called->ref, "i", (int64_t)7));
    TRY(tdm__holds_add(&holds, called->ref));
    TRY(tdm__passed_create(&holds, &called->passed));
    assert_int_equal(holds.count, 0);
}

static bool is_held(const struct called *called)
{
    return atomic_load(&called->ref->holders_count) > 1;
}

static bool has_arrived(void *arg)
{
    return ((const struct object_scene *)arg)->last != NULL;
}

/* A call of `caller` that is answered with it, as item `item`; how that went. */
static tdm_status send_to(struct called *called, struct far_end *caller, uint64_t item,
                          uint64_t *call_id_out)
{
    struct object_scene *scene = called->scene;
    struct far_answer answer;
    struct tdm__incoming *incoming;
    tdm_status status;

    far_end_ask(caller, &answer, "m", "");
    far_end_run(scene->runtime->loop, has_arrived, scene);
    incoming = scene->last;
    scene->last = NULL;
    *call_id_out = tdm__incoming_call_id(incoming);
    status = tdm__reply_keeps(scene->runtime, incoming, item, called->passed);
    tdm__incoming_reply_pack(incoming, "");
    TRY(far_end_wait(caller, &answer));
    far_answer_free(&answer);
    return status;
}

static void settle(struct far_end *caller, uint64_t call_id, uint64_t item)
{
    TRY(far_end_call(caller, "object.settled", "uu", call_id, item));
}

static void nothing_passed_is_nothing_to_keep(void **state)
{
    struct object_scene *scene = *state;
    struct called called = {.scene = scene};
    struct tdm__holds none = {0};
    struct far_end caller;
    uint64_t call_id;

    TRY(tdm__passed_create(&none, &called.passed));
    assert_null(called.passed);
    object_scene_borrower(scene, &caller);
    TRY(send_to(&called, &caller, 0, &call_id));
    assert_int_equal(object_scene_count(scene).kept, 0);
    tdm__passed_release(called.passed);
    far_end_close(&caller);
}

static void only_its_caller_settles_it(void **state)
{
    struct object_scene *scene = *state;
    struct far_end callers[2];
    struct called called;
    uint64_t call_id;

    answer_with(&called, scene);
    object_scene_borrower(scene, &callers[0]);
    object_scene_borrower(scene, &callers[1]);
    TRY(send_to(&called, &callers[0], 3, &call_id));
    settle(&callers[1], call_id, 3);
    settle(&callers[0], call_id + 1, 3);
    settle(&callers[0], call_id, 0);
    assert_int_equal(far_end_call(&callers[0], "object.settled", "ss", "which", "call"),
                     TDM_E_PROTOCOL);
    assert_int_equal(far_end_call(&callers[0], "object.settled", ""), TDM_E_PROTOCOL);
    assert_int_equal(object_scene_count(scene).kept, 1);
    assert_true(is_held(&called));
    settle(&callers[0], call_id, 3);
    assert_int_equal(object_scene_count(scene).kept, 0);
    assert_false(is_held(&called));
    settle(&callers[0], call_id, 3); /* twice is fine */
    tdm__passed_release(called.passed);
    tdm_ref_release(called.ref);
    far_end_close(&callers[0]);
    far_end_close(&callers[1]);
}

/* The answer may be asked for again: over another connection. */
static void a_caller_that_comes_again_finds_it(void **state)
{
    struct object_scene *scene = *state;
    struct far_end callers[2];
    struct called called;
    uint64_t first;
    uint64_t again;

    answer_with(&called, scene);
    object_scene_borrower(scene, &callers[0]);
    object_scene_borrower(scene, &callers[1]);
    TRY(send_to(&called, &callers[0], 0, &first));
    far_end_cut(&callers[0]);
    object_scene_settle(scene);
    assert_int_equal(object_scene_count(scene).kept, 1);
    assert_true(is_held(&called));
    TRY(send_to(&called, &callers[1], 0, &again));
    assert_int_equal(object_scene_count(scene).kept, 1);
    settle(&callers[1], again, 0);
    assert_false(is_held(&called));
    tdm__passed_release(called.passed);
    tdm_ref_release(called.ref);
    far_end_close(&callers[0]);
    far_end_close(&callers[1]);
}

static void the_end_of_the_old_connection_is_nothing_to_the_new(void **state)
{
    struct object_scene *scene = *state;
    struct far_end callers[2];
    struct called called;
    uint64_t call_id;

    answer_with(&called, scene);
    object_scene_borrower(scene, &callers[0]);
    object_scene_borrower(scene, &callers[1]);
    TRY(send_to(&called, &callers[0], 0, &call_id));
    TRY(send_to(&called, &callers[1], 0, &call_id));
    tdm__passed_release(called.passed); /* no answer is left to send again */
    far_end_cut(&callers[0]);
    object_scene_settle(scene);
    assert_int_equal(object_scene_count(scene).kept, 1);
    assert_true(is_held(&called));
    far_end_cut(&callers[1]);
    object_scene_settle(scene);
    assert_int_equal(object_scene_count(scene).kept, 0);
    assert_false(is_held(&called));
    tdm_ref_release(called.ref);
    far_end_close(&callers[0]);
    far_end_close(&callers[1]);
}

static void without_caller_and_answer_it_is_kept_for_nobody(void **state)
{
    struct object_scene *scene = *state;
    struct far_end caller;
    struct called called;
    uint64_t call_id;

    answer_with(&called, scene);
    object_scene_borrower(scene, &caller);
    TRY(send_to(&called, &caller, 0, &call_id));
    far_end_cut(&caller);
    object_scene_settle(scene);
    assert_true(is_held(&called));
    tdm__passed_release(called.passed);
    assert_int_equal(object_scene_count(scene).kept, 0);
    assert_false(is_held(&called));
    tdm_ref_release(called.ref);
    far_end_close(&caller);
}

/* Its references are gone: the same answer would name what is not there. */
static void what_was_let_go_of_is_not_sent_again(void **state)
{
    struct object_scene *scene = *state;
    struct far_end caller;
    struct called called;
    uint64_t call_id;

    answer_with(&called, scene);
    object_scene_borrower(scene, &caller);
    TRY(send_to(&called, &caller, 0, &call_id));
    settle(&caller, call_id, 0);
    assert_int_equal(send_to(&called, &caller, 0, &call_id), TDM_E_VALUE_LOST);
    assert_int_equal(object_scene_count(scene).kept, 0);
    tdm__passed_release(called.passed);
    tdm_ref_release(called.ref);
    far_end_close(&caller);
}

/* ---- the caller ------------------------------------------------------------------------- */

/* An answer over the connection to `callee`, with one reference of `owner`. */
static void arrive(struct object_scene *scene, struct tdm__conn *conn,
                   const struct far_end *owner)
{
    tdm_document *document;
    tdm_writer *writer;
    struct tdm__id id;
    tdm_ref *ref;

    TRY(tdm__id_make(&id));
    TRY(object_scene_open_reference(scene, owner, &id, &ref));
    TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 1);
    TRY(tdm__reference_write(writer, ref));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    tdm_writer_destroy(writer);
    tdm__reply_arrived(scene->runtime, conn, 41, 5, document);
    tdm_document_destroy(document);
    tdm_ref_release(ref);
}

static struct tdm__conn *connect_to(struct object_scene *scene, struct far_end *callee)
{
    char address[64];
    struct tdm__conn *conn;

    far_end_open(callee, scene->runtime->loop, TDM__PEER_WORKER, "callee");
    (void)snprintf(address, sizeof(address), "unix:%s/callee", scene->directory);
    far_end_listen(callee, address, NULL, 0);
    TRY(tdm__rpc_connect(scene->runtime->rpc, address, &conn));
    return conn;
}

static void the_callee_is_told_when_the_owner_has_answered(void **state)
{
    struct object_scene *scene = *state;
    struct far_end callee;
    struct far_end owner;
    struct tdm__incoming *told;
    uint64_t call_id;
    uint64_t item;

    object_scene_owner(scene, TDM__PEER_DRIVER, &owner);
    arrive(scene, connect_to(scene, &callee), &owner);
    far_end_hold(&owner, 1);
    object_scene_settle(scene);
    assert_int_equal(callee.asked_count, 0);
    tdm__incoming_reply_pack(object_scene_expect(&owner, "object.hold"), "");
    told = object_scene_expect(&callee, "object.settled");
    TRY(tdm__incoming_unpack(told, "uu", &call_id, &item));
    assert_int_equal(call_id, 41);
    assert_int_equal(item, 5);
    tdm__incoming_reply_pack(told, "");
    tdm__incoming_reply_pack(object_scene_expect(&owner, "object.drop"), "");
    object_scene_settle(scene);
    assert_int_equal(callee.asked_count, 1);
    far_end_close(&callee);
    far_end_close(&owner);
}

static void an_owner_that_is_gone_keeps_no_callee_waiting(void **state)
{
    struct object_scene *scene = *state;
    struct far_end callee;
    struct far_end owner;

    object_scene_owner(scene, TDM__PEER_DRIVER, &owner);
    arrive(scene, connect_to(scene, &callee), &owner);
    far_end_hold(&owner, 1);
    far_end_close(&owner);
    tdm__incoming_reply_pack(object_scene_expect(&callee, "object.settled"), "");
    object_scene_settle(scene);
    far_end_close(&callee);
}

static void a_callee_that_is_gone_is_told_nothing(void **state)
{
    struct object_scene *scene = *state;
    struct far_end callee;
    struct far_end owner;

    object_scene_owner(scene, TDM__PEER_DRIVER, &owner);
    arrive(scene, connect_to(scene, &callee), &owner);
    far_end_hold(&owner, 1);
    far_end_cut(&callee);
    object_scene_settle(scene);
    tdm__incoming_reply_pack(object_scene_expect(&owner, "object.hold"), "");
    tdm__incoming_reply_pack(object_scene_expect(&owner, "object.drop"), "");
    object_scene_settle(scene);
    assert_int_equal(callee.asked_count, 0);
    far_end_close(&callee);
    far_end_close(&owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_SCENE_TEST(nothing_passed_is_nothing_to_keep),
        OBJECT_SCENE_TEST(only_its_caller_settles_it),
        OBJECT_SCENE_TEST(a_caller_that_comes_again_finds_it),
        OBJECT_SCENE_TEST(the_end_of_the_old_connection_is_nothing_to_the_new),
        OBJECT_SCENE_TEST(without_caller_and_answer_it_is_kept_for_nobody),
        OBJECT_SCENE_TEST(what_was_let_go_of_is_not_sent_again),
        OBJECT_SCENE_TEST(the_callee_is_told_when_the_owner_has_answered),
        OBJECT_SCENE_TEST(an_owner_that_is_gone_keeps_no_callee_waiting),
        OBJECT_SCENE_TEST(a_callee_that_is_gone_is_told_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
