/* command.h - the commands of tandem, and the parser of their command lines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_COMMAND_H
#define TDM_CLI_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

enum {
    TDM__EXIT_SUCCESS = 0, /* Exit code of a command that succeeded. */
    TDM__EXIT_FAILED = 1,  /* Exit code of a command whose work failed. */
    TDM__EXIT_USAGE = 2    /* Exit code of a command whose command line was wrong. */
};

/* An option of a command: a word that begins with "--". */
struct tdm__option {
    const char *name; /* Name of the option with its dashes; NULL ends a table of options. */
    bool takes_value; /* Whether a value follows the option, as the next word or behind "=". */
    /* Result of parsing: the option's value, or its name if it takes no value; NULL if the option
     * is absent. Borrowed from argv. */
    const char *value;
};

/* Largest number of operands (words that are not options) of a command line. */
enum { TDM__ARGUMENTS_MAX = 64 };

/* A parsed command line. */
struct tdm__parsed_arguments {
    struct tdm__option *options; /* Options of the command, with their parsed values (borrowed). */
    /* Words of the command line that are not options, in their order (borrowed from argv). */
    const char *operands[TDM__ARGUMENTS_MAX];
    uint32_t operands_count; /* Number of entries in `operands`. */
};

/* One command of tandem, or the whole command line of another program. */
struct tdm__command {
    /* Program of which this is the whole command line, such as "tandemd"; NULL for a command of
     * tandem. */
    const char *program;
    const char *name;    /* Word that selects the command, such as "list". */
    const char *summary; /* Description of the command in one line, for `tandem --help`. */
    /* Text of the command's --help, with lines of at most 80 columns. */
    const char *help;
    struct tdm__option *options; /* Table of the command's options, which parsing fills in. */
    /* Smallest allowed number of operands, which are words that are not options. */
    uint32_t operands_min;
    uint32_t operands_max; /* Largest allowed number of operands. */
    /* Runs the command and returns its exit code. NULL if `run_words` is set. */
    int (*run)(const struct tdm__parsed_arguments *args);
    /* Runs a command whose words are meant for another program: receives all words behind the name
     * of the command, unparsed. NULL for all other commands. */
    int (*run_words)(int words_count, char **words);
    /* Callback for each parsed option, with its index in `options`. It prints the problem and
     * returns false to refuse the value. NULL if the last value of each option is sufficient. */
    bool (*receive_option)(void *arg, uint32_t index, const char *value);
};

extern const struct tdm__command tdm__command_run;
extern const struct tdm__command tdm__command_plan;
extern const struct tdm__command tdm__command_env;
extern const struct tdm__command tdm__command_info;
extern const struct tdm__command tdm__command_job;
extern const struct tdm__command tdm__command_kill;
extern const struct tdm__command tdm__command_launch;
extern const struct tdm__command tdm__command_list;
extern const struct tdm__command tdm__command_logs;
extern const struct tdm__command tdm__command_python;
extern const struct tdm__command tdm__command_ray;
extern const struct tdm__command tdm__command_redis_functions;
extern const struct tdm__command tdm__command_start;
extern const struct tdm__command tdm__command_status;
extern const struct tdm__command tdm__command_stop;
extern const struct tdm__command tdm__command_timeline;
extern const struct tdm__command tdm__command_top;
extern const struct tdm__command tdm__command_version;

/* Runs the program tandem: finds the command of argv[1] and runs it, or prints help or an error.
 * Returns the exit code. */
int tdm__command_main(const struct tdm__command *const *commands, uint32_t commands_count, int argc,
                      char **argv);

/* Returns whether a word of the command line, from argv[first] on, requests help. */
bool tdm__arguments_ask_for_help(int argc, char **argv, int first);
/* Parses the words from argv[first] on into the options of `command` and the operands. `arg` is
 * passed to receive_option(). Returns TDM__EXIT_SUCCESS, or prints the error and returns
 * TDM__EXIT_USAGE. */
int tdm__arguments_parse(const struct tdm__command *command, int argc, char **argv, int first,
                         void *arg, struct tdm__parsed_arguments *args);
/* Returns the value of the option `name`, or NULL if the command line does not contain the
 * option. */
const char *tdm__option_value(const struct tdm__parsed_arguments *args, const char *name);
/* Sets the value of the option `name`, which the command has; `value` is borrowed. */
void tdm__option_set(const struct tdm__parsed_arguments *args, const char *name, const char *value);
/* Prints "tandem: " and the error text of a failed status, and returns the exit code. */
int tdm__command_failed(tdm_status status);
/* Prints an error in the arguments of `command` (NULL for tandem itself) and where to read about
 * them. Returns the exit code. */
__attribute__((format(printf, 2, 3))) int tdm__refuse_arguments(const char *command,
                                                                const char *format, ...);

#endif
