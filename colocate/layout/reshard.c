/* reshard.c - computes the plan that copies weights from one layout to another. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A plan lists, for each rank of the destination, rectangles to copy from ranks of the source.
 * struct reshard_compiler holds the state of the computation.
 *
 * Every slice of the destination is visited in two passes. The first only counts what sources must
 * send because no other rank can. In the second pass, slices with a choice of sources therefore go
 * to the least loaded one. Adjacent rectangles of the same two tensors are merged. A slice that
 * becomes FP8 and whose blocks of 128 x 128 come from several sources is first copied to staging
 * memory and converted from there.
 *
 * Invariants: no element of the destination is written twice; the same arguments give the same
 * plan, byte by byte. There is no shared state; any thread may enter. */

#include "colocate/layout/reshard.h"

#include "colocate/layout/source_index.h"
#include "runtime/array_grow.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

enum {
    STAGING_ALIGNMENT = 256, /* Alignment of slices in the staging memory, in bytes. */
    /* Size in bytes; a larger rectangle that several source ranks hold is divided among them. */
    SHARE_BYTES = 16 << 20
};

/* Destination tensor index that no copy has, so that choose_source() prefers no source for the sake
 * of merging. */
#define NO_TENSOR (TDM__STAGING - 1)

/* State of the computation of one plan; lives on the stack. */
struct reshard_compiler {
    struct tdm__reshard *reshard;     /* Plan that is being computed; the caller owns it. */
    struct tdm__source_index sources; /* Index of the slices that all source ranks hold; owned. */
    /* For each source rank the bytes that it sends to other GPUs according to the plan so far;
     * owned. */
    uint64_t *sent_bytes;
    bool counts_only; /* True in the first pass, which only counts bytes and adds no copies. */
    uint32_t rank;    /* Destination rank whose copies are being computed. */
    struct tdm__rank_copies plan;    /* Copies of the destination rank `rank` so far. */
    uint32_t copies_capacity;        /* Number of entries for which plan.copies has space. */
    uint32_t staged_copies_capacity; /* Number of entries for which plan.staged_copies has space. */
    uint32_t scales_capacity;        /* Number of entries for which plan.scales has space. */
};

/* ---- growing lists ------------------------------------------------------------------------- */

/* Adds a copy to those of the destination rank. Merges it with the last copy if both together are
 * one rectangle. */
static tdm_status add_copy(struct reshard_compiler *compiler, const struct tdm__rect_copy *copy)
{
    struct tdm__rank_copies *plan = &compiler->plan;

    if (plan->copies_count > 0 &&
        tdm__rect_copy_merge(&plan->copies[plan->copies_count - 1], copy)) {
        return TDM_OK;
    }
    TDM_TRY(tdm__array_grow((void **)&plan->copies, &compiler->copies_capacity, plan->copies_count,
                            sizeof(*copy)));
    plan->copies[plan->copies_count++] = *copy;
    return TDM_OK;
}

/* Adds a copy from the staging memory to those of the destination rank. */
static tdm_status add_staged_copy(struct reshard_compiler *compiler,
                                  const struct tdm__rect_copy *pass)
{
    struct tdm__rank_copies *plan = &compiler->plan;

    TDM_TRY(tdm__array_grow((void **)&plan->staged_copies, &compiler->staged_copies_capacity,
                            plan->staged_copies_count, sizeof(*pass)));
    plan->staged_copies[plan->staged_copies_count++] = *pass;
    return TDM_OK;
}

/* Adds a location at which a conversion to FP8 writes scales to those of the destination rank. */
static tdm_status add_scales(struct reshard_compiler *compiler,
                             const struct tdm__scales_location *scales)
{
    struct tdm__rank_copies *plan = &compiler->plan;

    TDM_TRY(tdm__array_grow((void **)&plan->scales, &compiler->scales_capacity, plan->scales_count,
                            sizeof(*scales)));
    plan->scales[plan->scales_count++] = *scales;
    return TDM_OK;
}

/* ---- choosing a source --------------------------------------------------------------------- */

/* Returns how near source rank `from_rank` is to the destination rank whose copies are being
 * computed. */
