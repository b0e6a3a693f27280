/* engine_test.c - an engine takes the weights it should, and answers as they say. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/network.h"
#include "examples/colocated_rl/ops.h"
#include "examples/colocated_rl/random.h"
#include "examples/colocated_rl/tests/support/tiny.h"
#include "examples/colocated_rl/tests/support/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 4, PROMPTS = 9 };

static const char *const texts[PROMPTS] = {"10<",  "10<", "132<", "0<",   "10<",
                                           "333>", "0>",  "0>",   "1230<"};
static const struct tdm_sampling sampling = {1.0, TOKENS};

static void fill_prompts(struct tdm_prompt prompts[PROMPTS])
{
    for (uint64_t i = 0; i < PROMPTS; i++) {
        prompts[i] = (struct tdm_prompt){texts[i], 50 + i};
    }
}

/* ---- weights ---------------------------------------------------------------------------- */

static void weights_are_refused_by_name(void **state)
{
    tdm_config *config = tiny_config(NULL);
    struct world *world = world_open(config, 3);
    void *engine = world->engines[0].state;
    float values[16] = {0};
    struct tdm_tensor_view view = {
        .info = {.name = "model.norm.weight", .dtype = TDM_F32, .dims_count = 1, .shape = {16}},
        .stride = {1},
        .data = values,
    };

    (void)state;
    engine_ops.begin(engine);
    assert_int_equal(engine_ops.load(engine, world->engines[0].addresses[0], &view, 1), TDM_OK);
    view.info.name = "model.layers.2.mlp.up_proj.weight";
    assert_int_equal(engine_ops.load(engine, world->engines[0].addresses[0], &view, 1),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "model.layers.2.mlp.up_proj.weight"));
    view.info.name = "model.layers.1.mlp.up_proj.weight";
    assert_int_equal(engine_ops.load(engine, world->engines[0].addresses[0], &view, 1),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "model.layers.1.mlp.up_proj.weight"));
    world_close(world);
    tdm_config_destroy(config);
}

static void missing_tensors_are_named(void **state)
{
    tdm_config *config = tiny_config(NULL);
    struct world *world = world_open(config, 3);
    void *engine = world->engines[1].state;

    (void)state;
    world_update(world);
    assert_int_equal(engine_ops.complete(engine), TDM_OK);
    engine_ops.begin(engine);
    assert_int_equal(engine_ops.complete(engine), TDM_E_STATE);
    assert_non_null(strstr(tdm_error_detail(), "24 of 24"));
    assert_non_null(strstr(tdm_error_detail(), "model.embed_tokens.weight"));
    world_close(world);
    tdm_config_destroy(config);
}

/* ---- answers ---------------------------------------------------------------------------- */

/* A whole network of one rank on the host, to check an engine's answers with. */
struct reference {
    struct settings settings;
    struct model model;
    struct network network;
    float *weights;
    float *memory;
    float *logits;
};

/* Returns its weights, to be filled. */
static float *open_reference(struct reference *reference, const tdm_config *config)
{
    const size_t rows = 16;
    size_t values;

    assert_int_equal(settings_read(&reference->settings, config), TDM_OK);
    assert_int_equal(model_init(&reference->model, &reference->settings.shape, 1), TDM_OK);
    reference->network =
        (struct network){.model = &reference->model, .rows_max = rows, .slots_max = rows};
    assert_int_equal(network_init(&reference->network), TDM_OK);
    values = network_values_floats(&reference->model, rows, 0);
    reference->memory =
        calloc(values + network_cache_floats(&reference->model, rows), sizeof(float));
    reference->logits = calloc(rows * reference->settings.shape.vocab_size, sizeof(float));
    reference->weights = calloc(reference->model.elements, sizeof(float));
    assert_non_null(reference->weights);
    assert_non_null(reference->memory);
    assert_non_null(reference->logits);
    network_bind_memory(&reference->network, machine_host(), reference->memory,
                        reference->memory + values);
    reference->network.weights = reference->weights;
    return reference->weights;
}

static void close_reference(struct reference *reference)
{
    network_fini(&reference->network);
    model_fini(&reference->model);
    free(reference->weights);
    free(reference->memory);
    free(reference->logits);
}

/* The largest difference between an answer's log-probabilities and the reference's. */
static double compare(struct reference *reference, const char *prompt,
                      const struct tdm_completion *completion)
{
    size_t width = reference->settings.shape.vocab_size;
    int32_t tokens[16];
    struct row rows[16] = {0};
    uint32_t count;
    double largest = 0.0;

    assert_int_equal(
        tokenizer_encode(&reference->settings.tokenizer, prompt, TOKEN_ANSWER, tokens, 8, &count),
        TDM_OK);
    memcpy(tokens + count, completion->tokens, completion->tokens_count * sizeof(int32_t));
    for (uint32_t i = 0; i < count + completion->tokens_count; i++) {
        rows[i] = (struct row){.token = tokens[i], .slot = i};
    }
    assert_int_equal(network_forward(&reference->network, rows, count + completion->tokens_count),
                     TDM_OK);
    network_head(&reference->network, reference->network.hidden, count + completion->tokens_count,
                 reference->logits);
    for (uint32_t i = 0; i < completion->tokens_count; i++) {
        float *logprobs = reference->logits + (count - 1 + i) * width;

        machine_host()->ops->log_softmax(machine_host(),
                                         &(const struct log_softmax){logprobs, 1.0F, width, 1});
        largest = fmax(largest, fabs((double)logprobs[completion->tokens[i]] -
                                     (double)completion->logprobs[i]));
    }
    return largest;
}

/* The trainer's share is the whole list of weights when there is one rank: random numbers are
 * pushed from there, and what the split engines make of them is compared with a forward pass of
 * whole sequences. */
