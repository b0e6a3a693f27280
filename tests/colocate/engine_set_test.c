/* engine_set_test.c - sets of engines agree with arrays of flags. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/engine_set.h"

#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ENGINES = TDM__JOB_ENGINES_MAX, STEPS = 5000 };

/* Checks that the set has exactly the engines whose flags are true. */
static void assert_members(const struct tdm__engine_set *set, const bool flags[ENGINES])
{
    uint32_t first = ENGINES;
    uint32_t count = 0;

    for (uint32_t i = ENGINES; i-- > 0;) {
        assert_int_equal(tdm__engine_set_has(set, i), flags[i]);
        first = flags[i] ? i : first;
        count += flags[i] ? 1 : 0;
    }
    assert_int_equal(tdm__engine_set_is_empty(set), count == 0);
    assert_int_equal(tdm__engine_set_count(set), count);
    assert_int_equal(tdm__engine_set_first(set), first);
}

static void each_engine_is_a_member_of_its_own(void **state)
{
    (void)state;
    for (uint32_t engine = 0; engine < ENGINES; engine++) {
        struct tdm__engine_set set = {.words = {0}};
        bool flags[ENGINES] = {false};

        assert_members(&set, flags);
        tdm__engine_set_add(&set, engine);
        flags[engine] = true;
        assert_members(&set, flags);
        tdm__engine_set_remove(&set, engine);
        flags[engine] = false;
        assert_members(&set, flags);
    }
}

static void random_changes_are_those_of_flags(void **state)
{
    struct test_random chance = test_random_init("engine_set", 1);
    struct tdm__engine_set sets[2] = {{.words = {0}}, {.words = {0}}};
    bool flags[2][ENGINES] = {{false}, {false}};

    (void)state;
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t which = test_random_below(&chance, 2);
        uint32_t engine = test_random_below(&chance, ENGINES);

        switch (test_random_below(&chance, 50)) {
        case 0: /* Adds the other set. */
            tdm__engine_set_add_all(&sets[which], &sets[1 - which]);
            for (uint32_t i = 0; i < ENGINES; i++) {
                flags[which][i] = flags[which][i] || flags[1 - which][i];
            }
            break;
        case 1: /* Clears the set. */
            tdm__engine_set_clear(&sets[which]);
            memset(flags[which], 0, sizeof(flags[which]));
            break;
        default:
            if (test_random_below(&chance, 2) == 0) {
                tdm__engine_set_add(&sets[which], engine);
                flags[which][engine] = true;
            } else {
                tdm__engine_set_remove(&sets[which], engine);
                flags[which][engine] = false;
            }
            break;
        }
        assert_members(&sets[which], flags[which]);
        assert_int_equal(tdm__engine_set_equal(&sets[0], &sets[1]),
                         memcmp(flags[0], flags[1], sizeof(flags[0])) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_engine_is_a_member_of_its_own),
        cmocka_unit_test(random_changes_are_those_of_flags),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
