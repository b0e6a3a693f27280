/* shards.c - what one rank of a layout holds: its own tensors, and what lies where in them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/plan/shards.h"

#include "colocate/plan/grow.h"
#include "colocate/plan/rule.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/text.h"

#include <stdlib.h>
#include <string.h>

struct builder {
    const struct tdm__model *model;
    const struct tdm__sharding *sharding;
    uint32_t rank;
    enum tdm__role role;
    struct tdm__shards shards;
    uint32_t locals_room;
    uint32_t pieces_room;
};

/* ---- lists that grow -------------------------------------------------------------------- */

static tdm_status add_local(struct builder *builder, const struct tdm__local *local)
{
    struct tdm__shards *shards = &builder->shards;

    TDM_TRY(tdm__grow((void **)&shards->locals, &builder->locals_room, shards->locals_count,
                      sizeof(*local)));
    shards->locals[shards->locals_count++] = *local;
    return TDM_OK;
}

static tdm_status add_piece(struct builder *builder, const struct tdm__piece *piece)
{
    struct tdm__shards *shards = &builder->shards;

    TDM_TRY(tdm__grow((void **)&shards->pieces, &builder->pieces_room, shards->pieces_count,
                      sizeof(*piece)));
    shards->pieces[shards->pieces_count++] = *piece;
    return TDM_OK;
}

/* ---- dtypes ----------------------------------------------------------------------------- */

static bool can_hold_scales(enum tdm__sharding_kind kind)
{
    return kind == TDM__SHARDING_WHOLE || kind == TDM__SHARDING_ENGINE;
}

static enum tdm_dtype dtype_here(const struct builder *builder, uint32_t tensor)
{
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    enum tdm_dtype wanted = builder->sharding->dtype;
    enum tdm_dtype own = (enum tdm_dtype)info->dtype;

    if (info->kind == TDM__KIND_F32 || info->kind == TDM__KIND_SCALE) {
        return TDM_F32;
    }
    if (wanted == TDM_F8_E4M3) {
        return info->kind == TDM__KIND_LINEAR ? TDM_F8_E4M3 : builder->model->config.dtype;
    }
    if (wanted == 0) {
        bool is_held = own != TDM_F8_E4M3 || can_hold_scales(builder->sharding->kind);

        return is_held ? own : builder->model->config.dtype;
    }
    return wanted;
}

static bool is_fp8(const struct builder *builder, uint32_t tensor)
{
    return dtype_here(builder, tensor) == TDM_F8_E4M3;
}

/* ---- whole tensors and rows ------------------------------------------------------------- */

static tdm_status add_rows(struct builder *builder, uint32_t tensor, uint32_t row,
                           uint32_t rows)
{
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    struct tdm__local local = {
        .origin = tensor,
        .layer = info->layer,
        .expert = info->expert,
        .dtype = (uint8_t)dtype_here(builder, tensor),
        .is_scale = info->kind == TDM__KIND_SCALE,
        .dims_count = info->dims_count,
        .shape = {rows, info->columns},
    };
    struct tdm__piece piece = {
        .rectangle = {row, 0, rows, info->columns},
        .pitch = info->columns,
        .tensor = tensor,
        .local = builder->shards.locals_count,
        .scale = TDM__NO_PIECE,
    };

    if (rows == 0) {
        return TDM_OK;
    }
    if (local.dtype == TDM_F8_E4M3) {
        piece.scale = builder->shards.pieces_count + 1;
    }
    TDM_TRY(add_local(builder, &local));
    return add_piece(builder, &piece);
}

static tdm_status make_rows(struct builder *builder)
{
    uint32_t shards = builder->sharding->shards_count;
    uint32_t shard = builder->rank % shards;

    for (uint32_t i = 0; i < builder->model->tensors_count; i++) {
        const struct tdm__model_tensor *info = &builder->model->tensors[i];
        bool is_cut = info->kind != TDM__KIND_F32;
        uint32_t chunk = is_cut ? info->rows / shards + (info->rows % shards != 0) : info->rows;
        uint64_t first = is_cut ? (uint64_t)shard * chunk : 0;
        uint64_t left = first < info->rows ? info->rows - first : 0;

        if (info->kind == TDM__KIND_SCALE && !is_fp8(builder, i - 1)) {
            continue;
        }
        TDM_TRY(add_rows(builder, i, (uint32_t)first, left < chunk ? (uint32_t)left : chunk));
    }
    return TDM_OK;
}

