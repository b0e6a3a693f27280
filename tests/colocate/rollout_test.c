/* rollout_test.c - every row is answered, by seeds that are its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rollout.h"

#include "colocate/job/completions.h"
#include "runtime/splitmix.h"
#include "tests/support/one_node.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { ENGINES = 3, ROWS = 7, SAMPLES = 4, DATA = 5, TOKENS = 3, VERSION = 12 };

/* ---- an engine that answers with what it was asked -------------------------------------- */

struct echo {
    int64_t missing; /* Number of completions that the engine omits from its reply. */
};

static void answer(const struct tdm_prompt *prompt, struct tdm_completion *completion)
{
    completion->tokens_count = 2;
    completion->tokens[0] = (int32_t)(prompt->seed & INT32_MAX);
    completion->tokens[1] = (int32_t)(prompt->seed >> 33);
    completion->finished = 1;
    (void)snprintf(completion->text, completion->text_bytes_max, "%s", prompt->text);
}

static tdm_status echo_generate(tdm_call *call, void *self)
{
    const struct echo *echo = self;
    struct tdm__generation generation;
    tdm_status status;

    TDM_TRY(tdm__generation_read_request(tdm_call_arguments(call), &generation));
    for (uint32_t i = 0; i < generation.prompts_count; i++) {
        answer(&generation.prompts[i], &generation.completions[i]);
    }
    generation.prompts_count -= (uint32_t)echo->missing;
    status = tdm__generation_reply(&generation, VERSION, call);
    tdm__generation_fini(&generation);
    return status;
}

static tdm_status echo_keep(tdm_call *call, void *self)
{
    struct echo *echo = self;

    return tdm_call_unpack(call, "i", &echo->missing);
}

TDM_ACTOR_CLASS(echo, .state_bytes = sizeof(struct echo),
                .methods = {{"generate", echo_generate}, {"keep", echo_keep}});

/* ---- the workers --------------------------------------------------------------------------- */

static tdm_actor *actors[ENGINES];
static struct tdm__job_spec spec = {.generate_timeout_ms = 20000};
static struct tdm__dataset_row data[DATA] = {{.prompt = "a", .answer = "a"},
                                             {.prompt = "b", .answer = "b"},
                                             {.prompt = "c", .answer = "no"},
                                             {.prompt = "d", .answer = "d"},
                                             {.prompt = "e", .answer = "no"}};
static const struct tdm__dataset dataset = {.rows = data, .rows_count = DATA};
static const uint32_t rows[ROWS] = {4, 0, 2, 2, 1, 3, 0}; /* A row may occur twice. */

/* Prompt whose reward is not a finite number; NULL for none. */
static const char *broken_prompt;
/* Whether that is the reward of its token 1, and not of the whole sample. */
static bool broken_token;
/* Whether it is the log-probability of token 1 instead. */
static bool broken_logprob;

/* The reward of an answer is told in its last token, too. */
static float reward(const char *prompt, const char *right, const struct tdm_completion *given,
                    float *token_rewards)
{
    assert_string_equal(prompt, given->text);
    for (uint32_t i = 0; i < given->tokens_count; i++) {
        token_rewards[i] = (float)given->tokens[0];
    }
    if (broken_prompt != NULL && strcmp(prompt, broken_prompt) == 0) {
        if (broken_logprob) {
            ((float *)(uintptr_t)given->logprobs)[1] = -INFINITY;
            return 1.0F;
        }
        token_rewards[1] = broken_token ? INFINITY : 0;
        return broken_token ? 1.0F : NAN;
    }
    return strcmp(right, given->text) == 0 ? 1.0F : 0.5F;
}

static struct tdm__worker_group_engine about[ENGINES];

