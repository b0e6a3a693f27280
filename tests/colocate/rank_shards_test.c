/* rank_shards_test.c - what lies where in a rank's tensors, against each framework's own
 * arithmetic.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/layout/rank_shards.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The sizes are all different, so that a wrong one is noticed. */
enum {
    LAYERS = 3,
    HIDDEN = 10,
    HEADS = 8,
    GROUPS = 4,
    HEAD_DIM = 3,
    PER_GROUP = HEADS / GROUPS,
    FFN = 24,
    EXPERTS = 6,
    EXPERT_FFN = 12,
    SHARED_FFN = 2 * EXPERT_FFN,
    VOCABULARY = 29
};

/* Latent attention. */
enum { Q_RANK = 5, KV_RANK = 7, NOPE = 3, ROPE = 2, VALUE = 4 };

static const struct tdm__model_config latent = {
    .family = TDM__MODEL_FAMILY_DEEPSEEK_V3,
    .dtype = TDM_BF16,
    .layers = 1,
    .dense_layers = 1,
    .hidden = HIDDEN,
    .vocabulary = VOCABULARY,
    .heads = HEADS,
    .kv_heads = HEADS,
    .ffn_width = FFN,
    .q_lora_rank = Q_RANK,
    .kv_lora_rank = KV_RANK,
    .qk_nope_head_dim = NOPE,
    .qk_rope_head_dim = ROPE,
    .v_head_dim = VALUE,
};

static const struct tdm__model_config grouped = {
    .family = TDM__MODEL_FAMILY_GLM4_MOE,
    .dtype = TDM_BF16,
    .layers = LAYERS,
    .hidden = HIDDEN,
    .vocabulary = VOCABULARY,
    .heads = HEADS,
    .kv_heads = GROUPS,
    .head_dim = HEAD_DIM,
    .ffn_width = FFN,
    .experts = EXPERTS,
    .expert_ffn = EXPERT_FFN,
    .shared_experts = 2,
    .dense_layers = 1,
    .attention_bias = true,
    .qk_norm = true,
    .router_bias = true,
};

/* An element of the model, or a row that pads the vocabulary. */
struct origin {
    int template_id; /* -1: none */
    uint32_t expert;
    uint32_t row;
    uint32_t column;
};

/* A rank's tensor: row and column of an element, which expert's matrix, whose rank. */
struct spot {
    uint32_t row;
    uint32_t column;
    uint32_t expert; /* among those of the rank's group */
    uint32_t tp;     /* the rank's place in the split */
    uint32_t tp_size;
    uint32_t experts_first;
};

/* ---- how the frameworks lay them out ---------------------------------------------------- */

static struct origin rows_of(struct spot spot, int template_id, uint32_t rows)
{
    return (struct origin){template_id, 0, spot.tp * (rows / spot.tp_size) + spot.row, spot.column};
}

static struct origin columns_of(struct spot spot, int template_id, uint32_t columns)
{
    return (struct origin){template_id, spot.experts_first + spot.expert, spot.row,
                           spot.tp * (columns / spot.tp_size) + spot.column};
}

/* The first half is the rank's rows of gate, the second those of up. */
static struct origin gate_up_of(struct spot spot, int gate, int up, uint32_t ffn_width)
{
    uint32_t half = ffn_width / spot.tp_size;
    bool is_up = spot.row >= half;

    return (struct origin){is_up ? up : gate, spot.experts_first + spot.expert,
                           spot.tp * half + spot.row % half, spot.column};
}

/* Seen as [groups, queries of a group + key + value, head]. */
static struct origin megatron_qkv_of(struct spot spot, int step)
{
    uint32_t row = spot.tp * (HEADS + 2 * GROUPS) * HEAD_DIM / spot.tp_size + spot.row;
    uint32_t group = row / ((PER_GROUP + 2) * HEAD_DIM);
    uint32_t head = row / HEAD_DIM % (PER_GROUP + 2);
    uint32_t in_head = row % HEAD_DIM;

    if (head < PER_GROUP) {
        return (struct origin){TDM__T_Q + step, 0, (group * PER_GROUP + head) * HEAD_DIM + in_head,
                               spot.column};
    }
    return (struct origin){(head == PER_GROUP ? TDM__T_K : TDM__T_V) + step, 0,
                           group * HEAD_DIM + in_head, spot.column};
}

/* All of the rank's queries, its keys, its values; with more ranks than heads for keys, ranks
 * side by side have the same one. */
