/* rank_shards.c - the tensors that one rank of a layout holds, and which slices of the model are
 * where in them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A struct shards_builder collects the tensors and slices of one rank in two growing lists, which
 * become the result. Three kinds of layout have an algorithm each: whole tensors and rows
 * (Hugging Face and FSDP's full and sharded state), flat units (FSDP's local state), and rules
 * (Megatron and engines, layout_rules.h).
 *
 * Invariants: every slice lies in the tensor named by its shard_tensor; the slice of FP8 scales
 * directly follows the slice of the weights; a destination lists no element of a rank's tensor
 * twice.
 *
 * There is no shared state; any thread may enter. */

#include "colocate/layout/rank_shards.h"

#include "colocate/layout/layout_rules.h"
#include "runtime/array_grow.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/text.h"

#include <stdlib.h>
#include <string.h>

/* The shards of one rank while they are computed. */
struct shards_builder {
    const struct tdm__model *model; /* Model whose tensors the layout divides; borrowed. */
    /* Layout that says how ranks divide the tensors; borrowed. */
    const struct tdm__sharding *sharding;
    uint32_t rank;                  /* Rank whose tensors and slices are computed. */
    enum tdm__shards_role role;     /* Whether the rank is a source or a destination. */
    struct tdm__rank_shards shards; /* Tensors and slices of the rank that were computed so far. */
    /* Number of entries for which shards.shard_tensors has space. */
    uint32_t shard_tensors_capacity;
    uint32_t slices_capacity; /* Number of entries for which shards.slices has space. */
};

/* ---- growing lists ------------------------------------------------------------------------- */

/* Appends a tensor to the tensors that the rank holds. */
static tdm_status add_shard_tensor(struct shards_builder *builder,
                                   const struct tdm__shard_tensor *shard_tensor)
{
    struct tdm__rank_shards *shards = &builder->shards;

    TDM_TRY(tdm__array_grow((void **)&shards->shard_tensors, &builder->shard_tensors_capacity,
                            shards->shard_tensors_count, sizeof(*shard_tensor)));
    shards->shard_tensors[shards->shard_tensors_count++] = *shard_tensor;
    return TDM_OK;
}

/* Appends a slice to the slices that the rank holds. */
static tdm_status add_slice(struct shards_builder *builder, const struct tdm__tensor_slice *slice)
{
    struct tdm__rank_shards *shards = &builder->shards;

    TDM_TRY(tdm__array_grow((void **)&shards->slices, &builder->slices_capacity,
                            shards->slices_count, sizeof(*slice)));
    shards->slices[shards->slices_count++] = *slice;
    return TDM_OK;
}

/* ---- dtypes ----------------------------------------------------------------------------- */

/* Returns true if layouts of this kind can hold FP8 weights with scales. */
static bool can_hold_scales(enum tdm__sharding_kind kind)
{
    return kind == TDM__SHARDING_WHOLE || kind == TDM__SHARDING_ENGINE;
}

/* Returns the dtype in which ranks of this layout hold the model's tensor `tensor`. */
static enum tdm_dtype shard_tensor_dtype(const struct shards_builder *builder, uint32_t tensor)
{
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    enum tdm_dtype wanted = builder->sharding->dtype;
    enum tdm_dtype own = (enum tdm_dtype)info->dtype;

    if (info->kind == TDM__TENSOR_KIND_F32 || info->kind == TDM__TENSOR_KIND_SCALE) {
        return TDM_F32;
    }
    if (wanted == TDM_F8_E4M3) {
        return info->kind == TDM__TENSOR_KIND_LINEAR ? TDM_F8_E4M3 : builder->model->config.dtype;
    }
    if (wanted == 0) {
        bool is_held = own != TDM_F8_E4M3 || can_hold_scales(builder->sharding->kind);

        return is_held ? own : builder->model->config.dtype;
    }
    return wanted;
}

/* Returns true if ranks of this layout hold the model's tensor `tensor` in FP8. */
static bool is_fp8(const struct shards_builder *builder, uint32_t tensor)
{
    return shard_tensor_dtype(builder, tensor) == TDM_F8_E4M3;
}

