/* python_test.c - `tandem python` and `tandem env` give programs the module ray of Tandem. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const package = TDM_TEST_BUILD_DIR "/python/tandem/shim";

/* Runs a shell command and returns what it has printed, in `text`. */
static const char *output_of(const char *command, char *text, size_t text_bytes)
{
    char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t)command,
                    NULL};
    FILE *output = tmpfile();
    struct tdm__spawn_options options = {.program = "/bin/sh", .argv = argv};
    struct tdm__process process;
    int status;

    assert_non_null(output);
    options.output_fd = fileno(output);
    assert_int_equal(tdm__spawn(&options, &process), TDM_OK);
    assert_int_equal(waitpid(process.pid, &status, 0), process.pid);
    assert_int_equal(status, 0);
    tdm__process_forget(&process);
    rewind(output);
    text[fread(text, 1, text_bytes - 1, output)] = '\0';
    (void)fclose(output);
    return text;
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
    assert_non_null(strstr(line, "\nexport PATH='"));
    assert_non_null(strstr(line, "/tandem/shim/bin:"));
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
