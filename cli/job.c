/* job.c - `tandem job` and `ray job`: submits commands to a node, and finds and stops them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The first word behind "job" selects a subcommand from the table `subcommands`; each has a table
 * of options of its own. A daemon runs the jobs (actors/daemon/job_service.h). The same code serves
 * `tandem job` and `ray job`; enum cli_job_style has the differences. The subcommand `scale`, which
 * is for jobs of `tandem run`, is in job_scale.c. There is one thread. */
#include "cli/job.h"

#include "cli/command.h"
#include "cli/job_client.h"
#include "cli/job_output.h"
#include "cli/job_scale.h"
#include "cli/runtime_env.h"
#include "cli/table.h"
#include "runtime/error.h"
#include "runtime/text.h"

#include <jansson.h>
#include <openssl/rand.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

/* Text of `tandem job --help`. */
static const char help[] =
    "usage: tandem job submit [options] [--] COMMAND [ARGUMENT ...]\n"
    "       tandem job status|stop ID [--no-wait] [--address ADDRESS]\n"
    "       tandem job logs ID [--follow] [--address ADDRESS]\n"
    "       tandem job list [--json] [--address ADDRESS]\n"
    "       tandem job scale [JOB] engines=N [--timeout SECONDS] [--no-wait]\n\n"
    "Runs commands on a node, in the directory in which the node was started, and\n"
    "prints their output. A job continues when `submit` is interrupted; it ends\n"
    "with everything that it has started. `tandem job submit` exits with the\n"
    "status of the command, 128 + N if signal N has killed it; `ray job submit`\n"
    "exits with 1 if the command has failed.\n\n"
    "  --address ADDRESS       of a node: http://HOST:8265, HOST:PORT or unix:/path;\n"
    "                          default: RAY_API_SERVER_ADDRESS, RAY_ADDRESS,\n"
    "                          TANDEM_ADDRESS, else the only node here\n"
    "  --runtime-env-json JSON runtime environment of the job: env_vars, working_dir,\n"
    "                          py_executable (of its actors)\n"
    "  --runtime-env FILE      the same in a YAML file\n"
    "  --working-dir DIR       in which the command runs\n"
    "  --submission-id ID      of the job (a random one)\n"
    "  --no-wait               do not wait for the end of the job\n"
    "  --follow, -f            print the output until the job ends\n\n"
    "`scale` gives a job that `tandem run` runs in this cluster another number of\n"
    "engines, and waits until all of them serve. JOB is its update.model, and may be\n"
    "left out if one job runs. The engines need GPUs of their own\n"
    "(engine.colocate: false).\n\n"
    "  --timeout SECONDS       how long to wait; default: 300. The request stays\n";

enum {
    SHELL_COMMAND_BYTES = 128 << 10, /* Capacity of the command as text for a shell. */
    STOP_POLL_MS = 50,               /* Time between two questions whether a job has stopped. */
    TIME_BYTES = 32                  /* Capacity of a time as text. */
};

/* One call of `tandem job` or `ray job`. */
struct job_call {
    enum cli_job_style style;          /* Which program the user has called. */
    const char *program;               /* Name of that program, for messages; static. */
    FILE *notices;                     /* Where notices that are no output of a job go. */
    struct tdm__parsed_arguments args; /* Options and operands of the subcommand. */
    char **command;                    /* Words of the command to submit; borrowed from argv. */
    int command_count;                 /* Number of words in `command`. */
};

/* A subcommand of `tandem job`. */
struct subcommand {
    struct tdm__command words; /* Name and options, for the parser of command lines. */
    bool takes_command;        /* Whether the words behind the options are a command to submit. */
    int (*run)(struct job_call *call); /* Runs the subcommand and returns the exit code. */
};

/* Closes the connection and returns the exit code. Prints the error first if `status` is a failure,
 * because closing the connection may replace its text. */
static int close_client(struct cli_job_client *client, tdm_status status)
{
    int code = status == TDM_OK ? TDM__EXIT_SUCCESS : tdm__command_failed(status);

    cli_job_client_close(client);
    return code;
}

