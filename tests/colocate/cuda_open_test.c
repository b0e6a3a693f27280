/* cuda_open_test.c - calls of the CUDA driver that fail while a GPU is opened or asked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/cuda.h"
#include "colocate/device/cuda/cuda_device.h"
#include "colocate/device/cuda/cuda_ipc.h"
#include "colocate/device/cuda/driver.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "tests/support/cuda_gpu.h"
#include "tests/support/lost_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* No test makes as many calls of the driver. */
enum { CALLS_MAX = 200 };
/* Milliseconds that a context takes. */
enum { CONTEXT_MS = 120 };

#define UNIT ((size_t)2 << 20)

static struct cuda_gpu *gpu;

static int set_up(void **state)
{
    (void)state;
    gpu = cuda_gpu_open(64 * UNIT, false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cuda_gpu_fake.break_call("", 0, CU_SUCCESS);
    cuda_gpu_close(gpu);
    return 0;
}

static tdm_status open_gpu(struct tdm__device **device_out)
{
    return tdm__device_cuda_kind.open(gpu->clients[0], 0, gpu->uuid, device_out);
}

/* Opens the GPU again and again; each time a later call fails, until none does. */
static void each_call_that_fails_refuses_the_gpu(void **state)
{
    struct tdm__device *device = NULL;
    tdm_status status = TDM_E_DEVICE;
    uint64_t nth;

    (void)state;
    for (nth = 1; status != TDM_OK; nth++) {
        assert_true(nth < CALLS_MAX);
        cuda_gpu_fake.break_call("*", nth, CU_INVALID_VALUE);
        status = open_gpu(&device);
        cuda_gpu_fake.break_call("", 0, CU_SUCCESS);
        assert_true(status == TDM_OK || strstr(tdm_error_detail(), "(1: ") != NULL);
    }
    assert_true(nth > 8);
    tdm__device_close(device);
}

static void gpu_of_another_process_is_refused_with_the_remedy(void **state)
{
    struct tdm__device *device = NULL;

    (void)state;
    cuda_gpu_fake.break_call("cuDevicePrimaryCtxRetain", 1, CU_DEVICE_UNAVAILABLE);
    assert_int_equal(open_gpu(&device), TDM_E_DEVICE);
    assert_non_null(strstr(tdm_error_detail(), "nvidia-smi -c DEFAULT"));
    assert_null(device);
}

static void list_and_memory_that_cannot_be_read_are_errors(void **state)
{
    static const char *const calls[] = {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid_v2"};
    struct tdm__device_list list = {.count = 0};
    struct tdm__device *device = gpu->devices[0];
    size_t total_bytes;
    size_t free_bytes;

    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        cuda_gpu_fake.break_call(calls[i], 1, CU_INVALID_DEVICE);
        assert_int_equal(tdm__device_cuda_kind.list(&list), TDM_E_DEVICE);
        assert_non_null(strstr(tdm_error_detail(), "(101: "));
        assert_int_equal(list.count, 0);
    }
    cuda_gpu_fake.break_call("cuMemGetInfo_v2", 1, CU_INVALID_VALUE);
    assert_int_equal(device->ops->memory_info(device, &total_bytes, &free_bytes), TDM_E_DEVICE);
    assert_non_null(strstr(tdm_error_detail(), "cuMemGetInfo"));
    cuda_gpu_fake.break_call("cuCtxPushCurrent_v2", 1, CU_INVALID_VALUE);
    assert_int_equal(device->ops->memory_info(device, &total_bytes, &free_bytes), TDM_E_DEVICE);
    cuda_gpu_fake.break_call("", 0, CU_SUCCESS);
    assert_int_equal(device->ops->memory_info(device, &total_bytes, &free_bytes), TDM_OK);
    assert_int_equal(tdm__device_cuda_kind.list(&list), TDM_OK);
    assert_int_equal(list.count, 1);
}

/* Exports memory again and again; each time a later call fails, until none does. */
static void each_call_that_fails_refuses_the_export(void **state)
{
    const struct tdm__cuda_driver *driver;
    struct tdm__cuda_ipc_memory shared = {.fd = -1};
    tdm_status status = TDM_E_DEVICE;
    uint64_t address;
    TDM__CUDA_SCOPE(scope);

    (void)state;
    assert_int_equal(tdm__cuda_driver(&driver), TDM_OK);
    assert_int_equal(tdm__cuda_enter((struct tdm__cuda_device *)(void *)gpu->devices[0], &scope),
                     TDM_OK);
    assert_int_equal(driver->cuMemAlloc_v2(&address, UNIT), CU_SUCCESS);
    for (uint64_t nth = 1; status != TDM_OK; nth++) {
        assert_true(nth < CALLS_MAX);
        cuda_gpu_fake.break_call("*", nth, CU_INVALID_VALUE);
        status = tdm__cuda_ipc_export(gpu->devices[0], (void *)(uintptr_t)address, 8, &shared);
        cuda_gpu_fake.break_call("", 0, CU_SUCCESS);
        assert_true(status == TDM_OK || tdm_error_detail()[0] != '\0');
    }
    if (shared.fd >= 0) {
        (void)close(shared.fd);
    }
    assert_int_equal(driver->cuMemFree_v2(address), CU_SUCCESS);
}

/* Returns 0 if the first context of this process takes CONTEXT_MS and the next one no time. */
static int time_contexts(void)
{
    const struct tdm__cuda_driver *driver;
    struct tdm__cuda_gpu found;
    int64_t begin_ms;
    void *context;

    if (tdm__cuda_driver(&driver) != TDM_OK || tdm__cuda_gpu_at(0, &found) != TDM_OK) {
        return 1;
    }
    begin_ms = tdm__clock_ms();
    if (driver->cuDevicePrimaryCtxRetain(&context, found.device) != CU_SUCCESS ||
        tdm__clock_ms() - begin_ms < CONTEXT_MS - 1) {
        return 2;
    }
    begin_ms = tdm__clock_ms();
    for (int i = 0; i < 100; i++) {
        (void)driver->cuDevicePrimaryCtxRetain(&context, found.device);
    }
    return tdm__clock_ms() - begin_ms < 50 * CONTEXT_MS ? 0 : 3;
}

/* A real context takes 0.2 to 1 s. The test of jobs on the fake library lets contexts take time. */
static void first_context_takes_the_time_that_is_asked_for(void **state)
{
    char text[16];
    pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) { /* No driver was opened before the fork. */
        (void)snprintf(text, sizeof(text), "%d", CONTEXT_MS);
        (void)setenv("FAKE_CUDA_CONTEXT_MS", text, 1);
        _exit(time_contexts());
    }
    assert_int_equal(exit_code_of(pid), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        /* The first one, because it forks. */
        cmocka_unit_test(first_context_takes_the_time_that_is_asked_for),
        CASE(each_call_that_fails_refuses_the_gpu),
        CASE(gpu_of_another_process_is_refused_with_the_remedy),
        CASE(list_and_memory_that_cannot_be_read_are_errors),
        CASE(each_call_that_fails_refuses_the_export),
    };
    int failed;

    cuda_gpu_choose(64 * UNIT);
    if (cuda_gpu_is_real()) {
        return 77;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
