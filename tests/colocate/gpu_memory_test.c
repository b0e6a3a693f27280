/* gpu_memory_test.c - where the data of an operation lies, according to the driver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/gpu/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Addresses that the driver knows as GPU memory and as pinned host memory, and one whose question
 * fails. All others are unknown to it. */
static char on_gpu[8];
static char pinned[8];
static char unknown[8];

static int fake_attribute(void *value, int attribute, uint64_t address)
{
    const char *at = (const char *)(uintptr_t)address;

    assert_int_equal(attribute, CU_POINTER_MEMORY_TYPE);
    if (at != on_gpu && at != pinned) {
        return CU_INVALID_VALUE;
    }
    *(unsigned *)value = at == on_gpu ? CU_MEMORY_IS_DEVICE : 1;
    return CU_SUCCESS;
}

static const struct tdm__cuda_driver driver = {.cuPointerGetAttribute = fake_attribute};

static void test_driver_knows_which_memory_is_on_the_gpu(void **state)
{
    enum tdm__comm_memory memory = TDM__COMM_MEMORY_HOST;

    (void)state;
    assert_int_equal(tdm__gpu_memory_of(&driver, on_gpu, on_gpu, &memory), TDM_OK);
    assert_int_equal(memory, TDM__COMM_MEMORY_GPU);
    assert_int_equal(tdm__gpu_memory_of(&driver, pinned, unknown, &memory), TDM_OK);
    assert_int_equal(memory, TDM__COMM_MEMORY_HOST);
    assert_int_equal(tdm__gpu_memory_of(&driver, NULL, on_gpu, &memory), TDM_OK);
    assert_int_equal(memory, TDM__COMM_MEMORY_GPU);
    assert_int_equal(tdm__gpu_memory_of(&driver, unknown, NULL, &memory), TDM_OK);
    assert_int_equal(memory, TDM__COMM_MEMORY_HOST);
}

static void test_data_and_result_are_in_the_same_kind(void **state)
{
    enum tdm__comm_memory memory;

    (void)state;
    assert_int_equal(tdm__gpu_memory_of(&driver, on_gpu, unknown, &memory), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "lies in GPU memory and the result in host"));
    assert_int_equal(tdm__gpu_memory_of(&driver, pinned, on_gpu, &memory), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "lies in host memory and the result in GPU"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_driver_knows_which_memory_is_on_the_gpu),
        cmocka_unit_test(test_data_and_result_are_in_the_same_kind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
