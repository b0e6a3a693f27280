/* filling.h - memory for new blocks, made by a thread of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_FILLING_H
#define TDM_COLOCATE_MEMORY_FILLING_H

#include "colocate/memory/broker.h"
#include "runtime/loop/loop.h"

/* Fresh pages come at a gigabyte a second or slower.  While a thread waits for them, the loop
 * serves everybody else. */
struct tdm__filling;

/* On the loop's thread, once: the descriptors of all pieces, now the callee's, or the reason
 * why there is none.  The filling is gone when it returns. */
typedef void tdm__filled_fn(void *arg, tdm_status status, const char *detail, const int *fds);

/* Makes `count` (1 to TDM__BLOCKS_MAX) memfds of these sizes for the GPU, as
 * tdm__block_memory_make() does.  Copies the sizes; `fn` runs later, unless this fails. */
tdm_status tdm__filling_begin(struct tdm__loop *loop, uint32_t gpu, const size_t *sizes_bytes,
                              uint32_t count, tdm__filled_fn *fn, void *arg,
                              struct tdm__filling **filling_out);
/* Waits for the piece that the thread is at, and frees what it has made; `fn` does not run. */
void tdm__filling_cancel(struct tdm__filling *filling);

#endif
