/* move.c - parts on a GPU: copied, converted and summed by its kernels. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/cuda.h"
#include "colocate/device/cuda/kernels.h"
#include "colocate/plan/model.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Kernels read and write wherever the driver lets them: in blocks that are mapped here,
 * whoever made them, and in pinned host memory, past the copy engines but as fast.  They add
 * to the lanes of each part's sum, which are on the device; the end of a sum is the host's.
 *
 * All this has a stream of its own, so that it needs no order with copies. */

enum {
    PARTS_MIN = 1024,  /* that there is room for */
    BLOCKS_MAX = 1056, /* of threads for one part: eight for each processor of a large GPU */
    PAIRS_A_THREAD = 32,
    PAIR_BYTES = 16
};

struct lanes {
    uint64_t of[TDM__CUDA_LANES];
};

_Static_assert((int)TDM__CUDA_LANES == (int)TDM__SUM_LANES, "a sum's");
_Static_assert(sizeof(struct tdm__cuda_batch) <= 4096, "more than a kernel takes as arguments");

/* What is needed from the first part on. */
struct tdm__cuda_moving {
    struct tdm__cuda_kernels *kernels; /* owned, like the rest */
    void *stream;
    uint64_t device_lanes; /* an address; 0: none */
    struct lanes *host_lanes;
    uint32_t room; /* for parts */
};

/* ---- life ------------------------------------------------------------------------------- */

static void free_lanes(struct tdm__cuda_device *cuda)
{
    struct tdm__cuda_moving *moving = cuda->moving;

    if (moving->device_lanes != 0) {
        (void)cuda->driver->cuMemFree_v2(moving->device_lanes);
    }
    if (moving->host_lanes != NULL) {
        (void)cuda->driver->cuMemFreeHost(moving->host_lanes);
    }
    moving->device_lanes = 0;
    moving->host_lanes = NULL;
    moving->room = 0;
}

void tdm__cuda_move_close(struct tdm__cuda_device *cuda)
{
    struct tdm__cuda_moving *moving = cuda->moving;

    if (moving == NULL) {
        return;
    }
    if (moving->stream != NULL) {
        (void)cuda->driver->cuStreamDestroy_v2(moving->stream);
    }
    free_lanes(cuda); /* waits for what the stream may still do to them */
    tdm__cuda_kernels_close(moving->kernels);
    free(moving);
    cuda->moving = NULL;
}

static tdm_status open_moving(struct tdm__cuda_device *cuda)
{
    if (cuda->moving != NULL) {
        return TDM_OK;
    }
    cuda->moving = calloc(1, sizeof(*cuda->moving));
    if (cuda->moving == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the moving of weights");
    }
    TDM_TRY(tdm__cuda_kernels_open(&cuda->base, &cuda->moving->kernels));
    return tdm__cuda_check(
        cuda->driver->cuStreamCreate(&cuda->moving->stream, CU_STREAM_NON_BLOCKING),
        "cuStreamCreate on %s", cuda->base.uuid);
}

static tdm_status make_room(struct tdm__cuda_device *cuda, uint32_t count)
{
    struct tdm__cuda_moving *moving = cuda->moving;
    const struct tdm__cuda_driver *driver = cuda->driver;
    uint32_t room = count > PARTS_MIN ? count : PARTS_MIN;
    size_t bytes = room * sizeof(struct lanes);
    void *host_lanes;
    tdm_status status;

    if (moving->room >= count) {
        return TDM_OK;
    }
    free_lanes(cuda);
    status = tdm__cuda_check(driver->cuMemAlloc_v2(&moving->device_lanes, bytes),
                             "cuMemAlloc of %zu bytes for sums", bytes);
    TDM_TRY(tdm__cuda_full(cuda, status, "sums", bytes));
    TDM_TRY(tdm__cuda_host_alloc(&cuda->base, bytes, &host_lanes));
    moving->host_lanes = host_lanes;
    moving->room = room;
    return TDM_OK;
}

/* ---- what kernels are told -------------------------------------------------------------- */

static enum tdm__cuda_work work_of(const struct tdm__part *part)
{
    static const enum tdm__cuda_work works[] = {
        [TDM__CONVERT_NONE] = TDM__CUDA_COPY,
        [TDM__CONVERT_BF16] = TDM__CUDA_CAST,
        [TDM__CONVERT_FP8] = TDM__CUDA_QUANTIZE,
        [TDM__CONVERT_SCALES] = TDM__CUDA_SCALES,
    };

    return works[part->convert];
}

/* What all of these are multiples of. */
static uint8_t unit_of(const void *address, uint64_t row_bytes, uint64_t pitch)
{
    uint64_t bits = (uintptr_t)address | row_bytes | pitch | PAIR_BYTES;

    return (uint8_t)(bits & -bits);
}

static struct tdm__cuda_part describe(const struct tdm__part *part, uint64_t lanes)
{
    const struct tdm__rows rows = tdm__part_rows(part);
    size_t from_bytes = tdm_dtype_bytes((enum tdm_dtype)part->from_dtype);
    uint64_t from_pitch = part->rows > 1 && part->from != NULL ? rows.from_pitch : 0;
    uint64_t to_pitch = rows.count > 1 ? rows.to_pitch : 0;

