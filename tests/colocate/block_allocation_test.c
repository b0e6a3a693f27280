/* block_allocation_test.c - block memory is allocated on a thread: all of it, or none with a
 * reason. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/broker/block_allocation.h"

#include "runtime/clock.h"
#include "tests/support/open_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

enum { WAIT_MS = 20000, ROUNDS = 5 };

struct outcome {
    bool told;
    tdm_status status;
    char detail[256];
    int fds[2];
};

static void note(void *arg, tdm_status status, const char *detail, const int *fds)
{
    struct outcome *outcome = arg;

    outcome->told = true;
    outcome->status = status;
    (void)snprintf(outcome->detail, sizeof(outcome->detail), "%s", detail);
    if (status == TDM_OK) {
        memcpy(outcome->fds, fds, sizeof(outcome->fds));
    }
}

static bool is_told(void *arg)
{
    return ((struct outcome *)arg)->told;
}

static void close_all(void *arg, tdm_status status, const char *detail, const int *fds)
{
    (void)detail;
    assert_int_equal(status, TDM_OK);
    for (int i = 0; i < TDM__BLOCKS_MAX; i++) {
        assert_int_equal(close(fds[i]), 0);
    }
    *(bool *)arg = true;
}

static bool are_all_closed(void *arg)
{
    return *(bool *)arg;
}

static int set_up(void **state)
{
    static struct tdm__loop *loop;

    assert_int_equal(tdm__loop_create(&loop), TDM_OK);
    *state = loop;
    return 0;
}

static int tear_down(void **state)
{
    tdm__loop_destroy(*state);
    return 0;
}

static void all_pieces_arrive_in_their_order(void **state)
{
    const size_t sizes_bytes[] = {4 * MIB, 2 * MIB};
    struct outcome outcome = {0};
    struct tdm__block_allocation *allocation;

    assert_int_equal(
        tdm__block_allocation_start(*state, 0, sizes_bytes, 2, note, &outcome, &allocation),
        TDM_OK);
    assert_false(outcome.told);
    assert_int_equal(tdm__loop_run(*state, is_told, &outcome, tdm__deadline_after(WAIT_MS)),
                     TDM_OK);
    assert_int_equal(outcome.status, TDM_OK);
    for (int i = 0; i < 2; i++) {
        struct stat memory;

        assert_int_equal(fstat(outcome.fds[i], &memory), 0);
        assert_true((size_t)memory.st_size == sizes_bytes[i]);
        assert_int_equal(close(outcome.fds[i]), 0);
    }
}

static void failed_block_releases_the_others(void **state)
{
    const size_t sizes_bytes[] = {2 * MIB, (size_t)1 << 62};
    uint32_t fds_count = open_files_count("");
    struct outcome outcome = {0};
    struct tdm__block_allocation *allocation;

    assert_int_equal(
        tdm__block_allocation_start(*state, 5, sizes_bytes, 2, note, &outcome, &allocation),
        TDM_OK);
    assert_int_equal(tdm__loop_run(*state, is_told, &outcome, tdm__deadline_after(WAIT_MS)),
                     TDM_OK);
    assert_int_not_equal(outcome.status, TDM_OK);
    assert_non_null(strstr(outcome.detail, "GPU 5"));
    assert_int_equal(open_files_count(""), fds_count);
}

static void canceled_allocation_leaves_nothing_and_does_not_call_back(void **state)
{
    const size_t sizes_bytes[] = {2 * MIB, 2 * MIB};
    uint32_t fds_count = open_files_count("");
    struct outcome outcome = {0};
    struct tdm__block_allocation *allocation;

    assert_int_equal(
        tdm__block_allocation_start(*state, 0, sizes_bytes, 2, note, &outcome, &allocation),
        TDM_OK);
    tdm__block_allocation_cancel(allocation);
    assert_false(outcome.told);
    assert_int_equal(open_files_count(""), fds_count);
}

static int64_t run_ms(struct tdm__loop *loop, bool is_canceled)
{
    size_t sizes_bytes[TDM__BLOCKS_MAX];
    struct tdm__block_allocation *allocation;
    int64_t begin_ms;
    bool all_are_told = false;

    for (int i = 0; i < TDM__BLOCKS_MAX; i++) {
        sizes_bytes[i] = 16 * MIB;
    }
    begin_ms = tdm__clock_ms();
    assert_int_equal(tdm__block_allocation_start(loop, 0, sizes_bytes, TDM__BLOCKS_MAX, close_all,
                                                 &all_are_told, &allocation),
                     TDM_OK);
    if (is_canceled) {
        tdm__block_allocation_cancel(allocation);
    } else {
        assert_int_equal(
            tdm__loop_run(loop, are_all_closed, &all_are_told, tdm__deadline_after(WAIT_MS)),
            TDM_OK);
    }
    return tdm__clock_ms() - begin_ms;
}

/* A daemon that is told to end does not make the rest first.  Once is enough: others use the
 * machine, too. */
static void canceled_allocation_stops_after_one_block(void **state)
{
    bool was_quick = false;

    for (int i = 0; i < ROUNDS && !was_quick; i++) {
        int64_t all_ms = run_ms(*state, false);

        was_quick = run_ms(*state, true) < all_ms / 2;
    }
    assert_true(was_quick);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(all_pieces_arrive_in_their_order),
        TEST(failed_block_releases_the_others),
        TEST(canceled_allocation_leaves_nothing_and_does_not_call_back),
        TEST(canceled_allocation_stops_after_one_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
