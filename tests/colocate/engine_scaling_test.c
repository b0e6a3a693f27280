/* engine_scaling_test.c - how many engines a running job may have, and what they wait for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/engine_scaling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ENGINES = 2, PER_ENGINE = 2, MAX = 4 };

static struct tdm__job_spec spec;
static struct tdm__worker_group workers;
static struct tdm__worker_group_engine states[MAX];
static tdm_actor *engines[MAX * PER_ENGINE];
static uint64_t layouts[MAX * PER_ENGINE];
static tdm_placement_group *groups[MAX];

/* Makes the ranks of an engine alive or not. Only whether they are there is looked at. */
static void set_alive(uint32_t engine, bool is_alive)
{
    for (uint32_t i = 0; i < PER_ENGINE; i++) {
        engines[engine * PER_ENGINE + i] = is_alive ? (tdm_actor *)(uintptr_t)8 : NULL;
    }
}

/* A job with two engines, each of which has a gather group. */
static int open_workers(void **state)
{
    (void)state;
    memset(states, 0, sizeof(states));
    memset(engines, 0, sizeof(engines));
    spec = (struct tdm__job_spec){.num_engines = ENGINES, .trainer_num_ranks = 4};
    (void)snprintf(spec.name, sizeof(spec.name), "arith");
    workers = (struct tdm__worker_group){.spec = &spec,
                                         .engines = engines,
                                         .engines_count = ENGINES * PER_ENGINE,
                                         .ranks_per_engine = PER_ENGINE,
                                         .engines_max = MAX,
                                         .gather_groups = {2, PER_ENGINE, PER_ENGINE, 1},
                                         .engine_states = states,
                                         .engine_groups = groups,
                                         .layouts = layouts};
    set_alive(0, true);
    set_alive(1, true);
    return 0;
}

static void refuses(uint32_t wanted, tdm_status status, const char *expected)
{
    assert_int_equal(tdm__engine_scaling_check(&workers, wanted), status);
    assert_string_equal(tdm_error_detail(), expected);
}

static void numbers_that_the_job_cannot_have_are_refused(void **state)
{
    (void)state;
    assert_int_equal(tdm__engine_scaling_check(&workers, 1), TDM_OK);
    assert_int_equal(tdm__engine_scaling_check(&workers, MAX), TDM_OK);
    refuses(5, TDM_E_LIMIT,
            "job arith has 2 engines and cannot have 5, because a job has at most 4 engines of 2 "
            "ranks; ask for 4 or fewer");
    refuses(0, TDM_E_INVAL,
            "job arith has 2 engines and cannot have 0, because it needs 1 "
            "(rollout.num_engines_min); ask for 1 or more");
    spec.num_engines_min = 2;
    refuses(1, TDM_E_INVAL,
            "job arith has 2 engines and cannot have 1, because it needs 2 "
            "(rollout.num_engines_min); ask for 2 or more");
    spec.num_engines_min = 0;
    set_alive(0, false);
    refuses(1, TDM_E_STATE,
            "job arith has 2 engines and cannot have 1 now, because only 0 of these run and it "
            "needs 1; ask again when the others are back");
}

static void colocated_engines_are_not_scaled(void **state)
{
    (void)state;
    spec.engine_colocate = true;
    assert_int_equal(tdm__engine_scaling_check(&workers, ENGINES), TDM_OK);
    refuses(3, TDM_E_UNSUPPORTED,
            "job arith has 2 engines and cannot have 3, because its engines are on the GPUs of its "
            "4 trainer ranks; start it with engine.colocate: false");
    assert_int_equal(tdm__engine_scaling_check(&workers, 1), TDM_E_UNSUPPORTED);
}

/* Engine 2 gets the bytes of engine 0, engine 3 those of engine 1. */
static void added_engine_is_like_those_of_its_gather_group(void **state)
{
    static const uint64_t expected[] = {11, 12, 21, 22, 11, 12, 21, 22};

    (void)state;
    memset(layouts, 0, sizeof(layouts));
    memcpy(layouts, expected, 4 * sizeof(*layouts));
    tdm__engine_set_add(&workers.converting_engines, 1);
    tdm__engine_set_add(&workers.converting_engines, 2); /* An engine that there was before. */
    states[2].recovery.attempts = TDM__RECOVERY_ATTEMPTS_MAX;
    for (uint32_t i = ENGINES; i < MAX; i++) {
        tdm__engine_scaling_add(&workers);
        spec.num_engines++;
        assert_true(states[i].is_new);
        assert_int_equal(states[i].recovery.stage, TDM__RECOVERY_KILL);
        assert_int_equal(states[i].recovery.attempts, 0);
    }
    assert_memory_equal(layouts, expected, sizeof(expected));
    for (uint32_t i = 0; i < MAX; i++) {
        assert_int_equal(tdm__engine_set_has(&workers.converting_engines, i), i == 1 || i == 3);
    }
    assert_int_equal(workers.engines_count, MAX * PER_ENGINE);
    assert_int_equal(tdm__worker_group_live_engines(&workers), ENGINES);
    assert_int_equal(tdm__engine_scaling_serving(&workers), ENGINES);
}