/* ---- flat pieces ------------------------------------------------------------------------ */

/* One unit for each layer, one for what is in no layer; its tensors in a row, cut into equal
 * pieces, the last ones filled up. */
struct unit {
    uint64_t elements;
    uint64_t next;  /* where the next tensor begins */
    uint64_t first; /* the rank's piece: this element … */
    uint64_t end;   /* … to here */
    uint32_t local;
};

static uint32_t unit_of(const struct tdm__model *model, const struct tdm__model_tensor *info)
{
    bool is_in_layer =
        info->template_id >= TDM__T_INPUT_NORM && info->template_id <= TDM__T_MTP_HEAD;

    return is_in_layer ? info->layer : model->layers_count;
}

/* Elements `first` to `end` of a tensor are the rest of a row, whole rows, a part of a row. */
static tdm_status add_range(struct builder *builder, const struct tdm__piece *whole,
                            uint64_t first, uint64_t end)
{
    uint32_t columns = builder->model->tensors[whole->tensor].columns;
    struct tdm__piece piece = *whole;

    while (first < end) {
        uint32_t column = (uint32_t)(first % columns);
        uint64_t rows = column == 0 && end - first >= columns ? (end - first) / columns : 1;
        uint64_t width = end - first < columns - column ? end - first : columns - column;

        piece.rectangle = (struct tdm__rectangle){(uint32_t)(first / columns), column,
                                                  (uint32_t)rows, (uint32_t)width};
        TDM_TRY(add_piece(builder, &piece));
        piece.offset += rows * width;
        first += rows * width;
    }
    return TDM_OK;
}

static tdm_status add_flat(struct builder *builder, uint32_t tensor, struct unit *unit)
{
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    uint64_t begin = unit->next;
    uint64_t end = begin + (uint64_t)info->rows * info->columns;
    uint64_t from = begin > unit->first ? begin : unit->first;
    uint64_t to = end < unit->end ? end : unit->end;
    struct tdm__piece piece = {
        .pitch = info->columns,
        .tensor = tensor,
        .local = unit->local,
        .scale = TDM__NO_PIECE,
    };

    unit->next = end;
    if (from >= to) {
        return TDM_OK;
    }
    piece.offset = from - unit->first;
    return add_range(builder, &piece, from - begin, to - begin);
}

static tdm_status add_units(struct builder *builder, struct unit *units)
{
    uint32_t shards = builder->sharding->shards_count;

    for (uint32_t i = 0; i <= builder->model->layers_count; i++) {
        uint64_t chunk = units[i].elements / shards + (units[i].elements % shards != 0);
        struct tdm__local local = {
            .origin = i,
            .dtype = (uint8_t)(builder->sharding->dtype != 0 ? builder->sharding->dtype
                                                             : builder->model->config.dtype),
            .is_unit = true,
            .dims_count = 1,
            .shape = {chunk, 1},
        };

        units[i].first = chunk * (builder->rank % shards);
        units[i].end = units[i].first + chunk;
        units[i].local = builder->shards.locals_count;
        TDM_TRY(add_local(builder, &local));
    }
    return TDM_OK;
}

static tdm_status add_all_flat(struct builder *builder, struct unit *units)
{
    const struct tdm__model *model = builder->model;

    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct tdm__model_tensor *info = &model->tensors[i];

        if (info->kind < TDM__KIND_F32) {
            units[unit_of(model, info)].elements += (uint64_t)info->rows * info->columns;
        }
    }
    TDM_TRY(add_units(builder, units));
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct tdm__model_tensor *info = &model->tensors[i];

        if (info->kind == TDM__KIND_F32) {
            TDM_TRY(add_rows(builder, i, 0, info->rows));
        } else if (info->kind != TDM__KIND_SCALE) {
            TDM_TRY(add_flat(builder, i, &units[unit_of(model, info)]));
        }
    }
    return TDM_OK;
}

static tdm_status make_flat(struct builder *builder)
{
    struct unit *units = calloc(builder->model->layers_count + 1, sizeof(*units));
    tdm_status status;

    if (units == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u flat units", builder->model->layers_count + 1);
    }
    status = add_all_flat(builder, units);
    free(units);
    return status;
}

/* ---- tensors by rules ------------------------------------------------------------------- */

