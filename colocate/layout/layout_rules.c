/* layout_rules.c - the tables that say which tensors a Megatron or an engine layout makes of a
 * model's tensors. */
/* SPDX-License-Identifier: Apache-2.0 */

/* This file has constant tables and no state; any thread may enter. A new kind of layout that
 * cuts tensors by name needs a table here, and a case in tdm__layout_rules_of_kind(). The columns
 * of a table are those of struct tdm__layout_rule: name, scope, required features, split, axis,
 * flags, components. rank_shards.c applies the rules; layout_rules_test.c compares names and
 * shapes with files of the libraries. */

#include "colocate/layout/layout_rules.h"

#include "runtime/text.h"

#include <string.h>

/* Number of elements of an array. */
#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

/* A rule's last two columns: its tensor consists of one component, a tensor of the model. */
#define OF(part)                                                                                   \
    1,                                                                                             \
    {                                                                                              \
        TDM__T_##part                                                                              \
    }
/* A rule's last two columns: its tensor consists of two components of the model, stacked. */
#define OF_BOTH(one, other)                                                                        \
    2,                                                                                             \
    {                                                                                              \
        TDM__T_##one, TDM__T_##other                                                               \
    }
/* A rule's last two columns: its tensor consists of queries, keys and values, stacked. */
#define OF_QKV(suffix)                                                                             \
    3,                                                                                             \
    {                                                                                              \
        TDM__T_Q##suffix, TDM__T_K##suffix, TDM__T_V##suffix                                       \
    }

enum {
    FIRST = TDM__RULE_FIRST_STAGE,       /* The tensor exists once, in the first pipeline stage. */
    LAYER = TDM__RULE_EVERY_LAYER,       /* The tensor exists in every layer. */
    DENSE_LAYER = TDM__RULE_DENSE_LAYER, /* The tensor exists in every layer without experts. */
    EXPERT_LAYER = TDM__RULE_EXPERT_LAYER, /* The tensor exists in every layer with experts. */
    /* The rank has one tensor for each expert of its expert group. */
    EVERY_EXPERT = TDM__RULE_EVERY_EXPERT,
    /* The rank has one tensor for all experts of its expert group. */
    ALL_EXPERTS = TDM__RULE_ALL_EXPERTS,
    /* The tensor exists in every layer of multi-token prediction. */
    MTP_LAYER = TDM__RULE_MTP_LAYER,
    LAST = TDM__RULE_LAST_STAGE, /* The tensor exists once, in the last pipeline stage. */
    /* The tensor exists once, in the last pipeline stage if that is not also the first. */
    ONLY_LAST = TDM__RULE_ONLY_LAST_STAGE
};

enum {
    NONE = TDM__SPLIT_NONE, /* The tensor is not divided. */
    /* The tensor is divided by the tensor parallelism of attention. */
    ATTENTION = TDM__SPLIT_ATTENTION,
    DENSE = TDM__SPLIT_DENSE, /* The tensor is divided by the tensor parallelism of dense layers. */
    /* The tensor is divided by the tensor parallelism of shared experts. */
    SHARED = TDM__SPLIT_SHARED,
    VOCABULARY = TDM__SPLIT_VOCABULARY, /* The tensor is divided along the vocabulary. */
    /* The tensor is divided by the tensor parallelism inside an expert. */
    EXPERT = TDM__SPLIT_EXPERT
};

enum {
    GROUPED = TDM__FEATURE_GROUPED, /* The rule is for models with grouped-query attention. */
    /* The rule is for models with multi-head latent attention. */
    LATENT = TDM__FEATURE_LATENT,
    /* The rule is for models with a bias in grouped-query attention. */
    BIASED = TDM__FEATURE_GROUPED | TDM__FEATURE_BIAS,
    /* The rule is for models with norms of queries and keys. */
    NORMED = TDM__FEATURE_GROUPED | TDM__FEATURE_QK_NORM,
    HAS_SHARED = TDM__FEATURE_SHARED, /* The rule is for models with shared experts. */
    /* The rule is for models whose output layer is a separate tensor. */
    UNTIED = TDM__FEATURE_UNTIED,
    TIED = TDM__FEATURE_TIED, /* The rule is for models whose output layer is the embedding. */
    /* The rule is for models with layers of multi-token prediction. */
    MTP = TDM__FEATURE_MTP,
    /* Rows are added at the tensor's end before it is cut, for example to a vocabulary. */
    PADDED = TDM__RULE_PADDED,
    /* The tensor's components (q, k and v) are interleaved by query group. */
    BY_GROUP = TDM__RULE_BY_QUERY_GROUP,
    /* Several ranks may hold the same part of the tensor, for example a key-value head. */
    REPEATED = TDM__RULE_REPLICATED,
    /* The rule makes no tensor; its components are in the tensor of the rule before it. */
    ALIAS = TDM__RULE_ALIAS
};

