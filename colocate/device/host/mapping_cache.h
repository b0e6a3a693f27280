/* mapping_cache.h - the mappings of this process on a virtual GPU, and a cache of unmapped ones. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_HOST_MAPPING_CACHE_H
#define TDM_COLOCATE_DEVICE_HOST_MAPPING_CACHE_H

#include "colocate/device/device.h"

/* Adding the pages of a block to the page tables takes half as long as copying the block, and
 * removing them almost as long. Therefore an unmapped block is not unmapped but moved to other
 * addresses, which no other code knows, and moved back when the same memory is mapped again: the
 * kernel moves whole page tables. The broker's pool does the same for released blocks on the
 * node's side.
 *
 * A cached mapping holds memory of the node that is not charged to a GPU: the broker counts it as
 * free, and other processes may use it. Nothing reads or writes a cached mapping. The cache is
 * limited to TDM__MAPPING_CACHE_RATIO_MAX times the largest number of bytes that the process had
 * mapped at once, because an update alternates between two sets of blocks. The oldest entry is
 * evicted first. */

enum {
    /* Addresses and sizes of mappings are multiples of this, so that whole page tables move. */
    TDM__PAGE_TABLE_UNIT_BYTES = 2 << 20,
    /* Largest ratio of cached bytes to the most bytes mapped at once. */
    TDM__MAPPING_CACHE_RATIO_MAX = 3
};

/* Reserves a range of addresses without memory, aligned to TDM__PAGE_TABLE_UNIT_BYTES. */
tdm_status tdm__address_range_reserve(size_t size_bytes, void **address_out);

/* Maps the memory behind `fd` at `address`, replacing the earlier mapping. All pages are entered
 * into the page tables at once. */
tdm_status tdm__pages_map(void *address, size_t size_bytes, int fd, enum tdm__access access);
/* Moves the page tables of a range to another range. Returns 0 or an errno value. The source
 * range stays reserved and still refers to its memory, with no page entered, so that no other
 * thread's mmap can get the addresses and a failure loses nothing. */
int tdm__page_tables_move(void *to, void *from, size_t size_bytes);

struct tdm__mapping_cache_entry;

/* All mappings of a process on a virtual GPU, in use and cached. All zeros is an empty cache. The
 * device owns it; one thread uses it. */
struct tdm__mapping_cache {
    /* Owned list; the entry used last is first. */
    struct tdm__mapping_cache_entry *entries;
    size_t mapped_bytes;     /* Bytes that are mapped and in use. */
    size_t mapped_bytes_max; /* Largest value of mapped_bytes so far. */
    /* Bytes of cached mappings, which are not in use. */
    size_t cached_bytes;
};

/* Unmaps all cached mappings and frees the entries. */
void tdm__mapping_cache_fini(struct tdm__mapping_cache *cache);

/* Maps all of the memory behind `fd` into reserved addresses where nothing is mapped. */
tdm_status tdm__mapping_cache_map(struct tdm__mapping_cache *cache, void *address,
                                  size_t size_bytes, int fd, enum tdm__access access);
/* Unmaps any number of adjacent whole blocks, into the cache if possible. The addresses stay
 * reserved. */
tdm_status tdm__mapping_cache_unmap(struct tdm__mapping_cache *cache, void *address,
                                    size_t size_bytes);
/* Records that the caller has exchanged the mappings at the two addresses. */
void tdm__mapping_cache_exchange(struct tdm__mapping_cache *cache, void *a, void *b);
/* Removes the entries in a range of addresses that the caller is about to unmap. */
void tdm__mapping_cache_forget(struct tdm__mapping_cache *cache, void *address, size_t size_bytes);

#endif
