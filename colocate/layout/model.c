/* model.c - the list of a model's tensors, derived from its config. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The table `templates` has one entry per tensor name of all families. tdm__model_create()
 * computes the features and dimensions of the model, assigns each template a position in each
 * kind of layer, and then fills the list of tensors. A tensor's index is computed from its layer,
 * its template's position and its expert, so no search is needed.
 *
 * Invariants: a linear tensor's scale, if the model has scales, directly follows the tensor; the
 * tensors of an expert are contiguous, and experts follow each other. The model does not change
 * after its creation, so any thread may read it. */

#include "colocate/layout/model.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/text.h"

#include <stdlib.h>
#include <string.h>

/* Names of the dimensions of templates. fill_dims() computes their sizes for a model. */
enum dim {
    ONE,          /* Size 1, for the second dimension of a vector. */
    HIDDEN,       /* Width of the hidden state. */
    TWICE_HIDDEN, /* Twice the width of the hidden state. */
    VOCABULARY,   /* Number of tokens in the vocabulary. */
    QUERIES,      /* Size of the queries of all heads together. */
    KEYS,         /* Size of the keys of all heads together; the values have the same size. */
    HEAD_DIM,     /* Size of one attention head. */
    ATTENDED,     /* Size of the input of the attention's output projection. */
    Q_RANK,       /* Latent attention: size of the compressed queries. */
    Q_UP,         /* Latent attention: size of the expanded queries of all heads. */
    KV_DOWN,    /* Latent attention: size of the compressed keys and values with the rotary part. */
    KV_RANK,    /* Latent attention: size of the compressed keys and values. */
    KV_UP,      /* Latent attention: size of the expanded keys and values of all heads. */
    FFN,        /* Width of a dense MLP. */
    EXPERTS,    /* Number of experts in a layer. */
    EXPERT_FFN, /* Width of an expert's MLP. */
    SHARED_FFN, /* Width of the MLPs of all shared experts together. */
    DIMS_COUNT  /* Number of values of this enum. */
};

_Static_assert((int)DIMS_COUNT <= (int)TDM__TEMPLATE_DIMS_COUNT,
               "a model has room for all of them");

/* Where in the model a template has tensors. */
enum scope {
    FIRST,        /* Outside of layers, before the first one. */
    EVERY_LAYER,  /* The model has one tensor in every layer. */
    DENSE_LAYER,  /* One tensor in every layer without experts. */
    EXPERT_LAYER, /* One tensor in every layer with experts. */
    EVERY_EXPERT, /* Once for each expert of every layer with experts. */
    MTP_LAYER,    /* One tensor in every layer of multi-token prediction. */
    LAST          /* Outside of layers, after the last one. */
};

/* Kinds of layer, which differ in their templates. */
enum layer_kind {
    DENSE,        /* An ordinary layer without experts. */
    WITH_EXPERTS, /* An ordinary layer with experts. */
    MTP           /* A layer of multi-token prediction, which also has experts. */
};

/* A template: describes the tensors of a model that have the same name in all layers. */
struct template
{
    const char *name; /* Pattern of the tensors' names in Hugging Face's files. */
    enum scope scope; /* In which layers, or where outside of layers, the tensors are. */
    /* TDM__FEATURE_… bits that a model must have; otherwise it has no such tensors. */
    uint32_t required_features;
    uint8_t kind;     /* How the tensors may be stored, an enum tdm__tensor_kind. */
    enum dim rows;    /* Size of the tensors' dimension 0. */
    enum dim columns; /* Size of the tensors' dimension 1; ONE for a vector. */
};

/* Prefix of the names of all tensors in layer {L}. */
#define LAYER "model.layers.{L}."
/* Prefix of the names of a layer's attention tensors. */
#define ATTENTION LAYER "self_attn."
/* Prefix of the names of a layer's MLP tensors. */
#define MLP LAYER "mlp."
/* Prefix of the names of the tensors of expert {e} in a layer. */
#define EXPERT MLP "experts.{e}."
/* Prefix of the names of the tensors of a layer's shared experts. */
#define SHARED MLP "shared_experts."

