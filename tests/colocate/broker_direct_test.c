/* broker_direct_test.c - a process with its own broker gets descriptors that it owns. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/broker/broker_client.h"
#include "tests/support/direct_broker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { COUNT = 2 };
#define BLOCK_BYTES ((size_t)TDM__BLOCK_BYTES_UNIT)

static const struct tdm__tenant tenants[2] = {{.id = {{1}}, .name = "trainer rank 0"},
                                              {.id = {{2}}, .name = "engine 0"}};
static const struct tdm__block_request request = {
    .tag = "weights", .sizes_bytes = {BLOCK_BYTES, 2 * BLOCK_BYTES}, .count = COUNT};

static struct tdm__broker *broker;
static struct tdm__broker_client *clients[2];

static int set_up(void **state)
{
    (void)state;
    if (tdm__broker_create(1, 8 * BLOCK_BYTES, &broker) != TDM_OK) {
        return 1;
    }
    return tdm__broker_client_open_direct(broker, &tenants[0], &clients[0]) != TDM_OK ||
           tdm__broker_client_open_direct(broker, &tenants[1], &clients[1]) != TDM_OK;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__broker_client_destroy(clients[0]);
    tdm__broker_client_destroy(clients[1]);
    tdm__broker_destroy(broker);
    return 0;
}

static size_t used_bytes(void)
{
    struct tdm__broker_gpu gpu;

    tdm__broker_gpu_usage(broker, 0, &gpu);
    return gpu.used_bytes;
}

static tdm_status release(struct tdm__broker_client *client, const struct tdm__id *key)
{
    return client->ops->release(client, key, 1);
}

static bool are_one_file(int fd, int other)
{
    struct stat a;
    struct stat b;

    assert_int_equal(fstat(fd, &a), 0);
    assert_int_equal(fstat(other, &b), 0);
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static void blocks_outlive_the_descriptors_that_were_handed_out(void **state)
{
    struct tdm__block_handle blocks[COUNT];
    struct tdm__block_handle again;

    (void)state;
    assert_int_equal(clients[0]->ops->make(clients[0], &request, blocks), TDM_OK);
    assert_int_equal(used_bytes(), 3 * BLOCK_BYTES);
    assert_int_equal(clients[1]->ops->open(clients[1], &blocks[0].key, &again), TDM_OK);
    assert_int_not_equal(again.fd, blocks[0].fd);
    assert_true(are_one_file(again.fd, blocks[0].fd));
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(close(blocks[i].fd), 0);
    }
    assert_int_equal(close(again.fd), 0);
    assert_int_equal(clients[0]->ops->open(clients[0], &blocks[1].key, &again), TDM_OK);
    assert_int_equal(again.size_bytes, 2 * BLOCK_BYTES);
    assert_int_equal(close(again.fd), 0);
}

static void each_speaks_for_its_own_tenant(void **state)
{
    struct tdm__block_handle blocks[COUNT];
    struct tdm__block_handle opened;

    (void)state;
    assert_int_equal(clients[0]->ops->make(clients[0], &request, blocks), TDM_OK);
    assert_int_equal(release(clients[1], &blocks[0].key), TDM_E_NOT_FOUND);
    assert_int_equal(clients[1]->ops->open(clients[1], &blocks[0].key, &opened), TDM_OK);
    assert_int_equal(release(clients[0], &blocks[0].key), TDM_OK);
    assert_int_equal(release(clients[1], &blocks[0].key), TDM_OK);
    assert_int_equal(used_bytes(), 2 * BLOCK_BYTES);
    (void)close(opened.fd);
    (void)close(blocks[0].fd);
    (void)close(blocks[1].fd);
}

static void all_releases_are_tried_and_the_first_failure_is_returned(void **state)
{
    struct tdm__block_handle blocks[COUNT];
    struct tdm__id keys[COUNT + 1] = {{{9}}};

    (void)state;
    assert_int_equal(clients[0]->ops->make(clients[0], &request, blocks), TDM_OK);
    for (int i = 0; i < COUNT; i++) {
        keys[i + 1] = blocks[i].key;
        (void)close(blocks[i].fd);
    }
    assert_int_equal(clients[0]->ops->release(clients[0], keys, COUNT + 1), TDM_E_NOT_FOUND);
    assert_int_equal(used_bytes(), 0);
}

/* Limits the process to the broker's own descriptors and one of the two that the caller gets. */
static void without_descriptors_nothing_is_made(void **state)
{
    struct tdm__block_handle blocks[COUNT];
    struct rlimit before;
    struct rlimit tight;
    int next = dup(0);
    int after;

    (void)state;
    assert_true(next >= 0);
    assert_int_equal(close(next), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t)next + COUNT + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    assert_int_not_equal(clients[0]->ops->make(clients[0], &request, blocks), TDM_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(used_bytes(), 0);
    assert_int_equal(clients[0]->ops->make(clients[0], &request, blocks), TDM_OK);
    (void)close(blocks[0].fd);
    (void)close(blocks[1].fd);
    after = dup(0); /* The broker keeps two descriptors, which it may have pooled before. */
    assert_in_range(after, next, next + COUNT);
    (void)close(after);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(blocks_outlive_the_descriptors_that_were_handed_out),
        TEST(each_speaks_for_its_own_tenant),
        TEST(all_releases_are_tried_and_the_first_failure_is_returned),
        TEST(without_descriptors_nothing_is_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
