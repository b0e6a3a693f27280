/* shell_run.c - runs a shell command and keeps what it prints. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/shell_run.h"

#include "runtime/process/spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

char said[4 << 20];

int shell_run(const char *directory, const char *command)
{
    char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t)command,
                    NULL};
    struct tdm__spawn_options options = {
        .program = "/bin/sh", .argv = argv, .working_directory = directory};
    struct tdm__process process;
    FILE *output = tmpfile();
    int status;

    assert_non_null(output);
    options.output_fd = fileno(output);
    assert_int_equal(tdm__spawn(&options, &process), TDM_OK);
    assert_int_equal(waitpid(process.pid, &status, 0), process.pid);
    tdm__process_forget(&process);
    rewind(output);
    said[fread(said, 1, sizeof(said) - 1, output)] = '\0';
    (void)fclose(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void expect_said(const char *text)
{
    if (strstr(said, text) == NULL) {
        fail_msg("\"%s\" is missing in: %s", text, said);
    }
}
