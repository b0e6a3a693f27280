/* device.h - the interface to a memory device: addresses, blocks, mappings and copies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_DEVICE_H
#define TDM_COLOCATE_DEVICE_DEVICE_H

#include "colocate/transfer/copy_op.h"
#include "runtime/id.h"

#include <stddef.h>
#include <stdint.h>

struct tdm__device;

/* Physical memory of a device, mapped or not. First member of every implementation's block; the
 * process that created or imported the block owns it. */
struct tdm__block {
    /* Key at the node's broker; another process of the node that knows it may open the block. */
    struct tdm__id key;
    size_t size_bytes; /* Size, a multiple of the device's granularity. */
};

/* What a mapping of a block allows. */
enum tdm__access { TDM__READ_ONLY, TDM__READ_WRITE };

/* A range of addresses and the blocks that are mapped there, one after the other. */
struct tdm__mapping {
    void *address; /* First address. */
    /* Borrowed blocks in the order of their addresses. */
    struct tdm__block *const *blocks;
    uint32_t blocks_count; /* Number of blocks. */
};

/* Size of a GPU's UUID, with the NUL. */
enum { TDM__DEVICE_BLOCKS_MAX = 8, TDM__UUID_BYTES = 48 };

/* The functions of a device. One thread calls them, except `move`. All are mandatory. They write
 * outputs on TDM_OK only, and a call that fails changes nothing. */
struct tdm__device_ops {
    /* Name of the kind of device, for example "cuda". */
    const char *name;

    /* Destroys the device. All blocks must be released and all addresses unreserved. */
    void (*close)(struct tdm__device *device);

    /* Reserves a range of addresses without memory, aligned to the granularity. An access to the
     * range is a fault. */
    tdm_status (*reserve)(struct tdm__device *device, size_t size_bytes, void **address_out);
    /* Unmaps and frees a reserved range. */
    void (*unreserve)(struct tdm__device *device, void *address, size_t size_bytes);

    /* Creates `count` blocks (at most TDM__DEVICE_BLOCKS_MAX) of these sizes, all or none,
     * without addresses and with undefined contents. `tag` names their purpose. Fails with
     * TDM_E_DEVICE_FULL. */
    tdm_status (*create)(struct tdm__device *device, const char *tag, const size_t *sizes_bytes,
                         uint32_t count, struct tdm__block **blocks_out);
    /* Opens another process's block by its key. */
    tdm_status (*import)(struct tdm__device *device, const struct tdm__id *key,
                         struct tdm__block **block_out);
    /* Releases created or imported blocks, which must be unmapped. A failure is logged; the
     * memory then returns when this process ends. */
    void (*release)(struct tdm__device *device, struct tdm__block *const *blocks, uint32_t count);

    /* Writes the descriptor of the block's memory as a file, which another process may open and
     * map; the block keeps it. Fails with TDM_E_UNSUPPORTED if the memory is no file. */
    tdm_status (*descriptor)(struct tdm__device *device, const struct tdm__block *block,
                             int *descriptor_out);

    /* Maps a whole block into reserved addresses where nothing is mapped. */
    tdm_status (*map)(struct tdm__device *device, void *address, struct tdm__block *block,
                      enum tdm__access access);
    /* Unmaps any number of adjacent whole blocks; the addresses stay reserved. Waits first as
     * `synchronize` does. */
    tdm_status (*unmap)(struct tdm__device *device, void *address, size_t size_bytes);
    /* Maps the blocks of `a` at the address of `b` and vice versa. Both must have blocks of the
     * same sizes. No byte is copied. Waits first as `synchronize` does. */
    tdm_status (*exchange)(struct tdm__device *device, const struct tdm__mapping *a,
                           const struct tdm__mapping *b);

    /* Starts a copy between mapped memory and host memory in any direction. The copy is complete
     * when copy_flush returns. */
    tdm_status (*copy)(struct tdm__device *device, void *destination, const void *source,
                       size_t size_bytes);
    /* Blocks until all copies have completed. */
    tdm_status (*copy_flush)(struct tdm__device *device);

    /* Blocks until the device has done all that this process has queued on it, copies of this
     * device and work of other libraries (PyTorch, an engine, NCCL) in any stream of theirs. There
     * is no limit of time: a kernel that never ends blocks for ever. No stream may be captured
     * into a CUDA graph meanwhile. The host does nothing here. */
    tdm_status (*synchronize)(struct tdm__device *device);

    /* Writes how much memory the real GPU has, and how much of it no process uses. Both are 0 for a
     * virtual GPU, of which the broker knows all. */
    tdm_status (*memory_info)(struct tdm__device *device, uint64_t *total_bytes_out,
                              uint64_t *free_bytes_out);

    /* Executes the copy operations and writes the checksum of each to `sums_out`. Their ends are
     * mapped on the device or are memory of host_alloc, and no operation overlaps another. Blocks
     * until all are complete. It does not wait for earlier copies: the caller flushes those that
     * it needs. Any thread may call it, also while other calls run, as long as the ends stay
     * mapped. On failure the written bytes and the sums are undefined. */
    tdm_status (*move)(struct tdm__device *device, const struct tdm__copy_op *copy_ops,
                       uint32_t count, uint64_t *sums_out);

    /* Allocates host memory for the fastest copies (pinned memory on a GPU). */
    tdm_status (*host_alloc)(struct tdm__device *device, size_t size_bytes, void **address_out);
    /* Frees memory of host_alloc; `size_bytes` is the size that was allocated. */
    void (*host_free)(struct tdm__device *device, void *address, size_t size_bytes);
};

/* An open device. First member of every implementation; the caller of open owns it. */
struct tdm__device {
    const struct tdm__device_ops *ops; /* Functions of the implementation. */
    uint32_t gpu;                      /* Index of the GPU on its node. */
    char uuid[TDM__UUID_BYTES];        /* UUID of the GPU, for example "GPU-host-0". */
    /* Number of the GPU among those that this process sees, in the order of the CUDA runtime and of
     * PyTorch; 0 for a virtual GPU. */
    int visible_number;
    /* Sizes and addresses are multiples of this number of bytes. */
    size_t granularity_bytes;
};

/* Closes a device. NULL is allowed. */
static inline void tdm__device_close(struct tdm__device *device)
{
    if (device != NULL) {
        device->ops->close(device);
    }
}

#endif
