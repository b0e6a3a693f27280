/* comm_nccl_test.c - the communicator over NCCL: every promise, lost ranks, suspending. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/host/segment.h"
#include "colocate/device/cuda/driver.h"
#include "runtime/clock.h"
#include "tests/conformance/comm_suite.h"
#include "tests/support/cuda_gpu.h"
#include "tests/support/mesh_world.h"

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

#define NCCL_LIBRARY     TDM_TEST_BUILD_DIR "/tests/nccl_standin.so"
#define NCCL_OLD_LIBRARY TDM_TEST_BUILD_DIR "/tests/nccl_old_standin.so"

enum { TIMEOUT_MS = 20000, RANKS_MAX = 4, SLOT_BYTES = 4096 };

static int make_segment(uint32_t ranks_count, size_t slot_bytes)
{
    const struct tdm__segment_options options = {ranks_count, slot_bytes};
    int fd;

    assert_int_equal(tdm__segment_make(&options, &fd), TDM_OK);
    return fd;
}

/* On GPU number `place`, counted round the GPUs that there are; takes the meeting. */
static tdm_status open_on(uint32_t place, struct tdm__comm_nccl_options *options,
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
        options->meeting->ops->destroy(options->meeting);
    }
    return status;
}

/* The ranks are on one node. */
static tdm_status open_nccl(int fd, uint32_t rank, int64_t timeout_ms,
                            struct tdm__comm **comm_out)
{
    struct tdm__comm_nccl_options options = {.timeout_ms = timeout_ms,
                                             .slot_bytes = SLOT_BYTES};

    TDM_TRY(tdm__comm_host_open(fd, rank, timeout_ms, &options.meeting));
    return open_on(rank, &options, comm_out);
}

/* They need not be. */
static tdm_status open_across(int fd, uint32_t rank, int64_t timeout_ms,
                              struct tdm__comm **comm_out)
{
    struct tdm__comm_nccl_options options = {.timeout_ms = timeout_ms,
                                             .slot_bytes = SLOT_BYTES};

    TDM_TRY(mesh_world_open(fd, rank, timeout_ms, &options.meeting));
    return open_on(rank, &options, comm_out);
}

/* How ranks meet in the tests below. */
static struct comm_suite_maker maker = {make_segment, open_nccl};

/* ---- ranks as processes ----------------------------------------------------------------- */

/* What a rank does: 0, or the line that went wrong. */
typedef int rank_fn(int fd, uint32_t rank, uint32_t ranks_count);

#define EXPECT(condition)                                                                      \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            (void)fprintf(stderr, "line %d: %s\n", __LINE__, tdm_error_detail());              \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)

static void start_ranks(int fd, uint32_t ranks_count, rank_fn *fn, pid_t *pids)
{
    for (uint32_t i = 0; i < ranks_count; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            _exit(fn(fd, i, ranks_count));
        }
    }
}

static int exit_code_of(pid_t pid)
{
    int wait_status;

    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -WTERMSIG(wait_status);
}