/* ---- whole tensors and rows ------------------------------------------------------------- */

/* Adds a tensor of the rank that consists of `rows` rows of the model's tensor `tensor`. Adds
 * nothing if `rows` is 0. */
static tdm_status add_rows(struct shards_builder *builder, uint32_t tensor, uint32_t row,
                           uint32_t rows)
{
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    struct tdm__shard_tensor shard_tensor = {
        .origin = tensor,
        .layer = info->layer,
        .expert = info->expert,
        .dtype = (uint8_t)shard_tensor_dtype(builder, tensor),
        .is_scale = info->kind == TDM__TENSOR_KIND_SCALE,
        .dims_count = info->dims_count,
        .shape = {rows, info->columns},
    };
    struct tdm__tensor_slice slice = {
        .rectangle = {row, 0, rows, info->columns},
        .pitch = info->columns,
        .tensor = tensor,
        .shard_tensor = builder->shards.shard_tensors_count,
        .scale = TDM__NO_SLICE,
    };

    if (rows == 0) {
        return TDM_OK;
    }
    if (shard_tensor.dtype == TDM_F8_E4M3) {
        slice.scale = builder->shards.slices_count + 1;
    }
    TDM_TRY(add_shard_tensor(builder, &shard_tensor));
    return add_slice(builder, &slice);
}

/* Computes the shards of whole tensors (1 shard) or of FSDP's sharded state: equal pieces of
 * dimension 0. */
static tdm_status shards_make_fsdp_sharded(struct shards_builder *builder)
{
    uint32_t shards = builder->sharding->shards_count;
    uint32_t shard = builder->rank % shards;

    for (uint32_t i = 0; i < builder->model->tensors_count; i++) {
        const struct tdm__model_tensor *info = &builder->model->tensors[i];
        bool is_cut = info->kind != TDM__TENSOR_KIND_F32;
        uint32_t chunk = is_cut ? info->rows / shards + (info->rows % shards != 0) : info->rows;
        uint64_t first = is_cut ? (uint64_t)shard * chunk : 0;
        uint64_t left = first < info->rows ? info->rows - first : 0;

        if (info->kind == TDM__TENSOR_KIND_SCALE && !is_fp8(builder, i - 1)) {
            continue;
        }
        TDM_TRY(add_rows(builder, i, (uint32_t)first, left < chunk ? (uint32_t)left : chunk));
    }
    return TDM_OK;
}

/* ---- flat slices ------------------------------------------------------------------------ */

/* A flat unit: the elements of all tensors of a layer, or of all tensors outside of layers, in
 * a row. It is cut into equal pieces; the last ones are padded. */
struct flat_unit {
    uint64_t elements; /* Number of elements of all tensors in the unit. */
    uint64_t next;     /* Position in the unit where the next tensor starts, in elements. */
    uint64_t first;    /* Position in the unit of the first element that the rank holds. */
    uint64_t end;      /* Position in the unit after the last element that the rank holds. */
    /* Index of the rank's tensor that holds the rank's piece of the flat unit. */
    uint32_t shard_tensor;
};

/* Returns the index of the flat unit to which a tensor belongs: its layer, or the layer count for
 * other tensors. */
static uint32_t flat_unit_of(const struct tdm__model *model, const struct tdm__model_tensor *info)
{
    bool is_in_layer =
        info->template_id >= TDM__T_INPUT_NORM && info->template_id <= TDM__T_MTP_HEAD;

    return is_in_layer ? info->layer : model->layers_count;
}

/* Adds slices for the elements from `first` up to, but without, `end` of a tensor: the rest of a
 * row, whole rows, and the beginning of a row. */
