/* broker_test.c - the broker's accounting is correct for every order of events. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/broker/broker.h"

#include "colocate/broker/block_memory.h"
#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

struct fixture {
    struct tdm__broker *broker;
    struct tdm__tenant trainer;
    struct tdm__tenant engine;
    size_t hook_bytes; /* Charged bytes minus released bytes. */
};

static void hook_charged(void *arg, uint32_t gpu, const struct tdm__tenant *owner, const char *tag,
                         size_t bytes)
{
    (void)gpu;
    (void)owner;
    (void)tag;
    ((struct fixture *)arg)->hook_bytes += bytes;
}

static void hook_released(void *arg, uint32_t gpu, const struct tdm__tenant *owner, const char *tag,
                          size_t bytes)
{
    (void)gpu;
    (void)owner;
    (void)tag;
    ((struct fixture *)arg)->hook_bytes -= bytes;
}

static int set_up(void **state)
{
    static struct fixture fixture;
    const struct tdm__broker_callbacks hook = {hook_charged, hook_released, &fixture};

    memset(&fixture, 0, sizeof(fixture));
    assert_int_equal(tdm__broker_create(2, 64 * MIB, &fixture.broker), TDM_OK);
    tdm__broker_set_callbacks(fixture.broker, &hook);
    assert_int_equal(tdm__id_generate(&fixture.trainer.id), TDM_OK);
    assert_int_equal(tdm__id_generate(&fixture.engine.id), TDM_OK);
    (void)snprintf(fixture.trainer.name, sizeof(fixture.trainer.name), "trainer rank 1");
    (void)snprintf(fixture.engine.name, sizeof(fixture.engine.name), "engine 0");
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    tdm__broker_destroy(((struct fixture *)*state)->broker);
    return 0;
}

static tdm_status make(struct fixture *f, const struct tdm__tenant *owner, const char *tag,
                       size_t bytes, struct tdm__block_handle *block_out)
{
    const struct tdm__block_request request = {
        .gpu = 1, .tag = tag, .sizes_bytes = {bytes}, .count = 1};

    return tdm__broker_create_blocks(f->broker, owner, &request, block_out);
}

static size_t used(const struct fixture *f)
{
    struct tdm__broker_gpu gpu;

    tdm__broker_gpu_usage(f->broker, 1, &gpu);
    assert_int_equal(gpu.used_bytes, f->hook_bytes);
    return gpu.used_bytes;
}

static void request_that_does_not_fit_is_refused_with_all_numbers(void **state)
{
    struct fixture *f = *state;
    struct tdm__block_handle block;

    assert_int_equal(make(f, &f->trainer, "weights", 40 * MIB, &block), TDM_OK);
    assert_int_equal(make(f, &f->engine, "kv_cache", 26 * MIB, &block), TDM_E_DEVICE_FULL);
    assert_string_equal(tdm_error_detail(),
                        "GPU 1 cannot hold engine 0's kv_cache: 26.0 MiB wanted, 24.0 MiB free "
                        "of 64.0; trainer rank 1 holds weights 40.0 MiB");
    assert_int_equal(make(f, &f->engine, "kv_cache", 24 * MIB, &block), TDM_OK);
    assert_int_equal(used(f), 64 * MIB);
}

static void missing_pool_memory_is_listed_and_can_be_added(void **state)
{
    struct fixture *f = *state;
    const struct tdm__block_request request = {
        .gpu = 1, .tag = "weights", .sizes_bytes = {4 * MIB, 2 * MIB, 4 * MIB}, .count = 3};
    struct tdm__block_handle blocks[TDM__BLOCKS_MAX];
    size_t missing_bytes[TDM__BLOCKS_MAX];
    struct tdm__broker_gpu gpu;
    uint32_t missing;
    int fd;

    assert_int_equal(tdm__block_memory_create(1, 4 * MIB, &fd), TDM_OK);
    assert_int_equal(tdm__broker_add_to_pool(f->broker, 1, 4 * MIB, fd), TDM_OK);
    assert_int_equal(
        tdm__broker_missing_sizes(f->broker, &f->engine, &request, missing_bytes, &missing),
        TDM_OK);
    assert_int_equal(missing, 2); /* The pool has one of the two large blocks. */
    assert_true(missing_bytes[0] == 2 * MIB && missing_bytes[1] == 4 * MIB);
    assert_int_equal(tdm__broker_create_blocks(f->broker, &f->engine, &request, blocks), TDM_OK);
    assert_int_equal(blocks[0].fd, fd);
    tdm__broker_gpu_usage(f->broker, 1, &gpu);
    assert_true(gpu.pooled_bytes == 0 && gpu.used_bytes == 10 * MIB);
}

