/* txn.c - optimistic transactions: read, decide, commit, and retry after a conflict. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction reads the records of its patterns, runs its body on them, and commits the body's
 * writes on condition that the read versions are still current. After a conflict it reads again,
 * until its deadline.
 *
 * With a read cache the first attempt starts from the cached records instead of a read. The reply
 * to a lost commit has the records over which it was lost, and the body runs on the cache with
 * these. What such attempts decide counts only if it is committed. If they have nothing to commit,
 * or have lost GUESSES_MAX times, everything that has changed is read.
 *
 * A transaction always has exactly one operation pending in the store, so closing the store ends
 * it. Only conflicts are retried: after TDM_E_STORE the outcome of the commit is unknown, and
 * running the body again could do its work twice. All functions run on the loop's thread.
 * txn.h specifies the interface. */
#include "runtime/store/txn.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/store/check.h"
#include "runtime/store/read_cache.h"
#include "runtime/store/records.h"

#include <stdlib.h>
#include <string.h>

/* Number of conflicts in a row after which a transaction with a cache reads all changes. */
enum { GUESSES_MAX = 8 };

/* A running transaction. It frees itself after `done` has run. */
struct tdm__txn {
    struct tdm__store *store; /* Store that the transaction uses (borrowed). */
    /* Cache of records to start from (borrowed); NULL if the store is always read first. */
    struct tdm__read_cache *read_cache;
    char **patterns;         /* Key patterns of the records to read, in one allocation (owned). */
    uint32_t patterns_count; /* Number of entries in `patterns`. */
    int64_t deadline_ms;     /* Deadline of the transaction in milliseconds on CLOCK_MONOTONIC. */
    tdm__txn_body_fn *body;  /* Callback that decides what to write; it runs once per attempt. */
    tdm__txn_done_fn *done;  /* Callback that runs once, when the transaction has ended. */
    void *arg;               /* First argument of `body` and `done`. */
    uint32_t conflicts;      /* Number of the transaction's commits that failed with a conflict. */
    /* Patterns of the read that is under way, in one allocation (owned); NULL if it is that of
     * `patterns`. */
    char **read_patterns;

    /* Records that `body` sees (borrowed from the store or the cache); NULL while `body` does not
     * run. */
    const struct tdm__store_record *records;
    uint32_t records_count; /* Number of entries in `records`. */
    bool is_guess;          /* Whether `records` are cached ones that no read has confirmed. */
    /* Writes that `body` added, with copies of keys and bytes (owned). */
    struct tdm__store_write *writes;
    uint32_t writes_count;    /* Number of entries in `writes`. */
    uint32_t writes_capacity; /* Capacity of `writes`. */
    /* What earlier parts of the body have written: for each of the first `changes_count` writes the
     * record that it puts, whose key is NULL if it puts none (owned; texts belong to `writes`). */
    struct tdm__store_record *changes;
    uint32_t changes_count; /* Number of entries in `changes`. */
};

/* Reads the transaction's records from the store; declared here for txn_on_committed(). */
static void txn_read_again(struct tdm__txn *txn);
/* Tries again with the losers of a commit; declared here for txn_on_committed(). */
static void txn_use_losers(struct tdm__txn *txn, const struct tdm__store_committed *committed);

/* ---- what the body sees and adds -------------------------------------------------------- */

/* Returns whether a write changes its record. */
static bool is_change(const struct tdm__store_write *write)
{
    return write->kind == TDM__STORE_PUT || write->kind == TDM__STORE_DELETE;
}

const struct tdm__store_record *tdm__txn_find_record(const struct tdm__txn *txn, const char *key)
{
    for (uint32_t i = txn->changes_count; i > 0; i--) {
        const struct tdm__store_write *write = &txn->writes[i - 1];

        if (is_change(write) && strcmp(write->key, key) == 0) {
            return write->kind == TDM__STORE_PUT ? &txn->changes[i - 1] : NULL;
        }
    }
    return tdm__store_records_find(txn->records, txn->records_count, key);
}

uint32_t tdm__txn_changes_count(const struct tdm__txn *txn)
{
    return txn->changes_count;
}

const struct tdm__store_record *tdm__txn_change_at(const struct tdm__txn *txn, uint32_t index)
{
    TDM_ASSERT(index < txn->changes_count);
    return txn->changes[index].key == NULL ? NULL : &txn->changes[index];
}