/* ---- submit ------------------------------------------------------------------------------ */

/* Options of every subcommand. Those behind --address are Ray's, and change nothing here. */
#define COMMON_OPTIONS                                                                             \
    {"--address", true, NULL}, {"--headers", true, NULL}, {"--verify", true, NULL},                \
        {"--log-style", true, NULL}, {"--log-color", true, NULL}, {"--verbose", false, NULL},      \
    {                                                                                              \
        "-v", false, NULL                                                                          \
    }

static struct tdm__option submit_options[] = {COMMON_OPTIONS,
                                              {"--runtime-env-json", true, NULL},
                                              {"--runtime-env", true, NULL},
                                              {"--working-dir", true, NULL},
                                              {"--submission-id", true, NULL},
                                              {"--job-id", true, NULL},
                                              {"--no-wait", false, NULL},
                                              {"--entrypoint-num-cpus", true, NULL},
                                              {"--entrypoint-num-gpus", true, NULL},
                                              {"--entrypoint-memory", true, NULL},
                                              {"--entrypoint-resources", true, NULL},
                                              {"--entrypoint-label-selector", true, NULL},
                                              {"--metadata-json", true, NULL},
                                              {NULL, false, NULL}};

/* Returns whether an option of `submit` is Ray's and asks for something that Tandem does not do. */
static bool option_has_no_effect(const char *name)
{
    return strncmp(name, "--entrypoint-", strlen("--entrypoint-")) == 0 ||
           strcmp(name, "--metadata-json") == 0;
}

/* Warns once about all options of Ray that were given and have no effect. */
static void warn_about_ignored_options(void)
{
    char names[512] = "";
    struct tdm__text text = tdm__text_init(names, sizeof(names));

    for (const struct tdm__option *option = submit_options; option->name != NULL; option++) {
        if (option->value != NULL && option_has_no_effect(option->name)) {
            tdm__text_add(&text, "%s%s", names[0] == '\0' ? "" : ", ", option->name);
        }
    }
    if (names[0] != '\0') {
        (void)fprintf(
            stderr,
            "tandem: warning: options ignored, because Tandem does not have the feature: %s\n",
            names);
    }
}

/* Appends one word to a command line, quoted for the shell if necessary. */
static void add_shell_word(struct tdm__text *line, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "@%+=:,./-_";

    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        tdm__text_add(line, "%s", word);
        return;
    }
    tdm__text_add(line, "'");
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            tdm__text_add(line, "'\"'\"'");
        } else {
            tdm__text_add(line, "%c", *word);
        }
    }
    tdm__text_add(line, "'");
}

/* Writes the words of the command as one line for a shell, in which each word stays one word. */
static tdm_status shell_command_write(const struct job_call *call, char *line, size_t line_bytes)
{
    struct tdm__text text = tdm__text_init(line, line_bytes);

    for (int i = 0; i < call->command_count; i++) {
        tdm__text_add(&text, "%s", i == 0 ? "" : " ");
        add_shell_word(&text, call->command[i]);
    }
    return text.length + 1 >= line_bytes ? tdm__fail(TDM_E_LIMIT,
                                                     "submitting the job failed: the command has "
                                                     "more than %zu bytes. Put it into a script",
                                                     line_bytes - 2)
                                         : TDM_OK;
}

/* Writes the submission id that the user has chosen, or a random one in Ray's form. */
static tdm_status submission_id_write(const struct job_call *call, char *id, size_t id_bytes)
{
    static const char digits[] = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ123456789";
    const char *chosen = tdm__option_value(&call->args, "--submission-id");
    struct tdm__text text = tdm__text_init(id, id_bytes);
    unsigned char random[16];

    chosen = chosen == NULL ? tdm__option_value(&call->args, "--job-id") : chosen;
    if (chosen != NULL) {
        tdm__text_add(&text, "%s", chosen);
        return TDM_OK;
    }
    if (RAND_bytes(random, sizeof(random)) != 1) {
        return tdm__fail(TDM_E_IO, "choosing a submission id failed: the system gave no random "
                                   "bytes. Give one by --submission-id");
    }
    tdm__text_add(&text, "raysubmit_");
    for (size_t i = 0; i < sizeof(random); i++) {
        tdm__text_add(&text, "%c", digits[random[i] % (sizeof(digits) - 1)]);
    }
    return TDM_OK;
}

