/* trainer_test.c - trainer and engine together: they agree, learn, stop and go on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/tests/support/tiny.h"
#include "examples/colocated_rl/tests/support/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GROUPS = 4, EACH = 6, SAMPLES = GROUPS * EACH, TOKENS = 4, STEPS = 6 };

static const struct {
    const char *prompt;
    const char *answer;
} questions[GROUPS] = {{"10<", "01"}, {"132<", "123"}, {"210>", "210"}, {"03>", "30"}};

/* Answers by the weights that the engines have, and a step of reinforcement from them. */
static struct tdm_metrics learn_from(struct world *world, uint32_t step)
{
    const struct tdm_sampling sampling = {1.0, TOKENS};
    struct tdm_completion *completions = world_completions(SAMPLES, TOKENS);
    struct tdm_prompt prompts[SAMPLES];
    struct tdm_sample samples[SAMPLES];
    float rewards[SAMPLES][TOKENS];
    const struct tdm_batch batch = {0, step, STEPS, samples, SAMPLES};
    struct tdm_metrics metrics;

    for (uint32_t i = 0; i < SAMPLES; i++) {
        prompts[i] = (struct tdm_prompt){questions[i / EACH].prompt, 1000 * step + i};
    }
    world_generate(world, prompts, SAMPLES, EACH, &sampling, completions);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        const char *answer = questions[i / EACH].answer;

        samples[i] = (struct tdm_sample){
            .group = i / EACH,
            .prompt = prompts[i].text,
            .answer = answer,
            .tokens = completions[i].tokens,
            .logprobs = completions[i].logprobs,
            .token_rewards = rewards[i],
            .reward = reward_answer(prompts[i].text, answer, &completions[i], rewards[i]),
            .tokens_count = completions[i].tokens_count,
        };
    }
    world_step(world, &batch, EACH, &metrics);
    world_completions_free(completions);
    return metrics;
}

/* A step as a controller takes it. */
static struct tdm_metrics reinforce(struct world *world, uint32_t step)
{
    world_update(world);
    return learn_from(world, step);
}

static struct tdm_metrics imitate(struct world *world, uint32_t step)
{
    struct tdm_sample samples[GROUPS];
    const struct tdm_batch batch = {1, step, STEPS, samples, GROUPS};
    struct tdm_metrics metrics;

    for (uint32_t i = 0; i < GROUPS; i++) {
        samples[i] = (struct tdm_sample){
            .group = i, .prompt = questions[i].prompt, .answer = questions[i].answer};
    }
    world_step(world, &batch, 1, &metrics);
    return metrics;
}

static void expect_agreement(const char *const *overrides)
{
    tdm_config *config = tiny_config(overrides);
    struct world *world = world_open(config, 3);

    for (uint32_t step = 1; step <= 3; step++) {
        struct tdm_metrics metrics = reinforce(world, step);

        assert_true(world_metric(&metrics, "tokens") >= SAMPLES);
        assert_true(world_metric(&metrics, "logprob_diff_max") < 5e-5);
        assert_true(world_metric(&metrics, "logprob_diff_mean") < 1e-6);
        assert_true(world_metric(&metrics, "kl") < 1e-9);
        assert_true(world_metric(&metrics, "clip_fraction") == 0.0);
    }
    world_close(world);
    tdm_config_destroy(config);
}

/* The trainer computes whole sequences with whole tensors; the engine a token at a time, from
 * its cache, with tensors split over ranks. */
static void engines_of_one_rank_and_two_agree_with_the_trainer(void **state)
{
    const char *const split[] = {NULL};
    const char *const whole[] = {"engine.rollout_num_gpus_per_engine=1", "engine.num_engines=2",
                                 "trainer.num_ranks=1", NULL};
    const char *const tight[] = {"engine.max_running_requests=5", "engine.max_total_tokens=23",
                                 "trainer.max_tokens_per_gpu=10", "trainer.num_ranks=4", NULL};
    const char *const cooler[] = {"rollout.temperature=1.0", "model.tie_word_embeddings=false",
                                  NULL};

    (void)state;
    expect_agreement(split);
    expect_agreement(whole);
    expect_agreement(tight);
    expect_agreement(cooler);
}

