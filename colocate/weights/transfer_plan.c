/* transfer_plan.c - which bytes each trainer rank writes into each engine rank's weights. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Compilation has these steps. First, the slices of all trainer ranks are collected
 * (plan_sources.h). A first pass over the engines' slices only counts the bytes that trainer ranks
 * must send. In the second pass each engine rank's image is traversed in address order, slice by
 * slice and scales by scales. For each item the compiler finds the rectangles or runs that cover
 * it, emits copies, merges neighbouring copies into rectangles, and assigns them to chunks. An item
 * larger than a chunk is compiled whole and then split (copy_split.h). At the end all images get
 * the same number of chunks, what crosses between nodes is planned (node_exchange.h), and the cost
 * is summed up.
 *
 * A conversion to FP8 is compiled by blocks instead of runs (convert.h). The result is the same
 * on every rank because it depends on the options only. The compiler runs in the thread of its
 * caller, without locks. */

#include "colocate/weights/transfer_plan.h"

#include "colocate/weights/convert.h"
#include "colocate/weights/copy_split.h"
#include "colocate/weights/node_exchange.h"
#include "colocate/weights/plan_sources.h"
#include "runtime/array_grow.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* An item of an engine's image: one slice, or the scales of one slice. */
struct plan_item {
    uint64_t begin; /* Offset in bytes of the item's first byte in the engine rank's image. */
    uint64_t end;   /* Offset in bytes after the item's last byte in the engine rank's image. */
    uint32_t slice; /* Index of the slice in the engine rank's layout. */
    /* True if the item is the FP8 scales of the slice, false if it is the slice's elements. */
    bool is_scales;
};

/* State of one compilation; it lives on the stack of tdm__transfer_plan_create(). */
struct plan_compiler {
    /* Arguments of tdm__transfer_plan_create(); borrowed. */
    const struct tdm__transfer_plan_options *options;
    struct tdm__transfer_plan *transfer_plan; /* Transfer plan that is being built; borrowed. */
    struct tdm__plan_sources sources;         /* What the trainer ranks hold; owned. */
    struct tdm__element_runs
        wanted; /* Element runs of the engine slice that is being planned. Owned. */
    /* For each trainer rank, 1 plus the index of its last copy that may be extended; 0 if
     * absent. Owned. */
    uint32_t *lasts;
    /* Number of copies for which the array of the image being planned has room. */
    uint32_t copies_capacity;
    /* Number of chunks for which the array of the image being planned has room. */
    uint32_t chunks_capacity;
    struct tdm__rect_copy *uncut; /* Copies of an item before it is split into pieces. Owned. */
    uint32_t uncut_capacity;      /* Number of copies for which `uncut` has room. */
};

/* ---- copies -------------------------------------------------------------------------- */

