/* sharding.c - the description of a layout: its checks, its JSON form, and the indices of a rank.
 */
/* SPDX-License-Identifier: Apache-2.0 */

/* A struct tdm__sharding is a value without pointers; there is no state, and any thread may
 * enter. The parser reads the fields of the layout's kind and counts those that it knows; a field
 * that is left over is an error. Each parsed layout is validated. Invariant of a valid layout:
 * stages, splits, shards and expert groups times expert splits each divide the number of ranks
 * (of a stage). sharding.h specifies the fields. */

#include "colocate/layout/sharding.h"

#include "runtime/error.h"

#include <jansson.h>
#include <string.h>

enum { LAYOUT_BYTES_MAX = 1 << 16, MULTIPLE_MAX = 1 << 20, STAGE_LAYERS_MAX = 1024 };

struct tdm__sharding tdm__sharding_whole(uint32_t ranks_count)
{
    struct tdm__sharding sharding = {
        .kind = TDM__SHARDING_WHOLE,
        .ranks_count = ranks_count,
        .shards_count = 1,
        .expert_groups = 1,
        .stages_count = 1,
        .vocabulary_multiple = 1,
    };

    for (int split = 0; split < TDM__SPLITS_COUNT; split++) {
        sharding.sizes[split] = 1;
    }
    return sharding;
}

/* ---- checks ----------------------------------------------------------------------------- */

/* Names of the splits in the JSON form. */
static const char *const split_names[TDM__SPLITS_COUNT] = {
    [TDM__SPLIT_NONE] = "none",
    [TDM__SPLIT_ATTENTION] = "attention_tp",
    [TDM__SPLIT_DENSE] = "dense_tp",
    [TDM__SPLIT_SHARED] = "shared_tp",
    [TDM__SPLIT_VOCABULARY] = "vocabulary_tp",
    [TDM__SPLIT_EXPERT] = "etp",
};

/* Fails with TDM_E_INVAL unless `whole` is a multiple of `size`; `what` names the size in the
 * message. */
static tdm_status check_divides(uint64_t size, uint32_t whole, const char *what)
{
    if (size == 0 || whole == 0 || whole % size != 0) {
        return tdm__fail(TDM_E_INVAL, "layout: %s of %llu does not divide %u ranks", what,
                         (unsigned long long)size, whole);
    }
    return TDM_OK;
}

/* Fails with TDM_E_INVAL unless weights of a layout of this kind may have the dtype. */
static tdm_status check_dtype(enum tdm_dtype dtype, enum tdm__sharding_kind kind)
{
    bool has_scales = kind == TDM__SHARDING_WHOLE || kind == TDM__SHARDING_ENGINE;

    if (dtype == 0 || dtype == TDM_F32 || dtype == TDM_F16 || dtype == TDM_BF16 ||
        (dtype == TDM_F8_E4M3 && has_scales)) {
        return TDM_OK;
    }
    return tdm__fail(TDM_E_INVAL, "layout: no weights of dtype %s there", tdm_dtype_name(dtype));
}

tdm_status tdm__sharding_validate(const struct tdm__sharding *sharding)
{
    uint32_t stage_ranks;

    if (sharding->ranks_count == 0 || sharding->ranks_count > TDM__SHARDING_RANKS_MAX) {
        return tdm__fail(TDM_E_INVAL, "layout: %u ranks; allowed are 1 to %d",
                         sharding->ranks_count, TDM__SHARDING_RANKS_MAX);
    }
    if ((unsigned)sharding->kind > TDM__SHARDING_ENGINE ||
        sharding->stages_count > TDM__STAGES_MAX || sharding->vocabulary_multiple == 0 ||
        sharding->vocabulary_multiple > MULTIPLE_MAX) {
        return tdm__fail(TDM_E_INVAL,
                         "layout: kind %u, %u stages of %d at most, vocabulary multiple %u",
                         (unsigned)sharding->kind, sharding->stages_count, TDM__STAGES_MAX,
                         sharding->vocabulary_multiple);
    }
    TDM_TRY(check_dtype(sharding->dtype, sharding->kind));
    TDM_TRY(check_divides(sharding->shards_count, sharding->ranks_count, "shards"));
    TDM_TRY(check_divides(sharding->stages_count, sharding->ranks_count, "pp"));
    stage_ranks = sharding->ranks_count / sharding->stages_count;
    for (int split = 0; split < TDM__SPLITS_COUNT; split++) {
        TDM_TRY(check_divides(sharding->sizes[split], stage_ranks, split_names[split]));
    }
    return check_divides((uint64_t)sharding->sizes[TDM__SPLIT_EXPERT] * sharding->expert_groups,
                         stage_ranks, "ep times etp");
}

/* ---- JSON ------------------------------------------------------------------------------- */

/* A layout while it is parsed. */
struct layout_reader {
    const json_t *root;        /* JSON object that describes the layout; borrowed. */
    const char *name;          /* Name of the JSON text for errors; borrowed. */
    size_t known_fields_count; /* Number of fields of `root` that were read so far. */
};