/* Returns one setting of a job's environment, for the list of a message. */
static void get_setting(const void *arg, uint32_t index, void *item_out)
{
    char *const *settings = arg;

    *(const char **)item_out = settings[index];
}

/* Submits a job with its runtime environment, and stores its state. */
static tdm_status submit_with(struct cli_job_client *client, const char *id, const char *command,
                              const struct cli_runtime_env *env, struct cli_job_end *end_out)
{
    const struct tdm__job_submit_message request = {
        .submission_id = id,
        .command = command,
        .working_directory = env->working_directory,
        .environment = {
            .count = env->environment.count, .get = get_setting, .arg = env->environment.settings}};
    struct tdm__job_description_message job;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(
        cli_job_client_call(client, "job.submit", tdm__job_submit_table(), &request, &document));
    status = tdm__job_description_decode(tdm_document_root(document), &job);
    if (status == TDM_OK) {
        cli_job_end_copy(&job, end_out);
    }
    tdm_document_destroy(document);
    return status;
}

/* Reads the runtime environment and submits the job. */
static tdm_status submit(const struct job_call *call, struct cli_job_client *client, const char *id,
                         struct cli_job_end *end_out)
{
    const struct cli_runtime_env_options options = {
        .json = tdm__option_value(&call->args, "--runtime-env-json"),
        .file = tdm__option_value(&call->args, "--runtime-env"),
        .working_directory = tdm__option_value(&call->args, "--working-dir"),
        .submission_id = id};
    static char command[SHELL_COMMAND_BYTES];
    struct cli_runtime_env env;
    tdm_status status;

    TDM_TRY(shell_command_write(call, command, sizeof(command)));
    status = cli_runtime_env_read(&options, &env);
    if (status == TDM_OK) {
        status = cli_job_client_open(tdm__option_value(&call->args, "--address"), client);
    }
    if (status == TDM_OK) {
        status = submit_with(client, id, command, &env, end_out);
    }
    tdm__environment_clear(&env.environment);
    return status;
}

/* Prints the state of a job. */
static void print_state(const struct job_call *call, const char *id, const struct cli_job_end *end)
{
    if (strcmp(end->state, "SUCCEEDED") == 0) {
        (void)fprintf(call->notices, "Job '%s' succeeded\n", id);
    } else if (strcmp(end->state, "STOPPED") == 0) {
        (void)fprintf(call->notices, "Job '%s' was stopped\n", id);
    } else if (strcmp(end->state, "FAILED") == 0) {
        (void)fprintf(call->notices, "Job '%s' failed\n", id);
    } else {
        (void)fprintf(call->notices, "Status for job '%s': %s\n", id, end->state);
    }
    if (end->message[0] != '\0') {
        (void)fprintf(call->notices, "Status message: %s\n", end->message);
    }
    (void)fflush(call->notices);
}

/* Returns the exit code of `submit` after the end of the job. */
static int exit_code_of(enum cli_job_style style, const struct cli_job_end *end)
{
    bool failed = strcmp(end->state, "FAILED") == 0;

    if (style == CLI_JOB_RAY || end->pid == 0) {
        return failed ? TDM__EXIT_FAILED : TDM__EXIT_SUCCESS;
    }
    return WIFSIGNALED(end->wait_status) ? 128 + WTERMSIG(end->wait_status)
                                         : WEXITSTATUS(end->wait_status);
}

