/* copy_engine.c - copy_ops on a GPU: copied, converted and summed by its kernels. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/cuda.h"
#include "colocate/device/cuda/kernels.h"
#include "colocate/layout/model.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Kernels read and write wherever the driver lets them: in blocks that are mapped here,
 * whoever made them, and in pinned host memory, past the copy engines but as fast.  They add
 * to the lanes of each part's sum, which are on the device; the end of a sum is the host's.
 *
 * All this has a stream of its own, so that it needs no order with copies. */

enum {
    COPY_OPS_MIN = 1024, /* that there is capacity for */
    BLOCKS_MAX = 1056,   /* of threads for one part: eight for each processor of a large GPU */
    PAIRS_PER_THREAD = 32,
    PAIR_BYTES = 16
};

struct lanes {
    uint64_t of[TDM__CUDA_CHECKSUM_LANES];
};

_Static_assert((int)TDM__CUDA_CHECKSUM_LANES == (int)TDM__CHECKSUM_LANES, "a sum's");
_Static_assert(sizeof(struct tdm__cuda_batch) <= 4096, "more than a kernel takes as arguments");

/* What is needed from the first part on. */
struct tdm__cuda_copy_engine {
    struct tdm__cuda_kernels *kernels; /* owned, like the rest */
    void *stream;
    uint64_t device_lanes; /* an address; 0: none */
    struct lanes *host_lanes;
    uint32_t capacity; /* for copy_ops */
};

/* ---- life ------------------------------------------------------------------------------- */

static void copy_engine_free_lanes(struct tdm__cuda_device *cuda)
{
    struct tdm__cuda_copy_engine *copy_engine = cuda->copy_engine;

    if (copy_engine->device_lanes != 0) {
        (void)cuda->driver->cuMemFree_v2(copy_engine->device_lanes);
    }
    if (copy_engine->host_lanes != NULL) {
        (void)cuda->driver->cuMemFreeHost(copy_engine->host_lanes);
    }
    copy_engine->device_lanes = 0;
    copy_engine->host_lanes = NULL;
    copy_engine->capacity = 0;
}

void tdm__cuda_copy_engine_close(struct tdm__cuda_device *cuda)
{
    struct tdm__cuda_copy_engine *copy_engine = cuda->copy_engine;

    if (copy_engine == NULL) {
        return;
    }
    if (copy_engine->stream != NULL) {
        (void)cuda->driver->cuStreamDestroy_v2(copy_engine->stream);
    }
    copy_engine_free_lanes(cuda); /* waits for what the stream may still do to them */
    tdm__cuda_kernels_close(copy_engine->kernels);
    free(copy_engine);
    cuda->copy_engine = NULL;
}

static tdm_status copy_engine_open(struct tdm__cuda_device *cuda)
{
    if (cuda->copy_engine != NULL) {
        return TDM_OK;
    }
    cuda->copy_engine = calloc(1, sizeof(*cuda->copy_engine));
    if (cuda->copy_engine == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the copy of weights");
    }
    TDM_TRY(tdm__cuda_kernels_open(&cuda->base, &cuda->copy_engine->kernels));
    return tdm__cuda_check(
        cuda->driver->cuStreamCreate(&cuda->copy_engine->stream, CU_STREAM_NON_BLOCKING),
        "cuStreamCreate on %s", cuda->base.uuid);
}

static tdm_status copy_engine_reserve(struct tdm__cuda_device *cuda, uint32_t count)
{
    struct tdm__cuda_copy_engine *copy_engine = cuda->copy_engine;
    const struct tdm__cuda_driver *driver = cuda->driver;
    uint32_t capacity = count > COPY_OPS_MIN ? count : COPY_OPS_MIN;
    size_t bytes = capacity * sizeof(struct lanes);
    void *host_lanes;
    tdm_status status;

    if (copy_engine->capacity >= count) {
        return TDM_OK;
    }
    copy_engine_free_lanes(cuda);
    status = tdm__cuda_check(driver->cuMemAlloc_v2(&copy_engine->device_lanes, bytes),
                             "cuMemAlloc of %zu bytes for sums", bytes);
    TDM_TRY(tdm__cuda_describe_oom(cuda, status, "sums", bytes));
    TDM_TRY(tdm__cuda_host_alloc(&cuda->base, bytes, &host_lanes));
    copy_engine->host_lanes = host_lanes;
    copy_engine->capacity = capacity;
    return TDM_OK;
}

