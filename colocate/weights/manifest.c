/* manifest.c - the list of a model's tensors, which both sides of an update must agree on. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A manifest is built once, from the tensors of a trainer or from the bytes that a peer sent,
 * and never changes afterwards. It owns the tensor array and the names. Creation checks
 * everything (limits, printable unique names, total size) and computes the hash over a
 * fixed-size form of each tensor, so the hash does not depend on pointers or padding.
 *
 * Its message is model_manifest (runtime/messages/weights.def). There are no threads and no locks
 * here. */

#include "colocate/weights/manifest.h"

#include "colocate/weights/remedies.h"
#include "colocate/weights/tensor.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <xxhash.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The largest sum of the sizes of all tensors of a manifest, in bytes. */
static const uint64_t size_bytes_max = (uint64_t)1 << 48;

/* The form of a tensor that is hashed. All members have a fixed size; unused bytes are zero. */
struct canonical_tensor {
    char name[TDM_TENSOR_NAME_BYTES_MAX]; /* Name of the tensor, padded with zeros. */
    uint32_t dtype;      /* Data type of the tensor's elements, an enum tdm_dtype. */
    uint32_t dims_count; /* Number of dimensions, which are the first entries of `shape`. */
    uint64_t shape[TDM_DIMS_MAX]; /* Size of each dimension, in elements. */
};

_Static_assert(sizeof(struct canonical_tensor) == 136, "the hash covers no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the hash is over little-endian words");

/* Checks one tensor: its limits, a printable name and a size greater than zero. */
static tdm_status check_tensor(const struct tdm_tensor_info *tensor, uint32_t index)
{
    TDM_TRY(tdm__tensor_check(tensor));
    for (const char *c = tensor->name; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~') {
            return tdm__fail(TDM_E_INVAL,
                             "checking the model failed: tensor %" PRIu32
                             ": byte %td of its name is 0x%02x, not printable. Use printable "
                             "characters other than the space",
                             index, c - tensor->name, (unsigned)(unsigned char)*c);
        }
    }
    if (tdm_tensor_bytes(tensor) == 0) {
        return tdm__fail(
            TDM_E_INVAL,
            "checking the model failed: tensor %s is empty. Leave it out, or correct its shape",
            tensor->name);
    }
    return TDM_OK;
}

/* Orders pointers to tensors by name, for qsort(). */
static int compare_names(const void *a, const void *b)
{
    const struct tdm_tensor_info *const *left = a;
    const struct tdm_tensor_info *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

/* Fails with TDM_E_INVAL if two tensors have the same name. */
static tdm_status check_unique(const struct tdm__manifest *manifest)
{
    const struct tdm_tensor_info **sorted =
        malloc(manifest->tensors_count * sizeof(const struct tdm_tensor_info *));
    const char *twice = NULL;

    if (sorted == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating %" PRIu32 " tensors to sort failed: out of memory",
                         manifest->tensors_count);
    }
    for (uint32_t i = 0; i < manifest->tensors_count; i++) {
        sorted[i] = &manifest->tensors[i];
    }
    qsort(sorted, manifest->tensors_count, sizeof(const struct tdm_tensor_info *), compare_names);
    for (uint32_t i = 1; i < manifest->tensors_count && twice == NULL; i++) {
        if (compare_names(&sorted[i - 1], &sorted[i]) == 0) {
            twice = sorted[i]->name;
        }
    }
    free(sorted);
    return twice == NULL
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL,
                           "checking the model failed: two tensors are named %s. Rename one",
                           twice);
}

/* Computes the manifest's hash from the fixed-size form of all tensors. */
static tdm_status hash_manifest(struct tdm__manifest *manifest)
{
    struct canonical_tensor *canonical =
        calloc(manifest->tensors_count, sizeof(struct canonical_tensor));
    XXH128_hash_t hash;

    if (canonical == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating %" PRIu32 " tensors to hash failed: out of memory",
                         manifest->tensors_count);
    }
    for (uint32_t i = 0; i < manifest->tensors_count; i++) {
        const struct tdm_tensor_info *tensor = &manifest->tensors[i];

        memcpy(canonical[i].name, tensor->name, strlen(tensor->name));
        canonical[i].dtype = (uint32_t)tensor->dtype;
        canonical[i].dims_count = tensor->dims_count;
        memcpy(canonical[i].shape, tensor->shape, tensor->dims_count * sizeof(uint64_t));
    }
    hash = XXH3_128bits(canonical, manifest->tensors_count * sizeof(struct canonical_tensor));
    free(canonical);
    manifest->hash = (struct tdm__hash){.high = hash.high64, .low = hash.low64};
    return TDM_OK;
}

/* Checks one tensor and appends a copy with its own name to the manifest. */
static tdm_status add_tensor(struct tdm__manifest *manifest, const struct tdm_tensor_info *tensor)
{
    uint32_t index = manifest->tensors_count;
    struct tdm_tensor_info *copy = &manifest->tensors[index];

    TDM_TRY(check_tensor(tensor, index));
    if (tdm_tensor_bytes(tensor) > size_bytes_max - manifest->size_bytes) {
        return tdm__fail(TDM_E_LIMIT,
                         "checking the model failed: the tensors up to %s have more than %" PRIu64
                         " bytes. Correct their shapes",
                         tensor->name, size_bytes_max);
    }
    copy->name = strdup(tensor->name);
    if (copy->name == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating the name of tensor %" PRIu32 " failed: out of memory", index);
    }
    copy->dtype = tensor->dtype;
    copy->dims_count = tensor->dims_count;
    memcpy(copy->shape, tensor->shape, tensor->dims_count * sizeof(uint64_t));
    manifest->size_bytes += tdm_tensor_bytes(tensor);
    manifest->tensors_count++;
    return TDM_OK;
}

