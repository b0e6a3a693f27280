/* mapped.h - which memory this process shows where, and what it keeps mapped aside. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_HOST_MAPPED_H
#define TDM_COLOCATE_DEVICE_HOST_MAPPED_H

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
    TDM__PAGES_UNIT = 2 << 20, /* what page tables move by */
    TDM__MAPPED_ASIDE_MAX = 3  /* times what was in use */
};

/* Addresses without memory, aligned to the unit. */
tdm_status tdm__addresses_reserve(size_t size_bytes, void **address_out);

/* Replaces what is mapped there; the pages are entered at once. */
tdm_status tdm__pages_map(void *address, size_t size_bytes, int fd, enum tdm__access access);
/* Moves page tables; errno, or 0.  The source keeps its addresses and still refers to its own
 * memory (but with no page entered), so that no other thread's mmap can slip into the gap and a
 * failure half way has lost nothing. */
int tdm__pages_move(void *to, void *from, size_t size_bytes);

struct tdm__mapped_entry;

/* All zero: nothing. */
struct tdm__mapped {
    struct tdm__mapped_entry *entries; /* owned; the one touched last first */
    size_t shown_bytes;
    size_t shown_bytes_max;
    size_t aside_bytes;
};

/* Unmaps what lies aside. */
void tdm__mapped_fini(struct tdm__mapped *mapped);

/* Into reserved addresses that show nothing: all of the memory behind `fd`. */
tdm_status tdm__mapped_show(struct tdm__mapped *mapped, void *address, size_t size_bytes,
                            int fd, enum tdm__access access);
/* Whole pieces, any number of neighbours; back to reserved. */
tdm_status tdm__mapped_hide(struct tdm__mapped *mapped, void *address, size_t size_bytes);
/* Somebody has exchanged what the two addresses show. */
void tdm__mapped_exchange(struct tdm__mapped *mapped, void *a, void *b);
/* Somebody is about to unmap all of this. */
void tdm__mapped_forget(struct tdm__mapped *mapped, void *address, size_t size_bytes);

#endif
