/* memory_arbiter_service_test.c - the daemon's arbiters decide every request and follow the
 * broker. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/worker.h"
#include "runtime/messages/messages.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB    ((uint64_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

static tdm_runtime *runtime;

static tdm_status wish(uint64_t gpu, const char *tag, uint64_t bytes, int64_t timeout_ms)
{
    return one_node_call(runtime, "arbiter.request", NULL, "usui", gpu, tag, bytes, timeout_ms);
}

static tdm_status leaving(uint64_t gpu, const char *tag, uint64_t bytes)
{
    return one_node_call(runtime, "arbiter.announce_release", NULL, "usu", gpu, tag, bytes);
}

/* Creates one block of `bytes` and returns its key. */
static void make(const char *tag, uint64_t bytes, char key[16])
{
    struct tdm__block_keys_message made;
    tdm_document *document;

    TRY(one_node_call(runtime, "block.create", &document, "us(u)", (uint64_t)0, tag, bytes));
    TRY(tdm__block_keys_decode(tdm_document_root(document), &made));
    tdm__message_list_read(&made.keys, 0, key, sizeof(struct tdm__id));
    tdm_document_destroy(document);
}

static void release(const char key[16])
{
    TRY(one_node_call(runtime, "block.release", NULL, "(b)", key, (size_t)16));
}

static void grant_is_used_up_by_the_following_blocks(void **state)
{
    char key[16];

    (void)state;
    TRY(wish(0, "weights", 12 * MIB, 0));
    assert_int_equal(wish(0, "kv_cache", 8 * MIB, 0), TDM_E_DEVICE_FULL); /* 4 MiB are free. */
    make("weights", 12 * MIB, key);
    TRY(wish(0, "kv_cache", 4 * MIB, 0)); /* The grant is not counted twice. */
    make("kv_cache", 4 * MIB, key);
    assert_true(one_node_used_bytes(runtime) == 16 * MIB);
}

static void memory_released_by_the_broker_is_free_for_requests(void **state)
{
    char key[16];

    (void)state;
    make("weights", 16 * MIB, key);
    assert_int_equal(wish(0, "kv_cache", 2 * MIB, 5000), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "weights 16.0 MiB"));
    release(key);
    TRY(wish(0, "kv_cache", 2 * MIB, 0));
}

static void request_waits_until_its_deadline_for_announced_memory(void **state)
{
    char key[16];

    (void)state;
    make("weights", 16 * MIB, key);
    TRY(leaving(0, "weights", 16 * MIB));
    assert_int_equal(wish(0, "kv_cache", 2 * MIB, 100), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "the deadline passed"));
    TRY(leaving(0, "weights", 0));
    assert_int_equal(wish(0, "kv_cache", 2 * MIB, 5000), TDM_E_DEVICE_FULL);
    assert_null(strstr(tdm_error_detail(), "the deadline passed"));
    release(key);
}

static tdm_status report(uint64_t gpu, uint64_t total_bytes, uint64_t free_bytes)
{
    return one_node_call(runtime, "arbiter.report", NULL, "uuu", gpu, total_bytes, free_bytes);
}

/* Returns what the list of the node says of the GPU's use outside Tandem. */
static uint64_t outside_bytes(void)
{
    tdm_document *document;
    uint64_t bytes;

    TRY(one_node_call(runtime, "block.ledger", &document, ""));
    bytes = tdm_value_uint(
        tdm_value_find(tdm_value_at(tdm_document_root(document), 0), "outside_bytes"), UINT64_MAX);
    tdm_document_destroy(document);
    return bytes;
}

/* Goal: what CUDA contexts and other processes take of a GPU is not granted to anybody.  The GPU of
 * this node has 16 MiB of a real one's 20. */
static void reported_usage_outside_is_not_granted(void **state)
{
    char key[16];

    (void)state;
    assert_true(outside_bytes() == 0);
    make("weights", 4 * MIB, key);
    TRY(report(0, 20 * MIB, 6 * MIB)); /* 10 MiB are used outside, of which 4 were not offered. */
    assert_true(outside_bytes() == 10 * MIB);
    assert_int_equal(wish(0, "kv_cache", 8 * MIB, 0), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "8.0 MiB wanted, 6.0 MiB free"));
    assert_non_null(strstr(tdm_error_detail(), "other processes use 6.0 MiB"));
    TRY(report(0, 20 * MIB, 12 * MIB));
    TRY(wish(0, "kv_cache", 8 * MIB, 0));
}

