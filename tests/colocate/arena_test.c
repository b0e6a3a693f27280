/* arena_test.c - the arena reuses freed memory and respects its budget. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/arena.h"
#include "tests/support/host_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

struct fixture {
    struct host_gpu *gpu;
    struct tdm__arena *arena;
};

static int set_up(void **state)
{
    static struct fixture fixture;

    fixture.gpu = host_gpu_open(2 * MIB, false);
    assert_int_equal(tdm__arena_create(fixture.gpu->devices[0], 160 * MIB, &fixture.arena), TDM_OK);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    tdm__arena_destroy(f->arena);
    host_gpu_close(f->gpu);
    return 0;
}

static void impossible_sizes_are_refused(void **state)
{
    static const size_t sizes[] = {0, SIZE_MAX, SIZE_MAX - 5};
    const struct fixture *f = *state;
    void *address = NULL;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(tdm__arena_alloc(f->arena, sizes[i], &address), TDM_E_INVAL);
        assert_non_null(strstr(tdm_error_detail(), "bytes"));
        assert_null(address);
    }
}

static void freed_memory_is_joined_and_reused(void **state)
{
    struct fixture *f = *state;
    void *pieces[8];
    void *whole;

    for (int i = 0; i < 8; i++) {
        assert_int_equal(tdm__arena_alloc(f->arena, 8 * MIB, &pieces[i]), TDM_OK);
        memset(pieces[i], i, 4096);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(((char *)pieces[i])[4095], i);
        tdm__arena_free(f->arena, pieces[(i * 3) % 8]);
        if (i < 7) {
            continue;
        }
        assert_int_equal(tdm__arena_used_bytes(f->arena), 0);
    }
    assert_int_equal(tdm__arena_alloc(f->arena, 64 * MIB, &whole), TDM_OK);
    assert_int_equal(tdm__arena_grown_bytes(f->arena), 64 * MIB);
    tdm__arena_free(f->arena, whole);
}

static void the_budget_is_named_when_it_is_spent(void **state)
{
    struct fixture *f = *state;
    void *first;
    void *second;

    assert_int_equal(tdm__arena_alloc(f->arena, 100 * MIB, &first), TDM_OK);
    assert_int_equal(tdm__arena_alloc(f->arena, 62 * MIB, &second), TDM_E_NOMEM);
    assert_non_null(strstr(tdm_error_detail(), "62.0 MiB wanted"));
    assert_non_null(strstr(tdm_error_detail(), "budget 160.0 MiB"));
    assert_int_equal(tdm__arena_alloc(f->arena, 60 * MIB, &second), TDM_OK);
    tdm__arena_free(f->arena, first);
    tdm__arena_free(f->arena, second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(impossible_sizes_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(freed_memory_is_joined_and_reused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_budget_is_named_when_it_is_spent, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
