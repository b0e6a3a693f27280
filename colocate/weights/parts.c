/* parts.c - the parts of tensors that an engine rank keeps: what is where, and what has come.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/parts.h"

#include "colocate/weights/convert.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 16 };

#define GAP UINT32_MAX /* instead of a record */

struct extent {
    uint64_t begin; /* in the image, in bytes */
    uint64_t end;
};

/* Where a slice, or its scales, lie in the image. */
struct place {
    struct extent extent;
    uint32_t tensor;
    enum tdm_dtype dtype;
};

struct tdm__parts {
    const struct tdm__manifest *manifest; /* borrowed */
    uint64_t image_bytes;
    uint64_t *wanted_bytes; /* owned, like the rest: of each tensor */
    uint64_t *come_bytes;
    struct place *places; /* in the order of the image */
    uint32_t places_count;
    struct extent *gaps; /* what no place covers */
    uint32_t gaps_count;
    struct tdm__bookkeeper bookkeeper; /* of what has come */
};

/* ---- the layout ------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const struct place *left = a;
    const struct place *right = b;

    return left->extent.begin < right->extent.begin ? -1
                                                    : left->extent.begin > right->extent.begin;
}

static tdm_status add_place(struct tdm__parts *parts, const struct place *place, uint64_t *end)
{
    if (place->extent.end < place->extent.begin || place->extent.end > parts->image_bytes ||
        place->extent.begin < *end) {
        return tdm__fail(TDM_E_INVAL,
                         "tensor %s: a slice from %" PRIu64 " to %" PRIu64
                         " of weights of %" PRIu64
                         " bytes, where one before it ends at %" PRIu64,
                         parts->manifest->tensors[place->tensor].name, place->extent.begin,
                         place->extent.end, parts->image_bytes, *end);
    }
    if (place->extent.begin > *end) {
        parts->gaps[parts->gaps_count++] = (struct extent){*end, place->extent.begin};
    }
    parts->wanted_bytes[place->tensor] += place->extent.end - place->extent.begin;
    *end = place->extent.end;
    return TDM_OK;
}

static struct place *push_place(struct tdm__parts *parts, uint32_t tensor, uint64_t begin,
                                uint64_t size_bytes)
{
    struct place *place = &parts->places[parts->places_count++];

    place->extent = (struct extent){begin, begin + size_bytes};
    place->tensor = tensor;
    return place;
}

static tdm_status read_layout(struct tdm__parts *parts,
                              const struct tdm__parts_options *options)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < options->layout->slices_count; i++) {
        const struct tdm_slice *slice = &options->layout->slices[i];
        const struct tdm_tensor_info *tensor = &parts->manifest->tensors[slice->tensor];
        uint64_t scales_bytes = tdm__slice_scales_bytes(tensor, slice);

        push_place(parts, slice->tensor, (uintptr_t)slice->address - (uintptr_t)options->base,
                   tdm__slice_bytes(parts->manifest, slice))
            ->dtype = tdm__slice_dtype(tensor, slice);
        if (scales_bytes > 0) {
            push_place(parts, slice->tensor,
                       (uintptr_t)slice->scales - (uintptr_t)options->base, scales_bytes)
                ->dtype = TDM_F32;
        }
    }
    qsort(parts->places, parts->places_count, sizeof(parts->places[0]), compare_places);
    for (uint32_t i = 0; i < parts->places_count; i++) {
        TDM_TRY(add_place(parts, &parts->places[i], &end));
    }
    if (end < parts->image_bytes) {
        parts->gaps[parts->gaps_count++] = (struct extent){end, parts->image_bytes};
    }
    return TDM_OK;
}

static tdm_status make(struct tdm__parts *parts, const struct tdm__parts_options *options)
{
    size_t tensors_count = parts->manifest->tensors_count;
    size_t places_max = 2 * (size_t)options->layout->slices_count; /* with their scales */

    TDM_TRY(tdm__layout_check(options->layout, parts->manifest));
    parts->places = calloc(places_max + 1, sizeof(*parts->places));
    parts->wanted_bytes = calloc(tensors_count, sizeof(*parts->wanted_bytes));
    parts->come_bytes = calloc(tensors_count, sizeof(*parts->come_bytes));
    parts->gaps = calloc(places_max + 1, sizeof(*parts->gaps));
    if (parts->places == NULL || parts->wanted_bytes == NULL || parts->come_bytes == NULL ||
        parts->gaps == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a layout of %zu slices", places_max / 2);
    }
    return read_layout(parts, options);
}

