/* shard_test.c - shares of the parameters, and how they learn. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/shard.h"

#include "examples/colocated_rl/tests/support/memory.h"
#include "examples/colocated_rl/tests/support/tiny.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Every test runs on each machine. */
static struct machine *machine;
static struct model model;
static struct shard shards[3];

static float *place(size_t count)
{
    return memory_take(machine, count * sizeof(float));
}

static float peek(const float *at)
{
    float value;

    memory_read(machine, &value, at, sizeof(value));
    return value;
}

static void poke(float *at, float value)
{
    memory_write(machine, at, &value, sizeof(value));
}

/* Fails unless `count` floats at two places are the same, to the bit. */
static void assert_same(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(peek(a + i) == peek(b + i));
    }
}

static int open_shards(void **state)
{
    (void)state;
    assert_int_equal(model_init(&model, &tiny_settings()->shape, 1), TDM_OK);
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct shard *shard = &shards[rank];
        float *memory;

        assert_int_equal(shard_init(shard, &model, NULL, rank, 3), TDM_OK);
        memory = place(4 * shard->count);
        shard_bind_memory(shard, machine, memory);
        shard->mean = memory + shard->count;
        shard->square = memory + 2 * shard->count;
        shard->gradients = memory + 3 * shard->count;
    }
    return 0;
}

static int close_shards(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++) {
        memory_give(machine, shards[rank].parameters);
        shard_fini(&shards[rank]);
    }
    model_fini(&model);
    return 0;
}

static void slices_cover_every_element_once(void **state)
{
    uint8_t *seen = calloc(model.elements, 1);

    (void)state;
    assert_non_null(seen);
    for (uint32_t rank = 0; rank < 3; rank++) {
        for (uint32_t i = 0; i < shards[rank].slices_count; i++) {
            const struct tdm_slice *slice = &shards[rank].slices[i];
            size_t start = model.offsets[slice->tensor] + slice->offset[0];
            const float *expected = shards[rank].parameters + (start - shards[rank].first);

            assert_int_equal(slice->flat, 1);
            assert_ptr_equal(slice->address, expected);
            assert_true(slice->offset[0] + slice->extent[0] <=
                        tdm_tensor_elements(&model.tensors[slice->tensor]));
            for (size_t at = start; at < start + slice->extent[0]; at++) {
                seen[at]++;
            }
        }
    }
    for (size_t i = 0; i < model.elements; i++) {
        assert_int_equal(seen[i], 1);
    }
    free(seen);
}

static void first_weights_do_not_depend_on_the_ranks(void **state)
{
    struct shard whole;
    float *memory;

    (void)state;
    assert_int_equal(shard_init(&whole, &model, NULL, 0, 1), TDM_OK);
    memory = place(whole.count);
    shard_bind_memory(&whole, machine, memory);
    assert_int_equal(shard_init_random(&whole, 5, 0.02), TDM_OK);
    for (uint32_t rank = 0; rank < 3; rank++) {
        size_t count = rank == 2 ? model.elements - shards[2].first : shards[rank].count;

        assert_int_equal(shard_init_random(&shards[rank], 5, 0.02), TDM_OK);
        assert_same(shards[rank].parameters, memory + shards[rank].first, count);
    }
    assert_true(peek(memory + model_final_norm(&model)) == 1.0F);
    memory_give(machine, memory);
    shard_fini(&whole);
}

/* AdamW as its authors write it, in doubles. */
static void adamw_moves_as_written(void **state)
{
    const struct optimizer_settings settings = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .clip_grad = 0.5};
    struct shard *shard = &shards[0];
    float *gradients = place(shard->count);
    double value;
    double mean = 0.0;
    double square = 0.0;

    (void)state;
    assert_int_equal(shard_init_random(shard, 5, 0.02), TDM_OK);
    value = (double)peek(shard->parameters + 3);
    for (uint64_t number = 1; number <= 5; number++) {
        struct shard_step step = {.lr = 1e-2, .number = number};
        double gradient = number % 2 == 0 ? -3.0 : 4.0;
        double clipped;

        poke(gradients + 3, (float)gradient);
        poke(gradients + 4, 1.0F);
        assert_int_equal(shard_optimizer_step(shard, &settings, gradients, &step), TDM_OK);
        assert_true(fabs(step.grad_norm - sqrt(gradient * gradient + 1.0)) < 1e-6);
        clipped = gradient * 0.5 / (step.grad_norm + 1e-6);
        mean = 0.9 * mean + 0.1 * clipped;
        square = 0.99 * square + 0.01 * clipped * clipped;
        value -= 1e-2 * 0.1 * value;
        value -= 1e-2 * (mean / (1.0 - pow(0.9, (double)number))) /
                 (sqrt(square / (1.0 - pow(0.99, (double)number))) + 1e-8);
        assert_true(fabs((double)peek(shard->parameters + 3) - value) < 1e-6);
    }
    memory_give(machine, gradients);
}

static void norms_do_not_decay(void **state)
{
    const struct optimizer_settings settings = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.5};
    struct shard *shard = &shards[0];
    float *gradients = place(shard->count);
    struct shard_step step = {.lr = 1e-1, .number = 1};
    size_t norm = model_layer(&model, 0, INPUT_NORM);
    float matrix;

    (void)state;
    assert_int_equal(shard_init_random(shard, 5, 0.02), TDM_OK);
    shard_reset_moments(shard);
    matrix = peek(shard->parameters);
    assert_int_equal(shard_optimizer_step(shard, &settings, gradients, &step), TDM_OK);
    assert_true(peek(shard->parameters + norm) == 1.0F);
    assert_true(fabsf(peek(shard->parameters) - 0.95F * matrix) < 1e-8F);
    memory_give(machine, gradients);
}

static void a_gradient_that_is_not_finite_is_refused(void **state)
{
    const struct optimizer_settings settings = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    struct shard *shard = &shards[0];
    float *gradients = place(shard->count);
    struct shard_step step = {.lr = 1e-1, .number = 1};

    (void)state;
    poke(gradients, NAN);
    assert_int_equal(shard_optimizer_step(shard, &settings, gradients, &step), TDM_E_METHOD);
    memory_give(machine, gradients);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_cover_every_element_once),
        cmocka_unit_test(first_weights_do_not_depend_on_the_ranks),
        cmocka_unit_test(adamw_moves_as_written),
        cmocka_unit_test(norms_do_not_decay),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_refused),
    };

    static const char *const machines[] = {"host", "cuda"};
    int failed = 0;

    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        machine = memory_machine(machines[i]);
        failed += cmocka_run_group_tests_name(machines[i], tests, open_shards, close_shards);
    }
    return failed;
}
