/* network_test.c - forwards as transformers computes it, backwards as differences say. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/network.h"

#include "examples/colocated_rl/random.h"
#include "examples/colocated_rl/settings.h"
#include "examples/colocated_rl/tests/support/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS_MAX = 16 };

/* Every test runs on each machine. */
static struct machine *machine;

/* A network with memory of its own, the machine's; then the host's copies of some. */
struct bench {
    struct model model;
    struct network network;
    float *placed_weights, *values, *cache, *scratch, *placed_logits, *placed_gradients;
    float *placed_slopes;
    float *weights, *logits, *gradients;
};

static float *floats(size_t count)
{
    float *memory = calloc(count, sizeof(float));

    assert_non_null(memory);
    return memory;
}

static float *place_floats(size_t count)
{
    return memory_take(machine, count * sizeof(float));
}

static void open_bench(struct bench *bench, const struct model_shape *shape)
{
    size_t logits = (size_t)ROWS_MAX * shape->vocab_size;

    assert_int_equal(model_init(&bench->model, shape, 1), TDM_OK);
    bench->network = (struct network){
        .model = &bench->model, .rows_max = ROWS_MAX, .slots_max = ROWS_MAX, .keeps_layers = 1};
    assert_int_equal(network_init(&bench->network), TDM_OK);
    bench->weights = floats(bench->model.elements);
    bench->gradients = floats(bench->model.elements);
    bench->logits = floats(logits);
    bench->placed_weights = place_floats(bench->model.elements);
    bench->placed_gradients = place_floats(bench->model.elements);
    bench->placed_logits = place_floats(logits);
    bench->placed_slopes = place_floats(logits);
    bench->values = place_floats(network_values_floats(&bench->model, ROWS_MAX, 1));
    bench->cache = place_floats(network_cache_floats(&bench->model, ROWS_MAX));
    bench->scratch = place_floats(network_backward_floats(&bench->model, ROWS_MAX));
    network_bind_memory(&bench->network, machine, bench->values, bench->cache);
    bench->network.weights = bench->placed_weights;
}

static void close_bench(struct bench *bench)
{
    network_fini(&bench->network);
    model_fini(&bench->model);
    memory_give(machine, bench->placed_weights);
    memory_give(machine, bench->placed_gradients);
    memory_give(machine, bench->placed_logits);
    memory_give(machine, bench->placed_slopes);
    memory_give(machine, bench->values);
    memory_give(machine, bench->cache);
    memory_give(machine, bench->scratch);
    free(bench->weights);
    free(bench->gradients);
    free(bench->logits);
}

/* The logits by the weights as they are now. */
static void compute(struct bench *bench, const struct row *rows, size_t count)
{
    memory_write(machine, bench->placed_weights, bench->weights,
                 bench->model.elements * sizeof(float));
    assert_int_equal(network_forward(&bench->network, rows, count), TDM_OK);
    network_head(&bench->network, bench->network.hidden, count, bench->placed_logits);
    memory_read(machine, bench->logits, bench->placed_logits,
                count * bench->model.shape.vocab_size * sizeof(float));
}

/* ---- against transformers --------------------------------------------------------------- */

static void read_golden_weights(struct bench *bench)
{
    tdm_safetensors *file;

    assert_int_equal(tdm_safetensors_open(TESTS_FOLDER "/golden/model.safetensors", &file), TDM_OK);
    assert_int_equal(tdm_safetensors_count(file), bench->model.tensors_count);
    for (uint32_t i = 0; i < bench->model.tensors_count; i++) {
        const struct tdm_tensor_view *view =
            tdm_safetensors_find(file, bench->model.tensors[i].name);

        assert_non_null(view);
        assert_int_equal(
            model_cut(&bench->model, i, 0, view, bench->weights + bench->model.offsets[i]), TDM_OK);
    }
    tdm_safetensors_close(file);
}

