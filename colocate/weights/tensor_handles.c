/* tensor_handles.c - the wire format that describes where the tensors of a bucket lie. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Encodes, decodes and checks the description of a bucket. The bytes come from another process and
 * are not trusted: decode copies them and checks each number before the receiver uses it, with
 * overflow checks in all sums and products. The checks that need knowledge of the receiver (its
 * location and its manifest) are separate functions, which the receiver calls before it opens a
 * storage. All functions are pure; a description belongs to one thread at a time. */

#include "colocate/weights/tensor_handles.h"

#include "colocate/weights/checksum.h"
#include "colocate/weights/remedies.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/splitmix.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Returns the size in bytes of an encoded description with this header: the header and all its
 * records. */
static size_t records_bytes(const struct tdm__tensor_handles_header *header)
{
    return sizeof(*header) + header->storages_count * sizeof(struct tdm__storage_record) +
           header->tensors_count * sizeof(struct tdm__tensor_record);
}

size_t tdm__tensor_handles_bytes(const struct tdm__tensor_handles *handles)
{
    return records_bytes(&handles->header);
}

/* ---- checks -------------------------------------------------------------------------- */

/* Checks a header: its magic number and version, its counts and the identity of the update. */
static tdm_status check_header(const struct tdm__tensor_handles_header *header)
{
    if (header->magic != TDM__TENSOR_HANDLES_MAGIC ||
        header->version != TDM__TENSOR_HANDLES_VERSION || header->header_bytes != sizeof(*header)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the description of a bucket failed: it has magic %08" PRIx32
                         ", version %u and a header of %u bytes, expected %08x, %d and "
                         "%zu. " TDM__REMEDY_SAME_TANDEM,
                         header->magic, header->version, header->header_bytes,
                         TDM__TENSOR_HANDLES_MAGIC, TDM__TENSOR_HANDLES_VERSION, sizeof(*header));
    }
    if (header->storages_count == 0 || header->storages_count > TDM__TENSOR_HANDLES_STORAGES_MAX ||
        header->tensors_count == 0 || header->tensors_count > TDM__TENSOR_HANDLES_TENSORS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the description of a bucket failed: it has %" PRIu32
                         " storages and %" PRIu32
                         " tensors, expected 1 to %d and 1 to %d. " TDM__REMEDY_DEFECT,
                         header->storages_count, header->tensors_count,
                         TDM__TENSOR_HANDLES_STORAGES_MAX, TDM__TENSOR_HANDLES_TENSORS_MAX);
    }
    if (header->bucket >= header->buckets_count || header->epoch == 0 ||
        tdm__id_is_none(&header->update) || tdm__id_is_none(&header->node)) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "reading the description of a bucket failed: bucket %" PRIu32 " of %" PRIu32
            ", epoch %" PRIu64 ", update and node %s. " TDM__REMEDY_DEFECT,
            header->bucket, header->buckets_count, header->epoch,
            tdm__id_is_none(&header->update) || tdm__id_is_none(&header->node) ? "not both given"
                                                                               : "given");
    }
    return TDM_OK;
}

/* Checks that a storage lies inside its allocation and that its flags and reserved words are
 * valid. */
static tdm_status check_storage(const struct tdm__storage_record *storage, uint32_t index)
{
    if (storage->size_bytes == 0 || storage->size_bytes > storage->allocation_bytes ||
        storage->offset_bytes > storage->allocation_bytes - storage->size_bytes) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "reading the description of a bucket failed: storage %" PRIu32 ": %" PRIu64
            " bytes at %" PRIu64 " do not lie in an allocation of %" PRIu64 ". " TDM__REMEDY_DEFECT,
            index, storage->size_bytes, storage->offset_bytes, storage->allocation_bytes);
    }
    if (tdm__id_is_none(&storage->gpu) || tdm__id_is_none(&storage->key)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the description of a bucket failed: storage %" PRIu32
                         " has no %s. " TDM__REMEDY_DEFECT,
                         index, tdm__id_is_none(&storage->gpu) ? "gpu" : "key");
    }
    if ((storage->flags & ~(uint32_t)TDM__STORAGE_EVENT_SYNC) != 0 ||
        (storage->flags != 0 && storage->event == 0) || storage->reserved[0] != 0 ||
        storage->reserved[1] != 0) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the description of a bucket failed: storage %" PRIu32
                         ": flags %" PRIx32 " event %" PRIu64
                         ", or a reserved word is not zero. " TDM__REMEDY_DEFECT,
                         index, storage->flags, storage->event);
    }
    return TDM_OK;
}

