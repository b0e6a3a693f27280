/* comm_tcp_test.c - the communicator between nodes: the conformance suite, and members that are
 * lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "tests/support/lost_ranks.h"
#include "tests/support/mesh_fixture.h"
#include "tests/support/test_random.h"

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

enum { COUNT = 6000, ROUNDS = 15 };

/* ---- members that are lost -------------------------------------------------------------- */

static const struct comm_suite_maker maker = {mesh_fixture_meeting, mesh_fixture_open, 0};

static void killed_member_is_named_to_the_others(void **state)
{
    int fd = mesh_fixture_meeting(3, 4096);
    pid_t pids[3];

    (void)state;
    lost_ranks_start(&(struct lost_ranks){&maker, fd, 60000}, SIGKILL, pids);
    assert_int_equal(exit_code_of(pids[1]), -SIGKILL);
    assert_int_equal(exit_code_of(pids[0]), LOST_RANKS_SAW_DEATH);
    assert_int_equal(exit_code_of(pids[2]), LOST_RANKS_SAW_DEATH);
    (void)close(fd);
}

/* Runs one operation of many chunks after the other and returns how the last one ended. */
static tdm_status exchange_until_failure(struct tdm__comm *comm)
{
    static float data[3 * COUNT];
    static float more[3 * COUNT];
    tdm_status status;

    do {
        status = comm->ops->all_reduce(comm, data, COUNT, TDM__COMM_FLOAT32, TDM_MAX);
        if (status == TDM_OK) {
            status = comm->ops->broadcast(comm, data, sizeof(data), 0);
        }
        if (status == TDM_OK) {
            status = comm->ops->gather(comm, more, sizeof(more) / 3, data, 2);
        }
        if (status == TDM_OK) {
            status = comm->ops->reduce_scatter(comm, data, COUNT, more);
        }
        if (status == TDM_OK) {
            status = comm->ops->all_gather(comm, more, sizeof(more) / 3, data);
        }
    } while (status == TDM_OK);
    return status;
}

static int exchange_until_death(int fd, uint32_t rank, useconds_t dies_after_us)
{
    struct tdm__comm *comm;
    int64_t start_ms;
    tdm_status status;

    if (mesh_fixture_open(fd, rank, 60000, &comm) != TDM_OK) {
        return LOST_RANKS_SAW_OTHER;
    }
    if (dies_after_us > 0) {
        /* No handler is installed, so the signal kills the process. */
        (void)ualarm(dies_after_us, 0);
    }
    start_ms = tdm__clock_ms();
    status = exchange_until_failure(comm);
    if (strstr(tdm_error_detail(), "rank 1 of 3") == NULL) {
        return LOST_RANKS_SAW_NO_NAME;
    }
    comm->ops->destroy(comm);
    return tdm__clock_ms() - start_ms > 30000 ? LOST_RANKS_LATE
           : status == TDM_E_ABORTED          ? LOST_RANKS_SAW_DEATH
                                              : LOST_RANKS_SAW_OTHER;
}

static void rank_that_dies_within_a_call_is_named_to_the_others(void **state)
{
    struct test_random chance = test_random_init("comm_tcp", 1);

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        useconds_t after_us = 1 + test_random_below(&chance, 30000);
        int fd = mesh_fixture_meeting(3, 4096);
        pid_t pids[3];

        for (uint32_t i = 0; i < 3; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0) {
                _exit(exchange_until_death(fd, i, i == 1 ? after_us : 0));
            }
        }
        assert_int_equal(exit_code_of(pids[1]), -SIGALRM);
        assert_int_equal(exit_code_of(pids[0]), LOST_RANKS_SAW_DEATH);
        assert_int_equal(exit_code_of(pids[2]), LOST_RANKS_SAW_DEATH);
        (void)close(fd);
    }
}

static void silent_member_is_named_at_the_deadline(void **state)
{
    int fd = mesh_fixture_meeting(3, 4096);
    pid_t pids[3];

    (void)state;
    lost_ranks_start(&(struct lost_ranks){&maker, fd, 2000}, SIGSTOP, pids);
    assert_int_equal(exit_code_of(pids[0]), LOST_RANKS_SAW_TIMEOUT);
    assert_int_equal(exit_code_of(pids[2]), LOST_RANKS_SAW_TIMEOUT);
    (void)kill(pids[1], SIGKILL);
    assert_int_equal(exit_code_of(pids[1]), -SIGKILL);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_member_is_named_to_the_others),
        cmocka_unit_test(rank_that_dies_within_a_call_is_named_to_the_others),
        cmocka_unit_test(silent_member_is_named_at_the_deadline),
    };

    return comm_suite_run("tcp, ranks are processes", &maker, 0) +
           cmocka_run_group_tests(tests, NULL, NULL) +
           comm_suite_run("tcp, ranks are threads", &maker, 1);
}
