/* receiver.c - an engine rank's side of an update: stages buckets, votes, flips. */
/* SPDX-License-Identifier: Apache-2.0 */

/* An engine rank owns its weights region, which is served, and a shadow region of the same size,
 * which has memory only during an update. The replay guard (replay_guard.h) decides which
 * messages are accepted: idle, staging, voted, flipped. While staging, buckets are loaded into
 * the shadow in one of these ways:
 * - Whole tensors: their views are passed to the library's load() callback (engines without a
 * layout).
 * - Slices: copied from a sender's bucket or a local buffer, or already written into the shadow
 * by the trainers (tensor_slices.c).
 * - A safetensors file with the whole model.
 *
 * A receiver without regions loads whole tensors that have arrived in host memory by other ways,
 * for the schemes of colocate/scheme. Its library keeps them in place until the flip.
 *
 * A receiver that overwrites has no shadow. Its buckets are loaded into the weights region itself
 * (stage_region()); a flip then moves no memory.
 *
 * After the vote the shadow is frozen. A flip exchanges the memory of both regions; a drop
 * discards the shadow. Sender buckets stay mapped until the update ends, so that their memory
 * cannot be reused while it is read. The caller serializes all calls; the device and the regions
 * have their own locks. The protocol is docs/protocols/commit.md. */

#include "colocate/weights/receiver.h"

#include "colocate/weights/merged_handles.h"
#include "colocate/weights/remedies.h"
#include "colocate/weights/replay_guard.h"
#include "colocate/weights/tensor.h"
#include "colocate/weights/tensor_handles.h"
#include "colocate/weights/tensor_slices.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Fails because the sender has sent what no Tandem of this version sends. */
#define FAIL_AS_DEFECT(status, cause, ...)                                                         \
    tdm__fail(status, "receiving weights failed: " cause ". " TDM__REMEDY_DEFECT, __VA_ARGS__)

/* The largest number of sender blocks that are mapped at the same time. */
enum { IMPORTS_MAX = 16 };

/* A memory block of a sender that this process maps until the update ends, so that it cannot be
 * freed meanwhile. */
struct imported_block {
    struct tdm__block *block; /* Reference to a memory block of the sender; owned. */
    void *address;            /* Address at which this process has mapped the block, read-only. */
};

/* State of an engine rank's receiver. The caller owns it and serializes all calls. */
struct tdm__receiver {
    /* Arguments of tdm__receiver_create(); the pointers are borrowed. */
    struct tdm__receiver_options options;
    /* Shadow: the region into which new weights are loaded while the old ones are served. Owned; it
     * has no memory between updates. NULL if the receiver overwrites. */
    tdm_region *shadow;
    /* True if a bucket was accepted that overwrites the served weights, so that this rank holds no
     * version until it flips or joins. */
    bool is_torn;
    /* Latest update of which this rank has heard, and what the shadow contains of it. */
    struct tdm__replay_guard guard;
    /* For each tensor of the manifest its checksum, if it was received whole. Owned. */
    uint64_t *sums;
    /* For each tensor of the manifest 1 if this update has loaded it whole, else 0. Owned. */
    uint8_t *staged;
    /* Views of the tensors in the bucket that is being loaded; owned. */
    struct tdm_tensor_view *views;
    /* Device operations that compute the checksums of the tensors in a bucket; owned. */
    struct tdm__copy_op *sum_ops;
    uint64_t *computed_sums; /* Checksums that the operations `sum_ops` compute; owned. */
    /* Where each tensor slice of this rank belongs in its weights. Owned; NULL if the rank has no
     * layout, so that it loads whole tensors. */
    struct tdm__tensor_slices *tensor_slices;
    /* True if the current update brought tensor slices instead of whole tensors. */
    bool has_slices;
    bool is_exported; /* True if trainers write the tensor slices directly into the shadow. */
    /* Key of the shadow's first memory block when slices were last loaded. Each resume changes the
     * key, so a comparison tells whether the loaded bytes still exist. */
    struct tdm__id shadow_key;
    /* True once this rank has voted for an update of slices that was verified in full. */
    bool was_verified;
    /* Memory blocks of senders that this process has mapped. */
    struct imported_block imports[IMPORTS_MAX];
    uint32_t imports_count; /* Number of entries in `imports`. */
    /* Size in bytes of the tensors and slices in the bucket whose loading began last, also if it
     * failed. */
    uint64_t staged_bytes;
};

/* ---- life ---------------------------------------------------------------------------- */