/* Computes in `end_out` the index after the tensor's last element in its storage, in elements.
 * Returns false on overflow. */
static bool find_end(const struct tdm__tensor_record *tensor, uint64_t *end_out)
{
    uint64_t last = tensor->offset;

    for (uint32_t i = 0; i < tensor->dims_count; i++) {
        uint64_t reach;

        if (__builtin_mul_overflow(tensor->shape[i] - 1, tensor->stride[i], &reach) ||
            __builtin_add_overflow(last, reach, &last)) {
            return false;
        }
    }
    return !__builtin_add_overflow(last, 1, end_out);
}

/* Checks that all elements of a tensor lie inside its storage. */
static tdm_status check_extent(const struct tdm__tensor_handles *handles, uint32_t index)
{
    const struct tdm__tensor_record *tensor = &handles->tensors[index];
    uint64_t storage_bytes = handles->storages[tensor->storage].size_bytes;
    size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)tensor->dtype);
    uint64_t offset_bytes;
    uint64_t end;

    if (!find_end(tensor, &end) || __builtin_mul_overflow(end, element_bytes, &end)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the description of a bucket failed: tensor %" PRIu32
                         ": its offset, shape and stride overflow 64 bits. " TDM__REMEDY_DEFECT,
                         index);
    }
    offset_bytes = tensor->offset * element_bytes;
    if (end > storage_bytes) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the description of a bucket failed: tensor %" PRIu32
                         ": bytes %" PRIu64 " to %" PRIu64 " are not in storage %" PRIu32
                         " of %" PRIu64 " bytes. " TDM__REMEDY_DEFECT,
                         index, offset_bytes, end, tensor->storage, storage_bytes);
    }
    return TDM_OK;
}

/* Returns true if the record's used dimensions are non-zero, its unused dimensions are zero, and it
 * has at most 2^48 elements. */
static bool dims_are_sane(const struct tdm__tensor_record *tensor)
{
    uint64_t elements = 1;

    if (tensor->dims_count > TDM_DIMS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < TDM_DIMS_MAX; i++) {
        bool used = i < tensor->dims_count;

        if (used != (tensor->shape[i] != 0) || (!used && tensor->stride[i] != 0)) {
            return false;
        }
        /* A stride of zero repeats elements, so the size of the storage does not bound the number
         * of elements. */
        if (used && __builtin_mul_overflow(elements, tensor->shape[i], &elements)) {
            return false;
        }
    }
    return elements <= (uint64_t)1 << 48;
}

/* Checks one tensor record: its storage, dtype, dimensions, flags and extent. */
static tdm_status check_tensor(const struct tdm__tensor_handles *handles, uint32_t index)
{
    const struct tdm__tensor_record *tensor = &handles->tensors[index];

    if (tensor->storage >= handles->header.storages_count) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the description of a bucket failed: tensor %" PRIu32
                         " is in storage %" PRIu32 " of %" PRIu32
                         ", counted from 0. " TDM__REMEDY_DEFECT,
                         index, tensor->storage, handles->header.storages_count);
    }
    if (tdm_dtype_bytes((enum tdm_dtype)tensor->dtype) == 0) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the description of a bucket failed: tensor %" PRIu32
                         " has dtype %u, which is unknown. " TDM__REMEDY_DEFECT,
                         index, tensor->dtype);
    }
    if (!dims_are_sane(tensor)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the description of a bucket failed: tensor %" PRIu32
                         " has %u dimensions of at most %d, shape %" PRIu64 " %" PRIu64 " %" PRIu64
                         " %" PRIu64 ". " TDM__REMEDY_DEFECT,
                         index, tensor->dims_count, TDM_DIMS_MAX, tensor->shape[0],
                         tensor->shape[1], tensor->shape[2], tensor->shape[3]);
    }
    if ((tensor->flags & ~(TDM__TENSOR_REQUIRES_GRAD | TDM__TENSOR_SLICE)) != 0 ||
        tensor->reserved != 0 || tensor->reserved_tail != 0 ||
        (tensor->image != 0 && (tensor->flags & TDM__TENSOR_SLICE) == 0)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the description of a bucket failed: tensor %" PRIu32
                         ": flags %x, or a reserved word is not zero. " TDM__REMEDY_DEFECT,
                         index, tensor->flags);
    }
    return check_extent(handles, index);
}

