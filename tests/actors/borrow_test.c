/* borrow_test.c - what is borrowed is held once, given back once, and known to be lost. */
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

/* ---- an object of another process ------------------------------------------------------- */

struct loaned {
    struct object_scene *scene;
    struct far_end owner;
    struct tdm__id id;
    tdm_ref *ref;
};

static void borrow_of(struct loaned *loaned, struct object_scene *scene,
                      enum tdm__peer_kind kind)
{
    loaned->scene = scene;
    object_scene_owner(scene, kind, &loaned->owner);
    TRY(tdm__id_make(&loaned->id));
    TRY(object_scene_open_reference(scene, &loaned->owner, &loaned->id, &loaned->ref));
}

static void borrow(struct loaned *loaned, struct object_scene *scene)
{
    borrow_of(loaned, scene, TDM__PEER_DRIVER);
}

static bool is_done(void *arg)
{
    return ((const struct loaned *)arg)->ref->done;
}

static void expect_failure(struct loaned *loaned, tdm_status status, const char *words)
{
    far_end_run(loaned->scene->runtime->loop, is_done, loaned);
    assert_int_equal(loaned->ref->status, status);
    assert_non_null(strstr(loaned->ref->detail, words));
}

static void expect_seven(struct loaned *loaned)
{
    int64_t number = 0;

    TRY(tdm_get(loaned->ref, FAR_END_WAIT_MS, "i", &number));
    assert_int_equal(number, 7);
}

static void acknowledge(struct loaned *loaned)
{
    tdm__incoming_reply_pack(object_scene_expect(&loaned->owner, "object.hold"), "");
    object_scene_settle(loaned->scene);
}

static void give_back(struct loaned *loaned)
{
    tdm_ref_release(loaned->ref);
    tdm__incoming_reply_pack(object_scene_expect(&loaned->owner, "object.drop"), "");
    object_scene_settle(loaned->scene);
    assert_int_equal(loaned->owner.held_count, 0);
    far_end_close(&loaned->owner);
}

static void answer(struct loaned *loaned, const char *method, const char *packed,
                   size_t size_bytes)
{
    tdm__incoming_reply(object_scene_expect(&loaned->owner, method),
                        (struct tdm_bytes){packed, size_bytes}, NULL, 0);
}

/* ---- holds ------------------------------------------------------------------------------ */

static void opened_twice_it_is_held_once(void **state)
{
    struct loaned loaned;
    tdm_ref *again;

    borrow(&loaned, *state);
    TRY(object_scene_open_reference(*state, &loaned.owner, &loaned.id, &again));
    assert_ptr_equal(again, loaned.ref);
    acknowledge(&loaned);
    tdm_ref_release(again);
    object_scene_settle(loaned.scene);
    assert_int_equal(loaned.owner.asked_count, 1);
    give_back(&loaned);
    assert_int_equal(loaned.owner.asked_count, 2);
}

/* The drop must not overtake what it is to end. */
static void let_go_of_early_it_is_given_back_after_the_hold_was_counted(void **state)
{
    struct loaned loaned;
    struct tdm__incoming *hold;

    borrow(&loaned, *state);
    hold = object_scene_expect(&loaned.owner, "object.hold");
    tdm_ref_release(loaned.ref);
    object_scene_settle(loaned.scene);
    assert_int_equal(loaned.owner.asked_count, 1);
    assert_int_equal(object_scene_count(loaned.scene).borrowed, 1);
    tdm__incoming_reply_pack(hold, "");
    tdm__incoming_reply_pack(object_scene_expect(&loaned.owner, "object.drop"), "");
    object_scene_settle(loaned.scene);
    assert_int_equal(object_scene_count(loaned.scene).borrowed, 0);
    far_end_close(&loaned.owner);
}

static void a_hold_that_is_refused_says_why(void **state)
{
    struct loaned loaned;

    borrow(&loaned, *state);
    tdm__incoming_fail(object_scene_expect(&loaned.owner, "object.hold"), TDM_E_OWNER_DIED,
                       "let go of long ago");
    expect_failure(&loaned, TDM_E_OWNER_DIED, "let go of long ago");
    assert_true(tdm__shared_is_settled(loaned.ref->shared));
    give_back(&loaned);
}

