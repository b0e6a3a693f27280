/* bucket.c - cuts a model into buckets of whole tensors, which all ranks fill together. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Compilation cuts the manifest into buckets and turns each rank's slices into runs in bucket
 * order. Then it checks that the runs of all ranks cover every byte exactly once. A slice
 * that is a box becomes runs of its contiguous inner dimensions; neighbouring runs are merged. The
 * result depends only on the manifest and the layouts, so every rank compiles the same plan.
 * Replaying (pack and unpack) only lists copy operations; the caller runs them on its device.
 * tdm__bucket_describe() tells readers where each tensor of a filled bucket lies. There are no
 * locks: a plan is read-only after its creation. */

#include "colocate/weights/bucket.h"

#include "colocate/weights/replicas.h"
#include "colocate/weights/tensor.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* State of one compilation; it lives on the stack of tdm__bucket_plan_create(). */
struct bucket_compiler {
    /* Tensors of the model that is cut into buckets; borrowed. */
    const struct tdm__manifest *manifest;
    /* Which tensor slices each rank holds, one layout for each rank; borrowed. */
    const struct tdm__layout *layouts;
    /* Bucket plan that is being built; the caller of the compiler gets it. */
    struct tdm__bucket_plan *plan;
    /* Slice indices of the rank whose runs are being added, sorted by tensor. Owned. */
    uint32_t *order;
    struct tdm__replicas replicas; /* Which ranks hold equal slices; owned. */
    uint32_t runs_capacity;        /* Number of runs for which the array plan->runs has room. */
};

/* Rounds an offset in a bucket, in bytes, up to TDM__BUCKET_ALIGNMENT. */
static uint64_t align_up(uint64_t offset)
{
    return (offset + TDM__BUCKET_ALIGNMENT - 1) & ~(uint64_t)(TDM__BUCKET_ALIGNMENT - 1);
}

/* ---- cutting ------------------------------------------------------------------------- */

/* Cuts the manifest's list of tensors into buckets and keeps its order. */
static tdm_status cut_buckets(struct bucket_compiler *compiler,
                              const struct tdm__bucket_options *options)
{
    const struct tdm__manifest *manifest = compiler->manifest;
    struct tdm__bucket_plan *plan = compiler->plan;
    struct tdm__bucket *bucket = NULL;

    for (uint32_t i = 0; i < manifest->tensors_count; i++) {
        uint64_t tensor_bytes = tdm_tensor_bytes(&manifest->tensors[i]);
        uint64_t offset = bucket == NULL ? 0 : align_up(bucket->size_bytes);

        if (tensor_bytes > options->capacity_bytes) {
            return tdm__fail(TDM_E_BUDGET,
                             "tensor %s has %" PRIu64 " bytes, the staging memory %" PRIu64,
                             manifest->tensors[i].name, tensor_bytes, options->capacity_bytes);
        }
        if (bucket == NULL || offset + tensor_bytes > options->bucket_bytes) {
            bucket = &plan->buckets[plan->buckets_count++];
            bucket->tensors_first = i;
            offset = 0;
        }
        plan->tensor_offsets[i] = offset;
        bucket->tensors_count++;
        bucket->size_bytes = offset + tensor_bytes;
        if (plan->bucket_bytes_max < bucket->size_bytes) {
            plan->bucket_bytes_max = bucket->size_bytes;
        }
    }
    return TDM_OK;
}

/* ---- runs ---------------------------------------------------------------------------- */

/* Appends a run to a rank's segment. Extends the last run instead if the new one continues it in
 * the slice, in the segment and in the bucket. */
static tdm_status add_run(struct bucket_compiler *compiler, struct tdm__bucket_segment *segment,
                          struct tdm__bucket_run run)
{
    struct tdm__bucket_plan *plan = compiler->plan;
    struct tdm__bucket_run *last =
        segment->runs_count == 0 ? NULL : &plan->runs[plan->runs_count - 1];

