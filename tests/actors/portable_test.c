/* portable_test.c - references and handles that leave Tandem as bytes and come back elsewhere. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"
#include "tests/support/two_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- an actor that exports and imports --------------------------------------------------- */

/* Replies with the portable form of the reference, which it releases. */
static tdm_status reply_form(tdm_call *call, tdm_ref *ref)
{
    struct tdm_portable form;
    tdm_status status = tdm_ref_export(ref, &form);

    tdm_ref_release(ref);
    TDM_TRY(status);
    return tdm_call_reply(call, "b", (const void *)form.bytes, form.size_bytes);
}

/* Method make (number): puts the number and replies with the portable form of its reference. */
static tdm_status porter_make(tdm_call *call, void *self)
{
    int64_t number;
    tdm_ref *ref;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &number));
    TDM_TRY(tdm_put(tdm_runtime_current(), &ref, "i", number));
    return reply_form(call, ref);
}

/* Method pass_on (reference): replies with its portable form. */
static tdm_status porter_pass_on(tdm_call *call, void *self)
{
    tdm_ref *ref;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "R", &ref));
    return reply_form(call, ref);
}

/* Method id_of (reference): replies with the ID of the value. */
static tdm_status porter_id_of(tdm_call *call, void *self)
{
    char id[33];
    tdm_ref *ref;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "R", &ref));
    status = tdm_ref_id(ref, id);
    tdm_ref_release(ref);
    TDM_TRY(status);
    return tdm_call_reply(call, "s", id);
}

/* Method read (form): replies with the number behind a reference. */
static tdm_status porter_read(tdm_call *call, void *self)
{
    struct tdm_bytes form;
    int64_t number;
    tdm_ref *ref;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "b", &form.data, &form.size_bytes));
    TDM_TRY(tdm_ref_import(tdm_runtime_current(), form, &ref));
    status = tdm_get(ref, TEST_TIMEOUT_MS, "i", &number);
    tdm_ref_release(ref);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", number);
}

/* Method hire (): creates an actor and replies with the portable form of its only handle. */
static tdm_status porter_hire(tdm_call *call, void *self)
{
    struct tdm_portable form;
    tdm_actor *actor;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_actor_create(tdm_runtime_current(), "porter", NULL, &actor, ""));
    status = tdm_actor_export(actor, &form);
    tdm_actor_destroy(actor);
    TDM_TRY(status);
    return tdm_call_reply(call, "b", (const void *)form.bytes, form.size_bytes);
}

/* Method ask (form): replies with the process ID of the actor behind a handle. */
static tdm_status porter_ask(tdm_call *call, void *self)
{
    struct tdm_bytes form;
    tdm_actor *actor;
    tdm_ref *ref = NULL;
    int64_t pid;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "b", &form.data, &form.size_bytes));
    TDM_TRY(tdm_actor_import(tdm_runtime_current(), form, &actor));
    status = tdm_actor_call(actor, "pid", &ref, "");
    if (status == TDM_OK) {
        status = tdm_get(ref, TEST_TIMEOUT_MS, "i", &pid);
    }
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", pid);
}

/* Method metadata (form): replies with the metadata of the actor behind a handle. */
static tdm_status porter_metadata(tdm_call *call, void *self)
{
    struct tdm_bytes form;
    struct tdm_bytes metadata;
    tdm_actor *actor;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "b", &form.data, &form.size_bytes));
    TDM_TRY(tdm_actor_import(tdm_runtime_current(), form, &actor));
    status = tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS);
    if (status == TDM_OK) {
        metadata = tdm_actor_metadata(actor);
        status = tdm_call_reply(call, "b", metadata.data, metadata.size_bytes);
    }
    tdm_actor_destroy(actor);
    return status;
}

/* Method pid (): replies with its process ID. */
static tdm_status porter_pid(tdm_call *call, void *self)
{
    (void)self;
    return tdm_call_reply(call, "i", (int64_t)getpid());
}

/* Method linger (milliseconds): replies with that number after that time. */
static tdm_status porter_linger(tdm_call *call, void *self)
{
    int64_t milliseconds;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &milliseconds));
    (void)usleep((useconds_t)milliseconds * 1000);
    return tdm_call_reply(call, "i", milliseconds);
}

TDM_ACTOR_CLASS(porter, .methods = {
                            {"make", porter_make, NULL},
                            {"pass_on", porter_pass_on, NULL},
                            {"id_of", porter_id_of, NULL},
                            {"read", porter_read, NULL},
                            {"hire", porter_hire, NULL},
                            {"ask", porter_ask, NULL},
                            {"metadata", porter_metadata, NULL},
                            {"pid", porter_pid, NULL},
                            {"linger", porter_linger, NULL},
                        });