static tdm_status run(uint32_t engines_count, uint32_t rows_count, struct tdm__rollout *rollout)
{
    struct tdm__worker_group workers = {.spec = &spec,
                                        .engines = actors,
                                        .engines_count = engines_count,
                                        .ranks_per_engine = 1,
                                        .engine_states = about};
    const struct tdm__rollout_options options = {.dataset = &dataset,
                                                 .rows = rows,
                                                 .rows_count = rows_count,
                                                 .samples_per_row = SAMPLES,
                                                 .sampling = {1, TOKENS},
                                                 .seed = 99,
                                                 .reward = reward};

    spec.num_engines = engines_count;
    return tdm__rollout_run(&workers, &options, rollout);
}

/* ---- the tests -------------------------------------------------------------------------- */

static void every_row_is_answered_as_often_as_asked(void **state)
{
    struct tdm__rollout rollout;

    (void)state;
    TRY(run(ENGINES, ROWS, &rollout));
    assert_int_equal(rollout.samples_count, ROWS * SAMPLES);
    for (uint32_t i = 0; i < ROWS * SAMPLES; i++) {
        const struct tdm_sample *sample = &rollout.samples[i];

        assert_string_equal(sample->prompt, data[rows[i / SAMPLES]].prompt);
        assert_string_equal(sample->answer, data[rows[i / SAMPLES]].answer);
        assert_int_equal(sample->group, i / SAMPLES);
        assert_int_equal(sample->weight_version, VERSION);
        assert_int_equal(sample->tokens_count, 2);
        assert_true(sample->token_rewards[1] == (float)sample->tokens[0]);
    }
    /* Of seven rows, four have the right answer. */
    assert_true(rollout.exact > 4.0 / 7 - 1e-9 && rollout.exact < 4.0 / 7 + 1e-9);
    assert_true(rollout.reward > 5.5 / 7 - 1e-6 && rollout.reward < 5.5 / 7 + 1e-6);
    tdm__rollout_fini(&rollout);
}

static void reward_that_is_not_finite_names_its_prompt_and_sample(void **state)
{
    struct tdm__rollout rollout;

    (void)state;
    broken_prompt = "d";
    assert_int_equal(run(ENGINES, ROWS, &rollout), TDM_E_TYPE);
    assert_non_null(
        strstr(tdm_error_detail(), "the reward of sample 0 of the prompt \"d\" is nan"));
    broken_token = true;
    assert_int_equal(run(ENGINES, ROWS, &rollout), TDM_E_TYPE);
    assert_non_null(
        strstr(tdm_error_detail(), "the reward of token 1 in sample 0 of the prompt \"d\" is inf"));
    broken_logprob = true;
    assert_int_equal(run(ENGINES, ROWS, &rollout), TDM_E_TYPE);
    assert_non_null(
        strstr(tdm_error_detail(),
               "the log-probability of token 1 in sample 0 of the prompt \"d\" is -inf"));
    broken_prompt = NULL;
    broken_logprob = false;
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(uint64_t));
}

static void seeds_are_different_and_do_not_depend_on_the_engines(void **state)
{
    static uint64_t seeds[ROWS * SAMPLES];
    struct tdm__rollout rollouts[ENGINES];

    (void)state;
    for (uint32_t engines = 1; engines <= ENGINES; engines++) {
        TRY(run(engines, ROWS, &rollouts[engines - 1]));
    }
    for (uint32_t i = 0; i < ROWS * SAMPLES; i++) {
        uint64_t seed = tdm__splitmix64(tdm__splitmix64(99, i / SAMPLES), i % SAMPLES);

        memcpy(&seeds[i], rollouts[0].samples[i].tokens, sizeof(seeds[i]));
        assert_int_equal(rollouts[0].samples[i].tokens[0], seed & INT32_MAX);
        for (uint32_t engines = 1; engines < ENGINES; engines++) {
            assert_memory_equal(&seeds[i], rollouts[engines].samples[i].tokens, sizeof(seeds[i]));
        }
    }
    qsort(seeds, ROWS * SAMPLES, sizeof(seeds[0]), compare);
    for (uint32_t i = 1; i < ROWS * SAMPLES; i++) {
        assert_true(seeds[i] != seeds[i - 1]);
    }
    for (uint32_t i = 0; i < ENGINES; i++) {
        tdm__rollout_fini(&rollouts[i]);
    }
}