enum {
    LINEAR = TDM__TENSOR_KIND_LINEAR, /* Kind of a tensor that may be stored as FP8. */
    PLAIN = TDM__TENSOR_KIND_PLAIN,   /* Kind of a tensor that is never stored as FP8. */
    F32 = TDM__TENSOR_KIND_F32,       /* Kind of a tensor that is float32 in every layout. */
    GROUPED = TDM__FEATURE_GROUPED,   /* The template is for models with grouped-query attention. */
    /* The template is for models with a bias in grouped-query attention. */
    BIASED = TDM__FEATURE_GROUPED | TDM__FEATURE_BIAS,
    /* The template is for models with norms of queries and keys. */
    NORMED = TDM__FEATURE_GROUPED | TDM__FEATURE_QK_NORM,
    /* The template is for models with multi-head latent attention. */
    LATENT = TDM__FEATURE_LATENT
};

/* The templates of all model families, indexed by enum tdm__tensor_template. */
static const struct template templates[TDM__TENSOR_TEMPLATES_COUNT] = {
    [TDM__T_EMBED] = {"model.embed_tokens.weight", FIRST, 0, PLAIN, VOCABULARY, HIDDEN},
    [TDM__T_INPUT_NORM] = {LAYER "input_layernorm.weight", EVERY_LAYER, 0, PLAIN, HIDDEN, ONE},
    [TDM__T_Q] = {ATTENTION "q_proj.weight", EVERY_LAYER, GROUPED, LINEAR, QUERIES, HIDDEN},
    [TDM__T_Q_BIAS] = {ATTENTION "q_proj.bias", EVERY_LAYER, BIASED, PLAIN, QUERIES, ONE},
    [TDM__T_K] = {ATTENTION "k_proj.weight", EVERY_LAYER, GROUPED, LINEAR, KEYS, HIDDEN},
    [TDM__T_K_BIAS] = {ATTENTION "k_proj.bias", EVERY_LAYER, BIASED, PLAIN, KEYS, ONE},
    [TDM__T_V] = {ATTENTION "v_proj.weight", EVERY_LAYER, GROUPED, LINEAR, KEYS, HIDDEN},
    [TDM__T_V_BIAS] = {ATTENTION "v_proj.bias", EVERY_LAYER, BIASED, PLAIN, KEYS, ONE},
    [TDM__T_Q_A] = {ATTENTION "q_a_proj.weight", EVERY_LAYER, LATENT, LINEAR, Q_RANK, HIDDEN},
    [TDM__T_Q_A_NORM] = {ATTENTION "q_a_layernorm.weight", EVERY_LAYER, LATENT, PLAIN, Q_RANK, ONE},
    [TDM__T_Q_B] = {ATTENTION "q_b_proj.weight", EVERY_LAYER, LATENT, LINEAR, Q_UP, Q_RANK},
    [TDM__T_KV_A] = {ATTENTION "kv_a_proj_with_mqa.weight", EVERY_LAYER, LATENT, LINEAR, KV_DOWN,
                     HIDDEN},
    [TDM__T_KV_A_NORM] = {ATTENTION "kv_a_layernorm.weight", EVERY_LAYER, LATENT, PLAIN, KV_RANK,
                          ONE},
    [TDM__T_KV_B] = {ATTENTION "kv_b_proj.weight", EVERY_LAYER, LATENT, LINEAR, KV_UP, KV_RANK},
    [TDM__T_O] = {ATTENTION "o_proj.weight", EVERY_LAYER, 0, LINEAR, HIDDEN, ATTENDED},
    [TDM__T_Q_NORM] = {ATTENTION "q_norm.weight", EVERY_LAYER, NORMED, PLAIN, HEAD_DIM, ONE},
    [TDM__T_K_NORM] = {ATTENTION "k_norm.weight", EVERY_LAYER, NORMED, PLAIN, HEAD_DIM, ONE},
    [TDM__T_POST_NORM] = {LAYER "post_attention_layernorm.weight", EVERY_LAYER, 0, PLAIN, HIDDEN,
                          ONE},
    [TDM__T_GATE] = {MLP "gate_proj.weight", DENSE_LAYER, 0, LINEAR, FFN, HIDDEN},
    [TDM__T_UP] = {MLP "up_proj.weight", DENSE_LAYER, 0, LINEAR, FFN, HIDDEN},
    [TDM__T_DOWN] = {MLP "down_proj.weight", DENSE_LAYER, 0, LINEAR, HIDDEN, FFN},
    [TDM__T_ROUTER] = {MLP "gate.weight", EXPERT_LAYER, 0, PLAIN, EXPERTS, HIDDEN},
    [TDM__T_ROUTER_BIAS] = {MLP "gate.e_score_correction_bias", EXPERT_LAYER,
                            TDM__FEATURE_ROUTER_BIAS, F32, EXPERTS, ONE},
    [TDM__T_EXPERT_GATE] = {EXPERT "gate_proj.weight", EVERY_EXPERT, 0, LINEAR, EXPERT_FFN, HIDDEN},
    [TDM__T_EXPERT_UP] = {EXPERT "up_proj.weight", EVERY_EXPERT, 0, LINEAR, EXPERT_FFN, HIDDEN},
    [TDM__T_EXPERT_DOWN] = {EXPERT "down_proj.weight", EVERY_EXPERT, 0, LINEAR, HIDDEN, EXPERT_FFN},
    [TDM__T_SHARED_GATE] = {SHARED "gate_proj.weight", EXPERT_LAYER, TDM__FEATURE_SHARED, LINEAR,
                            SHARED_FFN, HIDDEN},
    [TDM__T_SHARED_UP] = {SHARED "up_proj.weight", EXPERT_LAYER, TDM__FEATURE_SHARED, LINEAR,
                          SHARED_FFN, HIDDEN},
    [TDM__T_SHARED_DOWN] = {SHARED "down_proj.weight", EXPERT_LAYER, TDM__FEATURE_SHARED, LINEAR,
                            HIDDEN, SHARED_FFN},
    [TDM__T_MTP_EMBED] = {LAYER "embed_tokens.weight", MTP_LAYER, 0, PLAIN, VOCABULARY, HIDDEN},
    [TDM__T_MTP_EMBED_NORM] = {LAYER "enorm.weight", MTP_LAYER, 0, PLAIN, HIDDEN, ONE},
    [TDM__T_MTP_HIDDEN_NORM] = {LAYER "hnorm.weight", MTP_LAYER, 0, PLAIN, HIDDEN, ONE},
    [TDM__T_MTP_PROJECTION] = {LAYER "eh_proj.weight", MTP_LAYER, 0, PLAIN, HIDDEN, TWICE_HIDDEN},
    [TDM__T_MTP_NORM] = {LAYER "shared_head.norm.weight", MTP_LAYER, 0, PLAIN, HIDDEN, ONE},
    [TDM__T_MTP_HEAD] = {LAYER "shared_head.head.weight", MTP_LAYER, TDM__FEATURE_UNTIED, PLAIN,
                         VOCABULARY, HIDDEN},
    [TDM__T_NORM] = {"model.norm.weight", LAST, 0, PLAIN, HIDDEN, ONE},
    [TDM__T_HEAD] = {"lm_head.weight", LAST, TDM__FEATURE_UNTIED, PLAIN, VOCABULARY, HIDDEN},
};

