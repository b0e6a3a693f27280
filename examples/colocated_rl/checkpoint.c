/* checkpoint.c - files that a trainer saves: its own state, and a Hugging Face model. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/checkpoint.h"

#include "examples/colocated_rl/text_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ARRAYS_MAX = 8, PATH_BYTES_MAX = 1024 };

static const char counters_name[] = "counters";

static tdm_status make_path(char path[PATH_BYTES_MAX], const char *directory, const char *name)
{
    int bytes = snprintf(path, PATH_BYTES_MAX, "%s/%s", directory, name);

    return bytes >= 0 && bytes < PATH_BYTES_MAX
               ? TDM_OK
               : tdm_fail(TDM_E_LIMIT, "the path %s/%s is too long", directory, name);
}

static tdm_status rank_path(char path[PATH_BYTES_MAX], const char *directory, int64_t rank)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "rank-%" PRId64 ".safetensors", rank);
    return make_path(path, directory, name);
}

static struct tdm_tensor_view vector_view(const char *name, enum tdm_dtype dtype, size_t count,
                                          const void *data)
{
    return (struct tdm_tensor_view){
        .info = {.name = name, .dtype = dtype, .dims_count = 1, .shape = {count}},
        .stride = {1},
        .data = data,
    };
}

static size_t counters_count(void)
{
    return sizeof(struct checkpoint_counters) / sizeof(int64_t);
}

tdm_status checkpoint_write(const char *directory, const struct checkpoint_counters *counters,
                            const struct checkpoint_array *arrays, uint32_t arrays_count,
                            size_t count)
{
    struct tdm_tensor_view views[ARRAYS_MAX + 1];
    char path[PATH_BYTES_MAX];

    if (arrays_count > ARRAYS_MAX) {
        return tdm_fail(TDM_E_LIMIT, "%" PRIu32 " arrays, at most %d", arrays_count, ARRAYS_MAX);
    }
    for (uint32_t i = 0; i < arrays_count; i++) {
        views[i] = vector_view(arrays[i].name, TDM_F32, count, arrays[i].values);
    }
    views[arrays_count] = vector_view(counters_name, TDM_I64, counters_count(), counters);
    TDM_TRY(rank_path(path, directory, counters->rank));
    return tdm_safetensors_write(path, views, arrays_count + 1);
}

/* The contents of the vector of that name and size. */
static tdm_status find_vector(const tdm_safetensors *file, const struct tdm_tensor_view *want,
                              const void **data_out)
{
    const struct tdm_tensor_view *view = tdm_safetensors_find(file, want->info.name);

    if (view == NULL || view->info.dtype != want->info.dtype || view->info.dims_count != 1 ||
        view->info.shape[0] != want->info.shape[0]) {
        return tdm_fail(TDM_E_STATE, "the saved state has no %s of %" PRIu64 " × %s",
                        want->info.name, want->info.shape[0], tdm_dtype_name(want->info.dtype));
    }
    *data_out = view->data;
    return TDM_OK;
}

static tdm_status read_counters(const tdm_safetensors *file, struct checkpoint_counters *counters)
{
    struct tdm_tensor_view want = vector_view(counters_name, TDM_I64, counters_count(), NULL);
    struct checkpoint_counters saved;
    const void *data = NULL;

    TDM_TRY(find_vector(file, &want, &data));
    memcpy(&saved, data, sizeof(saved));
    if (saved.rank != counters->rank || saved.ranks_count != counters->ranks_count ||
        saved.elements != counters->elements) {
        return tdm_fail(TDM_E_STATE,
                        "saved by rank %" PRId64 " of %" PRId64 " of a model of %" PRId64
                        " parameters; this is rank %" PRId64 " of %" PRId64 ", %" PRId64
                        " parameters",
                        saved.rank, saved.ranks_count, saved.elements, counters->rank,
                        counters->ranks_count, counters->elements);
    }
    *counters = saved;
    return TDM_OK;
}

static tdm_status read_all(const tdm_safetensors *file, struct checkpoint_counters *counters,
                           const struct checkpoint_array *arrays, uint32_t arrays_count,
                           size_t count)
{
    TDM_TRY(read_counters(file, counters));
    for (uint32_t i = 0; i < arrays_count; i++) {
        struct tdm_tensor_view want = vector_view(arrays[i].name, TDM_F32, count, NULL);
        const void *data = NULL;

        TDM_TRY(find_vector(file, &want, &data));
        memcpy(arrays[i].values, data, count * sizeof(float));
    }
    return TDM_OK;
}