/* Checks all storage records and tensor records. */
static tdm_status check_records(const struct tdm__tensor_handles *handles)
{
    for (uint32_t i = 0; i < handles->header.storages_count; i++) {
        TDM_TRY(check_storage(&handles->storages[i], i));
    }
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        TDM_TRY(check_tensor(handles, i));
    }
    return TDM_OK;
}

/* ---- wire ---------------------------------------------------------------------------- */

/* Returns the checksum of a description: of its header without the field `checksum`, and of its
 * encoded records, which begin at `records`. */
static uint64_t sum_description(struct tdm__tensor_handles_header header, const uint8_t *records)
{
    size_t size_bytes = records_bytes(&header) - sizeof(header);

    header.checksum = 0;
    return tdm__splitmix64(tdm__checksum_tensor(&header, sizeof(header)),
                           tdm__checksum_tensor(records, size_bytes));
}

/* Compares the checksum in the header with that of the description whose encoded records begin at
 * `records`. */
static tdm_status check_description_sum(const struct tdm__tensor_handles_header *header,
                                        const uint8_t *records)
{
    uint64_t found = sum_description(*header, records);

    return found == header->checksum
               ? TDM_OK
               : tdm__fail(TDM_E_CHECKSUM,
                           "reading the description of a bucket failed: the checksum of the "
                           "description is %016" PRIx64 ", its header says %016" PRIx64
                           ". " TDM__REMEDY_SEND_AGAIN,
                           found, header->checksum);
}

tdm_status tdm__tensor_handles_encode(const struct tdm__tensor_handles *handles, void *buffer,
                                      size_t buffer_bytes)
{
    struct tdm__tensor_handles_header header = handles->header;
    size_t storages_bytes = header.storages_count * sizeof(struct tdm__storage_record);
    uint8_t *at = buffer;

    header.magic = TDM__TENSOR_HANDLES_MAGIC;
    header.version = TDM__TENSOR_HANDLES_VERSION;
    header.header_bytes = sizeof(header);
    TDM_TRY(check_header(&header));
    TDM_TRY(check_records(handles));
    TDM_ASSERT(buffer_bytes == tdm__tensor_handles_bytes(handles));
    memcpy(at + sizeof(header), handles->storages, storages_bytes);
    memcpy(at + sizeof(header) + storages_bytes, handles->tensors,
           header.tensors_count * sizeof(struct tdm__tensor_record));
    header.checksum = sum_description(header, at + sizeof(header));
    memcpy(at, &header, sizeof(header));
    return TDM_OK;
}

/* Copies the storage and tensor records from the encoded bytes at `at` and checks them. On failure
 * the caller frees the copies. */
static tdm_status copy_records(const uint8_t *at, struct tdm__tensor_handles *handles)
{
    size_t storages_bytes = handles->header.storages_count * sizeof(struct tdm__storage_record);
    size_t tensors_bytes = handles->header.tensors_count * sizeof(struct tdm__tensor_record);

    TDM_ASSERT(storages_bytes > 0 && tensors_bytes > 0);
    handles->storages = malloc(storages_bytes);
    handles->tensors = malloc(tensors_bytes);
    if (handles->storages == NULL || handles->tensors == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating handles of %zu bytes failed: out of memory",
                         storages_bytes + tensors_bytes);
    }
    memcpy(handles->storages, at, storages_bytes);
    memcpy(handles->tensors, at + storages_bytes, tensors_bytes);
    return check_records(handles);
}

tdm_status tdm__tensor_handles_decode(struct tdm_bytes bytes,
                                      struct tdm__tensor_handles *handles_out)
{
    struct tdm__tensor_handles handles = {.storages = NULL};
    tdm_status status;

    if (bytes.size_bytes < sizeof(handles.header)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the description of a bucket failed: it has %zu bytes, less than "
                         "a header of %zu. " TDM__REMEDY_DEFECT,
                         bytes.size_bytes, sizeof(handles.header));
    }
    memcpy(&handles.header, bytes.data, sizeof(handles.header));
    TDM_TRY(check_header(&handles.header));
    if (bytes.size_bytes != records_bytes(&handles.header)) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "reading the description of a bucket failed: it has %zu bytes, but %" PRIu32
            " storages and %" PRIu32 " tensors take %zu. " TDM__REMEDY_DEFECT,
            bytes.size_bytes, handles.header.storages_count, handles.header.tensors_count,
            records_bytes(&handles.header));
    }
    status = copy_records((const uint8_t *)bytes.data + sizeof(handles.header), &handles);
    if (status == TDM_OK) {
        status = check_description_sum(&handles.header,
                                       (const uint8_t *)bytes.data + sizeof(handles.header));
    }
    if (status != TDM_OK) {
        tdm__tensor_handles_fini(&handles);
        return status;
    }
    *handles_out = handles;
    return TDM_OK;
}