/* ---- sizes ------------------------------------------------------------------------------ */

/* Returns the TDM__FEATURE_… bits of a model with this config. */
static uint32_t model_features(const struct tdm__model_config *config)
{
    bool latent = config->kv_lora_rank != 0;
    uint32_t features = latent ? TDM__FEATURE_LATENT : TDM__FEATURE_GROUPED;

    features |= config->attention_bias ? TDM__FEATURE_BIAS : 0u;
    features |= config->qk_norm ? TDM__FEATURE_QK_NORM : 0u;
    features |= config->router_bias ? TDM__FEATURE_ROUTER_BIAS : 0u;
    features |= config->shared_experts != 0 ? TDM__FEATURE_SHARED : 0u;
    return features | (config->tied_embeddings ? TDM__FEATURE_TIED : TDM__FEATURE_UNTIED);
}

/* Computes the sizes of all dimensions. No product overflows, because the config limits widths to
 * 2^20 and heads and their sizes to 2^14. */
static void fill_dims(struct tdm__model *model)
{
    const struct tdm__model_config *config = &model->config;
    uint32_t query_dim = config->qk_nope_head_dim + config->qk_rope_head_dim;
    uint32_t key_value_dim = config->qk_nope_head_dim + config->v_head_dim;
    bool latent = config->kv_lora_rank != 0;
    const struct tdm__template_dim dims[DIMS_COUNT] = {
        [ONE] = {1, 1},
        [HIDDEN] = {config->hidden, config->hidden},
        [TWICE_HIDDEN] = {2 * config->hidden, 2 * config->hidden},
        [VOCABULARY] = {config->vocabulary, config->vocabulary},
        [QUERIES] = {config->heads * config->head_dim, config->heads},
        [KEYS] = {config->kv_heads * config->head_dim, config->kv_heads},
        [HEAD_DIM] = {config->head_dim, 1},
        [ATTENDED] = {config->heads * (latent ? config->v_head_dim : config->head_dim),
                      config->heads},
        [Q_RANK] = {config->q_lora_rank, config->q_lora_rank},
        [Q_UP] = {config->heads * query_dim, config->heads},
        [KV_DOWN] = {config->kv_lora_rank + config->qk_rope_head_dim, 1},
        [KV_RANK] = {config->kv_lora_rank, config->kv_lora_rank},
        [KV_UP] = {config->heads * key_value_dim, config->heads},
        [FFN] = {config->ffn_width, config->ffn_width},
        [EXPERTS] = {config->experts, config->experts},
        [EXPERT_FFN] = {config->expert_ffn, config->expert_ffn},
        [SHARED_FFN] = {config->shared_experts * config->expert_ffn,
                        config->shared_experts * config->expert_ffn},
    };

    memcpy(model->dims, dims, sizeof(dims));
}

