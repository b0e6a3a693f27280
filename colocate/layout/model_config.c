/* model_config.c - the facts about a model that its config.json states. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The parser is driven by three tables: numbers, booleans, and fields whose value is fixed
 * because another value would mean other tensors. Each entry lists the model families that have
 * the field. A new family needs a constant in enum tdm__model_family, a name in family_names, and
 * its bits in the tables. There is no state; any thread may enter. */

#include "colocate/layout/model_config.h"

#include "runtime/error.h"
#include "runtime/file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    QWEN3 = 1 << TDM__MODEL_FAMILY_QWEN3,             /* Bit of the family Qwen3. */
    QWEN3_MOE = 1 << TDM__MODEL_FAMILY_QWEN3_MOE,     /* Bit of the family Qwen3 with experts. */
    GLM4_MOE = 1 << TDM__MODEL_FAMILY_GLM4_MOE,       /* Bit of the family GLM-4 with experts. */
    DEEPSEEK_V3 = 1 << TDM__MODEL_FAMILY_DEEPSEEK_V3, /* Bit of the family DeepSeek-V3. */
    ALL = QWEN3 | QWEN3_MOE | GLM4_MOE | DEEPSEEK_V3, /* Bits of all families. */
    WITH_EXPERTS = ALL & ~QWEN3,                      /* Bits of the families with experts. */
    GROUPED = ALL & ~DEEPSEEK_V3 /* Bits of the families with grouped-query attention. */
};

enum {
    WIDTH_MAX = 1 << 20,      /* Largest width of a hidden state or an MLP, in elements. */
    VOCABULARY_MAX = 1 << 24, /* Largest number of tokens in a vocabulary. */
    HEADS_MAX = 1 << 14       /* Largest number of attention heads of a layer. */
};

/* Value of the field model_type in config.json for each enum tdm__model_family. */
static const char *const family_names[] = {
    [TDM__MODEL_FAMILY_QWEN3] = "qwen3",
    [TDM__MODEL_FAMILY_QWEN3_MOE] = "qwen3_moe",
    [TDM__MODEL_FAMILY_GLM4_MOE] = "glm4_moe",
    [TDM__MODEL_FAMILY_DEEPSEEK_V3] = "deepseek_v3",
};

/* Number of supported model families. */
enum { FAMILIES_COUNT = sizeof(family_names) / sizeof(family_names[0]) };

/* A field of config.json whose value is a whole number. An optional field that is missing stays
 * 0. */
struct number_field {
    const char *key; /* Name of the field in config.json. */
    /* Offset of the uint32_t member in struct tdm__model_config. */
    size_t offset;
    uint32_t families; /* Bits of the model families whose config.json has the field. */
    uint32_t min;      /* Smallest allowed value of the field. */
    uint32_t max;      /* Largest allowed value of the field. */
    bool is_optional;  /* True if the field may be missing in config.json. */
};

/* Entry of number_fields: field `key` is read into `member` of struct tdm__model_config. */
#define NUMBER(key, member, ...)                                                                   \
    {                                                                                              \
        (key), offsetof(struct tdm__model_config, member), __VA_ARGS__                             \
    }

/* All fields of config.json whose value is a whole number. */
static const struct number_field number_fields[] = {
    NUMBER("num_hidden_layers", layers, ALL, 1, TDM__LAYERS_MAX, false),
    NUMBER("hidden_size", hidden, ALL, 1, WIDTH_MAX, false),
    NUMBER("vocab_size", vocabulary, ALL, 1, VOCABULARY_MAX, false),
    NUMBER("num_attention_heads", heads, ALL, 1, HEADS_MAX, false),
    NUMBER("num_key_value_heads", kv_heads, GROUPED, 1, HEADS_MAX, false),
    NUMBER("head_dim", head_dim, GROUPED, 1, 1 << 14, true),
    NUMBER("intermediate_size", ffn_width, ALL, 1, WIDTH_MAX, false),
    NUMBER("num_experts", experts, QWEN3_MOE, 1, 1 << 12, false),
    NUMBER("n_routed_experts", experts, GLM4_MOE | DEEPSEEK_V3, 1, 1 << 12, false),
    NUMBER("moe_intermediate_size", expert_ffn, WITH_EXPERTS, 1, WIDTH_MAX, false),
    NUMBER("n_shared_experts", shared_experts, GLM4_MOE | DEEPSEEK_V3, 0, 64, true),
    NUMBER("first_k_dense_replace", dense_layers, GLM4_MOE | DEEPSEEK_V3, 0, TDM__LAYERS_MAX, true),
    NUMBER("num_nextn_predict_layers", mtp_layers, GLM4_MOE | DEEPSEEK_V3, 0, 16, true),
    NUMBER("q_lora_rank", q_lora_rank, DEEPSEEK_V3, 1, WIDTH_MAX, false),
    NUMBER("kv_lora_rank", kv_lora_rank, DEEPSEEK_V3, 1, WIDTH_MAX, false),
    NUMBER("qk_nope_head_dim", qk_nope_head_dim, DEEPSEEK_V3, 1, 1 << 14, false),
    NUMBER("qk_rope_head_dim", qk_rope_head_dim, DEEPSEEK_V3, 1, 1 << 14, false),
    NUMBER("v_head_dim", v_head_dim, DEEPSEEK_V3, 1, 1 << 14, false),
};