    run.segment_offset = segment->size_bytes;
    segment->size_bytes += run.size_bytes;
    if (last != NULL && last->slice == run.slice &&
        last->slice_offset + last->size_bytes == run.slice_offset &&
        last->bucket_offset + last->size_bytes == run.bucket_offset) {
        last->size_bytes += run.size_bytes;
        return TDM_OK;
    }
    if (plan->runs_count == compiler->runs_capacity) {
        uint32_t capacity = compiler->runs_capacity == 0 ? 1024 : compiler->runs_capacity * 2;
        struct tdm__bucket_run *runs = NULL;

        if (capacity <= (uint32_t)1 << 30) {
            runs = reallocarray(plan->runs, capacity, sizeof(*runs));
        }
        if (runs == NULL) {
            return tdm__fail(TDM_E_NOMEM, "a plan of more than %" PRIu32 " runs", plan->runs_count);
        }
        plan->runs = runs;
        compiler->runs_capacity = capacity;
    }
    TDM_ASSERT(plan->runs != NULL);
    plan->runs[plan->runs_count++] = run;
    segment->runs_count++;
    return TDM_OK;
}

/* Appends the runs of a slice that is a box (a range in each dimension). The trailing dimensions
 * that the box covers fully, and the one before them, are contiguous in the tensor; the dimensions
 * before those are counted like an odometer. */
static tdm_status add_box(struct bucket_compiler *compiler, struct tdm__bucket_segment *segment,
                          uint32_t slice_index, const struct tdm_slice *slice)
{
    const struct tdm_tensor_info *tensor = &compiler->manifest->tensors[slice->tensor];
    uint64_t element_bytes = tdm_dtype_bytes(tensor->dtype);
    /* Distance in elements between neighbours in each dimension of the tensor. */
    uint64_t step[TDM_DIMS_MAX] = {0};
    uint64_t at[TDM_DIMS_MAX] = {0};
    uint64_t inner = 1;
    uint32_t outer = tensor->dims_count;
    struct tdm__bucket_run run = {.slice = slice_index, .tensor = slice->tensor};
    bool full = true;

    for (uint32_t i = tensor->dims_count, next = 1; i-- > 0; next = 0) {
        step[i] = next == 1 ? 1 : step[i + 1] * tensor->shape[i + 1];
        if (full) {
            inner *= slice->extent[i];
            outer = i;
            full = slice->extent[i] == tensor->shape[i];
        }
    }
    run.size_bytes = inner * element_bytes;
    for (bool more = true; more;) {
        uint64_t element = 0;

        for (uint32_t i = 0; i < tensor->dims_count; i++) {
            element += (slice->offset[i] + at[i]) * step[i];
        }
        run.bucket_offset = compiler->plan->tensor_offsets[slice->tensor] + element * element_bytes;
        TDM_TRY(add_run(compiler, segment, run));
        run.slice_offset += run.size_bytes;
        more = false;
        for (uint32_t i = outer; i-- > 0 && !more;) {
            at[i] = at[i] + 1 < slice->extent[i] ? at[i] + 1 : 0;
            more = at[i] != 0;
        }
    }
    return TDM_OK;
}

/* Appends the runs of one tensor slice, which is a box or a flat range of elements. */
static tdm_status add_slice(struct bucket_compiler *compiler, struct tdm__bucket_segment *segment,
                            uint32_t slice_index, const struct tdm_slice *slice)
{
    uint64_t element_bytes = tdm_dtype_bytes(compiler->manifest->tensors[slice->tensor].dtype);

    if (slice->flat == 0) {
        return add_box(compiler, segment, slice_index, slice);
    }
    return add_run(compiler, segment,
                   (struct tdm__bucket_run){
                       .slice = slice_index,
                       .tensor = slice->tensor,
                       .bucket_offset = compiler->plan->tensor_offsets[slice->tensor] +
                                        slice->offset[0] * element_bytes,
                       .size_bytes = slice->extent[0] * element_bytes,
                   });
}

