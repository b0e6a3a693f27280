/* ray.c - `tandem ray`: Ray's commands start, stop, status and job, for launch scripts. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each command has a table of Ray's options. An option is passed on to the command of Tandem, is
 * accepted silently because it changes nothing that a program can see, or is ignored with a
 * warning. A short option of Ray stands for a long one. The words that are passed on are parsed by
 * the command's own table, so that values are checked in one place. `ray job` has the same options
 * as `tandem job` (job.c). */
#include "cli/command.h"
#include "cli/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What becomes of an option of Ray. */
enum treatment {
    OPTION_PASS,   /* The option is passed on to the command of Tandem. */
    OPTION_ACCEPT, /* The option is accepted silently. */
    OPTION_WARN    /* The option is ignored with a warning. */
};

/* An option of one of Ray's commands. */
struct ray_option {
    const char *name; /* Name of the option with its dashes; NULL ends a table. */
    bool takes_value; /* Whether a value follows the option, as the next word or behind "=". */
    enum treatment treatment; /* What becomes of the option. */
    const char *name_here;    /* Name under which the option is passed on; NULL for the same. */
};

/* One of Ray's commands. */
struct ray_command {
    const struct tdm__command *command; /* Command of Tandem that does the work. */
    const struct ray_option *options;   /* Table of Ray's options. */
};

static const struct ray_option start_options[] = {
    {"--head", false, OPTION_PASS, NULL},
    {"--block", false, OPTION_PASS, NULL},
    {"--address", true, OPTION_PASS, NULL},
    {"--port", true, OPTION_PASS, NULL},
    {"--node-ip-address", true, OPTION_PASS, NULL},
    {"--node-name", true, OPTION_PASS, NULL},
    {"--num-cpus", true, OPTION_PASS, NULL},
    {"--num-gpus", true, OPTION_PASS, NULL},
    {"--resources", true, OPTION_PASS, NULL},
    {"--memory", true, OPTION_PASS, NULL},
    {"--object-store-memory", true, OPTION_PASS, NULL},
    {"--labels", true, OPTION_PASS, NULL},
    {"--disable-usage-stats", false, OPTION_ACCEPT, NULL},
    {"--dashboard-host", true, OPTION_PASS, NULL},
    {"--dashboard-port", true, OPTION_PASS, NULL},
    {"--include-dashboard", true, OPTION_ACCEPT, NULL},
    {"--temp-dir", true, OPTION_ACCEPT, NULL},
    {"--log-style", true, OPTION_ACCEPT, NULL},
    {"--log-color", true, OPTION_ACCEPT, NULL},
    {"--verbose", false, OPTION_ACCEPT, NULL},
    {"-v", false, OPTION_ACCEPT, NULL},
    {"--autoscaling-config", true, OPTION_WARN, NULL},
    {"--cgroup-path", true, OPTION_WARN, NULL},
    {"--dashboard-agent-grpc-port", true, OPTION_WARN, NULL},
    {"--dashboard-agent-listen-port", true, OPTION_WARN, NULL},
    {"--dashboard-grpc-port", true, OPTION_WARN, NULL},
    {"--enable-object-reconstruction", false, OPTION_WARN, NULL},
    {"--enable-resource-isolation", false, OPTION_WARN, NULL},
    {"--include-log-monitor", true, OPTION_WARN, NULL},
    {"--labels-file", true, OPTION_WARN, NULL},
    {"--max-worker-port", true, OPTION_WARN, NULL},
    {"--metrics-export-port", true, OPTION_WARN, NULL},
    {"--min-worker-port", true, OPTION_WARN, NULL},
    {"--no-monitor", false, OPTION_WARN, NULL},
    {"--no-redirect-output", false, OPTION_WARN, NULL},
    {"--node-manager-port", true, OPTION_WARN, NULL},
    {"--object-manager-port", true, OPTION_WARN, NULL},
    {"--object-spilling-directory", true, OPTION_WARN, NULL},
    {"--plasma-directory", true, OPTION_WARN, NULL},
    {"--proxy-server-url", true, OPTION_WARN, NULL},
    {"--ray-client-server-port", true, OPTION_WARN, NULL},
    {"--ray-debugger-external", false, OPTION_WARN, NULL},
    {"--redis-password", true, OPTION_WARN, NULL},
    {"--redis-shard-ports", true, OPTION_WARN, NULL},
    {"--redis-username", true, OPTION_WARN, NULL},
    {"--runtime-env-agent-port", true, OPTION_WARN, NULL},
    {"--system-config", true, OPTION_WARN, NULL},
    {"--system-reserved-cpu", true, OPTION_WARN, NULL},
    {"--system-reserved-memory", true, OPTION_WARN, NULL},
    {"--tracing-startup-hook", true, OPTION_WARN, NULL},
    {"--worker-port-list", true, OPTION_WARN, NULL},
    {NULL, false, OPTION_WARN, NULL}};

static const struct ray_option stop_options[] = {{"--force", false, OPTION_PASS, NULL},
                                                 {"-f", false, OPTION_PASS, "--force"},
                                                 {"--grace-period", true, OPTION_PASS, NULL},
                                                 {"-g", true, OPTION_PASS, "--grace-period"},
                                                 {"--log-style", true, OPTION_ACCEPT, NULL},
                                                 {"--log-color", true, OPTION_ACCEPT, NULL},
                                                 {"--verbose", false, OPTION_ACCEPT, NULL},
                                                 {"-v", false, OPTION_ACCEPT, NULL},
                                                 {NULL, false, OPTION_WARN, NULL}};

