/* device_memory.h - what a GPU reports about its memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_DEVICE_MEMORY_H
#define TDM_COLOCATE_MEMORY_DEVICE_MEMORY_H

#include "colocate/device/device.h"

/* Blocks until the device reports `bytes` free bytes, for at most `timeout_ms` milliseconds. A
 * virtual GPU, which reports nothing, never blocks. TDM_E_DEVICE_FULL names `what` the memory is
 * for, the bytes wanted and free, and what to do. */
tdm_status tdm__device_await_memory(struct tdm__device *device, const char *what, uint64_t bytes,
                                    int64_t timeout_ms);

/* Writes the bytes that are in use by the report of the device: of a real GPU all bytes that are
 * not free, and of a virtual one the private memory of all processes below the parent of this
 * process, which is its reaper: this process and those that it has started. */
tdm_status tdm__device_used_bytes(struct tdm__device *device, uint64_t *used_bytes_out);

#endif