uint32_t tdm__txn_records_count(const struct tdm__txn *txn)
{
    return txn->records_count;
}

const struct tdm__store_record *tdm__txn_record_at(const struct tdm__txn *txn, uint32_t index)
{
    TDM_ASSERT(index < txn->records_count);
    return &txn->records[index];
}

struct tdm__read_cache *tdm__txn_read_cache(const struct tdm__txn *txn)
{
    return txn->read_cache;
}

bool tdm__txn_is_guess(const struct tdm__txn *txn)
{
    return txn->is_guess;
}

uint32_t tdm__txn_spread(const struct tdm__txn *txn)
{
    uint32_t spread = txn->read_cache == NULL ? 0 : tdm__read_cache_spread(txn->read_cache);

    return txn->conflicts > spread ? txn->conflicts : spread;
}

uint64_t tdm__txn_losses(const struct tdm__txn *txn)
{
    return txn->read_cache == NULL ? txn->conflicts : tdm__read_cache_losses(txn->read_cache);
}

/* Returns whether the transaction's patterns match the key `key`. */
static bool txn_has_read_key(const struct tdm__txn *txn, const char *key)
{
    for (uint32_t i = 0; i < txn->patterns_count; i++) {
        if (tdm__store_matches(txn->patterns[i], key)) {
            return true;
        }
    }
    return false;
}

/* Ensures that the transaction has space for one more write. */
static tdm_status txn_reserve_write(struct tdm__txn *txn)
{
    uint32_t capacity = txn->writes_capacity == 0 ? 8 : 2 * txn->writes_capacity;
    struct tdm__store_write *writes;

    if (txn->writes_count < txn->writes_capacity) {
        return TDM_OK;
    }
    writes = realloc(txn->writes, capacity * sizeof(*writes));
    if (writes == NULL) {
        return tdm__fail(TDM_E_NOMEM, "transaction of %u writes", capacity);
    }
    txn->writes = writes;
    txn->writes_capacity = capacity;
    return TDM_OK;
}

/* Adds a write to the transaction's commit, on condition that the record still has the version that
 * was read. The key and the bytes are copied, because the body's memory may be gone when the commit
 * is sent. */
static tdm_status txn_add_write(struct tdm__txn *txn, const struct tdm__store_write *write)
{
    const struct tdm__store_record *record =
        tdm__store_records_find(txn->records, txn->records_count, write->key);
    size_t key_bytes = strlen(write->key) + 1;
    struct tdm__store_write *copy;
    char *text;

    if (!txn_has_read_key(txn, write->key)) {
        return tdm__fail(TDM_E_INVAL,
                         "write of \"%s\" refused: the transaction does not read this key",
                         write->key);
    }
    TDM_TRY(txn_reserve_write(txn));
    text = malloc(key_bytes + write->bytes.size_bytes);
    if (text == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%s: write of %zu bytes", write->key,
                         write->bytes.size_bytes);
    }
    memcpy(text, write->key, key_bytes);
    if (write->bytes.size_bytes > 0) {
        memcpy(text + key_bytes, write->bytes.data, write->bytes.size_bytes);
    }
    copy = &txn->writes[txn->writes_count++];
    *copy = *write;
    copy->key = text;
    copy->bytes.data = text + key_bytes;
    if (write->kind != TDM__STORE_CHECK_GENERATION) {
        copy->version = record != NULL ? record->version : TDM__VERSION_NONE;
    }
    return TDM_OK;
}

