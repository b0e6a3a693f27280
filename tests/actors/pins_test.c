/* pins_test.c - pinned references: all or none, with callbacks once they are settled. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* ---- references of another process --------------------------------------------------------
 */

struct exported {
    struct object_fixture *scene;
    struct remote_peer owner;
    tdm_ref *refs[3];
};

static void borrow(struct exported *exported, struct object_fixture *scene)
{
    exported->scene = scene;
    object_fixture_owner(scene, TDM__PEER_DRIVER, &exported->owner);
    for (int i = 0; i < 3; i++) {
        struct tdm__id id;

        TRY(tdm__id_generate(&id));
        TRY(object_fixture_open_reference(scene, &exported->owner, &id, &exported->refs[i]));
    }
    remote_peer_hold(&exported->owner, 3);
}

static void acknowledge(struct exported *exported)
{
    tdm__incoming_reply_pack(object_fixture_expect(&exported->owner, "object.pin"), "");
    object_fixture_settle(exported->scene);
}

static void give_back(struct exported *exported)
{
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(exported->refs[i]);
    }
    object_fixture_settle(exported->scene);
    remote_peer_close(&exported->owner);
}

/* Adds all three references to `holds`, as packing them would. */
static void hold_all(const struct exported *exported, struct tdm__pins *holds)
{
    *holds = (struct tdm__pins){0};
    for (int i = 0; i < 3; i++) {
        TRY(tdm__pins_add(holds, exported->refs[i]));
    }
}

/* ---- a list of pins ----------------------------------------------------------------------- */

static void the_same_reference_is_held_as_often_as_it_was_added(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__pins holds = {0};
    tdm_ref *ref;

    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)7));
    for (uint32_t i = 0; i < 9; i++) { /* More than the initial capacity. */
        TRY(tdm__pins_add(&holds, ref));
        assert_int_equal(atomic_load(&ref->holders_count), 2 + i);
    }
    tdm__pins_release(&holds);
    assert_int_equal(atomic_load(&ref->holders_count), 1);
    assert_int_equal(holds.count, 0);
    tdm__pins_release(&holds); /* Releasing an empty list does nothing. */
    tdm_ref_release(ref);
}

/* ---- settled references ------------------------------------------------------------------- */

/* What a settled callback does and observes. */
struct settled_callback {
    uint32_t count;
    uint32_t at;           /* Position of the callback among all that were called, from 1. */
    tdm_ref *released_ref; /* Reference that the callback releases; NULL for none. */
};
static uint32_t settled_callbacks_total;

static void on_settled(void *arg)
{
    struct settled_callback *settled_callback = arg;

    settled_callback->count++;
    settled_callback->at = ++settled_callbacks_total;
    tdm_ref_release(settled_callback->released_ref);
    settled_callback->released_ref = NULL;
}

static void empty_list_is_settled_at_once(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__pins holds = {0};
    struct settled_callback settled_callback = {0};

    assert_true(tdm__pins_are_settled(&holds));
    TRY(tdm__pins_wait_settled(scene->runtime, &holds, 0));
    TRY(tdm__pins_on_settled(scene->runtime, &holds, on_settled, &settled_callback));
    assert_int_equal(settled_callback.count, 1);
}

static void callback_runs_once_after_the_last_reply(void **state)
{
    struct exported exported;
    struct tdm__pins holds;
    struct settled_callback settled_callback = {0};

    borrow(&exported, *state);
    hold_all(&exported, &holds);
    TRY(tdm__pins_on_settled(exported.scene->runtime, &holds, on_settled, &settled_callback));
    tdm__pins_release(&holds); /* The wait holds the references itself. */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(settled_callback.count, 0);
        assert_true(atomic_load(&exported.refs[i]->holders_count) > 1);
        acknowledge(&exported);
    }
    assert_int_equal(settled_callback.count, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&exported.refs[i]->holders_count), 1);
    }
    give_back(&exported);
    assert_int_equal(settled_callback.count, 1);
}

static void callbacks_run_in_registration_order(void **state)
{
    struct exported exported;
    struct tdm__pins holds;
    struct settled_callback settled_callback[3] = {{0}, {0}, {0}};

    borrow(&exported, *state);
    hold_all(&exported, &holds);
    /* Releasing the reference calls the check for settled references again. */
    settled_callback[0].released_ref = exported.refs[0];
    exported.refs[0] = NULL;
    settled_callbacks_total = 0;
    for (int i = 0; i < 3; i++) {
        TRY(tdm__pins_on_settled(exported.scene->runtime, &holds, on_settled,
                                 &settled_callback[i]));
    }
    tdm__pins_release(&holds);
    for (int i = 0; i < 3; i++) {
        acknowledge(&exported);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(settled_callback[i].count, 1);
        assert_int_equal(settled_callback[i].at, i + 1);
    }
    give_back(&exported);
}

