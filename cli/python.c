/* python.c - `tandem python` and `tandem env`: Python programs with Tandem's module ray. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "runtime/error.h"
#include "runtime/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Environment variable in which Python looks for modules. */
#define PATH_VARIABLE "PYTHONPATH"

static struct tdm__option options[] = {{NULL, false, NULL}};

/* Writes the folder of the Python package that belongs to this program: `python` beside it in a
 * build, `lib/tandem/python` in an installation, and the folder of modules in a wheel, whose
 * programs are in `tandem/bin`. */
static tdm_status package_directory_find(char *path, size_t path_bytes)
{
    static const char *const places[] = {"python", "../lib/tandem/python", "../.."};
    char program[TDM__PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    char *slash;

    if (length < 0) {
        return tdm__fail_errno(errno, "readlink /proc/self/exe");
    }
    program[length] = '\0';
    slash = strrchr(program, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char marker[TDM__PATH_BYTES + 64];

        (void)snprintf(marker, sizeof(marker), "%s/%s/tandem/shim", program, places[i]);
        if (access(marker, F_OK) == 0) {
            int written = snprintf(path, path_bytes, "%s/%s", program, places[i]);

            return written < 0 || (size_t)written >= path_bytes
                       ? tdm__fail(TDM_E_LIMIT, "the path of the Python package is too long")
                       : TDM_OK;
        }
    }
    return tdm__fail(TDM_E_NOT_FOUND,
                     "the Python package is not installed beside %s: it is built where the headers "
                     "of Python 3.10 or later are present",
                     program);
}

/* Writes the module path of a program that shall find the module ray: the package's folders in
 * front of what is set already. */
static tdm_status module_path_write(char *path, size_t path_bytes)
{
    const char *outer = getenv(PATH_VARIABLE);
    char package[TDM__PATH_BYTES];
    int written;

    TDM_TRY(package_directory_find(package, sizeof(package)));
    written = snprintf(path, path_bytes, "%s/tandem/shim:%s%s%s", package, package,
                       outer == NULL || outer[0] == '\0' ? "" : ":", outer == NULL ? "" : outer);
    return written < 0 || (size_t)written >= path_bytes
               ? tdm__fail(TDM_E_LIMIT, PATH_VARIABLE " is too long")
               : TDM_OK;
}

/* Runs `tandem python`: replaces this process by env(1), which sets the variable and executes the
 * interpreter. */
static int python_main(int words_count, char **words)
{
    static const char *const begin[] = {"env", NULL, "python3"};
    enum { BEGIN_COUNT = sizeof(begin) / sizeof(begin[0]) };
    char *argv[TDM__ARGUMENTS_MAX + BEGIN_COUNT + 1] = {NULL};
    char path[4 * TDM__PATH_BYTES];
    char setting[sizeof(path) + sizeof(PATH_VARIABLE) + 1];
    tdm_status status = module_path_write(path, sizeof(path));

    if (words_count > TDM__ARGUMENTS_MAX) {
        return tdm__refuse_arguments("python", "more than %d words", (int)TDM__ARGUMENTS_MAX);
    }
    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    (void)snprintf(setting, sizeof(setting), PATH_VARIABLE "=%s", path);
    for (int i = 0; i < BEGIN_COUNT; i++) {
        argv[i] = (char *)(uintptr_t)(begin[i] == NULL ? setting : begin[i]);
    }
    memcpy(argv + BEGIN_COUNT, words, (size_t)words_count * sizeof(*argv));
    (void)execvp(argv[0], argv);
    return tdm__command_failed(tdm__fail_errno(errno, "env cannot be executed"));
}

/* Prints `text` as one word of a shell. */
static void print_quoted(const char *text)
{
    (void)putchar('\'');
    for (const char *byte = text; *byte != '\0'; byte++) {
        (void)fputs(*byte == '\'' ? "'\\''" : (char[2]){*byte, '\0'}, stdout);
    }
    (void)putchar('\'');
}

/* Runs `tandem env`. */
static int env_main(const struct tdm__parsed_arguments *args)
{
    char path[4 * TDM__PATH_BYTES];
    tdm_status status = module_path_write(path, sizeof(path));

    (void)args;
    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    (void)fputs("export " PATH_VARIABLE "=", stdout);
    print_quoted(path);
    (void)putchar('\n');
    return TDM__EXIT_SUCCESS;
}

const struct tdm__command tdm__command_python = {
    .name = "python",
    .summary = "run a Python program with Tandem's module ray",
    .help = "usage: tandem python [ARGUMENT ...]\n\n"
            "Runs python3 with these arguments. The module `ray` is Tandem's in this\n"
            "program and in the programs that it starts.\n",
    .options = options,
    .run_words = python_main};

const struct tdm__command tdm__command_env = {
    .name = "env",
    .summary = "print shell commands that make `ray` Tandem's",
    .help = "usage: eval \"$(tandem env)\"\n\n"
            "Prints a shell command. After it the module `ray` of Python programs is\n"
            "Tandem's.\n",
    .options = options,
    .run = env_main};
