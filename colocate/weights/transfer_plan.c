/* transfer_plan.c - how a model travels: from trainers' slices into each engine rank's image. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/transfer_plan.h"

#include "colocate/weights/convert.h"
#include "colocate/weights/copy_split.h"
#include "runtime/array_grow.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Elements of a tensor that stand in a row in it, and in somebody's slice. */
struct element_run {
    uint64_t begin; /* in the tensor, in elements */
    uint64_t end;
    uint64_t slice_offset;
    uint32_t tensor;
    uint32_t slice;
    uint32_t rank;
};

struct element_runs {
    struct element_run *items; /* owned */
    uint32_t count;
    uint32_t room;
};

/* What has a place in an image: a slice, or the scales of one. */
struct plan_item {
    uint64_t begin; /* in bytes */
    uint64_t end;
    uint32_t slice;
    bool is_scales;
};

struct plan_compiler {
    const struct tdm__transfer_plan_options *options;
    struct tdm__transfer_plan *transfer_plan;
    struct element_runs held;   /* by all trainer ranks, by tensor and place */
    struct element_runs wanted; /* by one slice of an image */
    uint32_t *firsts;           /* of each tensor among those held, and the end */
    uint32_t *lasts;            /* of each trainer rank: its last copy to the image, and one more */
    uint32_t copies_room;
    uint32_t chunks_room;
    struct tdm__rect_copy *uncut; /* of a slice that goes in pieces */
    uint32_t uncut_room;
};

/* ---- slices as runs --------------------------------------------------------------------- */

/* Joins it with the last one where it can. */
static tdm_status add_run(struct element_runs *runs, struct element_run run)
{
    struct element_run *last = runs->count == 0 ? NULL : &runs->items[runs->count - 1];

    if (last != NULL && last->rank == run.rank && last->slice == run.slice &&
        last->end == run.begin) {
        last->end = run.end;
        return TDM_OK;
    }
    TDM_TRY(tdm__array_grow((void **)&runs->items, &runs->room, runs->count, sizeof(run)));
    runs->items[runs->count++] = run;
    return TDM_OK;
}

/* The trailing dimensions that a box has in full, and one before them, are in a row in the
 * tensor; the dimensions before those are walked like an odometer. */
static tdm_status add_box(struct element_runs *runs, const struct tdm_tensor_info *tensor,
                          const struct tdm_slice *slice, struct element_run run)
{
    uint64_t step[TDM_DIMS_MAX] = {0}; /* between neighbours of a dimension */
    uint64_t at[TDM_DIMS_MAX] = {0};
    uint64_t inner = 1;
    uint64_t whole = 1;
    uint32_t outer = tensor->dims_count;
    bool full = true;

    for (uint32_t i = tensor->dims_count; i-- > 0;) {
        step[i] = whole;
        whole *= tensor->shape[i];
        if (full) {
            inner *= slice->extent[i];
            outer = i;
            full = slice->extent[i] == tensor->shape[i];
        }
    }
    for (bool more = true; more;) {
        run.begin = 0;
        for (uint32_t i = 0; i < tensor->dims_count; i++) {
            run.begin += (slice->offset[i] + at[i]) * step[i];
        }
        run.end = run.begin + inner;
        TDM_TRY(add_run(runs, run));
        run.slice_offset += inner;
        more = false;
        for (uint32_t i = outer; i-- > 0 && !more;) {
            at[i] = at[i] + 1 < slice->extent[i] ? at[i] + 1 : 0;
            more = at[i] != 0;
        }
    }
    return TDM_OK;
}

static tdm_status add_slice(struct element_runs *runs, const struct tdm__manifest *manifest,
                            const struct tdm_slice *slice, uint32_t index, uint32_t rank)
{
    struct element_run run = {.tensor = slice->tensor, .slice = index, .rank = rank};

    if (slice->flat == 0) {
        return add_box(runs, &manifest->tensors[slice->tensor], slice, run);
    }
    run.begin = slice->offset[0];
    run.end = slice->offset[0] + slice->extent[0];
    return add_run(runs, run);
}