/* Orders slice indices by tensor and then by index, for qsort_r(). */
static int compare_slices(const void *a, const void *b, void *arg)
{
    const struct tdm_slice *slices = arg;
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;

    if (slices[left].tensor != slices[right].tensor) {
        return slices[left].tensor < slices[right].tensor ? -1 : 1;
    }
    return left < right ? -1 : left > right;
}

/* Adds the runs that one rank contributes to one bucket. Of equal slices one rank contributes
 * its own. `cursor` is the position in the rank's
 * sorted slices; it advances from bucket to bucket. */
static tdm_status add_segment(struct bucket_compiler *compiler, struct tdm__bucket *bucket,
                              struct tdm__bucket_segment *segment, uint32_t rank, uint32_t *cursor)
{
    const struct tdm__layout *layout = &compiler->layouts[rank];
    uint32_t tensors_end = bucket->tensors_first + bucket->tensors_count;

    segment->runs_first = compiler->plan->runs_count;
    while (*cursor < layout->slices_count) {
        uint32_t index = compiler->order[*cursor];

        if (layout->slices[index].tensor >= tensors_end) {
            break;
        }
        if (tdm__replicas_sends(&compiler->replicas, rank, index)) {
            TDM_TRY(add_slice(compiler, segment, index, &layout->slices[index]));
        }
        (*cursor)++;
    }
    if (bucket->segment_bytes_max < segment->size_bytes) {
        bucket->segment_bytes_max = segment->size_bytes;
    }
    if (compiler->plan->segment_bytes_max < segment->size_bytes) {
        compiler->plan->segment_bytes_max = segment->size_bytes;
    }
    return TDM_OK;
}

/* Sorts the indices of a rank's slices by tensor. */
static tdm_status sort_slices(struct bucket_compiler *compiler, const struct tdm__layout *layout)
{
    free(compiler->order);
    compiler->order = calloc(layout->slices_count + (size_t)1, sizeof(compiler->order[0]));
    if (compiler->order == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%" PRIu32 " slices to sort", layout->slices_count);
    }
    for (uint32_t i = 0; i < layout->slices_count; i++) {
        compiler->order[i] = i;
    }
    qsort_r(compiler->order, layout->slices_count, sizeof(compiler->order[0]), compare_slices,
            (void *)layout->slices);
    return TDM_OK;
}

/* Adds one rank's runs to all buckets. */
static tdm_status add_rank(struct bucket_compiler *compiler, uint32_t rank)
{
    const struct tdm__layout *layout = &compiler->layouts[rank];
    struct tdm__bucket_plan *plan = compiler->plan;
    uint32_t cursor = 0;

    TDM_TRY(sort_slices(compiler, layout));
    for (uint32_t b = 0; b < plan->buckets_count; b++) {
        struct tdm__bucket_segment *segment = &plan->segments[(size_t)b * plan->ranks_count + rank];

        TDM_TRY(add_segment(compiler, &plan->buckets[b], segment, rank, &cursor));
    }
    return TDM_OK;
}

/* ---- coverage ------------------------------------------------------------------------ */

/* A run of a bucket and the rank that has it, for the check of coverage. */
struct slice_claim {
    uint64_t begin;  /* Offset of the run's first byte in the bucket, in bytes. */
    uint64_t end;    /* Offset after the run's last byte in the bucket, in bytes. */
    uint32_t tensor; /* Index in the manifest of the tensor to which the run belongs. */
    uint32_t rank;   /* Rank whose slice contains the run. */
};