static void logits_are_those_of_transformers(void **state)
{
    const char *const overrides[] = {"model.path=" TESTS_FOLDER "/golden", NULL};
    enum { TOKENS = 12 };
    struct row rows[TOKENS] = {0};
    struct settings settings;
    struct bench bench;
    tdm_config *config;
    FILE *file = fopen(TESTS_FOLDER "/golden/logits.txt", "re");
    double largest = 0.0;

    (void)state;
    assert_non_null(file);
    assert_int_equal(tdm_config_parse("{}", 2, "none", &config), TDM_OK);
    assert_int_equal(tdm_config_override(config, overrides[0]), TDM_OK);
    assert_int_equal(settings_read(&settings, config), TDM_OK);
    open_bench(&bench, &settings.shape);
    read_golden_weights(&bench);
    for (uint32_t i = 0; i < TOKENS; i++) {
        rows[i].slot = i;
        assert_int_equal(fscanf(file, "%d", &rows[i].token), 1);
    }
    compute(&bench, rows, TOKENS);
    for (size_t i = 0; i < (size_t)TOKENS * settings.shape.vocab_size; i++) {
        double golden;

        assert_int_equal(fscanf(file, "%lf", &golden), 1);
        largest = fmax(largest, fabs(golden - (double)bench.logits[i]));
    }
    print_message("largest difference on %s %.1e\n", machine->ops->name, largest);
    assert_true(largest < 1e-4);
    (void)fclose(file);
    close_bench(&bench);
    tdm_config_destroy(config);
}

/* ---- against itself --------------------------------------------------------------------- */

static const struct model_shape small = {
    .vocab_size = 7,
    .hidden_size = 8,
    .num_hidden_layers = 2,
    .num_attention_heads = 4,
    .num_key_value_heads = 2,
    .head_dim = 4,
    .intermediate_size = 12,
    .max_position_embeddings = 16,
    .tie_word_embeddings = 1,
    .rope_theta = 100.0F,
    .rms_norm_eps = 1e-6F,
};

static void randomise(float *values, size_t count, uint64_t key, double deviation)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(deviation * random_normal(key, i));
    }
}

/* A prompt of three tokens, and two answers that share it. */
static const struct row shared_rows[] = {
    {.token = 1, .slot = 0},
    {.token = 4, .slot = 1},
    {.token = 2, .slot = 2},
    {.token = 5, .slot = 3, .first = 3, .prefix_count = 3},
    {.token = 6, .slot = 4, .first = 3, .prefix_count = 3},
    {.token = 3, .slot = 5, .first = 5, .prefix_count = 3},
    {.token = 0, .slot = 6, .first = 5, .prefix_count = 3},
};
enum { SHARED_ROWS = sizeof(shared_rows) / sizeof(shared_rows[0]) };

static void answers_may_share_their_prompt(void **state)
{
    const int32_t second[] = {1, 4, 2, 3, 0};
    struct row alone[5] = {0};
    float shared[SHARED_ROWS * 7];
    struct bench bench;

    (void)state;
    open_bench(&bench, &small);
    randomise(bench.weights, bench.model.elements, 1, 0.5);
    compute(&bench, shared_rows, SHARED_ROWS);
    memcpy(shared, bench.logits, sizeof(shared));
    for (uint32_t i = 0; i < 5; i++) {
        alone[i] = (struct row){.token = second[i], .slot = i};
    }
    compute(&bench, alone, 5);
    /* Rows 2, 3 and 4 alone equal rows 2, 5 and 6 of the common pass. */
    for (size_t i = 0; i < 7; i++) {
        assert_true(fabsf(bench.logits[14 + i] - shared[14 + i]) < 1e-5F);
        assert_true(fabsf(bench.logits[21 + i] - shared[35 + i]) < 1e-5F);
        assert_true(fabsf(bench.logits[28 + i] - shared[42 + i]) < 1e-5F);
    }
    close_bench(&bench);
}