static tdm_status add_range(struct shards_builder *builder, const struct tdm__tensor_slice *whole,
                            uint64_t first, uint64_t end)
{
    uint32_t columns = builder->model->tensors[whole->tensor].columns;
    struct tdm__tensor_slice slice = *whole;

    while (first < end) {
        uint32_t column = (uint32_t)(first % columns);
        uint64_t rows = column == 0 && end - first >= columns ? (end - first) / columns : 1;
        uint64_t width = end - first < columns - column ? end - first : columns - column;

        slice.rectangle = (struct tdm__rectangle){(uint32_t)(first / columns), column,
                                                  (uint32_t)rows, (uint32_t)width};
        TDM_TRY(add_slice(builder, &slice));
        slice.offset += rows * width;
        first += rows * width;
    }
    return TDM_OK;
}

/* Adds the slices of a model's tensor that lie in the rank's piece of a flat unit. */
static tdm_status add_flat(struct shards_builder *builder, uint32_t tensor, struct flat_unit *unit)
{
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    uint64_t begin = unit->next;
    uint64_t end = begin + (uint64_t)info->rows * info->columns;
    uint64_t from = begin > unit->first ? begin : unit->first;
    uint64_t to = end < unit->end ? end : unit->end;
    struct tdm__tensor_slice slice = {
        .pitch = info->columns,
        .tensor = tensor,
        .shard_tensor = unit->shard_tensor,
        .scale = TDM__NO_SLICE,
    };

    unit->next = end;
    if (from >= to) {
        return TDM_OK;
    }
    slice.offset = from - unit->first;
    return add_range(builder, &slice, from - begin, to - begin);
}

/* Adds the rank's piece of each flat unit as a tensor of the rank. */
static tdm_status add_units(struct shards_builder *builder, struct flat_unit *units)
{
    uint32_t shards = builder->sharding->shards_count;

    for (uint32_t i = 0; i <= builder->model->layers_count; i++) {
        uint64_t chunk = units[i].elements / shards + (units[i].elements % shards != 0);
        struct tdm__shard_tensor shard_tensor = {
            .origin = i,
            .dtype = (uint8_t)(builder->sharding->dtype != 0 ? builder->sharding->dtype
                                                             : builder->model->config.dtype),
            .is_unit = true,
            .dims_count = 1,
            .shape = {chunk, 1},
        };

        units[i].first = chunk * (builder->rank % shards);
        units[i].end = units[i].first + chunk;
        units[i].shard_tensor = builder->shards.shard_tensors_count;
        TDM_TRY(add_shard_tensor(builder, &shard_tensor));
    }
    return TDM_OK;
}

/* Computes the sizes of all flat units and adds the rank's slices of them. Float32 tensors are kept
 * whole. */
static tdm_status add_all_flat(struct shards_builder *builder, struct flat_unit *units)
{
    const struct tdm__model *model = builder->model;

    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct tdm__model_tensor *info = &model->tensors[i];

        if (info->kind < TDM__TENSOR_KIND_F32) {
            units[flat_unit_of(model, info)].elements += (uint64_t)info->rows * info->columns;
        }
    }
    TDM_TRY(add_units(builder, units));
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct tdm__model_tensor *info = &model->tensors[i];

        if (info->kind == TDM__TENSOR_KIND_F32) {
            TDM_TRY(add_rows(builder, i, 0, info->rows));
        } else if (info->kind != TDM__TENSOR_KIND_SCALE) {
            TDM_TRY(add_flat(builder, i, &units[flat_unit_of(model, info)]));
        }
    }
    return TDM_OK;
}

/* Computes the shards of FSDP's local state. */
static tdm_status shards_make_fsdp_local(struct shards_builder *builder)
{
    struct flat_unit *units = calloc(builder->model->layers_count + 1, sizeof(*units));
    tdm_status status;

    if (units == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u flat units", builder->model->layers_count + 1);
    }
    status = add_all_flat(builder, units);
    free(units);
    return status;
}

/* ---- tensors by rules ------------------------------------------------------------------- */

/* A tensor of the rank that a layout rule makes of one to three components: tensors of the model
 * that are each cut into slots. */
