/* filling_test.c - memory is made beside the loop: all of it, or a reason. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/filling.h"

#include "runtime/clock.h"

#include <dirent.h>
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

enum { WAIT_MS = 20000 };

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

static uint32_t open_fds_count(void)
{
    DIR *directory = opendir("/proc/self/fd");
    uint32_t count = 0;

    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    (void)closedir(directory);
    return count;
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
    struct tdm__filling *filling;

    assert_int_equal(tdm__filling_begin(*state, 0, sizes_bytes, 2, note, &outcome, &filling),
                     TDM_OK);
    assert_false(outcome.told);
    assert_int_equal(tdm__loop_run(*state, is_told, &outcome, tdm__deadline_in(WAIT_MS)),
                     TDM_OK);
    assert_int_equal(outcome.status, TDM_OK);
    for (int i = 0; i < 2; i++) {
        struct stat memory;

        assert_int_equal(fstat(outcome.fds[i], &memory), 0);
        assert_true((size_t)memory.st_size == sizes_bytes[i]);
        assert_int_equal(close(outcome.fds[i]), 0);
    }
}

static void a_piece_that_cannot_be_made_takes_the_others_along(void **state)
{
    const size_t sizes_bytes[] = {2 * MIB, (size_t)1 << 62};
    uint32_t fds_count = open_fds_count();
    struct outcome outcome = {0};
    struct tdm__filling *filling;

    assert_int_equal(tdm__filling_begin(*state, 5, sizes_bytes, 2, note, &outcome, &filling),
                     TDM_OK);
    assert_int_equal(tdm__loop_run(*state, is_told, &outcome, tdm__deadline_in(WAIT_MS)),
                     TDM_OK);
    assert_int_not_equal(outcome.status, TDM_OK);
    assert_non_null(strstr(outcome.detail, "GPU 5"));
    assert_int_equal(open_fds_count(), fds_count);
}

static void one_that_is_canceled_leaves_nothing_and_tells_nobody(void **state)
{
    const size_t sizes_bytes[] = {2 * MIB, 2 * MIB};
    uint32_t fds_count = open_fds_count();
    struct outcome outcome = {0};
    struct tdm__filling *filling;

    assert_int_equal(tdm__filling_begin(*state, 0, sizes_bytes, 2, note, &outcome, &filling),
                     TDM_OK);
    tdm__filling_cancel(filling);
    assert_false(outcome.told);
    assert_int_equal(open_fds_count(), fds_count);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(all_pieces_arrive_in_their_order),
        TEST(a_piece_that_cannot_be_made_takes_the_others_along),
        TEST(one_that_is_canceled_leaves_nothing_and_tells_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