/* Ranks that each hold the whole model compute the same as ranks that divide it. Only the order of
 * the sum for the norm of the gradient differs. */
static void replicas_learn_like_shares(void **state)
{
    const char *const divided[] = {"trainer.num_ranks=2", NULL};
    const char *const whole[] = {"trainer.num_ranks=2", "trainer.replicas=2", NULL};
    tdm_config *configs[2] = {tiny_config(divided), tiny_config(whole)};
    struct tdm_metrics metrics[2];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_open(configs[i], 3);

        for (uint32_t step = 1; step <= 3; step++) {
            metrics[i] = imitate(world, step);
        }
        world_close(world);
        tdm_config_destroy(configs[i]);
    }
    assert_true(world_metric(&metrics[0], "loss") > 0.0);
    for (uint32_t i = 0; i < metrics[0].count; i++) {
        double value = metrics[0].entries[i].value;

        assert_true(fabs(metrics[1].entries[i].value - value) <= 1e-6 * fabs(value));
    }
}

/* What the engine has differs from what the trainer has by one small step of one number. */
static void a_stale_weight_shows(void **state)
{
    tdm_config *config = tiny_config(NULL);
    struct world *world = world_open(config, 3);
    /* in the embedding of the first character */
    float *place = (float *)world->trainers[0].addresses[0] + (size_t)TOKENS_SPECIAL * 16;
    struct machine *machine = world->trainers[0].machine;
    struct tdm_metrics metrics;
    float value;

    (void)state;
    world_update(world);
    memory_read(machine, &value, place, sizeof(value));
    value += 2e-3F;
    memory_write(machine, place, &value, sizeof(value));
    metrics = learn_from(world, 1);
    assert_true(world_metric(&metrics, "logprob_diff_max") > 5e-5);
    world_close(world);
    tdm_config_destroy(config);
}

static void imitation_brings_the_loss_down(void **state)
{
    tdm_config *config = tiny_config(NULL);
    struct world *world = world_open(config, 3);
    struct tdm_metrics metrics = imitate(world, 1);
    double first = world_metric(&metrics, "loss");

    (void)state;
    for (uint32_t step = 2; step <= 40; step++) {
        metrics = imitate(world, step);
    }
    assert_true(world_metric(&metrics, "loss") < 0.3 * first);
    world_close(world);
    tdm_config_destroy(config);
}

/* Same loss and gradient whether one rank computes the batch or four do. */
static void ranks_share_a_batch_without_changing_it(void **state)
{
    const char *const one[] = {"trainer.num_ranks=1", NULL};
    const char *const four[] = {"trainer.num_ranks=4", NULL};
    const char *const *const kinds[] = {one, four};
    double loss[2];
    double norm[2];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        tdm_config *config = tiny_config(kinds[i]);
        struct world *world = world_open(config, 3);
        struct tdm_metrics metrics = imitate(world, 1);

        loss[i] = world_metric(&metrics, "loss");
        norm[i] = world_metric(&metrics, "grad_norm");
        world_close(world);
        tdm_config_destroy(config);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-6);
    assert_true(fabs(norm[0] - norm[1]) < 1e-5);
}

/* A job in small on both machines: what is learnt and how far it comes, but for the order in
 * which floats are summed. */
static void the_machines_learn_the_same(void **state)
{
    static const char *const machines[] = {"cluster.device=host", "cluster.device=cuda"};
    static const char *const names[] = {"loss", "grad_norm", "tokens", "reward"};
    struct tdm_metrics metrics[2][STEPS + 1];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const char *const overrides[] = {machines[i], NULL};
        tdm_config *config = tiny_config(overrides);
        struct world *world = world_open(config, 3);

        metrics[i][0] = imitate(world, 1);
        for (uint32_t step = 1; step <= STEPS; step++) {
            metrics[i][step] = reinforce(world, step);
        }
        world_close(world);
        tdm_config_destroy(config);
    }
    for (uint32_t step = 0; step <= STEPS; step++) {
        for (size_t k = 0; k < (step == 0 ? 3 : 4); k++) {
            double host = world_metric(&metrics[0][step], names[k]);
            double cuda = world_metric(&metrics[1][step], names[k]);

            if (fabs(host - cuda) > 1e-5 * (1.0 + fabs(host))) {
                fail_msg("step %u: %s is %.9g on the host, %.9g on CUDA", step, names[k], host,
                         cuda);
            }
        }
    }
}

