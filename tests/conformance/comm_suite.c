/* comm_suite.c - what every communicator promises. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/comm_suite.h"

#include "colocate/comm/collective.h"
#include "colocate/comm/gather.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { TIMEOUT_MS = 20000, RANKS_MAX = COMM_SUITE_RANKS_MAX };

static const struct comm_suite_maker *suite_maker;
static int suite_threads;

/* What a rank does: 0, or the line that went wrong. */
typedef int rank_fn(tdm_collective_group *group);

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return __LINE__;                                                                       \
        }                                                                                          \
    } while (0)

struct rank {
    int rendezvous_fd;
    uint32_t index;
    rank_fn *fn;
    int result;
};

static void *rank_run(void *arg)
{
    struct rank *rank = arg;
    struct tdm__comm *comm;
    tdm_collective_group *group;

    rank->result = -1;
    if (suite_maker->open(rank->rendezvous_fd, rank->index, TIMEOUT_MS, &comm) == TDM_OK &&
        tdm__collective_wrap(comm, &group) == TDM_OK) {
        rank->result = rank->fn(group);
        if (rank->result != 0) {
            (void)fprintf(stderr, "rank %u: line %d: %s\n", rank->index, rank->result,
                          tdm_error_detail());
        }
        tdm_collective_leave(group);
    }
    return NULL;
}

static void run_as_processes(struct rank *ranks, uint32_t ranks_count)
{
    pid_t pids[RANKS_MAX];

    for (uint32_t i = 0; i < ranks_count; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            (void)rank_run(&ranks[i]);
            _exit(ranks[i].result != 0);
        }
    }
    for (uint32_t i = 0; i < ranks_count; i++) {
        assert_int_equal(waitpid(pids[i], &ranks[i].result, 0), pids[i]);
    }
}

