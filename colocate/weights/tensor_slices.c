/* tensor_slices.c - the parts of tensors that an engine rank keeps: what is where, and what has
 * come.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/tensor_slices.h"

#include "colocate/weights/convert.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 16 };

#define GAP UINT32_MAX /* instead of a record */

struct byte_extent {
    uint64_t begin; /* in the image, in bytes */
    uint64_t end;
};

/* Where a slice, or its scales, lie in the image. */
struct slice_extent {
    struct byte_extent extent;
    uint32_t tensor;
    enum tdm_dtype dtype;
};

struct tdm__tensor_slices {
    const struct tdm__manifest *manifest; /* borrowed */
    uint64_t image_bytes;
    uint64_t *wanted_bytes; /* owned, like the rest: of each tensor */
    uint64_t *received_bytes;
    struct slice_extent *slice_extents; /* in the order of the image */
    uint32_t places_count;
    struct byte_extent *gaps; /* what no place covers */
    uint32_t gaps_count;
    struct tdm__resume_tracker tracker; /* of what has come */
};

/* ---- the layout ------------------------------------------------------------------------- */

static int compare_slice_extents(const void *a, const void *b)
{
    const struct slice_extent *left = a;
    const struct slice_extent *right = b;

    return left->extent.begin < right->extent.begin ? -1 : left->extent.begin > right->extent.begin;
}

static tdm_status add_slice_extent(struct tdm__tensor_slices *parts,
                                   const struct slice_extent *place, uint64_t *end)
{
    if (place->extent.end < place->extent.begin || place->extent.end > parts->image_bytes ||
        place->extent.begin < *end) {
        return tdm__fail(TDM_E_INVAL,
                         "tensor %s: a slice from %" PRIu64 " to %" PRIu64 " of weights of %" PRIu64
                         " bytes, where one before it ends at %" PRIu64,
                         parts->manifest->tensors[place->tensor].name, place->extent.begin,
                         place->extent.end, parts->image_bytes, *end);
    }
    if (place->extent.begin > *end) {
        parts->gaps[parts->gaps_count++] = (struct byte_extent){*end, place->extent.begin};
    }
    parts->wanted_bytes[place->tensor] += place->extent.end - place->extent.begin;
    *end = place->extent.end;
    return TDM_OK;
}

static struct slice_extent *push_slice_extent(struct tdm__tensor_slices *parts, uint32_t tensor,
                                              uint64_t begin, uint64_t size_bytes)
{
    struct slice_extent *place = &parts->slice_extents[parts->places_count++];

    place->extent = (struct byte_extent){begin, begin + size_bytes};
    place->tensor = tensor;
    return place;
}

static tdm_status read_layout(struct tdm__tensor_slices *parts,
                              const struct tdm__tensor_slices_options *options)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < options->layout->slices_count; i++) {
        const struct tdm_slice *slice = &options->layout->slices[i];
        const struct tdm_tensor_info *tensor = &parts->manifest->tensors[slice->tensor];
        uint64_t scales_bytes = tdm__slice_scales_bytes(tensor, slice);

        push_slice_extent(parts, slice->tensor,
                          (uintptr_t)slice->address - (uintptr_t)options->base,
                          tdm__slice_bytes(parts->manifest, slice))
            ->dtype = tdm__slice_dtype(tensor, slice);
        if (scales_bytes > 0) {
            push_slice_extent(parts, slice->tensor,
                              (uintptr_t)slice->scales - (uintptr_t)options->base, scales_bytes)
                ->dtype = TDM_F32;
        }
    }
    qsort(parts->slice_extents, parts->places_count, sizeof(parts->slice_extents[0]),
          compare_slice_extents);
    for (uint32_t i = 0; i < parts->places_count; i++) {
        TDM_TRY(add_slice_extent(parts, &parts->slice_extents[i], &end));
    }
    if (end < parts->image_bytes) {
        parts->gaps[parts->gaps_count++] = (struct byte_extent){end, parts->image_bytes};
    }
    return TDM_OK;
}

static tdm_status tensor_slices_init(struct tdm__tensor_slices *parts,
                                     const struct tdm__tensor_slices_options *options)
{
    size_t tensors_count = parts->manifest->tensors_count;
    size_t places_max = 2 * (size_t)options->layout->slices_count; /* with their scales */

    TDM_TRY(tdm__layout_check(options->layout, parts->manifest));
    parts->slice_extents = calloc(places_max + 1, sizeof(*parts->slice_extents));
    parts->wanted_bytes = calloc(tensors_count, sizeof(*parts->wanted_bytes));
    parts->received_bytes = calloc(tensors_count, sizeof(*parts->received_bytes));
    parts->gaps = calloc(places_max + 1, sizeof(*parts->gaps));
    if (parts->slice_extents == NULL || parts->wanted_bytes == NULL ||
        parts->received_bytes == NULL || parts->gaps == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a layout of %zu slices", places_max / 2);
    }
    return read_layout(parts, options);
}