/* Creates the shadow region without memory, unless the receiver overwrites or has no regions. */
static tdm_status create_shadow(struct tdm__receiver *receiver)
{
    const struct tdm__receiver_options *options = &receiver->options;
    struct tdm_region_options shadow = {.tag = "shadow", .policy = TDM_REGION_DROP, .paused = 1};

    if (options->regions == NULL || options->overwrites) {
        return TDM_OK;
    }
    shadow.size_bytes = tdm_region_size(options->weights);
    return tdm__region_create(options->regions, &shadow, &receiver->shadow);
}

/* Allocates a receiver's arrays and creates its shadow. */
static tdm_status receiver_init(struct tdm__receiver *receiver)
{
    uint32_t count = receiver->options.manifest->tensors_count;

    receiver->sums = calloc(count, sizeof(*receiver->sums));
    receiver->staged = calloc(count, sizeof(*receiver->staged));
    receiver->views = calloc(count, sizeof(*receiver->views));
    receiver->sum_ops = calloc(count, sizeof(*receiver->sum_ops));
    receiver->computed_sums = calloc(count, sizeof(*receiver->computed_sums));
    if (receiver->sums == NULL || receiver->staged == NULL || receiver->views == NULL ||
        receiver->sum_ops == NULL || receiver->computed_sums == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a receiver of %u tensors failed: out of memory",
                         count);
    }
    return create_shadow(receiver);
}

tdm_status tdm__receiver_create(const struct tdm__receiver_options *options,
                                struct tdm__receiver **receiver_out)
{
    struct tdm__receiver *receiver = calloc(1, sizeof(*receiver));
    tdm_status status;

    if (receiver == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a receiver of weights failed: out of memory");
    }
    receiver->options = *options;
    status = receiver_init(receiver);
    if (status != TDM_OK) {
        tdm__receiver_destroy(receiver);
        return status;
    }
    *receiver_out = receiver;
    return TDM_OK;
}

/* Unmaps and releases the senders' memory blocks, so that the memory can be freed. A receiver
 * without regions has none. */
static void release_imports(struct tdm__receiver *receiver)
{
    struct tdm__device *device;

    if (receiver->imports_count == 0) {
        return;
    }
    device = tdm__regions_device(receiver->options.regions);
    for (uint32_t i = 0; i < receiver->imports_count; i++) {
        struct imported_block *import = &receiver->imports[i];

        (void)device->ops->unmap(device, import->address, import->block->size_bytes);
        device->ops->unreserve(device, import->address, import->block->size_bytes);
        device->ops->release(device, &import->block, 1);
    }
    receiver->imports_count = 0;
}

void tdm__receiver_destroy(struct tdm__receiver *receiver)
{
    if (receiver == NULL) {
        return;
    }
    release_imports(receiver);
    tdm_region_destroy(receiver->shadow);
    free(receiver->sums);
    free(receiver->staged);
    free(receiver->views);
    free(receiver->sum_ops);
    free(receiver->computed_sums);
    tdm__tensor_slices_destroy(receiver->tensor_slices);
    free(receiver);
}

/* Returns the region into which new weights are loaded. */
static tdm_region *stage_region(const struct tdm__receiver *receiver)
{
    return receiver->options.overwrites ? receiver->options.weights : receiver->shadow;
}

tdm_status tdm__receiver_resume_shadow(struct tdm__receiver *receiver, int64_t timeout_ms)
{
    tdm_region *region = stage_region(receiver);

    if (tdm_region_is_resident(region)) {
        return TDM_OK; /* The shadow still has memory from an earlier, aborted update. */
    }
    return tdm_region_resume(region, timeout_ms);
}

uint64_t tdm__receiver_shadow_bytes(const struct tdm__receiver *receiver)
{
    return receiver->shadow == NULL ? 0 : tdm_region_size(receiver->shadow);
}

bool tdm__receiver_is_torn(const struct tdm__receiver *receiver)
{
    return receiver->is_torn;
}

/* ---- stage --------------------------------------------------------------------------- */

/* Accepts a message that belongs to the update. Discards what earlier updates loaded if the update
 * is a new one. */
static tdm_status accept_update(struct tdm__receiver *receiver, const struct tdm__id *update,
                                uint64_t epoch)
{
    bool begun;

    TDM_TRY(tdm__replay_guard_accept_bucket(&receiver->guard, update, epoch, &begun));
    receiver->is_torn = receiver->options.overwrites;
    if (begun) {
        release_imports(receiver); /* The mapped blocks belong to the update before. */
        memset(receiver->staged, 0, receiver->options.manifest->tensors_count);
        receiver->has_slices = false;
        if (receiver->tensor_slices != NULL) {
            tdm__tensor_slices_begin_update(receiver->tensor_slices);
        }
        receiver->options.ops->begin(receiver->options.state);
    }
    return TDM_OK;
}