static enum tdm__copy_locality source_locality(const struct reshard_compiler *compiler,
                                               uint32_t from_rank)
{
    const struct tdm__rank_location *from = &compiler->reshard->from.locations[from_rank];
    const struct tdm__rank_location *to = &compiler->reshard->to.locations[compiler->rank];

    if (from->node != to->node) {
        return TDM__LOCALITY_OTHER_NODE;
    }
    return from->gpu == to->gpu ? TDM__LOCALITY_SAME_GPU : TDM__LOCALITY_SAME_NODE;
}

/* The source rank that was chosen for the copy of a rectangle. */
struct source_choice {
    const struct tdm__source_slice *source_slice; /* Slice of the source rank that was chosen. */
    enum tdm__copy_locality locality; /* How near the source rank is to the destination rank. */
    bool had_alternative; /* True if another source rank with the rectangle was equally near. */
};

/* Returns true if a copy from this source slice to the rank's tensor `to_tensor` may be merged with
 * the last copy. */
static bool copy_continues(const struct reshard_compiler *compiler,
                           const struct tdm__source_slice *source_slice, uint32_t to_tensor)
{
    const struct tdm__rank_copies *plan = &compiler->plan;
    const struct tdm__rect_copy *last;

    if (plan->copies_count == 0) {
        return false;
    }
    last = &plan->copies[plan->copies_count - 1];
    return last->to_tensor == to_tensor && last->from_rank == source_slice->rank &&
           last->from_tensor == source_slice->shard_tensor;
}

/* Chooses from which of `count` source slices with the same rectangle to copy: the nearest, then
 * one that continues the last copy to `to_tensor`, then the one whose rank sends the fewest
 * bytes. */
static struct source_choice choose_source(const struct reshard_compiler *compiler,
                                          const struct tdm__source_slice *source_slices,
                                          uint32_t count, uint32_t to_tensor)
{
    struct source_choice choice = {source_slices, source_locality(compiler, source_slices->rank),
                                   false};
    bool is_settled = copy_continues(compiler, source_slices, to_tensor);

    for (uint32_t i = 1; i < count; i++) {
        const struct tdm__source_slice *source_slice = &source_slices[i];
        enum tdm__copy_locality locality = source_locality(compiler, source_slice->rank);
        bool goes_on = copy_continues(compiler, source_slice, to_tensor);

        if (locality > choice.locality) {
            continue;
        }
        choice.had_alternative = locality == choice.locality;
        if (locality < choice.locality || goes_on ||
            (!is_settled && compiler->sent_bytes[source_slice->rank] <
                                compiler->sent_bytes[choice.source_slice->rank])) {
            choice.source_slice = source_slice;
            choice.locality = locality;
            is_settled = goes_on;
        }
    }
    return choice;
}

/* ---- one slice -------------------------------------------------------------------------- */

/* A slice that a destination rank must get, while its copies are computed. */
struct slice_need {
    const struct tdm__tensor_slice *slice; /* Slice that the destination rank must get; borrowed. */
    /* Slice with the FP8 scales of `slice`; borrowed, NULL if there are no scales. */
    const struct tdm__tensor_slice *scale;
    uint8_t dtype;      /* Data type in the destination, an enum tdm_dtype. */
    uint8_t from_dtype; /* Data type in the source, an enum tdm_dtype. */
    uint8_t conversion; /* Conversion between the two dtypes, an enum tdm__conversion. */
    /* True if the slice is assembled in the staging memory before it is converted. */
    bool is_staged;
    /* Offset of the slice in the staging memory, in bytes. */
    uint64_t staging_offset;
};

/* Returns the size in bytes of a rectangle of the slice in the source's dtype. */
static uint64_t copied_bytes(const struct slice_need *slice_need,
                             const struct tdm__rectangle *rectangle)
{
    return (uint64_t)rectangle->rows * rectangle->columns *
           tdm_dtype_bytes((enum tdm_dtype)slice_need->from_dtype);
}

/* Computes the intersection of two rectangles; returns false if it is empty. */
static bool intersect(const struct tdm__rectangle *one, const struct tdm__rectangle *other,
                      struct tdm__rectangle *both_out)
{
    uint32_t row = one->row > other->row ? one->row : other->row;
    uint32_t column = one->column > other->column ? one->column : other->column;
    uint32_t row_end = one->row + one->rows;
    uint32_t column_end = one->column + one->columns;

