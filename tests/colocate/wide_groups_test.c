/* wide_groups_test.c - groups with more ranks than a word has bits: all operations, and a rank with
 * a high number that is lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/host/host.h"
#include "colocate/comm/host/segment.h"
#include "tests/support/lost_ranks.h"
#include "tests/support/mesh_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* A sanitizer makes handshakes and threads several times as slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RANKS = 72 };
#else
enum { RANKS = 96 };
#endif
enum { SLOT_BYTES = 4096, TIMEOUT_MS = 60000, LOST = 70, PARTS = 3 };

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return __LINE__;                                                                       \
        }                                                                                          \
    } while (0)

/* Reductions, whose results are exact. Returns 0, or the line that went wrong. */
static int reduce(struct tdm__comm *comm)
{
    double sums[2] = {1, comm->rank};
    float highest = (float)comm->rank;
    float in[RANKS * 2];
    float out[2];

    EXPECT(comm->ops->all_reduce(comm, sums, 2, TDM__COMM_FLOAT64, TDM_SUM) == TDM_OK);
    EXPECT(sums[0] == RANKS && sums[1] == RANKS * (RANKS - 1) / 2.0);
    EXPECT(comm->ops->all_reduce(comm, &highest, 1, TDM__COMM_FLOAT32, TDM_MAX) == TDM_OK);
    EXPECT(highest == RANKS - 1);
    for (uint32_t i = 0; i < RANKS * 2; i++) {
        in[i] = (float)i;
    }
    EXPECT(comm->ops->reduce_scatter(comm, in, 2, out) == TDM_OK);
    EXPECT(out[0] == (float)(comm->rank * 2 * RANKS));
    EXPECT(out[1] == (float)((comm->rank * 2 + 1) * RANKS));
    return 0;
}

/* Operations that move bytes. The root has a high number. */
static int move(struct tdm__comm *comm)
{
    uint32_t own = comm->rank + 1000;
    uint32_t of_root = comm->rank == LOST ? 7 : 0;
    uint32_t all[RANKS] = {0};

    EXPECT(comm->ops->all_gather(comm, &own, sizeof(own), all) == TDM_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        EXPECT(all[i] == i + 1000);
    }
    EXPECT(comm->ops->broadcast(comm, &of_root, sizeof(of_root), LOST) == TDM_OK);
    EXPECT(of_root == 7);
    memset(all, 0, sizeof(all));
    EXPECT(comm->ops->gather(comm, &own, sizeof(own), all, LOST) == TDM_OK);
    EXPECT(comm->rank != LOST || all[RANKS - 1] == RANKS - 1 + 1000);
    return 0;
}

/* Each rank gives each other one `to % PARTS` bytes. */
static int exchange(struct tdm__comm *comm)
{
    unsigned char in[RANKS * PARTS];
    unsigned char out[RANKS * PARTS] = {0};
    size_t offsets[RANKS];
    size_t send_bytes[RANKS];
    size_t receive_bytes[RANKS];
    const struct tdm__comm_exchange parts = {.in = in,
                                             .out = out,
                                             .send_offsets = offsets,
                                             .send_bytes = send_bytes,
                                             .receive_offsets = offsets,
                                             .receive_bytes = receive_bytes,
                                             .part_bytes_max = PARTS - 1};

    memset(in, (int)comm->rank, sizeof(in));
    for (uint32_t i = 0; i < RANKS; i++) {
        offsets[i] = (size_t)i * PARTS;
        send_bytes[i] = i % PARTS;
        receive_bytes[i] = comm->rank % PARTS;
    }
    EXPECT(comm->ops->exchange(comm, &parts) == TDM_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        for (uint32_t k = 0; k < PARTS && i != comm->rank; k++) {
            EXPECT(out[i * PARTS + k] == (k < comm->rank % PARTS ? i : 0));
        }
    }
    return 0;
}

/* Number of ranks that have ended all operations, in memory that child processes share. */
static _Atomic uint32_t *ended_count;

/* Waits until all ranks have ended all operations. Returns 0, or the line that went wrong. A rank
 * that is lost before ends what the others still exchange with each other. */
static int await_all_ended(void)
{
    for (int ms = 0; *ended_count < RANKS && ms < TIMEOUT_MS; ms++) {
        (void)usleep(1000);
    }
    EXPECT(*ended_count == RANKS);
    return 0;
}

/* What a rank does: all operations, and then one that fails because rank LOST takes no part. Rank
 * LOST returns before that. */
static int run_rank(struct tdm__comm *comm, const char *expected)
{
    int line = reduce(comm);

    line = line == 0 ? move(comm) : line;
    line = line == 0 ? exchange(comm) : line;
    ++*ended_count;
    if (line != 0 || comm->rank == LOST) {
        return line != 0 ? line : await_all_ended();
    }
    EXPECT(tdm__comm_barrier(comm) == TDM_E_ABORTED);
    EXPECT(strstr(tdm_error_detail(), expected) != NULL);
    return 0;
}

