/* python.c - `tandem python` and `tandem env`: Python programs with Tandem's module ray. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/python.h"

#include "cli/command.h"
#include "runtime/error.h"
#include "runtime/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Environment variables with the folders of Python's modules and of the shell's commands. */
#define MODULES_VARIABLE  "PYTHONPATH"
#define COMMANDS_VARIABLE "PATH"

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
                       ? tdm__fail(
                             TDM_E_LIMIT,
                             "finding the Python package failed: its path has more than %zu bytes",
                             path_bytes - 1)
                       : TDM_OK;
        }
    }
    return tdm__fail(
        TDM_E_NOT_FOUND,
        "finding the Python package failed: it is not installed beside %s. Install the "
        "headers of Python 3.10 or later and build again",
        program);
}

/* A setting of the environment, "NAME=value". */
struct setting {
    char text[5 * TDM__PATH_BYTES]; /* The setting. */
    const char *value;              /* The part of `text` behind "=". */
};

/* Writes "NAME=folders:old value", where `old_value` is what the variable is set to already, NULL
 * or "" for nothing. */
static tdm_status setting_write(struct setting *setting, const char *name, const char *folders,
                                const char *old_value)
{
    bool has_old = old_value != NULL && old_value[0] != '\0';
    int written = snprintf(setting->text, sizeof(setting->text), "%s=%s%s%s", name, folders,
                           has_old ? ":" : "", has_old ? old_value : "");

    setting->value = setting->text + strlen(name) + 1;
    return written < 0 || (size_t)written >= sizeof(setting->text)
               ? tdm__fail(TDM_E_LIMIT,
                           "setting %s failed: its value has %d bytes, at most %zu. Shorten it",
                           name, written, sizeof(setting->text) - 1)
               : TDM_OK;
}

tdm_status tdm__python_folders_find(char folders[TDM__PYTHON_FOLDERS_BYTES])
{
    char package[TDM__PATH_BYTES];

    TDM_TRY(package_directory_find(package, sizeof(package)));
    (void)snprintf(folders, TDM__PYTHON_FOLDERS_BYTES, "%s/tandem/shim:%s", package, package);
    return TDM_OK;
}

/* Writes the settings with which programs find the module and the command ray of Tandem: the
 * package's folders in front of what is set already. */
static tdm_status settings_write(struct setting *modules, struct setting *commands)
{
    char package[TDM__PATH_BYTES];
    char folders[TDM__PYTHON_FOLDERS_BYTES];

    TDM_TRY(package_directory_find(package, sizeof(package)));
    TDM_TRY(tdm__python_folders_find(folders));
    TDM_TRY(setting_write(modules, MODULES_VARIABLE, folders, getenv(MODULES_VARIABLE)));
    (void)snprintf(folders, sizeof(folders), "%s/tandem/shim/bin", package);
    return setting_write(commands, COMMANDS_VARIABLE, folders, getenv(COMMANDS_VARIABLE));
}

/* Runs `tandem python`: replaces this process by env(1), which sets the variables and executes the
 * interpreter. */
static int python_main(int words_count, char **words)
{
    struct setting modules;
    struct setting commands;
    char *argv[TDM__ARGUMENTS_MAX + 5] = {(char *)(uintptr_t) "env", modules.text, commands.text,
                                          (char *)(uintptr_t) "python3"};
    enum { BEGIN_COUNT = 4 };
    tdm_status status = settings_write(&modules, &commands);

    if (words_count > TDM__ARGUMENTS_MAX) {
        return tdm__refuse_arguments("python", "more than %d words", (int)TDM__ARGUMENTS_MAX);
    }
    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    memcpy(argv + BEGIN_COUNT, words, (size_t)words_count * sizeof(*argv));
    (void)execvp(argv[0], argv);
    return tdm__command_failed(tdm__fail_errno(errno, "running env failed"));
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

/* Prints a shell command that sets and exports the variable of a setting. */
static void print_export(const struct setting *setting)
{
    (void)printf("export %.*s", (int)(setting->value - setting->text), setting->text);
    print_quoted(setting->value);
    (void)putchar('\n');
}

/* Runs `tandem env`. */
static int env_main(const struct tdm__parsed_arguments *args)
{
    struct setting modules;
    struct setting commands;
    tdm_status status = settings_write(&modules, &commands);

    (void)args;
    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    print_export(&modules);
    print_export(&commands);
    return TDM__EXIT_SUCCESS;
}

const struct tdm__command tdm__command_python = {
    .name = "python",
    .summary = "run a Python program with Tandem's module ray",
    .help = "usage: tandem python [ARGUMENT ...]\n\n"
            "Runs python3 with these arguments. The module `ray` and the command `ray` are\n"
            "Tandem's in this program and in the programs that it starts.\n",
    .options = options,
    .run_words = python_main};

const struct tdm__command tdm__command_env = {
    .name = "env",
    .summary = "print shell commands that make `ray` Tandem's",
    .help = "usage: eval \"$(tandem env)\"\n\n"
            "Prints shell commands. After them the module `ray` of Python programs and the\n"
            "command `ray` are Tandem's.\n",
    .options = options,
    .run = env_main};
