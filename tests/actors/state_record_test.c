/* state_record_test.c - state records are maps, and a list has a maximum number of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/state_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void rows_beyond_the_limit_are_counted(void **state)
{
    struct tdm__state_records records;
    const tdm_value *list;
    tdm_document *document;
    tdm_writer *writer;
    uint64_t left_out;

    (void)state;
    assert_int_equal(tdm__state_records_begin(&records, 2), TDM_OK);
    for (int64_t i = 0; i < 5; i++) {
        writer = tdm__state_records_next(&records);
        assert_int_equal(writer != NULL, i < 2);
        if (writer != NULL) {
            tdm_write_map(writer, 2);
            tdm__state_record_write_int(writer, "number", i);
            tdm__state_record_write_text(writer, "text", "t");
        }
    }
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm__state_records_end(&records, writer);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    assert_int_equal(tdm_unpack(tdm_document_root(document), "vu", &list, &left_out), TDM_OK);
    assert_int_equal(left_out, 3);
    assert_int_equal(tdm_value_count(list), 2);
    assert_int_equal(tdm__state_record_int(tdm_value_at(list, 1), "number"), 1);
    assert_string_equal(tdm__state_record_text(tdm_value_at(list, 1), "text"), "t");
    assert_string_equal(tdm__state_record_text(tdm_value_at(list, 1), "other"), "");
    assert_int_equal(tdm__state_record_int(tdm_value_at(list, 1), "text"), 0);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_beyond_the_limit_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