/* Maps a sender's memory block into this process, unless this update has mapped it already. */
static tdm_status import_block(struct tdm__receiver *receiver, const struct tdm__id *key,
                               const struct imported_block **import_out)
{
    struct tdm__device *device = tdm__regions_device(receiver->options.regions);
    struct imported_block import;
    tdm_status status;

    for (uint32_t i = 0; i < receiver->imports_count; i++) {
        if (tdm__id_equal(&receiver->imports[i].block->key, key)) {
            *import_out = &receiver->imports[i];
            return TDM_OK;
        }
    }
    if (receiver->imports_count == IMPORTS_MAX) {
        return tdm__fail(TDM_E_LIMIT,
                         "receiving weights failed: the update uses more than %d memory blocks. "
                         "Let fewer trainer ranks serve the engine",
                         IMPORTS_MAX);
    }
    TDM_TRY(device->ops->import(device, key, &import.block));
    status = device->ops->reserve(device, import.block->size_bytes, &import.address);
    if (status == TDM_OK) {
        status = device->ops->map(device, import.address, import.block, TDM__READ_ONLY);
        if (status != TDM_OK) {
            device->ops->unreserve(device, import.address, import.block->size_bytes);
        }
    }
    if (status != TDM_OK) {
        device->ops->release(device, &import.block, 1);
        return status;
    }
    receiver->imports[receiver->imports_count] = import;
    *import_out = &receiver->imports[receiver->imports_count++];
    return TDM_OK;
}

/* Maps the memory block that contains a sender's storage and stores the storage's address in
 * `address_out`. */
static tdm_status map_storage(struct tdm__receiver *receiver,
                              const struct tdm__storage_record *storage, const char **address_out)
{
    const struct imported_block *import;

    if (storage->flags != 0) {
        return FAIL_AS_DEFECT(TDM_E_UNSUPPORTED,
                              "a storage must be read after event %llu, not at once",
                              (unsigned long long)storage->event);
    }
    TDM_TRY(import_block(receiver, &storage->key, &import));
    if (storage->allocation_bytes != import->block->size_bytes) {
        return FAIL_AS_DEFECT(
            TDM_E_PROTOCOL, "an allocation has %zu bytes, its description says %llu",
            import->block->size_bytes, (unsigned long long)storage->allocation_bytes);
    }
    *address_out = (const char *)import->address + storage->offset_bytes;
    return TDM_OK;
}

/* Fills the receiver's views of all tensors in the bucket, whose bytes are at `source`; NULL if
 * they are in the storages that the handles describe. The tensors must be contiguous. */
static tdm_status fill_views(struct tdm__receiver *receiver,
                             const struct tdm__tensor_handles *handles, const char *source)
{
    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        const struct tdm__tensor_record *record = &handles->tensors[i];
        const struct tdm__storage_record *storage = &handles->storages[record->storage];
        const char *address = source;

        if ((record->flags & TDM__TENSOR_SLICE) != 0) {
            return FAIL_AS_DEFECT(TDM_E_PROTOCOL,
                                  "a slice of tensor %s came in a bucket of whole tensors",
                                  receiver->options.manifest->tensors[record->tensor].name);
        }
        if (source == NULL) {
            TDM_TRY(map_storage(receiver, storage, &address));
        }
        receiver->views[i] =
            tdm__tensor_handles_view(handles, i, receiver->options.manifest, address);
        if (!tdm__tensor_is_contiguous(&receiver->views[i])) {
            return FAIL_AS_DEFECT(TDM_E_UNSUPPORTED, "tensor %s is not contiguous in its bucket",
                                  receiver->views[i].info.name);
        }
    }
    return TDM_OK;
}

/* Runs the first `count` of the receiver's checksum operations: on its device, or on the host if
 * the receiver has no regions. */
static tdm_status run_sum_ops(const struct tdm__receiver *receiver, uint32_t count)
{
    struct tdm__device *device;

    if (receiver->options.regions != NULL) {
        device = tdm__regions_device(receiver->options.regions);
        return device->ops->move(device, receiver->sum_ops, count, receiver->computed_sums);
    }
    for (uint32_t i = 0; i < count; i++) {
        TDM_TRY(tdm__copy_op_execute(&receiver->sum_ops[i], &receiver->computed_sums[i]));
    }
    return TDM_OK;
}

