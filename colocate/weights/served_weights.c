/* served_weights.c - checksums of the weights that an engine rank serves, to find a tensor that
 * differs from what its update wrote. */
/* SPDX-License-Identifier: Apache-2.0 */

/* When a version becomes live, its bytes have been compared with the senders' checksums. The
 * checksums that are recorded then are the reference for a later comparison: one for each slice of
 * the rank's layout and one for its FP8 scales. A rank without a layout has copied whole tensors in
 * a way that only its library knows. Its reference is the sender's checksum of each tensor, which
 * what the library says that it serves is compared with, and one checksum of the whole region.
 *
 * A comparison looks at two places: the region with the weights, and the copies from which the
 * library computes, if its function served() gives them. The receiver's thread is the only one that
 * enters. */
#include "colocate/weights/served_weights.h"

#include "colocate/weights/checksum.h"
#include "colocate/weights/convert.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one recorded checksum is of. */
struct served_range {
    uint32_t slice; /* Index of the slice in the layout; 0 without a layout. */
    bool is_scales; /* True for the FP8 scales of the slice, false for its elements. */
};

/* Checksums of one engine rank's weights. The engine actor owns it. */
struct tdm__served_weights {
    struct tdm__served_weights_options options; /* Arguments of the creation. */
    /* What each recorded checksum is of; owned. Without a layout it is one, the whole region. */
    struct served_range *ranges;
    uint32_t ranges_count;        /* Number of recorded checksums. */
    struct tdm__copy_op *sum_ops; /* Operations that compute a checksum of each range; owned. */
    uint64_t *recorded_sums;      /* Recorded checksum of each range; owned. */
    /* Without a layout the checksum of each tensor as the update sent it; owned. */
    uint64_t *tensor_sums;
    bool has_tensor_sums; /* True if `tensor_sums` is filled. */
    bool is_recorded;     /* True once a version was recorded. */
};

/* Returns true if the rank has a layout. */
static bool has_layout(const struct tdm__served_weights *served)
{
    return served->options.layout.slices_count > 0;
}

/* Appends a range. */
static void push_range(struct tdm__served_weights *served, struct served_range range,
                       const void *data, size_t size_bytes)
{
    served->ranges[served->ranges_count] = range;
    served->sum_ops[served->ranges_count++] = tdm__checksum_copy_op(data, size_bytes);
}

/* Lists the ranges whose checksums are recorded. */
static void list_ranges(struct tdm__served_weights *served)
{
    const struct tdm__served_weights_options *options = &served->options;

    if (!has_layout(served)) {
        push_range(served, (struct served_range){.slice = 0}, tdm_region_address(options->weights),
                   tdm_region_size(options->weights));
    }
    for (uint32_t i = 0; i < options->layout.slices_count; i++) {
        const struct tdm_slice *slice = &options->layout.slices[i];
        uint64_t scales_bytes =
            tdm__slice_scales_bytes(&options->manifest->tensors[slice->tensor], slice);

        push_range(served, (struct served_range){.slice = i}, slice->address,
                   tdm__slice_bytes(options->manifest, slice));
        if (scales_bytes > 0) {
            push_range(served, (struct served_range){.slice = i, .is_scales = true}, slice->scales,
                       scales_bytes);
        }
    }
}

tdm_status tdm__served_weights_create(const struct tdm__served_weights_options *options,
                                      struct tdm__served_weights **served_out)
{
    struct tdm__served_weights *served = calloc(1, sizeof(*served));
    size_t ranges_max = (size_t)2 * options->layout.slices_count + 1;

    if (served == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating checksums of the weights failed: out of memory");
    }
    served->options = *options;
    served->ranges = calloc(ranges_max, sizeof(*served->ranges));
    served->sum_ops = calloc(ranges_max, sizeof(*served->sum_ops));
    served->recorded_sums = calloc(ranges_max, sizeof(*served->recorded_sums));
    served->tensor_sums =
        calloc((size_t)options->manifest->tensors_count + 1, sizeof(*served->tensor_sums));
    if (served->ranges == NULL || served->sum_ops == NULL || served->recorded_sums == NULL ||
        served->tensor_sums == NULL) {
        tdm__served_weights_destroy(served);
        return tdm__fail(TDM_E_NOMEM, "allocating checksums of %u slices failed: out of memory",
                         options->layout.slices_count);
    }
    list_ranges(served);
    *served_out = served;
    return TDM_OK;
}

