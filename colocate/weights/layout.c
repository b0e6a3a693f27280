/* layout.c - the slices of a model's tensors that one rank holds, and their wire format. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A layout is a plain list of slices without state of its own; every function here is pure and
 * may be called from any thread. tdm__layout_check() compares a layout with the manifest of the
 * model. tdm__layout_resolve_addresses() finds where the bytes of slices can be read while their
 * regions are paused.
 *
 * The wire format is [version, [[tensor, flat, offset x 4, extent x 4, dtype, scales, address],
 * ...]]. The receiver of a layout never dereferences a decoded address: it is an offset that
 * tensor_slices.c and transfer_plan.c compare with the size of the weights. */

#include "colocate/weights/layout.h"

#include "colocate/weights/convert.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(void *) == sizeof(uint64_t), "addresses travel as numbers");

/* Constants of the wire format. */
enum {
    FORMAT_VERSION = 3,                  /* Version of the wire format of layouts. */
    SLICE_VALUES = 5 + 2 * TDM_DIMS_MAX, /* Number of integers in an encoded slice. */
    DTYPE = SLICE_VALUES - 3, /* Index of the dtype among the integers of an encoded slice. */
};

/* Checks that the slice's range in one dimension, or in the flat element list, is non-empty and
 * ends within `limit` elements. */
static tdm_status check_slice_range(const struct tdm_slice *slice, uint32_t index, const char *name,
                                    uint32_t dimension, uint64_t limit)
{
    uint64_t offset = slice->offset[dimension];
    uint64_t extent = slice->extent[dimension];

    if (extent == 0 || extent > limit || offset > limit - extent) {
        return tdm__fail(TDM_E_INVAL,
                         "slice %" PRIu32 " of tensor %s: %s %" PRIu32 " has %" PRIu64
                         " at %" PRIu64 " of %" PRIu64,
                         index, name, slice->flat != 0 ? "flat list" : "dimension", dimension,
                         extent, offset, limit);
    }
    return TDM_OK;
}

/* Checks one slice of a layout: its tensor, its ranges and its dtype conversion. */
static tdm_status check_slice(const struct tdm_slice *slice, uint32_t index,
                              const struct tdm__manifest *manifest)
{
    const struct tdm_tensor_info *tensor;

    if (slice->tensor >= manifest->tensors_count) {
        return tdm__fail(TDM_E_INVAL,
                         "slice %" PRIu32 " is of tensor %" PRIu32 ", there are %" PRIu32, index,
                         slice->tensor, manifest->tensors_count);
    }
    tensor = &manifest->tensors[slice->tensor];
    if (slice->flat != 0) {
        TDM_TRY(check_slice_range(slice, index, tensor->name, 0, tdm_tensor_elements(tensor)));
        return tdm__convert_check(tensor, slice);
    }
    for (uint32_t i = 0; i < tensor->dims_count; i++) {
        TDM_TRY(check_slice_range(slice, index, tensor->name, i, tensor->shape[i]));
    }
    return tdm__convert_check(tensor, slice);
}

tdm_status tdm__layout_check(const struct tdm__layout *layout, const struct tdm__manifest *manifest)
{
    if (layout->slices_count > TDM__LAYOUT_SLICES_MAX) {
        return tdm__fail(TDM_E_LIMIT, "a rank has %" PRIu32 " slices, at most %d",
                         layout->slices_count, TDM__LAYOUT_SLICES_MAX);
    }
    for (uint32_t i = 0; i < layout->slices_count; i++) {
        TDM_TRY(check_slice(&layout->slices[i], i, manifest));
    }
    return TDM_OK;
}

uint64_t tdm__slice_bytes(const struct tdm__manifest *manifest, const struct tdm_slice *slice)
{
    const struct tdm_tensor_info *tensor = &manifest->tensors[slice->tensor];
    uint32_t dims_count = slice->flat != 0 ? 1 : tensor->dims_count;
    uint64_t bytes = tdm_dtype_bytes(tdm__slice_dtype(tensor, slice));

    for (uint32_t i = 0; i < dims_count; i++) {
        bytes *= slice->extent[i];
    }
    return bytes;
}

tdm_status tdm__layout_resolve_addresses(const struct tdm__layout *layout,
                                         const struct tdm__manifest *manifest,
                                         const struct tdm__regions *regions,
                                         struct tdm_slice *slices_out)
{
    for (uint32_t i = 0; i < layout->slices_count; i++) {
        const struct tdm_slice *slice = &layout->slices[i];

        slices_out[i] = *slice;
        TDM_TRY(tdm__wrap(tdm__region_contents_at(regions, slice->address,
                                                  tdm__slice_bytes(manifest, slice),
                                                  &slices_out[i].address),
                          "slice %" PRIu32 ", of %s", i, manifest->tensors[slice->tensor].name));
    }
    return TDM_OK;
}

/* ---- as a value ---------------------------------------------------------------------- */

/* Returns the distance in bytes of `address` from `base`, or 0 if one of the pointers is NULL. */
static uint64_t offset_of(const void *address, const void *base)
{
    return base == NULL || address == NULL ? 0 : (uintptr_t)address - (uintptr_t)base;
}

