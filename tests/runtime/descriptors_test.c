/* descriptors_test.c - the limit of descriptors is raised, and a shortage is seen in time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/descriptors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static void limit_is_raised_to_the_hard_one(void **state)
{
    struct rlimit limit;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max / 2;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(tdm__descriptors_limit() == limit.rlim_max / 2);
    tdm__descriptors_raise_limit();
    assert_true(tdm__descriptors_limit() == limit.rlim_max);
}

static void descriptors_are_few_near_the_limit(void **state)
{
    struct rlimit before;
    struct rlimit tight;
    int next = dup(STDERR_FILENO);

    (void)state;
    for (int fd = next; fd < 1024; fd++) { /* Descriptors that this process has inherited. */
        (void)close(fd);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t)next + 10;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    assert_false(tdm__descriptors_are_few(10));
    assert_true(tdm__descriptors_are_few(11));
    /* A low free number does not mean that many are free. */
    for (int i = 0; i < 10; i++) {
        assert_int_equal(dup(STDERR_FILENO), next + i);
    }
    (void)close(next + 1);
    (void)close(next + 5);
    assert_false(tdm__descriptors_are_few(2));
    assert_true(tdm__descriptors_are_few(3));
    for (int i = 0; i < 10; i++) {
        (void)close(next + i);
    }
    tight.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    assert_true(tdm__descriptors_are_few(1));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(tdm__descriptors_are_few(TDM__DESCRIPTORS_ASKED_MAX));
    assert_int_equal(dup(STDERR_FILENO), next); /* The probe is closed again. */
    assert_int_equal(close(next), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limit_is_raised_to_the_hard_one),
        cmocka_unit_test(descriptors_are_few_near_the_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
