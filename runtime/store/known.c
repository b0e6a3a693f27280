/* known.c - the records as this process saw or left them last, to begin with instead of a read.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store/known.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/store/check.h"
#include "runtime/store/records.h"

#include <stdlib.h>
#include <string.h>

enum { PREFIXES_MAX = 4, READS_MAX = 32 };

struct tdm__known {
    char *
        prefixes[PREFIXES_MAX]; /* owned; the patterns with '*' that the picture holds all of */
    uint32_t prefixes_count;
    struct tdm__record
        *records;              /* owned, sorted; each key owned, with the bytes in its block */
    struct tdm__record *guess; /* owned: room for as many */
    uint32_t count;
    uint32_t capacity;
    int64_t since_ms;     /* of the oldest in it */
    bool guessed;         /* the transaction under way began with it */
    uint32_t reads_left;  /* until the next guess */
    uint32_t wrong_reads; /* how many reads the last wrong guess cost; 0: the last was right */
};

tdm_status tdm__known_create(struct tdm__known **known_out)
{
    struct tdm__known *known = calloc(1, sizeof(*known));

    if (known == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a picture of records");
    }
    *known_out = known;
    return TDM_OK;
}

static void forget(struct tdm__known *known)
{
    for (uint32_t i = 0; i < known->prefixes_count; i++) {
        free(known->prefixes[i]);
    }
    for (uint32_t i = 0; i < known->count; i++) {
        free((char *)known->records[i].key);
    }
    known->prefixes_count = 0;
    known->count = 0;
}

void tdm__known_destroy(struct tdm__known *known)
{
    if (known == NULL) {
        return;
    }
    forget(known);
    free(known->records);
    free(known->guess);
    free(known);
}

/* ---- what is in it ---------------------------------------------------------------------- */

static bool make_room(struct tdm__known *known, uint32_t count)
{
    uint32_t capacity = known->capacity == 0 ? 16 : 2 * known->capacity;
    struct tdm__record *records;
    struct tdm__record *guess;

    capacity = capacity < count ? count : capacity;
    if (count <= known->capacity) {
        return true;
    }
    records = realloc(known->records, capacity * sizeof(*records));
    known->records = records != NULL ? records : known->records;
    guess = realloc(known->guess, capacity * sizeof(*guess));
    known->guess = guess != NULL ? guess : known->guess;
    if (records == NULL || guess == NULL) {
        return false;
    }
    known->capacity = capacity;
    return true;
}

/* The key and the bytes in one block, which the key begins. */
static bool copy_record(const struct tdm__record *record, struct tdm__record *copy_out)
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
    *copy_out = (struct tdm__record){
        block, record->version, {block + key_bytes, record->bytes.size_bytes}};
    return true;
}

