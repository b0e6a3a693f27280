/* cuda_device.h - an open GPU under the CUDA driver: the types that the files of the device share.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_CUDA_DEVICE_H
#define TDM_COLOCATE_DEVICE_CUDA_CUDA_DEVICE_H

#include "colocate/broker/broker_client.h"
#include "colocate/device/cuda/driver.h"

#include <pthread.h>
#include <stdbool.h>

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

/* Makes the GPU's context current on the calling thread until the scope ends. Every function of the
 * device does so first, because threads and GPUs mix, and leaves the thread's current device as it
 * was. */
tdm_status tdm__cuda_enter(const struct tdm__cuda_device *cuda, struct tdm__cuda_scope *scope);

/* Adds the wanted and the free memory to the error detail of TDM_E_DEVICE_FULL. Returns `status`
 * in every case. */
tdm_status tdm__cuda_describe_oom(struct tdm__cuda_device *cuda, tdm_status status,
                                  const char *what, size_t size_bytes);

#endif
