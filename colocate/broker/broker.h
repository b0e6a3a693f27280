/* broker.h - the block broker: the only allocator of device memory on a node, with owners and
 * capacities. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_BROKER_BROKER_H
#define TDM_COLOCATE_BROKER_BROKER_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A block is a sealed memfd that represents physical memory of one virtual GPU. Every block of a
 * node is allocated by its broker, so the capacity of a GPU is enforced: a request that does not
 * fit is refused.
 *
 * A block has one owner, which is charged for it, and holders: the owner and every process that
 * opened the block. A holder may have the block mapped. The charge therefore ends only when the
 * last holder has released the block, or has died and all processes that it had started, too. A
 * block that its owner has released, and another holder has not, is "releasing".
 *
 * Released blocks wait in a pool with their pages still faulted in, because writing fresh pages
 * takes ten times as long as a copy. The pool is host memory that is not charged to the GPU, and
 * it is never larger than the GPU's capacity. A recycled block contains old bytes: the contents
 * of a new block are undefined.
 *
 * The broker only does accounting, besides memfd_create and fallocate. One thread uses it. The
 * daemon lets another thread allocate memory for the pool (block_allocation.h). */
struct tdm__broker;

enum {
    /* Unit of block sizes in bytes: the size of each block is a multiple of it. */
    TDM__BLOCK_BYTES_UNIT = 2 << 20,
    /* Largest number of blocks in one request: the number of descriptors that one message
     * carries. */
    TDM__BLOCKS_MAX = 8,
    TDM__BLOCK_TAG_BYTES = 32, /* Size in bytes of a block's tag, including the terminating NUL. */
    /* Size in bytes of a tenant's name, including the terminating NUL. */
    TDM__TENANT_NAME_BYTES = 64
};

/* A process that owns or holds blocks. */
struct tdm__tenant {
    struct tdm__id id; /* ID under which the daemon knows the process. */
    /* Name of the process for messages, for example "trainer rank 1". */
    char name[TDM__TENANT_NAME_BYTES];
};

/* What a process gets for a block that it created or opened. The owner of `fd` depends on the
 * function that returns the handle. */
struct tdm__block_handle {
    /* Key of the block. It cannot be guessed: a process that knows it may open the block. */
    struct tdm__id key;
    size_t size_bytes; /* Size of the block in bytes. */
    int fd;            /* Descriptor of the memfd that is the block's memory. */
};

/* Functions that the broker calls after each change of a tenant's charge. They must not call the
 * broker. */
struct tdm__broker_callbacks {
    /* Called when `bytes` on `gpu` have been charged to `owner` under `tag`; NULL for no call. */
    void (*charged)(void *arg, uint32_t gpu, const struct tdm__tenant *owner, const char *tag,
                    size_t bytes);
    /* Called when `bytes` on `gpu` are no longer charged to `owner` under `tag`; NULL for no
     * call. */
    void (*released)(void *arg, uint32_t gpu, const struct tdm__tenant *owner, const char *tag,
                     size_t bytes);
    void *arg; /* First argument of charged() and released(). */
};

/* Creates a broker for GPUs 0 to gpus_count-1 of `capacity_bytes` each. */
tdm_status tdm__broker_create(uint32_t gpus_count, size_t capacity_bytes,
                              struct tdm__broker **broker_out);
/* Destroys a broker and closes the memory of all its blocks. Mappings in other processes stay until
 * those processes end. NULL is allowed. */
void tdm__broker_destroy(struct tdm__broker *broker);
/* Sets the broker's callbacks to a copy of `hook`; NULL removes the callbacks. */
void tdm__broker_set_callbacks(struct tdm__broker *broker,
                               const struct tdm__broker_callbacks *hook);

/* What a tenant requests: `count` blocks of the given sizes on one GPU, under one tag. */
struct tdm__block_request {
    uint32_t gpu;    /* Index of the GPU on this node. */
    const char *tag; /* Purpose of the memory, for example "weights", 1 to 31 bytes; borrowed. */
    /* Size of each block in bytes, a multiple of TDM__BLOCK_BYTES_UNIT. */
    size_t sizes_bytes[TDM__BLOCKS_MAX];
    uint32_t count; /* Number of requested blocks, at least 1. */
};

/* Provides all blocks of the request, or none on failure, and charges `owner` for them.
 * `blocks_out` has space for request->count handles. The broker keeps the descriptors; they are
 * valid while the block has a holder. TDM_E_DEVICE_FULL names the GPU, the tag, the bytes requested
 * and free, and the holders of the memory. */
tdm_status tdm__broker_create_blocks(struct tdm__broker *broker, const struct tdm__tenant *owner,
                                     const struct tdm__block_request *request,
                                     struct tdm__block_handle *blocks_out);