/* Prints the output of a submitted job until its end, and returns the exit code. */
static int submit_follow(const struct job_call *call, struct cli_job_client *client, const char *id)
{
    struct cli_job_end end;
    tdm_status status;

    cli_job_output_catch_interrupt();
    status = cli_job_output_print(client, id, true, &end);
    if (status == TDM_E_CANCELED) {
        (void)fprintf(call->notices, "\nJob '%s' continues to run. To stop it: %s job stop %s\n",
                      id, call->program, id);
        return call->style == CLI_JOB_RAY ? TDM__EXIT_FAILED : 128 + SIGINT;
    }
    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    print_state(call, id, &end);
    return exit_code_of(call->style, &end);
}

/* Runs `tandem job submit`. */
static int submit_run(struct job_call *call)
{
    struct cli_job_client client = {.loop = NULL};
    struct cli_job_end end;
    char id[256];
    tdm_status status;
    int code;

    warn_about_ignored_options();
    status = submission_id_write(call, id, sizeof(id));
    if (status == TDM_OK) {
        status = submit(call, &client, id, &end);
    }
    if (status != TDM_OK) {
        return close_client(&client, status);
    }
    (void)fprintf(call->notices,
                  "Job '%s' submitted successfully\n"
                  "  its output:  %s job logs %s\n"
                  "  its status:  %s job status %s\n"
                  "  to stop it:  %s job stop %s\n",
                  id, call->program, id, call->program, id, call->program, id);
    (void)fflush(call->notices);
    if (end.has_ended && end.pid == 0) { /* The command could not be started. */
        print_state(call, id, &end);
        code = TDM__EXIT_FAILED;
    } else if (tdm__option_value(&call->args, "--no-wait") != NULL) {
        code = TDM__EXIT_SUCCESS;
    } else {
        code = submit_follow(call, &client, id);
    }
    cli_job_client_close(&client);
    return code;
}

/* ---- the other subcommands --------------------------------------------------------------- */

static struct tdm__option status_options[] = {COMMON_OPTIONS, {NULL, false, NULL}};
static struct tdm__option stop_options[] = {
    COMMON_OPTIONS, {"--no-wait", false, NULL}, {NULL, false, NULL}};
static struct tdm__option logs_options[] = {
    COMMON_OPTIONS, {"--follow", false, NULL}, {"-f", false, NULL}, {NULL, false, NULL}};
static struct tdm__option list_options[] = {
    COMMON_OPTIONS, {"--json", false, NULL}, {NULL, false, NULL}};

/* Runs `tandem job status`. */
static int status_run(struct job_call *call)
{
    struct cli_job_client client;
    struct cli_job_end end;
    tdm_status status = cli_job_client_open(tdm__option_value(&call->args, "--address"), &client);

    call->notices = stdout; /* The state is what the user has asked for. */
    if (status == TDM_OK) {
        status = cli_job_client_query(&client, "job.describe", call->args.operands[0], &end);
    }
    if (status == TDM_OK) {
        print_state(call, call->args.operands[0], &end);
    }
    return close_client(&client, status);
}

/* Stops a job and, unless --no-wait is given, waits for its end. */
static tdm_status stop(const struct job_call *call, struct cli_job_client *client,
                       struct cli_job_end *end_out)
{
    const char *id = call->args.operands[0];

    TDM_TRY(cli_job_client_query(client, "job.stop", id, end_out));
    while (!end_out->has_ended && tdm__option_value(&call->args, "--no-wait") == NULL) {
        (void)poll(NULL, 0, STOP_POLL_MS);
        TDM_TRY(cli_job_client_query(client, "job.describe", id, end_out));
    }
    return TDM_OK;
}

/* Runs `tandem job stop`. */
static int stop_run(struct job_call *call)
{
    struct cli_job_client client;
    struct cli_job_end end;
    tdm_status status = cli_job_client_open(tdm__option_value(&call->args, "--address"), &client);

    call->notices = stdout;
    if (status == TDM_OK) {
        status = stop(call, &client, &end);
    }
    if (status == TDM_OK && end.has_ended) {
        print_state(call, call->args.operands[0], &end);
    } else if (status == TDM_OK) {
        (void)printf("Job '%s' is being stopped\n", call->args.operands[0]);
    }
    return close_client(&client, status);
}

