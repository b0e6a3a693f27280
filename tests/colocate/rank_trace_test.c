/* rank_trace_test.c - the spans of a rank are in the trace, with the memory that the rank has. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rank_trace.h"

#include "colocate/job/spans.h"
#include "runtime/clock.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* A trace into a file, and the spans that are to be written to it. */
struct traced {
    char path[32];
    struct tdm__trace *trace;
    struct tdm__spans spans;
    uint64_t resident_bytes;
    json_t *events; /* The events of the finished trace; NULL before. */
};

static int set_up(void **state)
{
    struct traced *traced = calloc(1, sizeof(*traced));

    assert_non_null(traced);
    (void)snprintf(traced->path, sizeof(traced->path), "/tmp/tandem-trace-XXXXXX");
    assert_int_equal(close(mkstemp(traced->path)), 0);
    TRY(tdm__trace_open(traced->path, &traced->trace));
    *state = traced;
    return 0;
}

static int tear_down(void **state)
{
    struct traced *traced = *state;

    (void)tdm__trace_close(traced->trace);
    json_decref(traced->events);
    (void)unlink(traced->path);
    free(traced);
    return 0;
}

/* Adds a span that moved or freed bytes. */
static void add(struct traced *traced, const char *name, uint64_t bytes)
{
    tdm__spans_add(&traced->spans, name, tdm__clock_ns(), bytes, 0);
}