/* ---- what trainers hold ----------------------------------------------------------------- */

static int compare_runs(const void *a, const void *b)
{
    const struct element_run *left = a;
    const struct element_run *right = b;

    if (left->tensor != right->tensor) {
        return left->tensor < right->tensor ? -1 : 1;
    }
    if (left->begin != right->begin) {
        return left->begin < right->begin ? -1 : 1;
    }
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

static tdm_status refuse_overlap(const struct plan_compiler *compiler,
                                 const struct element_run *first, const struct element_run *second)
{
    return tdm__fail(TDM_E_INVAL,
                     "tensor %s: elements %" PRIu64 " to %" PRIu64 " are in slices of rank %" PRIu32
                     " and of rank %" PRIu32,
                     compiler->options->manifest->tensors[second->tensor].name, second->begin,
                     (first->end < second->end ? first->end : second->end) - 1, first->rank,
                     second->rank);
}

static tdm_status index_held(struct plan_compiler *compiler)
{
    uint32_t tensors_count = compiler->options->manifest->tensors_count;
    struct element_runs *held = &compiler->held;

    if (held->count > 0) {
        qsort(held->items, held->count, sizeof(held->items[0]), compare_runs);
    }
    for (uint32_t i = 0; i < held->count; i++) {
        const struct element_run *run = &held->items[i];

        compiler->firsts[run->tensor + 1] = i + 1;
        if (i > 0 && run[-1].tensor == run->tensor && run[-1].end > run->begin) {
            return refuse_overlap(compiler, &run[-1], run);
        }
    }
    for (uint32_t i = 0; i < tensors_count; i++) {
        if (compiler->firsts[i + 1] < compiler->firsts[i]) {
            compiler->firsts[i + 1] = compiler->firsts[i]; /* nobody has it */
        }
    }
    return TDM_OK;
}

/* What trainers have is what the manifest says. */
static tdm_status check_held(const struct tdm__manifest *manifest, const struct tdm_slice *slice)
{
    const struct tdm_tensor_info *tensor = &manifest->tensors[slice->tensor];

    return tdm__slice_dtype(tensor, slice) == tensor->dtype
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL, "tensor %s: a trainer's slice in %s instead of %s",
                           tensor->name, tdm_dtype_name(slice->dtype),
                           tdm_dtype_name(tensor->dtype));
}

static tdm_status list_held(struct plan_compiler *compiler)
{
    const struct tdm__transfer_plan_options *options = compiler->options;

    for (uint32_t rank = 0; rank < options->from_count; rank++) {
        const struct tdm__layout *layout = &options->from[rank];

        TDM_TRY(
            tdm__wrap(tdm__layout_check(layout, options->manifest), "trainer rank %" PRIu32, rank));
        for (uint32_t i = 0; i < layout->slices_count; i++) {
            TDM_TRY(check_held(options->manifest, &layout->slices[i]));
            TDM_TRY(add_slice(&compiler->held, options->manifest, &layout->slices[i], i, rank));
        }
    }
    return index_held(compiler);
}

/* ---- copies ----------------------------------------------------------------------------- */

