/* block_memory_test.c - a block's memory has its full size and cannot be shrunk. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/broker/block_memory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

static void block_has_all_its_pages_and_keeps_its_size(void **state)
{
    struct stat memory;
    int fd;

    (void)state;
    assert_int_equal(tdm__block_memory_create(0, 4 * MIB, &fd), TDM_OK);
    assert_int_equal(fstat(fd, &memory), 0);
    assert_true((size_t)memory.st_size == 4 * MIB);
    assert_true((size_t)memory.st_blocks * 512 == 4 * MIB);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, (off_t)(8 * MIB)), -1);
    assert_int_equal(close(fd), 0);
}

static void lack_of_host_memory_is_refused_with_size_and_gpu(void **state)
{
    int fd;

    (void)state;
    assert_int_equal(tdm__block_memory_create(3, (size_t)1 << 62, &fd), TDM_E_NOMEM);
    assert_non_null(strstr(tdm_error_detail(), "4398046511104.0 MiB for a block of GPU 3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_has_all_its_pages_and_keeps_its_size),
        cmocka_unit_test(lack_of_host_memory_is_refused_with_size_and_gpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
