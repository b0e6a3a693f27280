/* reshard_test.c - whatever the two layouts are, every element arrives where it belongs, once.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/plan/reshard.h"

#include "colocate/plan/fp8.h"
#include "runtime/mix.h"
#include "tests/support/chance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- every element says which one it is ------------------------------------------------- */

/* Tensors that some layouts keep once under two names have the same elements. */
static uint32_t identity(const struct tdm__model *model, uint32_t tensor)
{
    switch (model->tensors[tensor].template_id) {
    case TDM__T_MTP_EMBED:
        return tdm__model_find(model, TDM__T_EMBED, 0, 0);
    case TDM__T_MTP_HEAD:
        return tdm__model_find(model, TDM__T_HEAD, 0, 0);
    default:
        return tensor;
    }
}

/* A hash of tensor, row and column: any sign, 64 powers of two, all bits of the fraction. */
static float element(const struct tdm__model *model, uint32_t tensor, uint32_t row,
                     uint32_t column)
{
    uint64_t hash =
        tdm__mix(identity(model, tensor), (uint64_t)row << 32 | column) ^ UINT64_C(0x5eed);
    uint32_t bits = (uint32_t)(hash & 0x807fffff) | (uint32_t)(96 + (hash >> 32) % 64) << 23;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float as_held(float value, uint8_t dtype)
{
    return dtype == TDM_BF16 ? tdm__bf16_value(tdm__bf16_of(value)) : value;
}

/* ---- a side with real memory ------------------------------------------------------------ */

struct memory {
    uint8_t *bytes;  /* of one tensor; guarded by the sanitizer */
    uint8_t *writes; /* to each of its elements */
};

struct world {
    const struct tdm__model *model;
    const struct tdm__reshard *reshard;
    struct memory **from; /* by rank, by tensor */
    struct memory **to;
    struct memory *staging; /* by destination rank */
};

static struct memory make_memory(uint64_t elements, uint64_t size_bytes)
{
    struct memory memory = {malloc(size_bytes + 1), calloc(elements + 1, 1)};

    assert_true(memory.bytes != NULL && memory.writes != NULL);
    memset(memory.bytes, 0xa5, size_bytes);
    return memory;
}

static struct memory **make_side(const struct tdm__shards *shards, uint32_t ranks_count)
{
    struct memory **side = calloc(ranks_count, sizeof(*side));

    assert_non_null(side);
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        side[rank] = calloc(shards[rank].locals_count + 1, sizeof(**side));
        assert_non_null(side[rank]);
        for (uint32_t i = 0; i < shards[rank].locals_count; i++) {
            const struct tdm__local *local = &shards[rank].locals[i];

            side[rank][i] = make_memory(tdm__local_elements(local), tdm__local_bytes(local));
        }
    }
    return side;
}

static void drop_side(struct memory **side, const struct tdm__shards *shards,
                      uint32_t ranks_count)
{
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        for (uint32_t i = 0; i < shards[rank].locals_count; i++) {
            free(side[rank][i].bytes);
            free(side[rank][i].writes);
        }
        free(side[rank]);
    }
    free(side);
}

static void put(const struct memory *memory, uint64_t index, uint8_t dtype, float value)
{
    if (dtype == TDM_BF16) {
        uint16_t bits = tdm__bf16_of(value);

        memcpy(memory->bytes + index * sizeof(bits), &bits, sizeof(bits));
    } else {
        assert_int_equal(dtype, TDM_F32);
        memcpy(memory->bytes + index * sizeof(value), &value, sizeof(value));
    }
}

