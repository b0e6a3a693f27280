/* cuda.h - the device "cuda", a GPU under the CUDA driver: the types that its files share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_CUDA_H
#define TDM_COLOCATE_DEVICE_CUDA_CUDA_H

#include "colocate/broker/broker_client.h"
#include "colocate/device/cuda/driver.h"

#include <pthread.h>
#include <stdbool.h>

/* Blocks are physical memory of the GPU that can be exported as a descriptor. The node's broker
 * keeps the descriptor open and charges the owner. A block is created only if both the driver and
 * the broker accept it.
 *
 * Copies run in two streams, one per direction. A call of another kind first waits for the copies
 * that touch its memory. The device uses the primary context, like all other CUDA libraries of
 * the process. */

/* A block of a GPU. The process that created or imported it owns it. */
struct tdm__cuda_block {
    struct tdm__block base;
    uint64_t handle; /* Owned allocation handle of the driver. */
};

/* A block that is mapped at an address. The device owns the list, which has no order and a few
 * entries per region. */
struct tdm__cuda_mapping {
    struct tdm__cuda_mapping *next;
    uint64_t address;              /* Device address of the mapping. */
    struct tdm__cuda_block *block; /* Borrowed block that is mapped there. */
    enum tdm__access access;       /* Access with which the block is mapped. */
};

/* An open GPU. The actor's thread uses it, except the copy engine, which any thread may use. */
struct tdm__cuda_device {
    struct tdm__device base;
    const struct tdm__cuda_driver *driver; /* Functions of the CUDA driver. */
    struct tdm__broker_client *client;     /* Borrowed client of the node's broker. */
    int device;                            /* The driver's device number. */
    void *context;                         /* Retained primary context of the GPU. */
    void *to_device_stream;                /* Owned stream of the copies to the GPU. */
    void *to_host_stream;                  /* Owned stream of the copies to the host. */
    /* True if a stream was given work since the last flush. */
    bool copies_pending;
    /* True once the driver has refused a read-only mapping. */
    bool read_only_unsupported;
    struct tdm__cuda_mapping *block_mappings; /* Owned list of all mappings. */
    /* Protects the pointer copy_engine and the copy engine itself. */
    pthread_mutex_t copy_engine_lock;
    struct tdm__cuda_copy_engine *copy_engine; /* Owned; NULL before the first move. */
};

/* Makes the GPU's context current on the calling thread. Every function of the device does so
 * first, because threads and GPUs mix. */
tdm_status tdm__cuda_make_current(struct tdm__cuda_device *cuda);

/* Adds the wanted and the free memory to the error detail of TDM_E_DEVICE_FULL. Returns `status`
 * in every case. */
tdm_status tdm__cuda_describe_oom(struct tdm__cuda_device *cuda, tdm_status status,
                                  const char *what, size_t size_bytes);

/* Functions of struct tdm__device_ops in cuda_mappings.c. */
tdm_status tdm__cuda_reserve(struct tdm__device *device, size_t size_bytes, void **address_out);
void tdm__cuda_unreserve(struct tdm__device *device, void *address, size_t size_bytes);
tdm_status tdm__cuda_map(struct tdm__device *device, void *address, struct tdm__block *block,
                         enum tdm__access access);
tdm_status tdm__cuda_unmap(struct tdm__device *device, void *address, size_t size_bytes);
tdm_status tdm__cuda_exchange(struct tdm__device *device, const struct tdm__mapping *a,
                              const struct tdm__mapping *b);

/* Functions in streams.c. tdm__cuda_streams_open() and tdm__cuda_streams_close() create and
 * destroy the streams of a device; the others are functions of struct tdm__device_ops.
 */
tdm_status tdm__cuda_streams_open(struct tdm__cuda_device *cuda);
void tdm__cuda_streams_close(struct tdm__cuda_device *cuda);
tdm_status tdm__cuda_copy(struct tdm__device *device, void *destination, const void *source,
                          size_t size_bytes);
tdm_status tdm__cuda_copy_flush(struct tdm__device *device);
tdm_status tdm__cuda_host_alloc(struct tdm__device *device, size_t size_bytes, void **address_out);
void tdm__cuda_host_free(struct tdm__device *device, void *address, size_t size_bytes);

/* Executes copy operations with the GPU's kernels: the function `move` of the device. */
tdm_status tdm__cuda_run_copy_ops(struct tdm__device *device, const struct tdm__copy_op *copy_ops,
                                  uint32_t count, uint64_t *sums_out);
/* Destroys the copy engine of the device, if it has one. The GPU's context must be current. */
void tdm__cuda_copy_engine_close(struct tdm__cuda_device *cuda);

#endif
