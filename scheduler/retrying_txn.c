/* retrying_txn.c - transactions that are repeated until their outcome is known. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A retrying transaction owns copies of its patterns and starts a transaction (tdm__txn) for each
 * attempt. It ends with the first outcome other than TDM_E_STORE, or at its deadline.
 *
 * Queued ones are linked in the store, store->queued_txns being the head. Only the head runs; when
 * it ends, it starts its successor before it reports its own outcome, because the callback may
 * close the store. When the store closes, the remaining ones fail.
 *
 * If the head and those behind it allow it, they run together: one attempt reads the patterns of
 * all, its body runs the body of each as a part of its own, and one commit has the writes of all.
 * This saves the store most of its work when many requests wait, as when a program creates many
 * actors. A body that fails on records that were read is left out, and the others run again
 * without it. If the shared commit fails, all go back to the queue, and run alone. Everything runs
 * on the loop's thread. */

#include "scheduler/retrying_txn.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/store/read_cache.h"
#include "runtime/store/txn.h"
#include "scheduler/records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest numbers of patterns of a transaction, and of those that run together. */
enum { PATTERNS_MAX = 5, SHARED_PATTERNS_MAX = PATTERNS_MAX * TDM__SHARED_TXNS_MAX };

/* A transaction that is repeated while its outcome is unknown. It is freed after `done` has run. */
struct tdm__retrying_txn {
    struct tdm__retrying_txn *next; /* Next transaction in the store's queue; NULL at the end. */
    bool queued;                    /* Whether the transaction is in the store's queue. */
    bool running;                   /* Whether a queued transaction has been started. */
    bool may_share;                 /* Whether it may run together with others. */
    /* Number of transactions at the head of the queue that run together, this one included; 1 if it
     * runs alone. Only of the head. */
    uint32_t sharers_count;
    /* Failure of the body in the last attempt, with which the transaction ends although the others
     * are committed; TDM_OK if there is none. */
    tdm_status body_status;
    char body_detail[TDM__ERROR_DETAIL_BYTES]; /* Text of that failure. */
    struct tdm__store *store;                  /* Store to read and write (borrowed). */
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

/* ---- the body ---------------------------------------------------------------------------- */

/* Forgets the failures of the bodies of the transactions that run together. */
static void forget_body_failures(struct tdm__retrying_txn *head)
{
    struct tdm__retrying_txn *retrying = head;

    for (uint32_t i = 0; i < head->sharers_count; i++, retrying = retrying->next) {
        retrying->body_status = TDM_OK;
    }
}

/* Runs the bodies of the transactions that run together, one after the other, except those that
 * have failed. Stops at the first one that fails, and stores it in `*failed_out`. */
static tdm_status run_parts(struct tdm__retrying_txn *head, struct tdm__txn *txn,
                            struct tdm__retrying_txn **failed_out)
{
    struct tdm__retrying_txn *retrying = head;
    tdm_status status = TDM_OK;

