/* call_record_test.c - a call record is read as it was written, and a foreign one harms nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/call_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Parses what `writer` contains. The caller destroys the document. */
static tdm_document *parse(const tdm_writer *writer)
{
    tdm_document *document = NULL;

    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    return document;
}

static void test_a_record_is_read_as_it_was_written(void **state)
{
    const struct tdm_call_state record = {.caller = "c1",
                                          .caller_name = "driver",
                                          .caller_pid = 12,
                                          .actor = "a1",
                                          .class_name = "counter",
                                          .actor_name = "",
                                          .method = "add",
                                          .state = "QUEUED",
                                          .age_ms = 34};
    struct tdm_call_state read;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm__call_record_write(writer, &record);
    document = parse(writer);
    tdm__call_record_read(tdm_document_root(document), &read);
    assert_string_equal(read.caller, "c1");
    assert_string_equal(read.caller_name, "driver");
    assert_int_equal(read.caller_pid, 12);
    assert_string_equal(read.actor, "a1");
    assert_string_equal(read.class_name, "counter");
    assert_string_equal(read.actor_name, "");
    assert_string_equal(read.method, "add");
    assert_string_equal(read.state, "QUEUED");
    assert_int_equal(read.age_ms, 34);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

static void test_missing_fields_are_empty(void **state)
{
    struct tdm_call_state read;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm_write_map(writer, 0);
    document = parse(writer);
    tdm__call_record_read(tdm_document_root(document), &read);
    assert_string_equal(read.method, "");
    assert_int_equal(read.age_ms, 0);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_record_is_read_as_it_was_written),
        cmocka_unit_test(test_missing_fields_are_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
