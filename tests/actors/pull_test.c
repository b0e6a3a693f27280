/* pull_test.c - large values between two nodes: arguments, results, items, and closed
 * connections. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/pull.h"

#include "actors/client/actor_channel.h"
#include "actors/client/actor_handle.h"
#include "actors/objects/borrowed_refs.h"
#include "actors/objects/export.h"
#include "actors/objects/ref_table.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/two_nodes.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };
/* Six chunks; the last one is small. */
static const size_t data_bytes = 21 * MIB + 17;

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 7 + i / 251);
}

static bool is_data(const uint8_t *bytes, size_t size_bytes)
{
    bool same = size_bytes == data_bytes;

    for (size_t i = 0; same && i < size_bytes; i++) {
        same = bytes[i] == byte_at(i);
    }
    return same;
}

static uint8_t *make_data(void)
{
    uint8_t *data = malloc(data_bytes);

    for (size_t i = 0; data != NULL && i < data_bytes; i++) {
        data[i] = byte_at(i);
    }
    return data;
}

/* ---- an actor on the other node ---------------------------------------------------------- */

struct distant {
    tdm_ref *ref;
    char order[32]; /* Digits of the calls of note(), in order. */
    size_t noted_count;
};

/* Method note (digit, bytes): appends the digit. Method order (): replies the digits and clears
 * them. */
static tdm_status distant_note(tdm_call *call, void *self)
{
    struct distant *distant = self;
    const void *bytes;
    size_t size_bytes;
    int64_t digit;

    TDM_TRY(tdm_call_unpack(call, "ib", &digit, &bytes, &size_bytes));
    if (distant->noted_count < sizeof(distant->order) - 1) {
        distant->order[distant->noted_count++] = (char)('0' + digit);
    }
    return TDM_OK;
}

static tdm_status distant_order(tdm_call *call, void *self)
{
    struct distant *distant = self;
    tdm_status status = tdm_call_reply(call, "s", distant->order);

    memset(distant->order, 0, sizeof(distant->order));
    distant->noted_count = 0;
    return status;
}

/* Method echo (bytes): replies the bytes. */
static tdm_status distant_echo(tdm_call *call, void *self)
{
    const void *bytes;
    size_t size_bytes;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "b", &bytes, &size_bytes));
    return tdm_call_reply(call, "b", bytes, size_bytes);
}

/* Method check (bytes): replies 1 if they are the test data. */
static tdm_status distant_check(tdm_call *call, void *self)
{
    const void *bytes;
    size_t size_bytes;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "b", &bytes, &size_bytes));
    return tdm_call_reply(call, "?", is_data(bytes, size_bytes) ? 1 : 0);
}

/* Method keep (reference): keeps it. Method read (): replies 1 if its value is the test data. */
static tdm_status distant_keep(tdm_call *call, void *self)
{
    return tdm_call_unpack(call, "R", &((struct distant *)self)->ref);
}

static tdm_status distant_read(tdm_call *call, void *self)
{
    const void *bytes;
    size_t size_bytes;

    TDM_TRY(tdm_get(((struct distant *)self)->ref, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    return tdm_call_reply(call, "?", is_data(bytes, size_bytes) ? 1 : 0);
}

static tdm_status distant_drop(tdm_call *call, void *self)
{
    struct distant *distant = self;

    (void)call;
    tdm_ref_release(distant->ref);
    distant->ref = NULL;
    return TDM_OK;
}

/* Method make (): replies the test data. Method put (): replies a reference to them. Method
 * stream (count): streams them that many times. */
static tdm_status distant_make(tdm_call *call, void *self)
{
    uint8_t *data = make_data();
    tdm_status status;

    (void)self;
    status = tdm_call_reply(call, "b", (const void *)data, data_bytes);
    free(data);
    return status;
}

static tdm_status distant_put(tdm_call *call, void *self)
{
    uint8_t *data = make_data();
    tdm_ref *ref;
    tdm_status status;

    (void)self;
    status = tdm_put(tdm_runtime_current(), &ref, "b", (const void *)data, data_bytes);
    free(data);
    TDM_TRY(status);
    status = tdm_call_reply(call, "R", ref);
    tdm_ref_release(ref);
    return status;
}

static tdm_status distant_stream(tdm_call *call, void *self)
{
    uint8_t *data = make_data();
    tdm_status status = TDM_OK;
    int64_t count;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &count));
    for (int64_t i = 0; status == TDM_OK && i < count; i++) {
        status = tdm_call_yield(call, "b", (const void *)data, data_bytes);
    }
    free(data);
    return status;
}