static void references_of_an_ended_owner_are_settled(void **state)
{
    struct exported exported;
    struct tdm__pins holds;
    struct settled_callback settled_callback = {0};

    borrow(&exported, *state);
    hold_all(&exported, &holds);
    assert_int_equal(tdm__pins_wait_settled(exported.scene->runtime, &holds, 0), TDM_E_TIMEOUT);
    TRY(tdm__pins_on_settled(exported.scene->runtime, &holds, on_settled, &settled_callback));
    remote_peer_cut(&exported.owner);
    TRY(tdm__pins_wait_settled(exported.scene->runtime, &holds, REMOTE_PEER_WAIT_MS));
    object_fixture_settle(exported.scene);
    assert_int_equal(settled_callback.count, 1);
    tdm__pins_release(&holds);
    give_back(&exported);
}

static void all_callbacks_run_when_the_runtime_stops(void **state)
{
    struct exported exported;
    struct tdm__pins holds;
    struct settled_callback settled_callback[2] = {{0}, {0}};

    borrow(&exported, *state);
    hold_all(&exported, &holds);
    for (int i = 0; i < 2; i++) {
        TRY(tdm__pins_on_settled(exported.scene->runtime, &holds, on_settled,
                                 &settled_callback[i]));
    }
    tdm__pins_release(&holds);
    tdm__pins_abandon_settling(exported.scene->runtime);
    assert_int_equal(settled_callback[0].count + settled_callback[1].count, 2);
    for (int i = 0; i < 3; i++) {
        acknowledge(&exported);
    }
    assert_int_equal(settled_callback[0].count + settled_callback[1].count, 2);
    give_back(&exported);
}

/* ---- what a document contains ------------------------------------------------------------ */

/* A reference of this process, followed by one that cannot be opened. */
static void malformed_document_pins_nothing(void **state)
{
    static const char wrong[] = "\xc7\x01"; /* A reference of one byte, which is not an array. */
    struct object_fixture *scene = *state;
    struct tdm__pins holds = {0};
    char bytes[512];
    tdm_document *document;
    struct tdm_bytes packed;
    tdm_writer *writer;
    tdm_ref *ref;

    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)7));
    TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 3);
    TRY(tdm__reference_write(writer, ref));
    tdm_write_string(writer, "between");
    packed = tdm_writer_bytes(writer);
    assert_true(packed.size_bytes + 4 <= sizeof(bytes));
    memcpy(bytes, packed.data, packed.size_bytes);
    memcpy(bytes + packed.size_bytes, wrong, 2);
    bytes[packed.size_bytes + 2] = TDM__EXT_REFERENCE;
    bytes[packed.size_bytes + 3] = '\x07';
    packed = (struct tdm_bytes){bytes, packed.size_bytes + 4};
    TRY(tdm_document_parse(packed, &document));
    assert_int_equal(tdm__pins_from_document(scene->runtime, document, &holds), TDM_E_PROTOCOL);
    assert_int_equal(holds.count, 0);
    assert_int_equal(tdm__pins_from_packed(scene->runtime, packed, &holds), TDM_E_PROTOCOL);
    assert_int_equal(atomic_load(&ref->holders_count), 1);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    tdm_ref_release(ref);
}

static tdm_status pack(tdm_runtime *runtime, tdm_writer *writer, struct tdm__pins *holds,
                       const char *format, ...)
{
    tdm_status status;
    va_list args;

    va_start(args, format);
    status = tdm__refs_pack(runtime, writer, format, args, holds);
    va_end(args);
    return status;
}

static void packed_references_are_pinned_or_refused(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__pins holds = {0};
    struct tdm_bytes inner;
    tdm_writer *writers[2];
    tdm_ref *ref;

    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)7));
    for (int i = 0; i < 2; i++) {
        TRY(tdm_writer_create(&writers[i]));
    }
    assert_int_equal(pack(NULL, writers[0], &holds, "R", ref), TDM_E_STATE);
    tdm_writer_clear(writers[0]);
    assert_int_equal(pack(scene->runtime, writers[0], &holds, "Rr", ref, ref), TDM_E_INVAL);
    assert_int_equal(atomic_load(&ref->holders_count), 1);
    tdm_writer_clear(writers[0]);
    TRY(pack(scene->runtime, writers[0], &holds, "iR", (int64_t)1, ref));
    assert_int_equal(holds.count, 1);
    inner = tdm_writer_bytes(writers[0]);
    /* The references are inside a value that was packed before. */
    TRY(pack(scene->runtime, writers[1], &holds, "p", &inner));
    assert_int_equal(holds.count, 2);
    assert_int_equal(atomic_load(&ref->holders_count), 3);
    tdm__pins_release(&holds);
    for (int i = 0; i < 2; i++) {
        tdm_writer_destroy(writers[i]);
    }
    tdm_ref_release(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(the_same_reference_is_held_as_often_as_it_was_added),
        OBJECT_FIXTURE_TEST(empty_list_is_settled_at_once),
        OBJECT_FIXTURE_TEST(callback_runs_once_after_the_last_reply),
        OBJECT_FIXTURE_TEST(callbacks_run_in_registration_order),
        OBJECT_FIXTURE_TEST(references_of_an_ended_owner_are_settled),
        OBJECT_FIXTURE_TEST(all_callbacks_run_when_the_runtime_stops),
        OBJECT_FIXTURE_TEST(malformed_document_pins_nothing),
        OBJECT_FIXTURE_TEST(packed_references_are_pinned_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
