/* model_test.c - the tensors of the known families: their number, sizes and names. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/layout/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct tdm__model *make_model(const char *name, bool mtp, bool fp8)
{
    struct tdm__model_options options = {.mtp = mtp, .scales = fp8};
    struct tdm__model_config config;
    struct tdm__model *model;
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/bench/models/%s.json", TDM_TEST_SOURCE_DIR, name);
    assert_int_equal(tdm__model_config_read(path, &config), TDM_OK);
    config.fp8 = fp8;
    assert_int_equal(tdm__model_create(&config, &options, &model), TDM_OK);
    return model;
}

/* Counted elsewhere; the one of DeepSeek-V3 in FP8 is that of the published files, which have
 * 11.9 MB more, 129 bytes of header for each tensor. */
static void counts_and_bytes_of_real_models_are_correct(void **state)
{
    static const struct {
        const char *name;
        bool mtp;
        bool fp8;
        uint32_t tensors;
        uint64_t size_bytes;
    } known[] = {
        {"qwen3-0.6b", false, false, 310, 1192099840},
        {"qwen3-4b", false, false, 398, 8044936192},
        {"qwen3-30b-a3b", false, false, 18867, 61064245248},
        {"glm-4.5-air", false, false, 17925, 213704514048},
        {"glm-4.5-air", true, false, 18329, 220937661440},
        {"deepseek-v3", false, false, 45395, 1342052868096},
        {"deepseek-v3", true, false, 46183, 1368979721216},
        {"qwen3-0.6b", false, true, 506, 751805440},
        {"qwen3-4b", false, true, 650, 0},
        {"qwen3-30b-a3b", false, true, 37491, 31174545408},
        {"glm-4.5-air", false, true, 35527, 0},
        {"glm-4.5-air", true, true, 36322, 0},
        {"deepseek-v3", false, true, 90427, 673150611808},
        {"deepseek-v3", true, true, 91991, 688574839360},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        struct tdm__model *model = make_model(known[i].name, known[i].mtp, known[i].fp8);

        assert_int_equal(model->tensors_count, known[i].tensors);
        if (known[i].size_bytes != 0) {
            assert_int_equal(tdm__model_bytes(model), known[i].size_bytes);
        }
        tdm__model_destroy(model);
    }
}

static void every_tensor_is_found_where_it_lies(void **state)
{
    struct tdm__model *model = make_model("deepseek-v3", true, true);

    (void)state;
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct tdm__model_tensor *tensor = &model->tensors[i];
        uint32_t found =
            tdm__model_tensor_index(model, tensor->template_id, tensor->layer, tensor->expert);

        assert_int_equal(found + (tensor->kind == TDM__TENSOR_KIND_SCALE), i);
    }
    tdm__model_destroy(model);
}

static void assert_tensor(const struct tdm__model *model, uint32_t index, const char *name,
                          uint32_t rows, uint32_t columns)
{
    char text[TDM_TENSOR_NAME_BYTES_MAX];

    assert_string_equal(tdm__model_tensor_name(model, index, text), name);
    assert_int_equal(model->tensors[index].rows, rows);
    assert_int_equal(model->tensors[index].columns, columns);
}

static void tensors_have_the_names_and_shapes_of_published_files(void **state)
{
    struct tdm__model *model = make_model("deepseek-v3", true, true);

    (void)state;
    assert_tensor(model, 0, "model.embed_tokens.weight", 129280, 7168);
    assert_tensor(model, 1, "model.layers.0.input_layernorm.weight", 7168, 1);
    assert_tensor(model, tdm__model_tensor_index(model, TDM__T_KV_A, 3, 0) + 1,
                  "model.layers.3.self_attn.kv_a_proj_with_mqa.weight_scale_inv", 5, 56);
    assert_tensor(model, tdm__model_tensor_index(model, TDM__T_EXPERT_DOWN, 60, 255),
                  "model.layers.60.mlp.experts.255.down_proj.weight", 7168, 2048);
    assert_tensor(model, tdm__model_tensor_index(model, TDM__T_ROUTER_BIAS, 61, 0),
                  "model.layers.61.mlp.gate.e_score_correction_bias", 256, 1);
    assert_tensor(model, tdm__model_tensor_index(model, TDM__T_MTP_PROJECTION, 61, 0),
                  "model.layers.61.eh_proj.weight", 7168, 14336);
    tdm__model_destroy(model);
}

static void tensor_over_the_limit_is_refused_by_name(void **state)
{
    struct tdm__model_config config = {.family = TDM__MODEL_FAMILY_QWEN3,
                                       .dtype = TDM_BF16,
                                       .layers = 1,
                                       .dense_layers = 1,
                                       .hidden = 1 << 20,
                                       .vocabulary = 1 << 14,
                                       .heads = 1,
                                       .kv_heads = 1,
                                       .head_dim = 1,
                                       .ffn_width = 1};
    const struct tdm__model_options options = {.mtp = false};
    struct tdm__model *model;

    (void)state;
    assert_int_equal(tdm__model_create(&config, &options, &model), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "model.embed_tokens.weight"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_bytes_of_real_models_are_correct),
        cmocka_unit_test(every_tensor_is_found_where_it_lies),
        cmocka_unit_test(tensors_have_the_names_and_shapes_of_published_files),
        cmocka_unit_test(tensor_over_the_limit_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
