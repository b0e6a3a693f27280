/* object_list_test.c - the objects of processes as records, from creation to release. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/object_list.h"
#include "runtime/clock.h"
#include "tests/support/actor_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LARGE_BYTES = 1 << 20 };

static uint8_t bytes[LARGE_BYTES];

/* ---- an actor that makes an array, and keeps one ----------------------------------------- */

struct shelf {
    tdm_ref *ref;
};

/* Method make (): replies a reference to a large value, which it also keeps. */
static tdm_status shelf_make(tdm_call *call, void *self)
{
    struct shelf *shelf = self;

    TDM_TRY(tdm_put(tdm_runtime_current(), &shelf->ref, "b", (const void *)bytes, sizeof(bytes)));
    return tdm_call_reply(call, "R", shelf->ref);
}

/* Method keep (reference): reads the value, so that it stays mapped. */
static tdm_status shelf_keep(tdm_call *call, void *self)
{
    struct shelf *shelf = self;
    const tdm_value *value;

    TDM_TRY(tdm_call_unpack(call, "R", &shelf->ref));
    return tdm_get_value(shelf->ref, TEST_TIMEOUT_MS, &value);
}

/* Method hold (reference): keeps the reference without its value. */
static tdm_status shelf_hold(tdm_call *call, void *self)
{
    struct shelf *shelf = self;

    return tdm_call_unpack(call, "R", &shelf->ref);
}

static tdm_status shelf_hang(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    (void)poll(NULL, 0, -1);
    return TDM_OK;
}

static tdm_status shelf_drop(tdm_call *call, void *self)
{
    struct shelf *shelf = self;

    (void)call;
    tdm_ref_release(shelf->ref);
    shelf->ref = NULL;
    return TDM_OK;
}

static void shelf_destruct(void *self)
{
    struct shelf *shelf = self;

    tdm_ref_release(shelf->ref);
}

TDM_ACTOR_CLASS(shelf, .state_bytes = sizeof(struct shelf), .destruct = shelf_destruct,
                .methods = {{"make", shelf_make},
                            {"keep", shelf_keep},
                            {"hold", shelf_hold},
                            {"hang", shelf_hang},
                            {"drop", shelf_drop}});

static tdm_runtime *runtime;

static void assert_ok(tdm_status status)
{
    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
}

static tdm_actor *make_shelf(const char *name)
{
    const struct tdm_actor_options options = {.name = name};
    tdm_actor *actor = NULL;

    assert_ok(tdm_actor_create(runtime, "shelf", &options, &actor, ""));
    assert_ok(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    return actor;
}

static void finish(tdm_actor *actor)
{
    assert_ok(tdm_actor_kill(actor, TEST_TIMEOUT_MS));
    tdm_actor_destroy(actor);
}

static void give(tdm_actor *actor, const char *method, tdm_ref *given)
{
    tdm_ref *ref;

    assert_ok(tdm_actor_call(actor, method, &ref, "R", given));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, ""));
    tdm_ref_release(ref);
}

static void drop(tdm_actor *actor)
{
    tdm_ref *ref;

    assert_ok(tdm_actor_call(actor, "drop", &ref, ""));
    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, ""));
    tdm_ref_release(ref);
}

/* Lists all objects; the caller frees `*list_out`. */
static uint32_t list(const struct tdm_object_state **list_out)
{
    struct tdm_list_missing missing;
    uint32_t count;

    assert_ok(tdm_list_objects(runtime, TEST_TIMEOUT_MS, list_out, &count, &missing));
    assert_true(missing.nodes == 0 && missing.processes == 0 && missing.rows == 0);
    return count;
}

static bool is_over(int64_t until_ms)
{
    (void)poll(NULL, 0, 1);
    return tdm__clock_ms() > until_ms;
}

