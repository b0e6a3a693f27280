/* tally_test.c - each call is counted in one place at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/tally.h"
#include "runtime/messages/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct tdm_actor_class counter = {
    .name = "counter",
    .methods = {{"add", NULL, NULL}, {"get", NULL, NULL}, {"never", NULL, NULL}}};

static void expect_row(const tdm_value *rows, uint32_t index, const char *method,
                       const uint64_t numbers[4])
{
    const tdm_value *row = tdm_value_at(rows, index);

    assert_string_equal(tdm_value_string(tdm_value_at(row, 0), ""), method);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(tdm_value_uint(tdm_value_at(row, i + 1), 99), numbers[i]);
    }
}

static void a_call_is_in_one_place_at_a_time(void **state)
{
    const struct tdm_method_entry *add = &counter.methods[0];
    const struct tdm_method_entry *get = &counter.methods[1];
    struct tdm__actor_calls_message message;
    struct tdm__tally tally;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    tdm__tally_init(&tally, &counter);
    for (int i = 0; i < 5; i++) {
        tdm__tally_arrived(&tally, add);
    }
    for (int i = 0; i < 3; i++) {
        tdm__tally_began(&tally, add);
    }
    tdm__tally_answered(&tally, add, true, true);
    tdm__tally_answered(&tally, add, true, false);
    tdm__tally_answered(&tally, add, false, false); /* canceled in line */
    tdm__tally_arrived(&tally, get);

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm__tally_write(&tally, writer);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    assert_int_equal(tdm__actor_calls_decode(tdm_document_root(document), &message), TDM_OK);
    assert_int_equal(message.methods.count, 2);
    expect_row(message.methods.value, 0, "add", (const uint64_t[]){1, 1, 1, 2});
    expect_row(message.methods.value, 1, "get", (const uint64_t[]){1, 0, 0, 0});
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_call_is_in_one_place_at_a_time)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
