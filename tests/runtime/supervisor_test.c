/* supervisor_test.c - no process is left, whatever ends the daemon or its driver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/supervisor.h"

#include "runtime/clock.h"
#include "runtime/process/fence.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum how { EXITS, IS_KILLED, WAITS_FOR_SIGTERM, HANGS };

static char directory[32];
static int alive[2]; /* Pipe: every living process holds its writing end. */

_Noreturn static void be_daemon(enum how how)
{
    int number;
    sigset_t term;

    if (fork() == 0) { /* Child that the daemon leaves behind. */
        (void)setsid();
        for (;;) {
            (void)poll(NULL, 0, -1);
        }
    }
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &term, NULL);
    (void)!write(alive[1], "x", 1);
    switch (how) {
    case EXITS:
        _exit(3);
    case IS_KILLED:
        (void)raise(SIGKILL);
        break;
    case WAITS_FOR_SIGTERM:
        (void)sigwait(&term, &number);
        _exit(number == SIGTERM ? 5 : 6);
    case HANGS:
        break;
    }
    for (;;) {
        (void)poll(NULL, 0, -1);
    }
}

/* Starts a supervisor and returns its pid when the daemon runs. */
static pid_t start(enum how how, int lifeline, int other_end)
{
    char byte;
    pid_t supervisor = fork();

    if (supervisor == 0) {
        struct tdm__supervisor_options options = {
            .lifeline = lifeline, .directory = directory, .remove_directory = 1};

        (void)close(alive[0]);
        if (other_end >= 0) {
            (void)close(other_end);
        }
        (void)tdm__supervisor_fork(&options);
        be_daemon(how);
    }
    (void)close(alive[1]);
    assert_int_equal(read(alive[0], &byte, 1), 1);
    return supervisor;
}

static void expect_end(pid_t supervisor, int wait_status)
{
    int ended;
    char byte;

    assert_int_equal(waitpid(supervisor, &ended, 0), supervisor);
    assert_int_equal(ended, wait_status);
    assert_int_equal(read(alive[0], &byte, 1), 0); /* No process is left. */
    assert_int_equal(access(directory, F_OK), -1);
}

static int prepare(void **state)
{
    static const char name[] = "/tmp/tdw-XXXXXX";

    (void)state;
    for (size_t i = 0; i < sizeof(name); i++) {
        directory[i] = name[i];
    }
    return mkdtemp(directory) == NULL || pipe(alive) < 0;
}

static int clean(void **state)
{
    (void)state;
    (void)close(alive[0]);
    return 0;
}

static void daemon_that_exits_gives_its_code(void **state)
{
    (void)state;
    expect_end(start(EXITS, -1, -1), 3 << 8);
}

static void daemon_that_is_killed_gives_its_signal(void **state)
{
    (void)state;
    expect_end(start(IS_KILLED, -1, -1), (128 + SIGKILL) << 8);
}

static void sigterm_is_passed_on(void **state)
{
    pid_t supervisor = start(WAITS_FOR_SIGTERM, -1, -1);

    (void)state;
    assert_int_equal(kill(supervisor, SIGTERM), 0);
    expect_end(supervisor, 5 << 8);
}

static void sigquit_kills_everything_at_once(void **state)
{
    pid_t supervisor = start(HANGS, -1, -1);

    (void)state;
    assert_int_equal(kill(supervisor, SIGQUIT), 0);
    expect_end(supervisor, 1 << 8);
}

/* Returns a child that only waits. */
static pid_t fork_waiting(void)
{
    pid_t child = fork();

    while (child == 0) {
        (void)poll(NULL, 0, -1);
    }
    return child;
}

/* The children of the daemon of end_of_lease_kills_what_is_fenced_by_a_stopped_daemon(). */
struct children {
    pid_t fenced;
    pid_t removed; /* It was in the fence. */
    pid_t plain;
};

/* Becomes a daemon whose lease ends soon, and which is stopped by then. */
_Noreturn static void be_stopped_daemon(struct tdm__fence *fence, int report)
{
    struct children children = {fork_waiting(), fork_waiting(), fork_waiting()};

    if (!tdm__fence_covers(fence, children.removed) || !tdm__fence_covers(fence, children.fenced)) {
        _exit(1);
    }
    tdm__fence_remove(fence, children.removed);
    tdm__fence_set_end(fence, tdm__clock_boot_ms() + 200);
    (void)!write(report, &children, sizeof(children));
    (void)raise(SIGSTOP);
    _exit(1);
}

/* Returns whether the process runs; a zombie does not. */
static bool runs(pid_t pid)
{
    char path[64];
    char state = 'Z';
    FILE *stat_file;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    stat_file = fopen(path, "re");
    if (stat_file != NULL) {
        (void)!fscanf(stat_file, "%*d %*s %c", &state);
        (void)fclose(stat_file);
    }
    return state != 'Z' && state != 'X';
}

