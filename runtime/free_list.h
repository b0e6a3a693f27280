/* free_list.h - a per-thread allocator for small blocks that live as long as a call. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_FREE_LIST_H
#define TDM_RUNTIME_FREE_LIST_H

#include <stddef.h>

/* Works like malloc() and free() for blocks of at most TDM__FREE_LIST_BLOCK_BYTES_MAX bytes;
 * larger blocks go to malloc() directly.  Each thread keeps the blocks that it frees, up to
 * TDM__FREE_LIST_KEPT_BYTES_MAX for all sizes together.  This is faster than malloc(), whose own
 * cache is too small for a thousand calls in flight.
 * When the limit is reached, all blocks of the size that uses most memory are freed.  So a size
 * that the thread frees but never allocates cannot occupy the memory forever.  One thread may
 * allocate a block and another one free it. */
enum { TDM__FREE_LIST_BLOCK_BYTES_MAX = 1024, TDM__FREE_LIST_KEPT_BYTES_MAX = 1024 * 1024 };

/* Returns a block of `size_bytes` bytes with undefined contents, or NULL if there is no memory. */
void *tdm__free_list_alloc(size_t size_bytes);
/* Returns a block of `size_bytes` zero bytes, or NULL if there is no memory. */
void *tdm__free_list_alloc_zeroed(size_t size_bytes);
/* Frees a block of tdm__free_list_alloc(). `size_bytes` must be the size with which the block was
 * allocated. NULL is allowed. */
void tdm__free_list_free(void *memory, size_t size_bytes);
/* Returns the bytes of the free blocks that the calling thread keeps.  For tests. */
size_t tdm__free_list_kept_bytes(void);

#endif