/* Engine 71 is the first that shares the trainers of engine 0, engine 141 those of engine 70. */
static void added_engines_with_high_numbers_are_like_those_of_their_groups(void **state)
{
    static struct tdm__worker_group_engine many_states[TDM__JOB_ENGINES_MAX];
    static tdm_actor *many_engines[TDM__JOB_ENGINES_MAX];
    static uint64_t many_layouts[TDM__JOB_ENGINES_MAX];

    (void)state;
    spec.num_engines = 71;
    workers.engines = many_engines;
    workers.engines_count = spec.num_engines;
    workers.engines_max = TDM__JOB_ENGINES_MAX;
    workers.ranks_per_engine = 1;
    workers.gather_groups = (struct tdm__gather_groups){spec.num_engines, 1, 1, 1};
    workers.engine_states = many_states;
    workers.layouts = many_layouts;
    for (uint32_t i = 0; i < spec.num_engines; i++) {
        many_layouts[i] = i + 1;
    }
    assert_int_equal(tdm__engine_scaling_check(&workers, TDM__JOB_ENGINES_MAX), TDM_OK);
    refuses(TDM__JOB_ENGINES_MAX + 1, TDM_E_LIMIT,
            "job arith has 71 engines and cannot have 257, because a job has at most 256 engines "
            "of 1 ranks; ask for 256 or fewer");
    tdm__engine_set_add(&workers.converting_engines, 70);
    tdm__engine_set_add(&workers.converting_engines, 200); /* An engine that there was before. */
    while (spec.num_engines < TDM__JOB_ENGINES_MAX) {
        tdm__engine_scaling_add(&workers);
        spec.num_engines++;
    }
    for (uint32_t i = 0; i < TDM__JOB_ENGINES_MAX; i++) {
        assert_int_equal(many_layouts[i], i % 71 + 1);
        assert_int_equal(tdm__engine_set_has(&workers.converting_engines, i), i % 71 == 70);
    }
}

static void engine_that_never_ran_is_removed(void **state)
{
    (void)state;
    tdm__engine_scaling_add(&workers);
    spec.num_engines++;
    assert_int_equal(tdm__engine_scaling_remove(&workers, "test"), TDM_OK);
    spec.num_engines--;
    assert_int_equal(workers.engines_count, ENGINES * PER_ENGINE);
    assert_int_equal(workers.dead_count, 0);
}

static void lacks(const char *expected)
{
    char text[256];

    tdm__engine_scaling_lack(&workers, text, sizeof(text));
    assert_string_equal(text, expected);
}

static void first_engine_that_does_not_serve_is_explained(void **state)
{
    (void)state;
    lacks("");
    states[1].awaits_weights = true;
    assert_int_equal(tdm__engine_scaling_serving(&workers), 1);
    lacks("engine 1 runs and gets its weights with the next update");
    states[1].awaits_weights = false;
    tdm__engine_scaling_add(&workers);
    spec.num_engines++;
    lacks("engine 2 waits for a node with 2 free GPUs");
    (void)snprintf(states[2].trouble, sizeof(states[2].trouble), "no node has them");
    lacks("engine 2 waits for a node with 2 free GPUs: no node has them");
    states[2].recovery.stage = TDM__RECOVERY_AWAIT;
    lacks("engine 2 is being started: no node has them");
    states[2].recovery.stage = TDM__RECOVERY_GIVEN_UP;
    lacks("engine 2 could not be started in 3 attempts: no node has them");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(numbers_that_the_job_cannot_have_are_refused, open_workers),
        cmocka_unit_test_setup(colocated_engines_are_not_scaled, open_workers),
        cmocka_unit_test_setup(added_engine_is_like_those_of_its_gather_group, open_workers),
        cmocka_unit_test_setup(added_engines_with_high_numbers_are_like_those_of_their_groups,
                               open_workers),
        cmocka_unit_test_setup(engine_that_never_ran_is_removed, open_workers),
        cmocka_unit_test_setup(first_engine_that_does_not_serve_is_explained, open_workers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
