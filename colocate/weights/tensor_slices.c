/* tensor_slices.c - places received tensor slices in an engine's weights and counts them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The layout of an engine rank is turned into slice extents, which are sorted, disjoint byte ranges
 * of the weights image. There is one for each slice and one for the scales of each FP8 slice. What
 * no extent covers is a gap. The first bucket of an update zeroes the gaps, so that equal updates
 * give equal images.
 *
 * Each bucket carries records. A record is accepted only if its bytes lie within one extent of
 * the same tensor and dtype. The bytes of a record are either copied from the sender's bucket,
 * or were written into the image directly and are only verified. The resume tracker
 * (resume_log.h) knows which buckets are complete. The receiver's thread is the only one that
 * enters. */

#include "colocate/weights/tensor_slices.h"

#include "colocate/weights/merged_handles.h"

#include "colocate/weights/convert.h"
#include "colocate/weights/remedies.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* With TDM__VERIFY_SAMPLE, each update verifies one of this many tensor records. */
enum { SAMPLE = 16 };

/* Value of a record index for a device operation that zeroes a gap of the image. */
#define GAP UINT32_MAX

/* A byte range of the weights image. */
struct byte_extent {
    uint64_t begin; /* Offset of the range's first byte in the weights image, in bytes. */
    uint64_t end;   /* Offset after the range's last byte in the weights image, in bytes. */
};

/* The range of the image that holds one slice, or the scales of one slice. */
struct slice_extent {
    /* Byte range of the slice, or of its scales, in the weights image. */
    struct byte_extent extent;
    uint32_t tensor;      /* Index in the manifest of the tensor to which the slice belongs. */
    enum tdm_dtype dtype; /* Data type of the elements in this range; TDM_F32 for scales. */
};

/* Where the tensor slices of one engine rank belong, and how many bytes of them have been received.
 * One thread at a time uses the structure; the receiver owns it. */
struct tdm__tensor_slices {
    const struct tdm__manifest *manifest; /* Tensors of the model; borrowed. */
    uint64_t image_bytes;                 /* Size of the weights image in bytes. */
    /* For each tensor, how many bytes this rank's layout has of it. Owned. */
    uint64_t *wanted_bytes;
    /* For each tensor, how many bytes have been received in this update. Owned. */
    uint64_t *received_bytes;
    /* Extents of all slices and scales, sorted by their offset in the image. Owned. */
    struct slice_extent *slice_extents;
    uint32_t slice_extents_count; /* Number of entries in `slice_extents`. */
    struct byte_extent *gaps;     /* Byte ranges of the image that no slice extent covers. Owned. */
    uint32_t gaps_count;          /* Number of entries in `gaps`. */
    /* Which buckets of the current update have been received completely. */
    struct tdm__resume_tracker tracker;
};

/* ---- the layout ---------------------------------------------------------------------- */

/* Orders slice extents by their offset in the image, for qsort(). */
static int compare_slice_extents(const void *a, const void *b)
{
    const struct slice_extent *left = a;
    const struct slice_extent *right = b;

    return left->extent.begin < right->extent.begin ? -1 : left->extent.begin > right->extent.begin;
}

/* Checks the next slice extent in image order and counts its bytes for its tensor. `end` is where
 * the extent before ended; bytes in between become a gap. Sets `end` to where this extent ends. */
static tdm_status add_slice_extent(struct tdm__tensor_slices *tensor_slices,
                                   const struct slice_extent *place, uint64_t *end)
{
    if (place->extent.end < place->extent.begin || place->extent.end > tensor_slices->image_bytes ||
        place->extent.begin < *end) {
        return tdm__fail(TDM_E_INVAL,
                         "checking the layout failed: tensor %s: a slice from %" PRIu64
                         " to %" PRIu64 " of weights of %" PRIu64
                         " bytes, where one before it ends at %" PRIu64
                         ". Declare slices in the weights region that do not overlap",
                         tensor_slices->manifest->tensors[place->tensor].name, place->extent.begin,
                         place->extent.end, tensor_slices->image_bytes, *end);
    }
    if (place->extent.begin > *end) {
        tensor_slices->gaps[tensor_slices->gaps_count++] =
            (struct byte_extent){*end, place->extent.begin};
    }
    tensor_slices->wanted_bytes[place->tensor] += place->extent.end - place->extent.begin;
    *end = place->extent.end;
    return TDM_OK;
}