/* Prefix of the attention tensors in Megatron's names. */
#define ATTN "{P}self_attention."

/* The rules of Megatron-core's tensors. Where Megatron fuses a norm with the linear layer after it,
 * the norm has the name of that layer. */
static const struct tdm__layout_rule megatron_rule_list[] = {
    {"embedding.word_embeddings.weight", FIRST, 0, VOCABULARY, 0, PADDED, OF(EMBED)},
    {"embedding.word_embeddings.weight", FIRST, MTP, VOCABULARY, 0, PADDED | ALIAS, OF(MTP_EMBED)},
    {"{P}input_layernorm.weight", LAYER, LATENT, NONE, 0, 0, OF(INPUT_NORM)},
    {ATTN "linear_q_down_proj.weight", LAYER, LATENT, NONE, 0, 0, OF(Q_A)},
    {ATTN "linear_q_up_proj.layer_norm_weight", LAYER, LATENT, NONE, 0, 0, OF(Q_A_NORM)},
    {ATTN "linear_q_up_proj.weight", LAYER, LATENT, ATTENTION, 0, 0, OF(Q_B)},
    {ATTN "linear_kv_down_proj.weight", LAYER, LATENT, NONE, 0, 0, OF(KV_A)},
    {ATTN "linear_kv_up_proj.layer_norm_weight", LAYER, LATENT, NONE, 0, 0, OF(KV_A_NORM)},
    {ATTN "linear_kv_up_proj.weight", LAYER, LATENT, ATTENTION, 0, 0, OF(KV_B)},
    {ATTN "linear_qkv.layer_norm_weight", LAYER, GROUPED, NONE, 0, 0, OF(INPUT_NORM)},
    {ATTN "linear_qkv.weight", LAYER, GROUPED, ATTENTION, 0, BY_GROUP, OF_QKV()},
    {ATTN "linear_qkv.bias", LAYER, BIASED, ATTENTION, 0, BY_GROUP, OF_QKV(_BIAS)},
    {ATTN "q_layernorm.weight", LAYER, NORMED, NONE, 0, 0, OF(Q_NORM)},
    {ATTN "k_layernorm.weight", LAYER, NORMED, NONE, 0, 0, OF(K_NORM)},
    {ATTN "linear_proj.weight", LAYER, 0, ATTENTION, 1, 0, OF(O)},
    {"{P}mlp.linear_fc1.layer_norm_weight", DENSE_LAYER, 0, NONE, 0, 0, OF(POST_NORM)},
    {"{P}mlp.linear_fc1.weight", DENSE_LAYER, 0, DENSE, 0, 0, OF_BOTH(GATE, UP)},
    {"{P}mlp.linear_fc2.weight", DENSE_LAYER, 0, DENSE, 1, 0, OF(DOWN)},
    {"{P}pre_mlp_layernorm.weight", EXPERT_LAYER, 0, NONE, 0, 0, OF(POST_NORM)},
    {"{P}mlp.router.weight", EXPERT_LAYER, 0, NONE, 0, 0, OF(ROUTER)},
    {"{P}mlp.router.expert_bias", EXPERT_LAYER, TDM__FEATURE_ROUTER_BIAS, NONE, 0, 0,
     OF(ROUTER_BIAS)},
    {"{P}mlp.experts.linear_fc1.weight{e}", EVERY_EXPERT, 0, EXPERT, 0, 0,
     OF_BOTH(EXPERT_GATE, EXPERT_UP)},
    {"{P}mlp.experts.linear_fc2.weight{e}", EVERY_EXPERT, 0, EXPERT, 1, 0, OF(EXPERT_DOWN)},
    {"{P}mlp.shared_experts.linear_fc1.weight", EXPERT_LAYER, HAS_SHARED, SHARED, 0, 0,
     OF_BOTH(SHARED_GATE, SHARED_UP)},
    {"{P}mlp.shared_experts.linear_fc2.weight", EXPERT_LAYER, HAS_SHARED, SHARED, 1, 0,
     OF(SHARED_DOWN)},
    {"mtp.layers.{m}.enorm.weight", MTP_LAYER, 0, NONE, 0, 0, OF(MTP_EMBED_NORM)},
    {"mtp.layers.{m}.hnorm.weight", MTP_LAYER, 0, NONE, 0, 0, OF(MTP_HIDDEN_NORM)},
    {"mtp.layers.{m}.eh_proj.weight", MTP_LAYER, 0, DENSE, 0, 0, OF(MTP_PROJECTION)},
    {"mtp.layers.{m}.final_layernorm.weight", MTP_LAYER, 0, NONE, 0, 0, OF(MTP_NORM)},
    {"decoder.final_layernorm.weight", LAST, 0, NONE, 0, 0, OF(NORM)},
    {"output_layer.weight", LAST, UNTIED, VOCABULARY, 0, PADDED, OF(HEAD)},
    {"output_layer.weight", LAST, UNTIED | MTP, VOCABULARY, 0, PADDED | ALIAS, OF(MTP_HEAD)},
    {"output_layer.weight", ONLY_LAST, TIED, VOCABULARY, 0, PADDED, OF(EMBED)},
    {"embedding.word_embeddings.weight", ONLY_LAST, MTP | UNTIED, VOCABULARY, 0, PADDED, OF(EMBED)},
};

