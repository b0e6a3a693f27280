/* comm_nccl_test.c - the communicator over NCCL: the conformance suite, lost ranks, pausing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/host/host.h"
#include "colocate/comm/host/segment.h"
#include "colocate/device/cuda/driver.h"
#include "runtime/clock.h"
#include "tests/conformance/nccl_suite.h"
#include "tests/support/cuda_gpu.h"
#include "tests/support/lost_ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NCCL_LIBRARY     TDM_TEST_BUILD_DIR "/tests/nccl_fake.so"
#define NCCL_OLD_LIBRARY TDM_TEST_BUILD_DIR "/tests/nccl_old_fake.so"

enum { TIMEOUT_MS = 20000, RANKS_MAX = COMM_SUITE_RANKS_MAX, SLOT_BYTES = 4096 };

static int make_segment(uint32_t ranks_count, size_t slot_bytes)
{
    const struct tdm__comm_segment_options options = {ranks_count, slot_bytes};
    int fd;

    assert_int_equal(tdm__comm_segment_create(&options, &fd), TDM_OK);
    return fd;
}

/* The ranks are on one node. */
static tdm_status open_nccl(int fd, uint32_t rank, int64_t timeout_ms, struct tdm__comm **comm_out)
{
    struct tdm__comm_gpu_options options = {.timeout_ms = timeout_ms, .slot_bytes = SLOT_BYTES};

    TDM_TRY(tdm__comm_host_open(fd, rank, timeout_ms, &options.control_comm));
    return nccl_suite_open_on(rank, &options, comm_out);
}

/* Acts as the daemon, which reaps the members that die. */
static void lose_rank(int fd, uint32_t rank)
{
    struct tdm__comm_segment *segment;

    assert_int_equal(tdm__comm_segment_map(fd, true, &segment), TDM_OK);
    tdm__comm_segment_abort(segment, rank, TDM__COMM_RANK_DIED);
    tdm__comm_segment_unmap(segment);
}

static struct comm_suite_maker maker = {make_segment, open_nccl, 0};

/* ---- pausing ----------------------------------------------------------------------------- */

enum { NCCL_BYTES = 8 << 20 }; /* Memory of a communicator of the fake library. */

/* Returns the free bytes of a rank's GPU. */
static size_t free_bytes(uint32_t rank)
{
    const struct tdm__cuda_driver *driver;
    struct tdm__cuda_gpu gpu;
    uint32_t gpus_count;
    size_t total = 0;
    size_t bytes = 0;
    void *context;
    TDM__CUDA_SCOPE(scope);

    if (tdm__cuda_driver(&driver) == TDM_OK && tdm__cuda_gpus_count(&gpus_count) == TDM_OK &&
        tdm__cuda_gpu_at(rank % gpus_count, &gpu) == TDM_OK &&
        driver->cuDevicePrimaryCtxRetain(&context, gpu.device) == CU_SUCCESS) {
        if (tdm__cuda_scope_enter(driver, context, &scope) == TDM_OK) {
            (void)driver->cuMemGetInfo_v2(&bytes, &total);
        }
        (void)driver->cuDevicePrimaryCtxRelease_v2(gpu.device);
    }
    return bytes;
}

