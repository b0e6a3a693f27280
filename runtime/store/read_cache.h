/* read_cache.h - the records that this process read or wrote last, so that a transaction can start
 * without a read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_STORE_READ_CACHE_H
#define TDM_RUNTIME_STORE_READ_CACHE_H

#include "runtime/store.h"

/* Least age in milliseconds at which a read cache no longer replaces a read; each record that the
 * last refresh brought adds a millisecond, so that a large cluster in which much changes is not
 * read all the time.  The cache is a snapshot: the result of reads, updated by this process's own
 * commits since.  A transaction that decides by the cache is correct if its commit succeeds,
 * because the commit checks the versions. Changes that no version shows (a new node, a lost node)
 * are seen at most this much later, as if the read had taken that long.  Transactions that share a
 * cache must run one after the other. */
enum { TDM__READ_CACHE_AGE_MS_MAX = 200 };

/* Size in bytes of a pattern with which a cache is refreshed, including the terminating NUL. */
enum { TDM__READ_CACHE_PATTERN_BYTES = 256 };

/* A cache of the store's records that match a set of patterns. Only the loop's thread uses it. */
struct tdm__read_cache;

/* Creates an empty read cache, which the caller owns. */
tdm_status tdm__read_cache_create(struct tdm__read_cache **cache_out);
/* Frees a read cache and its companion. NULL is allowed. */
void tdm__read_cache_destroy(struct tdm__read_cache *read_cache);

/* Returns what the user of the cache keeps beside the records, such as their decoded forms; NULL if
 * there is nothing. */
void *tdm__read_cache_companion(const struct tdm__read_cache *read_cache);
/* Gives the cache a companion, which it frees by `destroy` when it is destroyed. The cache must
 * have none yet. */
void tdm__read_cache_set_companion(struct tdm__read_cache *read_cache, void *companion,
                                   void (*destroy)(void *companion));

/* Returns the cached records that match the patterns, sorted as a read returns them, borrowed until
 * the next call. Returns NULL if the caller must read the store. A key that is not in the cache
 * counts as absent, which the commit must check. For a pattern with '*' the cache must contain all
 * records, and at least one record must match. */
const struct tdm__store_record *tdm__read_cache_lookup(struct tdm__read_cache *read_cache,
                                                       const char *const *patterns,
                                                       uint32_t patterns_count,
                                                       uint32_t *records_count_out);
/* Like tdm__read_cache_lookup(), directly after the cache was filled: however old other records
 * are, and also if no record matches. */
const struct tdm__store_record *tdm__read_cache_collect(struct tdm__read_cache *read_cache,
                                                        const char *const *patterns,
                                                        uint32_t patterns_count,
                                                        uint32_t *records_count_out);

/* Writes to `text` the pattern that brings the cached records of `pattern` up to date: that of the
 * changes since the last read for a prefix, and otherwise `pattern` itself. Returns `text`. */
const char *tdm__read_cache_pattern(const struct tdm__read_cache *read_cache, const char *pattern,
                                    char text[TDM__READ_CACHE_PATTERN_BYTES]);
/* Updates the cache with the result of a read of all patterns of a transaction, which are keys or
 * come from tdm__read_cache_pattern(). Returns false, with an empty cache, if there is no memory or
 * no space for a prefix. */
bool tdm__read_cache_fill(struct tdm__read_cache *read_cache, const char *const *patterns,
                          uint32_t patterns_count, const struct tdm__store_record *records,
                          uint32_t records_count);
/* Updates the cache with the records over which a commit was lost (struct tdm__store_committed).
 * Returns false, with an empty cache, if there is no memory. */
bool tdm__read_cache_correct(struct tdm__read_cache *read_cache,
                             const struct tdm__store_record *losers, uint32_t losers_count);
/* Returns whether the cache replaces no read before all patterns of a transaction are read: the
 * outcome of a commit is unknown, or a lost race has shown that a record of a prefix came or went,
 * with which others may have come or gone. */
bool tdm__read_cache_must_refresh(const struct tdm__read_cache *read_cache);
/* Updates the cache after a commit of this process. After a conflict of a transaction that reads
 * only keys, other processes are writing the same records, so the next such transactions must read
 * the store; the number of these reads doubles with each conflict in a row. */
void tdm__read_cache_apply_commit(struct tdm__read_cache *read_cache, tdm_status status,
                                  uint64_t version, const struct tdm__store_write *writes,
                                  uint32_t writes_count);
/* Returns among how many equally good records a transaction should choose, as a binary logarithm
 * from 0 to TDM__READ_CACHE_SPREAD_MAX, so that processes which write at the same time seldom
 * choose the same one. Each lost race adds one; it goes down so slowly that few races are lost. */
uint32_t tdm__read_cache_spread(const struct tdm__read_cache *read_cache);
enum {
    TDM__READ_CACHE_SPREAD_MAX = 10,  /* Greatest spread of a cache. */
    TDM__READ_CACHE_SPREAD_WINS = 32, /* Commits without a lost race that take one away. */
};
/* Returns how many commits have lost a race since the cache was created. */
uint64_t tdm__read_cache_losses(const struct tdm__read_cache *read_cache);

#endif