/* ---- values ----------------------------------------------------------------------------- */

static void a_value_is_asked_for_once(void **state)
{
    struct loaned loaned;

    borrow(&loaned, *state);
    acknowledge(&loaned);
    tdm__reference_want(loaned.ref);
    tdm__reference_want(loaned.ref);
    answer(&loaned, "object.get", "\x91\x07", 2);
    expect_seven(&loaned);
    tdm__reference_want(loaned.ref);
    object_scene_settle(loaned.scene);
    assert_int_equal(loaned.owner.asked_count, 2);
    give_back(&loaned);
}

static void an_answer_that_is_no_value_is_a_failure(void **state)
{
    static const struct {
        const char *packed;
        size_t size_bytes;
    } wrong[] = {{"\x07", 1}, {"\x92\x07", 2}, {"", 0}, {"\x81\xa3near", 5}};

    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct loaned loaned;

        borrow(&loaned, *state);
        acknowledge(&loaned);
        tdm__reference_want(loaned.ref);
        answer(&loaned, "object.get", wrong[i].packed, wrong[i].size_bytes);
        far_end_run(loaned.scene->runtime->loop, is_done, &loaned);
        assert_int_equal(loaned.ref->status, TDM_E_PROTOCOL);
        give_back(&loaned);
    }
}

/* ---- the end of an owner ---------------------------------------------------------------- */

static void an_owner_that_is_gone_loses_what_has_not_come(void **state)
{
    struct loaned loaned;
    struct tdm__id other;
    tdm_ref *here;

    borrow(&loaned, *state);
    TRY(tdm__id_make(&other));
    TRY(object_scene_open_reference(*state, &loaned.owner, &other, &here));
    acknowledge(&loaned);
    tdm__incoming_reply_pack(object_scene_expect(&loaned.owner, "object.hold"), "");
    tdm__reference_want(here);
    answer(&loaned, "object.get", "\x91\x07", 2);
    object_scene_settle(loaned.scene);
    tdm__reference_want(loaned.ref); /* not answered any more */
    far_end_hold(&loaned.owner, 1);
    far_end_close(&loaned.owner);
    expect_failure(&loaned, TDM_E_OWNER_DIED, "actor maker on node");
    assert_int_equal(here->status, TDM_OK);
    tdm_ref_release(here);
    tdm_ref_release(loaned.ref);
    assert_true(TAILQ_EMPTY(&loaned.scene->objects->owners));
}

static void with_its_owner_a_hold_is_settled(void **state)
{
    struct loaned loaned;

    borrow(&loaned, *state);
    far_end_hold(&loaned.owner, 1);
    assert_false(tdm__shared_is_settled(loaned.ref->shared));
    far_end_close(&loaned.owner);
    expect_failure(&loaned, TDM_E_OWNER_DIED, "has gone");
    assert_true(tdm__shared_is_settled(loaned.ref->shared));
    tdm_ref_release(loaned.ref);
}

/* It has ended, and that is about to be told. */
static void so_is_what_is_opened_before_its_end_was_told(void **state)
{
    struct loaned loaned;
    struct tdm__id other;
    tdm_ref *late;

    borrow(&loaned, *state);
    acknowledge(&loaned);
    TRY(tdm__id_make(&other));
    tdm__conn_close(loaned.ref->shared->owner->conn);
    TRY(object_scene_open_reference(*state, &loaned.owner, &other, &late));
    expect_failure(&loaned, TDM_E_OWNER_DIED, "has gone");
    assert_int_equal(late->status, TDM_E_OWNER_DIED);
    assert_true(tdm__shared_is_settled(late->shared));
    tdm_ref_release(late);
    tdm_ref_release(loaned.ref);
    assert_true(TAILQ_EMPTY(&loaned.scene->objects->owners));
    far_end_close(&loaned.owner);
}

