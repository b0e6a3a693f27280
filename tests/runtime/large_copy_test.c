/* large_copy_test.c - large copies are complete, stay in bounds and use the available cores. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/large_copy.h"
#include "tests/support/test_random.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MARGIN_BYTES = 4096, MARGINS_BYTES = 8192, BUFFER_BYTES = 70 << 20, UNTOUCHED = 0xa5 };
static const size_t thread_bytes = TDM__COPY_THREAD_BYTES;

/* Source and target of the copies. */
struct copy_buffers {
    uint8_t *from;
    uint8_t *to;
};

static int set_up(void **state)
{
    static struct copy_buffers buffers;

    buffers.from = malloc(BUFFER_BYTES);
    buffers.to = malloc(BUFFER_BYTES);
    assert_non_null(buffers.from);
    assert_non_null(buffers.to);
    for (size_t i = 0; i < BUFFER_BYTES; i++) {
        buffers.from[i] = (uint8_t)((i * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
    }
    *state = &buffers;
    return 0;
}

static int tear_down(void **state)
{
    const struct copy_buffers *buffers = *state;

    free(buffers->from);
    free(buffers->to);
    return 0;
}

static void assert_untouched(const uint8_t *at)
{
    for (size_t i = 0; i < MARGIN_BYTES; i++) {
        assert_int_equal(at[i], UNTOUCHED);
    }
}

static void check_copy(const struct copy_buffers *buffers, size_t from_offset, size_t to_offset,
                       size_t size_bytes)
{
    uint8_t *to = buffers->to + MARGIN_BYTES + to_offset;
    const uint8_t *from = buffers->from + from_offset;

    assert_true(MARGINS_BYTES + to_offset + size_bytes <= BUFFER_BYTES);
    assert_true(from_offset + size_bytes <= BUFFER_BYTES);
    memset(buffers->to, UNTOUCHED, MARGINS_BYTES + to_offset + size_bytes);
    tdm__copy_large(to, from, size_bytes);
    assert_memory_equal(to, from, size_bytes);
    assert_untouched(to - MARGIN_BYTES);
    assert_untouched(to + size_bytes);
}

static void every_size_and_alignment_is_copied(void **state)
{
    static const size_t sizes[] = {0,
                                   1,
                                   63,
                                   64,
                                   65,
                                   4095,
                                   16384,
                                   16385,
                                   3 * 16384 + 1,
                                   1 << 20,
                                   (1 << 20) + 16383,
                                   5 << 20,
                                   33 << 20,
                                   (64 << 20) + 777};
    static const size_t offsets[] = {0, 1, 16, 33, 63};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t j = i % 5;

        check_copy(*state, offsets[j], offsets[(j * 2 + i) % 5], sizes[i]);
    }
}

static void random_sizes_and_alignments_are_copied(void **state)
{
    struct test_random chance = test_random_init("large_copy_test", 20261122);

    for (int i = 0; i < 30; i++) {
        size_t size_bytes = test_random_below(&chance, i % 10 == 0 ? 60 << 20 : 1 << 20);

        check_copy(*state, test_random_below(&chance, 4096), test_random_below(&chance, 4096),
                   size_bytes);
    }
}

static void the_small_ones_are_left_to_memcpy(void **state)
{
    const struct copy_buffers *buffers = *state;

    tdm__rect_copy(buffers->to, buffers->from, 1000);
    assert_memory_equal(buffers->to, buffers->from, 1000);
    tdm__rect_copy(buffers->to, buffers->from, TDM__COPY_LARGE_BYTES);
    assert_memory_equal(buffers->to, buffers->from, TDM__COPY_LARGE_BYTES);
}

/* Restricts the thread to the cores in `cores` until the test ends. */
static void use_cores(const cpu_set_t *cores)
{
    assert_int_equal(sched_setaffinity(0, sizeof(*cores), cores), 0);
}

static void as_many_threads_copy_as_there_are_cores_and_work(void **state)
{
    cpu_set_t all;
    cpu_set_t one;
    size_t first = 0;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    while (!CPU_ISSET(first, &all)) {
        first++;
    }
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(tdm__copy_threads(0), 1);
    assert_int_equal(tdm__copy_threads(2 * thread_bytes - 1), 1);
    assert_int_equal(tdm__copy_threads(2 * thread_bytes), CPU_COUNT(&all) >= 2 ? 2 : 1);
    assert_int_equal(tdm__copy_threads((size_t)1 << 40), CPU_COUNT(&all) < TDM__COPY_THREADS_MAX
                                                             ? CPU_COUNT(&all)
                                                             : TDM__COPY_THREADS_MAX);
    use_cores(&one);
    assert_int_equal(tdm__copy_threads((size_t)1 << 40), 1);
    use_cores(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_and_alignment_is_copied),
        cmocka_unit_test(random_sizes_and_alignments_are_copied),
        cmocka_unit_test(the_small_ones_are_left_to_memcpy),
        cmocka_unit_test(as_many_threads_copy_as_there_are_cores_and_work),
    };

    return cmocka_run_group_tests_name("large copy", tests, set_up, tear_down);
}
