/* engine_failover_test.c - an engine is one unit: with one rank all of it is out, and the others
 * stay. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/engine_failover.h"

#include "colocate/job/liveness_monitor.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { ENGINES = 2, PER_ENGINE = 2, RANKS = ENGINES * PER_ENGINE };
enum { STALL_MS = 500, LONG_MS = 20000 };

static const struct tdm_bytes no_arguments = {"\x90", 1};

static tdm_status rank_rest(tdm_call *call, void *self)
{
    const struct timespec pause = {.tv_sec = 60};

    (void)call;
    (void)self;
    (void)nanosleep(&pause, NULL);
    return TDM_OK;
}

static tdm_status rank_answer(tdm_call *call, void *self)
{
    (void)self;
    return tdm_call_reply(call, "i", (int64_t)1);
}

/* Fails as a rank that does not reach the store, if the actor's name begins with `argument`. */
static tdm_status rank_vote(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;
    const char *prefix;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &prefix));
    tdm_runtime_describe(tdm_runtime_current(), &info);
    return strncmp(info.actor_name, prefix, strlen(prefix)) == 0
               ? tdm_fail(TDM_E_STORE, "the store does not reply")
               : TDM_OK;
}

TDM_ACTOR_CLASS(rank, .state_bytes = 1,
                .methods = {{"answer", rank_answer}, {"rest", rank_rest}, {"vote", rank_vote}});

static tdm_runtime *runtime;
static struct tdm__job_spec spec = {.num_engines = ENGINES, .num_engines_min = 1};
static struct tdm__worker_group workers;
static char told[256];

static void on_event(void *arg, uint32_t engine, enum tdm__engine_event news, const char *why)
{
    assert_ptr_equal(arg, &workers);
    assert_int_equal(news, TDM__ENGINE_EVENT_LOST);
    (void)snprintf(told, sizeof(told), "%u: %s", engine, why);
}

static int set_up(void **state)
{
    static const char *const names[RANKS] = {"e00", "e01", "e10", "e11"};
    static tdm_actor *actors[RANKS];

    (void)state;
    for (uint32_t i = 0; i < RANKS; i++) {
        actors[i] = one_node_actor(runtime, "rank", names[i], 0);
    }
    workers = (struct tdm__worker_group){.runtime = runtime,
                                         .spec = &spec,
                                         .engines = actors,
                                         .engines_count = RANKS,
                                         .ranks_per_engine = PER_ENGINE,
                                         .on_event = on_event,
                                         .on_event_arg = &workers};
    TRY(tdm__liveness_monitor_create(runtime, RANKS, STALL_MS, &workers.monitor));
    told[0] = '\0';
    spec.num_engines_min = 1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__liveness_monitor_destroy(workers.monitor);
    free(workers.dead);
    for (uint32_t i = 0; i < RANKS; i++) {
        if (workers.engines[i] != NULL) {
            TRY(tdm_actor_kill(workers.engines[i], LONG_MS));
            tdm_actor_destroy(workers.engines[i]);
        }
    }
    return 0;
}

static tdm_status call(const char *method)
{
    return tdm__worker_group_call(&workers, workers.engines, RANKS, method, no_arguments, LONG_MS);
}

static pid_t pid_of(const tdm_actor *actor)
{
    struct tdm_actor_info info;

    tdm_actor_describe((tdm_actor *)(uintptr_t)actor, &info);
    return (pid_t)info.pid;
}

static void no_engine_is_lost_while_all_reply(void **state)
{
    uint32_t lost = 7;

    (void)state;
    TRY(tdm__failover_remove_dead_engines(&workers, &lost));
    assert_int_equal(lost, 0);
    assert_int_equal(tdm__worker_group_live_engines(&workers), ENGINES);
    (void)tdm__fail(TDM_E_INVAL, "something else");
    assert_int_equal(tdm__failover_handle_failure(&workers, TDM_E_INVAL), TDM_E_INVAL);
    assert_string_equal(tdm_error_detail(), "something else");
    TRY(call("answer"));
}

static void with_one_rank_the_engine_is_lost(void **state)
{
    pid_t other = pid_of(workers.engines[3]);
    struct tdm_actor_info infos[PER_ENGINE];

    (void)state;
    tdm_actor_describe(workers.engines[2], &infos[0]);
    tdm_actor_describe(workers.engines[3], &infos[1]);
    one_node_kill_actor(workers.engines[2]);
    assert_int_equal(call("answer"), TDM_E_ACTOR_DIED);
    TRY(tdm__failover_handle_failure(&workers, TDM_E_ACTOR_DIED));
    assert_non_null(strstr(told, "1: actor e10 died"));
    assert_null(workers.engines[2]);
    assert_null(workers.engines[3]);
    /* The process was killed, so it may be recorded as dead. */
    assert_int_equal(kill(other, 0), -1);
    assert_int_equal(workers.dead_count, PER_ENGINE);
    for (uint32_t i = 0; i < PER_ENGINE; i++) {
        struct tdm__id id;

        TRY(tdm__id_parse(infos[i].id, &id));
        assert_true(tdm__id_equal(&id, &workers.dead[i].actor));
        assert_int_equal(workers.dead[i].incarnation, 1);
    }
    assert_int_equal(tdm__worker_group_live_engines(&workers), 1);
    assert_true(tdm__worker_group_engine_serves(&workers, 0));
    assert_false(tdm__worker_group_engine_serves(&workers, 1));
    TRY(call("answer"));
}

