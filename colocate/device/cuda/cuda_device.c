/* cuda_device.c - an open GPU: its context, and the text of its errors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/cuda_device.h"

#include "runtime/error.h"

tdm_status tdm__cuda_enter(const struct tdm__cuda_device *cuda, struct tdm__cuda_scope *scope)
{
    return tdm__wrap(tdm__cuda_scope_enter(cuda->driver, cuda->context, scope), "%s",
                     cuda->base.uuid);
}

tdm_status tdm__cuda_describe_oom(struct tdm__cuda_device *cuda, tdm_status status,
                                  const char *what, size_t size_bytes)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;

    if (status != TDM_E_DEVICE_FULL) {
        return status;
    }
    (void)cuda->driver->cuMemGetInfo_v2(&free_bytes, &total_bytes);
    return tdm__wrap(status, "%s cannot hold %s: %.1f MiB wanted, %.1f MiB free of %.1f",
                     cuda->base.uuid, what, (double)size_bytes / (1 << 20),
                     (double)free_bytes / (1 << 20), (double)total_bytes / (1 << 20));
}
