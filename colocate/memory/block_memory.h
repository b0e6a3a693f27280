/* block_memory.h - the memfd that stands for a block's physical memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_BLOCK_MEMORY_H
#define TDM_COLOCATE_MEMORY_BLOCK_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* A memfd of this size, faulted in here so that the pages are charged to the node and not to
 * the tenant that touches them first, and sealed so that no tenant can pull it away under
 * another.  In large pages where the machine gives them.  TDM_E_NOMEM where the host has less
 * than that available: to find out by taking it would end other processes.  Takes a second a
 * gigabyte or so; any thread.  The GPU is for messages. */
tdm_status tdm__block_memory_create(uint32_t gpu, size_t size_bytes, int *fd_out);

#endif