/* A tensor that a rule makes. */
struct fused {
    const struct tdm__rule *rule;
    uint32_t rule_index;
    uint32_t layer;
    uint32_t expert;  /* the first of … */
    uint32_t experts; /* … so many in this tensor */
    uint32_t slot;    /* which of the slots that the parts are cut into … */
    uint32_t slots_here;
    uint32_t slots; /* … of so many in all */
    uint32_t local;
    uint64_t shape[2]; /* of one expert's */
    uint64_t scale_shape[2];
    bool has_scales;
};

struct cut {
    uint32_t first;
    uint32_t count; /* with rows that are added to the vocabulary … */
    uint32_t held;  /* … and without */
};

static uint32_t part_of(const struct builder *builder, const struct fused *fused, uint32_t part,
                        uint32_t expert)
{
    return tdm__model_find(builder->model, fused->rule->parts[part], fused->layer, expert);
}

static tdm_status refuse(const struct builder *builder, uint32_t tensor, const char *why,
                         uint32_t number, uint32_t other)
{
    char name[TDM_TENSOR_NAME_BYTES_MAX];

    return tdm__fail(TDM_E_INVAL, "%s: %u %s %u", tdm__model_name(builder->model, tensor, name),
                     number, why, other);
}

/* What of part `part` is in slot `slot`. */
static tdm_status cut_part(const struct builder *builder, const struct fused *fused,
                           uint32_t part, uint32_t slot, struct cut *cut_out)
{
    uint32_t tensor = part_of(builder, fused, part, fused->expert);
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    uint32_t real = fused->rule->axis == 0 ? info->rows : info->columns;
    uint32_t units =
        tdm__model_units(builder->model, fused->rule->parts[part], fused->rule->axis);
    uint32_t length = real;
    struct cut cut;

    if ((fused->rule->flags & TDM__RULE_PADDED) != 0) {
        uint32_t multiple = builder->sharding->vocabulary_multiple;

        length = (real + multiple - 1) / multiple * multiple;
        units = length;
    }
    if (units % fused->slots == 0) {
        cut.count = length / fused->slots;
        cut.first = slot * cut.count;
    } else if ((fused->rule->flags & TDM__RULE_REPEATED) != 0 && fused->slots % units == 0) {
        cut.count = length / units;
        cut.first = slot / (fused->slots / units) * cut.count;
    } else {
        return refuse(builder, tensor, "heads or rows cannot be cut over", units, fused->slots);
    }
    cut.held = cut.first >= real              ? 0
               : real - cut.first < cut.count ? real - cut.first
                                              : cut.count;
    *cut_out = cut;
    return TDM_OK;
}

static uint32_t blocks(uint32_t elements)
{
    return (elements + TDM__FP8_BLOCK - 1) / TDM__FP8_BLOCK;
}

/* Blocks of 128 x 128 belong to the model's tensor: a rank's part has to consist of some. */
static tdm_status check_blocks(const struct builder *builder, uint32_t tensor,
                               const struct tdm__rule *rule, const struct cut *cut,
                               uint64_t position)
{
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    uint32_t end = cut->first + cut->count;
    uint32_t length = rule->axis == 0 ? info->rows : info->columns;

    if (cut->first % TDM__FP8_BLOCK != 0 || position % TDM__FP8_BLOCK != 0 ||
        (end % TDM__FP8_BLOCK != 0 && end != length)) {
        return refuse(builder, tensor,
                      "rows or columns a rank are no whole FP8 blocks, or do not begin at one: "
                      "blocks are of",
                      cut->count, TDM__FP8_BLOCK);
    }
    return TDM_OK;
}

/* Adds up the parts along the axis. */
static tdm_status size_fused(const struct builder *builder, struct fused *fused)
{
    const struct tdm__model_tensor *info =
        &builder->model->tensors[part_of(builder, fused, 0, fused->expert)];
    uint32_t axis = fused->rule->axis;

    fused->has_scales = is_fp8(builder, part_of(builder, fused, 0, fused->expert));
    fused->shape[0] = axis == 0 ? 0 : info->rows;
    fused->shape[1] = axis == 1 ? 0 : info->columns;
    fused->scale_shape[0] = blocks((uint32_t)fused->shape[0]);
    fused->scale_shape[1] = blocks((uint32_t)fused->shape[1]);
    for (uint32_t part = 0; part < fused->rule->parts_count; part++) {
        struct cut cut;

        TDM_TRY(cut_part(builder, fused, part, fused->slot, &cut));
        if (fused->has_scales) {
            TDM_TRY(check_blocks(builder, part_of(builder, fused, part, fused->expert),
                                 fused->rule, &cut, fused->shape[axis]));
        }
        fused->shape[axis] += (uint64_t)cut.count * fused->slots_here;
        fused->scale_shape[axis] += (uint64_t)blocks(cut.count) * fused->slots_here;
    }
    return TDM_OK;
}

