/* settling_test.c - callbacks run once, when the references that they wait for are settled. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/settling.h"

#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* ---- references of another process -------------------------------------------------------- */

struct exported {
    struct object_fixture *scene;
    struct remote_peer owner;
    tdm_ref *refs[3];
};

static void borrow(struct exported *exported, struct object_fixture *scene)
{
    exported->scene = scene;
    object_fixture_owner(scene, TDM__PEER_DRIVER, &exported->owner);
    for (int i = 0; i < 3; i++) {
        struct tdm__id id;

        TRY(tdm__id_generate(&id));
        TRY(object_fixture_open_reference(scene, &exported->owner, &id, &exported->refs[i]));
    }
    remote_peer_hold(&exported->owner, 3);
}

static void acknowledge(struct exported *exported)
{
    tdm__incoming_reply_pack(object_fixture_expect(&exported->owner, "object.pin"), "");
    object_fixture_settle(exported->scene);
}

static void give_back(struct exported *exported)
{
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(exported->refs[i]);
    }
    object_fixture_settle(exported->scene);
    remote_peer_close(&exported->owner);
}

/* Adds all three references to `holds`, as packing them would. */
static void hold_all(const struct exported *exported, struct tdm__pins *holds)
{
    *holds = (struct tdm__pins){0};
    for (int i = 0; i < 3; i++) {
        TRY(tdm__pins_add(holds, exported->refs[i]));
    }
}

/* ---- settled references ------------------------------------------------------------------- */

/* What a settled callback does and observes. */
struct settled_callback {
    uint32_t count;
    uint32_t at;           /* Position of the callback among all that were called, from 1. */
    tdm_ref *released_ref; /* Reference that the callback releases; NULL for none. */
};

static uint32_t settled_callbacks_total;

static void on_settled(void *arg)
{
    struct settled_callback *settled_callback = arg;

    settled_callback->count++;
    settled_callback->at = ++settled_callbacks_total;
    tdm_ref_release(settled_callback->released_ref);
    settled_callback->released_ref = NULL;
}

static void empty_list_is_settled_at_once(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__pins holds = {0};
    struct settled_callback settled_callback = {0};

    assert_true(tdm__pins_are_settled(&holds));
    TRY(tdm__pins_wait_settled(scene->runtime, &holds, 0));
    TRY(tdm__pins_on_settled(scene->runtime, &holds, on_settled, &settled_callback));
    assert_int_equal(settled_callback.count, 1);
}

static void callback_runs_once_after_the_last_reply(void **state)
{
    struct exported exported;
    struct tdm__pins holds;
    struct settled_callback settled_callback = {0};

    borrow(&exported, *state);
    hold_all(&exported, &holds);
    TRY(tdm__pins_on_settled(exported.scene->runtime, &holds, on_settled, &settled_callback));
    tdm__pins_release(&holds); /* The wait holds the references itself. */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(settled_callback.count, 0);
        assert_true(atomic_load(&exported.refs[i]->holders_count) > 1);
        acknowledge(&exported);
    }
    assert_int_equal(settled_callback.count, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&exported.refs[i]->holders_count), 1);
    }
    give_back(&exported);
    assert_int_equal(settled_callback.count, 1);
}

/* Three references of two processes, one of which acknowledges its pins late: the first and the
 * last reference, or the one between them. */
static void callback_waits_for_every_owner(struct object_fixture *scene, bool middle_is_late)
{
    struct remote_peer owners[2];
    tdm_ref *refs[3];
    struct tdm__pins holds = {0};
    struct settled_callback settled_callback = {0};

    for (int i = 0; i < 2; i++) {
        object_fixture_owner(scene, TDM__PEER_DRIVER, &owners[i]);
    }
    for (int i = 0; i < 3; i++) {
        struct tdm__id id;

        TRY(tdm__id_generate(&id));
        TRY(object_fixture_open_reference(scene, &owners[(i == 1) == middle_is_late ? 1 : 0], &id,
                                          &refs[i]));
        TRY(tdm__pins_add(&holds, refs[i]));
    }
    TRY(tdm__pins_on_settled(scene->runtime, &holds, on_settled, &settled_callback));
    for (int i = 0; i < 2; i++) {
        uint32_t count = (i == 1) == middle_is_late ? 1 : 2;

        remote_peer_hold(&owners[i], count);
        for (uint32_t pin = 0; pin < count; pin++) {
            assert_int_equal(settled_callback.count, 0);
            assert_false(tdm__pins_are_settled(&holds));
            tdm__incoming_reply_pack(object_fixture_expect(&owners[i], "object.pin"), "");
            object_fixture_settle(scene);
        }
    }
    assert_int_equal(settled_callback.count, 1);
    TRY(tdm__pins_wait_settled(scene->runtime, &holds, 0));
    tdm__pins_release(&holds);
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
    object_fixture_settle(scene);
    for (int i = 0; i < 2; i++) {
        remote_peer_close(&owners[i]);
    }
}

