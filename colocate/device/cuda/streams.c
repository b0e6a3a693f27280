/* streams.c - copies to and from a GPU, and pinned host memory. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A device owns two streams, one per direction. copies_pending is true while a stream may have
 * work that copy_flush must wait for.
 *
 * The actor's thread enters. device.h specifies the functions. */

#include "colocate/device/cuda/streams.h"

#include "runtime/error.h"
#include "runtime/log.h"

/* ---- streams ---------------------------------------------------------------------------- */

/* Creates a stream that does not synchronise with the default stream. */
static tdm_status stream_create(struct tdm__cuda_device *cuda, void **stream_out)
{
    return tdm__cuda_check(cuda->driver->cuStreamCreate(stream_out, CU_STREAM_NON_BLOCKING),
                           "cuStreamCreate on %s", cuda->base.uuid);
}

tdm_status tdm__cuda_streams_open(struct tdm__cuda_device *cuda)
{
    tdm_status status = stream_create(cuda, &cuda->to_device_stream);

    if (status == TDM_OK) {
        status = stream_create(cuda, &cuda->to_host_stream);
    }
    if (status != TDM_OK) {
        tdm__cuda_streams_close(cuda);
    }
    return status;
}

void tdm__cuda_streams_close(struct tdm__cuda_device *cuda)
{
    if (cuda->to_host_stream != NULL) {
        (void)cuda->driver->cuStreamDestroy_v2(cuda->to_host_stream);
    }
    if (cuda->to_device_stream != NULL) {
        (void)cuda->driver->cuStreamDestroy_v2(cuda->to_device_stream);
    }
}

/* ---- copies ----------------------------------------------------------------------------- */

/* Returns true if the address is device memory. The driver fails for host memory that is not
 * pinned, which means false. */
static bool is_on_device(const struct tdm__cuda_device *cuda, uint64_t address)
{
    unsigned type = 0;

    return cuda->driver->cuPointerGetAttribute(&type, CU_POINTER_MEMORY_TYPE, address) ==
               CU_SUCCESS &&
           type == CU_MEMORY_IS_DEVICE;
}

tdm_status tdm__cuda_copy(struct tdm__device *device, void *destination, const void *source,
                          size_t size_bytes)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    uint64_t to = (uint64_t)(uintptr_t)destination;
    uint64_t from = (uint64_t)(uintptr_t)source;
    void *stream;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    stream = is_on_device(cuda, to) ? cuda->to_device_stream : cuda->to_host_stream;
    TDM_TRY(tdm__cuda_check(cuda->driver->cuMemcpyAsync(to, from, size_bytes, stream),
                            "cuMemcpyAsync of %zu bytes from %p to %p", size_bytes, source,
                            destination));
    cuda->copies_pending = true;
    return TDM_OK;
}

tdm_status tdm__cuda_copy_flush(struct tdm__device *device)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;

    TDM__CUDA_SCOPE(scope);

    if (!cuda->copies_pending) {
        return TDM_OK;
    }
    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    TDM_TRY(tdm__cuda_check(cuda->driver->cuStreamSynchronize(cuda->to_device_stream),
                            "cuStreamSynchronize after copies to %s", device->uuid));
    TDM_TRY(tdm__cuda_check(cuda->driver->cuStreamSynchronize(cuda->to_host_stream),
                            "cuStreamSynchronize after copies from %s", device->uuid));
    cuda->copies_pending = false;
    return TDM_OK;
}

/* This waits for more than the two streams of the device: for every stream of the primary context,
 * which PyTorch, engines and NCCL share with Tandem. Nothing less would do, because their streams
 * are unknown here and have no order with those of the device. It takes microseconds if no stream
 * has work. */
tdm_status tdm__cuda_synchronize(struct tdm__device *device)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    TDM_TRY(tdm__cuda_check(cuda->driver->cuCtxSynchronize(),
                            "cuCtxSynchronize for all streams of this process on %s",
                            device->uuid));
    cuda->copies_pending = false;
    return TDM_OK;
}

/* ---- host memory ------------------------------------------------------------------------ */

tdm_status tdm__cuda_host_alloc(struct tdm__device *device, size_t size_bytes, void **address_out)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    tdm_status status;
    TDM__CUDA_SCOPE(scope);

    TDM_TRY(tdm__cuda_enter(cuda, &scope));
    status = tdm__cuda_check(
        cuda->driver->cuMemHostAlloc(address_out, size_bytes, CU_HOST_ALLOC_PORTABLE),
        "cuMemHostAlloc of %zu bytes of pinned memory", size_bytes);
    /* The host is out of memory, not the device. */
    return status == TDM_E_DEVICE_FULL ? tdm__fail(TDM_E_NOMEM, "%s", tdm_error_detail()) : status;
}

void tdm__cuda_host_free(struct tdm__device *device, void *address, size_t size_bytes)
{
    struct tdm__cuda_device *cuda = (struct tdm__cuda_device *)device;
    TDM__CUDA_SCOPE(scope);

    if (tdm__cuda_enter(cuda, &scope) != TDM_OK ||
        tdm__cuda_check(cuda->driver->cuMemFreeHost(address), "cuMemFreeHost of %zu bytes at %p",
                        size_bytes, address) != TDM_OK) {
        tdm__log(TDM__WARN, "device", "pinned memory stays: %s", tdm_error_detail());
    }
}
