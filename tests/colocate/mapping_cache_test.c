/* mapping_cache_test.c - a process maps memory on a virtual GPU and caches unmapped mappings. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/host/mapping_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE_BYTES = TDM__PAGE_TABLE_UNIT_BYTES };

static int memory_make(void)
{
    int fd = memfd_create("mapped-test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, SIZE_BYTES), 0);
    return fd;
}

static char *addresses_make(size_t size_bytes)
{
    void *address = NULL;

    assert_int_equal(tdm__address_range_reserve(size_bytes, &address), TDM_OK);
    assert_int_equal((uintptr_t)address % TDM__PAGE_TABLE_UNIT_BYTES, 0);
    return address;
}

static void show(struct tdm__mapping_cache *mapped, void *address, int fd)
{
    assert_int_equal(tdm__mapping_cache_map(mapped, address, SIZE_BYTES, fd, TDM__READ_WRITE),
                     TDM_OK);
}

static void hide(struct tdm__mapping_cache *mapped, void *address)
{
    assert_int_equal(tdm__mapping_cache_unmap(mapped, address, SIZE_BYTES), TDM_OK);
}

static void cached_mapping_is_moved_back_instead_of_mapped_again(void **state)
{
    struct tdm__mapping_cache mapped = {.entries = NULL};
    char *address = addresses_make(SIZE_BYTES);
    int fd = memory_make();

    (void)state;
    show(&mapped, address, fd);
    address[SIZE_BYTES - 1] = 7;
    hide(&mapped, address);
    assert_int_equal(mapped.cached_bytes, SIZE_BYTES);
    show(&mapped, address, fd);
    assert_int_equal(mapped.cached_bytes, 0);
    assert_int_equal(address[SIZE_BYTES - 1], 7);
    tdm__mapping_cache_forget(&mapped, address, SIZE_BYTES);
    (void)munmap(address, SIZE_BYTES);
    tdm__mapping_cache_fini(&mapped);
    (void)close(fd);
}

static void the_same_addresses_show_other_memory(void **state)
{
    struct tdm__mapping_cache mapped = {.entries = NULL};
    char *address = addresses_make(SIZE_BYTES);
    const int fds[] = {memory_make(), memory_make()};

    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        show(&mapped, address, fds[turn % 2]);
        assert_int_equal(address[0], turn < 2 ? 0 : turn % 2 + 1);
        address[0] = (char)(turn % 2 + 1);
        hide(&mapped, address);
    }
    (void)munmap(address, SIZE_BYTES);
    tdm__mapping_cache_fini(&mapped);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static void no_more_lies_aside_than_three_times_what_was_shown(void **state)
{
    struct tdm__mapping_cache mapped = {.entries = NULL};
    char *address = addresses_make((size_t)2 * SIZE_BYTES);

    (void)state;
    for (int turn = 0; turn < 5; turn++) {
        const int fds[] = {memory_make(), memory_make()};

        show(&mapped, address, fds[0]);
        show(&mapped, address + SIZE_BYTES, fds[1]);
        assert_int_equal(tdm__mapping_cache_unmap(&mapped, address, (size_t)2 * SIZE_BYTES),
                         TDM_OK);
        (void)close(fds[0]);
        (void)close(fds[1]);
        assert_int_equal(mapped.mapped_bytes, 0);
        assert_int_equal(mapped.cached_bytes, (size_t)(turn < 3 ? turn + 1 : 3) * 2 * SIZE_BYTES);
    }
    (void)munmap(address, (size_t)2 * SIZE_BYTES);
    tdm__mapping_cache_fini(&mapped);
    assert_int_equal(mapped.cached_bytes, 0);
}

static void exchanged_mapping_is_cached_under_its_new_address(void **state)
{
    struct tdm__mapping_cache mapped = {.entries = NULL};
    char *a = addresses_make(SIZE_BYTES);
    char *b = addresses_make(SIZE_BYTES);
    char *aside = addresses_make(SIZE_BYTES);
    int fd_a = memory_make();
    int fd_b = memory_make();

    (void)state;
    show(&mapped, a, fd_a);
    show(&mapped, b, fd_b);
    a[5] = 'a';
    b[5] = 'b';
    assert_int_equal(tdm__page_tables_move(aside, a, SIZE_BYTES), 0);
    assert_int_equal(tdm__page_tables_move(a, b, SIZE_BYTES), 0);
    assert_int_equal(tdm__page_tables_move(b, aside, SIZE_BYTES), 0);
    tdm__mapping_cache_exchange(&mapped, a, b);
    assert_int_equal(a[5], 'b');
    hide(&mapped, a);
    hide(&mapped, b);
    show(&mapped, a, fd_a);
    assert_int_equal(a[5], 'a');
    tdm__mapping_cache_forget(&mapped, a, SIZE_BYTES);
    (void)munmap(a, SIZE_BYTES);
    (void)munmap(b, SIZE_BYTES);
    (void)munmap(aside, SIZE_BYTES);
    tdm__mapping_cache_fini(&mapped);
    (void)close(fd_a);
    (void)close(fd_b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_mapping_is_moved_back_instead_of_mapped_again),
        cmocka_unit_test(the_same_addresses_show_other_memory),
        cmocka_unit_test(no_more_lies_aside_than_three_times_what_was_shown),
        cmocka_unit_test(exchanged_mapping_is_cached_under_its_new_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
