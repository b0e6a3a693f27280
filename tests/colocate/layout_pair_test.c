/* layout_pair_test.c - between any two layouts every element is copied to its place exactly once.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/layout_pair_check.h"
#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- random pairs ----------------------------------------------------------------------- */

static uint32_t one_of(struct test_random *chance, const uint32_t *numbers, uint32_t count)
{
    return numbers[test_random_below(chance, count)];
}

#define ONE_OF(chance, ...)                                                                        \
    one_of((chance), (const uint32_t[]){__VA_ARGS__},                                              \
           sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* `unit` is what widths are multiples of. */
static struct tdm__model_config random_config(struct test_random *chance, uint32_t unit)
{
    enum tdm__model_family family = (enum tdm__model_family)test_random_below(chance, 4);
    bool latent = family == TDM__MODEL_FAMILY_DEEPSEEK_V3;
    bool has_experts = family != TDM__MODEL_FAMILY_QWEN3;
    struct tdm__model_config config = {
        .family = family,
        .dtype = TDM_BF16,
        .layers = 1 + test_random_below(chance, 4),
        .hidden = unit * (1 + test_random_below(chance, 4)),
        .vocabulary = 5 + test_random_below(chance, 40),
        .kv_heads = ONE_OF(chance, 1, 2, 3, 4, 8),
        .head_dim = unit > 4 ? unit / 2 : 1 + test_random_below(chance, 3),
        .ffn_width = unit * ONE_OF(chance, 2, 4, 6, 8),
        .tied_embeddings = test_random_below(chance, 3) == 0,
        .qk_norm = family == TDM__MODEL_FAMILY_QWEN3 || family == TDM__MODEL_FAMILY_QWEN3_MOE,
        .attention_bias = !latent && test_random_below(chance, 2) == 0,
    };

    config.heads = config.kv_heads * ONE_OF(chance, 1, 2, 4);
    config.dense_layers = config.layers;
    if (latent) {
        config.kv_heads = config.heads;
        config.head_dim = 0;
        config.q_lora_rank = unit;
        config.kv_lora_rank = unit;
        config.qk_nope_head_dim = unit;
        config.qk_rope_head_dim = unit / 2;
        config.v_head_dim = unit;
    }
    if (has_experts) {
        config.experts = ONE_OF(chance, 2, 4, 6, 8);
        config.expert_ffn = unit * ONE_OF(chance, 1, 2, 4);
        config.dense_layers =
            family == TDM__MODEL_FAMILY_QWEN3_MOE ? 0 : test_random_below(chance, 2);
        config.router_bias = family != TDM__MODEL_FAMILY_QWEN3_MOE;
        config.shared_experts =
            family != TDM__MODEL_FAMILY_QWEN3_MOE ? test_random_below(chance, 3) : 0;
        config.mtp_layers = config.router_bias ? test_random_below(chance, 3) : 0;
        config.tied_embeddings = config.tied_embeddings && config.mtp_layers == 0;
    }
    return config;
}

static void random_stages(struct test_random *chance, struct tdm__sharding *sharding,
                          uint32_t layers)
{
    uint32_t left = layers;

    sharding->stages_count = 1 + test_random_below(chance, layers < 4 ? layers : 4);
    for (uint32_t i = 0; i < sharding->stages_count; i++) {
        uint32_t others = sharding->stages_count - 1 - i;

        sharding->stage_layers[i] =
            others == 0 ? left : 1 + test_random_below(chance, left - others);
        left -= sharding->stage_layers[i];
    }
    if (test_random_below(chance, 2) == 0) {
        sharding->stage_layers[0] = 0;
    }
}

static struct tdm__sharding random_sharding(struct test_random *chance, uint32_t layers)
{
    struct tdm__sharding sharding = tdm__sharding_whole(ONE_OF(chance, 1, 2, 3, 4, 6, 8));
    uint32_t tp = ONE_OF(chance, 1, 1, 2, 3, 4, 8);

    sharding.kind = (enum tdm__sharding_kind)test_random_below(chance, 5);
    sharding.dtype = ONE_OF(chance, 0, 0, TDM_BF16, TDM_F32);
    if (sharding.kind == TDM__SHARDING_WHOLE) {
        return sharding;
    }
    if (sharding.kind == TDM__SHARDING_FSDP_SHARDED || sharding.kind == TDM__SHARDING_FSDP_LOCAL) {
        sharding.shards_count =
            test_random_below(chance, 2) == 0 ? sharding.ranks_count : ONE_OF(chance, 1, 2, 3);
        return sharding;
    }
    sharding.expert_groups = ONE_OF(chance, 1, 2, 3, 4, 8);
    sharding.vocabulary_multiple = ONE_OF(chance, 1, 2, 8) * tp;
    for (int split = TDM__SPLIT_ATTENTION; split <= TDM__SPLIT_VOCABULARY; split++) {
        bool is_engine = sharding.kind == TDM__SHARDING_ENGINE;

        sharding.sizes[split] = is_engine && test_random_below(chance, 3) == 0 ? 1 : tp;
    }
    sharding.sizes[TDM__SPLIT_EXPERT] = ONE_OF(chance, 1, 1, 2, 4);
    if (sharding.kind == TDM__SHARDING_MEGATRON) {
        random_stages(chance, &sharding, layers);
        sharding.ranks_count *= sharding.stages_count;
    }
    return sharding;
}

enum { RANKS_MAX = 32, PAIRS = 2000 };

/* Returns the location of a GPU on a node. */
static struct tdm__location location(uint32_t node, uint32_t gpu)
{
    struct tdm__location result = {.node = {{1}}, .gpu = {{1}}};

    memcpy(&result.node.bytes[4], &node, sizeof(node));
    memcpy(&result.gpu.bytes[4], &gpu, sizeof(gpu));
    return result;
}

static void random_locations(struct test_random *chance, struct tdm__location *locations)
{
    uint32_t per_node = ONE_OF(chance, 1, 2, 4, 32);
    uint32_t first = test_random_below(chance, 4);

    for (uint32_t i = 0; i < RANKS_MAX; i++) {
        locations[i] = location((first + i) / per_node, first + i);
    }
}

struct trial {
    struct tdm__sharding from;
    struct tdm__sharding to;
    struct tdm__location from_places[RANKS_MAX];
    struct tdm__location to_places[RANKS_MAX];
};

/* false where a layout cannot hold the model, which is said with a name. */
static bool try_pair(const struct tdm__model_config *config, bool mtp, const struct trial *trial,
                     uint64_t chunk_bytes)
{
    const struct layout_pair_options options = {.config = config,
                                                .mtp = mtp,
                                                .from = &trial->from,
                                                .to = &trial->to,
                                                .from_locations = trial->from_places,
                                                .to_locations = trial->to_places,
                                                .chunk_bytes = chunk_bytes};
    struct layout_pair pair;

    if (layout_pair_plan(&options, &pair) != TDM_OK) {
        const char *detail = tdm_error_detail();

        if (strstr(detail, "model.") == NULL && strstr(detail, "lm_head") == NULL &&
            strncmp(detail, "layout", 6) != 0) {
            fail_msg("no tensor: %s", detail);
        }
        return false;
    }
    layout_pair_check(&pair);
    layout_pair_drop(&pair);
    return true;
}

static void every_element_arrives_once_between_random_layouts(void **state)
{
    struct test_random chance = test_random_init("random_layouts", 20261121);
    uint32_t served = 0;

    (void)state;
    for (uint32_t i = 0; i < 12000 && served < PAIRS; i++) {
        bool mtp = test_random_below(&chance, 2) == 0;
        struct tdm__model_config config = random_config(&chance, 4);
        struct trial trial;

        trial.from = random_sharding(&chance, config.layers);
        trial.to = random_sharding(&chance, config.layers);
        random_locations(&chance, trial.from_places);
        random_locations(&chance, trial.to_places);
        served += try_pair(&config, mtp, &trial, i % 2 == 0 ? 0 : 1000);
    }
    print_message("%u pairs of layouts\n", served);
    assert_int_equal(served, PAIRS);
}

/* Wide enough for blocks to be cut, narrow enough for parts of blocks. */
static void fp8_is_the_references_between_random_layouts(void **state)
{
    struct test_random chance = test_random_init("random_fp8", 448);
    uint32_t served = 0;

    (void)state;
    for (uint32_t i = 0; i < 4000 && served < 30; i++) {
        struct tdm__model_config config = random_config(&chance, 64);
        struct trial trial;

        config.layers = 1;
        config.kv_heads = config.kv_lora_rank != 0 ? 4 : 2;
        config.heads = 4;
        config.experts = config.experts == 0 ? 0 : 2;
        config.dense_layers = config.experts == 0;
        trial.from = random_sharding(&chance, config.layers);
        trial.to = random_sharding(&chance, config.layers);
        trial.to.dtype = TDM_F8_E4M3;
        random_locations(&chance, trial.from_places);
        random_locations(&chance, trial.to_places);
        if (trial.from.ranks_count * trial.to.ranks_count <= 8) {
            served += try_pair(&config, false, &trial, i % 2 == 0 ? 0 : 20000);
        }
    }
    print_message("%u pairs of layouts\n", served);
    assert_int_equal(served, 30);
}

/* ---- given pairs ------------------------------------------------------------------------ */

static void parse_layout(const char *text, struct tdm__sharding *sharding)
{
    assert_int_equal(tdm__sharding_parse(text, strlen(text), "layout", sharding), TDM_OK);
}

static struct tdm__model_config read_config(const char *name)
{
    struct tdm__model_config config;
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/bench/models/%s.json", TDM_TEST_SOURCE_DIR, name);
    assert_int_equal(tdm__model_config_read(path, &config), TDM_OK);
    config.fp8 = false;
    return config;
}

/* All heads, groups, ranks and the first layers of each kind; widths are a
 * sixteenth, or an eighth. */
static void reduce(struct tdm__model_config *config)
{
    config->layers = config->dense_layers < config->layers ? config->dense_layers + 1 : 2;
    config->dense_layers = config->experts == 0 ? config->layers : config->layers - 1;
    config->hidden /= 16;
    config->ffn_width /= 8;
    config->expert_ffn /= 16;
    config->vocabulary = 1000;
    config->head_dim /= 16;
    config->q_lora_rank /= 16;
    config->kv_lora_rank /= 16;
    config->qk_nope_head_dim /= 16;
    config->qk_rope_head_dim /= 16;
    config->v_head_dim /= 16;
}

static void real_model_families_arrive_completely(void **state)
{
    static const struct {
        const char *model;
        const char *from;
        const char *to;
    } pairs[] = {
        {"qwen3-0.6b", "{\"layout\": \"megatron\", \"ranks\": 4, \"tp\": 2, \"pp\": 2}",
         "{\"layout\": \"engine\", \"ranks\": 2, \"tp\": 2}"},
        {"qwen3-4b", "{\"layout\": \"fsdp\", \"ranks\": 4, \"state\": \"local\"}",
         "{\"layout\": \"engine\", \"ranks\": 4, \"tp\": 4}"},
        {"qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
         "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8}"},
        {"qwen3-30b-a3b", "{\"layout\": \"engine\", \"ranks\": 4, \"tp\": 4, \"ep\": 4}",
         "{\"layout\": \"hugging_face\"}"},
        {"glm-4.5-air", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
         "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8}"},
        {"deepseek-v3",
         "{\"layout\": \"megatron\", \"ranks\": 64, \"tp\": 8, \"pp\": 2, \"ep\": 32}",
         "{\"layout\": \"engine\", \"ranks\": 4, \"tp\": 4, \"ep\": 4}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct tdm__model_config config = read_config(pairs[i].model);
        struct tdm__sharding from;
        struct tdm__sharding to;
        const struct layout_pair_options options = {
            .config = &config, .mtp = true, .from = &from, .to = &to};
        struct layout_pair pair;

        reduce(&config);
        config.experts = config.experts > 32 ? 32 : config.experts;
        parse_layout(pairs[i].from, &from);
        parse_layout(pairs[i].to, &to);
        if (layout_pair_plan(&options, &pair) != TDM_OK) {
            fail_msg("%s", tdm_error_detail());
        }
        layout_pair_check(&pair);
        layout_pair_drop(&pair);
    }
}

/* A plan between two layouts given as text, of ranks on nodes with eight GPUs each. */
static tdm_status plan_of(const char *model, const char *from_text, const char *to_text,
                          uint32_t to_first_gpu, struct layout_pair *pair)
{
    static struct tdm__model_config config;
    static struct tdm__sharding shardings[2];
    static struct tdm__location locations[256];
    const struct layout_pair_options options = {.config = &config,
                                                .from = &shardings[0],
                                                .to = &shardings[1],
                                                .from_locations = locations,
                                                .to_locations = locations + to_first_gpu};

    for (uint32_t i = 0; i < 256; i++) {
        locations[i] = location(i / 8, i);
    }
    config = read_config(model);
    parse_layout(from_text, &shardings[0]);
    parse_layout(to_text, &shardings[1]);
    return layout_pair_plan(&options, pair);
}

static void assert_planned(tdm_status status)
{
    if (status != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
}

static void qwen3_30b_is_one_copy_for_each_tensor(void **state)
{
    struct layout_pair pair;

    (void)state;
    assert_planned(
        plan_of("qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
                "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8}", 0, &pair));
    /* A copy for each tensor, because each has a checksum of its own: 16 experts of three tensors,
     * q, k, v and o, five small ones, for 48 layers: 2,736; the ends of the model are the rest. */
    assert_in_range(pair.plan->cost.copies_max, 2736, 2750);
    /* The experts are not copied. */
    assert_true(pair.plan->cost.bytes_by_locality[TDM__LOCALITY_SAME_GPU] > UINT64_C(54) << 30);
    assert_int_equal(pair.plan->cost.bytes_by_locality[TDM__LOCALITY_OTHER_NODE], 0);
    layout_pair_drop(&pair);
}

static void replicas_share_the_work_evenly(void **state)
{
    struct layout_pair pair;

    (void)state;
    assert_planned(plan_of("qwen3-0.6b",
                           "{\"layout\": \"fsdp\", \"ranks\": 8, \"state\": \"full\"}",
                           "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 2}", 64, &pair));
    assert_true((double)pair.plan->cost.sent_bytes_max <
                1.05 * (double)pair.plan->cost.sent_bytes_min);
    assert_int_equal(pair.plan->cost.bytes_by_locality[TDM__LOCALITY_OTHER_NODE],
                     pair.plan->cost.written_bytes);
    layout_pair_drop(&pair);
}

static void the_nearest_replica_is_taken(void **state)
{
    struct layout_pair pair;

    (void)state;
    assert_planned(plan_of("qwen3-0.6b",
                           "{\"layout\": \"fsdp\", \"ranks\": 16, \"state\": \"full\"}",
                           "{\"layout\": \"engine\", \"ranks\": 16, \"tp\": 2}", 0, &pair));
    assert_int_equal(pair.plan->cost.bytes_by_locality[TDM__LOCALITY_SAME_GPU],
                     pair.plan->cost.written_bytes);
    layout_pair_drop(&pair);
    assert_planned(plan_of("qwen3-0.6b",
                           "{\"layout\": \"fsdp\", \"ranks\": 12, \"state\": \"full\"}",
                           "{\"layout\": \"engine\", \"ranks\": 4, \"tp\": 2}", 12, &pair));
    assert_int_equal(pair.plan->cost.bytes_by_locality[TDM__LOCALITY_SAME_NODE],
                     pair.plan->cost.written_bytes);
    layout_pair_drop(&pair);
}

static void the_same_arguments_give_the_same_plan(void **state)
{
    static const char from[] = "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}";
    static const char to[] = "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 2, \"ep\": 2}";
    struct layout_pair one;
    struct layout_pair other;

    (void)state;
    assert_planned(plan_of("glm-4.5-air", from, to, 8, &one));
    assert_planned(plan_of("glm-4.5-air", from, to, 8, &other));
    for (uint32_t rank = 0; rank < 8; rank++) {
        assert_int_equal(one.plan->images[rank].copies_count,
                         other.plan->images[rank].copies_count);
        assert_memory_equal(one.plan->images[rank].copies, other.plan->images[rank].copies,
                            one.plan->images[rank].copies_count * sizeof(struct tdm__rect_copy));
    }
    layout_pair_drop(&one);
    layout_pair_drop(&other);
}

static void impossible_layout_is_refused_by_name(void **state)
{
    struct layout_pair pair;

    (void)state;
    /* 10,944 rows over 4 ranks are 21 blocks and a part of one */
    assert_int_equal(plan_of("glm-4.5-air", "{\"layout\": \"hugging_face\"}",
                             "{\"layout\": \"engine\", \"ranks\": 4, \"tp\": 4, \"dtype\": "
                             "\"F8_E4M3\"}",
                             0, &pair),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "model.layers.0.mlp.gate_proj.weight: 2736"));
    assert_int_equal(plan_of("qwen3-0.6b", "{\"layout\": \"hugging_face\", \"dtype\": \"BF16\"}",
                             "{\"layout\": \"engine\", \"dtype\": \"F32\"}", 0, &pair),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "model.embed_tokens.weight"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_arrives_once_between_random_layouts),
        cmocka_unit_test(fp8_is_the_references_between_random_layouts),
        cmocka_unit_test(real_model_families_arrive_completely),
        cmocka_unit_test(qwen3_30b_is_one_copy_for_each_tensor),
        cmocka_unit_test(replicas_share_the_work_evenly),
        cmocka_unit_test(the_nearest_replica_is_taken),
        cmocka_unit_test(the_same_arguments_give_the_same_plan),
        cmocka_unit_test(impossible_layout_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
