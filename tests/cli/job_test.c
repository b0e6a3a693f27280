/* job_test.c - submits commands to a running node with `tandem job`, and finds and stops them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/job_table.h"
#include "cli/job.h"
#include "runtime/clock.h"
#include "runtime/file.h"
#include "runtime/process/spawn.h"
#include "tests/support/shell_run.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 30000 };

/* The node of the tests: its supervisor, its $TMPDIR, and the address of its job port. */
static pid_t node;
static char temporary[] = "/tmp/job_test.XXXXXX";
static char url[128];

/* Runs a shell command in the $TMPDIR of the node. Returns the exit code, and stores the output in
 * `said`. */
static int shell(const char *command)
{
    return shell_run(temporary, command);
}

#define TANDEM TDM_TEST_BUILD_DIR "/tandem "
/* Submits a job with a chosen id to the job port. */
#define SUBMIT(id) TANDEM "job submit --address=$URL --submission-id " id " "
/* Stops a daemon in the background of a script. */
#define STOP_OTHER "kill $P; wait $P 2>/dev/null; "

/* Waits until the file in the $TMPDIR has a line, and returns the number in that line. */
static pid_t wait_number(const char *name)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);
    char path[256];
    char text[256] = "";

    (void)snprintf(path, sizeof(path), "%s/%s", temporary, name);
    while (!tdm__file_read_text(path, text, sizeof(text)) || strchr(text, '\n') == NULL) {
        assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
        (void)poll(NULL, 0, 5);
    }
    return (pid_t)strtol(text, NULL, 10);
}

/* Asserts that the process does not exist. */
static void expect_gone(pid_t pid)
{
    assert_true(pid > 1);
    assert_true(kill(pid, 0) < 0 && errno == ESRCH);
}

/* Starts a node with a job port at a free port. */
static int start_node(void **state)
{
    static const char script[] =
        "exec " TDM_TEST_BUILD_DIR "/tandemd --gpus 0 --job-address 127.0.0.1:0 >ready 2>&1";
    char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t)script,
                    NULL};
    struct tdm__spawn_options options = {
        .program = "/bin/sh", .argv = argv, .output_fd = -1, .working_directory = temporary};
    struct tdm__process process;

    (void)state;
    (void)unsetenv("TANDEM_TOKEN_FILE");
    (void)unsetenv("TANDEM_ADDRESS");
    (void)unsetenv("RAY_ADDRESS");
    (void)unsetenv("RAY_API_SERVER_ADDRESS");
    if (mkdtemp(temporary) == NULL || setenv("TMPDIR", temporary, 1) < 0 ||
        tdm__spawn(&options, &process) != TDM_OK) {
        return -1;
    }
    node = process.pid;
    tdm__process_forget(&process);
    (void)wait_number("ready");
    if (shell("head -1 tandem-*/job_port | sed s,^tcp:,http://, | tr -d '\\n'") != 0) {
        return -1;
    }
    (void)snprintf(url, sizeof(url), "%.100s", said);
    return setenv("URL", url, 1);
}

/* Stops the node. Returns 0 if nothing is left. */
static int stop_node(void **state)
{
    int status;

    (void)state;
    (void)kill(node, SIGTERM);
    if (waitpid(node, &status, 0) != node || status != 0) {
        return -1;
    }
    return shell("cd /; rm $TMPDIR/*; rmdir $TMPDIR");
}

static void test_output_and_exit_code_are_those_of_the_command(void **state)
{
    (void)state;
    assert_memory_equal(url, "http://127.0.0.1:", 17);
    assert_int_equal(shell(SUBMIT("good") "2>/dev/null -- echo 'two  words' \\; '$HOME'"), 0);
    assert_string_equal(said, "two  words ; $HOME\n");
    assert_int_equal(shell(SUBMIT("three") "-- sh -c 'echo oops >&2; exit 3' 2>&1"), 3);
    assert_non_null(strstr(said, "Job 'three' submitted successfully\n"));
    assert_non_null(strstr(said, "\noops\n"));
    assert_non_null(strstr(said, "Job 'three' failed\n"
                                 "Status message: the command ended with exit code 3\n"));
    assert_int_equal(shell(SUBMIT("killed") "-- sh -c 'kill -9 $$' 2>&1"), 137);
    /* A shell between the supervisor and the command reports the signal as an exit code. */
    assert_true(strstr(said, "the command ended with exit code 137\n") != NULL ||
                strstr(said, "the command ended with signal 9 (killed)\n") != NULL);
    /* The command may follow without "--", and its options are its own. */
    assert_int_equal(shell(SUBMIT("bare") "sh -c 'exit 4' --no-wait"), 4);
    assert_int_equal(shell(TANDEM "job status --address $URL three"), 0);
    assert_memory_equal(said, "Job 'three' failed\n", 19);
    assert_int_equal(shell(TANDEM "job logs three"), 0);
    assert_string_equal(said, "oops\n");
}