/* While memory is granted, nobody knows whether the device has allocated it already. */
static void report_during_a_grant_is_not_used(void **state)
{
    char key[16];

    (void)state;
    TRY(wish(0, "weights", 12 * MIB, 0));
    TRY(report(0, 16 * MIB, 4 * MIB)); /* The block is made, and the broker does not know it. */
    assert_true(outside_bytes() == 0);
    make("weights", 12 * MIB, key);
    TRY(report(0, 16 * MIB, 4 * MIB));
    assert_true(outside_bytes() == 0);
    TRY(wish(0, "kv_cache", 4 * MIB, 0));
}

static tdm_status uses(uint64_t gpu, const char *tag, uint64_t declared_bytes, uint64_t bytes)
{
    return one_node_call(runtime, "arbiter.outside_usage", NULL, "usuu", gpu, tag, declared_bytes,
                         bytes);
}

/* The larger number counts, if a device cannot have rounded up to it. */
static void outside_usage_of_a_tenant_is_counted(void **state)
{
    (void)state;
    TRY(uses(0, "torch", 4 * MIB, 20 * MIB));
    assert_int_equal(wish(0, "kv_cache", 14 * MIB, 0), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "torch 4.0 MiB (paused"));
    TRY(uses(0, "torch", 4 * MIB, 21 * MIB));
    assert_int_equal(wish(0, "kv_cache", 14 * MIB, 0), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "torch 21.0 MiB (4.0 declared)"));
    TRY(uses(0, "torch", 0, 0));
    TRY(wish(0, "kv_cache", 14 * MIB, 0));
    assert_int_equal(uses(1, "torch", MIB, MIB), TDM_E_INVAL);
    assert_int_equal(uses(0, "torch", UINT64_MAX, 0), TDM_E_INVAL);
    assert_int_equal(uses(0, NULL, MIB, MIB), TDM_E_INVAL);
}

static void impossible_events_are_refused(void **state)
{
    (void)state;
    assert_int_equal(report(1, 20 * MIB, MIB), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "GPU 1 of a node with 1"));
    assert_int_equal(wish(1, "weights", 2 * MIB, 0), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "GPU 1 of a node with 1"));
    assert_int_equal(wish(UINT64_MAX, "weights", 2 * MIB, 0), TDM_E_INVAL);
    assert_int_equal(wish(0, "weights", 0, 0), TDM_E_INVAL);
    assert_int_equal(wish(0, "", 2 * MIB, 0), TDM_E_INVAL);
    assert_int_equal(wish(0, NULL, 2 * MIB, 0), TDM_E_INVAL);
    assert_int_equal(wish(0, "weights", UINT64_MAX, -1), TDM_E_DEVICE_FULL);
    assert_int_equal(leaving(0, "nothing", 2 * MIB), TDM_E_STATE);
    assert_int_equal(one_node_call(runtime, "arbiter.request", NULL, "us", (uint64_t)0, "weights"),
                     TDM_E_PROTOCOL);
    assert_int_equal(one_node_call(runtime, "arbiter.over", NULL, ""), TDM_E_NOT_FOUND);
}

/* ---- a tenant that dies ----------------------------------------------------------------- */

/* Creates one block of the given size and returns its key. */
static tdm_status tenant_make(tdm_call *call, void *self)
{
    tdm_document *document;
    struct tdm__block_keys_message made;
    struct tdm__id key;
    uint64_t bytes;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "u", &bytes));
    TDM_TRY(one_node_call(tdm_runtime_current(), "block.create", &document, "us(u)", (uint64_t)0,
                          "bucket", bytes));
    TDM_TRY(tdm__block_keys_decode(tdm_document_root(document), &made));
    tdm__message_list_read(&made.keys, 0, &key, sizeof(key));
    status = tdm_call_reply(call, "b", (const void *)key.bytes, sizeof(key.bytes));
    tdm_document_destroy(document);
    return status;
}

