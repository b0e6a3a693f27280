/* memory_usage_test.c - the usage file of a node: the limit, and shares of processes that ended. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/memory_usage.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[128];

static struct tdm__memory_usage *open_usage(void)
{
    struct tdm__memory_usage *usage = NULL;

    if (tdm__memory_usage_open(directory, &usage) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    return usage;
}

static struct tdm__memory_usage_totals sums_of(const struct tdm__memory_usage *usage)
{
    struct tdm__memory_usage_totals sums;

    tdm__memory_usage_read(usage, &sums);
    return sums;
}

static void reservation_beyond_the_limit_is_refused(void **state)
{
    struct tdm__memory_usage *one = open_usage();
    struct tdm__memory_usage *two = open_usage();

    (void)state;
    assert_true(tdm__memory_usage_reserve(one, 600));
    assert_false(tdm__memory_usage_reserve(two, 500));
    assert_false(tdm__memory_usage_reserve(two, UINT64_MAX));
    assert_int_equal(tdm__memory_usage_shortage(two, 500), 100);
    assert_true(tdm__memory_usage_reserve(two, 400));
    tdm__memory_usage_reserve_over_limit(two, 50);
    assert_int_equal(sums_of(one).used_bytes, 1050);
    assert_int_equal(sums_of(one).limit_bytes, 1000);
    assert_false(tdm__memory_usage_reserve(one, 0));
    tdm__memory_usage_release(two, 450);
    tdm__memory_usage_add_spilled(two, 70);
    assert_int_equal(sums_of(one).spilled_bytes, 70);
    tdm__memory_usage_close(two); /* Closing subtracts the share of the second process. */
    assert_int_equal(sums_of(one).spilled_bytes, 0);
    assert_true(tdm__memory_usage_reserve(one, 400));
    tdm__memory_usage_close(one);
}

static void share_of_an_ended_process_is_reclaimed(void **state)
{
    struct tdm__memory_usage *usage = open_usage();
    int wait_status;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        struct tdm__memory_usage *own;

        _exit(tdm__memory_usage_open(directory, &own) == TDM_OK &&
                      tdm__memory_usage_reserve(own, 1000)
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_int_equal(wait_status, 0);
    assert_int_equal(sums_of(usage).used_bytes, 1000);
    assert_true(tdm__memory_usage_reserve(usage, 1000));
    assert_int_equal(sums_of(usage).used_bytes, 1000);
    tdm__memory_usage_close(usage);
}

/* A forked child keeps the memory of its parent, so the parent's share stays until the child has
 * ended, too. */
static void share_stays_while_a_forked_child_keeps_the_memory(void **state)
{
    struct tdm__memory_usage *usage = open_usage();
    int wait_status;
    int hold[2];
    pid_t parent;

    (void)state;
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    parent = fork();
    if (parent == 0) {
        struct tdm__memory_usage *own;
        char end;

        (void)close(hold[1]);
        if (tdm__memory_usage_open(directory, &own) != TDM_OK ||
            !tdm__memory_usage_reserve(own, 1000)) {
            _exit(1);
        }
        if (fork() == 0) {
            (void)read(hold[0], &end, 1); /* Returns when the test closes the pipe. */
        }
        _exit(0);
    }
    (void)close(hold[0]);
    assert_int_equal(waitpid(parent, &wait_status, 0), parent);
    assert_int_equal(wait_status, 0);
    assert_false(tdm__memory_usage_reserve(usage, 1000));
    (void)close(hold[1]);
    for (uint32_t i = 0; i < 5000 && !tdm__memory_usage_reserve(usage, 1000); i++) {
        (void)usleep(1000);
    }
    assert_false(tdm__memory_usage_reserve(usage, 1));
    assert_int_equal(sums_of(usage).used_bytes, 1000);
    tdm__memory_usage_close(usage);
}

static void pressure_is_visible_to_other_processes(void **state)
{
    struct tdm__memory_usage *one = open_usage();
    struct tdm__memory_usage *two = open_usage();

    (void)state;
    assert_int_equal(tdm__memory_usage_pressure(two), 0);
    tdm__memory_usage_set_pressure(one, 123);
    assert_int_equal(tdm__memory_usage_pressure(two), 123);
    tdm__memory_usage_close(one);
    tdm__memory_usage_close(two);
}

static void another_file_is_no_usage_file(void **state)
{
    struct tdm__memory_usage *usage;
    char path[160];
    int fd;

    (void)state;
    assert_int_equal(tdm__memory_usage_open("/nonexistent", &usage), TDM_E_NOT_FOUND);
    (void)snprintf(path, sizeof(path), "%s/object-store", directory);
    fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    (void)close(fd);
    assert_int_equal(tdm__memory_usage_open(directory, &usage), TDM_E_PROTOCOL);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reservation_beyond_the_limit_is_refused),
        cmocka_unit_test(share_of_an_ended_process_is_reclaimed),
        cmocka_unit_test(share_stays_while_a_forked_child_keeps_the_memory),
        cmocka_unit_test(pressure_is_visible_to_other_processes),
        cmocka_unit_test(another_file_is_no_usage_file),
    };
    const char *base = getenv("TMPDIR");
    int failed;

    (void)snprintf(directory, sizeof(directory), "%s/account-XXXXXX", base == NULL ? "/tmp" : base);
    if (mkdtemp(directory) == NULL || tdm__memory_usage_create_file(directory, 1000) != TDM_OK) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + (rmdir(directory) == 0 ? 0 : 1);
}
