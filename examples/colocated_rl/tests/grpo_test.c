/* grpo_test.c - advantages and the loss of a token. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/grpo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void near(double value, double expected)
{
    if (fabs(value - expected) > 1e-4) {
        fail_msg("%g instead of %g", value, expected);
    }
}

static void advantages_compare_answers_place_by_place(void **state)
{
    const float rewards[3][3] = {{1.5F, 1.5F, 1.5F}, {1.0F, 0.0F, 0.0F}, {0.0F, 1.0F, 0.0F}};
    const struct tdm_sample samples[] = {
        {.token_rewards = rewards[0], .tokens_count = 3},
        /* This answer ended early and is left out later. */
        {.token_rewards = rewards[1], .tokens_count = 1},
        {.token_rewards = rewards[2], .tokens_count = 3},
    };
    float advantages[3 * 4] = {0};

    (void)state;
    grpo_advantages(samples, 3, advantages, 4);
    near((double)advantages[0], (1.5 - 2.5 / 3) / (0.62361 + 1e-4));
    near((double)advantages[4], (1.0 - 2.5 / 3) / (0.62361 + 1e-4));
    near((double)advantages[8], -(2.5 / 3) / (0.62361 + 1e-4));
    near((double)advantages[1], 0.25 / (0.25 + 1e-4));
    near((double)advantages[9], -0.25 / (0.25 + 1e-4));
    near((double)advantages[5], 0.0); /* There is no such token. */
    near((double)advantages[2], 0.75 / (0.75 + 1e-4));
}

static void equal_rewards_teach_nothing(void **state)
{
    const float rewards[] = {1.5F, 1.5F};
    const struct tdm_sample samples[] = {{.token_rewards = rewards, .tokens_count = 2},
                                         {.token_rewards = rewards, .tokens_count = 2}};
    float advantages[4] = {9, 9, 9, 9};

    (void)state;
    grpo_advantages(samples, 2, advantages, 2);
    for (int i = 0; i < 4; i++) {
        near((double)advantages[i], 0.0);
    }
}

static void the_gradient_is_the_slope_of_the_loss(void **state)
{
    const struct grpo_settings settings = {0.2, 0.3, 0.1};

    (void)state;
    for (int i = 0; i < 400; i++) {
        struct grpo_token token = {.logprob = -3.0 + 0.0151 * i,
                                   .sampled = -1.0,
                                   .reference = -0.7,
                                   .advantage = i % 2 == 0 ? 1.5 : -0.5};
        struct grpo_token less = token;
        struct grpo_token more = token;

        less.logprob -= 1e-6;
        more.logprob += 1e-6;
        near((grpo_token_loss(&settings, &more).loss - grpo_token_loss(&settings, &less).loss) /
                 2e-6,
             grpo_token_loss(&settings, &token).gradient);
    }
}

static void a_ratio_beyond_the_clip_teaches_nothing_more(void **state)
{
    const struct grpo_settings settings = {0.2, 0.3, 0.0};
    struct grpo_token token = {.logprob = log(1.31), .advantage = 2.0};

    (void)state;
    assert_true(grpo_token_loss(&settings, &token).clipped);
    near(grpo_token_loss(&settings, &token).loss, -1.3 * 2.0);
    near(grpo_token_loss(&settings, &token).gradient, 0.0);
    token.logprob = log(1.29);
    assert_false(grpo_token_loss(&settings, &token).clipped);
    token.advantage = -2.0; /* A bad token that became more likely is not clipped. */
    token.logprob = log(1.5);
    assert_false(grpo_token_loss(&settings, &token).clipped);
    token.logprob = log(0.79);
    assert_true(grpo_token_loss(&settings, &token).clipped);
}

static void a_divergence_is_never_negative(void **state)
{
    (void)state;
    for (int i = -300; i < 300; i++) {
        assert_true(grpo_divergence(0.01 * i, 0.0) >= 0.0);
    }
    near(grpo_divergence(-0.4, -0.4), 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advantages_compare_answers_place_by_place),
        cmocka_unit_test(equal_rewards_teach_nothing),
        cmocka_unit_test(the_gradient_is_the_slope_of_the_loss),
        cmocka_unit_test(a_ratio_beyond_the_clip_teaches_nothing_more),
        cmocka_unit_test(a_divergence_is_never_negative),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
