/* job_table_test.c - tests the states of submitted jobs and the limits of their table. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/job_table.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Wait statuses of a command that exits with a code. */
#define EXITED(code) ((code) << 8)

static struct tdm__job_table *table;
/* Ids of the jobs that the table has forgotten, each followed by a space. */
static char forgotten[8192];

static void on_forgotten(void *arg, const struct tdm__submitted_job *job)
{
    assert_ptr_equal(arg, forgotten);
    (void)snprintf(forgotten + strlen(forgotten), sizeof(forgotten) - strlen(forgotten), "%s ",
                   job->id);
}

static int set_up(void **state)
{
    (void)state;
    forgotten[0] = '\0';
    return tdm__job_table_create(on_forgotten, forgotten, &table);
}

static int tear_down(void **state)
{
    (void)state;
    tdm__job_table_destroy(table);
    return 0;
}

static struct tdm__submitted_job *add(const char *id)
{
    struct tdm__submitted_job *job;

    assert_int_equal(tdm__job_table_add(table, id, "true", 1000, &job), TDM_OK);
    return job;
}

static struct tdm__submitted_job *add_started(const char *id)
{
    struct tdm__submitted_job *job = add(id);

    tdm__job_started(job, 4711);
    return job;
}

static void test_job_is_pending_then_running_then_succeeded(void **state)
{
    struct tdm__submitted_job *job = add("first");

    (void)state;
    assert_string_equal(tdm__job_state_name(job->state), "PENDING");
    assert_false(tdm__job_has_ended(job));
    assert_string_equal(job->command, "true");
    assert_true(job->submitted_ms == 1000);
    tdm__job_started(job, 4711);
    assert_string_equal(tdm__job_state_name(job->state), "RUNNING");
    assert_int_equal(job->pid, 4711);
    assert_int_equal(tdm__job_table_running_count(table), 1);
    tdm__job_ended(table, job, EXITED(0), 2000);
    assert_string_equal(tdm__job_state_name(job->state), "SUCCEEDED");
    assert_string_equal(job->message, "");
    assert_true(tdm__job_has_ended(job) && job->ended_ms == 2000);
    assert_int_equal(tdm__job_table_running_count(table), 0);
    assert_ptr_equal(tdm__job_table_find(table, "first"), job);
    assert_ptr_equal(tdm__job_table_first(table), job);
    assert_null(tdm__job_table_find(table, "fir"));
}

static void test_failure_names_the_exit_code_or_the_signal(void **state)
{
    struct tdm__submitted_job *job = add_started("code");

    (void)state;
    tdm__job_ended(table, job, EXITED(3), 2000);
    assert_string_equal(tdm__job_state_name(job->state), "FAILED");
    assert_string_equal(job->message, "the command ended with exit code 3");
    job = add_started("signal");
    tdm__job_ended(table, job, SIGKILL, 2000);
    assert_string_equal(tdm__job_state_name(job->state), "FAILED");
    assert_string_equal(job->message, "the command ended with signal 9 (killed)");
    job = add("absent");
    tdm__job_not_started(table, job, "no such directory", 2000);
    assert_string_equal(tdm__job_state_name(job->state), "FAILED");
    assert_string_equal(job->message, "the job could not be started: no such directory");
    assert_int_equal(job->pid, 0);
}

/* The state is STOPPED whatever the command makes of SIGTERM. */
static void test_job_that_was_asked_to_stop_is_stopped(void **state)
{
    struct tdm__submitted_job *job = add_started("stopped");

    (void)state;
    job->stop_requested = true;
    tdm__job_ended(table, job, EXITED(0), 2000);
    assert_string_equal(tdm__job_state_name(job->state), "STOPPED");
    assert_string_equal(job->message, "the job was stopped; its command ended with exit code 0");
}

static void test_wrong_ids_and_long_texts_are_refused(void **state)
{
    static const char *const wrong[] = {"", ".hidden", "-x", "a/b", "a b", "\303\244"};
    char long_id[TDM__SUBMISSION_ID_BYTES + 1];
    char *long_command = malloc(TDM__SUBMITTED_COMMAND_BYTES + 1);
    struct tdm__submitted_job *job;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(tdm__job_table_add(table, wrong[i], "true", 0, &job), TDM_E_INVAL);
    }
    memset(long_id, 'a', sizeof(long_id) - 1);
    long_id[sizeof(long_id) - 1] = '\0';
    assert_int_equal(tdm__job_table_add(table, long_id, "true", 0, &job), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "129 bytes, at most 128"));
    long_id[sizeof(long_id) - 2] = '\0';
    assert_int_equal(tdm__job_table_add(table, long_id, "true", 0, &job), TDM_OK);
    assert_non_null(long_command);
    memset(long_command, 'a', TDM__SUBMITTED_COMMAND_BYTES);
    long_command[TDM__SUBMITTED_COMMAND_BYTES] = '\0';
    assert_int_equal(tdm__job_table_add(table, "long", long_command, 0, &job), TDM_E_LIMIT);
    free(long_command);
    assert_int_equal(tdm__job_table_add(table, long_id, "true", 0, &job), TDM_E_EXISTS);
    assert_int_equal(tdm__job_table_count(table), 1);
}

static void test_oldest_ended_jobs_are_forgotten(void **state)
{
    struct tdm__submitted_job *running = add_started("running");
    char id[16];

    (void)state;
    for (int i = 0; i < TDM__JOBS_ENDED_MAX + 2; i++) {
        (void)snprintf(id, sizeof(id), "job%d", i);
        tdm__job_ended(table, add_started(id), EXITED(0), 2000);
    }
    assert_string_equal(forgotten, "job0 job1 ");
    assert_int_equal(tdm__job_table_count(table), TDM__JOBS_ENDED_MAX + 1);
    /* The oldest job that has ended now is the one whose end is reported, so it is kept. */
    tdm__job_ended(table, running, EXITED(1), 2000);
    assert_string_equal(forgotten, "job0 job1 job2 ");
    assert_non_null(tdm__job_table_find(table, "running"));
}

static void test_number_of_running_jobs_is_limited(void **state)
{
    struct tdm__submitted_job *job = NULL;
    char id[16];

    (void)state;
    for (int i = 0; i < TDM__JOBS_RUNNING_MAX; i++) {
        (void)snprintf(id, sizeof(id), "job%d", i);
        job = add_started(id);
    }
    tdm__job_ended(table, job, EXITED(0), 2000);
    job = add("last");
    assert_int_equal(tdm__job_table_add(table, "more", "true", 0, &job), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "256 jobs are running, at most 256"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_job_is_pending_then_running_then_succeeded, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_failure_names_the_exit_code_or_the_signal, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_job_that_was_asked_to_stop_is_stopped, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_ids_and_long_texts_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_oldest_ended_jobs_are_forgotten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_number_of_running_jobs_is_limited, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