/* Ray's command prints everything on stdout, and knows the exit codes 0 and 1 only. */
static void test_ray_exits_with_1_and_prints_the_status(void **state)
{
    char words[][64] = {"submit", "--address", "", "--", "sh", "-c", "exit 3"};
    char *argv[7];
    int status;
    pid_t pid;

    (void)state;
    for (int i = 0; i < 7; i++) {
        argv[i] = words[i];
    }
    (void)snprintf(words[2], sizeof(words[2]), "%.60s", url);
    pid = fork();
    if (pid == 0) {
        char path[256];

        (void)snprintf(path, sizeof(path), "%s/as_ray", temporary);
        if (freopen(path, "w", stdout) == NULL) {
            _exit(99);
        }
        status = cli_job_run(CLI_JOB_RAY, 7, argv);
        (void)fclose(stdout);
        _exit(status);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_int_equal(shell("cat as_ray"), 0);
    assert_memory_equal(said, "Job 'raysubmit_", 15);
    assert_non_null(strstr(said, "' submitted successfully\n"));
    assert_non_null(strstr(said, "to stop it:  ray job stop raysubmit_"));
    assert_non_null(strstr(said, "Status message: the command ended with exit code 3\n"));
}

static void test_environment_and_directory_are_those_of_the_runtime_env(void **state)
{
    json_t *config;

    (void)state;
    assert_int_equal(
        shell("mkdir -p in 'o ut'; cd in; A=outer " SUBMIT(
            "env") "--runtime-env-json '{\"env_vars\": {\"A\": \"a  b\", \"RAY_ADDRESS\": \"x\"},\n"
                   "\t\"working_dir\": \"../o ut\", \"excludes\": [\"x\"]}' -- sh -c "
                   "'pwd; echo \"$A\"; echo $RAY_ADDRESS "
                   "$RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES; "
                   "test \"$RAY_ADDRESS\" = \"$TANDEM_ADDRESS\"; echo "
                   "\"$RAY_JOB_CONFIG_JSON_ENV_VAR\"' "
                   "2>err; cat err | grep ignored"),
        0);
    assert_non_null(strstr(said, "/o ut\na  b\nunix:/"));
    assert_non_null(strstr(said, "/tandemd.sock 1\n{"));
    assert_non_null(strstr(said, "the key \"excludes\" of the runtime environment is ignored"));
    *strchr(strchr(said, '{'), '\n') = '\0';
    config = json_loads(strchr(said, '{'), 0, NULL);
    assert_non_null(config);
    assert_string_equal(json_string_value(json_object_get(json_object_get(config, "metadata"),
                                                          "job_submission_id")),
                        "env");
    assert_string_equal(
        json_string_value(json_object_get(
            json_object_get(json_object_get(config, "runtime_env"), "env_vars"), "A")),
        "a  b");
    json_decref(config);
    /* Without a working directory it is that of the node; --working-dir replaces that of the
     * runtime environment. */
    assert_int_equal(shell("cd in; " SUBMIT("here") "-- pwd 2>/dev/null"), 0);
    assert_null(strstr(said, "/in\n"));
    assert_memory_equal(said, temporary, strlen(temporary));
    assert_int_equal(shell(SUBMIT("there") "--working-dir in --runtime-env-json "
                                           "'{\"working_dir\": \"o ut\"}' -- pwd 2>/dev/null; "
                                           "rm -r in 'o ut'"),
                     0);
    assert_non_null(strstr(said, "/in\n"));
}

static void test_runtime_env_that_cannot_be_honoured_is_refused(void **state)
{
    (void)state;
    assert_int_equal(shell(SUBMIT("pip") "--runtime-env-json '{\"pip\": [\"x\"]}' -- true"), 1);
    assert_non_null(strstr(said, "Tandem does not support the key \"pip\""));
    assert_int_equal(shell(SUBMIT("number") "--runtime-env-json '{\"env_vars\": {\"A\": 1}}' true"),
                     1);
    assert_non_null(strstr(said, "in env_vars, \"A\" needs a text"));
    assert_int_equal(shell(SUBMIT("broken") "--runtime-env-json '{' true"), 1);
    assert_non_null(strstr(said, "reading --runtime-env-json failed: not valid JSON: line 1"));
    assert_int_equal(shell(SUBMIT("nowhere") "--working-dir /no/such true"), 1);
    assert_non_null(strstr(said, "the working directory /no/such is no directory of node"));
    assert_int_equal(shell(SUBMIT("zip") "--working-dir s3://b/x.zip true"), 1);
    assert_non_null(strstr(said, "does not fetch the working directory"));
    /* A YAML file is read, too. */
    assert_int_equal(shell("printf 'working_dir: /\\nenv_vars:\\n  A: \"1\"\\n' >env.yaml; " SUBMIT(
                         "yaml") "--runtime-env env.yaml -- sh -c 'pwd; echo $A' 2>/dev/null"),
                     0);
    assert_string_equal(said, "/\n1\n");
    assert_int_equal(shell(TANDEM "job list --json | grep -c nowhere"), 1);
}

static void test_wrong_command_lines_are_refused(void **state)
{
    (void)state;
    assert_int_equal(shell(TANDEM "job"), 2);
    assert_non_null(strstr(said, "a subcommand is missing"));
    assert_int_equal(shell(TANDEM "job frobnicate"), 2);
    assert_non_null(strstr(said, "unknown subcommand \"frobnicate\""));
    assert_int_equal(shell(TANDEM "job submit --address $URL"), 2);
    assert_non_null(strstr(said, "a command is missing: tandem job submit -- COMMAND"));
    assert_int_equal(shell(TANDEM "job submit --nonsense -- true"), 2);
    assert_non_null(strstr(said, "unknown option \"--nonsense\""));
    assert_int_equal(shell(TANDEM "job status"), 2);
    assert_int_equal(shell(TANDEM "job submit --help"), 0);
    assert_memory_equal(said, "usage: tandem job submit", 24);
    assert_int_equal(shell(TANDEM "job status none"), 1);
    assert_non_null(strstr(said, "job none does not exist on node"));
    assert_int_equal(shell(SUBMIT("a/b") "true"), 1);
    assert_non_null(strstr(said, "the submission id \"a/b\" has a character"));
    assert_int_equal(shell(SUBMIT("twice") "true && " SUBMIT("twice") "true"), 1);
    assert_non_null(strstr(said, "a job with the submission id twice exists"));
    /* Ray's options without an effect are named once. */
    assert_int_equal(
        shell(SUBMIT("cpus") "--entrypoint-num-cpus 1 --metadata-json={} -v --log-style pretty "
                             "--verify=False true"),
        0);
    assert_non_null(
        strstr(said, "does not have the feature: --entrypoint-num-cpus, --metadata-json\n"));
}

/* The output is larger than pipe buffers, and the first reader reads none of it. */
static void test_large_output_waits_for_no_reader(void **state)
{
    (void)state;
    assert_int_equal(shell(SUBMIT("large") "--no-wait -- seq 300000"), 0);
    assert_int_equal(shell("(" TANDEM "job logs large --follow 2>/dev/null | sleep 0.2) & "
                           "until " TANDEM "job status large | grep -q succeeded; do :; done; "
                           "wait; " TANDEM "job logs large --follow 2>/dev/null | md5sum; "
                           "seq 300000 | (cat; echo \"Job 'large' succeeded\") >expected; "
                           "seq 300000 | md5sum; rm expected"),
                     0);
    assert_memory_equal(said, strchr(said, '\n') + 1, 32);
}

static void test_job_reads_an_empty_input(void **state)
{
    (void)state;
    assert_int_equal(shell(SUBMIT("input") "-- wc -c 2>/dev/null"), 0);
    assert_string_equal(said, "0\n");
}

/* The grandchild has a session of its own, and its parent has ended. */
static void test_stop_ends_the_whole_tree(void **state)
{
    (void)state;
    assert_int_equal(shell(SUBMIT("tree") "--no-wait -- sh -c '(setsid sh -c \"echo \\$\\$ >stray; "
                                          "exec sleep 1000\" &); echo $$ >leader; sleep 1000'"),
                     0);
    assert_int_equal(shell(TANDEM "job status tree"), 0);
    assert_string_equal(said, "Status for job 'tree': RUNNING\n");
    (void)wait_number("stray");
    (void)wait_number("leader");
    assert_int_equal(shell(TANDEM "job stop tree"), 0);
    assert_memory_equal(said, "Job 'tree' was stopped\n", 23);
    expect_gone(wait_number("stray"));
    expect_gone(wait_number("leader"));
    /* To stop a job again has no effect. */
    assert_int_equal(shell(TANDEM "job stop tree"), 0);
    assert_memory_equal(said, "Job 'tree' was stopped\n", 23);
}

static void test_job_that_ignores_sigterm_is_killed(void **state)
{
    (void)state;
    assert_int_equal(shell(SUBMIT("stubborn") "--no-wait -- sh -c 'trap \"\" TERM; "
                                              "echo $$ >stubborn; while :; do sleep 0.1; done'"),
                     0);
    (void)wait_number("stubborn");
    assert_int_equal(shell(TANDEM "job stop stubborn --no-wait"), 0);
    assert_string_equal(said, "Job 'stubborn' is being stopped\n");
    assert_int_equal(shell(TANDEM "job stop stubborn"), 0);
    assert_memory_equal(said, "Job 'stubborn' was stopped\n", 27);
    expect_gone(wait_number("stubborn"));
}

/* A supervisor that is killed takes the command with it, and the daemon ends the rest. */
static void test_killed_supervisor_fails_the_job(void **state)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);
    pid_t stray;

    (void)state;
    assert_int_equal(shell(SUBMIT("orphan") "--no-wait -- sh -c '(setsid sh -c \"echo \\$\\$ "
                                            ">orphan; exec sleep 1000\" &); sleep 1000'"),
                     0);
    stray = wait_number("orphan");
    assert_int_equal(shell("kill -9 $(" TANDEM "job list --json | grep -A6 '\"orphan\"' | "
                           "sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p')"),
                     0);
    assert_int_equal(shell(TANDEM "job logs --follow orphan 2>&1"), 0);
    assert_non_null(strstr(said, "Job 'orphan' failed\n"));
    while (kill(stray, 0) == 0) {
        assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
        (void)poll(NULL, 0, 10);
    }
}