/* Returns whether the transaction's body has already added a write of the key `key`. */
static bool txn_has_write(const struct tdm__txn *txn, const char *key)
{
    for (uint32_t i = 0; i < txn->writes_count; i++) {
        if (strcmp(txn->writes[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

tdm_status tdm__txn_put(struct tdm__txn *txn, const char *key, struct tdm_bytes bytes,
                        int64_t lease_ms)
{
    return txn_add_write(
        txn, &(struct tdm__store_write){
                 .kind = TDM__STORE_PUT, .key = key, .bytes = bytes, .lease_ms = lease_ms});
}

tdm_status tdm__txn_delete(struct tdm__txn *txn, const char *key)
{
    return txn_add_write(txn, &(struct tdm__store_write){.kind = TDM__STORE_DELETE, .key = key});
}

tdm_status tdm__txn_require_unchanged(struct tdm__txn *txn, const char *key)
{
    if (txn_has_write(txn, key)) {
        return TDM_OK; /* Every write checks the version of its record. */
    }
    return txn_add_write(txn,
                         &(struct tdm__store_write){.kind = TDM__STORE_CHECK_VERSION, .key = key});
}

tdm_status tdm__txn_require_confirmed(struct tdm__txn *txn, const char *key)
{
    return txn_add_write(txn, &(struct tdm__store_write){.kind = TDM__STORE_CHECK_VERSION,
                                                         .key = key,
                                                         .needs_replicas = true});
}

tdm_status tdm__txn_require_lost(struct tdm__txn *txn, const char *key)
{
    for (uint32_t i = 0; i < txn->writes_count; i++) {
        if (txn->writes[i].kind == TDM__STORE_CHECK_LOST && strcmp(txn->writes[i].key, key) == 0) {
            return TDM_OK;
        }
    }
    return txn_add_write(txn,
                         &(struct tdm__store_write){.kind = TDM__STORE_CHECK_LOST, .key = key});
}

tdm_status tdm__txn_require_generation(struct tdm__txn *txn, const char *key, uint64_t generation)
{
    if (generation == 0) {
        return TDM_OK;
    }
    return txn_add_write(txn, &(struct tdm__store_write){.kind = TDM__STORE_CHECK_GENERATION,
                                                         .key = key,
                                                         .version = generation});
}

/* ---- parts of the body ------------------------------------------------------------------- */

tdm_status tdm__txn_next_part(struct tdm__txn *txn)
{
    struct tdm__store_record *changes =
        realloc(txn->changes, (txn->writes_count + 1u) * sizeof(*changes));

    if (changes == NULL) {
        return tdm__fail(TDM_E_NOMEM, "transaction of %u writes", txn->writes_count);
    }
    txn->changes = changes;
    for (; txn->changes_count < txn->writes_count; txn->changes_count++) {
        const struct tdm__store_write *write = &txn->writes[txn->changes_count];

        changes[txn->changes_count] =
            (struct tdm__store_record){.key = write->kind == TDM__STORE_PUT ? write->key : NULL,
                                       .version = TDM__VERSION_PENDING,
                                       .bytes = write->bytes};
    }
    return TDM_OK;
}

/* Returns whether a later write changes the record of write number `index`, which then need not be
 * committed: each write of a record checks the same version. A check that replicas have confirmed
 * an earlier commit stays. */
static bool txn_write_is_replaced(const struct tdm__txn *txn, uint32_t index)
{
    const struct tdm__store_write *write = &txn->writes[index];

    if (write->needs_replicas || (!is_change(write) && write->kind != TDM__STORE_CHECK_VERSION)) {
        return false;
    }
    for (uint32_t i = index + 1; i < txn->writes_count; i++) {
        if (is_change(&txn->writes[i]) && strcmp(txn->writes[i].key, write->key) == 0) {
            return true;
        }
    }
    return false;
}

/* Removes the writes of a body of several parts that later ones replace. */
static void txn_merge_writes(struct tdm__txn *txn)
{
    uint32_t count = 0;

    if (txn->changes_count == 0) {
        return;
    }
    txn->changes_count = 0;
    for (uint32_t i = 0; i < txn->writes_count; i++) {
        if (txn_write_is_replaced(txn, i)) {
            free((char *)txn->writes[i].key);
            txn->writes[i].key = NULL;
        }
    }
    for (uint32_t i = 0; i < txn->writes_count; i++) {
        if (txn->writes[i].key != NULL) {
            txn->writes[count++] = txn->writes[i];
        }
    }
    txn->writes_count = count;
}

/* ---- one attempt after the other -------------------------------------------------------- */

/* Removes the writes of the transaction's last attempt, but keeps the array. */
static void txn_clear_writes(struct tdm__txn *txn)
{
    for (uint32_t i = 0; i < txn->writes_count; i++) {
        free((char *)txn->writes[i].key);
    }
    txn->writes_count = 0;
    txn->changes_count = 0;
}

void tdm__txn_restart(struct tdm__txn *txn)
{
    txn_clear_writes(txn);
}

/* Runs the callback `done` with `status` and frees the transaction. */
static void txn_finish(struct tdm__txn *txn, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES] = "";

    if (status != TDM_OK) {
        (void)strncpy(detail, tdm_error_detail(), sizeof(detail) - 1);
    }
    txn->done(txn->arg, status, detail);
    txn_clear_writes(txn);
    free(txn->writes);
    free(txn->changes);
    free(txn->read_patterns);
    free(txn->patterns);
    free(txn);
}

/* Handles the outcome of the transaction's commit: ends the transaction, or retries after a
 * conflict. */
static void txn_on_committed(void *arg, tdm_status status,
                             const struct tdm__store_committed *committed)
{
    struct tdm__txn *txn = arg;

    if (txn->read_cache != NULL) {
        tdm__read_cache_apply_commit(txn->read_cache, status, committed->version, txn->writes,
                                     txn->writes_count);
    }
    if (status != TDM_E_CONFLICT) {
        txn_finish(txn, status);
        return;
    }
    txn->conflicts++;
    if (tdm__deadline_remaining_ms(txn->deadline_ms) == 0) {
        txn_finish(txn,
                   tdm__fail(TDM_E_TIMEOUT, "%u conflicts until the deadline, the last over %s",
                             txn->conflicts, tdm_error_detail()));
        return;
    }
    if (txn->read_cache != NULL && committed->losers != NULL && txn->conflicts % GUESSES_MAX != 0) {
        txn_use_losers(txn, committed);
    } else {
        txn_read_again(txn);
    }
}

/* Adds a version check for every pattern of the transaction that is a key. Without a read no
 * process has confirmed that keys missing from the cache are absent. */
static tdm_status txn_require_keys_unchanged(struct tdm__txn *txn)
{
    for (uint32_t i = 0; i < txn->patterns_count && txn->writes_count > 0; i++) {
        const char *key = txn->patterns[i];

        if (strchr(key, '*') == NULL) {
            TDM_TRY(tdm__txn_require_unchanged(txn, key));
        }
    }
    return TDM_OK;
}

/* Runs the transaction's body on `records`. With `is_guess` the records come from the cache, and a
 * commit with writes also checks every key that is named without '*', whether its record is present
 * or absent. */
static tdm_status txn_run_body(struct tdm__txn *txn, const struct tdm__store_record *records,
                               uint32_t records_count, bool is_guess)
{
    tdm_status status;

    txn_clear_writes(txn);
    txn->records = records;
    txn->records_count = records_count;
    txn->is_guess = is_guess;
    status = txn->body(txn->arg, txn);
    txn_merge_writes(txn);
    if (status == TDM_OK && is_guess) {
        status = txn_require_keys_unchanged(txn);
    }
    txn->records = NULL;
    txn->records_count = 0;
    return status;
}

/* Commits the writes that the transaction's body added. */
static void commit(struct tdm__txn *txn)
{
    txn->store->ops->commit(txn->store, txn->writes, txn->writes_count, txn->deadline_ms,
                            txn_on_committed, txn);
}

/* Starts an attempt from cached records. If the body fails or writes nothing on them, the store is
 * read. */
static void txn_guess(struct tdm__txn *txn, const struct tdm__store_record *records,
                      uint32_t records_count)
{
    if (txn_run_body(txn, records, records_count, true) != TDM_OK || txn->writes_count == 0) {
        txn_read_again(txn);
    } else {
        commit(txn);
    }
}

/* Runs the body on records that were read, and commits. */
static void txn_decide(struct tdm__txn *txn, const struct tdm__store_record *records,
                       uint32_t records_count)
{
    tdm_status status = txn_run_body(txn, records, records_count, false);

    if (status != TDM_OK || txn->writes_count == 0) {
        txn_finish(txn, status);
        return;
    }
    commit(txn);
}

/* Handles the store's reply with the transaction's records: runs the body on them, and commits. If
 * the cache has no room for them, the transaction goes on without it. */
static void txn_on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                        uint32_t records_count)
{
    struct tdm__txn *txn = arg;

    if (status != TDM_OK) {
        txn_finish(txn, status);
        return;
    }
    if (txn->read_cache != NULL) {
        if (!tdm__read_cache_fill(txn->read_cache, (const char *const *)txn->read_patterns,
                                  txn->patterns_count, records, records_count)) {
            txn->read_cache = NULL;
            txn_read_again(txn);
            return;
        }
        records = tdm__read_cache_collect(txn->read_cache, (const char *const *)txn->patterns,
                                          txn->patterns_count, &records_count);
    }
    txn_decide(txn, records, records_count);
}

static void txn_use_losers(struct tdm__txn *txn, const struct tdm__store_committed *committed)
{
    const struct tdm__store_record *records;
    uint32_t records_count;

    if (!tdm__read_cache_correct(txn->read_cache, committed->losers, committed->losers_count)) {
        txn->read_cache = NULL;
    }
    if (txn->read_cache == NULL || tdm__read_cache_must_refresh(txn->read_cache)) {
        txn_read_again(txn);
        return;
    }
    records = tdm__read_cache_collect(txn->read_cache, (const char *const *)txn->patterns,
                                      txn->patterns_count, &records_count);
    txn_guess(txn, records, records_count);
}

/* Copies the texts and an array of pointers to them into one allocation. Returns NULL without
 * memory. */
static char **copy_texts(const char *const *texts, uint32_t count)
{
    size_t bytes = (count + 1u) * sizeof(char *);
    char **copy;
    char *place;

    for (uint32_t i = 0; i < count; i++) {
        bytes += strlen(texts[i]) + 1;
    }
    copy = malloc(bytes);
    if (copy == NULL) {
        return NULL;
    }
    place = (char *)&copy[count + 1u];
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = place;
        place = stpcpy(place, texts[i]) + 1;
    }
    return copy;
}

/* Sets the patterns of the next read to those of all that the transaction reads and that has
 * changed since the cache was read. Returns false without memory. */
static bool txn_set_changes(struct tdm__txn *txn)
{
    char(*texts)[TDM__READ_CACHE_PATTERN_BYTES] =
        malloc((txn->patterns_count + 1) * sizeof(*texts));
    const char **patterns = calloc(txn->patterns_count + 1, sizeof(*patterns));

    free(txn->read_patterns);
    txn->read_patterns = NULL;
    if (texts != NULL && patterns != NULL) {
        for (uint32_t i = 0; i < txn->patterns_count; i++) {
            patterns[i] = tdm__read_cache_pattern(txn->read_cache, txn->patterns[i], texts[i]);
        }
        txn->read_patterns = copy_texts(patterns, txn->patterns_count);
    }
    free(texts);
    free(patterns);
    return txn->read_patterns != NULL;
}

/* Reads the transaction's patterns from the store and continues with txn_on_read(). */
static void txn_read_again(struct tdm__txn *txn)
{
    char **patterns = txn->patterns;

    if (txn->read_cache != NULL && txn_set_changes(txn)) {
        patterns = txn->read_patterns;
    } else {
        txn->read_cache = NULL;
    }
    txn->store->ops->read(txn->store, (const char *const *)patterns, txn->patterns_count,
                          txn->deadline_ms, txn_on_read, txn);
}

/* Starts the transaction's first attempt, from the cache if possible. */
static void txn_start(struct tdm__txn *txn)
{
    uint32_t records_count = 0;
    const struct tdm__store_record *records =
        txn->read_cache == NULL
            ? NULL
            : tdm__read_cache_lookup(txn->read_cache, (const char *const *)txn->patterns,
                                     txn->patterns_count, &records_count);

    if (records != NULL) {
        txn_guess(txn, records, records_count);
    } else {
        txn_read_again(txn);
    }
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the contract's */
tdm_status tdm__txn_run(struct tdm__store *store, struct tdm__read_cache *read_cache,
                        const char *const *patterns, uint32_t patterns_count, int64_t deadline_ms,
                        tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg)
{
    struct tdm__txn *txn;

    TDM_TRY(tdm__store_check_patterns(patterns, patterns_count));
    txn = calloc(1, sizeof(*txn));
    if (txn == NULL) {
        return tdm__fail(TDM_E_NOMEM, "transaction");
    }
    txn->patterns = copy_texts(patterns, patterns_count);
    if (txn->patterns == NULL) {
        free(txn);
        return tdm__fail(TDM_E_NOMEM, "transaction over %u patterns", patterns_count);
    }
    txn->store = store;
    txn->patterns_count = patterns_count;
    txn->deadline_ms = deadline_ms;
    txn->body = body;
    txn->done = done;
    txn->arg = arg;
    txn->read_cache = read_cache;
    txn_start(txn);
    return TDM_OK;
}