/* The first is lost, the last has come back and has no weights yet. */
static void serving_engines_answer_all_prompts(void **state)
{
    struct tdm__rollout whole;
    struct tdm__rollout rest;
    tdm_actor *lost = actors[0];

    (void)state;
    TRY(run(ENGINES, ROWS, &whole));
    actors[0] = NULL;
    about[ENGINES - 1].awaits_weights = true;
    TRY(run(ENGINES, ROWS, &rest));
    about[1].awaits_weights = true;
    assert_int_equal(run(ENGINES, ROWS, &(struct tdm__rollout){0}), TDM_E_STATE);
    memset(about, 0, sizeof(about));
    actors[0] = lost;
    for (uint32_t i = 0; i < ROWS * SAMPLES; i++) {
        assert_memory_equal(whole.samples[i].tokens, rest.samples[i].tokens, 2 * sizeof(int32_t));
        assert_true(whole.samples[i].reward == rest.samples[i].reward);
    }
    tdm__rollout_fini(&whole);
    tdm__rollout_fini(&rest);
}

static void fewer_rows_than_engines_are_answered_all_the_same(void **state)
{
    struct tdm__rollout rollout;

    (void)state;
    TRY(run(ENGINES, 1, &rollout));
    assert_int_equal(rollout.samples_count, SAMPLES);
    assert_string_equal(rollout.samples[0].prompt, "e");
    tdm__rollout_fini(&rollout);
}

static void engine_that_answers_too_little_is_named(void **state)
{
    struct tdm__rollout rollout;
    tdm_ref *ref;

    (void)state;
    TRY(tdm_actor_call(actors[1], "keep", &ref, "i", (int64_t)1));
    TRY(tdm_get(ref, 20000, ""));
    tdm_ref_release(ref);
    assert_int_equal(run(2, ROWS, &rollout), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "engine 1"));
    TRY(tdm_actor_call(actors[1], "keep", NULL, "i", (int64_t)0));
}

static void shuffled_rewards_are_the_same_ones_elsewhere(void **state)
{
    struct tdm__rollout rollout;
    uint32_t moved = 0;
    uint32_t ones = 0;

    (void)state;
    TRY(run(1, ROWS, &rollout));
    tdm__rollout_shuffle_rewards(&rollout, 3);
    for (uint32_t i = 0; i < ROWS * SAMPLES; i++) {
        const struct tdm_sample *sample = &rollout.samples[i];

        moved += sample->token_rewards[0] != (float)sample->tokens[0];
        ones += sample->reward >= 1.0F;
    }
    assert_true(moved > ROWS * SAMPLES / 2);
    assert_int_equal(ones, 4 * SAMPLES);
    tdm__rollout_fini(&rollout);
}

int main(void)
{
    static const char *const names[ENGINES] = {"0", "1", "2"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_answered_as_often_as_asked),
        cmocka_unit_test(reward_that_is_not_finite_names_its_prompt_and_sample),
        cmocka_unit_test(seeds_are_different_and_do_not_depend_on_the_engines),
        cmocka_unit_test(serving_engines_answer_all_prompts),
        cmocka_unit_test(fewer_rows_than_engines_are_answered_all_the_same),
        cmocka_unit_test(engine_that_answers_too_little_is_named),
        cmocka_unit_test(shuffled_rewards_are_the_same_ones_elsewhere),
    };
    tdm_runtime *runtime = one_node_start(32 << 20);
    int failed;

    for (uint32_t i = 0; i < ENGINES; i++) {
        actors[i] = one_node_actor(runtime, "echo", names[i], 0);
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (uint32_t i = 0; i < ENGINES; i++) {
        tdm_actor_destroy(actors[i]);
    }
    tdm_runtime_stop(runtime);
    return failed;
}
