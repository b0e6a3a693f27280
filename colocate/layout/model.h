/* model.h - the list of a model's tensors, derived from its config. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_MODEL_H
#define TDM_COLOCATE_LAYOUT_MODEL_H

#include "colocate/layout/model_config.h"
#include "colocate/transfer/casts.h"

/* Every layout is described by what it does to these tensors, which have the names and shapes of
 * Hugging Face. They come from one table of templates for all families. A template describes a
 * tensor per model, per layer or per expert, and is skipped if the model does not have the
 * features that it requires. All tensors have one or two dimensions; a vector is stored as a
 * column.
 *
 * The tensors of a layer are the templates from TDM__T_INPUT_NORM to TDM__T_MTP_HEAD. */

/* Names of the templates, in the order of the tensors. The table in model.c has the Hugging Face
 * name of each. */
enum tdm__tensor_template {
    TDM__T_EMBED, /* Embedding of the tokens. */
    /* First template of a layer: norm before the attention. */
    TDM__T_INPUT_NORM,
    TDM__T_Q,               /* Projection of the queries. */
    TDM__T_Q_BIAS,          /* Bias of the queries. */
    TDM__T_K,               /* Projection of the keys. */
    TDM__T_K_BIAS,          /* Bias of the keys. */
    TDM__T_V,               /* Projection of the values. */
    TDM__T_V_BIAS,          /* Bias of the values. */
    TDM__T_Q_A,             /* Latent attention: compression of the queries. */
    TDM__T_Q_A_NORM,        /* Latent attention: norm of compressed queries. */
    TDM__T_Q_B,             /* Latent attention: expansion of the queries. */
    TDM__T_KV_A,            /* Latent attention: compression of keys and values. */
    TDM__T_KV_A_NORM,       /* Latent attention: norm of compressed keys and values. */
    TDM__T_KV_B,            /* Latent attention: expansion of keys and values. */
    TDM__T_O,               /* Output projection of the attention. */
    TDM__T_Q_NORM,          /* Norm of the queries. */
    TDM__T_K_NORM,          /* Norm of the keys. */
    TDM__T_POST_NORM,       /* Norm after the attention, before the MLP. */
    TDM__T_GATE,            /* Gate projection of a dense MLP. */
    TDM__T_UP,              /* Up projection of a dense MLP. */
    TDM__T_DOWN,            /* Down projection of a dense MLP. */
    TDM__T_ROUTER,          /* Router that selects experts. */
    TDM__T_ROUTER_BIAS,     /* Bias of the router. */
    TDM__T_EXPERT_GATE,     /* Gate projection of an expert. */
    TDM__T_EXPERT_UP,       /* Up projection of an expert. */
    TDM__T_EXPERT_DOWN,     /* Down projection of an expert. */
    TDM__T_SHARED_GATE,     /* Gate projection of the shared experts. */
    TDM__T_SHARED_UP,       /* Up projection of the shared experts. */
    TDM__T_SHARED_DOWN,     /* Down projection of the shared experts. */
    TDM__T_MTP_EMBED,       /* Multi-token prediction: embedding of the tokens. */
    TDM__T_MTP_EMBED_NORM,  /* Multi-token prediction: norm of embeddings. */
    TDM__T_MTP_HIDDEN_NORM, /* Multi-token prediction: norm of the hidden state. */
    /* Multi-token prediction: projection that joins embedding and hidden state. */
    TDM__T_MTP_PROJECTION,
    TDM__T_MTP_NORM, /* Multi-token prediction: final norm. */
    /* Last template of a layer: output layer of multi-token prediction. */
    TDM__T_MTP_HEAD,
    TDM__T_NORM,                /* Norm after the model's last layer. */
    TDM__T_HEAD,                /* Output layer of the model. */
    TDM__TENSOR_TEMPLATES_COUNT /* Number of templates in this enum. */
};

/* Features of a model that a template or a layout's rule may require. */
enum {
    TDM__FEATURE_GROUPED = 1 << 0,     /* The model has grouped-query attention. */
    TDM__FEATURE_LATENT = 1 << 1,      /* The model has multi-head latent attention. */
    TDM__FEATURE_BIAS = 1 << 2,        /* The projections of the model's attention have a bias. */
    TDM__FEATURE_QK_NORM = 1 << 3,     /* The model's attention has norms of queries and keys. */
    TDM__FEATURE_ROUTER_BIAS = 1 << 4, /* The model's expert routers have a bias. */
    TDM__FEATURE_SHARED = 1 << 5,      /* The model has shared experts. */
    TDM__FEATURE_TIED = 1 << 6,        /* The model's output layer is the embedding. */
    TDM__FEATURE_UNTIED = 1 << 7,      /* The model's output layer is a tensor of its own. */
    TDM__FEATURE_MTP = 1 << 8          /* The model has layers of multi-token prediction. */
};

/* How a tensor may be stored. */
enum tdm__tensor_kind {
    TDM__TENSOR_KIND_LINEAR, /* The tensor may be stored as FP8. */
    TDM__TENSOR_KIND_PLAIN,  /* The tensor is never stored as FP8. */
    TDM__TENSOR_KIND_F32,    /* The tensor is float32 in every layout and never cast. */
    /* The tensor holds the FP8 scales of the linear tensor before it in the list. */
    TDM__TENSOR_KIND_SCALE
};

