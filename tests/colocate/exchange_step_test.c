/* exchange_step_test.c - the steps of an exchange move every byte once, within the staging memory.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/exchange_step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { RANKS = 3, OWN_RANK = 1, PART_BYTES = 4 };

static const struct tdm__comm comm = {.rank = OWN_RANK, .ranks_count = RANKS};
static const size_t send_bytes[RANKS] = {9, 5, 0};
static const size_t receive_bytes[RANKS] = {3, 7, 8};
static const struct tdm__comm_exchange exchange = {
    .send_bytes = send_bytes, .receive_bytes = receive_bytes, .part_bytes_max = 9};

static void first_step_has_a_part_of_each_other_rank(void **state)
{
    struct tdm__exchange_step step;

    (void)state;
    tdm__exchange_step_init(&step, &comm, &exchange, 0, PART_BYTES);
    assert_int_equal(step.send_bytes[0], PART_BYTES);
    assert_int_equal(step.send_bytes[2], 0);
    assert_int_equal(step.receive_bytes[0], 3);
    assert_int_equal(step.receive_bytes[2], PART_BYTES);
    assert_int_equal(step.part_bytes_max, PART_BYTES);
}

static void last_step_has_the_rest(void **state)
{
    struct tdm__exchange_step step;

    (void)state;
    tdm__exchange_step_init(&step, &comm, &exchange, 8, PART_BYTES);
    assert_int_equal(step.send_bytes[0], 1);
    assert_int_equal(step.receive_bytes[0], 0);
    assert_int_equal(step.receive_bytes[2], 0);
    assert_int_equal(step.part_bytes_max, 1);
}

static void parts_lie_behind_one_another(void **state)
{
    struct tdm__exchange_step step;

    (void)state;
    tdm__exchange_step_init(&step, &comm, &exchange, 0, PART_BYTES);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(step.offsets[i], i * PART_BYTES);
    }
}

static void rank_gives_itself_nothing(void **state)
{
    struct tdm__exchange_step step;

    (void)state;
    tdm__exchange_step_init(&step, &comm, &exchange, 0, PART_BYTES);
    assert_int_equal(step.send_bytes[OWN_RANK], 0);
    assert_int_equal(step.receive_bytes[OWN_RANK], 0);
}

static void step_is_an_exchange_between_the_staging_memories(void **state)
{
    char in[RANKS * PART_BYTES];
    char out[RANKS * PART_BYTES];
    struct tdm__exchange_step step;
    struct tdm__comm_exchange staged;

    (void)state;
    tdm__exchange_step_init(&step, &comm, &exchange, 8, PART_BYTES);
    staged = tdm__exchange_step_staged(&step, in, out);
    assert_ptr_equal(staged.in, in);
    assert_ptr_equal(staged.out, out);
    assert_ptr_equal(staged.send_offsets, step.offsets);
    assert_ptr_equal(staged.receive_offsets, step.offsets);
    assert_ptr_equal(staged.send_bytes, step.send_bytes);
    assert_ptr_equal(staged.receive_bytes, step.receive_bytes);
    assert_int_equal(staged.part_bytes_max, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_step_has_a_part_of_each_other_rank),
        cmocka_unit_test(last_step_has_the_rest),
        cmocka_unit_test(parts_lie_behind_one_another),
        cmocka_unit_test(rank_gives_itself_nothing),
        cmocka_unit_test(step_is_an_exchange_between_the_staging_memories),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
