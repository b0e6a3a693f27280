/* broker_service_test.c - the daemon creates and shares blocks, and rejects invalid requests. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/one_node.h"

#include "actors/process/runtime.h"
#include "runtime/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB    ((uint64_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

/* Allocating this size takes longer than many calls. */
#define COLD_BYTES (768 * MIB)

enum { WAIT_MS = 20000 };

static tdm_runtime *runtime;

static void note_reply(void *arg, struct tdm__rpc_reply *reply)
{
    *(tdm_status *)arg = reply->status;
}

/* Sends the request without waiting; TDM_E_STATE means that no reply has come yet. */
static void begin_create(tdm_runtime *one, uint64_t size_bytes, tdm_status *answer)
{
    struct tdm__rpc_request request = {.method = "block.create",
                                       .deadline_ms = tdm__deadline_after(WAIT_MS)};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    TDM__LOCK(one);

    *answer = TDM_E_STATE;
    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "us(u)", (uint64_t)0, "weights", size_bytes));
    request.packed = tdm_writer_bytes(writer);
    TRY(tdm__runtime_daemon(one, &daemon));
    TRY(tdm__conn_call(daemon, &request, note_reply, answer, NULL));
    tdm_writer_destroy(writer);
}

/* ---- the actor: requests memory without waiting --------------------------------------------- */

static tdm_status asker_ask(tdm_call *call, void *self)
{
    uint64_t size_bytes;

    TDM_TRY(tdm_call_unpack(call, "u", &size_bytes));
    begin_create(tdm_runtime_current(), size_bytes, self);
    return TDM_OK;
}

TDM_ACTOR_CLASS(asker, .state_bytes = sizeof(tdm_status), .methods = {{"ask", asker_ask}});

/* ---- the driver ------------------------------------------------------------------------- */

static void the_ledger_has_a_row_for_each_tag(void **state)
{
    tdm_document *document;
    const tdm_value *gpu;
    const tdm_value *row;

    (void)state;
    TRY(one_node_call(runtime, "block.create", NULL, "us(uu)", (uint64_t)0, "weights", 4 * MIB,
                      2 * MIB));
    TRY(one_node_call(runtime, "block.create", NULL, "us(u)", (uint64_t)0, "kv_cache", 2 * MIB));
    TRY(one_node_call(runtime, "block.ledger", &document, ""));
    assert_int_equal(tdm_value_count(tdm_document_root(document)), 1);
    gpu = tdm_value_at(tdm_document_root(document), 0);
    assert_int_equal(tdm_value_uint(tdm_value_find(gpu, "capacity_bytes"), 0), 16 * MIB);
    assert_int_equal(tdm_value_uint(tdm_value_find(gpu, "used_bytes"), 0), 8 * MIB);
    assert_int_equal(tdm_value_count(tdm_value_find(gpu, "rows")), 2);
    row = tdm_value_at(tdm_value_find(gpu, "rows"), 0);
    assert_string_equal(tdm_value_string(tdm_value_find(row, "tag"), ""), "weights");
    assert_string_equal(tdm_value_string(tdm_value_find(row, "owner"), ""), "broker_service_test");
    assert_int_equal(tdm_value_uint(tdm_value_find(row, "bytes"), 0), 6 * MIB);
    assert_int_equal(tdm_value_uint(tdm_value_find(row, "blocks"), 0), 2);
    assert_int_equal(tdm_value_uint(tdm_value_find(row, "releasing_bytes"), 1), 0);
    tdm_document_destroy(document);
}

static void request_that_does_not_fit_fails_and_names_the_holders(void **state)
{
    (void)state;
    TRY(one_node_call(runtime, "block.create", NULL, "us(u)", (uint64_t)0, "weights", 12 * MIB));
    assert_int_equal(one_node_call(runtime, "block.create", NULL, "us(uu)", (uint64_t)0, "kv_cache",
                                   4 * MIB, 2 * MIB),
                     TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "weights 12.0 MiB"));
    assert_true(one_node_used_bytes(runtime) == 12 * MIB);
}

