/* copy_engine.c - executes copy operations on a GPU: its kernels copy, convert and checksum. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/copy_engine.h"

#include "colocate/device/cuda/kernels.h"
#include "colocate/device/cuda/streams.h"
#include "colocate/transfer/casts.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>
#include <tandem/dtype.h>

/* Kernels read and write mapped blocks of any process and pinned host memory; they do not use the
 * GPU's DMA engines but are as fast. They add to the checksum lanes of each operation, which are
 * on the device; the host combines the lanes into the checksum.
 *
 * The engine owns a stream, the kernels and the memory of the lanes. It is created at the first
 * move and destroyed after a failure, so that the next move starts with a new one. Its stream has
 * no order with the copies of streams.c. The lock copy_engine_lock of the device protects it, so
 * that any thread may call move. */

enum {
    /* Smallest capacity, in copy operations, of the memory for lanes. */
    COPY_OPS_MIN = 1024,
    /* Most thread blocks for one copy operation: eight per multiprocessor of a large GPU. */
    BLOCKS_MAX = 1056,
    PAIRS_PER_THREAD = 32, /* Pairs of words that one thread copies. */
    /* Bytes of a pair of words, the largest access of a thread. */
    PAIR_BYTES = 16
};

/* The checksum lanes of one copy operation. */
struct lanes {
    /* Lanes, as in tdm__rect_checksum_from_lanes(). */
    uint64_t of[TDM__CUDA_CHECKSUM_LANES];
};

_Static_assert((int)TDM__CUDA_CHECKSUM_LANES == (int)TDM__CHECKSUM_LANES, "a sum's");
_Static_assert(sizeof(struct tdm__cuda_batch) <= 4096, "more than a kernel takes as arguments");

/* The state of a device's moves, created at the first move. The device owns it. */
struct tdm__cuda_copy_engine {
    struct tdm__cuda_kernels *kernels; /* Owned kernels. */
    void *stream;                      /* Owned stream of the kernels. */
    /* Owned device memory for lanes; 0 if none exists yet. */
    uint64_t device_lanes;
    /* Owned pinned memory for lanes; NULL if none exists yet. */
    struct lanes *host_lanes;
    /* Number of copy operations that the lanes have space for. */
    uint32_t capacity;
};

/* ---- opening and closing ----------------------------------------------------------------- */

/* Frees the memory for lanes. */
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
    copy_engine_free_lanes(cuda); /* This waits for the work of the stream. */
    tdm__cuda_kernels_close(copy_engine->kernels);
    free(copy_engine);
    cuda->copy_engine = NULL;
}

/* Creates the copy engine if the device has none. After a failure the caller closes it. */
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

/* Makes space for the lanes of `count` copy operations. */
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

/* ---- arguments of the kernels ------------------------------------------------------------- */

/* Returns the kernel for the operation's conversion. */
static enum tdm__cuda_kernel_kind kernel_kind_of(const struct tdm__copy_op *copy_op)
{
    static const enum tdm__cuda_kernel_kind works[] = {
        [TDM__CONVERT_NONE] = TDM__CUDA_KERNEL_COPY,
        [TDM__CONVERT_BF16] = TDM__CUDA_KERNEL_CAST,
        [TDM__CONVERT_FP8] = TDM__CUDA_KERNEL_QUANTIZE,
        [TDM__CONVERT_SCALES] = TDM__CUDA_KERNEL_SCALES,
    };

    return works[copy_op->conversion];
}

/* Returns the largest power of two, at most PAIR_BYTES, that divides the address, the row size
 * and the pitch. */
static uint8_t access_unit(const void *address, uint64_t row_bytes, uint64_t pitch)
{
    uint64_t bits = (uintptr_t)address | row_bytes | pitch | PAIR_BYTES;

    return (uint8_t)(bits & -bits);
}

/* Converts a copy operation to the form of the kernels. `lanes` is a device address. */
static struct tdm__cuda_copy_op describe_copy_op(const struct tdm__copy_op *copy_op, uint64_t lanes)
{
    const struct tdm__strided_rows rows = tdm__copy_op_rows(copy_op);
    size_t from_bytes = tdm_dtype_bytes((enum tdm_dtype)copy_op->from_dtype);
    uint64_t from_pitch = copy_op->rows > 1 && copy_op->from != NULL ? rows.from_pitch : 0;
    uint64_t to_pitch = rows.count > 1 ? rows.to_pitch : 0;