struct fused_tensor {
    const struct tdm__layout_rule *rule; /* Layout rule that makes the tensor; borrowed. */
    uint32_t rule_index;                 /* Index of the rule in the table of the layout's kind. */
    uint32_t layer;                      /* Index of the layer to which the tensor belongs. */
    uint32_t expert; /* Index of the first expert in the tensor; 0 if it belongs to no expert. */
    /* Number of experts in the tensor; 1 if it belongs to no expert. */
    uint32_t experts;
    /* Index of the first slot (part into which each component is cut) that this rank holds. */
    uint32_t slot;
    uint32_t slots_here;     /* Number of consecutive slots that this rank holds. */
    uint32_t slots;          /* Number of slots into which each component is cut, over all ranks. */
    uint32_t shard_tensor;   /* Index of this tensor among the rank's tensors. */
    uint64_t shape[2];       /* Shape of the rank's tensor, for one expert. */
    uint64_t scale_shape[2]; /* Shape of the FP8 scales of the rank's tensor, for one expert. */
    bool has_scales;         /* True if the tensor is FP8 and has scales. */
};

/* A range of rows or columns of a component, along the axis that is cut. */
struct axis_range {
    uint32_t first; /* Index of the range's first row or column. */
    uint32_t count; /* Number of rows or columns, with rows that are added to the vocabulary. */
    /* Number of rows or columns that exist in the model, without added rows. */
    uint32_t held_count;
};

/* Returns the index of the model's tensor that is component number `part` of a fused tensor, for
 * one expert. */
static uint32_t component_of(const struct shards_builder *builder, const struct fused_tensor *fused,
                             uint32_t part, uint32_t expert)
{
    return tdm__model_tensor_index(builder->model, fused->rule->components[part], fused->layer,
                                   expert);
}

/* Fails with TDM_E_INVAL because the layout cannot divide a tensor. The message is the tensor's
 * name, `number`, `why` and `other`. */
static tdm_status fail_layout(const struct shards_builder *builder, uint32_t tensor,
                              const char *why, uint32_t number, uint32_t other)
{
    char name[TDM_TENSOR_NAME_BYTES_MAX];

    return tdm__fail(TDM_E_INVAL, "%s: %u %s %u",
                     tdm__model_tensor_name(builder->model, tensor, name), number, why, other);
}

/* Computes which rows or columns of component `part` are in slot number `slot`. */
static tdm_status cut_component(const struct shards_builder *builder,
                                const struct fused_tensor *fused, uint32_t part, uint32_t slot,
                                struct axis_range *cut_out)
{
    uint32_t tensor = component_of(builder, fused, part, fused->expert);
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    uint32_t real = fused->rule->axis == 0 ? info->rows : info->columns;
    uint32_t units =
        tdm__model_axis_units(builder->model, fused->rule->components[part], fused->rule->axis);
    uint32_t length = real;
    struct axis_range cut;

    if ((fused->rule->flags & TDM__RULE_PADDED) != 0) {
        uint32_t multiple = builder->sharding->vocabulary_multiple;

        length = (real + multiple - 1) / multiple * multiple;
        units = length;
    }
    if (units % fused->slots == 0) {
        cut.count = length / fused->slots;
        cut.first = slot * cut.count;
    } else if ((fused->rule->flags & TDM__RULE_REPLICATED) != 0 && fused->slots % units == 0) {
        cut.count = length / units;
        cut.first = slot / (fused->slots / units) * cut.count;
    } else {
        return fail_layout(builder, tensor, "heads or rows cannot be cut over", units,
                           fused->slots);
    }
    cut.held_count = cut.first >= real              ? 0
                     : real - cut.first < cut.count ? real - cut.first
                                                    : cut.count;
    *cut_out = cut;
    return TDM_OK;
}

/* Returns how many FP8 blocks cover a row or column of `elements` elements. */
static uint32_t fp8_blocks_count(uint32_t elements)
{
    return (elements + TDM__FP8_BLOCK - 1) / TDM__FP8_BLOCK;
}

/* Checks that a rank's piece of an FP8 tensor consists of whole blocks of 128 x 128 of
 * the model's tensor. */