/* ---- helpers ------------------------------------------------------------------------------ */

static struct two_nodes cluster;
static tdm_runtime *runtime; /* Runtime of a driver on the first node. */
static tdm_actor *near;      /* Porter on the driver's node. */
static tdm_actor *far;       /* Porter on the other node. */

static void assert_ok(tdm_status status)
{
    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
}

static tdm_actor *porter_create(const struct tdm_actor_options *options)
{
    tdm_actor *actor = NULL;

    assert_ok(tdm_actor_create(runtime, "porter", options, &actor, ""));
    assert_ok(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    return actor;
}

static int open_porters(void **state)
{
    const struct tdm_node_state *nodes;
    struct tdm_runtime_info here;
    char other[33] = "";
    uint32_t count;

    (void)state;
    tdm_runtime_describe(runtime, &here);
    assert_ok(tdm_list_nodes(runtime, TEST_TIMEOUT_MS, &nodes, &count));
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(nodes[i].id, here.node_id) != 0) {
            memcpy(other, nodes[i].id, sizeof(other));
        }
    }
    tdm_list_free(nodes);
    near = porter_create(
        &(struct tdm_actor_options){.scheduling = TDM_SCHEDULE_NODE, .node_id = here.node_id});
    far = porter_create(
        &(struct tdm_actor_options){.scheduling = TDM_SCHEDULE_NODE, .node_id = other});
    return 0;
}

static int close_porters(void **state)
{
    (void)state;
    tdm_actor_destroy(near);
    tdm_actor_destroy(far);
    return 0;
}

static tdm_ref *put(int64_t number)
{
    tdm_ref *ref = NULL;

    assert_ok(tdm_put(runtime, &ref, "i", number));
    return ref;
}

static struct tdm_bytes bytes_of(const struct tdm_portable *form)
{
    return (struct tdm_bytes){form->bytes, form->size_bytes};
}

/* Copies the form that the call replies, and releases the reference. */
static struct tdm_portable form_of_reply(tdm_ref *ref)
{
    struct tdm_portable form = {0};
    const void *bytes;
    size_t size_bytes;

    assert_ok(tdm_get(ref, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    assert_true(size_bytes <= sizeof(form.bytes));
    memcpy(form.bytes, bytes, size_bytes);
    form.size_bytes = size_bytes;
    tdm_ref_release(ref);
    return form;
}

/* Imports the form here and reads the number. */
static tdm_status read_here(const struct tdm_portable *form, int64_t *number_out)
{
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_ref_import(runtime, bytes_of(form), &ref));
    status = tdm_get(ref, TEST_TIMEOUT_MS, "i", number_out);
    tdm_ref_release(ref);
    return status;
}

/* Calls a method that takes a form and replies a number. */
static tdm_status send_form(tdm_actor *actor, const char *method, const struct tdm_portable *form,
                            int64_t *number_out)
{
    tdm_ref *ref;
    tdm_status status;

    assert_ok(
        tdm_actor_call(actor, method, &ref, "b", (const void *)form->bytes, form->size_bytes));
    status = tdm_get(ref, TEST_TIMEOUT_MS, "i", number_out);
    tdm_ref_release(ref);
    return status;
}

static void assert_number_everywhere(const struct tdm_portable *form, int64_t expected)
{
    int64_t number = 0;

    for (int i = 0; i < 2; i++) { /* Any number of times. */
        assert_ok(read_here(form, &number));
        assert_int_equal(number, expected);
        assert_ok(send_form(near, "read", form, &number));
        assert_int_equal(number, expected);
        assert_ok(send_form(far, "read", form, &number));
        assert_int_equal(number, expected);
    }
}

/* ---- references --------------------------------------------------------------------------- */

static void released_value_is_read_through_its_form(void **state)
{
    uint32_t shared_count = tdm_runtime_shared_refs_count(runtime);
    tdm_ref *ref = put(7);
    struct tdm_portable form;

    (void)state;
    assert_int_equal(tdm_runtime_shared_refs_count(runtime), shared_count);
    assert_ok(tdm_ref_export(ref, &form));
    assert_true(form.size_bytes > 0);
    tdm_ref_release(ref);
    assert_int_equal(tdm_runtime_shared_refs_count(runtime), shared_count + 1);
    assert_number_everywhere(&form, 7);
}

static void value_of_an_actor_is_read_through_its_form(void **state)
{
    tdm_actor *owners[2] = {near, far};
    struct tdm_portable form;
    tdm_ref *ref;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_ok(tdm_actor_call(owners[i], "make", &ref, "i", (int64_t)8));
        form = form_of_reply(ref);
        assert_number_everywhere(&form, 8);
    }
}