static void fill_source(struct world *world)
{
    const struct tdm__reshard *reshard = world->reshard;

    for (uint32_t rank = 0; rank < reshard->from.sharding->ranks_count; rank++) {
        struct tdm__shards shards;

        assert_int_equal(tdm__shards_make(world->model, reshard->from.sharding, rank,
                                          TDM__ROLE_SOURCE, &shards),
                         TDM_OK);
        for (uint32_t i = 0; i < shards.pieces_count; i++) {
            const struct tdm__piece *piece = &shards.pieces[i];
            const struct tdm__rectangle *r = &piece->rectangle;

            for (uint32_t j = 0; j < r->rows * r->columns; j++) {
                uint32_t row = j / r->columns;
                uint32_t column = j % r->columns;

                put(&world->from[rank][piece->local],
                    piece->offset + (uint64_t)row * piece->pitch + column,
                    shards.locals[piece->local].dtype,
                    element(world->model, piece->tensor, r->row + row, r->column + column));
            }
        }
        tdm__shards_fini(&shards);
    }
}

/* ---- running a plan --------------------------------------------------------------------- */

static void count_writes(uint8_t *writes, const struct tdm__copy *copy)
{
    for (uint32_t row = 0; row < copy->rows; row++) {
        for (uint32_t column = 0; column < copy->columns; column++) {
            writes[copy->to_offset + (uint64_t)row * copy->to_pitch + column]++;
        }
    }
}

static void run_copy(struct world *world, uint32_t rank, const struct tdm__copy *copy)
{
    const struct tdm__rank_plan *plan = &world->reshard->ranks[rank];
    const struct memory *from = copy->from_tensor == TDM__STAGING
                                    ? &world->staging[rank]
                                    : &world->from[copy->from_rank][copy->from_tensor];
    bool is_staged = copy->to_tensor == TDM__STAGING;
    struct memory *to = is_staged ? &world->staging[rank] : &world->to[rank][copy->to_tensor];
    const struct tdm__copy_scales *scales = NULL;
    struct memory *scales_to = NULL;

    if (copy->convert == TDM__CONVERT_FP8) {
        assert_true(copy->scales < plan->scales_count);
        scales = &plan->scales[copy->scales];
        scales_to = &world->to[rank][scales->tensor];
        for (uint32_t row = 0; row < (copy->rows + 127) / 128; row++) {
            for (uint32_t column = 0; column < (copy->columns + 127) / 128; column++) {
                scales_to->writes[scales->offset + (uint64_t)row * scales->pitch + column]++;
            }
        }
    }
    if (!is_staged) {
        count_writes(to->writes, copy);
    }
    tdm__copy_run(copy, from->bytes, to->bytes, scales,
                  scales_to == NULL ? NULL : (float *)(void *)scales_to->bytes);
}

static void run_plan(struct world *world)
{
    for (uint32_t rank = 0; rank < world->reshard->to.sharding->ranks_count; rank++) {
        const struct tdm__rank_plan *plan = &world->reshard->ranks[rank];

        world->staging[rank] = make_memory(0, plan->staging_bytes);
        for (uint32_t i = 0; i < plan->copies_count; i++) {
            run_copy(world, rank, &plan->copies[i]);
        }
        for (uint32_t i = 0; i < plan->passes_count; i++) {
            run_copy(world, rank, &plan->passes[i]);
        }
    }
}

/* ---- the reference of FP8 --------------------------------------------------------------- */

/* The value of each of the 127 codes from zero up. */
static double e4m3_value(int code)
{
    int power = code >> 3;
    double fraction = (code & 7) / 8.0;

    return power == 0 ? ldexp(fraction, -6) : ldexp(1 + fraction, power - 7);
}

/* By looking at all of them: the nearest, of two as near the even one. */
static uint8_t e4m3_reference(float value)
{
    double size = fabs((double)value);
    int best = 0;

    for (int code = 1; code <= 0x7e; code++) {
        double better = fabs(e4m3_value(code) - size) - fabs(e4m3_value(best) - size);

        if (better < 0 || (better == 0 && code % 2 == 0)) {
            best = code;
        }
    }
    return (uint8_t)(best | (signbit(value) ? 0x80 : 0));
}

