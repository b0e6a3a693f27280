/* command.h - the commands of tandem, and the parser of their command lines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_COMMAND_H
#define TDM_CLI_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* Exit codes of every command: success, the work failed, the command line was wrong. */
enum { TDM__EXIT_SUCCESS = 0, TDM__EXIT_FAILED = 1, TDM__EXIT_USAGE = 2 };

/* An option of a command: a word that begins with "--". */
struct tdm__option {
    const char *name; /* Name with the dashes; NULL ends a table. */
    /* Whether a value follows, as the next word or behind "=". */
    bool takes_value;
    /* Result of parsing (borrowed from argv): the value, or the name itself for an option without a
     * value. NULL if absent. */
    const char *value;
};

/* Most operands of a command line. */
enum { TDM__ARGUMENTS_MAX = 64 };

/* A parsed command line. */
struct tdm__parsed_arguments {
    /* Options of the command with their values (borrowed). */
    struct tdm__option *options;
    /* Words that are not options, in their order (borrowed from argv). */
    const char *operands[TDM__ARGUMENTS_MAX];
    uint32_t operands_count; /* Number of operands. */
};

/* One command of tandem, or the whole command line of another program. */
struct tdm__command {
    /* Program of which this is the whole command line, such as "tandemd"; NULL for a command of
     * tandem. */
    const char *program;
    const char *name;    /* Word that selects the command. */
    const char *summary; /* One line for `tandem --help`. */
    /* Text of the command's --help, with lines of at most 80 columns. */
    const char *help;
    struct tdm__option *options; /* Table of the options, which parsing fills in. */
    uint32_t operands_min;       /* Least number of operands. */
    uint32_t operands_max;       /* Largest number of operands. */
    /* Runs the command and returns its exit code. NULL if `run_words` is set. */
    int (*run)(const struct tdm__parsed_arguments *args);
    /* Runs a command whose words are meant for another program: receives all words behind the name
     * of the command, unparsed. NULL for all other commands. */
    int (*run_words)(int words_count, char **words);
    /* Receives each option as it is parsed, with its index in `options`. Prints the problem and
     * returns false to refuse it. NULL if the last value of each option is sufficient. */
    bool (*receive_option)(void *arg, uint32_t index, const char *value);
};

extern const struct tdm__command tdm__command_run;
extern const struct tdm__command tdm__command_plan;
extern const struct tdm__command tdm__command_env;
extern const struct tdm__command tdm__command_info;
extern const struct tdm__command tdm__command_kill;
extern const struct tdm__command tdm__command_list;
extern const struct tdm__command tdm__command_logs;
extern const struct tdm__command tdm__command_python;
extern const struct tdm__command tdm__command_status;
extern const struct tdm__command tdm__command_timeline;
extern const struct tdm__command tdm__command_top;
extern const struct tdm__command tdm__command_version;

/* Runs the program tandem: finds the command of argv[1] and runs it, or prints help or an error.
 * Returns the exit code. */
int tdm__command_main(const struct tdm__command *const *commands, uint32_t commands_count, int argc,
                      char **argv);

/* Returns whether a word from argv[first] on requests help. */
bool tdm__arguments_ask_for_help(int argc, char **argv, int first);
/* Parses the words from argv[first] on into the options of `command` and the operands. `arg` is
 * passed to receive_option(). Returns TDM__EXIT_SUCCESS, or prints the error and returns
 * TDM__EXIT_USAGE. */
int tdm__arguments_parse(const struct tdm__command *command, int argc, char **argv, int first,
                         void *arg, struct tdm__parsed_arguments *args);
/* Returns the value of a parsed option, or NULL if the option is absent. */
const char *tdm__option_value(const struct tdm__parsed_arguments *args, const char *name);
/* Prints "tandem: ..." with the detail of a failed status, and returns the exit code. */
int tdm__command_failed(tdm_status status);
/* Prints an error in the arguments of `command` (NULL for tandem itself) and where to read about
 * them. Returns the exit code. */
__attribute__((format(printf, 2, 3))) int tdm__refuse_arguments(const char *command,
                                                                const char *format, ...);

#endif
