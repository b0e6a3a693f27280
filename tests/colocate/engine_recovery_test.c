/* engine_recovery_test.c - an engine on a node that does not reply is left out at once, and is
 * killed and placed again when the node replies; an engine without weights asks peers of its node.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/engine_recovery.h"

#include "colocate/job/engine_failover.h"
#include "colocate/job/liveness_monitor.h"
#include "runtime/clock.h"
#include "tests/support/one_node.h"
#include "tests/support/two_nodes.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/config.h>
#include <time.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* Each node has two GPUs: as many as an engine has ranks. */
enum { ENGINES = 2, PER_ENGINE = 2, RANKS = ENGINES * PER_ENGINE };
enum { STALL_MS = 500, LONG_MS = 20000 };

/* A rank that only counts how often it was asked for its weights. */
struct rank {
    int64_t exports_count;
};

/* () - replies how often "export_weights" was called. */
static tdm_status rank_exports_count(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "i", ((struct rank *)self)->exports_count);
}

/* Refuses to export weights. */
static tdm_status rank_export_weights(tdm_call *call, void *self)
{
    (void)call;
    ((struct rank *)self)->exports_count++;
    return tdm_fail(TDM_E_STATE, "this rank has no weights");
}

TDM_ACTOR_CLASS(rank, .state_bytes = sizeof(struct rank),
                .methods = {{"exports_count", rank_exports_count},
                            {"export_weights", rank_export_weights}});

static struct two_nodes cluster;
static tdm_runtime *runtime; /* The driver's runtime on the first node. */
static char told[256];       /* What was reported of an engine. */

static void on_event(void *arg, uint32_t engine, enum tdm__engine_event event, const char *text)
{
    (void)arg;
    assert_int_equal(event, TDM__ENGINE_EVENT_LOST);
    (void)snprintf(told, sizeof(told), "%u: %s", engine, text);
}

/* Creates one engine on each node, and returns the number of that on the second node. */
static uint32_t create_engines(struct tdm__worker_group *workers)
{
    static const struct tdm_bundle bundles[PER_ENGINE] = {{.num_gpus = 1}, {.num_gpus = 1}};
    struct tdm_runtime_info driver;
    uint32_t second = ENGINES;

    tdm_runtime_describe(runtime, &driver);
    for (uint32_t i = 0; i < RANKS; i++) {
        struct tdm_actor_options options = {.bundle = i % PER_ENGINE, .num_gpus = 0.5};
        struct tdm_actor_info info;
        tdm_placement_group **group = &workers->engine_groups[i / PER_ENGINE];

        if (i % PER_ENGINE == 0) {
            TRY(tdm_placement_group_create(runtime, bundles, PER_ENGINE, TDM_STRICT_PACK, LONG_MS,
                                           group));
        }
        options.group = *group;
        TRY(tdm_actor_create(runtime, "rank", &options, &workers->engines[i], ""));
        TRY(tdm_actor_wait_ready(workers->engines[i], LONG_MS));
        tdm_actor_describe(workers->engines[i], &info);
        if (strcmp(info.node_id, driver.node_id) != 0) {
            second = i / PER_ENGINE;
        }
    }
    assert_true(second < ENGINES);
    return second;
}

/* The job's actors, of which only the engines exist, and what the worker group has of them. */
static struct tdm__job_spec spec = {.num_engines = ENGINES,
                                    .num_engines_min = 1,
                                    .library = "/nowhere/library.so",
                                    .update_model = "policy",
                                    .verify = "full",
                                    .engine_num_gpus_per_actor = 0.5};
static tdm_actor *engines[RANKS];
static tdm_actor *others[RANKS];
static tdm_placement_group *groups[ENGINES];
static struct tdm__worker_group_engine states[ENGINES];

static struct tdm__worker_group open_group(void)
{
    struct tdm__worker_group workers = {.runtime = runtime,
                                        .spec = &spec,
                                        .engines = engines,
                                        .engines_count = RANKS,
                                        .ranks_per_engine = PER_ENGINE,
                                        .gather_groups = {ENGINES, PER_ENGINE, PER_ENGINE, 1},
                                        .engine_states = states,
                                        .engine_groups = groups,
                                        .on_event = on_event};

    for (uint32_t i = 0; i < ENGINES; i++) {
        states[i].recovery.has_own_gpus = true;
        states[i].other_ranks = &others[(size_t)i * PER_ENGINE];
    }
    TRY(tdm_config_parse("{}", 2, "job file", &spec.config));
    TRY(tdm__liveness_monitor_create(runtime, RANKS, STALL_MS, &workers.monitor));
    return workers;
}

