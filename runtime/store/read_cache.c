/* read_cache.c - the records that this process read or wrote last, so that a transaction can start
 * without a read. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The cache holds a sorted snapshot of records, and the patterns with '*' of which the snapshot is
 * complete.  A transaction that finds all that it reads in the snapshot starts without a read, and
 * commits if no record has changed since: the commit checks the versions, so a stale cache costs a
 * second attempt but never gives a wrong result.  After a conflict the next transactions read
 * again; the number of these reads doubles with each conflict in a row, up to READS_MAX.
 * The thread that holds the loop's lock is the only one that uses a cache. */
#include "runtime/store/read_cache.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/store/check.h"
#include "runtime/store/records.h"

#include <stdlib.h>
#include <string.h>

/* Most patterns with '*' in a cache, and most transactions that must read the store after a
 * conflict. */
enum { PREFIXES_MAX = 4, READS_MAX = 32 };

/* A sorted snapshot of the store's records. */
struct tdm__read_cache {
    /* The patterns with '*' of which the cache contains all records (owned). */
    char *prefixes[PREFIXES_MAX];
    uint32_t prefixes_count; /* Number of patterns in `prefixes`. */
    /* Cached records sorted by key (owned). Each key is an allocation that also contains the bytes.
     */
    struct tdm__store_record *records;
    /* Array for the result of tdm__read_cache_lookup() (owned), of `capacity` entries. */
    struct tdm__store_record *guess;
    uint32_t count;    /* Number of records in `records`. */
    uint32_t capacity; /* Capacity of `records` and `guess`. */
    /* Time of the read that filled the cache, in milliseconds on CLOCK_MONOTONIC. */
    int64_t since_ms;
    /* Whether the current transaction started from the cache. */
    bool guessed;
    /* Number of transactions that must read the store before the cache is used again. */
    uint32_t reads_left;
    /* Number of reads that the last conflict caused; 0 if the last commit that started from the
     * cache had no conflict. */
    uint32_t conflict_reads;
};

tdm_status tdm__read_cache_create(struct tdm__read_cache **cache_out)
{
    struct tdm__read_cache *read_cache = calloc(1, sizeof(*read_cache));

    if (read_cache == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a read cache");
    }
    *cache_out = read_cache;
    return TDM_OK;
}

/* Removes all records and prefixes from the cache, but keeps its arrays. */
static void cache_clear(struct tdm__read_cache *read_cache)
{
    for (uint32_t i = 0; i < read_cache->prefixes_count; i++) {
        free(read_cache->prefixes[i]);
    }
    for (uint32_t i = 0; i < read_cache->count; i++) {
        free((char *)read_cache->records[i].key);
    }
    read_cache->prefixes_count = 0;
    read_cache->count = 0;
}

void tdm__read_cache_destroy(struct tdm__read_cache *read_cache)
{
    if (read_cache == NULL) {
        return;
    }
    cache_clear(read_cache);
    free(read_cache->records);
    free(read_cache->guess);
    free(read_cache);
}

/* ---- what is in it ---------------------------------------------------------------------- */

/* Ensures that the cache has space for `count` records. Returns false without memory; the contents
 * stay valid. */
static bool cache_reserve_records(struct tdm__read_cache *read_cache, uint32_t count)
{
    uint32_t capacity = read_cache->capacity == 0 ? 16 : 2 * read_cache->capacity;
    struct tdm__store_record *records;
    struct tdm__store_record *guess;

    capacity = capacity < count ? count : capacity;
    if (count <= read_cache->capacity) {
        return true;
    }
    records = realloc(read_cache->records, capacity * sizeof(*records));
    read_cache->records = records != NULL ? records : read_cache->records;
    guess = realloc(read_cache->guess, capacity * sizeof(*guess));
    read_cache->guess = guess != NULL ? guess : read_cache->guess;
    if (records == NULL || guess == NULL) {
        return false;
    }
    read_cache->capacity = capacity;
    return true;
}