/* Computes the checksums of the bucket's tensors and compares them with the sender's. */
static tdm_status verify_tensors(const struct tdm__receiver *receiver,
                                 const struct tdm__tensor_handles *handles)
{
    uint32_t count = handles->header.tensors_count;

    for (uint32_t i = 0; i < count; i++) {
        const struct tdm_tensor_view *view = &receiver->views[i];

        receiver->sum_ops[i] = tdm__checksum_copy_op(view->data, tdm_tensor_bytes(&view->info));
    }
    TDM_TRY(run_sum_ops(receiver, count));
    for (uint32_t i = 0; i < count; i++) {
        const struct tdm_tensor_info *info = &receiver->views[i].info;

        TDM_TRY(tdm__checksum_compare(info->name, tdm_tensor_bytes(info),
                                      receiver->computed_sums[i], handles->tensors[i].checksum));
    }
    return TDM_OK;
}

/* Returns TDM_E_STATE if the shadow region has no memory. A receiver without regions needs none. */
static tdm_status check_shadow_resident(const struct tdm__receiver *receiver)
{
    if (receiver->options.regions == NULL || tdm_region_is_resident(stage_region(receiver))) {
        return TDM_OK;
    }
    return FAIL_AS_DEFECT(TDM_E_STATE, "a bucket came while %s",
                          receiver->options.overwrites ? "the weights are paused"
                                                       : "the shadow of the weights has no memory");
}

/* Calls the engine library to load the tensors of the first `views_count` views into the shadow. */
static tdm_status load_tensors(struct tdm__receiver *receiver, uint32_t views_count)
{
    const struct tdm__receiver_options *options = &receiver->options;
    void *weights = options->regions == NULL ? NULL : tdm_region_address(stage_region(receiver));

    return options->ops->load(options->state, weights, receiver->views, views_count);
}

/* Loads the tensors of a bucket. A bucket that is loaded a second time and fails midway spoils its
 * tensors, so they count as staged only after the whole bucket is loaded. */
static tdm_status load_records(struct tdm__receiver *receiver,
                               const struct tdm__tensor_handles *handles)
{
    const struct tdm__tensor_record *records = handles->tensors;
    uint32_t count = handles->header.tensors_count;

    for (uint32_t i = 0; i < count; i++) {
        receiver->staged[records[i].tensor] = 0;
    }
    TDM_TRY(load_tensors(receiver, count));
    for (uint32_t i = 0; i < count; i++) {
        receiver->staged[records[i].tensor] = 1;
        receiver->sums[records[i].tensor] = records[i].checksum;
    }
    return TDM_OK;
}

/* Verifies and loads a bucket of whole tensors, whose bytes are at `source`; NULL if they are in
 * the storages that the handles describe. */
static tdm_status stage_whole_tensors(struct tdm__receiver *receiver,
                                      const struct tdm__tensor_handles *handles, const char *source)
{
    if (handles->header.tensors_count > receiver->options.manifest->tensors_count) {
        return FAIL_AS_DEFECT(TDM_E_PROTOCOL, "a bucket has %u tensors, the whole model has %u",
                              handles->header.tensors_count,
                              receiver->options.manifest->tensors_count);
    }
    TDM_TRY(fill_views(receiver, handles, source));
    if (receiver->options.verify != TDM__VERIFY_NONE) {
        TDM_TRY(verify_tensors(receiver, handles));
    }
    return load_records(receiver, handles);
}

/* ---- slices -------------------------------------------------------------------------- */

tdm_status tdm__receiver_set_layout(struct tdm__receiver *receiver,
                                    const struct tdm__layout *layout)
{
    const struct tdm__tensor_slices_options options = {
        .manifest = receiver->options.manifest,
        .layout = layout,
        .base = tdm_region_address(receiver->options.weights),
        .image_bytes = tdm_region_size(receiver->options.weights)};

    return tdm__tensor_slices_create(&options, &receiver->tensor_slices);
}

const tdm_region *tdm__receiver_shadow(const struct tdm__receiver *receiver)
{
    return stage_region(receiver);
}

/* Returns the key of the first block for new weights, which changes with each resume; all zero if
 * there is no memory. */
static struct tdm__id shadow_key(const struct tdm__receiver *receiver)
{
    uint32_t count;
    struct tdm__block *const *blocks = tdm__region_blocks(stage_region(receiver), &count);

    return count > 0 ? blocks[0]->key : (struct tdm__id){{0}};
}

/* Sets `source_out` to the address of the bucket from which slices are copied. Sets it to NULL if
 * the senders have written the slices directly into the shadow. The storages are the same memory,
 * once for each writer. */
static tdm_status find_slice_source(struct tdm__receiver *receiver,
                                    const struct tdm__tensor_handles *handles,
                                    const char **source_out)
{
    receiver->is_exported = tdm__id_equal(&receiver->shadow_key, &handles->storages[0].key);
    if (receiver->is_exported && receiver->options.overwrites) {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "receiving weights failed: the sender has written slices directly into "
                         "weights that are served. " TDM__REMEDY_DEFECT);
    }
    if (receiver->is_exported) {
        *source_out = NULL;
        return TDM_OK;
    }
    return map_storage(receiver, &handles->storages[0], source_out);
}