static uint64_t offset_of(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

static enum tdm_dtype wanted_dtype(const struct plan_compiler *compiler, uint32_t to_rank,
                                   uint32_t slice)
{
    const struct tdm_slice *wanted = &compiler->options->to[to_rank].slices[slice];

    return tdm__slice_dtype(&compiler->options->manifest->tensors[wanted->tensor], wanted);
}

static tdm_status add_copy(struct plan_compiler *compiler, struct tdm__transfer_plan_image *image,
                           const struct tdm__rect_copy *copy)
{
    uint32_t *last = &compiler->lasts[copy->from_rank];

    if (*last > 0 && tdm__rect_copy_merge(&image->copies[*last - 1], copy)) {
        return TDM_OK;
    }
    TDM_TRY(tdm__array_grow((void **)&image->copies, &compiler->copies_room, image->copies_count,
                            sizeof(*copy)));
    image->copies[image->copies_count++] = *copy;
    *last = image->copies_count;
    return TDM_OK;
}

/* What `wanted` and `held` have in common. */
static tdm_status add_common(struct plan_compiler *compiler, uint32_t to_rank,
                             const struct element_run *wanted, const struct element_run *held)
{
    const struct tdm_tensor_info *tensor = &compiler->options->manifest->tensors[wanted->tensor];
    uint64_t begin = wanted->begin > held->begin ? wanted->begin : held->begin;
    uint64_t end = wanted->end < held->end ? wanted->end : held->end;
    enum tdm_dtype to_dtype = wanted_dtype(compiler, to_rank, wanted->slice);
    struct tdm__rect_copy copy = {
        .from_rank = held->rank,
        .from_tensor = held->slice,
        .to_tensor = wanted->slice,
        .rows = 1,
        .conversion = to_dtype == tensor->dtype ? TDM__CONVERT_NONE : TDM__CONVERT_BF16,
        .locality = held->rank == to_rank ? TDM__LOCALITY_SAME_GPU : TDM__LOCALITY_SAME_NODE,
        .from_dtype = (uint8_t)tensor->dtype,
        .to_dtype = (uint8_t)to_dtype,
    };

    while (begin < end) {
        uint64_t count = end - begin < UINT32_MAX ? end - begin : UINT32_MAX;

        copy.from_offset = held->slice_offset + (begin - held->begin);
        copy.to_offset = wanted->slice_offset + (begin - wanted->begin);
        copy.columns = (uint32_t)count;
        copy.from_pitch = copy.columns;
        copy.to_pitch = copy.columns;
        TDM_TRY(add_copy(compiler, &compiler->transfer_plan->images[to_rank], &copy));
        begin += count;
    }
    return TDM_OK;
}

/* The first run of the tensor that ends behind `at`. */
static uint32_t find_held(const struct plan_compiler *compiler, uint32_t tensor, uint64_t at)
{
    uint32_t low = compiler->firsts[tensor];
    uint32_t high = compiler->firsts[tensor + 1];

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (compiler->held.items[middle].end > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static tdm_status plan_run(struct plan_compiler *compiler, uint32_t to_rank,
                           const struct element_run *wanted)
{
    uint64_t at = wanted->begin;

    for (uint32_t i = find_held(compiler, wanted->tensor, at); at < wanted->end; i++) {
        const struct element_run *held = &compiler->held.items[i];

        if (i == compiler->firsts[wanted->tensor + 1] || held->begin > at) {
            return tdm__fail(TDM_E_INVAL, "tensor %s: element %" PRIu64 " is in no rank's slices",
                             compiler->options->manifest->tensors[wanted->tensor].name, at);
        }
        TDM_TRY(add_common(compiler, to_rank, wanted, held));
        at = held->end;
    }
    return TDM_OK;
}

static tdm_status plan_elements(struct plan_compiler *compiler, uint32_t to_rank, uint32_t slice)
{
    const struct tdm__transfer_plan_options *options = compiler->options;

    compiler->wanted.count = 0;
    TDM_TRY(add_slice(&compiler->wanted, options->manifest, &options->to[to_rank].slices[slice],
                      slice, to_rank));
    for (uint32_t i = 0; i < compiler->wanted.count; i++) {
        TDM_TRY(plan_run(compiler, to_rank, &compiler->wanted.items[i]));
    }
    return TDM_OK;
}

static uint8_t copy_edge(uint32_t from_rank, uint32_t to_rank)
{
    return from_rank == to_rank ? TDM__LOCALITY_SAME_GPU : TDM__LOCALITY_SAME_NODE;
}

/* Rectangles by blocks, or the scales of such, out of what each rank holds. */
static tdm_status plan_fp8_blocks(struct plan_compiler *compiler, uint32_t to_rank,
                                  const struct plan_item *item)
{
    const struct tdm_slice *wanted = &compiler->options->to[to_rank].slices[item->slice];
    const struct tdm_tensor_info *tensor = &compiler->options->manifest->tensors[wanted->tensor];
    uint64_t missing = wanted->extent[0] * wanted->extent[1];
    struct tdm__rect_copy copies[TDM__CONVERT_RECTANGLES_MAX];
    struct tdm__rect_copy like = {
        .to_tensor = item->slice,
        .conversion = item->is_scales ? TDM__CONVERT_SCALES : TDM__CONVERT_FP8,
        .from_dtype = (uint8_t)tensor->dtype,
        .to_dtype = item->is_scales ? TDM_F32 : TDM_F8_E4M3,
    };

    for (uint32_t i = compiler->firsts[wanted->tensor]; i < compiler->firsts[wanted->tensor + 1];
         i++) {
        const struct element_run *held = &compiler->held.items[i];
        uint32_t count = 0;

        like.from_rank = held->rank;
        like.from_tensor = held->slice;
        like.locality = copy_edge(held->rank, to_rank);
        if (held->slice_offset == 0) { /* else more of a slice that had its turn */
            count = tdm__convert_rectangles(
                tensor, wanted, &compiler->options->from[held->rank].slices[held->slice], &like,
                copies);
        }
        for (uint32_t k = 0; k < count; k++) {
            compiler->lasts[held->rank] = 0; /* rectangles stay as they are */
            TDM_TRY(add_copy(compiler, &compiler->transfer_plan->images[to_rank], &copies[k]));
            missing -= tdm__rect_copy_elements(&copies[k]);
        }
    }
    return missing == 0
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL, "tensor %s: %" PRIu64 " elements are in no rank's slices",
                           tensor->name, missing);
}

/* Scales of shared blocks: every rank has them, so it is the one on the same GPU. */
static tdm_status plan_shared_scales(struct plan_compiler *compiler, uint32_t to_rank,
                                     const struct plan_item *item)
{
    const struct tdm_slice *wanted = &compiler->options->to[to_rank].slices[item->slice];
    const struct tdm__manifest *manifest = compiler->options->manifest;
    uint32_t from_rank = to_rank % compiler->options->from_count;
    struct tdm__rect_copy copy = {
        .from_rank = from_rank,
        .from_tensor = TDM__TRANSFER_PLAN_SCALES,
        .from_offset = tdm__scales_block_index(&compiler->transfer_plan->scales, wanted->tensor,
                                               wanted->offset[0], wanted->offset[1]),
        .to_tensor = item->slice,
        .rows = (uint32_t)tdm__convert_blocks_count(wanted->extent[0]),
        .columns = (uint32_t)tdm__convert_blocks_count(wanted->extent[1]),
        .from_pitch =
            (uint32_t)tdm__convert_blocks_count(manifest->tensors[wanted->tensor].shape[1]),
        .to_pitch = (uint32_t)tdm__convert_blocks_count(wanted->extent[1]),
        .conversion = TDM__CONVERT_NONE,
        .locality = copy_edge(from_rank, to_rank),
        .from_dtype = TDM_F32,
        .to_dtype = TDM_F32};

    tdm__rect_copy_flatten(&copy);
    return add_copy(compiler, &compiler->transfer_plan->images[to_rank], &copy);
}

/* ---- chunks ---------------------------------------------------------------------------- */

static int compare_items(const void *a, const void *b)
{
    const struct plan_item *left = a;
    const struct plan_item *right = b;

    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

/* In the order of the image.  Returns how many; there is room for two a slice. */
static uint32_t list_items(const struct tdm__manifest *manifest, const struct tdm__layout *layout,
                           struct plan_item *items)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < layout->slices_count; i++) {
        const struct tdm_slice *slice = &layout->slices[i];
        uint64_t begin = offset_of(slice->address);
        uint64_t scales_begin = offset_of(slice->scales);
        uint64_t scales_bytes = tdm__slice_scales_bytes(&manifest->tensors[slice->tensor], slice);

        items[count++] =
            (struct plan_item){begin, begin + tdm__slice_bytes(manifest, slice), i, false};
        if (scales_bytes > 0) {
            items[count++] = (struct plan_item){scales_begin, scales_begin + scales_bytes, i, true};
        }
    }
    qsort(items, count, sizeof(*items), compare_items);
    return count;
}

static tdm_status open_chunk(struct plan_compiler *compiler, struct tdm__transfer_plan_image *image,
                             uint64_t begin)
{
    TDM_TRY(tdm__array_grow((void **)&image->chunks, &compiler->chunks_room, image->chunks_count,
                            sizeof(*image->chunks)));
    image->chunks[image->chunks_count++] = (struct tdm__transfer_plan_chunk){
        .begin = begin / TDM__TRANSFER_PLAN_ALIGNMENT * TDM__TRANSFER_PLAN_ALIGNMENT,
        .end = begin,
        .copies_first = image->copies_count};
    return TDM_OK;
}

static struct tdm__transfer_plan_chunk *last_chunk(const struct tdm__transfer_plan_image *image)
{
    return &image->chunks[image->chunks_count - 1];
}

static bool item_fits_chunk(const struct tdm__transfer_plan_options *options, uint64_t begin,
                            uint64_t end)
{
    return options->chunk_bytes == 0 ||
           end - begin / TDM__TRANSFER_PLAN_ALIGNMENT * TDM__TRANSFER_PLAN_ALIGNMENT <=
               options->chunk_bytes;
}

/* In the last chunk is now everything up to `end`. */
static void close_chunk(struct plan_compiler *compiler, struct tdm__transfer_plan_image *image,
                        uint64_t end)
{
    struct tdm__transfer_plan_chunk *chunk = last_chunk(image);

    chunk->end = end;
    chunk->copies_count = image->copies_count - chunk->copies_first;
    if (compiler->transfer_plan->chunk_bytes_max < end - chunk->begin) {
        compiler->transfer_plan->chunk_bytes_max = end - chunk->begin;
    }
}

static tdm_status check_place(const struct plan_compiler *compiler, uint32_t to_rank,
                              const struct plan_item *item, uint64_t end_before)
{
    const struct tdm_slice *slice = &compiler->options->to[to_rank].slices[item->slice];
    const char *name = compiler->options->manifest->tensors[slice->tensor].name;
    enum tdm_dtype dtype = item->is_scales ? TDM_F32 : wanted_dtype(compiler, to_rank, item->slice);
    const char *what = item->is_scales ? "scales" : "a slice";

    if (item->end < item->begin || item->end > compiler->options->image_bytes ||
        item->begin % tdm_dtype_bytes(dtype) != 0) {
        return tdm__fail(TDM_E_INVAL,
                         "tensor %s: %s from %" PRIu64 " to %" PRIu64 " of weights of %" PRIu64
                         " bytes, or not aligned to its elements",
                         name, what, item->begin, item->end, compiler->options->image_bytes);
    }
    if (item->begin < end_before) {
        return tdm__fail(TDM_E_INVAL,
                         "tensor %s: %s at %" PRIu64
                         " of the weights, where another one ends at %" PRIu64,
                         name, what, item->begin, end_before);
    }
    return TDM_OK;
}

static tdm_status plan_item_copies(struct plan_compiler *compiler, uint32_t to_rank,
                                   const struct plan_item *item)
{
    const struct tdm_slice *slice = &compiler->options->to[to_rank].slices[item->slice];
    const struct tdm_tensor_info *tensor = &compiler->options->manifest->tensors[slice->tensor];

    memset(compiler->lasts, 0, compiler->options->from_count * sizeof(*compiler->lasts));
    if (tdm__slice_scales_bytes(tensor, slice) == 0) {
        return plan_elements(compiler, to_rank, item->slice);
    }
    return item->is_scales &&
                   compiler->transfer_plan->scales.firsts[slice->tensor] != TDM__SCALES_NOT_SHARED
               ? plan_shared_scales(compiler, to_rank, item)
               : plan_fp8_blocks(compiler, to_rank, item);
}

/* Where a piece that begins at `begin` ends: as many units behind the item's beginning as the
 * chunk has room for, or one that is too large. */
static uint64_t next_piece_end(const struct plan_compiler *compiler, const struct plan_item *item,
                               uint64_t begin, uint64_t unit)
{
    uint64_t lines = compiler->options->chunk_bytes / TDM__TRANSFER_PLAN_ALIGNMENT;
    uint64_t room_end = (begin / TDM__TRANSFER_PLAN_ALIGNMENT + (lines == 0 ? 1 : lines)) *
                        TDM__TRANSFER_PLAN_ALIGNMENT;
    uint64_t units = (room_end - begin) / unit;
    uint64_t end = begin + (units == 0 ? 1 : units) * unit;

    return end < item->end ? end : item->end;
}

static tdm_status add_piece(struct plan_compiler *compiler, struct tdm__transfer_plan_image *image,
                            uint32_t uncut_count, uint64_t begin, uint64_t end)
{
    struct tdm__rect_copy pieces[TDM__COPY_SPLIT_MAX];

    for (uint32_t i = 0; i < uncut_count; i++) {
        uint32_t count = tdm__copy_split(&compiler->uncut[i], begin, end, pieces);

        for (uint32_t k = 0; k < count; k++) {
            compiler->lasts[pieces[k].from_rank] = 0; /* cut is cut */
            TDM_TRY(add_copy(compiler, image, &pieces[k]));
        }
    }
    return TDM_OK;
}

/* What was compiled for the item is taken back, and comes piece by piece, a chunk each. */
static tdm_status split_item(struct plan_compiler *compiler, struct tdm__transfer_plan_image *image,
                             const struct plan_item *item, uint32_t copies_first)
{
    uint32_t count = image->copies_count - copies_first;
    const struct tdm__rect_copy *first = &image->copies[copies_first];
    const struct tdm_slice *slice =
        &compiler->options->to[image - compiler->transfer_plan->images].slices[item->slice];
    uint64_t unit = tdm__copy_split_unit(slice, (enum tdm__conversion)first->conversion,
                                         (enum tdm_dtype)first->to_dtype);

    while (compiler->uncut_room < count) {
        TDM_TRY(tdm__array_grow((void **)&compiler->uncut, &compiler->uncut_room,
                                compiler->uncut_room, sizeof(*first)));
    }
    memcpy(compiler->uncut, &image->copies[copies_first], count * sizeof(*first));
    image->copies_count = copies_first;
    for (uint64_t at = item->begin; at < item->end;) {
        uint64_t end = next_piece_end(compiler, item, at, unit);

        TDM_TRY(open_chunk(compiler, image, at));
        TDM_TRY(add_piece(compiler, image, count, at - item->begin, end - item->begin));
        close_chunk(compiler, image, end);
        at = end;
    }
    return TDM_OK;
}

/* A chunk for all of the item: the last one, or a new one; or as many as it needs. */
static tdm_status put_item_in_chunk(struct plan_compiler *compiler, uint32_t to_rank,
                                    const struct plan_item *item)
{
    const struct tdm__transfer_plan_options *options = compiler->options;
    struct tdm__transfer_plan_image *image = &compiler->transfer_plan->images[to_rank];
    uint32_t copies_first = image->copies_count;

    if (!item_fits_chunk(options, item->begin, item->end)) {
        TDM_TRY(plan_item_copies(compiler, to_rank, item));
        return split_item(compiler, image, item, copies_first);
    }
    if (image->chunks_count == 0 ||
        !item_fits_chunk(options, last_chunk(image)->begin, item->end)) {
        TDM_TRY(open_chunk(compiler, image, item->begin));
    }
    TDM_TRY(plan_item_copies(compiler, to_rank, item));
    close_chunk(compiler, image, item->end);
    return TDM_OK;
}

/* Goes along the image. */
static tdm_status plan_items(struct plan_compiler *compiler, uint32_t to_rank,
                             const struct plan_item *items, uint32_t count)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(check_place(compiler, to_rank, &items[i], end));
        end = items[i].end;
        TDM_TRY(put_item_in_chunk(compiler, to_rank, &items[i]));
    }
    return TDM_OK;
}

