/* broker.h - the node's only maker of device memory: blocks, their owners, and the capacity. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_BROKER_H
#define TDM_COLOCATE_MEMORY_BROKER_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A block is a sealed memfd that stands for physical memory of one virtual GPU.  Because every
 * block of a node is made here, the capacity is real: what does not fit is not made.
 *
 * A block has one owner, whose charge it is, and holders: the owner and everyone who opened it.
 * Whoever holds it may have it mapped, so the charge ends when the *last* holder has released
 * it or died, not before; after the owner has released it, it is "releasing".
 *
 * Blocks that came back wait in a pool, still faulted in, because writing fresh pages costs ten
 * times as much as the copy.  The pool is host memory, not the GPU's, and never larger than the
 * GPU.  A recycled block holds old bytes: contents of a new block are undefined.
 *
 * Pure accounting but for memfd_create and fallocate; one thread.  A daemon lets another thread
 * fill the pool (block_allocation.h). */
struct tdm__broker;

enum {
    TDM__BLOCK_BYTES_UNIT = 2 << 20, /* sizes are multiples of this */
    TDM__BLOCKS_MAX = 8,             /* in one call: as many descriptors as a message carries */
    TDM__BLOCK_TAG_BYTES = 32,
    TDM__TENANT_NAME_BYTES = 64
};

/* Who owns or holds: a process. */
struct tdm__tenant {
    struct tdm__id id;
    char name[TDM__TENANT_NAME_BYTES]; /* "trainer rank 1", for messages */
};

/* A block as it is handed out.  The key is unguessable: knowing it is the right to open. */
struct tdm__block_handle {
    struct tdm__id key;
    size_t size_bytes;
    int fd;
};

/* Told after each change of a tenant's charge; `bytes` came or went.  Must not call back. */
struct tdm__broker_callbacks {
    void (*charged)(void *arg, uint32_t gpu, const struct tdm__tenant *owner, const char *tag,
                    size_t bytes);
    void (*released)(void *arg, uint32_t gpu, const struct tdm__tenant *owner, const char *tag,
                     size_t bytes);
    void *arg;
};

/* GPUs 0 … gpus_count-1 of `capacity_bytes` each. */
tdm_status tdm__broker_create(uint32_t gpus_count, size_t capacity_bytes,
                              struct tdm__broker **broker_out);
/* Closes every block; mappings elsewhere stay until their processes end.  NULL is allowed. */
void tdm__broker_destroy(struct tdm__broker *broker);
/* Copied; NULL removes it. */
void tdm__broker_set_callbacks(struct tdm__broker *broker,
                               const struct tdm__broker_callbacks *hook);

/* What is wanted: `count` blocks of these sizes on one GPU, for one purpose. */
struct tdm__block_request {
    uint32_t gpu;
    const char *tag; /* 1 to 31 bytes */
    size_t sizes_bytes[TDM__BLOCKS_MAX];
    uint32_t count;
};

/* Makes all of them or none; `blocks_out` has room for request->count.  TDM_E_DEVICE_FULL names
 * the GPU, the tag, the bytes wanted and free, and who holds what.  The descriptors stay the
 * broker's, valid while the block is held. */
tdm_status tdm__broker_create_blocks(struct tdm__broker *broker, const struct tdm__tenant *owner,
                                     const struct tdm__block_request *request,
                                     struct tdm__block_handle *blocks_out);
/* What tdm__broker_create_blocks() would have to make anew, which takes a second a gigabyte or so:
 * the sizes (room for request->count) of the blocks that the pool has not.  Fails as making would.
 */
tdm_status tdm__broker_missing_sizes(const struct tdm__broker *broker,
                                     const struct tdm__tenant *owner,
                                     const struct tdm__block_request *request,
                                     size_t *sizes_bytes_out, uint32_t *count_out);
/* Puts memory into the pool that tdm__block_memory_create() made elsewhere: takes `fd` on TDM_OK.
 * The newest in the pool stays, so that a making of this size finds it. */
tdm_status tdm__broker_add_to_pool(struct tdm__broker *broker, uint32_t gpu, size_t size_bytes,
                                   int fd);
/* The detail of `reason`, why memory for the request could not be made, with the request's own. */
tdm_status tdm__broker_fail_no_memory(const struct tdm__broker *broker,
                                      const struct tdm__tenant *owner,
                                      const struct tdm__block_request *request, tdm_status reason);
/* The same accounting for memory that the tenant made itself on its device: `fds` (duplicated)
 * keep it alive for as long as it is held, and it is never pooled.  `keys_out` has room for
 * request->count. */
tdm_status tdm__broker_register_blocks(struct tdm__broker *broker, const struct tdm__tenant *owner,
                                       const struct tdm__block_request *request, const int *fds,
                                       struct tdm__id *keys_out);
/* Makes `holder` one more holder (counted).  TDM_E_NOT_FOUND for a key that is none. */
tdm_status tdm__broker_open_block(struct tdm__broker *broker, const struct tdm__id *key,
                                  const struct tdm__tenant *holder,
                                  struct tdm__block_handle *block_out);
/* Undoes one making or opening by `holder`.  TDM_E_NOT_FOUND if it holds no such block. */
tdm_status tdm__broker_release_block(struct tdm__broker *broker, const struct tdm__id *key,
                                     const struct tdm__id *holder);
/* Moves ownership and charge to `owner`, who must hold the block already (TDM_E_STATE). */
tdm_status tdm__broker_transfer_block(struct tdm__broker *broker, const struct tdm__id *key,
                                      const struct tdm__tenant *owner);
/* Releases everything that the dead process held. */
void tdm__broker_remove_tenant(struct tdm__broker *broker, const struct tdm__id *peer);

/* ---- what there is ---------------------------------------------------------------------- */

struct tdm__broker_gpu {
    size_t capacity_bytes;
    size_t used_bytes;   /* charged: always the sum over the rows */
    size_t pooled_bytes; /* waiting in host memory, not charged */
};

/* One row per owner and tag of a GPU. */
struct tdm__broker_usage {
    struct tdm__tenant owner;
    char tag[TDM__BLOCK_TAG_BYTES];
    size_t bytes;
    size_t releasing_bytes;              /* of them: the owner let go, others still hold */
    char holder[TDM__TENANT_NAME_BYTES]; /* the name of one of those others; "": none */
    uint32_t blocks_count;
};

uint32_t tdm__broker_gpus_count(const struct tdm__broker *broker);
void tdm__broker_gpu_usage(const struct tdm__broker *broker, uint32_t gpu,
                           struct tdm__broker_gpu *gpu_out);
/* Fills at most `room` rows, in the order their first blocks were made; returns how many. */
uint32_t tdm__broker_list_usage(const struct tdm__broker *broker, uint32_t gpu,
                                struct tdm__broker_usage *usages_out, uint32_t room);

#endif
