/* nccl_background_test.c - functions that may block run on threads of their own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/nccl/background.h"
#include "runtime/clock.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What the function shares with the test. */
struct shared {
    pthread_t thread; /* Thread on which the function ran. */
    int value;        /* What the function was given. */
    sem_t may_end;    /* Posted when the function may return. */
    sem_t has_ended;  /* Posted when the function returns. */
};

struct argument {
    struct shared *shared;
    int value;
};

static void take_value(void *arg)
{
    const struct argument *argument = arg;

    argument->shared->thread = pthread_self();
    argument->shared->value = argument->value;
}

static void test_function_runs_on_another_thread(void **state)
{
    struct shared shared = {.value = 0};
    struct argument argument = {&shared, 7};

    (void)state;
    assert_true(tdm__background_run(take_value, &argument, sizeof(argument), 20000));
    assert_int_equal(shared.value, 7);
    assert_false(pthread_equal(shared.thread, pthread_self()));
}

static void block(void *arg)
{
    struct argument argument = *(const struct argument *)arg;

    (void)sem_wait(&argument.shared->may_end);
    take_value(&argument);
    (void)sem_post(&argument.shared->has_ended);
}

static void test_function_that_blocks_is_left_behind(void **state)
{
    static struct shared shared;
    struct argument argument = {&shared, 8};
    int64_t begun_ms = tdm__clock_ms();

    (void)state;
    assert_int_equal(sem_init(&shared.may_end, 0, 0), 0);
    assert_int_equal(sem_init(&shared.has_ended, 0, 0), 0);
    assert_false(tdm__background_run(block, &argument, sizeof(argument), 30));
    assert_true(tdm__clock_ms() - begun_ms >= 30);
    argument.value = 9; /* The function has a copy. */
    assert_int_equal(sem_post(&shared.may_end), 0);
    assert_int_equal(sem_wait(&shared.has_ended), 0);
    assert_int_equal(shared.value, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_function_runs_on_another_thread),
        cmocka_unit_test(test_function_that_blocks_is_left_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