/* Orders slice claims by their offset in the bucket and then by rank, for qsort(). */
static int compare_claims(const void *a, const void *b)
{
    const struct slice_claim *left = a;
    const struct slice_claim *right = b;

    if (left->begin != right->begin) {
        return left->begin < right->begin ? -1 : 1;
    }
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Lists the runs of all ranks in one bucket, sorted by offset, and returns their number. */
static uint32_t list_claims(const struct tdm__bucket_plan *plan, uint32_t bucket,
                            struct slice_claim *claims)
{
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < plan->ranks_count; rank++) {
        const struct tdm__bucket_segment *segment = tdm__bucket_find_segment(plan, bucket, rank);

        for (uint32_t i = 0; i < segment->runs_count; i++) {
            const struct tdm__bucket_run *run = &plan->runs[segment->runs_first + i];

            claims[count++] = (struct slice_claim){.begin = run->bucket_offset,
                                                   .end = run->bucket_offset + run->size_bytes,
                                                   .tensor = run->tensor,
                                                   .rank = rank};
        }
    }
    qsort(claims, count, sizeof(*claims), compare_claims);
    return count;
}

/* Returns the error for a range of a tensor's elements that no rank holds. */
static tdm_status gap_error(const struct bucket_compiler *compiler, uint32_t tensor, uint64_t begin,
                            uint64_t end)
{
    const struct tdm_tensor_info *info = &compiler->manifest->tensors[tensor];
    uint64_t offset = compiler->plan->tensor_offsets[tensor];
    uint64_t element_bytes = tdm_dtype_bytes(info->dtype);

    return tdm__fail(
        TDM_E_INVAL, "tensor %s: elements %" PRIu64 " to %" PRIu64 " are in no rank's slices",
        info->name, (begin - offset) / element_bytes, (end - offset) / element_bytes - 1);
}

/* Returns the error for elements that the slices of two claims both contain. */
static tdm_status overlap_error(const struct bucket_compiler *compiler,
                                const struct slice_claim *first, const struct slice_claim *second)
{
    const struct tdm_tensor_info *info = &compiler->manifest->tensors[second->tensor];
    uint64_t offset = compiler->plan->tensor_offsets[second->tensor];
    uint64_t element_bytes = tdm_dtype_bytes(info->dtype);
    uint64_t end = first->end < second->end ? first->end : second->end;

    return tdm__fail(TDM_E_INVAL,
                     "tensor %s: elements %" PRIu64 " to %" PRIu64 " are in slices of rank %" PRIu32
                     " and of rank %" PRIu32,
                     info->name, (second->begin - offset) / element_bytes,
                     (end - offset) / element_bytes - 1, first->rank, second->rank);
}

/* Checks that the ranks' slices cover the tensors of one bucket. Each claim must begin where the
 * claim before ended. */
static tdm_status check_bucket(const struct bucket_compiler *compiler,
                               const struct tdm__bucket *bucket, const struct slice_claim *claims,
                               uint32_t claims_count)
{
    uint32_t next = 0;

    for (uint32_t i = 0; i < bucket->tensors_count; i++) {
        uint32_t tensor = bucket->tensors_first + i;
        uint64_t at = compiler->plan->tensor_offsets[tensor];
        uint64_t end = at + tdm_tensor_bytes(&compiler->manifest->tensors[tensor]);

        for (; next < claims_count && claims[next].tensor == tensor; next++) {
            if (claims[next].begin > at) {
                return gap_error(compiler, tensor, at, claims[next].begin);
            }
            if (claims[next].begin < at) {
                return overlap_error(compiler, &claims[next - 1], &claims[next]);
            }
            at = claims[next].end;
        }
        if (at < end) {
            return gap_error(compiler, tensor, at, end);
        }
    }
    TDM_ASSERT(next == claims_count);
    return TDM_OK;
}

/* Checks for every bucket that the ranks' slices cover its tensors exactly once. */
static tdm_status check_coverage(const struct bucket_compiler *compiler)
{
    const struct tdm__bucket_plan *plan = compiler->plan;
    struct slice_claim *claims = calloc(plan->runs_count + (size_t)1, sizeof(*claims));
    tdm_status status = TDM_OK;

    if (claims == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%" PRIu32 " runs to check", plan->runs_count);
    }
    for (uint32_t b = 0; b < plan->buckets_count && status == TDM_OK; b++) {
        uint32_t count = list_claims(plan, b, claims);

        status = check_bucket(compiler, &plan->buckets[b], claims, count);
    }
    free(claims);
    return status;
}