static void test_interrupted_submit_leaves_the_job_running(void **state)
{
    (void)state;
    assert_int_equal(
        shell("(trap - INT; exec " SUBMIT(
            "kept") "-- sh -c 'echo $$ >kept; "
                    "sleep 1000' >kept_said 2>&1) & P=$!; "
                    "until test -s kept && grep -q 'its output' kept_said; do sleep 0.01; "
                    "done; sleep 0.1; kill -INT $P; wait $P; echo code $?; cat kept_said"),
        0);
    assert_memory_equal(said, "code 130\n", 9);
    assert_non_null(strstr(said, "Job 'kept' continues to run. To stop it: tandem job stop kept"));
    assert_int_equal(shell(TANDEM "job status kept"), 0);
    assert_string_equal(said, "Status for job 'kept': RUNNING\n");
    assert_int_equal(shell(TANDEM "job stop kept"), 0);
}

static void test_peer_without_the_token_is_refused(void **state)
{
    (void)state;
    assert_int_equal(shell("head -c 32 /dev/zero >zeros; chmod 600 zeros; "
                           "TANDEM_TOKEN_FILE=zeros " SUBMIT("thief") "true"),
                     1);
    assert_non_null(strstr(said, "does not know the cluster's token"));
    assert_non_null(strstr(said, "Set TANDEM_TOKEN_FILE to a copy of its token file"));
    /* Another $TMPDIR is as good as another machine. */
    assert_int_equal(
        shell("mkdir empty; TMPDIR=$PWD/empty " SUBMIT("remote") "true; C=$?; "
                                                                 "rmdir empty; exit $C"),
        1);
    assert_non_null(strstr(said, "no node of yours on this machine accepts jobs at port"));
    assert_int_equal(shell("mkdir empty; TANDEM_TOKEN_FILE=$(echo $PWD/tandem-*/token) "
                           "TMPDIR=$PWD/empty " SUBMIT("known") "true; C=$?; rmdir empty; exit $C"),
                     0);
    assert_int_equal(shell(TANDEM "job list | grep -c -e thief -e remote"), 1);
}

