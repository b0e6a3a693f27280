/* free_list.h - memory for the many small things that live as long as a call. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_FREE_LIST_H
#define TDM_RUNTIME_FREE_LIST_H

#include <stddef.h>

/* Like malloc and free for blocks up to TDM__FREE_LIST_BLOCK_BYTES_MAX; larger ones are malloc's.
 * Each thread keeps what it gives back, up to TDM__FREE_LIST_KEPT_BYTES_MAX of all sizes together:
 * a thousand calls under way at once are more than malloc keeps at hand.  When that is full,
 * all blocks of the size that has the most are freed, so that a size that the thread gives but
 * never takes does not stay for ever.  A block may be given back by another thread than took
 * it. */
enum { TDM__FREE_LIST_BLOCK_BYTES_MAX = 1024, TDM__FREE_LIST_KEPT_BYTES_MAX = 1024 * 1024 };

void *tdm__free_list_alloc(size_t size_bytes); /* NULL: no memory */
void *tdm__free_list_alloc_zeroed(size_t size_bytes);
/* The size is that it was taken with.  NULL is allowed. */
void tdm__free_list_free(void *memory, size_t size_bytes);
size_t tdm__free_list_kept_bytes(void); /* by this thread */

#endif