/* Method use (): replies bytes in use and the number of exported values. */
static tdm_status distant_use(tdm_call *call, void *self)
{
    struct tdm__object_memory_stats use;

    (void)self;
    tdm__object_memory_stats(tdm_runtime_current(), &use);
    return tdm_call_reply(call, "uu", use.used_bytes, (uint64_t)use.exported_count);
}

static void distant_destruct(void *self)
{
    tdm_ref_release(((struct distant *)self)->ref);
}

TDM_ACTOR_CLASS(distant, .state_bytes = sizeof(struct distant), .destruct = distant_destruct,
                .methods = {
                    {"check", distant_check, NULL},
                    {"keep", distant_keep, NULL},
                    {"read", distant_read, NULL},
                    {"drop", distant_drop, NULL},
                    {"make", distant_make, NULL},
                    {"put", distant_put, NULL},
                    {"stream", distant_stream, NULL},
                    {"use", distant_use, NULL},
                    {"note", distant_note, NULL},
                    {"order", distant_order, NULL},
                    {"echo", distant_echo, NULL},
                });

/* ---- helpers ------------------------------------------------------------------------------ */

static struct two_nodes cluster;
/* A driver of the first node. */
static tdm_runtime *runtime;
static tdm_actor *remote_actor;
static uint8_t *data;

static void assert_ok(tdm_status status)
{
    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
}

static tdm_actor *create_remote_actor(void)
{
    struct tdm_actor_options options = {.labels = {"side=second"}};
    tdm_actor *actor = NULL;

    assert_ok(tdm_actor_create(runtime, "distant", &options, &actor, ""));
    assert_ok(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    return actor;
}

static int said(tdm_ref *ref)
{
    int yes = 0;

    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "?", &yes));
    tdm_ref_release(ref);
    return yes;
}

static void assert_is_data(tdm_ref *ref)
{
    const void *bytes;
    size_t size_bytes;

    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    assert_true(is_data(bytes, size_bytes));
    tdm_ref_release(ref);
}

/* Waits until nothing is exported: exports are returned and cached replies are freed by
 * messages. */
static void assert_nothing_is_exported(void)
{
    struct tdm__object_memory_stats here = {0};
    uint64_t used_bytes = 0;
    uint64_t exported_count = 0;

    for (int i = 0; i < TEST_TIMEOUT_MS / 5; i++) {
        tdm_ref *ref;

        assert_ok(tdm_actor_call(remote_actor, "use", &ref, ""));
        assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "uu", &used_bytes, &exported_count));
        tdm_ref_release(ref);
        tdm__object_memory_stats(runtime, &here);
        if (used_bytes + exported_count + here.used_bytes + here.exported_count == 0) {
            return;
        }
        (void)poll(NULL, 0, 5);
    }
    fail_msg("there %llu bytes, %llu exported; here %llu, %u", (unsigned long long)used_bytes,
             (unsigned long long)exported_count, (unsigned long long)here.used_bytes,
             here.exported_count);
}

/* ---- tests ------------------------------------------------------------------------------ */

/* Must be the first test: no idle segment exists yet that could be reused. */
static void value_without_memory_is_returned(void **state)
{
    const struct rlimit none = {.rlim_cur = MIB, .rlim_max = RLIM_INFINITY};
    struct rlimit before;
    const tdm_value *value;
    tdm_ref *ref;
    tdm_ref *inner;

    (void)state;
    assert_ok(tdm_actor_call(remote_actor, "put", &ref, ""));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "R", &inner));
    tdm_ref_release(ref);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_not_equal(tdm_get_value(inner, TEST_TIMEOUT_MS, &value), TDM_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    tdm_ref_release(inner);
    assert_nothing_is_exported();
}

static void large_arguments_and_results_cross(void **state)
{
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_actor_call(remote_actor, "check", &ref, "b", (const void *)data, data_bytes));
    assert_true(said(ref));
    assert_ok(tdm_actor_call(remote_actor, "make", &ref, ""));
    assert_is_data(ref);
    assert_nothing_is_exported();
}

