/* ref_owners_test.c - pins of borrowed references, and the end of their owner. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/ref_owners.h"

#include "actors/objects/borrowed_refs.h"
#include "actors/objects/shared_ref.h"
#include "actors/runtime_create.h"
#include "tests/support/borrowed_ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* ---- pins ------------------------------------------------------------------------------- */

static void reference_opened_twice_is_pinned_once(void **state)
{
    struct borrowed_ref borrowed;
    tdm_ref *again;

    borrowed_ref_open(&borrowed, *state);
    TRY(object_fixture_open_reference(*state, &borrowed.owner, &borrowed.id, &again));
    assert_ptr_equal(again, borrowed.ref);
    borrowed_ref_acknowledge(&borrowed);
    tdm_ref_release(again);
    object_fixture_settle(borrowed.scene);
    assert_int_equal(borrowed.owner.asked_count, 1);
    borrowed_ref_close(&borrowed);
    assert_int_equal(borrowed.owner.asked_count, 2);
}

/* The unpin must not overtake the pin. */
static void unpin_follows_the_acknowledged_pin(void **state)
{
    struct borrowed_ref borrowed;
    struct tdm__incoming_call *hold;

    borrowed_ref_open(&borrowed, *state);
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
    struct borrowed_ref borrowed;

    borrowed_ref_open(&borrowed, *state);
    tdm__incoming_fail(object_fixture_expect(&borrowed.owner, "object.pin"), TDM_E_OWNER_DIED,
                       "let go of long ago");
    borrowed_ref_expect_failure(&borrowed, TDM_E_OWNER_DIED, "let go of long ago");
    assert_true(tdm__shared_ref_is_settled(borrowed.ref->shared));
    borrowed_ref_close(&borrowed);
}

/* ---- the end of an owner ---------------------------------------------------------------- */

static void missing_value_is_lost_when_the_owner_ends(void **state)
{
    struct borrowed_ref borrowed;
    struct tdm__id other;
    tdm_ref *here;

    borrowed_ref_open(&borrowed, *state);
    TRY(tdm__id_generate(&other));
    TRY(object_fixture_open_reference(*state, &borrowed.owner, &other, &here));
    borrowed_ref_acknowledge(&borrowed);
    tdm__incoming_reply_pack(object_fixture_expect(&borrowed.owner, "object.pin"), "");
    tdm__reference_fetch(here);
    tdm__incoming_reply(object_fixture_expect(&borrowed.owner, "object.get"),
                        (struct tdm_bytes){"\x91\x07", 2}, NULL, 0);
    object_fixture_settle(borrowed.scene);
    tdm__reference_fetch(borrowed.ref); /* There is no reply to this request. */
    remote_peer_hold(&borrowed.owner, 1);
    remote_peer_close(&borrowed.owner);
    borrowed_ref_expect_failure(&borrowed, TDM_E_OWNER_DIED, "actor maker on node");
    assert_int_equal(here->status, TDM_OK);
    tdm_ref_release(here);
    tdm_ref_release(borrowed.ref);
    assert_true(TAILQ_EMPTY(&borrowed.scene->objects->owners));
}

static void pin_is_settled_when_the_owner_ends(void **state)
{
    struct borrowed_ref borrowed;

    borrowed_ref_open(&borrowed, *state);
    remote_peer_hold(&borrowed.owner, 1);
    assert_false(tdm__shared_ref_is_settled(borrowed.ref->shared));
    remote_peer_close(&borrowed.owner);
    borrowed_ref_expect_failure(&borrowed, TDM_E_OWNER_DIED, "has gone");
    assert_true(tdm__shared_ref_is_settled(borrowed.ref->shared));
    tdm_ref_release(borrowed.ref);
}

/* The owner has ended, but its connection has not been reported as closed. */
static void pin_is_settled_when_opened_before_the_owner_closed(void **state)
{
    struct borrowed_ref borrowed;
    struct tdm__id other;
    tdm_ref *late;

    borrowed_ref_open(&borrowed, *state);
    borrowed_ref_acknowledge(&borrowed);
    TRY(tdm__id_generate(&other));
    tdm__conn_close(borrowed.ref->shared->owner->conn);
    TRY(object_fixture_open_reference(*state, &borrowed.owner, &other, &late));
    borrowed_ref_expect_failure(&borrowed, TDM_E_OWNER_DIED, "has gone");
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
    struct borrowed_ref borrowed = {.scene = scene};

    remote_peer_open(&borrowed.owner, scene->runtime->loop, TDM__PEER_DRIVER, "owner");
    borrowed.owner.self.node = scene->runtime->self.node;
    TRY(tdm__id_generate(&borrowed.id));
    TRY(object_fixture_open_reference(scene, &borrowed.owner, &borrowed.id, &borrowed.ref));
    borrowed_ref_expect_failure(&borrowed, TDM_E_OWNER_DIED, "has gone");
    tdm_ref_release(borrowed.ref);
    assert_true(TAILQ_EMPTY(&scene->objects->owners));
    /* The owner is on another node that does not serve other nodes. */
    TRY(tdm__id_generate(&borrowed.owner.self.node));
    TRY(object_fixture_open_reference(scene, &borrowed.owner, &borrowed.id, &borrowed.ref));
    borrowed_ref_expect_failure(&borrowed, TDM_E_OWNER_DIED, "start its daemon with --listen");
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
        struct borrowed_ref borrowed;
        struct tdm__incoming_call *fate;

        borrowed_ref_open_of(&borrowed, scene, TDM__PEER_WORKER);
        remote_peer_hold(&borrowed.owner, 1);
        remote_peer_close(&borrowed.owner);
        fate = object_fixture_expect(&daemon, "actor.fate");
        assert_false(borrowed.ref->done);
        /* The closed connection has been reported already. */
        assert_true(tdm__shared_ref_is_settled(borrowed.ref->shared));
        tdm__incoming_fail(fate, knows != 0 ? TDM_E_ACTOR_DIED : TDM_E_TIMEOUT, "signal 9");
        borrowed_ref_expect_failure(&borrowed, TDM_E_OWNER_DIED,
                                    knows != 0 ? "signal 9" : "has gone");
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
    struct borrowed_ref borrowed;
    struct tdm__incoming_call *fate;
    struct remote_peer daemon;

    daemon_attach(scene, &daemon);
    borrowed_ref_open_of(&borrowed, scene, TDM__PEER_WORKER);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(reference_opened_twice_is_pinned_once),
        OBJECT_FIXTURE_TEST(unpin_follows_the_acknowledged_pin),
        OBJECT_FIXTURE_TEST(refused_pin_fails_the_reference_with_its_reason),
        OBJECT_FIXTURE_TEST(missing_value_is_lost_when_the_owner_ends),
        OBJECT_FIXTURE_TEST(pin_is_settled_when_the_owner_ends),
        OBJECT_FIXTURE_TEST(pin_is_settled_when_opened_before_the_owner_closed),
        OBJECT_FIXTURE_TEST(owner_that_does_not_listen_counts_as_ended),
        OBJECT_FIXTURE_TEST(daemon_reports_how_the_owner_ended),
        OBJECT_FIXTURE_TEST(late_fate_reply_is_ignored_after_release),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