static void test_address_is_understood_or_refused(void **state)
{
    (void)state;
    assert_int_equal(shell("RAY_API_SERVER_ADDRESS=$URL " TANDEM "job list"), 0);
    assert_int_equal(shell("RAY_ADDRESS=${URL#http://} " TANDEM "job list"), 0);
    assert_int_equal(shell(TANDEM "job list --address $URL/"), 0);
    assert_int_equal(shell(TANDEM "job list --address auto"), 0);
    assert_int_equal(shell(TANDEM "job list --address https://127.0.0.1:1"), 1);
    assert_non_null(strstr(said, "Give http://HOST:PORT"));
    assert_int_equal(shell(TANDEM "job list --address http://localhost"), 1);
    assert_non_null(strstr(said, "has no port"));
    assert_int_equal(shell("TANDEM_TOKEN_FILE=$(echo $PWD/tandem-*/token) " TANDEM
                           "job list --address http://127.0.0.1:1"),
                     1);
    assert_non_null(strstr(said, "the node at tcp:127.0.0.1:1 does not reply"));
    assert_non_null(strstr(said, "tandem start --head"));
}

static void test_taken_port_names_the_remedy(void **state)
{
    (void)state;
    assert_int_equal(shell(TDM_TEST_BUILD_DIR "/tandemd --job-address ${URL#http://}"), 1);
    assert_non_null(strstr(said, url + strlen("http://")));
    assert_non_null(strstr(said, "is taken by another process"));
    assert_non_null(strstr(said, "--dashboard-port"));
}