static void calls_behind_a_large_one_keep_their_order(void **state)
{
    tdm_ref *put;
    tdm_ref *refs[3];

    (void)state;
    assert_ok(tdm_put(runtime, &put, "b", (const void *)data, data_bytes));
    assert_ok(tdm_actor_call(remote_actor, "check", &refs[0], "b", (const void *)data, data_bytes));
    assert_ok(tdm_actor_call(remote_actor, "keep", &refs[1], "R", put));
    assert_ok(tdm_actor_call(remote_actor, "read", &refs[2], ""));
    tdm_ref_release(put);
    assert_true(said(refs[2]));
    assert_true(said(refs[0]));
    assert_ok(tdm_get(refs[1], 0, ""));
    tdm_ref_release(refs[1]);
    assert_ok(tdm_actor_call(remote_actor, "drop", &refs[1], ""));
    assert_ok(tdm_get(refs[1], TEST_TIMEOUT_MS, ""));
    tdm_ref_release(refs[1]);
    assert_nothing_is_exported();
}

static void reference_is_fetched_once(void **state)
{
    struct tdm__object_memory_stats use;
    tdm_ref *ref;
    tdm_ref *inner;
    tdm_ref *copy;
    uint64_t used_bytes;

    (void)state;
    assert_ok(tdm_actor_call(remote_actor, "put", &ref, ""));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "R", &inner));
    tdm_ref_release(ref);
    assert_ok(tdm_ref_copy(inner, &copy));
    assert_is_data(copy);
    tdm__object_memory_stats(runtime, &use);
    used_bytes = use.used_bytes;
    assert_true(used_bytes >= data_bytes && used_bytes < 2 * data_bytes);
    assert_is_data(inner);
    assert_nothing_is_exported();
}

static void the_other_nodes_objects_are_listed(void **state)
{
    const struct tdm_object_state *objects;
    struct tdm_list_missing missing;
    struct tdm_runtime_info node;
    tdm_ref *ref;
    tdm_ref *inner;
    uint32_t count;

    (void)state;
    tdm_runtime_describe(runtime, &node);
    assert_ok(tdm_actor_call(remote_actor, "put", &ref, ""));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "R", &inner));
    tdm_ref_release(ref);
    assert_ok(tdm_list_objects(runtime, TEST_TIMEOUT_MS, &objects, &count, &missing));
    assert_true(missing.nodes == 0 && missing.processes == 0);
    assert_int_equal(count, 1);
    assert_string_not_equal(objects[0].node_id, node.node_id);
    assert_string_equal(objects[0].where, "SHARED");
    assert_true((size_t)objects[0].size_bytes >= data_bytes);
    tdm_list_free(objects);
    tdm_ref_release(inner);
    assert_nothing_is_exported();
}

static void large_items_cross_in_order(void **state)
{
    tdm_stream *stream;
    tdm_ref *item;

    (void)state;
    assert_ok(tdm_actor_stream(remote_actor, "stream", NULL, &stream, "i", (int64_t)3));
    for (int i = 0; i < 3; i++) {
        assert_ok(tdm_stream_next(stream, TEST_TIMEOUT_MS, &item));
        assert_is_data(item);
    }
    assert_int_equal(tdm_stream_next(stream, TEST_TIMEOUT_MS, &item), TDM_E_END);
    tdm_stream_destroy(stream);

    assert_ok(tdm_actor_stream(remote_actor, "stream", NULL, &stream, "i", (int64_t)30));
    assert_ok(tdm_stream_next(stream, TEST_TIMEOUT_MS, &item));
    tdm_ref_release(item);
    tdm_stream_destroy(stream);
    assert_nothing_is_exported();
}

static bool pulls(void *arg)
{
    const struct tdm__actor_channel *link = arg;
    const struct tdm__pending_call *pending_call = TAILQ_FIRST(&link->in_flight);

    return pending_call == NULL || pending_call->pull != NULL;
}

/* The connection is closed while a result is fetched; the result is fetched again over the next
 * one. */
