/* many_engines_test.c - in a job with more engines than a word has bits, an engine with a high
 * number is left out, removed or judged, and no other one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/engine_failover.h"
#include "colocate/job/liveness_monitor.h"
#include "colocate/job/logprob_check.h"
#include "runtime/messages/messages.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* Only the engines LOW, HIGH and LAST have an actor; the others count as lost. LOW has the bit of
 * HIGH if shifts are taken modulo the size of a word. */
enum { ENGINES = TDM__JOB_ENGINES_MAX, HIGH = 70, LOW = HIGH % 64, LAST = ENGINES - 1 };
enum { STALL_MS = 2000, LONG_MS = 20000 };

static const struct tdm_bytes no_arguments = {"\x90", 1};
static const uint32_t alive[] = {LOW, HIGH, LAST};

enum { ALIVE = sizeof(alive) / sizeof(alive[0]) };

/* ---- the ranks --------------------------------------------------------------------------- */

static tdm_status rank_answer(tdm_call *call, void *self)
{
    (void)self;
    return tdm_call_reply(call, "i", (int64_t)1);
}

/* Fails as a rank that does not reach the store, if the actor has the name of the argument. */
static tdm_status rank_vote(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;
    const char *name;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &name));
    tdm_runtime_describe(tdm_runtime_current(), &info);
    return strcmp(info.actor_name, name) == 0 ? tdm_fail(TDM_E_STORE, "the store does not reply")
                                              : TDM_OK;
}

/* A trainer: says that the log-probabilities of the second of three samples differ. */
static tdm_status rank_compare_logprobs(tdm_call *call, void *self)
{
    static const float largest[ALIVE] = {0, 0.5F, 0};

    (void)self;
    return tdm_call_reply(call, "b", (const void *)largest, sizeof(largest));
}

/* An engine: says that its tensor 3 differs. */
static tdm_status rank_compare_served(tdm_call *call, void *self)
{
    (void)self;
    return tdm_call_reply(call, "us", (uint64_t)3, "tensor three differs");
}

TDM_ACTOR_CLASS(rank, .state_bytes = 1,
                .methods = {{"answer", rank_answer},
                            {"vote", rank_vote},
                            {"compare_logprobs", rank_compare_logprobs},
                            {"compare_served", rank_compare_served}});

/* ---- the job ----------------------------------------------------------------------------- */

static tdm_runtime *runtime;
static struct tdm__job_spec spec;
static struct tdm__worker_group workers;
static struct tdm__worker_group_engine states[ENGINES];
static tdm_actor *others[ENGINES];
static char told[256]; /* The engines that were reported as lost. */

static void on_event(void *arg, uint32_t engine, enum tdm__engine_event event, const char *text)
{
    size_t used = strlen(told);

    (void)arg;
    (void)text;
    assert_int_equal(event, TDM__ENGINE_EVENT_LOST);
    (void)snprintf(told + used, sizeof(told) - used, "%u ", engine);
}

static int open_job(void **state)
{
    static tdm_actor *engines[ENGINES];

    (void)state;
    memset(engines, 0, sizeof(engines));
    memset(states, 0, sizeof(states));
    spec = (struct tdm__job_spec){.num_engines = ENGINES,
                                  .num_engines_min = 1,
                                  .update_enabled = true,
                                  .rollout_batch_size = ALIVE,
                                  .step_timeout_ms = LONG_MS,
                                  .update_timeout_ms = LONG_MS,
                                  .logprob_tolerance = 0.1};
    workers = (struct tdm__worker_group){.runtime = runtime,
                                         .spec = &spec,
                                         .engines = engines,
                                         .engines_count = ENGINES,
                                         .engines_max = ENGINES,
                                         .ranks_per_engine = 1,
                                         .gather_groups = {ENGINES, 1, 1, 1},
                                         .engine_states = states,
                                         .on_event = on_event};
    for (uint32_t i = 0; i < ENGINES; i++) {
        states[i].other_ranks = &others[i];
    }
    for (uint32_t i = 0; i < ALIVE; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "e%u", alive[i]);
        engines[alive[i]] = one_node_actor(runtime, "rank", name, 0);
    }
    TRY(tdm__liveness_monitor_create(runtime, ENGINES, STALL_MS, &workers.monitor));
    told[0] = '\0';
    return 0;
}

static int close_job(void **state)
{
    (void)state;
    tdm__liveness_monitor_destroy(workers.monitor);
    free(workers.dead);
    for (uint32_t i = 0; i < ALIVE; i++) {
        if (workers.engines[alive[i]] != NULL) {
            TRY(tdm_actor_kill(workers.engines[alive[i]], LONG_MS));
            tdm_actor_destroy(workers.engines[alive[i]]);
        }
    }
    return 0;
}