static void nothing_is_missing_for_a_wish_that_does_not_fit(void **state)
{
    struct fixture *f = *state;
    struct tdm__block_request request = {
        .gpu = 1, .tag = "weights", .sizes_bytes = {40 * MIB, 26 * MIB}, .count = 2};
    size_t missing_bytes[TDM__BLOCKS_MAX];
    uint32_t missing;

    assert_int_equal(
        tdm__broker_missing_sizes(f->broker, &f->engine, &request, missing_bytes, &missing),
        TDM_E_DEVICE_FULL);
    request.gpu = 2;
    assert_int_equal(
        tdm__broker_missing_sizes(f->broker, &f->engine, &request, missing_bytes, &missing),
        TDM_E_INVAL);
}

static void several_blocks_are_made_all_or_none(void **state)
{
    struct fixture *f = *state;
    struct tdm__block_handle blocks[TDM__BLOCKS_MAX];
    struct tdm__block_request request = {
        .tag = "weights", .sizes_bytes = {32 * MIB, 32 * MIB, 2 * MIB}, .count = 3};

    assert_int_equal(tdm__broker_create_blocks(f->broker, &f->engine, &request, blocks),
                     TDM_E_DEVICE_FULL);
    assert_int_equal(f->hook_bytes, 0);
    request.count = 2;
    assert_int_equal(tdm__broker_create_blocks(f->broker, &f->engine, &request, blocks), TDM_OK);
    assert_int_equal(f->hook_bytes, 64 * MIB);
    assert_false(tdm__id_equal(&blocks[0].key, &blocks[1].key));
}

static void importer_keeps_the_charge_until_it_releases_the_block(void **state)
{
    struct fixture *f = *state;
    struct tdm__block_handle block;
    struct tdm__block_handle opened;
    struct tdm__broker_usage row;

    assert_int_equal(make(f, &f->trainer, "weights", 8 * MIB, &block), TDM_OK);
    assert_int_equal(tdm__broker_open_block(f->broker, &block.key, &f->engine, &opened), TDM_OK);
    assert_int_equal(opened.size_bytes, 8 * MIB);
    assert_int_equal(tdm__broker_release_block(f->broker, &block.key, &f->trainer.id), TDM_OK);
    assert_int_equal(used(f), 8 * MIB);
    assert_int_equal(tdm__broker_list_usage(f->broker, 1, &row, 1), 1);
    assert_int_equal(row.releasing_bytes, 8 * MIB);
    assert_string_equal(row.owner.name, "trainer rank 1");
    assert_string_equal(row.holder, "engine 0");
    assert_int_equal(make(f, &f->trainer, "weights", 64 * MIB, &opened), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "(being released: engine 0 still maps it)"));
    assert_int_equal(tdm__broker_release_block(f->broker, &block.key, &f->trainer.id),
                     TDM_E_NOT_FOUND);
    assert_int_equal(tdm__broker_release_block(f->broker, &block.key, &f->engine.id), TDM_OK);
    assert_int_equal(used(f), 0);
    assert_int_equal(tdm__broker_open_block(f->broker, &block.key, &f->engine, &opened),
                     TDM_E_NOT_FOUND);
}

static void dead_tenant_releases_all_blocks_but_those_that_others_hold(void **state)
{
    struct fixture *f = *state;
    struct tdm__block_handle kept;
    struct tdm__block_handle gone;

    assert_int_equal(make(f, &f->trainer, "weights", 8 * MIB, &kept), TDM_OK);
    assert_int_equal(make(f, &f->trainer, "optimizer", 16 * MIB, &gone), TDM_OK);
    assert_int_equal(tdm__broker_open_block(f->broker, &kept.key, &f->engine, &kept), TDM_OK);
    assert_int_equal(tdm__broker_open_block(f->broker, &kept.key, &f->engine, &kept), TDM_OK);
    tdm__broker_remove_tenant(f->broker, &f->trainer.id);
    assert_int_equal(used(f), 8 * MIB);
    tdm__broker_remove_tenant(f->broker, &f->engine.id);
    assert_int_equal(used(f), 0);
}

