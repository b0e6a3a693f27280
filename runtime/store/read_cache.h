/* read_cache.h - the records that this process read or wrote last, so that a transaction can start
 * without a read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_STORE_READ_CACHE_H
#define TDM_RUNTIME_STORE_READ_CACHE_H

#include "runtime/store.h"

/* Greatest age of a read cache in milliseconds. The cache is a snapshot: the result of one read,
 * updated by this process's own commits since. A transaction that decides by the cache is correct
 * if its commit succeeds, because the commit checks the versions. Changes that no version shows (a
 * new node, a lost node) are seen at most this much later, as if the read had taken that long.
 * Transactions that share a cache must run one after the other. */
enum { TDM__READ_CACHE_AGE_MS_MAX = 200 };

/* A cache of the store's records that match a set of patterns. Only the loop's thread uses it. */
struct tdm__read_cache;

/* Creates an empty read cache, which the caller owns. */
tdm_status tdm__read_cache_create(struct tdm__read_cache **cache_out);
/* Frees a read cache. NULL is allowed. */
void tdm__read_cache_destroy(struct tdm__read_cache *read_cache);

/* Returns the cached records that match the patterns, sorted as a read returns them, borrowed until
 * the next call. Returns NULL if the caller must read the store. A key that is not in the cache
 * counts as absent, which the commit must check. For a pattern with '*' the cache must contain all
 * records, and at least one record must match. */
const struct tdm__store_record *tdm__read_cache_lookup(struct tdm__read_cache *read_cache,
                                                       const char *const *patterns,
                                                       uint32_t patterns_count,
                                                       uint32_t *records_count_out);

/* Replaces the contents of the cache with the result of a read of `patterns`. */
void tdm__read_cache_fill(struct tdm__read_cache *read_cache, const char *const *patterns,
                          uint32_t patterns_count, const struct tdm__store_record *records,
                          uint32_t records_count);
/* Updates the cache after a commit of this process. After a conflict other processes are writing
 * the same records, so the next transactions must read the store; the number of these reads doubles
 * with each conflict in a row. */
void tdm__read_cache_apply_commit(struct tdm__read_cache *read_cache, tdm_status status,
                                  uint64_t version, const struct tdm__store_write *writes,
                                  uint32_t writes_count);

#endif
