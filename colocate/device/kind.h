/* kind.h - a kind of device: its name, its GPUs on this node, and what depends on the kind. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_KIND_H
#define TDM_COLOCATE_DEVICE_KIND_H

#include "colocate/device/device.h"

struct tdm__broker_client;

/* Most GPUs of a node. */
enum { TDM__DEVICE_GPUS_MAX = 64 };

/* Environment variable in which the daemon names the real GPU of each of the node's GPUs, in their
 * order and separated by commas: "GPU-77,GPU-3f2a,GPU-77" if the first and the third share one. All
 * processes of the node inherit it. It is empty if the GPUs have no UUIDs. */
#define TDM__GPU_UUIDS_VARIABLE "TANDEM_GPU_UUIDS"

/* The GPUs of one kind on this node. */
struct tdm__device_list {
    /* Number of GPUs; 0 if the number is not limited (virtual GPUs). */
    uint32_t count;
    size_t bytes;                                      /* Memory of the smallest GPU. */
    char uuids[TDM__DEVICE_GPUS_MAX][TDM__UUID_BYTES]; /* UUIDs of the GPUs. */
};

/* The library that moves data between the GPUs of several processes. */
enum tdm__device_collective {
    /* None. The memory of the GPUs is host memory, which the communicators of the host move. */
    TDM__DEVICE_COLLECTIVE_HOST,
    TDM__DEVICE_COLLECTIVE_NCCL /* NVIDIA's NCCL. */
};

/* A kind of device that the daemon can be configured with. The table in kinds.c lists all. */
struct tdm__device_kind {
    const char *name;      /* Name in options and job files, for example "cuda". */
    const char *gpus_name; /* Word for these GPUs in output: "GPUs" or "virtual GPUs". */
    /* Environment variable with the GPUs that a process may use, separated by commas: UUIDs, or
     * numbers if the GPUs have none. The daemon sets it for every worker. It names a real GPU once,
     * also for an actor with several GPUs that share it: CUDA sees no device at all otherwise. */
    const char *visible_devices_variable;
    /* Library for collective operations on data of these GPUs. */
    enum tdm__device_collective collective;
    /* Lists the GPUs of this kind, without creating a context on them. */
    tdm_status (*list)(struct tdm__device_list *list_out);
    /* Opens a GPU. `gpu` is its index at the node's broker, which charges its blocks. `uuid`
     * identifies the GPU for kinds whose GPUs have UUIDs. The client of the broker is borrowed.
     * Fails with TDM_E_UNSUPPORTED if the machine has no driver for this kind. */
    tdm_status (*open)(struct tdm__broker_client *client, uint32_t gpu, const char *uuid,
                       struct tdm__device **device_out);
};

#endif