/* Fills an empty manifest with tensors, checks that their names are unique and computes its
 * hash. */
static tdm_status manifest_fill(struct tdm__manifest *manifest,
                                const struct tdm_tensor_info *tensors, uint32_t tensors_count)
{
    TDM_ASSERT(tensors_count > 0);
    for (uint32_t i = 0; i < tensors_count; i++) {
        TDM_TRY(add_tensor(manifest, &tensors[i]));
    }
    TDM_ASSERT(manifest->tensors_count > 0);
    TDM_TRY(check_unique(manifest));
    return hash_manifest(manifest);
}

tdm_status tdm__manifest_create(const struct tdm_tensor_info *tensors, uint32_t tensors_count,
                                struct tdm__manifest **manifest_out)
{
    struct tdm__manifest *manifest;
    tdm_status status;

    if (tensors_count == 0 || tensors_count > TDM__MANIFEST_TENSORS_MAX) {
        return tdm__fail(TDM_E_INVAL,
                         "checking the model failed: it has %" PRIu32
                         " tensors, expected 1 to %d. Declare at least one tensor and at most %d",
                         tensors_count, TDM__MANIFEST_TENSORS_MAX, TDM__MANIFEST_TENSORS_MAX);
    }
    manifest = calloc(1, sizeof(*manifest));
    if (manifest == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a manifest failed: out of memory");
    }
    manifest->tensors = calloc(tensors_count, sizeof(manifest->tensors[0]));
    status = manifest->tensors == NULL
                 ? tdm__fail(TDM_E_NOMEM,
                             "allocating a manifest of %" PRIu32 " tensors failed: out of memory",
                             tensors_count)
                 : manifest_fill(manifest, tensors, tensors_count);
    if (status != TDM_OK) {
        tdm__manifest_destroy(manifest);
        return status;
    }
    *manifest_out = manifest;
    return TDM_OK;
}

void tdm__manifest_destroy(struct tdm__manifest *manifest)
{
    if (manifest == NULL) {
        return;
    }
    for (uint32_t i = 0; i < manifest->tensors_count; i++) {
        free((char *)manifest->tensors[i].name);
    }
    free(manifest->tensors);
    free(manifest);
}

/* ---- as a message -------------------------------------------------------------------- */

/* Getter of a message list: describes one tensor; the name and the shape are borrowed. */
static void get_tensor(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm_tensor_info *tensor = &((const struct tdm_tensor_info *)arg)[index];

    *(struct tdm__manifest_tensor_message *)item_out = (struct tdm__manifest_tensor_message){
        .name = tensor->name,
        .dtype = (uint32_t)tensor->dtype,
        .shape = {.count = tensor->dims_count, .items = tensor->shape}};
}

struct tdm__model_manifest_message tdm__manifest_to_message(const struct tdm__manifest *manifest)
{
    return (struct tdm__model_manifest_message){
        .tensors = {.count = manifest->tensors_count, .get = get_tensor, .arg = manifest->tensors}};
}

/* Decodes name, dtype and shape of one tensor. The name is borrowed from the encoded value, and the
 * shape is not checked. */
static tdm_status read_tensor(const struct tdm__message_list *tensors, uint32_t index,
                              struct tdm_tensor_info *tensor)
{
    struct tdm__manifest_tensor_message message;

    tdm__message_list_read(tensors, index, &message, sizeof(message));
    if (message.shape.count > TDM_DIMS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the manifest of another process failed: tensor %" PRIu32
                         " has %" PRIu32 " dimensions, at most %d are allowed. " TDM__REMEDY_DEFECT,
                         index, message.shape.count, TDM_DIMS_MAX);
    }
    tensor->name = message.name;
    tensor->dtype = (enum tdm_dtype)message.dtype;
    tensor->dims_count = message.shape.count;
    for (uint32_t k = 0; k < message.shape.count; k++) {
        tdm__message_list_read(&message.shape, k, &tensor->shape[k], sizeof(tensor->shape[k]));
    }
    return TDM_OK;
}

tdm_status tdm__manifest_from_message(const struct tdm__model_manifest_message *message,
                                      struct tdm__manifest **manifest_out)
{
    uint32_t count = message->tensors.count;
    struct tdm_tensor_info *tensors;
    tdm_status status = TDM_OK;

    if (count == 0 || count > TDM__MANIFEST_TENSORS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading the manifest of another process failed: it has %" PRIu32
                         " tensors, expected 1 to %d. " TDM__REMEDY_DEFECT,
                         count, TDM__MANIFEST_TENSORS_MAX);
    }
    tensors = calloc(count, sizeof(*tensors));
    if (tensors == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "allocating a manifest of %" PRIu32 " tensors failed: out of memory",
                         count);
    }
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        status = read_tensor(&message->tensors, i, &tensors[i]);
    }
    if (status == TDM_OK) {
        status = tdm__manifest_create(tensors, count, manifest_out);
        if (status != TDM_OK && status != TDM_E_NOMEM) {
            status = tdm__wrap(TDM_E_PROTOCOL, "reading the manifest of another process failed");
        }
    }
    free(tensors);
    return status;
}
