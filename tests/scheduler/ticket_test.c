/* ticket_test.c - when a group that waits has a turn, and whom its ticket keeps away. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/ticket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Ages that the tests look at, in milliseconds: more than three of the longest turns. */
enum { AGE_MS_MAX = 1600000, TURNS_MAX = 16, IDS = 3 };

/* One turn. */
struct turn {
    int64_t begin_ms;
    int64_t end_ms;
};

/* Fills `turns` with all turns that end before AGE_MS_MAX, and returns their number. */
static uint32_t find_turns(struct turn turns[TURNS_MAX])
{
    uint32_t last = 0;
    uint32_t count = 0;

    for (int64_t age_ms = 0; age_ms < AGE_MS_MAX; age_ms++) {
        uint32_t turn = tdm__ticket_turn(age_ms);

        if (turn != 0 && last == 0) {
            assert_int_equal(turn, count + 1);
            assert_true(count < TURNS_MAX);
            turns[count++] = (struct turn){age_ms, AGE_MS_MAX};
        } else if (turn == 0 && last != 0) {
            turns[count - 1].end_ms = age_ms;
        } else {
            assert_int_equal(turn, last);
        }
        last = turn;
    }
    return turns[count - 1].end_ms == AGE_MS_MAX ? count - 1 : count;
}

static void nobody_waits_behind_a_turn_for_longer_than_the_group_has_waited(void **state)
{
    struct turn turns[TURNS_MAX];
    uint32_t count = find_turns(turns);

    (void)state;
    assert_in_range(count, 5, TURNS_MAX);
    assert_int_equal(turns[0].begin_ms, TDM__TICKET_PATIENCE_MS);
    for (uint32_t i = 0; i < count; i++) {
        int64_t length_ms = turns[i].end_ms - turns[i].begin_ms;

        assert_true(length_ms <= turns[i].begin_ms);
        assert_true(length_ms <= TDM__TICKET_TURN_MS_MAX);
        if (i + 1 < count) { /* Others have the nodes for twice as long. */
            assert_true(turns[i + 1].begin_ms - turns[i].end_ms >= 2 * length_ms);
        }
    }
}

static void group_has_a_long_enough_turn_in_time(void **state)
{
    const int64_t patience_ms = (int64_t)4 * TDM__TICKET_PATIENCE_MS;
    struct turn turns[TURNS_MAX];
    uint32_t count = find_turns(turns);

    (void)state;
    for (int64_t drain_ms = 1; drain_ms <= TDM__TICKET_TURN_MS_MAX; drain_ms += 7) {
        int64_t limit_ms = 8 * drain_ms > patience_ms ? 8 * drain_ms : patience_ms;
        uint32_t i = 0;

        while (i < count && turns[i].end_ms - turns[i].begin_ms < drain_ms) {
            i++;
        }
        assert_true(i < count);
        assert_true(turns[i].begin_ms + drain_ms <= limit_ms);
    }
}

/* Ticket number `index` of 2 * IDS, or none for 0. */
static struct tdm__ticket ticket_at(uint32_t index)
{
    struct tdm__ticket ticket = {.number = index % 2 + 1};

    ticket.group.bytes[0] = (uint8_t)((index + 1) / 2);
    return ticket;
}

static void of_two_groups_exactly_one_passes_the_other(void **state)
{
    (void)state;
    for (uint32_t i = 1; i <= 2 * IDS; i++) {
        for (uint32_t k = 1; k <= 2 * IDS; k++) {
            struct tdm__ticket first = ticket_at(i);
            struct tdm__ticket second = ticket_at(k);
            bool is_same = tdm__id_equal(&first.group, &second.group);

            if (is_same) {
                assert_false(tdm__ticket_keeps_from(&first, &second, true));
                assert_false(tdm__ticket_keeps_from(&first, &second, false));
                continue;
            }
            assert_true(tdm__ticket_keeps_from(&first, &second, true) !=
                        tdm__ticket_keeps_from(&second, &first, true));
            assert_true(tdm__ticket_keeps_from(&first, &second, false));
            if (first.number < second.number) {
                assert_true(tdm__ticket_keeps_from(&first, &second, true));
            }
        }
    }
}

/* No groups can pass each other in a circle. */
static void order_of_the_groups_is_transitive(void **state)
{
    (void)state;
    for (uint32_t i = 1; i <= 2 * IDS; i++) {
        for (uint32_t k = 1; k <= 2 * IDS; k++) {
            for (uint32_t l = 1; l <= 2 * IDS; l++) {
                struct tdm__ticket a = ticket_at(i);
                struct tdm__ticket b = ticket_at(k);
                struct tdm__ticket c = ticket_at(l);

                if (!tdm__id_equal(&a.group, &c.group) && tdm__ticket_keeps_from(&a, &b, true) &&
                    tdm__ticket_keeps_from(&b, &c, true)) {
                    assert_true(tdm__ticket_keeps_from(&a, &c, true));
                }
            }
        }
    }
}

static void ticket_keeps_requests_without_one_away(void **state)
{
    struct tdm__ticket none = {.number = 0};
    struct tdm__ticket kept = ticket_at(3);

    (void)state;
    assert_true(tdm__ticket_keeps_from(&kept, &none, false));
    assert_false(tdm__ticket_keeps_from(&none, &none, false));
    assert_false(tdm__ticket_keeps_from(&none, &kept, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_behind_a_turn_for_longer_than_the_group_has_waited),
        cmocka_unit_test(group_has_a_long_enough_turn_in_time),
        cmocka_unit_test(of_two_groups_exactly_one_passes_the_other),
        cmocka_unit_test(order_of_the_groups_is_transitive),
        cmocka_unit_test(ticket_keeps_requests_without_one_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