/* Appends the image range of a slice or of its scales; the caller sets the range's dtype. */
static struct slice_extent *push_slice_extent(struct tdm__tensor_slices *tensor_slices,
                                              uint32_t tensor, uint64_t begin, uint64_t size_bytes)
{
    struct slice_extent *place =
        &tensor_slices->slice_extents[tensor_slices->slice_extents_count++];

    place->extent = (struct byte_extent){begin, begin + size_bytes};
    place->tensor = tensor;
    return place;
}

/* Fills the sorted slice extents and the gaps from the rank's layout. */
static tdm_status read_layout(struct tdm__tensor_slices *tensor_slices,
                              const struct tdm__tensor_slices_options *options)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < options->layout->slices_count; i++) {
        const struct tdm_slice *slice = &options->layout->slices[i];
        const struct tdm_tensor_info *tensor = &tensor_slices->manifest->tensors[slice->tensor];
        uint64_t scales_bytes = tdm__slice_scales_bytes(tensor, slice);

        push_slice_extent(tensor_slices, slice->tensor,
                          (uintptr_t)slice->address - (uintptr_t)options->base,
                          tdm__slice_bytes(tensor_slices->manifest, slice))
            ->dtype = tdm__slice_dtype(tensor, slice);
        if (scales_bytes > 0) {
            push_slice_extent(tensor_slices, slice->tensor,
                              (uintptr_t)slice->scales - (uintptr_t)options->base, scales_bytes)
                ->dtype = TDM_F32;
        }
    }
    qsort(tensor_slices->slice_extents, tensor_slices->slice_extents_count,
          sizeof(tensor_slices->slice_extents[0]), compare_slice_extents);
    for (uint32_t i = 0; i < tensor_slices->slice_extents_count; i++) {
        TDM_TRY(add_slice_extent(tensor_slices, &tensor_slices->slice_extents[i], &end));
    }
    if (end < tensor_slices->image_bytes) {
        tensor_slices->gaps[tensor_slices->gaps_count++] =
            (struct byte_extent){end, tensor_slices->image_bytes};
    }
    return TDM_OK;
}

/* Checks the rank's layout, allocates the arrays for its slices and fills them. */
static tdm_status tensor_slices_init(struct tdm__tensor_slices *tensor_slices,
                                     const struct tdm__tensor_slices_options *options)
{
    size_t tensors_count = tensor_slices->manifest->tensors_count;
    /* Number of extents at most: each slice may have a second extent for its scales. */
    size_t extents_max = 2 * (size_t)options->layout->slices_count;

    TDM_TRY(tdm__layout_check(options->layout, tensor_slices->manifest));
    tensor_slices->slice_extents = calloc(extents_max + 1, sizeof(*tensor_slices->slice_extents));
    tensor_slices->wanted_bytes = calloc(tensors_count, sizeof(*tensor_slices->wanted_bytes));
    tensor_slices->received_bytes = calloc(tensors_count, sizeof(*tensor_slices->received_bytes));
    tensor_slices->gaps = calloc(extents_max + 1, sizeof(*tensor_slices->gaps));
    if (tensor_slices->slice_extents == NULL || tensor_slices->wanted_bytes == NULL ||
        tensor_slices->received_bytes == NULL || tensor_slices->gaps == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a layout of %zu slices failed: out of memory",
                         extents_max / 2);
    }
    return read_layout(tensor_slices, options);
}

