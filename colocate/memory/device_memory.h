/* device_memory.h - waits until a GPU reports memory free. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_DEVICE_MEMORY_H
#define TDM_COLOCATE_MEMORY_DEVICE_MEMORY_H

#include "colocate/device/device.h"

/* Blocks until the device reports `bytes` free bytes, for at most `timeout_ms` milliseconds. A
 * virtual GPU, which reports nothing, never blocks. TDM_E_DEVICE_FULL names `what` the memory is
 * for, the bytes wanted and free, and what to do. */
tdm_status tdm__device_await_memory(struct tdm__device *device, const char *what, uint64_t bytes,
                                    int64_t timeout_ms);

#endif
