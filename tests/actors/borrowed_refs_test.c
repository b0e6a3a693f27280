/* borrowed_refs_test.c - borrowed references: pins, values, and the end of their owner. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/runtime_create.h"
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

/* A reference that this process borrows from a simulated owner. */
struct borrowed {
    struct object_fixture *scene;
    struct remote_peer owner;
    struct tdm__id id;
    tdm_ref *ref;
};

static void borrow_of(struct borrowed *borrowed, struct object_fixture *scene,
                      enum tdm__peer_kind kind)
{
    borrowed->scene = scene;
    object_fixture_owner(scene, kind, &borrowed->owner);
    TRY(tdm__id_generate(&borrowed->id));
    TRY(object_fixture_open_reference(scene, &borrowed->owner, &borrowed->id, &borrowed->ref));
}

static void borrow(struct borrowed *borrowed, struct object_fixture *scene)
{
    borrow_of(borrowed, scene, TDM__PEER_DRIVER);
}

static bool is_done(void *arg)
{
    return ((const struct borrowed *)arg)->ref->done;
}

static void expect_failure(struct borrowed *borrowed, tdm_status status, const char *words)
{
    remote_peer_run(borrowed->scene->runtime->loop, is_done, borrowed);
    assert_int_equal(borrowed->ref->status, status);
    assert_non_null(strstr(borrowed->ref->detail, words));
}

static void expect_seven(struct borrowed *borrowed)
{
    int64_t number = 0;

    TRY(tdm_get(borrowed->ref, REMOTE_PEER_WAIT_MS, "i", &number));
    assert_int_equal(number, 7);
}

static void acknowledge(struct borrowed *borrowed)
{
    tdm__incoming_reply_pack(object_fixture_expect(&borrowed->owner, "object.pin"), "");
    object_fixture_settle(borrowed->scene);
}

static void release_and_expect_unpin(struct borrowed *borrowed)
{
    tdm_ref_release(borrowed->ref);
    tdm__incoming_reply_pack(object_fixture_expect(&borrowed->owner, "object.unpin"), "");
    object_fixture_settle(borrowed->scene);
    assert_int_equal(borrowed->owner.held_count, 0);
    remote_peer_close(&borrowed->owner);
}

static void reply(struct borrowed *borrowed, const char *method, const char *packed,
                  size_t size_bytes)
{
    tdm__incoming_reply(object_fixture_expect(&borrowed->owner, method),
                        (struct tdm_bytes){packed, size_bytes}, NULL, 0);
}

/* ---- pins ------------------------------------------------------------------------------- */

static void reference_opened_twice_is_pinned_once(void **state)
{
    struct borrowed borrowed;
    tdm_ref *again;

    borrow(&borrowed, *state);
    TRY(object_fixture_open_reference(*state, &borrowed.owner, &borrowed.id, &again));
    assert_ptr_equal(again, borrowed.ref);
    acknowledge(&borrowed);
    tdm_ref_release(again);
    object_fixture_settle(borrowed.scene);
    assert_int_equal(borrowed.owner.asked_count, 1);
    release_and_expect_unpin(&borrowed);
    assert_int_equal(borrowed.owner.asked_count, 2);
}

/* The unpin must not overtake the pin. */
static void unpin_follows_the_acknowledged_pin(void **state)
{
    struct borrowed borrowed;
    struct tdm__incoming_call *hold;

    borrow(&borrowed, *state);
    hold = object_fixture_expect(&borrowed.owner, "object.pin");
    tdm_ref_release(borrowed.ref);
    object_fixture_settle(borrowed.scene);
    assert_int_equal(borrowed.owner.asked_count, 1);
    assert_int_equal(object_fixture_count(borrowed.scene).borrowed, 1);
    tdm__incoming_reply_pack(hold, "");
    tdm__incoming_reply_pack(object_fixture_expect(&borrowed.owner, "object.unpin"), "");
    object_fixture_settle(borrowed.scene);
    assert_int_equal(object_fixture_count(borrowed.scene).borrowed, 0);
    remote_peer_close(&borrowed.owner);
}

static void refused_pin_fails_the_reference_with_its_reason(void **state)
{
    struct borrowed borrowed;

    borrow(&borrowed, *state);
    tdm__incoming_fail(object_fixture_expect(&borrowed.owner, "object.pin"), TDM_E_OWNER_DIED,
                       "let go of long ago");
    expect_failure(&borrowed, TDM_E_OWNER_DIED, "let go of long ago");
    assert_true(tdm__shared_ref_is_settled(borrowed.ref->shared));
    release_and_expect_unpin(&borrowed);
}