/* Runs `tandem job logs`. */
static int logs_run(struct job_call *call)
{
    bool follow = tdm__option_value(&call->args, "--follow") != NULL ||
                  tdm__option_value(&call->args, "-f") != NULL;
    struct cli_job_client client;
    struct cli_job_end end;
    tdm_status status = cli_job_client_open(tdm__option_value(&call->args, "--address"), &client);

    if (status == TDM_OK) {
        status = cli_job_output_print(&client, call->args.operands[0], follow, &end);
    }
    if (status == TDM_OK && follow) {
        print_state(call, call->args.operands[0], &end);
    }
    return close_client(&client, status);
}

/* Writes a time of day in milliseconds since 1970 as local time; "" for 0. */
static const char *time_text(int64_t time_ms, char text[TIME_BYTES])
{
    time_t seconds = (time_t)(time_ms / 1000);
    struct tm parts;

    text[0] = '\0';
    if (time_ms != 0 && localtime_r(&seconds, &parts) != NULL) {
        (void)strftime(text, TIME_BYTES, "%Y-%m-%d %H:%M:%S", &parts);
    }
    return text;
}

/* Returns a job as a JSON object, with Ray's names of the fields; the caller releases it. */
static json_t *job_json(const struct tdm__job_description_message *job)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:s}", "submission_id",
                     job->submission_id, "entrypoint", job->command, "status", job->state,
                     "message", job->message, "start_time", (json_int_t)job->submitted_ms,
                     "end_time", (json_int_t)job->ended_ms, "pid", (json_int_t)job->pid, "log_path",
                     job->log_path);
}

/* Prints the jobs of a list as a table, or as JSON. */
static tdm_status print_list(const struct tdm__job_list_message *list, bool as_json)
{
    static const char *const titles[] = {"SUBMISSION_ID", "STATUS",  "SUBMITTED",
                                         "ENDED",         "COMMAND", NULL};
    json_t *array = json_array();
    struct tdm__table *table;
    char time[TIME_BYTES];

    TDM_TRY(tdm__table_create(titles, &table));
    for (uint32_t i = 0; i < list->jobs.count; i++) {
        struct tdm__job_description_message job;

        tdm__message_list_read(&list->jobs, i, &job, sizeof(job));
        (void)json_array_append_new(array, job_json(&job));
        tdm__table_add(table, "%s", job.submission_id);
        tdm__table_add(table, "%s", job.state);
        tdm__table_add(table, "%s", time_text(job.submitted_ms, time));
        tdm__table_add(table, "%s", time_text(job.ended_ms, time));
        tdm__table_add(table, "%s", job.command);
    }
    tdm__table_print(table, as_json ? NULL : stdout);
    if (as_json) {
        (void)json_dumpf(array, stdout, JSON_INDENT(2));
        (void)putchar('\n');
    }
    json_decref(array);
    return TDM_OK;
}

/* Runs `tandem job scale`, which Ray does not have. */
static int scale_run(struct job_call *call)
{
    return call->style == CLI_JOB_RAY
               ? tdm__refuse_arguments("job", "scale is a subcommand of `tandem job`, not of "
                                              "`ray job`")
               : cli_job_scale_run(&call->args);
}

/* Runs `tandem job list`. */
static int list_run(struct job_call *call)
{
    const struct tdm__job_query_message request = {.submission_id = ""};
    struct tdm__job_list_message list;
    struct cli_job_client client;
    tdm_document *document = NULL;
    tdm_status status = cli_job_client_open(tdm__option_value(&call->args, "--address"), &client);

    if (status == TDM_OK) {
        status =
            cli_job_client_call(&client, "job.list", tdm__job_query_table(), &request, &document);
    }
    if (status == TDM_OK) {
        status = tdm__job_list_decode(tdm_document_root(document), &list);
    }
    if (status == TDM_OK) {
        status = print_list(&list, tdm__option_value(&call->args, "--json") != NULL);
    }
    tdm_document_destroy(document);
    return close_client(&client, status);
}

/* ---- the command line -------------------------------------------------------------------- */

