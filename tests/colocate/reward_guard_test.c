/* reward_guard_test.c - a reward function that crashes is reported with its library's name. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/reward_guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static float reward_of_one(const char *prompt, const char *answer,
                           const struct tdm_completion *completion, float *token_rewards)
{
    (void)prompt;
    (void)answer;
    (void)completion;
    token_rewards[0] = 1;
    return 1;
}

static float reward_that_aborts(const char *prompt, const char *answer,
                                const struct tdm_completion *completion, float *token_rewards)
{
    (void)prompt;
    (void)answer;
    (void)completion;
    (void)token_rewards;
    abort();
}

static float reward_that_faults(const char *prompt, const char *answer,
                                const struct tdm_completion *completion, float *token_rewards)
{
    (void)prompt;
    (void)answer;
    (void)completion;
    (void)token_rewards;
    (void)raise(SIGSEGV); /* A sanitizer would find a real access first. */
    return 0;
}

/* Calls `reward` in a child process and returns what the child writes to stderr. */
static const char *said_by_child(tdm_reward *reward, int *wait_status)
{
    static char said[4096];
    size_t used = 0;
    ssize_t got;
    int ends[2];
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit no_core = {0, 0};
        struct tdm__reward_guard guard;
        float rewards[1];

        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(SIGSEGV, SIG_DFL); /* A sanitizer has a handler of its own. */
        (void)dup2(ends[1], STDERR_FILENO);
        tdm__reward_guard_begin(&guard, "arith");
        (void)tdm__reward_guard_call(reward, "1+1", "2", NULL, rewards);
        tdm__reward_guard_end(&guard);
        _exit(0);
    }
    (void)close(ends[1]);
    while ((got = read(ends[0], said + used, sizeof(said) - 1 - used)) > 0) {
        used += (size_t)got;
    }
    said[used] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, wait_status, 0), child);
    return said;
}

static void test_crash_is_reported_and_ends_the_process_by_its_signal(void **state)
{
    int wait_status;

    (void)state;
    assert_non_null(strstr(said_by_child(reward_that_aborts, &wait_status),
                           "reward function of job library \"arith\" crashed: signal ABRT"));
    assert_true(WIFSIGNALED(wait_status));
    assert_int_equal(WTERMSIG(wait_status), SIGABRT);
    assert_non_null(strstr(said_by_child(reward_that_faults, &wait_status),
                           "reward function of job library \"arith\" crashed: signal SEGV"));
    assert_true(WIFSIGNALED(wait_status));
    assert_int_equal(WTERMSIG(wait_status), SIGSEGV);
}

static void test_former_signal_actions_return_at_the_end(void **state)
{
    struct tdm__reward_guard guard;
    struct sigaction before;
    struct sigaction after;
    float rewards[1];

    (void)state;
    assert_int_equal(sigaction(SIGSEGV, NULL, &before), 0);
    tdm__reward_guard_begin(&guard, "arith");
    assert_true(tdm__reward_guard_call(reward_of_one, "1+1", "2", NULL, rewards) > 0);
    tdm__reward_guard_end(&guard);
    assert_int_equal(sigaction(SIGSEGV, NULL, &after), 0);
    assert_true(before.sa_handler == after.sa_handler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crash_is_reported_and_ends_the_process_by_its_signal),
        cmocka_unit_test(test_former_signal_actions_return_at_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
