/* borrowed_refs_test.c - what is borrowed is held once, given back once, and known to be lost. */
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

/* ---- an object of another process ------------------------------------------------------- */

struct exported {
    struct object_fixture *scene;
    struct remote_peer owner;
    struct tdm__id id;
    tdm_ref *ref;
};

static void borrow_of(struct exported *exported, struct object_fixture *scene,
                      enum tdm__peer_kind kind)
{
    exported->scene = scene;
    object_fixture_owner(scene, kind, &exported->owner);
    TRY(tdm__id_generate(&exported->id));
    TRY(object_fixture_open_reference(scene, &exported->owner, &exported->id, &exported->ref));
}

static void borrow(struct exported *exported, struct object_fixture *scene)
{
    borrow_of(exported, scene, TDM__PEER_DRIVER);
}

static bool is_done(void *arg)
{
    return ((const struct exported *)arg)->ref->done;
}

static void expect_failure(struct exported *exported, tdm_status status, const char *words)
{
    remote_peer_run(exported->scene->runtime->loop, is_done, exported);
    assert_int_equal(exported->ref->status, status);
    assert_non_null(strstr(exported->ref->detail, words));
}

static void expect_seven(struct exported *exported)
{
    int64_t number = 0;

    TRY(tdm_get(exported->ref, REMOTE_PEER_WAIT_MS, "i", &number));
    assert_int_equal(number, 7);
}

static void acknowledge(struct exported *exported)
{
    tdm__incoming_reply_pack(object_fixture_expect(&exported->owner, "object.pin"), "");
    object_fixture_settle(exported->scene);
}

static void give_back(struct exported *exported)
{
    tdm_ref_release(exported->ref);
    tdm__incoming_reply_pack(object_fixture_expect(&exported->owner, "object.unpin"), "");
    object_fixture_settle(exported->scene);
    assert_int_equal(exported->owner.held_count, 0);
    remote_peer_close(&exported->owner);
}

static void reply(struct exported *exported, const char *method, const char *packed,
                  size_t size_bytes)
{
    tdm__incoming_reply(object_fixture_expect(&exported->owner, method),
                        (struct tdm_bytes){packed, size_bytes}, NULL, 0);
}

/* ---- holds ------------------------------------------------------------------------------ */

static void opened_twice_it_is_held_once(void **state)
{
    struct exported exported;
    tdm_ref *again;

    borrow(&exported, *state);
    TRY(object_fixture_open_reference(*state, &exported.owner, &exported.id, &again));
    assert_ptr_equal(again, exported.ref);
    acknowledge(&exported);
    tdm_ref_release(again);
    object_fixture_settle(exported.scene);
    assert_int_equal(exported.owner.asked_count, 1);
    give_back(&exported);
    assert_int_equal(exported.owner.asked_count, 2);
}

/* The drop must not overtake what it is to end. */
static void let_go_of_early_it_is_given_back_after_the_hold_was_counted(void **state)
{
    struct exported exported;
    struct tdm__incoming_call *hold;

    borrow(&exported, *state);
    hold = object_fixture_expect(&exported.owner, "object.pin");
    tdm_ref_release(exported.ref);
    object_fixture_settle(exported.scene);
    assert_int_equal(exported.owner.asked_count, 1);
    assert_int_equal(object_fixture_count(exported.scene).borrowed, 1);
    tdm__incoming_reply_pack(hold, "");
    tdm__incoming_reply_pack(object_fixture_expect(&exported.owner, "object.unpin"), "");
    object_fixture_settle(exported.scene);
    assert_int_equal(object_fixture_count(exported.scene).borrowed, 0);
    remote_peer_close(&exported.owner);
}

static void a_hold_that_is_refused_says_why(void **state)
{
    struct exported exported;

    borrow(&exported, *state);
    tdm__incoming_fail(object_fixture_expect(&exported.owner, "object.pin"), TDM_E_OWNER_DIED,
                       "let go of long ago");
    expect_failure(&exported, TDM_E_OWNER_DIED, "let go of long ago");
    assert_true(tdm__shared_ref_is_settled(exported.ref->shared));
    give_back(&exported);
}

/* ---- values ----------------------------------------------------------------------------- */

