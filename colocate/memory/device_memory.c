/* device_memory.c - what a GPU reports about its memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/device_memory.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/process/tree_memory.h"

#include <time.h>
#include <unistd.h>

tdm_status tdm__device_await_memory(struct tdm__device *device, const char *what, uint64_t bytes,
                                    int64_t timeout_ms)
{
    static const struct timespec nap = {.tv_nsec = 1000000};
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;

    for (;;) {
        TDM_TRY(device->ops->memory_info(device, &total_bytes, &free_bytes));
        if (total_bytes == 0 || free_bytes >= bytes) {
            return TDM_OK;
        }
        if (tdm__deadline_remaining_ms(deadline_ms) == 0) {
            return tdm__fail(TDM_E_DEVICE_FULL,
                             "%s: %.1f MiB were granted for %s, but the GPU has %.1f MiB free of "
                             "%.1f for %lld ms: processes use more of it than the node leaves "
                             "unoffered; end them, or start the node with a larger "
                             "--gpu-reserve-bytes",
                             device->uuid, (double)bytes / (1 << 20), what,
                             (double)free_bytes / (1 << 20), (double)total_bytes / (1 << 20),
                             (long long)timeout_ms);
        }
        (void)nanosleep(&nap, NULL);
    }
}

tdm_status tdm__device_used_bytes(struct tdm__device *device, uint64_t *used_bytes_out)
{
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;

    TDM_TRY(device->ops->memory_info(device, &total_bytes, &free_bytes));
    if (total_bytes == 0) {
        return tdm__tree_private_bytes(getppid(), used_bytes_out);
    }
    *used_bytes_out = total_bytes > free_bytes ? total_bytes - free_bytes : 0;
    return TDM_OK;
}
