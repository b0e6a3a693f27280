/* reserve_restore_test.c - what the store has lost of an actor is written again, once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/reserve_restore.h"
#include "tests/support/reserve_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct reserve_fixture world;

static int open_world(void **state)
{
    (void)state;
    return reserve_fixture_open(&world);
}

static int close_world(void **state)
{
    (void)state;
    reserve_fixture_close(&world);
    return 0;
}

static void lost_actor_is_restored_once(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 2);
    struct tdm__actor_request first = reserve_fixture_wish(2, "name/lab/trainer");
    struct tdm__actor_request second = reserve_fixture_wish(0, "name/lab/trainer");
    struct tdm__actor_record held;
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    held = reserve_fixture_record(&world, &first);
    reserve_fixture_forget(&world, tdm__store_key("actor", &first.actor, key));
    reserve_fixture_forget(&world, "name/lab/trainer");
    reserve_fixture_lose(&world, &node);
    reserve_fixture_join_again(&world, &node, "one", 2, &held.grant, 1);
    /* A repeated restoration succeeds. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reserve_fixture_again(&world, &held), TDM_OK);
    }
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_EXISTS);
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    first =
        reserve_fixture_wish(2, "name/lab/trainer"); /* Everything was restored, but only once. */
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    second = reserve_fixture_wish(1, "");
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_AGAIN);
}

/* The daemon of the creator's node has released the actor, which still runs. */
static void restored_actor_takes_its_share_of_the_node_again(void **state)
{
    struct tdm__actor_request first = reserve_fixture_wish(2, "");
    struct tdm__actor_request second = reserve_fixture_wish(1, "");
    struct tdm__actor_record held;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 2);
    assert_int_equal(reserve_fixture_take(&world, &first), TDM_OK);
    held = reserve_fixture_record(&world, &first);
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    assert_int_equal(reserve_fixture_again(&world, &held), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_E_AGAIN);
    assert_int_equal(reserve_fixture_give_back(&world, &held), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &second), TDM_OK);
}

static void actor_with_a_record_elsewhere_ends(void **state)
{
    struct tdm__actor_request request = reserve_fixture_wish(1, "");
    struct tdm__actor_record held;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 2);
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_OK);
    held = reserve_fixture_record(&world, &request);
    assert_int_equal(reserve_fixture_again(&world, &held), TDM_OK);
    assert_int_equal(tdm__id_generate(&held.node), TDM_OK);
    assert_int_equal(reserve_fixture_again(&world, &held), TDM_E_EXISTS);
    held.placements = 1; /* This daemon knows that it was placed later. */
    assert_int_equal(reserve_fixture_again(&world, &held), TDM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lost_actor_is_restored_once, open_world, close_world),
        cmocka_unit_test_setup_teardown(restored_actor_takes_its_share_of_the_node_again,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(actor_with_a_record_elsewhere_ends, open_world,
                                        close_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
