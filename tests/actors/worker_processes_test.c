/* worker_processes_test.c - worker processes get what they need, and each end is reported once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/worker_processes.h"

#include "tests/support/node_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* What was reported of the end of a worker. */
struct report {
    uint32_t count;
    int wait_status;
    uint32_t left_count;
};

static void on_ended(void *arg, struct tdm__worker_process *worker, int wait_status)
{
    struct report *report = arg;

    report->count++;
    report->wait_status = wait_status;
    report->left_count = worker->left_count;
}

static bool has_ended(void *arg)
{
    return ((const struct report *)arg)->count > 0;
}

/* Starts the still program, with one more variable if `variable` is not NULL. */
static struct tdm__worker_process *start(struct node_fixture *scene, const char *variable,
                                         int bootstrap_fd, struct report *report)
{
    struct tdm__actor_spec *spec = node_fixture_spec(scene, "tester");
    const struct tdm__worker_start_options options = {.spec = spec, .bootstrap_fd = bootstrap_fd};
    struct tdm__worker_process *worker;

    *report = (struct report){0};
    if (variable != NULL) {
        TRY(tdm__text_list_add(&spec->environment, variable));
    }
    TRY(tdm__workers_start(scene->node.workers, &options, on_ended, report, &worker));
    assert_int_equal(report->count, 0); /* No end is reported during the start. */
    tdm__actor_spec_destroy(spec);
    return worker;
}

static void exit_code_of_a_worker_is_reported_once(void **state)
{
    struct node_fixture *scene = *state;
    struct report report;

    (void)start(scene, "STILL=3", STDERR_FILENO, &report);
    node_fixture_run(scene, has_ended, &report);
    node_fixture_settle(scene);
    assert_int_equal(report.count, 1);
    assert_true(WIFEXITED(report.wait_status));
    assert_int_equal(WEXITSTATUS(report.wait_status), 3);
    assert_int_equal(report.left_count, 0);
}

static void signal_that_ends_a_worker_is_reported(void **state)
{
    struct node_fixture *scene = *state;
    struct report report;

    tdm__worker_kill(start(scene, NULL, STDERR_FILENO, &report));
    node_fixture_run(scene, has_ended, &report);
    assert_true(WIFSIGNALED(report.wait_status));
    assert_int_equal(WTERMSIG(report.wait_status), SIGKILL);
}

/* Returns the parent of the process `pid`. */
static pid_t parent_of(pid_t pid)
{
    char path[64];
    char text[512];
    const char *state;
    FILE *file;
    size_t bytes;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    assert_non_null(file);
    bytes = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[bytes] = '\0';
    state = strrchr(text, ')'); /* The fields after the name: state and parent. */
    assert_non_null(state);
    return (pid_t)strtol(state + 4, NULL, 10);
}

static void end_of_a_worker_with_a_stopped_reaper_is_reported(void **state)
{
    struct node_fixture *scene = *state;

    for (int by_daemon = 0; by_daemon < 2; by_daemon++) {
        struct report report;
        struct tdm__worker_process *worker = start(scene, NULL, STDERR_FILENO, &report);

        assert_int_equal(kill(parent_of(worker->pid), SIGSTOP), 0);
        if (by_daemon) {
            tdm__worker_kill(worker);
        } else {
            assert_int_equal(kill(worker->pid, SIGKILL), 0);
        }
        node_fixture_run(scene, has_ended, &report);
        assert_true(WIFSIGNALED(report.wait_status));
        assert_int_equal(WTERMSIG(report.wait_status), SIGKILL);
    }
}

static void worker_has_its_bootstrap_and_a_connection(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__worker_process *worker;
    struct stat expected;
    struct stat file;
    struct report report;
    char path[64];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/bootstrap", scene->directory);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &expected), 0);
    (void)unlink(path);
    worker = start(scene, NULL, fd, &report);
    (void)close(fd);
    assert_non_null(worker->conn);
    assert_true(worker->pid > 0);
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/4", (int)worker->pid);
    assert_int_equal(stat(path, &file), 0);
    assert_true(file.st_ino == expected.st_ino && file.st_dev == expected.st_dev);
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/3", (int)worker->pid);
    assert_int_equal(stat(path, &file), 0);
    assert_true(S_ISSOCK(file.st_mode));
    tdm__worker_kill(worker);
    node_fixture_run(scene, has_ended, &report);
}

static void workers_end_with_their_table(void **state)
{
    struct node_fixture *scene = *state;
    struct report reports[2];
    pid_t pids[2];

    for (int i = 0; i < 2; i++) {
        pids[i] = start(scene, NULL, STDERR_FILENO, &reports[i])->pid;
        assert_int_equal(kill(pids[i], 0), 0);
    }
    tdm__workers_destroy(scene->node.workers);
    scene->node.workers = NULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kill(pids[i], 0), -1);
        assert_int_equal(errno, ESRCH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(exit_code_of_a_worker_is_reported_once),
        NODE_FIXTURE_TEST(signal_that_ends_a_worker_is_reported),
        NODE_FIXTURE_TEST(end_of_a_worker_with_a_stopped_reaper_is_reported),
        NODE_FIXTURE_TEST(worker_has_its_bootstrap_and_a_connection),
        NODE_FIXTURE_TEST(workers_end_with_their_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