static void one_that_does_not_listen_is_gone_at_once(void **state)
{
    struct object_scene *scene = *state;
    struct loaned loaned = {.scene = scene};

    far_end_open(&loaned.owner, scene->runtime->loop, TDM__PEER_DRIVER, "owner");
    loaned.owner.self.node = scene->runtime->self.node;
    TRY(tdm__id_make(&loaned.id));
    TRY(object_scene_open_reference(scene, &loaned.owner, &loaned.id, &loaned.ref));
    expect_failure(&loaned, TDM_E_OWNER_DIED, "has gone");
    tdm_ref_release(loaned.ref);
    assert_true(TAILQ_EMPTY(&scene->objects->owners));
    TRY(tdm__id_make(&loaned.owner.self.node)); /* elsewhere, where nobody talks to others */
    TRY(object_scene_open_reference(scene, &loaned.owner, &loaned.id, &loaned.ref));
    expect_failure(&loaned, TDM_E_OWNER_DIED, "start its daemon with --listen");
    tdm_ref_release(loaned.ref);
    assert_true(TAILQ_EMPTY(&scene->objects->owners));
    far_end_close(&loaned.owner);
}

/* ---- how an actor ended ----------------------------------------------------------------- */

static void give_daemon(struct object_scene *scene, struct far_end *daemon)
{
    char address[64];
    struct tdm__conn *conn;

    far_end_open(daemon, scene->runtime->loop, TDM__PEER_DAEMON, "daemon");
    (void)snprintf(address, sizeof(address), "unix:%s/daemon", scene->directory);
    far_end_listen(daemon, address, NULL, 0);
    TRY(tdm__rpc_connect(scene->runtime->rpc, address, &conn));
    tdm__runtime_set_daemon(scene->runtime, conn);
}

static void take_daemon(struct object_scene *scene, struct far_end *daemon)
{
    tdm__conn_on_closed(scene->runtime->daemon, NULL, NULL);
    tdm__conn_close(scene->runtime->daemon);
    scene->runtime->daemon = NULL;
    object_scene_settle(scene);
    far_end_close(daemon);
}

static void its_daemon_says_how_an_actor_ended(void **state)
{
    struct object_scene *scene = *state;
    struct far_end daemon;

    give_daemon(scene, &daemon);
    for (int knows = 0; knows < 2; knows++) {
        struct loaned loaned;
        struct tdm__incoming *fate;

        borrow_of(&loaned, scene, TDM__PEER_WORKER);
        far_end_hold(&loaned.owner, 1);
        far_end_close(&loaned.owner);
        fate = object_scene_expect(&daemon, "actor.fate");
        assert_false(loaned.ref->done);
        assert_true(tdm__shared_is_settled(loaned.ref->shared)); /* this is known already */
        tdm__incoming_fail(fate, knows != 0 ? TDM_E_ACTOR_DIED : TDM_E_TIMEOUT, "signal 9");
        expect_failure(&loaned, TDM_E_OWNER_DIED, knows != 0 ? "signal 9" : "has gone");
        assert_int_equal(strstr(loaned.ref->detail, "signal 9") != NULL, knows);
        tdm_ref_release(loaned.ref);
        assert_true(TAILQ_EMPTY(&scene->objects->owners));
    }
    take_daemon(scene, &daemon);
}

/* Nobody wants to know any more when the answer comes. */
static void who_let_go_meanwhile_is_told_nothing(void **state)
{
    struct object_scene *scene = *state;
    struct loaned loaned;
    struct tdm__incoming *fate;
    struct far_end daemon;

    give_daemon(scene, &daemon);
    borrow_of(&loaned, scene, TDM__PEER_WORKER);
    far_end_hold(&loaned.owner, 1);
    far_end_close(&loaned.owner);
    fate = object_scene_expect(&daemon, "actor.fate");
    tdm_ref_release(loaned.ref);
    assert_int_equal(object_scene_count(scene).borrowed, 0);
    assert_false(TAILQ_EMPTY(&scene->objects->owners));
    tdm__incoming_fail(fate, TDM_E_ACTOR_DIED, "signal 9");
    object_scene_settle(scene);
    assert_true(TAILQ_EMPTY(&scene->objects->owners));
    take_daemon(scene, &daemon);
}

/* ---- from a process of this node -------------------------------------------------------- */

