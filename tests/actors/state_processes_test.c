/* state_processes_test.c - the records of a node's processes become one list, which says what is
 * missing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/state_processes.h"

#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A node with a driver and one living actor, and the list that was collected of them. */
struct collected {
    struct node_fixture *scene;
    struct actor_entry *entry;
    struct remote_peer worker;
    uint32_t count; /* Number of calls of the callback. */
    tdm_status status;
    tdm_document *part;
};

static void on_part(void *arg, tdm_status status, struct tdm_bytes part)
{
    struct collected *collected = arg;

    collected->count++;
    collected->status = status;
    if (status == TDM_OK) {
        assert_int_equal(tdm_document_parse(part, &collected->part), TDM_OK);
    }
}

/* Asks the processes for their records of this kind. */
static void collect(struct collected *collected, struct node_fixture *scene, const char *kind)
{
    *collected = (struct collected){.scene = scene};
    collected->entry = node_fixture_add_living(scene, "reader", "first", &collected->worker);
    node_fixture_settle(scene); /* The driver connects. */
    tdm__state_query_processes(&scene->node, kind, on_part, collected);
    remote_peer_hold(&collected->worker, 1);
}

static bool has_part(void *arg)
{
    return ((const struct collected *)arg)->count > 0;
}

/* Returns the value number `index` of the part: its records, the number of processes without a
 * reply, and the number of records that are left out. */
static const tdm_value *part_value(struct collected *collected, uint32_t index)
{
    node_fixture_run(collected->scene, has_part, collected);
    assert_int_equal(collected->count, 1);
    assert_int_equal(collected->status, TDM_OK);
    assert_int_equal(tdm_value_count(tdm_document_root(collected->part)), 3);
    return tdm_value_at(tdm_document_root(collected->part), index);
}

static void expect_part(struct collected *collected, uint32_t records, uint64_t silent,
                        uint64_t left_out)
{
    assert_int_equal(tdm_value_kind_of(part_value(collected, 0)), TDM_ARRAY);
    assert_int_equal(tdm_value_count(part_value(collected, 0)), records);
    assert_int_equal(tdm_value_uint(part_value(collected, 1), 99), silent);
    assert_int_equal(tdm_value_uint(part_value(collected, 2), 99), left_out);
}

static void close_all(struct collected *collected)
{
    tdm_document_destroy(collected->part);
    node_fixture_kill_all(collected->scene);
    remote_peer_close(&collected->worker);
}

static const char *text_of(const tdm_value *record, const char *key)
{
    return tdm_value_string(tdm_value_find(record, key), "?");
}

static int64_t number_of(const tdm_value *record, const char *key)
{
    return tdm_value_int(tdm_value_find(record, key), -1);
}

/* ---- objects and single calls ------------------------------------------------------------ */

static void records_of_all_processes_are_copied_unchanged(void **state)
{
    struct collected collected;
    const tdm_value *records;

    collect(&collected, *state, "objects");
    remote_peer_hold(&collected.scene->driver, 1);
    assert_string_equal(tdm__incoming_method(collected.scene->driver.held[0]), "object.list");
    assert_string_equal(tdm__incoming_method(collected.worker.held[0]), "object.list");
    tdm__incoming_reply_pack(remote_peer_take(&collected.scene->driver), "({sisi}{si})u", "a",
                             (int64_t)1, "b", (int64_t)2, "a", (int64_t)3, (uint64_t)40);
    node_fixture_settle(collected.scene);
    assert_int_equal(collected.count, 0); /* The worker has not replied. */
    tdm__incoming_reply_pack(remote_peer_take(&collected.worker), "({ss})u", "a", "x", (uint64_t)2);
    expect_part(&collected, 3, 0, 42);
    records = part_value(&collected, 0);
    assert_int_equal(tdm_value_count(tdm_value_at(records, 0)), 2);
    assert_int_equal(number_of(tdm_value_at(records, 0), "a"), 1);
    assert_int_equal(number_of(tdm_value_at(records, 0), "b"), 2);
    assert_int_equal(number_of(tdm_value_at(records, 1), "a"), 3);
    assert_string_equal(text_of(tdm_value_at(records, 2), "a"), "x");
    close_all(&collected);
}

static void single_calls_are_asked_of_all_processes(void **state)
{
    struct collected collected;

    collect(&collected, *state, "each call");
    remote_peer_hold(&collected.scene->driver, 1);
    assert_string_equal(tdm__incoming_method(collected.scene->driver.held[0]), "call.list");
    assert_string_equal(tdm__incoming_method(collected.worker.held[0]), "call.list");
    tdm__incoming_reply_pack(remote_peer_take(&collected.scene->driver), "()u", (uint64_t)0);
    tdm__incoming_reply_pack(remote_peer_take(&collected.worker), "()u", (uint64_t)0);
    expect_part(&collected, 0, 0, 0);
    close_all(&collected);
}

