/* ref_table_test.c - packed references name their owner, and open as the reference they were. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/ref_table.h"

#include "actors/objects/shared_ref.h"
#include "runtime/messages/messages.h"
#include "tests/support/borrowed_ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* A value that contains one packed reference. */
struct packed {
    tdm_writer *writer;
    tdm_document *document;
    struct tdm_bytes bytes; /* The packed reference, borrowed from the document. */
};

static void pack(tdm_ref *ref, struct packed *packed)
{
    TRY(tdm_writer_create(&packed->writer));
    TRY(tdm__reference_write(packed->writer, ref));
    TRY(tdm_document_parse(tdm_writer_bytes(packed->writer), &packed->document));
    assert_int_equal(tdm_value_kind_of(tdm_document_root(packed->document)), TDM_REFERENCE);
    packed->bytes = tdm__value_ext(tdm_document_root(packed->document));
}

static void packed_free(struct packed *packed)
{
    tdm_document_destroy(packed->document);
    tdm_writer_destroy(packed->writer);
}

static tdm_ref *put(struct object_fixture *scene)
{
    tdm_ref *ref;

    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)7));
    return ref;
}

/* ---- the id ----------------------------------------------------------------------------- */

static void reference_keeps_the_id_that_it_gets_first(void **state)
{
    struct object_fixture *scene = *state;
    tdm_ref *refs[2] = {put(scene), put(scene)};
    struct tdm__id first;
    struct tdm__id again;
    struct tdm__id other;

    assert_null(refs[0]->shared);
    TRY(tdm__reference_id(refs[0], &first));
    TRY(tdm__reference_id(refs[0], &again));
    TRY(tdm__reference_id(refs[1], &other));
    assert_true(tdm__id_equal(&first, &again));
    assert_false(tdm__id_equal(&first, &other));
    assert_ptr_equal(tdm__shared_ref_find(scene->objects, &first)->ref, refs[0]);
    assert_false(scene->objects->listening); /* An id alone lets no other process in. */
    assert_int_equal(object_fixture_count(scene).owned, 2);
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
    assert_null(tdm__shared_ref_find(scene->objects, &first));
}

/* ---- packing ---------------------------------------------------------------------------- */

static void packed_reference_names_this_process_as_the_owner(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__packed_reference_message message;
    tdm_document *document;
    struct packed packed;
    struct tdm__id id;
    tdm_ref *ref = put(scene);

    pack(ref, &packed);
    TRY(tdm__reference_id(ref, &id));
    assert_true(scene->objects->listening);
    TRY(tdm_document_parse(packed.bytes, &document));
    TRY(tdm__packed_reference_decode(tdm_document_root(document), &message));
    assert_true(tdm__id_equal(&message.object, &id));
    assert_int_equal(message.owner_kind, scene->runtime->self.kind);
    assert_true(tdm__id_equal(&message.owner_process, &scene->runtime->self.id));
    assert_true(tdm__id_equal(&message.owner_node, &scene->runtime->self.node));
    assert_string_equal(message.unix_address, scene->objects->address.unix_address);
    assert_non_null(strstr(message.unix_address, scene->directory));
    assert_string_equal(message.tcp_address, "");
    assert_string_equal(message.label, "this");
    tdm_document_destroy(document);
    packed_free(&packed);
    tdm_ref_release(ref);
}

/* The reader asks the owner and not the process that passed the reference on, which may end. */
static void borrowed_reference_is_passed_on_with_its_owner(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__packed_reference_message message;
    struct borrowed_ref borrowed;
    tdm_document *document;
    struct packed packed;
    struct tdm__id id;

    borrowed_ref_open_of(&borrowed, scene, TDM__PEER_DRIVER);
    borrowed_ref_acknowledge(&borrowed);
    pack(borrowed.ref, &packed);
    TRY(tdm__reference_id(borrowed.ref, &id));
    assert_true(tdm__id_equal(&id, &borrowed.id));
    TRY(tdm_document_parse(packed.bytes, &document));
    TRY(tdm__packed_reference_decode(tdm_document_root(document), &message));
    assert_true(tdm__id_equal(&message.object, &borrowed.id));
    assert_int_equal(message.owner_kind, TDM__PEER_DRIVER);
    assert_true(tdm__id_equal(&message.owner_process, &borrowed.owner.self.id));
    assert_true(tdm__id_equal(&message.owner_node, &borrowed.owner.self.node));
    assert_string_equal(message.unix_address, borrowed.ref->shared->owner->address.unix_address);
    assert_string_equal(message.label, "actor maker");
    assert_false(scene->objects->listening); /* Readers ask the owner. */
    tdm_document_destroy(document);
    packed_free(&packed);
    borrowed_ref_close(&borrowed);
}

