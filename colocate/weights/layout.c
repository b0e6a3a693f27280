/* layout.c - the slices of a model's tensors that one rank holds, and their message. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A layout is a plain list of slices without state of its own; every function here is pure and
 * may be called from any thread. tdm__layout_check() compares a layout with the manifest of the
 * model. tdm__layout_resolve_addresses() finds where the bytes of slices can be read while their
 * regions are paused.
 *
 * The message of a layout is rank_layout (runtime/messages/weights.def). The receiver of a layout
 * never dereferences a decoded address: it is an offset that tensor_slices.c and transfer_plan.c
 * compare with the size of the weights. */

#include "colocate/weights/layout.h"

#include "colocate/weights/convert.h"
#include "colocate/weights/remedies.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(void *) == sizeof(uint64_t), "addresses travel as numbers");

/* Checks that the slice's range in one dimension, or in the flat element list, is non-empty and
 * ends within `limit` elements. */
static tdm_status check_slice_range(const struct tdm_slice *slice, uint32_t index, const char *name,
                                    uint32_t dimension, uint64_t limit)
{
    uint64_t offset = slice->offset[dimension];
    uint64_t extent = slice->extent[dimension];

    if (extent == 0 || extent > limit || offset > limit - extent) {
        return tdm__fail(TDM_E_INVAL,
                         "checking the layout failed: slice %" PRIu32 " of tensor %s: %s %" PRIu32
                         " has %" PRIu64 " elements from %" PRIu64 " on, the tensor has %" PRIu64
                         ". Declare a slice that is not empty and lies in the tensor",
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
                         "checking the layout failed: slice %" PRIu32 " is of tensor %" PRIu32
                         ", the model has %" PRIu32
                         " tensors, counted from 0. Declare slices of these only",
                         index, slice->tensor, manifest->tensors_count);
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
        return tdm__fail(TDM_E_LIMIT,
                         "checking the layout failed: a rank has %" PRIu32
                         " slices, at most %d are allowed. Declare fewer and larger slices",
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
                          "reading slice %" PRIu32 " of tensor %s failed", i,
                          manifest->tensors[slice->tensor].name));
    }
    return TDM_OK;
}

/* ---- as a message -------------------------------------------------------------------- */

/* Returns the distance in bytes of `address` from `base`, or 0 if one of the pointers is NULL. */
static uint64_t offset_of(const void *address, const void *base)
{
    return base == NULL || address == NULL ? 0 : (uintptr_t)address - (uintptr_t)base;
}

/* What the getter of the slices of a message needs. */
struct slice_source {
    const struct tdm__layout *layout; /* Layout that is encoded; borrowed. */
    const void *base; /* Address from which the offsets of the slices are counted; may be NULL. */
};

/* Getter of a message list: describes one slice. */
static void get_slice(const void *arg, uint32_t index, void *item_out)
{
    const struct slice_source *source = arg;
    const struct tdm_slice *slice = &source->layout->slices[index];

    _Static_assert(TDM_DIMS_MAX == 4, "the message has a field for each dimension");
    *(struct tdm__layout_slice_message *)item_out =
        (struct tdm__layout_slice_message){.tensor = slice->tensor,
                                           .flat = slice->flat != 0,
                                           .offset_0 = slice->offset[0],
                                           .offset_1 = slice->offset[1],
                                           .offset_2 = slice->offset[2],
                                           .offset_3 = slice->offset[3],
                                           .extent_0 = slice->extent[0],
                                           .extent_1 = slice->extent[1],
                                           .extent_2 = slice->extent[2],
                                           .extent_3 = slice->extent[3],
                                           .dtype = (uint32_t)slice->dtype,
                                           .scales = offset_of(slice->scales, source->base),
                                           .address = offset_of(slice->address, source->base)};
}

tdm_status tdm__layout_encode(const struct tdm__layout *layout, const void *base,
                              tdm_writer *writer)
{
    const struct slice_source source = {layout, base};
    const struct tdm__rank_layout_message message = {
        .slices = {.count = layout->slices_count, .get = get_slice, .arg = &source}};

    return tdm__rank_layout_encode(&message, writer);
}

/* Reads one slice of a decoded message. Does not compare it with a manifest. */
static tdm_status read_slice(const struct tdm__message_list *slices, uint32_t index,
                             struct tdm_slice *slice)
{
    struct tdm__layout_slice_message message;

    tdm__message_list_read(slices, index, &message, sizeof(message));
    if (message.tensor > TDM__MANIFEST_TENSORS_MAX || message.dtype > UINT8_MAX) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "reading the layout of another rank failed: slice %" PRIu32 " is of tensor %" PRIu32
            " and dtype %" PRIu32 ", at most %d and %d are known. " TDM__REMEDY_DEFECT,
            index, message.tensor, message.dtype, TDM__MANIFEST_TENSORS_MAX, UINT8_MAX);
    }
    *slice = (struct tdm_slice){
        .tensor = message.tensor,
        .flat = message.flat ? 1 : 0,
        .offset = {message.offset_0, message.offset_1, message.offset_2, message.offset_3},
        .extent = {message.extent_0, message.extent_1, message.extent_2, message.extent_3},
        .dtype = (enum tdm_dtype)message.dtype};
    /* The decoded addresses of a slice are never dereferenced. They are offsets, which the caller
     * compares with the size of the weights region. */
    memcpy(&slice->scales, &message.scales, sizeof(slice->scales));
    memcpy(&slice->address, &message.address, sizeof(slice->address));
    return TDM_OK;
}

/* Reads the slices of a decoded message into newly allocated memory, which `layout_out` owns. */
static tdm_status read_slices(const tdm_value *root, struct tdm__layout *layout_out)
{
    struct tdm__rank_layout_message message;
    struct tdm_slice *slices;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm__rank_layout_decode(root, &message));
    if (message.slices.count > TDM__LAYOUT_SLICES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the layout of another rank failed: it has %" PRIu32
                         " slices, at most %d are allowed. " TDM__REMEDY_DEFECT,
                         message.slices.count, TDM__LAYOUT_SLICES_MAX);
    }
    slices = calloc(message.slices.count + (size_t)1, sizeof(*slices));
    if (slices == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating a layout of %" PRIu32 " slices failed: out of memory",
                         message.slices.count);
    }
    for (uint32_t i = 0; i < message.slices.count && status == TDM_OK; i++) {
        status = read_slice(&message.slices, i, &slices[i]);
    }
    if (status != TDM_OK) {
        free(slices);
        return status;
    }
    *layout_out = (struct tdm__layout){.slices = slices, .slices_count = message.slices.count};
    return TDM_OK;
}

tdm_status tdm__layout_decode(struct tdm_bytes bytes, struct tdm__layout *layout_out)
{
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm_document_parse(bytes, &document));
    status = read_slices(tdm_document_root(document), layout_out);
    tdm_document_destroy(document);
    return status;
}

void tdm__layout_fini(struct tdm__layout *layout)
{
    free((struct tdm_slice *)layout->slices);
    *layout = (struct tdm__layout){.slices = NULL};
}
