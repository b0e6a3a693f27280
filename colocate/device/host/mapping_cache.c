/* mapping_cache.c - the mappings of this process on a virtual GPU, and a cache of unmapped ones. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The cache owns one entry per mapped block. An entry is in use (at an address of a region) or
 * cached (at an address that only this file knows). Entries in use keep their address range
 * reserved by the region; a cached entry owns its range.
 *
 * Invariants: mapped_bytes and cached_bytes are the sums over the entries in use and the cached
 * ones; after each unmap cached_bytes is at most TDM__MAPPING_CACHE_RATIO_MAX times
 * mapped_bytes_max. Memory is identified by the device and inode numbers of its memfd, which
 * cannot be reused while the memfd is mapped.
 *
 * One thread uses a cache: the thread of its device. */

#include "colocate/device/host/mapping_cache.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/older_libc.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { RESERVED_FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

/* The mapping of one block. The cache owns it. */
struct tdm__mapping_cache_entry {
    struct tdm__mapping_cache_entry *next;
    char *address; /* Address of the mapping, in use or cached. */
    size_t size_bytes;
    /* Device number of the memfd; identifies the memory together with the inode. */
    dev_t device;
    /* Inode of the memfd; it is not reused while the memfd is mapped. */
    ino_t inode;
    enum tdm__access access; /* Access with which the block is mapped. */
    bool is_cached;          /* True if the mapping is not in use. */
};

/* ---- pages ------------------------------------------------------------------------------ */

/* Reserves more than requested and cuts off both ends to align the range. */
tdm_status tdm__address_range_reserve(size_t size_bytes, void **address_out)
{
    char *start =
        mmap(NULL, size_bytes + TDM__PAGE_TABLE_UNIT_BYTES, PROT_NONE, RESERVED_FLAGS, -1, 0);
    size_t before;

    if (start == MAP_FAILED) {
        return tdm__fail_errno(errno, "mmap: %zu bytes of addresses", size_bytes);
    }
    before = (TDM__PAGE_TABLE_UNIT_BYTES - (uintptr_t)start % TDM__PAGE_TABLE_UNIT_BYTES) %
             TDM__PAGE_TABLE_UNIT_BYTES;
    if (before > 0) {
        (void)munmap(start, before);
    }
    (void)munmap(start + before + size_bytes, TDM__PAGE_TABLE_UNIT_BYTES - before);
    *address_out = start + before;
    return TDM_OK;
}

tdm_status tdm__pages_map(void *address, size_t size_bytes, int fd, enum tdm__access access)
{
    int protection = access == TDM__READ_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;

    /* The pages exist already. Entering all of them now costs a fraction of one fault per page. */
    if (mmap(address, size_bytes, protection, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) ==
        MAP_FAILED) {
        return tdm__fail_errno(errno, "mmap: a block of %zu bytes", size_bytes);
    }
    return TDM_OK;
}

int tdm__page_tables_move(void *to, void *from, size_t size_bytes)
{
    void *moved =
        mremap(from, size_bytes, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);

    return moved == MAP_FAILED ? errno : 0;
}

/* Replaces the mapping at `address` by a reservation without memory. If the kernel has no memory
 * for the new mapping, the old one is protected instead, because the broker may give its pages to
 * another process; the next mapping replaces it. */
static tdm_status restore_reservation(void *address, size_t size_bytes)
{
    int error_number;

    if (mmap(address, size_bytes, PROT_NONE, RESERVED_FLAGS | MAP_FIXED, -1, 0) != MAP_FAILED) {
        return TDM_OK;
    }
    error_number = errno;
    return mprotect(address, size_bytes, PROT_NONE) == 0
               ? TDM_OK
               : tdm__fail_errno(error_number, "mmap: take %zu bytes away", size_bytes);
}

/* ---- entries ---------------------------------------------------------------------------- */

/* Adds the entry to the byte counts of the cache. */
static void account_entry(struct tdm__mapping_cache *cache,
                          const struct tdm__mapping_cache_entry *entry)
{
    if (entry->is_cached) {
        cache->cached_bytes += entry->size_bytes;
        return;
    }
    cache->mapped_bytes += entry->size_bytes;
    if (cache->mapped_bytes > cache->mapped_bytes_max) {
        cache->mapped_bytes_max = cache->mapped_bytes;
    }
}

/* Links the entry as the one used last and counts its bytes. */
static void link_entry_first(struct tdm__mapping_cache *cache,
                             struct tdm__mapping_cache_entry *entry)
{
    entry->next = cache->entries;
    cache->entries = entry;
    account_entry(cache, entry);
}

/* Unlinks the entry at `link`, subtracts its bytes and returns it. */
static struct tdm__mapping_cache_entry *unlink_entry(struct tdm__mapping_cache *cache,
                                                     struct tdm__mapping_cache_entry **link)
{
    struct tdm__mapping_cache_entry *entry = *link;

    *link = entry->next;
    if (entry->is_cached) {
        cache->cached_bytes -= entry->size_bytes;
    } else {
        cache->mapped_bytes -= entry->size_bytes;
    }
    return entry;
}

/* Returns true if the entry is in use and starts in the range of addresses. */
static bool entry_lies_in(const struct tdm__mapping_cache_entry *entry, const char *address,
                          size_t size_bytes)
{
    return !entry->is_cached && entry->address >= address && entry->address < address + size_bytes;
}

/* Unmaps and frees a cached entry that is unlinked. */
static void drop_cached_entry(struct tdm__mapping_cache_entry *entry)
{
    (void)munmap(entry->address, entry->size_bytes);
    free(entry);
}