static struct origin engine_qkv_of(struct spot spot, int step)
{
    uint32_t queries = HEADS / spot.tp_size * HEAD_DIM;
    uint32_t kept = spot.tp_size > GROUPS ? 1 : GROUPS / spot.tp_size;
    uint32_t first = spot.tp_size > GROUPS ? spot.tp / (spot.tp_size / GROUPS) : spot.tp * kept;
    uint32_t row = spot.row - queries;

    if (spot.row < queries) {
        return (struct origin){TDM__T_Q + step, 0, spot.tp * queries + spot.row, spot.column};
    }
    if (row < kept * HEAD_DIM) {
        return (struct origin){TDM__T_K + step, 0, first * HEAD_DIM + row, spot.column};
    }
    return (struct origin){TDM__T_V + step, 0, first * HEAD_DIM + row - kept * HEAD_DIM,
                           spot.column};
}

static struct origin vocabulary_of(struct spot spot, int template_id, uint32_t padded)
{
    struct origin origin = rows_of(spot, template_id, padded);

    origin.template_id = origin.row < VOCABULARY ? origin.template_id : -1;
    return origin;
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);

    return length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

/* Computes an element's origin for the tensors of Megatron-core. */
static struct origin megatron_origin(const char *name, struct spot spot)
{
    static const struct {
        const char *end;
        int template_id;
    } replicated[] = {
        {"linear_qkv.layer_norm_weight", TDM__T_INPUT_NORM},
        {"q_layernorm.weight", TDM__T_Q_NORM},
        {"k_layernorm.weight", TDM__T_K_NORM},
        {"linear_fc1.layer_norm_weight", TDM__T_POST_NORM},
        {"pre_mlp_layernorm.weight", TDM__T_POST_NORM},
        {"router.weight", TDM__T_ROUTER},
        {"router.expert_bias", TDM__T_ROUTER_BIAS},
        {"final_layernorm.weight", TDM__T_NORM},
    };
    uint32_t padded = (VOCABULARY + 5) / 6 * 6;

    for (size_t i = 0; i < sizeof(replicated) / sizeof(replicated[0]); i++) {
        if (ends_with(name, replicated[i].end)) {
            return (struct origin){replicated[i].template_id, 0, spot.row, spot.column};
        }
    }
    if (strstr(name, "embedding") != NULL || strstr(name, "output_layer") != NULL) {
        return vocabulary_of(spot, name[0] == 'e' ? TDM__T_EMBED : TDM__T_HEAD, padded);
    }
    if (strstr(name, "linear_qkv") != NULL) {
        return megatron_qkv_of(spot, ends_with(name, "bias"));
    }
    if (ends_with(name, "linear_proj.weight")) {
        return columns_of(spot, TDM__T_O, HEADS * HEAD_DIM);
    }
    if (strstr(name, ".experts.linear_fc1") != NULL) {
        return gate_up_of(spot, TDM__T_EXPERT_GATE, TDM__T_EXPERT_UP, EXPERT_FFN);
    }
    if (strstr(name, ".experts.linear_fc2") != NULL) {
        return columns_of(spot, TDM__T_EXPERT_DOWN, EXPERT_FFN);
    }
    if (strstr(name, "shared_experts.linear_fc1") != NULL) {
        return gate_up_of(spot, TDM__T_SHARED_GATE, TDM__T_SHARED_UP, SHARED_FFN);
    }
    if (strstr(name, "shared_experts.linear_fc2") != NULL) {
        return columns_of(spot, TDM__T_SHARED_DOWN, SHARED_FFN);
    }
    if (ends_with(name, "mlp.linear_fc1.weight")) {
        return gate_up_of(spot, TDM__T_GATE, TDM__T_UP, FFN);
    }
    assert_true(ends_with(name, "mlp.linear_fc2.weight"));
    return columns_of(spot, TDM__T_DOWN, FFN);
}

/* Computes an element's origin for the tensors of SGLang. */
static struct origin engine_origin(const char *name, struct spot spot)
{
    static const struct {
        const char *end;
        int template_id;
    } replicated[] = {
        {"input_layernorm.weight", TDM__T_INPUT_NORM},
        {"q_norm.weight", TDM__T_Q_NORM},
        {"k_norm.weight", TDM__T_K_NORM},
        {"post_attention_layernorm.weight", TDM__T_POST_NORM},
        {"mlp.gate.weight", TDM__T_ROUTER},
        {"e_score_correction_bias", TDM__T_ROUTER_BIAS},
        {"model.norm.weight", TDM__T_NORM},
    };