static void result_cut_midway_comes_again(void **state)
{
    tdm_ref *ref = NULL;

    (void)state;
    {
        TDM__LOCK(runtime);

        assert_ok(tdm_actor_call(remote_actor, "make", &ref, ""));
        assert_ok(tdm__runtime_wait(runtime, pulls, remote_actor->channel, TEST_TIMEOUT_MS));
        assert_non_null(TAILQ_FIRST(&remote_actor->channel->in_flight));
        tdm__conn_close(remote_actor->channel->conn);
    }
    assert_is_data(ref);
    assert_nothing_is_exported();
}

/* The arguments that arrive with the repeated call are not fetched, and their export ends. */
static void call_sent_again_takes_its_arguments_back(void **state)
{
    tdm_ref *ref = NULL;

    (void)state;
    {
        TDM__LOCK(runtime);

        assert_ok(tdm_actor_call(remote_actor, "echo", &ref, "b", (const void *)data, data_bytes));
        assert_ok(tdm__runtime_wait(runtime, pulls, remote_actor->channel, TEST_TIMEOUT_MS));
        assert_non_null(TAILQ_FIRST(&remote_actor->channel->in_flight));
        tdm__conn_close(remote_actor->channel->conn);
    }
    assert_is_data(ref);
    assert_nothing_is_exported();
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static bool is_open(void *arg)
{
    const struct tdm__actor_channel *link = arg;

    return link->state == TDM__CHANNEL_OPEN && tdm__conn_is_open(link->conn);
}

/* Closes the connection after that many milliseconds, which is before, during or after the
 * transfer of the large arguments. */
static void note_and_cut(int milliseconds)
{
    tdm_ref *refs[3];
    tdm_ref *ref;
    const char *order;

    {
        TDM__LOCK(runtime);

        assert_ok(tdm_actor_call(remote_actor, "note", &refs[0], "ib", (int64_t)1,
                                 (const void *)data, data_bytes));
        assert_ok(
            tdm_actor_call(remote_actor, "note", &refs[1], "ib", (int64_t)2, "small", (size_t)5));
        assert_ok(
            tdm_actor_call(remote_actor, "note", &refs[2], "ib", (int64_t)3, "small", (size_t)5));
        (void)tdm__runtime_wait(runtime, never, NULL, milliseconds);
        tdm__conn_close(remote_actor->channel->conn);
        assert_ok(tdm__runtime_wait(runtime, is_open, remote_actor->channel, TEST_TIMEOUT_MS));
    }
    for (int i = 0; i < 3; i++) {
        assert_ok(tdm_get(refs[i], TEST_TIMEOUT_MS, ""));
        tdm_ref_release(refs[i]);
    }
    assert_ok(tdm_actor_call(remote_actor, "order", &ref, ""));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "s", &order));
    assert_string_equal(order, "123");
    tdm_ref_release(ref);
}

static void calls_behind_one_that_was_cut_keep_their_order(void **state)
{
    (void)state;
    for (int milliseconds = 1; milliseconds < 25; milliseconds += 2) {
        note_and_cut(milliseconds);
    }
    assert_nothing_is_exported();
}

static void death_of_the_exporter_is_named(void **state)
{
    tdm_actor *mortal = create_remote_actor();
    tdm_ref *ref;
    tdm_ref *inner = NULL;
    tdm_ref *result = NULL;
    const tdm_value *value;
    tdm_status status;

    (void)state;
    assert_ok(tdm_actor_call(mortal, "put", &ref, ""));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "R", &inner));
    tdm_ref_release(ref);
    {
        TDM__LOCK(runtime);

        assert_ok(tdm_actor_call(mortal, "make", &result, ""));
        assert_ok(tdm__runtime_wait(runtime, pulls, mortal->channel, TEST_TIMEOUT_MS));
        tdm__reference_fetch(inner);
        assert_ok(tdm_actor_kill(mortal, TEST_TIMEOUT_MS));
    }
    status = tdm_get_value(result, TEST_TIMEOUT_MS, &value);
    /* The call may have ended before the actor was killed. */
    assert_true(status == TDM_E_ACTOR_DIED || status == TDM_OK);
    status = tdm_get_value(inner, TEST_TIMEOUT_MS, &value);
    if (status != TDM_OK) {
        assert_int_equal(status, TDM_E_OWNER_DIED);
        assert_non_null(strstr(tdm_error_detail(), "distant"));
    }
    tdm_ref_release(result);
    tdm_ref_release(inner);
    tdm_actor_destroy(mortal);
    assert_nothing_is_exported();
}

