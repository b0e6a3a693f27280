/* recovery_state_test.c - what brings a lost engine back, in which order, and how often. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/recovery_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { NOW_MS = 1000000, LONG_MS = 600000 };

/* An engine with GPUs of its own, and one that shares them with trainers. */
static const struct tdm__recovery_state own = {.has_own_gpus = true};
static const struct tdm__recovery_state shared = {.has_own_gpus = false};

/* Expects `action` now, and reports its result. */
static void act(struct tdm__recovery_state *engine, enum tdm__recovery_stage action,
                tdm_status result)
{
    assert_int_equal(tdm__recovery_next(engine, NOW_MS), action);
    tdm__recovery_on_result(engine, action, result, NOW_MS);
}

/* Passes over the pause after something that failed or has to be awaited. */
static void wait_for_pause(struct tdm__recovery_state *engine)
{
    assert_int_equal(tdm__recovery_next(engine, NOW_MS), TDM__RECOVERY_NONE);
    assert_int_not_equal(tdm__recovery_next(engine, NOW_MS + LONG_MS), TDM__RECOVERY_NONE);
    engine->next_ms = NOW_MS;
}

/* Creates, awaits and connects the ranks. */
static void come_back(struct tdm__recovery_state *engine)
{
    act(engine, TDM__RECOVERY_CREATE, TDM_OK);
    act(engine, TDM__RECOVERY_AWAIT, TDM_OK);
    act(engine, TDM__RECOVERY_CONNECT, TDM_OK);
    assert_int_equal(tdm__recovery_next(engine, NOW_MS + LONG_MS), TDM__RECOVERY_NONE);
}

static void engine_that_runs_needs_nothing(void **state)
{
    (void)state;
    assert_int_equal(tdm__recovery_next(&own, NOW_MS), TDM__RECOVERY_NONE);
    assert_int_equal(tdm__recovery_next(&shared, NOW_MS), TDM__RECOVERY_NONE);
}

static void killed_engine_comes_back_on_its_gpus(void **state)
{
    struct tdm__recovery_state engines[] = {own, shared};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        tdm__recovery_on_lost(&engines[i], TDM_OK, NOW_MS);
        act(&engines[i], TDM__RECOVERY_KILL, TDM_OK); /* No rank is left. */
        come_back(&engines[i]);
        assert_int_equal(engines[i].attempts, 1);
    }
}

static void engine_on_a_silent_node_is_killed_and_placed_before_it_comes_back(void **state)
{
    struct tdm__recovery_state engine = own;

    (void)state;
    tdm__recovery_on_lost(&engine, TDM_E_TIMEOUT, NOW_MS);
    for (int i = 0; i < 2 * TDM__RECOVERY_ATTEMPTS_MAX; i++) {
        act(&engine, TDM__RECOVERY_KILL, i % 2 == 0 ? TDM_E_TIMEOUT : TDM_E_ACTOR_UNAVAILABLE);
        wait_for_pause(&engine);
    }
    act(&engine, TDM__RECOVERY_KILL, TDM_E_NODE_LOST); /* The node has stopped its actors. */
    for (int i = 0; i < 2 * TDM__RECOVERY_ATTEMPTS_MAX; i++) {
        act(&engine, TDM__RECOVERY_PLACE, TDM_E_TIMEOUT); /* No node has room. */
        wait_for_pause(&engine);
    }
    act(&engine, TDM__RECOVERY_PLACE, TDM_OK);
    come_back(&engine);
    assert_int_equal(engine.attempts, 1); /* Waiting for a node is no attempt. */
}

static void engine_of_a_lost_node_gets_another_place(void **state)
{
    struct tdm__recovery_state engine = own;

    (void)state;
    tdm__recovery_on_lost(&engine, TDM_E_NODE_LOST, NOW_MS);
    act(&engine, TDM__RECOVERY_KILL, TDM_OK);
    act(&engine, TDM__RECOVERY_PLACE, TDM_OK);
    come_back(&engine);
}