/* Copies or verifies the tensor slices of one bucket, whose bytes are at `source`. With `source`
 * NULL the bytes are in the storage that the handles describe. */
static tdm_status stage_slices(struct tdm__receiver *receiver,
                               const struct tdm__tensor_handles *handles, const char *source)
{
    const struct tdm__receiver_options *options = &receiver->options;
    struct tdm__tensor_slices_stage stage = {.device = tdm__regions_device(options->regions),
                                             .handles = handles,
                                             .source = source,
                                             .image = tdm_region_address(stage_region(receiver)),
                                             .verify = options->verify};

    if (options->verify == TDM__VERIFY_SAMPLE && !receiver->was_verified) {
        stage.verify = TDM__VERIFY_FULL;
    }
    if (receiver->tensor_slices == NULL) {
        return tdm__fail(TDM_E_STATE, "receiving weights failed: slices of tensors came for an "
                                      "engine without a layout. " TDM__REMEDY_DEFECT);
    }
    receiver->shadow_key = shadow_key(receiver);
    if (source == NULL) {
        TDM_TRY(find_slice_source(receiver, handles, &stage.source));
    } else {
        receiver->is_exported = false;
    }
    receiver->has_slices = true;
    return tdm__tensor_slices_stage(receiver->tensor_slices, &stage);
}

/* Returns true if the shadow still contains complete buckets that an earlier update loaded. */
static bool has_resume_log(const struct tdm__receiver *receiver)
{
    struct tdm__id key = shadow_key(receiver);

    return receiver->tensor_slices != NULL && tdm_region_is_resident(stage_region(receiver)) &&
           tdm__id_equal(&receiver->shadow_key, &key) &&
           tdm__tensor_slices_resume_log(receiver->tensor_slices, receiver->is_exported).next > 0;
}

tdm_status tdm__receiver_resume_update(struct tdm__receiver *receiver, const struct tdm__id *update,
                                       uint64_t epoch, struct tdm__resume_log *resume_log_out)
{
    struct tdm__resume_log resume_log;
    bool begun;

    if (!has_resume_log(receiver)) {
        *resume_log_out = (struct tdm__resume_log){.next = 0};
        return TDM_OK;
    }
    resume_log = tdm__tensor_slices_resume_log(receiver->tensor_slices, receiver->is_exported);
    TDM_TRY(tdm__replay_guard_accept_bucket(&receiver->guard, update, epoch, &begun));
    if (begun) {
        release_imports(receiver); /* The mapped blocks belong to the update before. */
        receiver->options.ops->begin(receiver->options.state);
        tdm__tensor_slices_resume_update(receiver->tensor_slices);
    }
    *resume_log_out = resume_log;
    return TDM_OK;
}

/* Returns the size in bytes of all tensors and slices in the bucket. */
static uint64_t staged_tensor_bytes(const struct tdm__tensor_handles *handles)
{
    uint64_t size_bytes = 0;

    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        const struct tdm__tensor_record *record = &handles->tensors[i];
        uint64_t elements = 1;

        for (uint32_t dim = 0; dim < record->dims_count; dim++) {
            elements *= record->shape[dim];
        }
        size_bytes += elements * tdm_dtype_bytes((enum tdm_dtype)record->dtype);
    }
    return size_bytes;
}

uint64_t tdm__receiver_staged_bytes(const struct tdm__receiver *receiver)
{
    return receiver->staged_bytes;
}

/* Returns the offset in bytes after the last byte that the records use of their storage. */
static uint64_t records_end(const struct tdm__tensor_handles *handles)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < handles->header.tensors_count; i++) {
        const struct tdm__tensor_record *record = &handles->tensors[i];
        uint64_t elements = record->offset + 1;

        for (uint32_t dim = 0; dim < record->dims_count; dim++) {
            elements += (record->shape[dim] - 1) * record->stride[dim];
        }
        elements *= tdm_dtype_bytes((enum tdm_dtype)record->dtype);
        end = elements > end ? elements : end;
    }
    return end;
}

/* What each description of an arriving bucket is checked against. */
struct arrival_check {
    const struct tdm__receiver *receiver;
    const struct tdm__bucket_arrival *arrival;
};

/* Checks one description of a bucket: that its tensors are the manifest's, and that its storages
 * can be read. They are on this rank's GPU, or another one of its node if the rank may read that,
 * or have arrived in its memory. */