static void close_group(struct tdm__worker_group *workers)
{
    tdm__liveness_monitor_destroy(workers->monitor);
    free(workers->dead);
    tdm_config_destroy(spec.config);
    for (uint32_t i = 0; i < RANKS; i++) {
        tdm_actor_destroy(engines[i]);
    }
    for (uint32_t i = 0; i < ENGINES; i++) {
        tdm_placement_group_release(groups[i]);
    }
}

/* Stops the daemon of the engine, and lets the job leave the engine out. */
static void leave_out(struct tdm__worker_group *workers, uint32_t engine)
{
    int64_t begin_ms = tdm__clock_ms();
    uint32_t lost = 0;

    assert_int_equal(kill(cluster.second.daemon, SIGSTOP), 0);
    TRY(tdm__failover_remove_dead_engines(workers, &lost));
    assert_int_equal(lost, 1);
    assert_true(tdm__clock_ms() - begin_ms < LONG_MS / 2); /* Long before its lease ends. */
    assert_int_equal(tdm__worker_group_live_engines(workers), 1);
    assert_int_equal(workers->dead_count, PER_ENGINE);
    assert_non_null(strstr(told, "has not replied for 500 ms"));
    assert_non_null(states[engine].other_ranks[0]); /* Its ranks are to be killed. */
    tdm__recovery_restart_engines(workers);
    assert_int_equal(states[engine].recovery.stage, TDM__RECOVERY_KILL);
    assert_int_equal(states[engine].recovery.attempts, 0);
}

static void engine_on_a_silent_node_is_left_out_and_placed_again(void **state)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    int64_t begin_ms = tdm__clock_ms();
    struct tdm__worker_group workers = open_group();
    uint32_t engine = create_engines(&workers);
    struct tdm_placement_group_info old_group;
    struct tdm_placement_group_info new_group;
    pid_t old_pids[PER_ENGINE];

    (void)state;
    tdm_placement_group_describe(groups[engine], &old_group);
    for (uint32_t i = 0; i < PER_ENGINE; i++) {
        struct tdm_actor_info info;

        tdm_actor_describe(engines[engine * PER_ENGINE + i], &info);
        old_pids[i] = (pid_t)info.pid;
    }
    leave_out(&workers, engine);
    assert_int_equal(kill(cluster.second.daemon, SIGCONT), 0);
    while (states[engine].recovery.attempts == 0) { /* An attempt without a library. */
        assert_true(tdm__clock_ms() - begin_ms < 2 * LONG_MS);
        (void)nanosleep(&pause, NULL);
        tdm__recovery_restart_engines(&workers);
    }
    for (uint32_t i = 0; i < PER_ENGINE; i++) {
        assert_int_equal(kill(old_pids[i], 0), -1);
    }
    tdm_placement_group_describe(groups[engine], &new_group);
    assert_string_not_equal(new_group.id, old_group.id);
    close_group(&workers);
}

/* Returns how often the rank was asked for its weights. */
static int64_t exports_count(tdm_actor *rank)
{
    int64_t count;
    tdm_ref *ref;

    TRY(tdm_actor_call(rank, "exports_count", &ref, ""));
    TRY(tdm_get(ref, LONG_MS, "i", &count));
    tdm_ref_release(ref);
    return count;
}

/* The ranks are engines of one rank each, two on each node. The first one has no weights. */
static void engine_asks_only_peers_of_its_node_for_weights(void **state)
{
    static uint64_t layouts[RANKS];
    static struct tdm__worker_group_engine rank_states[RANKS];
    struct tdm__worker_group workers = open_group();

    (void)state;
    (void)create_engines(&workers);
    spec.num_engines = RANKS;
    workers.ranks_per_engine = 1;
    workers.engine_states = rank_states;
    workers.layouts = layouts;
    workers.by_slices = true;
    rank_states[0].awaits_weights = true;
    tdm__recovery_join_waiting_engines(&workers);
    assert_true(rank_states[0].awaits_weights);
    assert_int_equal(exports_count(engines[1]), 1);
    assert_int_equal(exports_count(engines[2]), 0);
    assert_int_equal(exports_count(engines[3]), 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        TRY(tdm_actor_kill(engines[i], LONG_MS));
    }
    for (uint32_t i = 0; i < ENGINES; i++) {
        (void)tdm_placement_group_remove(groups[i], LONG_MS);
        groups[i] = NULL;
    }
    spec.num_engines = ENGINES;
    close_group(&workers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engine_asks_only_peers_of_its_node_for_weights),
        cmocka_unit_test(engine_on_a_silent_node_is_left_out_and_placed_again),
    };
    int failed;

    runtime = two_nodes_join(&cluster);
    if (runtime == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return two_nodes_leave(&cluster, runtime) != 0 ? 1 : failed;
}