/* Returns whether layer number `layer` is dense, has experts, or does multi-token prediction. */
static enum layer_kind kind_of_layer(const struct tdm__model *model, uint32_t layer)
{
    if (layer >= model->config.layers) {
        return MTP;
    }
    return layer < model->config.dense_layers ? DENSE : WITH_EXPERTS;
}

bool tdm__model_layer_has_experts(const struct tdm__model *model, uint32_t layer)
{
    return kind_of_layer(model, layer) != DENSE;
}

/* Returns true if a template of this scope has tensors in a layer of this kind. */
static bool scope_is_in(enum scope scope, enum layer_kind kind)
{
    switch (scope) {
    case EVERY_LAYER:
        return true;
    case DENSE_LAYER:
        return kind == DENSE;
    case EXPERT_LAYER:
    case EVERY_EXPERT:
        return kind != DENSE;
    case MTP_LAYER:
        return kind == MTP;
    case FIRST:
    case LAST:
        return false;
    }
    return false;
}

/* Returns true if the model has the features that the template requires. */
static bool model_has_template(const struct tdm__model *model, enum tdm__tensor_template id)
{
    return (templates[id].required_features & ~model->features) == 0;
}

/* Returns the number of tensors that a template makes at one position: 2 with its scale, else 1. */
static uint32_t template_tensors_count(const struct tdm__model *model, enum tdm__tensor_template id)
{
    return templates[id].kind == TDM__TENSOR_KIND_LINEAR && model->has_scales ? 2 : 1;
}

/* Computes for each template at which position its tensor is among the tensors of a layer of this
 * kind. Returns the number of tensors in such a layer. */
static uint32_t place_templates(struct tdm__model *model, enum layer_kind kind)
{
    uint32_t position = 0;
    uint32_t expert_position = 0;

    for (enum tdm__tensor_template id = TDM__T_INPUT_NORM; id <= TDM__T_MTP_HEAD; id++) {
        bool of_expert = templates[id].scope == EVERY_EXPERT;

        if (id == TDM__T_SHARED_GATE && kind != DENSE) {
            model->tensors_per_expert = expert_position;
            position += expert_position * model->config.experts;
        }
        if (!scope_is_in(templates[id].scope, kind) || !model_has_template(model, id)) {
            continue;
        }
        /* The tensors of all experts follow each other, from the position of the first expert. */
        model->template_positions[kind][id] = position + (of_expert ? expert_position : 0);
        *(of_expert ? &expert_position : &position) += template_tensors_count(model, id);
    }
    return position;
}