static tdm_status add_fused_local(struct builder *builder, const struct fused *fused,
                                  bool is_scale)
{
    uint32_t tensor = part_of(builder, fused, 0, fused->expert);
    const uint64_t *shape = is_scale ? fused->scale_shape : fused->shape;
    bool is_stacked = fused->rule->scope == TDM__RULE_ALL_EXPERTS;
    struct tdm__local local = {
        .origin = fused->rule_index,
        .layer = (uint16_t)fused->layer,
        .expert = (uint16_t)(is_stacked ? 0 : fused->expert),
        .dtype = (uint8_t)(is_scale ? TDM_F32 : dtype_here(builder, tensor)),
        .is_scale = is_scale,
        .dims_count = builder->model->tensors[tensor].dims_count,
        .shape = {shape[0], shape[1]},
    };

    if (is_stacked) {
        local.dims_count = 3;
        local.shape[0] = fused->experts;
        local.shape[1] = shape[0];
        local.shape[2] = shape[1];
    } else if (fused->rule->scope == TDM__RULE_EVERY_EXPERT) {
        uint32_t group = builder->model->config.experts / builder->sharding->expert_groups;

        local.expert = (uint16_t)(fused->expert % group);
    }
    return add_local(builder, &local);
}

/* `position` is where the cut begins along the axis. */
static struct tdm__piece place_cut(const struct fused *fused,
                                   const struct tdm__model_tensor *info, struct cut cut,
                                   uint64_t position, const uint64_t shape[2])
{
    bool is_column = fused->rule->axis == 1;

    return (struct tdm__piece){
        .rectangle = {is_column ? 0 : cut.first, is_column ? cut.first : 0,
                      is_column ? info->rows : cut.held, is_column ? cut.held : info->columns},
        .offset = is_column ? position : position * shape[1],
        .pitch = (uint32_t)shape[1],
        .local = fused->local,
        .scale = TDM__NO_PIECE,
    };
}

static tdm_status add_cut(struct builder *builder, const struct fused *fused, uint32_t tensor,
                          struct cut cut, uint64_t position)
{
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    uint64_t stacked = info->expert - fused->expert; /* tensors of experts before this one's */
    struct tdm__piece piece = place_cut(fused, info, cut, position, fused->shape);
    struct cut scales = {cut.first / TDM__FP8_BLOCK, 0, blocks(cut.held)};
    struct tdm__piece scale;

    piece.tensor = tensor;
    piece.offset += stacked * fused->shape[0] * fused->shape[1];
    if (cut.held == 0) {
        return TDM_OK;
    }
    if (!fused->has_scales) {
        return add_piece(builder, &piece);
    }
    piece.scale = builder->shards.pieces_count + 1;
    scale = place_cut(fused, info + 1, scales, position / TDM__FP8_BLOCK, fused->scale_shape);
    scale.tensor = tensor + 1;
    scale.local = fused->local + 1;
    scale.offset += stacked * fused->scale_shape[0] * fused->scale_shape[1];
    TDM_TRY(add_piece(builder, &piece));
    return add_piece(builder, &scale);
}

static tdm_status add_expert(struct builder *builder, const struct fused *fused,
                             uint32_t expert)
{
    uint64_t position = 0;

    for (uint32_t slot = fused->slot; slot < fused->slot + fused->slots_here; slot++) {
        for (uint32_t part = 0; part < fused->rule->parts_count; part++) {
            struct cut cut;

            TDM_TRY(cut_part(builder, fused, part, slot, &cut));
            TDM_TRY(
                add_cut(builder, fused, part_of(builder, fused, part, expert), cut, position));
            position += cut.count;
        }
    }
    return TDM_OK;
}

static tdm_status add_fused(struct builder *builder, struct fused *fused)
{
    TDM_TRY(size_fused(builder, fused));
    if ((fused->rule->flags & TDM__RULE_ALIAS) != 0) {
        fused->local = builder->shards.locals_count - 1;
    } else {
        fused->local = builder->shards.locals_count;
        TDM_TRY(add_fused_local(builder, fused, false));
        if (fused->has_scales) {
            TDM_TRY(add_fused_local(builder, fused, true));
        }
    }
    for (uint32_t expert = 0; expert < fused->experts; expert++) {
        TDM_TRY(add_expert(builder, fused, fused->expert + expert));
    }
    return TDM_OK;
}