tdm_status tdm__tensor_slices_create(const struct tdm__tensor_slices_options *options,
                                     struct tdm__tensor_slices **parts_out)
{
    struct tdm__tensor_slices *parts = calloc(1, sizeof(*parts));
    tdm_status status;

    if (parts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an engine's parts");
    }
    parts->manifest = options->manifest;
    parts->image_bytes = options->image_bytes;
    status = tensor_slices_init(parts, options);
    if (status != TDM_OK) {
        tdm__tensor_slices_destroy(parts);
        return status;
    }
    *parts_out = parts;
    return TDM_OK;
}

void tdm__tensor_slices_destroy(struct tdm__tensor_slices *parts)
{
    if (parts == NULL) {
        return;
    }
    free(parts->wanted_bytes);
    free(parts->received_bytes);
    free(parts->slice_extents);
    free(parts->gaps);
    free(parts);
}

/* ---- an update -------------------------------------------------------------------------- */

void tdm__tensor_slices_begin_update(struct tdm__tensor_slices *parts)
{
    memset(parts->received_bytes, 0,
           parts->manifest->tensors_count * sizeof(*parts->received_bytes));
    parts->tracker = (struct tdm__resume_tracker){.is_open = false};
}

void tdm__tensor_slices_resume_update(struct tdm__tensor_slices *parts)
{
    tdm__resume_tracker_begin_update(&parts->tracker);
}

struct tdm__resume_log tdm__tensor_slices_resume_log(const struct tdm__tensor_slices *parts,
                                                     bool is_exported)
{
    return tdm__resume_tracker_snapshot(&parts->tracker, is_exported);
}

static struct tdm__strided_rows slice_rows(const struct tdm__tensor_record *record)
{
    size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)record->dtype);
    size_t pitch = record->stride[0] * element_bytes;

    return (struct tdm__strided_rows){.count = record->shape[0],
                                      .size_bytes = record->shape[1] * element_bytes,
                                      .from_pitch = pitch,
                                      .to_pitch = pitch};
}

/* The last place that begins at or before a byte of the image; NULL if there is none. */
static const struct slice_extent *find_place(const struct tdm__tensor_slices *parts, uint64_t byte)
{
    uint32_t low = 0;
    uint32_t high = parts->places_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (parts->slice_extents[middle].extent.begin <= byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? NULL : &parts->slice_extents[low - 1];
}

/* The storage was checked when the record was decoded; here the other end: all of it must lie
 * where this rank keeps that very tensor, in the same dtype. */
static tdm_status check_record(const struct tdm__tensor_slices *parts,
                               const struct tdm__tensor_record *record)
{
    uint64_t elements = (record->shape[0] - 1) * record->stride[0] + record->shape[1];
    uint64_t size_bytes = elements * tdm_dtype_bytes((enum tdm_dtype)record->dtype);
    const struct slice_extent *place = find_place(parts, record->image);

    if ((record->flags & TDM__TENSOR_SLICE) == 0) {
        return tdm__fail(TDM_E_PROTOCOL, "a whole tensor %s among parts",
                         parts->manifest->tensors[record->tensor].name);
    }
    if (size_bytes > parts->image_bytes || record->image > parts->image_bytes - size_bytes) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "tensor %s: a part of %" PRIu64 " bytes at %" PRIu64
                         " of weights of %" PRIu64,
                         parts->manifest->tensors[record->tensor].name, size_bytes, record->image,
                         parts->image_bytes);
    }
    if (place == NULL || place->tensor != record->tensor ||
        place->dtype != (enum tdm_dtype)record->dtype ||
        record->image + size_bytes > place->extent.end) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "tensor %s: a part of %" PRIu64 " bytes of %s at %" PRIu64
                         ", where this rank keeps something else",
                         parts->manifest->tensors[record->tensor].name, size_bytes,
                         tdm_dtype_name((enum tdm_dtype)record->dtype), record->image);
    }
    return TDM_OK;
}

/* What the device has to do of a bucket. */
struct stage_work {
    struct tdm__copy_op *parts; /* owned, like the rest */
    uint32_t *records;          /* whose parts they are; GAP: none's */
    uint64_t *sums;
    uint32_t count;
};

static void stage_work_free(struct stage_work *work)
{
    free(work->parts);
    free(work->records);
    free(work->sums);
}

static tdm_status stage_work_create(size_t parts_max, struct stage_work *work)
{
    *work = (struct stage_work){.parts = calloc(parts_max + 1, sizeof(*work->parts)),
                                .records = calloc(parts_max + 1, sizeof(*work->records)),
                                .sums = calloc(parts_max + 1, sizeof(*work->sums))};
    if (work->parts == NULL || work->records == NULL || work->sums == NULL) {
        stage_work_free(work);
        return tdm__fail(TDM_E_NOMEM, "a bucket of %zu parts", parts_max);
    }
    return TDM_OK;
}

static void add_slice_copy(struct stage_work *work, uint32_t record,
                           const struct tdm__strided_rows *rows, const void *from, void *to)
{
    work->parts[work->count] = tdm__copy_op_of_rows(rows, from, to);
    work->records[work->count++] = record;
}

