/* model_config.h - the facts about a model that its config.json states. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_MODEL_CONFIG_H
#define TDM_COLOCATE_LAYOUT_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/tensor.h>

/* Model families that are supported. */
enum tdm__model_family {
    TDM__MODEL_FAMILY_QWEN3,      /* Qwen3 models with dense layers. */
    TDM__MODEL_FAMILY_QWEN3_MOE,  /* Qwen3 models with experts. */
    TDM__MODEL_FAMILY_GLM4_MOE,   /* GLM-4.5 and GLM-4.6 models, which have experts. */
    TDM__MODEL_FAMILY_DEEPSEEK_V3 /* DeepSeek-V3 and models with the same architecture. */
};

enum {
    TDM__CONFIG_BYTES_MAX = 1 << 20, /* Largest size of a config.json in bytes. */
    TDM__LAYERS_MAX = 1024           /* Largest number of layers of a model. */
};

/* The sizes and variants of a model. Fields that a family does not have are 0. */
struct tdm__model_config {
    enum tdm__model_family family; /* Family of the model. */
    enum tdm_dtype dtype;          /* Data type of the published weights, unless `fp8` is set. */
    /* Number of layers, without those of multi-token prediction. */
    uint32_t layers;
    uint32_t hidden;         /* Width of the hidden state. */
    uint32_t vocabulary;     /* Number of tokens in the vocabulary. */
    uint32_t heads;          /* Number of attention heads in a layer. */
    uint32_t kv_heads;       /* Number of key-value heads in a layer. */
    uint32_t head_dim;       /* Number of elements of an attention head. */
    uint32_t ffn_width;      /* Width of the MLP in a dense layer. */
    uint32_t experts;        /* Number of routed experts per layer. */
    uint32_t expert_ffn;     /* Width of an expert's MLP. */
    uint32_t shared_experts; /* Number of shared experts per layer. */
    /* Number of layers at the start that have no experts; all layers if the model has no experts.
     */
    uint32_t dense_layers;
    /* Number of layers of multi-token prediction after the last layer. */
    uint32_t mtp_layers;
    /* Multi-head latent attention: rank of the query's compression. */
    uint32_t q_lora_rank;
    /* Multi-head latent attention: rank of the key-value compression. */
    uint32_t kv_lora_rank;
    /* Multi-head latent attention: elements of a head without rotary position. */
    uint32_t qk_nope_head_dim;
    /* Multi-head latent attention: elements of a head with rotary position. */
    uint32_t qk_rope_head_dim;
    /* Multi-head latent attention: elements of a value head. */
    uint32_t v_head_dim;
    bool tied_embeddings; /* True if the output layer is the embedding. */
    /* True if the attention's projections have a bias. */
    bool attention_bias;
    bool qk_norm;     /* True if queries and keys have norms. */
    bool router_bias; /* True if the expert router has a bias. */
    /* True if linear weights are stored as e4m3 with a scale per block of 128 x 128. */
    bool fp8;
};

/* Parses the text of a model's config.json; `name` is the file's name for errors. Fails with
 * TDM_E_PROTOCOL for invalid JSON and for a field of a wrong type or range, and with
 * TDM_E_UNSUPPORTED for a model_type or variant that is not supported. Both name the file and the
 * field. Fields that do not affect tensors are ignored. */
tdm_status tdm__model_config_parse(const char *text, size_t size_bytes, const char *name,
                                   struct tdm__model_config *config_out);
/* Reads and parses the config.json at `path`; see tdm__model_config_parse(). */
tdm_status tdm__model_config_read(const char *path, struct tdm__model_config *config_out);

#endif