/* Runs a rank whose communicator is open or could not be opened, and says what went wrong. */
static int run_opened(tdm_status opened, struct tdm__comm *comm, uint32_t rank,
                      const char *expected)
{
    int line = opened == TDM_OK ? run_rank(comm, expected) : __LINE__;

    if (line != 0) {
        (void)fprintf(stderr, "rank %u: line %d: %s\n", rank, line, tdm_error_detail());
    }
    return line;
}

/* Maps the number of ranks that have ended, which is 0 then. */
static int share_count(void **state)
{
    (void)state;
    ended_count =
        mmap(NULL, sizeof(*ended_count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return ended_count == MAP_FAILED ? -1 : 0;
}

/* ---- one node: threads ------------------------------------------------------------------- */

struct rank {
    pthread_t thread;
    int fd; /* The group's segment. */
    uint32_t number;
    int line; /* The line that went wrong, or 0. */
};

static void *run_thread(void *arg)
{
    struct rank *rank = arg;
    struct tdm__comm *comm = NULL;
    tdm_status status = tdm__comm_host_open(rank->fd, rank->number, TIMEOUT_MS, &comm);

    rank->line = run_opened(status, comm, rank->number, "rank 70 of ");
    if (status == TDM_OK) {
        comm->ops->destroy(comm); /* Rank LOST leaves, and the others wait for it. */
    }
    return NULL;
}

static void ranks_of_one_node_run_all_operations_and_see_one_leave(void **state)
{
    const struct tdm__comm_segment_options options = {RANKS, SLOT_BYTES};
    struct tdm__comm_segment *segment;
    struct rank ranks[RANKS];
    int fd;

    (void)state;
    assert_int_equal(tdm__comm_segment_create(&options, &fd), TDM_OK);
    assert_int_equal(tdm__comm_segment_map(fd, true, &segment), TDM_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank){.fd = fd, .number = i};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, run_thread, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
        assert_int_equal(ranks[i].line, 0);
    }
    assert_true(tdm__comm_segment_all_left(segment));
    assert_int_equal(tdm__comm_segment_check(segment), TDM_E_ABORTED);
    assert_non_null(strstr(tdm_error_detail(), "rank 70 of "));
    assert_non_null(strstr(tdm_error_detail(), " has left"));
    tdm__comm_segment_unmap(segment);
    (void)close(fd);
}

static void many_missing_ranks_are_named_and_counted(void **state)
{
    const struct tdm__comm_segment_options options = {TDM_COLLECTIVE_RANKS_MAX, SLOT_BYTES};
    struct tdm__comm *comm;
    int fd;

    (void)state;
    assert_int_equal(tdm__comm_segment_create(&options, &fd), TDM_OK);
    assert_int_equal(tdm__comm_host_open(fd, TDM_COLLECTIVE_RANKS_MAX - 1, 1, &comm), TDM_OK);
    assert_int_equal(tdm__comm_barrier(comm), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, "
                                               "13, 14, 15 and 239 more of 256 did not come"));
    comm->ops->destroy(comm);
    (void)close(fd);
}

/* A rank that leaves twice is counted once. */
static void group_is_deserted_when_the_last_rank_leaves(void **state)
{
    const struct tdm__comm_segment_options options = {RANKS, SLOT_BYTES};
    struct tdm__comm_segment *segment;
    int fd;

    (void)state;
    assert_int_equal(tdm__comm_segment_create(&options, &fd), TDM_OK);
    assert_int_equal(tdm__comm_segment_map(fd, true, &segment), TDM_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        tdm__comm_segment_leave(segment, LOST);
        assert_false(tdm__comm_segment_all_left(segment));
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_false(tdm__comm_segment_all_left(segment));
        tdm__comm_segment_leave(segment, i);
    }
    assert_true(tdm__comm_segment_all_left(segment));
    tdm__comm_segment_unmap(segment);
    (void)close(fd);
}

/* ---- several nodes: processes ------------------------------------------------------------ */

/* Runs a rank in a child. Rank LOST dies without leaving. */
static int run_process(int fd, uint32_t rank)
{
    struct tdm__comm *comm = NULL;
    tdm_status status = mesh_fixture_open(fd, rank, TIMEOUT_MS, &comm);
    int line = run_opened(status, comm, rank, "rank 70 of ");

    if (status == TDM_OK && rank != LOST) {
        comm->ops->destroy(comm);
    }
    return line == 0 ? 0 : 1;
}

static void ranks_of_a_mesh_run_all_operations_and_see_one_die(void **state)
{
    int fd = mesh_fixture_meeting(RANKS, SLOT_BYTES);
    pid_t pids[RANKS];
    int failed = 0;

    (void)state;
    for (uint32_t i = 0; i < RANKS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            _exit(run_process(fd, i));
        }
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        failed += exit_code_of(pids[i]) == 0 ? 0 : 1;
    }
    assert_int_equal(failed, 0);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(ranks_of_one_node_run_all_operations_and_see_one_leave, share_count),
        cmocka_unit_test(many_missing_ranks_are_named_and_counted),
        cmocka_unit_test(group_is_deserted_when_the_last_rank_leaves),
        cmocka_unit_test_setup(ranks_of_a_mesh_run_all_operations_and_see_one_die, share_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
