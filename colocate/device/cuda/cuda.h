/* cuda.h - a device that is a GPU: the copy_ops of it, shared among its files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_CUDA_H
#define TDM_COLOCATE_DEVICE_CUDA_CUDA_H

#include "colocate/device/cuda/driver.h"
#include "colocate/memory/broker_client.h"

#include <pthread.h>
#include <stdbool.h>

/* Blocks are physical memory made exportable (a descriptor), which the node's broker keeps
 * open and charges; the driver's own refusal counts as well as the broker's.
 *
 * Copies run in two streams, one a direction; what a call of another kind touches is waited for
 * first.  The primary context is used, as every other CUDA library in the process does. */

struct tdm__cuda_block {
    struct tdm__block base;
    uint64_t handle;
};

/* A block at an address.  Kept in no order: there are a few for each region. */
struct tdm__cuda_mapping {
    struct tdm__cuda_mapping *next;
    uint64_t address;
    struct tdm__cuda_block *block;
    enum tdm__access access;
};

/* Recorded events live on, so that a process that was told of one can still open it; after
 * this many later ones its slot is recorded again, which makes a late waiter wait longer, never
 * too short. */
enum { TDM__CUDA_EVENTS = 64 };

struct tdm__cuda_event {
    void *event; /* NULL: never used */
    struct cu_ipc_handle handle;
};

struct tdm__cuda_device {
    struct tdm__device base;
    const struct tdm__cuda_driver *driver;
    struct tdm__broker_client *client; /* borrowed */
    int device;
    void *context;
    void *to_device_stream; /* streams */
    void *to_host_stream;
    void *cross_stream_event; /* an event between the streams */
    bool copies_pending;      /* something was given to a stream since the last flush */
    bool read_only_unsupported;
    struct tdm__cuda_mapping *block_mappings;
    struct tdm__cuda_event events[TDM__CUDA_EVENTS];
    uint32_t next_event;
    pthread_mutex_t copy_engine_lock;          /* of the pointer and of what is behind it */
    struct tdm__cuda_copy_engine *copy_engine; /* owned; NULL before the first move */
};

/* Makes the GPU's context the thread's.  Every entry does it first: threads and GPUs mix. */
tdm_status tdm__cuda_make_current(struct tdm__cuda_device *cuda);

/* Adds to a status that says the device is full what was wanted and what is free; hands others
 * on. */
tdm_status tdm__cuda_describe_oom(struct tdm__cuda_device *cuda, tdm_status status,
                                  const char *what, size_t size_bytes);

/* cuda_mappings.c */
tdm_status tdm__cuda_reserve(struct tdm__device *device, size_t size_bytes, void **address_out);
void tdm__cuda_unreserve(struct tdm__device *device, void *address, size_t size_bytes);
tdm_status tdm__cuda_map(struct tdm__device *device, void *address, struct tdm__block *block,
                         enum tdm__access access);
tdm_status tdm__cuda_unmap(struct tdm__device *device, void *address, size_t size_bytes);
tdm_status tdm__cuda_exchange(struct tdm__device *device, const struct tdm__mapping *a,
                              const struct tdm__mapping *b);

/* streams.c */
tdm_status tdm__cuda_streams_open(struct tdm__cuda_device *cuda);
void tdm__cuda_streams_close(struct tdm__cuda_device *cuda);
tdm_status tdm__cuda_copy(struct tdm__device *device, void *destination, const void *source,
                          size_t size_bytes);
tdm_status tdm__cuda_copy_flush(struct tdm__device *device);
tdm_status tdm__cuda_event_record(struct tdm__device *device, struct tdm__event *event_out);
tdm_status tdm__cuda_event_wait(struct tdm__device *device, const struct tdm__event *event);
tdm_status tdm__cuda_host_alloc(struct tdm__device *device, size_t size_bytes, void **address_out);
void tdm__cuda_host_free(struct tdm__device *device, void *address, size_t size_bytes);

/* copy_engine.c */
tdm_status tdm__cuda_run_copy_ops(struct tdm__device *device, const struct tdm__copy_op *copy_ops,
                                  uint32_t count, uint64_t *sums_out);
void tdm__cuda_copy_engine_close(struct tdm__cuda_device *cuda); /* in its context */

#endif
