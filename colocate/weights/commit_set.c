/* commit_set.c - applies one step of the commit protocol to the records of several models at once.
 */
/* SPDX-License-Identifier: Apache-2.0 */

/* A set of requests is one transaction over the records of its models, so that no process finds
 * one of them changed and another one not. It does not wait in the queues of single requests
 * (commit.c): where both change a record at the same time, the commit of one conflicts and its body
 * runs again. The transaction owns the set and frees it when it has ended, also after the version
 * client was closed. Only the loop's thread enters. */

#include "colocate/weights/commit_set.h"

#include "colocate/weights/commit_record.h"
#include "runtime/error.h"
#include "runtime/store/txn.h"

#include <stdlib.h>
#include <string.h>

/* A set of requests from its submission until its reply. The arrays have one entry for each model.
 */
struct pending_set {
    uint32_t count;                                             /* Number of models. */
    struct tdm__version_request requests[TDM__VERSION_SET_MAX]; /* The requests. */
    struct tdm__member *lists[TDM__VERSION_SET_MAX]; /* Lists to which requests refer; owned. */
    char keys[TDM__VERSION_SET_MAX][TDM__VERSION_KEY_BYTES]; /* Keys of the records. */
    struct tdm__version_record *records; /* Records as the transaction leaves them; owned. */
    bool changed[TDM__VERSION_SET_MAX];  /* True for each record that needs a write. */
    tdm_writer *writer;                  /* Encoder of records; owned. */
    tdm__version_set_done_fn *fn;        /* Callback that gets the result. */
    void *arg;                           /* First argument of the callback. */
};

/* Frees a set of requests. */
static void pending_set_free(struct pending_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        free(set->lists[i]);
    }
    tdm_writer_destroy(set->writer);
    free(set->records);
    free(set);
}

/* Copies one request of a set. Refuses a model that is in the set already. */
static tdm_status pending_set_add(struct pending_set *set, const struct tdm__version_set_item *item)
{
    uint32_t index = set->count;

    TDM_TRY(tdm__version_record_key(item->model, set->keys[index]));
    for (uint32_t i = 0; i < index; i++) {
        if (strcmp(set->keys[i], set->keys[index]) == 0) {
            return tdm__fail(TDM_E_INVAL,
                             "requesting a version of several models failed: model %s is named "
                             "twice. Name each model once",
                             item->model);
        }
    }
    set->requests[index] = item->request;
    TDM_TRY(tdm__version_request_copy_lists(&set->requests[index], &set->lists[index]));
    set->count++;
    return TDM_OK;
}

/* Creates a set with copies of the requests. */
static tdm_status pending_set_create(const struct tdm__version_set_item *items, uint32_t count,
                                     struct pending_set **set_out)
{
    struct pending_set *set;
    tdm_status status = TDM_OK;

    if (count == 0 || count > TDM__VERSION_SET_MAX) {
        return tdm__fail(TDM_E_INVAL,
                         "requesting a version of several models failed: the request names %u "
                         "models, expected 1 to %d. Commit at most %d models together",
                         count, TDM__VERSION_SET_MAX, TDM__VERSION_SET_MAX);
    }
    set = calloc(1, sizeof(*set));
    if (set == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a request about %u models failed: out of memory",
                         count);
    }
    set->records = calloc(count, sizeof(set->records[0]));
    if (set->records == NULL) {
        status = tdm__fail(TDM_E_NOMEM, "allocating the records of %u models failed: out of memory",
                           count);
    }
    if (status == TDM_OK) {
        status = tdm_writer_create(&set->writer);
    }
    for (uint32_t i = 0; i < count && status == TDM_OK; i++) {
        status = pending_set_add(set, &items[i]);
    }
    if (status != TDM_OK) {
        pending_set_free(set);
        return status;
    }
    *set_out = set;
    return TDM_OK;
}

/* Decodes the record number `index` as the transaction has read it; an absent one is empty. */
static tdm_status read_record(struct pending_set *set, const struct tdm__txn *txn, uint32_t index)
{
    const struct tdm__store_record *stored = tdm__txn_find_record(txn, set->keys[index]);

    memset(&set->records[index], 0, sizeof(set->records[index]));
    return stored == NULL
               ? TDM_OK
               : tdm__wrap(tdm__version_record_decode(stored->bytes, &set->records[index]),
                           "record %s", set->keys[index]);
}

/* The body of the transaction: applies the requests and writes what they change. A record that they
 * do not change must still be as it was read, because the others depend on it. */
static tdm_status pending_set_transaction(void *arg, struct tdm__txn *txn)
{
    struct pending_set *set = arg;
    bool changes = false;
    uint32_t refused = 0;
    tdm_status status;

    for (uint32_t i = 0; i < set->count; i++) {
        TDM_TRY(read_record(set, txn, i));
    }
    status =
        tdm__version_apply_set(set->records, set->requests, set->count, set->changed, &refused);
    if (status != TDM_OK) {
        return tdm__wrap(status, "record %s", set->keys[refused]);
    }
    for (uint32_t i = 0; i < set->count; i++) {
        changes = changes || set->changed[i];
    }
    for (uint32_t i = 0; i < set->count && changes; i++) {
        if (!set->changed[i]) {
            TDM_TRY(tdm__txn_require_unchanged(txn, set->keys[i]));
            continue;
        }
        tdm_writer_clear(set->writer);
        TDM_TRY(tdm__version_record_encode(&set->records[i], set->writer));
        TDM_TRY(tdm__txn_put(txn, set->keys[i], tdm_writer_bytes(set->writer), 0));
    }
    return TDM_OK;
}

/* Callback of the store when the transaction has ended: replies and frees the set. */
static void pending_set_done(void *arg, tdm_status status, const char *detail)
{
    struct pending_set *set = arg;

    set->fn(set->arg, status, detail, status == TDM_OK ? set->records : NULL,
            status == TDM_OK ? set->count : 0);
    pending_set_free(set);
}

tdm_status tdm__version_client_submit_set(struct tdm__version_client *versions,
                                          const struct tdm__version_set_item *items, uint32_t count,
                                          int64_t deadline_ms, tdm__version_set_done_fn *fn,
                                          void *arg)
{
    const char *patterns[TDM__VERSION_SET_MAX];
    struct pending_set *set;
    tdm_status status;

    TDM_TRY(pending_set_create(items, count, &set));
    set->fn = fn;
    set->arg = arg;
    for (uint32_t i = 0; i < count; i++) {
        patterns[i] = set->keys[i];
    }
    status = tdm__txn_run(tdm__version_client_store(versions), NULL, patterns, count, deadline_ms,
                          pending_set_transaction, pending_set_done, set);
    if (status != TDM_OK) {
        pending_set_free(set);
    }
    return status;
}