/* ---- values ----------------------------------------------------------------------------- */

static void value_is_requested_once(void **state)
{
    struct borrowed borrowed;

    borrow(&borrowed, *state);
    acknowledge(&borrowed);
    tdm__reference_fetch(borrowed.ref);
    tdm__reference_fetch(borrowed.ref);
    reply(&borrowed, "object.get", "\x91\x07", 2);
    expect_seven(&borrowed);
    tdm__reference_fetch(borrowed.ref);
    object_fixture_settle(borrowed.scene);
    assert_int_equal(borrowed.owner.asked_count, 2);
    release_and_expect_unpin(&borrowed);
}

static void malformed_value_fails_the_reference(void **state)
{
    static const struct {
        const char *packed;
        size_t size_bytes;
    } wrong[] = {{"\x07", 1}, {"\x92\x07", 2}, {"", 0}, {"\x81\xa3near", 5}};

    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct borrowed borrowed;

        borrow(&borrowed, *state);
        acknowledge(&borrowed);
        tdm__reference_fetch(borrowed.ref);
        reply(&borrowed, "object.get", wrong[i].packed, wrong[i].size_bytes);
        remote_peer_run(borrowed.scene->runtime->loop, is_done, &borrowed);
        assert_int_equal(borrowed.ref->status, TDM_E_PROTOCOL);
        release_and_expect_unpin(&borrowed);
    }
}

/* ---- the end of an owner ---------------------------------------------------------------- */

static void missing_value_is_lost_when_the_owner_ends(void **state)
{
    struct borrowed borrowed;
    struct tdm__id other;
    tdm_ref *here;

    borrow(&borrowed, *state);
    TRY(tdm__id_generate(&other));
    TRY(object_fixture_open_reference(*state, &borrowed.owner, &other, &here));
    acknowledge(&borrowed);
    tdm__incoming_reply_pack(object_fixture_expect(&borrowed.owner, "object.pin"), "");
    tdm__reference_fetch(here);
    reply(&borrowed, "object.get", "\x91\x07", 2);
    object_fixture_settle(borrowed.scene);
    tdm__reference_fetch(borrowed.ref); /* There is no reply to this request. */
    remote_peer_hold(&borrowed.owner, 1);
    remote_peer_close(&borrowed.owner);
    expect_failure(&borrowed, TDM_E_OWNER_DIED, "actor maker on node");
    assert_int_equal(here->status, TDM_OK);
    tdm_ref_release(here);
    tdm_ref_release(borrowed.ref);
    assert_true(TAILQ_EMPTY(&borrowed.scene->objects->owners));
}

static void pin_is_settled_when_the_owner_ends(void **state)
{
    struct borrowed borrowed;

    borrow(&borrowed, *state);
    remote_peer_hold(&borrowed.owner, 1);
    assert_false(tdm__shared_ref_is_settled(borrowed.ref->shared));
    remote_peer_close(&borrowed.owner);
    expect_failure(&borrowed, TDM_E_OWNER_DIED, "has gone");
    assert_true(tdm__shared_ref_is_settled(borrowed.ref->shared));
    tdm_ref_release(borrowed.ref);
}

/* The owner has ended, but its connection has not been reported as closed. */
static void pin_is_settled_when_opened_before_the_owner_closed(void **state)
{
    struct borrowed borrowed;
    struct tdm__id other;
    tdm_ref *late;

    borrow(&borrowed, *state);
    acknowledge(&borrowed);
    TRY(tdm__id_generate(&other));
    tdm__conn_close(borrowed.ref->shared->owner->conn);
    TRY(object_fixture_open_reference(*state, &borrowed.owner, &other, &late));
    expect_failure(&borrowed, TDM_E_OWNER_DIED, "has gone");
    assert_int_equal(late->status, TDM_E_OWNER_DIED);
    assert_true(tdm__shared_ref_is_settled(late->shared));
    tdm_ref_release(late);
    tdm_ref_release(borrowed.ref);
    assert_true(TAILQ_EMPTY(&borrowed.scene->objects->owners));
    remote_peer_close(&borrowed.owner);
}

