/* reaper_test.c - a reaper ends all that its worker has started, and reports it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/reaper.h"

#include "runtime/clock.h"
#include "runtime/process/process_tree.h"
#include "runtime/process/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 20000 };

/* A worker below a reaper, as its daemon sees them. */
struct scene {
    pid_t reaper;
    pid_t worker;
    int socket;
    int pidfd; /* Of the worker. */
    int alive; /* Readable, with end of file, once no process of the tree is left. */
};

static void receive(const struct scene *scene, struct tdm__reaper_report *report,
                    struct tdm__reaper_pidfds *pidfds)
{
    struct pollfd wanted = {.fd = scene->socket, .events = POLLIN};

    assert_int_equal(poll(&wanted, 1, WAIT_MS), 1);
    assert_int_equal(tdm__reaper_receive(scene->socket, report, pidfds), TDM_OK);
}

/* Starts a reaper whose worker runs run(alive). */
static void start(struct scene *scene, void (*run)(int alive))
{
    struct tdm__reaper_report report;
    struct tdm__reaper_pidfds pidfds;
    pid_t parent = getpid();
    int sockets[2];
    int alive[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    assert_int_equal(pipe2(alive, O_CLOEXEC), 0);
    scene->reaper = fork();
    if (scene->reaper == 0) {
        tdm__reaper_become(sockets[1], parent);
        (void)close(sockets[1]);
        run(alive[1]);
        _exit(7);
    }
    (void)close(sockets[1]);
    (void)close(alive[1]);
    scene->socket = sockets[0];
    scene->alive = alive[0];
    receive(scene, &report, &pidfds);
    assert_int_equal(report.kind, TDM__REAPER_STARTED);
    scene->worker = report.pid;
    scene->pidfd = pidfds.worker;
    assert_true(pidfds.reaper >= 0);
    (void)close(pidfds.reaper);
    assert_true(scene->worker > 0 && scene->worker != scene->reaper && scene->pidfd >= 0);
}

/* Checks that no process of the tree is left. */
static void expect_no_process(const struct scene *scene)
{
    struct pollfd wanted = {.fd = scene->alive, .events = POLLIN};
    char bytes[64];
    ssize_t got;

    do {
        assert_int_equal(poll(&wanted, 1, 0), 1);
        got = read(scene->alive, bytes, sizeof(bytes));
    } while (got > 0);
    assert_int_equal(got, 0);
}

/* Waits for the report of the worker's end, and then for the end of the reaper. */
static struct tdm__reaper_report finish(const struct scene *scene)
{
    struct tdm__reaper_report report;
    struct tdm__reaper_report none;
    struct tdm__reaper_pidfds pidfds;

    receive(scene, &report, &pidfds);
    assert_int_equal(report.kind, TDM__REAPER_WORKER_ENDED);
    assert_int_equal(pidfds.worker, -1);
    expect_no_process(scene);
    assert_int_equal(tdm__reaper_receive(scene->socket, &none, &pidfds), TDM_E_CLOSED);
    assert_int_equal(waitpid(scene->reaper, NULL, 0), scene->reaper);
    (void)close(scene->socket);
    (void)close(scene->pidfd);
    (void)close(scene->alive);
    return report;
}

/* Waits until processes of the tree have written that many bytes. */
static void await_bytes(const struct scene *scene, int count)
{
    char byte;

    for (int i = 0; i < count; i++) {
        assert_int_equal(read(scene->alive, &byte, 1), 1);
    }
}

_Noreturn static void hang(void)
{
    for (;;) {
        (void)poll(NULL, 0, -1);
    }
}

static void run_nothing(int alive)
{
    (void)alive;
}

static void end_of_a_worker_without_children_is_reported(void **state)
{
    struct scene scene;
    struct tdm__reaper_report report;

    (void)state;
    start(&scene, run_nothing);
    report = finish(&scene);
    assert_true(WIFEXITED(report.wait_status));
    assert_int_equal(WEXITSTATUS(report.wait_status), 7);
    assert_int_equal(report.reaped.count, 0);
    assert_int_equal(report.left_count, 0);
}

/* Three processes: a child, an orphan in a session of its own that ignores what it can, and an
 * orphan that executes a program without environment. */
static void run_tree(int alive)
{
    static char *const nothing[] = {NULL};

    if (fork() == 0) {
        (void)write(alive, "1", 1);
        hang();
    }
    if (fork() == 0) {
        if (setsid() > 0 && fork() == 0) {
            (void)signal(SIGTERM, SIG_IGN);
            (void)signal(SIGHUP, SIG_IGN);
            (void)write(alive, "2", 1);
            hang();
        }
        if (fork() == 0) {
            (void)fcntl(alive, F_SETFD, 0);
            (void)write(alive, "3", 1);
            (void)execle("/bin/sleep", "sleep", "1000", (char *)NULL, nothing);
        }
        _exit(0);
    }
    hang();
}

static void all_that_a_killed_worker_has_started_is_reaped_before_the_report(void **state)
{
    struct scene scene;
    struct tdm__reaper_report report;

    (void)state;
    start(&scene, run_tree);
    await_bytes(&scene, 3);
    assert_int_equal(kill(scene.worker, SIGKILL), 0);
    report = finish(&scene);
    assert_true(WIFSIGNALED(report.wait_status));
    assert_int_equal(WTERMSIG(report.wait_status), SIGKILL);
    /* A fourth process is a zombie of the worker.  The kernel may hand it to the reaper just before
     * the worker itself has ended; it is not counted then. */
    assert_in_range(report.reaped.count, 3, 4);
    assert_int_equal(report.left_count, 0);
}

/* An orphan ends while the worker lives; the worker's own child waits for it. */
static void run_short_orphan(int alive)
{
    if (fork() == 0) {
        if (fork() == 0) {
            (void)write(alive, "1", 1);
        }
        _exit(0);
    }
    hang();
}

static void orphan_of_a_living_worker_leaves_no_zombie(void **state)
{
    struct scene scene;
    struct tdm__reaper_report report;

    (void)state;
    start(&scene, run_short_orphan);
    await_bytes(&scene, 1);
    (void)poll(NULL, 0, 200);
    assert_int_equal(kill(scene.worker, SIGKILL), 0);
    report = finish(&scene);
    /* The worker's own child is a zombie, which the worker did not reap. */
    assert_in_range(report.reaped.count, 0, 1);
}

static void worker_dies_with_its_reaper(void **state)
{
    struct tdm__reaper_report none;
    struct scene scene;
    struct tdm__reaper_pidfds pidfds;

    (void)state;
    tdm__process_tree_adopt_orphans();
    start(&scene, run_tree);
    await_bytes(&scene, 3);
    assert_int_equal(kill(scene.reaper, SIGTERM), 0); /* Signals other than SIGKILL are ignored. */
    assert_int_equal(kill(scene.reaper, SIGKILL), 0);
    assert_int_equal(tdm__reaper_receive(scene.socket, &none, &pidfds), TDM_E_CLOSED);
    assert_int_equal(poll(&(struct pollfd){.fd = scene.pidfd, .events = POLLIN}, 1, WAIT_MS), 1);
    assert_true(tdm__process_tree_kill_all(WAIT_MS, NULL));
    expect_no_process(&scene);
    (void)close(scene.socket);
    (void)close(scene.pidfd);
    (void)close(scene.alive);
}

static void refusal_is_reported(void **state)
{
    struct tdm__reaper_report report;
    int sockets[2];
    struct tdm__reaper_pidfds pidfds;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    tdm__reaper_refuse(sockets[1], 3);
    (void)close(sockets[1]);
    assert_int_equal(tdm__reaper_receive(sockets[0], &report, &pidfds), TDM_OK);
    assert_int_equal(report.kind, TDM__REAPER_REFUSED);
    assert_int_equal(report.threads_count, 3);
    assert_int_equal(tdm__reaper_receive(sockets[0], &report, &pidfds), TDM_E_CLOSED);
    (void)close(sockets[0]);
}

/* A program that is executed below a reaper. */
static void spawned_program_has_a_reaper(void **state)
{
    char *argv[] = {"sh", "-c", "exit 5", NULL};
    struct tdm__spawn_options options = {
        .program = "/bin/sh", .argv = argv, .output_fd = -1, .dies_with_parent = true};
    struct tdm__process process;
    struct tdm__reaper_report report;
    int sockets[2];
    struct tdm__reaper_pidfds pidfds;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    options.report_fd = sockets[1];
    assert_int_equal(tdm__spawn(&options, &process), TDM_OK);
    assert_int_equal(recv(sockets[0], &report, sizeof(report), MSG_DONTWAIT | MSG_PEEK),
                     sizeof(report)); /* The report of the start is there without a wait. */
    assert_int_equal(tdm__reaper_receive(sockets[0], &report, &pidfds), TDM_OK);
    assert_int_equal(report.kind, TDM__REAPER_STARTED);
    assert_int_not_equal(report.pid, process.pid);
    (void)close(pidfds.worker);
    (void)close(pidfds.reaper);
    assert_int_equal(tdm__reaper_receive(sockets[0], &report, &pidfds), TDM_OK);
    assert_int_equal(report.kind, TDM__REAPER_WORKER_ENDED);
    assert_int_equal(WEXITSTATUS(report.wait_status), 5);
    assert_int_equal(waitpid(process.pid, NULL, 0), process.pid);
    tdm__process_forget(&process);
    options.program = "/does/not/exist";
    assert_int_equal(tdm__spawn(&options, &process), TDM_E_NOT_FOUND);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    (void)close(sockets[0]);
    (void)close(sockets[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(end_of_a_worker_without_children_is_reported),
        cmocka_unit_test(all_that_a_killed_worker_has_started_is_reaped_before_the_report),
        cmocka_unit_test(orphan_of_a_living_worker_leaves_no_zombie),
        cmocka_unit_test(worker_dies_with_its_reaper),
        cmocka_unit_test(refusal_is_reported),
        cmocka_unit_test(spawned_program_has_a_reaper),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