/* Returns the address in an engine's slice as the number of bytes that it stands for. */
static uint64_t offset_of(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

/* Returns the dtype in which an engine rank wants a slice. */
static enum tdm_dtype wanted_dtype(const struct plan_compiler *compiler, uint32_t to_rank,
                                   uint32_t slice)
{
    const struct tdm_slice *wanted = &compiler->options->to[to_rank].slices[slice];

    return tdm__slice_dtype(&compiler->options->manifest->tensors[wanted->tensor], wanted);
}

/* Appends a copy to the copies of an image, or merges it into the last copy from the same trainer
 * rank. */
static tdm_status add_copy(struct plan_compiler *compiler, struct tdm__transfer_plan_image *image,
                           const struct tdm__rect_copy *copy)
{
    uint32_t *last = &compiler->lasts[copy->from_rank];

    if (compiler->sources.counts_only) {
        return TDM_OK;
    }
    if (*last > 0 && tdm__rect_copy_merge(&image->copies[*last - 1], copy)) {
        return TDM_OK;
    }
    TDM_TRY(tdm__array_grow((void **)&image->copies, &compiler->copies_capacity,
                            image->copies_count, sizeof(*copy)));
    image->copies[image->copies_count++] = *copy;
    *last = image->copies_count;
    return TDM_OK;
}

/* Adds copies for the elements that the run `wanted` of engine rank `to_rank` and the run `held` of
 * trainer ranks have in common. */
static tdm_status add_common_elements(struct plan_compiler *compiler, uint32_t to_rank,
                                      const struct tdm__element_run *wanted,
                                      const struct tdm__element_run *held)
{
    const struct tdm_tensor_info *tensor = &compiler->options->manifest->tensors[wanted->tensor];
    uint64_t begin = wanted->begin > held->begin ? wanted->begin : held->begin;
    uint64_t end = wanted->end < held->end ? wanted->end : held->end;
    enum tdm_dtype to_dtype = wanted_dtype(compiler, to_rank, wanted->slice);
    struct tdm__rect_copy copy = {
        .to_tensor = wanted->slice,
        .rows = 1,
        .conversion = to_dtype == tensor->dtype ? TDM__CONVERT_NONE : TDM__CONVERT_BF16,
        .from_dtype = (uint8_t)tensor->dtype,
        .to_dtype = (uint8_t)to_dtype,
    };

    while (begin < end) {
        struct tdm__holder_choice choice =
            tdm__plan_sources_choose(&compiler->sources, to_rank, held->slice);
        uint64_t count = tdm__plan_sources_share(tensor, &choice, end - begin);

        copy.from_rank = choice.holder.rank;
        copy.from_tensor = choice.holder.slice;
        copy.locality = choice.locality;
        copy.from_offset = held->slice_offset + (begin - held->begin);
        copy.to_offset = wanted->slice_offset + (begin - wanted->begin);
        copy.columns = (uint32_t)count;
        copy.from_pitch = copy.columns;
        copy.to_pitch = copy.columns;
        TDM_TRY(add_copy(compiler, &compiler->transfer_plan->images[to_rank], &copy));
        tdm__plan_sources_count(&compiler->sources, &choice,
                                count * tdm_dtype_bytes(tensor->dtype));
        begin += count;
    }
    return TDM_OK;
}

/* Adds the copies that fill one wanted run of engine rank `to_rank`. Returns TDM_E_INVAL if no
 * trainer rank holds some element. */
static tdm_status plan_run(struct plan_compiler *compiler, uint32_t to_rank,
                           const struct tdm__element_run *wanted)
{
    uint64_t at = wanted->begin;

    for (uint32_t i = tdm__plan_sources_find_run(&compiler->sources, wanted->tensor, at);
         at < wanted->end; i++) {
        const struct tdm__element_run *held = &compiler->sources.held.items[i];

        if (i == compiler->sources.firsts[wanted->tensor + 1] || held->begin > at) {
            return tdm__fail(
                TDM_E_INVAL,
                "planning the transfer of weights failed: tensor %s: element %" PRIu64
                " is in no rank's slices. Let the trainers' layouts cover the whole tensor",
                compiler->options->manifest->tensors[wanted->tensor].name, at);
        }
        TDM_TRY(add_common_elements(compiler, to_rank, wanted, held));
        at = held->end;
    }
    return TDM_OK;
}

/* Adds copies for the rectangle `part`, which the box of a group of trainer ranks and that of a
 * wanted slice have in common. Large rectangles are divided by rows among equally near ranks.
 * `like` has the members of each copy that do not depend on the trainer rank. */
static tdm_status add_rectangle(struct plan_compiler *compiler, uint32_t to_rank, uint32_t group,
                                const struct tdm__plan_rectangle *part,
                                const struct tdm__rect_copy *like)
{
    const struct tdm_slice *wanted = &compiler->options->to[to_rank].slices[like->to_tensor];
    const struct tdm_tensor_info *tensor = &compiler->options->manifest->tensors[wanted->tensor];
    struct tdm__plan_rectangle to = tdm__plan_rectangle_of_slice(tensor, wanted);
    struct tdm__plan_rectangle from =
        tdm__plan_rectangle_of_slice(tensor, tdm__plan_sources_slice(&compiler->sources, group));
    uint64_t row_bytes = part->columns * tdm_dtype_bytes(tensor->dtype);
    uint64_t share = TDM__PLAN_SHARE_BYTES / row_bytes == 0 ? 1 : TDM__PLAN_SHARE_BYTES / row_bytes;
    struct tdm__rect_copy copy = *like;

    for (uint64_t row = part->row; row < part->row + part->rows; row += copy.rows) {
        struct tdm__holder_choice choice =
            tdm__plan_sources_choose(&compiler->sources, to_rank, group);
        uint64_t rows = part->row + part->rows - row;

        if (choice.locality != TDM__LOCALITY_SAME_GPU && choice.had_alternative && share < rows) {
            rows = share;
        }
        copy = *like;
        copy.from_rank = choice.holder.rank;
        copy.from_tensor = choice.holder.slice;
        copy.locality = choice.locality;
        copy.rows = (uint32_t)rows;
        copy.columns = (uint32_t)part->columns;
        copy.from_pitch = (uint32_t)from.columns;
        copy.to_pitch = (uint32_t)to.columns;
        copy.from_offset = (row - from.row) * from.columns + (part->column - from.column);
        copy.to_offset = (row - to.row) * to.columns + (part->column - to.column);
        tdm__plan_sources_count(&compiler->sources, &choice, rows * row_bytes);
        tdm__rect_copy_flatten(&copy);
        TDM_TRY(add_copy(compiler, &compiler->transfer_plan->images[to_rank], &copy));
        copy.rows = (uint32_t)rows;
    }
    return TDM_OK;
}

/* Adds the copies of one engine slice that is planned by rectangles and not converted to FP8. */
static tdm_status plan_rectangles(struct plan_compiler *compiler, uint32_t to_rank, uint32_t slice)
{
    const struct tdm_slice *wanted = &compiler->options->to[to_rank].slices[slice];
    const struct tdm_tensor_info *tensor = &compiler->options->manifest->tensors[wanted->tensor];
    struct tdm__plan_rectangle box = tdm__plan_rectangle_of_slice(tensor, wanted);
    enum tdm_dtype to_dtype = wanted_dtype(compiler, to_rank, slice);
    uint64_t missing = box.rows * box.columns;
    const struct tdm__rect_copy like = {
        .to_tensor = slice,
        .conversion = to_dtype == tensor->dtype ? TDM__CONVERT_NONE : TDM__CONVERT_BF16,
        .from_dtype = (uint8_t)tensor->dtype,
        .to_dtype = (uint8_t)to_dtype,
    };

    for (uint32_t i = compiler->sources.groups[wanted->tensor];
         i < compiler->sources.groups[wanted->tensor + 1]; i++) {
        struct tdm__plan_rectangle held =
            tdm__plan_rectangle_of_slice(tensor, tdm__plan_sources_slice(&compiler->sources, i));
        struct tdm__plan_rectangle common;

        if (tdm__plan_rectangle_intersect(&box, &held, &common)) {
            TDM_TRY(add_rectangle(compiler, to_rank, i, &common, &like));
            missing -= common.rows * common.columns;
        }
    }
    return missing == 0
               ? TDM_OK
               : tdm__fail(
                     TDM_E_INVAL,
                     "planning the transfer of weights failed: tensor %s: %" PRIu64
                     " of the elements at row %" PRIu64 ", column %" PRIu64
                     " are in no rank's slices. Let the trainers' layouts cover the whole tensor",
                     tensor->name, missing, box.row, box.column);
}

/* Adds the copies for the elements of one engine slice that is not converted to FP8. */
static tdm_status plan_elements(struct plan_compiler *compiler, uint32_t to_rank, uint32_t slice)
{
    const struct tdm__transfer_plan_options *options = compiler->options;

    if (!compiler->sources.by_runs[options->to[to_rank].slices[slice].tensor]) {
        return plan_rectangles(compiler, to_rank, slice);
    }
    compiler->wanted.count = 0;
    TDM_TRY(tdm__element_runs_add_slice(&compiler->wanted, options->manifest,
                                        &options->to[to_rank].slices[slice], slice, to_rank));
    for (uint32_t i = 0; i < compiler->wanted.count; i++) {
        TDM_TRY(plan_run(compiler, to_rank, &compiler->wanted.items[i]));
    }
    return TDM_OK;
}

/* Adds the rectangles of an FP8 slice, or of its scales, that a group of trainer ranks holds, and
 * subtracts their elements from `missing`. `like` is as in tdm__convert_rectangles(). */
static tdm_status plan_fp8_group(struct plan_compiler *compiler, uint32_t to_rank,
                                 const struct tdm_slice *wanted, uint32_t group,
                                 const struct tdm__rect_copy *like, uint64_t *missing)
{
    const struct tdm_tensor_info *tensor = &compiler->options->manifest->tensors[wanted->tensor];
    struct tdm__rect_copy copies[TDM__CONVERT_RECTANGLES_MAX];
    uint32_t count = tdm__convert_rectangles(
        tensor, wanted, tdm__plan_sources_slice(&compiler->sources, group), like, copies);
    struct tdm__holder_choice choice = tdm__plan_sources_choose(&compiler->sources, to_rank, group);
    uint64_t elements = 0;

    for (uint32_t k = 0; k < count; k++) {
        copies[k].from_rank = choice.holder.rank;
        copies[k].from_tensor = choice.holder.slice;
        copies[k].locality = choice.locality;
        /* Rectangles of FP8 blocks are not merged with later copies. */
        compiler->lasts[choice.holder.rank] = 0;
        TDM_TRY(add_copy(compiler, &compiler->transfer_plan->images[to_rank], &copies[k]));
        elements += tdm__rect_copy_elements(&copies[k]);
    }
    if (elements > 0) {
        tdm__plan_sources_count(&compiler->sources, &choice,
                                elements * tdm_dtype_bytes(tensor->dtype));
    }
    *missing -= elements;
    return TDM_OK;
}

/* Adds the copies of an FP8 slice, or of its scales, as rectangles that end at block boundaries.
 * Each trainer rank converts the elements that it holds. */
static tdm_status plan_fp8_blocks(struct plan_compiler *compiler, uint32_t to_rank,
                                  const struct plan_item *item)
{
    const struct tdm_slice *wanted = &compiler->options->to[to_rank].slices[item->slice];
    const struct tdm_tensor_info *tensor = &compiler->options->manifest->tensors[wanted->tensor];
    uint64_t missing = wanted->extent[0] * wanted->extent[1];
    const struct tdm__rect_copy like = {
        .to_tensor = item->slice,
        .conversion = item->is_scales ? TDM__CONVERT_SCALES : TDM__CONVERT_FP8,
        .from_dtype = (uint8_t)tensor->dtype,
        .to_dtype = item->is_scales ? TDM_F32 : TDM_F8_E4M3,
    };

    for (uint32_t i = compiler->sources.groups[wanted->tensor];
         i < compiler->sources.groups[wanted->tensor + 1]; i++) {
        TDM_TRY(plan_fp8_group(compiler, to_rank, wanted, i, &like, &missing));
    }
    return missing == 0 ? TDM_OK
                        : tdm__fail(TDM_E_INVAL,
                                    "planning the transfer of weights failed: tensor %s: %" PRIu64
                                    " elements are in no rank's slices. Let the trainers' layouts "
                                    "cover the whole tensor",
                                    tensor->name, missing);
}

/* Returns the trainer rank that is nearest to an engine rank's target; among equals, the one of the
 * engine rank's number or the first. */
static uint32_t nearest_rank(const struct plan_compiler *compiler, uint32_t to_rank)
{
    uint32_t nearest = to_rank % compiler->options->from_count;

    for (uint32_t rank = 0; rank < compiler->options->from_count; rank++) {
        if (tdm__plan_sources_locality(&compiler->sources, rank, to_rank) <
            tdm__plan_sources_locality(&compiler->sources, nearest, to_rank)) {
            nearest = rank;
        }
    }
    return nearest;
}

/* Adds the copy of scales from the table that all trainer ranks share. The trainer rank on the
 * engine rank's GPU writes them. */
static tdm_status plan_shared_scales(struct plan_compiler *compiler, uint32_t to_rank,
                                     const struct plan_item *item)
{
    const struct tdm_slice *wanted = &compiler->options->to[to_rank].slices[item->slice];
    const struct tdm__manifest *manifest = compiler->options->manifest;
    uint32_t from_rank = nearest_rank(compiler, to_rank);
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
        .locality = tdm__plan_sources_locality(&compiler->sources, from_rank, to_rank),
        .from_dtype = TDM_F32,
        .to_dtype = TDM_F32};

    tdm__rect_copy_flatten(&copy);
    return add_copy(compiler, &compiler->transfer_plan->images[to_rank], &copy);
}