    row_end = row_end < other->row + other->rows ? row_end : other->row + other->rows;
    column_end =
        column_end < other->column + other->columns ? column_end : other->column + other->columns;
    if (row >= row_end || column >= column_end) {
        return false;
    }
    *both_out = (struct tdm__rectangle){row, column, row_end - row, column_end - column};
    return true;
}

/* Sets the conversion between the source's and the destination's dtype of a slice. Fails with
 * TDM_E_UNSUPPORTED if absent. */
static tdm_status find_conversion(const struct reshard_compiler *compiler,
                                  struct slice_need *slice_need)
{
    bool from_float = slice_need->from_dtype == TDM_F32 || slice_need->from_dtype == TDM_BF16;

    if (slice_need->from_dtype == slice_need->dtype) {
        slice_need->conversion = TDM__CONVERT_NONE;
    } else if (slice_need->from_dtype == TDM_F32 && slice_need->dtype == TDM_BF16) {
        slice_need->conversion = TDM__CONVERT_BF16;
    } else if (from_float && slice_need->dtype == TDM_F8_E4M3) {
        slice_need->conversion = TDM__CONVERT_FP8;
    } else {
        char name[TDM_TENSOR_NAME_BYTES_MAX];

        return tdm__fail(
            TDM_E_UNSUPPORTED, "%s: %s is not converted to %s",
            tdm__model_tensor_name(compiler->reshard->model, slice_need->slice->tensor, name),
            tdm_dtype_name((enum tdm_dtype)slice_need->from_dtype),
            tdm_dtype_name((enum tdm_dtype)slice_need->dtype));
    }
    return TDM_OK;
}

/* Returns true if the rectangle consists of whole FP8 blocks of the slice `whole`, which itself
 * starts at a block. */
static bool is_of_blocks(const struct tdm__rectangle *rectangle, const struct tdm__rectangle *whole)
{
    uint32_t row_end = rectangle->row + rectangle->rows;
    uint32_t column_end = rectangle->column + rectangle->columns;

    return rectangle->row % TDM__FP8_BLOCK == 0 && rectangle->column % TDM__FP8_BLOCK == 0 &&
           (row_end % TDM__FP8_BLOCK == 0 || row_end == whole->row + whole->rows) &&
           (column_end % TDM__FP8_BLOCK == 0 || column_end == whole->column + whole->columns);
}

/* Adds the location of the scales that the copy of a rectangle writes. */
static tdm_status locate_scales(struct reshard_compiler *compiler,
                                const struct slice_need *slice_need,
                                const struct tdm__rectangle *rectangle, struct tdm__rect_copy *copy)
{
    const struct tdm__rectangle *whole = &slice_need->slice->rectangle;
    uint64_t row = (rectangle->row - whole->row) / TDM__FP8_BLOCK;
    uint64_t column = (rectangle->column - whole->column) / TDM__FP8_BLOCK;
    const struct tdm__scales_location scales = {
        .offset = slice_need->scale->offset + row * slice_need->scale->pitch + column,
        .tensor = slice_need->scale->shard_tensor,
        .pitch = slice_need->scale->pitch,
    };

    copy->scales = compiler->plan.scales_count;
    return add_scales(compiler, &scales);
}

/* Adds the copy of a rectangle from the chosen source rank to the destination tensor or to the
 * staging memory. */
static tdm_status emit_copies(struct reshard_compiler *compiler,
                              const struct slice_need *slice_need,
                              const struct source_choice *choice,
                              const struct tdm__rectangle *rectangle)
{
    const struct tdm__rectangle *held = &choice->source_slice->rectangle;
    const struct tdm__rectangle *whole = &slice_need->slice->rectangle;
    uint64_t row = rectangle->row - whole->row;
    uint64_t column = rectangle->column - whole->column;
    struct tdm__rect_copy copy = {
        .from_offset = choice->source_slice->offset +
                       (uint64_t)(rectangle->row - held->row) * choice->source_slice->pitch +
                       (rectangle->column - held->column),
        .to_offset = slice_need->slice->offset + row * slice_need->slice->pitch + column,
        .from_rank = choice->source_slice->rank,
        .from_tensor = choice->source_slice->shard_tensor,
        .to_tensor = slice_need->slice->shard_tensor,
        .rows = rectangle->rows,
        .columns = rectangle->columns,
        .from_pitch = choice->source_slice->pitch,
        .to_pitch = slice_need->slice->pitch,
        .conversion = slice_need->conversion,
        .locality = (uint8_t)choice->locality,
        .from_dtype = slice_need->from_dtype,
        .to_dtype = slice_need->dtype,
    };

    if (slice_need->is_staged) {
        copy.to_offset = slice_need->staging_offset +
                         (row * whole->columns + column) *
                             tdm_dtype_bytes((enum tdm_dtype)slice_need->from_dtype);
        copy.to_tensor = TDM__STAGING;
        copy.to_pitch = whole->columns;
        copy.to_dtype = slice_need->from_dtype;
        copy.conversion = TDM__CONVERT_NONE;
    }
    if (copy.conversion == TDM__CONVERT_FP8) {
        TDM_TRY(locate_scales(compiler, slice_need, rectangle, &copy));
    } else {
        tdm__rect_copy_flatten(&copy);
    }
    return add_copy(compiler, &copy);
}