static void the_start_is_held_on_to(void **state)
{
    const char *const overrides[] = {"trainer.kl_loss_coef=0.05", "trainer.lr=1e-2",
                                     "trainer.min_lr=1e-2", NULL};
    tdm_config *config = tiny_config(overrides);
    struct world *world = world_open(config, 3);
    struct tdm_metrics metrics;

    (void)state;
    (void)imitate(world, 1); /* The reference is that of the start of reinforcement, not before. */
    metrics = reinforce(world, 1);
    assert_true(world_metric(&metrics, "kl_start") < 1e-9);
    metrics = reinforce(world, 2);
    assert_true(world_metric(&metrics, "kl_start") > 1e-7);
    world_close(world);
    tdm_config_destroy(config);
}

static void assert_same(const struct tdm_metrics *a, const struct tdm_metrics *b)
{
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        assert_string_equal(a->entries[i].name, b->entries[i].name);
        if (a->entries[i].value != b->entries[i].value) {
            fail_msg("%s is %.17g, then %.17g", a->entries[i].name, a->entries[i].value,
                     b->entries[i].value);
        }
    }
}

/* Steps on to the end, from wherever the world is. */
static void go_on(struct world *world, uint32_t from, struct tdm_metrics metrics[STEPS + 1])
{
    for (uint32_t step = from; step <= STEPS; step++) {
        metrics[step] = reinforce(world, step);
    }
}

static void a_saved_job_goes_on_bit_for_bit(void **state)
{
    const char *const overrides[] = {"trainer.kl_loss_coef=0.01", NULL};
    tdm_config *config = tiny_config(overrides);
    struct world *world = world_open(config, 3);
    const char *folder = tiny_folder();
    struct tdm_metrics straight[STEPS + 1];
    struct tdm_metrics resumed[STEPS + 1];

    (void)state;
    (void)imitate(world, 1);
    for (uint32_t step = 1; step <= 3; step++) {
        (void)reinforce(world, step);
    }
    world_save(world, folder);
    go_on(world, 4, straight);
    world_close(world);

    /* The seed differs, so that everything must come from the folder. */
    world = world_open(config, 77);
    world_load(world, folder);
    go_on(world, 4, resumed);
    world_close(world);
    for (uint32_t step = 4; step <= STEPS; step++) {
        assert_same(&straight[step], &resumed[step]);
    }
    tdm_config_destroy(config);
}

static void a_saved_model_is_a_start(void **state)
{
    tdm_config *config = tiny_config(NULL);
    struct world *world = world_open(config, 3);
    const char *folder = tiny_folder();
    char path[512];
    const char *const overrides[] = {path, NULL};
    struct tdm_metrics metrics;
    double loss;

    (void)state;
    (void)imitate(world, 1);
    world_save(world, folder);
    metrics = imitate(world, 2);
    loss = world_metric(&metrics, "loss");
    world_close(world);
    tdm_config_destroy(config);

    (void)snprintf(path, sizeof(path), "model.path=%s/hf", folder);
    config = tiny_config(overrides);
    world = world_open(config, 77);
    metrics = imitate(world, 1);
    assert_true(world_metric(&metrics, "loss") == loss);
    world_close(world);
    tdm_config_destroy(config);
}

