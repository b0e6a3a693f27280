/* merged_handles.c - descriptions of one bucket by several writers, merged to one description. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Several trainer ranks may write into the bucket of one engine rank, and each describes what it
 * has written. The engine rank stages the bucket in one step, as if one writer had described it, so
 * the descriptions are merged first. The descriptions come from other processes and are not
 * trusted: each is decoded with its own checks, and what they have in common is compared. All
 * functions are pure. */

#include "colocate/weights/merged_handles.h"

#include "colocate/weights/remedies.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

tdm_status tdm__merged_handles_wrap(uint32_t writer, tdm_status status)
{
    return writer == TDM__WRITER_UNKNOWN
               ? status
               : tdm__wrap(status, "what trainer rank %" PRIu32 " described", writer);
}

/* Returns true if both storages are the same range of the same memory. */
static bool storages_are_equal(const struct tdm__storage_record *one,
                               const struct tdm__storage_record *other)
{
    return tdm__id_equal(&one->gpu, &other->gpu) && tdm__id_equal(&one->key, &other->key) &&
           one->size_bytes == other->size_bytes && one->offset_bytes == other->offset_bytes &&
           one->allocation_bytes == other->allocation_bytes && one->flags == other->flags;
}

/* Checks that a description is of the same bucket of the same update as the first one. */
static tdm_status check_header(const struct tdm__tensor_handles_header *header,
                               const struct tdm__tensor_handles_header *first)
{
    if (header->bucket == first->bucket && header->buckets_count == first->buckets_count &&
        header->epoch == first->epoch && tdm__id_equal(&header->update, &first->update) &&
        tdm__id_equal(&header->node, &first->node)) {
        return TDM_OK;
    }
    return tdm__fail(TDM_E_PROTOCOL,
                     "merging the descriptions of a bucket failed: bucket %" PRIu32 " of %" PRIu32
                     ", epoch %" PRIu64 "; another writer describes bucket %" PRIu32 " of %" PRIu32
                     ", epoch %" PRIu64 ", or it is of another update or node. " TDM__REMEDY_DEFECT,
                     header->bucket, header->buckets_count, header->epoch, first->bucket,
                     first->buckets_count, first->epoch);
}

/* Checks that the storage of a description has the given writer. */
static tdm_status check_writer(const struct tdm__tensor_handles *handles, uint32_t writer)
{
    for (uint32_t i = 0; i < handles->header.storages_count && writer != TDM__WRITER_UNKNOWN; i++) {
        if (handles->storages[i].writer != writer) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "merging the descriptions of a bucket failed: storage %" PRIu32
                             " was written by rank %" PRIu32 ", given by rank %" PRIu32
                             ". " TDM__REMEDY_DEFECT,
                             i, handles->storages[i].writer, writer);
        }
    }
    return TDM_OK;
}

/* Checks that description number `index` can be merged with those before it. */
static tdm_status check_mergeable(const struct tdm__tensor_handles *parts, uint32_t index)
{
    const struct tdm__tensor_handles *part = &parts[index];

    if (part->header.storages_count != 1 || parts[0].header.storages_count != 1) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "merging the descriptions of a bucket failed: two writers describe %" PRIu32
            " and %" PRIu32 " storages, expected 1 each. " TDM__REMEDY_DEFECT,
            parts[0].header.storages_count, part->header.storages_count);
    }
    TDM_TRY(check_header(&part->header, &parts[0].header));
    if (!storages_are_equal(&part->storages[0], &parts[0].storages[0])) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "merging the descriptions of a bucket failed: it is %" PRIu64
                         " bytes at %" PRIu64 " of a block; another writer describes %" PRIu64
                         " bytes at %" PRIu64 ", or of another block. " TDM__REMEDY_DEFECT,
                         part->storages[0].size_bytes, part->storages[0].offset_bytes,
                         parts[0].storages[0].size_bytes, parts[0].storages[0].offset_bytes);
    }
    for (uint32_t i = 0; i < index; i++) {
        if (part->storages[0].writer == parts[i].storages[0].writer) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "merging the descriptions of a bucket failed: descriptions %" PRIu32
                             " and %" PRIu32 " are both of trainer rank %" PRIu32
                             ". " TDM__REMEDY_DEFECT,
                             i, index, part->storages[0].writer);
        }
    }
    return TDM_OK;
}

