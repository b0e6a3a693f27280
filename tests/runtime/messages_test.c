/* messages_test.c - the tables of all messages are consistent. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/messages/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_names_of_messages_are_unique(void **state)
{
    const struct tdm__message *left;
    const struct tdm__message *right;

    (void)state;
    for (uint32_t i = 0; (left = tdm__messages_at(i)) != NULL; i++) {
        for (uint32_t k = 0; k < i && (right = tdm__messages_at(k)) != NULL; k++) {
            assert_string_not_equal(left->name, right->name);
        }
    }
    assert_non_null(tdm__messages_at(0));
}

static void test_names_of_fields_are_unique_and_offsets_grow(void **state)
{
    const struct tdm__message *message;

    (void)state;
    for (uint32_t i = 0; (message = tdm__messages_at(i)) != NULL; i++) {
        assert_true(message->fields_count > 0);
        for (uint32_t k = 1; k < message->fields_count; k++) {
            const struct tdm__field *field = &message->fields[k];

            assert_true(field->offset > field[-1].offset);
            assert_true(field->offset < message->size_bytes);
            for (uint32_t n = 0; n < k; n++) {
                assert_string_not_equal(field->name, message->fields[n].name);
            }
        }
    }
}

static bool is_declared_before(const struct tdm__message *wanted, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (tdm__messages_at(i) == wanted) {
            return true;
        }
    }
    return false;
}

/* Nesting therefore ends, and the hash over the list covers every nested message. */
static void test_nested_messages_are_listed_before_their_users(void **state)
{
    const struct tdm__message *message;

    (void)state;
    for (uint32_t i = 0; (message = tdm__messages_at(i)) != NULL; i++) {
        for (uint32_t k = 0; k < message->fields_count; k++) {
            const struct tdm__field *field = &message->fields[k];

            assert_true(field->nested == NULL || is_declared_before(field->nested(), i));
        }
    }
}

/* A creator tells the two replies of actor.create apart by the number of their fields. */
static void test_replies_of_actor_create_differ_in_length(void **state)
{
    (void)state;
    assert_int_not_equal(tdm__actor_found_table()->fields_count,
                         tdm__actor_description_table()->fields_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_messages_are_unique),
        cmocka_unit_test(test_names_of_fields_are_unique_and_offsets_grow),
        cmocka_unit_test(test_replies_of_actor_create_differ_in_length),
        cmocka_unit_test(test_nested_messages_are_listed_before_their_users),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
