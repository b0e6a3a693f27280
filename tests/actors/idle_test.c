/* idle_test.c - waiting processes use no CPU time, whatever the calls before were. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include "runtime/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { CALLS = 2000, IDLE_MS = 2000, SETTLE_MS = 50, BUSY_MS_MAX = 20 };

static tdm_runtime *runtime;

/* Of all threads of a process. */
static int64_t cpu_time_ns(pid_t pid)
{
    struct timespec time;
    clockid_t clock;

    assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
    assert_int_equal(clock_gettime(clock, &time), 0);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void wait_outside(int64_t time_ms)
{
    const struct timespec time = {time_ms / 1000, time_ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL);
}

static void wait_inside(int64_t time_ms)
{
    tdm_ref *never;
    tdm_actor *actor = actor_fixture_create(runtime, NULL);

    assert_int_equal(tdm_actor_call(actor, "hang", &never, ""), TDM_OK);
    assert_int_equal(tdm_get(never, time_ms, ""), TDM_E_TIMEOUT);
    tdm_ref_release(never);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

static void call_often(tdm_actor *actor)
{
    for (int64_t i = 1; i <= CALLS; i++) {
        int64_t total;
        tdm_ref *ref;

        assert_int_equal(tdm_actor_call(actor, "add", &ref, "i", (int64_t)1), TDM_OK);
        assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, "i", &total), TDM_OK);
        assert_int_equal(total, i);
        tdm_ref_release(ref);
    }
}

/* What both sides have learnt from fast calls ends with them. */
static void check_idle(void (*wait)(int64_t time_ms))
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    struct tdm_actor_info info;
    int64_t driver_ns;
    int64_t actor_ns;

    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_describe(actor, &info);
    call_often(actor);
    wait_outside(SETTLE_MS);
    driver_ns = cpu_time_ns(getpid());
    actor_ns = cpu_time_ns((pid_t)info.pid);
    wait(IDLE_MS);
    assert_true(cpu_time_ns(getpid()) - driver_ns < (int64_t)BUSY_MS_MAX * 1000000);
    assert_true(cpu_time_ns((pid_t)info.pid) - actor_ns < (int64_t)BUSY_MS_MAX * 1000000);
    tdm_actor_destroy(actor);
}

static void actor_and_a_driver_that_does_something_else_are_idle(void **state)
{
    (void)state;
    check_idle(wait_outside);
}

static void driver_that_waits_for_a_result_is_idle(void **state)
{
    (void)state;
    check_idle(wait_inside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actor_and_a_driver_that_does_something_else_are_idle),
        cmocka_unit_test(driver_that_waits_for_a_result_is_idle),
    };
    int failed;

    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
