/* named_layout.c - parses the layout that a job file names, and assigns offsets to a rank's
 * tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A layout in the job file is a word or a map (docs/transfer-plans.md). It is completed with the
 * number of ranks and parsed by colocate/layout. The tensors of a rank are placed one after the
 * other in the region "weights", each aligned to ALIGNMENT bytes. named_layout_slices.c then
 * computes which slices of the model they contain. A named layout belongs to one rank actor, or
 * to the driver while it computes the memory budget; it is not locked. */
#include "colocate/job/named_layout.h"

#include "runtime/error.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Alignment of every tensor in the region "weights", in bytes. */
enum { ALIGNMENT = 256 };

/* ---- what the job file says ------------------------------------------------------------- */

/* Returns a new reference to the layout of the section; NULL if it does not exist. A word stands
 * for a layout of that name without options. */
static json_t *find_layout(const char *config_json, const char *section)
{
    json_t *root = json_loads(config_json, 0, NULL);
    json_t *layout = json_object_get(json_object_get(root, section), "layout");

    if (json_is_string(layout)) {
        layout = json_pack("{sO}", "layout", layout);
    } else {
        layout = json_incref(layout);
    }
    json_decref(root);
    return layout;
}

/* Fails if the layout names a number of ranks other than that of the job. */
static tdm_status check_ranks(const json_t *layout, const char *where, uint32_t ranks_count)
{
    const json_t *ranks = json_object_get(layout, "ranks");

    if (ranks != NULL && json_integer_value(ranks) != (json_int_t)ranks_count) {
        return tdm__fail(TDM_E_INVAL, "%s is of %lld ranks, but there are %u", where,
                         (long long)json_integer_value(ranks), ranks_count);
    }
    return TDM_OK;
}

/* Parses the layout for `ranks_count` ranks. Releases the reference to `layout`. */
static tdm_status parse_layout(json_t *layout, const char *where, uint32_t ranks_count,
                               struct tdm__sharding *sharding_out)
{
    tdm_status status = check_ranks(layout, where, ranks_count);
    char *text = NULL;

    if (status == TDM_OK && json_is_object(layout)) {
        (void)json_object_set_new(layout, "ranks", json_integer(ranks_count));
    }
    if (status == TDM_OK) {
        text = json_dumps(layout, JSON_ENCODE_ANY);
        status = text == NULL ? tdm__fail(TDM_E_NOMEM, "%s", where)
                              : tdm__sharding_parse(text, strlen(text), where, sharding_out);
    }
    free(text);
    json_decref(layout);
    return status;
}

/* Reads the layout of the section. `is_named_out` is false if the section names none. */
static tdm_status read_layout(const struct tdm__named_layout_options *options, const char *where,
                              bool *is_named_out, struct tdm__sharding *sharding_out)
{
    char *config_json;
    json_t *layout;

    TDM_TRY(tdm_config_json(options->config, &config_json));
    layout = find_layout(config_json, options->section);
    free(config_json);
    *is_named_out = layout != NULL;
    return layout == NULL ? TDM_OK
                          : parse_layout(layout, where, options->ranks_count, sharding_out);
}

/* Builds the list of the model's tensors from config.json. */
static tdm_status create_model(const struct tdm__named_layout_options *options,
                               struct tdm__named_layout *named_layout)
{
    const struct tdm__model_options model_options = {.scales = named_layout->sharding.dtype ==
                                                               TDM_F8_E4M3};
    struct tdm__model_config config;

    if (options->model_config[0] == '\0') {
        return tdm__fail(TDM_E_INVAL, "%s names a layout, but model.config no config.json",
                         named_layout->where);
    }
    TDM_TRY(tdm__model_config_read(options->model_config, &config));
    return tdm__model_create(&config, &model_options, &named_layout->model);
}

/* ---- the rank's tensors ----------------------------------------------------------------- */

