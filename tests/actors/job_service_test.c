/* job_service_test.c - the service "job" of a node in this process: processes, output, refusals. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/job_service.h"
#include "runtime/clock.h"
#include "runtime/directory.h"
#include "runtime/messages/messages.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* Opens a node with jobs, whose supervisors are processes of this build's tandemd. */
static int set_up(void **state)
{
    struct node_fixture *scene;
    int status = node_fixture_open(state);

    if (status != 0) {
        return status;
    }
    scene = *state;
    (void)snprintf(scene->node.worker_program, sizeof(scene->node.worker_program),
                   TDM_TEST_BUILD_DIR "/tandemd");
    return tdm__jobs_create(&scene->node);
}

static int tear_down(void **state)
{
    struct node_fixture *scene = *state;
    char path[128];

    tdm__jobs_destroy(&scene->node);
    assert_null(scene->node.jobs);
    tdm__jobs_destroy(&scene->node);
    assert_false(tdm__jobs_are_running(scene->node.jobs));
    tdm__jobs_stop_all(scene->node.jobs);
    (void)snprintf(path, sizeof(path), "%s/logs", scene->directory);
    tdm__directory_remove(path);
    return node_fixture_close(state);
}

static bool has_arrived(void *arg)
{
    return ((const struct node_fixture *)arg)->last != NULL;
}

static void on_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct remote_reply *answer = arg;

    answer->count++;
    answer->status = reply->status;
    (void)snprintf(answer->detail, sizeof(answer->detail), "%s", reply->detail);
    if (reply->status == TDM_OK) {
        TRY(tdm__rpc_reply_document(reply, &answer->document));
    }
}

static bool has_reply(void *arg)
{
    return ((const struct remote_reply *)arg)->count > 0;
}

/* Calls the service "job" with a message. Returns the status of the reply. */
static tdm_status call(struct node_fixture *scene, const char *method,
                       const struct tdm__message *message, const void *structure,
                       struct remote_reply *answer)
{
    struct tdm__rpc_request request = {.method = method, .deadline_ms = TDM__NEVER};
    tdm_writer *writer;

    *answer = (struct remote_reply){.count = 0};
    TRY(tdm_writer_create(&writer));
    TRY(tdm__message_encode(message, structure, writer));
    request.packed = tdm_writer_bytes(writer);
    TRY(tdm__conn_call(scene->driver.conn, &request, on_reply, answer, NULL));
    tdm_writer_destroy(writer);
    node_fixture_run(scene, has_arrived, scene);
    tdm__job_service.serve(scene->node.jobs, scene->last);
    scene->last = NULL;
    node_fixture_run(scene, has_reply, answer);
    return answer->status;
}

/* Submits a command. Returns the status of the reply. */
static tdm_status submit(struct node_fixture *scene, const char *id, const char *command,
                         const char *directory, struct remote_reply *answer)
{
    static const char *const settings[] = {"A=from the job"};
    const struct tdm__job_submit_message request = {
        .submission_id = id,
        .command = command,
        .working_directory = directory,
        .environment = {.count = 1, .items = (const void *)settings}};

    return call(scene, "job.submit", tdm__job_submit_table(), &request, answer);
}

static bool none_is_running(void *arg)
{
    return !tdm__jobs_are_running(((const struct node_fixture *)arg)->node.jobs);
}

/* Reads the output of a job from an offset. */
static void read_output(struct node_fixture *scene, const char *id, uint64_t offset,
                        struct remote_reply *answer, struct tdm__job_output_message *output)
{
    const struct tdm__job_read_message request = {
        .submission_id = id, .offset = offset, .bytes_max = 1000};

    TRY(call(scene, "job.read", tdm__job_read_table(), &request, answer));
    TRY(tdm__job_output_decode(tdm_document_root(answer->document), output));
}

static void test_job_runs_and_its_output_is_served_in_pieces(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__job_description_message job;
    struct tdm__job_output_message output;
    struct remote_reply answer;

    TRY(submit(scene, "one", "echo $A; echo aside >&2; pwd; exit 3", "/", &answer));
    TRY(tdm__job_description_decode(tdm_document_root(answer.document), &job));
    assert_string_equal(job.state, "RUNNING");
    assert_true(job.pid > 1);
    remote_reply_free(&answer);
    node_fixture_run(scene, none_is_running, scene);
    read_output(scene, "one", 0, &answer, &output);
    assert_string_equal(output.job.state, "FAILED");
    assert_true(output.job.has_ended);
    assert_int_equal(output.job.wait_status, 3 << 8);
    assert_int_equal(output.text.size_bytes, strlen("from the job\naside\n/\n"));
    assert_memory_equal(output.text.data, "from the job\naside\n/\n", output.text.size_bytes);
    assert_int_equal(output.file_bytes, output.text.size_bytes);
    remote_reply_free(&answer);
    read_output(scene, "one", 13, &answer, &output);
    assert_int_equal(output.offset, 13);
    assert_memory_equal(output.text.data, "aside\n/\n", output.text.size_bytes);
    remote_reply_free(&answer);
    read_output(scene, "one", 1000000, &answer, &output);
    assert_int_equal(output.text.size_bytes, 0);
    remote_reply_free(&answer);
}