static tdm_status plan_image(struct plan_compiler *compiler, uint32_t to_rank)
{
    const struct tdm__layout *layout = &compiler->options->to[to_rank];
    const struct tdm__transfer_plan_image *image = &compiler->transfer_plan->images[to_rank];
    size_t room = 2 * (size_t)layout->slices_count + 1;
    struct plan_item *items = calloc(room, sizeof(*items));
    tdm_status status;

    compiler->copies_room = 0;
    compiler->chunks_room = 0;
    if (items == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a route of %zu slices", room);
    }
    status = plan_items(compiler, to_rank, items,
                        list_items(compiler->options->manifest, layout, items));
    free(items);
    if (compiler->transfer_plan->chunks_count < image->chunks_count) {
        compiler->transfer_plan->chunks_count = image->chunks_count;
    }
    return status;
}

/* Images with fewer chunks get empty ones. */
static tdm_status even_chunks(struct tdm__transfer_plan *transfer_plan)
{
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        struct tdm__transfer_plan_image *image = &transfer_plan->images[i];
        struct tdm__transfer_plan_chunk *chunks =
            calloc((size_t)transfer_plan->chunks_count + 1, sizeof(*chunks));

        if (chunks == NULL) {
            return tdm__fail(TDM_E_NOMEM, "%" PRIu32 " chunks", transfer_plan->chunks_count);
        }
        if (image->chunks_count > 0) {
            memcpy(chunks, image->chunks, image->chunks_count * sizeof(*chunks));
        }
        free(image->chunks);
        image->chunks = chunks;
    }
    return TDM_OK;
}

