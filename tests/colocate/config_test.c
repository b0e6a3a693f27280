/* config_test.c - settings are typed, found by path, and wrong ones named by line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <tandem/config.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char job_yaml[] = "# a job\n"
                               "job:\n"
                               "  name: arith\n"
                               "  seed: 0x1F\n"
                               "trainer:\n"
                               "  lr: 2e-3\n"
                               "  ranks: 4\n"
                               "  shuffle: false\n"
                               "  note: \"12\"\n"
                               "  nothing:\n"
                               "data:\n"
                               "  tasks: [sorting, 'chain sum', {file: a.jsonl}]\n";

static tdm_config *parse(const char *text)
{
    tdm_config *config = NULL;
    tdm_status status = tdm_config_parse(text, strlen(text), "job.yaml", &config);

    if (status != TDM_OK) {
        fail_msg("%s: %s", text, tdm_error_detail());
    }
    return config;
}

static void refuses(const char *text, const char *detail)
{
    tdm_config *config = NULL;
    tdm_status status = tdm_config_parse(text, strlen(text), "job.yaml", &config);

    if (status != TDM_E_PROTOCOL || strstr(tdm_error_detail(), detail) == NULL) {
        fail_msg("%s: wanted \"%s\", got %s: %s", text, detail, tdm_strerror(status),
                 tdm_error_detail());
    }
}

static int64_t int_at(const tdm_config *config, const char *path)
{
    int64_t value = -1;

    assert_int_equal(tdm_config_int(config, path, -2, &value), TDM_OK);
    return value;
}

static double double_at(const tdm_config *config, const char *path)
{
    double value = -1;

    assert_int_equal(tdm_config_double(config, path, -2, &value), TDM_OK);
    return value;
}

static const char *string_at(const tdm_config *config, const char *path)
{
    const char *value = NULL;

    assert_int_equal(tdm_config_string(config, path, "(none)", &value), TDM_OK);
    return value;
}

static void values_are_found_by_path(void **state)
{
    tdm_config *config = parse(job_yaml);
    int flag = 7;

    (void)state;
    assert_string_equal(string_at(config, "job.name"), "arith");
    assert_int_equal(int_at(config, "job.seed"), 31);
    assert_true(double_at(config, "trainer.lr") == 2e-3);
    assert_true(double_at(config, "trainer.ranks") == 4.0);
    assert_int_equal(tdm_config_bool(config, "trainer.shuffle", 1, &flag), TDM_OK);
    assert_int_equal(flag, 0);
    assert_string_equal(string_at(config, "trainer.note"), "12");
    assert_string_equal(string_at(config, "data.tasks.1"), "chain sum");
    assert_string_equal(string_at(config, "data.tasks.2.file"), "a.jsonl");
    assert_int_equal(tdm_config_count(config, ""), 3);
    assert_int_equal(tdm_config_count(config, "data.tasks"), 3);
    assert_int_equal(tdm_config_count(config, "job.name"), 0);
    assert_string_equal(tdm_config_key(config, "", 2), "data");
    assert_string_equal(tdm_config_key(config, "trainer", 0), "lr");
    assert_null(tdm_config_key(config, "trainer", 5));
    assert_null(tdm_config_key(config, "data.tasks", 0));
    tdm_config_destroy(config);
}

static void missing_or_empty_value_gives_the_default(void **state)
{
    tdm_config *config = parse(job_yaml);

    (void)state;
    assert_int_equal(int_at(config, "trainer.missing"), -2);
    assert_int_equal(int_at(config, "trainer.nothing"), -2);
    assert_int_equal(int_at(config, "trainer.ranks.deeper"), -2);
    assert_int_equal(int_at(config, "data.tasks.3"), -2);
    assert_int_equal(int_at(config, "trainer.rank"), -2);
    assert_string_equal(string_at(config, "x"), "(none)");
    assert_false(tdm_config_has(config, "trainer.nothing"));
    assert_true(tdm_config_has(config, "trainer"));
    tdm_config_destroy(config);
}

static void wrong_type_names_line_path_and_value(void **state)
{
    tdm_config *config = parse(job_yaml);
    const char *text;
    int64_t integer;
    double number;
    int flag;

    (void)state;
    assert_int_equal(tdm_config_double(config, "job.name", 0, &number), TDM_E_TYPE);
    assert_string_equal(tdm_error_detail(), "job.yaml:3: job.name must be a number, got \"arith\"");
    assert_int_equal(tdm_config_int(config, "trainer.lr", 0, &integer), TDM_E_TYPE);
    assert_string_equal(tdm_error_detail(),
                        "job.yaml:6: trainer.lr must be a whole number, got 0.002");
    assert_int_equal(tdm_config_bool(config, "trainer.ranks", 0, &flag), TDM_E_TYPE);
    assert_int_equal(tdm_config_string(config, "data", "", &text), TDM_E_TYPE);
    assert_string_equal(tdm_error_detail(), "job.yaml:11: data must be text, got a map");
    assert_int_equal(tdm_config_int(config, "data.tasks", 0, &integer), TDM_E_TYPE);
    assert_string_equal(tdm_error_detail(),
                        "job.yaml:12: data.tasks must be a whole number, got a list");
    tdm_config_destroy(config);
}

static void where_gives_the_line_of_the_nearest_parent(void **state)
{
    tdm_config *config = parse(job_yaml);

    (void)state;
    assert_string_equal(tdm_config_where(config, "trainer.ranks"), "job.yaml:7");
    assert_string_equal(tdm_config_where(config, "trainer.missing.more"), "job.yaml:5");
    assert_string_equal(tdm_config_where(config, "data.tasks.2.file"), "job.yaml:12");
    tdm_config_destroy(config);
}

static void scalars_follow_the_core_schema(void **state)
{
    tdm_config *config = parse("a: 0o17\nb: -12\nc: +3\nd: 007\ne: 1.\nf: .5\ng: -1.5E+2\n"
                               "h: yes\ni: 1_000\nj: TRUE\nk: ~\nl: 0x\nm: 1e\nn: '~'\n"
                               "o: 9223372036854775807\np: 12 KiB\n");
    int flag = 0;

    (void)state;
    assert_int_equal(int_at(config, "a"), 15);
    assert_int_equal(int_at(config, "b"), -12);
    assert_int_equal(int_at(config, "c"), 3);
    assert_int_equal(int_at(config, "d"), 7);
    assert_true(double_at(config, "e") == 1.0);
    assert_true(double_at(config, "f") == 0.5);
    assert_true(double_at(config, "g") == -150.0);
    assert_string_equal(string_at(config, "h"), "yes");
    assert_string_equal(string_at(config, "i"), "1_000");
    assert_int_equal(tdm_config_bool(config, "j", 0, &flag), TDM_OK);
    assert_int_equal(flag, 1);
    assert_false(tdm_config_has(config, "k"));
    assert_string_equal(string_at(config, "l"), "0x");
    assert_string_equal(string_at(config, "m"), "1e");
    assert_string_equal(string_at(config, "n"), "~");
    assert_true(int_at(config, "o") == INT64_MAX);
    assert_string_equal(string_at(config, "p"), "12 KiB");
    tdm_config_destroy(config);
}

static void json_is_read_too(void **state)
{
    tdm_config *config = parse("{\"a\":{\"b\":[1,2.5,\"x\\u00e9\\n\",true,null]},\n"
                               "\t\"with.dot\": {\"c\": 1}}");

    (void)state;
    assert_int_equal(int_at(config, "a.b.0"), 1);
    assert_true(double_at(config, "a.b.1") == 2.5);
    assert_string_equal(string_at(config, "a.b.2"), "x\xc3\xa9\n");
    assert_int_equal(tdm_config_count(config, "a.b"), 5);
    assert_int_equal(int_at(config, "with.dot.c"), 1);
    assert_string_equal(tdm_config_where(config, "with.dot"), "job.yaml:2");
    tdm_config_destroy(config);
}

static void anchors_tags_and_duplicate_keys_are_refused(void **state)
{
    (void)state;
    refuses("a: &x 1\n", "job.yaml:1: anchors and aliases are not understood: \"x\"");
    refuses("b: 1\na: *x\n", "job.yaml:2: anchors and aliases");
    refuses("a: !!int 1\n", "job.yaml:1: tags are not understood");
    refuses("a: !<tag:x> [1]\n", "tags are not understood");
    refuses("a: {b: 1}\n<<: {c: 2}\n", "job.yaml:2: merge keys");
    refuses("a: 1\nb: 2\na: 3\n", "job.yaml:3: \"a\" is already set on line 1");
    refuses("a: 1\n---\nb: 2\n", "job.yaml:2: a second document begins");
    refuses("[a]: 1\n", "a key must be a text");
    refuses("a: .inf\n", "job.yaml:1: .inf: numbers must be finite");
    refuses("a: -.INF\n", "numbers must be finite");
    refuses("a: .nan\n", "numbers must be finite");
    refuses("a: 1e999\n", "1e999 is not a finite number");
    refuses("a: 9223372036854775808\n", "does not fit into 64 bits");
    refuses("a: \"x\\0y\"\n", "a NUL inside of a text");
}

static void broken_syntax_names_the_line(void **state)
{
    (void)state;
    refuses("a: 1\nb: [1, 2\n", "job.yaml:3: ");
    refuses("a: 1\n\tb: 2\n", "job.yaml:2: ");
    refuses("a: \xff\n", "job.yaml:1: ");
    refuses("a: b: c\n", "job.yaml:1: ");
}

static void depth_and_sizes_are_limited(void **state)
{
    tdm_config *config = parse("[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]"); /* 16 levels */
    char key[200];
    char *large = malloc((1U << 20) + 1);

    (void)state;
    tdm_config_destroy(config);
    refuses("[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", "nests over 16 levels");
    memset(key, 'k', sizeof(key));
    memcpy(key + sizeof(key) - 5, ": 1\n", 5);
    refuses(key, "a key of 195 bytes, the limit is 128");
    assert_non_null(large);
    memset(large, '[', (1U << 20) + 1);
    assert_int_equal(tdm_config_parse(large, 1U << 20, "job.yaml", &config), TDM_E_PROTOCOL);
    assert_int_equal(tdm_config_parse(large, (1U << 20) + 1, "x", &config), TDM_E_PROTOCOL);
    assert_string_equal(tdm_error_detail(), "x: 1048577 bytes, the limit is 1048576");
    free(large);
}