uint32_t tdm__model_tensor_index(const struct tdm__model *model,
                                 enum tdm__tensor_template template_id, uint32_t layer,
                                 uint32_t expert)
{
    enum scope scope = templates[template_id].scope;

    if (scope == FIRST || scope == LAST) {
        return model->template_positions[DENSE][template_id];
    }
    TDM_ASSERT(layer < model->layers_count);
    TDM_ASSERT(scope_is_in(scope, kind_of_layer(model, layer)));
    return model->layer_first_tensors[layer] +
           model->template_positions[kind_of_layer(model, layer)][template_id] +
           (scope == EVERY_EXPERT ? expert * model->tensors_per_expert : 0);
}

uint32_t tdm__model_axis_units(const struct tdm__model *model,
                               enum tdm__tensor_template template_id, uint32_t axis)
{
    const struct template *template = &templates[template_id];

    return model->dims[axis == 0 ? template->rows : template->columns].units;
}

/* ---- the list --------------------------------------------------------------------------- */

/* Computes the positions of all templates' tensors, the index of each layer's first tensor, and the
 * number of the model's tensors. */
static void place_all_templates(struct tdm__model *model)
{
    uint32_t sizes[TDM__LAYER_KINDS];
    uint32_t next = 1; /* Index after the embedding. */

    for (int kind = 0; kind < TDM__LAYER_KINDS; kind++) {
        sizes[kind] = place_templates(model, (enum layer_kind)kind);
    }
    for (uint32_t layer = 0; layer < model->config.layers; layer++) {
        model->layer_first_tensors[layer] = next;
        next += sizes[kind_of_layer(model, layer)];
    }
    model->template_positions[DENSE][TDM__T_NORM] = next++;
    model->template_positions[DENSE][TDM__T_HEAD] = next;
    next += (uint32_t)model_has_template(model, TDM__T_HEAD);
    for (uint32_t layer = model->config.layers; layer < model->layers_count; layer++) {
        model->layer_first_tensors[layer] = next;
        next += sizes[MTP];
    }
    model->tensors_count = next;
}

/* Fills in the entry for a template's tensor in the model's list, and the entry for its scale if
 * there is one. */
static tdm_status model_add_tensor(struct tdm__model *model, enum tdm__tensor_template id,
                                   uint32_t layer, uint32_t expert)
{
    const struct template *template = &templates[id];
    uint32_t index = tdm__model_tensor_index(model, id, layer, expert);
    bool is_fp8 = template->kind == TDM__TENSOR_KIND_LINEAR && model->config.fp8;
    struct tdm__model_tensor tensor = {
        .kind = (uint8_t) template->kind,
        .template_id = (uint8_t)id,
        .dims_count = template->columns == ONE ? 1 : 2,
        .dtype = (uint8_t)(template->kind == TDM__TENSOR_KIND_F32 ? TDM_F32
                           : is_fp8                               ? TDM_F8_E4M3
                                                                  : model->config.dtype),
        .layer = (uint16_t)layer,
        .expert = (uint16_t)expert,
        .rows = model->dims[template->rows].size,
        .columns = model->dims[template->columns].size,
    };

    TDM_ASSERT(index + template_tensors_count(model, id) <= model->tensors_count);
    model->tensors[index] = tensor;
    if ((uint64_t)tensor.rows * tensor.columns > UINT32_MAX) {
        char name[TDM_TENSOR_NAME_BYTES_MAX];

        return tdm__fail(TDM_E_LIMIT, "%s: %u times %u elements are over 2^32 - 1",
                         tdm__model_tensor_name(model, index, name), tensor.rows, tensor.columns);
    }
    if (template_tensors_count(model, id) == 2) {
        tensor.kind = TDM__TENSOR_KIND_SCALE;
        tensor.dtype = TDM_F32;
        tensor.rows = (tensor.rows + TDM__FP8_BLOCK - 1) / TDM__FP8_BLOCK;
        tensor.columns = (tensor.columns + TDM__FP8_BLOCK - 1) / TDM__FP8_BLOCK;
        model->tensors[index + 1] = tensor;
    }
    return TDM_OK;
}

/* Fills in the entries for all tensors of layer number `layer` in the model's list. */
static tdm_status model_add_layer(struct tdm__model *model, uint32_t layer)
{
    for (enum tdm__tensor_template id = TDM__T_INPUT_NORM; id <= TDM__T_MTP_HEAD; id++) {
        uint32_t experts = templates[id].scope == EVERY_EXPERT ? model->config.experts : 1;

        if (!model_has_template(model, id) ||
            !scope_is_in(templates[id].scope, kind_of_layer(model, layer))) {
            continue;
        }
        for (uint32_t expert = 0; expert < experts; expert++) {
            TDM_TRY(model_add_tensor(model, id, layer, expert));
        }
    }
    return TDM_OK;
}

