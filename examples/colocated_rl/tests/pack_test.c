/* pack_test.c - samples as rows, without padding. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/pack.h"

#include "examples/colocated_rl/tests/support/tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const int32_t three[] = {4, 3, TOKEN_END};
static const int32_t one[] = {TOKEN_END};

static void a_prompt_is_laid_out_once_for_its_group(void **state)
{
    const struct tdm_sample samples[] = {
        {.group = 1, .prompt = "10<", .tokens = three, .tokens_count = 3},
        {.group = 1, .prompt = "10<", .tokens = one, .tokens_count = 1},
        {.group = 1, .prompt = "10<", .tokens = three, .tokens_count = 3},
        {.group = 2, .prompt = "10<", .tokens = three, .tokens_count = 3},
    };
    const struct tdm_batch batch = {.samples = samples, .samples_count = 4};
    struct pack pack;
    uint32_t next = 0;

    (void)state;
    assert_int_equal(pack_init(&pack, tiny_settings()), TDM_OK);
    assert_int_equal(pack_fill(&pack, tiny_settings(), &batch, &next), TDM_OK);
    assert_int_equal(next, 4);
    assert_int_equal(pack.rows_count, 4 + 2 + 0 + 2 + 4 + 2);
    assert_int_equal(pack.targets_count, 10);
    assert_int_equal(pack.rows[3].token, TOKEN_ANSWER);
    assert_int_equal(pack.targets[0].row, 3); /* The end of the prompt. */
    assert_int_equal(pack.targets[1].row, 4);
    assert_int_equal(pack.targets[3].row, 3);
    assert_int_equal(pack.targets[4].row, 3);
    assert_int_equal(pack.targets[5].row, 6);
    assert_int_equal(pack.targets[7].row, 11); /* The prompt of the other group. */
    assert_int_equal(row_context(&pack.rows[7]), 6);
    assert_int_equal(row_slot(&pack.rows[7], 3), 3);
    assert_int_equal(row_slot(&pack.rows[7], 4), 6);
    for (uint32_t i = 0; i < pack.rows_count; i++) {
        assert_int_equal(pack.rows[i].slot, i);
    }
    pack_fini(&pack);
}

static void what_does_not_fit_comes_next(void **state)
{
    struct tdm_sample samples[30];
    const struct tdm_batch batch = {.supervised = 1, .samples = samples, .samples_count = 30};
    struct pack pack;
    uint32_t next = 0;
    uint32_t targets = 0;
    uint32_t fills = 0;

    (void)state;
    for (uint32_t i = 0; i < 30; i++) {
        samples[i] = (struct tdm_sample){.group = i, .prompt = "3210>", .answer = "012"};
    }
    assert_int_equal(pack_init(&pack, tiny_settings()), TDM_OK);
    while (next < 30) {
        assert_int_equal(pack_fill(&pack, tiny_settings(), &batch, &next), TDM_OK);
        assert_true(pack.rows_count <= pack.rows_max);
        targets += pack.targets_count;
        fills++;
    }
    assert_int_equal(targets, 30 * 4);
    assert_int_equal(fills, 8); /* Four samples of nine rows fit in 40. */
    pack_fini(&pack);
}

static void unfit_samples_are_refused(void **state)
{
    const int32_t wild[] = {9};
    const struct tdm_sample samples[] = {
        {.prompt = "10<", .tokens = one, .tokens_count = 0},
        {.prompt = "10<", .tokens = one, .tokens_count = 5},
        {.prompt = "10<", .tokens = wild, .tokens_count = 1},
        {.prompt = "7<", .tokens = one, .tokens_count = 1},
        {.prompt = "000000<", .tokens = one, .tokens_count = 1},
    };
    struct pack pack;

    (void)state;
    assert_int_equal(pack_init(&pack, tiny_settings()), TDM_OK);
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        const struct tdm_batch batch = {.samples = samples + i, .samples_count = 1};
        uint32_t next = 0;

        assert_true(pack_fill(&pack, tiny_settings(), &batch, &next) != TDM_OK);
    }
    pack_fini(&pack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_laid_out_once_for_its_group),
        cmocka_unit_test(what_does_not_fit_comes_next),
        cmocka_unit_test(unfit_samples_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