tdm_status tdm__parts_create(const struct tdm__parts_options *options,
                             struct tdm__parts **parts_out)
{
    struct tdm__parts *parts = calloc(1, sizeof(*parts));
    tdm_status status;

    if (parts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an engine's parts");
    }
    parts->manifest = options->manifest;
    parts->image_bytes = options->image_bytes;
    status = make(parts, options);
    if (status != TDM_OK) {
        tdm__parts_destroy(parts);
        return status;
    }
    *parts_out = parts;
    return TDM_OK;
}

void tdm__parts_destroy(struct tdm__parts *parts)
{
    if (parts == NULL) {
        return;
    }
    free(parts->wanted_bytes);
    free(parts->come_bytes);
    free(parts->places);
    free(parts->gaps);
    free(parts);
}

/* ---- an update -------------------------------------------------------------------------- */

void tdm__parts_begin(struct tdm__parts *parts)
{
    memset(parts->come_bytes, 0, parts->manifest->tensors_count * sizeof(*parts->come_bytes));
    parts->bookkeeper = (struct tdm__bookkeeper){.is_open = false};
}

void tdm__parts_go_on(struct tdm__parts *parts)
{
    tdm__bookkeeper_go_on(&parts->bookkeeper);
}

struct tdm__journal tdm__parts_journal(const struct tdm__parts *parts, bool is_lent)
{
    return tdm__bookkeeper_tell(&parts->bookkeeper, is_lent);
}

static struct tdm__rows rows_of(const struct tdm__tensor_record *record)
{
    size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)record->dtype);
    size_t pitch = record->stride[0] * element_bytes;

    return (struct tdm__rows){.count = record->shape[0],
                              .size_bytes = record->shape[1] * element_bytes,
                              .from_pitch = pitch,
                              .to_pitch = pitch};
}

/* The last place that begins at or before a byte of the image; NULL if there is none. */
static const struct place *find_place(const struct tdm__parts *parts, uint64_t byte)
{
    uint32_t low = 0;
    uint32_t high = parts->places_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (parts->places[middle].extent.begin <= byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? NULL : &parts->places[low - 1];
}

/* The storage was checked when the record was decoded; here the other end: all of it must lie
 * where this rank keeps that very tensor, in the same dtype. */
static tdm_status check_record(const struct tdm__parts *parts,
                               const struct tdm__tensor_record *record)
{
    uint64_t elements = (record->shape[0] - 1) * record->stride[0] + record->shape[1];
    uint64_t size_bytes = elements * tdm_dtype_bytes((enum tdm_dtype)record->dtype);
    const struct place *place = find_place(parts, record->image);

    if ((record->flags & TDM__TENSOR_PART) == 0) {
        return tdm__fail(TDM_E_PROTOCOL, "a whole tensor %s among parts",
                         parts->manifest->tensors[record->tensor].name);
    }
    if (size_bytes > parts->image_bytes || record->image > parts->image_bytes - size_bytes) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "tensor %s: a part of %" PRIu64 " bytes at %" PRIu64
                         " of weights of %" PRIu64,
                         parts->manifest->tensors[record->tensor].name, size_bytes,
                         record->image, parts->image_bytes);
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
struct work {
    struct tdm__part *parts; /* owned, like the rest */
    uint32_t *records;       /* whose parts they are; GAP: none's */
    uint64_t *sums;
    uint32_t count;
};

static void free_work(struct work *work)
{
    free(work->parts);
    free(work->records);
    free(work->sums);
}

static tdm_status make_work(size_t parts_max, struct work *work)
{
    *work = (struct work){.parts = calloc(parts_max + 1, sizeof(*work->parts)),
                          .records = calloc(parts_max + 1, sizeof(*work->records)),
                          .sums = calloc(parts_max + 1, sizeof(*work->sums))};
    if (work->parts == NULL || work->records == NULL || work->sums == NULL) {
        free_work(work);
        return tdm__fail(TDM_E_NOMEM, "a bucket of %zu parts", parts_max);
    }
    return TDM_OK;
}

static void add_part(struct work *work, uint32_t record, const struct tdm__rows *rows,
                     const void *from, void *to)
{
    work->parts[work->count] = tdm__part_of_rows(rows, from, to);
    work->records[work->count++] = record;
}

/* Zeros where the layout has nothing. */
static void add_gaps(const struct tdm__parts *parts, const struct tdm__parts_stage *stage,
                     struct work *work)
{
    for (uint32_t i = 0; i < parts->gaps_count; i++) {
        const struct extent *gap = &parts->gaps[i];
        const struct tdm__rows row = {.count = 1, .size_bytes = gap->end - gap->begin};

        add_part(work, GAP, &row, NULL, stage->image + gap->begin);
    }
}

/* Copied, or looked at where it lies, or left alone. */
static void add_record(const struct tdm__parts_stage *stage, uint32_t index, struct work *work)
{
    const struct tdm__tensor_record *record = &stage->handles->tensors[index];
    const struct tdm__rows rows = rows_of(record);
    char *place = stage->image + record->image;
    uint64_t turn = index + stage->handles->header.epoch;

    if (stage->source != NULL) {
        size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)record->dtype);

        add_part(work, index, &rows, stage->source + record->offset * element_bytes, place);
    } else if (stage->verify == TDM__VERIFY_FULL ||
               (stage->verify == TDM__VERIFY_SAMPLE && turn % SAMPLE == 0)) {
        add_part(work, index, &rows, place, NULL);
    }
}