/* Copies a record for the cache into one allocation that begins with the key. Returns false without
 * memory. */
static bool record_copy(const struct tdm__store_record *record, struct tdm__store_record *copy_out)
{
    size_t key_bytes = strlen(record->key) + 1;
    char *block = malloc(key_bytes + record->bytes.size_bytes);

    if (block == NULL) {
        return false;
    }
    memcpy(block, record->key, key_bytes);
    if (record->bytes.size_bytes > 0) {
        memcpy(block + key_bytes, record->bytes.data, record->bytes.size_bytes);
    }
    *copy_out = (struct tdm__store_record){
        block, record->version, {block + key_bytes, record->bytes.size_bytes}};
    return true;
}

/* Returns the index of the first cached record whose key is not before `key`. */
static uint32_t cache_lower_bound(const struct tdm__read_cache *read_cache, const char *key)
{
    uint32_t low = 0;
    uint32_t high = read_cache->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (strcmp(read_cache->records[middle].key, key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Returns whether the cached record at index `at` has the key `key`. */
static bool cache_has_at(const struct tdm__read_cache *read_cache, uint32_t at, const char *key)
{
    return at < read_cache->count && strcmp(read_cache->records[at].key, key) == 0;
}

/* Removes the record with the key `key` from the cache, if it is cached. */
static void cache_remove_record(struct tdm__read_cache *read_cache, const char *key)
{
    uint32_t at = cache_lower_bound(read_cache, key);

    if (cache_has_at(read_cache, at, key)) {
        free((char *)read_cache->records[at].key);
        read_cache->count--;
        memmove(&read_cache->records[at], &read_cache->records[at + 1],
                (read_cache->count - at) * sizeof(read_cache->records[0]));
    }
}

/* Adds a copy of a record to the cache, or replaces the cached record with its key. Returns false
 * without memory. */
static bool cache_put_record(struct tdm__read_cache *read_cache,
                             const struct tdm__store_record *record)
{
    uint32_t at = cache_lower_bound(read_cache, record->key);
    struct tdm__store_record copy;

    if (!cache_reserve_records(read_cache, read_cache->count + 1) || !record_copy(record, &copy)) {
        return false;
    }
    if (cache_has_at(read_cache, at, record->key)) {
        free((char *)read_cache->records[at].key);
    } else {
        memmove(&read_cache->records[at + 1], &read_cache->records[at],
                (read_cache->count - at) * sizeof(read_cache->records[0]));
        read_cache->count++;
    }
    read_cache->records[at] = copy;
    return true;
}

/* Returns whether a key pattern is a prefix followed by '*'. */
static bool pattern_is_prefix(const char *pattern)
{
    size_t bytes = strlen(pattern);

    return bytes > 0 && pattern[bytes - 1] == '*';
}

/* Notes that all records of the pattern `prefix` are cached. Returns false if there is no space for
 * the note. */
static bool cache_add_prefix(struct tdm__read_cache *read_cache, const char *prefix)
{
    char *copy = read_cache->prefixes_count < PREFIXES_MAX ? strdup(prefix) : NULL;

    if (copy != NULL) {
        read_cache->prefixes[read_cache->prefixes_count++] = copy;
    }
    return copy != NULL;
}

/* Returns whether all records that match the pattern `prefix` are cached. */
static bool cache_has_prefix(const struct tdm__read_cache *read_cache, const char *prefix)
{
    for (uint32_t i = 0; i < read_cache->prefixes_count; i++) {
        if (strcmp(read_cache->prefixes[i], prefix) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- guess ------------------------------------------------------------------------------ */

/* Returns whether the cache is young enough and no earlier conflict requires a read. It counts down
 * the required reads. */
static bool cache_is_usable(struct tdm__read_cache *read_cache)
{
    if (read_cache->reads_left > 0) {
        read_cache->reads_left--;
        return false;
    }
    return read_cache->count > 0 &&
           tdm__clock_ms() - read_cache->since_ms <= TDM__READ_CACHE_AGE_MS_MAX;
}

/* Returns whether any of the patterns matches the key `key`. */
static bool matches_any(const char *const *patterns, uint32_t patterns_count, const char *key)
{
    for (uint32_t i = 0; i < patterns_count; i++) {
        if (tdm__store_matches(patterns[i], key)) {
            return true;
        }
    }
    return false;
}

const struct tdm__store_record *tdm__read_cache_lookup(struct tdm__read_cache *read_cache,
                                                       const char *const *patterns,
                                                       uint32_t patterns_count,
                                                       uint32_t *records_count_out)
{
    uint32_t count = 0;

    if (!cache_is_usable(read_cache)) {
        return NULL;
    }
    for (uint32_t i = 0; i < patterns_count; i++) {
        if (pattern_is_prefix(patterns[i]) && !cache_has_prefix(read_cache, patterns[i])) {
            return NULL;
        }
    }
    for (uint32_t i = 0; i < read_cache->count; i++) {
        if (matches_any(patterns, patterns_count, read_cache->records[i].key)) {
            read_cache->guess[count++] = read_cache->records[i];
        }
    }
    read_cache->guessed = count > 0;
    *records_count_out = count;
    return read_cache->guessed ? read_cache->guess : NULL;
}

/* ---- what happened ---------------------------------------------------------------------- */

void tdm__read_cache_fill(struct tdm__read_cache *read_cache, const char *const *patterns,
                          uint32_t patterns_count, const struct tdm__store_record *records,
                          uint32_t records_count)
{
    bool is_whole = true;

    cache_clear(read_cache);
    read_cache->guessed = false;
    read_cache->since_ms = tdm__clock_ms();
    for (uint32_t i = 0; i < patterns_count && is_whole; i++) {
        is_whole = !pattern_is_prefix(patterns[i]) || cache_add_prefix(read_cache, patterns[i]);
    }
    for (uint32_t i = 0; i < records_count && is_whole; i++) {
        is_whole = cache_put_record(read_cache, &records[i]);
    }
    if (!is_whole) {
        cache_clear(read_cache);
    }
}

/* Applies one write of a successful commit to the cache. Returns false without memory. */
static bool cache_keep_record(struct tdm__read_cache *read_cache,
                              const struct tdm__store_write *write, uint64_t version)
{
    if (write->kind == TDM__STORE_PUT) {
        return cache_put_record(read_cache,
                                &(struct tdm__store_record){write->key, version, write->bytes});
    }
    if (write->kind == TDM__STORE_DELETE) {
        cache_remove_record(read_cache, write->key);
    }
    return true;
}

/* Doubles the number of transactions that must read the store after a conflict, up to READS_MAX. */
static void cache_note_conflict(struct tdm__read_cache *read_cache)
{
    read_cache->conflict_reads =
        read_cache->conflict_reads == 0 ? 1 : 2 * read_cache->conflict_reads;
    read_cache->conflict_reads =
        read_cache->conflict_reads > READS_MAX ? READS_MAX : read_cache->conflict_reads;
    read_cache->reads_left = read_cache->conflict_reads;
}

void tdm__read_cache_apply_commit(struct tdm__read_cache *read_cache, tdm_status status,
                                  uint64_t version, const struct tdm__store_write *writes,
                                  uint32_t writes_count)
{
    bool is_whole = status == TDM_OK;

    for (uint32_t i = 0; i < writes_count && is_whole; i++) {
        is_whole = cache_keep_record(read_cache, &writes[i], version);
    }
    if (!is_whole) {
        cache_clear(read_cache);
    }
    if (read_cache->guessed && status == TDM_OK) {
        read_cache->conflict_reads = 0;
    } else if (read_cache->guessed && status == TDM_E_CONFLICT) {
        cache_note_conflict(read_cache);
    }
}
