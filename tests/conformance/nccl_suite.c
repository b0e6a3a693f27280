/* nccl_suite.c - what the communicator over NCCL promises, on whatever its ranks meet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/nccl_suite.h"

#include "colocate/comm/nccl/ending.h"
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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { TIMEOUT_MS = 20000, SLOT_BYTES = 4096, RANKS_MAX = COMM_SUITE_RANKS_MAX };

/* A call that need not wait for anybody ends within this time, far below the timeout. */
enum { PROMPT_MS = 5000 };
/* How long a rank is busy with something else, and how long another one may wait for it: longer
 * than TDM__NCCL_END_WAIT_MS, and less than the busy time. */
enum { BUSY_MS = 4500, LEAVE_MS = 3700 };

static const struct nccl_suite_maker *maker;

tdm_status nccl_suite_open_on(uint32_t place, struct tdm__comm_gpu_options *options,
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

/* Makes the context of the rank's GPU current until the scope ends, as the rank's own code does. */
static tdm_status enter_gpu(uint32_t rank, struct tdm__cuda_scope *scope)
{
    const struct tdm__cuda_driver *driver;
    uint32_t gpus_count;
    void *context;

    TDM_TRY(tdm__cuda_driver(&driver));
    TDM_TRY(tdm__cuda_gpus_count(&gpus_count));
    TDM_TRY(tdm__cuda_check(driver->cuDevicePrimaryCtxRetain(&context, (int)(rank % gpus_count)),
                            "cuDevicePrimaryCtxRetain"));
    return tdm__cuda_scope_enter(driver, context, scope);
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

/* Each rank gives NUMBERS elements to the next rank and gets as many from the one before. */
static int exchange_in_a_ring(struct tdm__comm *comm, const struct tdm__cuda_driver *driver,
                              uint32_t rank, uint32_t ranks_count)
{
    size_t bytes = NUMBERS * sizeof(float);
    uint32_t next = (rank + 1) % ranks_count;
    uint32_t before = (rank + ranks_count - 1) % ranks_count;
    size_t offsets[RANKS_MAX] = {0};
    size_t send_bytes[RANKS_MAX] = {0};
    size_t receive_bytes[RANKS_MAX] = {0};
    struct tdm__comm_exchange exchange = {.send_offsets = offsets,
                                          .send_bytes = send_bytes,
                                          .receive_offsets = offsets,
                                          .receive_bytes = receive_bytes,
                                          .part_bytes_max = bytes};
    uint64_t in;
    uint64_t out;

    EXPECT(gpu_numbers(driver, NUMBERS, (float)rank + 7, &in) == 0);
    EXPECT(gpu_numbers(driver, NUMBERS, 0, &out) == 0);
    send_bytes[next] = bytes;
    receive_bytes[before] = bytes;
    exchange.in = (const void *)(uintptr_t)in;
    exchange.out = (void *)(uintptr_t)out;
    EXPECT(comm->ops->exchange(comm, &exchange) == TDM_OK);
    EXPECT(all_are(driver, out, NUMBERS, ranks_count == 1 ? 0 : (float)before + 7));
    return 0;
}

/* The rank's own context is current all the time, which no collective changes. */
static int move_tensors_of(struct tdm__comm *comm, uint32_t rank, uint32_t ranks_count)
{
    const struct tdm__cuda_driver *driver;
    uint64_t in;
    uint64_t out;
    size_t bytes = NUMBERS * sizeof(float);
    TDM__CUDA_SCOPE(scope);

    EXPECT(enter_gpu(rank, &scope) == TDM_OK);
    EXPECT(tdm__cuda_driver(&driver) == TDM_OK);
    EXPECT(gpu_numbers(driver, NUMBERS, (float)rank + 1, &in) == 0);
    EXPECT(gpu_numbers(driver, (size_t)NUMBERS * ranks_count, 0, &out) == 0);
    EXPECT(comm->ops->all_gather(comm, (void *)(uintptr_t)in, bytes, (void *)(uintptr_t)out) ==
           TDM_OK);
    for (uint32_t i = 0; i < ranks_count; i++) {
        EXPECT(all_are(driver, out + i * bytes, NUMBERS, (float)i + 1));
    }
    EXPECT(gpu_numbers(driver, (size_t)NUMBERS * ranks_count, (float)rank + 1, &out) == 0);
    EXPECT(comm->ops->gather(comm, (void *)(uintptr_t)in, bytes, (void *)(uintptr_t)out,
                             ranks_count - 1) == TDM_OK);
    for (uint32_t i = 0; i < ranks_count && rank == ranks_count - 1; i++) {
        EXPECT(all_are(driver, out + i * bytes, NUMBERS, (float)i + 1));
    }
    EXPECT(gpu_numbers(driver, (size_t)NUMBERS * ranks_count, (float)rank + 1, &out) == 0);
    EXPECT(comm->ops->reduce_scatter(comm, (float *)(uintptr_t)out, NUMBERS,
                                     (float *)(uintptr_t)in) == TDM_OK);
    EXPECT(all_are(driver, in, NUMBERS, (float)(ranks_count * (ranks_count + 1)) / 2));
    EXPECT(gpu_numbers(driver, NUMBERS, (float)(rank + 1), &in) == 0);
    EXPECT(comm->ops->all_reduce(comm, (void *)(uintptr_t)in, NUMBERS, TDM__COMM_FLOAT32,
                                 TDM_MAX) == TDM_OK);
    EXPECT(all_are(driver, in, NUMBERS, (float)ranks_count));
    EXPECT(gpu_numbers(driver, NUMBERS, (float)rank, &out) == 0);
    EXPECT(comm->ops->broadcast(comm, (void *)(uintptr_t)out, bytes, ranks_count - 1) == TDM_OK);
    EXPECT(all_are(driver, out, NUMBERS, (float)(ranks_count - 1)));
    return exchange_in_a_ring(comm, driver, rank, ranks_count);
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
    for (uint32_t ranks_count = ranks_for(2, 1); ranks_count <= ranks_for(RANKS_MAX, 1);
         ranks_count++) {
        nccl_suite_run_ranks(&maker->control_comm, ranks_count, move_tensors);
    }
}

/* Rank 1 passes host memory where the others pass GPU memory. */
static int mix_memory(int fd, uint32_t rank, uint32_t ranks_count)
{
    static float numbers[NUMBERS * RANKS_MAX];
    const struct tdm__cuda_driver *driver;
    struct tdm__comm *comm;
    void *data = numbers;
    uint64_t address;
    TDM__CUDA_SCOPE(scope);

    EXPECT(maker->control_comm.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(enter_gpu(rank, &scope) == TDM_OK);
    EXPECT(tdm__cuda_driver(&driver) == TDM_OK);
    if (rank != 1) {
        EXPECT(gpu_numbers(driver, (size_t)NUMBERS * ranks_count, 1, &address) == 0);
        data = (void *)(uintptr_t)address;
    }
    EXPECT(comm->ops->broadcast(comm, data, NUMBERS * sizeof(float), 0) == TDM_E_INVAL);
    EXPECT(strstr(tdm_error_detail(), "has its data in ") != NULL);
    EXPECT(strstr(tdm_error_detail(), "must pass the same kind of memory") != NULL);
    EXPECT(strstr(tdm_error_detail(), "rank 1 ") != NULL);
    EXPECT(tdm__comm_barrier(comm) != TDM_OK);
    tdm__cuda_scope_leave(&scope);
    comm->ops->destroy(comm);
    return 0;
}

static void mixed_memory_is_refused(void **state)
{
    (void)state;
    nccl_suite_run_ranks(&maker->control_comm, ranks_for(3, 2), mix_memory);
}

/* Rank 0 wants the result of data on its GPU in host memory. */
static int receive_elsewhere(int fd, uint32_t rank, uint32_t ranks_count)
{
    static float numbers[NUMBERS * RANKS_MAX];
    size_t bytes = NUMBERS * sizeof(float);
    const struct tdm__cuda_driver *driver;
    int64_t begun_ms = tdm__clock_ms();
    struct tdm__comm *comm;
    uint64_t in;
    uint64_t out;
    tdm_status status;
    TDM__CUDA_SCOPE(scope);

    EXPECT(maker->control_comm.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(enter_gpu(rank, &scope) == TDM_OK);
    EXPECT(tdm__cuda_driver(&driver) == TDM_OK);
    EXPECT(gpu_numbers(driver, NUMBERS, 1, &in) == 0);
    EXPECT(gpu_numbers(driver, (size_t)NUMBERS * ranks_count, 1, &out) == 0);
    status = comm->ops->all_gather(comm, (void *)(uintptr_t)in, bytes,
                                   rank == 0 ? (void *)numbers : (void *)(uintptr_t)out);
    if (rank == 0) {
        EXPECT(status == TDM_E_INVAL);
        EXPECT(strstr(tdm_error_detail(), "the data to send lies in GPU memory and the result in "
                                          "host memory") != NULL);
    } else {
        EXPECT(status == TDM_E_ABORTED);
    }
    EXPECT(strstr(tdm_error_detail(), "rank 0 of ") != NULL);
    EXPECT(tdm__clock_ms() - begun_ms < 2 * PROMPT_MS);
    tdm__cuda_scope_leave(&scope);
    comm->ops->destroy(comm);
    return 0;
}

static void result_in_other_memory_is_refused(void **state)
{
    (void)state;
    nccl_suite_run_ranks(&maker->control_comm, ranks_for(3, 1), receive_elsewhere);
}

/* ---- when it goes wrong ----------------------------------------------------------------- */

static int fail_in_a_gather(int fd, uint32_t rank, uint32_t ranks_count)
{
    uint32_t all[RANKS_MAX];
    struct tdm__comm *comm;
    int64_t begun_ms;
    tdm_status status;

    (void)ranks_count;
    if (rank == 1) {
        (void)setenv("FAKE_NCCL_FAIL", "ncclAllGather:2:6", 1);
    }
    EXPECT(maker->control_comm.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(comm->ops->all_gather(comm, &rank, sizeof(rank), all) == TDM_OK);
    begun_ms = tdm__clock_ms();
    status = comm->ops->all_gather(comm, &rank, sizeof(rank), all);
    /* NCCL's abort waits for the others, who wait for this rank unless they were told before. */
    EXPECT(tdm__clock_ms() - begun_ms < PROMPT_MS);
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

static int leave_together(int fd, uint32_t rank, uint32_t ranks_count)
{
    uint32_t all[RANKS_MAX];
    struct tdm__comm *comm;
    int64_t begun_ms;

    EXPECT(maker->control_comm.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(comm->ops->all_gather(comm, &rank, sizeof(rank), all) == TDM_OK);
    EXPECT(all[ranks_count - 1] == ranks_count - 1);
    begun_ms = tdm__clock_ms();
    comm->ops->destroy(comm);
    EXPECT(tdm__clock_ms() - begun_ms < TDM__NCCL_END_WAIT_MS);
    EXPECT(cuda_gpu_is_real() || cuda_gpu_fake.things() == 0);
    return 0;
}

static void ranks_that_leave_together_free_everything(void **state)
{
    (void)state;
    nccl_suite_run_ranks(&maker->control_comm, ranks_for(3, 1), leave_together);
}

/* Rank 1 ends its part while rank 0 is busy with something else for a while. */
static int leave_a_busy_rank(int fd, uint32_t rank, bool gives_up)
{
    const struct timespec busy = {.tv_sec = BUSY_MS / 1000, .tv_nsec = BUSY_MS % 1000 * 1000000};
    uint32_t all[RANKS_MAX];
    struct tdm__comm *comm;
    int64_t begun_ms;

    EXPECT(maker->control_comm.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(comm->ops->all_gather(comm, &rank, sizeof(rank), all) == TDM_OK);
    EXPECT(tdm__comm_barrier(comm) == TDM_OK); /* NCCL has ended the gather on both. */
    if (rank == 0) {
        (void)nanosleep(&busy, NULL);
        EXPECT(tdm__comm_barrier(comm) == TDM_E_ABORTED);
        EXPECT(strstr(tdm_error_detail(), gives_up ? "rank 1 of 2 gave up" : "rank 1 of 2") !=
               NULL);
    }
    begun_ms = tdm__clock_ms();
    if (gives_up && rank == 1) {
        comm->ops->abort(comm);
    } else {
        comm->ops->destroy(comm);
    }
    EXPECT(tdm__clock_ms() - begun_ms < LEAVE_MS);
    return 0;
}

static int leave_alone(int fd, uint32_t rank, uint32_t ranks_count)
{
    (void)ranks_count;
    return leave_a_busy_rank(fd, rank, false);
}

static int give_up_alone(int fd, uint32_t rank, uint32_t ranks_count)
{
    (void)ranks_count;
    return leave_a_busy_rank(fd, rank, true);
}

/* Both at once, because each takes some seconds. */
static void leaving_and_giving_up_end_although_another_rank_is_busy(void **state)
{
    uint32_t ranks_count = ranks_for(2, 2);
    int fds[2] = {maker->control_comm.make(ranks_count, SLOT_BYTES),
                  maker->control_comm.make(ranks_count, SLOT_BYTES)};
    pid_t pids[4];

    (void)state;
    nccl_suite_start(fds[0], ranks_count, leave_alone, pids);
    nccl_suite_start(fds[1], ranks_count, give_up_alone, pids + 2);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(exit_code_of(pids[i]), 0);
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static int gather_slowly(int fd, uint32_t rank, uint32_t ranks_count)
{
    (void)setenv("FAKE_NCCL_INIT_MS", "300", 1);
    (void)setenv("FAKE_NCCL_ASKS", "40", 1);
    return move_tensors(fd, rank, ranks_count);
}

static void late_results_are_waited_for(void **state)
{
    (void)state;
    need_fake_nccl();
    nccl_suite_run_ranks(&maker->control_comm, 2, gather_slowly);
}

static int gather_until_failure(int fd, uint32_t rank, uint32_t ranks_count)
{
    uint32_t all[RANKS_MAX];
    struct tdm__comm *comm;
    tdm_status status = TDM_OK;
    int64_t begun_ms = 0;
    char died[64];

    if (rank == 1 && !cuda_gpu_is_real()) {
        /* In the call, so that the others wait for NCCL, which reports the lost rank first. */
        (void)setenv("FAKE_NCCL_FAIL", "ncclAllGather:4:-9", 1);
    }
    EXPECT(maker->control_comm.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    for (int i = 0; status == TDM_OK; i++) {
        if (rank == 1 && i == 3 && cuda_gpu_is_real()) {
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
    static const struct timespec news_delay = {.tv_nsec = 150000000};
    uint32_t ranks_count = ranks_for(3, 2);
    int fd = maker->control_comm.make(ranks_count, SLOT_BYTES);
    pid_t pids[3];

    (void)state;
    nccl_suite_start(fd, ranks_count, gather_until_failure, pids);
    assert_int_equal(exit_code_of(pids[1]), -SIGKILL);
    if (maker->lose != NULL) {
        (void)nanosleep(&news_delay, NULL); /* NCCL may report the lost rank before. */
        maker->lose(fd, 1);
    }
    assert_int_equal(exit_code_of(pids[0]), 0);
    if (ranks_count > 2) {
        assert_int_equal(exit_code_of(pids[2]), 0);
    }
    (void)close(fd);
}

int nccl_suite_run_data(const char *name, const struct nccl_suite_maker *how)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_move_between_gpus),
        cmocka_unit_test(mixed_memory_is_refused),
        cmocka_unit_test(result_in_other_memory_is_refused),
    };

    maker = how;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int nccl_suite_run(const char *name, const struct nccl_suite_maker *how)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_move_between_gpus),
        cmocka_unit_test(mixed_memory_is_refused),
        cmocka_unit_test(result_in_other_memory_is_refused),
        cmocka_unit_test(late_results_are_waited_for),
        cmocka_unit_test(ranks_that_leave_together_free_everything),
        cmocka_unit_test(leaving_and_giving_up_end_although_another_rank_is_busy),
        cmocka_unit_test(error_of_one_rank_ends_the_call_for_all),
        cmocka_unit_test(call_that_hangs_ends_at_the_deadline),
        cmocka_unit_test(killed_rank_is_named_to_the_others),
    };

    maker = how;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
