/* replay_guard_test.c - which messages a member accepts, and the state of its shadow. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/replay_guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct tdm__id first = {{1}};
static const struct tdm__id second = {{2}};

static struct tdm__replay_guard voted_for_first(void)
{
    struct tdm__replay_guard guard = {.epoch = 0};
    bool begun;

    assert_int_equal(tdm__replay_guard_accept_bucket(&guard, &first, 3, &begun), TDM_OK);
    assert_true(begun);
    assert_int_equal(tdm__replay_guard_check_vote(&guard, &first), TDM_OK);
    tdm__replay_guard_vote(&guard);
    return guard;
}

static void higher_epoch_replaces_what_is_staged(void **state)
{
    struct tdm__replay_guard guard = {.epoch = 0};
    bool begun;

    (void)state;
    assert_int_equal(tdm__replay_guard_accept_bucket(&guard, &first, 3, &begun), TDM_OK);
    assert_int_equal(tdm__replay_guard_accept_bucket(&guard, &first, 3, &begun), TDM_OK);
    assert_false(begun);
    assert_int_equal(tdm__replay_guard_accept_bucket(&guard, &second, 4, &begun), TDM_OK);
    assert_true(begun);
    assert_int_equal(tdm__replay_guard_check_vote(&guard, &first), TDM_E_STATE);
    assert_int_equal(tdm__replay_guard_accept_bucket(&guard, &first, 3, &begun), TDM_E_STATE);
    assert_int_equal(tdm__replay_guard_accept_bucket(&guard, &first, 4, &begun), TDM_E_STATE);
}

static void vote_freezes_the_shadow(void **state)
{
    struct tdm__replay_guard guard = voted_for_first();
    bool begun;

    (void)state;
    assert_int_equal(tdm__replay_guard_accept_bucket(&guard, &first, 3, &begun), TDM_E_STATE);
    assert_int_equal(guard.phase, TDM__REPLAY_GUARD_VOTED);
}

static void only_what_was_voted_for_is_flipped_and_once(void **state)
{
    struct tdm__replay_guard guard = voted_for_first();
    bool swap;
    bool begun;

    (void)state;
    assert_int_equal(tdm__replay_guard_flip(&guard, &second, &swap), TDM_E_STATE);
    assert_int_equal(tdm__replay_guard_flip(&guard, &first, &swap), TDM_OK);
    assert_true(swap);
    assert_int_equal(tdm__replay_guard_flip(&guard, &first, &swap), TDM_OK);
    assert_false(swap);
    assert_int_equal(tdm__replay_guard_accept_bucket(&guard, &first, 3, &begun), TDM_E_STATE);
}

static void drop_ends_its_epoch_and_those_before(void **state)
{
    struct tdm__replay_guard guard = voted_for_first();
    bool swap;

    (void)state;
    /* This abort arrives late and is of another update. */
    assert_false(tdm__replay_guard_abort(&guard, 2));
    assert_int_equal(guard.phase, TDM__REPLAY_GUARD_VOTED);
    assert_true(tdm__replay_guard_abort(&guard, 4)); /* The member never heard of this update. */
    assert_int_equal(tdm__replay_guard_flip(&guard, &first, &swap), TDM_E_STATE);
}

static void drop_keeps_what_is_served(void **state)
{
    struct tdm__replay_guard guard = voted_for_first();
    bool swap;

    (void)state;
    assert_int_equal(tdm__replay_guard_flip(&guard, &first, &swap), TDM_OK);
    assert_true(tdm__replay_guard_abort(&guard, 3));
    assert_int_equal(guard.phase, TDM__REPLAY_GUARD_FLIPPED);
}

/* A member that serves the base version has not heard of the update that was aborted. A bucket of
 * that update must not be written over its weights afterwards. */
static void bucket_after_the_drop_of_its_update_is_refused(void **state)
{
    struct tdm__replay_guard guard = voted_for_first();
    bool swap;
    bool begun;

    (void)state;
    assert_int_equal(tdm__replay_guard_flip(&guard, &first, &swap), TDM_OK);
    assert_true(tdm__replay_guard_abort(&guard, 4));
    assert_int_equal(tdm__replay_guard_accept_bucket(&guard, &second, 4, &begun), TDM_E_STATE);
    /* The member still knows which version it serves, and takes part in the next update. */
    assert_int_equal(tdm__replay_guard_flip(&guard, &first, &swap), TDM_OK);
    assert_false(swap);
    assert_int_equal(tdm__replay_guard_accept_bucket(&guard, &second, 5, &begun), TDM_OK);
    assert_true(begun);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bucket_after_the_drop_of_its_update_is_refused),
        cmocka_unit_test(higher_epoch_replaces_what_is_staged),
        cmocka_unit_test(vote_freezes_the_shadow),
        cmocka_unit_test(only_what_was_voted_for_is_flipped_and_once),
        cmocka_unit_test(drop_ends_its_epoch_and_those_before),
        cmocka_unit_test(drop_keeps_what_is_served),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