static void run_ranks(uint32_t ranks_count, rank_fn *fn)
{
    int fd = maker.make(ranks_count, 4096);
    pid_t pids[RANKS_MAX];

    start_ranks(fd, ranks_count, fn, pids);
    for (uint32_t i = 0; i < ranks_count; i++) {
        assert_int_equal(exit_code_of(pids[i]), 0);
    }
    (void)close(fd);
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

static int move_tensors(int fd, uint32_t rank, uint32_t ranks_count)
{
    const struct tdm__cuda_driver *driver;
    struct tdm__comm *comm;
    uint64_t in;
    uint64_t out;
    size_t bytes = NUMBERS * sizeof(float);

    EXPECT(maker.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(tdm__cuda_driver(&driver) == TDM_OK);
    EXPECT(gpu_numbers(driver, NUMBERS, (float)rank + 1, &in) == 0);
    EXPECT(gpu_numbers(driver, (size_t)NUMBERS * ranks_count, 0, &out) == 0);
    EXPECT(comm->ops->all_gather(comm, (void *)(uintptr_t)in, bytes, (void *)(uintptr_t)out) ==
           TDM_OK);
    for (uint32_t i = 0; i < ranks_count; i++) {
        EXPECT(all_are(driver, out + i * bytes, NUMBERS, (float)i + 1));
    }
    EXPECT(comm->ops->gather(comm, (void *)(uintptr_t)in, bytes, (void *)(uintptr_t)out, 1) ==
           TDM_OK);
    EXPECT(comm->ops->reduce_scatter(comm, (float *)(uintptr_t)out, NUMBERS,
                                     (float *)(uintptr_t)in) == TDM_OK);
    EXPECT(all_are(driver, in, NUMBERS, (float)(ranks_count * (rank + 1))));
    EXPECT(comm->ops->all_reduce(comm, (void *)(uintptr_t)in, NUMBERS, TDM__FLOAT, TDM_MAX) ==
           TDM_OK);
    EXPECT(all_are(driver, in, NUMBERS, (float)(ranks_count * ranks_count)));
    EXPECT(gpu_numbers(driver, NUMBERS, (float)rank, &out) == 0);
    EXPECT(comm->ops->broadcast(comm, (void *)(uintptr_t)out, bytes, 1) == TDM_OK);
    EXPECT(all_are(driver, out, NUMBERS, 1));
    comm->ops->destroy(comm);
    return 0;
}

static void tensors_move_between_gpus(void **state)
{
    (void)state;
    run_ranks(3, move_tensors);
}

/* ---- suspending and splitting ----------------------------------------------------------- */

static int suspend_and_resume(int fd, uint32_t rank, uint32_t ranks_count)
{
    struct tdm__comm *comm;
    uint32_t all[RANKS_MAX];

    EXPECT(maker.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    for (int i = 0; i < 3; i++) {
        EXPECT(tdm__comm_nccl_suspend(comm) == TDM_OK);
        EXPECT(tdm__comm_nccl_resume(comm) == TDM_OK);
        EXPECT(comm->ops->all_gather(comm, &rank, sizeof(rank), all) == TDM_OK);
        for (uint32_t r = 0; r < ranks_count; r++) {
            EXPECT(all[r] == r);
        }
    }
    comm->ops->destroy(comm);
    return 0;
}

static void a_suspended_group_goes_on(void **state)
{
    (void)state;
    run_ranks(2, suspend_and_resume);
}

static void nccl_that_cannot_suspend_is_rebuilt(void **state)
{
    (void)state;
    if (cuda_gpu_is_real()) {
        skip();
    }
    (void)setenv("TANDEM_NCCL_LIBRARY", NCCL_OLD_LIBRARY, 1);
    run_ranks(2, suspend_and_resume);
    (void)setenv("TANDEM_NCCL_LIBRARY", NCCL_LIBRARY, 1);
}

static int part_fds[2];

static int split_in_halves(int fd, uint32_t rank, uint32_t ranks_count)
{
    struct tdm__comm *comm;
    struct tdm__comm_nccl_options options = {
        .timeout_ms = TIMEOUT_MS, .slot_bytes = SLOT_BYTES, .color = (int)(rank % 2)};
    struct tdm__comm *part;
    uint32_t pair[2];

    EXPECT(maker.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    options.parent = comm;
    EXPECT(tdm__comm_host_open(part_fds[rank % 2], rank / 2, TIMEOUT_MS, &options.meeting) ==
           TDM_OK);
    EXPECT(open_on(rank, &options, &part) == TDM_OK);
    EXPECT(part->ranks_count == ranks_count / 2);
    EXPECT(part->ops->all_gather(part, &rank, sizeof(rank), pair) == TDM_OK);
    EXPECT(pair[0] == rank % 2 && pair[1] == rank % 2 + 2);
    EXPECT(tdm__comm_barrier(comm) == TDM_OK);
    part->ops->destroy(part);
    comm->ops->destroy(comm);
    return 0;
}

static void a_group_splits_into_parts(void **state)
{
    (void)state;
    part_fds[0] = make_segment(2, 4096);
    part_fds[1] = make_segment(2, 4096);
    run_ranks(4, split_in_halves);
    (void)close(part_fds[0]);
    (void)close(part_fds[1]);
}

/* ---- when it goes wrong ----------------------------------------------------------------- */

static int fail_in_a_gather(int fd, uint32_t rank, uint32_t ranks_count)
{
    uint32_t all[RANKS_MAX];
    struct tdm__comm *comm;
    tdm_status status;

    (void)ranks_count;
    if (rank == 1) {
        (void)setenv("STANDIN_NCCL_FAIL", "ncclAllGather:2:6", 1);
    }
    EXPECT(maker.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    EXPECT(comm->ops->all_gather(comm, &rank, sizeof(rank), all) == TDM_OK);
    status = comm->ops->all_gather(comm, &rank, sizeof(rank), all);
    if (rank == 1) {
        EXPECT(status == TDM_E_DEVICE);
        EXPECT(strstr(tdm_error_detail(),
                      "rank 1 of 3: ncclAllGather: remote process exited") != NULL);
        EXPECT(strstr(tdm_error_detail(), "peer 2 does not answer") != NULL);
    } else {
        EXPECT(status == TDM_E_ABORTED);
        EXPECT(strstr(tdm_error_detail(), "rank 1 of 3 gave up") != NULL);
    }
    EXPECT(tdm__comm_barrier(comm) == TDM_E_ABORTED);
    comm->ops->destroy(comm);
    return 0;
}

static void an_error_of_one_rank_ends_the_call_for_all(void **state)
{
    (void)state;
    run_ranks(3, fail_in_a_gather);
}

static int hang_in_a_gather(int fd, uint32_t rank, uint32_t ranks_count)
{
    uint32_t all[RANKS_MAX];
    struct tdm__comm *comm;
    tdm_status status;

    (void)ranks_count;
    EXPECT(maker.open(fd, rank, 300, &comm) == TDM_OK);
    (void)setenv("STANDIN_NCCL_HANG", "1", 1);
    status = comm->ops->all_gather(comm, &rank, sizeof(rank), all);
    EXPECT(status == TDM_E_TIMEOUT || status == TDM_E_ABORTED);
    EXPECT(strstr(tdm_error_detail(), "rank ") != NULL);
    comm->ops->destroy(comm);
    return 0;
}

static void a_call_that_hangs_ends_at_the_deadline(void **state)
{
    (void)state;
    run_ranks(2, hang_in_a_gather);
}

static int gather_until_failure(int fd, uint32_t rank, uint32_t ranks_count)
{
    uint32_t all[RANKS_MAX];
    struct tdm__comm *comm;
    tdm_status status = TDM_OK;
    int64_t begun_ms = 0;

    (void)ranks_count;
    EXPECT(maker.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
    for (int i = 0; status == TDM_OK; i++) {
        if (rank == 1 && i == 3) {
            (void)setenv("STANDIN_NCCL_FAIL", "ncclAllGather:99:1", 1);
            (void)kill(getpid(), SIGKILL);
        }
        begun_ms = tdm__clock_ms();
        status = comm->ops->all_gather(comm, &rank, sizeof(rank), all);
    }
    EXPECT(status == TDM_E_ABORTED);
    EXPECT(strstr(tdm_error_detail(), "rank 1 of 3 died") != NULL);
    EXPECT(tdm__clock_ms() - begun_ms < 5000);
    comm->ops->destroy(comm);
    return 0;
}

/* The parent plays the daemon: it reaps the dead member and ends the group. */
static void a_killed_rank_is_named_to_the_others(void **state)
{
    int fd = make_segment(3, 4096);
    struct tdm__segment *segment;
    pid_t pids[3];

    (void)state;
    assert_int_equal(tdm__segment_map(fd, true, &segment), TDM_OK);
    start_ranks(fd, 3, gather_until_failure, pids);
    assert_int_equal(exit_code_of(pids[1]), -SIGKILL);
    tdm__segment_abort(segment, 1, TDM__RANK_DIED);
    assert_int_equal(exit_code_of(pids[0]), 0);
    assert_int_equal(exit_code_of(pids[2]), 0);
    tdm__segment_unmap(segment);
    (void)close(fd);
}

static void it_is_the_same_across_nodes(void **state)
{
    const struct comm_suite_maker here = maker;
    pid_t pids[3];
    int fd;

    maker = (struct comm_suite_maker){mesh_world_meeting, open_across};
    run_ranks(3, move_tensors);
    run_ranks(3, fail_in_a_gather);
    run_ranks(2, hang_in_a_gather);
    fd = maker.make(3, 4096);
    start_ranks(fd, 3, gather_until_failure, pids);
    assert_int_equal(exit_code_of(pids[1]), -SIGKILL);
    assert_int_equal(exit_code_of(pids[0]), 0);
    assert_int_equal(exit_code_of(pids[2]), 0);
    (void)close(fd);
    maker = here;
    (void)state;
}

static int find_no_library(int fd, uint32_t rank, uint32_t ranks_count)
{
    struct tdm__comm *comm;

    (void)ranks_count;
    (void)setenv("TANDEM_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    EXPECT(maker.open(fd, rank, TIMEOUT_MS, &comm) == TDM_E_UNSUPPORTED);
    EXPECT(strstr(tdm_error_detail(), "/nowhere/libnccl.so.2") != NULL);
    return 0;
}

static void a_missing_library_is_named(void **state)
{
    (void)state;
    run_ranks(1, find_no_library);
}

/* ---- on a real machine ------------------------------------------------------------------ */

static int find_each_other(int fd, uint32_t rank, uint32_t ranks_count)
{
    struct tdm__comm *comm;
    uint32_t all[RANKS_MAX];

    EXPECT(maker.open(fd, rank, TIMEOUT_MS, &comm) == TDM_OK);
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

    start_ranks(fd, ranks_count, find_each_other, pids);
    for (uint32_t i = 0; i < ranks_count; i++) {
        worked &= exit_code_of(pids[i]) == 0;
    }
    (void)close(fd);
    return worked;
}

/* Whether the suites can run here; else says why not. */
static bool is_worth_trying(void)
{
    bool alone = work_with(1);
    bool two = alone && work_with(2);
    bool four = two && work_with(RANKS_MAX);

    (void)printf("ranks that NCCL connects on this machine: 1 %s, 2 %s, %d %s\n",
                 alone ? "yes" : "no", two ? "yes" : "no", RANKS_MAX, four ? "yes" : "no");
    return four;
}

int main(void)
{
    static const struct comm_suite_maker across = {mesh_world_meeting, open_across};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_move_between_gpus),
        cmocka_unit_test(a_suspended_group_goes_on),
        cmocka_unit_test(nccl_that_cannot_suspend_is_rebuilt),
        cmocka_unit_test(a_group_splits_into_parts),
        cmocka_unit_test(an_error_of_one_rank_ends_the_call_for_all),
        cmocka_unit_test(a_call_that_hangs_ends_at_the_deadline),
        cmocka_unit_test(a_killed_rank_is_named_to_the_others),
        cmocka_unit_test(it_is_the_same_across_nodes),
        cmocka_unit_test(a_missing_library_is_named),
    };
    int failed;

    cuda_gpu_choose((size_t)256 << 20);
    if (!cuda_gpu_is_real()) {
        (void)setenv("TANDEM_NCCL_LIBRARY", NCCL_LIBRARY, 0);
    } else if (!is_worth_trying()) {
        return 77;
    }
    failed = comm_suite_run("nccl, ranks are processes", &maker, 0) +
             cmocka_run_group_tests(tests, NULL, NULL) +
             comm_suite_run("nccl, ranks are threads", &maker, 1) +
             comm_suite_run("nccl, ranks that meet over tcp", &across, 0);
    cuda_gpu_forget();
    return failed;
}