void tdm__tensor_handles_fini(struct tdm__tensor_handles *handles)
{
    free(handles->storages);
    free(handles->tensors);
    *handles = (struct tdm__tensor_handles){.storages = NULL};
}

/* ---- against what the receiver knows ------------------------------------------------- */

tdm_status tdm__tensor_handles_check_location(const struct tdm__tensor_handles *handles,
                                              const struct tdm__id *node, const struct tdm__id *gpu)
{
    char theirs[TDM__ID_TEXT_BYTES];
    char ours[TDM__ID_TEXT_BYTES];

    if (!tdm__id_equal(&handles->header.node, node)) {
        return tdm__fail(
            TDM_E_DEVICE,
            "reading the description of a bucket failed: its memory is on node %s, this process is "
            "on node %s. Place both processes on one node, or use a transfer between nodes",
            tdm__id_text(&handles->header.node, theirs), tdm__id_text(node, ours));
    }
    for (uint32_t i = 0; i < handles->header.storages_count && gpu != NULL; i++) {
        if (!tdm__id_equal(&handles->storages[i].gpu, gpu)) {
            return tdm__fail(TDM_E_DEVICE,
                             "reading the description of a bucket failed: storage %" PRIu32
                             " is on GPU %s, this process uses GPU %s. Place both processes on one "
                             "GPU, or use a transfer between GPUs",
                             i, tdm__id_text(&handles->storages[i].gpu, theirs),
                             tdm__id_text(gpu, ours));
        }
    }
    return TDM_OK;
}

/* Returns true if the record has the tensor's dtype and shape, or is a rectangle with consecutive
 * columns. */
static bool tensor_matches_manifest(const struct tdm__tensor_record *record,
                                    const struct tdm_tensor_info *tensor)
{
    if ((record->flags & TDM__TENSOR_SLICE) != 0) {
        return record->dims_count == 2 && record->stride[1] == 1;
    }
    return record->dtype == (uint16_t)tensor->dtype && record->dims_count == tensor->dims_count &&
           memcmp(record->shape, tensor->shape, sizeof(record->shape)) == 0;
}

tdm_status tdm__tensor_handles_check_manifest(const struct tdm__tensor_handles *handles,
                                              const struct tdm__manifest *manifest)
{
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        const struct tdm__tensor_record *record = &handles->tensors[i];
        const struct tdm_tensor_info *tensor;

        if (record->tensor >= manifest->tensors_count) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "reading the description of a bucket failed: tensor %" PRIu32
                             " is number %" PRIu32 " of the model, which has %" PRIu32
                             " tensors, counted from 0. " TDM__REMEDY_DEFECT,
                             i, record->tensor, manifest->tensors_count);
        }
        tensor = &manifest->tensors[record->tensor];
        if (!tensor_matches_manifest(record, tensor)) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "reading the description of a bucket failed: tensor %" PRIu32
                             " (%s) has dtype %u and %u dimensions, expected %u and %u, or another "
                             "size. Use one model on both sides",
                             i, tensor->name, record->dtype, record->dims_count,
                             (unsigned)tensor->dtype, tensor->dims_count);
        }
    }
    return TDM_OK;
}

struct tdm_tensor_view tdm__tensor_handles_view(const struct tdm__tensor_handles *handles,
                                                uint32_t index,
                                                const struct tdm__manifest *manifest,
                                                const void *storage)
{
    const struct tdm__tensor_record *record;
    struct tdm_tensor_view view;

    TDM_ASSERT(index < handles->header.tensors_count);
    record = &handles->tensors[index];
    TDM_ASSERT(record->tensor < manifest->tensors_count);
    view.info = manifest->tensors[record->tensor];
    memcpy(view.stride, record->stride, sizeof(view.stride));
    view.data = (const uint8_t *)storage + record->offset * tdm_dtype_bytes(view.info.dtype);
    return view;
}
