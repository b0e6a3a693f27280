/* model_test.c - the tensors of Qwen3, and how ranks split them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct model_shape shape = {
    .vocab_size = 5,
    .hidden_size = 4,
    .num_hidden_layers = 2,
    .num_attention_heads = 4,
    .num_key_value_heads = 2,
    .head_dim = 6,
    .intermediate_size = 8,
    .max_position_embeddings = 16,
    .tie_word_embeddings = 1,
    .rope_theta = 1e4F,
    .rms_norm_eps = 1e-6F,
};

static void tensors_have_the_names_and_shapes_of_hugging_face(void **state)
{
    struct model model;
    uint32_t output;

    (void)state;
    assert_int_equal(model_init(&model, &shape, 1), TDM_OK);
    assert_int_equal(model.tensors_count, 24);
    assert_string_equal(model.tensors[0].name, "model.embed_tokens.weight");
    assert_string_equal(model.tensors[23].name, "model.norm.weight");
    output = model_find(&model, "model.layers.1.self_attn.o_proj.weight");
    assert_int_equal(model.tensors[output].shape[0], 4);
    assert_int_equal(model.tensors[output].shape[1], 24);
    assert_int_equal(model_find(&model, "lm_head.weight"), model.tensors_count);
    assert_int_equal(model_head(&model), model_embedding(&model));
    model_fini(&model);
}

static void an_untied_head_is_the_last_tensor(void **state)
{
    struct model_shape untied = shape;
    struct model model;

    (void)state;
    untied.tie_word_embeddings = 0;
    assert_int_equal(model_init(&model, &untied, 1), TDM_OK);
    assert_string_equal(model.tensors[24].name, "lm_head.weight");
    assert_int_equal(model_head(&model), model.elements - 20);
    model_fini(&model);
}

/* Each part holds the numbers of its place in the whole; together they are all of it, but for
 * what every rank has. */
static void parts_are_cut_where_heads_and_columns_divide(void **state)
{
    static const char *const names[] = {"model.layers.0.self_attn.k_proj.weight",
                                        "model.layers.0.self_attn.o_proj.weight",
                                        "model.layers.0.self_attn.q_norm.weight"};
    float whole[96];
    float part[96];
    struct model model;

    (void)state;
    for (int i = 0; i < 96; i++) {
        whole[i] = (float)i;
    }
    assert_int_equal(model_init(&model, &shape, 2), TDM_OK);
    for (size_t i = 0; i < 3; i++) {
        uint32_t index = model_find(&model, names[i]);
        struct tdm_tensor_view view = {.data = whole};

        model_whole_tensor(&model, index, &view.info);
        view.stride[0] = view.info.dims_count == 2 ? view.info.shape[1] : 1;
        view.stride[1] = 1;
        assert_int_equal(model_cut(&model, index, 1, &view, part), TDM_OK);
        if (i == 0) { /* rows 6 to 11 of 12 × 4 */
            assert_memory_equal(part, whole + 24, 24 * sizeof(float));
        } else if (i == 1) { /* columns 12 to 23 of 4 × 24 */
            assert_memory_equal(part, whole + 12, 12 * sizeof(float));
            assert_memory_equal(part + 12, whole + 36, 12 * sizeof(float));
        } else {
            assert_memory_equal(part, whole, 6 * sizeof(float));
        }
    }
    model_fini(&model);
}

static void strides_and_bfloat16_are_read(void **state)
{
    const uint16_t halves[] = {0x3f80, 0, 0xc000, 0, 0x3f00, 0, 0, 0}; /* 1, -2, 0.5, 0 */
    const float expected[] = {1.0F, -2.0F, 0.5F, 0.0F};
    float part[4];
    struct model model;
    struct tdm_tensor_view view = {.data = halves, .stride = {2}};

    (void)state;
    assert_int_equal(model_init(&model, &shape, 1), TDM_OK);
    view.info = model.tensors[1];
    view.info.dtype = TDM_BF16;
    assert_int_equal(model_cut(&model, 1, 0, &view, part), TDM_OK);
    assert_memory_equal(part, expected, sizeof(part));
    model_fini(&model);
}

static void another_shape_or_dtype_is_refused_by_name(void **state)
{
    float part[4];
    struct model model;
    struct tdm_tensor_view view = {.data = part, .stride = {1}};

    (void)state;
    assert_int_equal(model_init(&model, &shape, 1), TDM_OK);
    view.info = model.tensors[1];
    view.info.shape[0] = 3;
    assert_int_equal(model_cut(&model, 1, 0, &view, part), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "model.layers.0.input_layernorm.weight"));
    view.info = model.tensors[1];
    view.info.dtype = TDM_I32;
    assert_int_equal(model_cut(&model, 1, 0, &view, part), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "I32"));
    model_fini(&model);
}

static void impossible_sizes_are_refused(void **state)
{
    struct model_shape wrong = shape;
    struct model model;

    (void)state;
    assert_int_equal(model_init(&model, &shape, 4), TDM_E_INVAL); /* 2 key-value heads */
    wrong.head_dim = 5;
    assert_int_equal(model_init(&model, &wrong, 1), TDM_E_INVAL);
    wrong = shape;
    wrong.num_key_value_heads = 3;
    assert_int_equal(model_init(&model, &wrong, 1), TDM_E_INVAL);
    wrong = shape;
    wrong.vocab_size = 0;
    assert_int_equal(model_init(&model, &wrong, 1), TDM_E_INVAL);
    wrong.vocab_size = UINT32_MAX;
    assert_int_equal(model_init(&model, &wrong, 1), TDM_E_INVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_have_the_names_and_shapes_of_hugging_face),
        cmocka_unit_test(an_untied_head_is_the_last_tensor),
        cmocka_unit_test(parts_are_cut_where_heads_and_columns_divide),
        cmocka_unit_test(strides_and_bfloat16_are_read),
        cmocka_unit_test(another_shape_or_dtype_is_refused_by_name),
        cmocka_unit_test(impossible_sizes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