/* Evicts the oldest cached entry. */
static void drop_oldest_cached(struct tdm__mapping_cache *cache)
{
    struct tdm__mapping_cache_entry **oldest = NULL;

    for (struct tdm__mapping_cache_entry **link = &cache->entries; *link != NULL;
         link = &(*link)->next) {
        oldest = (*link)->is_cached ? link : oldest;
    }
    TDM_ASSERT(oldest != NULL);
    drop_cached_entry(unlink_entry(cache, oldest));
}

void tdm__mapping_cache_fini(struct tdm__mapping_cache *cache)
{
    while (cache->entries != NULL) {
        struct tdm__mapping_cache_entry *entry = unlink_entry(cache, &cache->entries);

        if (entry->is_cached) {
            drop_cached_entry(entry);
        } else {
            free(entry); /* The owner of the address range unmaps it. */
        }
    }
}

/* ---- map and unmap ----------------------------------------------------------------------- */

/* Returns the link to a cached entry of the same memory, size and access, or NULL if none exists.
 */
static struct tdm__mapping_cache_entry **find_cached(struct tdm__mapping_cache *cache,
                                                     const struct tdm__mapping_cache_entry *wanted)
{
    for (struct tdm__mapping_cache_entry **link = &cache->entries; *link != NULL;
         link = &(*link)->next) {
        const struct tdm__mapping_cache_entry *entry = *link;

        if (entry->is_cached && entry->inode == wanted->inode && entry->device == wanted->device &&
            entry->size_bytes == wanted->size_bytes && entry->access == wanted->access) {
            return link;
        }
    }
    return NULL;
}

/* Moves a cached mapping of the wanted memory to the wanted address. Returns false if that is not
 * possible. */
static bool move_from_cache(struct tdm__mapping_cache *cache,
                            const struct tdm__mapping_cache_entry *wanted)
{
    struct tdm__mapping_cache_entry **link = find_cached(cache, wanted);
    struct tdm__mapping_cache_entry *entry;
    bool moved;

    if (link == NULL) {
        return false;
    }
    entry = unlink_entry(cache, link);
    moved = tdm__page_tables_move(wanted->address, entry->address, entry->size_bytes) == 0;
    drop_cached_entry(entry);
    return moved;
}

tdm_status tdm__mapping_cache_map(struct tdm__mapping_cache *cache, void *address,
                                  size_t size_bytes, int fd, enum tdm__access access)
{
    struct tdm__mapping_cache_entry *entry = calloc(1, sizeof(*entry));
    tdm_status status = TDM_OK;
    struct stat memory;

    if (entry == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a mapping");
    }
    if (fstat(fd, &memory) != 0) {
        free(entry);
        return tdm__fail_errno(errno, "fstat of a block");
    }
    *entry = (struct tdm__mapping_cache_entry){.address = address,
                                               .size_bytes = size_bytes,
                                               .device = memory.st_dev,
                                               .inode = memory.st_ino,
                                               .access = access};
    if (!move_from_cache(cache, entry)) {
        status = tdm__pages_map(address, size_bytes, fd, access);
    }
    if (status != TDM_OK) {
        free(entry);
        return status;
    }
    link_entry_first(cache, entry);
    return TDM_OK;
}

/* Moves a mapping to new addresses and marks it cached. Returns false if the caller must unmap
 * it. */
static bool move_to_cache(struct tdm__mapping_cache_entry *entry)
{
    void *aside = NULL;

    if (tdm__address_range_reserve(entry->size_bytes, &aside) != TDM_OK) {
        return false;
    }
    if (tdm__page_tables_move(aside, entry->address, entry->size_bytes) != 0) {
        (void)munmap(aside, entry->size_bytes);
        return false;
    }
    entry->address = aside;
    entry->is_cached = true;
    return true;
}

tdm_status tdm__mapping_cache_unmap(struct tdm__mapping_cache *cache, void *address,
                                    size_t size_bytes)
{
    struct tdm__mapping_cache_entry *moved = NULL;

    for (struct tdm__mapping_cache_entry **link = &cache->entries; *link != NULL;) {
        struct tdm__mapping_cache_entry *entry;

        if (!entry_lies_in(*link, address, size_bytes)) {
            link = &(*link)->next;
            continue;
        }
        entry = unlink_entry(cache, link);
        if (move_to_cache(entry)) {
            entry->next = moved;
            moved = entry;
        } else {
            free(entry);
        }
    }
    while (moved != NULL) {
        struct tdm__mapping_cache_entry *next = moved->next;

        link_entry_first(cache, moved);
        moved = next;
    }
    while (cache->cached_bytes > TDM__MAPPING_CACHE_RATIO_MAX * cache->mapped_bytes_max) {
        drop_oldest_cached(cache);
    }
    return restore_reservation(address, size_bytes);
}

void tdm__mapping_cache_exchange(struct tdm__mapping_cache *cache, void *a, void *b)
{
    for (struct tdm__mapping_cache_entry *entry = cache->entries; entry != NULL;
         entry = entry->next) {
        if (!entry->is_cached && (entry->address == a || entry->address == b)) {
            entry->address = entry->address == a ? b : a;
        }
    }
}

void tdm__mapping_cache_forget(struct tdm__mapping_cache *cache, void *address, size_t size_bytes)
{
    for (struct tdm__mapping_cache_entry **link = &cache->entries; *link != NULL;) {
        if (entry_lies_in(*link, address, size_bytes)) {
            free(unlink_entry(cache, link));
        } else {
            link = &(*link)->next;
        }
    }
}
