/* spans_test.c - what a rank did comes out as it went in, once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/spans.h"

#include "runtime/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static struct tdm__spans spans;

static int set_up(void **state)
{
    (void)state;
    spans.count = 0;
    return 0;
}

static tdm_document *written(void)
{
    tdm_document *document;
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    tdm__spans_write(&spans, writer);
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    tdm_writer_destroy(writer);
    return document;
}

static void spans_come_out_in_order_and_once(void **state)
{
    int64_t begin_ns = tdm__clock_ns();
    struct tdm__span span;
    tdm_document *document;

    (void)state;
    tdm__spans_add(&spans, "pause weights", begin_ns, UINT64_MAX, 0);
    tdm__spans_add(&spans, "a name of more than thirty-one bytes", begin_ns, 0, 0xfeedU);
    tdm__spans_add_transfer(
        &spans, &(struct tdm__span){
                    .name = "pause kv", .begin_ns = 5, .bytes = 7, .from = "device", .to = "host"});
    document = written();
    assert_true(tdm__span_read(tdm_document_root(document), 0, &span));
    assert_string_equal(span.name, "pause weights");
    assert_string_equal(span.from, "device");
    assert_string_equal(span.to, "nowhere");
    assert_true(span.begin_ns == begin_ns && span.end_ns >= begin_ns);
    assert_true(span.bytes == UINT64_MAX && span.checksum == 0);
    assert_true(tdm__span_read(tdm_document_root(document), 1, &span));
    assert_string_equal(span.name, "a name of more than thirty-one ");
    assert_true(span.bytes == 0 && span.checksum == 0xfeedU);
    assert_string_equal(span.from, "");
    assert_true(tdm__span_read(tdm_document_root(document), 2, &span));
    assert_string_equal(span.name, "pause kv");
    assert_true(span.bytes == 7 && span.begin_ns == 5 && span.end_ns > 5);
    assert_string_equal(span.from, "device");
    assert_string_equal(span.to, "host");
    assert_false(tdm__span_read(tdm_document_root(document), 3, &span));
    tdm_document_destroy(document);
    document = written();
    assert_int_equal(tdm_value_count(tdm_document_root(document)), 0);
    tdm_document_destroy(document);
}

static void unfetched_spans_are_dropped_from_the_end(void **state)
{
    struct tdm__span span;
    tdm_document *document;

    (void)state;
    for (uint64_t i = 0; i < TDM__SPANS_MAX + 10; i++) {
        tdm__spans_add(&spans, "step", 0, i, 0);
    }
    document = written();
    assert_int_equal(tdm_value_count(tdm_document_root(document)), TDM__SPANS_MAX);
    assert_true(tdm__span_read(tdm_document_root(document), TDM__SPANS_MAX - 1, &span));
    assert_true(span.bytes == TDM__SPANS_MAX - 1);
    tdm_document_destroy(document);
}

static void malformed_spans_are_none(void **state)
{
    tdm_document *document;
    struct tdm__span span;
    tdm_writer *writer;

    (void)state;
    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "()(siiu)(siiuuu)(niiuu)u", "short", (int64_t)1, (int64_t)2, (uint64_t)3,
                 "long", (int64_t)1, (int64_t)2, (uint64_t)3, (uint64_t)4, (uint64_t)5, (int64_t)1,
                 (int64_t)2, (uint64_t)3, (uint64_t)4, (uint64_t)7));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    for (uint32_t i = 0; i < 6; i++) {
        assert_false(tdm__span_read(tdm_document_root(document), i, &span));
    }
    assert_false(tdm__span_read(NULL, 0, &span));
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(spans_come_out_in_order_and_once, set_up),
        cmocka_unit_test_setup(unfetched_spans_are_dropped_from_the_end, set_up),
        cmocka_unit_test(malformed_spans_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
