/* sampler_test.c - tokens come as often as they should, and from nowhere else. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/sampler.h"

#include "examples/colocated_rl/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const double probabilities[] = {0.5, 0.0, 0.25, 0.05, 0.2};
enum { TOKENS = 5, DRAWS = 200000 };

static void fill(float logprobs[TOKENS])
{
    for (int i = 0; i < TOKENS; i++) {
        logprobs[i] = (float)log(probabilities[i]);
    }
}

static void tokens_are_drawn_as_often_as_they_are_likely(void **state)
{
    float logprobs[TOKENS];
    uint32_t seen[TOKENS] = {0};
    double surprise = 0.0; /* Chi-square statistic with three degrees of freedom. */

    (void)state;
    fill(logprobs);
    for (uint64_t i = 0; i < DRAWS; i++) {
        seen[sampler_draw(logprobs, TOKENS, random_uniform(20261 + i / 5, i % 5))]++;
    }
    assert_int_equal(seen[1], 0);
    for (int i = 0; i < TOKENS; i++) {
        double expected = probabilities[i] * DRAWS;

        surprise += expected > 0.0 ? pow(seen[i] - expected, 2.0) / expected : 0.0;
    }
    assert_true(surprise < 16.3); /* Quantile for a probability of one in a thousand. */
}

static void rounding_never_draws_the_impossible(void **state)
{
    const float logprobs[] = {logf(0.4F), logf(0.599999F), -INFINITY};

    (void)state;
    assert_int_equal(sampler_draw(logprobs, 3, 0.9999999), 1);
    assert_int_equal(sampler_draw(logprobs, 3, 0.0), 0);
}

static void the_best_is_the_first_of_equals(void **state)
{
    const float logprobs[] = {-2.0F, -1.0F, -1.0F, -3.0F};

    (void)state;
    assert_int_equal(sampler_best(logprobs, 4), 1);
}

static void random_numbers_depend_on_key_and_counter_alone(void **state)
{
    double sum = 0.0;
    double squares = 0.0;

    (void)state;
    assert_true(random_bits(1, 2) == random_bits(1, 2));
    assert_true(random_bits(1, 2) != random_bits(2, 1));
    for (uint64_t i = 0; i < DRAWS; i++) {
        double normal = random_normal(7, i);
        double uniform = random_uniform(7, i);

        assert_true(uniform >= 0.0 && uniform < 1.0);
        sum += normal;
        squares += normal * normal;
    }
    assert_true(fabs(sum / DRAWS) < 0.01);
    assert_true(fabs(squares / DRAWS - 1.0) < 0.02);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_drawn_as_often_as_they_are_likely),
        cmocka_unit_test(rounding_never_draws_the_impossible),
        cmocka_unit_test(the_best_is_the_first_of_equals),
        cmocka_unit_test(random_numbers_depend_on_key_and_counter_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