static void empty_file_has_no_settings(void **state)
{
    tdm_config *config = parse("");

    (void)state;
    assert_int_equal(tdm_config_count(config, ""), 0);
    assert_int_equal(int_at(config, "a"), -2);
    assert_int_equal(tdm_config_override(config, "a.b=1"), TDM_OK);
    assert_int_equal(int_at(config, "a.b"), 1);
    tdm_config_destroy(config);
}

static void overrides_win_and_make_missing_maps(void **state)
{
    tdm_config *config = parse(job_yaml);
    int64_t value;

    (void)state;
    assert_int_equal(tdm_config_override(config, "trainer.lr=1e-4"), TDM_OK);
    assert_int_equal(tdm_config_override(config, "new.map.deep=text with = inside"), TDM_OK);
    assert_int_equal(tdm_config_override(config, "data.tasks=[a, b]"), TDM_OK);
    assert_int_equal(tdm_config_override(config, "data.tasks.1=c"), TDM_OK);
    assert_int_equal(tdm_config_override(config, "trainer.ranks="), TDM_OK);
    assert_true(double_at(config, "trainer.lr") == 1e-4);
    assert_string_equal(string_at(config, "new.map.deep"), "text with = inside");
    assert_string_equal(string_at(config, "data.tasks.1"), "c");
    assert_int_equal(tdm_config_count(config, "data.tasks"), 2);
    assert_false(tdm_config_has(config, "trainer.ranks"));
    assert_string_equal(tdm_config_where(config, "new.map"), "command line");
    assert_int_equal(tdm_config_int(config, "trainer.lr", 0, &value), TDM_E_TYPE);
    assert_string_equal(tdm_error_detail(),
                        "command line: trainer.lr must be a whole number, got 0.0001");
    tdm_config_destroy(config);
}