/* Reads the layout's field `key`, a positive number; `fallback` if the field is missing. */
static tdm_status read_number(struct layout_reader *reader, const char *key, uint32_t fallback,
                              uint32_t *number_out)
{
    const json_t *value = json_object_get(reader->root, key);
    json_int_t number = json_integer_value(value);

    if (value == NULL) {
        *number_out = fallback;
        return TDM_OK;
    }
    if (!json_is_integer(value) || number < 1 || number > MULTIPLE_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: \"%s\" wants a whole number, 1 to %d", reader->name,
                         key, MULTIPLE_MAX);
    }
    reader->known_fields_count++;
    *number_out = (uint32_t)number;
    return TDM_OK;
}

/* Reads the layout's field `key`, a string; sets `word_out` to NULL if the field is missing. */
static tdm_status read_word(struct layout_reader *reader, const char *key, const char **word_out)
{
    const json_t *value = json_object_get(reader->root, key);

    *word_out = json_string_value(value);
    if (value != NULL && *word_out == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: \"%s\" wants a string", reader->name, key);
    }
    reader->known_fields_count += value != NULL;
    return TDM_OK;
}

/* Reads the layout's optional field "dtype". */
static tdm_status read_dtype(struct layout_reader *reader, enum tdm_dtype *dtype_out)
{
    static const enum tdm_dtype known_fields_count[] = {TDM_F32, TDM_F16, TDM_BF16, TDM_F8_E4M3};
    const char *word;

    TDM_TRY(read_word(reader, "dtype", &word));
    if (word == NULL) {
        return TDM_OK;
    }
    for (size_t i = 0; i < sizeof(known_fields_count) / sizeof(known_fields_count[0]); i++) {
        if (strcmp(tdm_dtype_name(known_fields_count[i]), word) == 0) {
            *dtype_out = known_fields_count[i];
            return TDM_OK;
        }
    }
    return tdm__fail(TDM_E_PROTOCOL,
                     "%s: \"dtype\" wants \"F32\", \"F16\", \"BF16\" or \"F8_E4M3\"", reader->name);
}

/* Reads the layout's optional field "stage_layers", the number of layers of each pipeline stage. */
static tdm_status read_stage_layers(struct layout_reader *reader, struct tdm__sharding *sharding)
{
    const json_t *list = json_object_get(reader->root, "stage_layers");

    if (list == NULL) {
        return TDM_OK;
    }
    if (!json_is_array(list) || json_array_size(list) != sharding->stages_count ||
        json_array_size(list) > TDM__STAGES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: \"stage_layers\" wants %u numbers", reader->name,
                         sharding->stages_count);
    }
    for (uint32_t i = 0; i < sharding->stages_count; i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t number = json_integer_value(value);

        if (!json_is_integer(value) || number < 1 || number > STAGE_LAYERS_MAX) {
            return tdm__fail(TDM_E_PROTOCOL, "%s: \"stage_layers\" wants whole numbers, 1 to %d",
                             reader->name, STAGE_LAYERS_MAX);
        }
        sharding->stage_layers[i] = (uint32_t)number;
    }
    reader->known_fields_count++;
    return TDM_OK;
}

/* Reads the fields of a layout of the kind "fsdp". */
static tdm_status read_fsdp(struct layout_reader *reader, struct tdm__sharding *sharding)
{
    const char *state;

    TDM_TRY(read_word(reader, "state", &state));
    if (state == NULL || strcmp(state, "full") == 0) {
        return TDM_OK;
    }
    if (strcmp(state, "sharded") == 0) {
        sharding->kind = TDM__SHARDING_FSDP_SHARDED;
    } else if (strcmp(state, "local") == 0) {
        sharding->kind = TDM__SHARDING_FSDP_LOCAL;
    } else {
        return tdm__fail(TDM_E_PROTOCOL, "%s: \"state\" wants \"full\", \"sharded\" or \"local\"",
                         reader->name);
    }
    return read_number(reader, "shards", sharding->ranks_count, &sharding->shards_count);
}

/* Reads the fields of a layout of the kind "megatron". */
static tdm_status read_megatron(struct layout_reader *reader, struct tdm__sharding *sharding)
{
    uint32_t *sizes = sharding->sizes;
    uint32_t tp;

    sharding->kind = TDM__SHARDING_MEGATRON;
    TDM_TRY(read_number(reader, "tp", 1, &tp));
    TDM_TRY(read_number(reader, "etp", 1, &sizes[TDM__SPLIT_EXPERT]));
    TDM_TRY(read_number(reader, "ep", 1, &sharding->expert_groups));
    TDM_TRY(read_number(reader, "pp", 1, &sharding->stages_count));
    TDM_TRY(read_number(reader, "vocabulary_multiple", 128, &sharding->vocabulary_multiple));
    for (int split = TDM__SPLIT_ATTENTION; split <= TDM__SPLIT_VOCABULARY; split++) {
        sizes[split] = tp;
    }
    if ((uint64_t)sharding->vocabulary_multiple * tp > MULTIPLE_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: \"vocabulary_multiple\" times tp is over %d",
                         reader->name, MULTIPLE_MAX);
    }
    sharding->vocabulary_multiple *= tp;
    return read_stage_layers(reader, sharding);
}