static void borrowers_form_keeps_the_value_at_its_owner(void **state)
{
    tdm_actor *borrowers[2] = {near, far};
    struct tdm_portable form;
    tdm_ref *ref;
    tdm_ref *reply;

    (void)state;
    for (int i = 0; i < 2; i++) {
        ref = put(9);
        assert_ok(tdm_actor_call(borrowers[i], "pass_on", &reply, "R", ref));
        form = form_of_reply(reply);
        tdm_ref_release(ref);
        (void)usleep(100 * 1000); /* The borrower's pin has ended, too. */
        assert_number_everywhere(&form, 9);
    }
}

static void result_to_come_is_awaited_through_its_form(void **state)
{
    struct tdm_portable form;
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_actor_call(near, "linger", &ref, "i", (int64_t)200));
    assert_ok(tdm_ref_export(ref, &form));
    tdm_ref_release(ref);
    assert_number_everywhere(&form, 200);
}

static void imported_reference_is_the_same_as_the_one_that_there_is(void **state)
{
    tdm_ref *ref = put(10);
    struct tdm_portable form;
    tdm_ref *again;

    (void)state;
    assert_ok(tdm_ref_export(ref, &form));
    assert_ok(tdm_ref_import(runtime, bytes_of(&form), &again));
    assert_ptr_equal(again, ref);
    tdm_ref_release(again);
    tdm_ref_release(ref);
}

static void id_is_the_same_in_every_process(void **state)
{
    tdm_actor *readers[2] = {near, far};
    tdm_ref *ref = put(11);
    tdm_ref *other = put(11);
    const char *there;
    char here[33];
    char otherwise[33];
    tdm_ref *reply;

    (void)state;
    assert_ok(tdm_ref_id(ref, here));
    assert_ok(tdm_ref_id(other, otherwise));
    assert_int_equal(strlen(here), 32);
    assert_string_not_equal(here, otherwise);
    for (int i = 0; i < 2; i++) {
        assert_ok(tdm_actor_call(readers[i], "id_of", &reply, "R", ref));
        assert_ok(tdm_get(reply, TEST_TIMEOUT_MS, "s", &there));
        assert_string_equal(there, here);
        tdm_ref_release(reply);
    }
    tdm_ref_release(ref);
    tdm_ref_release(other);
}

static void form_of_an_ended_owner_is_an_error_that_names_it(void **state)
{
    tdm_actor *owner = porter_create(NULL);
    struct tdm_portable form;
    int64_t number;
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_actor_call(owner, "make", &ref, "i", (int64_t)12));
    form = form_of_reply(ref);
    assert_ok(read_here(&form, &number));
    assert_ok(tdm_actor_kill(owner, TEST_TIMEOUT_MS));
    assert_int_equal(read_here(&form, &number), TDM_E_OWNER_DIED);
    assert_non_null(strstr(tdm_error_detail(), "porter"));
    assert_int_equal(send_form(far, "read", &form, &number), TDM_E_OWNER_DIED);
    tdm_actor_destroy(owner);
}

static void form_of_a_freed_value_is_lost(void **state)
{
    tdm_ref *ref = put(13);
    struct tdm_portable form;
    int64_t number;

    (void)state;
    assert_ok(tdm_ref_export(ref, &form));
    assert_ok(tdm_ref_free_value(ref));
    tdm_ref_release(ref);
    assert_int_equal(read_here(&form, &number), TDM_E_VALUE_LOST);
    assert_int_equal(send_form(far, "read", &form, &number), TDM_E_VALUE_LOST);
}

/* ---- handles ------------------------------------------------------------------------------- */