/* Of the block that an element of the whole tensor is in. */
static float scale_reference(const struct tdm__model *model, uint32_t tensor, uint32_t row,
                             uint32_t column, uint8_t dtype)
{
    const struct tdm__model_tensor *info = &model->tensors[tensor];
    float largest = 1e-10f;

    for (uint32_t r = row / 128 * 128; r < info->rows && r < row / 128 * 128 + 128; r++) {
        for (uint32_t c = column / 128 * 128; c < info->columns && c < column / 128 * 128 + 128;
             c++) {
            largest = fmaxf(largest, fabsf(as_held(element(model, tensor, r, c), dtype)));
        }
    }
    return largest / 448.0f;
}

/* ---- checking --------------------------------------------------------------------------- */

static void check_fp8(const struct world *world, const struct tdm__shards *shards,
                      uint32_t rank, const struct tdm__piece *piece)
{
    const struct tdm__piece *scale = &shards->pieces[piece->scale];
    const struct tdm__rectangle *r = &piece->rectangle;
    uint8_t dtype =
        (uint8_t)(world->reshard->from.sharding->dtype == TDM_F32 ? TDM_F32 : TDM_BF16);

    for (uint32_t j = 0; j < scale->rectangle.rows * scale->rectangle.columns; j++) {
        uint32_t block_row = j / scale->rectangle.columns * 128;
        uint32_t block_column = j % scale->rectangle.columns * 128;
        float wanted = scale_reference(world->model, piece->tensor, r->row + block_row,
                                       r->column + block_column, dtype);
        float scale_value;

        memcpy(&scale_value,
               world->to[rank][scale->local].bytes +
                   4 * (scale->offset + (uint64_t)(block_row / 128) * scale->pitch +
                        block_column / 128),
               sizeof(scale_value));
        assert_memory_equal(&scale_value, &wanted, sizeof(wanted));
        for (uint32_t k = 0; k < 128 * 128; k += 7) { /* the reference is slow */
            uint32_t row = block_row + k / 128;
            uint32_t column = block_column + k % 128;

            if (row < r->rows && column < r->columns) {
                float value = as_held(
                    element(world->model, piece->tensor, r->row + row, r->column + column),
                    dtype);

                assert_int_equal(
                    world->to[rank][piece->local]
                        .bytes[piece->offset + (uint64_t)row * piece->pitch + column],
                    e4m3_reference(value * (1.0f / wanted)));
            }
        }
    }
}

/* Also takes back the writes that had to be: what is left is too much or too little. */
static void check_piece(const struct world *world, const struct tdm__shards *shards,
                        uint32_t rank, const struct tdm__piece *piece)
{
    const struct tdm__rectangle *r = &piece->rectangle;
    const struct memory *memory = &world->to[rank][piece->local];
    uint8_t dtype = shards->locals[piece->local].dtype;
    size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)dtype);
    bool is_scale = world->model->tensors[piece->tensor].kind == TDM__KIND_SCALE;

    for (uint32_t j = 0; j < r->rows * r->columns; j++) {
        uint64_t index =
            piece->offset + (uint64_t)(j / r->columns) * piece->pitch + j % r->columns;
        uint8_t wanted_bytes[4];
        const struct memory wanted = {wanted_bytes, NULL};

        memory->writes[index]--;
        if (is_scale || dtype == TDM_F8_E4M3) {
            continue;
        }
        put(&wanted, 0, dtype,
            element(world->model, piece->tensor, r->row + j / r->columns,
                    r->column + j % r->columns));
        assert_memory_equal(memory->bytes + index * element_bytes, wanted_bytes, element_bytes);
    }
    if (dtype == TDM_F8_E4M3) {
        check_fp8(world, shards, rank, piece);
    }
}

