/* faulty_store.c - a store that forwards to another one, and loses or delays operations by a seed.
 */
/* The fault of an operation is drawn when the operation starts. So a run with the same seed and the
 * same order of operations meets the same faults.
 *
 * An operation is in the store's list from its start until its completion. When the faulty store
 * closes, operations that the inner store still has are removed from the list and fail; the inner
 * store's callback then only frees them. Everything runs on the loop's thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/faulty_store.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/splitmix.h"
#include "runtime/store/completion.h"

#include <stdlib.h>
#include <sys/queue.h>

/* What happens to an operation: nothing, or its request or its reply is lost, or its reply is
 * delayed. */
enum fault {
    FAULT_NONE,         /* The operation has no fault. */
    FAULT_LOST_REQUEST, /* The inner store never receives the operation. */
    FAULT_LOST_REPLY,   /* The inner store's outcome is dropped, and the operation fails. */
    FAULT_DELAY,        /* The inner store's outcome is reported later. */
    FAULTS_COUNT        /* Number of values of this enum. */
};

/* Longest delay of an outcome, in milliseconds. */
enum { DELAY_MS_MAX = 20 };

/* A read or commit of the faulty store that is in progress. */
struct operation {
    LIST_ENTRY(operation) entry; /* Link in the store's list of operations. */
    /* Faulty store that started the operation; NULL once that store is closed. */
    struct faulty_store *faulty;
    /* Completion that reports the outcome to the caller (owned until the report). */
    struct tdm__store_completion *completion;
    enum fault fault; /* Fault that the operation gets. */
    int64_t delay_ms; /* Delay of the outcome in milliseconds; only for FAULT_DELAY. */

    /* Timer that fires when the delay has passed (owned); NULL before the inner store's reply. */
    struct tdm__timer *timer;
    tdm_status status; /* Outcome of the inner store, which is delayed. */
    /* Records that the inner store has read, which are delayed (owned); NULL if absent. */
    struct tdm__store_records *records;
};

/* A store for tests that injects faults into the operations of another store. */
struct faulty_store {
    /* Must be the first field, because it is cast to this structure. */
    struct tdm__store store;
    struct tdm__loop *loop;   /* Loop on which the store runs (borrowed). */
    struct tdm__store *inner; /* Store that does the work, without faults (borrowed). */
    struct tdm__store_completions *completions; /* Queue of outcomes to report (owned). */
    LIST_HEAD(, operation) operations;          /* List of all operations in progress. */
    uint64_t seed;                              /* Seed from which the faults are drawn. */
    uint64_t draws_count; /* Number of operations for which a fault was drawn so far. */
    uint32_t one_in;      /* One in this number of operations has a fault. */
};

/* Allocates an operation and draws its fault. */
static struct operation *operation_create(struct faulty_store *faulty,
                                          struct tdm__store_completion *completion)
{
    struct operation *operation = calloc(1, sizeof(*operation));
    uint64_t draw = tdm__splitmix64(faulty->seed, faulty->draws_count++);

    TDM_ASSERT(operation != NULL);
    operation->faulty = faulty;
    operation->completion = completion;
    if (draw % faulty->one_in == 0) {
        operation->fault = (enum fault)(1 + (draw >> 32) % (FAULTS_COUNT - 1));
        operation->delay_ms = 1 + (int64_t)((draw >> 40) % DELAY_MS_MAX);
    }
    LIST_INSERT_HEAD(&faulty->operations, operation, entry);
    return operation;
}

/* Removes an operation from the store's list and frees it. */
static void operation_free(struct operation *operation)
{
    if (operation->faulty != NULL) {
        LIST_REMOVE(operation, entry);
    }
    tdm__timer_destroy(operation->timer);
    free(operation->records);
    free(operation);
}

/* Reports the outcome of an operation to its caller and frees the operation. Takes ownership of
 * `records`. */
static void faulty_complete(struct operation *operation, tdm_status status,
                            struct tdm__store_records *records)
{
    tdm__store_completions_add(operation->faulty->completions, operation->completion, status,
                               records);
    operation_free(operation);
}

/* If the fault of an operation is a lost request, fails the operation and returns true. The inner
 * store then never receives the request. While the store closes, every request is lost. */
static bool faulty_lose_request(struct operation *operation)
{
    if (operation->fault != FAULT_LOST_REQUEST && !operation->faulty->store.closing) {
        return false;
    }
    faulty_complete(operation,
                    tdm__fail(TDM_E_STORE,
                              "store operation failed: the injected fault has dropped the request"),
                    NULL);
    return true;
}

/* Callback of the timer: reports the delayed outcome of an operation. */
static void on_delay_over(void *arg)
{
    struct operation *operation = arg;
    struct tdm__store_records *records = operation->records;

    operation->records = NULL;
    if (operation->status != TDM_OK) {
        (void)tdm__fail(operation->status,
                        "store operation failed: the injected fault has delayed the failure");
    }
    faulty_complete(operation, operation->status, records);
}

/* Handles the inner store's outcome of an operation: reports, loses or delays it. Takes ownership
 * of `records`. */
static void faulty_on_reply(struct operation *operation, tdm_status status,
                            struct tdm__store_records *records)
{
    struct faulty_store *faulty = operation->faulty;

    if (faulty == NULL) {
        free(records);
        operation_free(operation);
        return;
    }
    if (operation->fault == FAULT_LOST_REPLY) {
        free(records);
        faulty_complete(
            operation,
            tdm__fail(TDM_E_STORE,
                      "store operation failed: the injected fault has dropped the reply"),
            NULL);
        return;
    }
    if (operation->fault == FAULT_DELAY &&
        tdm__timer_create(faulty->loop, on_delay_over, operation, &operation->timer) == TDM_OK &&
        tdm__timer_set(operation->timer, tdm__clock_ms() + operation->delay_ms) == TDM_OK) {
        operation->status = status;
        operation->records = records;
        return;
    }
    faulty_complete(operation, status, records);
}

