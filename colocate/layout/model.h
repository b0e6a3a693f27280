/* model.h - the list of a model's tensors, made of its config. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_MODEL_H
#define TDM_COLOCATE_LAYOUT_MODEL_H

#include "colocate/layout/model_config.h"
#include "colocate/transfer/casts.h"

/* Every layout is described by what it does to these tensors, which have Hugging Face's names
 * and shapes.  They come from one table of templates for all families: a template stands for a
 * tensor per model, per layer or per expert, and is left out where the model lacks what it
 * needs.  In this table all tensors have one or two dimensions; a vector is a column. */

enum tdm__tensor_template {
    TDM__T_EMBED,
    TDM__T_INPUT_NORM, /* of every layer, from here … */
    TDM__T_Q,
    TDM__T_Q_BIAS,
    TDM__T_K,
    TDM__T_K_BIAS,
    TDM__T_V,
    TDM__T_V_BIAS,
    TDM__T_Q_A,
    TDM__T_Q_A_NORM,
    TDM__T_Q_B,
    TDM__T_KV_A,
    TDM__T_KV_A_NORM,
    TDM__T_KV_B,
    TDM__T_O,
    TDM__T_Q_NORM,
    TDM__T_K_NORM,
    TDM__T_POST_NORM,
    TDM__T_GATE,
    TDM__T_UP,
    TDM__T_DOWN,
    TDM__T_ROUTER,
    TDM__T_ROUTER_BIAS,
    TDM__T_EXPERT_GATE,
    TDM__T_EXPERT_UP,
    TDM__T_EXPERT_DOWN,
    TDM__T_SHARED_GATE,
    TDM__T_SHARED_UP,
    TDM__T_SHARED_DOWN,
    TDM__T_MTP_EMBED,
    TDM__T_MTP_EMBED_NORM,
    TDM__T_MTP_HIDDEN_NORM,
    TDM__T_MTP_PROJECTION,
    TDM__T_MTP_NORM,
    TDM__T_MTP_HEAD, /* … to here */
    TDM__T_NORM,
    TDM__T_HEAD,
    TDM__TENSOR_TEMPLATES_COUNT
};

/* What a template, or a layout's rule, may need of a model. */
enum {
    TDM__FEATURE_GROUPED = 1 << 0, /* grouped-query attention */
    TDM__FEATURE_LATENT = 1 << 1,  /* multi-head latent attention */
    TDM__FEATURE_BIAS = 1 << 2,
    TDM__FEATURE_QK_NORM = 1 << 3,
    TDM__FEATURE_ROUTER_BIAS = 1 << 4,
    TDM__FEATURE_SHARED = 1 << 5,
    TDM__FEATURE_TIED = 1 << 6,
    TDM__FEATURE_UNTIED = 1 << 7,
    TDM__FEATURE_MTP = 1 << 8
};

enum tdm__tensor_kind {
    TDM__TENSOR_KIND_LINEAR, /* what may be stored as FP8 */
    TDM__TENSOR_KIND_PLAIN,  /* what never is */
    TDM__TENSOR_KIND_F32,    /* float32 in every layout, never cast */
    TDM__TENSOR_KIND_SCALE   /* of the linear tensor before it */
};

enum { TDM__MODEL_TENSORS_MAX = 1 << 18 };

struct tdm__model_tensor {
    uint8_t kind; /* enum tdm__tensor_kind */
    uint8_t template_id;
    uint8_t dims_count; /* 1: columns is 1 */
    uint8_t dtype;      /* as the model is published */
    uint16_t layer;
    uint16_t expert;
    uint32_t rows;
    uint32_t columns;
};

/* A dimension of a template.  Its units are what no layout cuts through: heads, or single
 * elements. */
struct tdm__template_dim {
    uint32_t size;
    uint32_t units;
};

enum { TDM__TEMPLATE_DIMS_COUNT = 18, TDM__LAYER_KINDS = 3 };

struct tdm__model {
    struct tdm__model_config config;
    uint32_t features;     /* TDM__FEATURE_… that it meets */
    uint32_t layers_count; /* with those of multi-token prediction */
    bool has_scales;       /* as it is published or as some layout wants it */
    uint32_t tensors_count;
    struct tdm__model_tensor *tensors; /* owned; in the order of the layers */
    struct tdm__template_dim dims[TDM__TEMPLATE_DIMS_COUNT];
    uint32_t layer_first_tensors[TDM__LAYERS_MAX + 16 + 1]; /* index of a layer's first tensor */
    uint32_t template_positions[TDM__LAYER_KINDS][TDM__TENSOR_TEMPLATES_COUNT]; /* in a layer */
    uint32_t tensors_per_expert; /* of one expert: the step between experts */
};

struct tdm__model_options {
    bool mtp;    /* with the layers of multi-token prediction */
    bool scales; /* with the scales that FP8 layouts need; else those of the config */
};

/* TDM_E_LIMIT names the first tensor over 2^32 - 1 elements, or says that there are too many.
 */
tdm_status tdm__model_create(const struct tdm__model_config *config,
                             const struct tdm__model_options *options,
                             struct tdm__model **model_out);
void tdm__model_destroy(struct tdm__model *model); /* NULL is allowed */

/* The index of the tensor of a template; `layer` and `expert` are 0 where it has none.  The
 * tensor's scale, if the model has scales and the tensor is linear, is the next index. */
uint32_t tdm__model_tensor_index(const struct tdm__model *model,
                                 enum tdm__tensor_template template_id, uint32_t layer,
                                 uint32_t expert);
bool tdm__model_layer_has_experts(const struct tdm__model *model, uint32_t layer);
/* Units that the template's dimension (0 or 1) is made of. */
uint32_t tdm__model_axis_units(const struct tdm__model *model,
                               enum tdm__tensor_template template_id, uint32_t axis);

/* Hugging Face's name, put into `name` and returned. */
const char *tdm__model_tensor_name(const struct tdm__model *model, uint32_t tensor,
                                   char name[TDM_TENSOR_NAME_BYTES_MAX]);
uint64_t tdm__model_tensor_bytes(const struct tdm__model *model, uint32_t tensor);
uint64_t tdm__model_bytes(const struct tdm__model *model);

/* Copies `pattern` into `name` with {L} and {e} replaced; what does not fit is cut. */
void tdm__tensor_name_expand(const char *pattern, uint32_t layer, uint32_t expert,
                             char name[TDM_TENSOR_NAME_BYTES_MAX]);

#endif