/* All subcommands; the last one has no name. */
static const struct subcommand subcommands[] = {
    {{.name = "job submit", .help = help, .options = submit_options}, true, submit_run},
    {{.name = "job status",
      .help = help,
      .options = status_options,
      .operands_min = 1,
      .operands_max = 1},
     false,
     status_run},
    {{.name = "job logs",
      .help = help,
      .options = logs_options,
      .operands_min = 1,
      .operands_max = 1},
     false,
     logs_run},
    {{.name = "job stop",
      .help = help,
      .options = stop_options,
      .operands_min = 1,
      .operands_max = 1},
     false,
     stop_run},
    {{.name = "job list", .help = help, .options = list_options}, false, list_run},
    {{.name = "job scale",
      .help = help,
      .options = cli_job_scale_options,
      .operands_min = 1,
      .operands_max = 2},
     false,
     scale_run},
    {{.name = NULL}, false, NULL}};

/* Returns the index of the first word that is neither an option nor its value: there the command to
 * submit begins. */
static int find_command(const struct tdm__command *command, int words_count, char **words)
{
    for (int i = 0; i < words_count; i++) {
        const struct tdm__option *option = command->options;

        if (words[i][0] != '-' || strcmp(words[i], "--") == 0) {
            return i;
        }
        while (option->name != NULL && strcmp(option->name, words[i]) != 0) {
            option++;
        }
        if (option->name != NULL && option->takes_value) {
            i++;
        }
    }
    return words_count;
}

/* Parses the words of a subcommand and runs it. Returns the exit code. */
static int run_subcommand(const struct subcommand *subcommand, struct job_call *call,
                          int words_count, char **words)
{
    int parsed_count = words_count;
    int code;

    if (subcommand->takes_command) {
        parsed_count = find_command(&subcommand->words, words_count, words);
        call->command = words + parsed_count;
        call->command_count = words_count - parsed_count;
        if (call->command_count > 0 && strcmp(call->command[0], "--") == 0) {
            call->command++;
            call->command_count--;
        }
    }
    if (tdm__arguments_ask_for_help(parsed_count, words, 0)) {
        (void)fputs(help, stdout);
        return TDM__EXIT_SUCCESS;
    }
    call->args.options = subcommand->words.options;
    code = tdm__arguments_parse(&subcommand->words, parsed_count, words, 0, NULL, &call->args);
    if (code != TDM__EXIT_SUCCESS) {
        return code;
    }
    if (subcommand->takes_command && call->command_count == 0) {
        return tdm__refuse_arguments("job", "a command is missing: %s job submit -- COMMAND",
                                     call->program);
    }
    return subcommand->run(call);
}

int cli_job_run(enum cli_job_style style, int words_count, char **words)
{
    struct job_call call = {.style = style,
                            .program = style == CLI_JOB_RAY ? "ray" : "tandem",
                            .notices = style == CLI_JOB_RAY ? stdout : stderr};

    if (words_count == 0) {
        return tdm__refuse_arguments("job", "a subcommand is missing: submit, status, logs, stop, "
                                            "list or scale");
    }
    if (tdm__arguments_ask_for_help(1, words, 0)) {
        (void)fputs(help, stdout);
        return TDM__EXIT_SUCCESS;
    }
    for (const struct subcommand *subcommand = subcommands; subcommand->words.name != NULL;
         subcommand++) {
        if (strcmp(subcommand->words.name + strlen("job "), words[0]) == 0) {
            return run_subcommand(subcommand, &call, words_count - 1, words + 1);
        }
    }
    return tdm__refuse_arguments("job",
                                 "unknown subcommand \"%s\"; there are submit, status, logs, stop, "
                                 "list and scale",
                                 words[0]);
}

/* Runs `tandem job`. */
static int job_main(int words_count, char **words)
{
    return cli_job_run(CLI_JOB_TANDEM, words_count, words);
}

static struct tdm__option no_options[] = {{NULL, false, NULL}};

const struct tdm__command tdm__command_job = {.name = "job",
                                              .summary = "run commands on a node",
                                              .help = help,
                                              .options = no_options,
                                              .run_words = job_main};
