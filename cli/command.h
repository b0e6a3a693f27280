/* command.h - the args of `tandem`: one table entry, one file each. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_COMMAND_H
#define TDM_CLI_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* What every command exits with. */
enum { TDM__EXIT_SUCCESS = 0, TDM__EXIT_FAILED = 1, TDM__EXIT_USAGE = 2 };

/* A word that begins with "--".  `value`: the next word, or what follows "=". */
struct tdm__option {
    const char *name; /* with the dashes; NULL ends a table */
    bool takes_value;
    const char *value; /* set by parsing: the value, or the name itself; borrowed from argv */
};

enum { TDM__ARGUMENTS_MAX = 64 };

/* The args of one call, sorted into options and the operands. */
struct tdm__parsed_arguments {
    struct tdm__option *options;
    const char *operands[TDM__ARGUMENTS_MAX];
    uint32_t operands_count;
};

struct tdm__command {
    /* The program whose whole command line this is, such as "tandemd".  NULL: a command of
     * tandem. */
    const char *program;
    const char *name;
    const char *summary; /* one line of `tandem --help` */
    const char *help;    /* lines of at most 80 columns */
    struct tdm__option *options;
    uint32_t operands_min; /* args besides options */
    uint32_t operands_max;
    int (*run)(const struct tdm__parsed_arguments *args); /* returns the exit code */
    /* Receives each option as it is read, in the order of the args, with its index in
     * `options`.  Prints what is wrong and returns false to refuse it.  NULL: the last value of
     * each option counts. */
    bool (*take)(void *arg, uint32_t index, const char *value);
};

extern const struct tdm__command tdm__command_run;
extern const struct tdm__command tdm__command_plan;
extern const struct tdm__command tdm__command_info;
extern const struct tdm__command tdm__command_kill;
extern const struct tdm__command tdm__command_list;
extern const struct tdm__command tdm__command_logs;
extern const struct tdm__command tdm__command_status;
extern const struct tdm__command tdm__command_timeline;
extern const struct tdm__command tdm__command_top;
extern const struct tdm__command tdm__command_version;

/* Finds the command of argv[1], prints help or what is wrong with the args, or runs it. */
int tdm__command_main(const struct tdm__command *const *commands, uint32_t commands_count, int argc,
                      char **argv);

/* Does a word from argv[first] on ask for help? */
bool tdm__words_ask_for_help(int argc, char **argv, int first);
/* Sorts the args from argv[first] on into the options of `command` and the operands, and passes
 * `arg` to take().  Returns TDM__EXIT_SUCCESS, or prints what is wrong and returns
 * TDM__EXIT_USAGE. */
int tdm__words_sort(const struct tdm__command *command, int argc, char **argv, int first, void *arg,
                    struct tdm__parsed_arguments *args);
/* The value of a parsed option, NULL where it was not said. */
const char *tdm__option_value(const struct tdm__parsed_arguments *args, const char *name);
/* Prints "tandem: …" for a failed status and gives the exit code. */
int tdm__command_failed(tdm_status status);
/* Prints "tandem: …" for args that `command` (NULL: none) does not take, and where to read
 * about them; gives the exit code. */
__attribute__((format(printf, 2, 3))) int tdm__refuse_arguments(const char *command,
                                                                const char *format, ...);

#endif