tdm_status tdm__tensor_slices_create(const struct tdm__tensor_slices_options *options,
                                     struct tdm__tensor_slices **tensor_slices_out)
{
    struct tdm__tensor_slices *tensor_slices = calloc(1, sizeof(*tensor_slices));
    tdm_status status;

    if (tensor_slices == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating the slices of an engine rank failed: out of memory");
    }
    tensor_slices->manifest = options->manifest;
    tensor_slices->image_bytes = options->image_bytes;
    status = tensor_slices_init(tensor_slices, options);
    if (status != TDM_OK) {
        tdm__tensor_slices_destroy(tensor_slices);
        return status;
    }
    *tensor_slices_out = tensor_slices;
    return TDM_OK;
}

void tdm__tensor_slices_destroy(struct tdm__tensor_slices *tensor_slices)
{
    if (tensor_slices == NULL) {
        return;
    }
    free(tensor_slices->wanted_bytes);
    free(tensor_slices->received_bytes);
    free(tensor_slices->slice_extents);
    free(tensor_slices->gaps);
    free(tensor_slices);
}

/* ---- an update ----------------------------------------------------------------------- */

void tdm__tensor_slices_begin_update(struct tdm__tensor_slices *tensor_slices)
{
    memset(tensor_slices->received_bytes, 0,
           tensor_slices->manifest->tensors_count * sizeof(*tensor_slices->received_bytes));
    tensor_slices->tracker = (struct tdm__resume_tracker){.is_open = false};
}

void tdm__tensor_slices_resume_update(struct tdm__tensor_slices *tensor_slices)
{
    tdm__resume_tracker_begin_update(&tensor_slices->tracker);
}

struct tdm__resume_log tdm__tensor_slices_resume_log(const struct tdm__tensor_slices *tensor_slices,
                                                     bool is_exported)
{
    return tdm__resume_tracker_snapshot(&tensor_slices->tracker, is_exported);
}

/* Returns the rows of the weights image that a tensor record describes, as a device copies them. */
static struct tdm__strided_rows slice_rows(const struct tdm__tensor_record *record)
{
    size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)record->dtype);
    size_t pitch = record->stride[0] * element_bytes;

    return (struct tdm__strided_rows){.count = record->shape[0],
                                      .size_bytes = record->shape[1] * element_bytes,
                                      .from_pitch = pitch,
                                      .to_pitch = pitch};
}

/* Returns the last slice extent that begins at or before the offset `byte` of the image; NULL if
 * there is none. */
static const struct slice_extent *find_slice_extent(const struct tdm__tensor_slices *tensor_slices,
                                                    uint64_t byte)
{
    uint32_t low = 0;
    uint32_t high = tensor_slices->slice_extents_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (tensor_slices->slice_extents[middle].extent.begin <= byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? NULL : &tensor_slices->slice_extents[low - 1];
}

/* Prefixes the error detail with the rank that wrote a tensor record, if several ranks have written
 * the bucket. TDM_OK stays TDM_OK. */
static tdm_status wrap_writer(const struct tdm__tensor_handles *handles, uint32_t record,
                              tdm_status status)
{
    return handles->header.storages_count <= 1
               ? status
               : tdm__merged_handles_wrap(
                     handles->storages[handles->tensors[record].storage].writer, status);
}

/* Checks that the image bytes of a tensor record lie in one slice extent of the same tensor and
 * dtype. */
static tdm_status check_slice_record(const struct tdm__tensor_slices *tensor_slices,
                                     const struct tdm__tensor_record *record)
{
    uint64_t elements = (record->shape[0] - 1) * record->stride[0] + record->shape[1];
    uint64_t size_bytes = elements * tdm_dtype_bytes((enum tdm_dtype)record->dtype);
    const struct slice_extent *place = find_slice_extent(tensor_slices, record->image);

    if ((record->flags & TDM__TENSOR_SLICE) == 0) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "receiving slices failed: tensor %s is whole in a bucket of "
                         "slices. " TDM__REMEDY_DEFECT,
                         tensor_slices->manifest->tensors[record->tensor].name);
    }
    if (size_bytes > tensor_slices->image_bytes ||
        record->image > tensor_slices->image_bytes - size_bytes) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "receiving slices failed: tensor %s: a slice of %" PRIu64
                         " bytes at %" PRIu64 " of weights of %" PRIu64
                         " bytes. " TDM__REMEDY_DEFECT,
                         tensor_slices->manifest->tensors[record->tensor].name, size_bytes,
                         record->image, tensor_slices->image_bytes);
    }
    if (place == NULL || place->tensor != record->tensor ||
        place->dtype != (enum tdm_dtype)record->dtype ||
        record->image + size_bytes > place->extent.end) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "receiving slices failed: tensor %s: a slice of %" PRIu64
                         " bytes of %s at %" PRIu64
                         ", where this rank keeps something else. " TDM__REMEDY_DEFECT,
                         tensor_slices->manifest->tensors[record->tensor].name, size_bytes,
                         tdm_dtype_name((enum tdm_dtype)record->dtype), record->image);
    }
    return TDM_OK;
}