static tdm_status check_blocks(const struct shards_builder *builder, uint32_t tensor,
                               const struct tdm__layout_rule *rule, const struct axis_range *cut,
                               uint64_t position)
{
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    uint32_t end = cut->first + cut->count;
    uint32_t length = rule->axis == 0 ? info->rows : info->columns;

    if (cut->first % TDM__FP8_BLOCK != 0 || position % TDM__FP8_BLOCK != 0 ||
        (end % TDM__FP8_BLOCK != 0 && end != length)) {
        return fail_layout(
            builder, tensor,
            "rows or columns a rank are no whole FP8 blocks, or do not begin at one: "
            "blocks are of",
            cut->count, TDM__FP8_BLOCK);
    }
    return TDM_OK;
}

/* Computes the shape of a rank's fused tensor: along the axis of its rule, the sum of its
 * components. */
static tdm_status compute_fused_shape(const struct shards_builder *builder,
                                      struct fused_tensor *fused)
{
    const struct tdm__model_tensor *info =
        &builder->model->tensors[component_of(builder, fused, 0, fused->expert)];
    uint32_t axis = fused->rule->axis;

    fused->has_scales = is_fp8(builder, component_of(builder, fused, 0, fused->expert));
    fused->shape[0] = axis == 0 ? 0 : info->rows;
    fused->shape[1] = axis == 1 ? 0 : info->columns;
    fused->scale_shape[0] = fp8_blocks_count((uint32_t)fused->shape[0]);
    fused->scale_shape[1] = fp8_blocks_count((uint32_t)fused->shape[1]);
    for (uint32_t part = 0; part < fused->rule->components_count; part++) {
        struct axis_range cut;

        TDM_TRY(cut_component(builder, fused, part, fused->slot, &cut));
        if (fused->has_scales) {
            TDM_TRY(check_blocks(builder, component_of(builder, fused, part, fused->expert),
                                 fused->rule, &cut, fused->shape[axis]));
        }
        fused->shape[axis] += (uint64_t)cut.count * fused->slots_here;
        fused->scale_shape[axis] += (uint64_t)fp8_blocks_count(cut.count) * fused->slots_here;
    }
    return TDM_OK;
}

/* Adds a fused tensor, or the tensor of its FP8 scales, to the rank's tensors. */
static tdm_status add_fused_shard_tensor(struct shards_builder *builder,
                                         const struct fused_tensor *fused, bool is_scale)
{
    uint32_t tensor = component_of(builder, fused, 0, fused->expert);
    const uint64_t *shape = is_scale ? fused->scale_shape : fused->shape;
    bool is_stacked = fused->rule->scope == TDM__RULE_ALL_EXPERTS;
    struct tdm__shard_tensor shard_tensor = {
        .origin = fused->rule_index,
        .layer = (uint16_t)fused->layer,
        .expert = (uint16_t)(is_stacked ? 0 : fused->expert),
        .dtype = (uint8_t)(is_scale ? TDM_F32 : shard_tensor_dtype(builder, tensor)),
        .is_scale = is_scale,
        .dims_count = builder->model->tensors[tensor].dims_count,
        .shape = {shape[0], shape[1]},
    };

    if (is_stacked) {
        shard_tensor.dims_count = 3;
        shard_tensor.shape[0] = fused->experts;
        shard_tensor.shape[1] = shape[0];
        shard_tensor.shape[2] = shape[1];
    } else if (fused->rule->scope == TDM__RULE_EVERY_EXPERT) {
        uint32_t group = builder->model->config.experts / builder->sharding->expert_groups;

        shard_tensor.expert = (uint16_t)(fused->expert % group);
    }
    return add_shard_tensor(builder, &shard_tensor);
}

/* Returns the slice that holds a range of a component. `position` is the row or column of the
 * rank's tensor at which the range starts. */
static struct tdm__tensor_slice place_cut(const struct fused_tensor *fused,
                                          const struct tdm__model_tensor *info,
                                          struct axis_range cut, uint64_t position,
                                          const uint64_t shape[2])
{
    bool is_column = fused->rule->axis == 1;

    return (struct tdm__tensor_slice){
        .rectangle = {is_column ? 0 : cut.first, is_column ? cut.first : 0,
                      is_column ? info->rows : cut.held_count,
                      is_column ? cut.held_count : info->columns},
        .offset = is_column ? position : position * shape[1],
        .pitch = (uint32_t)shape[1],
        .shard_tensor = fused->shard_tensor,
        .scale = TDM__NO_SLICE,
    };
}

