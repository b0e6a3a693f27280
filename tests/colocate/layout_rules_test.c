/* layout_rules_test.c - the tensors that Megatron and engines make of real models. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/layout/layout_rules.h"

#include "colocate/layout/rank_shards.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct tdm__model *make_model(const char *name)
{
    const struct tdm__model_options options = {.mtp = false};
    struct tdm__model_config config;
    struct tdm__model *model;
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/bench/models/%s.json", TDM_TEST_SOURCE_DIR, name);
    assert_int_equal(tdm__model_config_read(path, &config), TDM_OK);
    config.fp8 = false;
    assert_int_equal(tdm__model_create(&config, &options, &model), TDM_OK);
    return model;
}

static void make_shards(const struct tdm__model *model, const char *layout, uint32_t rank,
                        struct tdm__rank_shards *shards, struct tdm__sharding *sharding)
{
    assert_int_equal(tdm__sharding_parse(layout, strlen(layout), "layout", sharding), TDM_OK);
    assert_int_equal(tdm__rank_shards_init(model, sharding, rank, TDM__SHARDS_DESTINATION, shards),
                     TDM_OK);
}

static void rank_has_the_known_number_of_tensors(void **state)
{
    static const struct {
        const char *model;
        const char *layout;
        uint32_t rank;
        uint32_t tensors;
        double gib;
    } known[] = {
        {"qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}", 0, 1875,
         7.49},
        {"glm-4.5-air", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}", 0, 1855,
         26.6},
        {"deepseek-v3",
         "{\"layout\": \"megatron\", \"ranks\": 128, \"tp\": 8, \"pp\": 4, \"ep\": 32}", 32, 435,
         11.07},
        {"qwen3-30b-a3b", "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8}", 0, 435,
         7.15},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        struct tdm__model *model = make_model(known[i].model);
        struct tdm__sharding sharding;
        struct tdm__rank_shards shards;
        uint64_t size_bytes = 0;

        make_shards(model, known[i].layout, known[i].rank, &shards, &sharding);
        for (uint32_t j = 0; j < shards.shard_tensors_count; j++) {
            size_bytes += tdm__shard_tensor_bytes(&shards.shard_tensors[j]);
        }
        assert_int_equal(shards.shard_tensors_count, known[i].tensors);
        assert_true((double)size_bytes / (1 << 30) > known[i].gib - 0.05 &&
                    (double)size_bytes / (1 << 30) < known[i].gib + 0.05);
        tdm__rank_shards_fini(&shards);
        tdm__model_destroy(model);
    }
}

static void assert_has(const struct tdm__model *model, const struct tdm__sharding *sharding,
                       const struct tdm__rank_shards *shards, const char *name, uint64_t rows,
                       uint64_t columns)
{
    char text[TDM_TENSOR_NAME_BYTES_MAX];

    for (uint32_t i = 0; i < shards->shard_tensors_count; i++) {
        const struct tdm__shard_tensor *shard_tensor = &shards->shard_tensors[i];

        if (strcmp(tdm__shard_tensor_name(model, sharding, shard_tensor, text), name) == 0) {
            assert_int_equal(shard_tensor->shape[shard_tensor->dims_count == 3], rows);
            assert_int_equal(shard_tensor->shape[shard_tensor->dims_count == 3 ? 2 : 1], columns);
            return;
        }
    }
    fail_msg("no tensor %s", name);
}

static void tensors_are_called_and_shaped_as_megatron_does(void **state)
{
    struct tdm__model *model = make_model("glm-4.5-air");
    struct tdm__sharding sharding;
    struct tdm__rank_shards shards;

    (void)state;
    make_shards(model, "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}", 7, &shards,
                &sharding);
    assert_has(model, &sharding, &shards, "embedding.word_embeddings.weight", 37888, 4096);
    assert_has(model, &sharding, &shards, "decoder.layers.3.self_attention.linear_qkv.weight",
               (96 + 16) * 128 / 4, 4096);
    assert_has(model, &sharding, &shards, "decoder.layers.0.mlp.linear_fc1.weight", 2 * 10944 / 4,
               4096);
    assert_has(model, &sharding, &shards, "decoder.layers.45.mlp.experts.linear_fc2.weight15", 4096,
               1408);
    assert_has(model, &sharding, &shards, "decoder.layers.45.mlp.router.expert_bias", 128, 1);
    tdm__rank_shards_fini(&shards);
    tdm__model_destroy(model);
}

static void tensors_are_called_and_shaped_as_engines_do(void **state)
{
    struct tdm__model *model = make_model("deepseek-v3");
    struct tdm__sharding sharding;
    struct tdm__rank_shards shards;

    (void)state;
    make_shards(model, "{\"layout\": \"engine\", \"ranks\": 32, \"tp\": 32, \"ep\": 32}", 31,
                &shards, &sharding);
    assert_has(model, &sharding, &shards,
               "model.layers.60.self_attn.fused_qkv_a_proj_with_mqa.weight", 1536 + 576, 7168);
    assert_has(model, &sharding, &shards, "model.layers.60.mlp.experts.w13_weight", 4096, 7168);
    assert_has(model, &sharding, &shards, "model.layers.60.mlp.experts.w2_weight", 7168, 2048);
    assert_has(model, &sharding, &shards, "model.layers.0.mlp.down_proj.weight", 7168, 576);
    tdm__rank_shards_fini(&shards);
    tdm__model_destroy(model);
}

static void layers_of_multi_token_prediction_and_scales_have_their_names(void **state)
{
    static const char engine[] = "{\"layout\": \"engine\", \"dtype\": \"F8_E4M3\"}";
    const struct tdm__model_options options = {.mtp = true, .scales = true};
    struct tdm__model_config config;
    struct tdm__sharding sharding;
    struct tdm__rank_shards shards;
    struct tdm__model *model;

    (void)state;
    assert_int_equal(
        tdm__model_config_read(TDM_TEST_SOURCE_DIR "/bench/models/deepseek-v3.json", &config),
        TDM_OK);
    assert_int_equal(tdm__model_create(&config, &options, &model), TDM_OK);
    make_shards(model, "{\"layout\": \"megatron\", \"ranks\": 2, \"pp\": 2}", 1, &shards,
                &sharding);
    assert_has(model, &sharding, &shards, "mtp.layers.0.eh_proj.weight", 7168, 14336);
    assert_has(model, &sharding, &shards, "mtp.layers.0.transformer_layer.mlp.router.weight", 256,
               7168);
    assert_has(model, &sharding, &shards, "embedding.word_embeddings.weight", 129280, 7168);
    tdm__rank_shards_fini(&shards);
    make_shards(model, engine, 0, &shards, &sharding);
    assert_has(model, &sharding, &shards, "model.layers.61.mlp.experts.w13_weight_scale_inv", 32,
               56);
    assert_has(model, &sharding, &shards,
               "model.layers.3.self_attn.fused_qkv_a_proj_with_mqa.weight_scale_inv", 17, 56);
    tdm__rank_shards_fini(&shards);
    tdm__model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_has_the_known_number_of_tensors),
        cmocka_unit_test(tensors_are_called_and_shaped_as_megatron_does),
        cmocka_unit_test(tensors_are_called_and_shaped_as_engines_do),
        cmocka_unit_test(layers_of_multi_token_prediction_and_scales_have_their_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