/* ---- cost ------------------------------------------------------------------------------- */

static void add_cost(struct tdm__transfer_plan *transfer_plan, uint32_t to_rank,
                     uint64_t *sent_bytes)
{
    const struct tdm__transfer_plan_image *image = &transfer_plan->images[to_rank];
    struct tdm__reshard_cost *cost = &transfer_plan->cost;
    uint64_t received = 0;

    for (uint32_t i = 0; i < image->copies_count; i++) {
        const struct tdm__rect_copy *copy = &image->copies[i];
        struct tdm__strided_rows rows = tdm__convert_written_rows(copy);
        uint64_t bytes = rows.count * rows.size_bytes;

        cost->bytes_by_locality[copy->locality] += bytes;
        cost->copies_by_locality[copy->locality]++;
        cost->written_bytes += bytes;
        if (copy->locality != TDM__LOCALITY_SAME_GPU) {
            received += bytes;
            sent_bytes[copy->from_rank] += bytes;
        }
    }
    cost->received_bytes_max =
        received > cost->received_bytes_max ? received : cost->received_bytes_max;
    cost->copies_max =
        image->copies_count > cost->copies_max ? image->copies_count : cost->copies_max;
}

static tdm_status find_cost(struct tdm__transfer_plan *transfer_plan)
{
    uint64_t *sent_bytes = calloc((size_t)transfer_plan->from_count + 1, sizeof(*sent_bytes));
    struct tdm__reshard_cost *cost = &transfer_plan->cost;

    if (sent_bytes == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the cost of a route");
    }
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        add_cost(transfer_plan, i, sent_bytes);
    }
    cost->sent_bytes_min = sent_bytes[0];
    for (uint32_t i = 0; i < transfer_plan->from_count; i++) {
        cost->sent_bytes_min =
            sent_bytes[i] < cost->sent_bytes_min ? sent_bytes[i] : cost->sent_bytes_min;
        cost->sent_bytes_max =
            sent_bytes[i] > cost->sent_bytes_max ? sent_bytes[i] : cost->sent_bytes_max;
    }
    free(sent_bytes);
    return TDM_OK;
}

