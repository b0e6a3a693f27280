/* read_cache.c - the records that this process read or wrote last, so that a transaction can start
 * without a read. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The cache holds a sorted snapshot of records, and the patterns with '*' of which the snapshot is
 * complete, each with the version of the store when its records were read last.  A transaction that
 * finds all that it reads in the snapshot starts without a read, and commits if no record has
 * changed since: the commit checks the versions, so a stale cache costs a second attempt but never
 * gives a wrong result.
 *
 * A refresh reads only the changes of a prefix since its version, PREFIX*>VERSION.  This process's
 * own commits do not raise that version, because others may have committed before them.  After a
 * conflict only the records of the lost commit are read.  So the cost of a placement does not grow
 * with the number of nodes.
 *
 * For transactions that read only keys a conflict makes the next ones read first; the number of
 * these reads doubles with each conflict in a row, up to READS_MAX.
 * The thread that holds the loop's lock is the only one that uses a cache. */
#include "runtime/store/read_cache.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/store/check.h"
#include "runtime/store/records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PREFIXES_MAX = 4, /* Most patterns with '*' in a cache. */
    READS_MAX = 32,   /* Most transactions that must read the store after a conflict. */
    /* Number of commits after which the records of no cached prefix are dropped, which would else
     * become ever more. */
    COMMITS_MAX = 256
};

/* A pattern with '*' of which the cache contains all records. */
struct cached_prefix {
    char *pattern;    /* The pattern (owned). */
    uint64_t version; /* Version of the store when the records were read last; 0 before that. */
};

/* A sorted snapshot of the store's records. */
struct tdm__read_cache {
    /* The patterns with '*' of which the cache contains all records. */
    struct cached_prefix prefixes[PREFIXES_MAX];
    uint32_t prefixes_count; /* Number of patterns in `prefixes`. */
    /* Cached records sorted by key (owned). Each key is an allocation that also contains the bytes.
     */
    struct tdm__store_record *records;
    /* Array for the result of tdm__read_cache_lookup() (owned), of `capacity` entries. */
    struct tdm__store_record *guess;
    uint32_t count;    /* Number of records in `records`. */
    uint32_t capacity; /* Capacity of `records` and `guess`. */
    /* Time of the last refresh, in milliseconds on CLOCK_MONOTONIC. */
    int64_t since_ms;
    int64_t age_ms_max; /* Age in milliseconds at which the cache no longer replaces a read. */
    /* Whether the current transaction started from the cache, and reads only keys. */
    bool guessed;
    /* Whether the cache replaces no read before a refresh, because the outcome of the last commit
     * is unknown, or because a lost race has shown that a record of a prefix came or went. */
    bool must_refresh;
    uint32_t spread; /* Result of tdm__read_cache_spread(). */
    uint32_t wins; /* Number of commits since the last one that lost a race or lowered `spread`. */
    uint64_t losses;  /* Result of tdm__read_cache_losses(). */
    uint32_t commits; /* Number of commits since records of no prefix were dropped. */
    void *companion;  /* What the user of the cache keeps beside it (owned); NULL if nothing. */
    void (*companion_destroy)(void *companion); /* Frees `companion`. */
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
        free(read_cache->prefixes[i].pattern);
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
    if (read_cache->companion != NULL) {
        read_cache->companion_destroy(read_cache->companion);
    }
    free(read_cache);
}

void *tdm__read_cache_companion(const struct tdm__read_cache *read_cache)
{
    return read_cache->companion;
}