/* ---- plan ---------------------------------------------------------------------------- */

/* Runs all steps that build a bucket plan. On failure the caller frees the plan. */
static tdm_status bucket_plan_compile(struct bucket_compiler *compiler,
                                      const struct tdm__bucket_options *options)
{
    struct tdm__bucket_plan *plan = compiler->plan;

    plan->tensors_count = compiler->manifest->tensors_count;
    plan->buckets = calloc(plan->tensors_count, sizeof(plan->buckets[0]));
    plan->tensor_offsets = calloc(plan->tensors_count, sizeof(plan->tensor_offsets[0]));
    if (plan->buckets == NULL || plan->tensor_offsets == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a plan of %" PRIu32 " tensors", plan->tensors_count);
    }
    TDM_TRY(cut_buckets(compiler, options));
    TDM_ASSERT(plan->buckets_count > 0);
    plan->segments =
        calloc((size_t)plan->buckets_count * plan->ranks_count, sizeof(plan->segments[0]));
    if (plan->segments == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a plan of %" PRIu32 " buckets for %" PRIu32 " ranks",
                         plan->buckets_count, plan->ranks_count);
    }
    for (uint32_t rank = 0; rank < plan->ranks_count; rank++) {
        TDM_TRY(tdm__wrap(tdm__layout_check(&compiler->layouts[rank], compiler->manifest),
                          "rank %" PRIu32, rank));
    }
    TDM_TRY(tdm__replicas_init(compiler->manifest, compiler->layouts, plan->ranks_count,
                               &compiler->replicas));
    for (uint32_t rank = 0; rank < plan->ranks_count; rank++) {
        TDM_TRY(add_rank(compiler, rank));
    }
    return check_coverage(compiler);
}

tdm_status tdm__bucket_plan_create(const struct tdm__manifest *manifest,
                                   const struct tdm__bucket_options *options,
                                   const struct tdm__layout *layouts, uint32_t ranks_count,
                                   struct tdm__bucket_plan **plan_out)
{
    struct bucket_compiler compiler = {.manifest = manifest, .layouts = layouts};
    tdm_status status;

    if (ranks_count == 0 || options->bucket_bytes == 0 ||
        options->bucket_bytes > options->capacity_bytes) {
        return tdm__fail(TDM_E_INVAL,
                         "buckets of %" PRIu64 " bytes, staging of %" PRIu64 ", %" PRIu32 " ranks",
                         options->bucket_bytes, options->capacity_bytes, ranks_count);
    }
    compiler.plan = calloc(1, sizeof(*compiler.plan));
    if (compiler.plan == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a bucket plan");
    }
    compiler.plan->ranks_count = ranks_count;
    status = bucket_plan_compile(&compiler, options);
    free(compiler.order);
    tdm__replicas_fini(&compiler.replicas);
    if (status != TDM_OK) {
        tdm__bucket_plan_destroy(compiler.plan);
        return status;
    }
    *plan_out = compiler.plan;
    return TDM_OK;
}

void tdm__bucket_plan_destroy(struct tdm__bucket_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    free(plan->buckets);
    free(plan->tensor_offsets);
    free(plan->segments);
    free(plan->runs);
    free(plan);
}

uint32_t tdm__bucket_tensors_max(const struct tdm__bucket_plan *plan)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < plan->buckets_count; i++) {
        most = plan->buckets[i].tensors_count > most ? plan->buckets[i].tensors_count : most;
    }
    return most;
}

const struct tdm__bucket_segment *tdm__bucket_find_segment(const struct tdm__bucket_plan *plan,
                                                           uint32_t bucket, uint32_t rank)
{
    TDM_ASSERT(bucket < plan->buckets_count && rank < plan->ranks_count);
    return &plan->segments[(size_t)bucket * plan->ranks_count + rank];
}

/* ---- replay -------------------------------------------------------------------------- */