static tdm_status check_description(const void *arg, const struct tdm__tensor_handles *handles)
{
    const struct arrival_check *check = arg;
    const struct tdm__receiver_options *options = &check->receiver->options;
    bool is_received = check->arrival->source != NULL;

    if (handles->header.storages_count != 1 && is_received) {
        return FAIL_AS_DEFECT(TDM_E_PROTOCOL,
                              "a bucket that has arrived whole has %u storages, expected 1",
                              handles->header.storages_count);
    }
    if (!is_received) {
        TDM_TRY(tdm__tensor_handles_check_location(
            handles, &options->location.node,
            options->reads_other_gpus ? NULL : &options->location.gpu));
    }
    TDM_TRY(tdm__tensor_handles_check_manifest(handles, options->manifest));
    if (handles->header.storages_count != 1 &&
        (handles->tensors[0].flags & TDM__TENSOR_SLICE) != 0) {
        return FAIL_AS_DEFECT(TDM_E_UNSUPPORTED, "a bucket of slices has %u storages, expected 1",
                              handles->header.storages_count);
    }
    if (is_received && records_end(handles) > check->arrival->source_bytes) {
        return FAIL_AS_DEFECT(TDM_E_PROTOCOL, "tensors up to byte %llu of a bucket of %zu bytes",
                              (unsigned long long)records_end(handles),
                              check->arrival->source_bytes);
    }
    return TDM_OK;
}

/* Accepts a bucket with checked tensor handles and loads its slices or whole tensors into the
 * shadow. */
static tdm_status stage_checked(struct tdm__receiver *receiver,
                                const struct tdm__bucket_arrival *arrival,
                                const struct tdm__tensor_handles *handles)
{
    TDM_TRY(check_shadow_resident(receiver));
    TDM_TRY(accept_update(receiver, &handles->header.update, handles->header.epoch));
    if (arrival->accepted != NULL) {
        TDM_TRY(arrival->accepted(arrival->arg, &handles->header));
    }
    return (handles->tensors[0].flags & TDM__TENSOR_SLICE) != 0
               ? stage_slices(receiver, handles, arrival->source)
               : stage_whole_tensors(receiver, handles, arrival->source);
}

tdm_status tdm__receiver_stage_arrival(struct tdm__receiver *receiver,
                                       const struct tdm__bucket_arrival *arrival)
{
    const struct arrival_check check = {receiver, arrival};
    struct tdm__tensor_handles handles;
    tdm_status status;

    TDM_TRY(tdm__merged_handles_decode(arrival->descriptions, arrival->descriptions_count,
                                       check_description, &check, &handles));
    receiver->staged_bytes = staged_tensor_bytes(&handles);
    status = stage_checked(receiver, arrival, &handles);
    tdm__tensor_handles_fini(&handles);
    return arrival->descriptions_count == 1
               ? tdm__merged_handles_wrap(arrival->descriptions[0].writer, status)
               : status;
}

tdm_status tdm__receiver_stage_bucket(struct tdm__receiver *receiver, struct tdm_bytes bytes)
{
    return tdm__receiver_stage_bucket_from(receiver, bytes, NULL, 0);
}

tdm_status tdm__receiver_stage_bucket_from(struct tdm__receiver *receiver, struct tdm_bytes bytes,
                                           const char *source, size_t source_bytes)
{
    const struct tdm__bucket_description description = {TDM__WRITER_UNKNOWN, bytes};
    const struct tdm__bucket_arrival arrival = {.descriptions = &description,
                                                .descriptions_count = 1,
                                                .source = source,
                                                .source_bytes = source_bytes};

    return tdm__receiver_stage_arrival(receiver, &arrival);
}

/* ---- from a file --------------------------------------------------------------------- */

/* Prepares the view and the checksum of one tensor in the file. */
static tdm_status load_file_tensor(struct tdm__receiver *receiver, const tdm_safetensors *file,
                                   uint32_t tensor)
{
    const struct tdm_tensor_info *info = &receiver->options.manifest->tensors[tensor];
    const struct tdm_tensor_view *view = tdm_safetensors_find(file, info->name);

    if (view == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND,
                         "tensor %s is not in the file. Give the weights of this model",
                         info->name);
    }
    if (view->info.dtype != info->dtype || view->info.dims_count != info->dims_count ||
        memcmp(view->info.shape, info->shape, info->dims_count * sizeof(info->shape[0])) != 0) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "tensor %s is %s with %llu bytes in the file, expected %s with %llu bytes "
                         "in the shape of the model. Give the weights of this model",
                         info->name, tdm_dtype_name(view->info.dtype),
                         (unsigned long long)tdm_tensor_bytes(&view->info),
                         tdm_dtype_name(info->dtype), (unsigned long long)tdm_tensor_bytes(info));
    }
    receiver->views[tensor] = *view;
    receiver->sums[tensor] = tdm__checksum_tensor(view->data, tdm_tensor_bytes(info));
    return TDM_OK;
}