static void run_as_threads(struct rank *ranks, uint32_t ranks_count)
{
    pthread_t threads[RANKS_MAX];

    for (uint32_t i = 0; i < ranks_count; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, rank_run, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < ranks_count; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static void run_ranks(uint32_t ranks_count, size_t slot_bytes, rank_fn *fn)
{
    struct rank ranks[RANKS_MAX];
    int rendezvous_fd = suite_maker->make(ranks_count, slot_bytes);

    for (uint32_t i = 0; i < ranks_count; i++) {
        ranks[i] = (struct rank){.rendezvous_fd = rendezvous_fd, .index = i, .fn = fn};
    }
    if (suite_threads) {
        run_as_threads(ranks, ranks_count);
    } else {
        run_as_processes(ranks, ranks_count);
    }
    (void)close(rendezvous_fd);
    for (uint32_t i = 0; i < ranks_count; i++) {
        assert_int_equal(ranks[i].result, 0);
    }
}

/* ---- the ranks' programs ---------------------------------------------------------------- */

/* Sizes around the pieces' and the parts' borders (slots of 4 KiB and of 64 KiB are used). */
static const size_t counts[] = {1, 3, 1023, 1024, 1025, 9001, 40000};

enum { COUNTS = sizeof(counts) / sizeof(counts[0]), COUNT_MAX = 40000 };

/* Not exact in binary, so that the order of adding shows in the bits. */
static float number(uint32_t rank, size_t i)
{
    return 0.1F * (float)(i % 1000) + 1e6F / (float)(rank + 3);
}

static int all_reduce_adds_in_rank_order(tdm_collective_group *group)
{
    uint32_t rank = tdm_collective_rank(group);
    float *data = malloc(COUNT_MAX * sizeof(float));

    for (size_t c = 0; c < COUNTS; c++) {
        for (size_t i = 0; i < counts[c]; i++) {
            data[i] = number(rank, i);
        }
        EXPECT(tdm_collective_all_reduce(group, data, counts[c], TDM_SUM) == TDM_OK);
        for (size_t i = 0; i < counts[c]; i++) {
            float sum = number(0, i);

            for (uint32_t r = 1; r < tdm_collective_ranks_count(group); r++) {
                sum += number(r, i);
            }
            EXPECT(memcmp(&sum, &data[i], sizeof(sum)) == 0);
        }
    }
    free(data);
    return 0;
}

static int all_reduce_takes_doubles_and_maxima(tdm_collective_group *group)
{
    uint32_t ranks_count = tdm_collective_ranks_count(group);
    double values[3] = {1.5 * tdm_collective_rank(group), -(double)tdm_collective_rank(group), 1.0};
    float high = (float)tdm_collective_rank(group);

    EXPECT(tdm_collective_all_reduce_double(group, values, 3, TDM_MAX) == TDM_OK);
    EXPECT(values[0] == 1.5 * (ranks_count - 1) && values[1] == 0.0 && values[2] == 1.0);
    EXPECT(tdm_collective_all_reduce_double(group, values, 3, TDM_SUM) == TDM_OK);
    EXPECT(values[2] == ranks_count);
    EXPECT(tdm_collective_all_reduce(group, &high, 1, TDM_MAX) == TDM_OK);
    EXPECT(high == (float)(ranks_count - 1));
    EXPECT(tdm_collective_all_reduce(group, &high, 0, TDM_SUM) == TDM_OK);
    return 0;
}

static int all_gather_puts_rank_after_rank(tdm_collective_group *group)
{
    uint32_t ranks_count = tdm_collective_ranks_count(group);
    uint32_t rank = tdm_collective_rank(group);
    unsigned char *out = malloc((size_t)ranks_count * COUNT_MAX);

    for (size_t c = 0; c < COUNTS; c++) {
        size_t bytes = counts[c];

        memset(out + rank * bytes, (int)(rank + c), bytes);
        EXPECT(tdm_collective_all_gather(group, out + rank * bytes, bytes, out) == TDM_OK);
        for (size_t i = 0; i < ranks_count * bytes; i++) {
            EXPECT(out[i] == i / bytes + c);
        }
    }
    free(out);
    return 0;
}

static int reduce_scatter_gives_each_its_part(tdm_collective_group *group)
{
    uint32_t ranks_count = tdm_collective_ranks_count(group);
    uint32_t rank = tdm_collective_rank(group);
    float *in = malloc((size_t)ranks_count * COUNT_MAX * sizeof(float));
    float *out = malloc(COUNT_MAX * sizeof(float));

    for (size_t c = 0; c < COUNTS; c++) {
        size_t count = counts[c];

        for (size_t i = 0; i < ranks_count * count; i++) {
            in[i] = number(rank, i);
        }
        EXPECT(tdm_collective_reduce_scatter(group, in, count, out) == TDM_OK);
        for (size_t i = 0; i < count; i++) {
            float sum = number(0, rank * count + i);

            for (uint32_t r = 1; r < ranks_count; r++) {
                sum += number(r, rank * count + i);
            }
            EXPECT(memcmp(&sum, &out[i], sizeof(sum)) == 0);
        }
    }
    free(in);
    free(out);
    return 0;
}

static int broadcast_reaches_all_from_any_root(tdm_collective_group *group)
{
    uint32_t rank = tdm_collective_rank(group);
    unsigned char *data = malloc(COUNT_MAX);

    for (uint32_t root = 0; root < tdm_collective_ranks_count(group); root++) {
        memset(data, rank == root ? 40 + (int)root : 0, COUNT_MAX);
        EXPECT(tdm_collective_broadcast(group, data, COUNT_MAX, root) == TDM_OK);
        for (size_t i = 0; i < COUNT_MAX; i++) {
            EXPECT(data[i] == 40 + root);
        }
    }
    EXPECT(tdm_collective_broadcast(group, data, 1, 99) == TDM_E_INVAL);
    free(data);
    return 0;
}

static int gather_fills_the_root_alone(tdm_collective_group *group)
{
    uint32_t ranks_count = tdm_collective_ranks_count(group);
    uint32_t rank = tdm_collective_rank(group);
    char in[5000];
    char *out = rank == 1 ? malloc(ranks_count * sizeof(in)) : NULL;

    memset(in, (int)rank + 1, sizeof(in));
    if (rank == 1) { /* Only the root needs room; it is refused before the ranks meet. */
        EXPECT(tdm_collective_gather(group, in, sizeof(in), NULL, 1) == TDM_E_INVAL);
    }
    EXPECT(tdm_collective_gather(group, in, sizeof(in), out, 1) == TDM_OK);
    for (size_t i = 0; out != NULL && i < ranks_count * sizeof(in); i++) {
        EXPECT(out[i] == (char)(i / sizeof(in) + 1));
    }
    EXPECT(tdm_collective_gather(group, NULL, 0, out, 1) == TDM_OK);
    free(out);
    return 0;
}

/* Each rank gives what no other gives: rank r gives `step` * r bytes, so that rank 0 gives none. */
static int unequal_gather_keeps_every_part(tdm_collective_group *group)
{
    uint32_t rank = tdm_collective_rank(group);
    uint32_t root = tdm_collective_ranks_count(group) - 1;
    struct tdm__gathered gathered = {.sizes = NULL};
    char in[3000];

    memset(in, (int)rank + 1, sizeof(in));
    for (size_t step = 0; step <= 700; step += 350) {
        const struct tdm_bytes own = {in, step * rank};

        EXPECT(tdm__collective_gather_unequal(group, own, root, &gathered) == TDM_OK);
        for (uint32_t i = 0; i <= root; i++) {
            EXPECT(gathered.sizes[i] == step * i);
        }
        for (uint32_t i = 0; rank == root && i <= root; i++) {
            struct tdm_bytes part = tdm__gathered_part(&gathered, i);

            EXPECT(part.size_bytes == step * i);
            for (size_t k = 0; k < part.size_bytes; k++) {
                EXPECT(((const char *)part.data)[k] == (char)(i + 1));
            }
        }
    }
    if (rank == root) { /* All ranks refuse a part that is too large, and name its rank. */
        const struct tdm_bytes vast = {in, (size_t)65 << 20};

        EXPECT(tdm__collective_gather_unequal(group, vast, root, &gathered) == TDM_E_LIMIT);
    } else {
        const struct tdm_bytes none = {.size_bytes = 0};

        EXPECT(tdm__collective_gather_unequal(group, none, root, &gathered) == TDM_E_LIMIT);
    }
    EXPECT(strstr(tdm_error_detail(), "68157440 bytes to a gather, at most 67108864") != NULL);
    tdm__gathered_fini(&gathered);
    return 0;
}

/* Number of bytes that one rank gives to another: some pairs have none, and the two directions
 * differ. */
static size_t pair_bytes(uint32_t from, uint32_t to, size_t count)
{
    return (from * 2 + to * 3) % 4 * (count / 3);
}

/* An exchange of parts with 8 bytes between them, which no rank may write. */
struct pair_parts {
    size_t offsets[2][RANKS_MAX];
    size_t bytes[2][RANKS_MAX];
    unsigned char *memory[2];
};

enum { GIVES, GETS, GAP_BYTES = 8, GAP = 0xee };

static void make_parts(struct pair_parts *parts, uint32_t rank, uint32_t ranks_count, size_t count)
{
    for (int way = GIVES; way <= GETS; way++) {
        size_t at = GAP_BYTES;

        for (uint32_t i = 0; i < ranks_count; i++) {
            parts->offsets[way][i] = at;
            parts->bytes[way][i] =
                way == GIVES ? pair_bytes(rank, i, count) : pair_bytes(i, rank, count);
            at += i == rank ? 0 : parts->bytes[way][i] + GAP_BYTES;
        }
        parts->memory[way] = malloc(at);
        memset(parts->memory[way], GAP, at);
    }
    for (uint32_t i = 0; i < ranks_count; i++) {
        for (size_t k = 0; i != rank && k < parts->bytes[GIVES][i]; k++) {
            parts->memory[GIVES][parts->offsets[GIVES][i] + k] =
                (unsigned char)(rank * 50 + i * 10 + k % 7);
        }
    }
}

static int check_parts(const struct pair_parts *parts, uint32_t rank, uint32_t ranks_count)
{
    const unsigned char *at = parts->memory[GETS];

    for (uint32_t i = 0; i < ranks_count; i++) {
        for (size_t k = 0; i != rank && k < GAP_BYTES; k++) {
            EXPECT(*at++ == GAP);
        }
        for (size_t k = 0; i != rank && k < parts->bytes[GETS][i]; k++) {
            EXPECT(*at++ == (unsigned char)(i * 50 + rank * 10 + k % 7));
        }
    }
    return 0;
}

static int exchange_gives_each_pair_its_part(tdm_collective_group *group)
{
    uint32_t ranks_count = tdm_collective_ranks_count(group);
    uint32_t rank = tdm_collective_rank(group);

    for (size_t c = 0; c < COUNTS; c++) {
        struct pair_parts parts;
        struct tdm__comm_exchange exchange = {.send_offsets = parts.offsets[GIVES],
                                              .send_bytes = parts.bytes[GIVES],
                                              .receive_offsets = parts.offsets[GETS],
                                              .receive_bytes = parts.bytes[GETS],
                                              .part_bytes_max = counts[c] / 3 * 3};

        make_parts(&parts, rank, ranks_count, counts[c]);
        exchange.in = parts.memory[GIVES];
        exchange.out = parts.memory[GETS];
        EXPECT(tdm__collective_exchange(group, &exchange) == TDM_OK);
        EXPECT(check_parts(&parts, rank, ranks_count) == 0);
        free(parts.memory[GIVES]);
        free(parts.memory[GETS]);
    }
    return 0;
}

/* Many chunks in one direction alone: no rank may wait for one that waits for it. */
static int exchange_in_one_direction_ends(tdm_collective_group *group)
{
    enum { BYTES = 1 << 20 };
    uint32_t rank = tdm_collective_rank(group);
    size_t nothing[RANKS_MAX] = {0};
    size_t bytes[RANKS_MAX] = {0};
    char *in = calloc(1, BYTES);
    char *out = calloc(1, BYTES);
    struct tdm__comm_exchange exchange = {.in = in,
                                          .out = out,
                                          .send_offsets = nothing,
                                          .send_bytes = nothing,
                                          .receive_offsets = nothing,
                                          .receive_bytes = nothing,
                                          .part_bytes_max = BYTES};

    memset(in, (int)rank + 1, BYTES);
    if (rank == 0) {
        bytes[1] = BYTES;
        exchange.send_bytes = bytes;
    } else if (rank == 1) {
        bytes[0] = BYTES;
        exchange.receive_bytes = bytes;
    }
    EXPECT(tdm__collective_exchange(group, &exchange) == TDM_OK);
    EXPECT(rank != 1 || (out[0] == 1 && out[BYTES - 1] == 1));
    /* A rank without a part may be ahead, and would end the group while others exchange. */
    EXPECT(tdm_collective_barrier(group) == TDM_OK);
    exchange.part_bytes_max = rank == 0 ? BYTES : BYTES - 1;
    EXPECT(tdm__collective_exchange(group, &exchange) == TDM_E_INVAL);
    free(in);
    free(out);
    return 0;
}

/* Goal: no rank is ever a step ahead.  Method: mix every call, many rounds, check each. */
static int calls_mix_for_many_rounds(tdm_collective_group *group)
{
    uint32_t rank = tdm_collective_rank(group);
    uint32_t all[RANKS_MAX];

    for (uint32_t round = 0; round < 500; round++) {
        uint32_t mine = round * 10 + rank;
        float one = 1.0F;

        EXPECT(tdm_collective_all_gather(group, &mine, sizeof(mine), all) == TDM_OK);
        for (uint32_t r = 0; r < tdm_collective_ranks_count(group); r++) {
            EXPECT(all[r] == round * 10 + r);
        }
        if (round % 3 == 0) {
            EXPECT(tdm_collective_barrier(group) == TDM_OK);
        }
        EXPECT(tdm_collective_all_reduce(group, &one, 1, TDM_SUM) == TDM_OK);
        EXPECT(one == (float)tdm_collective_ranks_count(group));
    }
    return 0;
}

static int different_sizes_are_refused(tdm_collective_group *group)
{
    char bytes[64] = {0};
    tdm_status status = tdm_collective_broadcast(group, bytes, 10 + tdm_collective_rank(group), 0);

    EXPECT(status == TDM_E_INVAL);
    EXPECT(tdm_collective_barrier(group) == TDM_E_INVAL);
    return 0;
}

static int abort_ends_the_group_for_all(tdm_collective_group *group)
{
    if (tdm_collective_rank(group) == 1) {
        tdm__collective_comm(group)->ops->abort(tdm__collective_comm(group));
    }
    EXPECT(tdm_collective_barrier(group) == TDM_E_ABORTED);
    EXPECT(strstr(tdm_error_detail(), "rank 1 of ") != NULL);
    EXPECT(tdm_collective_barrier(group) == TDM_E_ABORTED);
    return 0;
}

static int a_member_that_left_is_not_waited_for(tdm_collective_group *group)
{
    EXPECT(tdm_collective_barrier(group) == TDM_OK);
    if (tdm_collective_rank(group) == 0) {
        return 0;
    }
    EXPECT(tdm_collective_barrier(group) == TDM_E_ABORTED);
    EXPECT(strstr(tdm_error_detail(), "rank 0 of ") != NULL);
    return 0;
}

static int paused_group_refuses_operations_until_it_resumes(tdm_collective_group *group)
{
    EXPECT(tdm_collective_resume(group) == TDM_E_STATE);
    for (int i = 0; i < 2; i++) {
        EXPECT(tdm_collective_pause(group) == TDM_OK);
        EXPECT(tdm_collective_barrier(group) == TDM_E_STATE);
        EXPECT(strstr(tdm_error_detail(), "the group is paused") != NULL);
        EXPECT(tdm_collective_pause(group) == TDM_E_STATE);
        EXPECT(tdm_collective_resume(group) == TDM_OK);
        EXPECT(tdm_collective_barrier(group) == TDM_OK);
    }
    EXPECT(tdm_collective_pause(group) == TDM_OK); /* A paused group may be left. */
    return 0;
}

static int pause_is_for_all_ranks(tdm_collective_group *group)
{
    tdm_status status = tdm_collective_rank(group) == 0 ? tdm_collective_barrier(group)
                                                        : tdm_collective_pause(group);

    EXPECT(status == TDM_E_INVAL);
    EXPECT(tdm_collective_barrier(group) == TDM_E_INVAL); /* It has ended, and is not paused. */
    return 0;
}

/* ---- the suite -------------------------------------------------------------------------- */

struct promise {
    rank_fn *fn;
    uint32_t ranks_min; /* Smallest number of ranks for which the promise means anything. */
};

/* With two to RANKS_MAX ranks, or with as many as the machine connects, which may be one. */
static void run_in_all_shapes(void **state)
{
    const struct promise *promise = *state;
    uint32_t ranks_max = suite_maker->ranks_max != 0 ? suite_maker->ranks_max : RANKS_MAX;
    uint32_t ranks_count = ranks_max < 2 ? 1 : 2;

    if (ranks_max < promise->ranks_min) {
        (void)printf("skipped: needs %u ranks, this machine connects %u\n", promise->ranks_min,
                     ranks_max);
        skip();
    }
    for (; ranks_count <= ranks_max; ranks_count++) {
        run_ranks(ranks_count, 4096, promise->fn);
        run_ranks(ranks_count, 65536, promise->fn);
    }
}

int comm_suite_run(const char *name, const struct comm_suite_maker *maker, int threads)
{
#define PROMISE(fn, ranks_min)                                                                     \
    {                                                                                              \
#fn, run_in_all_shapes, NULL, NULL, &(struct promise)                                      \
        {                                                                                          \
            fn, ranks_min                                                                          \
        }                                                                                          \
    }
    const struct CMUnitTest tests[] = {
        PROMISE(all_reduce_adds_in_rank_order, 1),
        PROMISE(all_reduce_takes_doubles_and_maxima, 1),
        PROMISE(all_gather_puts_rank_after_rank, 1),
        PROMISE(reduce_scatter_gives_each_its_part, 1),
        PROMISE(broadcast_reaches_all_from_any_root, 1),
        PROMISE(gather_fills_the_root_alone, 2),
        PROMISE(unequal_gather_keeps_every_part, 1),
        PROMISE(exchange_gives_each_pair_its_part, 1),
        PROMISE(exchange_in_one_direction_ends, 2),
        PROMISE(calls_mix_for_many_rounds, 1),
        PROMISE(different_sizes_are_refused, 2),
        PROMISE(abort_ends_the_group_for_all, 2),
        PROMISE(a_member_that_left_is_not_waited_for, 2),
        PROMISE(paused_group_refuses_operations_until_it_resumes, 1),
        PROMISE(pause_is_for_all_ranks, 2),
    };

    suite_maker = maker;
    suite_threads = threads;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