/* Pauses and resumes a group again and again; each pause frees `freed` bytes or more. */
static int pause_and_resume(int fd, uint32_t rank, uint32_t ranks_count, size_t freed)
{
    struct tdm__comm *comm;
    uint32_t all[RANKS_MAX];
    size_t before;

    EXPECT(open_nccl(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    before = free_bytes(rank);
    for (int i = 0; i < 3; i++) {
        EXPECT(comm->ops->pause(comm) == TDM_OK);
        EXPECT(free_bytes(rank) >= before + freed);
        EXPECT(comm->ops->resume(comm) == TDM_OK);
        EXPECT(free_bytes(rank) < before + freed);
        EXPECT(comm->ops->all_gather(comm, &rank, sizeof(rank), all) == TDM_OK);
        for (uint32_t r = 0; r < ranks_count; r++) {
            EXPECT(all[r] == r);
        }
    }
    comm->ops->destroy(comm);
    return 0;
}

static int pause_nccl_that_suspends(int fd, uint32_t rank, uint32_t ranks_count)
{
    return pause_and_resume(fd, rank, ranks_count, cuda_gpu_is_real() ? 1 : NCCL_BYTES + 1);
}

static void paused_group_frees_the_memory_of_nccl_and_goes_on(void **state)
{
    char bytes[16];

    (void)state;
    (void)snprintf(bytes, sizeof(bytes), "%d", NCCL_BYTES);
    (void)setenv("FAKE_NCCL_BYTES", bytes, 1);
    nccl_suite_run_ranks(&maker, maker.ranks_max == 1 ? 1 : 2, pause_nccl_that_suspends);
    (void)unsetenv("FAKE_NCCL_BYTES");
}

static int pause_nccl_that_cannot_suspend(int fd, uint32_t rank, uint32_t ranks_count)
{
    return pause_and_resume(fd, rank, ranks_count, 1);
}

static void group_of_an_nccl_that_cannot_suspend_frees_its_staging_memory(void **state)
{
    (void)state;
    if (cuda_gpu_is_real()) {
        skip();
    }
    (void)setenv("TANDEM_NCCL_LIBRARY", NCCL_OLD_LIBRARY, 1);
    nccl_suite_run_ranks(&maker, 2, pause_nccl_that_cannot_suspend);
    (void)setenv("TANDEM_NCCL_LIBRARY", NCCL_LIBRARY, 1);
}

static int find_no_library(int fd, uint32_t rank, uint32_t ranks_count)
{
    struct tdm__comm *comm;

    (void)ranks_count;
    (void)setenv("TANDEM_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    EXPECT(open_nccl(fd, rank, TIMEOUT_MS, &comm) == TDM_E_UNSUPPORTED);
    EXPECT(strstr(tdm_error_detail(), "/nowhere/libnccl.so.2") != NULL);
    return 0;
}

static void missing_library_is_named(void **state)
{
    (void)state;
    nccl_suite_run_ranks(&maker, 1, find_no_library);
}

/* ---- calls of the driver that fail ------------------------------------------------------ */

/* Opens a group of one rank again and again; each time a later call of the driver fails, until none
 * does. */
static int open_with_failures(int fd, uint32_t rank, uint32_t ranks_count)
{
    struct tdm__comm *comm;
    tdm_status status = TDM_E_DEVICE;
    uint32_t all;
    uint64_t nth;

    (void)fd;
    (void)ranks_count;
    for (nth = 1; status != TDM_OK; nth++) {
        int segment = make_segment(1, SLOT_BYTES);

        EXPECT(nth < 200);
        cuda_gpu_fake.break_call("*", nth, CU_INVALID_VALUE);
        status = open_nccl(segment, rank, TIMEOUT_MS, &comm);
        cuda_gpu_fake.break_call("", 0, CU_SUCCESS);
        (void)close(segment);
        /* NCCL makes calls of the driver, too. */
        EXPECT(status == TDM_OK || strstr(tdm_error_detail(), "(1: ") != NULL ||
               strstr(tdm_error_detail(), "ncclCommInitRankConfig") != NULL);
    }
    EXPECT(nth > 10);
    EXPECT(comm->ops->all_gather(comm, &rank, sizeof(rank), &all) == TDM_OK);
    EXPECT(all == rank);
    comm->ops->destroy(comm);
    return 0;
}

static void call_that_fails_while_a_group_is_opened_is_named(void **state)
{
    (void)state;
    if (cuda_gpu_is_real()) {
        skip();
    }
    nccl_suite_run_ranks(&maker, 1, open_with_failures);
}

/* ---- on a real machine ------------------------------------------------------------------ */

static int find_each_other(int fd, uint32_t rank, uint32_t ranks_count)
{
    struct tdm__comm *comm;
    uint32_t all[RANKS_MAX];

    EXPECT(open_nccl(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(comm->ops->all_gather(comm, &rank, sizeof(rank), all) == TDM_OK);
    for (uint32_t r = 0; r < ranks_count; r++) {
        EXPECT(all[r] == r);
    }
    comm->ops->destroy(comm);
    return 0;
}

/* NCCL wants a GPU for each rank; newer versions may take two ranks on one.  In children, as
 * the driver must not be open here when ranks are forked. */
static bool work_with(uint32_t ranks_count)
{
    int fd = make_segment(ranks_count, 4096);
    pid_t pids[RANKS_MAX];
    bool worked = true;

    nccl_suite_start(fd, ranks_count, find_each_other, pids);
    for (uint32_t i = 0; i < ranks_count; i++) {
        worked &= exit_code_of(pids[i]) == 0;
    }
    (void)close(fd);
    return worked;
}

/* The number of ranks that NCCL connects on this machine, at most RANKS_MAX; 0 if not even one.
 * Each rank that fails prints the reason. */
static uint32_t find_ranks_max(void)
{
    uint32_t ranks_max = 0;

    while (ranks_max < RANKS_MAX && work_with(ranks_max + 1)) {
        ranks_max++;
    }
    (void)printf("NCCL connects %u ranks on this machine\n", ranks_max);
    (void)fflush(stdout);
    return ranks_max;
}

int main(void)
{
    struct nccl_suite_maker here = {{make_segment, open_nccl, 0}, lose_rank};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paused_group_frees_the_memory_of_nccl_and_goes_on),
        cmocka_unit_test(group_of_an_nccl_that_cannot_suspend_frees_its_staging_memory),
        cmocka_unit_test(missing_library_is_named),
        cmocka_unit_test(call_that_fails_while_a_group_is_opened_is_named),
    };
    int failed;

    (void)setenv("FAKE_CUDA_DEVICES", "4", 1); /* NCCL wants a GPU for each rank. */
    cuda_gpu_choose((size_t)256 << 20);
    if (!cuda_gpu_is_real()) {
        (void)setenv("TANDEM_NCCL_LIBRARY", NCCL_LIBRARY, 0);
    } else {
        maker.ranks_max = find_ranks_max();
        here.control_comm.ranks_max = maker.ranks_max;
        if (maker.ranks_max == 0) {
            (void)printf("skipped: NCCL does not connect a single rank\n");
            return 77;
        }
    }
    failed = comm_suite_run("nccl, ranks are processes", &maker, 0) +
             cmocka_run_group_tests(tests, NULL, NULL) +
             nccl_suite_run("nccl, ranks of a node", &here) +
             comm_suite_run("nccl, ranks are threads", &maker, 1);
    cuda_gpu_forget();
    return failed;
}
