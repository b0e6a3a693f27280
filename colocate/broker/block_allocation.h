/* block_allocation.h - allocates the memory of new blocks on a thread, so that the loop does not
 * block. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_BROKER_BLOCK_ALLOCATION_H
#define TDM_COLOCATE_BROKER_BLOCK_ALLOCATION_H

#include "colocate/broker/broker.h"
#include "runtime/loop/loop.h"

/* A thread that allocates the memory of new blocks. Fresh pages come at a gigabyte per second or
 * slower; while a thread waits for them, the loop serves other calls. */
struct tdm__block_allocation;

/* Callback at the end of an allocation, on the loop's thread. The allocation is freed afterwards.
 * On TDM_OK `fds` has the descriptors of all blocks, which the callee must close. On failure
 * `detail` has the reason and `fds` has none. */
typedef void tdm__block_allocation_done_fn(void *arg, tdm_status status, const char *detail,
                                           const int *fds);

/* Starts a thread that allocates `count` (1 to TDM__BLOCKS_MAX) memfds of these sizes for the GPU
 * with tdm__block_memory_create(). The sizes are copied. `fn` is called later, unless this call
 * fails. */
tdm_status tdm__block_allocation_start(struct tdm__loop *loop, uint32_t gpu,
                                       const size_t *sizes_bytes, uint32_t count,
                                       tdm__block_allocation_done_fn *fn, void *arg,
                                       struct tdm__block_allocation **allocation_out);
/* Cancels an allocation and frees its memory; its callback is not called. Blocks until the thread
 * has finished the memfd that it is allocating. */
void tdm__block_allocation_cancel(struct tdm__block_allocation *allocation);

#endif