tdm_status tdm__receiver_stage_file(struct tdm__receiver *receiver, const struct tdm__id *update,
                                    uint64_t epoch, const char *path)
{
    uint32_t count = receiver->options.manifest->tensors_count;
    tdm_safetensors *file;
    tdm_status status;

    TDM_TRY(check_shadow_resident(receiver));
    TDM_TRY(tdm_safetensors_open(path, &file));
    status = accept_update(receiver, update, epoch);
    if (status == TDM_OK) {
        /* No tensor counts as staged until the whole file is loaded. */
        memset(receiver->staged, 0, count);
    }
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        status =
            tdm__wrap(load_file_tensor(receiver, file, i), "loading weights from %s failed", path);
    }
    if (status == TDM_OK) {
        status = load_tensors(receiver, count);
    }
    if (status == TDM_OK) {
        memset(receiver->staged, 1, count);
    }
    tdm_safetensors_close(file);
    return status;
}

/* ---- from a peer --------------------------------------------------------------------- */

/* Copies a memory block on the device and computes its checksum. Only computes the checksum if `to`
 * is NULL. */
static tdm_status move_block(const struct tdm__receiver *receiver, const void *from, void *to,
                             size_t size_bytes, uint64_t *sum_out)
{
    struct tdm__device *device = tdm__regions_device(receiver->options.regions);
    struct tdm__copy_op part = tdm__checksum_copy_op(from, size_bytes);

    part.to = to;
    return device->ops->move(device, &part, 1, sum_out);
}

tdm_status tdm__receiver_export_weights(const struct tdm__receiver *receiver,
                                        struct tdm__weight_blocks *blocks_out)
{
    const char *address = tdm_region_address(receiver->options.weights);
    struct tdm__weight_blocks shown;
    struct tdm__block *const *blocks = tdm__region_blocks(receiver->options.weights, &shown.count);

    for (uint32_t i = 0; i < shown.count; i++) {
        shown.keys[i] = blocks[i]->key;
        TDM_TRY(move_block(receiver, address, NULL, blocks[i]->size_bytes, &shown.sums[i]));
        address += blocks[i]->size_bytes;
    }
    *blocks_out = shown;
    return TDM_OK;
}

/* Copies one block of a peer's weights to `address` and compares its checksum. */
static tdm_status pull_block(struct tdm__receiver *receiver, const struct tdm__block *to,
                             const struct tdm__id *key, uint64_t sum, char *address)
{
    const struct imported_block *import;
    uint64_t found;

    TDM_TRY(import_block(receiver, key, &import));
    if (import->block->size_bytes != to->size_bytes) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "copying another engine's weights failed: its block has %zu bytes, here "
                         "it has %zu. Give all engines the same layout",
                         import->block->size_bytes, to->size_bytes);
    }
    TDM_TRY(move_block(receiver, import->address, address, to->size_bytes, &found));
    return found == sum
               ? TDM_OK
               : tdm__fail(TDM_E_CHECKSUM,
                           "copying another engine's weights failed: a block has the checksum "
                           "%016llx, expected %016llx. If it has a new version, copy again",
                           (unsigned long long)found, (unsigned long long)sum);
}

/* Forgets what an update has staged in the weights, because a peer's weights are copied over it. */
static void void_staged(struct tdm__receiver *receiver)
{
    (void)tdm__replay_guard_abort(&receiver->guard, receiver->guard.epoch);
    memset(receiver->staged, 0, receiver->options.manifest->tensors_count);
    if (receiver->tensor_slices != NULL) {
        tdm__tensor_slices_begin_update(receiver->tensor_slices);
    }
    release_imports(receiver);
    receiver->is_torn = true;
}

tdm_status tdm__receiver_pull_weights(struct tdm__receiver *receiver,
                                      const struct tdm__weight_blocks *blocks)
{
    char *address = tdm_region_address(receiver->options.weights);
    uint32_t count;
    struct tdm__block *const *own = tdm__region_blocks(receiver->options.weights, &count);
    tdm_status status = TDM_OK;

    if (count == 0 || count != blocks->count) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "copying another engine's weights failed: it has %u blocks, here are %u. "
                         "Give all engines the same layout",
                         blocks->count, count);
    }
    if (receiver->options.overwrites) {
        void_staged(receiver);
    }
    receiver->options.ops->begin(receiver->options.state);
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        status = pull_block(receiver, own[i], &blocks->keys[i], blocks->sums[i], address);
        address += own[i]->size_bytes;
    }
    release_imports(receiver);
    return status;
}