/* Fills in name, type, shape and offset of each tensor of the rank. */
static tdm_status place_tensors(struct tdm__named_layout *named_layout)
{
    uint32_t count = named_layout->shards.shard_tensors_count;

    named_layout->tensors = calloc(count + 1u, sizeof(*named_layout->tensors));
    named_layout->names = calloc(count + 1u, sizeof(*named_layout->names));
    if (named_layout->tensors == NULL || named_layout->names == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%s: %u tensors", named_layout->where, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct tdm__shard_tensor *shard_tensor = &named_layout->shards.shard_tensors[i];
        struct tdm_rank_tensor *tensor = &named_layout->tensors[i];
        uint64_t size_bytes = tdm__shard_tensor_bytes(shard_tensor);

        tensor->info.name = tdm__shard_tensor_name(named_layout->model, &named_layout->sharding,
                                                   shard_tensor, named_layout->names[i]);
        tensor->info.dtype = (enum tdm_dtype)shard_tensor->dtype;
        tensor->info.dims_count = shard_tensor->dims_count;
        memcpy(tensor->info.shape, shard_tensor->shape,
               shard_tensor->dims_count * sizeof(shard_tensor->shape[0]));
        tensor->offset_bytes = named_layout->size_bytes;
        named_layout->size_bytes += (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return TDM_OK;
}

/* Computes the shards of this rank and places its tensors. */
static tdm_status named_layout_init(const struct tdm__named_layout_options *options,
                                    struct tdm__named_layout *named_layout)
{
    TDM_TRY(create_model(options, named_layout));
    TDM_TRY(tdm__wrap(
        tdm__rank_shards_init(named_layout->model, &named_layout->sharding, named_layout->rank,
                              named_layout->trains ? TDM__SHARDS_SOURCE : TDM__SHARDS_DESTINATION,
                              &named_layout->shards),
        "%s", named_layout->where));
    return place_tensors(named_layout);
}

tdm_status tdm__named_layout_create(const struct tdm__named_layout_options *options,
                                    struct tdm__named_layout **named_out)
{
    struct tdm__named_layout *named_layout = calloc(1, sizeof(*named_layout));
    bool is_named = false;
    tdm_status status;

    if (named_layout == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a named layout");
    }
    (void)snprintf(named_layout->where, sizeof(named_layout->where), "%s.layout", options->section);
    named_layout->rank = options->rank;
    named_layout->trains = strcmp(options->section, "trainer") == 0;
    status = read_layout(options, named_layout->where, &is_named, &named_layout->sharding);
    if (status == TDM_OK && is_named) {
        status = named_layout_init(options, named_layout);
    }
    if (status != TDM_OK || !is_named) {
        tdm__named_layout_destroy(named_layout);
        named_layout = NULL;
    }
    TDM_TRY(status);
    *named_out = named_layout;
    return TDM_OK;
}

void tdm__named_layout_destroy(struct tdm__named_layout *named_layout)
{
    if (named_layout == NULL) {
        return;
    }
    tdm__rank_shards_fini(&named_layout->shards);
    tdm__model_destroy(named_layout->model);
    free(named_layout->tensors);
    free(named_layout->names);
    free(named_layout->model_tensors);
    free(named_layout->model_names);
    free(named_layout->slices);
    free(named_layout);
}

/* ---- the job library --------------------------------------------------------------------- */

void tdm__named_layout_fill_context(const struct tdm__named_layout *named_layout,
                                    struct tdm_rank_context *context)
{
    if (named_layout != NULL) {
        context->tensors = named_layout->tensors;
        context->tensors_count = named_layout->shards.shard_tensors_count;
        context->tensors_bytes = named_layout->size_bytes;
    }
}

tdm_status tdm__named_layout_check_regions(const struct tdm__named_layout *named_layout,
                                           const struct tdm_region_spec *specs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(specs[i].tag, "weights") != 0) {
            continue;
        }
        if (specs[i].size_bytes < named_layout->size_bytes) {
            return tdm__fail(TDM_E_INVAL, "%s: the tensors have %llu bytes, the region weights %zu",
                             named_layout->where, (unsigned long long)named_layout->size_bytes,
                             specs[i].size_bytes);
        }
        return named_layout->trains && specs[i].policy != TDM_REGION_KEEP
                   ? tdm__fail(TDM_E_INVAL, "%s: the region weights forgets when it is paused",
                               named_layout->where)
                   : TDM_OK;
    }
    return tdm__fail(TDM_E_INVAL, "%s: no region has the tag weights", named_layout->where);
}