static const struct ray_option status_options[] = {
    {"--address", true, OPTION_PASS, NULL},     {"--log-style", true, OPTION_ACCEPT, NULL},
    {"--log-color", true, OPTION_ACCEPT, NULL}, {"--verbose", false, OPTION_ACCEPT, NULL},
    {"-v", false, OPTION_ACCEPT, NULL},         {NULL, false, OPTION_WARN, NULL}};

static const struct ray_command commands[] = {{&tdm__command_start, start_options},
                                              {&tdm__command_stop, stop_options},
                                              {&tdm__command_status, status_options}};

/* Returns the option at the beginning of `word`, or NULL. `*value_out` is the text behind "=", or
 * NULL. */
static const struct ray_option *find_option(const struct ray_option *options, const char *word,
                                            const char **value_out)
{
    size_t bytes = strcspn(word, "=");

    *value_out = word[bytes] == '=' ? word + bytes + 1 : NULL;
    for (const struct ray_option *option = options; option->name != NULL; option++) {
        if (strlen(option->name) == bytes && strncmp(option->name, word, bytes) == 0) {
            return option;
        }
    }
    return NULL;
}

/* Prints an error as Ray's commands do, and returns the exit code. */
static int refuse(const char *command, const char *what, const char *word)
{
    (void)fprintf(stderr, "Usage: ray %s [OPTIONS]\nTry 'ray %s --help' for help.\n\nError: %s%s\n",
                  command, command, what, word);
    return TDM__EXIT_USAGE;
}

/* The words that are passed on to a command of Tandem. */
struct passed_words {
    char *words[TDM__ARGUMENTS_MAX]; /* The words, borrowed. */
    int count;                       /* Number of entries in `words`. */
};

/* Appends a word that is passed on; more than TDM__ARGUMENTS_MAX words are dropped. */
static void passed_words_add(struct passed_words *passed, const char *word)
{
    if (passed->count < TDM__ARGUMENTS_MAX) {
        passed->words[passed->count++] = (char *)(uintptr_t)word;
    }
}

/* Translates the words of a command of Ray, from words[1] on. Returns the exit code. */
static int translate(const struct ray_command *command, int words_count, char **words,
                     struct passed_words *passed)
{
    const char *name = command->command->name;

    for (int i = 1; i < words_count; i++) {
        const char *value;
        const struct ray_option *option = find_option(command->options, words[i], &value);

        if (option == NULL) {
            return refuse(
                name, words[i][0] == '-' ? "No such option: " : "Unexpected argument: ", words[i]);
        }
        if (option->takes_value && value == NULL && ++i < words_count) {
            value = words[i];
        }
        if (option->takes_value != (value != NULL)) {
            return refuse(name, option->takes_value ? "A value is missing: " : "Takes no value: ",
                          option->name);
        }
        if (option->treatment == OPTION_WARN) {
            (void)fprintf(stderr, "ray %s: warning: %s has no effect on Tandem\n", name,
                          option->name);
        } else if (option->treatment == OPTION_PASS) {
            passed_words_add(passed, option->name_here == NULL ? option->name : option->name_here);
            if (value != NULL) {
                passed_words_add(passed, value);
            }
        }
    }
    return TDM__EXIT_SUCCESS;
}

/* Runs one of Ray's commands. Returns the exit code. */
static int run_ray_command(const struct ray_command *command, int words_count, char **words)
{
    struct tdm__parsed_arguments args = {.options = command->command->options};
    const char *address = getenv("RAY_ADDRESS");
    struct passed_words passed = {.count = 0};
    int code;

    if (tdm__arguments_ask_for_help(words_count, words, 1)) {
        (void)fputs(command->command->help, stdout);
        return TDM__EXIT_SUCCESS;
    }
    code = translate(command, words_count, words, &passed);
    if (code == TDM__EXIT_SUCCESS) {
        code = tdm__arguments_parse(command->command, passed.count, passed.words, 0, NULL, &args);
    }
    if (code != TDM__EXIT_SUCCESS) {
        return code;
    }
    if (command->command == &tdm__command_status && address != NULL && address[0] != '\0' &&
        tdm__option_value(&args, "--address") == NULL) {
        tdm__option_set(&args, "--address", address);
    }
    return command->command->run(&args);
}

/* Runs `tandem ray` and returns the exit code. */
static int ray_main(int words_count, char **words)
{
    if (words_count == 0) {
        return tdm__refuse_arguments("ray", "a command is missing");
    }
    if (strcmp(words[0], "job") == 0) {
        return cli_job_run(CLI_JOB_RAY, words_count - 1, words + 1);
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(commands[i].command->name, words[0]) == 0) {
            return run_ray_command(&commands[i], words_count, words);
        }
    }
    return tdm__refuse_arguments("ray", "no such command: \"%s\"", words[0]);
}

static struct tdm__option no_options[] = {{NULL, false, NULL}};

const struct tdm__command tdm__command_ray = {
    .name = "ray",
    .summary = "Ray's commands start, stop, status and job",
    .help = "usage: tandem ray start|stop|status|job [options]\n\n"
            "The command `ray` of `tandem env` and `tandem python`: `tandem start`,\n"
            "`tandem stop`, `tandem status` and `tandem job` with the options of Ray's commands. "
            "Options\n"
            "without a meaning for Tandem are ignored, most of them with a warning.\n",
    .options = no_options,
    .run_words = ray_main};
