/* broker_remote_test.c - the client of the daemon's broker gets blocks and rejects invalid
 * replies. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/runtime.h"
#include "colocate/broker/broker_remote.h"
#include "tests/support/one_node.h"
#include "tests/support/rpc_pair.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB    ((size_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TIMEOUT_MS = 5000 };

static tdm_runtime *runtime;

static const struct tdm__block_request two_blocks = {
    .tag = "weights", .sizes_bytes = {4 << 20, 2 << 20}, .count = 2};

static struct tdm__broker_client *client_of(struct tdm__conn *conn)
{
    struct tdm__broker_client *client = NULL;

    TRY(tdm__broker_client_open_remote(conn, TIMEOUT_MS, &client));
    return client;
}

static void blocks_are_made_opened_and_released(void **state)
{
    struct tdm__block_handle blocks[2];
    struct tdm__block_handle again;
    struct tdm__broker_client *client;
    struct tdm__conn *daemon;
    uint32_t word = 0;

    (void)state;
    TRY(tdm__runtime_daemon(runtime, &daemon));
    client = client_of(daemon);
    TRY(client->ops->make(client, &two_blocks, blocks));
    assert_int_equal(blocks[1].size_bytes, 2 * MIB);
    assert_true(one_node_used_bytes(runtime) == 6 * MIB);

    TRY(client->ops->open(client, &blocks[1].key, &again));
    assert_int_equal(again.size_bytes, 2 * MIB);
    assert_int_equal(pwrite(blocks[1].fd, "\1\2\3\4", 4, 4096), 4);
    assert_int_equal(pread(again.fd, &word, 4, 4096), 4);
    assert_int_equal(word, 0x04030201);

    TRY(client->ops->release(client, &again.key, 1));
    assert_true(one_node_used_bytes(runtime) == 6 * MIB); /* The block has one more hold. */
    TRY(client->ops->release(client, &blocks[0].key, 1));
    TRY(client->ops->release(client, &blocks[1].key, 1));
    assert_true(one_node_used_bytes(runtime) == 0);
    assert_int_equal(client->ops->release(client, &blocks[1].key, 1), TDM_E_NOT_FOUND);
    assert_int_equal(client->ops->open(client, &blocks[1].key, &again), TDM_E_NOT_FOUND);
    (void)close(blocks[0].fd);
    (void)close(blocks[1].fd);
    (void)close(again.fd);
    tdm__broker_client_destroy(client);
}

/* Returns a descriptor like that of a GPU's driver, which others can open by the key. */
static void memory_of_the_tenants_own_is_adopted(void **state)
{
    int fds[2] = {memfd_create("own", MFD_CLOEXEC), memfd_create("own", MFD_CLOEXEC)};
    struct tdm__block_handle opened;
    struct tdm__broker_client *client;
    struct tdm__conn *daemon;
    struct tdm__id keys[2];
    uint32_t word = 0;

    (void)state;
    TRY(tdm__runtime_daemon(runtime, &daemon));
    client = client_of(daemon);
    assert_int_equal(pwrite(fds[1], "\1\2\3\4", 4, 0), 4);
    TRY(client->ops->adopt(client, &two_blocks, fds, keys));
    assert_true(one_node_used_bytes(runtime) == 6 * MIB);
    TRY(client->ops->open(client, &keys[1], &opened));
    assert_int_equal(opened.size_bytes, 2 * MIB);
    assert_int_equal(pread(opened.fd, &word, 4, 0), 4);
    assert_int_equal(word, 0x04030201);
    TRY(client->ops->release(client, &keys[1], 1));
    TRY(client->ops->release(client, keys, 2));
    assert_true(one_node_used_bytes(runtime) == 0);
    (void)close(opened.fd);
    (void)close(fds[0]);
    (void)close(fds[1]);
    tdm__broker_client_destroy(client);
}

static void adopting_without_a_descriptor_for_each_is_refused(void **state)
{
    (void)state;
    assert_int_equal(one_node_call(runtime, "block.adopt", NULL, "us(uu)", (uint64_t)0, "weights",
                                   (uint64_t)(2 * MIB), (uint64_t)(2 * MIB)),
                     TDM_E_PROTOCOL);
    assert_true(one_node_used_bytes(runtime) == 0);
}

/* Lets this process have descriptors again after a while. */
static void *restore_limit(void *before)
{
    (void)usleep(100 * 1000);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, before), 0);
    return NULL;
}