/* Adds the slice that holds a range of a component, and the slice of its FP8 scales if there are
 * any. */
static tdm_status add_cut_slices(struct shards_builder *builder, const struct fused_tensor *fused,
                                 uint32_t tensor, struct axis_range cut, uint64_t position)
{
    const struct tdm__model_tensor *info = &builder->model->tensors[tensor];
    /* Number of experts before the expert of `info` in the fused tensor. */
    uint64_t stacked = info->expert - fused->expert;
    struct tdm__tensor_slice slice = place_cut(fused, info, cut, position, fused->shape);
    struct axis_range scales = {cut.first / TDM__FP8_BLOCK, 0, fp8_blocks_count(cut.held_count)};
    struct tdm__tensor_slice scale;

    slice.tensor = tensor;
    slice.offset += stacked * fused->shape[0] * fused->shape[1];
    if (cut.held_count == 0) {
        return TDM_OK;
    }
    if (!fused->has_scales) {
        return add_slice(builder, &slice);
    }
    slice.scale = builder->shards.slices_count + 1;
    scale = place_cut(fused, info + 1, scales, position / TDM__FP8_BLOCK, fused->scale_shape);
    scale.tensor = tensor + 1;
    scale.shard_tensor = fused->shard_tensor + 1;
    scale.offset += stacked * fused->scale_shape[0] * fused->scale_shape[1];
    TDM_TRY(add_slice(builder, &slice));
    return add_slice(builder, &scale);
}

/* Adds the slices of one expert of a fused tensor, or of one without experts, for all slots and
 * components. */
static tdm_status add_expert(struct shards_builder *builder, const struct fused_tensor *fused,
                             uint32_t expert)
{
    uint64_t position = 0;

    for (uint32_t slot = fused->slot; slot < fused->slot + fused->slots_here; slot++) {
        for (uint32_t part = 0; part < fused->rule->components_count; part++) {
            struct axis_range cut;

            TDM_TRY(cut_component(builder, fused, part, slot, &cut));
            TDM_TRY(add_cut_slices(builder, fused, component_of(builder, fused, part, expert), cut,
                                   position));
            position += cut.count;
        }
    }
    return TDM_OK;
}

/* Adds a fused tensor and all its slices to what the rank holds. */
static tdm_status add_fused(struct shards_builder *builder, struct fused_tensor *fused)
{
    TDM_TRY(compute_fused_shape(builder, fused));
    if ((fused->rule->flags & TDM__RULE_ALIAS) != 0) {
        fused->shard_tensor = builder->shards.shard_tensors_count - 1;
    } else {
        fused->shard_tensor = builder->shards.shard_tensors_count;
        TDM_TRY(add_fused_shard_tensor(builder, fused, false));
        if (fused->has_scales) {
            TDM_TRY(add_fused_shard_tensor(builder, fused, true));
        }
    }
    for (uint32_t expert = 0; expert < fused->experts; expert++) {
        TDM_TRY(add_expert(builder, fused, fused->expert + expert));
    }
    return TDM_OK;
}

/* Computes which slots of a fused tensor's components this rank holds. */
static tdm_status find_slots(const struct shards_builder *builder, struct fused_tensor *fused)
{
    enum tdm__split split = fused->rule->split;
    uint32_t size = builder->sharding->sizes[split];
    uint32_t groups = builder->model->config.kv_heads;

    fused->slot = tdm__sharding_split_index(builder->sharding, split, builder->rank);
    fused->slots_here = 1;
    fused->slots = size;
    if ((fused->rule->flags & TDM__RULE_BY_QUERY_GROUP) == 0) {
        return TDM_OK;
    }
    if (groups % size != 0) {
        return fail_layout(builder, component_of(builder, fused, 0, 0),
                           "query groups cannot be cut over", groups, size);
    }
    fused->slots = groups;
    fused->slots_here = groups / size;
    fused->slot *= fused->slots_here;
    return TDM_OK;
}

