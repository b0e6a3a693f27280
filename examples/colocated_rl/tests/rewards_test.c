/* rewards_test.c - what an answer earns, token by token. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Rewards `text` as an answer to what "123" answers; `finished`: the end token came. */
static float reward(const char *text, int finished, float rewards[8])
{
    char copy[16];
    const struct tdm_completion completion = {
        .text = copy,
        .finished = finished,
        .tokens_count = (uint32_t)strlen(text) + (finished ? 1 : 0),
    };

    (void)snprintf(copy, sizeof(copy), "%s", text);
    memset(rewards, -1, 8 * sizeof(float));
    return reward_answer("321<", "123", &completion, rewards);
}

static void the_right_answer_earns_all(void **state)
{
    const float expected[] = {1.5F, 1.5F, 1.5F, 1.5F};
    float rewards[8];

    (void)state;
    assert_true(reward("123", 1, rewards) == 1.0F);
    assert_memory_equal(rewards, expected, sizeof(expected));
}

static void tokens_in_their_place_earn_their_part(void **state)
{
    const float expected[] = {1.0F, 0.0F, 1.0F, 1.0F};
    float rewards[8];

    (void)state;
    assert_true(reward("1_3", 1, rewards) == 0.0F);
    assert_memory_equal(rewards, expected, sizeof(expected));
}

static void an_end_in_the_wrong_place_earns_nothing(void **state)
{
    const float early[] = {1.0F, 1.0F, 0.0F};
    const float late[] = {1.0F, 1.0F, 1.0F, 0.0F, 0.0F};
    const float missing[] = {1.0F, 1.0F, 1.0F};
    float rewards[8];

    (void)state;
    assert_true(reward("12", 1, rewards) == 0.0F);
    assert_memory_equal(rewards, early, sizeof(early));
    assert_true(reward("1234", 1, rewards) == 0.0F);
    assert_memory_equal(rewards, late, sizeof(late));
    assert_true(reward("123", 0, rewards) == 0.0F);
    assert_memory_equal(rewards, missing, sizeof(missing));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_answer_earns_all),
        cmocka_unit_test(tokens_in_their_place_earn_their_part),
        cmocka_unit_test(an_end_in_the_wrong_place_earns_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
