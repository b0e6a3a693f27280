/* retrying_txn.c - transactions that are repeated until their outcome is known. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A retrying transaction owns copies of its patterns and starts a transaction (tdm__txn) for each
 * attempt. It ends with the first outcome other than TDM_E_STORE, or at its deadline.
 *
 * Queued ones are linked in the store, store->queued_txns being the head. Only the head runs; when
 * it ends, it starts its successor before it reports its own outcome, because the callback may
 * close the store. When the store closes, the remaining ones fail. Everything runs on the loop's
 * thread. */

#include "scheduler/retrying_txn.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/store/txn.h"
#include "scheduler/records.h"

#include <stdio.h>
#include <stdlib.h>

/* Largest number of patterns of a transaction. */
enum { PATTERNS_MAX = 5 };

/* A transaction that is repeated while its outcome is unknown. It is freed after `done` has run. */
struct tdm__retrying_txn {
    struct tdm__retrying_txn *next; /* Next transaction in the store's queue; NULL at the end. */
    bool queued;                    /* Whether the transaction is in the store's queue. */
    bool running;                   /* Whether a queued transaction has been started. */
    struct tdm__store *store;       /* Store to read and write (borrowed). */
    /* Patterns of the keys that the transaction reads. */
    char patterns[PATTERNS_MAX][TDM__STORE_KEY_BYTES];
    uint32_t patterns_count; /* Number of entries in `patterns`. */
    int64_t deadline_ms;     /* Deadline for all attempts, in milliseconds on CLOCK_MONOTONIC. */
    tdm__txn_body_fn *body;  /* The caller's function that decides in each attempt what to write. */
    tdm__txn_done_fn *done;  /* Callback that gets the final outcome. */
    void *arg;               /* First argument of `body` and `done`. */
};

/* Starts the next attempt of a transaction. */
static tdm_status retrying_txn_retry(struct tdm__retrying_txn *retrying);

/* Body of an attempt, which runs the caller's body. */
static tdm_status retrying_txn_body(void *arg, struct tdm__txn *txn)
{
    const struct tdm__retrying_txn *retrying = arg;

    return retrying->body(retrying->arg, txn);
}

/* Reports the final outcome of a transaction to the caller and frees the transaction. */
static void retrying_txn_finish(struct tdm__retrying_txn *retrying, tdm_status status,
                                const char *detail)
{
    retrying->done(retrying->arg, status, detail);
    free(retrying);
}

/* Starts the first transaction of the store's queue, unless it is running. A transaction that
 * cannot be started fails, and the next one is tried. */
static void retrying_txn_start_next(struct tdm__store *store)
{
    while (store->queued_txns != NULL && !store->queued_txns->running) {
        struct tdm__retrying_txn *retrying = store->queued_txns;
        tdm_status status =
            store->closing ? tdm__fail(TDM_E_STORE, "the store was closed") : TDM_OK;

        if (status == TDM_OK) {
            retrying->running = true;
            status = retrying_txn_retry(retrying);
        }
        if (status != TDM_OK) {
            store->queued_txns = retrying->next;
            retrying_txn_finish(retrying, status, tdm_error_detail());
        }
    }
}

/* Handles the outcome of an attempt: starts another attempt, or ends the transaction and starts the
 * next one in the queue. */
static void retrying_txn_done(void *arg, tdm_status status, const char *detail)
{
    struct tdm__retrying_txn *retrying = arg;

    if (status == TDM_E_STORE && !retrying->store->closing &&
        tdm__deadline_remaining_ms(retrying->deadline_ms) > 0 &&
        retrying_txn_retry(retrying) == TDM_OK) {
        return;
    }
    if (retrying->queued) {
        TDM_ASSERT(retrying->store->queued_txns == retrying);
        retrying->store->queued_txns = retrying->next;
        /* The next transaction starts before the callback runs, because the callback may close the
         * store. */
        retrying_txn_start_next(retrying->store);
    }
    retrying_txn_finish(retrying, status, detail);
}

/* Starts the next attempt of a transaction, under the same patterns and deadline. */
static tdm_status retrying_txn_retry(struct tdm__retrying_txn *retrying)
{
    const char *patterns[PATTERNS_MAX];

    for (uint32_t i = 0; i < retrying->patterns_count; i++) {
        patterns[i] = retrying->patterns[i];
    }
    return tdm__txn_run(retrying->store, retrying->queued ? retrying->store->read_cache : NULL,
                        patterns, retrying->patterns_count, retrying->deadline_ms,
                        retrying_txn_body, retrying_txn_done, retrying);
}

/* Allocates a transaction and copies its patterns. */
/* NOLINTNEXTLINE(readability-function-size): the parameters are tdm__txn_run()'s */
static tdm_status retrying_txn_create(struct tdm__store *store, const char *const *patterns,
                                      uint32_t patterns_count, int64_t deadline_ms,
                                      tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg,
                                      struct tdm__retrying_txn **retrying_out)
{
    struct tdm__retrying_txn *retrying = calloc(1, sizeof(*retrying));

    TDM_ASSERT(patterns_count <= PATTERNS_MAX);
    if (retrying == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a transaction");
    }
    *retrying = (struct tdm__retrying_txn){.store = store,
                                           .patterns_count = patterns_count,
                                           .deadline_ms = deadline_ms,
                                           .body = body,
                                           .done = done,
                                           .arg = arg};
    for (uint32_t i = 0; i < patterns_count; i++) {
        (void)snprintf(retrying->patterns[i], sizeof(retrying->patterns[i]), "%s", patterns[i]);
    }
    *retrying_out = retrying;
    return TDM_OK;
}

tdm_status tdm__retrying_txn_run(struct tdm__store *store, const char *const *patterns,
                                 uint32_t patterns_count, int64_t deadline_ms,
                                 tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg)
{
    struct tdm__retrying_txn *retrying;
    tdm_status status;

    TDM_TRY(retrying_txn_create(store, patterns, patterns_count, deadline_ms, body, done, arg,
                                &retrying));
    status = retrying_txn_retry(retrying);
    if (status != TDM_OK) {
        free(retrying);
    }
    return status;
}

tdm_status tdm__retrying_txn_run_queued(struct tdm__store *store, const char *const *patterns,
                                        uint32_t patterns_count, int64_t deadline_ms,
                                        tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg)
{
    struct tdm__retrying_txn *retrying;
    tdm_status status;

    TDM_TRY(retrying_txn_create(store, patterns, patterns_count, deadline_ms, body, done, arg,
                                &retrying));
    retrying->queued = true;
    if (store->queued_txns != NULL) {
        store->last_queued_txn->next = retrying;
        store->last_queued_txn = retrying;
        return TDM_OK;
    }
    retrying->running = true;
    status = retrying_txn_retry(retrying);
    if (status != TDM_OK) {
        free(retrying);
        return status;
    }
    store->queued_txns = retrying;
    store->last_queued_txn = retrying;
    return TDM_OK;
}