static void invalid_call_is_refused_and_allocates_nothing(void **state)
{
    static const char key[16] = "no block's key!";

    (void)state;
    assert_int_equal(
        one_node_call(runtime, "block.create", NULL, "us(u)", (uint64_t)1, "weights", 2 * MIB),
        TDM_E_INVAL);
    assert_int_equal(
        one_node_call(runtime, "block.create", NULL, "us(u)", UINT64_MAX, "weights", 2 * MIB),
        TDM_E_INVAL);
    assert_int_equal(
        one_node_call(runtime, "block.create", NULL, "us(u)", (uint64_t)0, NULL, 2 * MIB),
        TDM_E_INVAL);
    assert_int_equal(
        one_node_call(runtime, "block.create", NULL, "us(u)", (uint64_t)0, "weights", (uint64_t)3),
        TDM_E_INVAL);
    assert_int_equal(one_node_call(runtime, "block.create", NULL, "us(uuuuuuuuu)", (uint64_t)0,
                                   "weights", MIB, MIB, MIB, MIB, MIB, MIB, MIB, MIB, MIB),
                     TDM_E_LIMIT);
    assert_int_equal(one_node_call(runtime, "block.create", NULL, "u", (uint64_t)0),
                     TDM_E_PROTOCOL);
    assert_int_equal(one_node_call(runtime, "block.open", NULL, "b", key, sizeof(key)),
                     TDM_E_NOT_FOUND);
    assert_int_equal(one_node_call(runtime, "block.open", NULL, "b", key, (size_t)3),
                     TDM_E_PROTOCOL);
    assert_int_equal(one_node_call(runtime, "block.open", NULL, ""), TDM_E_PROTOCOL);
    assert_int_equal(one_node_call(runtime, "block.release", NULL, "(b)", key, sizeof(key)),
                     TDM_E_NOT_FOUND);
    assert_int_equal(one_node_call(runtime, "block.release", NULL, "s", "text"), TDM_E_PROTOCOL);
    assert_int_equal(one_node_call(runtime, "block.burn", NULL, ""), TDM_E_NOT_FOUND);
    assert_true(one_node_used_bytes(runtime) == 0);
}

static void fresh_memory_is_allocated_while_others_are_served(void **state)
{
    tdm_status answer;

    (void)state;
    begin_create(runtime, COLD_BYTES, &answer);
    /* The call block.ledger is served before the allocation ends. */
    assert_true(one_node_used_bytes(runtime) == 0);
    assert_int_equal(answer, TDM_E_STATE);
    one_node_wait_used(runtime, COLD_BYTES);
    assert_int_equal(answer, TDM_OK);
}

static void waiting_requests_get_memory_one_after_the_other(void **state)
{
    tdm_status first;
    tdm_status second;
    tdm_status third;

    (void)state;
    begin_create(runtime, COLD_BYTES / 2, &first);
    begin_create(runtime, COLD_BYTES / 2 - 2 * MIB, &second);
    begin_create(runtime, COLD_BYTES / 4, &third); /* The request fits when it is made. */
    one_node_wait_used(runtime, COLD_BYTES - 2 * MIB);
    assert_int_equal(first, TDM_OK);
    assert_int_equal(second, TDM_OK);
    for (int64_t deadline_ms = tdm__deadline_after(WAIT_MS);
         third == TDM_E_STATE && tdm__clock_ms() < deadline_ms;) {
        (void)one_node_used_bytes(runtime);
    }
    assert_int_equal(third, TDM_E_DEVICE_FULL);
}

static void memory_allocated_for_a_dead_tenant_is_not_charged(void **state)
{
    tdm_actor *asker = one_node_actor(runtime, "asker", "asker", 0);
    tdm_status answer;
    tdm_ref *asked;

    (void)state;
    TRY(tdm_actor_call(asker, "ask", &asked, "u", COLD_BYTES));
    TRY(tdm_get(asked, WAIT_MS, ""));
    tdm_ref_release(asked);
    one_node_kill_actor(asker);
    /* The reply comes after that of the dead tenant's request. */
    begin_create(runtime, COLD_BYTES / 2, &answer);
    one_node_wait_used(runtime, COLD_BYTES / 2);
    assert_int_equal(answer, TDM_OK);
    tdm_actor_destroy(asker);
}

/* Each test has its own daemon, because released blocks would stay in the pool. */
static int set_up(void **state)
{
    (void)state;
    runtime = one_node_start(16 * MIB);
    return 0;
}

static int set_up_large(void **state)
{
    (void)state;
    runtime = one_node_start(COLD_BYTES);
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
#define TEST(name)       cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_LARGE(name) cmocka_unit_test_setup_teardown(name, set_up_large, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_ledger_has_a_row_for_each_tag),
        TEST(request_that_does_not_fit_fails_and_names_the_holders),
        TEST(invalid_call_is_refused_and_allocates_nothing),
        TEST_LARGE(fresh_memory_is_allocated_while_others_are_served),
        TEST_LARGE(waiting_requests_get_memory_one_after_the_other),
        TEST_LARGE(memory_allocated_for_a_dead_tenant_is_not_charged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