static void refused_override_changes_nothing(void **state)
{
    tdm_config *config = parse(job_yaml);

    (void)state;
    assert_int_equal(tdm_config_override(config, "trainer"), TDM_E_INVAL);
    assert_int_equal(tdm_config_override(config, "=1"), TDM_E_INVAL);
    assert_int_equal(tdm_config_override(config, "a..b=1"), TDM_E_INVAL);
    assert_int_equal(tdm_config_override(config, ".a=1"), TDM_E_INVAL);
    assert_int_equal(tdm_config_override(config, "a.=1"), TDM_E_INVAL);
    assert_int_equal(tdm_config_override(config, "job.name.first=1"), TDM_E_TYPE);
    assert_string_equal(tdm_error_detail(), "command line: job.name.first cannot be set: "
                                            "job.yaml:3 is not a map");
    assert_int_equal(tdm_config_override(config, "data.tasks.9=1"), TDM_E_TYPE);
    assert_int_equal(tdm_config_override(config, "a=[1"), TDM_E_PROTOCOL);
    assert_int_equal(tdm_config_override(config, "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q=1"),
                     TDM_E_PROTOCOL);
    assert_int_equal(tdm_config_count(config, ""), 3);
    assert_string_equal(string_at(config, "job.name"), "arith");
    tdm_config_destroy(config);
}

