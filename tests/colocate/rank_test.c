/* rank_test.c - a rank's regions come and go together, and each is in the trace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rank.h"

#include "tests/support/host_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB    ((size_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

static const struct tdm_region_spec specs[] = {{"weights", 2 * MIB, TDM_REGION_KEEP},
                                               {"kv_cache", 4 * MIB, TDM_REGION_DROP},
                                               {"scratch", 2 * MIB, TDM_REGION_DROP}};

struct fixture {
    struct host_gpu *gpu;
    struct tdm__arena *arena;
    struct tdm__rank rank;
};

static int set_up(void **state)
{
    static struct fixture fixture;

    memset(&fixture, 0, sizeof(fixture));
    fixture.gpu = host_gpu_open(8 * MIB, false);
    TRY(tdm__arena_create(fixture.gpu->devices[0], 16 * MIB, &fixture.arena));
    TRY(tdm__regions_create(fixture.gpu->devices[0], fixture.arena, &fixture.rank.regions));
    TRY(tdm__rank_reserve_regions(&fixture.rank, specs, 3));
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    tdm__rank_close(&fixture->rank, NULL); /* The rank was never opened. */
    tdm__regions_destroy(fixture->rank.regions);
    assert_int_equal(host_gpu_used_bytes(fixture->gpu), 0);
    tdm__arena_destroy(fixture->arena);
    host_gpu_close(fixture->gpu);
    return 0;
}

static void declared_memory_costs_nothing_yet(void **state)
{
    struct fixture *fixture = *state;
    void *addresses[TDM_RANK_REGIONS_MAX];
    tdm_region *region;

    assert_int_equal(host_gpu_used_bytes(fixture->gpu), 0);
    tdm__rank_region_addresses(&fixture->rank, addresses);
    TRY(tdm__rank_find_region(&fixture->rank, "kv_cache", &region));
    assert_ptr_equal(tdm_region_address(region), addresses[1]);
    assert_int_equal(tdm__rank_find_region(&fixture->rank, "optimizer", &region), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "optimizer"));
}

static void regions_come_by_their_tag_and_all_go(void **state)
{
    struct fixture *fixture = *state;
    const struct tdm__spans *spans = &fixture->rank.spans;

    TRY(tdm__rank_resume_regions(&fixture->rank, "weights"));
    assert_int_equal(host_gpu_used_bytes(fixture->gpu), 2 * MIB);
    TRY(tdm__rank_resume_regions(&fixture->rank, NULL)); /* This resumes the remaining regions. */
    TRY(tdm__rank_resume_regions(&fixture->rank, NULL));
    assert_int_equal(host_gpu_used_bytes(fixture->gpu), 8 * MIB);
    TRY(tdm__rank_pause_regions(&fixture->rank));
    TRY(tdm__rank_pause_regions(&fixture->rank));
    assert_int_equal(host_gpu_used_bytes(fixture->gpu), 0);
    assert_int_equal(spans->count, 6);
    assert_string_equal(spans->all[0].name, "resume weights");
    assert_true(spans->all[1].bytes == 4 * MIB);
    /* Regions pause in the opposite order. */
    assert_string_equal(spans->all[3].name, "pause scratch");
    assert_string_equal(spans->all[5].name, "pause weights");
}

static void more_regions_than_there_may_be_are_refused(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(tdm__rank_reserve_regions(&fixture->rank, specs, TDM_RANK_REGIONS_MAX + 1),
                     TDM_E_LIMIT);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(declared_memory_costs_nothing_yet),
        EACH(regions_come_by_their_tag_and_all_go),
        EACH(more_regions_than_there_may_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