static void a_value_is_asked_for_once(void **state)
{
    struct exported exported;

    borrow(&exported, *state);
    acknowledge(&exported);
    tdm__reference_fetch(exported.ref);
    tdm__reference_fetch(exported.ref);
    reply(&exported, "object.get", "\x91\x07", 2);
    expect_seven(&exported);
    tdm__reference_fetch(exported.ref);
    object_fixture_settle(exported.scene);
    assert_int_equal(exported.owner.asked_count, 2);
    give_back(&exported);
}

static void an_answer_that_is_no_value_is_a_failure(void **state)
{
    static const struct {
        const char *packed;
        size_t size_bytes;
    } wrong[] = {{"\x07", 1}, {"\x92\x07", 2}, {"", 0}, {"\x81\xa3near", 5}};

    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct exported exported;

        borrow(&exported, *state);
        acknowledge(&exported);
        tdm__reference_fetch(exported.ref);
        reply(&exported, "object.get", wrong[i].packed, wrong[i].size_bytes);
        remote_peer_run(exported.scene->runtime->loop, is_done, &exported);
        assert_int_equal(exported.ref->status, TDM_E_PROTOCOL);
        give_back(&exported);
    }
}

/* ---- the end of an owner ---------------------------------------------------------------- */

static void an_owner_that_is_gone_loses_what_has_not_come(void **state)
{
    struct exported exported;
    struct tdm__id other;
    tdm_ref *here;

    borrow(&exported, *state);
    TRY(tdm__id_generate(&other));
    TRY(object_fixture_open_reference(*state, &exported.owner, &other, &here));
    acknowledge(&exported);
    tdm__incoming_reply_pack(object_fixture_expect(&exported.owner, "object.pin"), "");
    tdm__reference_fetch(here);
    reply(&exported, "object.get", "\x91\x07", 2);
    object_fixture_settle(exported.scene);
    tdm__reference_fetch(exported.ref); /* not answered any more */
    remote_peer_hold(&exported.owner, 1);
    remote_peer_close(&exported.owner);
    expect_failure(&exported, TDM_E_OWNER_DIED, "actor maker on node");
    assert_int_equal(here->status, TDM_OK);
    tdm_ref_release(here);
    tdm_ref_release(exported.ref);
    assert_true(TAILQ_EMPTY(&exported.scene->objects->owners));
}

static void with_its_owner_a_hold_is_settled(void **state)
{
    struct exported exported;

    borrow(&exported, *state);
    remote_peer_hold(&exported.owner, 1);
    assert_false(tdm__shared_ref_is_settled(exported.ref->shared));
    remote_peer_close(&exported.owner);
    expect_failure(&exported, TDM_E_OWNER_DIED, "has gone");
    assert_true(tdm__shared_ref_is_settled(exported.ref->shared));
    tdm_ref_release(exported.ref);
}

/* It has ended, and that is about to be told. */
static void so_is_what_is_opened_before_its_end_was_told(void **state)
{
    struct exported exported;
    struct tdm__id other;
    tdm_ref *late;

    borrow(&exported, *state);
    acknowledge(&exported);
    TRY(tdm__id_generate(&other));
    tdm__conn_close(exported.ref->shared->owner->conn);
    TRY(object_fixture_open_reference(*state, &exported.owner, &other, &late));
    expect_failure(&exported, TDM_E_OWNER_DIED, "has gone");
    assert_int_equal(late->status, TDM_E_OWNER_DIED);
    assert_true(tdm__shared_ref_is_settled(late->shared));
    tdm_ref_release(late);
    tdm_ref_release(exported.ref);
    assert_true(TAILQ_EMPTY(&exported.scene->objects->owners));
    remote_peer_close(&exported.owner);
}