/* Reserves staging memory for a slice whose FP8 blocks come from several source ranks. Adds the
 * staged copy that converts the slice when it is complete. */
static tdm_status stage_conversion(struct reshard_compiler *compiler, struct slice_need *slice_need)
{
    const struct tdm__rectangle *whole = &slice_need->slice->rectangle;
    uint64_t size_bytes = (uint64_t)whole->rows * whole->columns *
                          tdm_dtype_bytes((enum tdm_dtype)slice_need->from_dtype);
    struct tdm__rect_copy pass = {
        .from_offset = compiler->plan.staging_bytes,
        .to_offset = slice_need->slice->offset,
        .from_rank = compiler->rank,
        .from_tensor = TDM__STAGING,
        .to_tensor = slice_need->slice->shard_tensor,
        .rows = whole->rows,
        .columns = whole->columns,
        .from_pitch = whole->columns,
        .to_pitch = slice_need->slice->pitch,
        .conversion = slice_need->conversion,
        .locality = TDM__LOCALITY_SAME_GPU,
        .from_dtype = slice_need->from_dtype,
        .to_dtype = slice_need->dtype,
    };

    slice_need->staging_offset = compiler->plan.staging_bytes;
    compiler->plan.staging_bytes +=
        (size_bytes + STAGING_ALIGNMENT - 1) / STAGING_ALIGNMENT * STAGING_ALIGNMENT;
    TDM_TRY(locate_scales(compiler, slice_need, whole, &pass));
    return add_staged_copy(compiler, &pass);
}

/* Counts the bytes that the chosen source rank sends and, in the second pass, adds the copy of the
 * rectangle. */
static tdm_status compile_from_sources(struct reshard_compiler *compiler,
                                       const struct slice_need *slice_need,
                                       const struct source_choice *choice,
                                       const struct tdm__rectangle *rectangle)
{
    if (choice->locality != TDM__LOCALITY_SAME_GPU &&
        choice->had_alternative != compiler->counts_only) {
        compiler->sent_bytes[choice->source_slice->rank] += copied_bytes(slice_need, rectangle);
    }
    return compiler->counts_only ? TDM_OK : emit_copies(compiler, slice_need, choice, rectangle);
}

/* Plans the copy of a rectangle that `replicas` source ranks hold. A large rectangle is divided by
 * rows among several equally near source ranks. */
static tdm_status compile_slice_part(struct reshard_compiler *compiler,
                                     const struct slice_need *slice_need,
                                     const struct tdm__source_slice *source_slices,
                                     uint32_t replicas, const struct tdm__rectangle *rectangle)
{
    struct source_choice choice =
        choose_source(compiler, source_slices, replicas, slice_need->slice->shard_tensor);
    uint64_t row_bytes = copied_bytes(slice_need, rectangle) / rectangle->rows;
    uint64_t share_rows = SHARE_BYTES / row_bytes / TDM__FP8_BLOCK * TDM__FP8_BLOCK;
    uint32_t end = rectangle->row + rectangle->rows;
    struct tdm__rectangle share = *rectangle;

    if (choice.locality == TDM__LOCALITY_SAME_GPU || !choice.had_alternative || share_rows == 0 ||
        share_rows >= rectangle->rows) {
        return compile_from_sources(compiler, slice_need, &choice, rectangle);
    }
    for (; share.row < end; share.row += share.rows) {
        share.rows = end - share.row < share_rows ? end - share.row : (uint32_t)share_rows;
        choice = choose_source(compiler, source_slices, replicas, NO_TENSOR);
        TDM_TRY(compile_from_sources(compiler, slice_need, &choice, &share));
    }
    return TDM_OK;
}

