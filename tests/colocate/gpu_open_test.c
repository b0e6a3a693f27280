/* gpu_open_test.c - groups whose ranks share GPUs: which communicator they get, and all that it
 * promises. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/gpu/open.h"

#include "colocate/comm/host/host.h"
#include "colocate/comm/host/segment.h"
#include "colocate/device/cuda/driver.h"
#include "tests/conformance/nccl_suite.h"
#include "tests/support/cuda_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TIMEOUT_MS = 20000, SLOT_BYTES = 4096 };

static int make_segment(uint32_t ranks_count, size_t slot_bytes)
{
    const struct tdm__comm_segment_options options = {ranks_count, slot_bytes};
    int fd;

    assert_int_equal(tdm__comm_segment_create(&options, &fd), TDM_OK);
    return fd;
}

/* Opens a communicator on GPU number `index`. */
static tdm_status open_on(uint32_t index, int fd, uint32_t rank, int64_t timeout_ms,
                          struct tdm__comm **comm_out)
{
    struct tdm__comm_gpu_options options = {.timeout_ms = timeout_ms, .slot_bytes = SLOT_BYTES};
    struct tdm__cuda_gpu gpu;
    tdm_status status;

    TDM_TRY(tdm__cuda_gpu_at(index, &gpu));
    TDM_TRY(tdm__comm_host_open(fd, rank, timeout_ms, &options.control_comm));
    options.gpu_uuid = gpu.uuid;
    status = tdm__comm_gpu_open(&options, comm_out);
    if (status != TDM_OK) {
        options.control_comm->ops->destroy(options.control_comm);
    }
    return status;
}

/* All ranks are on one GPU. */
static tdm_status open_on_one_gpu(int fd, uint32_t rank, int64_t timeout_ms,
                                  struct tdm__comm **comm_out)
{
    return open_on(0, fd, rank, timeout_ms, comm_out);
}

static const struct comm_suite_maker one_gpu = {make_segment, open_on_one_gpu, 0};

/* Rank i is on GPU i % gpus_count and expects a communicator with that name. */
static int expect_comm(int fd, uint32_t rank, uint32_t gpus_count, const char *name)
{
    struct tdm__comm *comm;
    uint32_t all[COMM_SUITE_RANKS_MAX];

    EXPECT(open_on(rank % gpus_count, fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(strcmp(comm->ops->name, name) == 0);
    EXPECT(comm->ops->all_gather(comm, &rank, sizeof(rank), all) == TDM_OK);
    EXPECT(all[1] == 1);
    comm->ops->destroy(comm);
    return 0;
}

static int share_one_gpu(int fd, uint32_t rank, uint32_t ranks_count)
{
    (void)ranks_count;
    return expect_comm(fd, rank, 1, "staged");
}

static void test_ranks_of_one_gpu_use_host_memory(void **state)
{
    (void)state;
    nccl_suite_run_ranks(&one_gpu, 2, share_one_gpu);
}

static int share_one_of_three_gpus(int fd, uint32_t rank, uint32_t ranks_count)
{
    return expect_comm(fd, rank, ranks_count - 1, "staged");
}

static void test_one_shared_gpu_is_enough(void **state)
{
    (void)state;
    if (cuda_gpu_is_real()) {
        skip();
    }
    nccl_suite_run_ranks(&one_gpu, 4, share_one_of_three_gpus);
}

static int use_own_gpus(int fd, uint32_t rank, uint32_t ranks_count)
{
    return expect_comm(fd, rank, ranks_count, "nccl");
}

static void test_ranks_with_own_gpus_use_nccl(void **state)
{
    (void)state;
    if (cuda_gpu_is_real()) {
        skip();
    }
    nccl_suite_run_ranks(&one_gpu, 4, use_own_gpus);
}

static int let_nccl_share(int fd, uint32_t rank, uint32_t ranks_count)
{
    (void)ranks_count;
    (void)setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    return expect_comm(fd, rank, 1, "nccl");
}

/* The others must not go to NCCL without the rank that does not allow it. */
static int let_nccl_share_in_one_rank(int fd, uint32_t rank, uint32_t ranks_count)
{
    (void)ranks_count;
    (void)setenv("NCCL_MULTI_RANK_GPU_ENABLE", rank == 0 ? "0" : "1", 1);
    return expect_comm(fd, rank, 1, "staged");
}

static void test_nccl_shares_a_gpu_if_all_ranks_allow_it(void **state)
{
    (void)state;
    if (cuda_gpu_is_real()) {
        skip(); /* Only newer versions of NCCL can do it; comm_nccl_test tries. */
    }
    nccl_suite_run_ranks(&one_gpu, 2, let_nccl_share);
    nccl_suite_run_ranks(&one_gpu, 3, let_nccl_share_in_one_rank);
}

/* NCCL itself refuses, so that the choice matters. */
static int open_nccl_on_one_gpu(int fd, uint32_t rank, uint32_t ranks_count)
{
    struct tdm__comm_gpu_options options = {.timeout_ms = TIMEOUT_MS, .slot_bytes = SLOT_BYTES};
    struct tdm__comm *comm;
    tdm_status status;

    (void)ranks_count;
    EXPECT(tdm__comm_host_open(fd, rank, TIMEOUT_MS, &options.control_comm) == TDM_OK);
    status = nccl_suite_open_on(0, &options, &comm);
    EXPECT(status == TDM_E_ABORTED ||
           (status == TDM_E_DEVICE && strstr(tdm_error_detail(), "Duplicate GPU") != NULL));
    return 0;
}

static void test_nccl_refuses_one_gpu_for_two_ranks(void **state)
{
    (void)state;
    if (cuda_gpu_is_real()) {
        skip();
    }
    nccl_suite_run_ranks(&one_gpu, 2, open_nccl_on_one_gpu);
}

/* Keeps the context of the first GPU until the end, because making one in each test takes long.
 * Ranks must be threads from here on. */
static void keep_context(void)
{
    const struct tdm__cuda_driver *driver;
    struct tdm__cuda_gpu gpu;
    void *context;

    assert_int_equal(tdm__cuda_driver(&driver), TDM_OK);
    assert_int_equal(tdm__cuda_gpu_at(0, &gpu), TDM_OK);
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(&context, gpu.device), CU_SUCCESS);
}

int main(void)
{
    static const struct nccl_suite_maker suite = {{make_segment, open_on_one_gpu, 0}, NULL};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_of_one_gpu_use_host_memory),
        cmocka_unit_test(test_one_shared_gpu_is_enough),
        cmocka_unit_test(test_ranks_with_own_gpus_use_nccl),
        cmocka_unit_test(test_nccl_shares_a_gpu_if_all_ranks_allow_it),
        cmocka_unit_test(test_nccl_refuses_one_gpu_for_two_ranks),
    };
    int failed;

    (void)unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
    (void)setenv("FAKE_CUDA_DEVICES", "4", 1);
    cuda_gpu_choose((size_t)256 << 20);
    if (!cuda_gpu_is_real()) {
        (void)setenv("TANDEM_NCCL_LIBRARY", TDM_TEST_BUILD_DIR "/tests/nccl_fake.so", 0);
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL) +
             nccl_suite_run_data("ranks on one GPU, data on it", &suite);
    if (cuda_gpu_is_real()) {
        keep_context();
    }
    failed += comm_suite_run("ranks on one GPU, data in host memory", &one_gpu, cuda_gpu_is_real());
    cuda_gpu_forget();
    return failed;
}
