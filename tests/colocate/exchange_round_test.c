/* exchange_round_test.c - a round brings pieces and their checksums to the other rank. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/exchange_round.h"

#include "colocate/comm/collective.h"
#include "colocate/comm/host/host.h"
#include "colocate/comm/host/segment.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { RANKS = 2, TIMEOUT_MS = 20000, BYTES = 10000 };

/* One rank, which gives the other its number plus 1 in every byte, and as a checksum. */
struct rank {
    tdm_collective_group *group;
    char send[BYTES];
    char receive[BYTES];
    uint64_t sent_sum;
    uint64_t received_sum;
    tdm_status status;
};

static void *run_round(void *arg)
{
    static const size_t offsets[RANKS] = {0, 0};
    static const size_t sizes[RANKS] = {BYTES, BYTES};
    static const size_t sums_sizes[RANKS] = {sizeof(uint64_t), sizeof(uint64_t)};
    struct rank *rank = arg;
    const struct tdm__exchange_round round = {
        .send = rank->send,
        .receive = rank->receive,
        .pieces = {offsets, sizes, offsets, sizes, BYTES},
        .sent_sums = &rank->sent_sum,
        .received_sums = &rank->received_sum,
        .sums = {offsets, sums_sizes, offsets, sums_sizes, sizeof(uint64_t)}};

    rank->status = tdm__exchange_round_run(rank->group, &round);
    return NULL;
}

static void open_ranks(struct rank ranks[RANKS])
{
    const struct tdm__comm_segment_options segment = {RANKS, 4096};
    int fd;

    TRY(tdm__comm_segment_create(&segment, &fd));
    for (uint32_t i = 0; i < RANKS; i++) {
        struct tdm__comm *comm;

        TRY(tdm__comm_host_open(fd, i, TIMEOUT_MS, &comm));
        TRY(tdm__collective_wrap(comm, &ranks[i].group));
        memset(ranks[i].send, (int)i + 1, BYTES);
        ranks[i].sent_sum = i + 1;
    }
    (void)close(fd);
}

static void run_both(struct rank ranks[RANKS])
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, run_round, &ranks[1]), 0);
    (void)run_round(&ranks[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_pieces_and_checksums_reach_the_other_rank(void **state)
{
    static struct rank ranks[RANKS];

    (void)state;
    open_ranks(ranks);
    run_both(ranks);
    for (uint32_t i = 0; i < RANKS; i++) {
        TRY(ranks[i].status);
        assert_int_equal(ranks[i].receive[0], RANKS - i);
        assert_int_equal(ranks[i].receive[BYTES - 1], RANKS - i);
        assert_int_equal(ranks[i].received_sum, RANKS - i);
        assert_int_equal(tdm__collective_calls_count(ranks[i].group), 2);
    }
    tdm_collective_leave(ranks[1].group); /* Rank 0 learns that it is alone. */
    (void)run_round(&ranks[0]);
    assert_int_equal(ranks[0].status, TDM_E_ABORTED);
    tdm_collective_leave(ranks[0].group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_and_checksums_reach_the_other_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