static void json_keeps_values_and_lines(void **state)
{
    tdm_config *config = parse("a: 1\n\nb:\n  - 0.1\n  - 5.0\n  - \"q\\\"\\\\ \\x7f\\u0085\\u2028 "
                               "\xf0\x9f\x98\x80\"\nc: {}\nd: []\ne:\nf: false\n");
    char *text = NULL;
    char *again = NULL;
    tdm_config *copy;
    int64_t integer;

    (void)state;
    assert_int_equal(tdm_config_json(config, &text), TDM_OK);
    copy = parse(text);
    assert_int_equal(tdm_config_json(copy, &again), TDM_OK);
    assert_string_equal(text, again);
    assert_int_equal(int_at(copy, "a"), 1);
    assert_true(double_at(copy, "b.0") == 0.1);
    assert_int_equal(tdm_config_int(copy, "b.1", 0, &integer), TDM_E_TYPE);
    assert_string_equal(string_at(copy, "b.2"), string_at(config, "b.2"));
    assert_int_equal(tdm_config_count(copy, ""), 6);
    assert_string_equal(tdm_config_where(copy, "b.2"), "job.yaml:6");
    assert_string_equal(tdm_config_where(copy, "f"), "job.yaml:10");
    free(text);
    free(again);
    tdm_config_destroy(copy);
    tdm_config_destroy(config);
}

static void file_is_read_by_its_path(void **state)
{
    char path[] = "/tmp/tandem-config-XXXXXX";
    int fd = mkstemp(path);
    FILE *stream = fdopen(fd, "w");
    tdm_config *config = NULL;

    (void)state;
    assert_non_null(stream);
    (void)fputs("a: 1\nb: x\n", stream);
    (void)fclose(stream);
    assert_int_equal(tdm_config_read(path, &config), TDM_OK);
    assert_int_equal(int_at(config, "a"), 1);
    assert_memory_equal(tdm_config_where(config, "b"), path, strlen(path));
    tdm_config_destroy(config);
    assert_int_equal(remove(path), 0);
    assert_int_equal(tdm_config_read(path, &config), TDM_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found_by_path),
        cmocka_unit_test(missing_or_empty_value_gives_the_default),
        cmocka_unit_test(wrong_type_names_line_path_and_value),
        cmocka_unit_test(where_gives_the_line_of_the_nearest_parent),
        cmocka_unit_test(scalars_follow_the_core_schema),
        cmocka_unit_test(json_is_read_too),
        cmocka_unit_test(anchors_tags_and_duplicate_keys_are_refused),
        cmocka_unit_test(broken_syntax_names_the_line),
        cmocka_unit_test(depth_and_sizes_are_limited),
        cmocka_unit_test(empty_file_has_no_settings),
        cmocka_unit_test(overrides_win_and_make_missing_maps),
        cmocka_unit_test(refused_override_changes_nothing),
        cmocka_unit_test(json_keeps_values_and_lines),
        cmocka_unit_test(file_is_read_by_its_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
