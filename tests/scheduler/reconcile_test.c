/* reconcile_test.c - which claims win after the store has lost changes, in all cases. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/reconcile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { NODES = 3, ORDERS = 729 };

static struct tdm__id id_of(uint8_t number)
{
    struct tdm__id id = {{0}};

    id.bytes[0] = number;
    return id;
}

static struct tdm__actor_record claim(uint8_t actor, uint8_t node, uint32_t placements,
                                      uint64_t granted)
{
    return (struct tdm__actor_record){
        .actor = id_of(actor), .node = id_of(node), .placements = placements, .granted = granted};
}

static void older_record_is_not_confirmed(void **state)
{
    const struct tdm__store_view view = {.generation = 100};

    (void)state;
    assert_false(tdm__record_is_confirmed(&view, 99));
    assert_false(tdm__record_is_confirmed(&view, 100));
    assert_true(tdm__record_is_confirmed(&view, 101));
    assert_true(tdm__record_is_confirmed(&(struct tdm__store_view){0}, 1));
}

/* Every combination of a running actor and its record. */
static void only_a_confirmed_later_placement_ends_a_process(void **state)
{
    const struct tdm__actor_record running = claim(1, 1, 2, 0);

    (void)state;
    assert_int_equal(tdm__reconcile_actor(&running, NULL, false), TDM__ACTOR_WRITE_RECORD);
    for (uint8_t node = 1; node <= 2; node++) {
        for (uint32_t placements = 1; placements <= 3; placements++) {
            const struct tdm__actor_record stored = claim(1, node, placements, 0);
            enum tdm__actor_decision decision = tdm__reconcile_actor(&running, &stored, true);

            assert_int_equal(tdm__reconcile_actor(&running, &stored, false),
                             TDM__ACTOR_WRITE_RECORD);
            if (placements < 2) {
                assert_int_equal(decision, TDM__ACTOR_WRITE_RECORD);
            } else {
                assert_int_equal(decision, node == 1 ? TDM__ACTOR_KEEP_RECORD : TDM__ACTOR_GIVE_UP);
            }
        }
    }
}

/* Up to three nodes run the same actor, and the store begins with any record. The nodes reconcile
 * in any order, each as often as it wants. In the end only the latest placement is left, and its
 * node has not given up. */
static void latest_placement_stays_in_every_order(void **state)
{
    (void)state;
    for (uint32_t first = 0; first <= NODES; first++) {
        for (uint32_t order = 0; order < ORDERS; order++) {
            struct tdm__actor_record running[NODES];
            bool runs[NODES];
            struct tdm__actor_record stored = claim(1, (uint8_t)first, first, 0);
            bool exists = first > 0;
            bool is_confirmed = false;
            uint32_t rest = order;

            for (uint32_t i = 0; i < NODES; i++) {
                running[i] = claim(1, (uint8_t)(i + 1), i + 1, 0);
                runs[i] = true;
            }
            for (uint32_t step = 0; step < 6 + NODES; step++) {
                /* After six steps in any order each node takes one more step. */
                uint32_t i = step < 6 ? rest % 3 : step - 6;

                rest /= 3;
                if (!runs[i]) {
                    continue;
                }
                switch (tdm__reconcile_actor(&running[i], exists ? &stored : NULL, is_confirmed)) {
                case TDM__ACTOR_WRITE_RECORD:
                    stored = running[i];
                    exists = is_confirmed = true;
                    break;
                case TDM__ACTOR_GIVE_UP:
                    runs[i] = false;
                    break;
                case TDM__ACTOR_KEEP_RECORD:
                    break;
                }
            }
            for (uint32_t i = 0; i < NODES && runs[NODES - 1]; i++) {
                /* The second check after lease and grace ends those that came first. */
                runs[i] = runs[i] && tdm__reconcile_actor(&running[i], &stored, is_confirmed) !=
                                         TDM__ACTOR_GIVE_UP;
            }
            assert_true(runs[NODES - 1]);
            assert_false(runs[0]);
            assert_false(runs[1]);
            assert_int_equal(stored.placements, NODES);
        }
    }
}

static void absent_actor_is_expected_only_if_it_was_placed_now_and_fits(void **state)
{
    (void)state;
    assert_int_equal(tdm__reconcile_absent(true, true), TDM__ABSENT_EXPECT);
    assert_int_equal(tdm__reconcile_absent(true, false), TDM__ABSENT_DELETE);
    assert_int_equal(tdm__reconcile_absent(false, true), TDM__ABSENT_DELETE);
    assert_int_equal(tdm__reconcile_absent(false, false), TDM__ABSENT_DELETE);
}

static void older_grant_of_a_name_stays(void **state)
{
    const struct tdm__actor_record running = claim(1, 1, 1, 5);
    const struct tdm__actor_record itself = claim(1, 2, 1, 9);

    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        assert_int_equal(tdm__reconcile_name(&running, NULL, false, waits), TDM__NAME_WRITE);
        for (int confirmed = 0; confirmed < 2; confirmed++) {
            assert_int_equal(tdm__reconcile_name(&running, &itself, confirmed, waits),
                             TDM__NAME_WRITE);
        }
        for (uint64_t granted = 4; granted <= 6; granted++) {
            const struct tdm__actor_record other = claim(2, 2, 1, granted);

            assert_int_equal(tdm__reconcile_name(&running, &other, false, waits),
                             waits ? TDM__NAME_WAIT : TDM__NAME_WRITE);
            assert_int_equal(tdm__reconcile_name(&running, &other, true, waits),
                             granted > 5 ? TDM__NAME_WRITE : TDM__NAME_TAKEN);
        }
    }
}

static void nodes_have_settled_when_each_has_written_its_records(void **state)
{
    struct tdm__id known[2] = {id_of(1), id_of(2)};
    static struct tdm__node_resources resources[3];

    (void)state;
    for (uint8_t i = 0; i < 3; i++) {
        resources[i] = (struct tdm__node_resources){.id = id_of((uint8_t)(i + 1))};
    }
    assert_true(tdm__nodes_have_settled(NULL, 0, resources, 3, 7, false));
    assert_false(tdm__nodes_have_settled(known, 2, resources, 3, 7, false));
    resources[0].generation = 7;
    resources[2].generation = 7;
    assert_false(tdm__nodes_have_settled(known, 2, resources, 3, 7, false));
    resources[1].generation = 6;
    assert_false(tdm__nodes_have_settled(known, 2, resources, 3, 7, false));
    resources[1].generation = 7;
    assert_true(tdm__nodes_have_settled(known, 2, resources, 3, 7, false));
    assert_false(tdm__nodes_have_settled(known, 2, resources, 1, 7, false));
    resources[0].names_generation = 7;
    assert_false(tdm__nodes_have_settled(known, 2, resources, 3, 7, true));
    resources[1].names_generation = 7;
    assert_true(tdm__nodes_have_settled(known, 2, resources, 3, 7, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_record_is_not_confirmed),
        cmocka_unit_test(only_a_confirmed_later_placement_ends_a_process),
        cmocka_unit_test(latest_placement_stays_in_every_order),
        cmocka_unit_test(absent_actor_is_expected_only_if_it_was_placed_now_and_fits),
        cmocka_unit_test(older_grant_of_a_name_stays),
        cmocka_unit_test(nodes_have_settled_when_each_has_written_its_records),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
