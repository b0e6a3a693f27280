/* scales.c - scales of FP8 blocks of which several trainer ranks hold parts. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A tensor needs shared scales if some engine wants it in FP8 and some trainer slice cuts through a
 * block. tdm__scales_init() marks these tensors, gives each a range of one table, and lists for
 * each trainer rank the rectangles that it must measure. During an update each rank runs its
 * measurements on the device and merges them with tdm__scales_merge(); then the ranks take the
 * maximum of their tables (weight_writer.c). After initialization the structure never changes, so
 * threads may share it. */

#include "colocate/weights/scales.h"

#include "colocate/layout/model.h"
#include "colocate/weights/convert.h"
#include "runtime/array_grow.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- planning ------------------------------------------------------------------------ */

/* Marks of a tensor while the table of scales is planned. */
enum {
    CONVERTED = 1, /* Some engine rank wants the tensor in FP8. */
    SHARED = 2,    /* Some trainer slice contains only a part of an FP8 block of the tensor. */
};

/* Marks the tensors that some engine rank wants in FP8 as CONVERTED. */
static void mark_converted(const struct tdm__scales_options *options, uint8_t *marks)
{
    for (uint32_t rank = 0; rank < options->to_count; rank++) {
        for (uint32_t i = 0; i < options->to[rank].slices_count; i++) {
            const struct tdm_slice *slice = &options->to[rank].slices[i];

            if (tdm__slice_scales_bytes(&options->manifest->tensors[slice->tensor], slice) > 0) {
                marks[slice->tensor] |= CONVERTED;
            }
        }
    }
}

/* Marks those CONVERTED tensors as SHARED of which a trainer slice contains only a part of an FP8
 * block. */
static void mark_shared(const struct tdm__scales_options *options, uint8_t *marks)
{
    for (uint32_t rank = 0; rank < options->from_count; rank++) {
        for (uint32_t i = 0; i < options->from[rank].slices_count; i++) {
            const struct tdm_slice *slice = &options->from[rank].slices[i];

            if ((marks[slice->tensor] & CONVERTED) != 0 &&
                tdm__convert_cuts_blocks(&options->manifest->tensors[slice->tensor], slice)) {
                marks[slice->tensor] |= SHARED;
            }
        }
    }
}

/* Assigns each SHARED tensor its range in the table of shared scales. */
static void assign_table_offsets(const struct tdm__manifest *manifest, const uint8_t *marks,
                                 struct tdm__scales *scales)
{
    for (uint32_t i = 0; i < manifest->tensors_count; i++) {
        const uint64_t *shape = manifest->tensors[i].shape;

        scales->firsts[i] = TDM__SCALES_NOT_SHARED;
        if ((marks[i] & SHARED) != 0) {
            scales->firsts[i] = scales->count;
            scales->count +=
                tdm__convert_blocks_count(shape[0]) * tdm__convert_blocks_count(shape[1]);
        }
    }
}

/* Lists the rectangles of a trainer's slice whose FP8 block scales are to be computed. */
static tdm_status measure_slice(const struct tdm_tensor_info *tensor, const struct tdm_slice *slice,
                                const struct tdm__rect_copy *like, struct tdm__scales *scales,
                                uint32_t *capacity)
{
    const struct tdm_slice whole = {.extent = {tensor->shape[0], tensor->shape[1]}};
    struct tdm__rect_copy copies[TDM__CONVERT_RECTANGLES_MAX];
    uint32_t count = tdm__convert_rectangles(tensor, &whole, slice, like, copies);

    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(tdm__array_grow((void **)&scales->measures, capacity, scales->measures_count,
                                sizeof(copies[i])));
        copies[i].to_offset += scales->firsts[slice->tensor];
        scales->measures[scales->measures_count++] = copies[i];
        scales->measured_bytes += tdm__rect_copy_bytes(&copies[i]);
    }
    return TDM_OK;
}

/* Lists for all trainer ranks the rectangles whose FP8 block scales each computes. */
static tdm_status list_measures(const struct tdm__scales_options *options,
                                struct tdm__scales *scales)
{
    uint32_t capacity = 0;