/* Boolean fields of config.json; a field that is missing stays false. */
static const struct {
    const char *key;   /* Name of the field in config.json. */
    size_t offset;     /* Offset of the bool member in struct tdm__model_config. */
    uint32_t families; /* Bits of the model families whose config.json has the field. */
} boolean_fields[] = {
    {"tie_word_embeddings", offsetof(struct tdm__model_config, tied_embeddings), ALL},
    {"attention_bias", offsetof(struct tdm__model_config, attention_bias), GROUPED},
    {"use_qk_norm", offsetof(struct tdm__model_config, qk_norm), GLM4_MOE},
};

/* Fields of config.json that must have this value if they are present, because another value would
 * mean other tensors. */
static const struct {
    const char *key;   /* Name of the field in config.json. */
    json_int_t value;  /* The only value that the field may have. */
    uint32_t families; /* Bits of the model families whose config.json has the field. */
} fixed_fields[] = {
    {"decoder_sparse_step", 1, QWEN3_MOE},
    {"moe_layer_freq", 1, DEEPSEEK_V3},
};

/* Number of elements of an array. */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Returns true if a field of config.json is missing or null. */
static bool is_missing(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

/* Reads all fields of config.json that number_fields lists. */
static tdm_status read_numbers(const json_t *root, const char *name,
                               struct tdm__model_config *config)
{
    for (size_t i = 0; i < COUNT(number_fields); i++) {
        const struct number_field *field = &number_fields[i];
        const json_t *value = json_object_get(root, field->key);
        json_int_t number = json_integer_value(value);

        if ((field->families >> config->family & 1) == 0 ||
            (field->is_optional && is_missing(value))) {
            continue;
        }
        if (!json_is_integer(value) || number < field->min || number > field->max) {
            return tdm__fail(TDM_E_PROTOCOL, "%s: \"%s\" wants a whole number, %u to %u", name,
                             field->key, field->min, field->max);
        }
        *(uint32_t *)((char *)config + field->offset) = (uint32_t)number;
    }
    return TDM_OK;
}

/* Reads all fields of config.json that boolean_fields lists. */
static tdm_status read_booleans(const json_t *root, const char *name,
                                struct tdm__model_config *config)
{
    for (size_t i = 0; i < COUNT(boolean_fields); i++) {
        const json_t *value = json_object_get(root, boolean_fields[i].key);

        if ((boolean_fields[i].families >> config->family & 1) == 0 || is_missing(value)) {
            continue;
        }
        if (!json_is_boolean(value)) {
            return tdm__fail(TDM_E_PROTOCOL, "%s: \"%s\" wants true or false", name,
                             boolean_fields[i].key);
        }
        *(bool *)((char *)config + boolean_fields[i].offset) = json_is_true(value);
    }
    return TDM_OK;
}

/* Checks the fields of config.json that may have one value only: those of fixed_fields, and
 * mlp_only_layers. */
static tdm_status check_fixed_values(const json_t *root, const char *name,
                                     const struct tdm__model_config *config)
{
    const json_t *dense = json_object_get(root, "mlp_only_layers");

    for (size_t i = 0; i < COUNT(fixed_fields); i++) {
        const json_t *value = json_object_get(root, fixed_fields[i].key);

        if ((fixed_fields[i].families >> config->family & 1) != 0 && !is_missing(value) &&
            json_integer_value(value) != fixed_fields[i].value) {
            return tdm__fail(TDM_E_UNSUPPORTED, "%s: \"%s\" is known as %lld only", name,
                             fixed_fields[i].key, (long long)fixed_fields[i].value);
        }
    }
    if (config->family == TDM__MODEL_FAMILY_QWEN3_MOE && !is_missing(dense) &&
        (!json_is_array(dense) || json_array_size(dense) != 0)) {
        return tdm__fail(TDM_E_UNSUPPORTED, "%s: \"mlp_only_layers\" is known as [] only", name);
    }
    return TDM_OK;
}

/* Reads the model family from model_type. */
static tdm_status read_family(const json_t *root, const char *name,
                              struct tdm__model_config *config)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));

    if (type == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: \"model_type\" wants a string", name);
    }
    for (int i = 0; i < FAMILIES_COUNT; i++) {
        if (strcmp(family_names[i], type) == 0) {
            config->family = (enum tdm__model_family)i;
            return TDM_OK;
        }
    }
    return tdm__fail(TDM_E_UNSUPPORTED,
                     "%s: model_type \"%.64s\"; known are qwen3, qwen3_moe, glm4_moe and "
                     "deepseek_v3",
                     name, type);
}