static void check_destination(const struct world *world)
{
    const struct tdm__reshard *reshard = world->reshard;

    for (uint32_t rank = 0; rank < reshard->to.sharding->ranks_count; rank++) {
        struct tdm__shards shards;

        assert_int_equal(tdm__shards_make(world->model, reshard->to.sharding, rank,
                                          TDM__ROLE_DESTINATION, &shards),
                         TDM_OK);
        for (uint32_t i = 0; i < shards.pieces_count; i++) {
            check_piece(world, &shards, rank, &shards.pieces[i]);
        }
        for (uint32_t i = 0; i < shards.locals_count; i++) {
            for (uint64_t j = 0; j < tdm__local_elements(&shards.locals[i]); j++) {
                assert_int_equal(world->to[rank][i].writes[j], 0);
            }
        }
        tdm__shards_fini(&shards);
    }
}

/* Sums of the steps are the cost that was stated. */
static void check_cost(const struct tdm__reshard *reshard)
{
    uint64_t edge_bytes[TDM__EDGES_COUNT] = {0};
    uint32_t copies_max = 0;

    for (uint32_t rank = 0; rank < reshard->to.sharding->ranks_count; rank++) {
        const struct tdm__rank_plan *plan = &reshard->ranks[rank];

        for (uint32_t i = 0; i < plan->copies_count; i++) {
            const struct tdm__rank_place *from =
                &reshard->from.places[plan->copies[i].from_rank];
            const struct tdm__rank_place *to = &reshard->to.places[rank];
            int edge = from->node != to->node ? TDM__EDGE_OTHER_NODE
                       : from->gpu != to->gpu ? TDM__EDGE_SAME_NODE
                                              : TDM__EDGE_SAME_GPU;

            assert_int_equal(plan->copies[i].edge, edge);
            edge_bytes[edge] += tdm__copy_bytes(&plan->copies[i]);
        }
        if (plan->copies_count + plan->passes_count > copies_max) {
            copies_max = plan->copies_count + plan->passes_count;
        }
    }
    assert_memory_equal(edge_bytes, reshard->cost.edge_bytes, sizeof(edge_bytes));
    assert_int_equal(copies_max, reshard->cost.copies_max);
}

static void move_and_check(const struct tdm__model *model, const struct tdm__reshard *reshard)
{
    uint32_t from_ranks = reshard->from.sharding->ranks_count;
    uint32_t to_ranks = reshard->to.sharding->ranks_count;
    struct world world = {.model = model,
                          .reshard = reshard,
                          .from = make_side(reshard->from_shards, from_ranks),
                          .to = make_side(reshard->to_shards, to_ranks),
                          .staging = calloc(to_ranks, sizeof(*world.staging))};

    assert_non_null(world.staging);
    fill_source(&world);
    run_plan(&world);
    check_destination(&world);
    check_cost(reshard);
    drop_side(world.from, reshard->from_shards, from_ranks);
    drop_side(world.to, reshard->to_shards, to_ranks);
    for (uint32_t rank = 0; rank < to_ranks; rank++) {
        free(world.staging[rank].bytes);
        free(world.staging[rank].writes);
    }
    free(world.staging);
}

/* ---- random pairs ----------------------------------------------------------------------- */

static uint32_t one_of(struct chance *chance, const uint32_t *numbers, uint32_t count)
{
    return numbers[chance_below(chance, count)];
}