static void another_number_of_ranks_cannot_go_on(void **state)
{
    const char *const four[] = {"trainer.num_ranks=4", NULL};
    tdm_config *config = tiny_config(NULL);
    struct world *world = world_open(config, 3);
    const char *folder = tiny_folder();

    (void)state;
    world_save(world, folder);
    world_close(world);
    tdm_config_destroy(config);

    config = tiny_config(four);
    world = world_open(config, 3);
    assert_int_equal(trainer_ops.load(world->trainers[0].state, folder), TDM_E_STATE);
    assert_non_null(strstr(tdm_error_detail(), "rank 0 of 2"));
    assert_true(trainer_ops.load(world->trainers[3].state, folder) != TDM_OK);
    world_close(world);
    tdm_config_destroy(config);
}

/* ---- numbers that are not finite ---- */

/* Three prompts with two samples of three tokens each: SPOILED is the one sample with a character
 * of its own, '3', and the second of its prompt. */
enum { PROMPTS = 3, COPIES = 2, ANSWERS = PROMPTS * COPIES, LENGTH = 3, SPOILED = 3 };

/* The numbers of a batch for one rank. A test changes those of the sample that it spoils. */
struct batch_numbers {
    int32_t tokens[ANSWERS][LENGTH];
    float logprobs[ANSWERS][LENGTH]; /* Those of the engine. */
    float rewards[ANSWERS][LENGTH];
    struct tdm_sample samples[ANSWERS];
};

/* Fills the numbers: answers of '0', '1' and '2' with equal log-probabilities. The first sample of
 * each prompt has the reward 0 and the second one `second`. */
static void fill_numbers(struct batch_numbers *numbers, float second)
{
    static const char *const prompts[PROMPTS] = {"10<", "20<", "21<"};

    for (uint32_t i = 0; i < ANSWERS; i++) {
        for (uint32_t k = 0; k < LENGTH; k++) {
            numbers->tokens[i][k] = TOKENS_SPECIAL + (int32_t)k;
            numbers->logprobs[i][k] = -2.0F;
            numbers->rewards[i][k] = i % COPIES == 0 ? 0.0F : second;
        }
        numbers->samples[i] = (struct tdm_sample){.group = i / COPIES,
                                                  .prompt = prompts[i / COPIES],
                                                  .answer = "012",
                                                  .tokens = numbers->tokens[i],
                                                  .logprobs = numbers->logprobs[i],
                                                  .token_rewards = numbers->rewards[i],
                                                  .reward = numbers->rewards[i][0],
                                                  .tokens_count = LENGTH};
    }
}

/* Runs a step on the only trainer rank of a world, and expects an error with the text, which names
 * the spoiled sample, and that the weights stay as they are. */
static void expect_refused(struct world *world, const struct batch_numbers *numbers,
                           const char *text)
{
    const struct tdm_batch batch = {0, 1, STEPS, numbers->samples, ANSWERS};
    struct world_rank *rank = &world->trainers[0];
    const float *weights = rank->addresses[0];
    struct tdm_metrics metrics;
    float before[2];
    float after[2];

    memory_read(rank->machine, before, weights, sizeof(before));
    assert_int_equal(trainer_ops.step(rank->state, &batch, &metrics), TDM_E_METHOD);
    if (strstr(tdm_error_detail(), text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), text);
    }
    assert_non_null(strstr(tdm_error_detail(), "sample 1 of the prompt \"20<\""));
    memory_read(rank->machine, after, weights, sizeof(after));
    assert_memory_equal(before, after, sizeof(before));
}

/* Opens a world of one trainer rank whose passes hold several samples. */
static struct world *open_lone_trainer(tdm_config **config_out)
{
    const char *const overrides[] = {"trainer.num_ranks=1", "model.tie_word_embeddings=false",
                                     "trainer.kl_loss_coef=0.0", NULL};

    *config_out = tiny_config(overrides);
    return world_open(*config_out, 3);
}

static void log_probability_that_is_not_finite_names_prompt_and_sample(void **state)
{
    static const float values[] = {NAN, INFINITY};
    struct batch_numbers numbers;

    (void)state;
    fill_numbers(&numbers, 1.0F);
    numbers.tokens[SPOILED][1] = TOKENS_SPECIAL + 3;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        tdm_config *config;
        struct world *world = open_lone_trainer(&config);
        /* The embedding of '3'; the next token is predicted from it. */
        float *place = (float *)world->trainers[0].addresses[0] + (TOKENS_SPECIAL + 3) * 16;

        memory_write(world->trainers[0].machine, place, &values[i], sizeof(values[i]));
        expect_refused(world, &numbers, "the log-probability of token 2 in sample");
        world_close(world);
        tdm_config_destroy(config);
    }
}