tdm_status checkpoint_read(const char *directory, struct checkpoint_counters *counters,
                           const struct checkpoint_array *arrays, uint32_t arrays_count,
                           size_t count)
{
    char path[PATH_BYTES_MAX];
    tdm_safetensors *file;
    tdm_status status;

    TDM_TRY(rank_path(path, directory, counters->rank));
    TDM_TRY(tdm_safetensors_open(path, &file));
    status = read_all(file, counters, arrays, arrays_count, count);
    tdm_safetensors_close(file);
    return status;
}

static tdm_status write_tensors(const char *directory, const struct settings *settings,
                                const struct model *model, const float *weights)
{
    struct tdm_tensor_view *views = calloc(model->tensors_count, sizeof(*views));
    tdm_status status;

    if (views == NULL) {
        return tdm_fail(TDM_E_NOMEM, "views of %" PRIu32 " tensors", model->tensors_count);
    }
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct tdm_tensor_info *info = &model->tensors[i];

        views[i].info = *info;
        views[i].stride[0] = info->dims_count == 2 ? info->shape[1] : 1;
        views[i].stride[1] = 1;
        views[i].data = weights + model->offsets[i];
    }
    status = tdm_safetensors_write_model(directory, views, model->tensors_count,
                                         (uint64_t)settings->max_shard_kib << 10);
    free(views);
    return status;
}

/* Writes config.json. It has rope_theta twice, because transformers 4 reads it at the top level and
 * transformers 5 inside rope_parameters. */
static tdm_status write_config(const char *directory, const struct settings *settings)
{
    const struct model_shape *shape = &settings->shape;
    struct text_file file;

    TDM_TRY(text_file_open(&file, directory, "config.json"));
    (void)fprintf(file.stream,
                  "{\n  \"architectures\": [\"Qwen3ForCausalLM\"],\n"
                  "  \"model_type\": \"qwen3\",\n  \"vocab_size\": %" PRIu32
                  ",\n  \"hidden_size\": %" PRIu32 ",\n  \"num_hidden_layers\": %" PRIu32
                  ",\n  \"num_attention_heads\": %" PRIu32 ",\n  \"num_key_value_heads\": %" PRIu32
                  ",\n  \"head_dim\": %" PRIu32 ",\n  \"intermediate_size\": %" PRIu32
                  ",\n  \"max_position_embeddings\": %" PRIu32 ",\n",
                  shape->vocab_size, shape->hidden_size, shape->num_hidden_layers,
                  shape->num_attention_heads, shape->num_key_value_heads, shape->head_dim,
                  shape->intermediate_size, shape->max_position_embeddings);
    (void)fprintf(file.stream,
                  "  \"rms_norm_eps\": %.9g,\n  \"rope_theta\": %.9g,\n"
                  "  \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %.9g},\n"
                  "  \"tie_word_embeddings\": %s,\n  \"initializer_range\": %.9g,\n",
                  (double)shape->rms_norm_eps, (double)shape->rope_theta, (double)shape->rope_theta,
                  shape->tie_word_embeddings ? "true" : "false", settings->initializer_range);
    (void)fprintf(file.stream,
                  "  \"hidden_act\": \"silu\",\n  \"attention_bias\": false,\n"
                  "  \"attention_dropout\": 0.0,\n  \"use_sliding_window\": false,\n"
                  "  \"use_cache\": true,\n  \"bos_token_id\": null,\n"
                  "  \"eos_token_id\": %d,\n  \"pad_token_id\": %d,\n"
                  "  \"torch_dtype\": \"float32\"\n}\n",
                  TOKEN_END, TOKEN_PAD);
    return text_file_close(&file);
}

static tdm_status write_generation_config(const char *directory, const struct settings *settings)
{
    struct text_file file;

    TDM_TRY(text_file_open(&file, directory, "generation_config.json"));
    (void)fprintf(file.stream,
                  "{\n  \"do_sample\": false,\n  \"eos_token_id\": %d,\n"
                  "  \"pad_token_id\": %d,\n  \"max_new_tokens\": %" PRIu32 "\n}\n",
                  TOKEN_END, TOKEN_PAD, settings->answer_max);
    return text_file_close(&file);
}

tdm_status checkpoint_write_model(const char *directory, const struct settings *settings,
                                  const struct model *model, const float *weights)
{
    char path[PATH_BYTES_MAX];
    char reason[64];

    TDM_TRY(make_path(path, directory, "hf"));
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        return tdm_fail(TDM_E_IO, "mkdir %s: %s", path, strerror_r(errno, reason, sizeof(reason)));
    }
    TDM_TRY(write_tensors(path, settings, model, weights));
    TDM_TRY(write_config(path, settings));
    TDM_TRY(write_generation_config(path, settings));
    return tokenizer_write(&settings->tokenizer, path);
}
