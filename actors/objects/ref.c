/* ref.c - the present or future result of a call or of a put. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements struct tdm_ref and lists of references. A reference is incomplete until it gets a
 * value (ref_complete.c) or a failure, once, with the loop's lock. Its value never changes after
 * that, except that its owner may free it with tdm_ref_free_value().
 *
 * Any user thread may enter. The value is published with a release store, so that
 * tdm_get_value() of a completed reference takes no lock. Releasing a last, private reference
 * does not take the lock either; see ref_is_private(). All else is guarded by the loop's lock. */

#include "actors/objects/ref.h"

#include "actors/objects/large_value.h"
#include "actors/objects/ref_records.h"
#include "actors/process/runtime.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/free_list.h"

#include <stdlib.h>
#include <string.h>

tdm_status tdm__ref_create(tdm_runtime *runtime, tdm_ref **ref_out)
{
    tdm_ref *ref = tdm__free_list_alloc_zeroed(sizeof(*ref));

    if (ref == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a reference");
    }
    ref->runtime = runtime;
    atomic_init(&ref->holders_count, 1);
    *ref_out = ref;
    return TDM_OK;
}

void tdm__ref_retain(tdm_ref *ref)
{
    atomic_fetch_add_explicit(&ref->holders_count, 1, memory_order_relaxed);
}

/* Frees the reference after its last holder has released it. Needs the loop's lock unless the
 * reference is private. */
static void ref_free(tdm_ref *ref)
{
    /* After the runtime has stopped, on_end and the table are gone. */
    if (ref->runtime == tdm_runtime_current()) {
        if (ref->on_end != NULL) {
            ref->on_end(ref);
        }
        if (ref->shared != NULL) {
            ref->shared->objects->callbacks->on_last_release(ref->shared);
        }
    }
    tdm_document_destroy(ref->document);
    tdm__large_release(ref->large);
    tdm__pins_release(&ref->nested);
    free(ref->detail);
    tdm__free_list_free(ref, sizeof(*ref));
}

void tdm__ref_release_locked(tdm_ref *ref)
{
    uint32_t holders_count =
        atomic_fetch_sub_explicit(&ref->holders_count, 1, memory_order_acq_rel);

    TDM_ASSERT(holders_count > 0);
    if (holders_count == 1) {
        ref_free(ref);
    }
}

/* Returns true if the releasing thread is the only holder, no other process knows the reference,
 * and freeing it changes no other counted object. No other thread can reach the reference then. */
static bool ref_is_private(const tdm_ref *ref)
{
    return atomic_load_explicit(&ref->holders_count, memory_order_acquire) == 1 &&
           ref->shared == NULL && ref->on_end == NULL && ref->large == NULL &&
           ref->nested.count == 0;
}

void tdm_ref_release(tdm_ref *ref)
{
    if (ref == NULL) {
        return;
    }
    if (ref_is_private(ref)) {
        ref_free(ref);
        return;
    }
    /* References may be released after their runtime has stopped: there is no lock then. */
    TDM__LOOP_ENTER(ref->runtime == tdm_runtime_current() ? ref->runtime->loop : NULL);
    tdm__ref_release_locked(ref);
}

tdm_status tdm__ref_value(tdm_ref *ref, const tdm_value **value_out)
{
    TDM_TRY(tdm__ref_status(ref));
    if (ref->document == NULL && ref->large != NULL) {
        tdm_document *document;

        TDM_TRY(tdm__large_document(ref->large, &document));
        tdm__ref_set_document(ref, document);
    }
    *value_out = ref->value;
    return TDM_OK;
}

tdm_status tdm__ref_status(const tdm_ref *ref)
{
    TDM_ASSERT(ref->done);
    if (ref->status != TDM_OK) {
        return tdm__fail(ref->status, "%s", ref->detail == NULL ? "" : ref->detail);
    }
    return TDM_OK;
}

/* ---- completion ---------------------------------------------------------------------------- */

/* A callback that waits for a reference to complete. Owned by the reference's list until it
 * runs. */