static void released_block_is_recycled_under_a_new_key(void **state)
{
    struct fixture *f = *state;
    struct tdm__block_handle first;
    struct tdm__block_handle second;
    struct tdm__broker_gpu gpu;

    assert_int_equal(make(f, &f->trainer, "weights", 8 * MIB, &first), TDM_OK);
    assert_int_equal(tdm__broker_release_block(f->broker, &first.key, &f->trainer.id), TDM_OK);
    tdm__broker_gpu_usage(f->broker, 1, &gpu);
    assert_int_equal(gpu.pooled_bytes, 8 * MIB);
    assert_int_equal(make(f, &f->engine, "weights", 8 * MIB, &second), TDM_OK);
    assert_int_equal(first.fd, second.fd);
    assert_false(tdm__id_equal(&first.key, &second.key));
    tdm__broker_gpu_usage(f->broker, 1, &gpu);
    assert_int_equal(gpu.pooled_bytes, 0);
}

static void the_pool_never_exceeds_the_gpu(void **state)
{
    struct fixture *f = *state;
    struct tdm__block_handle block;
    struct tdm__broker_gpu gpu;

    for (size_t size = 2; size <= 40; size += 2) {
        assert_int_equal(make(f, &f->trainer, "weights", size * MIB, &block), TDM_OK);
        assert_int_equal(tdm__broker_release_block(f->broker, &block.key, &f->trainer.id), TDM_OK);
        tdm__broker_gpu_usage(f->broker, 1, &gpu);
        assert_true(gpu.pooled_bytes <= 64 * MIB && gpu.pooled_bytes >= size * MIB);
    }
}

static void invalid_requests_are_refused(void **state)
{
    struct fixture *f = *state;
    struct tdm__block_handle block[TDM__BLOCKS_MAX];
    struct tdm__block_request request = {
        .gpu = 2, .tag = "x", .sizes_bytes = {2 * MIB}, .count = 1};

    assert_int_equal(tdm__broker_create_blocks(f->broker, &f->engine, &request, block),
                     TDM_E_INVAL);
    request.gpu = 0;
    request.sizes_bytes[0] = MIB;
    assert_int_equal(tdm__broker_create_blocks(f->broker, &f->engine, &request, block),
                     TDM_E_INVAL);
    request.sizes_bytes[0] = SIZE_MAX - 2 * MIB + 1;
    assert_int_equal(tdm__broker_create_blocks(f->broker, &f->engine, &request, block),
                     TDM_E_INVAL);
    request.sizes_bytes[0] = 2 * MIB;
    request.count = TDM__BLOCKS_MAX + 1;
    assert_int_equal(tdm__broker_create_blocks(f->broker, &f->engine, &request, block),
                     TDM_E_INVAL);
    request.count = 1;
    request.tag = "a tag of more than thirty-one bytes";
    assert_int_equal(tdm__broker_create_blocks(f->broker, &f->engine, &request, block),
                     TDM_E_INVAL);
}

/* In every order of events the used bytes are the sum of the usage records (asserted in
 * broker.c), and they end at 0. */
static void random_traffic_leaves_nothing_behind(void **state)
{
    struct fixture *f = *state;
    struct tdm__block_handle held[16];
    bool has[16] = {false};
    struct test_random chance = test_random_init("broker_test", 20261123);

    for (int round = 0; round < 500; round++) {
        size_t slot = test_random_below(&chance, 16);

        if (has[slot]) {
            assert_int_equal(tdm__broker_release_block(f->broker, &held[slot].key, &f->trainer.id),
                             TDM_OK);
            has[slot] = false;
        } else {
            size_t bytes = (1 + (size_t)test_random_below(&chance, 8)) * 2 * MIB;
            tdm_status status = make(f, &f->trainer, "weights", bytes, &held[slot]);

            has[slot] = status == TDM_OK;
            assert_true(has[slot] || status == TDM_E_DEVICE_FULL);
        }
        (void)used(f);
    }
    tdm__broker_remove_tenant(f->broker, &f->trainer.id);
    assert_int_equal(used(f), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(request_that_does_not_fit_is_refused_with_all_numbers),
        TEST(several_blocks_are_made_all_or_none),
        TEST(missing_pool_memory_is_listed_and_can_be_added),
        TEST(nothing_is_missing_for_a_wish_that_does_not_fit),
        TEST(importer_keeps_the_charge_until_it_releases_the_block),
        TEST(dead_tenant_releases_all_blocks_but_those_that_others_hold),
        TEST(released_block_is_recycled_under_a_new_key),
        TEST(the_pool_never_exceeds_the_gpu),
        TEST(invalid_requests_are_refused),
        TEST(random_traffic_leaves_nothing_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