static void end_of_lease_kills_what_is_fenced_by_a_stopped_daemon(void **state)
{
    struct children children;
    struct tdm__fence *fence;
    int report[2];
    pid_t supervisor;

    (void)state;
    assert_int_equal(tdm__fence_create(&fence), TDM_OK);
    assert_int_equal(pipe(report), 0);
    supervisor = fork();
    if (supervisor == 0) {
        struct tdm__supervisor_options options = {
            .lifeline = -1, .directory = directory, .remove_directory = 1, .fence = fence};

        (void)close(alive[0]);
        if (tdm__supervisor_fork(&options) == TDM_OK) {
            be_stopped_daemon(fence, report[1]);
        }
        _exit(1);
    }
    (void)close(alive[1]);
    (void)close(report[1]);
    assert_int_equal(read(report[0], &children, sizeof(children)), sizeof(children));
    (void)close(report[0]);
    assert_true(runs(children.fenced));
    for (int waited_ms = 0; waited_ms < 10000 && runs(children.fenced); waited_ms += 10) {
        (void)poll(NULL, 0, 10);
    }
    assert_false(runs(children.fenced));
    assert_true(runs(children.removed));
    assert_true(runs(children.plain));
    assert_int_equal(kill(supervisor, SIGQUIT), 0);
    expect_end(supervisor, 1 << 8);
}

static void lifeline_shutdown_stops_and_lifeline_close_kills(void **state)
{
    int lifeline[2];
    pid_t supervisor;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, lifeline), 0);
    supervisor = start(WAITS_FOR_SIGTERM, lifeline[1], lifeline[0]);
    (void)close(lifeline[1]);
    assert_int_equal(shutdown(lifeline[0], SHUT_WR), 0);
    expect_end(supervisor, 5 << 8);
    (void)close(lifeline[0]);

    (void)close(alive[0]);
    assert_int_equal(prepare(NULL), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, lifeline), 0);
    supervisor = start(HANGS, lifeline[1], lifeline[0]);
    (void)close(lifeline[1]);
    (void)close(lifeline[0]);
    expect_end(supervisor, 1 << 8);
}

/* Without a free descriptor the supervisor could not notice the end of the daemon. */
static void supervisor_without_a_descriptor_starts_no_daemon(void **state)
{
    enum { NO_DAEMON = 7, DAEMON = 8, SIGNALS_BLOCKED = 9 };
    pid_t supervisor = fork();
    int ended;

    (void)state;
    if (supervisor == 0) {
        const struct tdm__supervisor_options options = {.lifeline = -1, .directory = directory};
        const struct rlimit full = {.rlim_cur = 3, .rlim_max = 3};
        sigset_t blocked;

        (void)alarm(10); /* Ends a supervisor that never ends. */
        (void)setrlimit(RLIMIT_NOFILE, &full);
        if (tdm__supervisor_fork(&options) != TDM_E_IO || waitpid(-1, NULL, 0) != -1) {
            _exit(DAEMON);
        }
        (void)sigprocmask(SIG_BLOCK, NULL, &blocked);
        _exit(sigismember(&blocked, SIGTERM) == 1 ? SIGNALS_BLOCKED : NO_DAEMON);
    }
    (void)close(alive[1]);
    assert_int_equal(waitpid(supervisor, &ended, 0), supervisor);
    assert_int_equal(ended, NO_DAEMON << 8);
    assert_int_equal(rmdir(directory), 0);
}

/* Without a descriptor of the driver the supervisor could outlive it. */
static void supervisor_that_cannot_watch_its_driver_starts_no_daemon(void **state)
{
    enum { NO_DAEMON = 7, DAEMON = 8 };
    int lifeline[2];
    int ended;
    pid_t supervisor;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, lifeline), 0);
    supervisor = fork();
    if (supervisor == 0) {
        const struct tdm__supervisor_options options = {.lifeline = lifeline[1],
                                                        .directory = directory};
        struct rlimit one_is_free = {.rlim_max = 1024};
        int lowest_free = dup(lifeline[1]);

        (void)close(lowest_free);
        (void)alarm(10); /* Ends a supervisor that never ends. */
        one_is_free.rlim_cur = (rlim_t)lowest_free + 1;
        (void)setrlimit(RLIMIT_NOFILE, &one_is_free);
        _exit(tdm__supervisor_fork(&options) == TDM_E_IO ? NO_DAEMON : DAEMON);
    }
    (void)close(alive[1]);
    assert_int_equal(waitpid(supervisor, &ended, 0), supervisor);
    assert_int_equal(ended, NO_DAEMON << 8);
    (void)close(lifeline[0]);
    (void)close(lifeline[1]);
    assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(daemon_that_exits_gives_its_code, prepare, clean),
        cmocka_unit_test_setup_teardown(daemon_that_is_killed_gives_its_signal, prepare, clean),
        cmocka_unit_test_setup_teardown(sigquit_kills_everything_at_once, prepare, clean),
        cmocka_unit_test_setup_teardown(sigterm_is_passed_on, prepare, clean),
        cmocka_unit_test_setup_teardown(end_of_lease_kills_what_is_fenced_by_a_stopped_daemon,
                                        prepare, clean),
        cmocka_unit_test_setup_teardown(lifeline_shutdown_stops_and_lifeline_close_kills, prepare,
                                        clean),
        cmocka_unit_test_setup_teardown(supervisor_without_a_descriptor_starts_no_daemon, prepare,
                                        clean),
        cmocka_unit_test_setup_teardown(supervisor_that_cannot_watch_its_driver_starts_no_daemon,
                                        prepare, clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
