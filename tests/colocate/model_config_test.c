/* model_config_test.c - config.json is read, and every field that matters is checked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/layout/model_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define QWEN3                                                                                      \
    "\"model_type\": \"qwen3\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "                   \
    "\"intermediate_size\": 96, \"num_key_value_heads\": 2, \"vocab_size\": 1000"

static tdm_status parse(const char *text, struct tdm__model_config *config)
{
    return tdm__model_config_parse(text, strlen(text), "config.json", config);
}

static void field_that_lacks_gets_its_usual_value(void **state)
{
    struct tdm__model_config config;

    (void)state;
    assert_int_equal(
        parse("{" QWEN3 ", \"num_attention_heads\": 4, \"hidden_act\": \"silu\"}", &config),
        TDM_OK);
    assert_int_equal(config.head_dim, 16);
    assert_int_equal(config.dtype, TDM_BF16);
    assert_int_equal(config.dense_layers, 2);
    assert_true(config.qk_norm);
    assert_false(config.tied_embeddings);
    assert_false(config.fp8);
}

static void files_of_real_models_are_understood(void **state)
{
    struct tdm__model_config config;

    (void)state;
    assert_int_equal(
        tdm__model_config_read(TDM_TEST_SOURCE_DIR "/bench/models/deepseek-v3.json", &config),
        TDM_OK);
    assert_int_equal(config.family, TDM__MODEL_FAMILY_DEEPSEEK_V3);
    assert_int_equal(config.kv_heads, 128);
    assert_int_equal(config.dense_layers, 3);
    assert_int_equal(config.mtp_layers, 1);
    assert_true(config.fp8);
    assert_true(config.router_bias);
    assert_int_equal(
        tdm__model_config_read(TDM_TEST_SOURCE_DIR "/bench/models/glm-4.5-air.json", &config),
        TDM_OK);
    assert_true(config.attention_bias);
    assert_false(config.qk_norm);
}

static void invalid_field_is_refused_by_its_name(void **state)
{
    static const struct {
        const char *text;
        tdm_status status;
        const char *name;
    } wrong[] = {
        {"[]", TDM_E_PROTOCOL, "not an object"},
        {"{", TDM_E_PROTOCOL, "line 1"},
        {"{}", TDM_E_PROTOCOL, "model_type"},
        {"{\"model_type\": \"mamba\"}", TDM_E_UNSUPPORTED, "mamba"},
        {"{" QWEN3 "}", TDM_E_PROTOCOL, "num_attention_heads"},
        {"{" QWEN3 ", \"num_attention_heads\": 0}", TDM_E_PROTOCOL, "num_attention_heads"},
        {"{" QWEN3 ", \"num_attention_heads\": 4.0}", TDM_E_PROTOCOL, "num_attention_heads"},
        {"{" QWEN3 ", \"num_attention_heads\": 3}", TDM_E_PROTOCOL, "3 attention heads"},
        {"{" QWEN3 ", \"num_attention_heads\": 66}", TDM_E_PROTOCOL, "66 attention heads"},
        {"{" QWEN3 ", \"num_attention_heads\": 4, \"tie_word_embeddings\": 1}", TDM_E_PROTOCOL,
         "tie_word_embeddings"},
        {"{" QWEN3 ", \"num_attention_heads\": 4, \"torch_dtype\": \"int8\"}", TDM_E_UNSUPPORTED,
         "torch_dtype"},
        {"{" QWEN3 ", \"num_attention_heads\": 4, \"quantization_config\": {\"bits\": 4}}",
         TDM_E_UNSUPPORTED, "quantization_config"},
    };
    struct tdm__model_config config;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(parse(wrong[i].text, &config), wrong[i].status);
        assert_non_null(strstr(tdm_error_detail(), wrong[i].name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(field_that_lacks_gets_its_usual_value),
        cmocka_unit_test(files_of_real_models_are_understood),
        cmocka_unit_test(invalid_field_is_refused_by_its_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
