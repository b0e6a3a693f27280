/* mapping_cache.h - which memory this process shows where, and what it keeps mapped aside. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_HOST_MAPPING_CACHE_H
#define TDM_COLOCATE_DEVICE_HOST_MAPPING_CACHE_H

#include "colocate/device/device.h"

/* Entering the pages of a block into page tables costs half as much as copying it, and taking
 * them out again almost the same.  So what is unmapped is moved aside, to addresses that nobody
 * knows, and moved back when the same memory is to be mapped again: page tables move whole.  On
 * the node's side it is the same thing: blocks given back wait in the broker's pool.
 *
 * What lies aside is memory of this node, not of a GPU: the broker has counted it as free, and
 * others may use it.  There is never more of it than three times what this process has had in
 * use at once: an update takes turns between two sets of blocks.  The oldest goes first.
 * Nothing reads or writes it there. */

enum {
    TDM__PAGE_TABLE_UNIT_BYTES = 2 << 20, /* what page tables move by */
    TDM__MAPPING_CACHE_RATIO_MAX = 3      /* times what was in use */
};

/* Addresses without memory, aligned to the unit. */
tdm_status tdm__address_range_reserve(size_t size_bytes, void **address_out);

/* Replaces what is mapped there; the pages are entered at once. */
tdm_status tdm__pages_map(void *address, size_t size_bytes, int fd, enum tdm__access access);
/* Moves page tables; errno, or 0.  The source keeps its addresses and still refers to its own
 * memory (but with no page entered), so that no other thread's mmap can slip into the gap and a
 * failure half way has lost nothing. */
int tdm__page_tables_move(void *to, void *from, size_t size_bytes);

struct tdm__mapping_cache_entry;

/* All zero: nothing. */
struct tdm__mapping_cache {
    struct tdm__mapping_cache_entry *entries; /* owned; the one touched last first */
    size_t mapped_bytes;
    size_t mapped_bytes_max;
    size_t cached_bytes;
};

/* Unmaps what lies aside. */
void tdm__mapping_cache_fini(struct tdm__mapping_cache *mapped);

/* Into reserved addresses that show nothing: all of the memory behind `fd`. */
tdm_status tdm__mapping_cache_map(struct tdm__mapping_cache *mapped, void *address,
                                  size_t size_bytes, int fd, enum tdm__access access);
/* Whole pieces, any number of neighbours; back to reserved. */
tdm_status tdm__mapping_cache_unmap(struct tdm__mapping_cache *mapped, void *address,
                                    size_t size_bytes);
/* Somebody has exchanged what the two addresses show. */
void tdm__mapping_cache_exchange(struct tdm__mapping_cache *mapped, void *a, void *b);
/* Somebody is about to unmap all of this. */
void tdm__mapping_cache_forget(struct tdm__mapping_cache *mapped, void *address, size_t size_bytes);

#endif