void tdm__receiver_join(struct tdm__receiver *receiver, uint64_t epoch)
{
    (void)tdm__replay_guard_abort(&receiver->guard, epoch);
    receiver->is_torn = false;
}

/* ---- vote, flip, drop ---------------------------------------------------------------- */

tdm_status tdm__receiver_prepare_slices(struct tdm__receiver *receiver,
                                        const struct tdm__id *update)
{
    TDM_TRY(tdm__replay_guard_check_vote(&receiver->guard, update));
    if (!receiver->has_slices) {
        return tdm__fail(TDM_E_STATE, "voting for a weight update failed: no slices have been "
                                      "received. Send its buckets before the vote");
    }
    TDM_TRY(tdm__tensor_slices_check_complete(receiver->tensor_slices));
    tdm__replay_guard_vote(&receiver->guard);
    receiver->was_verified = true;
    return TDM_OK;
}

tdm_status tdm__receiver_prepare_sent(struct tdm__receiver *receiver, const struct tdm__id *update,
                                      const struct tdm__resume_log *sent)
{
    struct tdm__resume_log here;

    TDM_TRY(tdm__replay_guard_check_vote(&receiver->guard, update));
    if (receiver->tensor_slices == NULL) {
        return tdm__fail(TDM_E_STATE, "receiving weights failed: slices of tensors came for an "
                                      "engine without a layout. " TDM__REMEDY_DEFECT);
    }
    here = tdm__tensor_slices_resume_log(receiver->tensor_slices, false);
    if (!tdm__resume_log_equal(&here, sent)) {
        return tdm__fail(TDM_E_CHECKSUM,
                         "voting for a weight update failed: this rank has %u buckets with the "
                         "sums %016llx, the trainers sent %u with %016llx. " TDM__REMEDY_SEND_AGAIN,
                         here.next, (unsigned long long)here.sums.low, sent->next,
                         (unsigned long long)sent->sums.low);
    }
    return tdm__receiver_prepare_slices(receiver, update);
}

tdm_status tdm__receiver_prepare(struct tdm__receiver *receiver, const struct tdm__id *update,
                                 struct tdm__hash *hash_out)
{
    const struct tdm__manifest *manifest = receiver->options.manifest;

    TDM_TRY(tdm__replay_guard_check_vote(&receiver->guard, update));
    for (uint32_t i = 0; i < manifest->tensors_count; i++) {
        if (receiver->staged[i] == 0) {
            return tdm__fail(
                TDM_E_STATE,
                "voting for a weight update failed: tensor %s has not arrived. Send it first",
                manifest->tensors[i].name);
        }
    }
    TDM_TRY(receiver->options.ops->complete(receiver->options.state));
    tdm__replay_guard_vote(&receiver->guard);
    *hash_out =
        tdm__checksum_contents_hash(&manifest->hash, receiver->sums, manifest->tensors_count);
    return TDM_OK;
}

/* Releases what an update used: the mapped memory blocks of senders and the shadow's memory. The
 * weights keep theirs. */
static tdm_status end_update(struct tdm__receiver *receiver)
{
    release_imports(receiver);
    if (receiver->tensor_slices != NULL) {
        /* The shadow's memory is gone, or served, so no slice counts as received any more. */
        tdm__tensor_slices_begin_update(receiver->tensor_slices);
    }
    return receiver->shadow != NULL && tdm_region_is_resident(receiver->shadow)
               ? tdm_region_pause(receiver->shadow)
               : TDM_OK;
}

tdm_status tdm__receiver_flip_shadow(struct tdm__receiver *receiver, const struct tdm__id *update)
{
    struct tdm__replay_guard flipped = receiver->guard;
    bool swap;

    TDM_TRY(tdm__replay_guard_flip(&flipped, update, &swap));
    if (swap && receiver->shadow != NULL) {
        TDM_TRY(tdm__region_swap(receiver->options.weights, receiver->shadow));
    }
    receiver->guard = flipped;
    receiver->is_torn = false;
    return end_update(receiver);
}

tdm_status tdm__receiver_drop_shadow(struct tdm__receiver *receiver, uint64_t epoch)
{
    return tdm__replay_guard_abort(&receiver->guard, epoch) ? end_update(receiver) : TDM_OK;
}

const uint64_t *tdm__receiver_tensor_sums(const struct tdm__receiver *receiver)
{
    return receiver->has_slices ? NULL : receiver->sums;
}

bool tdm__receiver_has_voted(const struct tdm__receiver *receiver)
{
    return receiver->guard.phase == TDM__REPLAY_GUARD_VOTED;
}
