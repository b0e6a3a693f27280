/* free_list_test.c - blocks do not overlap, and kept blocks are freed with their thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/free_list.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 2000, SIZES = 9 };

static const size_t sizes[SIZES] = {1, 63, 64, 65, 200, 1023, 1024, 1025, 5000};

struct allocated {
    unsigned char *blocks[BLOCKS];
};

static unsigned char fill_byte_of(int index)
{
    return (unsigned char)(index * 7 + 1);
}

static void allocate_all(struct allocated *allocated, bool zeroed)
{
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = sizes[i % SIZES];

        allocated->blocks[i] =
            zeroed ? tdm__free_list_alloc_zeroed(size) : tdm__free_list_alloc(size);
        assert_non_null(allocated->blocks[i]);
        for (size_t at = 0; zeroed && at < size; at++) {
            assert_int_equal(allocated->blocks[i][at], 0);
        }
        memset(allocated->blocks[i], fill_byte_of(i), size);
    }
}

static void free_all(struct allocated *allocated)
{
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = sizes[i % SIZES];

        for (size_t at = 0; at < size; at++) {
            /* No other block overlaps this one. */
            assert_int_equal(allocated->blocks[i][at], fill_byte_of(i));
        }
        tdm__free_list_free(allocated->blocks[i], size);
    }
}

static void reused_blocks_do_not_overlap(void **state)
{
    static struct allocated allocated;

    (void)state;
    for (int i = 0; i < 3; i++) {
        allocate_all(&allocated, i % 2 == 1);
        free_all(&allocated);
    }
    tdm__free_list_free(NULL, sizes[0]);
}

static void *free_in_thread(void *arg)
{
    free_all(arg);
    allocate_all(arg, true);
    return NULL;
}

/* The second thread keeps blocks that the first one has allocated.  Blocks left at its end would
 * be a leak. */
static void another_thread_may_free_a_block(void **state)
{
    static struct allocated allocated;
    pthread_t thread;

    (void)state;
    allocate_all(&allocated, false);
    assert_int_equal(pthread_create(&thread, NULL, free_in_thread, &allocated), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    free_all(&allocated);
}

/* Fills the thread's free list with each size in turn without allocating in between. */
static void thread_keeps_no_more_than_its_limit_for_all_sizes(void **state)
{
    enum { MANY = 3 * TDM__FREE_LIST_KEPT_BYTES_MAX / TDM__FREE_LIST_BLOCK_BYTES_MAX };

    (void)state;
    for (size_t size = 64; size <= TDM__FREE_LIST_BLOCK_BYTES_MAX; size += 64) {
        void *blocks[MANY];

        for (int i = 0; i < MANY; i++) {
            blocks[i] = malloc(size);
            assert_non_null(blocks[i]);
        }
        for (int i = 0; i < MANY; i++) {
            tdm__free_list_free(blocks[i], size);
            assert_true(tdm__free_list_kept_bytes() <= TDM__FREE_LIST_KEPT_BYTES_MAX);
        }
    }
}

/* Blocks of a size that is only freed must not use all the space. */
static void size_that_is_never_allocated_is_freed_for_others(void **state)
{
    void *hoarded;
    void *block;

    (void)state;
    for (int i = 0; i < 2 * TDM__FREE_LIST_KEPT_BYTES_MAX / 1024; i++) {
        hoarded = malloc(1024);
        assert_non_null(hoarded);
        tdm__free_list_free(hoarded, 1024);
        block = tdm__free_list_alloc(200);
        assert_non_null(block);
        tdm__free_list_free(block, 200);
        if (tdm__free_list_kept_bytes() > 0) { /* Builds with a sanitizer keep no blocks. */
            assert_ptr_equal(tdm__free_list_alloc(200), block);
            tdm__free_list_free(block, 200);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reused_blocks_do_not_overlap),
        cmocka_unit_test(another_thread_may_free_a_block),
        cmocka_unit_test(thread_keeps_no_more_than_its_limit_for_all_sizes),
        cmocka_unit_test(size_that_is_never_allocated_is_freed_for_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
