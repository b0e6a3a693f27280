/* resume_log_test.c - two resume logs are equal if the same buckets brought the same bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/resume_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct tdm__tensor_record record = {
    .tensor = 3, .dtype = TDM_BF16, .shape = {4, 2}, .stride = {8, 1}, .checksum = 7};

static struct tdm__resume_log resume_log_of(const struct tdm__tensor_record *one, uint32_t bucket)
{
    const struct tdm__tensor_record records[] = {record, *one};
    struct tdm__resume_log resume_log = {.next = 0};

    tdm__resume_log_add_bucket(&resume_log, 0, &record, 1);
    tdm__resume_log_add_bucket(&resume_log, bucket, records, 2);
    return resume_log;
}

static void assert_other(const struct tdm__tensor_record *one, uint32_t bucket)
{
    struct tdm__resume_log usual = resume_log_of(&record, 2);
    struct tdm__resume_log other = resume_log_of(one, bucket);

    assert_false(tdm__resume_log_equal(&usual, &other));
}

static void the_same_buckets_are_the_same_resume_log(void **state)
{
    struct tdm__resume_log one = resume_log_of(&record, 2);
    struct tdm__tensor_record elsewhere = record;
    struct tdm__resume_log two;

    (void)state;
    elsewhere.offset = 64; /* The place in the sender's bucket does not matter. */
    elsewhere.storage = 1;
    two = resume_log_of(&elsewhere, 2);
    assert_int_equal(one.next, 3);
    assert_true(tdm__resume_log_equal(&one, &two));
}

static void resume_log_matches_only_if_all_fields_are_equal(void **state)
{
    struct tdm__tensor_record other = record;
    struct tdm__resume_log usual = resume_log_of(&record, 2);
    struct tdm__resume_log shorter = {.next = 0};

    (void)state;
    assert_other(&record, 3);
    other.tensor++;
    assert_other(&other, 2);
    other = record;
    other.checksum++;
    assert_other(&other, 2);
    other = record;
    other.image += 2;
    assert_other(&other, 2);
    other = record;
    other.shape[0]--;
    assert_other(&other, 2);
    other = record;
    other.stride[0]++;
    assert_other(&other, 2);
    tdm__resume_log_add_bucket(&shorter, 0, &record, 1);
    assert_false(tdm__resume_log_equal(&usual, &shorter));
}

static tdm_status take(struct tdm__resume_tracker *tracker, uint32_t bucket)
{
    bool begun;

    TDM_TRY(tdm__resume_tracker_open_bucket(tracker, bucket, &begun));
    tdm__resume_tracker_close_bucket(tracker, bucket, &record, 1);
    return TDM_OK;
}

static void bucket_under_way_leaves_nothing_to_tell(void **state)
{
    struct tdm__resume_tracker tracker = {.is_open = false};
    bool begun = false;

    (void)state;
    assert_int_equal(tdm__resume_tracker_open_bucket(&tracker, 1, &begun), TDM_OK);
    assert_true(begun);
    assert_int_equal(tdm__resume_tracker_snapshot(&tracker, false).next, 0);
    assert_int_equal(tdm__resume_tracker_open_bucket(&tracker, 2, &begun), TDM_E_STATE);
    assert_non_null(strstr(tdm_error_detail(), "did not arrive"));
    tdm__resume_tracker_close_bucket(&tracker, 1, &record, 1);
    assert_int_equal(tdm__resume_tracker_snapshot(&tracker, true).next, 2);
    assert_int_equal(tdm__resume_tracker_open_bucket(&tracker, 3, &begun), TDM_OK);
    assert_false(begun);
    assert_int_equal(tdm__resume_tracker_snapshot(&tracker, false).next, 0);
}

static void received_bucket_counts_unless_it_is_sent_again(void **state)
{
    struct tdm__resume_tracker tracker = {.is_open = false};
    struct tdm__resume_log here;

    (void)state;
    assert_int_equal(take(&tracker, 0), TDM_OK);
    assert_int_equal(take(&tracker, 2), TDM_OK);
    here = tdm__resume_tracker_snapshot(&tracker, true);
    tdm__resume_tracker_begin_update(&tracker);
    assert_int_equal(tdm__resume_tracker_snapshot(&tracker, true).next, 0);
    assert_true(tdm__resume_log_equal(&here, &tracker.resume_log));
    /* The update continues after the present buckets. */
    assert_int_equal(take(&tracker, 3), TDM_OK);
    assert_int_equal(take(&tracker, 2), TDM_E_STATE);
    tdm__resume_tracker_begin_update(&tracker);
    assert_int_equal(take(&tracker, 0), TDM_OK); /* The update starts with the first bucket. */
    assert_int_equal(tdm__resume_tracker_snapshot(&tracker, true).next, 1);
    assert_int_equal(take(&tracker, 2), TDM_OK);
    assert_true(tdm__resume_log_equal(&here, &tracker.resume_log));
}

static tdm_status read_words(uint32_t count, uint64_t next, struct tdm__resume_log *resume_log)
{
    tdm_document *document;
    tdm_writer *writer;
    tdm_status status;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm_write_array(writer, count);
    tdm_write_uint(writer, next);
    for (uint32_t i = 1; i < count; i++) {
        tdm_write_uint(writer, i);
    }
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    status = tdm__resume_log_read(tdm_document_root(document), resume_log);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    return status;
}

static void written_resume_log_is_read_and_invalid_ones_are_refused(void **state)
{
    struct tdm__resume_log here = resume_log_of(&record, 2);
    struct tdm__resume_log read;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm__resume_log_write(&here, writer);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    assert_int_equal(tdm__resume_log_read(tdm_document_root(document), &read), TDM_OK);
    assert_true(tdm__resume_log_equal(&here, &read));
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    assert_int_equal(tdm__resume_log_read(NULL, &read), TDM_OK);
    assert_int_equal(read.next, 0);
    assert_int_equal(read_words(3, UINT32_MAX, &read), TDM_OK);
    assert_int_equal(read_words(3, UINT64_C(1) << 32, &read), TDM_E_PROTOCOL);
    assert_int_equal(read_words(2, 1, &read), TDM_E_PROTOCOL);
    assert_int_equal(read_words(4, 1, &read), TDM_E_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_buckets_are_the_same_resume_log),
        cmocka_unit_test(resume_log_matches_only_if_all_fields_are_equal),
        cmocka_unit_test(bucket_under_way_leaves_nothing_to_tell),
        cmocka_unit_test(received_bucket_counts_unless_it_is_sent_again),
        cmocka_unit_test(written_resume_log_is_read_and_invalid_ones_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
