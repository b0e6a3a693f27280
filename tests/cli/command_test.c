/* command_test.c - arguments reach their command, or are refused with exit code 2. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct tdm__option options[] = {
    {"--json", false, NULL}, {"--out", true, NULL}, {NULL, false, NULL}};
static const char *seen_json;
static const char *seen_out;
static struct tdm__parsed_arguments seen;

static int remember(const struct tdm__parsed_arguments *args)
{
    seen = *args;
    seen_json = tdm__option_value(args, "--json");
    seen_out = tdm__option_value(args, "--out");
    return TDM__EXIT_FAILED; /* Nothing else returns 1 here. */
}

static const struct tdm__command copy = {.name = "copy",
                                         .summary = "copies",
                                         .help = "usage: tandem copy FROM [TO]\n",
                                         .options = options,
                                         .operands_min = 1,
                                         .operands_max = 2,
                                         .run = remember};

static int call(char *first, char *second, char *third, char *fourth)
{
    static const struct tdm__command *const commands[] = {&copy};
    char *argv[] = {(char *)"tandem", first, second, third, fourth, NULL};
    int argc = 1;

    while (argv[argc] != NULL) {
        argc++;
    }
    options[0].value = NULL;
    options[1].value = NULL;
    return tdm__command_main(commands, 1, argc, argv);
}

#define CALL(a, b, c, d) call((char *)(a), (char *)(b), (char *)(c), (char *)(d))

static void operands_and_options_reach_the_command(void **state)
{
    (void)state;
    assert_int_equal(CALL("copy", "a", "--out", "there"), TDM__EXIT_FAILED);
    assert_int_equal(seen.operands_count, 1);
    assert_string_equal(seen.operands[0], "a");
    assert_string_equal(seen_out, "there");
    assert_null(seen_json);
    assert_int_equal(CALL("copy", "--json", "--out=x=y", "k=v"), TDM__EXIT_FAILED);
    assert_string_equal(seen_out, "x=y");
    assert_non_null(seen_json);
    assert_string_equal(seen.operands[0], "k=v");
}

static void wrong_arguments_exit_with_2(void **state)
{
    (void)state;
    assert_int_equal(CALL(NULL, NULL, NULL, NULL), TDM__EXIT_USAGE);
    assert_int_equal(CALL("cpoy", "a", NULL, NULL), TDM__EXIT_USAGE);
    assert_int_equal(CALL("copy", NULL, NULL, NULL), TDM__EXIT_USAGE);
    assert_int_equal(CALL("copy", "a", "b", "c"), TDM__EXIT_USAGE);
    assert_int_equal(CALL("copy", "a", "--outt", "b"), TDM__EXIT_USAGE);
    assert_int_equal(CALL("copy", "a", "--out", NULL), TDM__EXIT_USAGE);
    assert_int_equal(CALL("copy", "a", "--json=1", NULL), TDM__EXIT_USAGE);
    assert_int_equal(CALL("copy", "a", "--out", ""), TDM__EXIT_USAGE);
    assert_int_equal(CALL("copy", "a", "--out=", NULL), TDM__EXIT_USAGE);
}

static void help_is_not_a_failure(void **state)
{
    (void)state;
    assert_int_equal(CALL("--help", NULL, NULL, NULL), TDM__EXIT_SUCCESS);
    assert_int_equal(CALL("copy", "--help", NULL, NULL), TDM__EXIT_SUCCESS);
    assert_int_equal(CALL("copy", "--nonsense", "-h", NULL), TDM__EXIT_SUCCESS);
    assert_int_equal(CALL("help", NULL, NULL, NULL), TDM__EXIT_SUCCESS);
    assert_int_equal(CALL("help", "cpoy", NULL, NULL), TDM__EXIT_USAGE);
}

static void test_help_with_a_command_prints_its_usage(void **state)
{
    char said[256] = "";
    FILE *file = tmpfile();
    int before = dup(STDOUT_FILENO);

    (void)state;
    assert_non_null(file);
    (void)fflush(stdout);
    (void)dup2(fileno(file), STDOUT_FILENO);
    assert_int_equal(CALL("help", "copy", NULL, NULL), TDM__EXIT_SUCCESS);
    (void)fflush(stdout);
    (void)dup2(before, STDOUT_FILENO);
    (void)close(before);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    (void)fclose(file);
    assert_string_equal(said, copy.help);
}

static void every_help_is_at_most_80_columns_wide(void **state)
{
    static const struct tdm__command *const commands[] = {
        &tdm__command_run,  &tdm__command_plan,   &tdm__command_status, &tdm__command_top,
        &tdm__command_list, &tdm__command_kill,   &tdm__command_logs,   &tdm__command_timeline,
        &tdm__command_info, &tdm__command_version};

    (void)state;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        for (const char *line = commands[i]->help; *line != '\0';) {
            size_t length = strcspn(line, "\n");

            assert_in_range(length, 0, 80);
            line += length + (line[length] == '\n');
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_and_options_reach_the_command),
        cmocka_unit_test(wrong_arguments_exit_with_2),
        cmocka_unit_test(help_is_not_a_failure),
        cmocka_unit_test(test_help_with_a_command_prints_its_usage),
        cmocka_unit_test(every_help_is_at_most_80_columns_wide),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
