/* metered.c - a store that wraps another one and measures every operation. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The wrapper implements the operations of a store by calling the inner store, with its own
 * callback in between. That callback measures the duration, counts conflicts and other failures,
 * and calls the callback of the caller.
 *
 * The histograms and counters are global: all metered stores of a process share them. They are
 * atomic, so the thread that serves metrics may read them at any time. Everything else runs on the
 * loop's thread. */

#include "runtime/store/metered.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/metrics/metrics.h"

#include <stdlib.h>

/* A store that forwards every operation to `inner` and measures it. */
struct metered_store {
    /* The store as its users see it; first field, because pointers to it are cast to this
     * structure. */
    struct tdm__store store;
    struct tdm__store *inner; /* Store that carries out the operations (owned). */
};

/* A read or commit in progress that is measured. It is freed when it completes. */
struct operation {
    int64_t began_ns; /* Start of the operation, in nanoseconds on CLOCK_MONOTONIC. */
    /* Callback of the caller's read; NULL for other operations. */
    tdm__store_read_fn *read_fn;
    /* Callback of the caller's commit; NULL for other operations. */
    tdm__store_commit_fn *commit_fn;
    /* Callback of the caller's renewal; NULL for other operations. */
    tdm__store_renewed_fn *renewed_fn;
    void *arg; /* First argument of the caller's callback. */
};

/* Durations of reads of all metered stores of this process. */
static struct tdm__histogram read_times;
/* Durations of commits of all metered stores of this process. */
static struct tdm__histogram commit_times;
/* Number of commits of all metered stores that failed with TDM_E_CONFLICT. */
static struct tdm__counter conflicts;
/* Number of operations of all metered stores with any other failure. */
static struct tdm__counter failures;

/* Allocates an operation that starts now. Exactly one of the callbacks is not NULL. */
static struct operation *operation_create(tdm__store_read_fn *read_fn,
                                          tdm__store_commit_fn *commit_fn,
                                          tdm__store_renewed_fn *renewed_fn, void *arg)
{
    struct operation *operation = malloc(sizeof(*operation));

    TDM_ASSERT(operation != NULL);
    *operation = (struct operation){tdm__clock_ns(), read_fn, commit_fn, renewed_fn, arg};
    return operation;
}

/* Records the duration and the outcome of a completed operation. */
static void operation_measure(struct tdm__histogram *times, const struct operation *operation,
                              tdm_status status)
{
    tdm__histogram_add(times, tdm__clock_ns() - operation->began_ns);
    if (status == TDM_E_CONFLICT) {
        tdm__counter_add(&conflicts, 1);
    } else if (status != TDM_OK) {
        tdm__counter_add(&failures, 1);
    }
}

/* Handles the outcome of a forwarded read: measures the read and runs the caller's callback. */
static void metered_on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                            uint32_t records_count)
{
    struct operation operation = *(struct operation *)arg;

    free(arg);
    operation_measure(&read_times, &operation, status);
    operation.read_fn(operation.arg, status, records, records_count);
}

/* Handles the outcome of a forwarded commit: measures the commit and runs the caller's callback. */
static void metered_on_committed(void *arg, tdm_status status,
                                 const struct tdm__store_committed *committed)
{
    struct operation operation = *(struct operation *)arg;

    free(arg);
    operation_measure(&commit_times, &operation, status);
    operation.commit_fn(operation.arg, status, committed);
}

/* Handles the outcome of a forwarded renewal, which counts as a commit: measures the renewal and
 * runs the caller's callback. */
static void metered_on_renewed(void *arg, tdm_status status,
                               const struct tdm__store_renewed *renewed,
                               const struct tdm__store_record *members, uint32_t members_count)
{
    struct operation operation = *(struct operation *)arg;

    free(arg);
    operation_measure(&commit_times, &operation, status);
    operation.renewed_fn(operation.arg, status, renewed, members, members_count);
}

/* Forwards a read to the inner store and measures it. */
static void metered_read(struct tdm__store *store, const char *const *patterns,
                         uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                         void *arg)
{
    struct tdm__store *inner = ((struct metered_store *)store)->inner;

    inner->ops->read(inner, patterns, patterns_count, deadline_ms, metered_on_read,
                     operation_create(fn, NULL, NULL, arg));
}

/* Forwards a commit to the inner store and measures it. */
static void metered_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                           uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                           void *arg)
{
    struct tdm__store *inner = ((struct metered_store *)store)->inner;

    inner->ops->commit(inner, writes, writes_count, deadline_ms, metered_on_committed,
                       operation_create(NULL, fn, NULL, arg));
}

/* Forwards a renewal to the inner store and measures it. */
static void metered_renew(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                          int64_t deadline_ms, tdm__store_renewed_fn *fn, void *arg)
{
    struct tdm__store *inner = ((struct metered_store *)store)->inner;

    inner->ops->renew(inner, renewal, deadline_ms, metered_on_renewed,
                      operation_create(NULL, NULL, fn, arg));
}

/* Forwards a watch to the inner store; watches are not measured. */
static tdm_status metered_watch(struct tdm__store *store, const char *prefix,
                                tdm__store_changed_fn *fn, void *arg)
{
    struct tdm__store *inner = ((struct metered_store *)store)->inner;

    return inner->ops->watch(inner, prefix, fn, arg);
}

/* Closes the inner store and frees the wrapper. */
static void metered_close(struct tdm__store *store)
{
    struct metered_store *metered = (struct metered_store *)store;

    store->closing = true;
    /* Closing completes all pending operations with a failure. */
    metered->inner->ops->close(metered->inner);
    free(metered);
}

/* The functions of a metered store. */
static const struct tdm__store_ops metered_ops = {
    .name = "metered",
    .close = metered_close,
    .read = metered_read,
    .commit = metered_commit,
    .watch = metered_watch,
    .renew = metered_renew,
};

tdm_status tdm__store_metered_open(struct tdm__store *inner, struct tdm__store **store_out)
{
    struct metered_store *metered = calloc(1, sizeof(*metered));

    if (metered == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a metered store");
    }
    metered->store.ops = &metered_ops;
    metered->inner = inner;
    *store_out = &metered->store;
    return TDM_OK;
}

void tdm__store_metered_write_metrics(FILE *out)
{
    static const char *const of_reads[] = {"operation", "read", NULL};
    static const char *const of_commits[] = {"operation", "commit", NULL};
    struct tdm__histogram_snapshot view;

    tdm__metrics_family(out, "tandem_store_seconds", "histogram",
                        "Time until the cluster's store replied.");
    tdm__histogram_read(&read_times, &view);
    tdm__metrics_histogram(out, "tandem_store_seconds", of_reads, &view);
    tdm__histogram_read(&commit_times, &view);
    tdm__metrics_histogram(out, "tandem_store_seconds", of_commits, &view);
    tdm__metrics_family(
        out, "tandem_store_conflicts_total", "counter",
        "Commits that conflicted with a commit of another process; they are retried.");
    tdm__metrics_sample(out, "tandem_store_conflicts_total", NULL,
                        (double)tdm__counter_value(&conflicts));
    tdm__metrics_family(out, "tandem_store_failures_total", "counter",
                        "Operations to which the store did not reply, or that it refused.");
    tdm__metrics_sample(out, "tandem_store_failures_total", NULL,
                        (double)tdm__counter_value(&failures));
}
