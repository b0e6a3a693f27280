/* model_config.h - the facts about a model that its config.json states. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_MODEL_CONFIG_H
#define TDM_COLOCATE_LAYOUT_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/tensor.h>

enum tdm__model_family {
    TDM__MODEL_FAMILY_QWEN3,
    TDM__MODEL_FAMILY_QWEN3_MOE,
    TDM__MODEL_FAMILY_GLM4_MOE,
    TDM__MODEL_FAMILY_DEEPSEEK_V3
};

enum { TDM__CONFIG_BYTES_MAX = 1 << 20, TDM__LAYERS_MAX = 1024 };

/* What a family does not have is 0. */
struct tdm__model_config {
    enum tdm__model_family family;
    enum tdm_dtype dtype;
    uint32_t layers;
    uint32_t hidden;
    uint32_t vocabulary;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t ffn_width; /* width of a dense layer's MLP */
    uint32_t experts;   /* routed, per layer */
    uint32_t expert_ffn;
    uint32_t shared_experts;
    uint32_t dense_layers; /* the first layers that have no experts; all, without experts */
    uint32_t mtp_layers;   /* multi-token prediction, behind the last layer */
    uint32_t q_lora_rank;  /* multi-head latent attention, from here … */
    uint32_t kv_lora_rank;
    uint32_t qk_nope_head_dim;
    uint32_t qk_rope_head_dim;
    uint32_t v_head_dim;  /* … to here */
    bool tied_embeddings; /* the output layer is the embedding */
    bool attention_bias;
    bool qk_norm;
    bool router_bias;
    bool fp8; /* linear weights are stored as e4m3 with a scale for each block of 128 x 128 */
};

/* TDM_E_PROTOCOL for what is no JSON or a field of another type or out of its range,
 * TDM_E_UNSUPPORTED for a model_type or a variant that is not known; both name the file and the
 * field.  Fields that say nothing about tensors are not looked at. */
tdm_status tdm__model_config_parse(const char *text, size_t size_bytes, const char *name,
                                   struct tdm__model_config *config_out);
/* The same of a file. */
tdm_status tdm__model_config_read(const char *path, struct tdm__model_config *config_out);

#endif
