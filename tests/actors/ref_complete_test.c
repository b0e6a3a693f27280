/* ref_complete_test.c - a completed reference has its value, or says why it has none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/ref_complete.h"

#include "actors/objects/ref_table.h"
#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static void test_the_value_pins_the_references_inside_of_it(void **state)
{
    struct object_fixture *scene = *state;
    tdm_document *document;
    tdm_writer *writer;
    tdm_ref *inner;
    tdm_ref *outer;

    TRY(tdm_put(scene->runtime, &inner, "i", (int64_t)7));
    TRY(tdm__ref_create(scene->runtime, &outer));
    TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 1);
    TRY(tdm__reference_write(writer, inner));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    tdm__ref_complete(outer, TDM_OK, NULL, document);
    assert_true(outer->done);
    assert_int_equal(outer->status, TDM_OK);
    assert_int_equal(outer->nested.count, 1);
    assert_ptr_equal(outer->nested.refs[0], inner);
    assert_int_equal(atomic_load(&inner->holders_count), 2);
    tdm_ref_release(outer);
    assert_int_equal(atomic_load(&inner->holders_count), 1);
    tdm_writer_destroy(writer);
    tdm_ref_release(inner);
}

static void test_a_value_whose_references_cannot_be_opened_is_a_failure(void **state)
{
    static const char packed[] = {'\x91', '\xc7', '\x01', TDM__EXT_REFERENCE, '\x07'};
    struct object_fixture *scene = *state;
    tdm_document *document;
    tdm_ref *ref;

    TRY(tdm__ref_create(scene->runtime, &ref));
    TRY(tdm_document_parse((struct tdm_bytes){packed, sizeof(packed)}, &document));
    tdm__ref_complete(ref, TDM_OK, NULL, document);
    assert_int_equal(ref->status, TDM_E_PROTOCOL);
    assert_non_null(ref->detail);
    assert_null(ref->document);
    tdm_ref_release(ref);
}

static void test_a_failure_keeps_its_text(void **state)
{
    struct object_fixture *scene = *state;
    int64_t number;
    tdm_ref *ref;

    TRY(tdm__ref_create(scene->runtime, &ref));
    tdm__ref_complete(ref, TDM_E_METHOD, "out of paper", NULL);
    assert_int_equal(tdm_get(ref, 0, "i", &number), TDM_E_METHOD);
    assert_non_null(strstr(tdm_error_detail(), "out of paper"));
    tdm_ref_release(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(test_the_value_pins_the_references_inside_of_it),
        OBJECT_FIXTURE_TEST(test_a_value_whose_references_cannot_be_opened_is_a_failure),
        OBJECT_FIXTURE_TEST(test_a_failure_keeps_its_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
