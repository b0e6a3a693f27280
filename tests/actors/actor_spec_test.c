/* actor_spec_test.c - actor specifications: checked, packed, parsed, and hostile bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/actor_spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct tdm_bytes no_arguments = {"\x90", 1};

static struct tdm__actor_spec *spec_create(const struct tdm_actor_options *options)
{
    struct tdm__actor_spec *spec = NULL;

    assert_int_equal(tdm__actor_spec_create("engine", options, no_arguments, &spec), TDM_OK);
    return spec;
}

static tdm_status spec_create_status(const struct tdm_actor_options *options)
{
    struct tdm__actor_spec *spec = NULL;
    tdm_status status = tdm__actor_spec_create("engine", options, no_arguments, &spec);

    if (status == TDM_OK) {
        tdm__actor_spec_destroy(spec);
    }
    return status;
}

static void description_comes_back_as_it_was_written(void **state)
{
    struct tdm__actor_spec *spec =
        spec_create(&(struct tdm_actor_options){.num_cpus = 1.5,
                                                .num_gpus = 0.25,
                                                .resources = {{"disk", 2}},
                                                .name = "engine/0",
                                                .library = "libengine.so",
                                                .environment = {"A=1", "B="},
                                                .working_directory = "/tmp",
                                                .keep_visible_devices = 1,
                                                .detached = 1,
                                                .get_if_exists = 1,
                                                .memory_bytes = UINT64_C(1) << 40,
                                                .max_restarts = -1,
                                                .max_task_retries = 3,
                                                .max_concurrency = 4,
                                                .max_pending_calls = 5,
                                                .scheduling = TDM_SCHEDULE_NODE_SOFT,
                                                .node_id = "0123456789abcdef0123456789abcdef",
                                                .labels = {"zone=a", "zone!=b"}});
    struct tdm__actor_spec *back;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    (void)snprintf(spec->name_space, sizeof(spec->name_space), "lab");
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm__actor_spec_write(writer, spec);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    assert_int_equal(tdm__actor_spec_read(tdm_document_root(document), &back), TDM_OK);
    assert_true(tdm__id_equal(&spec->id, &back->id));
    assert_true(tdm__resources_equal(&spec->placement.wanted, &back->placement.wanted));
    assert_int_equal(back->placement.scheduling, TDM_SCHEDULE_NODE_SOFT);
    assert_true(tdm__id_equal(&spec->placement.node, &back->placement.node));
    assert_string_equal(back->placement.labels.texts[1], "zone!=b");
    assert_true(back->get_if_exists);
    assert_int_equal(back->max_restarts, -1);
    assert_int_equal(back->max_task_retries, 3);
    assert_int_equal(back->max_concurrency, 4);
    assert_int_equal(back->max_pending_calls, 5);
    assert_string_equal(back->name, "engine/0");
    assert_string_equal(back->name_space, "lab");
    assert_string_equal(back->class_name, "engine");
    assert_string_equal(back->library, "libengine.so");
    assert_string_equal(back->program, "");
    assert_string_equal(back->directory, "/tmp");
    assert_int_equal(back->environment.count, 2);
    assert_string_equal(back->environment.items[1], "B=");
    assert_true(back->keep_visible_devices && back->detached);
    assert_int_equal(back->arguments_bytes, 1);
    tdm__actor_spec_destroy(spec);
    tdm__actor_spec_destroy(back);
    tdm__actor_spec_destroy(NULL);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

static void wrong_options_are_refused_by_name(void **state)
{
    char name[257];
    struct tdm__actor_spec *spec;

    (void)state;
    memset(name, 'n', 256);
    name[256] = '\0';
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.name = name}), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "actor name of 256 bytes, at most 255"));
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.name_space = name}),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "name space of 256 bytes, at most 255"));
    assert_int_equal(tdm__actor_spec_create(name, NULL, no_arguments, &spec), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "class name of 256 bytes, at most 63"));
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.environment = {"=x"}}),
                     TDM_E_INVAL);
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.num_cpus = -1}), TDM_E_INVAL);
    assert_int_equal(
        spec_create_status(&(struct tdm_actor_options){.resources = {{"CPU", 1}}, .num_cpus = 1}),
        TDM_E_INVAL);
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.name = "a\x1b"}), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "UTF-8 without control characters"));
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.name_space = "a\xff"}),
                     TDM_E_INVAL);
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.get_if_exists = 1}),
                     TDM_E_INVAL);
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.max_restarts = -2}),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "max_restarts -2"));
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.max_task_retries = -2}),
                     TDM_E_INVAL);
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.max_concurrency = 100001}),
                     TDM_E_LIMIT);
    assert_int_equal(
        spec_create_status(&(struct tdm_actor_options){.scheduling = (enum tdm_scheduling)4}),
        TDM_E_INVAL);
    assert_int_equal(
        spec_create_status(&(struct tdm_actor_options){.scheduling = TDM_SCHEDULE_NODE}),
        TDM_E_INVAL);
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.scheduling = TDM_SCHEDULE_NODE,
                                                                    .node_id = "here"}),
                     TDM_E_INVAL);
    assert_int_equal(spec_create_status(&(struct tdm_actor_options){.labels = {"zone"}}),
                     TDM_E_INVAL);
    assert_int_equal(tdm__actor_spec_create(NULL, NULL, no_arguments, &spec), TDM_E_INVAL);
}

/* Every prefix of a packed specification, and every changed byte, is refused or parsed without
 * damage. */
