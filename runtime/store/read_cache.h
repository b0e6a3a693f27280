/* read_cache.h - the records as this process saw or left them last, to begin with instead of a
 * read.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_STORE_READ_CACHE_H
#define TDM_RUNTIME_STORE_READ_CACHE_H

#include "runtime/store.h"

/* One picture: what one read answered, and this process's own commits since.  A transaction
 * that decides by it and commits has been right, since the commit checks the versions; only
 * then does it count.  What a picture does not show to have changed (a node that joined, a
 * lease that ran out) is at most TDM__READ_CACHE_AGE_MS_MAX old: it is as if the read had taken
 * that long. Transactions that share a picture follow each other. */
enum { TDM__READ_CACHE_AGE_MS_MAX = 200 };

struct tdm__read_cache;

tdm_status tdm__read_cache_create(struct tdm__read_cache **cache_out);
void tdm__read_cache_destroy(struct tdm__read_cache *read_cache); /* NULL is allowed */

/* The records that match the patterns, sorted, as a read would have them; borrowed until the
 * next call.  NULL: read.  A key that the picture does not hold counts as not there, which the
 * commit must check; but of a prefix all records must be read_cache, and of the patterns one. */
const struct tdm__store_record *tdm__read_cache_lookup(struct tdm__read_cache *read_cache,
                                                       const char *const *patterns,
                                                       uint32_t patterns_count,
                                                       uint32_t *records_count_out);

/* A read has answered: a new picture. */
void tdm__read_cache_fill(struct tdm__read_cache *read_cache, const char *const *patterns,
                          uint32_t patterns_count, const struct tdm__store_record *records,
                          uint32_t records_count);
/* What became of a commit of this process.  Where a guess was wrong, somebody else writes the
 * same records: some transactions then read, the more, the more guesses in a row were wrong. */
void tdm__read_cache_apply_commit(struct tdm__read_cache *read_cache, tdm_status status,
                                  uint64_t version, const struct tdm__store_write *writes,
                                  uint32_t writes_count);

#endif
