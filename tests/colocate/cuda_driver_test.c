/* cuda_driver_test.c - errors of the CUDA driver, and those that stick to the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/driver.h"
#include "colocate/device/cuda/kernels_api.h"
#include "runtime/process_fault.h"
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

/* The causes that were reported as faults of the process: the last one, and their number. */
static char cause[512];
static unsigned faults_count;

static void record_fault(const char *text)
{
    (void)snprintf(cause, sizeof(cause), "%s", text);
    faults_count++;
}

static const struct tdm__cuda_driver *driver;

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(tdm__cuda_driver(&driver), TDM_OK);
    tdm__process_fault_set_handler(record_fault);
    faults_count = 0;
    return 0;
}

static void test_results_become_statuses(void **state)
{
    (void)state;
    assert_int_equal(tdm__cuda_check(CU_SUCCESS, "cuInit"), TDM_OK);
    assert_int_equal(tdm__cuda_check(CU_OUT_OF_MEMORY, "cuMemAlloc of %d bytes", 7),
                     TDM_E_DEVICE_FULL);
    assert_string_equal(tdm_error_detail(),
                        "cuMemAlloc of 7 bytes: CUDA_ERROR_OUT_OF_MEMORY (2: out of memory)");
    assert_int_equal(tdm__cuda_check(CU_INVALID_VALUE, "cuMemMap"), TDM_E_DEVICE);
}

static void test_errors_that_stick_are_faults_of_the_process(void **state)
{
    static const int sticky[] = {700, 702, 710, 714, 715, 716, 717, 718, 719};
    static const int others[] = {1, 2, 201, 400, 600, 701, 709, 713, 720, 801, 999};

    (void)state;
    for (unsigned i = 0; i < sizeof(sticky) / sizeof(sticky[0]); i++) {
        assert_int_equal(tdm__cuda_check(sticky[i], "cuStreamQuery"), TDM_E_DEVICE);
        assert_int_equal(faults_count, i + 1);
        assert_non_null(strstr(tdm_error_detail(), "it must be started again"));
    }
    assert_int_equal(tdm__cuda_check(CU_ILLEGAL_ADDRESS, "cuStreamQuery of %s", "GPU-1"),
                     TDM_E_DEVICE);
    assert_non_null(strstr(cause, "cuStreamQuery of GPU-1: CUDA_ERROR_ILLEGAL_ADDRESS (700"));
    faults_count = 0;
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_not_equal(tdm__cuda_check(others[i], "cuStreamQuery"), TDM_OK);
    }
    assert_int_equal(faults_count, 0);
}

/* A call that fails while GPUs are listed is named, and nothing is returned. */
static void test_calls_that_fail_are_named(void **state)
{
    static const char *const calls[] = {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid_v2",
                                        "cuDeviceGetName", "cuDeviceTotalMem_v2"};
    struct tdm__cuda_gpu gpu = {.device = 77};

    (void)state;
    if (cuda_gpu_is_real()) {
        skip();
    }
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "%s", calls[i]);
        name[strcspn(name, "_")] = '\0';
        cuda_gpu_fake.break_call(calls[i], 1, CU_INVALID_DEVICE);
        assert_int_equal(tdm__cuda_gpu_find("GPU-none", &gpu), TDM_E_DEVICE);
        assert_non_null(strstr(tdm_error_detail(), name));
        assert_non_null(strstr(tdm_error_detail(), "(101: "));
        assert_int_equal(gpu.device, 77);
    }
    cuda_gpu_fake.break_call("", 0, CU_SUCCESS);
    assert_int_equal(tdm__cuda_gpu_find("GPU-none", &gpu), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "no GPU GPU-none is visible to this process: GPU-"));
    assert_int_equal(tdm__cuda_gpu_at(0, &gpu), TDM_OK);
    assert_int_not_equal(gpu.device, 77);
}