struct tdm__done {
    /* Next callback of the same reference, in the order of their registration. */
    struct tdm__done *next;
    tdm_ref *ref;    /* Retained until the callback has run. */
    tdm_done_fn *fn; /* The user's function. */
    void *arg;       /* Argument of `fn`. */
};

/* Calls the user's function without the loop's lock and frees the callback. */
static void done_callbacks_run(struct tdm__loop *loop, struct tdm__done *done)
{
    uint32_t depth = loop == NULL ? 0 : tdm__loop_leave_all(loop);

    done->fn(done->arg, done->ref);
    if (loop != NULL) {
        tdm__loop_reenter(loop, depth);
    }
    tdm_ref_release(done->ref);
    free(done);
}

/* Runs a posted callback; the loop calls it with the lock. */
static void on_callback_posted(void *arg)
{
    struct tdm__done *done = arg;

    done_callbacks_run(done->ref->runtime->loop, done);
}

/* Schedules the completion callbacks. They are posted so that they do not run inside the function
 * that completed the reference. While the runtime stops, posted functions no longer run, so they
 * are called at once. */
static void ref_notify_done(tdm_ref *ref)
{
    struct tdm__done *done;

    while ((done = ref->done_callbacks) != NULL) {
        ref->done_callbacks = done->next;
        if (ref->runtime->is_stopping ||
            tdm__loop_post(ref->runtime->loop, on_callback_posted, done) != TDM_OK) {
            done_callbacks_run(ref->runtime->loop, done);
        }
    }
}

tdm_status tdm__ref_on_done(tdm_ref *ref, tdm_done_fn *fn, void *arg)
{
    struct tdm__done **tail = &ref->done_callbacks;
    struct tdm__done *done = calloc(1, sizeof(*done));

    if (done == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a callback of a reference");
    }
    done->ref = ref;
    done->fn = fn;
    done->arg = arg;
    tdm__ref_retain(ref);
    if (ref->done) {
        done_callbacks_run(ref->runtime->loop, done);
        return TDM_OK;
    }
    while (*tail != NULL) {
        tail = &(*tail)->next;
    }
    *tail = done;
    return TDM_OK;
}

void tdm__ref_wake_waiters(tdm_ref *ref)
{
    if (ref->shared != NULL) {
        ref->shared->objects->callbacks->on_done(ref->shared);
    }
    if (ref->done_callbacks != NULL) {
        ref_notify_done(ref);
    }
}

void tdm__ref_set_document(tdm_ref *ref, tdm_document *document)
{
    ref->document = document;
    atomic_store_explicit(&ref->value, document == NULL ? NULL : tdm_document_root(document),
                          memory_order_release);
}

void tdm__ref_fail(tdm_ref *ref, tdm_status status, const char *detail)
{
    ref->done = true;
    ref->status = status;
    /* Without memory the failure has no text. */
    ref->detail = detail == NULL ? NULL : strdup(detail);
    tdm__ref_wake_waiters(ref);
}

/* ---- a list of references -------------------------------------------------------------------- */

tdm_status tdm__pins_add(struct tdm__pins *pins, tdm_ref *ref)
{
    if (pins->count == pins->capacity) {
        uint32_t capacity = pins->capacity == 0 ? 4 : 2 * pins->capacity;
        tdm_ref **refs = realloc(pins->refs, capacity * sizeof(*refs));

        if (refs == NULL) {
            return tdm__fail(TDM_E_NOMEM, "a list of %u references", capacity);
        }
        pins->refs = refs;
        pins->capacity = capacity;
    }
    tdm__ref_retain(ref);
    pins->refs[pins->count] = ref;
    pins->count++;
    return TDM_OK;
}

void tdm__pins_release(struct tdm__pins *pins)
{
    if (pins->refs == NULL) {
        return;
    }
    for (uint32_t i = 0; i < pins->count; i++) {
        tdm_ref_release(pins->refs[i]);
    }
    free(pins->refs);
    *pins = (struct tdm__pins){0};
}
