/* fence_test.c - the processes that end with a lease, and no others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/process/fence.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct tdm__fence *fence;

static pid_t fork_waiting(void)
{
    pid_t child = fork();

    while (child == 0) {
        (void)poll(NULL, 0, -1);
    }
    return child;
}

static bool was_killed(pid_t child)
{
    int wait_status;

    return waitpid(child, &wait_status, WNOHANG) == child && WIFSIGNALED(wait_status);
}

static void end(pid_t child)
{
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
}

static void lease_without_an_end_kills_nothing(void **state)
{
    pid_t child = fork_waiting();

    (void)state;
    assert_true(tdm__fence_covers(fence, child));
    assert_int_equal(tdm__fence_enforce(fence, 123456), 1000);
    tdm__fence_set_end(fence, 5000);
    assert_int_equal(tdm__fence_enforce(fence, 1000), 1000);
    assert_int_equal(tdm__fence_enforce(fence, 4700), 300);
    assert_false(was_killed(child));
    tdm__fence_remove(fence, child);
    end(child);
}

static void processes_are_killed_when_the_lease_has_ended(void **state)
{
    pid_t children[3] = {fork_waiting(), fork_waiting(), fork_waiting()};

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_true(tdm__fence_covers(fence, children[i]));
    }
    tdm__fence_remove(fence, children[1]);
    tdm__fence_set_end(fence, 5000);
    assert_true(tdm__fence_enforce(fence, 5000) < 1000);
    assert_int_equal(waitpid(children[0], NULL, 0), children[0]);
    assert_int_equal(waitpid(children[2], NULL, 0), children[2]);
    assert_false(was_killed(children[1]));
    end(children[1]);
    tdm__fence_remove(fence, children[0]);
    tdm__fence_remove(fence, children[2]);
}

static void ended_process_needs_no_place(void **state)
{
    pid_t child = fork_waiting();

    (void)state;
    end(child);
    assert_true(tdm__fence_covers(fence, child));
    assert_true(tdm__fence_covers(NULL, getpid()));
    tdm__fence_remove(NULL, getpid());
    tdm__fence_set_end(fence, 5000);
    assert_true(tdm__fence_enforce(fence, 5000) < 1000);
}

static void full_fence_refuses(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < TDM__FENCED_PROCESSES_MAX; i++) {
        assert_true(tdm__fence_covers(fence, getppid()));
    }
    assert_false(tdm__fence_covers(fence, getppid()));
    tdm__fence_remove(fence, getppid());
    assert_true(tdm__fence_covers(fence, getppid()));
    tdm__fence_remove(fence, getppid());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lease_without_an_end_kills_nothing),
        cmocka_unit_test(processes_are_killed_when_the_lease_has_ended),
        cmocka_unit_test(ended_process_needs_no_place),
        cmocka_unit_test(full_fence_refuses),
    };

    return tdm__fence_create(&fence) == TDM_OK ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