static tdm_status call_engines(const char *method, struct tdm_bytes arguments)
{
    return tdm__worker_group_call(&workers, workers.engines, ENGINES, method, arguments, LONG_MS);
}

/* Checks that HIGH is lost and that the two others serve. */
static void assert_only_high_is_lost(void)
{
    assert_string_equal(told, "70 ");
    assert_null(workers.engines[HIGH]);
    assert_true(tdm__worker_group_engine_serves(&workers, LOW));
    assert_true(tdm__worker_group_engine_serves(&workers, LAST));
    assert_int_equal(tdm__worker_group_live_engines(&workers), ALIVE - 1);
    assert_int_equal(workers.dead_count, 1);
}

/* ---- the tests --------------------------------------------------------------------------- */

static void engine_with_a_high_number_dies_alone(void **state)
{
    (void)state;
    one_node_kill_actor(workers.engines[HIGH]);
    assert_int_equal(call_engines("answer", no_arguments), TDM_E_ACTOR_DIED);
    TRY(tdm__failover_handle_failure(&workers, TDM_E_ACTOR_DIED));
    assert_only_high_is_lost();
    TRY(call_engines("answer", no_arguments));
}

static void engine_with_a_high_number_is_cut_off_alone(void **state)
{
    tdm_writer *writer;

    (void)state;
    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "s", "e70"));
    assert_int_equal(call_engines("vote", tdm_writer_bytes(writer)), TDM_E_STORE);
    tdm_writer_destroy(writer);
    assert_int_equal(tdm__engine_set_count(&workers.cut_off_engines), 1);
    assert_int_equal(tdm__engine_set_first(&workers.cut_off_engines), HIGH);
    TRY(tdm__failover_handle_failure(&workers, TDM_E_STORE));
    assert_only_high_is_lost();
    assert_true(tdm__engine_set_is_empty(&workers.cut_off_engines));
}

/* Its samples differ by 0.5, where 0.1 is allowed. */
static void engine_with_a_high_number_is_removed_for_its_logprobs(void **state)
{
    static struct tdm__logprob_check check;
    static struct tdm_sample samples[ALIVE];
    uint32_t engines[ALIVE];
    tdm_actor *trainer = one_node_actor(runtime, "rank", "trainer", 0);
    const struct tdm__rollout rollout = {
        .samples_count = ALIVE, .samples = samples, .engines = engines};

    (void)state;
    memcpy(engines, alive, sizeof(engines));
    for (uint32_t i = 0; i < ALIVE; i++) {
        samples[i] = (struct tdm_sample){.prompt = "1+1=", .answer = "2", .weight_version = 9};
    }
    workers.trainers = &trainer;
    workers.trainers_count = 1;
    TRY(tdm__logprob_check_compare(&check, &workers, &rollout, 1));
    assert_int_equal(tdm__engine_set_count(&check.suspects), 1);
    assert_int_equal(tdm__engine_set_first(&check.suspects), HIGH);
    TRY(tdm__logprob_check_remove_suspects(&check, &workers));
    assert_only_high_is_lost();
    assert_int_equal(check.removals[HIGH], 1);
    assert_int_equal(check.removals[LOW], 0);
    assert_true(tdm__engine_set_is_empty(&check.suspects));
    TRY(tdm_actor_kill(trainer, LONG_MS));
    tdm_actor_destroy(trainer);
}

static void converting_engine_has_the_other_tolerance_alone(void **state)
{
    const char *setting;

    (void)state;
    spec.logprob_tolerance_converted = 0.7;
    tdm__engine_set_add(&workers.converting_engines, HIGH);
    assert_true(tdm__logprob_check_tolerance(&workers, HIGH, &setting) == 0.7);
    assert_string_equal(setting, "update.logprob_tolerance_converted");
    assert_true(tdm__logprob_check_tolerance(&workers, LOW, &setting) == 0.1);
    assert_string_equal(setting, "update.logprob_tolerance");
    assert_true(tdm__logprob_check_tolerance(&workers, LAST, NULL) == 0.1);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, open_job, close_job)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(engine_with_a_high_number_dies_alone),
        EACH(engine_with_a_high_number_is_cut_off_alone),
        EACH(engine_with_a_high_number_is_removed_for_its_logprobs),
        EACH(converting_engine_has_the_other_tolerance_alone),
    };
    int failed;

    runtime = one_node_start(32 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