/* Whatever an earlier engine of this number has used up does not count. */
static void added_engine_is_placed_when_a_node_has_room(void **state)
{
    struct tdm__recovery_state engine = {.stage = TDM__RECOVERY_GIVEN_UP,
                                         .has_own_gpus = true,
                                         .attempts = TDM__RECOVERY_ATTEMPTS_MAX,
                                         .cut_offs = 3,
                                         .next_ms = NOW_MS + LONG_MS};

    (void)state;
    tdm__recovery_on_added(&engine, NOW_MS);
    act(&engine, TDM__RECOVERY_KILL, TDM_E_TIMEOUT); /* A rank of the earlier engine may run. */
    wait_for_pause(&engine);
    act(&engine, TDM__RECOVERY_KILL, TDM_OK);
    for (int i = 0; i < 2 * TDM__RECOVERY_ATTEMPTS_MAX; i++) {
        act(&engine, TDM__RECOVERY_PLACE, TDM_E_TIMEOUT);
        wait_for_pause(&engine);
    }
    act(&engine, TDM__RECOVERY_PLACE, TDM_OK);
    come_back(&engine);
    assert_int_equal(engine.attempts, 1);
    tdm__recovery_on_lost(&engine, TDM_OK, NOW_MS); /* It is then like the others. */
    act(&engine, TDM__RECOVERY_KILL, TDM_OK);
    come_back(&engine);
}

/* The kill was confirmed by a daemon that was lost afterwards. */
static void place_that_is_gone_is_replaced_without_counting(void **state)
{
    struct tdm__recovery_state engine = own;

    (void)state;
    for (int i = 0; i < 2 * TDM__RECOVERY_ATTEMPTS_MAX; i++) {
        tdm__recovery_on_lost(&engine, TDM_OK, NOW_MS);
        act(&engine, TDM__RECOVERY_KILL, TDM_OK);
        act(&engine, TDM__RECOVERY_CREATE, TDM_E_NODE_LOST);
        wait_for_pause(&engine);
        act(&engine, TDM__RECOVERY_KILL, TDM_OK);
        act(&engine, TDM__RECOVERY_PLACE, TDM_OK);
    }
    come_back(&engine);
    assert_int_equal(engine.attempts, 1);
}

static void actors_that_are_not_constructed_in_time_are_killed_and_placed_again(void **state)
{
    struct tdm__recovery_state engine = own;

    (void)state;
    tdm__recovery_on_lost(&engine, TDM_OK, NOW_MS);
    act(&engine, TDM__RECOVERY_KILL, TDM_OK);
    act(&engine, TDM__RECOVERY_CREATE, TDM_OK);
    for (int i = 0; i < 2 * TDM__RECOVERY_ATTEMPTS_MAX; i++) {
        act(&engine, TDM__RECOVERY_AWAIT, TDM_E_TIMEOUT); /* There is time left. */
    }
    tdm__recovery_on_result(&engine, TDM__RECOVERY_AWAIT, TDM_E_TIMEOUT, NOW_MS + LONG_MS);
    engine.next_ms = NOW_MS;
    act(&engine, TDM__RECOVERY_KILL, TDM_E_TIMEOUT); /* Ranks that were created may still run. */
    wait_for_pause(&engine);
    act(&engine, TDM__RECOVERY_KILL, TDM_OK);
    act(&engine, TDM__RECOVERY_PLACE, TDM_OK);
    come_back(&engine);
}

static void engine_that_fails_again_and_again_is_given_up(void **state)
{
    static const enum tdm__recovery_stage failing[] = {TDM__RECOVERY_CREATE, TDM__RECOVERY_AWAIT,
                                                       TDM__RECOVERY_CONNECT};
    struct tdm__recovery_state engines[] = {own, shared};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        tdm__recovery_on_lost(&engines[i], TDM_OK, NOW_MS);
        for (int n = 0; n < TDM__RECOVERY_ATTEMPTS_MAX; n++) {
            engines[i].next_ms = NOW_MS;
            act(&engines[i], TDM__RECOVERY_KILL, TDM_OK);
            if (engines[i].stage == TDM__RECOVERY_PLACE) {
                act(&engines[i], TDM__RECOVERY_PLACE, TDM_OK);
            }
            for (int k = 0; k < n; k++) {
                act(&engines[i], failing[k], TDM_OK);
            }
            act(&engines[i], failing[n], TDM_E_ACTOR_DIED);
        }
        assert_int_equal(engines[i].stage, TDM__RECOVERY_GIVEN_UP);
        assert_int_equal(tdm__recovery_next(&engines[i], NOW_MS + LONG_MS), TDM__RECOVERY_NONE);
    }
}