/* Reads the fields of a layout of the kind "engine". */
static tdm_status read_engine(struct layout_reader *reader, struct tdm__sharding *sharding)
{
    uint32_t tp;

    sharding->kind = TDM__SHARDING_ENGINE;
    TDM_TRY(read_number(reader, "tp", 1, &tp));
    for (int split = TDM__SPLIT_ATTENTION; split <= TDM__SPLIT_EXPERT; split++) {
        uint32_t fallback = split == TDM__SPLIT_EXPERT ? 1 : tp;

        TDM_TRY(read_number(reader, split_names[split], fallback, &sharding->sizes[split]));
    }
    TDM_TRY(read_number(reader, "ep", 1, &sharding->expert_groups));
    return read_number(reader, "vocabulary_multiple", 64, &sharding->vocabulary_multiple);
}

/* Reads all fields of a layout and validates it. */
static tdm_status read_layout(struct layout_reader *reader, struct tdm__sharding *sharding)
{
    const char *layout;

    TDM_TRY(read_word(reader, "layout", &layout));
    TDM_TRY(read_number(reader, "ranks", 1, &sharding->ranks_count));
    TDM_TRY(read_dtype(reader, &sharding->dtype));
    if (layout == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: \"layout\" is missing", reader->name);
    }
    if (strcmp(layout, "fsdp") == 0) {
        TDM_TRY(read_fsdp(reader, sharding));
    } else if (strcmp(layout, "megatron") == 0) {
        TDM_TRY(read_megatron(reader, sharding));
    } else if (strcmp(layout, "engine") == 0) {
        TDM_TRY(read_engine(reader, sharding));
    } else if (strcmp(layout, "hugging_face") != 0) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "%s: layout \"%.32s\"; known are hugging_face, fsdp, megatron and "
                         "engine",
                         reader->name, layout);
    }
    if (reader->known_fields_count != json_object_size(reader->root)) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: %zu fields are none of a %s layout's", reader->name,
                         json_object_size(reader->root) - reader->known_fields_count, layout);
    }
    return tdm__sharding_validate(sharding);
}

tdm_status tdm__sharding_parse(const char *text, size_t size_bytes, const char *name,
                               struct tdm__sharding *sharding_out)
{
    struct tdm__sharding sharding = tdm__sharding_whole(1);
    struct layout_reader reader = {.name = name};
    json_error_t error;
    tdm_status status;
    json_t *root;

    if (size_bytes > LAYOUT_BYTES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: %zu bytes, over %d", name, size_bytes,
                         LAYOUT_BYTES_MAX);
    }
    root = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: line %d: %s", name, error.line, error.text);
    }
    reader.root = root;
    status = read_layout(&reader, &sharding);
    json_decref(root);
    if (status == TDM_OK) {
        *sharding_out = sharding;
    }
    return status;
}

/* ---- the indices of a rank ---------------------------------------------------------------- */

/* Returns the number of ranks in each pipeline stage. */
static uint32_t stage_ranks(const struct tdm__sharding *sharding)
{
    return sharding->ranks_count / sharding->stages_count;
}

uint32_t tdm__sharding_stage_index(const struct tdm__sharding *sharding, uint32_t rank)
{
    return rank / stage_ranks(sharding);
}

uint32_t tdm__sharding_split_index(const struct tdm__sharding *sharding, enum tdm__split split,
                                   uint32_t rank)
{
    return rank % stage_ranks(sharding) % sharding->sizes[split];
}

uint32_t tdm__sharding_expert_group_index(const struct tdm__sharding *sharding, uint32_t rank)
{
    return rank % stage_ranks(sharding) / sharding->sizes[TDM__SPLIT_EXPERT] %
           sharding->expert_groups;
}

tdm_status tdm__sharding_stage_layers(const struct tdm__sharding *sharding, uint32_t stage,
                                      uint32_t layers_count, struct tdm__layer_range *range_out)
{
    uint32_t stages = sharding->stages_count;
    struct tdm__layer_range range = {0, 0};
    uint64_t next = 0;

    for (uint32_t i = 0; i < stages; i++) {
        uint32_t even = layers_count / stages + (i < layers_count % stages);
        uint32_t layers = sharding->stage_layers[0] != 0 ? sharding->stage_layers[i] : even;

        if (i == stage) {
            range = (struct tdm__layer_range){(uint32_t)next, (uint32_t)next + layers};
        }
        next += layers;
    }
    if (next != layers_count) {
        return tdm__fail(TDM_E_INVAL, "layout: the stages have %llu layers, the model %u",
                         (unsigned long long)next, layers_count);
    }
    *range_out = range;
    return TDM_OK;
}
