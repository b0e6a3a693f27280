/* txn.c - optimistic transactions: read, decide, commit, and retry after a conflict. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction reads the records of its patterns, runs its body on them, and commits the body's
 * writes on condition that the read versions are still current. After a conflict it reads again,
 * until its deadline. With a read cache the first attempt starts from the cached records instead of
 * a read.
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

    /* Records that `body` sees (borrowed from the store or the cache); NULL while `body` does not
     * run. */
    const struct tdm__store_record *records;
    uint32_t records_count; /* Number of entries in `records`. */
    /* Writes that `body` added, with copies of keys and bytes (owned). */
    struct tdm__store_write *writes;
    uint32_t writes_count;    /* Number of entries in `writes`. */
    uint32_t writes_capacity; /* Capacity of `writes`. */
};

/* Reads the transaction's records from the store; declared here for txn_on_committed(). */
static void txn_read_again(struct tdm__txn *txn);

/* ---- what the body sees and adds -------------------------------------------------------- */

const struct tdm__store_record *tdm__txn_find_record(const struct tdm__txn *txn, const char *key)
{
    return tdm__store_records_find(txn->records, txn->records_count, key);
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
    const struct tdm__store_record *record = tdm__txn_find_record(txn, write->key);
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

/* ---- one attempt after the other -------------------------------------------------------- */

/* Removes the writes of the transaction's last attempt, but keeps the array. */
static void txn_clear_writes(struct tdm__txn *txn)
{
    for (uint32_t i = 0; i < txn->writes_count; i++) {
        free((char *)txn->writes[i].key);
    }
    txn->writes_count = 0;
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
    free(txn->patterns);
    free(txn);
}

/* Handles the outcome of the transaction's commit: ends the transaction, or retries after a
 * conflict. */
static void txn_on_committed(void *arg, tdm_status status, uint64_t version)
{
    struct tdm__txn *txn = arg;

    if (txn->read_cache != NULL) {
        tdm__read_cache_apply_commit(txn->read_cache, status, version, txn->writes,
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
    txn_read_again(txn);
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
    status = txn->body(txn->arg, txn);
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

/* Handles the store's reply with the transaction's records: runs the body on them, and commits. */
static void txn_on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                        uint32_t records_count)
{
    struct tdm__txn *txn = arg;

    if (status != TDM_OK) {
        txn_finish(txn, status);
        return;
    }
    if (txn->read_cache != NULL) {
        tdm__read_cache_fill(txn->read_cache, (const char *const *)txn->patterns,
                             txn->patterns_count, records, records_count);
    }
    status = txn_run_body(txn, records, records_count, false);
    if (status != TDM_OK || txn->writes_count == 0) {
        txn_finish(txn, status);
        return;
    }
    commit(txn);
}

/* Reads the transaction's records from the store and continues with txn_on_read(). */
static void txn_read_again(struct tdm__txn *txn)
{
    txn->store->ops->read(txn->store, (const char *const *)txn->patterns, txn->patterns_count,
                          txn->deadline_ms, txn_on_read, txn);
}

/* Starts the transaction's first attempt, from the cache if possible. If the body fails or writes
 * nothing on cached records, the store is read. */
static void txn_start(struct tdm__txn *txn)
{
    uint32_t records_count = 0;
    const struct tdm__store_record *records =
        txn->read_cache == NULL
            ? NULL
            : tdm__read_cache_lookup(txn->read_cache, (const char *const *)txn->patterns,
                                     txn->patterns_count, &records_count);

    if (records != NULL && txn_run_body(txn, records, records_count, true) == TDM_OK &&
        txn->writes_count > 0) {
        commit(txn);
        return;
    }
    txn_read_again(txn);
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