/* A loss that is linear in the logits: its gradient for them is constant. */
static double loss_of(struct bench *bench, const float *slopes)
{
    double loss = 0.0;

    compute(bench, shared_rows, SHARED_ROWS);
    for (size_t i = 0; i < (size_t)SHARED_ROWS * bench->model.shape.vocab_size; i++) {
        loss += (double)bench->logits[i] * (double)slopes[i];
    }
    return loss;
}

/* The loss's slope along `direction`, from differences of the fourth order. */
static double measure_slope(struct bench *bench, uint32_t tensor, const float *direction,
                            const float *slopes)
{
    static const double weights[] = {1.0 / 12.0, -8.0 / 12.0, 8.0 / 12.0, -1.0 / 12.0};
    static const double steps[] = {-2.0, -1.0, 1.0, 2.0};
    const double width = 0.01;
    size_t count = tdm_tensor_elements(&bench->model.tensors[tensor]);
    float *values = bench->weights + bench->model.offsets[tensor];
    float *saved = floats(count);
    double slope = 0.0;

    memcpy(saved, values, count * sizeof(float));
    for (size_t k = 0; k < 4; k++) {
        for (size_t i = 0; i < count; i++) {
            values[i] = saved[i] + (float)(steps[k] * width) * direction[i];
        }
        slope += weights[k] * loss_of(bench, slopes) / width;
    }
    memcpy(values, saved, count * sizeof(float));
    free(saved);
    return slope;
}

static void check_tensor(struct bench *bench, uint32_t tensor, const float *slopes)
{
    size_t count = tdm_tensor_elements(&bench->model.tensors[tensor]);
    const float *gradient = bench->gradients + bench->model.offsets[tensor];
    float *direction = floats(count);

    for (uint64_t trial = 0; trial < 6; trial++) {
        double expected = 0.0;
        double length = 0.0;
        double measured;

        randomise(direction, count, 100 + trial, 1.0 / sqrt((double)count));
        for (size_t i = 0; i < count; i++) {
            expected += (double)gradient[i] * (double)direction[i];
            length += (double)gradient[i] * (double)gradient[i];
        }
        measured = measure_slope(bench, tensor, direction, slopes);
        if (fabs(measured - expected) > 2e-3 * sqrt(length / (double)count) + 2e-4) {
            fail_msg("%s: the slope is %g, the gradient says %g", bench->model.tensors[tensor].name,
                     measured, expected);
        }
    }
    free(direction);
}

static void check_gradients(int tied)
{
    struct model_shape shape = small;
    float slopes[SHARED_ROWS * 7];
    struct bench bench;

    shape.tie_word_embeddings = tied;
    open_bench(&bench, &shape);
    randomise(bench.weights, bench.model.elements, 2, 0.5);
    randomise(slopes, (size_t)SHARED_ROWS * 7, 3, 0.3);
    (void)loss_of(&bench, slopes);
    memory_write(machine, bench.placed_slopes, slopes, sizeof(slopes));
    network_backward(&bench.network, SHARED_ROWS, bench.placed_slopes, bench.placed_gradients,
                     bench.scratch);
    memory_read(machine, bench.gradients, bench.placed_gradients,
                bench.model.elements * sizeof(float));
    for (uint32_t i = 0; i < bench.model.tensors_count; i++) {
        check_tensor(&bench, i, slopes);
    }
    close_bench(&bench);
}

static void gradients_of_every_tensor_agree_with_differences(void **state)
{
    (void)state;
    check_gradients(1);
}

static void gradients_agree_with_a_head_of_its_own(void **state)
{
    (void)state;
    check_gradients(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_transformers),
        cmocka_unit_test(answers_may_share_their_prompt),
        cmocka_unit_test(gradients_of_every_tensor_agree_with_differences),
        cmocka_unit_test(gradients_agree_with_a_head_of_its_own),
    };

    static const char *const machines[] = {"host", "cuda"};
    int failed = 0;

    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        machine = memory_machine(machines[i]);
        failed += cmocka_run_group_tests_name(machines[i], tests, NULL, NULL);
    }
    return failed;
}