void tdm__served_weights_destroy(struct tdm__served_weights *served)
{
    if (served != NULL) {
        free(served->ranges);
        free(served->sum_ops);
        free(served->recorded_sums);
        free(served->tensor_sums);
        free(served);
    }
}

tdm_status tdm__served_weights_record(struct tdm__served_weights *served,
                                      const uint64_t *tensor_sums)
{
    struct tdm__device *device = served->options.device;

    served->is_recorded = false;
    served->has_tensor_sums = !has_layout(served) && tensor_sums != NULL;
    if (served->has_tensor_sums) {
        memcpy(served->tensor_sums, tensor_sums,
               served->options.manifest->tensors_count * sizeof(*tensor_sums));
    }
    TDM_TRY(
        device->ops->move(device, served->sum_ops, served->ranges_count, served->recorded_sums));
    served->is_recorded = true;
    return TDM_OK;
}

/* ---- compare ------------------------------------------------------------------------- */

/* Notes that a tensor differs, unless an earlier one is known to. `name` is what the engine calls
 * it, and `what` says where its bytes are, for example "its part of the region \"weights\"". */
static void note_difference(struct tdm__served_difference *difference, uint32_t tensor,
                            const char *name, const char *what, const uint64_t sums[2])
{
    if (tensor >= difference->tensor) {
        return;
    }
    difference->tensor = tensor;
    (void)snprintf(difference->text, sizeof(difference->text),
                   "the first tensor that differs is %s: %s has the checksum %016" PRIx64
                   ", the update wrote %016" PRIx64,
                   name, what, sums[0], sums[1]);
}

/* Compares the region with the recorded checksums. Sets `is_changed_out` if a region without a
 * layout has changed, so that no tensor can be named. */
static tdm_status compare_region(const struct tdm__served_weights *served,
                                 struct tdm__served_difference *difference, bool *is_changed_out)
{
    struct tdm__device *device = served->options.device;
    uint64_t *sums = calloc(served->ranges_count, sizeof(*sums));
    tdm_status status =
        sums == NULL
            ? tdm__fail(TDM_E_NOMEM, "allocating checksums of the weights failed: out of memory")
            : device->ops->move(device, served->sum_ops, served->ranges_count, sums);

    *is_changed_out = false;
    for (uint32_t i = 0; i < served->ranges_count && status == TDM_OK; i++) {
        const uint64_t both[] = {sums[i], served->recorded_sums[i]};
        uint32_t tensor;

        if (both[0] == both[1]) {
            continue;
        }
        *is_changed_out = true;
        if (has_layout(served)) {
            tensor = served->options.layout.slices[served->ranges[i].slice].tensor;
            note_difference(difference, tensor, served->options.manifest->tensors[tensor].name,
                            !served->ranges[i].is_scales ? "its part of the region \"weights\""
                                                         : "its scales",
                            both);
        }
    }
    free(sums);
    return status;
}

/* Notes that a copy of a tensor differs, which the engine calls `name`. */
static void note_copy(struct tdm__served_difference *difference, uint32_t tensor, const char *name,
                      const struct tdm_tensor_info *info, const uint64_t sums[2])
{
    char what[160];

    if (strcmp(name, info->name) == 0) {
        note_difference(difference, tensor, name, "the copy from which the engine computes", sums);
        return;
    }
    (void)snprintf(what, sizeof(what), "the copy of %s from which the engine computes", info->name);
    note_difference(difference, tensor, name, what, sums);
}

/* Asks the library what it really serves of a tensor, and compares that with the checksum
 * `expected`. `slice` is NULL without a layout. Adds 1 to `compared` if the library has a copy. */
static tdm_status compare_copy(const struct tdm__served_weights *served, uint32_t tensor,
                               const struct tdm_slice *slice, uint64_t expected,
                               struct tdm__served_difference *difference, uint32_t *compared)
{
    const struct tdm__manifest *manifest = served->options.manifest;
    const struct tdm_tensor_info *info = &manifest->tensors[tensor];
    size_t size_bytes =
        (size_t)(slice == NULL ? tdm_tensor_bytes(info) : tdm__slice_bytes(manifest, slice));
    void *data = calloc(1, size_bytes + 1);
    uint64_t both[] = {0, expected};
    const char *name = info->name;
    tdm_status status;