    for (size_t i = 0; i < sizeof(replicated) / sizeof(replicated[0]); i++) {
        if (ends_with(name, replicated[i].end)) {
            return (struct origin){replicated[i].template_id, 0, spot.row, spot.column};
        }
    }
    if (strstr(name, "embed_tokens") != NULL || strstr(name, "lm_head") != NULL) {
        return vocabulary_of(spot, name[0] == 'm' ? TDM__T_EMBED : TDM__T_HEAD, 32);
    }
    if (strstr(name, "qkv_proj") != NULL) {
        return engine_qkv_of(spot, ends_with(name, "bias"));
    }
    if (ends_with(name, "o_proj.weight")) {
        return columns_of(spot, TDM__T_O, HEADS * HEAD_DIM);
    }
    if (ends_with(name, "w13_weight")) {
        return gate_up_of(spot, TDM__T_EXPERT_GATE, TDM__T_EXPERT_UP, EXPERT_FFN);
    }
    if (ends_with(name, "w2_weight")) {
        return columns_of(spot, TDM__T_EXPERT_DOWN, EXPERT_FFN);
    }
    if (strstr(name, "shared_experts") != NULL) {
        return strstr(name, "gate_up") != NULL
                   ? gate_up_of(spot, TDM__T_SHARED_GATE, TDM__T_SHARED_UP, SHARED_FFN)
                   : columns_of(spot, TDM__T_SHARED_DOWN, SHARED_FFN);
    }
    if (ends_with(name, "mlp.gate_up_proj.weight")) {
        return gate_up_of(spot, TDM__T_GATE, TDM__T_UP, FFN);
    }
    assert_true(ends_with(name, "mlp.down_proj.weight"));
    return columns_of(spot, TDM__T_DOWN, FFN);
}

/* What both have of latent attention: heads are cut over ranks, all else is on each. */
static bool find_latent(const char *name, struct spot spot, struct origin *origin_out)
{
    static const struct {
        const char *end;
        int template_id;
        uint32_t rows; /* Rows that are divided over the ranks. */
    } known[] = {
        {"linear_q_down_proj.weight", TDM__T_Q_A, 0},
        {"linear_q_up_proj.layer_norm_weight", TDM__T_Q_A_NORM, 0},
        {"q_a_layernorm.weight", TDM__T_Q_A_NORM, 0},
        {"linear_q_up_proj.weight", TDM__T_Q_B, HEADS * (NOPE + ROPE)},
        {"q_b_proj.weight", TDM__T_Q_B, HEADS * (NOPE + ROPE)},
        {"linear_kv_down_proj.weight", TDM__T_KV_A, 0},
        {"linear_kv_up_proj.layer_norm_weight", TDM__T_KV_A_NORM, 0},
        {"kv_a_layernorm.weight", TDM__T_KV_A_NORM, 0},
        {"linear_kv_up_proj.weight", TDM__T_KV_B, HEADS * (NOPE + VALUE)},
        {"kv_b_proj.weight", TDM__T_KV_B, HEADS * (NOPE + VALUE)},
        {"layers.0.input_layernorm.weight", TDM__T_INPUT_NORM, 0},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (ends_with(name, known[i].end)) {
            *origin_out = rows_of(spot, known[i].template_id, known[i].rows);
            origin_out->row = known[i].rows == 0 ? spot.row : origin_out->row;
            return true;
        }
    }
    if (ends_with(name, "fused_qkv_a_proj_with_mqa.weight")) {
        bool is_query = spot.row < Q_RANK;

        *origin_out = (struct origin){is_query ? TDM__T_Q_A : TDM__T_KV_A, 0,
                                      is_query ? spot.row : spot.row - Q_RANK, spot.column};
        return true;
    }
    return false;
}

static struct origin latent_megatron_origin(const char *name, struct spot spot)
{
    struct origin origin;

    if (ends_with(name, "linear_proj.weight")) {
        return columns_of(spot, TDM__T_O, HEADS * VALUE);
    }
    return find_latent(name, spot, &origin) ? origin : megatron_origin(name, spot);
}

static struct origin latent_engine_origin(const char *name, struct spot spot)
{
    struct origin origin;

    if (ends_with(name, "o_proj.weight")) {
        return columns_of(spot, TDM__T_O, HEADS * VALUE);
    }
    return find_latent(name, spot, &origin) ? origin : engine_origin(name, spot);
}

/* ---- comparing -------------------------------------------------------------------------- */

