/* liveness_monitor_test.c - a busy actor counts as alive; a stopped or dead one is detected. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/liveness_monitor.h"

#include "actors/process/runtime.h"
#include "runtime/clock.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { ACTORS = 3, STALL_MS = 1200, LONG_WORK_MS = 3 * STALL_MS, LATE_MS = 2000, LONG_MS = 20000 };

/* Method: keeps the thread busy for the given number of milliseconds. */
static tdm_status worker_work(tdm_call *call, void *self)
{
    int64_t end_ms;
    int64_t work_ms;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &work_ms));
    end_ms = tdm__clock_ms() + work_ms;
    while (tdm__clock_ms() < end_ms) {
    }
    return TDM_OK;
}

TDM_ACTOR_CLASS(worker, .state_bytes = 1, .methods = {{"work", worker_work}});

static tdm_runtime *runtime;
static tdm_actor *actors[ACTORS];
static struct tdm__liveness_monitor *monitor;

static pid_t pid_of(tdm_actor *actor)
{
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    assert_true(info.pid > 0);
    return (pid_t)info.pid;
}

static int set_up(void **state)
{
    static const char *const names[ACTORS] = {"w0", "w1", "w2"};

    (void)state;
    for (uint32_t i = 0; i < ACTORS; i++) {
        actors[i] = one_node_actor(runtime, "worker", names[i], 0);
    }
    TRY(tdm__liveness_monitor_create(runtime, ACTORS, STALL_MS, &monitor));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__liveness_monitor_destroy(monitor);
    for (uint32_t i = 0; i < ACTORS; i++) {
        if (actors[i] != NULL) {
            TRY(tdm_actor_kill(actors[i], LONG_MS));
            tdm_actor_destroy(actors[i]);
        }
    }
    return 0;
}

static void assert_gone(uint32_t place, const char *words)
{
    const char *why = tdm__liveness_monitor_failure(monitor, place);

    if (why == NULL || strstr(why, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", why == NULL ? "it answers" : why, words);
    }
}

static void rank_that_computes_for_long_is_alive(void **state)
{
    int64_t begin_ms = tdm__clock_ms();
    tdm_ref *ref;

    (void)state;
    TRY(tdm_actor_call(actors[1], "work", &ref, "i", (int64_t)LONG_WORK_MS));
    while (tdm_get(ref, 0, "") == TDM_E_TIMEOUT) {
        TRY(tdm__liveness_monitor_poll_sync(monitor, actors));
        for (uint32_t i = 0; i < ACTORS; i++) {
            assert_null(tdm__liveness_monitor_failure(monitor, i));
        }
    }
    assert_true(tdm__clock_ms() - begin_ms >= LONG_WORK_MS);
    tdm_ref_release(ref);
}

static void stopped_rank_is_named_after_the_stall_timeout(void **state)
{
    int64_t begin_ms = tdm__clock_ms();

    (void)state;
    assert_int_equal(kill(pid_of(actors[1]), SIGSTOP), 0);
    TRY(tdm__liveness_monitor_poll_sync(monitor, actors));
    assert_true(tdm__clock_ms() - begin_ms >= STALL_MS);
    assert_gone(1, "actor w1 has not replied for 1200 ms");
    assert_null(tdm__liveness_monitor_failure(monitor, 0));
    assert_null(tdm__liveness_monitor_failure(monitor, 2));
    assert_int_equal(kill(pid_of(actors[1]), SIGCONT), 0);
    TRY(tdm__liveness_monitor_poll_sync(monitor, actors));
    assert_gone(1, "w1"); /* One failed probe is enough. */
}

static void asking_does_not_wait(void **state)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    int64_t begin_ms = tdm__clock_ms();

    (void)state;
    assert_int_equal(kill(pid_of(actors[2]), SIGSTOP), 0);
    TRY(tdm__liveness_monitor_poll(monitor, actors));
    assert_true(tdm__clock_ms() - begin_ms < STALL_MS);
    while (tdm__liveness_monitor_failure(monitor, 2) == NULL &&
           tdm__clock_ms() - begin_ms < LONG_MS) {
        (void)nanosleep(&pause, NULL);
        TRY(tdm__liveness_monitor_poll(monitor, actors));
    }
    assert_gone(2, "has not replied");
}

static pid_t pid_of_daemon(void)
{
    struct tdm__conn *daemon;
    TDM__LOCK(runtime);

    TRY(tdm__runtime_daemon(runtime, &daemon));
    return (pid_t)tdm__conn_peer(daemon)->pid;
}

/* Whatever it heard, it cannot pass on. */
static void no_rank_is_declared_lost_while_the_daemon_is_stopped(void **state)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    pid_t daemon = pid_of_daemon();
    int64_t begin_ms = tdm__clock_ms();

    (void)state;
    TRY(tdm__liveness_monitor_poll_sync(monitor, actors)); /* The daemon has replied. */
    assert_int_equal(kill(daemon, SIGSTOP), 0);
    while (tdm__clock_ms() - begin_ms < LATE_MS) {
        TRY(tdm__liveness_monitor_poll(monitor, actors));
        (void)nanosleep(&pause, NULL);
    }
    assert_int_equal(kill(daemon, SIGCONT), 0);
    TRY(tdm__liveness_monitor_poll_sync(monitor, actors));
    for (uint32_t i = 0; i < ACTORS; i++) {
        assert_null(tdm__liveness_monitor_failure(monitor, i));
    }
}

static void dead_ranks_are_reported_with_their_cause(void **state)
{
    (void)state;
    one_node_kill_actor(actors[0]);
    TRY(tdm__liveness_monitor_poll_sync(monitor, actors));
    assert_gone(0, "signal 9");
    assert_null(tdm__liveness_monitor_failure(monitor, 1));
}

static void reset_slot_accepts_another_actor(void **state)
{
    (void)state;
    TRY(tdm__liveness_monitor_poll(monitor, actors));
    tdm__liveness_monitor_reset(monitor, 2); /* The probe of the actor is pending. */
    TRY(tdm_actor_kill(actors[0], LONG_MS));
    TRY(tdm__liveness_monitor_poll_sync(monitor, actors));
    assert_gone(0, "");
    tdm_actor_destroy(actors[0]);
    tdm__liveness_monitor_reset(monitor, 0);
    actors[0] = NULL;
    TRY(tdm__liveness_monitor_poll_sync(monitor, actors));
    assert_null(tdm__liveness_monitor_failure(monitor, 0));
    actors[0] = one_node_actor(runtime, "worker", "w0", 0);
    TRY(tdm__liveness_monitor_poll_sync(monitor, actors));
    assert_null(tdm__liveness_monitor_failure(monitor, 0));
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(rank_that_computes_for_long_is_alive),
        EACH(stopped_rank_is_named_after_the_stall_timeout),
        EACH(asking_does_not_wait),
        EACH(no_rank_is_declared_lost_while_the_daemon_is_stopped),
        EACH(dead_ranks_are_reported_with_their_cause),
        EACH(reset_slot_accepts_another_actor),
    };
    int failed;

    runtime = one_node_start(32 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
