/* command.c - parses the command line of tandem and runs the command. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A command line is parsed in two steps: the first word selects a command from a table, and the
 * command's own table of options sorts the remaining words. tandemd uses only the second step.
 * Wrong words get a suggestion if a known word is similar.
 *
 * Every command returns an exit code: 0 if the work succeeded, 1 if it failed, 2 if the command
 * line was wrong. A failure to write to stdout turns success into failure. There is one thread, and
 * nothing is allocated. */

#include "cli/command.h"

#include "colocate/job/suggestion.h"
#include "runtime/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Largest number of known words among which a similar one is searched. */
enum { SUGGESTIONS_MAX = 32 };

/* Prints an error about the command line of `program`, and where its help is. */
__attribute__((format(printf, 3, 0))) static int
print_refusal(const char *program, const char *command, const char *format, va_list args)
{
    (void)fprintf(stderr, "%s: ", program);
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\nsee: %s %s%s--help\n", program, command == NULL ? "" : command,
                  command == NULL ? "" : " ");
    return TDM__EXIT_USAGE;
}

int tdm__refuse_arguments(const char *command, const char *format, ...)
{
    va_list args;
    int code;

    va_start(args, format);
    code = print_refusal("tandem", command, format, args);
    va_end(args);
    return code;
}

/* Refuses words of `command`, which may be a whole program; NULL means that no command was found.
 */
__attribute__((format(printf, 2, 3))) static int
refuse_command_line(const struct tdm__command *command, const char *format, ...)
{
    bool is_program = command != NULL && command->program != NULL;
    va_list args;
    int code;

    va_start(args, format);
    code = print_refusal(is_program ? command->program : "tandem",
                         is_program || command == NULL ? NULL : command->name, format, args);
    va_end(args);
    return code;
}

/* Prints an error about an unknown word of the command line and returns the exit code. `suggestion`
 * is a similar known word, or NULL. */
static int refuse_unknown(const struct tdm__command *command, const char *what, const char *word,
                          const char *suggestion)
{
    return suggestion == NULL ? refuse_command_line(command, "unknown %s \"%s\"", what, word)
                              : refuse_command_line(command, "unknown %s \"%s\"; did you mean %s?",
                                                    what, word, suggestion);
}

int tdm__command_failed(tdm_status status)
{
    const char *detail = tdm_error_detail();

    (void)fprintf(stderr, "tandem: %s\n", detail[0] == '\0' ? tdm_strerror(status) : detail);
    return TDM__EXIT_FAILED;
}

const char *tdm__option_value(const struct tdm__parsed_arguments *args, const char *name)
{
    for (const struct tdm__option *option = args->options; option->name != NULL; option++) {
        if (strcmp(option->name, name) == 0) {
            return option->value;
        }
    }
    return NULL;
}

void tdm__option_set(const struct tdm__parsed_arguments *args, const char *name, const char *value)
{
    for (struct tdm__option *option = args->options; option->name != NULL; option++) {
        if (strcmp(option->name, name) == 0) {
            option->value = value;
        }
    }
}

/* ---- options ---------------------------------------------------------------------------- */

/* Prints an error about an unknown option, with a similar known option, and returns the exit
 * code. */
static int refuse_option(const struct tdm__command *command, const char *word)
{
    const char *known[SUGGESTIONS_MAX];
    uint32_t count = 0;

    for (const struct tdm__option *option = command->options;
         option->name != NULL && count < SUGGESTIONS_MAX; option++) {
        known[count++] = option->name;
    }
    return refuse_unknown(command, "option", word, tdm__suggestion_find(word, known, count));
}

/* Parses the option at argv[*index]. Afterwards `*index` is the index of the option's last word.
 * Returns the exit code. */
static int parse_option(const struct tdm__command *command, int argc, char **argv, int *index,
                        void *arg)
{
    const char *word = argv[*index];
    const char *equals = strchr(word, '=');
    size_t name_bytes = equals == NULL ? strlen(word) : (size_t)(equals - word);

    for (struct tdm__option *option = command->options; option->name != NULL; option++) {
        if (strlen(option->name) != name_bytes || memcmp(option->name, word, name_bytes) != 0) {
            continue;
        }
        option->value = NULL;
        if (!option->takes_value && equals != NULL) {
            return refuse_command_line(command, "no value is wanted in \"%s\"", word);
        }
        if (!option->takes_value) {
            option->value = option->name;
        } else if (equals != NULL) {
            option->value = equals + 1;
        } else if (*index + 1 < argc) {
            option->value = argv[++*index];
        }
        if (option->value == NULL || option->value[0] == '\0') {
            return refuse_command_line(command, "a value is missing after \"%s\"", option->name);
        }
        return command->receive_option == NULL ||
                       command->receive_option(arg, (uint32_t)(option - command->options),
                                               option->value)
                   ? TDM__EXIT_SUCCESS
                   : TDM__EXIT_USAGE;
    }
    return refuse_option(command, word);
}

