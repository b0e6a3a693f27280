/* nccl_suite.c - what the communicator over NCCL promises, on whatever its ranks meet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/nccl_suite.h"

#include "colocate/comm/nccl/operation.h"
#include "colocate/device/cuda/driver.h"
#include "runtime/clock.h"
#include "tests/support/cuda_gpu.h"
#include "tests/support/lost_ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { TIMEOUT_MS = 20000, SLOT_BYTES = 4096, RANKS_MAX = COMM_SUITE_RANKS_MAX };

static const struct nccl_suite_maker *maker;

tdm_status nccl_suite_open_on(uint32_t place, struct tdm__comm_nccl_options *options,
                              struct tdm__comm **comm_out)
{
    struct tdm__cuda_gpu gpu;
    uint32_t gpus_count;
    tdm_status status = tdm__cuda_gpus_count(&gpus_count);

    if (status == TDM_OK) {
        status = tdm__cuda_gpu_at(place % gpus_count, &gpu);
    }
    if (status == TDM_OK) {
        options->gpu_uuid = gpu.uuid;
        status = tdm__comm_nccl_open(options, comm_out);
    }
    if (status != TDM_OK) {
        options->control_comm->ops->destroy(options->control_comm);
    }
    return status;
}

/* ---- ranks as processes ----------------------------------------------------------------- */

void nccl_suite_start(int fd, uint32_t ranks_count, nccl_rank_fn *fn, pid_t *pids)
{
    for (uint32_t i = 0; i < ranks_count; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            _exit(fn(fd, i, ranks_count));
        }
    }
}

void nccl_suite_run_ranks(const struct comm_suite_maker *control_comm, uint32_t ranks_count,
                          nccl_rank_fn *fn)
{
    int fd = control_comm->make(ranks_count, SLOT_BYTES);
    pid_t pids[RANKS_MAX];

    nccl_suite_start(fd, ranks_count, fn, pids);
    for (uint32_t i = 0; i < ranks_count; i++) {
        assert_int_equal(exit_code_of(pids[i]), 0);
    }
    (void)close(fd);
}

/* The number of ranks for a test: `wanted`, or fewer where the machine connects fewer.  Skips
 * the test if that is less than `ranks_min`. */
static uint32_t ranks_for(uint32_t wanted, uint32_t ranks_min)
{
    uint32_t ranks_max =
        maker->control_comm.ranks_max != 0 ? maker->control_comm.ranks_max : RANKS_MAX;
    uint32_t ranks_count = wanted < ranks_max ? wanted : ranks_max;

    if (ranks_count < ranks_min) {
        (void)printf("skipped: needs %u ranks, this machine connects %u\n", ranks_min, ranks_max);
        skip();
    }
    return ranks_count;
}

/* A real NCCL cannot be told to fail or to hang. */
static void need_fake_nccl(void)
{
    if (cuda_gpu_is_real()) {
        (void)printf("skipped: only the fake NCCL can be told to fail\n");
        skip();
    }
}

/* ---- data on the GPU -------------------------------------------------------------------- */

enum { NUMBERS = 3000 };

static int gpu_numbers(const struct tdm__cuda_driver *driver, size_t count, float value,
                       uint64_t *address_out)
{
    float *numbers = malloc(count * sizeof(float));
    int result;

    for (size_t i = 0; i < count; i++) {
        numbers[i] = value;
    }
    EXPECT(driver->cuMemAlloc_v2(address_out, count * sizeof(float)) == CU_SUCCESS);
    result = driver->cuMemcpyHtoD_v2(*address_out, numbers, count * sizeof(float));
    free(numbers);
    return result;
}

static int all_are(const struct tdm__cuda_driver *driver, uint64_t address, size_t count,
                   float value)
{
    float *numbers = calloc(count, sizeof(float));
    int same = driver->cuMemcpyDtoH_v2(numbers, address, count * sizeof(float)) == CU_SUCCESS;

    for (size_t i = 0; i < count; i++) {
        same &= numbers[i] == value;
    }
    free(numbers);
    return same;
}

/* The rank's own context is current all the time, which no collective changes. */
static int move_tensors_of(struct tdm__comm *comm, uint32_t rank, uint32_t ranks_count)
{
    const struct tdm__cuda_driver *driver;
    uint64_t in;
    uint64_t out;
    size_t bytes = NUMBERS * sizeof(float);
    TDM__CUDA_SCOPE(scope);

    EXPECT(tdm__nccl_enter((struct tdm__nccl *)comm, &scope) == TDM_OK);
    EXPECT(tdm__cuda_driver(&driver) == TDM_OK);
    EXPECT(gpu_numbers(driver, NUMBERS, (float)rank + 1, &in) == 0);
    EXPECT(gpu_numbers(driver, (size_t)NUMBERS * ranks_count, 0, &out) == 0);
    EXPECT(comm->ops->all_gather(comm, (void *)(uintptr_t)in, bytes, (void *)(uintptr_t)out) ==
           TDM_OK);
    for (uint32_t i = 0; i < ranks_count; i++) {
        EXPECT(all_are(driver, out + i * bytes, NUMBERS, (float)i + 1));
    }
    EXPECT(comm->ops->gather(comm, (void *)(uintptr_t)in, bytes, (void *)(uintptr_t)out,
                             ranks_count - 1) == TDM_OK);
    EXPECT(comm->ops->reduce_scatter(comm, (float *)(uintptr_t)out, NUMBERS,
                                     (float *)(uintptr_t)in) == TDM_OK);
    EXPECT(all_are(driver, in, NUMBERS, (float)(ranks_count * (rank + 1))));
    EXPECT(comm->ops->all_reduce(comm, (void *)(uintptr_t)in, NUMBERS, TDM__COMM_FLOAT32,
                                 TDM_MAX) == TDM_OK);
    EXPECT(all_are(driver, in, NUMBERS, (float)(ranks_count * ranks_count)));
    EXPECT(gpu_numbers(driver, NUMBERS, (float)rank, &out) == 0);
    EXPECT(comm->ops->broadcast(comm, (void *)(uintptr_t)out, bytes, ranks_count - 1) == TDM_OK);
    EXPECT(all_are(driver, out, NUMBERS, (float)(ranks_count - 1)));
    return 0;
}

