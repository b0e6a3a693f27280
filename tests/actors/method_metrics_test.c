/* method_metrics_test.c - each call is counted in exactly one state. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/method_metrics.h"
#include "runtime/messages/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static const struct tdm_actor_class counter = {
    .name = "counter",
    .methods = {{"add", NULL, NULL}, {"get", NULL, NULL}, {"never", NULL, NULL}}};

static void expect_row(const tdm_value *records, uint32_t index, const char *method,
                       const uint64_t numbers[4])
{
    const tdm_value *record = tdm_value_at(records, index);

    assert_string_equal(tdm_value_string(tdm_value_at(record, 0), ""), method);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(tdm_value_uint(tdm_value_at(record, i + 1), 99), numbers[i]);
    }
}

static void call_is_in_one_place_at_a_time(void **state)
{
    const struct tdm_method_entry *add = &counter.methods[0];
    const struct tdm_method_entry *get = &counter.methods[1];
    struct tdm__actor_calls_message message;
    struct tdm__method_metrics method_metrics;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    tdm__method_metrics_init(&method_metrics, &counter);
    for (int i = 0; i < 5; i++) {
        tdm__method_metrics_arrived(&method_metrics, add, NULL);
    }
    for (int i = 0; i < 3; i++) {
        tdm__method_metrics_began(&method_metrics, add, NULL);
    }
    tdm__method_metrics_finished(&method_metrics, add, NULL, true, true);
    tdm__method_metrics_finished(&method_metrics, add, NULL, true, false);
    /* The call was canceled before it ran. */
    tdm__method_metrics_finished(&method_metrics, add, NULL, false, false);
    tdm__method_metrics_arrived(&method_metrics, get, NULL);

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm__method_metrics_write(&method_metrics, writer);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    assert_int_equal(tdm__actor_calls_decode(tdm_document_root(document), &message), TDM_OK);
    assert_int_equal(message.methods.count, 2);
    expect_row(message.methods.value, 0, "add", (const uint64_t[]){1, 1, 1, 2});
    expect_row(message.methods.value, 1, "get", (const uint64_t[]){1, 0, 0, 0});
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

/* The class of all Python actors has one method, which was listed as "*". */
static void calls_of_any_method_are_counted_by_their_names(void **state)
{
    static const struct tdm_actor_class any = {.name = "*", .methods = {{"*", NULL, NULL}}};
    const struct tdm_method_entry *method = &any.methods[0];
    struct tdm__actor_calls_message message;
    struct tdm__method_metrics method_metrics;
    tdm_document *document;
    tdm_writer *writer;
    char name[16];

    (void)state;
    tdm__method_metrics_init(&method_metrics, &any);
    tdm__method_metrics_arrived(&method_metrics, method, "step");
    tdm__method_metrics_arrived(&method_metrics, method, "reset");
    tdm__method_metrics_began(&method_metrics, method, "step");
    tdm__method_metrics_finished(&method_metrics, method, "step", true, true);
    for (int i = 2; i < TDM__METRICS_NAMES_MAX + 3; i++) { /* Three names too many. */
        (void)snprintf(name, sizeof(name), "m%d", i);
        tdm__method_metrics_arrived(&method_metrics, method, name);
        tdm__method_metrics_began(&method_metrics, method, name);
    }
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm__method_metrics_write(&method_metrics, writer);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    assert_int_equal(tdm__actor_calls_decode(tdm_document_root(document), &message), TDM_OK);
    assert_int_equal(message.methods.count, TDM__METRICS_NAMES_MAX + 1);
    expect_row(message.methods.value, 0, "*", (const uint64_t[]){0, 3, 0, 0});
    expect_row(message.methods.value, 1, "step", (const uint64_t[]){0, 0, 1, 0});
    expect_row(message.methods.value, 2, "reset", (const uint64_t[]){1, 0, 0, 0});
    expect_row(message.methods.value, 3, "m2", (const uint64_t[]){0, 1, 0, 0});
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_is_in_one_place_at_a_time),
        cmocka_unit_test(calls_of_any_method_are_counted_by_their_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