    for (uint32_t rank = 0; rank < options->from_count; rank++) {
        for (uint32_t i = 0; i < options->from[rank].slices_count; i++) {
            const struct tdm_slice *slice = &options->from[rank].slices[i];
            const struct tdm_tensor_info *tensor = &options->manifest->tensors[slice->tensor];
            const struct tdm__rect_copy like = {.from_rank = rank,
                                                .from_tensor = i,
                                                .to_tensor = slice->tensor,
                                                .conversion = TDM__CONVERT_SCALES,
                                                .from_dtype = (uint8_t)tensor->dtype,
                                                .to_dtype = TDM_F32};

            if (scales->firsts[slice->tensor] != TDM__SCALES_NOT_SHARED &&
                tdm__replicas_sends(options->replicas, rank, i)) {
                TDM_TRY(measure_slice(tensor, slice, &like, scales, &capacity));
            }
        }
    }
    return TDM_OK;
}

tdm_status tdm__scales_init(const struct tdm__scales_options *options,
                            struct tdm__scales *scales_out)
{
    size_t tensors_count = options->manifest->tensors_count;
    struct tdm__scales scales = {.manifest = options->manifest};
    uint8_t *marks = calloc(tensors_count + 1, sizeof(*marks));
    tdm_status status;

    scales.firsts = calloc(tensors_count + 1, sizeof(*scales.firsts));
    if (scales.firsts == NULL || marks == NULL) {
        free(scales.firsts);
        free(marks);
        return tdm__fail(TDM_E_NOMEM, "allocating scales of %zu tensors failed: out of memory",
                         tensors_count);
    }
    mark_converted(options, marks);
    mark_shared(options, marks);
    assign_table_offsets(options->manifest, marks, &scales);
    free(marks);
    status = list_measures(options, &scales);
    if (status != TDM_OK) {
        tdm__scales_fini(&scales);
        return status;
    }
    *scales_out = scales;
    return TDM_OK;
}

void tdm__scales_fini(struct tdm__scales *scales)
{
    free(scales->firsts);
    free(scales->measures);
    *scales = (struct tdm__scales){.firsts = NULL};
}

/* ---- the table ----------------------------------------------------------------------- */

/* Returns the number of FP8 blocks, each with one scale, side by side in the tensor's rows. */
static uint64_t table_row_pitch(const struct tdm__scales *scales, uint32_t tensor)
{
    return tdm__convert_blocks_count(scales->manifest->tensors[tensor].shape[1]);
}

uint64_t tdm__scales_block_index(const struct tdm__scales *scales, uint32_t tensor, uint64_t row,
                                 uint64_t column)
{
    return scales->firsts[tensor] + row / TDM__FP8_BLOCK * table_row_pitch(scales, tensor) +
           column / TDM__FP8_BLOCK;
}

void tdm__scales_attach(const struct tdm__scales *scales, const struct tdm_slice *wanted,
                        const struct tdm__rect_copy *copy, const float *table,
                        struct tdm__copy_op *part)
{
    /* Number of columns of the engine's slice; 0 if it is not of a matrix and therefore never
     * FP8. */
    uint64_t columns = wanted->extent[1];
    uint64_t place;

    if (copy->conversion != TDM__CONVERT_FP8 ||
        scales->firsts[wanted->tensor] == TDM__SCALES_NOT_SHARED) {
        return;
    }
    place = tdm__scales_block_index(scales, wanted->tensor,
                                    wanted->offset[0] + copy->to_offset / columns,
                                    wanted->offset[1] + copy->to_offset % columns);
    part->scales = table + place;
    part->scales_pitch = (uint32_t)table_row_pitch(scales, wanted->tensor);
}

uint64_t tdm__scales_measured_count(const struct tdm__rect_copy *measure)
{
    return tdm__convert_blocks_count(measure->rows) * tdm__convert_blocks_count(measure->columns);
}

void tdm__scales_merge(const struct tdm__rect_copy *measure, const float *found, float *table)
{
    uint64_t columns = tdm__convert_blocks_count(measure->columns);

    for (uint64_t i = 0; i < tdm__scales_measured_count(measure); i++) {
        float *scale = &table[measure->to_offset + i / columns * measure->to_pitch + i % columns];

        *scale = found[i] > *scale ? found[i] : *scale;
    }
}
