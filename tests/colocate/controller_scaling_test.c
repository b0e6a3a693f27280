/* controller_scaling_test.c - a running job gets the number of engines that it was asked for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/controller.h"
#include "colocate/job/rank.h"
#include "runtime/messages/messages.h"
#include "tests/support/mailbox_actor.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { GPU_BYTES = 4 << 20, CALL_MS = 20000, ENGINES = 1, MAX = 3 };

/* ---- the job ----------------------------------------------------------------------------- */

static tdm_runtime *runtime;
static struct tdm__controller controller;
static struct tdm__worker_group_engine states[MAX];
static tdm_actor *engines[MAX];
static tdm_actor *trainer;
static uint64_t layouts[MAX];
static tdm_placement_group *groups[MAX];

static void tell_phase(enum tdm__phase_event_kind kind)
{
    const struct tdm__phase_event event = {.kind = kind, .version = 5};
    enum tdm__phase_action action;

    TRY(tdm__phase_handle_event(&controller.phase, &event, &action));
}

/* A job with one engine, which serves version 5. */
static int open_job(void **state)
{
    (void)state;
    memset(&controller, 0, sizeof(controller));
    memset(states, 0, sizeof(states));
    trainer = one_node_actor(runtime, "mailbox_of_test", "trainer/0", 0);
    engines[0] = trainer; /* Only whether it is there is looked at. */
    controller.own_spec = (struct tdm__job_spec){.num_engines = ENGINES,
                                                 .trainer_num_ranks = 1,
                                                 .num_rollout = 9,
                                                 .step_timeout_ms = CALL_MS};
    (void)snprintf(controller.own_spec.name, sizeof(controller.own_spec.name), "arith");
    controller.spec = &controller.own_spec;
    controller.step = 4;
    controller.progress.stream = stdout;
    controller.progress.mode = TDM__PROGRESS_PLAIN;
    controller.workers = (struct tdm__worker_group){.runtime = runtime,
                                                    .spec = controller.spec,
                                                    .trainers = &trainer,
                                                    .trainers_count = 1,
                                                    .engines = engines,
                                                    .engines_count = ENGINES,
                                                    .ranks_per_engine = 1,
                                                    .engines_max = MAX,
                                                    .gather_groups = {1, 1, 1, 1},
                                                    .engine_states = states,
                                                    .engine_groups = groups,
                                                    .layouts = layouts};
    tdm__phase_init(&controller.phase, ENGINES, 0, 1);
    tell_phase(TDM__PHASE_UPDATE_WANTED);
    tell_phase(TDM__PHASE_WEIGHTS_RESUMED);
    tell_phase(TDM__PHASE_UPDATE_COMMITTED);
    tell_phase(TDM__PHASE_CACHES_FLUSHED);
    tell_phase(TDM__PHASE_KV_RESUMED);
    return 0;
}

static int close_job(void **state)
{
    (void)state;
    (void)tdm_actor_kill(trainer, CALL_MS); /* A test may have killed it. */
    tdm_actor_destroy(trainer);
    return 0;
}

/* Asks as a command does, and checks what the job says after its next step began. */
static void ask(uint32_t engines_wanted, uint32_t engines_count, tdm_status status,
                const char *text)
{
    const struct tdm__scale_message request = {engines_wanted};
    const struct tdm__scale_message question = {0};
    struct tdm__scale_reply_message message;
    const tdm_value *value;
    tdm_ref *ref;

    TRY(tdm__rank_call(trainer, "scale", tdm__scale_table(), &request, &ref));
    TRY(tdm_get_value(ref, CALL_MS, &value));
    tdm_ref_release(ref);
    TRY(tdm__controller_scale(&controller));
    TRY(tdm__rank_call(trainer, "scale", tdm__scale_table(), &question, &ref));
    TRY(tdm_get_value(ref, CALL_MS, &value));
    TRY(tdm__scale_reply_decode(value, &message));
    assert_int_equal(message.state.answered, message.number);
    assert_int_equal(message.state.status, status);
    assert_int_equal(message.state.engines, engines_count);
    assert_int_equal(message.state.serving, ENGINES);
    assert_int_equal(message.state.step, 4);
    assert_int_equal(message.state.steps_count, 9);
    assert_int_equal(message.state.version, 5);
    assert_string_equal(message.state.job, "arith");
    assert_string_equal(status == TDM_OK ? message.state.lack : message.state.refusal, text);
    tdm_ref_release(ref);
    assert_int_equal(controller.spec->num_engines, engines_count);
    assert_int_equal(controller.phase.engines_count, engines_count);
    assert_int_equal(controller.phase.engines_alive, ENGINES);
    assert_int_equal(controller.workers.engines_count, engines_count);
}

static void engines_are_added_and_removed_as_asked(void **state)
{
    (void)state;
    TRY(tdm__controller_scale(&controller)); /* There is no request. */
    assert_int_equal(controller.spec->num_engines, ENGINES);
    ask(3, 3, TDM_OK, "engine 1 waits for a node with 1 free GPUs");
    assert_true(states[1].is_new && states[2].is_new);
    ask(3, 3, TDM_OK, "engine 1 waits for a node with 1 free GPUs");
    ask(2, 2, TDM_OK, "engine 1 waits for a node with 1 free GPUs");
    ask(1, 1, TDM_OK, "");
}

static void refused_request_changes_nothing(void **state)
{
    (void)state;
    ask(4, ENGINES, TDM_E_LIMIT,
        "job arith has 1 engines and cannot have 4, because a job has at most 3 engines of 1 "
        "ranks; ask for 3 or fewer");
    ask(2, 2, TDM_OK, "engine 1 waits for a node with 1 free GPUs");
}

/* Trainer rank 0 of the ranks that are started again counts from 1. */
static void request_after_a_restart_is_answered(void **state)
{
    (void)state;
    ask(2, 2, TDM_OK, "engine 1 waits for a node with 1 free GPUs");
    (void)close_job(state);
    trainer = one_node_actor(runtime, "mailbox_of_test", "trainer/0", 0);
    tdm__controller_forget_scale_requests(&controller);
    ask(3, 3, TDM_OK, "engine 1 waits for a node with 1 free GPUs");
}

static void lost_trainer_is_a_failure_of_the_step(void **state)
{
    (void)state;
    TRY(tdm_actor_kill(trainer, CALL_MS));
    assert_int_equal(tdm__controller_scale(&controller), TDM_E_ACTOR_DIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(engines_are_added_and_removed_as_asked, open_job,
                                        close_job),
        cmocka_unit_test_setup_teardown(refused_request_changes_nothing, open_job, close_job),
        cmocka_unit_test_setup_teardown(request_after_a_restart_is_answered, open_job, close_job),
        cmocka_unit_test_setup_teardown(lost_trainer_is_a_failure_of_the_step, open_job, close_job),
    };
    int failed;

    runtime = one_node_start(GPU_BYTES);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
