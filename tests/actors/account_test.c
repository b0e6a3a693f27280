/* account_test.c - the memory of a node's processes: a limit, and parts of the dead. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/account.h"

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

static struct tdm__account *open_account(void)
{
    struct tdm__account *account = NULL;

    if (tdm__account_open(directory, &account) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    return account;
}

static struct tdm__account_sums sums_of(const struct tdm__account *account)
{
    struct tdm__account_sums sums;

    tdm__account_read(account, &sums);
    return sums;
}

static void nobody_takes_more_than_is_there(void **state)
{
    struct tdm__account *one = open_account();
    struct tdm__account *two = open_account();

    (void)state;
    assert_true(tdm__account_take(one, 600));
    assert_false(tdm__account_take(two, 500));
    assert_false(tdm__account_take(two, UINT64_MAX));
    assert_int_equal(tdm__account_missing(two, 500), 100);
    assert_true(tdm__account_take(two, 400));
    tdm__account_take_anyway(two, 50);
    assert_int_equal(sums_of(one).used_bytes, 1050);
    assert_int_equal(sums_of(one).limit_bytes, 1000);
    assert_false(tdm__account_take(one, 0));
    tdm__account_give(two, 450);
    tdm__account_spilled(two, 70);
    assert_int_equal(sums_of(one).spilled_bytes, 70);
    tdm__account_close(two); /* with what it had */
    assert_int_equal(sums_of(one).spilled_bytes, 0);
    assert_true(tdm__account_take(one, 400));
    tdm__account_close(one);
}

static void what_the_dead_had_is_found(void **state)
{
    struct tdm__account *account = open_account();
    int wait_status;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        struct tdm__account *own;

        _exit(tdm__account_open(directory, &own) == TDM_OK && tdm__account_take(own, 1000) ? 0
                                                                                           : 1);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_int_equal(wait_status, 0);
    assert_int_equal(sums_of(account).used_bytes, 1000);
    assert_true(tdm__account_take(account, 1000));
    assert_int_equal(sums_of(account).used_bytes, 1000);
    tdm__account_close(account);
}

static void pressure_is_seen_by_others(void **state)
{
    struct tdm__account *one = open_account();
    struct tdm__account *two = open_account();

    (void)state;
    assert_int_equal(tdm__account_pressed(two), 0);
    tdm__account_press(one, 123);
    assert_int_equal(tdm__account_pressed(two), 123);
    tdm__account_close(one);
    tdm__account_close(two);
}

static void another_file_is_no_account(void **state)
{
    struct tdm__account *account;
    char path[160];
    int fd;

    (void)state;
    assert_int_equal(tdm__account_open("/nonexistent", &account), TDM_E_NOT_FOUND);
    (void)snprintf(path, sizeof(path), "%s/object-store", directory);
    fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    (void)close(fd);
    assert_int_equal(tdm__account_open(directory, &account), TDM_E_PROTOCOL);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_takes_more_than_is_there),
        cmocka_unit_test(what_the_dead_had_is_found),
        cmocka_unit_test(pressure_is_seen_by_others),
        cmocka_unit_test(another_file_is_no_account),
    };
    const char *base = getenv("TMPDIR");
    int failed;

    (void)snprintf(directory, sizeof(directory), "%s/account-XXXXXX",
                   base == NULL ? "/tmp" : base);
    if (mkdtemp(directory) == NULL || tdm__account_make(directory, 1000) != TDM_OK) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + (rmdir(directory) == 0 ? 0 : 1);
}