static void random_weights_arrive_in_every_part(void **state)
{
    const char *const overrides[] = {"trainer.num_ranks=1", "engine.num_engines=2", NULL};
    tdm_config *config = tiny_config(overrides);
    struct world *world = world_open(config, 3);
    struct tdm_completion *completions = world_completions(PROMPTS, TOKENS);
    struct tdm_prompt prompts[PROMPTS];
    float *place = world->trainers[0].addresses[0];
    struct reference reference;
    float *weights;

    (void)state;
    weights = open_reference(&reference, config);
    for (uint64_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < reference.model.elements; i++) {
            weights[i] = (float)(0.4 * random_normal(20261 + round, i));
        }
        memory_write(world->trainers[0].machine, place, weights,
                     reference.model.elements * sizeof(float));
        world_update(world);
        fill_prompts(prompts);
        world_generate(world, prompts, PROMPTS, 1, &sampling, completions);
        for (int i = 0; i < PROMPTS; i++) {
            assert_true(compare(&reference, texts[i], &completions[i]) < 5e-5);
        }
    }
    close_reference(&reference);
    world_completions_free(completions);
    world_close(world);
    tdm_config_destroy(config);
}

static void assert_same_answer(const struct tdm_completion *a, const struct tdm_completion *b)
{
    assert_int_equal(a->tokens_count, b->tokens_count);
    assert_memory_equal(a->tokens, b->tokens, a->tokens_count * sizeof(int32_t));
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->finished, b->finished);
}

/* Together, one by one, and in waves through a small cache. */
static void answers_do_not_depend_on_their_batch(void **state)
{
    const char *const tight[] = {"engine.max_running_requests=2", "engine.max_total_tokens=20",
                                 NULL};
    struct tdm_completion *together = world_completions(PROMPTS, TOKENS);
    struct tdm_completion *alone = world_completions(PROMPTS, TOKENS);
    struct tdm_prompt prompts[PROMPTS];
    tdm_config *config = tiny_config(NULL);
    struct world *world = world_open(config, 3);

    (void)state;
    fill_prompts(prompts);
    world_update(world);
    world_generate(world, prompts, PROMPTS, 1, &sampling, together);
    for (int i = 0; i < PROMPTS; i++) {
        world_generate(world, prompts + i, 1, 1, &sampling, alone + i);
        assert_same_answer(&together[i], &alone[i]);
    }
    world_close(world);
    tdm_config_destroy(config);

    config = tiny_config(tight);
    world = world_open(config, 3);
    world_update(world);
    world_generate(world, prompts, PROMPTS, 1, &sampling, alone);
    for (int i = 0; i < PROMPTS; i++) {
        assert_same_answer(&together[i], &alone[i]);
    }
    world_close(world);
    tdm_config_destroy(config);
    world_completions_free(together);
    world_completions_free(alone);
}

static void greedy_answers_need_no_seed(void **state)
{
    const struct tdm_sampling greedy = {0.0, TOKENS};
    struct tdm_completion *first = world_completions(PROMPTS, TOKENS);
    struct tdm_completion *second = world_completions(PROMPTS, TOKENS);
    struct tdm_prompt prompts[PROMPTS];
    tdm_config *config = tiny_config(NULL);
    struct world *world = world_open(config, 3);

    (void)state;
    fill_prompts(prompts);
    world_update(world);
    world_generate(world, prompts, PROMPTS, 1, &greedy, first);
    for (int i = 0; i < PROMPTS; i++) {
        prompts[i].seed += 1000;
    }
    world_generate(world, prompts, PROMPTS, 1, &greedy, second);
    for (int i = 0; i < PROMPTS; i++) {
        assert_same_answer(&first[i], &second[i]);
    }
    world_close(world);
    tdm_config_destroy(config);
    world_completions_free(first);
    world_completions_free(second);
}

static void unfit_prompts_are_refused(void **state)
{
    const char *const alone[] = {"engine.rollout_num_gpus_per_engine=1", NULL};
    const struct tdm_prompt unknown = {"7<", 1};
    const struct tdm_prompt long_one = {"012301230", 1};
    const struct tdm_prompt good = {"10<", 1};
    const struct tdm_sampling endless = {1.0, TOKENS + 1};
    struct tdm_completion *completions = world_completions(1, TOKENS + 1);
    tdm_config *config = tiny_config(alone);
    struct world *world = world_open(config, 3);
    void *engine = world->engines[0].state;

    (void)state;
    assert_int_equal(engine_ops.generate(engine, &unknown, 1, &sampling, completions), TDM_E_INVAL);
    assert_int_equal(engine_ops.generate(engine, &long_one, 1, &sampling, completions),
                     TDM_E_LIMIT);
    assert_int_equal(engine_ops.generate(engine, &good, 1, &endless, completions), TDM_E_INVAL);
    assert_int_equal(engine_ops.generate(engine, &good, 1, &sampling, completions), TDM_OK);
    assert_int_equal(engine_ops.generate(engine, &good, 0, &sampling, completions), TDM_OK);
    world_close(world);
    tdm_config_destroy(config);
    world_completions_free(completions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_refused_by_name),
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(random_weights_arrive_in_every_part),
        cmocka_unit_test(answers_do_not_depend_on_their_batch),
        cmocka_unit_test(greedy_answers_need_no_seed),
        cmocka_unit_test(unfit_prompts_are_refused),
    };

    static const char *const machines[] = {"host", "cuda"};
    int failed = 0;

    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        tiny_choose(machines[i]);
        failed += cmocka_run_group_tests_name(machines[i], tests, NULL, NULL);
    }
    return failed;
}