/* Fills in the entries for all tensors in the model's list. */
static tdm_status model_add_all_tensors(struct tdm__model *model)
{
    TDM_TRY(model_add_tensor(model, TDM__T_EMBED, 0, 0));
    for (uint32_t layer = 0; layer < model->layers_count; layer++) {
        TDM_TRY(model_add_layer(model, layer));
    }
    if (model_has_template(model, TDM__T_HEAD)) {
        TDM_TRY(model_add_tensor(model, TDM__T_HEAD, 0, 0));
    }
    return model_add_tensor(model, TDM__T_NORM, 0, 0);
}

/* Allocates and fills the model's list of tensors. */
static tdm_status model_create_tensors(struct tdm__model *model)
{
    place_all_templates(model);
    if (model->tensors_count > TDM__MODEL_TENSORS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u layers of %u experts are %u tensors, over %d",
                         model->layers_count, model->config.experts, model->tensors_count,
                         TDM__MODEL_TENSORS_MAX);
    }
    model->tensors = calloc(model->tensors_count, sizeof(*model->tensors));
    if (model->tensors == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u tensors", model->tensors_count);
    }
    return model_add_all_tensors(model);
}

tdm_status tdm__model_create(const struct tdm__model_config *config,
                             const struct tdm__model_options *options,
                             struct tdm__model **model_out)
{
    struct tdm__model *model = calloc(1, sizeof(*model));
    tdm_status status;

    if (model == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a model");
    }
    model->config = *config;
    model->features = model_features(config);
    model->layers_count = config->layers;
    model->has_scales = config->fp8 || options->scales;
    if (options->mtp && config->mtp_layers > 0) {
        model->layers_count += config->mtp_layers;
        model->features |= TDM__FEATURE_MTP;
    }
    fill_dims(model);
    status = model_create_tensors(model);
    if (status != TDM_OK) {
        tdm__model_destroy(model);
        return status;
    }
    *model_out = model;
    return TDM_OK;
}

void tdm__model_destroy(struct tdm__model *model)
{
    if (model != NULL) {
        free(model->tensors);
        free(model);
    }
}

/* ---- names and bytes -------------------------------------------------------------------- */

void tdm__tensor_name_expand(const char *pattern, uint32_t layer, uint32_t expert,
                             char name[TDM_TENSOR_NAME_BYTES_MAX])
{
    struct tdm__text text = tdm__text_init(name, TDM_TENSOR_NAME_BYTES_MAX);

    for (const char *at = pattern; *at != '\0';) {
        size_t literal = strcspn(at, "{");

        tdm__text_add(&text, "%.*s", (int)literal, at);
        at += literal;
        if (*at == '{') {
            tdm__text_add(&text, "%u", at[1] == 'L' ? layer : expert);
            at += strlen("{L}");
        }
    }
}

const char *tdm__model_tensor_name(const struct tdm__model *model, uint32_t tensor,
                                   char name[TDM_TENSOR_NAME_BYTES_MAX])
{
    const struct tdm__model_tensor *info = &model->tensors[tensor];

    tdm__tensor_name_expand(templates[info->template_id].name, info->layer, info->expert, name);
    if (info->kind == TDM__TENSOR_KIND_SCALE) {
        size_t length = strlen(name);
        struct tdm__text text = tdm__text_init(name + length, TDM_TENSOR_NAME_BYTES_MAX - length);

        tdm__text_add(&text, "_scale_inv");
    }
    return name;
}

uint64_t tdm__model_tensor_bytes(const struct tdm__model *model, uint32_t tensor)
{
    const struct tdm__model_tensor *info = &model->tensors[tensor];

    return (uint64_t)info->rows * info->columns * tdm_dtype_bytes((enum tdm_dtype)info->dtype);
}

uint64_t tdm__model_bytes(const struct tdm__model *model)
{
    uint64_t size_bytes = 0;

    for (uint32_t i = 0; i < model->tensors_count; i++) {
        size_bytes += tdm__model_tensor_bytes(model, i);
    }
    return size_bytes;
}