/* The path of the token file is relative to the daemon's directory. */
static void test_token_file_is_found_from_another_directory(void **state)
{
    static const char name[] = "job_service_test.token";
    struct node_fixture *scene = *state;
    struct tdm__job_output_message output;
    struct remote_reply answer;
    FILE *file = fopen(name, "w");

    assert_non_null(file);
    (void)fclose(file);
    assert_int_equal(setenv("TANDEM_TOKEN_FILE", name, 1), 0);
    TRY(submit(scene, "token", "test -e \"$TANDEM_TOKEN_FILE\"", "/", &answer));
    remote_reply_free(&answer);
    (void)unsetenv("TANDEM_TOKEN_FILE");
    node_fixture_run(scene, none_is_running, scene);
    (void)unlink(name);
    read_output(scene, "token", 0, &answer, &output);
    assert_string_equal(output.job.state, "SUCCEEDED");
    remote_reply_free(&answer);
}

/* A sweep for orphans must spare the supervisors, and must not take their wait status. */
static void test_sweep_for_orphans_spares_jobs(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__job_output_message output;
    struct remote_reply answer;

    TRY(submit(scene, "swept", "sleep 0.3", "", &answer));
    remote_reply_free(&answer);
    while (tdm__jobs_are_running(scene->node.jobs)) {
        tdm__workers_schedule_sweep(scene->node.workers);
        (void)tdm__loop_run(scene->world.loop, NULL, NULL, tdm__deadline_after(20));
    }
    read_output(scene, "swept", 0, &answer, &output);
    assert_string_equal(output.job.state, "SUCCEEDED");
    remote_reply_free(&answer);
}

static void test_jobs_are_listed_and_stopped(void **state)
{
    const struct tdm__job_query_message second = {.submission_id = "second"};
    struct node_fixture *scene = *state;
    struct tdm__job_list_message list;
    struct tdm__job_description_message job;
    struct remote_reply answer;

    TRY(submit(scene, "first", "exec sleep 1000", "", &answer));
    remote_reply_free(&answer);
    TRY(submit(scene, "second", "exec sleep 1000", "", &answer));
    remote_reply_free(&answer);
    TRY(call(scene, "job.stop", tdm__job_query_table(), &second, &answer));
    remote_reply_free(&answer);
    tdm__jobs_stop_all(scene->node.jobs);
    node_fixture_run(scene, none_is_running, scene);
    TRY(call(scene, "job.list", tdm__job_query_table(), &second, &answer));
    TRY(tdm__job_list_decode(tdm_document_root(answer.document), &list));
    assert_int_equal(list.jobs.count, 2);
    tdm__message_list_read(&list.jobs, 1, &job, sizeof(job));
    assert_string_equal(job.submission_id, "second");
    assert_string_equal(job.state, "STOPPED");
    assert_true(job.ended_ms >= job.submitted_ms);
    remote_reply_free(&answer);
}

static void test_wrong_requests_are_refused(void **state)
{
    const struct tdm__job_query_message none = {.submission_id = "none"};
    struct tdm__job_read_message much = {.submission_id = "one", .bytes_max = UINT64_MAX};
    struct node_fixture *scene = *state;
    struct remote_reply answer;

    assert_int_equal(call(scene, "job.stop", tdm__job_query_table(), &none, &answer),
                     TDM_E_NOT_FOUND);
    assert_non_null(strstr(answer.detail, "job none does not exist on node this"));
    assert_int_equal(call(scene, "job.nothing", tdm__job_query_table(), &none, &answer),
                     TDM_E_NOT_FOUND);
    assert_int_equal(call(scene, "job.submit", tdm__job_query_table(), &none, &answer),
                     TDM_E_PROTOCOL);
    assert_int_equal(submit(scene, "one", "true", "/no/such/directory", &answer), TDM_E_NOT_FOUND);
    assert_non_null(strstr(answer.detail, "/no/such/directory is no directory of node this"));
    TRY(submit(scene, "one", "true", "", &answer));
    remote_reply_free(&answer);
    assert_int_equal(call(scene, "job.read", tdm__job_read_table(), &much, &answer), TDM_E_LIMIT);
    scene->node.stopping = true;
    assert_int_equal(submit(scene, "two", "true", "", &answer), TDM_E_STATE);
}

static void test_job_that_cannot_start_fails(void **state)
{
    struct tdm__job_description_message job;
    struct node_fixture *scene = *state;
    struct remote_reply answer;

    (void)snprintf(scene->node.worker_program, sizeof(scene->node.worker_program), "/no/tandemd");
    TRY(submit(scene, "absent", "true", "", &answer));
    TRY(tdm__job_description_decode(tdm_document_root(answer.document), &job));
    assert_string_equal(job.state, "FAILED");
    assert_non_null(strstr(job.message, "could not be started: cannot execute /no/tandemd"));
    assert_int_equal(job.pid, 0);
    assert_true(none_is_running(scene));
    remote_reply_free(&answer);
}

/* Jobs that are running at the end of the daemon are killed; tear_down() does not wait for them. */
static void test_running_jobs_are_killed_at_the_end(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply answer;

    TRY(submit(scene, "long", "trap '' TERM; while :; do sleep 0.01; done", "", &answer));
    remote_reply_free(&answer);
    assert_true(tdm__jobs_are_running(scene->node.jobs));
}

#define JOB_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_job_runs_and_its_output_is_served_in_pieces),
        JOB_TEST(test_token_file_is_found_from_another_directory),
        JOB_TEST(test_sweep_for_orphans_spares_jobs),
        JOB_TEST(test_jobs_are_listed_and_stopped),
        JOB_TEST(test_wrong_requests_are_refused),
        JOB_TEST(test_job_that_cannot_start_fails),
        JOB_TEST(test_running_jobs_are_killed_at_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
