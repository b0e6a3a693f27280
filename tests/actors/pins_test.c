/* pins_test.c - references inside of data are pinned, all or none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/pins.h"

#include "actors/objects/ref_table.h"
#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

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
        OBJECT_FIXTURE_TEST(malformed_document_pins_nothing),
        OBJECT_FIXTURE_TEST(packed_references_are_pinned_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