/* ---- all -------------------------------------------------------------------------------- */

static tdm_status plan_compile(struct plan_compiler *compiler)
{
    const struct tdm__transfer_plan_options *options = compiler->options;
    const struct tdm__scales_options scales = {.manifest = options->manifest,
                                               .from = options->from,
                                               .from_count = options->from_count,
                                               .to = options->to,
                                               .to_count = options->to_count};
    struct tdm__transfer_plan *transfer_plan = compiler->transfer_plan;

    compiler->firsts =
        calloc((size_t)options->manifest->tensors_count + 1, sizeof(*compiler->firsts));
    compiler->lasts = calloc((size_t)options->from_count + 1, sizeof(*compiler->lasts));
    transfer_plan->images = calloc((size_t)options->to_count + 1, sizeof(*transfer_plan->images));
    if (compiler->firsts == NULL || compiler->lasts == NULL || transfer_plan->images == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a route from %" PRIu32 " to %" PRIu32 " ranks",
                         options->from_count, options->to_count);
    }
    TDM_TRY(list_held(compiler));
    for (uint32_t i = 0; i < options->to_count; i++) {
        TDM_TRY(tdm__wrap(tdm__layout_check(&options->to[i], options->manifest),
                          "engine rank %" PRIu32, i));
    }
    TDM_TRY(tdm__scales_init(&scales, &transfer_plan->scales));
    for (uint32_t i = 0; i < options->to_count; i++) {
        TDM_TRY(tdm__wrap(plan_image(compiler, i), "engine rank %" PRIu32, i));
    }
    TDM_TRY(even_chunks(transfer_plan));
    return find_cost(transfer_plan);
}