/* The rules of SGLang's tensors. Projections are fused, and all experts of a group are in one
 * tensor. */
static const struct tdm__layout_rule engine_rule_list[] = {
    {"model.embed_tokens.weight", FIRST, 0, VOCABULARY, 0, PADDED, OF(EMBED)},
    {"model.embed_tokens.weight", FIRST, MTP, VOCABULARY, 0, PADDED | ALIAS, OF(MTP_EMBED)},
    {"{P}input_layernorm.weight", LAYER, 0, NONE, 0, 0, OF(INPUT_NORM)},
    {"{P}self_attn.qkv_proj.weight", LAYER, GROUPED, ATTENTION, 0, REPEATED, OF_QKV()},
    {"{P}self_attn.qkv_proj.bias", LAYER, BIASED, ATTENTION, 0, REPEATED, OF_QKV(_BIAS)},
    {"{P}self_attn.q_norm.weight", LAYER, NORMED, NONE, 0, 0, OF(Q_NORM)},
    {"{P}self_attn.k_norm.weight", LAYER, NORMED, NONE, 0, 0, OF(K_NORM)},
    {"{P}self_attn.fused_qkv_a_proj_with_mqa.weight", LAYER, LATENT, NONE, 0, 0,
     OF_BOTH(Q_A, KV_A)},
    {"{P}self_attn.q_a_layernorm.weight", LAYER, LATENT, NONE, 0, 0, OF(Q_A_NORM)},
    {"{P}self_attn.q_b_proj.weight", LAYER, LATENT, ATTENTION, 0, 0, OF(Q_B)},
    {"{P}self_attn.kv_a_layernorm.weight", LAYER, LATENT, NONE, 0, 0, OF(KV_A_NORM)},
    {"{P}self_attn.kv_b_proj.weight", LAYER, LATENT, ATTENTION, 0, 0, OF(KV_B)},
    {"{P}self_attn.o_proj.weight", LAYER, 0, ATTENTION, 1, 0, OF(O)},
    {"{P}post_attention_layernorm.weight", LAYER, 0, NONE, 0, 0, OF(POST_NORM)},
    {"{P}mlp.gate_up_proj.weight", DENSE_LAYER, 0, DENSE, 0, 0, OF_BOTH(GATE, UP)},
    {"{P}mlp.down_proj.weight", DENSE_LAYER, 0, DENSE, 1, 0, OF(DOWN)},
    {"{P}mlp.gate.weight", EXPERT_LAYER, 0, NONE, 0, 0, OF(ROUTER)},
    {"{P}mlp.gate.e_score_correction_bias", EXPERT_LAYER, TDM__FEATURE_ROUTER_BIAS, NONE, 0, 0,
     OF(ROUTER_BIAS)},
    {"{P}mlp.experts.w13_weight", ALL_EXPERTS, 0, EXPERT, 0, 0, OF_BOTH(EXPERT_GATE, EXPERT_UP)},
    {"{P}mlp.experts.w2_weight", ALL_EXPERTS, 0, EXPERT, 1, 0, OF(EXPERT_DOWN)},
    {"{P}mlp.shared_experts.gate_up_proj.weight", EXPERT_LAYER, HAS_SHARED, SHARED, 0, 0,
     OF_BOTH(SHARED_GATE, SHARED_UP)},
    {"{P}mlp.shared_experts.down_proj.weight", EXPERT_LAYER, HAS_SHARED, SHARED, 1, 0,
     OF(SHARED_DOWN)},
    {"{P}enorm.weight", MTP_LAYER, 0, NONE, 0, 0, OF(MTP_EMBED_NORM)},
    {"{P}hnorm.weight", MTP_LAYER, 0, NONE, 0, 0, OF(MTP_HIDDEN_NORM)},
    {"{P}eh_proj.weight", MTP_LAYER, 0, NONE, 0, 0, OF(MTP_PROJECTION)},
    {"{P}shared_head.norm.weight", MTP_LAYER, 0, NONE, 0, 0, OF(MTP_NORM)},
    {"model.norm.weight", LAST, 0, NONE, 0, 0, OF(NORM)},
    {"lm_head.weight", LAST, UNTIED, VOCABULARY, 0, PADDED, OF(HEAD)},
    {"lm_head.weight", LAST, UNTIED | MTP, VOCABULARY, 0, PADDED | ALIAS, OF(MTP_HEAD)},
};