/* {"near": (kind, process, name)} of `near`. */
static void send_near(struct loaned *loaned, const char *method, const struct far_end *near)
{
    struct tdm__incoming *incoming = object_scene_expect(&loaned->owner, method);
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
    struct loaned loaned;
    struct far_end near;

    borrow(&loaned, *state);
    acknowledge(&loaned);
    object_scene_owner(*state, TDM__PEER_WORKER, &near);
    tdm__reference_want(loaned.ref);
    send_near(&loaned, "object.get", &near);
    tdm__incoming_fail(object_scene_expect(&near, "object.near"), TDM_E_VALUE_LOST, "gone");
    answer(&loaned, "object.fetch", "\x91\x07", 2);
    expect_seven(&loaned);
    assert_int_equal(near.asked_count, 1);
    far_end_close(&near);
    give_back(&loaned);
}

static void a_neighbour_that_is_gone_is_not_waited_for(void **state)
{
    struct loaned loaned;
    struct far_end near;

    borrow(&loaned, *state);
    acknowledge(&loaned);
    object_scene_owner(*state, TDM__PEER_WORKER, &near);
    far_end_close(&near);
    tdm__reference_want(loaned.ref);
    send_near(&loaned, "object.get", &near);
    answer(&loaned, "object.fetch", "\x91\x07", 2);
    expect_seven(&loaned);
    give_back(&loaned);
}

static void one_that_ends_while_it_is_asked_is_not_either(void **state)
{
    struct loaned loaned;
    struct far_end near;

    borrow(&loaned, *state);
    acknowledge(&loaned);
    object_scene_owner(*state, TDM__PEER_WORKER, &near);
    tdm__reference_want(loaned.ref);
    send_near(&loaned, "object.get", &near);
    far_end_hold(&near, 1);
    far_end_close(&near);
    answer(&loaned, "object.fetch", "\x91\x07", 2);
    expect_seven(&loaned);
    give_back(&loaned);
}

static void a_neighbours_answer_after_the_owners_end_changes_nothing(void **state)
{
    struct loaned loaned;
    struct far_end near;

    borrow(&loaned, *state);
    acknowledge(&loaned);
    object_scene_owner(*state, TDM__PEER_WORKER, &near);
    tdm__reference_want(loaned.ref);
    send_near(&loaned, "object.get", &near);
    far_end_hold(&near, 1);
    far_end_close(&loaned.owner);
    expect_failure(&loaned, TDM_E_OWNER_DIED, "has gone");
    tdm__incoming_reply(far_end_take(&near), (struct tdm_bytes){"\x91\x07", 2}, NULL, 0);
    object_scene_settle(loaned.scene);
    assert_int_equal(loaned.ref->status, TDM_E_OWNER_DIED);
    tdm_ref_release(loaned.ref);
    far_end_close(&near);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_SCENE_TEST(opened_twice_it_is_held_once),
        OBJECT_SCENE_TEST(let_go_of_early_it_is_given_back_after_the_hold_was_counted),
        OBJECT_SCENE_TEST(a_hold_that_is_refused_says_why),
        OBJECT_SCENE_TEST(a_value_is_asked_for_once),
        OBJECT_SCENE_TEST(an_answer_that_is_no_value_is_a_failure),
        OBJECT_SCENE_TEST(an_owner_that_is_gone_loses_what_has_not_come),
        OBJECT_SCENE_TEST(with_its_owner_a_hold_is_settled),
        OBJECT_SCENE_TEST(so_is_what_is_opened_before_its_end_was_told),
        OBJECT_SCENE_TEST(one_that_does_not_listen_is_gone_at_once),
        OBJECT_SCENE_TEST(its_daemon_says_how_an_actor_ended),
        OBJECT_SCENE_TEST(who_let_go_meanwhile_is_told_nothing),
        OBJECT_SCENE_TEST(a_neighbour_that_lost_the_value_is_asked_no_more),
        OBJECT_SCENE_TEST(a_neighbour_that_is_gone_is_not_waited_for),
        OBJECT_SCENE_TEST(one_that_ends_while_it_is_asked_is_not_either),
        OBJECT_SCENE_TEST(a_neighbours_answer_after_the_owners_end_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
