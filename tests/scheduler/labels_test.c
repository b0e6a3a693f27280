/* labels_test.c - labels of nodes, constraints of actors, and malformed messages. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/labels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void constraint_is_satisfied_or_not(void **state)
{
    static const struct {
        const char *wish;
        bool holds;
    } cases[] = {
        {"zone=a", true},         {"zone=b", false},         {"zone!=a", false},
        {"zone!=b", true},        {"disk=ssd", false},       {"disk!=ssd", true},
        {"zon=a", false},         {"note=a!=b", true},       {"zone=in(b,a)", true},
        {"zone=in(a)", true},     {"zone=in(b,ab)", false},  {"zone!=in(b,a)", false},
        {"zone!=in(b,c)", true},  {"disk=in(ssd)", false},   {"disk!=in(ssd)", true},
        {"zone=exists()", true},  {"zone!=exists()", false}, {"disk=exists()", false},
        {"disk!=exists()", true}, {"zone=exists", false},
    };
    struct tdm__labels own = {0};

    (void)state;
    assert_int_equal(tdm__labels_add(&own, "zone=a"), TDM_OK);
    assert_int_equal(tdm__labels_add(&own, "note=a!=b"), TDM_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tdm__labels wishes = {0};

        assert_int_equal(tdm__labels_add_constraint(&wishes, cases[i].wish), TDM_OK);
        assert_int_equal(tdm__labels_match(&own, &wishes), cases[i].holds);
    }
}

static void mistakes_are_named(void **state)
{
    static const char *const wrong[] = {
        "",          "zone",        "=a",          "!=a",       "zone!a",      "zone=in(",
        "zone=in()", "zone=in(a,)", "zone=in(,a)", "zone=in(a", "zone!=in(a)b"};
    struct tdm__labels labels = {0};
    char text[TDM__LABEL_BYTES + 1] = "n=";

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(tdm__labels_add_constraint(&labels, wrong[i]), TDM_E_INVAL);
        assert_int_equal(tdm__labels_add(&labels, wrong[i]), TDM_E_INVAL);
    }
    assert_int_equal(tdm__labels_add(&labels, "zone!=a"), TDM_E_INVAL);
    assert_int_equal(tdm__labels_add(&labels, "zone=in(a)"), TDM_E_INVAL);
    assert_int_equal(tdm__labels_add(&labels, "zone=exists()"), TDM_E_INVAL);
    memset(text + 2, 'v', sizeof(text) - 3);
    assert_int_equal(tdm__labels_add(&labels, text), TDM_E_INVAL);
    assert_int_equal(tdm__labels_add(&labels, "zone=a"), TDM_OK);
    assert_int_equal(tdm__labels_add(&labels, "zone=b"), TDM_E_INVAL);
    while (labels.count < TDM_LABELS_MAX) {
        assert_int_equal(tdm__labels_add_constraint(&labels, "more=1"), TDM_OK);
    }
    assert_int_equal(tdm__labels_add_constraint(&labels, "more=1"), TDM_E_LIMIT);
}

static const struct tdm__field list_fields[] = {
    {"labels", TDM__FIELD_LIST, TDM__FIELD_STRING, 0, 0, NULL}};
static const struct tdm__message list_table = {"list", sizeof(struct tdm__message_list), 1,
                                               list_fields};

/* Encodes and decodes a list of strings, and reads it as label constraints. */
static tdm_status travel(const struct tdm__message_list *sent, struct tdm__labels *back_out)
{
    struct tdm__message_list list;
    tdm_document *document;
    tdm_writer *writer;
    tdm_status status;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__message_encode(&list_table, sent, writer), TDM_OK);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    assert_int_equal(tdm__message_decode(&list_table, tdm_document_root(document), &list), TDM_OK);
    status = tdm__labels_of_list(&list, back_out);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    return status;
}

static void labels_decode_as_encoded_or_are_refused(void **state)
{
    static const char *const wrong[] = {"no label"};
    struct tdm__labels labels = {.count = 2, .texts = {"zone=a", "disk!=ssd"}};
    struct tdm__message_list list = tdm__labels_list(&labels);
    struct tdm__labels back;

    (void)state;
    assert_int_equal(travel(&list, &back), TDM_OK);
    assert_memory_equal(&labels, &back, sizeof(labels));
    list = (struct tdm__message_list){.count = 1, .items = wrong};
    assert_int_equal(travel(&list, &back), TDM_E_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constraint_is_satisfied_or_not),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(labels_decode_as_encoded_or_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
