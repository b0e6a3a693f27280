/* cuda_device_test.c - the context of an open GPU, and the text of a full one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/cuda_device.h"
#include "runtime/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The contexts that the fake driver was given, of which the last one is current. */
static void *contexts[4];
static int contexts_count;

static int fake_push(void *context)
{
    contexts[contexts_count++] = context;
    return CU_SUCCESS;
}

static int fake_pop(void **context)
{
    *context = contexts[--contexts_count];
    return CU_SUCCESS;
}

static int fake_memory(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = (size_t)3 << 19;
    *total_bytes = (size_t)80 << 20;
    return CU_SUCCESS;
}

static const struct tdm__cuda_driver driver = {.cuCtxPushCurrent_v2 = fake_push,
                                               .cuCtxPopCurrent_v2 = fake_pop,
                                               .cuMemGetInfo_v2 = fake_memory};
static struct tdm__cuda_device cuda = {
    .base = {.uuid = "GPU-77"}, .driver = &driver, .context = &contexts};

static void test_context_of_the_gpu_is_current_until_the_scope_ends(void **state)
{
    (void)state;
    {
        TDM__CUDA_SCOPE(never_entered);
        TDM__CUDA_SCOPE(outer);
        TDM__CUDA_SCOPE(inner);

        assert_int_equal(tdm__cuda_enter(&cuda, &outer), TDM_OK);
        assert_int_equal(tdm__cuda_enter(&cuda, &inner), TDM_OK);
        assert_ptr_equal(contexts[contexts_count - 1], &contexts);
        assert_null(never_entered.driver);
    }
    assert_int_equal(contexts_count, 0);
}

static void test_full_gpu_is_described_with_its_free_memory(void **state)
{
    tdm_status status = tdm__fail(TDM_E_DEVICE_FULL, "out of memory");

    (void)state;
    assert_int_equal(tdm__cuda_describe_oom(&cuda, status, "weights", (size_t)4 << 20),
                     TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "GPU-77 cannot hold weights: 4.0 MiB wanted, "
                                               "1.5 MiB free of 80.0"));
}

static void test_other_failures_keep_their_text(void **state)
{
    tdm_status status = tdm__fail(TDM_E_DEVICE, "the cable is loose");

    (void)state;
    assert_int_equal(tdm__cuda_describe_oom(&cuda, status, "weights", 1), TDM_E_DEVICE);
    assert_string_equal(tdm_error_detail(), "the cable is loose");
    assert_int_equal(tdm__cuda_describe_oom(&cuda, TDM_OK, "weights", 1), TDM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context_of_the_gpu_is_current_until_the_scope_ends),
        cmocka_unit_test(test_full_gpu_is_described_with_its_free_memory),
        cmocka_unit_test(test_other_failures_keep_their_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
