/* cmocka.h - the little of cmocka that the suites use, for machines that have none. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_GPU_BARE_CMOCKA_H
#define TDM_TESTS_GPU_BARE_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The same names as cmocka's, and the same output in short.  A failed assertion ends its test;
 * one outside of a test, in a thread or a child, ends the process. */

struct CMUnitTest {
    const char *name;
    void (*test_func)(void **state);
    int (*setup_func)(void **state);
    int (*teardown_func)(void **state);
    void *initial_state;
};

enum { BARE_FAILED = 1, BARE_SKIPPED };

/* Weak, so that the sources of one program share it: an assertion in a support file must end the
 * test, not the process. */
__attribute__((weak)) _Thread_local jmp_buf *bare_test;

_Noreturn static inline void bare_end(int how, const char *file, int line)
{
    if (how == BARE_FAILED) {
        (void)printf("%s:%d: failed\n", file, line);
        (void)fflush(stdout);
    }
    if (bare_test == NULL) {
        exit(255);
    }
    longjmp(*bare_test, how);
}

#define bare_check(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)printf("not so: %s\n", #condition);                                              \
            bare_end(BARE_FAILED, __FILE__, __LINE__);                                             \
        }                                                                                          \
    } while (0)

#define assert_true(condition)         bare_check(condition)
#define assert_non_null(pointer)       bare_check((pointer) != NULL)
#define assert_int_equal(a, b)         bare_check((long long)(a) == (long long)(b))
#define assert_int_not_equal(a, b)     bare_check((long long)(a) != (long long)(b))
#define assert_string_equal(a, b)      bare_check(strcmp((a), (b)) == 0)
#define assert_memory_equal(a, b, len) bare_check(memcmp((a), (b), (len)) == 0)
#define skip()                         bare_end(BARE_SKIPPED, __FILE__, __LINE__)
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        (void)printf(__VA_ARGS__);                                                                 \
        bare_end(BARE_FAILED, __FILE__, __LINE__);                                                 \
    } while (0)

#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f, NULL, NULL, NULL                                                                    \
    }
#define cmocka_unit_test_setup_teardown(f, setup, down)                                            \
    {                                                                                              \
#f, f, setup, down, NULL                                                                   \
    }
#define cmocka_run_group_tests_name(name, tests, setup, down)                                      \
    bare_run(name, tests, sizeof(tests) / sizeof((tests)[0]))
#define cmocka_run_group_tests(tests, setup, down)                                                 \
    bare_run("tests", tests, sizeof(tests) / sizeof((tests)[0]))

/* Runs one function of a test.  Returns 0, BARE_FAILED or BARE_SKIPPED. */
static inline int bare_run_step(int (*setup_func)(void **), void (*test_func)(void **),
                                void **state)
{
    jmp_buf start;
    volatile int ended = setjmp(start);

    if (ended == 0) {
        bare_test = &start;
        if (setup_func != NULL && setup_func(state) != 0) {
            ended = BARE_FAILED;
        }
        if (test_func != NULL) {
            test_func(state);
        }
    }
    bare_test = NULL;
    return ended;
}

/* The teardown runs after a failed test too, so that memory which the test left on the GPU does
 * not fail the next one. */
static inline int bare_run_one(const struct CMUnitTest *test)
{
    void *state = test->initial_state;
    int set_up = bare_run_step(test->setup_func, NULL, &state);
    int tested = set_up == 0 ? bare_run_step(NULL, test->test_func, &state) : set_up;
    int torn_down = set_up == 0 ? bare_run_step(test->teardown_func, NULL, &state) : 0;

    return tested != 0 ? tested : torn_down;
}

static inline int bare_run(const char *name, const struct CMUnitTest *tests, size_t count)
{
    static const char *const ends[] = {"ok", "FAILED", "skipped"};
    int failed = 0;

    for (size_t i = 0; i < count; i++) {
        int ended = bare_run_one(&tests[i]);

        (void)printf("[%s] %s: %s\n", name, tests[i].name, ends[ended]);
        (void)fflush(stdout);
        failed += ended == BARE_FAILED ? 1 : 0;
    }
    (void)printf("[%s] %zu tests, %d failed\n", name, count, failed);
    (void)fflush(stdout);
    return failed;
}

#endif