/* The fake library, like the driver, answers every call with such an error from then on. */
static int break_this_process(void)
{
    uint64_t address;

    cuda_gpu_fake.break_call("cuDeviceGetCount", 1, CU_ILLEGAL_ADDRESS);
    return driver->cuDeviceGetCount(&(int){0}) == CU_ILLEGAL_ADDRESS &&
                   driver->cuDeviceGetCount(&(int){0}) == CU_ILLEGAL_ADDRESS &&
                   driver->cuMemAlloc_v2(&address, 8) == CU_ILLEGAL_ADDRESS
               ? 0
               : 1;
}

/* Starts tandem_copy for 64 bytes from `from` on, in accesses of 16 bytes. Returns the error of the
 * kernel. */
static int copy_from(uint64_t from, uint64_t to)
{
    struct tdm__cuda_batch batch = {.copy_ops = {{.from = (const unsigned char *)(uintptr_t)from,
                                                  .to = (unsigned char *)(uintptr_t)to,
                                                  .rows = 1,
                                                  .columns = 64,
                                                  .from_bytes = 1,
                                                  .from_unit = 16,
                                                  .to_unit = 16}}};
    void *arguments[] = {&batch};
    uint64_t lanes = 0;
    void *module;
    void *kernel;

    if (driver->cuModuleLoadData(&module, "// the fake library's own kernels") != CU_SUCCESS ||
        driver->cuModuleGetFunction(&kernel, module, "tandem_copy") != CU_SUCCESS ||
        driver->cuMemAlloc_v2(&lanes, sizeof(uint64_t) * TDM__CUDA_CHECKSUM_LANES) != CU_SUCCESS) {
        return -1;
    }
    batch.copy_ops[0].lanes = (unsigned long long *)(uintptr_t)lanes;
    (void)driver->cuLaunchKernel(kernel, 1, 1, 1, TDM__CUDA_THREADS_PER_BLOCK, 1, 1, 0, NULL,
                                 arguments, NULL);
    return driver->cuCtxSynchronize();
}

/* A GPU ends a kernel that accesses 16 bytes at an address that is no multiple of 16. */
static int read_misaligned_bytes(void)
{
    enum { MISALIGNED = 716 };
    struct tdm__cuda_gpu gpu;
    uint64_t memory;
    void *context;

    if (tdm__cuda_gpu_at(0, &gpu) != TDM_OK ||
        driver->cuDevicePrimaryCtxRetain(&context, gpu.device) != CU_SUCCESS ||
        driver->cuCtxPushCurrent_v2(context) != CU_SUCCESS ||
        driver->cuMemAlloc_v2(&memory, 4096) != CU_SUCCESS ||
        copy_from(memory, memory + 1024) != CU_SUCCESS) {
        return 1;
    }
    return copy_from(memory + 8, memory + 1024) == MISALIGNED &&
                   driver->cuDeviceGetCount(&(int){0}) == MISALIGNED &&
                   driver->cuMemAlloc_v2(&memory, 8) == MISALIGNED
               ? 0
               : 2;
}

/* Runs `break_process` in a process of its own, whose errors this process does not get. */
static void assert_only_that_process_breaks(int (*break_process)(void))
{
    pid_t pid;

    if (cuda_gpu_is_real()) {
        skip(); /* tests/gpu/sticky.c shows it. */
    }
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(break_process());
    }
    assert_int_equal(exit_code_of(pid), 0);
    assert_int_equal(driver->cuDeviceGetCount(&(int){0}), CU_SUCCESS);
}

static void test_fake_library_keeps_such_errors(void **state)
{
    (void)state;
    assert_only_that_process_breaks(break_this_process);
}

static void test_misaligned_address_is_such_an_error(void **state)
{
    (void)state;
    assert_only_that_process_breaks(read_misaligned_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_results_become_statuses, set_up),
        cmocka_unit_test_setup(test_errors_that_stick_are_faults_of_the_process, set_up),
        cmocka_unit_test_setup(test_calls_that_fail_are_named, set_up),
        cmocka_unit_test_setup(test_fake_library_keeps_such_errors, set_up),
        cmocka_unit_test_setup(test_misaligned_address_is_such_an_error, set_up),
    };
    int failed;

    cuda_gpu_choose((size_t)64 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