TDM_ACTOR_CLASS(arbiter_tenant, .methods = {{"make", tenant_make}});

/* A process that opened a dead tenant's block still has its pages on the GPU. */
static void dead_tenant_stays_charged_for_blocks_that_others_hold(void **state)
{
    tdm_actor *tenant;
    tdm_ref *ref;
    const void *key;
    size_t key_bytes;
    tdm_status status;

    (void)state;
    TRY(tdm_actor_create(runtime, "arbiter_tenant", NULL, &tenant, ""));
    TRY(tdm_actor_call(tenant, "make", &ref, "u", 16 * MIB));
    TRY(tdm_get(ref, 5000, "b", &key, &key_bytes));
    TRY(one_node_call(runtime, "block.open", NULL, "b", key, key_bytes));
    TRY(tdm_actor_kill(tenant, 5000));
    assert_int_equal(wish(0, "kv_cache", 2 * MIB, 0), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "bucket 16.0 MiB"));
    TRY(one_node_call(runtime, "block.release", NULL, "(b)", key, key_bytes));
    TRY(wish(0, "kv_cache", 2 * MIB, 0));
    /* Once the broker has no usage record of the tenant, the arbiter removes it; entries are not
     * exhausted. */
    for (uint32_t round = 0; round < 20; round++) {
        tdm_actor *other;

        TRY(tdm_actor_create(runtime, "arbiter_tenant", NULL, &other, ""));
        tdm_ref_release(ref);
        TRY(tdm_actor_call(other, "make", &ref, "u", 2 * MIB));
        status = tdm_get(ref, 5000, "b", &key, &key_bytes);
        assert_int_equal(status, TDM_OK);
        TRY(tdm_actor_kill(other, 5000));
        tdm_actor_destroy(other);
    }
    tdm_ref_release(ref);
    tdm_actor_destroy(tenant);
}

/* A tenant that died is charged as long as another process holds its block, however many usage
 * records the GPU has. */
static void dead_tenant_stays_charged_behind_128_usage_records(void **state)
{
    enum { OTHER_TAGS = 128, GPU_BYTES = (OTHER_TAGS + 16) << 21 };
    tdm_actor *tenant;
    tdm_ref *ref;
    const void *block;
    size_t block_bytes;

    (void)state;
    tdm_runtime_stop(runtime);
    runtime = one_node_start(GPU_BYTES);
    for (uint32_t i = 0; i < OTHER_TAGS; i++) {
        char tag[16];
        char key[16];

        (void)snprintf(tag, sizeof(tag), "tag %u", i);
        make(tag, 2 * MIB, key);
    }
    TRY(tdm_actor_create(runtime, "arbiter_tenant", NULL, &tenant, ""));
    TRY(tdm_actor_call(tenant, "make", &ref, "u", 2 * MIB));
    TRY(tdm_get(ref, 5000, "b", &block, &block_bytes));
    TRY(one_node_call(runtime, "block.open", NULL, "b", block, block_bytes));
    TRY(tdm_actor_kill(tenant, 5000));
    /* The tag is one of those that the arbiter knows; it has at most 8 for each tenant. */
    assert_int_equal(wish(0, "tag 0", GPU_BYTES, 0), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "bucket 2.0 MiB"));
    tdm_ref_release(ref);
    tdm_actor_destroy(tenant);
}

/* Each test has its own daemon, because released blocks would stay in the pool. */
static int set_up(void **state)
{
    (void)state;
    runtime = one_node_start(16 * MIB);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tdm_runtime_stop(runtime);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(grant_is_used_up_by_the_following_blocks),
        TEST(memory_released_by_the_broker_is_free_for_requests),
        TEST(request_waits_until_its_deadline_for_announced_memory),
        TEST(reported_usage_outside_is_not_granted),
        TEST(report_during_a_grant_is_not_used),
        TEST(outside_usage_of_a_tenant_is_counted),
        TEST(impossible_events_are_refused),
        TEST(dead_tenant_stays_charged_for_blocks_that_others_hold),
        TEST(dead_tenant_stays_charged_behind_128_usage_records),
    };

    tdm__worker_run_if_one(); /* Never returns if this program runs as an actor. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
