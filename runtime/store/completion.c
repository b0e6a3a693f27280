/* completion.c - the queue of completed store operations whose callbacks have not run yet. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The queue is a list of completions and a timer that is set while the list is not empty. The
 * timer's function removes the head and runs its callback until the list is empty.
 *
 * A callback may run the loop, which delivers the next completion in a nested call, or destroy the
 * queue. So the queue counts nested deliveries, and the outermost one frees a destroyed queue.
 * After destruction every remaining operation fails with TDM_E_STORE, even one that succeeded: its
 * callback must not start another operation on a store that is closing. All functions run on the
 * loop's thread. */

#include "runtime/store/completion.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Which callback runs when a completion is taken from the queue. */
enum completion_kind {
    COMPLETION_READ,    /* The callback of a read, with the records. */
    COMPLETION_COMMIT,  /* The callback of a commit, with the new version or the losers. */
    COMPLETION_RENEWAL, /* The callback of a renewal, with its answer and the list of members. */
    COMPLETION_CHANGE   /* The callback of a watcher, with the key that changed. */
};

/* A completed or running store operation, or a changed key to report. The queue owns it once it has
 * been added. */
struct tdm__store_completion {
    struct tdm__store_completion *next; /* Next completion in the queue; NULL at the end. */
    enum completion_kind kind;          /* Which callback the completion runs. */
    /* Callback of the completion; `kind` selects the member. */
    union {
        tdm__store_read_fn *read;       /* Callback of a read, for COMPLETION_READ. */
        tdm__store_commit_fn *commit;   /* Callback of a commit, for COMPLETION_COMMIT. */
        tdm__store_renewed_fn *renewed; /* Callback of a renewal, for COMPLETION_RENEWAL. */
        tdm__store_changed_fn *changed; /* Callback of a watcher, for COMPLETION_CHANGE. */
    } fn;
    void *arg;         /* First argument of the callback. */
    tdm_status status; /* Outcome of the read or commit. */
    /* Version that the commit gave its records; only for commits. */
    uint64_t version;
    /* Answer to a successful renewal; only for renewals. */
    struct tdm__store_renewed renewed;
    /* Text of a failure, or the key that changed (owned). */
    char *text;
    /* Records that the read, the renewal or a lost commit returned (owned); NULL if none. */
    struct tdm__store_records *records;
};

/* A queue of completions on one event loop. */
struct tdm__store_completions {
    /* Timer that runs the callbacks, set while the queue is not empty (owned). */
    struct tdm__timer *timer;
    /* First completion of the queue; NULL if the queue is empty. */
    struct tdm__store_completion *head;
    /* Address of the NULL pointer at the end of the queue, where the next added completion is
     * linked. */
    struct tdm__store_completion **tail;
    /* Number of nested runs of completions_deliver(). The outermost one frees a destroyed queue. */
    uint32_t deliveries;
    bool destroyed; /* Whether the owner has destroyed the queue. */
};

/* Runs the callback of a renewal. */
static void completion_deliver_renewal(struct tdm__store_completion *completion,
                                       const struct tdm__store_records *records)
{
    bool is_ok = completion->status == TDM_OK;

    completion->fn.renewed(completion->arg, completion->status, is_ok ? &completion->renewed : NULL,
                           is_ok && completion->records != NULL ? records->items : NULL,
                           is_ok ? records->count : 0);
}

/* Runs the callback of a commit. */
static void completion_deliver_commit(const struct tdm__store_completion *completion,
                                      const struct tdm__store_records *records)
{
    bool is_lost = completion->status == TDM_E_CONFLICT && records->count > 0;
    const struct tdm__store_committed committed = {
        .version = completion->status == TDM_OK ? completion->version : TDM__VERSION_NONE,
        .losers = is_lost ? records->items : NULL,
        .losers_count = is_lost ? records->count : 0};

    completion->fn.commit(completion->arg, completion->status, &committed);
}

/* Runs the callback of one completion and frees the completion. With `is_closing` an operation
 * fails and a change is discarded. */
static void completion_deliver(struct tdm__store_completion *completion, bool is_closing)
{
    static const struct tdm__store_records none;
    const struct tdm__store_records *records =
        completion->records != NULL ? completion->records : &none;

    if (is_closing && completion->kind != COMPLETION_CHANGE) {
        /* Even a success fails, because its callback would start the next operation on a closed
         * store. */
        free(completion->text);
        completion->text = strdup("the store was closed");
        completion->status = TDM_E_STORE;
        records = &none;
    }
    if (completion->status != TDM_OK) {
        (void)tdm__fail(completion->status, "%s", completion->text != NULL ? completion->text : "");
    }
    switch (completion->kind) {
    case COMPLETION_READ:
        completion->fn.read(completion->arg, completion->status, records->items, records->count);
        break;
    case COMPLETION_COMMIT:
        completion_deliver_commit(completion, records);
        break;
    case COMPLETION_RENEWAL:
        completion_deliver_renewal(completion, records);
        break;
    case COMPLETION_CHANGE:
        if (!is_closing) {
            completion->fn.changed(completion->arg, completion->text);
        }
        break;
    }
    free(completion->records);
    free(completion->text);
    free(completion);
}