/* Checks that the source ranks hold all elements of the slice, and decides whether the slice must
 * be staged. */
static tdm_status check_source_slices(const struct reshard_compiler *compiler,
                                      struct slice_need *slice_need,
                                      const struct tdm__source_slice *source_slices,
                                      const struct tdm__source_slice *end)
{
    const struct tdm__rectangle *whole = &slice_need->slice->rectangle;
    uint64_t wanted = (uint64_t)whole->rows * whole->columns;
    uint64_t held = 0;

    while (source_slices < end) {
        struct tdm__rectangle rectangle;

        if (intersect(&source_slices->rectangle, whole, &rectangle)) {
            held += (uint64_t)rectangle.rows * rectangle.columns;
            slice_need->is_staged |=
                slice_need->conversion == TDM__CONVERT_FP8 && !is_of_blocks(&rectangle, whole);
        }
        source_slices += tdm__source_replicas_count(source_slices, end);
    }
    if (held != wanted) {
        char name[TDM_TENSOR_NAME_BYTES_MAX];

        return tdm__fail(
            TDM_E_INVAL,
            "%s: of the %llu elements at row %u, column %u that rank %u of the "
            "destination wants, the source holds %llu",
            tdm__model_tensor_name(compiler->reshard->model, slice_need->slice->tensor, name),
            (unsigned long long)wanted, whole->row, whole->column, compiler->rank,
            (unsigned long long)held);
    }
    return TDM_OK;
}

/* Computes the copies of one slice that the destination rank must get. */
static tdm_status compile_slice(struct reshard_compiler *compiler,
                                const struct tdm__rank_shards *shards,
                                const struct tdm__tensor_slice *slice)
{
    const struct tdm__source_index *sources = &compiler->sources;
    const struct tdm__source_slice *source_slice =
        sources->source_slices + sources->tensor_offsets[slice->tensor];
    const struct tdm__source_slice *end =
        sources->source_slices + sources->tensor_offsets[slice->tensor + 1];
    struct slice_need slice_need = {
        .slice = slice,
        .scale = slice->scale == TDM__NO_SLICE ? NULL : &shards->slices[slice->scale],
        .dtype = shards->shard_tensors[slice->shard_tensor].dtype,
        .from_dtype = source_slice < end ? source_slice->dtype
                                         : shards->shard_tensors[slice->shard_tensor].dtype,
    };

    if (source_slice == end &&
        compiler->reshard->model->tensors[slice->tensor].kind == TDM__TENSOR_KIND_SCALE) {
        /* The conversion of the linear tensor before the scales writes the scales, too. */
        return TDM_OK;
    }
    TDM_TRY(find_conversion(compiler, &slice_need));
    TDM_TRY(check_source_slices(compiler, &slice_need, source_slice, end));
    if (slice_need.is_staged && !compiler->counts_only) {
        TDM_TRY(stage_conversion(compiler, &slice_need));
    }
    while (source_slice < end) {
        uint32_t replicas = tdm__source_replicas_count(source_slice, end);
        struct tdm__rectangle rectangle;

        if (intersect(&source_slice->rectangle, &slice->rectangle, &rectangle)) {
            TDM_TRY(compile_slice_part(compiler, &slice_need, source_slice, replicas, &rectangle));
        }
        source_slice += replicas;
    }
    return TDM_OK;
}

/* ---- the whole plan ------------------------------------------------------------------------ */

/* Frees the lists of one destination rank's copies. */
static void rank_plan_fini(struct tdm__rank_copies *plan)
{
    free(plan->copies);
    free(plan->staged_copies);
    free(plan->scales);
    *plan = (struct tdm__rank_copies){.copies = NULL};
}

/* Shrinks the memory of a list to `count` items and returns its address. If that fails, the list
 * stays as it is. */
static void *array_shrink(void *items, uint32_t count, size_t item_bytes)
{
    void *shrunk = count > 0 ? realloc(items, count * item_bytes) : NULL;

    return shrunk != NULL ? shrunk : items;
}