static int move_tensors(int fd, uint32_t rank, uint32_t ranks_count)
{
    const struct tdm__cuda_driver *driver;
    struct tdm__comm *comm;
    uint64_t address;
    int result;

    EXPECT(maker->control_comm.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    result = move_tensors_of(comm, rank, ranks_count);
    EXPECT(tdm__cuda_driver(&driver) == TDM_OK);
    /* The thread has no context, as before the group was opened. */
    EXPECT(driver->cuMemAlloc_v2(&address, sizeof(address)) != CU_SUCCESS);
    comm->ops->destroy(comm);
    return result;
}

static void tensors_move_between_gpus(void **state)
{
    (void)state;
    nccl_suite_run_ranks(&maker->control_comm, ranks_for(3, 1), move_tensors);
}

/* ---- when it goes wrong ----------------------------------------------------------------- */

static int fail_in_a_gather(int fd, uint32_t rank, uint32_t ranks_count)
{
    uint32_t all[RANKS_MAX];
    struct tdm__comm *comm;
    tdm_status status;

    (void)ranks_count;
    if (rank == 1) {
        (void)setenv("FAKE_NCCL_FAIL", "ncclAllGather:2:6", 1);
    }
    EXPECT(maker->control_comm.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(comm->ops->all_gather(comm, &rank, sizeof(rank), all) == TDM_OK);
    status = comm->ops->all_gather(comm, &rank, sizeof(rank), all);
    if (rank == 1) {
        EXPECT(status == TDM_E_DEVICE);
        EXPECT(strstr(tdm_error_detail(), "rank 1 of 3: ncclAllGather: remote process exited") !=
               NULL);
        EXPECT(strstr(tdm_error_detail(), "peer 2 does not answer") != NULL);
    } else {
        EXPECT(status == TDM_E_ABORTED);
        EXPECT(strstr(tdm_error_detail(), "rank 1 of 3 gave up") != NULL);
    }
    EXPECT(tdm__comm_barrier(comm) == TDM_E_ABORTED);
    comm->ops->destroy(comm);
    return 0;
}

static void error_of_one_rank_ends_the_call_for_all(void **state)
{
    (void)state;
    need_fake_nccl();
    nccl_suite_run_ranks(&maker->control_comm, 3, fail_in_a_gather);
}

static int hang_in_a_gather(int fd, uint32_t rank, uint32_t ranks_count)
{
    uint32_t all[RANKS_MAX];
    struct tdm__comm *comm;
    tdm_status status;

    (void)ranks_count;
    EXPECT(maker->control_comm.open(fd, rank, 300, &comm) == TDM_OK);
    (void)setenv("FAKE_NCCL_HANG", "1", 1);
    status = comm->ops->all_gather(comm, &rank, sizeof(rank), all);
    EXPECT(status == TDM_E_TIMEOUT || status == TDM_E_ABORTED);
    EXPECT(strstr(tdm_error_detail(), "rank ") != NULL);
    comm->ops->destroy(comm);
    return 0;
}

static void call_that_hangs_ends_at_the_deadline(void **state)
{
    (void)state;
    need_fake_nccl();
    nccl_suite_run_ranks(&maker->control_comm, 2, hang_in_a_gather);
}

static int gather_until_failure(int fd, uint32_t rank, uint32_t ranks_count)
{
    uint32_t all[RANKS_MAX];
    struct tdm__comm *comm;
    tdm_status status = TDM_OK;
    int64_t begun_ms = 0;
    char died[64];

    EXPECT(maker->control_comm.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    for (int i = 0; status == TDM_OK; i++) {
        if (rank == 1 && i == 3) {
            (void)setenv("FAKE_NCCL_FAIL", "ncclAllGather:99:1", 1);
            (void)kill(getpid(), SIGKILL);
        }
        begun_ms = tdm__clock_ms();
        status = comm->ops->all_gather(comm, &rank, sizeof(rank), all);
    }
    EXPECT(status == TDM_E_ABORTED);
    (void)snprintf(died, sizeof(died), "rank 1 of %u died", ranks_count);
    EXPECT(strstr(tdm_error_detail(), died) != NULL);
    EXPECT(tdm__clock_ms() - begun_ms < 5000);
    comm->ops->destroy(comm);
    return 0;
}

static void killed_rank_is_named_to_the_others(void **state)
{
    uint32_t ranks_count = ranks_for(3, 2);
    int fd = maker->control_comm.make(ranks_count, SLOT_BYTES);
    pid_t pids[3];

    (void)state;
    nccl_suite_start(fd, ranks_count, gather_until_failure, pids);
    assert_int_equal(exit_code_of(pids[1]), -SIGKILL);
    if (maker->lose != NULL) {
        maker->lose(fd, 1);
    }
    assert_int_equal(exit_code_of(pids[0]), 0);
    if (ranks_count > 2) {
        assert_int_equal(exit_code_of(pids[2]), 0);
    }
    (void)close(fd);
}

int nccl_suite_run(const char *name, const struct nccl_suite_maker *how)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_move_between_gpus),
        cmocka_unit_test(error_of_one_rank_ends_the_call_for_all),
        cmocka_unit_test(call_that_hangs_ends_at_the_deadline),
        cmocka_unit_test(killed_rank_is_named_to_the_others),
    };

    maker = how;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