static void one_that_does_not_listen_is_gone_at_once(void **state)
{
    struct object_fixture *scene = *state;
    struct exported exported = {.scene = scene};

    remote_peer_open(&exported.owner, scene->runtime->loop, TDM__PEER_DRIVER, "owner");
    exported.owner.self.node = scene->runtime->self.node;
    TRY(tdm__id_generate(&exported.id));
    TRY(object_fixture_open_reference(scene, &exported.owner, &exported.id, &exported.ref));
    expect_failure(&exported, TDM_E_OWNER_DIED, "has gone");
    tdm_ref_release(exported.ref);
    assert_true(TAILQ_EMPTY(&scene->objects->owners));
    TRY(tdm__id_generate(&exported.owner.self.node)); /* elsewhere, where nobody talks to others */
    TRY(object_fixture_open_reference(scene, &exported.owner, &exported.id, &exported.ref));
    expect_failure(&exported, TDM_E_OWNER_DIED, "start its daemon with --listen");
    tdm_ref_release(exported.ref);
    assert_true(TAILQ_EMPTY(&scene->objects->owners));
    remote_peer_close(&exported.owner);
}

/* ---- how an actor ended ----------------------------------------------------------------- */

static void give_daemon(struct object_fixture *scene, struct remote_peer *daemon)
{
    char address[64];
    struct tdm__conn *conn;

    remote_peer_open(daemon, scene->runtime->loop, TDM__PEER_DAEMON, "daemon");
    (void)snprintf(address, sizeof(address), "unix:%s/daemon", scene->directory);
    remote_peer_listen(daemon, address, NULL, 0);
    TRY(tdm__rpc_connect(scene->runtime->rpc, address, &conn));
    tdm__runtime_set_daemon(scene->runtime, conn);
}

static void take_daemon(struct object_fixture *scene, struct remote_peer *daemon)
{
    tdm__conn_on_closed(scene->runtime->daemon, NULL, NULL);
    tdm__conn_close(scene->runtime->daemon);
    scene->runtime->daemon = NULL;
    object_fixture_settle(scene);
    remote_peer_close(daemon);
}

static void its_daemon_says_how_an_actor_ended(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer daemon;

    give_daemon(scene, &daemon);
    for (int knows = 0; knows < 2; knows++) {
        struct exported exported;
        struct tdm__incoming_call *fate;

        borrow_of(&exported, scene, TDM__PEER_WORKER);
        remote_peer_hold(&exported.owner, 1);
        remote_peer_close(&exported.owner);
        fate = object_fixture_expect(&daemon, "actor.fate");
        assert_false(exported.ref->done);
        assert_true(tdm__shared_ref_is_settled(exported.ref->shared)); /* this is known already */
        tdm__incoming_fail(fate, knows != 0 ? TDM_E_ACTOR_DIED : TDM_E_TIMEOUT, "signal 9");
        expect_failure(&exported, TDM_E_OWNER_DIED, knows != 0 ? "signal 9" : "has gone");
        assert_int_equal(strstr(exported.ref->detail, "signal 9") != NULL, knows);
        tdm_ref_release(exported.ref);
        assert_true(TAILQ_EMPTY(&scene->objects->owners));
    }
    take_daemon(scene, &daemon);
}

/* Nobody wants to know any more when the answer comes. */
static void who_let_go_meanwhile_is_told_nothing(void **state)
{
    struct object_fixture *scene = *state;
    struct exported exported;
    struct tdm__incoming_call *fate;
    struct remote_peer daemon;

    give_daemon(scene, &daemon);
    borrow_of(&exported, scene, TDM__PEER_WORKER);
    remote_peer_hold(&exported.owner, 1);
    remote_peer_close(&exported.owner);
    fate = object_fixture_expect(&daemon, "actor.fate");
    tdm_ref_release(exported.ref);
    assert_int_equal(object_fixture_count(scene).borrowed, 0);
    assert_false(TAILQ_EMPTY(&scene->objects->owners));
    tdm__incoming_fail(fate, TDM_E_ACTOR_DIED, "signal 9");
    object_fixture_settle(scene);
    assert_true(TAILQ_EMPTY(&scene->objects->owners));
    take_daemon(scene, &daemon);
}

/* ---- from a process of this node -------------------------------------------------------- */

/* {"near": (kind, process, name)} of `near`. */
static void send_near(struct exported *exported, const char *method, const struct remote_peer *near)
{
    struct tdm__incoming_call *incoming = object_fixture_expect(&exported->owner, method);
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    tdm_write_map(writer, 1);
    tdm_write_string(writer, "near");
    TRY(tdm_pack(writer, "ibs", (int64_t)near->self.kind, (const void *)near->self.id.bytes,
                 sizeof(near->self.id.bytes), "neighbour"));
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}

