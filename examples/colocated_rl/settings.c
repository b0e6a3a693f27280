/* settings.c - what the job file says to this library. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* An integer setting of at least 1. */
struct count_setting {
    const char *key;     /* Key below the section's prefix. */
    uint32_t *value_out; /* Where the value is stored. */
    uint32_t otherwise;  /* Default value. */
};

/* A floating-point setting. */
struct number_setting {
    const char *key;   /* Key in the job file. */
    double *value_out; /* Where the value is stored. */
    /* Default value, and the smallest and largest value that is allowed. */
    double otherwise, least, most;
};

enum { KEY_BYTES_MAX = 96 };

/* Largest size of a file of the saved model in KiB without another setting: 5 GB, as transformers
 * has it. */
enum { MAX_SHARD_KIB = 5 * 1000 * 1000 };

/* Reads `count` integer settings below `prefix`. */
static tdm_status read_counts(const tdm_config *config, const char *prefix,
                              const struct count_setting *settings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char path[KEY_BYTES_MAX];
        int64_t value;

        (void)snprintf(path, sizeof(path), "%s%s", prefix, settings[i].key);
        TDM_TRY(tdm_config_int(config, path, settings[i].otherwise, &value));
        if (value < 1 || value > INT32_MAX) {
            return tdm_fail(TDM_E_INVAL, "%s: %s is %" PRId64 ", wanted 1 or more",
                            tdm_config_where(config, path), path, value);
        }
        *settings[i].value_out = (uint32_t)value;
    }
    return TDM_OK;
}

/* Reads `count` floating-point settings and checks their bounds. */
static tdm_status read_numbers(const tdm_config *config, const struct number_setting *settings,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct number_setting *setting = &settings[i];
        double value = 0;

        TDM_TRY(tdm_config_double(config, setting->key, setting->otherwise, &value));
        if (!(value >= setting->least && value <= setting->most)) {
            return tdm_fail(TDM_E_INVAL, "%s: %s is %g, wanted %g to %g",
                            tdm_config_where(config, setting->key), setting->key, value,
                            setting->least, setting->most);
        }
        *setting->value_out = value;
    }
    return TDM_OK;
}

/* Returns TDM_E_UNSUPPORTED for features of Qwen3 configurations that this library lacks. */
static tdm_status refuse_variants(const tdm_config *config, const char *prefix)
{
    static const char *const switches[] = {"attention_bias", "use_sliding_window"};
    char path[KEY_BYTES_MAX];
    const char *type;

    for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
        int on;

        (void)snprintf(path, sizeof(path), "%s%s", prefix, switches[i]);
        TDM_TRY(tdm_config_bool(config, path, 0, &on));
        if (on) {
            return tdm_fail(TDM_E_UNSUPPORTED,
                            "%s: %s must be false: this model does not implement it",
                            tdm_config_where(config, path), path);
        }
    }
    (void)snprintf(path, sizeof(path), "%smodel_type", prefix);
    TDM_TRY(tdm_config_string(config, path, "qwen3", &type));
    return strcmp(type, "qwen3") == 0
               ? TDM_OK
               : tdm_fail(TDM_E_UNSUPPORTED, "%s: %s is \"%s\", wanted \"qwen3\"",
                          tdm_config_where(config, path), path, type);
}