/* Computes all copies of destination rank `rank`. */
static tdm_status compile_rank(struct reshard_compiler *compiler, uint32_t rank)
{
    const struct tdm__rank_shards *shards = &compiler->reshard->to_shards[rank];
    struct tdm__rank_copies *plan = &compiler->plan;

    compiler->rank = rank;
    compiler->plan = (struct tdm__rank_copies){.copies = NULL};
    compiler->copies_capacity = 0;
    compiler->staged_copies_capacity = 0;
    compiler->scales_capacity = 0;
    for (uint32_t i = 0; i < shards->slices_count; i++) {
        tdm_status status = compile_slice(compiler, shards, &shards->slices[i]);

        if (status != TDM_OK) {
            rank_plan_fini(plan);
            return status;
        }
    }
    plan->copies = array_shrink(plan->copies, plan->copies_count, sizeof(*plan->copies));
    plan->staged_copies =
        array_shrink(plan->staged_copies, plan->staged_copies_count, sizeof(*plan->staged_copies));
    plan->scales = array_shrink(plan->scales, plan->scales_count, sizeof(*plan->scales));
    compiler->reshard->ranks[rank] = *plan;
    return TDM_OK;
}

/* Adds the bytes and copies of destination rank `rank` to the plan's cost. */
static void add_rank_cost(struct reshard_compiler *compiler, uint32_t rank)
{
    struct tdm__reshard_cost *cost = &compiler->reshard->cost;
    const struct tdm__rank_shards *shards = &compiler->reshard->to_shards[rank];
    const struct tdm__rank_copies *plan = &compiler->reshard->ranks[rank];
    uint64_t received_bytes = 0;

    for (uint32_t i = 0; i < plan->copies_count; i++) {
        const struct tdm__rect_copy *copy = &plan->copies[i];
        uint64_t size_bytes = tdm__rect_copy_bytes(copy);

        cost->bytes_by_locality[copy->locality] += size_bytes;
        cost->copies_by_locality[copy->locality]++;
        if (copy->locality != TDM__LOCALITY_SAME_GPU) {
            compiler->sent_bytes[copy->from_rank] += size_bytes;
            received_bytes += size_bytes;
        }
    }
    for (uint32_t i = 0; i < shards->slices_count; i++) {
        const struct tdm__tensor_slice *slice = &shards->slices[i];

        cost->written_bytes +=
            (uint64_t)slice->rectangle.rows * slice->rectangle.columns *
            tdm_dtype_bytes((enum tdm_dtype)shards->shard_tensors[slice->shard_tensor].dtype);
    }
    if (received_bytes > cost->received_bytes_max) {
        cost->received_bytes_max = received_bytes;
    }
    if (plan->staging_bytes > cost->staging_bytes_max) {
        cost->staging_bytes_max = plan->staging_bytes;
    }
    if (plan->copies_count + plan->staged_copies_count > cost->copies_max) {
        cost->copies_max = plan->copies_count + plan->staged_copies_count;
    }
}

/* Computes how many bytes and copies the whole plan has. */
static void add_cost(struct reshard_compiler *compiler)
{
    struct tdm__reshard *reshard = compiler->reshard;
    uint32_t from_ranks = reshard->from.sharding->ranks_count;

    memset(compiler->sent_bytes, 0, from_ranks * sizeof(*compiler->sent_bytes));
    for (uint32_t rank = 0; rank < reshard->to.sharding->ranks_count; rank++) {
        add_rank_cost(compiler, rank);
    }
    reshard->cost.sent_bytes_min = UINT64_MAX;
    for (uint32_t rank = 0; rank < from_ranks; rank++) {
        uint64_t sent_bytes = compiler->sent_bytes[rank];

        if (sent_bytes < reshard->cost.sent_bytes_min) {
            reshard->cost.sent_bytes_min = sent_bytes;
        }
        if (sent_bytes > reshard->cost.sent_bytes_max) {
            reshard->cost.sent_bytes_max = sent_bytes;
        }
    }
}

/* Checks the layout of the source or the destination, and computes what all its ranks hold. */
static tdm_status compute_side_shards(const struct tdm__model *model,
                                      const struct tdm__reshard_side *side,
                                      enum tdm__shards_role role,
                                      struct tdm__rank_shards **shards_out)
{
    struct tdm__rank_shards *shards;