static void a_neighbour_that_lost_the_value_is_asked_no_more(void **state)
{
    struct exported exported;
    struct remote_peer near;

    borrow(&exported, *state);
    acknowledge(&exported);
    object_fixture_owner(*state, TDM__PEER_WORKER, &near);
    tdm__reference_fetch(exported.ref);
    send_near(&exported, "object.get", &near);
    tdm__incoming_fail(object_fixture_expect(&near, "object.sibling"), TDM_E_VALUE_LOST, "gone");
    reply(&exported, "object.fetch", "\x91\x07", 2);
    expect_seven(&exported);
    assert_int_equal(near.asked_count, 1);
    remote_peer_close(&near);
    give_back(&exported);
}

static void a_neighbour_that_is_gone_is_not_waited_for(void **state)
{
    struct exported exported;
    struct remote_peer near;

    borrow(&exported, *state);
    acknowledge(&exported);
    object_fixture_owner(*state, TDM__PEER_WORKER, &near);
    remote_peer_close(&near);
    tdm__reference_fetch(exported.ref);
    send_near(&exported, "object.get", &near);
    reply(&exported, "object.fetch", "\x91\x07", 2);
    expect_seven(&exported);
    give_back(&exported);
}

static void one_that_ends_while_it_is_asked_is_not_either(void **state)
{
    struct exported exported;
    struct remote_peer near;

    borrow(&exported, *state);
    acknowledge(&exported);
    object_fixture_owner(*state, TDM__PEER_WORKER, &near);
    tdm__reference_fetch(exported.ref);
    send_near(&exported, "object.get", &near);
    remote_peer_hold(&near, 1);
    remote_peer_close(&near);
    reply(&exported, "object.fetch", "\x91\x07", 2);
    expect_seven(&exported);
    give_back(&exported);
}

static void a_neighbours_answer_after_the_owners_end_changes_nothing(void **state)
{
    struct exported exported;
    struct remote_peer near;

    borrow(&exported, *state);
    acknowledge(&exported);
    object_fixture_owner(*state, TDM__PEER_WORKER, &near);
    tdm__reference_fetch(exported.ref);
    send_near(&exported, "object.get", &near);
    remote_peer_hold(&near, 1);
    remote_peer_close(&exported.owner);
    expect_failure(&exported, TDM_E_OWNER_DIED, "has gone");
    tdm__incoming_reply(remote_peer_take(&near), (struct tdm_bytes){"\x91\x07", 2}, NULL, 0);
    object_fixture_settle(exported.scene);
    assert_int_equal(exported.ref->status, TDM_E_OWNER_DIED);
    tdm_ref_release(exported.ref);
    remote_peer_close(&near);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(opened_twice_it_is_held_once),
        OBJECT_FIXTURE_TEST(let_go_of_early_it_is_given_back_after_the_hold_was_counted),
        OBJECT_FIXTURE_TEST(a_hold_that_is_refused_says_why),
        OBJECT_FIXTURE_TEST(a_value_is_asked_for_once),
        OBJECT_FIXTURE_TEST(an_answer_that_is_no_value_is_a_failure),
        OBJECT_FIXTURE_TEST(an_owner_that_is_gone_loses_what_has_not_come),
        OBJECT_FIXTURE_TEST(with_its_owner_a_hold_is_settled),
        OBJECT_FIXTURE_TEST(so_is_what_is_opened_before_its_end_was_told),
        OBJECT_FIXTURE_TEST(one_that_does_not_listen_is_gone_at_once),
        OBJECT_FIXTURE_TEST(its_daemon_says_how_an_actor_ended),
        OBJECT_FIXTURE_TEST(who_let_go_meanwhile_is_told_nothing),
        OBJECT_FIXTURE_TEST(a_neighbour_that_lost_the_value_is_asked_no_more),
        OBJECT_FIXTURE_TEST(a_neighbour_that_is_gone_is_not_waited_for),
        OBJECT_FIXTURE_TEST(one_that_ends_while_it_is_asked_is_not_either),
        OBJECT_FIXTURE_TEST(a_neighbours_answer_after_the_owners_end_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
