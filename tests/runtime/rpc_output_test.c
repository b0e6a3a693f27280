/* rpc_output_test.c - waiting bytes are written in order, with their descriptors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/output.h"
#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct conn_output output;
static uint8_t next_in;
static uint8_t next_out;

static int set_up(void **state)
{
    (void)state;
    tdm__output_init(&output);
    next_in = 0;
    next_out = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__output_clear(&output);
    return 0;
}

/* Appends consecutive byte values in four pieces, without the first `skip`. */
static void append(size_t size, size_t skip, const int *fds, uint32_t fds_count)
{
    uint8_t *bytes = malloc(size);
    size_t third = size / 3;
    size_t fourth = size / 4;
    struct iovec pieces[FRAME_PIECES] = {{bytes, third},
                                         {bytes + third, fourth},
                                         {bytes + third + fourth, fourth},
                                         {bytes + third + 2 * fourth, size - third - 2 * fourth}};

    assert_non_null(bytes);
    for (size_t i = skip; i < size; i++) {
        bytes[i] = next_in++;
    }
    assert_int_equal(tdm__output_append(&output, pieces, skip, fds, fds_count), TDM_OK);
    free(bytes);
}

/* Writes consecutive byte values into reserved memory. */
static void place(size_t size)
{
    uint8_t *bytes;

    assert_int_equal(tdm__output_reserve(&output, size, &bytes), TDM_OK);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = next_in++;
    }
}

/* Consumes what one system call could write, at most `limit` bytes, and its descriptors. */
static uint32_t take(size_t limit)
{
    struct iovec pieces[OUTPUT_PIECES_MAX];
    const int *fds = NULL;
    uint32_t fds_count = 0;
    size_t count = tdm__output_gather(&output, pieces, &fds, &fds_count);
    size_t taken = 0;

    for (size_t i = 0; i < count; i++) {
        const uint8_t *bytes = pieces[i].iov_base;

        assert_true(pieces[i].iov_len > 0);
        for (size_t k = 0; k < pieces[i].iov_len && taken < limit; k++, taken++) {
            assert_int_equal(bytes[k], next_out++);
        }
    }
    assert_true(taken > 0);
    tdm__output_consume(&output, taken);
    return fds_count;
}

static void bytes_of_any_sizes_are_written_in_order(void **state)
{
    struct test_random chance = test_random_init("rpc_output_test", 11);
    size_t waiting = 0;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        if (waiting == 0 || test_random_below(&chance, 2) == 0) {
            size_t size = 1 + test_random_below(&chance, i % 50 == 0 ? 100000 : 300);
            size_t skip = test_random_below(&chance, 4) == 0 ? size / 2 : 0;

            if (skip == 0 && test_random_below(&chance, 2) == 0) {
                place(size);
            } else {
                append(size, skip, NULL, 0);
            }
            waiting += size - skip;
        } else {
            size_t before = output.size_bytes;

            (void)take(1 + test_random_below(&chance, 50000));
            waiting -= before - output.size_bytes;
        }
        assert_int_equal(output.size_bytes, waiting);
    }
}

static void descriptors_go_with_the_first_byte_of_their_frame(void **state)
{
    const int fds[2] = {STDIN_FILENO, STDERR_FILENO};

    (void)state;
    append(100, 0, NULL, 0);
    append(10, 0, fds, 2);
    place(10);
    append(10, 0, fds, 1);
    assert_int_equal(take(SIZE_MAX), 0);
    assert_int_equal(take(5), 2);
    assert_int_equal(take(SIZE_MAX), 0); /* The remaining descriptors were sent. */
    assert_int_equal(take(SIZE_MAX), 1);
    assert_int_equal(output.size_bytes, 0);
    append(10, 0, fds, 1); /* This goes into the chunk that was kept. */
    assert_int_equal(take(SIZE_MAX), 1);
}

static int lowest_free_fd(void)
{
    int fd = dup(STDERR_FILENO);

    (void)close(fd);
    return fd;
}

static void descriptors_that_never_leave_are_closed(void **state)
{
    const int good[1] = {STDERR_FILENO};
    const int bad[2] = {STDERR_FILENO, -1};
    const struct iovec pieces[FRAME_PIECES] = {{(void *)"a", 1}};
    int free_before = lowest_free_fd();

    (void)state;
    append(10, 0, good, 1);
    assert_int_equal(tdm__output_append(&output, pieces, 0, bad, 2), TDM_E_IO);
    assert_int_equal(output.size_bytes, 10);
    assert_int_equal(take(SIZE_MAX), 1);
    append(10, 0, good, 1);
    tdm__output_clear(&output);
    assert_int_equal(lowest_free_fd(), free_before);
}

#define OUTPUT_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OUTPUT_TEST(bytes_of_any_sizes_are_written_in_order),
        OUTPUT_TEST(descriptors_go_with_the_first_byte_of_their_frame),
        OUTPUT_TEST(descriptors_that_never_leave_are_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
