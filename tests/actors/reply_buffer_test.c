/* reply_buffer_test.c - a thread that runs methods keeps one buffer, which is empty and not large.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/reply_buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_the_buffer_is_reused_and_empty(void **state)
{
    tdm_writer *first;
    tdm_writer *second;
    tdm_writer *again;

    (void)state;
    tdm__reply_buffer_thread_init();
    assert_int_equal(tdm__reply_buffer_acquire(&first), TDM_OK);
    tdm_write_string(first, "text");
    assert_int_equal(tdm__reply_buffer_acquire(&second), TDM_OK);
    assert_ptr_not_equal(first, second);
    tdm__reply_buffer_release(first);
    tdm__reply_buffer_release(second); /* The thread keeps the first one only. */
    assert_int_equal(tdm__reply_buffer_acquire(&again), TDM_OK);
    assert_ptr_equal(again, first);
    assert_int_equal(tdm_writer_bytes(again).size_bytes, 0);
    tdm__reply_buffer_release(again);
    tdm__reply_buffer_thread_fini();
}

static void test_a_large_buffer_is_not_kept(void **state)
{
    static const size_t size_bytes = 4 << 20;
    void *data = calloc(1, size_bytes);
    tdm_writer *large;

    (void)state;
    assert_non_null(data);
    tdm__reply_buffer_thread_init();
    assert_int_equal(tdm__reply_buffer_acquire(&large), TDM_OK);
    tdm_write_bytes(large, data, size_bytes);
    tdm__reply_buffer_release(large); /* The leak detector would see a buffer that is kept. */
    tdm__reply_buffer_thread_fini();
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_buffer_is_reused_and_empty),
        cmocka_unit_test(test_a_large_buffer_is_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