/* Reads the sizes of the model from the keys below `prefix`. */
static tdm_status read_shape(struct settings *settings, const tdm_config *config,
                             const char *prefix)
{
    struct model_shape *shape = &settings->shape;
    const struct count_setting counts[] = {
        {"vocab_size", &shape->vocab_size, tokenizer_vocab_size(&settings->tokenizer)},
        {"hidden_size", &shape->hidden_size, 64},
        {"num_hidden_layers", &shape->num_hidden_layers, 2},
        {"num_attention_heads", &shape->num_attention_heads, 8},
        {"num_key_value_heads", &shape->num_key_value_heads, 4},
        {"head_dim", &shape->head_dim, 16},
        {"intermediate_size", &shape->intermediate_size, 192},
        {"max_position_embeddings", &shape->max_position_embeddings, 64},
    };
    char theta_path[KEY_BYTES_MAX];
    char nested_path[KEY_BYTES_MAX];
    char eps_path[KEY_BYTES_MAX];
    char tie_path[KEY_BYTES_MAX];
    char refusal[256];
    const char *section = prefix[0] == '\0' ? "" : "model";
    tdm_status status;
    double theta;
    double eps;

    (void)snprintf(theta_path, sizeof(theta_path), "%srope_theta", prefix);
    (void)snprintf(nested_path, sizeof(nested_path), "%srope_parameters.rope_theta", prefix);
    (void)snprintf(eps_path, sizeof(eps_path), "%srms_norm_eps", prefix);
    (void)snprintf(tie_path, sizeof(tie_path), "%stie_word_embeddings", prefix);
    TDM_TRY(refuse_variants(config, prefix));
    TDM_TRY(read_counts(config, prefix, counts, sizeof(counts) / sizeof(counts[0])));
    TDM_TRY(read_numbers(config, &(struct number_setting){nested_path, &theta, 1e4, 1.0, 1e9},
                         1)); /* The place of rope_theta in configurations of transformers 5. */
    TDM_TRY(read_numbers(config, &(struct number_setting){theta_path, &theta, theta, 1.0, 1e9}, 1));
    TDM_TRY(read_numbers(config, &(struct number_setting){eps_path, &eps, 1e-6, 1e-12, 1e-1}, 1));
    TDM_TRY(tdm_config_bool(config, tie_path, 1, &shape->tie_word_embeddings));
    shape->rope_theta = (float)theta;
    shape->rms_norm_eps = (float)eps;
    status = model_shape_check(shape);
    if (status != TDM_OK) {
        (void)snprintf(refusal, sizeof(refusal), "%s", tdm_error_detail());
        return tdm_fail(status, "%s: %s", tdm_config_where(config, section), refusal);
    }
    return TDM_OK;
}

/* Reads the section `model`, or the config.json in the folder model.path. */
static tdm_status read_model(struct settings *settings, const tdm_config *config)
{
    const char *characters;
    char path[1024];
    tdm_config *file;
    tdm_status status;

    TDM_TRY(tdm_config_string(config, "model.characters", "0123456789<>", &characters));
    TDM_TRY(tokenizer_init(&settings->tokenizer, characters));
    TDM_TRY(tdm_config_string(config, "model.path", NULL, &settings->path));
    if (settings->path == NULL) {
        TDM_TRY(read_shape(settings, config, "model."));
    } else {
        (void)snprintf(path, sizeof(path), "%s/config.json", settings->path);
        TDM_TRY(tdm_config_read(path, &file));
        status = read_shape(settings, file, "");
        tdm_config_destroy(file);
        TDM_TRY(status);
    }
    if (settings->shape.vocab_size < tokenizer_vocab_size(&settings->tokenizer)) {
        return tdm_fail(TDM_E_INVAL,
                        "the model has %" PRIu32 " tokens, model.characters need %" PRIu32,
                        settings->shape.vocab_size, tokenizer_vocab_size(&settings->tokenizer));
    }
    return TDM_OK;
}

/* Reads the lengths of prompts and answers. */
static tdm_status read_lengths(struct settings *settings, const tdm_config *config)
{
    const struct count_setting rollout[] = {
        {"rollout_max_prompt_len", &settings->prompt_max, 8},
        {"rollout_max_response_len", &settings->answer_max, 5},
    };
    uint32_t context;

    TDM_TRY(read_counts(config, "rollout.", rollout, sizeof(rollout) / sizeof(rollout[0])));
    context = settings->prompt_max + settings->answer_max;
    if (context > settings->shape.max_position_embeddings) {
        return tdm_fail(TDM_E_INVAL,
                        "%s: prompts of %" PRIu32 " and answers of %" PRIu32
                        " tokens, but model.max_position_embeddings is %" PRIu32,
                        tdm_config_where(config, "rollout"), settings->prompt_max,
                        settings->answer_max, settings->shape.max_position_embeddings);
    }
    return TDM_OK;
}

