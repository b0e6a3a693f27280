/* mapped_target_test.c - a target's blocks are mapped one after the other, or not at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/mapped_target.h"

#include "tests/support/host_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)
#define UNIT   ((size_t)TDM__BLOCK_BYTES_UNIT)

/* Two blocks of another process, as the target of an engine rank. */
struct fixture {
    struct host_gpu *gpu;
    struct tdm__block *blocks[2];
    struct tdm__transfer_target target;
};

static void fixture_open(struct fixture *fixture)
{
    const size_t sizes[2] = {UNIT, 2 * UNIT};

    *fixture = (struct fixture){.gpu = host_gpu_open(16 * UNIT, false)};
    TRY(fixture->gpu->devices[1]->ops->create(fixture->gpu->devices[1], "weights", sizes, 2,
                                              fixture->blocks));
    fixture->target = (struct tdm__transfer_target){
        .blocks_count = 2, .keys = {fixture->blocks[0]->key, fixture->blocks[1]->key}};
}

/* Also checks that no memory is left. */
static void fixture_close(struct fixture *fixture)
{
    fixture->gpu->devices[1]->ops->release(fixture->gpu->devices[1], fixture->blocks, 2);
    assert_int_equal(host_gpu_used_bytes(fixture->gpu), 0);
    host_gpu_close(fixture->gpu);
}

static void test_blocks_are_mapped_one_after_the_other(void **state)
{
    struct tdm__mapped_target target = {.address = NULL};
    struct tdm__device *device;
    struct fixture fixture;
    void *second;

    (void)state;
    fixture_open(&fixture);
    device = fixture.gpu->devices[1];
    TRY(tdm__mapped_target_map(&target, fixture.gpu->devices[0], &fixture.target, 3, 3 * UNIT));
    assert_int_equal(target.size_bytes, 3 * UNIT);
    memset(target.address + UNIT, 7, 2 * UNIT);
    TRY(device->ops->reserve(device, 2 * UNIT, &second));
    TRY(device->ops->map(device, second, fixture.blocks[1], TDM__READ_WRITE));
    assert_int_equal(((char *)second)[2 * UNIT - 1], 7);
    TRY(device->ops->unmap(device, second, 2 * UNIT));
    device->ops->unreserve(device, second, 2 * UNIT);
    tdm__mapped_target_unmap(&target, fixture.gpu->devices[0]);
    assert_null(target.address);
    tdm__mapped_target_unmap(&target, fixture.gpu->devices[0]); /* Nothing is mapped now. */
    fixture_close(&fixture);
}

static void test_target_that_is_too_small_is_refused_with_both_sizes(void **state)
{
    struct tdm__mapped_target target = {.address = NULL};
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture);
    assert_int_equal(
        tdm__mapped_target_map(&target, fixture.gpu->devices[0], &fixture.target, 3, 3 * UNIT + 1),
        TDM_E_PROTOCOL);
    assert_non_null(strstr(
        tdm_error_detail(),
        "engine rank 3 failed: its memory has 6291456 bytes, the transfer plan needs 6291457"));
    tdm__mapped_target_unmap(&target, fixture.gpu->devices[0]);
    fixture_close(&fixture);
}

static void test_unknown_block_leaves_nothing(void **state)
{
    struct tdm__mapped_target target = {.address = NULL};
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture);
    fixture.target.keys[1].bytes[0] ^= 1;
    assert_int_equal(
        tdm__mapped_target_map(&target, fixture.gpu->devices[0], &fixture.target, 3, UNIT),
        TDM_E_NOT_FOUND);
    tdm__mapped_target_unmap(&target, fixture.gpu->devices[0]);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_mapped_one_after_the_other),
        cmocka_unit_test(test_target_that_is_too_small_is_refused_with_both_sizes),
        cmocka_unit_test(test_unknown_block_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