int tdm__arguments_parse(const struct tdm__command *command, int argc, char **argv, int first,
                         void *arg, struct tdm__parsed_arguments *args)
{
    for (int i = first; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1] != '\0') {
            int code = parse_option(command, argc, argv, &i, arg);

            if (code != TDM__EXIT_SUCCESS) {
                return code;
            }
        } else if (args->operands_count < command->operands_max) {
            args->operands[args->operands_count++] = argv[i];
        } else {
            return refuse_command_line(command, "one word too many: \"%s\"", argv[i]);
        }
    }
    if (args->operands_count < command->operands_min) {
        return refuse_command_line(command, "%s requires more arguments\n%.*s", command->name,
                                   (int)strcspn(command->help, "\n"), command->help);
    }
    return TDM__EXIT_SUCCESS;
}

/* ---- commands --------------------------------------------------------------------------- */

/* Prints the text of `tandem --help`. */
static void print_help(const struct tdm__command *const *commands, uint32_t commands_count)
{
    (void)fputs("tandem - trainer and rollout actors on the same GPUs, in turn\n\n"
                "usage: tandem COMMAND [arguments]\n\n",
                stdout);
    for (uint32_t i = 0; i < commands_count; i++) {
        (void)printf("  %-15s %s\n", commands[i]->name, commands[i]->summary);
    }
    (void)fputs("\n`tandem COMMAND --help` tells more.  Exit codes: 0 done, 1 the work failed,\n"
                "2 the command line was wrong.\n",
                stdout);
}

bool tdm__arguments_ask_for_help(int argc, char **argv, int first)
{
    for (int i = first; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

/* Flushes stdout and returns the exit code: `code`, or TDM__EXIT_FAILED if the output could not be
 * written. A closed pipe is no failure. */
static int finish_output(int code)
{
    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0) {
        return code;
    }
    if (errno == EPIPE) {
        return code;
    }
    return tdm__command_failed(
        /* An earlier write to stdout has failed. */
        tdm__fail_errno(errno == 0 ? EIO : errno, "writing to stdout failed"));
}

/* Parses a command's words and runs the command, or prints the command's help. Returns the exit
 * code. */
static int run_command(const struct tdm__command *command, int argc, char **argv)
{
    struct tdm__parsed_arguments args = {.options = command->options};
    int code;

    if (command->run_words != NULL && !(argc > 2 && tdm__arguments_ask_for_help(3, argv, 2))) {
        return command->run_words(argc - 2, argv + 2);
    }
    if (tdm__arguments_ask_for_help(argc, argv, 2)) {
        (void)fputs(command->help, stdout);
        return TDM__EXIT_SUCCESS;
    }
    code = tdm__arguments_parse(command, argc, argv, 2, NULL, &args);
    return code != TDM__EXIT_SUCCESS ? code : finish_output(command->run(&args));
}

/* Prints an error about an unknown command, with a similar known command, and returns the exit
 * code. */
static int refuse_command(const struct tdm__command *const *commands, uint32_t commands_count,
                          const char *word)
{
    const char *known[SUGGESTIONS_MAX];
    uint32_t count = 0;

    for (; count < commands_count && count < SUGGESTIONS_MAX; count++) {
        known[count] = commands[count]->name;
    }
    return refuse_unknown(NULL, "command", word, tdm__suggestion_find(word, known, count));
}

/* Returns whether the word, as the first argument of tandem, requests help. */
static bool is_help_word(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

/* Returns the command with this name, or NULL. */
static const struct tdm__command *find_command(const struct tdm__command *const *commands,
                                               uint32_t commands_count, const char *name)
{
    for (uint32_t i = 0; i < commands_count; i++) {
        if (strcmp(name, commands[i]->name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

int tdm__command_main(const struct tdm__command *const *commands, uint32_t commands_count, int argc,
                      char **argv)
{
    const char *word = argc < 2 ? "" : argv[1];
    const struct tdm__command *command;

    if (argc < 2) {
        return tdm__refuse_arguments(NULL, "a command is missing");
    }
    if (is_help_word(word) && argc < 3) {
        print_help(commands, commands_count);
        return TDM__EXIT_SUCCESS;
    }
    /* The command line is `tandem help COMMAND`. */
    if (is_help_word(word)) {
        command = find_command(commands, commands_count, argv[2]);
        if (command == NULL) {
            return refuse_command(commands, commands_count, argv[2]);
        }
        (void)fputs(command->help, stdout);
        return TDM__EXIT_SUCCESS;
    }
    word = strcmp(word, "--version") == 0 ? "version" : word;
    command = find_command(commands, commands_count, word);
    return command == NULL ? refuse_command(commands, commands_count, word)
                           : run_command(command, argc, argv);
}