static void owner_that_does_not_listen_counts_as_ended(void **state)
{
    struct object_fixture *scene = *state;
    struct borrowed borrowed = {.scene = scene};

    remote_peer_open(&borrowed.owner, scene->runtime->loop, TDM__PEER_DRIVER, "owner");
    borrowed.owner.self.node = scene->runtime->self.node;
    TRY(tdm__id_generate(&borrowed.id));
    TRY(object_fixture_open_reference(scene, &borrowed.owner, &borrowed.id, &borrowed.ref));
    expect_failure(&borrowed, TDM_E_OWNER_DIED, "has gone");
    tdm_ref_release(borrowed.ref);
    assert_true(TAILQ_EMPTY(&scene->objects->owners));
    /* The owner is on another node that does not serve other nodes. */
    TRY(tdm__id_generate(&borrowed.owner.self.node));
    TRY(object_fixture_open_reference(scene, &borrowed.owner, &borrowed.id, &borrowed.ref));
    expect_failure(&borrowed, TDM_E_OWNER_DIED, "start its daemon with --listen");
    tdm_ref_release(borrowed.ref);
    assert_true(TAILQ_EMPTY(&scene->objects->owners));
    remote_peer_close(&borrowed.owner);
}

/* ---- how an actor ended ----------------------------------------------------------------- */

static void daemon_attach(struct object_fixture *scene, struct remote_peer *daemon)
{
    char address[64];
    struct tdm__conn *conn;

    remote_peer_open(daemon, scene->runtime->loop, TDM__PEER_DAEMON, "daemon");
    (void)snprintf(address, sizeof(address), "unix:%s/daemon", scene->directory);
    remote_peer_listen(daemon, address, NULL, 0);
    TRY(tdm__rpc_connect(scene->runtime->rpc, address, &conn));
    tdm__runtime_set_daemon(scene->runtime, conn);
}

static void daemon_detach(struct object_fixture *scene, struct remote_peer *daemon)
{
    tdm__conn_on_closed(scene->runtime->daemon, NULL, NULL);
    tdm__conn_close(scene->runtime->daemon);
    scene->runtime->daemon = NULL;
    object_fixture_settle(scene);
    remote_peer_close(daemon);
}

static void daemon_reports_how_the_owner_ended(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer daemon;

    daemon_attach(scene, &daemon);
    for (int knows = 0; knows < 2; knows++) {
        struct borrowed borrowed;
        struct tdm__incoming_call *fate;

        borrow_of(&borrowed, scene, TDM__PEER_WORKER);
        remote_peer_hold(&borrowed.owner, 1);
        remote_peer_close(&borrowed.owner);
        fate = object_fixture_expect(&daemon, "actor.fate");
        assert_false(borrowed.ref->done);
        /* The closed connection has been reported already. */
        assert_true(tdm__shared_ref_is_settled(borrowed.ref->shared));
        tdm__incoming_fail(fate, knows != 0 ? TDM_E_ACTOR_DIED : TDM_E_TIMEOUT, "signal 9");
        expect_failure(&borrowed, TDM_E_OWNER_DIED, knows != 0 ? "signal 9" : "has gone");
        assert_int_equal(strstr(borrowed.ref->detail, "signal 9") != NULL, knows);
        tdm_ref_release(borrowed.ref);
        assert_true(TAILQ_EMPTY(&scene->objects->owners));
    }
    daemon_detach(scene, &daemon);
}

/* The reference is released before the daemon replies. */
static void late_fate_reply_is_ignored_after_release(void **state)
{
    struct object_fixture *scene = *state;
    struct borrowed borrowed;
    struct tdm__incoming_call *fate;
    struct remote_peer daemon;

    daemon_attach(scene, &daemon);
    borrow_of(&borrowed, scene, TDM__PEER_WORKER);
    remote_peer_hold(&borrowed.owner, 1);
    remote_peer_close(&borrowed.owner);
    fate = object_fixture_expect(&daemon, "actor.fate");
    tdm_ref_release(borrowed.ref);
    assert_int_equal(object_fixture_count(scene).borrowed, 0);
    assert_false(TAILQ_EMPTY(&scene->objects->owners));
    tdm__incoming_fail(fate, TDM_E_ACTOR_DIED, "signal 9");
    object_fixture_settle(scene);
    assert_true(TAILQ_EMPTY(&scene->objects->owners));
    daemon_detach(scene, &daemon);
}

/* ---- values from a process of this node --------------------------------------------------- */

/* Replies {"near": (kind, process, name)} that names the process `sibling`. */
static void reply_redirection(struct borrowed *borrowed, const char *method,
                              const struct remote_peer *sibling)
{
    struct tdm__incoming_call *incoming = object_fixture_expect(&borrowed->owner, method);
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    tdm_write_map(writer, 1);
    tdm_write_string(writer, "near");
    TRY(tdm_pack(writer, "ibs", (int64_t)sibling->self.kind, (const void *)sibling->self.id.bytes,
                 sizeof(sibling->self.id.bytes), "neighbour"));
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}

