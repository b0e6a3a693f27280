/* weight_writer_state_test.c - a weight writer has the memory that its plan needs, and no more. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/weight_writer_state.h"

#include "colocate/weights/node_exchange.h"
#include "tests/support/weight_writer_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static void test_writer_in_place_has_no_region_unless_it_exchanges(void **state)
{
    struct weight_writers *m = weight_writers_open(true, TDM__VERIFY_FULL);

    (void)state;
    assert_null(m->weight_writers[1]->bucket);
    assert_null(m->weight_writers[1]->exchange_region);
    TRY(tdm__weight_writer_resume_bucket(m->weight_writers[1], WEIGHT_WRITERS_WAIT_MS));
    TRY(tdm__weight_writer_pause_bucket(m->weight_writers[1]));
    weight_writers_close(m);
}

static void test_buffers_of_a_writer_in_place_are_a_region_for_one_update(void **state)
{
    struct weight_writers *m = weight_writers_open_divided(true);
    const struct tdm__node_exchange *exchange = m->transfer_plan->exchange;
    struct tdm__weight_writer *writer = m->weight_writers[1];

    (void)state;
    assert_null(writer->bucket);
    assert_true(tdm_region_size(writer->exchange_region) >=
                exchange->send_bytes + exchange->receive_bytes);
    assert_false(tdm_region_is_resident(writer->exchange_region));
    TRY(tdm__weight_writer_resume_bucket(writer, WEIGHT_WRITERS_WAIT_MS));
    assert_true(tdm_region_is_resident(writer->exchange_region));
    assert_ptr_equal(tdm__weight_writer_send_buffer(writer),
                     tdm_region_address(writer->exchange_region));
    assert_ptr_equal(tdm__weight_writer_receive_buffer(writer),
                     tdm__weight_writer_send_buffer(writer) + aligned(exchange->send_bytes));
    TRY(tdm__weight_writer_pause_bucket(writer));
    assert_false(tdm_region_is_resident(writer->exchange_region));
    weight_writers_close(m);
}

static void test_buffers_lie_behind_the_halves_of_a_bucket(void **state)
{
    struct weight_writers *m = weight_writers_open_divided(false);
    struct tdm__weight_writer *writer = m->weight_writers[1];
    uint64_t halves = 2 * aligned(m->transfer_plan->chunk_bytes_max);

    (void)state;
    assert_null(writer->exchange_region);
    assert_int_equal(tdm__weight_writer_halves_count(writer), 2);
    TRY(tdm__weight_writer_resume_bucket(writer, WEIGHT_WRITERS_WAIT_MS));
    assert_ptr_equal(tdm__weight_writer_send_buffer(writer),
                     (char *)tdm_region_address(writer->bucket) + halves);
    assert_true(tdm_region_size(writer->bucket) >= halves + m->transfer_plan->exchange->send_bytes +
                                                       m->transfer_plan->exchange->receive_bytes);
    TRY(tdm__weight_writer_pause_bucket(writer));
    weight_writers_close(m);
}

static void test_bucket_of_several_engine_ranks_has_halves_for_each(void **state)
{
    static const uint32_t parts[] = {2}; /* The engine rank has the third part. */
    struct weight_writers *m = weight_writers_open_divided(false);
    struct tdm__weight_writer_options options = m->weight_writers[1]->options;
    uint64_t half = aligned(m->transfer_plan->chunk_bytes_max);
    struct tdm__weight_writer *writer;

    (void)state;
    options.bucket_parts = parts;
    TRY(tdm__weight_writer_create(&options, &writer));
    assert_int_equal(tdm__weight_writer_chunk_offset(writer, 0, 0), 4 * half);
    assert_int_equal(tdm__weight_writer_chunk_offset(writer, 3, 0), 5 * half);
    assert_int_equal(tdm__weight_writer_chunk_offset(m->weight_writers[1], 3, 0), half);
    assert_ptr_equal(tdm__weight_writer_send_buffer(writer),
                     (char *)tdm_region_address(writer->bucket) + 6 * half);
    assert_true(tdm_region_size(writer->bucket) >= 6 * half);
    tdm__weight_writer_destroy(writer);
    weight_writers_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writer_in_place_has_no_region_unless_it_exchanges),
        cmocka_unit_test(test_buffers_of_a_writer_in_place_are_a_region_for_one_update),
        cmocka_unit_test(test_buffers_lie_behind_the_halves_of_a_bucket),
        cmocka_unit_test(test_bucket_of_several_engine_ranks_has_halves_for_each),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