    return (struct tdm__cuda_part){
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
        .from_unit = unit_of(part->from, part->columns * from_bytes, from_pitch),
        .to_unit = unit_of(part->to, rows.size_bytes, to_pitch),
    };
}

static uint64_t up(uint64_t count, uint64_t unit)
{
    return (count + unit - 1) / unit;
}

/* Blocks of threads that have something to do. */
static uint32_t blocks_for(const struct tdm__part *part, enum tdm__cuda_work work)
{
    const struct tdm__rows rows = tdm__part_rows(part);
    uint64_t pairs = rows.count * up(rows.size_bytes, PAIR_BYTES);
    uint64_t blocks = pairs;

    switch (work) {
    case TDM__CUDA_QUANTIZE:
        blocks = up(part->rows, TDM__FP8_BLOCK) * up(part->columns, TDM__FP8_BLOCK);
        break;
    case TDM__CUDA_SCALES:
        break; /* one for each */
    case TDM__CUDA_COPY:
    case TDM__CUDA_CAST:
    case TDM__CUDA_WORKS:
        blocks = up(pairs, (uint64_t)TDM__CUDA_THREADS * PAIRS_A_THREAD);
        break;
    }
    return blocks < BLOCKS_MAX ? (uint32_t)blocks : BLOCKS_MAX;
}

/* ---- running ---------------------------------------------------------------------------- */

/* All parts of one kind of work. */
static tdm_status start_work(struct tdm__cuda_device *cuda, enum tdm__cuda_work work,
                             const struct tdm__part *parts, uint32_t count)
{
    struct tdm__cuda_moving *moving = cuda->moving;
    struct tdm__cuda_batch batch;
    uint32_t filled = 0;
    uint32_t blocks = 0;

    memset(&batch, 0, sizeof(batch));
    for (uint32_t i = 0; i < count; i++) {
        if (work_of(&parts[i]) == work && parts[i].rows > 0 && parts[i].columns > 0) {
            uint32_t wanted = blocks_for(&parts[i], work);

            batch.parts[filled++] =
                describe(&parts[i], moving->device_lanes + i * sizeof(struct lanes));
            blocks = wanted > blocks ? wanted : blocks;
        }
        if (filled == TDM__CUDA_BATCH_MAX || (filled > 0 && i + 1 == count)) {
            TDM_TRY(tdm__cuda_kernels_start(moving->kernels, work, &batch, filled, blocks,
                                            moving->stream));
            filled = 0;
            blocks = 0;
        }
    }
    return TDM_OK;
}

static tdm_status copy_lanes(struct tdm__cuda_device *cuda, uint64_t to, uint64_t from,
                             uint32_t count)
{
    size_t bytes = count * sizeof(struct lanes);

    return tdm__cuda_check(cuda->driver->cuMemcpyAsync(to, from, bytes, cuda->moving->stream),
                           "cuMemcpyAsync of %zu bytes of sums on %s", bytes, cuda->base.uuid);
}

static tdm_status start_all(struct tdm__cuda_device *cuda, const struct tdm__part *parts,
                            uint32_t count)
{
    struct tdm__cuda_moving *moving = cuda->moving;
    uint64_t host_lanes = (uint64_t)(uintptr_t)moving->host_lanes;

    memset(moving->host_lanes, 0, count * sizeof(struct lanes));
    TDM_TRY(copy_lanes(cuda, moving->device_lanes, host_lanes, count));
    for (int work = 0; work < TDM__CUDA_WORKS; work++) {
        TDM_TRY(start_work(cuda, (enum tdm__cuda_work)work, parts, count));
    }
    return copy_lanes(cuda, host_lanes, moving->device_lanes, count);
}

/* Waits in any case: who gave the parts may take their memory away afterwards. */
static tdm_status run(struct tdm__cuda_device *cuda, const struct tdm__part *parts,
                      uint32_t count, uint64_t *sums_out)
{
    tdm_status status = start_all(cuda, parts, count);
    int waited = cuda->driver->cuStreamSynchronize(cuda->moving->stream);

    TDM_TRY(status);
    TDM_TRY(tdm__cuda_check(waited, "cuStreamSynchronize after %u parts on %s", count,
                            cuda->base.uuid));
    for (uint32_t i = 0; i < count; i++) {
        const struct tdm__rows rows = tdm__part_rows(&parts[i]);

        sums_out[i] = tdm__sum_of_lanes(&rows, cuda->moving->host_lanes[i].of);
    }
    return TDM_OK;
}

tdm_status tdm__cuda_move(struct tdm__device *device, const struct tdm__part *parts,
                          uint32_t count, uint64_t *sums_out)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    tdm_status status;

    if (count == 0) {
        return TDM_OK;
    }
    TDM_TRY(tdm__cuda_enter(cuda));
    (void)pthread_mutex_lock(&cuda->moving_lock);
    status = open_moving(cuda);
    if (status == TDM_OK) {
        status = make_room(cuda, count);
    }
    if (status == TDM_OK) {
        status = run(cuda, parts, count, sums_out);
    }
    if (status != TDM_OK) {
        tdm__cuda_move_close(cuda); /* the next one starts from nothing */
    }
    (void)pthread_mutex_unlock(&cuda->moving_lock);
    return status;
}