void tdm__read_cache_set_companion(struct tdm__read_cache *read_cache, void *companion,
                                   void (*destroy)(void *companion))
{
    TDM_ASSERT(read_cache->companion == NULL);
    read_cache->companion = companion;
    read_cache->companion_destroy = destroy;
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

/* Returns the cached pattern `prefix`, or NULL. */
static struct cached_prefix *cache_find_prefix(struct tdm__read_cache *read_cache,
                                               const char *prefix)
{
    for (uint32_t i = 0; i < read_cache->prefixes_count; i++) {
        if (strcmp(read_cache->prefixes[i].pattern, prefix) == 0) {
            return &read_cache->prefixes[i];
        }
    }
    return NULL;
}

/* Notes that all records of the pattern `prefix` are cached. Returns NULL if there is no space for
 * the note. */
static struct cached_prefix *cache_add_prefix(struct tdm__read_cache *read_cache,
                                              const char *prefix)
{
    struct cached_prefix *added = cache_find_prefix(read_cache, prefix);
    char *copy;

    if (added != NULL) {
        return added;
    }
    copy = read_cache->prefixes_count < PREFIXES_MAX ? strdup(prefix) : NULL;
    if (copy == NULL) {
        return NULL;
    }
    added = &read_cache->prefixes[read_cache->prefixes_count++];
    *added = (struct cached_prefix){.pattern = copy};
    return added;
}

/* Returns whether a cached pattern with '*' matches the key `key`. */
static bool cache_covers(const struct tdm__read_cache *read_cache, const char *key)
{
    for (uint32_t i = 0; i < read_cache->prefixes_count; i++) {
        if (tdm__store_matches(read_cache->prefixes[i].pattern, key)) {
            return true;
        }
    }
    return false;
}

/* Removes the cached records that the pattern `pattern` matches or, if it is NULL, those that no
 * cached prefix matches. */
static void cache_drop(struct tdm__read_cache *read_cache, const char *pattern)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < read_cache->count; i++) {
        const char *key = read_cache->records[i].key;

        if (pattern != NULL ? tdm__store_matches(pattern, key) : !cache_covers(read_cache, key)) {
            free((char *)key);
        } else {
            read_cache->records[kept++] = read_cache->records[i];
        }
    }
    read_cache->count = kept;
}

/* ---- guess ------------------------------------------------------------------------------ */

/* Returns whether the cache is young enough for a transaction, and no earlier conflict requires a
 * read. It counts down the required reads of transactions that read only keys. */
static bool cache_is_usable(struct tdm__read_cache *read_cache, bool reads_keys)
{
    if (reads_keys && read_cache->reads_left > 0) {
        read_cache->reads_left--;
        return false;
    }
    return read_cache->count > 0 && !read_cache->must_refresh &&
           tdm__clock_ms() - read_cache->since_ms <= read_cache->age_ms_max;
}

/* Adds the cached records of one pattern to the result of a lookup, behind `count` others. Returns
 * the number of records in the result. */
static uint32_t cache_append(struct tdm__read_cache *read_cache, const char *pattern,
                             uint32_t count)
{
    char low[TDM__READ_CACHE_PATTERN_BYTES];
    size_t bytes;
    uint32_t at;

    (void)snprintf(low, sizeof(low), "%s", pattern);
    bytes = strlen(low) + 1; /* The NUL ends the only key that matches. */
    if (pattern_is_prefix(pattern)) {
        bytes -= 2;
        low[bytes] = '\0';
    }
    at = cache_lower_bound(read_cache, low);
    while (at < read_cache->count && strncmp(low, read_cache->records[at].key, bytes) == 0) {
        read_cache->guess[count++] = read_cache->records[at++];
    }
    return count;
}

/* Returns the index of the first pattern behind `last` in the order of texts, or `patterns_count`.
 * Patterns that a pattern with '*' among the others covers are left out; `last` is NULL at first.
 */
static uint32_t next_pattern(const char *const *patterns, uint32_t patterns_count, const char *last)
{
    uint32_t next = patterns_count;

    for (uint32_t i = 0; i < patterns_count; i++) {
        bool is_covered = false;

        for (uint32_t j = 0; j < patterns_count && !is_covered; j++) {
            is_covered = j != i && pattern_is_prefix(patterns[j]) &&
                         strcmp(patterns[j], patterns[i]) != 0 &&
                         tdm__store_matches(patterns[j], patterns[i]);
        }
        if (!is_covered && (last == NULL || strcmp(patterns[i], last) > 0) &&
            (next == patterns_count || strcmp(patterns[i], patterns[next]) < 0)) {
            next = i;
        }
    }
    return next;
}

