/* free_list_test.c - blocks that are kept are whole, apart, and gone with their thread. */
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

struct taken {
    unsigned char *blocks[BLOCKS];
};

static unsigned char mark_of(int index)
{
    return (unsigned char)(index * 7 + 1);
}

static void take_all(struct taken *taken, bool zeroed)
{
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = sizes[i % SIZES];

        taken->blocks[i] = zeroed ? tdm__free_list_alloc_zeroed(size) : tdm__free_list_alloc(size);
        assert_non_null(taken->blocks[i]);
        for (size_t at = 0; zeroed && at < size; at++) {
            assert_int_equal(taken->blocks[i][at], 0);
        }
        memset(taken->blocks[i], mark_of(i), size);
    }
}

static void give_all(struct taken *taken)
{
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = sizes[i % SIZES];

        for (size_t at = 0; at < size; at++) {
            assert_int_equal(taken->blocks[i][at], mark_of(i)); /* nobody else wrote here */
        }
        tdm__free_list_free(taken->blocks[i], size);
    }
}

static void blocks_do_not_overlap_however_often_they_come_back(void **state)
{
    static struct taken taken;

    (void)state;
    for (int i = 0; i < 3; i++) {
        take_all(&taken, i % 2 == 1);
        give_all(&taken);
    }
    tdm__free_list_free(NULL, sizes[0]);
}

static void *give_in_thread(void *arg)
{
    give_all(arg);
    take_all(arg, true);
    return NULL;
}

/* The second thread keeps what the first took; what is left when it ends would be a leak. */
static void a_block_may_come_back_from_another_thread(void **state)
{
    static struct taken taken;
    pthread_t thread;

    (void)state;
    take_all(&taken, false);
    assert_int_equal(pthread_create(&thread, NULL, give_in_thread, &taken), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    give_all(&taken);
}

/* Fills the thread's memory with each size in turn, none of which is taken meanwhile. */
static void a_thread_keeps_no_more_than_its_bound_of_all_sizes_together(void **state)
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

/* A size that is only given must not leave the others without a place. */
static void a_size_that_is_never_taken_makes_room_for_those_that_are(void **state)
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
        if (tdm__free_list_kept_bytes() > 0) { /* not under a sanitizer */
            assert_ptr_equal(tdm__free_list_alloc(200), block);
            tdm__free_list_free(block, 200);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_do_not_overlap_however_often_they_come_back),
        cmocka_unit_test(a_block_may_come_back_from_another_thread),
        cmocka_unit_test(a_thread_keeps_no_more_than_its_bound_of_all_sizes_together),
        cmocka_unit_test(a_size_that_is_never_taken_makes_room_for_those_that_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