/* Which slots of the parts are this rank's. */
static tdm_status find_slots(const struct builder *builder, struct fused *fused)
{
    enum tdm__split split = fused->rule->split;
    uint32_t size = builder->sharding->sizes[split];
    uint32_t groups = builder->model->config.kv_heads;

    fused->slot = tdm__sharding_coordinate(builder->sharding, split, builder->rank);
    fused->slots_here = 1;
    fused->slots = size;
    if ((fused->rule->flags & TDM__RULE_BY_GROUP) == 0) {
        return TDM_OK;
    }
    if (groups % size != 0) {
        return refuse(builder, part_of(builder, fused, 0, 0), "query groups cannot be cut over",
                      groups, size);
    }
    fused->slots = groups;
    fused->slots_here = groups / size;
    fused->slot *= fused->slots_here;
    return TDM_OK;
}

static tdm_status add_experts(struct builder *builder, struct fused *fused)
{
    uint32_t experts = builder->model->config.experts;
    uint32_t groups = builder->sharding->expert_groups;
    uint32_t first;

    if (experts % groups != 0) {
        return refuse(builder, part_of(builder, fused, 0, 0),
                      "experts cannot be spread over groups:", experts, groups);
    }
    first = tdm__sharding_expert_group(builder->sharding, builder->rank) * (experts / groups);
    fused->expert = first;
    if (fused->rule->scope == TDM__RULE_ALL_EXPERTS) {
        fused->experts = experts / groups;
        return add_fused(builder, fused);
    }
    for (uint32_t i = 0; i < experts / groups; i++) {
        fused->expert = first + i;
        TDM_TRY(add_fused(builder, fused));
    }
    return TDM_OK;
}

static bool rule_is_in_layer(const struct tdm__model *model, enum tdm__rule_scope scope,
                             uint32_t layer)
{
    switch (scope) {
    case TDM__RULE_EVERY_LAYER:
        return true;
    case TDM__RULE_DENSE_LAYER:
        return !tdm__model_layer_has_experts(model, layer);
    case TDM__RULE_EXPERT_LAYER:
    case TDM__RULE_EVERY_EXPERT:
    case TDM__RULE_ALL_EXPERTS:
        return tdm__model_layer_has_experts(model, layer);
    case TDM__RULE_MTP_LAYER:
        return layer >= model->config.layers;
    case TDM__RULE_FIRST_STAGE:
    case TDM__RULE_LAST_STAGE:
    case TDM__RULE_ONLY_LAST_STAGE:
        return false;
    }
    return false;
}

static tdm_status apply_rule(struct builder *builder, const struct tdm__rules *rules,
                             uint32_t index, uint32_t layer)
{
    const struct tdm__rule *rule = &rules->rules[index];
    struct fused fused = {.rule = rule, .rule_index = index, .layer = layer, .experts = 1};

    TDM_TRY(find_slots(builder, &fused));
    if (rule->scope == TDM__RULE_EVERY_EXPERT || rule->scope == TDM__RULE_ALL_EXPERTS) {
        return add_experts(builder, &fused);
    }
    return add_fused(builder, &fused);
}

static tdm_status make_layer(struct builder *builder, const struct tdm__rules *rules,
                             uint32_t layer)
{
    for (uint32_t i = 0; i < rules->rules_count; i++) {
        const struct tdm__rule *rule = &rules->rules[i];

        if ((rule->needs & ~builder->model->facts) == 0 &&
            rule_is_in_layer(builder->model, rule->scope, layer)) {
            TDM_TRY(apply_rule(builder, rules, i, layer));
        }
    }
    return TDM_OK;
}

static bool rule_is_in_stage(const struct tdm__sharding *sharding, enum tdm__rule_scope scope,
                             uint32_t stage)
{
    bool is_last = stage == sharding->stages_count - 1;

    return (scope == TDM__RULE_FIRST_STAGE && stage == 0) ||
           (scope == TDM__RULE_LAST_STAGE && is_last) ||
           (scope == TDM__RULE_ONLY_LAST_STAGE && is_last && stage != 0);
}

/* What is in no layer.  An alias stands for the tensors of all layers of multi-token
 * prediction. */