/* Which slice has the element, as what. */
static struct origin find_origin(const struct tdm__model *model,
                                 const struct tdm__rank_shards *shards, uint32_t local,
                                 uint64_t index)
{
    for (uint32_t i = 0; i < shards->slices_count; i++) {
        const struct tdm__tensor_slice *slice = &shards->slices[i];
        uint64_t distance = index - slice->offset;
        const struct tdm__model_tensor *info = &model->tensors[slice->tensor];

        if (slice->shard_tensor == local && index >= slice->offset &&
            distance / slice->pitch < slice->rectangle.rows &&
            distance % slice->pitch < slice->rectangle.columns) {
            return (struct origin){info->template_id, info->expert,
                                   slice->rectangle.row + (uint32_t)(distance / slice->pitch),
                                   slice->rectangle.column + (uint32_t)(distance % slice->pitch)};
        }
    }
    return (struct origin){.template_id = -1};
}

typedef struct origin origin_fn(const char *name, struct spot spot);

static void check_rank(const struct tdm__model *model, const struct tdm__sharding *sharding,
                       uint32_t rank, origin_fn *origin_of)
{
    struct tdm__rank_shards shards;

    assert_int_equal(tdm__rank_shards_init(model, sharding, rank, TDM__SHARDS_DESTINATION, &shards),
                     TDM_OK);
    for (uint32_t i = 0; i < shards.shard_tensors_count; i++) {
        const struct tdm__shard_tensor *local = &shards.shard_tensors[i];
        bool is_stacked = local->dims_count == 3;
        uint64_t rows = local->shape[is_stacked];
        uint64_t columns = local->dims_count == 1 ? 1 : local->shape[is_stacked ? 2 : 1];
        uint32_t group = tdm__sharding_expert_group_index(sharding, rank);
        char name[TDM_TENSOR_NAME_BYTES_MAX];
        enum tdm__split split = TDM__SPLIT_DENSE;

        (void)tdm__shard_tensor_name(model, sharding, local, name);
        if (strstr(name, ".experts.") != NULL) {
            split = TDM__SPLIT_EXPERT;
        }
        for (uint64_t j = 0; j < tdm__shard_tensor_elements(local); j++) {
            bool of_expert = split == TDM__SPLIT_EXPERT;
            struct spot spot = {
                .row = (uint32_t)(j / columns % rows),
                .column = (uint32_t)(j % columns),
                .expert = is_stacked ? (uint32_t)(j / columns / rows) : local->expert,
                .tp = tdm__sharding_split_index(sharding, split, rank),
                .tp_size = sharding->sizes[split],
                .experts_first = of_expert ? group * EXPERTS / sharding->expert_groups : 0,
            };
            struct origin wanted = origin_of(name, spot);
            struct origin found = find_origin(model, &shards, i, j);

            assert_int_equal(found.template_id, wanted.template_id);
            if (wanted.template_id >= 0) {
                assert_int_equal(found.expert, wanted.expert);
                assert_int_equal(found.row, wanted.row);
                assert_int_equal(found.column, wanted.column);
            }
        }
    }
    tdm__rank_shards_fini(&shards);
}

static void check_layout(const struct tdm__model_config *config, const char *layout,
                         origin_fn *origin_of)
{
    const struct tdm__model_options options = {.mtp = false};
    struct tdm__sharding sharding;
    struct tdm__model *model;

    assert_int_equal(tdm__sharding_parse(layout, strlen(layout), "layout", &sharding), TDM_OK);
    assert_int_equal(tdm__model_create(config, &options, &model), TDM_OK);
    for (uint32_t rank = 0; rank < sharding.ranks_count; rank++) {
        check_rank(model, &sharding, rank, origin_of);
    }
    tdm__model_destroy(model);
}

static void megatron_tensors_hold_what_megatron_puts_there(void **state)
{
    (void)state;
    check_layout(&grouped,
                 "{\"layout\": \"megatron\", \"ranks\": 12, \"tp\": 2, \"ep\": 3, \"pp\": 2,"
                 " \"etp\": 2, \"stage_layers\": [1, 2], \"vocabulary_multiple\": 3}",
                 megatron_origin);
    check_layout(&grouped,
                 "{\"layout\": \"megatron\", \"ranks\": 6, \"ep\": 6,"
                 " \"vocabulary_multiple\": 6}",
                 megatron_origin);
}

static void engine_tensors_hold_what_engines_load(void **state)
{
    (void)state;
    check_layout(&grouped,
                 "{\"layout\": \"engine\", \"ranks\": 4, \"tp\": 4, \"ep\": 2, \"etp\": 2,"
                 " \"vocabulary_multiple\": 8}",
                 engine_origin);
    check_layout(&grouped,
                 "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 2, \"etp\": 4,"
                 " \"vocabulary_multiple\": 8}",
                 engine_origin);
}