/* ---- what kernels are told -------------------------------------------------------------- */

static enum tdm__cuda_kernel_kind kernel_kind_of(const struct tdm__copy_op *part)
{
    static const enum tdm__cuda_kernel_kind works[] = {
        [TDM__CONVERT_NONE] = TDM__CUDA_KERNEL_COPY,
        [TDM__CONVERT_BF16] = TDM__CUDA_KERNEL_CAST,
        [TDM__CONVERT_FP8] = TDM__CUDA_KERNEL_QUANTIZE,
        [TDM__CONVERT_SCALES] = TDM__CUDA_KERNEL_SCALES,
    };

    return works[part->conversion];
}

/* What all of these are multiples of. */
static uint8_t access_unit(const void *address, uint64_t row_bytes, uint64_t pitch)
{
    uint64_t bits = (uintptr_t)address | row_bytes | pitch | PAIR_BYTES;

    return (uint8_t)(bits & -bits);
}

static struct tdm__cuda_copy_op describe_copy_op(const struct tdm__copy_op *part, uint64_t lanes)
{
    const struct tdm__strided_rows rows = tdm__copy_op_rows(part);
    size_t from_bytes = tdm_dtype_bytes((enum tdm_dtype)part->from_dtype);
    uint64_t from_pitch = part->rows > 1 && part->from != NULL ? rows.from_pitch : 0;
    uint64_t to_pitch = rows.count > 1 ? rows.to_pitch : 0;

    return (struct tdm__cuda_copy_op){
        .from = part->from,
        .to = part->to,
        .lanes = (unsigned long long *)(uintptr_t)lanes,
        .rows = part->rows,
        .columns = part->columns,
        .from_pitch = from_pitch,
        .to_pitch = to_pitch,
        .scales = part->scales,
        .scales_pitch = part->scales_pitch,
        .from_bytes = (uint8_t)from_bytes,
        .from_unit = access_unit(part->from, part->columns * from_bytes, from_pitch),
        .to_unit = access_unit(part->to, rows.size_bytes, to_pitch),
    };
}

static uint64_t round_up(uint64_t count, uint64_t unit)
{
    return (count + unit - 1) / unit;
}

/* Blocks of threads that have something to do. */
static uint32_t thread_blocks_for(const struct tdm__copy_op *part, enum tdm__cuda_kernel_kind work)
{
    const struct tdm__strided_rows rows = tdm__copy_op_rows(part);
    uint64_t pairs = rows.count * round_up(rows.size_bytes, PAIR_BYTES);
    uint64_t blocks = pairs;

    switch (work) {
    case TDM__CUDA_KERNEL_QUANTIZE:
        blocks = round_up(part->rows, TDM__FP8_BLOCK) * round_up(part->columns, TDM__FP8_BLOCK);
        break;
    case TDM__CUDA_KERNEL_SCALES:
        break; /* one for each */
    case TDM__CUDA_KERNEL_COPY:
    case TDM__CUDA_KERNEL_CAST:
    case TDM__CUDA_KERNELS_COUNT:
        blocks = round_up(pairs, (uint64_t)TDM__CUDA_THREADS_PER_BLOCK * PAIRS_PER_THREAD);
        break;
    }
    return blocks < BLOCKS_MAX ? (uint32_t)blocks : BLOCKS_MAX;
}

/* ---- running ---------------------------------------------------------------------------- */

