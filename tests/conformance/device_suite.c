/* device_suite.c - what every memory device promises. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/device_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UNIT   ((size_t)2 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

struct fixture {
    void *maker_state;
    struct tdm__device *owner;
    struct tdm__device *importer;
};

static const struct device_suite_maker *suite_maker;

static int set_up(void **state)
{
    static struct fixture fixture;

    fixture.maker_state = suite_maker->open(&fixture.owner, &fixture.importer);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    suite_maker->close(((struct fixture *)*state)->maker_state);
    return 0;
}

/* Sets and checks bytes through the device's own copies, so that it may live on a card. */
static void put(struct tdm__device *device, void *address, int byte, size_t size_bytes)
{
    char *bytes = malloc(size_bytes);

    assert_non_null(bytes);
    memset(bytes, byte, size_bytes);
    TRY(device->ops->copy(device, address, bytes, size_bytes));
    TRY(device->ops->copy_flush(device));
    free(bytes);
}

static void assert_has(struct tdm__device *device, const void *address, int byte, size_t size_bytes)
{
    unsigned char *bytes = malloc(size_bytes);

    assert_non_null(bytes);
    TRY(device->ops->copy(device, bytes, address, size_bytes));
    TRY(device->ops->copy_flush(device));
    for (size_t i = 0; i < size_bytes; i++) {
        if (bytes[i] != byte) {
            fail_msg("byte %zu is %d, not %d", i, bytes[i], byte);
        }
    }
    free(bytes);
}

/* A place with one block of `size_bytes` mapped. */
static void *place(struct tdm__device *device, size_t size_bytes, struct tdm__block **block_out)
{
    void *address;

    TRY(device->ops->reserve(device, size_bytes, &address));
    TRY(device->ops->create(device, "weights", &size_bytes, 1, block_out));
    TRY(device->ops->map(device, address, *block_out, TDM__READ_WRITE));
    return address;
}

static void remove_place(struct tdm__device *device, void *address, struct tdm__block *block)
{
    size_t size_bytes = block->size_bytes;

    TRY(device->ops->unmap(device, address, size_bytes));
    device->ops->release(device, &block, 1);
    device->ops->unreserve(device, address, size_bytes);
}

static void addresses_are_aligned_and_odd_sizes_refused(void **state)
{
    struct tdm__device *device = ((struct fixture *)*state)->owner;
    void *address;

    TRY(device->ops->reserve(device, 3 * UNIT, &address));
    assert_int_equal((uintptr_t)address % device->granularity_bytes, 0);
    device->ops->unreserve(device, address, 3 * UNIT);
    assert_int_equal(device->ops->reserve(device, UNIT + 1, &address), TDM_E_INVAL);
    assert_int_equal(device->ops->reserve(device, 0, &address), TDM_E_INVAL);
}

static void contents_survive_a_move_to_another_address(void **state)
{
    struct tdm__device *device = ((struct fixture *)*state)->owner;
    struct tdm__block *block;
    void *first = place(device, 2 * UNIT, &block);
    void *second;

    put(device, first, 7, 2 * UNIT);
    TRY(device->ops->unmap(device, first, 2 * UNIT));
    TRY(device->ops->reserve(device, 2 * UNIT, &second));
    TRY(device->ops->map(device, second, block, TDM__READ_WRITE));
    assert_has(device, second, 7, 2 * UNIT);
    remove_place(device, second, block);
    device->ops->unreserve(device, first, 2 * UNIT);
}

static void the_capacity_is_real_and_comes_back(void **state)
{
    struct tdm__device *device = ((struct fixture *)*state)->owner;
    const size_t sizes[2] = {16 * UNIT, 16 * UNIT};
    const size_t more = UNIT;
    struct tdm__block *blocks[2];
    struct tdm__block *third;

    TRY(device->ops->create(device, "weights", sizes, 2, blocks));
    assert_int_equal(device->ops->create(device, "kv_cache", &more, 1, &third), TDM_E_DEVICE_FULL);
    device->ops->release(device, &blocks[0], 1);
    TRY(device->ops->create(device, "kv_cache", &more, 1, &third));
    device->ops->release(device, &third, 1);
    device->ops->release(device, &blocks[1], 1);
}