static void latent_attention_is_cut_by_heads(void **state)
{
    (void)state;
    check_layout(&latent,
                 "{\"layout\": \"megatron\", \"ranks\": 4, \"tp\": 2, \"vocabulary_multiple\":"
                 " 3}",
                 latent_megatron_origin);
    check_layout(&latent,
                 "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"vocabulary_multiple\":"
                 " 8}",
                 latent_engine_origin);
}

/* A layer's elements in a row, in equal parts. */
static void flat_pieces_are_a_layers_elements_in_a_row(void **state)
{
    const struct tdm__model_options options = {.mtp = false};
    static const char layout[] = "{\"layout\": \"fsdp\", \"ranks\": 3, \"state\": \"local\"}";
    struct tdm__sharding sharding;
    struct tdm__model *model;
    uint32_t first;
    uint64_t sizes[3];
    uint64_t at = 0;

    (void)state;
    assert_int_equal(tdm__sharding_parse(layout, strlen(layout), "layout", &sharding), TDM_OK);
    assert_int_equal(tdm__model_create(&grouped, &options, &model), TDM_OK);
    first = tdm__model_tensor_index(model, TDM__T_INPUT_NORM, 0, 0);
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct tdm__rank_shards shards;
        uint32_t tensor = first;
        uint64_t before = 0; /* elements of the layer's tensors before this one */

        assert_int_equal(
            tdm__rank_shards_init(model, &sharding, rank, TDM__SHARDS_DESTINATION, &shards),
            TDM_OK);
        sizes[rank] = tdm__shard_tensor_elements(&shards.shard_tensors[0]);
        assert_int_equal(sizes[rank], sizes[0]);
        while (at < (rank + 1) * sizes[0] && model->tensors[tensor].layer == 0) {
            const struct tdm__model_tensor *info = &model->tensors[tensor];
            uint64_t size = (uint64_t)info->rows * info->columns;

            if (at >= before + size) {
                before += size;
                tensor++;
                continue;
            }
            struct origin found = find_origin(model, &shards, 0, at - rank * sizes[0]);

            assert_int_equal(found.template_id, info->template_id);
            assert_int_equal((uint64_t)found.row * info->columns + found.column, at - before);
            at++;
        }
        tdm__rank_shards_fini(&shards);
    }
    tdm__model_destroy(model);
}

static void tensor_that_does_not_fit_the_layout_is_refused_by_name(void **state)
{
    static const struct {
        const char *layout;
        const char *text;
    } wrong[] = {
        {"{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 8}",
         "model.layers.0.self_attn.q_proj.weight: 4 query groups"},
        {"{\"layout\": \"megatron\", \"ranks\": 4, \"ep\": 4}",
         "model.layers.1.mlp.experts.0.gate_proj.weight: 6 experts"},
        {"{\"layout\": \"megatron\", \"ranks\": 2, \"pp\": 2, \"stage_layers\": [1, 1]}",
         "the stages have 2 layers, the model 3"},
        {"{\"layout\": \"engine\", \"ranks\": 3, \"tp\": 3}",
         "model.embed_tokens.weight: 64 heads or rows"},
        {"{\"layout\": \"engine\", \"ranks\": 1, \"dtype\": \"F8_E4M3\"}", "no scales"},
    };
    const struct tdm__model_options options = {.mtp = false};
    struct tdm__model *model;

    (void)state;
    assert_int_equal(tdm__model_create(&grouped, &options, &model), TDM_OK);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct tdm__sharding sharding;
        struct tdm__rank_shards shards;

        assert_int_equal(
            tdm__sharding_parse(wrong[i].layout, strlen(wrong[i].layout), "layout", &sharding),
            TDM_OK);
        assert_int_equal(tdm__rank_shards_init(model, &sharding, 0, TDM__SHARDS_SOURCE, &shards),
                         TDM_E_INVAL);
        assert_non_null(strstr(tdm_error_detail(), wrong[i].text));
    }
    tdm__model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(megatron_tensors_hold_what_megatron_puts_there),
        cmocka_unit_test(engine_tensors_hold_what_engines_load),
        cmocka_unit_test(latent_attention_is_cut_by_heads),
        cmocka_unit_test(flat_pieces_are_a_layers_elements_in_a_row),
        cmocka_unit_test(tensor_that_does_not_fit_the_layout_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