static void handle_works_wherever_its_form_arrives(void **state)
{
    struct tdm_portable form;
    struct tdm_actor_info info;
    tdm_actor *actor;
    int64_t pids[2] = {0};
    tdm_ref *ref;

    (void)state;
    assert_ok(tdm_actor_call(near, "hire", &ref, ""));
    form = form_of_reply(ref);
    (void)usleep(200 * 1000); /* No handle is left: without the form the actor would end. */
    assert_ok(send_form(near, "ask", &form, &pids[0]));
    assert_ok(send_form(far, "ask", &form, &pids[1]));
    assert_int_equal(pids[0], pids[1]);
    assert_ok(tdm_actor_import(runtime, bytes_of(&form), &actor));
    assert_ok(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    tdm_actor_describe(actor, &info);
    assert_int_equal(info.pid, pids[0]);
    assert_ok(tdm_actor_kill(actor, TEST_TIMEOUT_MS));
    tdm_actor_destroy(actor);
    assert_int_equal(send_form(far, "ask", &form, &pids[1]), TDM_E_ACTOR_DIED);
}

static void assert_metadata(tdm_actor *actor, const void *expected, size_t size_bytes)
{
    struct tdm_bytes metadata = tdm_actor_metadata(actor);

    assert_int_equal(metadata.size_bytes, size_bytes);
    assert_memory_equal(metadata.data, expected, size_bytes);
}

static void metadata_reaches_every_handle(void **state)
{
    static uint8_t largest[TDM_ACTOR_METADATA_BYTES_MAX + 1];
    struct tdm_actor_options options = {.name = "described",
                                        .metadata = {largest, sizeof(largest) - 1}};
    tdm_actor *readers[2] = {near, far};
    struct tdm_portable form;
    const void *bytes;
    size_t size_bytes;
    tdm_actor *found;
    tdm_actor *actor;
    tdm_ref *reply;

    (void)state;
    for (size_t i = 0; i < sizeof(largest); i++) {
        largest[i] = (uint8_t)(i * 31);
    }
    assert_ok(tdm_actor_create(runtime, "porter", &options, &actor, ""));
    assert_metadata(actor, largest, sizeof(largest) - 1);
    assert_ok(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    assert_ok(tdm_actor_export(actor, &form));
    for (int i = 0; i < 2; i++) {
        assert_ok(tdm_actor_call(readers[i], "metadata", &reply, "b", (const void *)form.bytes,
                                 form.size_bytes));
        assert_ok(tdm_get(reply, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
        assert_int_equal(size_bytes, sizeof(largest) - 1);
        assert_memory_equal(bytes, largest, size_bytes);
        tdm_ref_release(reply);
    }
    options.metadata = (struct tdm_bytes){"other", 5}; /* That of the actor that there is counts. */
    options.get_if_exists = 1;
    assert_ok(tdm_actor_create(runtime, "porter", &options, &found, ""));
    assert_ok(tdm_actor_wait_ready(found, TEST_TIMEOUT_MS));
    assert_metadata(found, largest, sizeof(largest) - 1);
    tdm_actor_destroy(found);
    assert_ok(tdm_actor_kill(actor, TEST_TIMEOUT_MS));
    tdm_actor_destroy(actor);
    assert_null(tdm_actor_metadata(near).data);

    options.metadata = (struct tdm_bytes){largest, sizeof(largest)};
    assert_int_equal(tdm_actor_create(runtime, "porter", &options, &actor, ""), TDM_E_LIMIT);
    options.metadata = (struct tdm_bytes){NULL, 1};
    assert_int_equal(tdm_actor_create(runtime, "porter", &options, &actor, ""), TDM_E_INVAL);
}

/* The process that finds the actor has no channel to it yet. */
static tdm_status finder_find(tdm_call *call, void *self)
{
    struct tdm_bytes metadata;
    const char *name;
    tdm_actor *actor;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &name));
    TDM_TRY(tdm_actor_find(tdm_runtime_current(), name, TEST_TIMEOUT_MS, &actor));
    metadata = tdm_actor_metadata(actor);
    status = tdm_call_reply(call, "b", metadata.data, metadata.size_bytes);
    tdm_actor_destroy(actor);
    return status;
}

TDM_ACTOR_CLASS(finder, .methods = {{"find", finder_find, NULL}});

static void metadata_is_known_to_who_finds_the_actor(void **state)
{
    tdm_actor *actor =
        porter_create(&(struct tdm_actor_options){.name = "told", .metadata = {"methods: 3", 10}});
    tdm_actor *finder;
    const void *bytes;
    size_t size_bytes;
    tdm_ref *busy;
    tdm_ref *reply;

    (void)state;
    assert_ok(tdm_actor_call(actor, "linger", &busy, "i", (int64_t)300)); /* It is not asked. */
    assert_ok(tdm_actor_create(runtime, "finder", NULL, &finder, ""));
    assert_ok(tdm_actor_call(finder, "find", &reply, "s", "told"));
    assert_ok(tdm_get(reply, TEST_TIMEOUT_MS, "b", &bytes, &size_bytes));
    assert_int_equal(size_bytes, 10);
    assert_memory_equal(bytes, "methods: 3", 10);
    tdm_ref_release(reply);
    tdm_ref_release(busy);
    tdm_actor_destroy(finder);
    tdm_actor_destroy(actor);
}

/* ---- bytes that are no form ---------------------------------------------------------------- */

static void wrong_bytes_are_refused(void **state)
{
    static const char text[] = "this is no reference";
    static uint8_t zeros[4096];
    struct tdm_bytes wrong[] = {
        {text, sizeof(text)}, {zeros, 100}, {zeros, sizeof(zeros)}, {NULL, 0}, {NULL, 5},
        {"\xc0", 1}};
    tdm_actor *actor;
    tdm_ref *ref;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(tdm_ref_import(runtime, wrong[i], &ref), TDM_E_PROTOCOL);
        assert_null(ref);
        assert_int_equal(tdm_actor_import(runtime, wrong[i], &actor), TDM_E_PROTOCOL);
        assert_null(actor);
    }
}

static void truncated_bytes_are_refused(void **state)
{
    tdm_ref *ref = put(14);
    struct tdm_portable forms[2];
    tdm_actor *actor;
    tdm_ref *again;

    (void)state;
    assert_ok(tdm_ref_export(ref, &forms[0]));
    assert_ok(tdm_actor_export(near, &forms[1]));
    for (size_t size = 0; size < forms[0].size_bytes; size++) {
        assert_int_equal(tdm_ref_import(runtime, (struct tdm_bytes){forms[0].bytes, size}, &again),
                         TDM_E_PROTOCOL);
    }
    for (size_t size = 0; size < forms[1].size_bytes; size++) {
        assert_int_equal(
            tdm_actor_import(runtime, (struct tdm_bytes){forms[1].bytes, size}, &actor),
            TDM_E_PROTOCOL);
    }
    tdm_ref_release(ref);
}

static void form_of_the_other_kind_is_refused(void **state)
{
    tdm_ref *ref = put(15);
    struct tdm_portable form;
    tdm_actor *actor;
    tdm_ref *again;

    (void)state;
    assert_ok(tdm_ref_export(ref, &form));
    assert_int_equal(tdm_actor_import(runtime, bytes_of(&form), &actor), TDM_E_TYPE);
    assert_non_null(strstr(tdm_error_detail(), "wanted a handle, got a reference"));
    assert_ok(tdm_actor_export(near, &form));
    assert_int_equal(tdm_ref_import(runtime, bytes_of(&form), &again), TDM_E_TYPE);
    tdm_ref_release(ref);
}

static void form_of_another_build_is_refused(void **state)
{
    tdm_ref *ref = put(16);
    struct tdm_portable form;
    tdm_ref *again;

    (void)state;
    assert_ok(tdm_ref_export(ref, &form));
    form.bytes[3] ^= 1; /* Inside of the protocol's number, which begins the message. */
    assert_int_equal(tdm_ref_import(runtime, bytes_of(&form), &again), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "another build of Tandem"));
    tdm_ref_release(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_value_is_read_through_its_form),
        cmocka_unit_test(value_of_an_actor_is_read_through_its_form),
        cmocka_unit_test(borrowers_form_keeps_the_value_at_its_owner),
        cmocka_unit_test(result_to_come_is_awaited_through_its_form),
        cmocka_unit_test(imported_reference_is_the_same_as_the_one_that_there_is),
        cmocka_unit_test(id_is_the_same_in_every_process),
        cmocka_unit_test(form_of_an_ended_owner_is_an_error_that_names_it),
        cmocka_unit_test(form_of_a_freed_value_is_lost),
        cmocka_unit_test(handle_works_wherever_its_form_arrives),
        cmocka_unit_test(metadata_reaches_every_handle),
        cmocka_unit_test(metadata_is_known_to_who_finds_the_actor),
        cmocka_unit_test(wrong_bytes_are_refused),
        cmocka_unit_test(truncated_bytes_are_refused),
        cmocka_unit_test(form_of_the_other_kind_is_refused),
        cmocka_unit_test(form_of_another_build_is_refused),
    };
    struct tdm_portable form;
    tdm_ref *stale = NULL;
    char id[33];
    int failed = 1;

    runtime = two_nodes_join(&cluster);
    if (runtime != NULL) {
        failed = cmocka_run_group_tests(tests, open_porters, close_porters);
        failed += tdm_put(runtime, &stale, "i", (int64_t)17) == TDM_OK ? 0 : 1;
    }
    failed += two_nodes_leave(&cluster, runtime);
    if (stale != NULL) { /* The runtime has stopped. */
        failed += tdm_ref_export(stale, &form) == TDM_E_STATE && form.size_bytes == 0 ? 0 : 1;
        failed += tdm_ref_id(stale, id) == TDM_E_STATE && id[0] == '\0' ? 0 : 1;
        tdm_ref_release(stale);
    }
    return failed;
}