/* Adds the fused tensors that a rule makes for the experts of the rank's expert group. */
static tdm_status add_experts(struct shards_builder *builder, struct fused_tensor *fused)
{
    uint32_t experts = builder->model->config.experts;
    uint32_t groups = builder->sharding->expert_groups;
    uint32_t first;

    if (experts % groups != 0) {
        return fail_layout(builder, component_of(builder, fused, 0, 0),
                           "experts cannot be spread over groups:", experts, groups);
    }
    first = tdm__sharding_expert_group_index(builder->sharding, builder->rank) * (experts / groups);
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

/* Returns true if a rule of this scope makes tensors in the layer. */
static bool rule_is_in_layer(const struct tdm__model *model, enum tdm__layout_rule_scope scope,
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

/* Adds the tensors that rule number `index` makes in layer number `layer`. */
static tdm_status apply_rule(struct shards_builder *builder, const struct tdm__layout_rules *rules,
                             uint32_t index, uint32_t layer)
{
    const struct tdm__layout_rule *rule = &rules->rules[index];
    struct fused_tensor fused = {.rule = rule, .rule_index = index, .layer = layer, .experts = 1};

    TDM_TRY(find_slots(builder, &fused));
    if (rule->scope == TDM__RULE_EVERY_EXPERT || rule->scope == TDM__RULE_ALL_EXPERTS) {
        return add_experts(builder, &fused);
    }
    return add_fused(builder, &fused);
}

/* Adds the tensors that all rules make in layer number `layer`. */
static tdm_status shards_make_layer(struct shards_builder *builder,
                                    const struct tdm__layout_rules *rules, uint32_t layer)
{
    for (uint32_t i = 0; i < rules->rules_count; i++) {
        const struct tdm__layout_rule *rule = &rules->rules[i];

        if ((rule->required_features & ~builder->model->features) == 0 &&
            rule_is_in_layer(builder->model, rule->scope, layer)) {
            TDM_TRY(apply_rule(builder, rules, i, layer));
        }
    }
    return TDM_OK;
}

/* Returns true if a rule of this scope makes a tensor outside of layers in the pipeline stage. */
static bool rule_is_in_stage(const struct tdm__sharding *sharding,
                             enum tdm__layout_rule_scope scope, uint32_t stage)
{
    bool is_last = stage == sharding->stages_count - 1;

    return (scope == TDM__RULE_FIRST_STAGE && stage == 0) ||
           (scope == TDM__RULE_LAST_STAGE && is_last) ||
           (scope == TDM__RULE_ONLY_LAST_STAGE && is_last && stage != 0);
}

/* Applies the rules for tensors outside of layers. An alias covers the tensors of all layers of
 * multi-token prediction. */
static tdm_status shards_make_outside_layers(struct shards_builder *builder,
                                             const struct tdm__layout_rules *rules, uint32_t stage)
{
    const struct tdm__model *model = builder->model;

    for (uint32_t i = 0; i < rules->rules_count; i++) {
        const struct tdm__layout_rule *rule = &rules->rules[i];

        if ((rule->required_features & ~model->features) != 0 ||
            !rule_is_in_stage(builder->sharding, rule->scope, stage)) {
            continue;
        }
        if ((rule->flags & TDM__RULE_ALIAS) == 0) {
            TDM_TRY(apply_rule(builder, rules, i, 0));
            continue;
        }
        for (uint32_t layer = model->config.layers;
             layer < model->layers_count && builder->role == TDM__SHARDS_SOURCE; layer++) {
            TDM_TRY(apply_rule(builder, rules, i, layer));
        }
    }
    return TDM_OK;
}

/* Computes the shards of a layout that has rules. */
static tdm_status shards_make_by_rules(struct shards_builder *builder,
                                       const struct tdm__layout_rules *rules)
{
    const struct tdm__model *model = builder->model;
    uint32_t stage = tdm__sharding_stage_index(builder->sharding, builder->rank);
    struct tdm__layer_range layers;

    TDM_TRY(tdm__sharding_stage_layers(builder->sharding, stage, model->config.layers, &layers));
    TDM_TRY(shards_make_outside_layers(builder, rules, stage));
    for (uint32_t layer = layers.first; layer < layers.end; layer++) {
        TDM_TRY(shards_make_layer(builder, rules, layer));
    }
    for (uint32_t layer = model->config.layers;
         layer < model->layers_count && stage == builder->sharding->stages_count - 1; layer++) {
        TDM_TRY(shards_make_layer(builder, rules, layer));
    }
    return TDM_OK;
}

/* ---- the entry points ---------------------------------------------------------------------- */

/* Computes the shards with the algorithm of the layout's kind. */
static tdm_status shards_make_by_kind(struct shards_builder *builder)
{
    const struct tdm__layout_rules *rules = tdm__layout_rules_of_kind(builder->sharding->kind);

    if (builder->sharding->dtype == TDM_F8_E4M3 && !builder->model->has_scales) {
        return tdm__fail(TDM_E_INVAL, "layout: dtype F8_E4M3, but the model has no scales");
    }
    if (rules != NULL) {
        return shards_make_by_rules(builder, rules);
    }
    return builder->sharding->kind == TDM__SHARDING_FSDP_LOCAL ? shards_make_fsdp_local(builder)
                                                               : shards_make_fsdp_sharded(builder);
}

tdm_status tdm__rank_shards_init(const struct tdm__model *model,
                                 const struct tdm__sharding *sharding, uint32_t rank,
                                 enum tdm__shards_role role, struct tdm__rank_shards *shards_out)
{
    struct shards_builder builder = {
        .model = model, .sharding = sharding, .rank = rank, .role = role};
    tdm_status status;

    TDM_ASSERT(rank < sharding->ranks_count);
    status = shards_make_by_kind(&builder);
    if (status != TDM_OK) {
        tdm__rank_shards_fini(&builder.shards);
        return status;
    }
    *shards_out = builder.shards;
    return TDM_OK;
}

void tdm__rank_shards_fini(struct tdm__rank_shards *shards)
{
    free(shards->shard_tensors);
    free(shards->slices);
    *shards = (struct tdm__rank_shards){.shard_tensors = NULL};
}

uint64_t tdm__shard_tensor_elements(const struct tdm__shard_tensor *shard_tensor)
{
    uint64_t elements = 1;

    for (uint32_t i = 0; i < shard_tensor->dims_count; i++) {
        elements *= shard_tensor->shape[i];
    }
    return elements;
}

uint64_t tdm__shard_tensor_bytes(const struct tdm__shard_tensor *shard_tensor)
{
    return tdm__shard_tensor_elements(shard_tensor) *
           tdm_dtype_bytes((enum tdm_dtype)shard_tensor->dtype);
}

const char *tdm__shard_tensor_name(const struct tdm__model *model,
                                   const struct tdm__sharding *sharding,
                                   const struct tdm__shard_tensor *shard_tensor,
                                   char name[TDM_TENSOR_NAME_BYTES_MAX])
{
    const struct tdm__layout_rules *rules = tdm__layout_rules_of_kind(sharding->kind);

    if (shard_tensor->is_unit) {
        bool is_layer = shard_tensor->origin < model->layers_count;

        tdm__tensor_name_expand(is_layer ? "model.layers.{L}._flat_param" : "_flat_param",
                                shard_tensor->origin, 0, name);
    } else if (rules == NULL) {
        (void)tdm__model_tensor_name(model, shard_tensor->origin, name);
    } else {
        tdm__layout_rule_tensor_name(rules, &rules->rules[shard_tensor->origin], model,
                                     shard_tensor->layer, shard_tensor->expert, name);
        if (shard_tensor->is_scale) {
            size_t length = strlen(name);
            struct tdm__text text =
                tdm__text_init(name + length, TDM_TENSOR_NAME_BYTES_MAX - length);

            tdm__text_add(&text, "_scale_inv");
        }
    }
    return name;
}