/* ---- chunks -------------------------------------------------------------------------- */

/* Orders plan items by their offset in the image, for qsort(). */
static int compare_items(const void *a, const void *b)
{
    const struct plan_item *left = a;
    const struct plan_item *right = b;

    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

/* Lists the slices and scales of an engine rank in the order of its image. Returns their number;
 * `items` has room for two for each slice. */
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

/* Appends an empty chunk to the chunks of an image. The chunk begins at the aligned offset at or
 * before `begin`. */
static tdm_status open_chunk(struct plan_compiler *compiler, struct tdm__transfer_plan_image *image,
                             uint64_t begin)
{
    TDM_TRY(tdm__array_grow((void **)&image->chunks, &compiler->chunks_capacity,
                            image->chunks_count, sizeof(*image->chunks)));
    image->chunks[image->chunks_count++] = (struct tdm__transfer_plan_chunk){
        .begin = begin / TDM__TRANSFER_PLAN_ALIGNMENT * TDM__TRANSFER_PLAN_ALIGNMENT,
        .end = begin,
        .copies_first = image->copies_count};
    return TDM_OK;
}

/* Returns the last chunk of an image, which has at least one chunk. */
static struct tdm__transfer_plan_chunk *last_chunk(const struct tdm__transfer_plan_image *image)
{
    return &image->chunks[image->chunks_count - 1];
}

/* Returns how many bytes of a chunk an item that begins at `begin` cannot use, because chunks begin
 * at aligned offsets. With an exchange the largest number is reserved, so that equal slices of
 * several engine ranks are divided equally wherever they begin. */
static uint64_t chunk_slack(const struct tdm__transfer_plan_options *options, uint64_t begin)
{
    return options->exchange_bytes > 0 ? TDM__TRANSFER_PLAN_ALIGNMENT - 1
                                       : begin % TDM__TRANSFER_PLAN_ALIGNMENT;
}

/* Returns true if an item does not fit into a chunk of its own. */
static bool item_is_large(const struct tdm__transfer_plan_options *options,
                          const struct plan_item *item)
{
    return options->chunk_bytes > 0 &&
           item->end - item->begin + chunk_slack(options, item->begin) > options->chunk_bytes;
}

/* Returns true if the image bytes from `begin` to `end` fit into one chunk. */
static bool item_fits_chunk(const struct tdm__transfer_plan_options *options, uint64_t begin,
                            uint64_t end)
{
    return options->chunk_bytes == 0 ||
           end - begin / TDM__TRANSFER_PLAN_ALIGNMENT * TDM__TRANSFER_PLAN_ALIGNMENT <=
               options->chunk_bytes;
}

/* Ends the image's last chunk at offset `end` and counts the copies that were added since the chunk
 * was opened. */
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

/* Checks that a plan item lies within the image, is aligned to its elements and does not begin
 * before `end_before`, the end of the item before. */
static tdm_status check_item_place(const struct plan_compiler *compiler, uint32_t to_rank,
                                   const struct plan_item *item, uint64_t end_before)
{
    const struct tdm_slice *slice = &compiler->options->to[to_rank].slices[item->slice];
    const char *name = compiler->options->manifest->tensors[slice->tensor].name;
    enum tdm_dtype dtype = item->is_scales ? TDM_F32 : wanted_dtype(compiler, to_rank, item->slice);
    const char *what = item->is_scales ? "scales" : "a slice";

    if (item->end < item->begin || item->end > compiler->options->image_bytes ||
        item->begin % tdm_dtype_bytes(dtype) != 0) {
        return tdm__fail(TDM_E_INVAL,
                         "planning the transfer of weights failed: tensor %s: %s from byte %" PRIu64
                         " to %" PRIu64 " of weights of %" PRIu64
                         " bytes, or not aligned to elements of %zu bytes. Correct the addresses "
                         "in the engine's layout",
                         name, what, item->begin, item->end, compiler->options->image_bytes,
                         tdm_dtype_bytes(dtype));
    }
    if (item->begin < end_before) {
        return tdm__fail(TDM_E_INVAL,
                         "planning the transfer of weights failed: tensor %s: %s at byte %" PRIu64
                         " of the weights, where another one ends at %" PRIu64
                         ". Give the slices of the engine's layout addresses that do not overlap",
                         name, what, item->begin, end_before);
    }
    return TDM_OK;
}

/* Adds all copies that write one plan item: elements, FP8 blocks or scales. */
static tdm_status plan_item_copies(struct plan_compiler *compiler, uint32_t to_rank,
                                   const struct plan_item *item)
{
    const struct tdm_slice *slice = &compiler->options->to[to_rank].slices[item->slice];
    const struct tdm_tensor_info *tensor = &compiler->options->manifest->tensors[slice->tensor];

    memset(compiler->lasts, 0, compiler->options->from_count * sizeof(*compiler->lasts));
    compiler->sources.last_rank = TDM__PLAN_NO_RANK;
    if (tdm__slice_scales_bytes(tensor, slice) == 0) {
        return plan_elements(compiler, to_rank, item->slice);
    }
    return item->is_scales &&
                   compiler->transfer_plan->scales.firsts[slice->tensor] != TDM__SCALES_NOT_SHARED
               ? plan_shared_scales(compiler, to_rank, item)
               : plan_fp8_blocks(compiler, to_rank, item);
}

/* Returns where the piece of a large item that begins at `begin` ends, as an offset in the image. A
 * piece has as many units of `unit` bytes as fit into a chunk, but at least one. */
static uint64_t next_piece_end(const struct plan_compiler *compiler, const struct plan_item *item,
                               uint64_t begin, uint64_t unit)
{
    uint64_t aligned_units = compiler->options->chunk_bytes / TDM__TRANSFER_PLAN_ALIGNMENT;
    uint64_t room = (aligned_units == 0 ? 1 : aligned_units) * TDM__TRANSFER_PLAN_ALIGNMENT -
                    chunk_slack(compiler->options, begin);
    uint64_t units = room / unit;
    uint64_t end = begin + (units == 0 ? 1 : units) * unit;

    return end < item->end ? end : item->end;
}

/* Adds the parts of the copies in `uncut` that write the bytes from `begin` to `end` of the
 * item. */
static tdm_status add_piece(struct plan_compiler *compiler, struct tdm__transfer_plan_image *image,
                            uint32_t uncut_count, uint64_t begin, uint64_t end)
{
    struct tdm__rect_copy pieces[TDM__COPY_SPLIT_MAX];

    for (uint32_t i = 0; i < uncut_count; i++) {
        uint32_t count = tdm__copy_split(&compiler->uncut[i], begin, end, pieces);

        for (uint32_t k = 0; k < count; k++) {
            /* A copy that ends with this piece is not merged with copies of the next piece. */
            compiler->lasts[pieces[k].from_rank] = 0;
            TDM_TRY(add_copy(compiler, image, &pieces[k]));
        }
    }
    return TDM_OK;
}

/* Replaces the copies of an item that is larger than a chunk by copies of its pieces, one chunk for
 * each piece. */
static tdm_status split_item(struct plan_compiler *compiler, struct tdm__transfer_plan_image *image,
                             const struct plan_item *item, uint32_t copies_first)
{
    uint32_t count = image->copies_count - copies_first;
    const struct tdm__rect_copy *first = &image->copies[copies_first];
    const struct tdm_slice *slice =
        &compiler->options->to[image - compiler->transfer_plan->images].slices[item->slice];
    uint64_t unit = tdm__copy_split_unit(slice, (enum tdm__conversion)first->conversion,
                                         (enum tdm_dtype)first->to_dtype);

    while (compiler->uncut_capacity < count) {
        TDM_TRY(tdm__array_grow((void **)&compiler->uncut, &compiler->uncut_capacity,
                                compiler->uncut_capacity, sizeof(*first)));
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

/* Puts an item into the image's last chunk if it fits, else into a new chunk. An item larger than a
 * chunk gets several chunks, unless the plan keeps slices whole. */
static tdm_status put_item_in_chunk(struct plan_compiler *compiler, uint32_t to_rank,
                                    const struct plan_item *item)
{
    const struct tdm__transfer_plan_options *options = compiler->options;
    struct tdm__transfer_plan_image *image = &compiler->transfer_plan->images[to_rank];
    uint32_t copies_first = image->copies_count;

    if (!options->keeps_slices_whole && item_is_large(options, item)) {
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

/* Checks the items of an engine rank's image in their order and puts each into chunks. */
static tdm_status plan_items(struct plan_compiler *compiler, uint32_t to_rank,
                             const struct plan_item *items, uint32_t count)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(check_item_place(compiler, to_rank, &items[i], end));
        end = items[i].end;
        TDM_TRY(put_item_in_chunk(compiler, to_rank, &items[i]));
    }
    return TDM_OK;
}

/* Compiles the copies and chunks of one engine rank's image. */
static tdm_status plan_image(struct plan_compiler *compiler, uint32_t to_rank)
{
    const struct tdm__layout *layout = &compiler->options->to[to_rank];
    const struct tdm__transfer_plan_image *image = &compiler->transfer_plan->images[to_rank];
    size_t capacity = 2 * (size_t)layout->slices_count + 1;
    struct plan_item *items = calloc(capacity, sizeof(*items));
    tdm_status status;

    compiler->copies_capacity = 0;
    compiler->chunks_capacity = 0;
    if (items == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating a transfer plan of %zu slices failed: out of memory",
                         capacity);
    }
    status = plan_items(compiler, to_rank, items,
                        list_items(compiler->options->manifest, layout, items));
    free(items);
    if (compiler->transfer_plan->chunks_count < image->chunks_count) {
        compiler->transfer_plan->chunks_count = image->chunks_count;
    }
    return status;
}

/* Adds empty chunks to every image, so that all images have the same number of chunks. */
static tdm_status pad_chunks(struct tdm__transfer_plan *transfer_plan)
{
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        struct tdm__transfer_plan_image *image = &transfer_plan->images[i];
        struct tdm__transfer_plan_chunk *chunks =
            calloc((size_t)transfer_plan->chunks_count + 1, sizeof(*chunks));

        if (chunks == NULL) {
            return tdm__fail(TDM_E_NOMEM, "allocating %" PRIu32 " chunks failed: out of memory",
                             transfer_plan->chunks_count);
        }
        if (image->chunks_count > 0) {
            memcpy(chunks, image->chunks, image->chunks_count * sizeof(*chunks));
        }
        free(image->chunks);
        image->chunks = chunks;
    }
    return TDM_OK;
}

/* ---- cost ---------------------------------------------------------------------------- */

/* Adds the bytes and copies of one engine rank's image to the plan's cost, and the bytes that each
 * trainer rank sends to `sent_bytes`. */
static void add_cost(struct tdm__transfer_plan *transfer_plan, uint32_t to_rank,
                     uint64_t *sent_bytes)
{
    const struct tdm__transfer_plan_image *image = &transfer_plan->images[to_rank];
    struct tdm__transfer_cost *cost = &transfer_plan->cost;
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

/* Adds what crosses between nodes to the plan's cost, and the bytes that each trainer rank sends to
 * `sent_bytes`. */
static void add_exchange_cost(struct tdm__transfer_plan *transfer_plan, uint64_t *sent_bytes)
{
    const struct tdm__node_exchange *exchange = transfer_plan->exchange;
    struct tdm__transfer_cost *cost = &transfer_plan->cost;

    for (uint32_t i = 0; exchange != NULL && i < exchange->pieces_count; i++) {
        const struct tdm__exchange_piece *piece = &exchange->pieces[i];

        cost->bytes_by_locality[TDM__LOCALITY_OTHER_NODE] += piece->size_bytes;
        cost->copies_by_locality[TDM__LOCALITY_OTHER_NODE]++;
        sent_bytes[piece->copy.from_rank] += piece->size_bytes;
    }
}

/* Computes how many bytes and copies the whole plan has. */
static tdm_status compute_cost(struct tdm__transfer_plan *transfer_plan)
{
    uint64_t *sent_bytes = calloc((size_t)transfer_plan->from_count + 1, sizeof(*sent_bytes));
    struct tdm__transfer_cost *cost = &transfer_plan->cost;

    if (sent_bytes == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating the cost of a transfer plan failed: out of memory");
    }
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        add_cost(transfer_plan, i, sent_bytes);
    }
    add_exchange_cost(transfer_plan, sent_bytes);
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

/* ---- all ----------------------------------------------------------------------------- */

/* Counts for each trainer rank the bytes that it must send to engine rank `to_rank` because no
 * other rank is as near. */
static tdm_status count_forced_bytes(struct plan_compiler *compiler, uint32_t to_rank)
{
    compiler->sources.counts_only = true;
    for (uint32_t i = 0; i < compiler->options->to[to_rank].slices_count; i++) {
        TDM_TRY(plan_item_copies(compiler, to_rank, &(struct plan_item){.slice = i}));
    }
    compiler->sources.counts_only = false;
    return TDM_OK;
}

/* Returns true if some copy of the plan goes from one node to another. */
static bool has_copy_between_nodes(const struct tdm__transfer_plan *transfer_plan)
{
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        for (uint32_t k = 0; k < transfer_plan->images[i].copies_count; k++) {
            if (transfer_plan->images[i].copies[k].locality == TDM__LOCALITY_OTHER_NODE) {
                return true;
            }
        }
    }
    return false;
}

/* Plans the exchange of what crosses between nodes, if the caller wants one and something does. */
static tdm_status plan_exchange(struct plan_compiler *compiler)
{
    const struct tdm__node_exchange_options options = {
        .from_locations = compiler->options->from_locations,
        .to_locations = compiler->options->to_locations,
        .round_bytes = compiler->options->exchange_bytes};

    return options.round_bytes > 0 && has_copy_between_nodes(compiler->transfer_plan)
               ? tdm__node_exchange_create(compiler->transfer_plan, &options,
                                           &compiler->transfer_plan->exchange)
               : TDM_OK;
}

/* Runs all steps that compile a transfer plan. On failure the caller frees what was allocated. */
static tdm_status plan_compile(struct plan_compiler *compiler)
{
    const struct tdm__transfer_plan_options *options = compiler->options;
    const struct tdm__scales_options scales = {.manifest = options->manifest,
                                               .from = options->from,
                                               .from_count = options->from_count,
                                               .to = options->to,
                                               .to_count = options->to_count,
                                               .replicas = &compiler->sources.replicas};
    const struct tdm__plan_sources_options sources = {.manifest = options->manifest,
                                                      .from = options->from,
                                                      .to = options->to,
                                                      .from_count = options->from_count,
                                                      .to_count = options->to_count,
                                                      .from_locations = options->from_locations,
                                                      .to_locations = options->to_locations,
                                                      .crosses_once = options->exchange_bytes > 0};
    struct tdm__transfer_plan *transfer_plan = compiler->transfer_plan;

    compiler->lasts = calloc((size_t)options->from_count + 1, sizeof(*compiler->lasts));
    transfer_plan->images = calloc((size_t)options->to_count + 1, sizeof(*transfer_plan->images));
    if (compiler->lasts == NULL || transfer_plan->images == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating a transfer plan from %" PRIu32 " to %" PRIu32
                         " ranks failed: out of memory",
                         options->from_count, options->to_count);
    }
    for (uint32_t i = 0; i < options->to_count; i++) {
        TDM_TRY(tdm__wrap(tdm__layout_check(&options->to[i], options->manifest),
                          "engine rank %" PRIu32, i));
    }
    TDM_TRY(tdm__plan_sources_init(&sources, &compiler->sources));
    TDM_TRY(tdm__scales_init(&scales, &transfer_plan->scales));
    for (uint32_t i = 0; i < options->to_count; i++) {
        TDM_TRY(tdm__wrap(count_forced_bytes(compiler, i), "engine rank %" PRIu32, i));
    }
    for (uint32_t i = 0; i < options->to_count; i++) {
        TDM_TRY(tdm__wrap(plan_image(compiler, i), "engine rank %" PRIu32, i));
    }
    TDM_TRY(pad_chunks(transfer_plan));
    TDM_TRY(plan_exchange(compiler));
    return compute_cost(transfer_plan);
}