static const struct tdm__layout_rules megatron_rules = {
    "decoder.layers.{L}.", "mtp.layers.{m}.transformer_layer.", megatron_rule_list,
    COUNT(megatron_rule_list)};
static const struct tdm__layout_rules engine_rules = {"model.layers.{L}.", "model.layers.{L}.",
                                                      engine_rule_list, COUNT(engine_rule_list)};

const struct tdm__layout_rules *tdm__layout_rules_of_kind(enum tdm__sharding_kind kind)
{
    switch (kind) {
    case TDM__SHARDING_MEGATRON:
        return &megatron_rules;
    case TDM__SHARDING_ENGINE:
        return &engine_rules;
    case TDM__SHARDING_WHOLE:
    case TDM__SHARDING_FSDP_SHARDED:
    case TDM__SHARDING_FSDP_LOCAL:
        return NULL;
    }
    return NULL;
}

void tdm__layout_rule_tensor_name(const struct tdm__layout_rules *rules,
                                  const struct tdm__layout_rule *rule,
                                  const struct tdm__model *model, uint32_t layer, uint32_t expert,
                                  char name[TDM_TENSOR_NAME_BYTES_MAX])
{
    bool is_mtp = layer >= model->config.layers;
    const char *prefix = is_mtp ? rules->mtp_prefix : rules->layer_prefix;
    const char *rest = rule->name;
    char pattern[2 * TDM_TENSOR_NAME_BYTES_MAX];
    struct tdm__text text = tdm__text_init(pattern, sizeof(pattern));
    char *mtp;

    if (strncmp(rest, "{P}", 3) == 0) {
        rest += 3;
        tdm__text_add(&text, "%s", prefix);
    }
    tdm__text_add(&text, "%s", rest);
    mtp = strstr(pattern, "{m}");
    if (is_mtp && mtp != NULL) {
        mtp[1] = 'L';
        layer -= model->config.layers;
    }
    tdm__tensor_name_expand(pattern, layer, expert, name);
}
