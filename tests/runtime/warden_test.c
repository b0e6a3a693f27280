/* warden_test.c - whatever ends the daemon or its owner, nothing stays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/warden.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum how { EXITS, IS_KILLED, WAITS_FOR_SIGTERM, HANGS };

static char directory[32];
static int alive[2]; /* whoever lives holds the writing end */

_Noreturn static void be_daemon(enum how how)
{
    int number;
    sigset_t term;

    if (fork() == 0) { /* what it leaves behind */
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

/* The warden's pid; the daemon is up. */
static pid_t start(enum how how, int line, int other_end)
{
    char byte;
    pid_t warden = fork();

    if (warden == 0) {
        struct tdm__warden_options options = {line, directory, 1};

        (void)close(alive[0]);
        if (other_end >= 0) {
            (void)close(other_end);
        }
        (void)tdm__warden_fork(&options);
        be_daemon(how);
    }
    (void)close(alive[1]);
    assert_int_equal(read(alive[0], &byte, 1), 1);
    return warden;
}

static void expect_end(pid_t warden, int wait_status)
{
    int ended;
    char byte;

    assert_int_equal(waitpid(warden, &ended, 0), warden);
    assert_int_equal(ended, wait_status);
    assert_int_equal(read(alive[0], &byte, 1), 0); /* nobody is left */
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

static void a_daemon_that_exits_gives_its_code(void **state)
{
    (void)state;
    expect_end(start(EXITS, -1, -1), 3 << 8);
}

static void a_daemon_that_is_killed_gives_its_signal(void **state)
{
    (void)state;
    expect_end(start(IS_KILLED, -1, -1), (128 + SIGKILL) << 8);
}

static void sigterm_is_passed_on(void **state)
{
    pid_t warden = start(WAITS_FOR_SIGTERM, -1, -1);

    (void)state;
    assert_int_equal(kill(warden, SIGTERM), 0);
    expect_end(warden, 5 << 8);
}

static void a_line_that_is_shut_down_asks_and_one_that_is_closed_kills(void **state)
{
    int line[2];
    pid_t warden;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line), 0);
    warden = start(WAITS_FOR_SIGTERM, line[1], line[0]);
    (void)close(line[1]);
    assert_int_equal(shutdown(line[0], SHUT_WR), 0);
    expect_end(warden, 5 << 8);
    (void)close(line[0]);

    (void)close(alive[0]);
    assert_int_equal(prepare(NULL), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line), 0);
    warden = start(HANGS, line[1], line[0]);
    (void)close(line[1]);
    (void)close(line[0]);
    expect_end(warden, 1 << 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_daemon_that_exits_gives_its_code, prepare, clean),
        cmocka_unit_test_setup_teardown(a_daemon_that_is_killed_gives_its_signal, prepare,
                                        clean),
        cmocka_unit_test_setup_teardown(sigterm_is_passed_on, prepare, clean),
        cmocka_unit_test_setup_teardown(
            a_line_that_is_shut_down_asks_and_one_that_is_closed_kills, prepare, clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