/* Returns the device operation that copies one run of `size_bytes` bytes. */
static struct tdm__copy_op run_copy_op(const void *from, void *to, size_t size_bytes)
{
    const struct tdm__strided_rows row = {.count = 1, .size_bytes = size_bytes};

    return tdm__copy_op_of_rows(&row, from, to);
}

uint32_t tdm__bucket_pack(const struct tdm__bucket_plan *plan, uint32_t bucket, uint32_t rank,
                          const struct tdm_slice *slices, void *segment,
                          struct tdm__copy_op *copy_ops)
{
    const struct tdm__bucket_segment *description = tdm__bucket_find_segment(plan, bucket, rank);

    for (uint32_t i = 0; i < description->runs_count; i++) {
        const struct tdm__bucket_run *run = &plan->runs[description->runs_first + i];
        const uint8_t *slice = slices[run->slice].address;

        copy_ops[i] = run_copy_op(slice + run->slice_offset,
                                  (uint8_t *)segment + run->segment_offset, run->size_bytes);
    }
    return description->runs_count;
}

uint32_t tdm__bucket_unpack(const struct tdm__bucket_plan *plan, uint32_t bucket, uint32_t rank,
                            const void *segment, void *image, struct tdm__copy_op *copy_ops)
{
    const struct tdm__bucket_segment *description = tdm__bucket_find_segment(plan, bucket, rank);

    for (uint32_t i = 0; i < description->runs_count; i++) {
        const struct tdm__bucket_run *run = &plan->runs[description->runs_first + i];

        copy_ops[i] = run_copy_op((const uint8_t *)segment + run->segment_offset,
                                  (uint8_t *)image + run->bucket_offset, run->size_bytes);
    }
    return description->runs_count;
}

/* ---- describe ------------------------------------------------------------------------ */

/* Fills the record that describes one tensor of a bucket, with its checksum `sum`. */
static void describe_tensor(const struct tdm__bucket_plan *plan,
                            const struct tdm__bucket_contents *contents, uint32_t tensor,
                            uint64_t sum, struct tdm__tensor_record *record)
{
    const struct tdm_tensor_info *info = &contents->manifest->tensors[tensor];

    *record = (struct tdm__tensor_record){
        .tensor = tensor,
        .dtype = (uint16_t)info->dtype,
        .dims_count = (uint8_t)info->dims_count,
        .offset = plan->tensor_offsets[tensor] / tdm_dtype_bytes(info->dtype),
        .checksum = sum,
    };
    memcpy(record->shape, info->shape, info->dims_count * sizeof(info->shape[0]));
    tdm__tensor_row_major_strides(info, record->stride);
}

size_t tdm__bucket_description_bytes_max(const struct tdm__bucket_plan *plan)
{
    const struct tdm__tensor_handles largest = {
        .header = {.storages_count = 1, .tensors_count = tdm__bucket_tensors_max(plan)}};

    return tdm__tensor_handles_bytes(&largest);
}

tdm_status tdm__bucket_describe(const struct tdm__bucket_plan *plan, uint32_t bucket,
                                struct tdm__bucket_contents *contents, void *buffer,
                                struct tdm_bytes *bytes_out)
{
    const struct tdm__bucket *about = &plan->buckets[bucket];
    const struct tdm__tensor_handles handles = {.header = {.storages_count = 1,
                                                           .tensors_count = about->tensors_count,
                                                           .update = contents->update,
                                                           .node = contents->node,
                                                           .epoch = contents->epoch,
                                                           .bucket = bucket,
                                                           .buckets_count = plan->buckets_count},
                                                .storages = &contents->storage,
                                                .tensors = contents->records};

    for (uint32_t i = 0; i < about->tensors_count; i++) {
        describe_tensor(plan, contents, about->tensors_first + i, contents->sums[i],
                        &contents->records[i]);
    }
    *bytes_out = (struct tdm_bytes){buffer, tdm__tensor_handles_bytes(&handles)};
    return tdm__tensor_handles_encode(&handles, buffer, bytes_out->size_bytes);
}