tdm_status tdm__transfer_plan_create(const struct tdm__transfer_plan_options *options,
                                     struct tdm__transfer_plan **plan_out)
{
    struct tdm__transfer_plan *transfer_plan = calloc(1, sizeof(*transfer_plan));
    struct plan_compiler compiler = {.options = options, .transfer_plan = transfer_plan};
    tdm_status status;

    if (transfer_plan == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a transfer plan failed: out of memory");
    }
    transfer_plan->manifest = options->manifest;
    transfer_plan->from = options->from;
    transfer_plan->to = options->to;
    transfer_plan->from_count = options->from_count;
    transfer_plan->to_count = options->to_count;
    status = plan_compile(&compiler);
    tdm__plan_sources_fini(&compiler.sources);
    free(compiler.wanted.items);
    free(compiler.uncut);
    free(compiler.lasts);
    if (status != TDM_OK) {
        tdm__transfer_plan_destroy(transfer_plan);
        return status;
    }
    *plan_out = transfer_plan;
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
    tdm__node_exchange_destroy(transfer_plan->exchange);
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

    bool is_scales = copy->conversion == TDM__CONVERT_SCALES ||
                     copy->from_tensor == TDM__TRANSFER_PLAN_SCALES ||
                     copy->from_tensor == TDM__TRANSFER_PLAN_RECEIVED_SCALES;

    return offset_of(is_scales ? slice->scales : slice->address) +
           copy->to_offset * tdm_dtype_bytes((enum tdm_dtype)copy->to_dtype);
}

uint32_t tdm__transfer_plan_copies_between(const struct tdm__transfer_plan *transfer_plan,
                                           uint32_t chunk, uint32_t from_rank, uint32_t image)
{
    const struct tdm__transfer_plan_image *to = &transfer_plan->images[image];
    const struct tdm__transfer_plan_chunk *about = &to->chunks[chunk];
    uint32_t count = 0;

    TDM_ASSERT(chunk < transfer_plan->chunks_count);
    for (uint32_t i = 0; i < about->copies_count; i++) {
        count += to->copies[about->copies_first + i].from_rank == from_rank ? 1 : 0;
    }
    return count;
}
