/* worker_metrics_test.c - the metrics of a worker, packed and parsed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/worker_metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static tdm_status read_buckets(uint32_t count, struct tdm__actor_metrics_view *metrics)
{
    tdm_writer *writer;
    tdm_status status;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm_write_array(writer, 5);
    for (uint64_t i = 1; i <= 4; i++) {
        tdm_write_uint(writer, i);
    }
    tdm_write_array(writer, count);
    for (uint32_t i = 0; i < count; i++) {
        tdm_write_uint(writer, i);
    }
    status = tdm__actor_metrics_read(tdm_writer_bytes(writer), metrics);
    tdm_writer_destroy(writer);
    return status;
}

static void numbers_are_read_in_their_order(void **state)
{
    struct tdm__actor_metrics_view metrics;

    (void)state;
    assert_int_equal(read_buckets(TDM__HISTOGRAM_BINS, &metrics), TDM_OK);
    assert_true(metrics.calls == 1 && metrics.failures == 2 && metrics.queue_length == 3);
    assert_true(metrics.times.sum_ns == 4 && metrics.times.bins[25] == 25);
}

static void another_shape_is_refused(void **state)
{
    struct tdm__actor_metrics_view metrics;

    (void)state;
    assert_int_equal(read_buckets(3, &metrics), TDM_E_PROTOCOL);
    assert_int_equal(tdm__actor_metrics_read((struct tdm_bytes){"\x93\x01\x02\x03", 4}, &metrics),
                     TDM_E_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_in_their_order),
        cmocka_unit_test(another_shape_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