/* Returns the number of tensors that the descriptions have together; UINT32_MAX if there are too
 * many. */
static uint32_t count_tensors(const struct tdm__tensor_handles *parts, uint32_t parts_count)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < parts_count; i++) {
        count += parts[i].header.tensors_count;
    }
    return count <= TDM__TENSOR_HANDLES_TENSORS_MAX ? (uint32_t)count : UINT32_MAX;
}

/* Copies the records of all descriptions into one. */
static tdm_status merge_records(const struct tdm__tensor_handles *parts, uint32_t parts_count,
                                struct tdm__tensor_handles *merged)
{
    uint32_t tensors_count = count_tensors(parts, parts_count);
    uint32_t at = 0;

    if (tensors_count == UINT32_MAX || parts_count > TDM__TENSOR_HANDLES_STORAGES_MAX) {
        return tdm__fail(
            TDM_E_LIMIT,
            "merging the descriptions of a bucket failed: it has %" PRIu32
            " descriptions, at most %d with %d tensors together are allowed. Use smaller buckets",
            parts_count, TDM__TENSOR_HANDLES_STORAGES_MAX, TDM__TENSOR_HANDLES_TENSORS_MAX);
    }
    merged->header = parts[0].header;
    merged->header.storages_count = parts_count;
    merged->header.tensors_count = tensors_count;
    merged->storages = calloc(parts_count, sizeof(*merged->storages));
    merged->tensors = calloc(tensors_count, sizeof(*merged->tensors));
    if (merged->storages == NULL || merged->tensors == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating handles of %" PRIu32 " tensors failed: out of memory",
                         tensors_count);
    }
    for (uint32_t i = 0; i < parts_count; i++) {
        merged->storages[i] = parts[i].storages[0];
        for (uint32_t k = 0; k < parts[i].header.tensors_count; k++) {
            merged->tensors[at] = parts[i].tensors[k];
            merged->tensors[at++].storage = i;
        }
    }
    return TDM_OK;
}

/* Decodes all descriptions into `parts`, which the caller releases also after a failure, and checks
 * that they can be merged. */
static tdm_status decode_parts(const struct tdm__bucket_description *descriptions,
                               uint32_t descriptions_count, tdm__handles_check *check,
                               const void *arg, struct tdm__tensor_handles *parts)
{
    for (uint32_t i = 0; i < descriptions_count; i++) {
        uint32_t writer = descriptions[i].writer;
        tdm_status status = tdm__tensor_handles_decode(descriptions[i].handles, &parts[i]);

        status = status == TDM_OK ? check_writer(&parts[i], writer) : status;
        status = status == TDM_OK ? check(arg, &parts[i]) : status;
        status = status == TDM_OK && i > 0 ? check_mergeable(parts, i) : status;
        TDM_TRY(tdm__merged_handles_wrap(writer, status));
    }
    return TDM_OK;
}

tdm_status tdm__merged_handles_decode(const struct tdm__bucket_description *descriptions,
                                      uint32_t descriptions_count, tdm__handles_check *check,
                                      const void *arg, struct tdm__tensor_handles *handles_out)
{
    struct tdm__tensor_handles *parts = calloc(descriptions_count, sizeof(*parts));
    struct tdm__tensor_handles merged = {.storages = NULL};
    tdm_status status;

    if (parts == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating %" PRIu32 " descriptions of a bucket failed: out of memory",
                         descriptions_count);
    }
    status = decode_parts(descriptions, descriptions_count, check, arg, parts);
    if (status == TDM_OK && descriptions_count == 1) {
        merged = parts[0];
        parts[0] = (struct tdm__tensor_handles){.storages = NULL};
    } else if (status == TDM_OK) {
        status = merge_records(parts, descriptions_count, &merged);
    }
    for (uint32_t i = 0; i < descriptions_count; i++) {
        tdm__tensor_handles_fini(&parts[i]);
    }
    free(parts);
    if (status != TDM_OK) {
        tdm__tensor_handles_fini(&merged);
        return status;
    }
    *handles_out = merged;
    return TDM_OK;
}