/* The device operations of one bucket, with the record that each belongs to. The arrays have the
 * same length and are owned. */
struct stage_work {
    /* Device operations of one bucket: copies, checksums and zeroing of gaps. */
    struct tdm__copy_op *copy_ops;
    /* For each device operation the index of its tensor record; GAP if it zeroes a gap. */
    uint32_t *records;
    uint64_t *sums; /* For each device operation the checksum that it computes. */
    uint32_t count; /* Number of device operations in the three arrays. */
};

/* Frees the arrays of a bucket's device operations. */
static void stage_work_free(struct stage_work *work)
{
    free(work->copy_ops);
    free(work->records);
    free(work->sums);
}

/* Allocates the arrays for at most `copy_ops_max` device operations. */
static tdm_status stage_work_create(size_t copy_ops_max, struct stage_work *work)
{
    *work = (struct stage_work){.copy_ops = calloc(copy_ops_max + 1, sizeof(*work->copy_ops)),
                                .records = calloc(copy_ops_max + 1, sizeof(*work->records)),
                                .sums = calloc(copy_ops_max + 1, sizeof(*work->sums))};
    if (work->copy_ops == NULL || work->records == NULL || work->sums == NULL) {
        stage_work_free(work);
        return tdm__fail(TDM_E_NOMEM, "allocating a bucket of %zu slices failed: out of memory",
                         copy_ops_max);
    }
    return TDM_OK;
}

/* Appends one device operation: a copy, a checksum only if `to` is NULL, or zeros if `from` is
 * NULL. */
static void add_slice_copy(struct stage_work *work, uint32_t record,
                           const struct tdm__strided_rows *rows, const void *from, void *to)
{
    work->copy_ops[work->count] = tdm__copy_op_of_rows(rows, from, to);
    work->records[work->count++] = record;
}

/* Appends device operations that zero the gaps: the ranges of the image that no slice covers. */
static void add_gap_zeroing(const struct tdm__tensor_slices *tensor_slices,
                            const struct tdm__tensor_slices_stage *stage, struct stage_work *work)
{
    for (uint32_t i = 0; i < tensor_slices->gaps_count; i++) {
        const struct byte_extent *gap = &tensor_slices->gaps[i];
        const struct tdm__strided_rows row = {.count = 1, .size_bytes = gap->end - gap->begin};

        add_slice_copy(work, GAP, &row, NULL, stage->image + gap->begin);
    }
}

/* Appends the device operation that tensor record `index` needs. Bytes in a bucket are copied.
 * Bytes that were written directly into the image are only verified, if the verify mode asks for
 * that. */