    if (data == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating %zu bytes of the tensor %s failed: out of memory",
                         size_bytes, info->name);
    }
    status =
        served->options.ops->served(served->options.state, info, slice, data, size_bytes, &name);
    if (status == TDM_OK) {
        both[0] = tdm__checksum_tensor(data, size_bytes);
        (*compared)++;
        if (both[0] != both[1]) {
            note_copy(difference, tensor, name, info, both);
        }
    }
    free(data);
    return status == TDM_E_NOT_FOUND
               ? TDM_OK
               : tdm__wrap(status, "comparing the served weights failed: served(\"%s\")",
                           info->name);
}

/* Compares the copies from which the library computes. */
static tdm_status compare_copies(const struct tdm__served_weights *served,
                                 struct tdm__served_difference *difference, uint32_t *compared)
{
    const struct tdm__layout *layout = &served->options.layout;

    *compared = 0;
    if (served->options.ops->served == NULL) {
        return TDM_OK;
    }
    for (uint32_t i = 0; has_layout(served) && i < served->ranges_count; i++) {
        const struct tdm_slice *slice = &layout->slices[served->ranges[i].slice];

        if (!served->ranges[i].is_scales) {
            TDM_TRY(compare_copy(served, slice->tensor, slice, served->recorded_sums[i], difference,
                                 compared));
        }
    }
    for (uint32_t i = 0; served->has_tensor_sums && i < served->options.manifest->tensors_count;
         i++) {
        TDM_TRY(compare_copy(served, i, NULL, served->tensor_sums[i], difference, compared));
    }
    return TDM_OK;
}

uint32_t tdm__served_weights_converted(const struct tdm__manifest *manifest,
                                       const struct tdm__layout *layout)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < layout->slices_count; i++) {
        const struct tdm_slice *slice = &layout->slices[i];
        const struct tdm_tensor_info *tensor = &manifest->tensors[slice->tensor];

        count += tdm__slice_dtype(tensor, slice) == tensor->dtype ? 0 : 1;
    }
    return count;
}

/* Writes what may be the cause although no tensor is known to differ. `compared` is the number of
 * copies that the library has shown. */
static void describe_cause(const struct tdm__served_weights *served, uint32_t compared,
                           char text[200])
{
    uint32_t converted =
        tdm__served_weights_converted(served->options.manifest, &served->options.layout);

    if (converted > 0) {
        (void)snprintf(text, 200,
                       "it keeps %u of them in another dtype than the trainer, which needs a "
                       "larger tolerance (update.logprob_tolerance_converted)",
                       converted);
    } else if (compared > 0) {
        (void)snprintf(text, 200, "so are the %u copies that it computes from", compared);
    } else {
        (void)snprintf(text, 200,
                       "it may compute from a copy that it has not renewed, which a function "
                       "served() of its library would show");
    }
}

/* Says what was compared without finding a tensor that differs. */
static void describe_equal(const struct tdm__served_weights *served, bool is_changed,
                           uint32_t compared, struct tdm__served_difference *difference)
{
    char cause[200];

    describe_cause(served, compared, cause);
    if (is_changed) {
        (void)snprintf(difference->text, sizeof(difference->text),
                       "the region \"weights\" has changed since the update; no tensor can be "
                       "named, because the engine has no layout");
    } else if (!has_layout(served)) {
        (void)snprintf(difference->text, sizeof(difference->text),
                       "no tensor is known to differ: the region \"weights\" is as after the "
                       "update; %s",
                       cause);
    } else {
        (void)snprintf(difference->text, sizeof(difference->text),
                       "no tensor differs: all %u slices in the region \"weights\" are as the "
                       "update wrote them; %s",
                       served->options.layout.slices_count, cause);
    }
}

tdm_status tdm__served_weights_compare(const struct tdm__served_weights *served,
                                       struct tdm__served_difference *difference_out)
{
    uint32_t compared;
    bool is_changed;

    *difference_out = (struct tdm__served_difference){.tensor = UINT32_MAX};
    if (!served->is_recorded) {
        return tdm__fail(TDM_E_STATE,
                         "comparing the served weights failed: no version of the weights has "
                         "become live here. Compare after the first update");
    }
    TDM_TRY(compare_region(served, difference_out, &is_changed));
    TDM_TRY(compare_copies(served, difference_out, &compared));
    if (difference_out->tensor == UINT32_MAX) {
        describe_equal(served, is_changed, compared, difference_out);
    }
    return TDM_OK;
}
