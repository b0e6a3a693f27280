/* block_allocation.h - memory for new blocks, made by a thread of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_BLOCK_ALLOCATION_H
#define TDM_COLOCATE_MEMORY_BLOCK_ALLOCATION_H

#include "colocate/memory/broker.h"
#include "runtime/loop/loop.h"

/* Fresh pages come at a gigabyte a second or slower.  While a thread waits for them, the loop
 * serves everybody else. */
struct tdm__block_allocation;

/* On the loop's thread, once: the descriptors of all pieces, now the callee's, or the reason
 * why there is none.  The filling is gone when it returns. */
typedef void tdm__block_allocation_done_fn(void *arg, tdm_status status, const char *detail,
                                           const int *fds);

/* Makes `count` (1 to TDM__BLOCKS_MAX) memfds of these sizes for the GPU, as
 * tdm__block_memory_create() does.  Copies the sizes; `fn` runs later, unless this fails. */
tdm_status tdm__block_allocation_start(struct tdm__loop *loop, uint32_t gpu,
                                       const size_t *sizes_bytes, uint32_t count,
                                       tdm__block_allocation_done_fn *fn, void *arg,
                                       struct tdm__block_allocation **allocation_out);
/* Waits for the piece that the thread is at, and frees what it has made; `fn` does not run. */
void tdm__block_allocation_cancel(struct tdm__block_allocation *filling);

#endif
