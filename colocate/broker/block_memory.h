/* block_memory.h - the memfd that represents a block's physical memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_BROKER_BLOCK_MEMORY_H
#define TDM_COLOCATE_BROKER_BLOCK_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* Creates the memory of a block: a sealed memfd of `size_bytes` bytes with all pages faulted in, as
 * large pages if the machine allows them. Faulting in here charges the pages to the node and not to
 * the first tenant that touches them. The seals prevent that one process shrinks the memory while
 * others map it.
 *
 * Fails with TDM_E_NOMEM if the host has less memory available, because running out of memory
 * would make the kernel kill processes. Takes about a second per gigabyte. Any thread may call
 * it. `gpu` is for messages. */
tdm_status tdm__block_memory_create(uint32_t gpu, size_t size_bytes, int *fd_out);

#endif