static tdm_status make_ends(struct builder *builder, const struct tdm__rules *rules,
                            uint32_t stage)
{
    const struct tdm__model *model = builder->model;

    for (uint32_t i = 0; i < rules->rules_count; i++) {
        const struct tdm__rule *rule = &rules->rules[i];

        if ((rule->needs & ~model->facts) != 0 ||
            !rule_is_in_stage(builder->sharding, rule->scope, stage)) {
            continue;
        }
        if ((rule->flags & TDM__RULE_ALIAS) == 0) {
            TDM_TRY(apply_rule(builder, rules, i, 0));
            continue;
        }
        for (uint32_t layer = model->config.layers;
             layer < model->layers_count && builder->role == TDM__ROLE_SOURCE; layer++) {
            TDM_TRY(apply_rule(builder, rules, i, layer));
        }
    }
    return TDM_OK;
}

static tdm_status make_by_rules(struct builder *builder, const struct tdm__rules *rules)
{
    const struct tdm__model *model = builder->model;
    uint32_t stage = tdm__sharding_stage(builder->sharding, builder->rank);
    struct tdm__layer_range layers;

    TDM_TRY(
        tdm__sharding_stage_layers(builder->sharding, stage, model->config.layers, &layers));
    TDM_TRY(make_ends(builder, rules, stage));
    for (uint32_t layer = layers.first; layer < layers.end; layer++) {
        TDM_TRY(make_layer(builder, rules, layer));
    }
    for (uint32_t layer = model->config.layers;
         layer < model->layers_count && stage == builder->sharding->stages_count - 1; layer++) {
        TDM_TRY(make_layer(builder, rules, layer));
    }
    return TDM_OK;
}

/* ---- all -------------------------------------------------------------------------------- */

static tdm_status make_all(struct builder *builder)
{
    const struct tdm__rules *rules = tdm__rules_of(builder->sharding->kind);

    if (builder->sharding->dtype == TDM_F8_E4M3 && !builder->model->has_scales) {
        return tdm__fail(TDM_E_INVAL, "layout: dtype F8_E4M3, but the model has no scales");
    }
    if (rules != NULL) {
        return make_by_rules(builder, rules);
    }
    return builder->sharding->kind == TDM__SHARDING_FLAT ? make_flat(builder)
                                                         : make_rows(builder);
}

tdm_status tdm__shards_make(const struct tdm__model *model,
                            const struct tdm__sharding *sharding, uint32_t rank,
                            enum tdm__role role, struct tdm__shards *shards_out)
{
    struct builder builder = {.model = model, .sharding = sharding, .rank = rank, .role = role};
    tdm_status status;

    TDM_ASSERT(rank < sharding->ranks_count);
    status = make_all(&builder);
    if (status != TDM_OK) {
        tdm__shards_fini(&builder.shards);
        return status;
    }
    *shards_out = builder.shards;
    return TDM_OK;
}

void tdm__shards_fini(struct tdm__shards *shards)
{
    free(shards->locals);
    free(shards->pieces);
    *shards = (struct tdm__shards){.locals = NULL};
}

uint64_t tdm__local_elements(const struct tdm__local *local)
{
    uint64_t elements = 1;

    for (uint32_t i = 0; i < local->dims_count; i++) {
        elements *= local->shape[i];
    }
    return elements;
}

uint64_t tdm__local_bytes(const struct tdm__local *local)
{
    return tdm__local_elements(local) * tdm_dtype_bytes((enum tdm_dtype)local->dtype);
}

const char *tdm__local_name(const struct tdm__model *model,
                            const struct tdm__sharding *sharding,
                            const struct tdm__local *local,
                            char name[TDM_TENSOR_NAME_BYTES_MAX])
{
    const struct tdm__rules *rules = tdm__rules_of(sharding->kind);

    if (local->is_unit) {
        bool is_layer = local->origin < model->layers_count;

        tdm__name_expand(is_layer ? "model.layers.{L}._flat_param" : "_flat_param",
                         local->origin, 0, name);
    } else if (rules == NULL) {
        (void)tdm__model_name(model, local->origin, name);
    } else {
        tdm__rule_name(rules, &rules->rules[local->origin], model, local->layer, local->expert,
                       name);
        if (local->is_scale) {
            size_t length = strlen(name);
            struct tdm__text text =
                tdm__text_in(name + length, TDM_TENSOR_NAME_BYTES_MAX - length);

            tdm__text_add(&text, "_scale_inv");
        }
    }
    return name;
}