#define ONE_OF(chance, ...)                                                                    \
    one_of((chance), (const uint32_t[]){__VA_ARGS__},                                          \
           sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* `unit` is what widths are multiples of. */
static struct tdm__model_config random_config(struct chance *chance, uint32_t unit)
{
    enum tdm__family family = (enum tdm__family)chance_below(chance, 4);
    bool latent = family == TDM__FAMILY_DEEPSEEK_V3;
    bool has_experts = family != TDM__FAMILY_QWEN3;
    struct tdm__model_config config = {
        .family = family,
        .dtype = TDM_BF16,
        .layers = 1 + chance_below(chance, 4),
        .hidden = unit * (1 + chance_below(chance, 4)),
        .vocabulary = 5 + chance_below(chance, 40),
        .kv_heads = ONE_OF(chance, 1, 2, 3, 4, 8),
        .head_dim = unit > 4 ? unit / 2 : 1 + chance_below(chance, 3),
        .ffn = unit * ONE_OF(chance, 2, 4, 6, 8),
        .tied = chance_below(chance, 3) == 0,
        .qk_norm = family == TDM__FAMILY_QWEN3 || family == TDM__FAMILY_QWEN3_MOE,
        .attention_bias = !latent && chance_below(chance, 2) == 0,
    };

    config.heads = config.kv_heads * ONE_OF(chance, 1, 2, 4);
    config.dense_layers = config.layers;
    if (latent) {
        config.kv_heads = config.heads;
        config.head_dim = 0;
        config.q_rank = unit;
        config.kv_rank = unit;
        config.nope_dim = unit;
        config.rope_dim = unit / 2;
        config.value_dim = unit;
    }
    if (has_experts) {
        config.experts = ONE_OF(chance, 2, 4, 6, 8);
        config.expert_ffn = unit * ONE_OF(chance, 1, 2, 4);
        config.dense_layers = family == TDM__FAMILY_QWEN3_MOE ? 0 : chance_below(chance, 2);
        config.router_bias = family != TDM__FAMILY_QWEN3_MOE;
        config.shared_experts = family != TDM__FAMILY_QWEN3_MOE ? chance_below(chance, 3) : 0;
        config.mtp_layers = config.router_bias ? chance_below(chance, 3) : 0;
        config.tied = config.tied && config.mtp_layers == 0;
    }
    return config;
}

static void random_stages(struct chance *chance, struct tdm__sharding *sharding,
                          uint32_t layers)
{
    uint32_t left = layers;

    sharding->stages_count = 1 + chance_below(chance, layers < 4 ? layers : 4);
    for (uint32_t i = 0; i < sharding->stages_count; i++) {
        uint32_t others = sharding->stages_count - 1 - i;

        sharding->stage_layers[i] =
            others == 0 ? left : 1 + chance_below(chance, left - others);
        left -= sharding->stage_layers[i];
    }
    if (chance_below(chance, 2) == 0) {
        sharding->stage_layers[0] = 0;
    }
}

static struct tdm__sharding random_sharding(struct chance *chance, uint32_t layers)
{
    struct tdm__sharding sharding = tdm__sharding_whole(ONE_OF(chance, 1, 2, 3, 4, 6, 8));
    uint32_t tp = ONE_OF(chance, 1, 1, 2, 3, 4, 8);

    sharding.kind = (enum tdm__sharding_kind)chance_below(chance, 5);
    sharding.dtype = ONE_OF(chance, 0, 0, TDM_BF16, TDM_F32);
    if (sharding.kind == TDM__SHARDING_WHOLE) {
        return sharding;
    }
    if (sharding.kind == TDM__SHARDING_ROWS || sharding.kind == TDM__SHARDING_FLAT) {
        sharding.shards_count =
            chance_below(chance, 2) == 0 ? sharding.ranks_count : ONE_OF(chance, 1, 2, 3);
        return sharding;
    }
    sharding.expert_groups = ONE_OF(chance, 1, 2, 3, 4, 8);
    sharding.vocabulary_multiple = ONE_OF(chance, 1, 2, 8) * tp;
    for (int split = TDM__SPLIT_ATTENTION; split <= TDM__SPLIT_VOCABULARY; split++) {
        bool is_engine = sharding.kind == TDM__SHARDING_ENGINE;

        sharding.sizes[split] = is_engine && chance_below(chance, 3) == 0 ? 1 : tp;
    }
    sharding.sizes[TDM__SPLIT_EXPERT] = ONE_OF(chance, 1, 1, 2, 4);
    if (sharding.kind == TDM__SHARDING_MEGATRON) {
        random_stages(chance, &sharding, layers);
        sharding.ranks_count *= sharding.stages_count;
    }
    return sharding;
}

enum { RANKS_MAX = 32 };

static void random_places(struct chance *chance, struct tdm__rank_place *places)
{
    uint32_t per_node = ONE_OF(chance, 1, 2, 4, 32);
    uint32_t first = chance_below(chance, 4);

    for (uint32_t i = 0; i < RANKS_MAX; i++) {
        places[i] = (struct tdm__rank_place){(first + i) / per_node, first + i};
    }
}

struct trial {
    struct tdm__sharding from;
    struct tdm__sharding to;
    struct tdm__rank_place from_places[RANKS_MAX];
    struct tdm__rank_place to_places[RANKS_MAX];
};

/* false where a layout cannot hold the model, which is said with a name. */
static bool try_pair(const struct tdm__model *model, const struct trial *trial)
{
    const struct tdm__side from = {&trial->from, trial->from_places};
    const struct tdm__side to = {&trial->to, trial->to_places};
    struct tdm__reshard *reshard;

    if (tdm__reshard_create(model, &from, &to, &reshard) != TDM_OK) {
        const char *detail = tdm_error_detail();

        assert_true(strncmp(detail, "model.", 6) == 0 || strncmp(detail, "lm_head", 7) == 0 ||
                    strncmp(detail, "layout", 6) == 0);
        return false;
    }
    move_and_check(model, reshard);
    tdm__reshard_destroy(reshard);
    return true;
}

static void every_element_arrives_once_between_random_layouts(void **state)
{
    struct chance chance = chance_start("random_layouts", 20261121);
    uint32_t served = 0;

    (void)state;
    for (uint32_t i = 0; i < 12000 && served < 2000; i++) {
        const struct tdm__model_options options = {.mtp = chance_below(&chance, 2) == 0};
        struct tdm__model_config config = random_config(&chance, 4);
        struct tdm__model *model;
        struct trial trial;

        assert_int_equal(tdm__model_create(&config, &options, &model), TDM_OK);
        trial.from = random_sharding(&chance, config.layers);
        trial.to = random_sharding(&chance, config.layers);
        random_places(&chance, trial.from_places);
        random_places(&chance, trial.to_places);
        served += try_pair(model, &trial);
        tdm__model_destroy(model);
    }
    print_message("%u pairs of layouts\n", served);
    assert_int_equal(served, 2000);
}

/* Wide enough for blocks to be cut, narrow enough for parts of blocks. */
static void fp8_is_the_references_between_random_layouts(void **state)
{
    struct chance chance = chance_start("random_fp8", 448);
    uint32_t served = 0;
    uint32_t staged = 0;

    (void)state;
    for (uint32_t i = 0; i < 2000 && served < 25; i++) {
        const struct tdm__model_options options = {.scales = true};
        struct tdm__model_config config = random_config(&chance, 64);
        struct tdm__model *model;
        struct trial trial;

        config.layers = 1;
        config.kv_heads = config.kv_rank != 0 ? 4 : 2;
        config.heads = 4;
        config.experts = config.experts == 0 ? 0 : 2;
        config.dense_layers = config.experts == 0;
        trial.from = random_sharding(&chance, config.layers);
        trial.to = random_sharding(&chance, config.layers);
        trial.to.dtype = TDM_F8_E4M3;
        random_places(&chance, trial.from_places);
        random_places(&chance, trial.to_places);
        if (trial.from.ranks_count * trial.to.ranks_count > 8) {
            continue;
        }
        assert_int_equal(tdm__model_create(&config, &options, &model), TDM_OK);
        served += try_pair(model, &trial);
        tdm__model_destroy(model);
    }
    (void)staged;
    print_message("%u pairs of layouts\n", served);
    assert_int_equal(served, 25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_arrives_once_between_random_layouts),
        cmocka_unit_test(fp8_is_the_references_between_random_layouts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