/* Reads the settings of training. */
static tdm_status read_learning(struct settings *settings, const tdm_config *config)
{
    struct optimizer_settings *optimizer = &settings->optimizer;
    struct grpo_settings *grpo = &settings->grpo;
    const struct number_setting numbers[] = {
        {"rollout.temperature", &settings->temperature, 1.0, 1e-3, 1e3},
        {"model.initializer_range", &settings->initializer_range, 0.02, 0.0, 10.0},
        {"trainer.lr", &settings->schedule.lr, 2e-3, 0.0, 10.0},
        {"trainer.min_lr", &settings->schedule.min_lr, 2e-4, 0.0, 10.0},
        {"trainer.warmup_lr", &settings->warmup_schedule.lr, 3e-3, 0.0, 10.0},
        {"trainer.adam_beta1", &optimizer->beta1, 0.9, 0.0, 1.0},
        {"trainer.adam_beta2", &optimizer->beta2, 0.999, 0.0, 1.0},
        {"trainer.adam_eps", &optimizer->eps, 1e-8, 0.0, 1.0},
        {"trainer.weight_decay", &optimizer->weight_decay, 0.0, 0.0, 1e3},
        {"trainer.clip_grad", &optimizer->clip_grad, 1.0, 0.0, 1e6},
        {"trainer.eps_clip", &grpo->eps_clip, 0.2, 0.0, 1.0},
        {"trainer.kl_loss_coef", &grpo->kl_loss_coef, 0.0, 0.0, 1e3},
    };
    const struct number_setting high = {"trainer.eps_clip_high", &grpo->eps_clip_high, 0.0, 0.0,
                                        1e3};

    TDM_TRY(read_numbers(config, numbers, sizeof(numbers) / sizeof(numbers[0])));
    TDM_TRY(read_numbers(config, &high, 1));
    if (!tdm_config_has(config, high.key)) {
        grpo->eps_clip_high = grpo->eps_clip;
    }
    settings->warmup_schedule.min_lr = settings->warmup_schedule.lr;
    TDM_TRY(
        tdm_config_int(config, "trainer.lr_warmup_iters", 5, &settings->schedule.lr_warmup_iters));
    return tdm_config_int(config, "trainer.warmup_lr_warmup_iters", 10,
                          &settings->warmup_schedule.lr_warmup_iters);
}

/* Reads the capacities of trainer and engine. */
static tdm_status read_capacities(struct settings *settings, const tdm_config *config)
{
    const struct count_setting trainer[] = {
        {"max_tokens_per_gpu", &settings->max_tokens_per_gpu, 512},
        {"max_shard_kib", &settings->max_shard_kib, MAX_SHARD_KIB},
        {"replicas", &settings->replicas, 1}};
    const struct count_setting running = {"max_running_requests", &settings->max_running_requests,
                                          512};
    struct count_setting total = {"max_total_tokens", &settings->max_total_tokens, 0};
    uint32_t longest = settings->prompt_max + settings->answer_max;

    TDM_TRY(read_counts(config, "trainer.", trainer, sizeof(trainer) / sizeof(trainer[0])));
    TDM_TRY(read_counts(config, "engine.", &running, 1));
    total.otherwise = settings->max_running_requests * longest;
    TDM_TRY(read_counts(config, "engine.", &total, 1));
    if (settings->max_tokens_per_gpu < longest || settings->max_total_tokens < longest) {
        return tdm_fail(TDM_E_INVAL,
                        "trainer.max_tokens_per_gpu is %" PRIu32
                        " and engine.max_total_tokens %" PRIu32
                        ", but one prompt with its answer can take %" PRIu32 " tokens",
                        settings->max_tokens_per_gpu, settings->max_total_tokens, longest);
    }
    return TDM_OK;
}

tdm_status settings_read(struct settings *settings, const tdm_config *config)
{
    *settings = (struct settings){0};
    TDM_TRY(tdm_config_string(config, "cluster.device", "host", &settings->device));
    TDM_TRY(read_model(settings, config));
    TDM_TRY(read_lengths(settings, config));
    TDM_TRY(read_learning(settings, config));
    return read_capacities(settings, config);
}

double schedule_lr(const struct schedule *schedule, uint32_t step, uint32_t steps_count)
{
    double rise =
        schedule->lr_warmup_iters > 0 ? fmin(1.0, step / (double)schedule->lr_warmup_iters) : 1.0;
    double gone = steps_count > 0 ? fmin(1.0, step / (double)steps_count) : 0.0;

    return rise * (schedule->lr - (schedule->lr - schedule->min_lr) * gone);
}
