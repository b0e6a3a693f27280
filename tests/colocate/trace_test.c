/* trace_test.c - a trace is valid JSON when finished, and nearly so when cut short. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/trace.h"

#include "runtime/clock.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/tandem-trace-XXXXXX";

static struct tdm__trace *open_trace(void)
{
    struct tdm__trace *trace = NULL;

    assert_int_equal(tdm__trace_open(path, &trace), TDM_OK);
    return trace;
}

static void say_one_event(struct tdm__trace *trace, const char *name)
{
    const struct tdm__trace_argument arguments[] = {
        {"bytes", NULL, 65536}, {"checksum", "00ff", 0}, {"ratio", NULL, 0.5}, {"bad", NULL, NAN}};
    int64_t now_ns = tdm__clock_ns();

    tdm__trace_event(trace, &(struct tdm__trace_event){.name = name,
                                                       .category = "update",
                                                       .process = 1,
                                                       .thread = 2,
                                                       .begin_ns = now_ns,
                                                       .end_ns = now_ns + 1500,
                                                       .arguments = arguments,
                                                       .arguments_count = 4});
}

static void finished_trace_is_json_with_named_rows(void **state)
{
    const struct tdm__trace_argument bytes = {"trainer", NULL, 2097152};
    struct tdm__trace *trace = open_trace();
    const json_t *event;
    json_t *root;

    (void)state;
    tdm__trace_name_process(trace, 1, "GPU 0");
    tdm__trace_name_thread(trace, 1, 2, "engine 0 rank 0");
    say_one_event(trace, "bucket 3");
    tdm__trace_counter(trace, &(struct tdm__trace_event){.name = "resident",
                                                         .process = 1,
                                                         .begin_ns = tdm__clock_ns(),
                                                         .arguments = &bytes,
                                                         .arguments_count = 1});
    assert_int_equal(tdm__trace_close(trace), TDM_OK);
    root = json_load_file(path, 0, NULL);
    assert_int_equal(json_array_size(root), 4);
    event = json_array_get(root, 1);
    assert_string_equal(json_string_value(json_object_get(event, "name")), "thread_name");
    assert_string_equal(json_string_value(json_object_get(json_object_get(event, "args"), "name")),
                        "engine 0 rank 0");
    event = json_array_get(root, 2);
    assert_string_equal(json_string_value(json_object_get(event, "ph")), "X");
    assert_int_equal(json_integer_value(json_object_get(event, "tid")), 2);
    assert_true(json_real_value(json_object_get(event, "dur")) == 1.5);
    assert_true(json_real_value(json_object_get(event, "ts")) >= 0);
    event = json_object_get(event, "args");
    assert_int_equal(json_integer_value(json_object_get(event, "bytes")), 65536);
    assert_string_equal(json_string_value(json_object_get(event, "checksum")), "00ff");
    assert_true(json_is_null(json_object_get(event, "bad")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(root, 3), "ph")), "C");
    json_decref(root);
}

static void odd_names_do_not_spoil_the_file(void **state)
{
    struct tdm__trace *trace = open_trace();
    json_t *root;

    (void)state;
    say_one_event(trace, "a\"b\\c\n");
    say_one_event(trace, "\xff\xfe");
    assert_int_equal(tdm__trace_close(trace), TDM_OK);
    root = json_load_file(path, 0, NULL);
    assert_int_equal(json_array_size(root), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(root, 0), "name")),
                        "a\"b\\c\n");
    json_decref(root);
}

/* The bytes that are in the file before close end with a whole event, whenever one looks. */
static void truncated_trace_ends_with_a_complete_event(void **state)
{
    struct tdm__trace *trace = open_trace();
    size_t size_bytes;
    char *text = calloc(1, 1U << 20);
    json_t *root;
    FILE *stream;

    (void)state;
    assert_non_null(text);
    for (int i = 0; i < 2000; i++) {
        say_one_event(trace, "event");
    }
    stream = fopen(path, "r");
    assert_non_null(stream);
    size_bytes = fread(text, 1, (1U << 20) - 2, stream);
    (void)fclose(stream);
    assert_in_range(size_bytes, 100000, 1U << 20);
    text[size_bytes] = ']';
    root = json_loads(text, 0, NULL);
    assert_in_range(json_array_size(root), 1000, 2000);
    json_decref(root);
    free(text);
    assert_int_equal(tdm__trace_close(trace), TDM_OK);
}

static void full_disk_is_told_by_close(void **state)
{
    struct tdm__trace *trace = NULL;

    (void)state;
    assert_int_equal(tdm__trace_open("/nowhere/x", &trace), TDM_E_IO);
    assert_int_equal(tdm__trace_open("/dev/full", &trace), TDM_OK);
    say_one_event(trace, "lost");
    assert_int_equal(tdm__trace_close(trace), TDM_E_IO);
    assert_non_null(strstr(tdm_error_detail(), "No space left"));
    assert_int_equal(tdm__trace_close(NULL), TDM_OK);
}

static int make_file(void **state)
{
    (void)state;
    return close(mkstemp(path));
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finished_trace_is_json_with_named_rows),
        cmocka_unit_test(odd_names_do_not_spoil_the_file),
        cmocka_unit_test(truncated_trace_ends_with_a_complete_event),
        cmocka_unit_test(full_disk_is_told_by_close),
    };

    return cmocka_run_group_tests(tests, make_file, remove_file);
}