static void test_many_jobs_run_at_once(void **state)
{
    json_t *jobs;
    size_t succeeded = 0;

    (void)state;
    assert_int_equal(shell("for i in $(seq 50); do " TANDEM
                           "job submit --submission-id many$i --no-wait -- sleep 0.5 2>/dev/null "
                           "& [ $((i % 10)) != 0 ] || wait; done; wait"),
                     0);
    assert_int_equal(shell("for i in $(seq 50); do " TANDEM "job logs --follow many$i "
                           "2>/dev/null || exit 1; done; " TANDEM "job list --json"),
                     0);
    jobs = json_loads(said, 0, NULL);
    assert_non_null(jobs);
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        const char *id = json_string_value(json_object_get(job, "submission_id"));

        succeeded += strncmp(id, "many", 4) == 0 &&
                     strcmp(json_string_value(json_object_get(job, "status")), "SUCCEEDED") == 0;
    }
    assert_int_equal(succeeded, 50);
    assert_true(json_array_size(jobs) <= TDM__JOBS_ENDED_MAX);
    json_decref(jobs);
}

/* A daemon that is stopped stops its jobs by SIGTERM; one that is killed takes them with it. */
static void test_jobs_end_with_their_node(void **state)
{
    static const char script[] =
        "rm -f ready2; " TDM_TEST_BUILD_DIR
        "/tandemd --gpus 0 >ready2 2>&1 & P=$!; until grep -q ^ready ready2; do sleep 0.01; done; "
        "A=$(sed 's/ready [0-9]* //' ready2); D=$(sed 's/ready \\([0-9]*\\).*/\\1/' ready2); "
        "rm -f ending; " TANDEM "job submit --address $A --no-wait -- sh -c 'trap \"echo bye >bye; "
        "exit\" TERM; setsid sleep 1000 & echo $! >ending; while :; do sleep 0.01; done'; "
        "until test -s ending; do sleep 0.01; done; ";
    char line[2048];

    (void)state;
    (void)snprintf(line, sizeof(line), "%s" STOP_OTHER, script);
    assert_int_equal(shell(line), 0);
    expect_gone(wait_number("ending"));
    assert_int_equal(shell("cat bye; rm bye"), 0);
    (void)snprintf(line, sizeof(line), "%skill -9 $D; wait $P; test ! -e bye", script);
    assert_int_equal(shell(line), 0);
    expect_gone(wait_number("ending"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_and_exit_code_are_those_of_the_command),
        cmocka_unit_test(test_ray_exits_with_1_and_prints_the_status),
        cmocka_unit_test(test_environment_and_directory_are_those_of_the_runtime_env),
        cmocka_unit_test(test_runtime_env_that_cannot_be_honoured_is_refused),
        cmocka_unit_test(test_wrong_command_lines_are_refused),
        cmocka_unit_test(test_large_output_waits_for_no_reader),
        cmocka_unit_test(test_job_reads_an_empty_input),
        cmocka_unit_test(test_stop_ends_the_whole_tree),
        cmocka_unit_test(test_job_that_ignores_sigterm_is_killed),
        cmocka_unit_test(test_killed_supervisor_fails_the_job),
        cmocka_unit_test(test_interrupted_submit_leaves_the_job_running),
        cmocka_unit_test(test_peer_without_the_token_is_refused),
        cmocka_unit_test(test_address_is_understood_or_refused),
        cmocka_unit_test(test_taken_port_names_the_remedy),
        cmocka_unit_test(test_many_jobs_run_at_once),
        cmocka_unit_test(test_jobs_end_with_their_node),
    };

    return cmocka_run_group_tests(tests, start_node, stop_node);
}