static void gradient_that_is_not_finite_names_prompt_and_sample(void **state)
{
    struct batch_numbers numbers;
    tdm_config *config;
    struct world *world = open_lone_trainer(&config);

    (void)state;
    /* The probability ratio of a token that the engine never chooses is infinite; the advantage of
     * the second samples is negative, so that it is not clipped. */
    fill_numbers(&numbers, -1.0F);
    numbers.logprobs[SPOILED][1] = -1e30F;
    expect_refused(world, &numbers, "the gradient of token 1 in sample");
    /* The gradient of the token is a float, but not what it gives to the weights. */
    numbers.logprobs[SPOILED][1] = -92.0F;
    expect_refused(world, &numbers, "the gradient of the weights from sample");
    world_close(world);
    tdm_config_destroy(config);
}

static void statistic_that_is_not_finite_names_prompt_and_sample(void **state)
{
    struct batch_numbers numbers;
    tdm_config *config;
    struct world *world = open_lone_trainer(&config);

    (void)state;
    fill_numbers(&numbers, 1.0F); /* A ratio that is infinite is clipped: the loss is finite. */
    numbers.logprobs[SPOILED][1] = -1e30F;
    expect_refused(world, &numbers, "the KL divergence from the engine of token 1 in sample");
    world_close(world);
    tdm_config_destroy(config);
}

/* `tandem plan` asks before there is a group or memory. */
static void regions_are_known_without_a_group(void **state)
{
    tdm_config *config = tiny_config(NULL);
    const struct tdm_rank_context context = {.config = config, .rank = 1, .ranks_count = 2};
    struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX];
    uint32_t count;
    void *rank;

    (void)state;
    assert_int_equal(trainer_ops.open(&context, &rank), TDM_OK);
    assert_int_equal(trainer_ops.regions(rank, specs, &count), TDM_OK);
    assert_int_equal(count, 4);
    assert_string_equal(specs[0].tag, "parameters");
    assert_int_equal(specs[0].policy, TDM_REGION_KEEP);
    assert_int_equal(specs[1].size_bytes, 2 * specs[0].size_bytes);
    trainer_ops.close(rank);
    assert_int_equal(engine_ops.open(&context, &rank), TDM_OK);
    assert_int_equal(engine_ops.regions(rank, specs, &count), TDM_OK);
    assert_string_equal(specs[0].tag, "weights");
    assert_string_equal(specs[1].tag, "kv_cache");
    engine_ops.close(rank);
    tdm_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_of_one_rank_and_two_agree_with_the_trainer),
        cmocka_unit_test(replicas_learn_like_shares),
        cmocka_unit_test(a_stale_weight_shows),
        cmocka_unit_test(imitation_brings_the_loss_down),
        cmocka_unit_test(ranks_share_a_batch_without_changing_it),
        cmocka_unit_test(the_machines_learn_the_same),
        cmocka_unit_test(the_start_is_held_on_to),
        cmocka_unit_test(a_saved_job_goes_on_bit_for_bit),
        cmocka_unit_test(a_saved_model_is_a_start),
        cmocka_unit_test(another_number_of_ranks_cannot_go_on),
        cmocka_unit_test(log_probability_that_is_not_finite_names_prompt_and_sample),
        cmocka_unit_test(gradient_that_is_not_finite_names_prompt_and_sample),
        cmocka_unit_test(statistic_that_is_not_finite_names_prompt_and_sample),
        cmocka_unit_test(regions_are_known_without_a_group),
    };

    static const char *const machines[] = {"host", "cuda"};
    int failed = 0;

    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        tiny_choose(machines[i]);
        failed += cmocka_run_group_tests_name(machines[i], tests, NULL, NULL);
    }
    return failed;
}
