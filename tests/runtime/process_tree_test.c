/* process_tree_test.c - children and adopted orphans are listed and killed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/process_tree.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

_Noreturn static void hang(void)
{
    for (;;) {
        (void)poll(NULL, 0, -1);
    }
}

struct search {
    pid_t wanted;
    int seen;
};

static void look(void *arg, pid_t pid)
{
    struct search *search = arg;

    search->seen += pid == search->wanted ? 1 : 0;
}

static void every_child_is_seen_once(void **state)
{
    struct search search = {.wanted = fork()};

    (void)state;
    if (search.wanted == 0) {
        /* A name that could be mistaken for fields of /proc/PID/stat. */
        (void)prctl(PR_SET_NAME, "a) S 1 (b");
        hang();
    }
    tdm__process_tree_each_child(look, &search);
    assert_int_equal(search.seen, 1);
    assert_true(tdm__process_tree_kill_all(10000, NULL));
    tdm__process_tree_each_child(look, &search);
    assert_int_equal(search.seen, 1);
}

/* Starts three children, each with three children of its own, all in sessions of their own. */
static void orphans_of_the_killed_are_killed_too(void **state)
{
    int ready[2];
    char byte;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    tdm__process_tree_adopt_orphans();
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            for (int j = 0; j < 3; j++) {
                if (fork() == 0) {
                    (void)setsid();
                    (void)!write(ready[1], "x", 1);
                    hang();
                }
            }
            hang();
        }
    }
    for (int i = 0; i < 9; i++) {
        assert_int_equal(read(ready[0], &byte, 1), 1);
    }
    (void)close(ready[1]);
    assert_true(tdm__process_tree_kill_all(10000, NULL));
    /* No process holds the other end any more. */
    assert_int_equal(read(ready[0], &byte, 1), 0);
    (void)close(ready[0]);
    assert_true(tdm__process_tree_kill_all(0, NULL));
}

static bool is_spared(void *arg, pid_t pid)
{
    return *(const pid_t *)arg == pid;
}

static void other_children_are_killed_and_their_orphans_too(void **state)
{
    pid_t spared = fork();
    pid_t left = 0;

    (void)state;
    tdm__process_tree_adopt_orphans();
    if (spared == 0) {
        hang();
    }
    if (fork() == 0) {
        if (fork() == 0) {
            (void)setsid();
        }
        hang();
    }
    for (int i = 0; i < 10000 && tdm__process_tree_kill_others(is_spared, &spared, &left) > 0;
         i++) {
        assert_true(left > 0 && left != spared);
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(tdm__process_tree_kill_others(is_spared, &spared, &left), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* One child is left, and it lives. */
    assert_int_equal(kill(spared, SIGKILL), 0);
    assert_int_equal(waitpid(-1, NULL, 0), spared);
    assert_int_equal(waitpid(-1, NULL, 0), -1);
}

/* Keeps forking a child and ending, so that the last process of the chain is always a new one. */
_Noreturn static void fork_on(int alive)
{
    for (;;) {
        (void)!write(alive, "x", 1);
        if (fork() != 0) {
            _exit(0);
        }
        (void)setsid();
    }
}

static void chain_of_forks_does_not_escape(void **state)
{
    int alive[2];
    char bytes[64];
    struct tdm__reaped reaped;

    (void)state;
    assert_int_equal(pipe2(alive, O_CLOEXEC), 0);
    tdm__process_tree_adopt_orphans();
    if (fork() == 0) {
        fork_on(alive[1]);
    }
    (void)close(alive[1]);
    for (int forks = 0; forks < 20; forks++) {
        assert_int_equal(read(alive[0], bytes, 1), 1);
    }
    assert_true(tdm__process_tree_kill_all(20000, &reaped));
    assert_true(reaped.count > 10);
    while (read(alive[0], bytes, sizeof(bytes)) > 0) {
    }
    assert_int_equal(read(alive[0], bytes, sizeof(bytes)), 0); /* No process holds the other end. */
    (void)close(alive[0]);
}

/* Starts a program whose environment has more than a mebibyte before `last`. */
static pid_t start_with_large_environment(char *last)
{
    enum { FILLERS = 12, FILLER_BYTES = 120000 };
    static char filler[FILLER_BYTES];
    char *environment[FILLERS + 2] = {NULL};
    char *arguments[] = {"sleep", "60", NULL};
    int started[2];
    char byte;
    pid_t child;

    memset(filler, 'x', sizeof(filler) - 1);
    memcpy(filler, "FILLER=", 7);
    for (int i = 0; i < FILLERS; i++) {
        environment[i] = filler;
    }
    environment[FILLERS] = last;
    assert_int_equal(pipe2(started, O_CLOEXEC), 0);
    child = fork();
    if (child == 0) {
        (void)execve("/bin/sleep", arguments, environment);
        _exit(1);
    }
    (void)close(started[1]);
    assert_int_equal(read(started[0], &byte, 1), 0); /* Closed by execve(). */
    (void)close(started[0]);
    return child;
}

static void large_environment_is_read_to_its_end(void **state)
{
    char last[64];
    pid_t child;

    (void)state;
    (void)snprintf(last, sizeof(last), "TREE_TEST=%d", (int)getpid());
    child = start_with_large_environment(last);
    assert_int_equal(tdm__process_tree_kill_marked(last), 1);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_child_is_seen_once),
        cmocka_unit_test(orphans_of_the_killed_are_killed_too),
        cmocka_unit_test(other_children_are_killed_and_their_orphans_too),
        cmocka_unit_test(chain_of_forks_does_not_escape),
        cmocka_unit_test(large_environment_is_read_to_its_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
