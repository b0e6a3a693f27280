/* same_node_reader_test.c - a large value of another node is fetched once for all processes of a
 * node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/export.h"
#include "actors/objects/large_value.h"
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
#include <unistd.h>

#include <cmocka.h>

enum { READERS = 3 };
static const size_t data_bytes = (size_t)40 << 20;

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 7 + i / 251);
}

/* ---- an actor on the other node ---------------------------------------------------------- */

struct reader {
    tdm_ref *ref;
};

/* Method keep (reference): keeps it. Method drop (): releases it. */
static tdm_status reader_keep(tdm_call *call, void *self)
{
    return tdm_call_unpack(call, "R", &((struct reader *)self)->ref);
}

static tdm_status reader_drop(tdm_call *call, void *self)
{
    struct reader *reader = self;

    (void)call;
    tdm_ref_release(reader->ref);
    reader->ref = NULL;
    return TDM_OK;
}

/* Method read (): replies 1 if the value is what was put. */
static tdm_status reader_read(tdm_call *call, void *self)
{
    const uint8_t *bytes;
    size_t size_bytes;
    bool same;

    TDM_TRY(tdm_get(((struct reader *)self)->ref, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    same = size_bytes == data_bytes;
    for (size_t i = 0; same && i < size_bytes; i++) {
        same = bytes[i] == byte_at(i);
    }
    return tdm_call_reply(call, "?", same ? 1 : 0);
}

/* Method use (): replies bytes in use here, exported values, imported values, and bytes of the
 * node. */
static tdm_status reader_use(tdm_call *call, void *self)
{
    struct tdm__object_memory_stats use;

    (void)self;
    tdm__object_memory_stats(tdm_runtime_current(), &use);
    return tdm_call_reply(call, "uuuu", use.used_bytes, (uint64_t)use.exported_count,
                          (uint64_t)use.read_count, use.node_used_bytes);
}

static tdm_status reader_pid(tdm_call *call, void *self)
{
    (void)self;
    return tdm_call_reply(call, "i", (int64_t)getpid());
}

static void reader_destruct(void *self)
{
    tdm_ref_release(((struct reader *)self)->ref);
}

TDM_ACTOR_CLASS(reader, .state_bytes = sizeof(struct reader), .destruct = reader_destruct,
                .methods = {
                    {"keep", reader_keep, NULL},
                    {"drop", reader_drop, NULL},
                    {"read", reader_read, NULL},
                    {"use", reader_use, NULL},
                    {"pid", reader_pid, NULL},
                });

/* ---- helpers ------------------------------------------------------------------------------ */

static struct two_nodes cluster;
/* A driver of the first node. */
static tdm_runtime *runtime;
static tdm_actor *readers[READERS];
static uint8_t *data;

static void must(tdm_status status)
{
    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
}

static tdm_actor *create_reader(void)
{
    struct tdm_actor_options options = {.labels = {"side=second"}};
    tdm_actor *actor = NULL;

    must(tdm_actor_create(runtime, "reader", &options, &actor, ""));
    must(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    return actor;
}

static tdm_ref *start(tdm_actor *actor, const char *method)
{
    tdm_ref *ref = NULL;

    must(tdm_actor_call(actor, method, &ref, ""));
    return ref;
}

static void finish(tdm_ref *ref)
{
    must(tdm_get(ref, TEST_TIMEOUT_MS, ""));
    tdm_ref_release(ref);
}

static void finish_read(tdm_ref *ref)
{
    int same = 0;

    must(tdm_get(ref, TEST_TIMEOUT_MS, "?", &same));
    assert_true(same);
    tdm_ref_release(ref);
}

static void keep(tdm_actor *actor, tdm_ref *value)
{
    tdm_ref *ref;

    must(tdm_actor_call(actor, "keep", &ref, "R", value));
    finish(ref);
}

static struct tdm__object_memory_stats use_of(tdm_actor *actor)
{
    struct tdm__object_memory_stats use = {0};
    tdm_ref *ref = start(actor, "use");
    uint64_t exported;
    uint64_t read;

    must(tdm_get(ref, TEST_TIMEOUT_MS, "uuuu", &use.used_bytes, &exported, &read,
                 &use.node_used_bytes));
    use.exported_count = (uint32_t)exported;
    use.read_count = (uint32_t)read;
    tdm_ref_release(ref);
    return use;
}

/* Returns the sums over all readers. */
static struct tdm__object_memory_stats use_of_all(tdm_actor *const *actors, int count)
{
    struct tdm__object_memory_stats sum = {0};

    for (int i = 0; i < count; i++) {
        struct tdm__object_memory_stats use = use_of(actors[i]);

        sum.used_bytes += use.used_bytes;
        sum.exported_count += use.exported_count;
        sum.read_count += use.read_count;
    }
    return sum;
}

static tdm_ref *put_and_pass(tdm_actor *const *actors, int count)
{
    tdm_ref *put;

    must(tdm_put(runtime, &put, "b", (const void *)data, data_bytes));
    for (int i = 0; i < count; i++) {
        keep(actors[i], put);
    }
    return put;
}

/* Waits until nothing is exported or pinned, since exports are returned by messages. */
static void assert_nothing_is_left(tdm_actor *const *actors, int count)
{
    struct tdm__object_memory_stats sum = {0};
    struct tdm__object_memory_stats here = {0};

    for (int i = 0; i < TEST_TIMEOUT_MS / 5; i++) {
        sum = use_of_all(actors, count);
        tdm__object_memory_stats(runtime, &here);
        if (sum.used_bytes + sum.exported_count + sum.read_count + here.used_bytes +
                here.exported_count ==
            0) {
            return;
        }
        (void)poll(NULL, 0, 5);
    }
    fail_msg("there %llu bytes, %u exported, %u imported; here %llu, %u",
             (unsigned long long)sum.used_bytes, sum.exported_count, sum.read_count,
             (unsigned long long)here.used_bytes, here.exported_count);
}

static void drop_all(tdm_actor *const *actors, int count)
{
    for (int i = 0; i < count; i++) {
        finish(start(actors[i], "drop"));
    }
    assert_nothing_is_left(actors, count);
}

/* ---- tests ------------------------------------------------------------------------------ */

static void the_second_reader_of_a_node_uses_what_the_first_has_fetched(void **state)
{
    tdm_ref *put = put_and_pass(readers, READERS);
    struct tdm__object_memory_stats sum;

    (void)state;
    for (int i = 0; i < READERS; i++) {
        finish_read(start(readers[i], "read"));
    }
    sum = use_of_all(readers, READERS);
    assert_true(sum.used_bytes >= data_bytes && sum.used_bytes < 2 * data_bytes);
    assert_int_equal(sum.read_count, READERS - 1);
    assert_int_equal(sum.exported_count, READERS - 1);
    tdm_ref_release(put);
    drop_all(readers, READERS);
}

static void readers_that_ask_at_once_wait_for_one_copy(void **state)
{
    tdm_ref *put = put_and_pass(readers, READERS);
    tdm_ref *reads[READERS];
    struct tdm__object_memory_stats sum;

    (void)state;
    for (int i = 0; i < READERS; i++) {
        reads[i] = start(readers[i], "read");
    }
    for (int i = 0; i < READERS; i++) {
        finish_read(reads[i]);
    }
    sum = use_of_all(readers, READERS);
    assert_true(sum.used_bytes >= data_bytes && sum.used_bytes < 2 * data_bytes);
    tdm_ref_release(put);
    drop_all(readers, READERS);
}

static void exported_value_outlives_the_reference_of_its_fetcher(void **state)
{
    tdm_ref *put = put_and_pass(readers, READERS);

    (void)state;
    finish_read(start(readers[0], "read"));
    finish_read(start(readers[1], "read"));
    finish(start(readers[0], "drop"));
    tdm_ref_release(put);
    finish_read(start(readers[1], "read"));
    finish_read(start(readers[2], "read")); /* No reader of this node has a copy of its own. */
    drop_all(readers, READERS);
}

static uint64_t used_there(void)
{
    return use_of(readers[2]).node_used_bytes;
}

/* Kills the fetching process as soon as its segment exists, when most of the value has not
 * arrived. */
static void killed_fetcher_does_not_block_other_readers(void **state)
{
    tdm_actor *mortal = create_reader();
    tdm_actor *const both[] = {mortal, readers[0]};
    tdm_ref *put = put_and_pass(both, 2);
    uint64_t idle_bytes = used_there();
    tdm_ref *reads[2];
    tdm_ref *ref = start(mortal, "pid");
    const tdm_value *value;
    int64_t pid = 0;

    (void)state;
    must(tdm_get(ref, TEST_TIMEOUT_MS, "i", &pid));
    tdm_ref_release(ref);
    assert_true(pid > 1);
    reads[0] = start(mortal, "read");
    for (int i = 0; i < TEST_TIMEOUT_MS && used_there() == idle_bytes; i++) {
        (void)poll(NULL, 0, 1);
    }
    reads[1] = start(readers[0], "read");
    (void)use_of(readers[2]);
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
    /* The value may have arrived before the process was killed. */
    (void)tdm_get_value(reads[0], TEST_TIMEOUT_MS, &value);
    tdm_ref_release(reads[0]);
    finish_read(reads[1]);
    tdm_ref_release(put);
    tdm_actor_destroy(mortal);
    drop_all(readers, READERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_reader_of_a_node_uses_what_the_first_has_fetched),
        cmocka_unit_test(readers_that_ask_at_once_wait_for_one_copy),
        cmocka_unit_test(exported_value_outlives_the_reference_of_its_fetcher),
        cmocka_unit_test(killed_fetcher_does_not_block_other_readers),
    };
    int failed = 1;

    runtime = two_nodes_join(&cluster);
    if (runtime == NULL) {
        return 1;
    }
    data = malloc(data_bytes);
    for (size_t i = 0; data != NULL && i < data_bytes; i++) {
        data[i] = byte_at(i);
    }
    for (int i = 0; i < READERS; i++) {
        readers[i] = create_reader();
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < READERS; i++) {
        tdm_actor_destroy(readers[i]);
    }
    free(data);
    return failed + two_nodes_leave(&cluster, runtime);
}