/* All copy_ops of one kind of work. */
static tdm_status launch_kernel(struct tdm__cuda_device *cuda, enum tdm__cuda_kernel_kind work,
                                const struct tdm__copy_op *copy_ops, uint32_t count)
{
    struct tdm__cuda_copy_engine *copy_engine = cuda->copy_engine;
    struct tdm__cuda_batch batch;
    uint32_t filled = 0;
    uint32_t blocks = 0;

    memset(&batch, 0, sizeof(batch));
    for (uint32_t i = 0; i < count; i++) {
        if (kernel_kind_of(&copy_ops[i]) == work && copy_ops[i].rows > 0 &&
            copy_ops[i].columns > 0) {
            uint32_t wanted = thread_blocks_for(&copy_ops[i], work);

            batch.copy_ops[filled++] = describe_copy_op(&copy_ops[i], copy_engine->device_lanes +
                                                                          i * sizeof(struct lanes));
            blocks = wanted > blocks ? wanted : blocks;
        }
        if (filled == TDM__CUDA_BATCH_MAX || (filled > 0 && i + 1 == count)) {
            TDM_TRY(tdm__cuda_kernels_launch(copy_engine->kernels, work, &batch, filled, blocks,
                                             copy_engine->stream));
            filled = 0;
            blocks = 0;
        }
    }
    return TDM_OK;
}

static tdm_status read_back_lanes(struct tdm__cuda_device *cuda, uint64_t to, uint64_t from,
                                  uint32_t count)
{
    size_t bytes = count * sizeof(struct lanes);

    return tdm__cuda_check(cuda->driver->cuMemcpyAsync(to, from, bytes, cuda->copy_engine->stream),
                           "cuMemcpyAsync of %zu bytes of sums on %s", bytes, cuda->base.uuid);
}

static tdm_status launch_all_kernels(struct tdm__cuda_device *cuda,
                                     const struct tdm__copy_op *copy_ops, uint32_t count)
{
    struct tdm__cuda_copy_engine *copy_engine = cuda->copy_engine;
    uint64_t host_lanes = (uint64_t)(uintptr_t)copy_engine->host_lanes;

    memset(copy_engine->host_lanes, 0, count * sizeof(struct lanes));
    TDM_TRY(read_back_lanes(cuda, copy_engine->device_lanes, host_lanes, count));
    for (int work = 0; work < TDM__CUDA_KERNELS_COUNT; work++) {
        TDM_TRY(launch_kernel(cuda, (enum tdm__cuda_kernel_kind)work, copy_ops, count));
    }
    return read_back_lanes(cuda, host_lanes, copy_engine->device_lanes, count);
}

/* Waits in any case: who gave the copy_ops may take their memory away afterwards. */
static tdm_status copy_engine_run_batch(struct tdm__cuda_device *cuda,
                                        const struct tdm__copy_op *copy_ops, uint32_t count,
                                        uint64_t *sums_out)
{
    tdm_status status = launch_all_kernels(cuda, copy_ops, count);
    int waited = cuda->driver->cuStreamSynchronize(cuda->copy_engine->stream);

    TDM_TRY(status);
    TDM_TRY(tdm__cuda_check(waited, "cuStreamSynchronize after %u copy ops on %s", count,
                            cuda->base.uuid));
    for (uint32_t i = 0; i < count; i++) {
        const struct tdm__strided_rows rows = tdm__copy_op_rows(&copy_ops[i]);

        sums_out[i] = tdm__rect_checksum_from_lanes(&rows, cuda->copy_engine->host_lanes[i].of);
    }
    return TDM_OK;
}

tdm_status tdm__cuda_run_copy_ops(struct tdm__device *device, const struct tdm__copy_op *copy_ops,
                                  uint32_t count, uint64_t *sums_out)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    tdm_status status;

    if (count == 0) {
        return TDM_OK;
    }
    TDM_TRY(tdm__cuda_make_current(cuda));
    (void)pthread_mutex_lock(&cuda->copy_engine_lock);
    status = copy_engine_open(cuda);
    if (status == TDM_OK) {
        status = copy_engine_reserve(cuda, count);
    }
    if (status == TDM_OK) {
        status = copy_engine_run_batch(cuda, copy_ops, count, sums_out);
    }
    if (status != TDM_OK) {
        tdm__cuda_copy_engine_close(cuda); /* the next one starts from nothing */
    }
    (void)pthread_mutex_unlock(&cuda->copy_engine_lock);
    return status;
}
