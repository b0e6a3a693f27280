/* gpu_staged_test.c - how the communicator that moves data of GPUs through host memory fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/gpu/staged.h"

#include "colocate/comm/host/host.h"
#include "colocate/comm/host/segment.h"
#include "colocate/device/cuda/driver.h"
#include "runtime/clock.h"
#include "tests/conformance/nccl_suite.h"
#include "tests/support/cuda_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TIMEOUT_MS = 20000, PROMPT_MS = 5000, SLOT_BYTES = 4096, DATA_BYTES = 3 * SLOT_BYTES + 4 };

static int make_segment(uint32_t ranks_count, size_t slot_bytes)
{
    const struct tdm__comm_segment_options options = {ranks_count, slot_bytes};
    int fd;

    assert_int_equal(tdm__comm_segment_create(&options, &fd), TDM_OK);
    return fd;
}

static tdm_status open_staged(int fd, uint32_t rank, int64_t timeout_ms,
                              struct tdm__comm **comm_out)
{
    struct tdm__comm_gpu_options options = {.timeout_ms = timeout_ms, .slot_bytes = SLOT_BYTES};
    struct tdm__cuda_gpu gpu;
    tdm_status status;

    TDM_TRY(tdm__cuda_gpu_at(0, &gpu));
    TDM_TRY(tdm__comm_host_open(fd, rank, timeout_ms, &options.control_comm));
    options.gpu_uuid = gpu.uuid;
    status = tdm__comm_staged_open(&options, comm_out);
    if (status != TDM_OK) {
        options.control_comm->ops->destroy(options.control_comm);
    }
    return status;
}

static const struct comm_suite_maker maker = {make_segment, open_staged, 0};

/* Makes the GPU's context current, as the ranks' own code does: groups leave it as it was. */
static bool use_own_context(const struct tdm__cuda_driver *driver)
{
    void *context;

    return driver->cuDevicePrimaryCtxRetain(&context, 0) == CU_SUCCESS &&
           driver->cuCtxSetCurrent(context) == CU_SUCCESS;
}

/* Rank 1 cannot copy the second chunk; the others learn who gave up. */
static int fail_in_a_copy(int fd, uint32_t rank, uint32_t ranks_count)
{
    const struct tdm__cuda_driver *driver;
    int64_t begun_ms = tdm__clock_ms();
    struct tdm__comm *comm;
    uint64_t data;
    tdm_status status;

    (void)ranks_count;
    EXPECT(open_staged(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(tdm__cuda_driver(&driver) == TDM_OK);
    EXPECT(use_own_context(driver));
    EXPECT(driver->cuMemAlloc_v2(&data, DATA_BYTES) == CU_SUCCESS);
    if (rank == 1) {
        cuda_gpu_fake.break_call("cuMemcpyAsync", 3, CU_INVALID_VALUE);
    }
    status = comm->ops->all_reduce(comm, (void *)(uintptr_t)data, DATA_BYTES / sizeof(float),
                                   TDM__COMM_FLOAT32, TDM_SUM);
    EXPECT(status == (rank == 1 ? TDM_E_DEVICE : TDM_E_ABORTED));
    EXPECT(strstr(tdm_error_detail(), rank == 1 ? "rank 1 of 3: cuMemcpyAsync of 4096 bytes"
                                                : "rank 1 of 3 gave up") != NULL);
    EXPECT(tdm__clock_ms() - begun_ms < PROMPT_MS);
    comm->ops->destroy(comm);
    EXPECT(driver->cuMemFree_v2(data) == CU_SUCCESS && cuda_gpu_fake.things() == 0);
    return 0;
}

static void test_failing_copy_ends_the_call_for_all(void **state)
{
    (void)state;
    nccl_suite_run_ranks(&maker, 3, fail_in_a_copy);
}

/* Rank 0 cannot open; the others do not wait for it. */
static int fail_to_open(int fd, uint32_t rank, uint32_t ranks_count)
{
    int64_t begun_ms = tdm__clock_ms();
    struct tdm__comm *comm;

    (void)ranks_count;
    if (rank == 0) {
        struct tdm__cuda_gpu gpu;

        EXPECT(tdm__cuda_gpu_at(0, &gpu) == TDM_OK);
        cuda_gpu_fake.break_call("cuMemHostAlloc", 2, CU_OUT_OF_MEMORY);
        EXPECT(open_staged(fd, rank, TIMEOUT_MS, &comm) == TDM_E_DEVICE_FULL);
        EXPECT(cuda_gpu_fake.things() == 0);
        return 0;
    }
    EXPECT(open_staged(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(tdm__comm_barrier(comm) == TDM_E_ABORTED);
    EXPECT(strstr(tdm_error_detail(), "rank 0 of 2 gave up") != NULL);
    EXPECT(tdm__clock_ms() - begun_ms < PROMPT_MS);
    comm->ops->destroy(comm);
    return 0;
}

static void test_rank_that_cannot_open_is_not_waited_for(void **state)
{
    (void)state;
    nccl_suite_run_ranks(&maker, 2, fail_to_open);
}

/* The first answer is that the copy is not done. */
static int copy_slowly(int fd, uint32_t rank, uint32_t ranks_count)
{
    const struct tdm__cuda_driver *driver;
    struct tdm__comm *comm;
    uint64_t data;

    (void)ranks_count;
    EXPECT(open_staged(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(tdm__cuda_driver(&driver) == TDM_OK);
    EXPECT(use_own_context(driver));
    EXPECT(driver->cuMemAlloc_v2(&data, DATA_BYTES) == CU_SUCCESS);
    cuda_gpu_fake.break_call("cuStreamQuery", 1, CU_NOT_READY);
    EXPECT(comm->ops->broadcast(comm, (void *)(uintptr_t)data, DATA_BYTES, 0) == TDM_OK);
    comm->ops->destroy(comm);
    return 0;
}

static void test_copies_that_are_not_ready_are_asked_again(void **state)
{
    (void)state;
    nccl_suite_run_ranks(&maker, 1, copy_slowly);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failing_copy_ends_the_call_for_all),
        cmocka_unit_test(test_rank_that_cannot_open_is_not_waited_for),
        cmocka_unit_test(test_copies_that_are_not_ready_are_asked_again),
    };
    int failed;

    cuda_gpu_choose((size_t)64 << 20);
    if (cuda_gpu_is_real()) {
        (void)printf("skipped: only the fake CUDA library can be told to fail\n");
        return 77;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