/* The first record whose key is not before `key`. */
static uint32_t lower_bound(const struct tdm__known *known, const char *key)
{
    uint32_t low = 0;
    uint32_t high = known->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (strcmp(known->records[middle].key, key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool is_at(const struct tdm__known *known, uint32_t at, const char *key)
{
    return at < known->count && strcmp(known->records[at].key, key) == 0;
}

static void remove_record(struct tdm__known *known, const char *key)
{
    uint32_t at = lower_bound(known, key);

    if (is_at(known, at, key)) {
        free((char *)known->records[at].key);
        known->count--;
        memmove(&known->records[at], &known->records[at + 1],
                (known->count - at) * sizeof(known->records[0]));
    }
}

static bool put_record(struct tdm__known *known, const struct tdm__record *record)
{
    uint32_t at = lower_bound(known, record->key);
    struct tdm__record copy;

    if (!make_room(known, known->count + 1) || !copy_record(record, &copy)) {
        return false;
    }
    if (is_at(known, at, record->key)) {
        free((char *)known->records[at].key);
    } else {
        memmove(&known->records[at + 1], &known->records[at],
                (known->count - at) * sizeof(known->records[0]));
        known->count++;
    }
    known->records[at] = copy;
    return true;
}

static bool is_prefix(const char *pattern)
{
    size_t bytes = strlen(pattern);

    return bytes > 0 && pattern[bytes - 1] == '*';
}

static bool add_prefix(struct tdm__known *known, const char *prefix)
{
    char *copy = known->prefixes_count < PREFIXES_MAX ? strdup(prefix) : NULL;

    if (copy != NULL) {
        known->prefixes[known->prefixes_count++] = copy;
    }
    return copy != NULL;
}

static bool holds_prefix(const struct tdm__known *known, const char *prefix)
{
    for (uint32_t i = 0; i < known->prefixes_count; i++) {
        if (strcmp(known->prefixes[i], prefix) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- guess ------------------------------------------------------------------------------ */

static bool may_guess(struct tdm__known *known)
{
    if (known->reads_left > 0) {
        known->reads_left--;
        return false;
    }
    return known->count > 0 && tdm__clock_ms() - known->since_ms <= TDM__KNOWN_MS;
}

static bool matches_any(const char *const *patterns, uint32_t patterns_count, const char *key)
{
    for (uint32_t i = 0; i < patterns_count; i++) {
        if (tdm__store_matches(patterns[i], key)) {
            return true;
        }
    }
    return false;
}

const struct tdm__record *tdm__known_guess(struct tdm__known *known,
                                           const char *const *patterns, uint32_t patterns_count,
                                           uint32_t *records_count_out)
{
    uint32_t count = 0;

    if (!may_guess(known)) {
        return NULL;
    }
    for (uint32_t i = 0; i < patterns_count; i++) {
        if (is_prefix(patterns[i]) && !holds_prefix(known, patterns[i])) {
            return NULL;
        }
    }
    for (uint32_t i = 0; i < known->count; i++) {
        if (matches_any(patterns, patterns_count, known->records[i].key)) {
            known->guess[count++] = known->records[i];
        }
    }
    known->guessed = count > 0;
    *records_count_out = count;
    return known->guessed ? known->guess : NULL;
}

/* ---- what happened ---------------------------------------------------------------------- */

void tdm__known_read(struct tdm__known *known, const char *const *patterns,
                     uint32_t patterns_count, const struct tdm__record *records,
                     uint32_t records_count)
{
    bool is_whole = true;

    forget(known);
    known->guessed = false;
    known->since_ms = tdm__clock_ms();
    for (uint32_t i = 0; i < patterns_count && is_whole; i++) {
        is_whole = !is_prefix(patterns[i]) || add_prefix(known, patterns[i]);
    }
    for (uint32_t i = 0; i < records_count && is_whole; i++) {
        is_whole = put_record(known, &records[i]);
    }
    if (!is_whole) {
        forget(known);
    }
}

static bool keep(struct tdm__known *known, const struct tdm__write *write, uint64_t version)
{
    if (write->kind == TDM__WRITE_PUT) {
        return put_record(known, &(struct tdm__record){write->key, version, write->bytes});
    }
    if (write->kind == TDM__WRITE_DELETE) {
        remove_record(known, write->key);
    }
    return true;
}

static void was_wrong(struct tdm__known *known)
{
    known->wrong_reads = known->wrong_reads == 0 ? 1 : 2 * known->wrong_reads;
    known->wrong_reads = known->wrong_reads > READS_MAX ? READS_MAX : known->wrong_reads;
    known->reads_left = known->wrong_reads;
}

void tdm__known_committed(struct tdm__known *known, tdm_status status, uint64_t version,
                          const struct tdm__write *writes, uint32_t writes_count)
{
    bool is_whole = status == TDM_OK;

    for (uint32_t i = 0; i < writes_count && is_whole; i++) {
        is_whole = keep(known, &writes[i], version);
    }
    if (!is_whole) {
        forget(known);
    }
    if (known->guessed && status == TDM_OK) {
        known->wrong_reads = 0;
    } else if (known->guessed && status == TDM_E_CONFLICT) {
        was_wrong(known);
    }
}