const struct tdm__store_record *tdm__read_cache_collect(struct tdm__read_cache *read_cache,
                                                        const char *const *patterns,
                                                        uint32_t patterns_count,
                                                        uint32_t *records_count_out)
{
    uint32_t count = 0;

    for (uint32_t i = next_pattern(patterns, patterns_count, NULL); i < patterns_count;
         i = next_pattern(patterns, patterns_count, patterns[i])) {
        count = cache_append(read_cache, patterns[i], count);
    }
    *records_count_out = count;
    return read_cache->guess;
}

const struct tdm__store_record *tdm__read_cache_lookup(struct tdm__read_cache *read_cache,
                                                       const char *const *patterns,
                                                       uint32_t patterns_count,
                                                       uint32_t *records_count_out)
{
    bool reads_keys = true;

    for (uint32_t i = 0; i < patterns_count; i++) {
        if (pattern_is_prefix(patterns[i])) {
            reads_keys = false;
            if (cache_find_prefix(read_cache, patterns[i]) == NULL) {
                return NULL;
            }
        }
    }
    if (!cache_is_usable(read_cache, reads_keys)) {
        return NULL;
    }
    (void)tdm__read_cache_collect(read_cache, patterns, patterns_count, records_count_out);
    read_cache->guessed = reads_keys && *records_count_out > 0;
    return *records_count_out > 0 ? read_cache->guess : NULL;
}

const char *tdm__read_cache_pattern(const struct tdm__read_cache *read_cache, const char *pattern,
                                    char text[TDM__READ_CACHE_PATTERN_BYTES])
{
    const struct cached_prefix *prefix =
        cache_find_prefix((struct tdm__read_cache *)read_cache, pattern);

    if (pattern_is_prefix(pattern) && strlen(pattern) > 1) {
        (void)snprintf(text, TDM__READ_CACHE_PATTERN_BYTES, "%s>%llu", pattern,
                       (unsigned long long)(prefix == NULL ? 0 : prefix->version));
    } else {
        (void)snprintf(text, TDM__READ_CACHE_PATTERN_BYTES, "%s", pattern);
    }
    return text;
}

/* ---- what happened ---------------------------------------------------------------------- */

/* Handles the record PREFIX* of a read of changes: removes the cached records of the prefix if all
 * follow. Returns false without space for the prefix. */
static bool cache_begin_prefix(struct tdm__read_cache *read_cache,
                               const struct tdm__store_record *state)
{
    struct cached_prefix *prefix = cache_add_prefix(read_cache, state->key);

    if (prefix == NULL) {
        return false;
    }
    if (state->bytes.size_bytes != strlen(TDM__STORE_CHANGES)) {
        cache_drop(read_cache, prefix->pattern);
    }
    prefix->version = state->version;
    return true;
}

/* Removes the cached records whose keys were read, and notes the state of the prefixes. */
static bool cache_begin_fill(struct tdm__read_cache *read_cache, const char *const *patterns,
                             uint32_t patterns_count, const struct tdm__store_record *records,
                             uint32_t records_count)
{
    for (uint32_t i = 0; i < patterns_count; i++) {
        if (strchr(patterns[i], '*') == NULL) {
            cache_remove_record(read_cache, patterns[i]);
        } else if (pattern_is_prefix(patterns[i])) { /* The pattern "*", which has no changes. */
            if (cache_add_prefix(read_cache, patterns[i]) == NULL) {
                return false;
            }
            cache_drop(read_cache, patterns[i]);
        }
    }
    for (uint32_t i = 0; i < records_count; i++) {
        if (pattern_is_prefix(records[i].key) && !cache_begin_prefix(read_cache, &records[i])) {
            return false;
        }
    }
    return true;
}