tdm_status tdm__transfer_plan_create(const struct tdm__transfer_plan_options *options,
                                     struct tdm__transfer_plan **route_out)
{
    struct tdm__transfer_plan *transfer_plan = calloc(1, sizeof(*transfer_plan));
    struct plan_compiler compiler = {.options = options, .transfer_plan = transfer_plan};
    tdm_status status;

    if (transfer_plan == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a route");
    }
    transfer_plan->manifest = options->manifest;
    transfer_plan->from = options->from;
    transfer_plan->to = options->to;
    transfer_plan->from_count = options->from_count;
    transfer_plan->to_count = options->to_count;
    status = plan_compile(&compiler);
    free(compiler.held.items);
    free(compiler.wanted.items);
    free(compiler.uncut);
    free(compiler.firsts);
    free(compiler.lasts);
    if (status != TDM_OK) {
        tdm__transfer_plan_destroy(transfer_plan);
        return status;
    }
    *route_out = transfer_plan;
    return TDM_OK;
}

void tdm__transfer_plan_destroy(struct tdm__transfer_plan *transfer_plan)
{
    if (transfer_plan == NULL) {
        return;
    }
    for (uint32_t i = 0; transfer_plan->images != NULL && i < transfer_plan->to_count; i++) {
        free(transfer_plan->images[i].copies);
        free(transfer_plan->images[i].chunks);
    }
    free(transfer_plan->images);
    tdm__scales_fini(&transfer_plan->scales);
    free(transfer_plan);
}