    return (struct tdm__cuda_copy_op){
        .from = copy_op->from,
        .to = copy_op->to,
        .lanes = (unsigned long long *)(uintptr_t)lanes,
        .rows = copy_op->rows,
        .columns = copy_op->columns,
        .from_pitch = from_pitch,
        .to_pitch = to_pitch,
        .scales = copy_op->scales,
        .scales_pitch = copy_op->scales_pitch,
        .from_bytes = (uint8_t)from_bytes,
        .from_unit = access_unit(copy_op->from, copy_op->columns * from_bytes, from_pitch),
        .to_unit = access_unit(copy_op->to, rows.size_bytes, to_pitch),
    };
}

/* Returns count / unit, rounded up. */
static uint64_t divide_up(uint64_t count, uint64_t unit)
{
    return (count + unit - 1) / unit;
}

/* Returns the number of thread blocks that the operation can keep busy. */
static uint32_t thread_blocks_for(const struct tdm__copy_op *copy_op,
                                  enum tdm__cuda_kernel_kind work)
{
    const struct tdm__strided_rows rows = tdm__copy_op_rows(copy_op);
    uint64_t pairs = rows.count * divide_up(rows.size_bytes, PAIR_BYTES);
    uint64_t blocks = pairs;

    switch (work) {
    case TDM__CUDA_KERNEL_QUANTIZE:
        blocks =
            divide_up(copy_op->rows, TDM__FP8_BLOCK) * divide_up(copy_op->columns, TDM__FP8_BLOCK);
        break;
    case TDM__CUDA_KERNEL_SCALES:
        break; /* One thread block per pair of words. */
    case TDM__CUDA_KERNEL_COPY:
    case TDM__CUDA_KERNEL_CAST:
    case TDM__CUDA_KERNELS_COUNT:
        blocks = divide_up(pairs, (uint64_t)TDM__CUDA_THREADS_PER_BLOCK * PAIRS_PER_THREAD);
        break;
    }
    return blocks < BLOCKS_MAX ? (uint32_t)blocks : BLOCKS_MAX;
}

/* ---- execution ---------------------------------------------------------------------------- */

/* Launches one kernel for all operations of its kind, in batches. */
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

/* Copies the lanes between host and device in the engine's stream. */
static tdm_status copy_lanes(struct tdm__cuda_device *cuda, uint64_t to, uint64_t from,
                             uint32_t count)
{
    size_t bytes = count * sizeof(struct lanes);

    return tdm__cuda_check(cuda->driver->cuMemcpyAsync(to, from, bytes, cuda->copy_engine->stream),
                           "cuMemcpyAsync of %zu bytes of sums on %s", bytes, cuda->base.uuid);
}

/* Queues zeroing the lanes, all kernels, and reading the lanes back. Does not wait. */
static tdm_status launch_all_kernels(struct tdm__cuda_device *cuda,
                                     const struct tdm__copy_op *copy_ops, uint32_t count)
{
    struct tdm__cuda_copy_engine *copy_engine = cuda->copy_engine;
    uint64_t host_lanes = (uint64_t)(uintptr_t)copy_engine->host_lanes;

    memset(copy_engine->host_lanes, 0, count * sizeof(struct lanes));
    TDM_TRY(copy_lanes(cuda, copy_engine->device_lanes, host_lanes, count));
    for (int work = 0; work < TDM__CUDA_KERNELS_COUNT; work++) {
        TDM_TRY(launch_kernel(cuda, (enum tdm__cuda_kernel_kind)work, copy_ops, count));
    }
    return copy_lanes(cuda, host_lanes, copy_engine->device_lanes, count);
}

/* Executes the operations and writes their checksums. It waits for the GPU also after a failure,
 * because the caller may unmap the memory afterwards. */
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
    TDM__CUDA_SCOPE(scope);

    if (count == 0) {
        return TDM_OK;
    }
    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    (void)pthread_mutex_lock(&cuda->copy_engine_lock);
    status = copy_engine_open(cuda);
    if (status == TDM_OK) {
        status = copy_engine_reserve(cuda, count);
    }
    if (status == TDM_OK) {
        status = copy_engine_run_batch(cuda, copy_ops, count, sums_out);
    }
    if (status != TDM_OK) {
        tdm__cuda_copy_engine_close(cuda); /* The next move creates a new copy engine. */
    }
    (void)pthread_mutex_unlock(&cuda->copy_engine_lock);
    return status;
}
