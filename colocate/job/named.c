/* named.c - a rank of a layout that the job file names: its tensors, where they lie. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/named.h"

#include "runtime/error.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 };

/* ---- what the job file says ------------------------------------------------------------- */

/* A new reference to the section's layout, NULL where there is none; a word is short for a
 * layout of that name alone. */
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

static tdm_status check_ranks(const json_t *layout, const char *where, uint32_t ranks_count)
{
    const json_t *ranks = json_object_get(layout, "ranks");

    if (ranks != NULL && json_integer_value(ranks) != (json_int_t)ranks_count) {
        return tdm__fail(TDM_E_INVAL, "%s is of %lld ranks, but there are %u", where,
                         (long long)json_integer_value(ranks), ranks_count);
    }
    return TDM_OK;
}

/* Takes the layout. */
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

static tdm_status read_layout(const struct tdm__named_options *options, const char *where,
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

static tdm_status make_model(const struct tdm__named_options *options, struct tdm__named *named)
{
    const struct tdm__model_options model_options = {.scales =
                                                         named->sharding.dtype == TDM_F8_E4M3};
    struct tdm__model_config config;

    if (options->model_config[0] == '\0') {
        return tdm__fail(TDM_E_INVAL, "%s names a layout, but model.config no config.json",
                         named->where);
    }
    TDM_TRY(tdm__model_config_read(options->model_config, &config));
    return tdm__model_create(&config, &model_options, &named->model);
}

/* ---- the rank's tensors ----------------------------------------------------------------- */

static tdm_status place_tensors(struct tdm__named *named)
{
    uint32_t count = named->shards.locals_count;

    named->tensors = calloc(count + 1u, sizeof(*named->tensors));
    named->names = calloc(count + 1u, sizeof(*named->names));
    if (named->tensors == NULL || named->names == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%s: %u tensors", named->where, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct tdm__local *local = &named->shards.locals[i];
        struct tdm_rank_tensor *tensor = &named->tensors[i];
        uint64_t size_bytes = tdm__local_bytes(local);

        tensor->info.name =
            tdm__local_name(named->model, &named->sharding, local, named->names[i]);
        tensor->info.dtype = (enum tdm_dtype)local->dtype;
        tensor->info.dims_count = local->dims_count;
        memcpy(tensor->info.shape, local->shape, local->dims_count * sizeof(local->shape[0]));
        tensor->offset_bytes = named->size_bytes;
        named->size_bytes += (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return TDM_OK;
}

static tdm_status make(const struct tdm__named_options *options, struct tdm__named *named)
{
    TDM_TRY(make_model(options, named));
    TDM_TRY(tdm__wrap(tdm__shards_make(named->model, &named->sharding, named->rank,
                                       named->trains ? TDM__ROLE_SOURCE : TDM__ROLE_DESTINATION,
                                       &named->shards),
                      "%s", named->where));
    return place_tensors(named);
}

tdm_status tdm__named_create(const struct tdm__named_options *options,
                             struct tdm__named **named_out)
{
    struct tdm__named *named = calloc(1, sizeof(*named));
    bool is_named = false;
    tdm_status status;

    if (named == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a named layout");
    }
    (void)snprintf(named->where, sizeof(named->where), "%s.layout", options->section);
    named->rank = options->rank;
    named->trains = strcmp(options->section, "trainer") == 0;
    status = read_layout(options, named->where, &is_named, &named->sharding);
    if (status == TDM_OK && is_named) {
        status = make(options, named);
    }
    if (status != TDM_OK || !is_named) {
        tdm__named_destroy(named);
        named = NULL;
    }
    TDM_TRY(status);
    *named_out = named;
    return TDM_OK;
}

void tdm__named_destroy(struct tdm__named *named)
{
    if (named == NULL) {
        return;
    }
    tdm__shards_fini(&named->shards);
    tdm__model_destroy(named->model);
    free(named->tensors);
    free(named->names);
    free(named->model_tensors);
    free(named->model_names);
    free(named->slices);
    free(named);
}

/* ---- what the library is told, and does ------------------------------------------------- */

void tdm__named_tell(const struct tdm__named *named, struct tdm_rank_context *context)
{
    if (named != NULL) {
        context->tensors = named->tensors;
        context->tensors_count = named->shards.locals_count;
        context->tensors_bytes = named->size_bytes;
    }
}

tdm_status tdm__named_check_regions(const struct tdm__named *named,
                                    const struct tdm_region_spec *specs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(specs[i].tag, "weights") != 0) {
            continue;
        }
        if (specs[i].size_bytes < named->size_bytes) {
            return tdm__fail(
                TDM_E_INVAL, "%s: the tensors have %llu bytes, the region weights %zu",
                named->where, (unsigned long long)named->size_bytes, specs[i].size_bytes);
        }
        return named->trains && specs[i].policy != TDM_REGION_KEEP
                   ? tdm__fail(TDM_E_INVAL, "%s: the region weights forgets when it is paused",
                               named->where)
                   : TDM_OK;
    }
    return tdm__fail(TDM_E_INVAL, "%s: no region has the tag weights", named->where);
}