/* ---- opening ---------------------------------------------------------------------------- */

static void own_reference_opens_as_itself_with_one_more_holder(void **state)
{
    struct object_fixture *scene = *state;
    struct packed packed;
    tdm_ref *opened = NULL;
    tdm_ref *ref = put(scene);

    pack(ref, &packed);
    TRY(tdm__reference_open(scene->runtime, packed.bytes, &opened));
    assert_ptr_equal(opened, ref);
    assert_int_equal(atomic_load(&ref->holders_count), 2);
    assert_int_equal(object_fixture_count(scene).owned, 1);
    assert_int_equal(object_fixture_count(scene).borrowed, 0);
    tdm_ref_release(opened);
    packed_free(&packed);
    tdm_ref_release(ref);
}

static void own_reference_that_was_released_opens_as_lost(void **state)
{
    struct object_fixture *scene = *state;
    struct packed packed;
    tdm_ref *opened = NULL;
    tdm_ref *ref = put(scene);

    pack(ref, &packed);
    tdm_ref_release(ref);
    TRY(tdm__reference_open(scene->runtime, packed.bytes, &opened));
    assert_int_equal(tdm_get(opened, 0, ""), TDM_E_VALUE_LOST);
    assert_non_null(strstr(tdm_error_detail(), "was released before"));
    assert_int_equal(object_fixture_count(scene).borrowed, 0); /* It does not ask itself. */
    tdm_ref_release(opened);
    packed_free(&packed);
}

/* ---- packed references from outside ------------------------------------------------------ */

/* Packs `message` and opens it. The test fails if a refused reference leaves anything behind. */
static tdm_status open_message(struct object_fixture *scene,
                               const struct tdm__packed_reference_message *message)
{
    tdm_ref *opened = NULL;
    tdm_writer *writer;
    tdm_status status;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__packed_reference_encode(message, writer));
    status = tdm__reference_open(scene->runtime, tdm_writer_bytes(writer), &opened);
    tdm_writer_destroy(writer);
    assert_true((opened != NULL) == (status == TDM_OK));
    if (status != TDM_OK) {
        assert_null(tdm__shared_ref_find(scene->objects, &message->object));
        assert_true(TAILQ_EMPTY(&scene->objects->owners));
        return status;
    }
    tdm_ref_release(opened);
    object_fixture_settle(scene);
    return TDM_OK;
}

/* Returns a reference to an object of a process that has ended. */
static struct tdm__packed_reference_message
reference_of_an_ended_process(struct object_fixture *scene)
{
    struct tdm__packed_reference_message message = {.owner_kind = TDM__PEER_WORKER,
                                                    .owner_node = scene->runtime->self.node,
                                                    .unix_address =
                                                        "unix:/no/such/directory/socket",
                                                    .tcp_address = "",
                                                    .label = "ended"};

    TRY(tdm__id_generate(&message.object));
    TRY(tdm__id_generate(&message.owner_process));
    return message;
}

static void owner_must_be_a_driver_or_a_worker(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__packed_reference_message message = reference_of_an_ended_process(scene);
    static const int32_t wrong[] = {0, TDM__PEER_DAEMON, 99, -1};

    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char kind[32];

        message.owner_kind = wrong[i];
        assert_int_equal(open_message(scene, &message), TDM_E_PROTOCOL);
        (void)snprintf(kind, sizeof(kind), "of kind %d", (int)wrong[i]);
        assert_non_null(strstr(tdm_error_detail(), kind));
    }
    message.owner_kind = TDM__PEER_DRIVER;
    TRY(open_message(scene, &message));
    message.owner_kind = TDM__PEER_WORKER;
    TRY(open_message(scene, &message));
}

