/* comm_host_test.c - the shared-memory communicator, also when a member dies. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/host/host.h"
#include "colocate/comm/host/segment.h"
#include "runtime/clock.h"
#include "tests/support/lost_ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int make_segment(uint32_t ranks_count, size_t slot_bytes)
{
    const struct tdm__comm_segment_options options = {ranks_count, slot_bytes};
    int fd;

    assert_int_equal(tdm__comm_segment_create(&options, &fd), TDM_OK);
    return fd;
}

static const struct comm_suite_maker maker = {make_segment, tdm__comm_host_open, 0};

/* The parent acts as the daemon: it reaps the dead member and ends the group. */
static void killed_member_is_named_to_the_others(void **state)
{
    int fd = make_segment(3, 4096);
    struct tdm__comm_segment *segment;
    pid_t pids[3];

    (void)state;
    assert_int_equal(tdm__comm_segment_map(fd, true, &segment), TDM_OK);
    lost_ranks_start(&(struct lost_ranks){&maker, fd, 60000}, SIGKILL, pids);
    assert_int_equal(exit_code_of(pids[1]), -SIGKILL);
    tdm__comm_segment_abort(segment, 1, TDM__COMM_RANK_DIED);
    assert_int_equal(exit_code_of(pids[0]), LOST_RANKS_SAW_DEATH);
    assert_int_equal(exit_code_of(pids[2]), LOST_RANKS_SAW_DEATH);
    tdm__comm_segment_unmap(segment);
    (void)close(fd);
}

static void silent_member_is_named_at_the_deadline(void **state)
{
    int fd = make_segment(3, 4096);
    pid_t pids[3];

    (void)state;
    lost_ranks_start(&(struct lost_ranks){&maker, fd, 300}, SIGSTOP, pids);
    assert_int_equal(exit_code_of(pids[0]), LOST_RANKS_SAW_TIMEOUT);
    assert_int_equal(exit_code_of(pids[2]), LOST_RANKS_SAW_TIMEOUT);
    (void)kill(pids[1], SIGKILL);
    assert_int_equal(exit_code_of(pids[1]), -SIGKILL);
    (void)close(fd);
}

static void the_first_reason_stays(void **state)
{
    const struct tdm__collective_op call = {.kind = TDM__COLLECTIVE_BARRIER};
    int fd = make_segment(3, 4096);
    struct tdm__comm_segment *segment;

    (void)state;
    assert_int_equal(tdm__comm_segment_map(fd, false, &segment), TDM_OK);
    assert_int_equal(tdm__comm_segment_barrier(segment, 0, &call, tdm__deadline_after(1)),
                     TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "ranks 1, 2 of 3 did not come"));
    tdm__comm_segment_abort(segment, 2, TDM__COMM_RANK_DIED);
    assert_int_equal(tdm__comm_segment_barrier(segment, 0, &call, tdm__deadline_after(1)),
                     TDM_E_TIMEOUT);
    tdm__comm_segment_unmap(segment);
    (void)close(fd);
}

/* Enters rank 1's operation of 16 bytes; rank 0 has one of 8 bytes. */
static void *enter_with_16_bytes(void *arg)
{
    const struct tdm__collective_op call = {.kind = TDM__COLLECTIVE_BROADCAST, .size_bytes = 16};
    tdm_status status = tdm__comm_segment_barrier(arg, 1, &call, tdm__deadline_after(10000));
    bool is_good = status == TDM_E_INVAL && strstr(tdm_error_detail(), "rank 0 of 2") != NULL &&
                   strstr(tdm_error_detail(), "(8 bytes, here 16)") != NULL;

    return is_good ? arg : NULL;
}

static void different_sizes_are_told_to_both_ranks(void **state)
{
    const struct tdm__collective_op call = {.kind = TDM__COLLECTIVE_BROADCAST, .size_bytes = 8};
    int fd = make_segment(2, 4096);
    struct tdm__comm_segment *segments[2];
    pthread_t thread;
    void *good = NULL;

    (void)state;
    assert_int_equal(tdm__comm_segment_map(fd, false, &segments[0]), TDM_OK);
    assert_int_equal(tdm__comm_segment_map(fd, false, &segments[1]), TDM_OK);
    assert_int_equal(pthread_create(&thread, NULL, enter_with_16_bytes, segments[1]), 0);
    assert_int_equal(tdm__comm_segment_barrier(segments[0], 0, &call, tdm__deadline_after(10000)),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "rank 1 of 2"));
    assert_non_null(strstr(tdm_error_detail(), "(16 bytes, here 8)"));
    assert_int_equal(pthread_join(thread, &good), 0);
    assert_ptr_equal(good, segments[1]);
    tdm__comm_segment_unmap(segments[0]);
    tdm__comm_segment_unmap(segments[1]);
    (void)close(fd);
}

static void foreign_memory_is_refused(void **state)
{
    const struct tdm__comm_segment_options too_many = {TDM_COLLECTIVE_RANKS_MAX + 1, 4096};
    struct tdm__comm_segment *segment;
    struct tdm__comm *comm;
    int pair[2];
    int fd;

    (void)state;
    assert_int_equal(pipe(pair), 0);
    assert_int_not_equal(tdm__comm_segment_map(pair[0], false, &segment), TDM_OK);
    assert_int_equal(tdm__comm_segment_create(&too_many, &fd), TDM_E_LIMIT);
    fd = make_segment(2, 1);
    assert_int_equal(tdm__comm_host_open(fd, 2, 1, &comm), TDM_E_INVAL);
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    assert_int_equal(tdm__comm_segment_map(fd, false, &segment), TDM_E_PROTOCOL);
    (void)close(fd);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_member_is_named_to_the_others),
        cmocka_unit_test(silent_member_is_named_at_the_deadline),
        cmocka_unit_test(the_first_reason_stays),
        cmocka_unit_test(different_sizes_are_told_to_both_ranks),
        cmocka_unit_test(foreign_memory_is_refused),
    };

    return comm_suite_run("host, ranks are processes", &maker, 0) +
           cmocka_run_group_tests(tests, NULL, NULL) +
           comm_suite_run("host, ranks are threads", &maker, 1);
}