bool tdm__read_cache_fill(struct tdm__read_cache *read_cache, const char *const *patterns,
                          uint32_t patterns_count, const struct tdm__store_record *records,
                          uint32_t records_count)
{
    bool is_whole = cache_reserve_records(read_cache, records_count + 1) &&
                    cache_begin_fill(read_cache, patterns, patterns_count, records, records_count);

    read_cache->guessed = false;
    for (uint32_t i = 0; i < records_count && is_whole; i++) {
        is_whole = pattern_is_prefix(records[i].key) || cache_put_record(read_cache, &records[i]);
    }
    if (!is_whole) {
        cache_clear(read_cache);
        return false;
    }
    read_cache->since_ms = tdm__clock_ms();
    read_cache->age_ms_max = TDM__READ_CACHE_AGE_MS_MAX + records_count;
    read_cache->must_refresh = false;
    return true;
}

/* Returns whether a loser shows that a record of a cached prefix came or went. Others may have come
 * or gone with it. */
static bool cache_shows_change(const struct tdm__read_cache *read_cache,
                               const struct tdm__store_record *loser)
{
    bool is_cached =
        cache_has_at(read_cache, cache_lower_bound(read_cache, loser->key), loser->key);

    return cache_covers(read_cache, loser->key) &&
           is_cached != (loser->version != TDM__VERSION_NONE);
}

bool tdm__read_cache_correct(struct tdm__read_cache *read_cache,
                             const struct tdm__store_record *losers, uint32_t losers_count)
{
    bool is_whole = true;

    for (uint32_t i = 0; i < losers_count && is_whole; i++) {
        read_cache->must_refresh =
            read_cache->must_refresh || cache_shows_change(read_cache, &losers[i]);
        if (losers[i].version != TDM__VERSION_NONE) {
            is_whole = cache_put_record(read_cache, &losers[i]);
        } else {
            cache_remove_record(read_cache, losers[i].key);
        }
    }
    read_cache->guessed = false;
    if (!is_whole) {
        cache_clear(read_cache);
    }
    return is_whole;
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

/* Changes the spread after a commit that lost a race or not. */
static void cache_note_spread(struct tdm__read_cache *read_cache, bool has_lost)
{
    if (has_lost) {
        read_cache->losses++;
        read_cache->wins = 0;
        read_cache->spread += read_cache->spread < TDM__READ_CACHE_SPREAD_MAX ? 1 : 0;
    } else if (++read_cache->wins == TDM__READ_CACHE_SPREAD_WINS) {
        read_cache->wins = 0;
        read_cache->spread -= read_cache->spread > 0 ? 1 : 0;
    }
}

void tdm__read_cache_apply_commit(struct tdm__read_cache *read_cache, tdm_status status,
                                  uint64_t version, const struct tdm__store_write *writes,
                                  uint32_t writes_count)
{
    bool is_whole = true;

    for (uint32_t i = 0; i < writes_count && is_whole && status == TDM_OK; i++) {
        is_whole = cache_keep_record(read_cache, &writes[i], version);
    }
    if (!is_whole) {
        cache_clear(read_cache);
    }
    if (++read_cache->commits >= COMMITS_MAX) {
        read_cache->commits = 0;
        cache_drop(read_cache, NULL);
    }
    if (status == TDM_OK || status == TDM_E_CONFLICT) {
        cache_note_spread(read_cache, status == TDM_E_CONFLICT);
    } else {
        read_cache->must_refresh = true;
    }
    if (read_cache->guessed && status == TDM_OK) {
        read_cache->conflict_reads = 0;
    } else if (read_cache->guessed && status == TDM_E_CONFLICT) {
        cache_note_conflict(read_cache);
    }
}

bool tdm__read_cache_must_refresh(const struct tdm__read_cache *read_cache)
{
    return read_cache->must_refresh;
}

uint32_t tdm__read_cache_spread(const struct tdm__read_cache *read_cache)
{
    return read_cache->spread;
}

uint64_t tdm__read_cache_losses(const struct tdm__read_cache *read_cache)
{
    return read_cache->losses;
}
