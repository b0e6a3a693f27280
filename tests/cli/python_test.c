/* python_test.c - `tandem python` and `tandem env` give programs the module ray of Tandem. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const package = TDM_TEST_BUILD_DIR "/python/tandem/shim";

/* Runs a shell command and returns what it has printed, at most one line. */
static const char *output_of(const char *command, char *line, int line_bytes)
{
    FILE *output = popen(command, "re");

    assert_non_null(output);
    line[0] = '\0';
    (void)!fgets(line, line_bytes, output);
    assert_int_equal(pclose(output), 0);
    return line;
}

/* Skips the test where the Python package was not built. */
static void require_package(void)
{
    if (access(package, F_OK) != 0) {
        print_message("skipped: the Python package was not built\n");
        skip();
    }
}

static void env_prints_the_module_path(void **state)
{
    char line[4096];

    (void)state;
    require_package();
    (void)output_of("PYTHONPATH=\"/it's\" " TDM_TEST_BUILD_DIR "/tandem env", line, sizeof(line));
    assert_non_null(strstr(line, "export PYTHONPATH='"));
    assert_non_null(strstr(line, package));
    assert_non_null(strstr(line, ":/it'\\''s'"));
}

static void python_passes_all_words_to_the_interpreter(void **state)
{
    char line[4096];

    (void)state;
    require_package();
    (void)output_of(TDM_TEST_BUILD_DIR "/tandem python -c 'import os, sys; print(sys.argv[1:], "
                                       "os.environ[\"PYTHONPATH\"])' --json x",
                    line, sizeof(line));
    assert_non_null(strstr(line, "['--json', 'x']"));
    assert_non_null(strstr(line, package));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(env_prints_the_module_path),
        cmocka_unit_test(python_passes_all_words_to_the_interpreter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