static void add_record_op(const struct tdm__tensor_slices_stage *stage, uint32_t index,
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

/* Compares the checksums that the device computed with those of the sender. Returns TDM_E_CHECKSUM
 * with the name of the first tensor that differs. */
static tdm_status compare_sums(const struct tdm__tensor_slices *tensor_slices,
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
            tdm_status status = tdm__fail(
                TDM_E_CHECKSUM,
                "verifying the slices failed: tensor %s: %zu rows of %zu bytes have the checksum "
                "%016" PRIx64 ", the sender's is %016" PRIx64 ". " TDM__REMEDY_SEND_AGAIN,
                tensor_slices->manifest->tensors[record->tensor].name, rows.count, rows.size_bytes,
                work->sums[i], record->checksum);

            return wrap_writer(stage->handles, work->records[i], status);
        }
    }
    return TDM_OK;
}

/* Copies or verifies the slices of all tensor records of a bucket on the device. If `first` is
 * true, also zeroes the gaps of the image. */
static tdm_status copy_slices(const struct tdm__tensor_slices *tensor_slices,
                              const struct tdm__tensor_slices_stage *stage, bool first)
{
    const struct tdm__tensor_handles *handles = stage->handles;
    struct tdm__device *device = stage->device;
    struct stage_work work;
    tdm_status status;

    TDM_TRY(stage_work_create((size_t)tensor_slices->gaps_count + handles->header.tensors_count,
                              &work));
    if (first) {
        add_gap_zeroing(tensor_slices, stage, &work);
    }
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        add_record_op(stage, i, &work);
    }
    status = device->ops->move(device, work.copy_ops, work.count, work.sums);
    if (status == TDM_OK) {
        status = compare_sums(tensor_slices, stage, &work);
    }
    stage_work_free(&work);
    return status;
}

/* Adds the bytes of a bucket's tensor records to the received bytes of their tensors. */
static void count_received_bytes(struct tdm__tensor_slices *tensor_slices,
                                 const struct tdm__tensor_handles *handles)
{
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        const struct tdm__tensor_record *record = &handles->tensors[i];

        tensor_slices->received_bytes[record->tensor] +=
            record->shape[0] * record->shape[1] * tdm_dtype_bytes((enum tdm_dtype)record->dtype);
    }
}

tdm_status tdm__tensor_slices_stage(struct tdm__tensor_slices *tensor_slices,
                                    const struct tdm__tensor_slices_stage *stage)
{
    const struct tdm__tensor_handles *handles = stage->handles;
    bool begun;

    TDM_TRY(
        tdm__resume_tracker_open_bucket(&tensor_slices->tracker, handles->header.bucket, &begun));
    if (begun) {
        memset(tensor_slices->received_bytes, 0,
               tensor_slices->manifest->tensors_count * sizeof(*tensor_slices->received_bytes));
    }
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        TDM_TRY(wrap_writer(handles, i, check_slice_record(tensor_slices, &handles->tensors[i])));
    }
    TDM_TRY(copy_slices(tensor_slices, stage, begun));
    count_received_bytes(tensor_slices, handles);
    tdm__resume_tracker_close_bucket(&tensor_slices->tracker, handles->header.bucket,
                                     handles->tensors, handles->header.tensors_count);
    return TDM_OK;
}

tdm_status tdm__tensor_slices_check_complete(struct tdm__tensor_slices *tensor_slices)
{
    tensor_slices->tracker.is_unsettled = false;
    for (uint32_t i = 0; i < tensor_slices->manifest->tensors_count; i++) {
        if (tensor_slices->tracker.is_open ||
            tensor_slices->received_bytes[i] != tensor_slices->wanted_bytes[i]) {
            return tdm__fail(TDM_E_STATE,
                             "voting for a weight update failed: tensor %s: %" PRIu64 " of %" PRIu64
                             " bytes have arrived. Send all of its buckets before the vote",
                             tensor_slices->manifest->tensors[i].name,
                             tensor_slices->received_bytes[i], tensor_slices->wanted_bytes[i]);
        }
    }
    return TDM_OK;
}