static tdm_status compare_sums(const struct tdm__parts *parts,
                               const struct tdm__parts_stage *stage, const struct work *work)
{
    for (uint32_t i = 0; i < work->count && stage->verify != TDM__VERIFY_NONE; i++) {
        const struct tdm__tensor_record *record;

        if (work->records[i] == GAP) {
            continue;
        }
        record = &stage->handles->tensors[work->records[i]];
        if (work->sums[i] != record->checksum) {
            const struct tdm__rows rows = rows_of(record);

            return tdm__fail(TDM_E_CHECKSUM,
                             "tensor %s: %zu rows of %zu bytes have the checksum %016" PRIx64
                             ", the sender's is %016" PRIx64,
                             parts->manifest->tensors[record->tensor].name, rows.count,
                             rows.size_bytes, work->sums[i], record->checksum);
        }
    }
    return TDM_OK;
}

static tdm_status put_parts(const struct tdm__parts *parts,
                            const struct tdm__parts_stage *stage, bool first)
{
    const struct tdm__handles *handles = stage->handles;
    struct tdm__device *device = stage->device;
    struct work work;
    tdm_status status;

    TDM_TRY(make_work((size_t)parts->gaps_count + handles->header.tensors_count, &work));
    if (first) {
        add_gaps(parts, stage, &work);
    }
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        add_record(stage, i, &work);
    }
    status = device->ops->move(device, work.parts, work.count, work.sums);
    if (status == TDM_OK) {
        status = compare_sums(parts, stage, &work);
    }
    free_work(&work);
    return status;
}

static void count_come(struct tdm__parts *parts, const struct tdm__handles *handles)
{
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        const struct tdm__tensor_record *record = &handles->tensors[i];

        parts->come_bytes[record->tensor] += record->shape[0] * record->shape[1] *
                                             tdm_dtype_bytes((enum tdm_dtype)record->dtype);
    }
}

tdm_status tdm__parts_stage(struct tdm__parts *parts, const struct tdm__parts_stage *stage)
{
    const struct tdm__handles *handles = stage->handles;
    bool begun;

    TDM_TRY(tdm__bookkeeper_open(&parts->bookkeeper, handles->header.bucket, &begun));
    if (begun) {
        memset(parts->come_bytes, 0,
               parts->manifest->tensors_count * sizeof(*parts->come_bytes));
    }
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        TDM_TRY(check_record(parts, &handles->tensors[i]));
    }
    TDM_TRY(put_parts(parts, stage, begun));
    count_come(parts, handles);
    tdm__bookkeeper_close(&parts->bookkeeper, handles->header.bucket, handles->tensors,
                          handles->header.tensors_count);
    return TDM_OK;
}

tdm_status tdm__parts_complete(struct tdm__parts *parts)
{
    parts->bookkeeper.is_unsettled = false;
    for (uint32_t i = 0; i < parts->manifest->tensors_count; i++) {
        if (parts->bookkeeper.is_open || parts->come_bytes[i] != parts->wanted_bytes[i]) {
            return tdm__fail(
                TDM_E_STATE, "tensor %s: %" PRIu64 " of %" PRIu64 " bytes have come",
                parts->manifest->tensors[i].name, parts->come_bytes[i], parts->wanted_bytes[i]);
        }
    }
    return TDM_OK;
}
