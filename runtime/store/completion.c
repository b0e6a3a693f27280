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

/* Which callback a completion runs. */
enum outcome_kind { OUTCOME_READ, OUTCOME_COMMIT, OUTCOME_CHANGE };

/* A completed or running operation, or a change to report. The queue owns it once it has been
 * added. */
struct tdm__store_completion {
    struct tdm__store_completion *next; /* Next completion in the queue; NULL at the end. */
    enum outcome_kind kind;
    union {
        tdm__store_read_fn *read;
        tdm__store_commit_fn *commit;
        tdm__store_changed_fn *changed;
        /* Callback of this completion; `kind` selects the member. */
    } fn;
    void *arg;         /* Passed to the callback. */
    tdm_status status; /* Outcome of the operation. */
    /* Version that the commit gave its records; only for commits. */
    uint64_t version;
    /* Detail of a failure, or the key that changed (owned). */
    char *text;
    /* Records that the read returned (owned); NULL if it returned none. */
    struct tdm__store_records *records;
};

/* A queue of completions on one loop. */
struct tdm__store_completions {
    struct tdm__timer *timer;           /* Set while the queue is not empty (owned). */
    struct tdm__store_completion *head; /* First completion; NULL if the queue is empty. */
    /* Where the pointer to the next added completion goes. */
    struct tdm__store_completion **tail;
    /* Number of nested runs of deliver_all(). The outermost one frees a destroyed queue. */
    uint32_t deliveries;
    bool destroyed; /* Whether the owner has destroyed the queue. */
};

/* Runs the callback of one completion and frees it. With `is_closing` an operation fails and a
 * change is discarded. */
static void deliver(struct tdm__store_completion *outcome, bool is_closing)
{
    static const struct tdm__store_records none;
    const struct tdm__store_records *records = outcome->records != NULL ? outcome->records : &none;

    if (is_closing && outcome->kind != OUTCOME_CHANGE) {
        /* Even a success fails, because its callback would start the next operation on a closed
         * store. */
        free(outcome->text);
        outcome->text = strdup("the store was closed");
        outcome->status = TDM_E_STORE;
        records = &none;
    }
    if (outcome->status != TDM_OK) {
        (void)tdm__fail(outcome->status, "%s", outcome->text != NULL ? outcome->text : "");
    }
    switch (outcome->kind) {
    case OUTCOME_READ:
        outcome->fn.read(outcome->arg, outcome->status, records->items, records->count);
        break;
    case OUTCOME_COMMIT:
        outcome->fn.commit(outcome->arg, outcome->status,
                           outcome->status == TDM_OK ? outcome->version : TDM__VERSION_NONE);
        break;
    case OUTCOME_CHANGE:
        if (!is_closing) {
            outcome->fn.changed(outcome->arg, outcome->text);
        }
        break;
    }
    free(outcome->records);
    free(outcome->text);
    free(outcome);
}

/* Delivers until the queue is empty. Callbacks may call it again through the loop. */
static void deliver_all(void *arg)
{
    struct tdm__store_completions *outcomes = arg;

    outcomes->deliveries++;
    while (outcomes->head != NULL) {
        struct tdm__store_completion *outcome = outcomes->head;

        outcomes->head = outcome->next;
        if (outcomes->head == NULL) {
            outcomes->tail = &outcomes->head;
        }
        deliver(outcome, outcomes->destroyed);
    }
    outcomes->deliveries--;
    if (outcomes->destroyed && outcomes->deliveries == 0) {
        free(outcomes);
    }
}

tdm_status tdm__store_completions_create(struct tdm__loop *loop,
                                         struct tdm__store_completions **outcomes_out)
{
    struct tdm__store_completions *outcomes = calloc(1, sizeof(*outcomes));
    tdm_status status;

    if (outcomes == NULL) {
        return tdm__fail(TDM_E_NOMEM, "queue of store answers");
    }
    outcomes->tail = &outcomes->head;
    status = tdm__timer_create(loop, deliver_all, outcomes, &outcomes->timer);
    if (status != TDM_OK) {
        free(outcomes);
        return status;
    }
    *outcomes_out = outcomes;
    return TDM_OK;
}

void tdm__store_completions_destroy(struct tdm__store_completions *outcomes)
{
    tdm__timer_destroy(outcomes->timer);
    outcomes->timer = NULL;
    outcomes->destroyed = true;
    deliver_all(outcomes);
}

/* Allocates a completion of this kind. Running out of memory ends the process. */
static struct tdm__store_completion *create_outcome(enum outcome_kind kind, void *arg)
{
    struct tdm__store_completion *outcome = calloc(1, sizeof(*outcome));

    TDM_ASSERT(outcome != NULL);
    outcome->kind = kind;
    outcome->arg = arg;
    return outcome;
}

struct tdm__store_completion *tdm__store_completion_of_read(tdm__store_read_fn *fn, void *arg)
{
    struct tdm__store_completion *outcome = create_outcome(OUTCOME_READ, arg);

    outcome->fn.read = fn;
    return outcome;
}

struct tdm__store_completion *tdm__store_completion_of_commit(tdm__store_commit_fn *fn, void *arg)
{
    struct tdm__store_completion *outcome = create_outcome(OUTCOME_COMMIT, arg);

    outcome->fn.commit = fn;
    return outcome;
}

void tdm__store_completion_set_version(struct tdm__store_completion *outcome, uint64_t version)
{
    outcome->version = version;
}

/* Appends the completion and sets the timer for the next round of the loop. */
static void enqueue(struct tdm__store_completions *outcomes, struct tdm__store_completion *outcome)
{
    *outcomes->tail = outcome;
    outcomes->tail = &outcome->next;
    if (!outcomes->destroyed) {
        TDM_ASSERT(tdm__timer_set(outcomes->timer, tdm__clock_ms()) == TDM_OK);
    }
}

void tdm__store_completions_add(struct tdm__store_completions *outcomes,
                                struct tdm__store_completion *outcome, tdm_status status,
                                struct tdm__store_records *records)
{
    outcome->status = status;
    outcome->records = records;
    outcome->text = status == TDM_OK ? NULL : strdup(tdm_error_detail());
    enqueue(outcomes, outcome);
}

void tdm__store_completions_add_change(struct tdm__store_completions *outcomes,
                                       tdm__store_changed_fn *fn, void *arg, const char *key)
{
    struct tdm__store_completion *outcome = create_outcome(OUTCOME_CHANGE, arg);

    outcome->fn.changed = fn;
    outcome->text = strdup(key);
    TDM_ASSERT(outcome->text != NULL);
    enqueue(outcomes, outcome);
}