static void importer_sees_the_exporters_bytes(void **state)
{
    struct fixture *f = *state;
    struct tdm__device *importer = f->importer;
    struct tdm__block *block;
    struct tdm__block *imported;
    void *here = place(f->owner, UNIT, &block);
    void *there;

    put(f->owner, here, 3, UNIT);
    TRY(importer->ops->import(importer, &block->key, &imported));
    assert_int_equal(imported->size_bytes, UNIT);
    TRY(importer->ops->reserve(importer, UNIT, &there));
    TRY(importer->ops->map(importer, there, imported, TDM__READ_ONLY));
    assert_has(importer, there, 3, UNIT);
    remove_place(f->owner, here, block);
    assert_has(importer, there, 3, UNIT); /* The mapping keeps the pages alive. */
    remove_place(importer, there, imported);
}

static void imported_block_stays_charged(void **state)
{
    struct fixture *f = *state;
    const size_t all = 32 * UNIT;
    struct tdm__block *block;
    struct tdm__block *imported;
    struct tdm__block *other;

    TRY(f->owner->ops->create(f->owner, "bucket", &all, 1, &block));
    TRY(f->importer->ops->import(f->importer, &block->key, &imported));
    f->owner->ops->release(f->owner, &block, 1);
    assert_int_equal(f->owner->ops->create(f->owner, "weights", &all, 1, &other),
                     TDM_E_DEVICE_FULL);
    f->importer->ops->release(f->importer, &imported, 1);
    TRY(f->owner->ops->create(f->owner, "weights", &all, 1, &other));
    f->owner->ops->release(f->owner, &other, 1);
}

static void unknown_key_opens_nothing(void **state)
{
    struct tdm__device *device = ((struct fixture *)*state)->importer;
    struct tdm__block *block;
    struct tdm__id key;

    TRY(tdm__id_generate(&key));
    assert_int_equal(device->ops->import(device, &key, &block), TDM_E_NOT_FOUND);
}

static void exchange_moves_the_blocks_not_the_addresses(void **state)
{
    struct tdm__device *device = ((struct fixture *)*state)->owner;
    struct tdm__block *blocks[2];
    void *a = place(device, 3 * UNIT, &blocks[0]);
    void *b = place(device, 3 * UNIT, &blocks[1]);
    const struct tdm__mapping at_a = {a, &blocks[0], 1};
    const struct tdm__mapping at_b = {b, &blocks[1], 1};

    put(device, a, 1, 3 * UNIT);
    put(device, b, 2, 3 * UNIT);
    TRY(device->ops->exchange(device, &at_a, &at_b));
    assert_has(device, a, 2, 3 * UNIT);
    assert_has(device, b, 1, 3 * UNIT);
    put(device, a, 4, UNIT);
    TRY(device->ops->unmap(device, a, 3 * UNIT));
    TRY(device->ops->map(device, a, blocks[1], TDM__READ_WRITE));
    assert_has(device, a, 4, UNIT); /* The write went to the block that moved there. */
    remove_place(device, a, blocks[1]);
    remove_place(device, b, blocks[0]);
}

static void host_memory_can_be_copied_from(void **state)
{
    struct tdm__device *device = ((struct fixture *)*state)->owner;
    void *host;

    TRY(device->ops->host_alloc(device, UNIT, &host));
    memset(host, 9, UNIT);
    assert_has(device, host, 9, UNIT);
    device->ops->host_free(device, host, UNIT);
}

int device_suite_run(const char *name, const struct device_suite_maker *maker)
{
#define TEST(promise) cmocka_unit_test_setup_teardown(promise, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(addresses_are_aligned_and_odd_sizes_refused),
        TEST(contents_survive_a_move_to_another_address),
        TEST(the_capacity_is_real_and_comes_back),
        TEST(importer_sees_the_exporters_bytes),
        TEST(imported_block_stays_charged),
        TEST(unknown_key_opens_nothing),
        TEST(exchange_moves_the_blocks_not_the_addresses),
        TEST(host_memory_can_be_copied_from),
    };

    suite_maker = maker;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