/* Waits until no object is listed, since other processes release references by messages. */
static void assert_nothing_is_left(void)
{
    int64_t until_ms = tdm__clock_ms() + TEST_TIMEOUT_MS;
    const struct tdm_object_state *objects;
    uint32_t count;

    do {
        count = list(&objects);
        tdm_list_free(objects);
    } while (count > 0 && !is_over(until_ms));
    assert_int_equal(count, 0);
}

/* Waits until the only record has that many borrowers. The reply that contained a reference
 * counts as a holder until its receiver has settled. The caller frees `*list_out`. */
static void list_borrowed(uint32_t borrowers_count, const struct tdm_object_state **list_out)
{
    int64_t until_ms = tdm__clock_ms() + TEST_TIMEOUT_MS;

    for (;;) {
        assert_int_equal(list(list_out), 1);
        if ((*list_out)->borrowers_count == borrowers_count || is_over(until_ms)) {
            break;
        }
        tdm_list_free(*list_out);
    }
    assert_int_equal((*list_out)->borrowers_count, borrowers_count);
}

/* ---- records ------------------------------------------------------------------------------ */

static void record_is_read_as_it_was_written(void **state)
{
    const struct tdm_object_state written = {.id = "i",
                                             .owner = "o",
                                             .owner_name = "n",
                                             .node_id = "d",
                                             .node_name = "m",
                                             .where = "SPILLED",
                                             .pid = 7,
                                             .size_bytes = INT64_C(1) << 40,
                                             .age_ms = 9,
                                             .holders_count = 1,
                                             .borrowers_count = 2,
                                             .readers_count = 3};
    struct tdm_object_state read;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    assert_ok(tdm_writer_create(&writer));
    tdm__object_record_write(writer, &written);
    assert_ok(tdm_document_parse(tdm_writer_bytes(writer), &document));
    tdm__object_record_read(tdm_document_root(document), &read);
    assert_string_equal(read.id, "i");
    assert_string_equal(read.owner, "o");
    assert_string_equal(read.owner_name, "n");
    assert_string_equal(read.node_id, "d");
    assert_string_equal(read.node_name, "m");
    assert_string_equal(read.where, "SPILLED");
    assert_true(read.pid == 7 && read.size_bytes == INT64_C(1) << 40 && read.age_ms == 9);
    assert_true(read.holders_count == 1 && read.borrowers_count == 2);
    assert_true(read.readers_count == 3);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

static void record_of_another_shape_is_empty(void **state)
{
    struct tdm_object_state read;
    tdm_document *document;

    (void)state;
    assert_ok(tdm_document_parse((struct tdm_bytes){"\x81\xa3pid\xa1x", 7}, &document));
    tdm__object_record_read(tdm_document_root(document), &read);
    assert_string_equal(read.where, "");
    assert_true(read.pid == 0 && read.size_bytes == 0);
    tdm_document_destroy(document);
}

static void records_beyond_the_limit_are_counted(void **state)
{
    struct tdm__state_records records;
    tdm_ref *refs[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_ok(tdm_put(runtime, &refs[i], "b", (const void *)bytes, sizeof(bytes)));
    }
    assert_ok(tdm__state_records_begin(&records, 2));
    tdm__object_list_write(runtime, &records);
    assert_int_equal(records.count, 2);
    assert_int_equal(records.left_out, 1);
    tdm_writer_destroy(records.packed);
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
}

/* ---- the list --------------------------------------------------------------------------- */

static void borrowed_array_is_listed_until_it_is_released(void **state)
{
    tdm_actor *maker = make_shelf("maker");
    tdm_actor *reader = make_shelf("reader");
    const struct tdm_object_state *objects;
    struct tdm_actor_info info;
    struct tdm_runtime_info node;
    tdm_ref *made;
    tdm_ref *array;

    (void)state;
    tdm_actor_describe(maker, &info);
    tdm_runtime_describe(runtime, &node);
    assert_ok(tdm_actor_call(maker, "make", &made, ""));
    assert_ok(tdm_get(made, TEST_TIMEOUT_MS, "R", &array));
    tdm_ref_release(made);
    give(reader, "keep", array);
    list_borrowed(2, &objects); /* The reader and this process borrow it. */
    assert_int_equal(strlen(objects[0].id), 32);
    assert_string_equal(objects[0].owner, info.id);
    assert_non_null(strstr(objects[0].owner_name, "maker"));
    assert_string_equal(objects[0].node_id, node.node_id);
    assert_string_equal(objects[0].where, "SHARED");
    assert_true(objects[0].pid == info.pid && objects[0].age_ms >= 0);
    assert_in_range(objects[0].size_bytes, LARGE_BYTES, LARGE_BYTES + 64);
    assert_true(objects[0].holders_count >= 1);
    assert_int_equal(objects[0].readers_count, 1);
    tdm_list_free(objects);
    drop(reader);
    drop(maker);
    tdm_ref_release(array);
    assert_nothing_is_left();
    finish(reader);
    finish(maker);
}

static void small_value_is_listed_once_it_is_passed_on(void **state)
{
    tdm_actor *keeper = make_shelf("keeper");
    const struct tdm_object_state *objects;
    tdm_ref *small;

    (void)state;
    assert_ok(tdm_put(runtime, &small, "i", (int64_t)5));
    assert_int_equal(list(&objects), 0); /* No other process knows the reference. */
    tdm_list_free(objects);
    give(keeper, "keep", small);
    list_borrowed(1, &objects);
    assert_string_equal(objects[0].where, "INLINE");
    assert_int_equal(objects[0].size_bytes, 2);
    assert_int_equal(objects[0].readers_count, 0);
    tdm_list_free(objects);
    drop(keeper);
    tdm_ref_release(small);
    assert_nothing_is_left();
    finish(keeper);
}

static void assert_is_at(const char *where)
{
    const struct tdm_object_state *objects;

    list_borrowed(1, &objects);
    assert_string_equal(objects[0].where, where);
    assert_int_equal(objects[0].size_bytes, 0);
    tdm_list_free(objects);
}

static void result_to_come_is_pending_and_then_failed(void **state)
{
    tdm_actor *maker = make_shelf("hanging");
    tdm_actor *keeper = make_shelf("holding");
    tdm_ref *result;

    (void)state;
    assert_ok(tdm_actor_call(maker, "hang", &result, ""));
    give(keeper, "hold", result);
    assert_is_at("PENDING");
    finish(maker);
    assert_int_equal(tdm_get(result, TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_DIED);
    assert_is_at("FAILED");
    drop(keeper);
    tdm_ref_release(result);
    assert_nothing_is_left();
    finish(keeper);
}

static void process_that_does_not_answer_is_counted(void **state)
{
    tdm_actor *stopped = make_shelf("stopped");
    const struct tdm_object_state *objects;
    struct tdm_list_missing missing;
    struct tdm_actor_info info;
    uint32_t count;

    (void)state;
    tdm_actor_describe(stopped, &info);
    assert_int_equal(kill((pid_t)info.pid, SIGSTOP), 0);
    assert_ok(tdm_list_objects(runtime, TEST_TIMEOUT_MS, &objects, &count, &missing));
    assert_int_equal(kill((pid_t)info.pid, SIGCONT), 0);
    assert_true(missing.nodes == 0 && missing.processes == 1);
    tdm_list_free(objects);
    finish(stopped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_is_read_as_it_was_written),
        cmocka_unit_test(record_of_another_shape_is_empty),
        cmocka_unit_test(records_beyond_the_limit_are_counted),
        cmocka_unit_test(borrowed_array_is_listed_until_it_is_released),
        cmocka_unit_test(small_value_is_listed_once_it_is_passed_on),
        cmocka_unit_test(result_to_come_is_pending_and_then_failed),
        cmocka_unit_test(process_that_does_not_answer_is_counted),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
