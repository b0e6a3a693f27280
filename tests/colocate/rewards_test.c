/* rewards_test.c - rewards that an actor computes: their numbers, failures, and deadlines. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rewards.h"

#include "colocate/job/library.h"

#include <tandem/tandem.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LIBRARY TDM_TEST_BUILD_DIR "/tests/reward_job_library.so"

enum { ANSWERS = 3, TOKENS_MAX = 2 };

static const char job_file[] = "job: {library: " LIBRARY ", seed: 7}\n"
                               "rollout: {reward_failures_max: 1, rewards_timeout_ms: 1500}\n"
                               "data: {train: none, unseen: none}\n";

static tdm_runtime *runtime;
static struct tdm__job_spec spec;
static struct tdm__worker_group workers = {.spec = &spec};
static struct tdm__rewards rewards;

/* The answers of a rollout, and their rewards. */
static struct tdm_sample samples[ANSWERS];
static struct tdm_completion completions[ANSWERS];
static int32_t tokens[ANSWERS][TOKENS_MAX];
static float logprobs[ANSWERS][TOKENS_MAX];
static float token_rewards[ANSWERS][TOKENS_MAX];
static char texts[ANSWERS][8];

static int start(void **state)
{
    tdm_config *config;

    (void)state;
    return tdm_config_parse(job_file, strlen(job_file), "job.yaml", &config) == TDM_OK &&
                   tdm__job_spec_from_config(config, "", &spec) == TDM_OK &&
                   tdm__rewards_start(&rewards, runtime, &spec, 5000) == TDM_OK
               ? 0
               : -1;
}

static int stop(void **state)
{
    (void)state;
    tdm__rewards_stop(&rewards);
    tdm__rewards_stop(&rewards); /* Does nothing. */
    tdm__job_spec_fini(&spec);
    return 0;
}

/* Scores three answers of 0, 1 and 2 tokens to these prompts. */
static tdm_status score(const char *const prompts[ANSWERS])
{
    const struct tdm__rewards_batch batch = {.samples = samples,
                                             .completions = completions,
                                             .token_rewards = &token_rewards[0][0],
                                             .tokens_max = TOKENS_MAX,
                                             .count = ANSWERS};

    memset(token_rewards, 0, sizeof(token_rewards));
    for (uint32_t i = 0; i < ANSWERS; i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "text %u", i);
        for (uint32_t t = 0; t < i; t++) {
            tokens[i][t] = (int32_t)(10 * i + t);
            logprobs[i][t] = -0.5F;
        }
        completions[i] = (struct tdm_completion){.tokens = tokens[i],
                                                 .logprobs = logprobs[i],
                                                 .tokens_count = i,
                                                 .text = texts[i],
                                                 .finished = 1};
        samples[i] =
            (struct tdm_sample){.prompt = prompts[i], .answer = "right", .tokens_count = i};
    }
    return tdm__rewards_score(&rewards, &workers, &batch);
}

static void assert_told(const char *words)
{
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

static void rewards_are_those_of_the_library(void **state)
{
    static const char *const prompts[] = {"a", "b", "c"};

    (void)state;
    assert_int_equal(score(prompts), TDM_OK);
    for (uint32_t i = 0; i < ANSWERS; i++) {
        assert_true(samples[i].reward == 7.0F);
    }
    assert_true(token_rewards[1][0] == 9.5F && token_rewards[1][1] == 0.0F);
    assert_true(token_rewards[2][0] == 19.5F && token_rewards[2][1] == 20.5F);
}

static void failures_are_counted_against_the_bound(void **state)
{
    static const char *const one[] = {"a", "b", "fail"};
    static const char *const two[] = {"a", "fail", "fail"};

    (void)state;
    assert_int_equal(score(one), TDM_OK);
    assert_true(samples[1].reward == 7.0F && samples[2].reward == 0.0F);
    assert_true(token_rewards[2][0] == 0.0F && token_rewards[2][1] == 0.0F);
    assert_int_equal(score(two), TDM_E_METHOD);
    assert_told("rewards: 2 of 3 rewards failed, rollout.reward_failures_max allows 1; the first, "
                "of the prompt \"fail\", failed: the judge of \"right\" is out, text text 1");
}

static void failure_of_the_function_is_the_error(void **state)
{
    static const char *const prompts[] = {"a", "broken", "c"};

    (void)state;
    assert_int_equal(score(prompts), TDM_E_METHOD);
    assert_told("no rewards today");
}

static void second_actor_of_the_name_is_refused(void **state)
{
    struct tdm__rewards second = {.actor = NULL};

    (void)state;
    assert_int_equal(tdm__rewards_start(&second, runtime, &spec, 0), TDM_E_EXISTS);
    assert_null(second.actor);
}

/* A library that imports large packages needs more time than another one. */
static void start_that_is_too_slow_names_the_setting(void **state)
{
    static struct tdm__job_spec slow;
    struct tdm__rewards second = {.actor = NULL};
    tdm_config *config;

    (void)state;
    assert_int_equal(tdm_config_parse(job_file, strlen(job_file), "job.yaml", &config), TDM_OK);
    assert_int_equal(tdm_config_override(config, "update.model=slow"), TDM_OK);
    assert_int_equal(tdm_config_override(config, "model.slow_ms=1500"), TDM_OK);
    assert_int_equal(tdm_config_override(config, "job.start_timeout_ms=300"), TDM_OK);
    assert_int_equal(tdm__job_spec_from_config(config, "", &slow), TDM_OK);
    assert_int_equal(tdm__rewards_start(&second, runtime, &slow, 0), TDM_E_TIMEOUT);
    assert_null(second.actor);
    assert_told("rewards: the actor did not start within 300 ms (job.start_timeout_ms)");
    slow.start_timeout_ms = 60000;
    assert_int_equal(tdm__rewards_start(&second, runtime, &slow, 20000), TDM_OK);
    tdm__rewards_stop(&second);
    tdm__job_spec_fini(&slow);
}

/* These come last: the actor does not survive them. */
static void rewards_that_are_late_end_the_wait(void **state)
{
    static const char *const prompts[] = {"a", "sleep", "c"};

    (void)state;
    assert_int_equal(score(prompts), TDM_E_TIMEOUT);
    tdm__rewards_stop(&rewards);
    assert_int_equal(tdm__rewards_start(&rewards, runtime, &spec, 5000), TDM_OK);
}

static void death_of_the_actor_is_the_error(void **state)
{
    static const char *const prompts[] = {"crash", "b", "c"};

    (void)state;
    assert_int_equal(score(prompts), TDM_E_ACTOR_DIED);
    assert_told("rewards");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewards_are_those_of_the_library),
        cmocka_unit_test(failures_are_counted_against_the_bound),
        cmocka_unit_test(failure_of_the_function_is_the_error),
        cmocka_unit_test(second_actor_of_the_name_is_refused),
        cmocka_unit_test(start_that_is_too_slow_names_the_setting),
        cmocka_unit_test(rewards_that_are_late_end_the_wait),
        cmocka_unit_test(death_of_the_actor_is_the_error),
    };
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    int failed;

    options.cpus = 2;
    (void)setenv("TANDEM_DAEMON", TDM_TEST_BUILD_DIR "/tandemd", 1);
    (void)unsetenv("TANDEM_ADDRESS");
    TDM_CHECK(tdm_runtime_start(&options, &runtime));
    workers.runtime = runtime;
    failed = cmocka_run_group_tests(tests, start, stop);
    tdm_runtime_stop(runtime);
    return failed;
}