static void too_few_are_left(void **state)
{
    (void)state;
    spec.num_engines_min = 2;
    one_node_kill_actor(workers.engines[0]);
    assert_int_equal(call("answer"), TDM_E_ACTOR_DIED);
    assert_int_equal(tdm__failover_handle_failure(&workers, TDM_E_ACTOR_DIED), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "e00"));
}

/* Nothing comes of the call itself for a minute: only the question finds it. */
static void stopped_rank_ends_the_wait(void **state)
{
    int64_t begin_ms = tdm__clock_ms();

    (void)state;
    assert_int_equal(kill(pid_of(workers.engines[1]), SIGSTOP), 0);
    assert_int_equal(call("rest"), TDM_E_ACTOR_DIED);
    TRY(tdm__failover_handle_failure(&workers, TDM_E_ACTOR_DIED));
    assert_true(tdm__clock_ms() - begin_ms < LONG_MS / 2);
    assert_string_equal(told, "0: actor e01 has not replied for 500 ms");
    assert_null(workers.engines[0]);
    assert_non_null(workers.engines[2]);
}

/* Lets all ranks vote, of which those whose names begin with `prefix` do not reach the store. */
static tdm_status vote(const char *prefix)
{
    tdm_writer *writer;
    tdm_status status;

    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "s", prefix));
    status = tdm__worker_group_call(&workers, workers.engines, RANKS, "vote",
                                    tdm_writer_bytes(writer), LONG_MS);
    tdm_writer_destroy(writer);
    return status;
}

/* If no engine reaches the store, the store is away, and leaving engines out would not help. */
static void engine_that_does_not_reach_the_store_is_left_out(void **state)
{
    static tdm_actor *others[RANKS];
    struct tdm__worker_group_engine states[ENGINES] = {{.other_ranks = others},
                                                       {.other_ranks = others + PER_ENGINE}};
    uint32_t lost = 7;

    (void)state;
    workers.engine_states = states;
    assert_int_equal(vote("e"), TDM_E_STORE);
    assert_int_equal(tdm__failover_handle_failure(&workers, TDM_E_STORE), TDM_E_STORE);
    assert_int_equal(tdm__worker_group_live_engines(&workers), ENGINES);
    assert_int_equal(vote("e11"), TDM_E_STORE);
    TRY(tdm__failover_handle_failure(&workers, TDM_E_STORE));
    assert_string_equal(told, "1: its node does not reach the store or the trainers");
    assert_non_null(workers.engines[0]);
    assert_null(workers.engines[2]);
    assert_null(workers.engines[3]);
    assert_int_equal(workers.dead_count, PER_ENGINE);
    /* It is restarted after a pause, because a new process would not reach the store either. */
    assert_int_equal(tdm__recovery_next(&states[1].recovery, tdm__clock_ms()), TDM__RECOVERY_NONE);
    TRY(tdm__failover_remove_cut_off_engines(&workers, &lost));
    assert_int_equal(lost, 0);
    TRY(vote("none"));
    workers.engine_states = NULL;
}

/* A trainer is not replaced: the failure names it. */
static void stopped_trainer_is_killed_and_reported(void **state)
{
    int64_t begin_ms = tdm__clock_ms();
    tdm_actor *trainer = one_node_actor(runtime, "rank", "t0", 0);
    pid_t pid = pid_of(trainer);

    (void)state;
    workers.trainers = &trainer;
    workers.trainers_count = 1;
    TRY(tdm__liveness_monitor_create(runtime, 1, STALL_MS, &workers.trainers_monitor));
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(
        tdm__worker_group_call(&workers, workers.trainers, 1, "answer", no_arguments, LONG_MS),
        TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "t0 has not replied for 500 ms"));
    assert_true(tdm__clock_ms() - begin_ms < LONG_MS / 2);
    assert_int_equal(kill(pid, 0), -1);
    assert_string_equal(told, ""); /* No engine was reported as lost. */
    tdm__liveness_monitor_destroy(workers.trainers_monitor);
    tdm_actor_destroy(trainer);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(no_engine_is_lost_while_all_reply),
        EACH(with_one_rank_the_engine_is_lost),
        EACH(too_few_are_left),
        EACH(stopped_rank_ends_the_wait),
        EACH(engine_that_does_not_reach_the_store_is_left_out),
        EACH(stopped_trainer_is_killed_and_reported),
    };
    int failed;

    runtime = one_node_start(32 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