    for (uint32_t i = 0; i < head->sharers_count && status == TDM_OK; i++) {
        if (retrying->body_status == TDM_OK) {
            *failed_out = retrying;
            status = i == 0 ? TDM_OK : tdm__txn_next_part(txn);
            if (status == TDM_OK) {
                status = retrying->body(retrying->arg, txn);
            }
        }
        retrying = retrying->next;
    }
    return status;
}

/* Body of an attempt, which runs the bodies of all that run together. Records that no read has
 * confirmed decide about no failure. */
static tdm_status retrying_txn_body(void *arg, struct tdm__txn *txn)
{
    struct tdm__retrying_txn *head = arg;
    struct tdm__retrying_txn *failed;
    tdm_status status;

    if (head->sharers_count == 1) {
        return head->body(head->arg, txn);
    }
    forget_body_failures(head);
    while ((status = run_parts(head, txn, &failed)) != TDM_OK && !tdm__txn_is_guess(txn)) {
        failed->body_status = status;
        (void)snprintf(failed->body_detail, sizeof(failed->body_detail), "%s", tdm_error_detail());
        tdm__txn_restart(txn);
    }
    return status;
}

/* ---- the queue --------------------------------------------------------------------------- */

/* Reports the final outcome of a transaction to the caller and frees the transaction. */
static void retrying_txn_finish(struct tdm__retrying_txn *retrying, tdm_status status,
                                const char *detail)
{
    retrying->done(retrying->arg, status, detail);
    free(retrying);
}

/* Chooses the transactions at the head of the queue that run together, and marks them as running.
 */
static void start_sharing(struct tdm__retrying_txn *head)
{
    struct tdm__retrying_txn *retrying = head->next;

    head->running = true;
    head->sharers_count = 1;
    while (head->may_share && retrying != NULL && retrying->may_share &&
           head->sharers_count < TDM__SHARED_TXNS_MAX) {
        retrying->running = true;
        head->sharers_count++;
        retrying = retrying->next;
    }
}

/* Puts the transactions that have run together back into the queue, where each runs alone. */
static void stop_sharing(struct tdm__retrying_txn *head)
{
    struct tdm__retrying_txn *retrying = head;

    for (uint32_t i = 0; i < head->sharers_count; i++, retrying = retrying->next) {
        retrying->running = false;
        retrying->may_share = false;
    }
}

/* Starts the transactions at the head of the store's queue, unless they are running. If they cannot
 * be started together, each is started alone; one that cannot be started alone fails, and the next
 * one is tried. */
static void retrying_txn_start_next(struct tdm__store *store)
{
    while (store->queued_txns != NULL && !store->queued_txns->running) {
        struct tdm__retrying_txn *retrying = store->queued_txns;
        tdm_status status =
            store->closing ? tdm__fail(TDM_E_STORE, "the store was closed") : TDM_OK;

        retrying->sharers_count = 1;
        if (status == TDM_OK) {
            start_sharing(retrying);
            status = retrying_txn_retry(retrying);
        }
        if (status != TDM_OK && retrying->sharers_count > 1) {
            stop_sharing(retrying);
        } else if (status != TDM_OK) {
            store->queued_txns = retrying->next;
            retrying_txn_finish(retrying, status, tdm_error_detail());
        }
    }
}

/* Takes the transactions that have run together off the queue, starts the next ones, and reports
 * the outcomes. The next ones start before the callbacks run, because a callback may close the
 * store. */
static void finish_sharing(struct tdm__retrying_txn *head, tdm_status status, const char *detail)
{
    struct tdm__store *store = head->store;
    uint32_t count = head->sharers_count;
    struct tdm__retrying_txn *retrying = head;

    TDM_ASSERT(store->queued_txns == head);
    for (uint32_t i = 0; i < count; i++) {
        store->queued_txns = store->queued_txns->next;
    }
    retrying_txn_start_next(store);
    for (uint32_t i = 0; i < count; i++) {
        struct tdm__retrying_txn *next = retrying->next;

        if (status == TDM_OK && count > 1 && retrying->body_status != TDM_OK) {
            retrying_txn_finish(retrying, retrying->body_status, retrying->body_detail);
        } else {
            retrying_txn_finish(retrying, status, detail);
        }
        retrying = next;
    }
}

/* Handles the outcome of an attempt: starts another attempt, or ends the transaction, and those
 * that have run together with it, and starts the next ones in the queue. */
static void retrying_txn_done(void *arg, tdm_status status, const char *detail)
{
    struct tdm__retrying_txn *retrying = arg;

    if (status == TDM_E_STORE && !retrying->store->closing &&
        tdm__deadline_remaining_ms(retrying->deadline_ms) > 0 &&
        retrying_txn_retry(retrying) == TDM_OK) {
        return;
    }
    if (!retrying->queued) {
        retrying_txn_finish(retrying, status, detail);
    } else if (status != TDM_OK && retrying->sharers_count > 1) {
        stop_sharing(retrying);
        retrying_txn_start_next(retrying->store);
    } else {
        finish_sharing(retrying, status, detail);
    }
}

/* Returns whether the pattern is among the first `count` ones. */
static bool has_pattern(const char *const *patterns, uint32_t count, const char *pattern)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(patterns[i], pattern) == 0) {
            return true;
        }
    }
    return false;
}

/* Starts the next attempt of a transaction and of those that run together with it, under the same
 * patterns and deadline. */
static tdm_status retrying_txn_retry(struct tdm__retrying_txn *retrying)
{
    const char *patterns[SHARED_PATTERNS_MAX];
    const struct tdm__retrying_txn *sharer = retrying;
    uint32_t count = 0;

    for (uint32_t i = 0; i < retrying->sharers_count; i++, sharer = sharer->next) {
        for (uint32_t j = 0; j < sharer->patterns_count; j++) {
            if (!has_pattern(patterns, count, sharer->patterns[j])) {
                patterns[count++] = sharer->patterns[j];
            }
        }
    }
    return tdm__txn_run(retrying->store, retrying->queued ? retrying->store->read_cache : NULL,
                        patterns, count, retrying->deadline_ms, retrying_txn_body,
                        retrying_txn_done, retrying);
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
                                           .arg = arg,
                                           .sharers_count = 1};
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

/* Adds a transaction to the end of the store's queue, and starts it if it is the only one. On
 * failure the transaction is freed. */
static tdm_status retrying_txn_enqueue(struct tdm__retrying_txn *retrying)
{
    struct tdm__store *store = retrying->store;
    tdm_status status;

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

tdm_status tdm__retrying_txn_run_queued(struct tdm__store *store, const char *const *patterns,
                                        uint32_t patterns_count, int64_t deadline_ms,
                                        tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg)
{
    struct tdm__retrying_txn *retrying;

    TDM_TRY(retrying_txn_create(store, patterns, patterns_count, deadline_ms, body, done, arg,
                                &retrying));
    return retrying_txn_enqueue(retrying);
}

tdm_status tdm__retrying_txn_run_shared(struct tdm__store *store, const char *const *patterns,
                                        uint32_t patterns_count, int64_t deadline_ms,
                                        tdm__txn_body_fn *body, tdm__txn_done_fn *done, void *arg)
{
    struct tdm__retrying_txn *retrying;

    TDM_TRY(retrying_txn_create(store, patterns, patterns_count, deadline_ms, body, done, arg,
                                &retrying));
    retrying->may_share = true;
    return retrying_txn_enqueue(retrying);
}
