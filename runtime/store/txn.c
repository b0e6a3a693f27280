/* txn.c - read, decide, commit, and on a conflict again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/store/check.h"
#include "runtime/store/read_cache.h"
#include "runtime/store/records.h"

#include <stdlib.h>
#include <string.h>

/* A transaction always has exactly one operation under way in the store, so a store that closes
 * ends it.  Only conflicts are tried again: after TDM_E_STORE the outcome of the commit is
 * unknown, and running the body again could do its work twice. */

struct tdm__txn {
    struct tdm__store *store;           /* borrowed */
    struct tdm__read_cache *read_cache; /* borrowed; may be NULL */
    char **patterns;                    /* owned, one block */
    uint32_t patterns_count;
    int64_t deadline_ms;
    tdm__txn_body_fn *body;
    tdm__txn_done_fn *done;
    void *arg;
    uint32_t conflicts;

    /* While the body runs. */
    const struct tdm__store_record *records; /* borrowed from the store */
    uint32_t records_count;
    struct tdm__store_write *writes; /* owned, keys and bytes too */
    uint32_t writes_count;
    uint32_t writes_capacity;
};

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

static bool txn_has_read_key(const struct tdm__txn *txn, const char *key)
{
    for (uint32_t i = 0; i < txn->patterns_count; i++) {
        if (tdm__store_matches(txn->patterns[i], key)) {
            return true;
        }
    }
    return false;
}

static tdm_status make_room(struct tdm__txn *txn)
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

/* Copies the key and the bytes: the body's own are gone when the commit is made. */
static tdm_status add_write(struct tdm__txn *txn, const struct tdm__store_write *write)
{
    const struct tdm__store_record *record = tdm__txn_find_record(txn, write->key);
    size_t key_bytes = strlen(write->key) + 1;
    struct tdm__store_write *copy;
    char *text;

    if (!txn_has_read_key(txn, write->key)) {
        return tdm__fail(TDM_E_INVAL, "\"%s\" is none of the keys this transaction reads",
                         write->key);
    }
    TDM_TRY(make_room(txn));
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
    copy->version = record != NULL ? record->version : TDM__VERSION_NONE;
    return TDM_OK;
}

static bool is_written(const struct tdm__txn *txn, const char *key)
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
    return add_write(txn,
                     &(struct tdm__store_write){
                         .kind = TDM__STORE_PUT, .key = key, .bytes = bytes, .lease_ms = lease_ms});
}

tdm_status tdm__txn_delete(struct tdm__txn *txn, const char *key)
{
    return add_write(txn, &(struct tdm__store_write){.kind = TDM__STORE_DELETE, .key = key});
}

tdm_status tdm__txn_require_unchanged(struct tdm__txn *txn, const char *key)
{
    if (is_written(txn, key)) {
        return TDM_OK; /* every write checks the version */
    }
    return add_write(txn, &(struct tdm__store_write){.kind = TDM__STORE_CHECK_VERSION, .key = key});
}

/* ---- one attempt after the other -------------------------------------------------------- */

static void txn_clear_writes(struct tdm__txn *txn)
{
    for (uint32_t i = 0; i < txn->writes_count; i++) {
        free((char *)txn->writes[i].key);
    }
    txn->writes_count = 0;
}

static void finish(struct tdm__txn *txn, tdm_status status)
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

static void on_committed(void *arg, tdm_status status, uint64_t version)
{
    struct tdm__txn *txn = arg;

    if (txn->read_cache != NULL) {
        tdm__read_cache_apply_commit(txn->read_cache, status, version, txn->writes,
                                     txn->writes_count);
    }
    if (status != TDM_E_CONFLICT) {
        finish(txn, status);
        return;
    }
    txn->conflicts++;
    if (tdm__deadline_remaining_ms(txn->deadline_ms) == 0) {
        finish(txn, tdm__fail(TDM_E_TIMEOUT, "%u conflicts until the deadline, the last over %s",
                              txn->conflicts, tdm_error_detail()));
        return;
    }
    txn_read_again(txn);
}

/* Nobody has looked whether those that are not read_cache are there. */
static tdm_status rely_on_keys(struct tdm__txn *txn)
{
    for (uint32_t i = 0; i < txn->patterns_count && txn->writes_count > 0; i++) {
        const char *key = txn->patterns[i];

        if (strchr(key, '*') == NULL) {
            TDM_TRY(tdm__txn_require_unchanged(txn, key));
        }
    }
    return TDM_OK;
}

static tdm_status txn_run_body(struct tdm__txn *txn, const struct tdm__store_record *records,
                               uint32_t records_count, bool is_guess)
{
    tdm_status status;

    txn_clear_writes(txn);
    txn->records = records;
    txn->records_count = records_count;
    status = txn->body(txn->arg, txn);
    if (status == TDM_OK && is_guess) {
        status = rely_on_keys(txn);
    }
    txn->records = NULL;
    txn->records_count = 0;
    return status;
}

static void commit(struct tdm__txn *txn)
{
    txn->store->ops->commit(txn->store, txn->writes, txn->writes_count, txn->deadline_ms,
                            on_committed, txn);
}

static void on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                    uint32_t records_count)
{
    struct tdm__txn *txn = arg;

    if (status != TDM_OK) {
        finish(txn, status);
        return;
    }
    if (txn->read_cache != NULL) {
        tdm__read_cache_fill(txn->read_cache, (const char *const *)txn->patterns,
                             txn->patterns_count, records, records_count);
    }
    status = txn_run_body(txn, records, records_count, false);
    if (status != TDM_OK || txn->writes_count == 0) {
        finish(txn, status);
        return;
    }
    commit(txn);
}

static void txn_read_again(struct tdm__txn *txn)
{
    txn->store->ops->read(txn->store, (const char *const *)txn->patterns, txn->patterns_count,
                          txn->deadline_ms, on_read, txn);
}

static void begin(struct tdm__txn *txn)
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

/* The pointers and the texts in one block. */
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
    begin(txn);
    return TDM_OK;
}
