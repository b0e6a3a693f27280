/* placement_group_waits_test.c - a process waits for a pending group that another node created. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"
#include "tests/support/two_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct two_nodes cluster;
static tdm_runtime *runtime; /* Runtime of a driver on the first node. */

/* Exit statuses of the other driver, after which it is clear what went wrong. */
enum { PLACED = 10, REMOVED = 11, NOT_FOUND = 12, NO_RUNTIME = 13, OTHER_FAILURE = 14 };

/* First argument of this program as the other driver; its ID of the group, the address of its node,
 * and the descriptor that it writes to when it is about to wait follow. */
#define WAITER "--wait"

/* What the other driver does, on the node at `address`; returns its exit status. */
static int wait_for_group(const char *id, const char *address, int ready_fd)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    tdm_placement_group *group;
    tdm_runtime *own;
    tdm_status status;

    options.address = address;
    if (tdm_runtime_start(&options, &own) != TDM_OK) {
        return NO_RUNTIME;
    }
    if (tdm_placement_group_find_by_id(own, id, TEST_TIMEOUT_MS, &group) != TDM_OK) {
        return NOT_FOUND;
    }
    (void)!write(ready_fd, "", 1);
    status = tdm_placement_group_wait(group, TEST_TIMEOUT_MS);
    tdm_placement_group_release(group);
    tdm_runtime_stop(own);
    return status == TDM_OK ? PLACED : status == TDM_E_NOT_FOUND ? REMOVED : OTHER_FAILURE;
}

/* Starts the other driver on the second node, and returns when it is about to wait. It is a program
 * of its own, because a process that was forked beside threads may start none. */
static pid_t start_waiter(const char *id)
{
    int ready[2];
    char ready_fd[16];
    char byte;
    pid_t child;

    assert_int_equal(pipe(ready), 0);
    (void)snprintf(ready_fd, sizeof(ready_fd), "%d", ready[1]);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)execl("/proc/self/exe", "placement_group_waits_test", WAITER, id,
                    cluster.second.address, ready_fd, (char *)NULL);
        _exit(OTHER_FAILURE);
    }
    (void)close(ready[1]);
    (void)!read(ready[0], &byte, 1);
    (void)close(ready[0]);
    return child;
}

static int exit_status_of(pid_t child)
{
    int status;

    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A group of one bundle, which waits. */
static tdm_placement_group *make_pending(struct tdm_placement_group_info *info_out, double num_cpus)
{
    const struct tdm_bundle bundle = {.num_cpus = num_cpus};
    const struct tdm_placement_group_options options = {.asynchronous = 1};
    tdm_placement_group *group = NULL;

    assert_int_equal(
        tdm_placement_group_create_with(runtime, &bundle, 1, &options, TEST_TIMEOUT_MS, &group),
        TDM_OK);
    tdm_placement_group_describe(group, info_out);
    assert_int_equal(info_out->is_placed, 0);
    return group;
}

static void other_node_learns_that_the_group_is_placed(void **state)
{
    static const struct tdm_bundle all[2] = {{.num_cpus = 4}, {.num_cpus = 4}};
    struct tdm_placement_group_info info;
    tdm_placement_group *first;
    tdm_placement_group *group;
    pid_t child;

    (void)state;
    assert_int_equal(
        tdm_placement_group_create(runtime, all, 2, TDM_STRICT_SPREAD, TEST_TIMEOUT_MS, &first),
        TDM_OK);
    group = make_pending(&info, 2);
    child = start_waiter(info.id);
    assert_int_equal(tdm_placement_group_remove(first, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(exit_status_of(child), PLACED);
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
}

static void other_node_learns_that_the_group_is_removed(void **state)
{
    struct tdm_placement_group_info info;
    tdm_placement_group *group = make_pending(&info, 100);
    pid_t child = start_waiter(info.id);

    (void)state;
    assert_int_equal(info.is_infeasible, 1);
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(exit_status_of(child), REMOVED);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_node_learns_that_the_group_is_placed),
        cmocka_unit_test(other_node_learns_that_the_group_is_removed),
    };
    int failed = 1;

    if (argc == 5 && strcmp(argv[1], WAITER) == 0) {
        return wait_for_group(argv[2], argv[3], (int)strtol(argv[4], NULL, 10));
    }
    runtime = two_nodes_join(&cluster);
    if (runtime != NULL) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed + two_nodes_leave(&cluster, runtime);
}