/* Takes all descriptors away, and starts a thread that gives them back. */
static pthread_t lack_descriptors(struct rlimit *before)
{
    int next = dup(STDERR_FILENO);
    struct rlimit tight;
    pthread_t thread;

    assert_int_equal(close(next), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
    tight = *before;
    tight.rlim_cur = (rlim_t)next;
    assert_int_equal(pthread_create(&thread, NULL, restore_limit, before), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    return thread;
}

static void blocks_are_awaited_while_descriptors_are_short(void **state)
{
    struct tdm__block_handle blocks[2];
    struct tdm__block_handle again;
    struct tdm__broker_client *client;
    struct tdm__conn *daemon;
    struct rlimit before;
    pthread_t thread;

    (void)state;
    TRY(tdm__runtime_daemon(runtime, &daemon));
    client = client_of(daemon);
    thread = lack_descriptors(&before);
    TRY(client->ops->make(client, &two_blocks, blocks));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(one_node_used_bytes(runtime) == 6 * MIB);

    thread = lack_descriptors(&before);
    TRY(client->ops->open(client, &blocks[1].key, &again));
    assert_int_equal(pthread_join(thread, NULL), 0);
    TRY(client->ops->release(client, &again.key, 1));
    TRY(client->ops->release(client, &blocks[0].key, 1));
    TRY(client->ops->release(client, &blocks[1].key, 1));
    assert_true(one_node_used_bytes(runtime) == 0); /* Nothing is held by the failed attempts. */
    (void)close(blocks[0].fd);
    (void)close(blocks[1].fd);
    (void)close(again.fd);
    tdm__broker_client_destroy(client);
}

static void lasting_shortage_of_descriptors_is_an_error_with_the_limit(void **state)
{
    struct tdm__block_handle blocks[2];
    struct tdm__broker_client *client = NULL;
    struct tdm__conn *daemon;
    struct rlimit before;
    pthread_t thread;

    (void)state;
    TRY(tdm__runtime_daemon(runtime, &daemon));
    TRY(tdm__broker_client_open_remote(daemon, 40, &client));
    thread = lack_descriptors(&before);
    assert_int_equal(client->ops->make(client, &two_blocks, blocks), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "raise that limit (ulimit -n)"));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(one_node_used_bytes(runtime) == 0);
    tdm__broker_client_destroy(client);
}

/* ---- invalid replies of a broker ----------------------------------------------------------- */

enum nonsense { NO_DESCRIPTORS, ONE_KEY, SHORT_KEYS, NO_SIZE, NONSENSE_COUNT };

static void answer_nonsense(void *arg, struct tdm__incoming_call *incoming)
{
    static const char key[16] = "a block's key..";
    const int fds[2] = {STDERR_FILENO, STDERR_FILENO};
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    switch (*(const enum nonsense *)arg) {
    case NO_DESCRIPTORS:
        TRY(tdm_pack(writer, "(bb)", key, sizeof(key), key, sizeof(key)));
        tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
        break;
    case ONE_KEY:
        TRY(tdm_pack(writer, "(b)", key, sizeof(key)));
        tdm__incoming_reply(incoming, tdm_writer_bytes(writer), fds, 2);
        break;
    case SHORT_KEYS:
        TRY(tdm_pack(writer, "(bb)", key, (size_t)15, key, (size_t)15));
        tdm__incoming_reply(incoming, tdm_writer_bytes(writer), fds, 2);
        break;
    case NO_SIZE:
    case NONSENSE_COUNT:
        TRY(tdm_pack(writer, "s", "large"));
        tdm__incoming_reply(incoming, tdm_writer_bytes(writer), fds, 1);
        break;
    }
    tdm_writer_destroy(writer);
}

static uint32_t open_descriptors(void)
{
    uint32_t count = 0;

    for (int fd = 0; fd < 1024; fd++) {
        count += lseek(fd, 0, SEEK_CUR) >= 0 || errno != EBADF ? 1 : 0;
    }
    return count;
}

static void nonsense_of_a_broker_is_refused_and_leaves_no_descriptor(void **state)
{
    struct tdm__block_handle blocks[2] = {{.fd = -7}, {.fd = -7}};
    struct tdm__id key = {{1}};
    enum nonsense nonsense;
    struct tdm__broker_client *client;
    struct rpc_pair pair;
    uint32_t descriptors;

    (void)state;
    pair_create(&pair);
    pair_join(&pair);
    tdm__rpc_set_call_handler(pair.rpcs[1], answer_nonsense, &nonsense);
    client = client_of(pair.conns[0]);
    descriptors = open_descriptors();
    for (nonsense = NO_DESCRIPTORS; nonsense < NO_SIZE; nonsense++) {
        assert_int_equal(client->ops->make(client, &two_blocks, blocks), TDM_E_PROTOCOL);
    }
    assert_int_equal(client->ops->open(client, &key, blocks), TDM_E_PROTOCOL);
    assert_int_equal(blocks[0].fd, -7);
    assert_int_equal(open_descriptors(), descriptors);
    tdm__broker_client_destroy(client);
    pair_destroy(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_made_opened_and_released),
        cmocka_unit_test(memory_of_the_tenants_own_is_adopted),
        cmocka_unit_test(adopting_without_a_descriptor_for_each_is_refused),
        cmocka_unit_test(blocks_are_awaited_while_descriptors_are_short),
        cmocka_unit_test(lasting_shortage_of_descriptors_is_an_error_with_the_limit),
        cmocka_unit_test(nonsense_of_a_broker_is_refused_and_leaves_no_descriptor),
    };
    int failed;

    runtime = one_node_start(16 * MIB);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