/* Writes the spans as those of this rank, and removes them. */
static void write_rank(struct traced *traced, enum tdm__trace_process process, uint32_t rank)
{
    tdm_document *document;
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    tdm__spans_write(&traced->spans, writer);
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    tdm__rank_trace_write(traced->trace, process, rank, tdm_document_root(document),
                          &traced->resident_bytes);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

/* Closes the trace, which must have this many events, and reads them. */
static void finish(struct traced *traced, size_t events_count)
{
    TRY(tdm__trace_close(traced->trace));
    traced->trace = NULL;
    traced->events = json_load_file(traced->path, 0, NULL);
    assert_int_equal(json_array_size(traced->events), events_count);
}

static const json_t *event_at(const struct traced *traced, size_t index)
{
    return json_array_get(traced->events, index);
}

static const char *text_of(const json_t *event, const char *key)
{
    return json_string_value(json_object_get(event, key));
}

static const json_t *argument_of(const json_t *event, const char *key)
{
    return json_object_get(json_object_get(event, "args"), key);
}

/* Checks that event `index` is a sample of a counter. */
static void expect_sample(const struct traced *traced, size_t index, const char *name,
                          json_int_t bytes)
{
    const json_t *event = event_at(traced, index);

    assert_string_equal(text_of(event, "ph"), "C");
    assert_string_equal(text_of(event, "name"), name);
    assert_int_equal(json_integer_value(argument_of(event, "bytes")), bytes);
}

static void span_is_an_event_in_the_row_of_its_rank(void **state)
{
    struct traced *traced = *state;
    const json_t *event;

    tdm__spans_add_transfer(&traced->spans, &(struct tdm__span){.name = "bucket 3",
                                                                .begin_ns = tdm__clock_ns(),
                                                                .bytes = 4096,
                                                                .checksum = 0xbeef,
                                                                .from = "host",
                                                                .to = "rank 2"});
    write_rank(traced, TDM__TRACE_ENGINES, 5);
    finish(traced, 1);
    event = event_at(traced, 0);
    assert_string_equal(text_of(event, "ph"), "X");
    assert_string_equal(text_of(event, "name"), "bucket 3");
    assert_string_equal(text_of(event, "cat"), "engine");
    assert_int_equal(json_integer_value(json_object_get(event, "pid")), TDM__TRACE_ENGINES);
    assert_int_equal(json_integer_value(json_object_get(event, "tid")), 5);
    assert_true(json_number_value(json_object_get(event, "dur")) >= 0);
    assert_int_equal(json_integer_value(argument_of(event, "bytes")), 4096);
    assert_string_equal(json_string_value(argument_of(event, "checksum")), "000000000000beef");
    assert_string_equal(json_string_value(argument_of(event, "from")), "host");
    assert_string_equal(json_string_value(argument_of(event, "to")), "rank 2");
    assert_int_equal(traced->resident_bytes, 0);
}

static void span_without_checksum_and_ends_has_its_bytes_only(void **state)
{
    struct traced *traced = *state;

    add(traced, "train step", 7);
    write_rank(traced, TDM__TRACE_TRAINERS, 0);
    finish(traced, 1);
    assert_string_equal(text_of(event_at(traced, 0), "cat"), "trainer");
    assert_int_equal(json_object_size(json_object_get(event_at(traced, 0), "args")), 1);
    assert_int_equal(json_integer_value(argument_of(event_at(traced, 0), "bytes")), 7);
}

static void memory_of_a_rank_follows_what_it_resumes_and_pauses(void **state)
{
    struct traced *traced = *state;

    add(traced, "resume weights", 1000);
    add(traced, "resume kv", 500);
    add(traced, "copy weights", 9999);
    write_rank(traced, TDM__TRACE_ENGINES, 3);
    add(traced, "pause weights", 1000); /* The count goes on with the next spans. */
    write_rank(traced, TDM__TRACE_ENGINES, 3);
    assert_int_equal(traced->resident_bytes, 500);
    finish(traced, 7);
    assert_string_equal(text_of(event_at(traced, 0), "ph"), "X");
    expect_sample(traced, 1, "GPU 3 engine", 1000);
    expect_sample(traced, 3, "GPU 3 engine", 1500);
    assert_string_equal(text_of(event_at(traced, 4), "name"), "copy weights");
    assert_string_equal(text_of(event_at(traced, 5), "name"), "pause weights");
    expect_sample(traced, 6, "GPU 3 engine", 500);
}

/* Spans that were dropped because a rank kept too many may be those that resumed the memory. */
static void memory_is_never_less_than_nothing(void **state)
{
    struct traced *traced = *state;

    add(traced, "resume weights", 1000);
    add(traced, "pause weights", 1001);
    write_rank(traced, TDM__TRACE_TRAINERS, 1);
    finish(traced, 4);
    expect_sample(traced, 3, "GPU 1 trainer", 0);
    assert_int_equal(traced->resident_bytes, 0);
}

static void sample_has_the_time_at_which_the_memory_was_there(void **state)
{
    struct traced *traced = *state;
    const int64_t begin_ns = tdm__clock_ns() - 3000000000;
    double begin;

    tdm__spans_add(&traced->spans, "resume weights", begin_ns, 1, 0);
    write_rank(traced, TDM__TRACE_TRAINERS, 0);
    finish(traced, 2);
    begin = json_number_value(json_object_get(event_at(traced, 0), "ts"));
    assert_true(json_number_value(json_object_get(event_at(traced, 1), "ts")) >= begin + 3e6);
}

static void spans_end_at_the_first_malformed_one(void **state)
{
    struct traced *traced = *state;
    tdm_document *document;
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "(siiuuss)(si)(siiuuss)", "first", (int64_t)1, (int64_t)2, (uint64_t)0,
                 (uint64_t)0, "", "", "short", (int64_t)1, "third", (int64_t)1, (int64_t)2,
                 (uint64_t)0, (uint64_t)0, "", ""));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    tdm__rank_trace_write(traced->trace, TDM__TRACE_TRAINERS, 0, tdm_document_root(document),
                          &traced->resident_bytes);
    tdm__rank_trace_write(traced->trace, TDM__TRACE_TRAINERS, 0, NULL, &traced->resident_bytes);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    finish(traced, 1);
    assert_string_equal(text_of(event_at(traced, 0), "name"), "first");
}

#define TRACE_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRACE_TEST(span_is_an_event_in_the_row_of_its_rank),
        TRACE_TEST(span_without_checksum_and_ends_has_its_bytes_only),
        TRACE_TEST(memory_of_a_rank_follows_what_it_resumes_and_pauses),
        TRACE_TEST(memory_is_never_less_than_nothing),
        TRACE_TEST(sample_has_the_time_at_which_the_memory_was_there),
        TRACE_TEST(spans_end_at_the_first_malformed_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