const struct tdm_tensor_info *
tdm__transfer_plan_tensor(const struct tdm__transfer_plan *transfer_plan, uint32_t image,
                          const struct tdm__rect_copy *copy)
{
    return &transfer_plan->manifest
                ->tensors[transfer_plan->to[image].slices[copy->to_tensor].tensor];
}

uint64_t tdm__transfer_plan_image_offset(const struct tdm__transfer_plan *transfer_plan,
                                         uint32_t image, const struct tdm__rect_copy *copy)
{
    const struct tdm_slice *slice = &transfer_plan->to[image].slices[copy->to_tensor];

    bool is_scales =
        copy->conversion == TDM__CONVERT_SCALES || copy->from_tensor == TDM__TRANSFER_PLAN_SCALES;

    return offset_of(is_scales ? slice->scales : slice->address) +
           copy->to_offset * tdm_dtype_bytes((enum tdm_dtype)copy->to_dtype);
}

uint32_t tdm__transfer_plan_copies_of_rank(const struct tdm__transfer_plan *transfer_plan,
                                           uint32_t chunk, uint32_t from_rank)
{
    uint32_t count = 0;

    TDM_ASSERT(chunk < transfer_plan->chunks_count);
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        const struct tdm__transfer_plan_image *image = &transfer_plan->images[i];
        const struct tdm__transfer_plan_chunk *about = &image->chunks[chunk];

        for (uint32_t k = 0; k < about->copies_count; k++) {
            count += image->copies[about->copies_first + k].from_rank == from_rank ? 1 : 0;
        }
    }
    return count;
}