/* Finds which blocks of the request the pool does not have: writes their sizes and their number.
 * The caller allocates them first, because allocating fresh memory takes about a second per
 * gigabyte. `sizes_bytes_out` has space for request->count sizes. Fails as
 * tdm__broker_create_blocks() would. */
tdm_status tdm__broker_missing_sizes(const struct tdm__broker *broker,
                                     const struct tdm__tenant *owner,
                                     const struct tdm__block_request *request,
                                     size_t *sizes_bytes_out, uint32_t *count_out);
/* Adds memory that tdm__block_memory_create() made, on another thread, to the pool of a GPU. Takes
 * ownership of `fd` on TDM_OK. The pool evicts its newest block last, so that the next request for
 * this size finds it. */
tdm_status tdm__broker_add_to_pool(struct tdm__broker *broker, uint32_t gpu, size_t size_bytes,
                                   int fd);
/* Adds the owner, the tag and the sizes of a request to the error text of `reason`, and returns
 * `reason`. */
tdm_status tdm__broker_fail_no_memory(const struct tdm__broker *broker,
                                      const struct tdm__tenant *owner,
                                      const struct tdm__block_request *request, tdm_status reason);
/* Charges `owner` for memory that it allocated itself on its device. The broker duplicates `fds`,
 * which keep the memory alive while a block has a holder. Such memory is never pooled. `keys_out`
 * has space for request->count keys. */
tdm_status tdm__broker_register_blocks(struct tdm__broker *broker, const struct tdm__tenant *owner,
                                       const struct tdm__block_request *request, const int *fds,
                                       struct tdm__id *keys_out);
/* Records that the process `holder` holds the block with this key once more, and returns a handle
 * to the block. The broker keeps the handle's descriptor. Fails with TDM_E_NOT_FOUND if there is no
 * such block. */
tdm_status tdm__broker_open_block(struct tdm__broker *broker, const struct tdm__id *key,
                                  const struct tdm__tenant *holder,
                                  struct tdm__block_handle *block_out);
/* Undoes one creation or opening of the block by the process `holder`. Fails with TDM_E_NOT_FOUND
 * if the process does not hold the block. */
tdm_status tdm__broker_release_block(struct tdm__broker *broker, const struct tdm__id *key,
                                     const struct tdm__id *holder);
/* Releases all blocks that the process, which has died, held. */
void tdm__broker_remove_tenant(struct tdm__broker *broker, const struct tdm__id *peer);

/* ---- usage ------------------------------------------------------------------------------- */

/* How much memory of one GPU is used, as the broker accounts for it. */
struct tdm__broker_gpu {
    size_t capacity_bytes; /* Number of bytes of memory that the node offers for the GPU. */
    /* Number of bytes that are charged to processes: the sum over the GPU's usage records. */
    size_t used_bytes;
    /* Number of bytes of released blocks that wait in host memory for reuse; not charged. */
    size_t pooled_bytes;
    /* Number of bytes of the real GPU that processes use without the broker, such as their CUDA
     * contexts and the memory of PyTorch, by the last report; 0 for a virtual GPU. */
    size_t outside_bytes;
};

/* Usage record: the blocks of one owner with one tag on a GPU. */
struct tdm__broker_usage {
    struct tdm__tenant owner;       /* Process to which the blocks of the record are charged. */
    char tag[TDM__BLOCK_TAG_BYTES]; /* Tag that all blocks of the record have. */
    size_t bytes;                   /* Sum of the sizes of all blocks of the record. */
    /* Bytes of the record's blocks that the owner has released and another process still holds. */
    size_t releasing_bytes;
    /* Name of one process that still holds blocks that the owner has released; "" if
     * absent. */
    char holder[TDM__TENANT_NAME_BYTES];
    uint32_t blocks_count; /* Number of blocks of the record. */
};

/* Returns the number of GPUs of the broker's node. */
uint32_t tdm__broker_gpus_count(const struct tdm__broker *broker);
/* Writes how much memory of one GPU is used and pooled; `gpu` must be less than
 * tdm__broker_gpus_count(). */
void tdm__broker_gpu_usage(const struct tdm__broker *broker, uint32_t gpu,
                           struct tdm__broker_gpu *gpu_out);
/* Stores what processes use of the GPU without the broker, for lists; see struct tdm__broker_gpu.
 */
void tdm__broker_set_outside_usage(struct tdm__broker *broker, uint32_t gpu, size_t bytes);
/* Returns true if the tenant is charged for at least one block on `gpu`, which must exist. */
bool tdm__broker_is_charged(const struct tdm__broker *broker, uint32_t gpu,
                            const struct tdm__id *tenant);
/* Writes at most `capacity` usage records of one GPU, in the order in which their first blocks were
 * allocated. Returns their number. */
uint32_t tdm__broker_list_usage(const struct tdm__broker *broker, uint32_t gpu,
                                struct tdm__broker_usage *usages_out, uint32_t capacity);

#endif