static void reader_killed_midway_returns_its_export(void **state)
{
    tdm_actor *mortal = create_remote_actor();
    tdm_ref *ref;
    tdm_ref *result;
    const tdm_value *value;
    struct tdm__object_memory_stats use = {0};

    (void)state;
    assert_ok(tdm_put(runtime, &ref, "b", (const void *)data, data_bytes));
    assert_ok(tdm_actor_call(mortal, "keep", &result, "R", ref));
    assert_ok(tdm_get(result, TEST_TIMEOUT_MS, ""));
    tdm_ref_release(result);
    assert_ok(tdm_actor_call(mortal, "read", &result, ""));
    for (int i = 0; i < TEST_TIMEOUT_MS && use.exported_count == 0; i++) {
        tdm__object_memory_stats(runtime, &use);
        (void)poll(NULL, 0, 1);
        if (tdm_get_value(result, 0, &value) == TDM_OK) {
            break; /* The call ended before the connection was closed. */
        }
    }
    assert_ok(tdm_actor_kill(mortal, TEST_TIMEOUT_MS));
    tdm_ref_release(result);
    tdm_ref_release(ref);
    tdm_actor_destroy(mortal);
    assert_nothing_is_exported();
}

static void hostile_offers_are_refused(void **state)
{
    static const char *const offers[] = {"\x81\xa4pull\x92\x01\x00", "\x81\xa4pull\x91\x01",
                                         "\x81\xa4pull\x92\x01\xcf\xff\xff\xff\xff\xff\xff\xff",
                                         "\x81\xa4pull\xc0"};
    static const size_t sizes[] = {9, 8, 17, 7};
    struct tdm__pull *pull;
    TDM__LOCK(runtime);

    (void)state;
    for (size_t i = 0; i < sizeof(offers) / sizeof(offers[0]); i++) {
        assert_true(tdm__pull_is_offer((struct tdm_bytes){offers[i], sizes[i]}) || i > 2);
        assert_int_equal(tdm__pull_start(runtime, runtime->daemon,
                                         (struct tdm_bytes){offers[i], sizes[i]}, NULL, NULL,
                                         &pull),
                         TDM_E_PROTOCOL);
    }
    assert_false(tdm__pull_is_offer((struct tdm_bytes){"\x91\x01", 2}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(value_without_memory_is_returned),
        cmocka_unit_test(large_arguments_and_results_cross),
        cmocka_unit_test(calls_behind_a_large_one_keep_their_order),
        cmocka_unit_test(reference_is_fetched_once),
        cmocka_unit_test(the_other_nodes_objects_are_listed),
        cmocka_unit_test(large_items_cross_in_order),
        cmocka_unit_test(result_cut_midway_comes_again),
        cmocka_unit_test(call_sent_again_takes_its_arguments_back),
        cmocka_unit_test(calls_behind_one_that_was_cut_keep_their_order),
        cmocka_unit_test(death_of_the_exporter_is_named),
        cmocka_unit_test(reader_killed_midway_returns_its_export),
        cmocka_unit_test(hostile_offers_are_refused),
    };
    int failed = 1;

    if (getenv("TANDEM_WORKER") != NULL) {
        /* Never returns TDM_OK without a daemon. */
        return tdm_runtime_start(NULL, &runtime) == TDM_OK;
    }
    actor_fixture_prepare();
    data = make_data();
    if (two_nodes_open(&cluster) == 0) {
        struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;

        options.address = cluster.first.address;
        if (tdm_runtime_start(&options, &runtime) == TDM_OK) {
            remote_actor = create_remote_actor();
            failed = cmocka_run_group_tests(tests, NULL, NULL);
            tdm_actor_destroy(remote_actor);
        }
    }
    if (runtime == NULL) {
        (void)fprintf(stderr, "no cluster: %s\n", tdm_error_detail());
    }
    tdm_runtime_stop(runtime);
    two_nodes_close(&cluster);
    free(data);
    return failed + actor_fixture_clean_up();
}