/* Largest number of tensors of a model. */
enum { TDM__MODEL_TENSORS_MAX = 1 << 18 };

/* One tensor in the list of a model's tensors. */
struct tdm__model_tensor {
    uint8_t kind;        /* How the tensor may be stored, an enum tdm__tensor_kind. */
    uint8_t template_id; /* Template that describes the tensor, an enum tdm__tensor_template. */
    uint8_t dims_count;  /* Number of dimensions, 1 or 2; if 1, columns is 1. */
    uint8_t dtype;       /* Data type in which the model is published, an enum tdm_dtype. */
    /* Index of the layer to which the tensor belongs; 0 if it belongs to no layer. */
    uint16_t layer;
    /* Index of the expert to which the tensor belongs; 0 if it belongs to no expert. */
    uint16_t expert;
    uint32_t rows;    /* Number of elements in dimension 0. */
    uint32_t columns; /* Number of elements in dimension 1; 1 for a vector. */
};

/* The size of a dimension of templates in one model. Its units are what no layout divides:
 * attention heads, or single elements. */
struct tdm__template_dim {
    uint32_t size;  /* Number of elements in the dimension. */
    uint32_t units; /* Number of units (for example attention heads) that the elements form. */
};

enum {
    TDM__TEMPLATE_DIMS_COUNT = 18, /* Number of named dimensions that templates use. */
    /* Number of kinds of layer: dense, with experts, multi-token prediction. */
    TDM__LAYER_KINDS = 3
};

/* The tensors of a model. It does not change after its creation; the caller of create owns it. */
struct tdm__model {
    struct tdm__model_config config; /* Sizes and variants of the model, as in its config.json. */
    uint32_t features;               /* TDM__FEATURE_… bits that the model has. */
    /* Number of layers, those of multi-token prediction included. */
    uint32_t layers_count;
    /* True if linear tensors have FP8 scales, because the model is published in FP8 or a layout
     * needs them. */
    bool has_scales;
    uint32_t tensors_count; /* Number of tensors of the model. */
    /* Tensors of the model in the order of the layers; owned array of tensors_count. */
    struct tdm__model_tensor *tensors;
    /* For each dimension that templates use, its size in this model. */
    struct tdm__template_dim dims[TDM__TEMPLATE_DIMS_COUNT];
    /* Index in `tensors` of the first tensor of each layer. */
    uint32_t layer_first_tensors[TDM__LAYERS_MAX + 16 + 1];
    /* For each kind of layer and each template, the position of its first tensor in such a layer.
     * For a template outside of layers its index in `tensors`, under kind 0. */
    uint32_t template_positions[TDM__LAYER_KINDS][TDM__TENSOR_TEMPLATES_COUNT];
    uint32_t tensors_per_expert; /* Number of tensors that each expert has in a layer. */
};

/* Options of tdm__model_create(). */
struct tdm__model_options {
    /* True to include the layers of multi-token prediction. */
    bool mtp;
    /* True to include the scales that FP8 layouts need, even if the model is not published in
     * FP8. */
    bool scales;
};

/* Creates the list of tensors of a model with this config. Returns TDM_E_LIMIT if a tensor has more
 * than 2^32 - 1 elements or there are too many tensors. */
tdm_status tdm__model_create(const struct tdm__model_config *config,
                             const struct tdm__model_options *options,
                             struct tdm__model **model_out);
/* Frees a model and its list of tensors. NULL is allowed. */
void tdm__model_destroy(struct tdm__model *model);

/* Returns the index in the model's list of the tensor that a template describes. `layer` and
 * `expert` are 0 for tensors outside of layers or experts. If the model has scales and the tensor
 * is linear, the next index is the tensor's scale. */
uint32_t tdm__model_tensor_index(const struct tdm__model *model,
                                 enum tdm__tensor_template template_id, uint32_t layer,
                                 uint32_t expert);
/* Returns true if layer number `layer` has experts, as layers of multi-token prediction do. */
bool tdm__model_layer_has_experts(const struct tdm__model *model, uint32_t layer);
/* Returns the number of units of axis 0 (rows) or 1 (columns) of a template's tensors. A unit is
 * what no layout divides: an attention head or a single element. */
uint32_t tdm__model_axis_units(const struct tdm__model *model,
                               enum tdm__tensor_template template_id, uint32_t axis);

/* Writes to `name` the name of a tensor in Hugging Face's files, and returns `name`. */
const char *tdm__model_tensor_name(const struct tdm__model *model, uint32_t tensor,
                                   char name[TDM_TENSOR_NAME_BYTES_MAX]);
/* Returns the size in bytes of a tensor in the dtype in which the model is published. */
uint64_t tdm__model_tensor_bytes(const struct tdm__model *model, uint32_t tensor);
/* Returns the size in bytes of all tensors in the dtypes in which the model is published. */
uint64_t tdm__model_bytes(const struct tdm__model *model);

/* Copies `pattern` to `name` with {L} and {e} replaced by numbers. A name that is too long is
 * truncated. */
void tdm__tensor_name_expand(const char *pattern, uint32_t layer, uint32_t expert,
                             char name[TDM_TENSOR_NAME_BYTES_MAX]);

#endif
