/* device_memory_test.c - the wait until a GPU reports memory free. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/device_memory.h"
#include "runtime/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

/* What the fake device reports: `busy_calls` times that it is full, then 12 MiB free of 80. */
static int busy_calls;
static uint64_t total_bytes;

static tdm_status fake_memory_info(struct tdm__device *device, uint64_t *total_bytes_out,
                                   uint64_t *free_bytes_out)
{
    (void)device;
    *total_bytes_out = total_bytes;
    *free_bytes_out = busy_calls > 0 ? 0 : 12 * MIB;
    busy_calls--;
    return TDM_OK;
}

static const struct tdm__device_ops ops = {.memory_info = fake_memory_info};
static struct tdm__device device = {.ops = &ops, .uuid = "GPU-77"};

static void memory_that_becomes_free_is_awaited(void **state)
{
    (void)state;
    total_bytes = 80 * MIB;
    busy_calls = 3;
    assert_int_equal(tdm__device_await_memory(&device, "weights", 12 * MIB, 5000), TDM_OK);
    assert_true(busy_calls < 0);
}

static void deadline_names_the_numbers_and_the_remedy(void **state)
{
    (void)state;
    total_bytes = 80 * MIB;
    busy_calls = 0;
    assert_int_equal(tdm__device_await_memory(&device, "weights", 16 * MIB, 2), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "GPU-77: 16.0 MiB were granted for weights, but the "
                                               "GPU has 12.0 MiB free of 80.0 for 2 ms"));
    assert_non_null(strstr(tdm_error_detail(), "--gpu-reserve-bytes"));
}

static void virtual_gpu_never_waits(void **state)
{
    (void)state;
    total_bytes = 0;
    busy_calls = 1;
    assert_int_equal(tdm__device_await_memory(&device, "weights", 16 * MIB, 0), TDM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_becomes_free_is_awaited),
        cmocka_unit_test(deadline_names_the_numbers_and_the_remedy),
        cmocka_unit_test(virtual_gpu_never_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
