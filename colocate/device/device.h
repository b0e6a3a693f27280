/* device.h - what Tandem needs of a memory device: addresses, blocks, mappings, copies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_DEVICE_H
#define TDM_COLOCATE_DEVICE_DEVICE_H

#include "colocate/transfer/copy_op.h"
#include "runtime/id.h"

#include <stddef.h>
#include <stdint.h>

struct tdm__broker_client;
struct tdm__device;

/* Physical memory, mapped or not.  First member of every filling's block. */
struct tdm__block {
    struct tdm__id key; /* the right to open it, for other processes of this node */
    size_t size_bytes;
};

enum tdm__access { TDM__READ_ONLY, TDM__READ_WRITE };

/* A run of addresses and the blocks that are mapped there, one after the other. */
struct tdm__mapping {
    void *address;
    struct tdm__block *const *blocks;
    uint32_t blocks_count;
};

/* A point in the order of copies, which another process can wait for. */
struct tdm__event {
    uint8_t handle[64];
};

enum { TDM__DEVICE_BLOCKS_MAX = 8, TDM__UUID_BYTES = 48 };

/* One thread, but for move.  All entries are mandatory; outputs are written on TDM_OK only;
 * a failed entry has changed nothing. */
struct tdm__device_ops {
    const char *name;

    void (*close)(struct tdm__device *device);

    /* Addresses without memory, aligned to the granularity: touching them is a fault. */
    tdm_status (*reserve)(struct tdm__device *device, size_t size_bytes, void **address_out);
    void (*unreserve)(struct tdm__device *device, void *address, size_t size_bytes);

    /* Memory without addresses: `count` (at most TDM__DEVICE_BLOCKS_MAX) blocks of these sizes,
     * all or none; contents undefined.  TDM_E_DEVICE_FULL.  `tag` is what for. */
    tdm_status (*create)(struct tdm__device *device, const char *tag, const size_t *sizes_bytes,
                         uint32_t count, struct tdm__block **blocks_out);
    /* Another process's block, by its key. */
    tdm_status (*import)(struct tdm__device *device, const struct tdm__id *key,
                         struct tdm__block **block_out);
    /* Makes an imported block this process's own: owner and charge move. */
    tdm_status (*accept)(struct tdm__device *device, struct tdm__block *block);
    /* Gives created or imported blocks back; they are unmapped.  What goes wrong is logged:
     * the memory then returns when this process ends. */
    void (*release)(struct tdm__device *device, struct tdm__block *const *blocks, uint32_t count);

    /* Maps a whole block into reserved addresses that have nothing mapped. */
    tdm_status (*map)(struct tdm__device *device, void *address, struct tdm__block *block,
                      enum tdm__access access);
    /* Whole blocks, any number of neighbours at once; back to reserved. */
    tdm_status (*unmap)(struct tdm__device *device, void *address, size_t size_bytes);
    /* Each place gets the other's blocks; both have blocks of the same sizes.  Mappings move,
     * not bytes. */
    tdm_status (*exchange)(struct tdm__device *device, const struct tdm__mapping *a,
                           const struct tdm__mapping *b);

    /* Between mapped and host memory in any direction; done when copy_flush returns. */
    tdm_status (*copy)(struct tdm__device *device, void *destination, const void *source,
                       size_t size_bytes);
    tdm_status (*copy_flush)(struct tdm__device *device);
    /* Marks all copies so far; waiting makes later ones come after them. */
    tdm_status (*event_record)(struct tdm__device *device, struct tdm__event *event_out);
    tdm_status (*event_wait)(struct tdm__device *device, const struct tdm__event *event);

    /* Runs copy_ops and takes their sums, wherever their ends are mapped or, from host_alloc, in
     * host memory; none overlaps another.  What was copied before is flushed first by whoever
     * needs it; all is done when this returns.  Any thread, also beside other calls, while the
     * ends stay mapped.  On failure what would have been written, sums too, is
     * undefined. */
    tdm_status (*move)(struct tdm__device *device, const struct tdm__copy_op *copy_ops,
                       uint32_t count, uint64_t *sums_out);

    /* Host memory that copies run fastest from and to. */
    tdm_status (*host_alloc)(struct tdm__device *device, size_t size_bytes, void **address_out);
    void (*host_free)(struct tdm__device *device, void *address, size_t size_bytes);
};

/* First member of every filling. */
struct tdm__device {
    const struct tdm__device_ops *ops;
    uint32_t gpu;               /* its index on the node */
    char uuid[TDM__UUID_BYTES]; /* "GPU-host-0" */
    size_t granularity_bytes;   /* of sizes and addresses */
};

/* The reference filling: ordinary memory, blocks from the node's broker (`client` is borrowed).
 */
tdm_status tdm__device_host_open(struct tdm__broker_client *client, uint32_t gpu,
                                 struct tdm__device **device_out);

/* A GPU under CUDA's driver, by its UUID ("GPU-…"), number `gpu` at the broker.
 * TDM_E_UNSUPPORTED where there is no driver. */
tdm_status tdm__device_cuda_open(struct tdm__broker_client *client, uint32_t gpu, const char *uuid,
                                 struct tdm__device **device_out);
/* What such a device itself says of its memory, whoever uses it. */
tdm_status tdm__device_cuda_memory(struct tdm__device *device, size_t *free_bytes_out,
                                   size_t *total_bytes_out);

/* The devices that a node may have, by name: what the daemon offers and its actors open. */
enum { TDM__DEVICE_GPUS_MAX = 64 };

struct tdm__device_list {
    uint32_t count; /* 0: as many as one likes */
    size_t bytes;   /* of the smallest */
    char uuids[TDM__DEVICE_GPUS_MAX][TDM__UUID_BYTES];
};

struct tdm__device_kind {
    const char *name; /* "host", "cuda" */
    /* Which there are; makes no context. */
    tdm_status (*list)(struct tdm__device_list *list_out);
    /* The node's GPU number `gpu`; `uuid` says which that is, where they have one. */
    tdm_status (*open)(struct tdm__broker_client *client, uint32_t gpu, const char *uuid,
                       struct tdm__device **device_out);
};

/* TDM_E_NOT_FOUND names those that there are. */
tdm_status tdm__device_kind_by_name(const char *name, const struct tdm__device_kind **kind_out);

/* What this process was given, as its daemon put it into the environment: the kind, and the
 * UUID of its GPU number `gpu` (0: its first; "": it has none, or they have no UUIDs). */
tdm_status tdm__device_of_process(uint32_t gpu, const struct tdm__device_kind **kind_out,
                                  char uuid[TDM__UUID_BYTES]);

static inline void tdm__device_close(struct tdm__device *device) /* NULL is allowed */
{
    if (device != NULL) {
        device->ops->close(device);
    }
}

#endif