static void sibling_without_the_value_is_not_asked_again(void **state)
{
    struct borrowed borrowed;
    struct remote_peer sibling;

    borrow(&borrowed, *state);
    acknowledge(&borrowed);
    object_fixture_owner(*state, TDM__PEER_WORKER, &sibling);
    tdm__reference_fetch(borrowed.ref);
    reply_redirection(&borrowed, "object.get", &sibling);
    tdm__incoming_fail(object_fixture_expect(&sibling, "object.sibling"), TDM_E_VALUE_LOST, "gone");
    reply(&borrowed, "object.fetch", "\x91\x07", 2);
    expect_seven(&borrowed);
    assert_int_equal(sibling.asked_count, 1);
    remote_peer_close(&sibling);
    release_and_expect_unpin(&borrowed);
}

static void closed_sibling_is_replaced_by_the_owner(void **state)
{
    struct borrowed borrowed;
    struct remote_peer sibling;

    borrow(&borrowed, *state);
    acknowledge(&borrowed);
    object_fixture_owner(*state, TDM__PEER_WORKER, &sibling);
    remote_peer_close(&sibling);
    tdm__reference_fetch(borrowed.ref);
    reply_redirection(&borrowed, "object.get", &sibling);
    reply(&borrowed, "object.fetch", "\x91\x07", 2);
    expect_seven(&borrowed);
    release_and_expect_unpin(&borrowed);
}

static void sibling_that_ends_during_the_request_is_replaced(void **state)
{
    struct borrowed borrowed;
    struct remote_peer sibling;

    borrow(&borrowed, *state);
    acknowledge(&borrowed);
    object_fixture_owner(*state, TDM__PEER_WORKER, &sibling);
    tdm__reference_fetch(borrowed.ref);
    reply_redirection(&borrowed, "object.get", &sibling);
    remote_peer_hold(&sibling, 1);
    remote_peer_close(&sibling);
    reply(&borrowed, "object.fetch", "\x91\x07", 2);
    expect_seven(&borrowed);
    release_and_expect_unpin(&borrowed);
}

static void sibling_reply_after_owner_end_is_ignored(void **state)
{
    struct borrowed borrowed;
    struct remote_peer sibling;

    borrow(&borrowed, *state);
    acknowledge(&borrowed);
    object_fixture_owner(*state, TDM__PEER_WORKER, &sibling);
    tdm__reference_fetch(borrowed.ref);
    reply_redirection(&borrowed, "object.get", &sibling);
    remote_peer_hold(&sibling, 1);
    remote_peer_close(&borrowed.owner);
    expect_failure(&borrowed, TDM_E_OWNER_DIED, "has gone");
    tdm__incoming_reply(remote_peer_take(&sibling), (struct tdm_bytes){"\x91\x07", 2}, NULL, 0);
    object_fixture_settle(borrowed.scene);
    assert_int_equal(borrowed.ref->status, TDM_E_OWNER_DIED);
    tdm_ref_release(borrowed.ref);
    remote_peer_close(&sibling);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(reference_opened_twice_is_pinned_once),
        OBJECT_FIXTURE_TEST(unpin_follows_the_acknowledged_pin),
        OBJECT_FIXTURE_TEST(refused_pin_fails_the_reference_with_its_reason),
        OBJECT_FIXTURE_TEST(value_is_requested_once),
        OBJECT_FIXTURE_TEST(malformed_value_fails_the_reference),
        OBJECT_FIXTURE_TEST(missing_value_is_lost_when_the_owner_ends),
        OBJECT_FIXTURE_TEST(pin_is_settled_when_the_owner_ends),
        OBJECT_FIXTURE_TEST(pin_is_settled_when_opened_before_the_owner_closed),
        OBJECT_FIXTURE_TEST(owner_that_does_not_listen_counts_as_ended),
        OBJECT_FIXTURE_TEST(daemon_reports_how_the_owner_ended),
        OBJECT_FIXTURE_TEST(late_fate_reply_is_ignored_after_release),
        OBJECT_FIXTURE_TEST(sibling_without_the_value_is_not_asked_again),
        OBJECT_FIXTURE_TEST(closed_sibling_is_replaced_by_the_owner),
        OBJECT_FIXTURE_TEST(sibling_that_ends_during_the_request_is_replaced),
        OBJECT_FIXTURE_TEST(sibling_reply_after_owner_end_is_ignored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