static void process_that_fails_is_counted_beside_the_records_of_others(void **state)
{
    struct collected collected;

    collect(&collected, *state, "objects");
    remote_peer_hold(&collected.scene->driver, 1);
    tdm__incoming_fail(remote_peer_take(&collected.scene->driver), TDM_E_NOMEM, "a list");
    tdm__incoming_reply_pack(remote_peer_take(&collected.worker), "({ss})u", "a", "x", (uint64_t)0);
    expect_part(&collected, 1, 1, 0);
    close_all(&collected);
}

/* Collects a list in which the worker replies with these bytes and the driver fails, which makes
 * two processes without records. */
static void expect_unreadable(struct node_fixture *scene, const char *kind, struct tdm_bytes reply)
{
    struct collected collected;
    bool asks_driver = strcmp(kind, "calls") != 0;

    collect(&collected, scene, kind);
    if (asks_driver) {
        remote_peer_hold(&scene->driver, 1);
        tdm__incoming_fail(remote_peer_take(&scene->driver), TDM_E_NOMEM, "a list");
    }
    tdm__incoming_reply(remote_peer_take(&collected.worker), reply, NULL, 0);
    expect_part(&collected, 0, asks_driver ? 2 : 1, 0);
    close_all(&collected);
}

static void unreadable_list_counts_as_no_reply(void **state)
{
    static const struct tdm_bytes wrong[] = {
        {"\x92\x91", 2},                 /* The message ends too early. */
        {"\x07", 1},                     /* It is a number. */
        {"\x91\x90", 2},                 /* It has no number of records that are left out. */
        {"\x92\x90\xa1x", 4},            /* That number is a text. */
        {"\x92\x07\x05", 3},             /* The records are a number. */
        {"\x92\x81\xa1\x61\x01\x05", 6}, /* The records are a map. */
    };

    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        expect_unreadable(*state, "objects", wrong[i]);
    }
}

/* ---- calls by method -------------------------------------------------------------------- */

static void counts_of_each_method_become_one_record(void **state)
{
    struct collected collected;
    char id[TDM__ID_TEXT_BYTES];
    const tdm_value *records;
    const tdm_value *record;

    collect(&collected, *state, "calls");
    assert_string_equal(tdm__incoming_method(collected.worker.held[0]), "worker.method_metrics");
    tdm__incoming_reply_pack(remote_peer_take(&collected.worker), "((suuuu)(suuuu))", "read",
                             (uint64_t)1, (uint64_t)2, (uint64_t)3, (uint64_t)4, "write",
                             (uint64_t)5, (uint64_t)6, (uint64_t)7, (uint64_t)8);
    expect_part(&collected, 2, 0, 0);
    assert_int_equal(collected.scene->driver.asked_count, 0);
    records = part_value(&collected, 0);
    record = tdm_value_at(records, 0);
    assert_int_equal(tdm_value_count(record), 11);
    assert_string_equal(text_of(record, "actor"), tdm__id_text(&collected.entry->spec->id, id));
    assert_string_equal(text_of(record, "class_name"), "reader");
    assert_string_equal(text_of(record, "actor_name"), "first");
    assert_string_equal(text_of(record, "node_id"),
                        tdm__id_text(&collected.scene->node.record.id, id));
    assert_string_equal(text_of(record, "node_name"), "this");
    assert_int_equal(number_of(record, "pid"), collected.entry->worker->pid);
    assert_string_equal(text_of(record, "method"), "read");
    assert_int_equal(number_of(record, "waiting"), 1);
    assert_int_equal(number_of(record, "running"), 2);
    assert_int_equal(number_of(record, "finished"), 3);
    assert_int_equal(number_of(record, "failed"), 4);
    assert_string_equal(text_of(tdm_value_at(records, 1), "method"), "write");
    assert_int_equal(number_of(tdm_value_at(records, 1), "failed"), 8);
    close_all(&collected);
}

static void unreadable_counts_are_counted_as_no_reply(void **state)
{
    static const struct tdm_bytes wrong[] = {
        {"\x91\x91", 2},                      /* The message ends too early. */
        {"\x91\x07", 2},                      /* The list is a number. */
        {"\x91\x91\x92\xa1x\x01", 6},         /* A method has too few counts. */
        {"\x91\x91\x95\xa1x\1\2\3\xa1y", 10}, /* A count is a text. */
    };

    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        expect_unreadable(*state, "calls", wrong[i]);
    }
}

static void node_without_actors_has_an_empty_list_at_once(void **state)
{
    struct node_fixture *scene = *state;
    struct collected collected = {.scene = scene};

    tdm__state_query_processes(&scene->node, "calls", on_part, &collected);
    assert_int_equal(collected.count, 1);
    expect_part(&collected, 0, 0, 0);
    tdm_document_destroy(collected.part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(records_of_all_processes_are_copied_unchanged),
        NODE_FIXTURE_TEST(single_calls_are_asked_of_all_processes),
        NODE_FIXTURE_TEST(process_that_fails_is_counted_beside_the_records_of_others),
        NODE_FIXTURE_TEST(unreadable_list_counts_as_no_reply),
        NODE_FIXTURE_TEST(counts_of_each_method_become_one_record),
        NODE_FIXTURE_TEST(unreadable_counts_are_counted_as_no_reply),
        NODE_FIXTURE_TEST(node_without_actors_has_an_empty_list_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