/* Reads the dtype from torch_dtype or dtype; bfloat16 if both are missing. */
static tdm_status read_dtype(const json_t *root, const char *name, struct tdm__model_config *config)
{
    const json_t *value = json_object_get(root, "torch_dtype");
    const char *word;

    value = value == NULL ? json_object_get(root, "dtype") : value;
    word = is_missing(value) ? "bfloat16" : json_string_value(value);
    if (word != NULL && strcmp(word, "bfloat16") == 0) {
        config->dtype = TDM_BF16;
    } else if (word != NULL && strcmp(word, "float16") == 0) {
        config->dtype = TDM_F16;
    } else if (word != NULL && strcmp(word, "float32") == 0) {
        config->dtype = TDM_F32;
    } else {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "%s: \"torch_dtype\" is known as \"bfloat16\", \"float16\" and "
                         "\"float32\"",
                         name);
    }
    return TDM_OK;
}

/* Reads quantization_config: only FP8 with blocks of 128 x 128 is supported. */
static tdm_status read_quantization(const json_t *root, const char *name,
                                    struct tdm__model_config *config)
{
    const json_t *quantization = json_object_get(root, "quantization_config");
    const json_t *block = json_object_get(quantization, "weight_block_size");
    const char *method = json_string_value(json_object_get(quantization, "quant_method"));

    if (is_missing(quantization)) {
        return TDM_OK;
    }
    if (method == NULL || strcmp(method, "fp8") != 0 || json_array_size(block) != 2 ||
        json_integer_value(json_array_get(block, 0)) != 128 ||
        json_integer_value(json_array_get(block, 1)) != 128) {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "%s: \"quantization_config\" is known with quant_method \"fp8\" and "
                         "weight_block_size [128, 128] only",
                         name);
    }
    config->fp8 = true;
    return TDM_OK;
}

/* Sets the config's members that follow from the model family, and checks members that depend on
 * each other. */
static tdm_status check_complete(const char *name, struct tdm__model_config *config)
{
    bool latent = config->family == TDM__MODEL_FAMILY_DEEPSEEK_V3;

    config->qk_norm |= config->family != TDM__MODEL_FAMILY_GLM4_MOE && !latent;
    config->router_bias = latent || config->family == TDM__MODEL_FAMILY_GLM4_MOE;
    if (config->experts == 0) {
        config->dense_layers = config->layers;
    }
    if (config->dense_layers > config->layers) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: %u dense layers of %u", name, config->dense_layers,
                         config->layers);
    }
    if (latent) {
        config->kv_heads = config->heads;
        return TDM_OK;
    }
    if (config->heads % config->kv_heads != 0) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: %u attention heads for %u key-value heads", name,
                         config->heads, config->kv_heads);
    }
    if (config->head_dim == 0) {
        config->head_dim = config->hidden / config->heads;
    }
    if (config->head_dim == 0) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: %u attention heads in %u numbers", name,
                         config->heads, config->hidden);
    }
    return TDM_OK;
}

/* Reads a model's config from the root of its JSON text; `name` is the file's name for errors. */
static tdm_status read_config(const json_t *root, const char *name,
                              struct tdm__model_config *config)
{
    if (!json_is_object(root)) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: not an object", name);
    }
    TDM_TRY(read_family(root, name, config));
    TDM_TRY(read_numbers(root, name, config));
    TDM_TRY(read_booleans(root, name, config));
    TDM_TRY(read_dtype(root, name, config));
    TDM_TRY(read_quantization(root, name, config));
    TDM_TRY(check_fixed_values(root, name, config));
    return check_complete(name, config);
}

tdm_status tdm__model_config_parse(const char *text, size_t size_bytes, const char *name,
                                   struct tdm__model_config *config_out)
{
    struct tdm__model_config config = {.layers = 0};
    json_error_t error;
    tdm_status status;
    json_t *root;

    if (size_bytes > TDM__CONFIG_BYTES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: %zu bytes, over %d", name, size_bytes,
                         TDM__CONFIG_BYTES_MAX);
    }
    root = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: line %d: %s", name, error.line, error.text);
    }
    status = read_config(root, name, &config);
    json_decref(root);
    if (status == TDM_OK) {
        *config_out = config;
    }
    return status;
}

tdm_status tdm__model_config_read(const char *path, struct tdm__model_config *config_out)
{
    tdm_status status;
    size_t size_bytes;
    char *text;

    TDM_TRY(tdm__file_read(path, TDM__CONFIG_BYTES_MAX, &text, &size_bytes));
    status = tdm__model_config_parse(text, size_bytes, path, config_out);
    free(text);
    return status;
}