static void hostile_bytes_are_refused(void **state)
{
    struct tdm__actor_spec *spec = spec_create(&(struct tdm_actor_options){.environment = {"A=1"}});
    tdm_writer *writer;
    struct tdm_bytes bytes;
    uint8_t *copy;

    (void)state;
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm__actor_spec_write(writer, spec);
    bytes = tdm_writer_bytes(writer);
    copy = malloc(bytes.size_bytes);
    assert_non_null(copy);
    for (size_t i = 0; i < bytes.size_bytes * 8; i++) {
        struct tdm__actor_spec *back;
        tdm_document *document;

        memcpy(copy, bytes.data, bytes.size_bytes);
        copy[i / 8] = (uint8_t)(copy[i / 8] ^ (1U << (i % 8)));
        if (tdm_document_parse((struct tdm_bytes){copy, bytes.size_bytes}, &document) != TDM_OK) {
            continue;
        }
        if (tdm__actor_spec_read(tdm_document_root(document), &back) == TDM_OK) {
            assert_true(strlen(back->name) < sizeof(back->name));
            tdm__actor_spec_destroy(back);
        }
        tdm_document_destroy(document);
    }
    free(copy);
    tdm_writer_destroy(writer);
    tdm__actor_spec_destroy(spec);
}

/* A message of another process may have any text. */
static void texts_that_are_too_long_are_refused_by_name(void **state)
{
    static char long_text[1 << 14];
    static const struct {
        size_t field; /* Offset of the text in the message. */
        const char *said;
    } texts[] = {
#define TEXT(name, said) {offsetof(struct tdm__actor_spec_message, name), said}
        TEXT(name, "actor name"), TEXT(name_space, "name space"), TEXT(class_name, "class name"),
        TEXT(program, "program"), TEXT(library, "library"),       TEXT(directory, "directory"),
#undef TEXT
    };
    struct tdm__actor_spec *spec = spec_create(&(struct tdm_actor_options){.num_cpus = 1});
    struct tdm__actor_spec *back = NULL;
    struct tdm__actor_spec_message message;

    (void)state;
    memset(long_text, 'x', sizeof(long_text) - 1);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *text = long_text;

        message = tdm__actor_spec_to_message(spec);
        memcpy((char *)&message + texts[i].field, &text, sizeof(text));
        assert_int_not_equal(tdm__actor_spec_of_message(&message, &back), TDM_OK);
        assert_non_null(strstr(tdm_error_detail(), texts[i].said));
        assert_null(back);
    }
    message = tdm__actor_spec_to_message(spec);
    message.scheduling = 77;
    assert_int_equal(tdm__actor_spec_of_message(&message, &back), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "no scheduling has the number 77"));
    message = tdm__actor_spec_to_message(spec);
    message.metadata = (struct tdm_bytes){long_text, (size_t)1 << 40};
    assert_int_equal(tdm__actor_spec_of_message(&message, &back), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "metadata of"));
    assert_null(back);
    tdm__actor_spec_destroy(spec);
}

static void label_is_the_name_or_the_class_and_id(void **state)
{
    struct tdm__id id = {{0xab, 0xcd, 0xef, 0x01}};
    char text[80];

    (void)state;
    assert_string_equal(tdm__actor_label("trainer/2", "trainer", &id, text, sizeof(text)),
                        "trainer/2");
    assert_string_equal(tdm__actor_label("", "trainer", &id, text, sizeof(text)),
                        "trainer abcdef01");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(description_comes_back_as_it_was_written),
        cmocka_unit_test(wrong_options_are_refused_by_name),
        cmocka_unit_test(hostile_bytes_are_refused),
        cmocka_unit_test(texts_that_are_too_long_are_refused_by_name),
        cmocka_unit_test(label_is_the_name_or_the_class_and_id),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