/* An engine that a prompt crashes comes back each time, and never completes a rollout. */
static void engine_that_comes_back_and_dies_is_given_up(void **state)
{
    struct tdm__recovery_state engine = own;

    (void)state;
    for (int i = 0; i < TDM__RECOVERY_ATTEMPTS_MAX; i++) {
        tdm__recovery_on_lost(&engine, TDM_OK, NOW_MS);
        act(&engine, TDM__RECOVERY_KILL, TDM_OK);
        come_back(&engine);
    }
    tdm__recovery_on_lost(&engine, TDM_OK, NOW_MS);
    assert_int_equal(engine.stage, TDM__RECOVERY_GIVEN_UP);
}

static void engine_that_does_not_reach_the_store_is_tried_again_later_without_end(void **state)
{
    struct tdm__recovery_state engine = own;

    (void)state;
    for (int i = 0; i < 2 * TDM__RECOVERY_ATTEMPTS_MAX; i++) {
        tdm__recovery_on_lost(&engine, TDM_OK, NOW_MS);
        tdm__recovery_on_cut_off(&engine, NOW_MS);
        assert_int_equal(engine.next_ms - NOW_MS, i < 3 ? 10000 << i : 80000);
        wait_for_pause(&engine);
        act(&engine, TDM__RECOVERY_KILL, TDM_OK);
        come_back(&engine);
    }
    assert_int_equal(engine.attempts, 1);
    tdm__recovery_on_rollout(&engine);
    tdm__recovery_on_lost(&engine, TDM_OK, NOW_MS);
    tdm__recovery_on_cut_off(&engine, NOW_MS);
    assert_int_equal(engine.next_ms - NOW_MS, 10000);
}

/* Trainers and engines that share GPUs share their nodes: any failure counts, and none waits. */
static void engine_on_shared_gpus_is_not_placed_elsewhere(void **state)
{
    struct tdm__recovery_state engine = shared;

    (void)state;
    tdm__recovery_on_lost(&engine, TDM_E_NODE_LOST, NOW_MS);
    for (int i = 0; i < TDM__RECOVERY_ATTEMPTS_MAX; i++) {
        act(&engine, TDM__RECOVERY_KILL, TDM_OK);
        act(&engine, TDM__RECOVERY_CREATE, TDM_E_TIMEOUT);
    }
    assert_int_equal(engine.stage, TDM__RECOVERY_GIVEN_UP);
}

static void only_an_end_or_a_lost_node_proves_that_a_rank_does_not_run(void **state)
{
    (void)state;
    assert_true(tdm__recovery_status_proves_end(TDM_OK));
    assert_true(tdm__recovery_status_proves_end(TDM_E_ACTOR_DIED));
    assert_true(tdm__recovery_status_proves_end(TDM_E_NODE_LOST));
    assert_false(tdm__recovery_status_proves_end(TDM_E_ACTOR_UNAVAILABLE));
    assert_false(tdm__recovery_status_proves_end(TDM_E_TIMEOUT));
    assert_false(tdm__recovery_status_proves_end(TDM_E_STORE));
    assert_false(tdm__recovery_status_proves_end(TDM_E_AGAIN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engine_that_runs_needs_nothing),
        cmocka_unit_test(killed_engine_comes_back_on_its_gpus),
        cmocka_unit_test(engine_on_a_silent_node_is_killed_and_placed_before_it_comes_back),
        cmocka_unit_test(engine_of_a_lost_node_gets_another_place),
        cmocka_unit_test(added_engine_is_placed_when_a_node_has_room),
        cmocka_unit_test(place_that_is_gone_is_replaced_without_counting),
        cmocka_unit_test(actors_that_are_not_constructed_in_time_are_killed_and_placed_again),
        cmocka_unit_test(engine_that_fails_again_and_again_is_given_up),
        cmocka_unit_test(engine_that_comes_back_and_dies_is_given_up),
        cmocka_unit_test(engine_that_does_not_reach_the_store_is_tried_again_later_without_end),
        cmocka_unit_test(engine_on_shared_gpus_is_not_placed_elsewhere),
        cmocka_unit_test(only_an_end_or_a_lost_node_proves_that_a_rank_does_not_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