    TDM_TRY(tdm__sharding_validate(side->sharding));
    shards = calloc(side->sharding->ranks_count, sizeof(*shards));
    if (shards == NULL) {
        return tdm__fail(TDM_E_NOMEM, "shards of %u ranks", side->sharding->ranks_count);
    }
    *shards_out = shards; /* The plan owns the shards from here on. */
    for (uint32_t rank = 0; rank < side->sharding->ranks_count; rank++) {
        TDM_TRY(tdm__rank_shards_init(model, side->sharding, rank, role, &shards[rank]));
    }
    return TDM_OK;
}

/* Frees the slices of all ranks, which only the computation needs. */
static void free_slices(struct tdm__rank_shards *shards, uint32_t ranks_count)
{
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        free(shards[rank].slices);
        shards[rank].slices = NULL;
        shards[rank].slices_count = 0;
    }
}

/* Runs both passes over all destination ranks and computes the plan's cost. */
static tdm_status compile_all_ranks(struct reshard_compiler *compiler)
{
    struct tdm__reshard *reshard = compiler->reshard;

    for (int pass = 0; pass < 2; pass++) {
        compiler->counts_only = pass == 0;
        for (uint32_t rank = 0; rank < reshard->to.sharding->ranks_count; rank++) {
            TDM_TRY(compile_rank(compiler, rank));
        }
    }
    add_cost(compiler);
    return TDM_OK;
}

/* Computes all copies of a plan whose source and destination layouts are set. */
static tdm_status compile_reshard(struct tdm__reshard *reshard)
{
    uint32_t from_ranks = reshard->from.sharding->ranks_count;
    uint32_t to_ranks = reshard->to.sharding->ranks_count;
    struct reshard_compiler compiler = {.reshard = reshard};
    tdm_status status;

    TDM_TRY(compute_side_shards(reshard->model, &reshard->from, TDM__SHARDS_SOURCE,
                                &reshard->from_shards));
    TDM_TRY(tdm__source_index_init(reshard->model, reshard->from_shards, from_ranks,
                                   &compiler.sources));
    free_slices(reshard->from_shards, from_ranks);
    status = compute_side_shards(reshard->model, &reshard->to, TDM__SHARDS_DESTINATION,
                                 &reshard->to_shards);
    compiler.sent_bytes = calloc(from_ranks, sizeof(*compiler.sent_bytes));
    reshard->ranks = calloc(to_ranks, sizeof(*reshard->ranks));
    if (status == TDM_OK && (compiler.sent_bytes == NULL || reshard->ranks == NULL)) {
        status = tdm__fail(TDM_E_NOMEM, "a plan from %u to %u ranks", from_ranks, to_ranks);
    }
    if (status == TDM_OK) {
        status = compile_all_ranks(&compiler);
        free_slices(reshard->to_shards, to_ranks);
    }
    free(compiler.sent_bytes);
    tdm__source_index_fini(&compiler.sources);
    return status;
}

tdm_status tdm__reshard_create(const struct tdm__model *model, const struct tdm__reshard_side *from,
                               const struct tdm__reshard_side *to,
                               struct tdm__reshard **reshard_out)
{
    struct tdm__reshard *reshard = calloc(1, sizeof(*reshard));
    tdm_status status;

    if (reshard == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a plan");
    }
    reshard->model = model;
    reshard->from = *from;
    reshard->to = *to;
    status = compile_reshard(reshard);
    if (status != TDM_OK) {
        tdm__reshard_destroy(reshard);
        return status;
    }
    *reshard_out = reshard;
    return TDM_OK;
}

/* Frees what the ranks of the source or the destination hold. */
static void destroy_side(struct tdm__rank_shards *shards, uint32_t ranks_count)
{
    for (uint32_t rank = 0; shards != NULL && rank < ranks_count; rank++) {
        tdm__rank_shards_fini(&shards[rank]);
    }
    free(shards);
}

void tdm__reshard_destroy(struct tdm__reshard *reshard)
{
    if (reshard == NULL) {
        return;
    }
    destroy_side(reshard->from_shards, reshard->from.sharding->ranks_count);
    destroy_side(reshard->to_shards, reshard->to.sharding->ranks_count);
    for (uint32_t rank = 0; reshard->ranks != NULL && rank < reshard->to.sharding->ranks_count;
         rank++) {
        rank_plan_fini(&reshard->ranks[rank]);
    }
    free(reshard->ranks);
    free(reshard);
}