/* Callback of the inner store when a read has completed. */
static void faulty_on_read(void *arg, tdm_status status, const struct tdm__store_record *items,
                           uint32_t count)
{
    struct tdm__store_records *records = NULL;

    if (status == TDM_OK) {
        status = tdm__store_records_copy(items, count, &records);
    }
    faulty_on_reply(arg, status, records);
}

/* Callback of the inner store when a commit has completed. */
static void faulty_on_committed(void *arg, tdm_status status,
                                const struct tdm__store_committed *committed)
{
    struct operation *operation = arg;
    struct tdm__store_records *losers = NULL;

    if (committed->losers != NULL &&
        tdm__store_records_copy(committed->losers, committed->losers_count, &losers) != TDM_OK) {
        losers = NULL; /* The caller reads the records itself then. */
    }
    if (operation->faulty != NULL) {
        tdm__store_completion_set_version(operation->completion, committed->version);
    }
    faulty_on_reply(operation, status, losers);
}

/* Callback of the inner store when a renewal has completed. */
static void faulty_on_renewed(void *arg, tdm_status status,
                              const struct tdm__store_renewed *renewed,
                              const struct tdm__store_record *members, uint32_t members_count)
{
    struct operation *operation = arg;
    struct tdm__store_records *records = NULL;

    if (status == TDM_OK && members != NULL) {
        status = tdm__store_records_copy(members, members_count, &records);
    }
    if (operation->faulty != NULL && status == TDM_OK) {
        tdm__store_completion_set_renewed(operation->completion, renewed);
    }
    faulty_on_reply(operation, status, records);
}

/* Starts a read of the inner store, unless the fault is a lost request. */
static void faulty_read(struct tdm__store *store, const char *const *patterns,
                        uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                        void *arg)
{
    struct faulty_store *faulty = (struct faulty_store *)store;
    struct operation *operation = operation_create(faulty, tdm__store_completion_of_read(fn, arg));

    if (!faulty_lose_request(operation)) {
        faulty->inner->ops->read(faulty->inner, patterns, patterns_count, deadline_ms,
                                 faulty_on_read, operation);
    }
}

/* Starts a commit of the inner store, unless the fault is a lost request. */
static void faulty_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                          uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                          void *arg)
{
    struct faulty_store *faulty = (struct faulty_store *)store;
    struct operation *operation =
        operation_create(faulty, tdm__store_completion_of_commit(fn, arg));

    if (!faulty_lose_request(operation)) {
        faulty->inner->ops->commit(faulty->inner, writes, writes_count, deadline_ms,
                                   faulty_on_committed, operation);
    }
}

/* Starts a renewal in the inner store, unless the fault is a lost request. */
static void faulty_renew(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                         int64_t deadline_ms, tdm__store_renewed_fn *fn, void *arg)
{
    struct faulty_store *faulty = (struct faulty_store *)store;
    struct operation *operation =
        operation_create(faulty, tdm__store_completion_of_renewal(fn, arg));

    if (!faulty_lose_request(operation)) {
        faulty->inner->ops->renew(faulty->inner, renewal, deadline_ms, faulty_on_renewed,
                                  operation);
    }
}

/* Adds a watcher to the inner store; notices to watchers have no faults. */
static tdm_status faulty_watch(struct tdm__store *store, const char *prefix,
                               tdm__store_changed_fn *fn, void *arg)
{
    struct faulty_store *faulty = (struct faulty_store *)store;

    return faulty->inner->ops->watch(faulty->inner, prefix, fn, arg);
}

/* Closes the faulty store. Operations that the inner store still has remain allocated until the
 * inner store replies. */
static void faulty_close(struct tdm__store *store)
{
    struct faulty_store *faulty = (struct faulty_store *)store;
    struct operation *operation = LIST_FIRST(&faulty->operations);

    store->closing = true;
    while (operation != NULL) {
        struct operation *next = LIST_NEXT(operation, entry);

        tdm__store_completions_add(faulty->completions, operation->completion, TDM_E_STORE, NULL);
        if (operation->timer != NULL) {
            operation_free(operation);
        } else {
            LIST_REMOVE(operation, entry);
            operation->faulty = NULL;
        }
        operation = next;
    }
    tdm__store_completions_destroy(faulty->completions);
    free(faulty);
}

static const struct tdm__store_ops faulty_ops = {
    .name = "faulty",
    .close = faulty_close,
    .read = faulty_read,
    .commit = faulty_commit,
    .watch = faulty_watch,
    .renew = faulty_renew,
};

tdm_status tdm__store_faulty_open(struct tdm__loop *loop, struct tdm__store *inner, uint64_t seed,
                                  uint32_t one_in, struct tdm__store **store_out)
{
    struct faulty_store *faulty;
    tdm_status status;

    if (one_in == 0) {
        return tdm__fail(TDM_E_INVAL,
                         "creating the faulty store failed: N of SEED,N is 0. Give 1 or more");
    }
    faulty = calloc(1, sizeof(*faulty));
    if (faulty == NULL) {
        return tdm__fail(TDM_E_NOMEM, "creating the faulty store failed: out of memory");
    }
    faulty->store.ops = &faulty_ops;
    faulty->loop = loop;
    faulty->inner = inner;
    faulty->seed = seed;
    faulty->one_in = one_in;
    LIST_INIT(&faulty->operations);
    status = tdm__store_completions_create(loop, &faulty->completions);
    if (status != TDM_OK) {
        free(faulty);
        return status;
    }
    *store_out = &faulty->store;
    return TDM_OK;
}