/* Zeros where the layout has nothing. */
static void add_gap_zeroing(const struct tdm__tensor_slices *parts,
                            const struct tdm__tensor_slices_stage *stage, struct stage_work *work)
{
    for (uint32_t i = 0; i < parts->gaps_count; i++) {
        const struct byte_extent *gap = &parts->gaps[i];
        const struct tdm__strided_rows row = {.count = 1, .size_bytes = gap->end - gap->begin};

        add_slice_copy(work, GAP, &row, NULL, stage->image + gap->begin);
    }
}

/* Copied, or looked at where it lies, or left alone. */
static void add_record(const struct tdm__tensor_slices_stage *stage, uint32_t index,
                       struct stage_work *work)
{
    const struct tdm__tensor_record *record = &stage->handles->tensors[index];
    const struct tdm__strided_rows rows = slice_rows(record);
    char *place = stage->image + record->image;
    uint64_t turn = index + stage->handles->header.epoch;

    if (stage->source != NULL) {
        size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)record->dtype);

        add_slice_copy(work, index, &rows, stage->source + record->offset * element_bytes, place);
    } else if (stage->verify == TDM__VERIFY_FULL ||
               (stage->verify == TDM__VERIFY_SAMPLE && turn % SAMPLE == 0)) {
        add_slice_copy(work, index, &rows, place, NULL);
    }
}

static tdm_status compare_sums(const struct tdm__tensor_slices *parts,
                               const struct tdm__tensor_slices_stage *stage,
                               const struct stage_work *work)
{
    for (uint32_t i = 0; i < work->count && stage->verify != TDM__VERIFY_NONE; i++) {
        const struct tdm__tensor_record *record;

        if (work->records[i] == GAP) {
            continue;
        }
        record = &stage->handles->tensors[work->records[i]];
        if (work->sums[i] != record->checksum) {
            const struct tdm__strided_rows rows = slice_rows(record);

            return tdm__fail(TDM_E_CHECKSUM,
                             "tensor %s: %zu rows of %zu bytes have the checksum %016" PRIx64
                             ", the sender's is %016" PRIx64,
                             parts->manifest->tensors[record->tensor].name, rows.count,
                             rows.size_bytes, work->sums[i], record->checksum);
        }
    }
    return TDM_OK;
}

static tdm_status copy_slices(const struct tdm__tensor_slices *parts,
                              const struct tdm__tensor_slices_stage *stage, bool first)
{
    const struct tdm__tensor_handles *handles = stage->handles;
    struct tdm__device *device = stage->device;
    struct stage_work work;
    tdm_status status;

    TDM_TRY(stage_work_create((size_t)parts->gaps_count + handles->header.tensors_count, &work));
    if (first) {
        add_gap_zeroing(parts, stage, &work);
    }
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        add_record(stage, i, &work);
    }
    status = device->ops->move(device, work.parts, work.count, work.sums);
    if (status == TDM_OK) {
        status = compare_sums(parts, stage, &work);
    }
    stage_work_free(&work);
    return status;
}

static void count_received_bytes(struct tdm__tensor_slices *parts,
                                 const struct tdm__tensor_handles *handles)
{
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        const struct tdm__tensor_record *record = &handles->tensors[i];

        parts->received_bytes[record->tensor] +=
            record->shape[0] * record->shape[1] * tdm_dtype_bytes((enum tdm_dtype)record->dtype);
    }
}

tdm_status tdm__tensor_slices_stage(struct tdm__tensor_slices *parts,
                                    const struct tdm__tensor_slices_stage *stage)
{
    const struct tdm__tensor_handles *handles = stage->handles;
    bool begun;

    TDM_TRY(tdm__resume_tracker_open_bucket(&parts->tracker, handles->header.bucket, &begun));
    if (begun) {
        memset(parts->received_bytes, 0,
               parts->manifest->tensors_count * sizeof(*parts->received_bytes));
    }
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        TDM_TRY(check_record(parts, &handles->tensors[i]));
    }
    TDM_TRY(copy_slices(parts, stage, begun));
    count_received_bytes(parts, handles);
    tdm__resume_tracker_close_bucket(&parts->tracker, handles->header.bucket, handles->tensors,
                                     handles->header.tensors_count);
    return TDM_OK;
}

tdm_status tdm__tensor_slices_check_complete(struct tdm__tensor_slices *parts)
{
    parts->tracker.is_unsettled = false;
    for (uint32_t i = 0; i < parts->manifest->tensors_count; i++) {
        if (parts->tracker.is_open || parts->received_bytes[i] != parts->wanted_bytes[i]) {
            return tdm__fail(TDM_E_STATE, "tensor %s: %" PRIu64 " of %" PRIu64 " bytes have come",
                             parts->manifest->tensors[i].name, parts->received_bytes[i],
                             parts->wanted_bytes[i]);
        }
    }
    return TDM_OK;
}