tdm_status tdm__layout_encode(const struct tdm__layout *layout, const void *base,
                              tdm_writer *writer)
{
    tdm_write_array(writer, 2);
    tdm_write_uint(writer, FORMAT_VERSION);
    tdm_write_array(writer, layout->slices_count);
    for (uint32_t i = 0; i < layout->slices_count; i++) {
        const struct tdm_slice *slice = &layout->slices[i];

        tdm_write_array(writer, SLICE_VALUES);
        tdm_write_uint(writer, slice->tensor);
        tdm_write_uint(writer, slice->flat != 0);
        for (uint32_t k = 0; k < TDM_DIMS_MAX; k++) {
            tdm_write_uint(writer, slice->offset[k]);
        }
        for (uint32_t k = 0; k < TDM_DIMS_MAX; k++) {
            tdm_write_uint(writer, slice->extent[k]);
        }
        tdm_write_uint(writer, (uint64_t)slice->dtype);
        tdm_write_uint(writer, offset_of(slice->scales, base));
        tdm_write_uint(writer, offset_of(slice->address, base));
    }
    return tdm_writer_status(writer);
}

/* Decodes one tensor slice from its array of integers. Does not compare the slice with a
 * manifest. */
static tdm_status decode_slice(const tdm_value *value, uint32_t index, struct tdm_slice *slice)
{
    uint64_t numbers[SLICE_VALUES];

    if (tdm_value_count(value) != SLICE_VALUES) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "layout: slice %" PRIu32 " has %" PRIu32 " numbers, wanted %d", index,
                         tdm_value_count(value), SLICE_VALUES);
    }
    for (uint32_t i = 0; i < SLICE_VALUES; i++) {
        const tdm_value *number = tdm_value_at(value, i);

        numbers[i] = tdm_value_uint(number, UINT64_MAX);
        if (numbers[i] == UINT64_MAX) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "layout: slice %" PRIu32 ": value %" PRIu32 " is no number", index, i);
        }
    }
    if (numbers[0] > TDM__MANIFEST_TENSORS_MAX || numbers[1] > 1 || numbers[DTYPE] > UINT8_MAX) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "layout: slice %" PRIu32 " is of tensor %" PRIu64 ", flat %" PRIu64
                         ", of dtype %" PRIu64,
                         index, numbers[0], numbers[1], numbers[DTYPE]);
    }
    slice->tensor = (uint32_t)numbers[0];
    slice->flat = (uint32_t)numbers[1];
    for (uint32_t k = 0; k < TDM_DIMS_MAX; k++) {
        slice->offset[k] = numbers[2 + k];
        slice->extent[k] = numbers[2 + TDM_DIMS_MAX + k];
    }
    slice->dtype = (enum tdm_dtype)numbers[DTYPE];
    /* The decoded addresses of a slice are never dereferenced. They are offsets, which the caller
     * compares with the size of the weights region. */
    memcpy(&slice->scales, &numbers[DTYPE + 1], sizeof(slice->scales));
    memcpy(&slice->address, &numbers[SLICE_VALUES - 1], sizeof(slice->address));
    return TDM_OK;
}

/* Reads a list of slices into newly allocated memory, which `layout_out` owns. */
static tdm_status decode_slices(const tdm_value *list, struct tdm__layout *layout_out)
{
    uint32_t count = tdm_value_count(list);
    struct tdm_slice *slices = calloc(count + (size_t)1, sizeof(*slices));
    tdm_status status = TDM_OK;

    if (slices == NULL) {
        return tdm__fail(TDM_E_NOMEM, "layout of %" PRIu32 " slices", count);
    }
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        status = decode_slice(tdm_value_at(list, i), i, &slices[i]);
    }
    if (status != TDM_OK) {
        free(slices);
        return status;
    }
    *layout_out = (struct tdm__layout){.slices = slices, .slices_count = count};
    return TDM_OK;
}

tdm_status tdm__layout_decode(struct tdm_bytes bytes, struct tdm__layout *layout_out)
{
    tdm_document *document;
    const tdm_value *root;
    const tdm_value *list;
    tdm_status status;

    TDM_TRY(tdm_document_parse(bytes, &document));
    root = tdm_document_root(document);
    list = tdm_value_at(root, 1);
    if (tdm_value_count(root) != 2 || list == NULL || tdm_value_kind_of(list) != TDM_ARRAY ||
        tdm_value_uint(tdm_value_at(root, 0), 0) != FORMAT_VERSION ||
        tdm_value_count(list) > TDM__LAYOUT_SLICES_MAX) {
        status = tdm__fail(TDM_E_PROTOCOL,
                           "layout: wanted version %d and up to %d slices, got %" PRIu32
                           " values with %" PRIu32 " slices",
                           FORMAT_VERSION, TDM__LAYOUT_SLICES_MAX, tdm_value_count(root),
                           tdm_value_count(list));
    } else {
        status = decode_slices(list, layout_out);
    }
    tdm_document_destroy(document);
    return status;
}

void tdm__layout_fini(struct tdm__layout *layout)
{
    free((struct tdm_slice *)layout->slices);
    *layout = (struct tdm__layout){.slices = NULL};
}