/* Sets the text number `index` of the message. */
static void set_text(struct tdm__packed_reference_message *message, int index, const char *text)
{
    const char **const texts[] = {&message->unix_address, &message->tcp_address, &message->label};

    *texts[index] = text;
}

static void text_is_accepted_up_to_its_size(void **state)
{
    static const size_t sizes[] = {
        sizeof(((struct ref_owner_address *)NULL)->unix_address),
        sizeof(((struct ref_owner_address *)NULL)->tcp_address),
        sizeof(((struct ref_owner_address *)NULL)->label),
    };
    struct object_fixture *scene = *state;

    for (int i = 0; i < 3; i++) {
        struct tdm__packed_reference_message message = reference_of_an_ended_process(scene);
        char text[1024] = "";

        assert_true(sizes[i] < sizeof(text));
        memset(text, 'a', sizes[i]);
        set_text(&message, i, text);
        assert_int_equal(open_message(scene, &message), TDM_E_PROTOCOL);
        assert_non_null(strstr(tdm_error_detail(), "a reference: a text"));
        text[sizes[i] - 1] = '\0';
        TRY(open_message(scene, &message)); /* That nothing listens there is reported later. */
    }
}

static void malformed_reference_is_refused(void **state)
{
    static const struct tdm_bytes wrong[] = {
        {"", 0},                   /* Nothing. */
        {"\x07", 1},               /* A number. */
        {"\x90", 1},               /* No fields. */
        {"\x97\x01", 2},           /* Fewer values than the array says. */
        {"\x97\1\1\1\1\1\1\1", 8}, /* Fields of wrong types. */
    };
    struct object_fixture *scene = *state;

    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        tdm_ref *opened = NULL;

        assert_int_equal(tdm__reference_open(scene->runtime, wrong[i], &opened), TDM_E_PROTOCOL);
        assert_int_equal(strncmp(tdm_error_detail(), "a reference: ", 13), 0);
        assert_null(opened);
        assert_true(TAILQ_EMPTY(&scene->objects->owners));
    }
}

/* ---- a forked process ------------------------------------------------------------------- */

/* A reference that a child process packed would name its parent's socket. */
static void forked_child_packs_and_opens_nothing(void **state)
{
    struct object_fixture *scene = *state;
    struct packed packed;
    tdm_ref *refs[2] = {put(scene), put(scene)};
    tdm_ref *opened = NULL;
    struct tdm__id id;

    pack(refs[0], &packed);
    scene->runtime->is_forked_child = true;
    assert_int_equal(tdm__reference_id(refs[1], &id), TDM_E_STATE);
    assert_int_equal(tdm__reference_write(packed.writer, refs[0]), TDM_E_STATE);
    assert_int_equal(tdm__reference_write(packed.writer, refs[1]), TDM_E_STATE);
    assert_int_equal(tdm__reference_open(scene->runtime, packed.bytes, &opened), TDM_E_STATE);
    scene->runtime->is_forked_child = false;
    assert_null(opened);
    assert_null(refs[1]->shared);
    packed_free(&packed);
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(reference_keeps_the_id_that_it_gets_first),
        OBJECT_FIXTURE_TEST(packed_reference_names_this_process_as_the_owner),
        OBJECT_FIXTURE_TEST(borrowed_reference_is_passed_on_with_its_owner),
        OBJECT_FIXTURE_TEST(own_reference_opens_as_itself_with_one_more_holder),
        OBJECT_FIXTURE_TEST(own_reference_that_was_released_opens_as_lost),
        OBJECT_FIXTURE_TEST(owner_must_be_a_driver_or_a_worker),
        OBJECT_FIXTURE_TEST(text_is_accepted_up_to_its_size),
        OBJECT_FIXTURE_TEST(malformed_reference_is_refused),
        OBJECT_FIXTURE_TEST(forked_child_packs_and_opens_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