static void callback_waits_for_the_owner_of_the_first_and_the_last_reference(void **state)
{
    callback_waits_for_every_owner(*state, false);
}

static void callback_waits_for_the_owner_of_the_middle_reference(void **state)
{
    callback_waits_for_every_owner(*state, true);
}

/* One of two owners ends: its references count as settled, those of the other do not. */
static void end_of_one_owner_settles_its_references_only(void **state)
{
    struct exported ended;
    struct exported living;
    struct tdm__pins holds;
    struct settled_callback settled_callback = {0};

    borrow(&ended, *state);
    borrow(&living, *state);
    hold_all(&ended, &holds);
    TRY(tdm__pins_add(&holds, living.refs[0]));
    TRY(tdm__pins_on_settled(ended.scene->runtime, &holds, on_settled, &settled_callback));
    remote_peer_cut(&ended.owner);
    object_fixture_settle(ended.scene);
    assert_int_equal(settled_callback.count, 0);
    acknowledge(&living);
    assert_int_equal(settled_callback.count, 1);
    tdm__pins_release(&holds);
    acknowledge(&living);
    acknowledge(&living);
    give_back(&living);
    give_back(&ended);
}

static void callbacks_run_in_registration_order(void **state)
{
    struct exported exported;
    struct tdm__pins holds;
    struct settled_callback settled_callback[3] = {{0}, {0}, {0}};

    borrow(&exported, *state);
    hold_all(&exported, &holds);
    /* Releasing the reference calls the check for settled references again. */
    settled_callback[0].released_ref = exported.refs[0];
    exported.refs[0] = NULL;
    settled_callbacks_total = 0;
    for (int i = 0; i < 3; i++) {
        TRY(tdm__pins_on_settled(exported.scene->runtime, &holds, on_settled,
                                 &settled_callback[i]));
    }
    tdm__pins_release(&holds);
    for (int i = 0; i < 3; i++) {
        acknowledge(&exported);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(settled_callback[i].count, 1);
        assert_int_equal(settled_callback[i].at, i + 1);
    }
    give_back(&exported);
}

static void references_of_an_ended_owner_are_settled(void **state)
{
    struct exported exported;
    struct tdm__pins holds;
    struct settled_callback settled_callback = {0};

    borrow(&exported, *state);
    hold_all(&exported, &holds);
    assert_int_equal(tdm__pins_wait_settled(exported.scene->runtime, &holds, 0), TDM_E_TIMEOUT);
    TRY(tdm__pins_on_settled(exported.scene->runtime, &holds, on_settled, &settled_callback));
    remote_peer_cut(&exported.owner);
    TRY(tdm__pins_wait_settled(exported.scene->runtime, &holds, REMOTE_PEER_WAIT_MS));
    object_fixture_settle(exported.scene);
    assert_int_equal(settled_callback.count, 1);
    tdm__pins_release(&holds);
    give_back(&exported);
}

static void all_callbacks_run_when_the_runtime_stops(void **state)
{
    struct exported exported;
    struct tdm__pins holds;
    struct settled_callback settled_callback[2] = {{0}, {0}};

    borrow(&exported, *state);
    hold_all(&exported, &holds);
    for (int i = 0; i < 2; i++) {
        TRY(tdm__pins_on_settled(exported.scene->runtime, &holds, on_settled,
                                 &settled_callback[i]));
    }
    tdm__pins_release(&holds);
    tdm__pins_abandon_settling(exported.scene->runtime);
    assert_int_equal(settled_callback[0].count + settled_callback[1].count, 2);
    for (int i = 0; i < 3; i++) {
        acknowledge(&exported);
    }
    assert_int_equal(settled_callback[0].count + settled_callback[1].count, 2);
    give_back(&exported);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(empty_list_is_settled_at_once),
        OBJECT_FIXTURE_TEST(callback_runs_once_after_the_last_reply),
        OBJECT_FIXTURE_TEST(callback_waits_for_the_owner_of_the_first_and_the_last_reference),
        OBJECT_FIXTURE_TEST(callback_waits_for_the_owner_of_the_middle_reference),
        OBJECT_FIXTURE_TEST(end_of_one_owner_settles_its_references_only),
        OBJECT_FIXTURE_TEST(callbacks_run_in_registration_order),
        OBJECT_FIXTURE_TEST(references_of_an_ended_owner_are_settled),
        OBJECT_FIXTURE_TEST(all_callbacks_run_when_the_runtime_stops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