/* Runs the callbacks of the queue until the queue is empty. A callback may run the loop, which
 * calls this function again. */
static void completions_deliver(void *arg)
{
    struct tdm__store_completions *completions = arg;

    completions->deliveries++;
    while (completions->head != NULL) {
        struct tdm__store_completion *completion = completions->head;

        completions->head = completion->next;
        if (completions->head == NULL) {
            completions->tail = &completions->head;
        }
        completion_deliver(completion, completions->destroyed);
    }
    completions->deliveries--;
    if (completions->destroyed && completions->deliveries == 0) {
        free(completions);
    }
}

tdm_status tdm__store_completions_create(struct tdm__loop *loop,
                                         struct tdm__store_completions **completions_out)
{
    struct tdm__store_completions *completions = calloc(1, sizeof(*completions));
    tdm_status status;

    if (completions == NULL) {
        return tdm__fail(TDM_E_NOMEM, "queue of store completions");
    }
    completions->tail = &completions->head;
    status = tdm__timer_create(loop, completions_deliver, completions, &completions->timer);
    if (status != TDM_OK) {
        free(completions);
        return status;
    }
    *completions_out = completions;
    return TDM_OK;
}

void tdm__store_completions_destroy(struct tdm__store_completions *completions)
{
    tdm__timer_destroy(completions->timer);
    completions->timer = NULL;
    completions->destroyed = true;
    completions_deliver(completions);
}

/* Allocates a completion of kind `kind`. Running out of memory ends the process. */
static struct tdm__store_completion *completion_create(enum completion_kind kind, void *arg)
{
    struct tdm__store_completion *completion = calloc(1, sizeof(*completion));

    TDM_ASSERT(completion != NULL);
    completion->kind = kind;
    completion->arg = arg;
    return completion;
}

struct tdm__store_completion *tdm__store_completion_of_read(tdm__store_read_fn *fn, void *arg)
{
    struct tdm__store_completion *completion = completion_create(COMPLETION_READ, arg);

    completion->fn.read = fn;
    return completion;
}

struct tdm__store_completion *tdm__store_completion_of_commit(tdm__store_commit_fn *fn, void *arg)
{
    struct tdm__store_completion *completion = completion_create(COMPLETION_COMMIT, arg);

    completion->fn.commit = fn;
    return completion;
}

struct tdm__store_completion *tdm__store_completion_of_renewal(tdm__store_renewed_fn *fn, void *arg)
{
    struct tdm__store_completion *completion = completion_create(COMPLETION_RENEWAL, arg);

    completion->fn.renewed = fn;
    return completion;
}

void tdm__store_completion_set_renewed(struct tdm__store_completion *completion,
                                       const struct tdm__store_renewed *renewed)
{
    completion->renewed = *renewed;
}

void tdm__store_completion_set_version(struct tdm__store_completion *completion, uint64_t version)
{
    completion->version = version;
}

/* Appends a completion to the queue and sets the timer for the next round of the loop. */
static void completions_enqueue(struct tdm__store_completions *completions,
                                struct tdm__store_completion *completion)
{
    *completions->tail = completion;
    completions->tail = &completion->next;
    if (!completions->destroyed) {
        TDM_ASSERT(tdm__timer_set(completions->timer, tdm__clock_ms()) == TDM_OK);
    }
}

void tdm__store_completions_add(struct tdm__store_completions *completions,
                                struct tdm__store_completion *completion, tdm_status status,
                                struct tdm__store_records *records)
{
    completion->status = status;
    completion->records = records;
    completion->text = status == TDM_OK ? NULL : strdup(tdm_error_detail());
    completions_enqueue(completions, completion);
}

void tdm__store_completions_add_change(struct tdm__store_completions *completions,
                                       tdm__store_changed_fn *fn, void *arg, const char *key)
{
    struct tdm__store_completion *completion = completion_create(COMPLETION_CHANGE, arg);

    completion->fn.changed = fn;
    completion->text = strdup(key);
    TDM_ASSERT(completion->text != NULL);
    completions_enqueue(completions, completion);
}
